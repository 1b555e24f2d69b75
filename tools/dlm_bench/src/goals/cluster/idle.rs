//! G17: what the daemons of a cluster cost while many locks are held and nobody does anything.

use std::io;

use super::{Context, Finish, Hand, join_all, mode, owner};
use crate::job::Names;
use crate::progress::progress;
use crate::report::{Bar, Figure, Reference, Scale};
use crate::units::Units;

/// Nodes.
const NODES: u32 = 3;
/// Locks that are held.
const LOCKS: usize = 100_000;

struct Seen {
    locks: usize,
    /// Of the busiest daemon.
    percent: f64,
    wake_ups: f64,
}

pub(super) fn measure(context: &Context) -> io::Result<Finish> {
    let plan = context.bench.plan;
    let locks = plan.count(LOCKS);
    progress(format_args!("G17: {NODES} idle daemons, {locks} locks held"));
    let nodes = context.nodes(None, NODES)?;
    let joined = join_all(&nodes, NODES, None)?;
    // Each node's clients hold a third, on names mastered all over the cluster.
    let table = Names::below(owner::TABLE, locks);
    let held: io::Result<Vec<_>> = (1..=NODES)
        .map(|node| {
            let row = table.every(NODES as usize, u64::from(node) - 1);
            Hand::keep(nodes.socket(node), row, mode::EX, None)
        })
        .collect();
    let held = held?;
    std::thread::sleep(plan.idle_time() / 10);
    let usages = || (1..=NODES).map(|node| nodes.usage(node)).collect::<io::Result<Vec<_>>>();
    let (before, after) = nodes.unfed(|| -> io::Result<_> {
        let before = usages()?;
        std::thread::sleep(plan.idle_time());
        Ok((before, usages()?))
    })?;
    held.into_iter().chain(joined).try_for_each(|hand| hand.stop().map(drop))?;
    let seconds = plan.idle_time().as_secs_f64();
    let most = |of: fn(&crate::daemon::Usage) -> u64| {
        let grown = before.iter().zip(&after).map(|(before, after)| of(after) - of(before));
        grown.max().unwrap_or(0) as f64 / seconds
    };
    let percent = most(|usage| usage.cpu_ns) / 1e7;
    let wake_ups = most(|usage| usage.wake_ups);
    let seen = Seen { locks, percent, wake_ups };
    let quick = plan.quick;
    Ok(Box::new(move |units| figures(&seen, quick, units)))
}

fn figures(seen: &Seen, quick: bool, _: &Units) -> Vec<Figure> {
    let own = Reference::absolute();
    let what =
        format!("busiest of {NODES} idle daemons, {} locks held: part of a core", seen.locks);
    let mut busy = Figure::new("G17", what, seen.percent, Scale::Percent)
        .target(Bar::at_most(0.2, &own))
        .note("nobody feeds views meanwhile");
    if !quick {
        busy = busy.must(Bar::at_most(1.0, &own));
    }
    let wake = Figure::new("G17/wake", "its wake-ups meanwhile", seen.wake_ups, Scale::PerSecond)
        .moonshot(Bar::at_most(20.0, &own));
    vec![busy, wake]
}
