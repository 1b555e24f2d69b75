//! G14: the daemon of the master and holder dies; somebody elsewhere waits for all its locks.

use std::io;

use super::{Context, Finish, Hand, join_all, mode, owner};
use crate::job::{LockJob, Names};
use crate::progress::progress;
use crate::report::{Bar, Figure, Reference, Scale};
use crate::sys;
use crate::units::Units;

/// Locks of the dead node.
const LOCKS: usize = 100_000;

struct Seen {
    locks: usize,
    last_ns: f64,
}

pub(super) fn measure(context: &Context) -> io::Result<Finish> {
    let locks = context.bench.plan.count(LOCKS);
    progress(format_args!("G14: a node with {locks} locks that another waits for is killed"));
    let mut nodes = context.nodes(None, 3)?;
    let mut joined = join_all(&nodes, 3, None)?;
    let table = Names::below(owner::TABLE, locks);
    let victim = Hand::keep(nodes.socket(1), table, mode::EX, None)?;
    let socket = nodes.socket(2).to_owned();
    let waiter = Hand::start(LockJob::Await { socket, names: table, mode: mode::EX }, None)?;
    std::thread::sleep(super::SETTLED);
    nodes.crash(1)?;
    drop((victim, joined.remove(0)));
    let safe = sys::monotonic_ns();
    nodes.gone(1);
    let last = waiter.board.await_stamp()?;
    waiter.stop()?;
    joined.into_iter().try_for_each(|hand| hand.stop().map(drop))?;
    let seen = Seen { locks, last_ns: (last - safe) as f64 };
    let quick = context.bench.plan.quick;
    Ok(Box::new(move |units| figures(&seen, quick, units)))
}

fn figures(seen: &Seen, quick: bool, _: &Units) -> Vec<Figure> {
    let own = Reference::absolute();
    let what = format!("master's node killed, {} locks: its safety to the last grant", seen.locks);
    let mut figure = Figure::new("G14", what, seen.last_ns, Scale::Ns)
        .target(Bar::at_most(300e6, &own))
        .moonshot(Bar::at_most(50e6, &own))
        .note("the new view comes with it, and is counted");
    if !quick {
        figure = figure.must(Bar::at_most(2e9, &own));
    }
    vec![figure]
}
