//! Messages between nodes per operation, for clusters of two, four and eight: they must not grow with
//! the cluster (BL-095), and a hand-over is one grant and one wake-up (BL-096). Counts, not times: the
//! same on any machine.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use super::{Context, Finish, Hand, client, join_all, mode, owner};
use crate::crew::Board;
use crate::goals::start;
use crate::job::{LockJob, Names};
use crate::nodes::{Counters, Nodes};
use crate::progress::progress;
use crate::report::{Bar, Figure, Reference, Scale};
use crate::units::Units;

/// Sizes of clusters.
const SIZES: [u32; 3] = [2, 4, 8];
/// Pairs of a count.
const PAIRS: usize = 10_000;
/// Names with a master that all remember.
const NAMES: usize = 64;
/// Waiters of a count of hand-overs.
const WAITERS: usize = 500;
/// A master remembers a name that is not used any more for this long, and then says so.
const IDLE: Duration = Duration::from_millis(11_000);

/// Messages per operation by kind.
type Kinds = BTreeMap<String, f64>;

struct Seen {
    nodes: u32,
    known: Kinds,
    fresh: Kinds,
    forgotten: bool,
    hand_over: Kinds,
    wake_ups: f64,
}

pub(super) fn measure(context: &Context) -> io::Result<Finish> {
    let seen: io::Result<Vec<_>> = SIZES.into_iter().map(|nodes| count(context, nodes)).collect();
    let seen = seen?;
    Ok(Box::new(move |units| figures(&seen, units)))
}

fn count(context: &Context, size: u32) -> io::Result<Seen> {
    let pairs = context.bench.plan.count(PAIRS);
    progress(format_args!("messages: {pairs} pairs and {WAITERS} hand-overs among {size} nodes"));
    let nodes = context.nodes(None, size)?;
    let joined = join_all(&nodes, size, None)?;
    let names = Names::below(owner::TABLE, NAMES);
    let keeper = Hand::keep(nodes.socket(1), names, mode::NL, None)?;
    // Who joins is not counted, nor the first question to the directory about each of these names.
    cycle(&nodes, names, NAMES)?;
    let known = per(&nodes, pairs, || cycle(&nodes, names, pairs))?;
    let (hand_over, wake_ups) = hand_overs(&nodes, size)?;
    let forgotten = !context.bench.plan.quick;
    let fresh = per(&nodes, pairs, || {
        cycle(&nodes, Names::below(owner::FRESH, pairs), pairs)?;
        if forgotten {
            std::thread::sleep(IDLE);
        }
        Ok(())
    })?;
    keeper.stop()?;
    joined.into_iter().try_for_each(|hand| hand.stop().map(drop))?;
    Ok(Seen { nodes: size, known, fresh, forgotten, hand_over, wake_ups })
}

/// Has a client of node 2 lock and unlock names, one after the other.
fn cycle(nodes: &Nodes, names: Names, pairs: usize) -> io::Result<()> {
    let job =
        LockJob::Cycle { backend: client(nodes, 2, false), names, time_ms: 0, least: pairs as u64 };
    start(job, &Board::new()?, None)?.finish()
}

/// Messages by kind per operation, of so many that `run` does.
fn per(nodes: &Nodes, count: usize, run: impl FnOnce() -> io::Result<()>) -> io::Result<Kinds> {
    let before = nodes.counters()?;
    run()?;
    Ok(grown(&before, &nodes.counters()?, count))
}

fn grown(before: &Counters, after: &Counters, count: usize) -> Kinds {
    let sent = after.iter().filter_map(|(name, value)| {
        let more = value - before.get(name).copied().unwrap_or(0);
        let kind = name.strip_prefix("sent_").filter(|_| more > 0)?;
        Some((kind.to_owned(), more as f64 / count as f64))
    });
    sent.collect()
}

/// Hundreds of waiters at three nodes (at two, where there are no more) get one name after the other:
/// messages per hand-over, and how often a client was woken for it.
fn hand_overs(nodes: &Nodes, size: u32) -> io::Result<(Kinds, f64)> {
    let crowd = size.min(3) as usize;
    let each = WAITERS / crowd;
    let before = nodes.counters()?;
    let board = Board::new()?;
    let name = Names::below(owner::HOT, 1);
    let holder = Hand::keep(nodes.socket(1), name, mode::EX, None)?;
    let workers: io::Result<Vec<_>> = (0..crowd)
        .map(|id| {
            let socket = nodes.socket(id as u32 + 1).to_owned();
            start(LockJob::Drain { id, socket, name, locks: each }, &board, None)
        })
        .collect();
    let workers = workers?;
    board.await_ready(crowd as u32)?;
    // Requests that were seen by their own daemons reach the master.
    std::thread::sleep(Duration::from_millis(100));
    holder.stop()?;
    board.await_ready(2 * crowd as u32)?;
    board.stop();
    workers.into_iter().try_for_each(|worker| worker.finish())?;
    let count = each * crowd;
    let woken: f64 = (0..crowd).map(|id| board.result(id)).sum();
    Ok((grown(&before, &nodes.counters()?, count), woken / count as f64))
}

fn total(kinds: &Kinds) -> f64 {
    kinds.values().sum()
}

fn told(kinds: &Kinds) -> String {
    let shown = |(kind, value): (&String, &f64)| format!("{kind} {value:.2}");
    kinds.iter().map(shown).collect::<Vec<_>>().join(", ")
}

fn figures(seen: &[Seen], _: &Units) -> Vec<Figure> {
    let own = Reference::absolute();
    let two = Reference::measured("2 nodes", seen.first().map_or(f64::NAN, |s| total(&s.known)));
    let mut figures = Vec::new();
    for seen in seen {
        let nodes = seen.nodes;
        let id = |what: &str| format!("messages/{what}/{nodes}");
        let plain = |id: &str, what: String, value| Figure::new(id, what, value, Scale::Plain);
        figures.push(
            plain(
                &id("pair"),
                format!("messages per pair, remote master known, {nodes} nodes"),
                total(&seen.known),
            )
            .per(&two)
            .must(Bar::at_most(1.02, &two))
            .must(Bar::at_most(4.02, &own))
            .note(told(&seen.known)),
        );
        // A question to the directory and its answer, the same when the name is forgotten; none where
        // the directory is this node's own.
        let most = if seen.forgotten { 4.0 } else { 2.0 };
        figures.push(
            plain(
                &id("fresh"),
                format!("messages per pair, name never used before, {nodes} nodes"),
                total(&seen.fresh),
            )
            .must(Bar::at_most(most, &own))
            .note(told(&seen.fresh)),
        );
        let grants = seen.hand_over.get("grant").copied().unwrap_or(0.0);
        figures.push(
            plain(
                &id("grant"),
                format!("grants per hand-over, {WAITERS} waiters, {nodes} nodes"),
                grants,
            )
            .must(Bar::at_most(1.0, &own))
            .note(told(&seen.hand_over)),
        );
        figures.push(
            plain(&id("wake"), "wake-ups of clients per hand-over".to_owned(), seen.wake_ups)
                .must(Bar::at_most(1.1, &own)),
        );
    }
    figures
}
