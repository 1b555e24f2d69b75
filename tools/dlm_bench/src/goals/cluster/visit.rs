//! A node comes into a lockspace with a table of locks, and leaves it cleanly: how long until fresh
//! names can be locked again everywhere, and what others feel of it.

use std::io;
use std::time::Duration;

use super::probe::{Probes, Seen as Felt, span};
use super::recovery::short;
use super::{Context, Finish, Hand, join_all, mode, owner};
use crate::job::{LockJob, Names};
use crate::measure::median;
use crate::nodes::Nodes;
use crate::progress::progress;
use crate::report::{Bar, Figure, Reference, Scale};
use crate::sys;
use crate::units::Units;

/// Times that the node comes and goes, at least and at most.
const VISITS_MIN: usize = 10;
const VISITS_MAX: usize = 150;
/// Time of changes in which probes see enough pairs.
const SEEN: Duration = Duration::from_millis(700);
/// Time between two changes.
const PAUSE: Duration = Duration::from_millis(20);
/// Fresh names that are locked to see that all slots answer: as few as still ask every node.
const FRESH: usize = 40;

struct Seen {
    locks: usize,
    join_ns: f64,
    leave_ns: f64,
    /// What others felt.
    felt: Felt,
}

pub(super) fn measure(context: &Context) -> io::Result<Finish> {
    let plan = context.bench.plan;
    let sizes = context.sizes.iter();
    let seen: io::Result<Vec<_>> = sizes.map(|locks| round(context, *locks)).collect();
    let seen = seen?;
    Ok(Box::new(move |units| figures(&seen, plan.quick, units)))
}

fn round(context: &Context, locks: usize) -> io::Result<Seen> {
    progress(format_args!("join, leave: a node comes and goes beside {locks} locks"));
    let nodes = context.nodes(None, 4)?;
    // What the one that comes does is another host's work, and not to be felt here.
    nodes.rank_behind(4)?;
    let joined = join_all(&nodes, 3, None)?;
    let table = Names::below(owner::TABLE, locks);
    let held: io::Result<Vec<_>> = (1..=3)
        .map(|node| {
            let row = table.every(3, u64::from(node) - 1);
            Hand::keep(nodes.socket(node), row, mode::PR, None)
        })
        .collect();
    let held = held?;
    let probes = Probes::start(&nodes)?;
    std::thread::sleep(super::SETTLED);
    probes.set_span(span::BEFORE);
    std::thread::sleep(context.bench.plan.rate_time().min(Duration::from_secs(2)));
    probes.set_span(span::NONE);
    let (mut joins, mut leaves) = (Vec::new(), Vec::new());
    let mut felt = Felt::nothing();
    let mut visits = if context.bench.plan.quick { 1 } else { VISITS_MIN };
    while leaves.len() < visits {
        let visit = leaves.len() as u64;
        let fresh = Names::below(owner::FRESH, FRESH).shifted(visit * 2 * FRESH as u64);
        let (join, leave) = come_and_go(&nodes, &probes, fresh)?;
        joins.push(join);
        leaves.push(leave);
        if visits > 1 {
            // Short ones are seen more often.
            let enough = SEEN.as_nanos() as f64 / median(&joins).min(median(&leaves));
            visits = (enough as usize).clamp(VISITS_MIN, VISITS_MAX);
        }
    }
    probes.stop(&mut felt)?;
    held.into_iter().chain(joined).try_for_each(|hand| hand.stop().map(drop))?;
    Ok(Seen { locks, join_ns: median(&joins), leave_ns: median(&leaves), felt })
}

/// Node 4 joins and leaves; how long each took, nanoseconds.
fn come_and_go(nodes: &Nodes, probes: &Probes, fresh: Names) -> io::Result<(f64, f64)> {
    let socket = |node| nodes.socket(node).to_owned();
    // The start of a program is not a join's.
    let visitor = Hand::start(LockJob::Visit { socket: socket(4), names: fresh }, None)?;
    sys::rank_behind(visitor.worker.pid())?;
    let names = fresh.shifted(FRESH as u64);
    let after = Hand::start(LockJob::Fresh { socket: socket(1), names }, None)?;
    std::thread::sleep(PAUSE);
    probes.set_span(span::DURING);
    let begin = sys::monotonic_ns();
    visitor.board.go();
    let join = visitor.board.await_stamp()? - begin;
    nodes.await_members(&[1, 2, 3, 4])?;
    probes.set_span(span::NONE);
    std::thread::sleep(PAUSE);
    probes.set_span(span::LATER);
    let begin = sys::monotonic_ns();
    visitor.board.stop();
    nodes.await_members(&[1, 2, 3])?;
    after.board.go();
    let leave = after.board.await_stamp()? - begin;
    probes.set_span(span::NONE);
    visitor.worker.finish()?;
    after.worker.finish()?;
    Ok((join as f64, leave as f64))
}

fn figures(seen: &[Seen], quick: bool, _: &Units) -> Vec<Figure> {
    let own = Reference::absolute();
    let mut figures = Vec::new();
    let growth = |id: &str, what: &str, of: fn(&Seen) -> f64| {
        let [first, .., last] = seen else { return None };
        let doublings = (last.locks as f64 / first.locks as f64).log2();
        let factor = (of(last) / of(first)).powf(1.0 / doublings);
        let what =
            format!("twice the locks: {what} takes longer by, {} to {}", first.locks, last.locks);
        let figure = Figure::new(id, what, factor, Scale::Plain);
        Some(if quick { figure } else { figure.must(Bar::at_most(2.0, &own)) })
    };
    for (what, of) in [("join", join as fn(&Seen) -> f64), ("leave", leave)] {
        for seen in seen {
            let text = format!("{what} beside {} locks: to fresh names everywhere", seen.locks);
            figures.push(Figure::new(
                &format!("{what}/{}", short(seen.locks)),
                text,
                of(seen),
                Scale::Ns,
            ));
        }
        figures.extend(growth(&format!("{what}/double"), what, of));
    }
    for seen in seen {
        let id = |change: &str| format!("{change}/{}", short(seen.locks));
        figures.extend(seen.felt.figures(&id("join"), "a join", span::DURING, quick));
        figures.extend(seen.felt.figures(&id("leave"), "a leave", span::LATER, quick));
    }
    figures
}

fn join(seen: &Seen) -> f64 {
    seen.join_ns
}

fn leave(seen: &Seen) -> f64 {
    seen.leave_ns
}
