//! G10, G11: how soon the locks of a killed process are somebody else's.

use std::io;

use super::{Context, Finish, start};
use crate::crew::Board;
use crate::job::LockJob;
use crate::measure::median;
use crate::progress::progress;
use crate::report::{Bar, Figure, Reference, Scale};
use crate::sys;
use crate::units::{Unit, Units, let_sleep};

/// Locks of the victim in G11.
const MANY: usize = 10_000;

struct Seen {
    small_ns: f64,
    large_ns: f64,
    many_ns: f64,
    victim_mib: usize,
}

pub(super) fn measure(context: &Context) -> io::Result<Finish> {
    let plan = context.bench.plan;
    let victim_mib = plan.victim_mib();
    progress(format_args!("G10: the holder is killed"));
    let small_ns = rounds(context, 1, 0, plan.count(100))?;
    progress(format_args!("G10: a holder of {victim_mib} MiB is killed"));
    let large_ns = rounds(context, 1, victim_mib, 5)?;
    progress(format_args!("G11: a holder of {MANY} locks is killed"));
    let many_ns = rounds(context, MANY, 0, 5)?;
    let seen = Seen { small_ns, large_ns, many_ns, victim_mib };
    Ok(Box::new(move |units| figures(&seen, units)))
}

/// Median nanoseconds from the kill to the last grant.
fn rounds(context: &Context, locks: usize, mib: usize, rounds: usize) -> io::Result<f64> {
    let daemon = context.daemon()?;
    let round = || {
        let board = Board::new()?;
        let core = Some(context.bench.core);
        sys::bind(core)?;
        let socket = daemon.socket().to_owned();
        let hold = LockJob::Hold { socket: socket.clone(), locks, singly: false, mib };
        let mut victim = start(hold, &board, core)?;
        board.await_ready(1)?;
        let waiter = start(LockJob::AwaitAll { socket, locks }, &board, core)?;
        board.await_ready(2)?;
        let_sleep();
        let before = sys::monotonic_ns();
        victim.kill()?;
        let after = board.await_stamp()?;
        waiter.finish()?;
        Ok((after - before) as f64)
    };
    let times: io::Result<Vec<_>> = (0..rounds).map(|_| round()).collect();
    Ok(median(&times?))
}

fn figures(seen: &Seen, units: &Units) -> Vec<Figure> {
    let (u5, u5s) = (units.reference(Unit::U5), units.reference(Unit::U5s));
    let own = Reference::absolute();
    let large = format!("the same, holder of {} MiB, p50", seen.victim_mib);
    vec![
        Figure::new("G10", "holder killed to waiter has the lock, p50", seen.small_ns, Scale::Ns)
            .per(&u5)
            .must(Bar::at_most(10.0, &u5))
            .target(Bar::at_most(3.0, &u5))
            .moonshot(Bar::at_most(1.5, &u5)),
        Figure::new("G10/large", large, seen.large_ns, Scale::Ns)
            .per(&u5s)
            .must(Bar::at_most(1.2, &u5s))
            .target(Bar::at_most(10e6, &own))
            .moonshot(Bar::at_most(1.5, &u5)),
        Figure::new(
            "G11",
            "10,000 locks of a killed client: last grant, p50",
            seen.many_ns,
            Scale::Ns,
        )
        .must(Bar::at_most(1e9, &own))
        .target(Bar::at_most(100e6, &own))
        .moonshot(Bar::at_most(20e6, &own)),
    ]
}
