//! Recovery: the daemon that masters a table of locks dies, survivors hold locks in it and wait for
//! some. How long until the last is granted, how that grows with the table, and what locks on other
//! names feel of it.
//!
//! Every name has a lock of the dead node (CW) and one of a survivor (CR, held); on every tenth name a
//! survivor waits (PR). The word that the node is safe and the view without it come at once, as from a
//! supervisor that reaps its children.

use std::io;
use std::time::Duration;

use super::probe::{self, Probes, Seen as Felt, span};
use super::{Context, Finish, Hand, join_all, mode, owner};
use crate::job::{LockJob, Names};
use crate::measure::median;
use crate::nodes::Nodes;
use crate::progress::progress;
use crate::report::{Bar, Figure, Reference, Scale};
use crate::sys;
use crate::units::Units;

/// Longest look at what others feel before it.
const BEFORE: Duration = Duration::from_millis(500);
/// One name in so many is waited for.
const WAITED: usize = 10;
struct Seen {
    locks: usize,
    /// Records that move: locks of survivors, held and waiting.
    records: usize,
    last_ns: f64,
    /// Processor time of both survivors.
    cpu_ns: f64,
    /// What others felt.
    felt: Felt,
}

/// What one round showed: time to the last grant, and the processor time of both survivors, nanoseconds.
type Round = (f64, f64);

pub(super) fn measure(context: &Context) -> io::Result<Finish> {
    let plan = context.bench.plan;
    let sizes = context.sizes.iter();
    let seen: io::Result<Vec<_>> = sizes.map(|locks| rounds(context, *locks)).collect();
    let seen = seen?;
    Ok(Box::new(move |units| figures(&seen, plan.quick, units)))
}

/// As many rounds as show enough of what others feel; the middle one counts.
fn rounds(context: &Context, locks: usize) -> io::Result<Seen> {
    let mut felt = Felt::nothing();
    let mut all: Vec<Round> = Vec::new();
    while all.len() < probe::TIMES_MAX && !felt.is_enough(&[span::DURING]) {
        all.push(round(context, locks, &mut felt)?);
        if context.bench.plan.quick {
            break;
        }
    }
    let middle = |of: fn(&Round) -> f64| median(&all.iter().map(of).collect::<Vec<_>>());
    let (last_ns, cpu_ns) = (middle(|round| round.0), middle(|round| round.1));
    Ok(Seen { locks, records: locks + locks / WAITED, last_ns, cpu_ns, felt })
}

/// A table in which survivors hold and wait, at nodes 2 and 3; node 1 masters it.
fn table(nodes: &Nodes, locks: usize) -> io::Result<(Hand, Vec<Hand>, Vec<Hand>)> {
    let table = Names::below(owner::TABLE, locks);
    let victim = Hand::keep(nodes.socket(1), table, mode::CW, None)?;
    let keep = |node: u32| {
        let row = table.every(2, u64::from(node) % 2);
        Hand::keep(nodes.socket(node), row, mode::CR, None)
    };
    let held = vec![keep(2)?, keep(3)?];
    let wait = |node: u32| {
        // Even names at one node and odd ones at the other.
        let names = table.every(2 * WAITED, if node == 2 { 1 } else { WAITED as u64 });
        let socket = nodes.socket(node).to_owned();
        Hand::start(LockJob::Await { socket, names, mode: mode::PR }, None)
    };
    let waiting = vec![wait(2)?, wait(3)?];
    Ok((victim, held, waiting))
}

fn round(context: &Context, locks: usize, felt: &mut Felt) -> io::Result<Round> {
    progress(format_args!("recovery: a node that masters {locks} locks of others is killed"));
    let mut nodes = context.nodes(None, 3)?;
    let mut joined = join_all(&nodes, 3, None)?;
    let (victim, held, waiting) = table(&nodes, locks)?;
    let probes = Probes::start(&nodes)?;
    std::thread::sleep(super::SETTLED);
    probes.set_span(span::BEFORE);
    std::thread::sleep(context.bench.plan.rate_time().min(BEFORE));
    // The end of its processes is not a recovery's, and would be another host's.
    probes.set_span(span::NONE);
    nodes.crash(1)?;
    drop((victim, joined.remove(0)));
    std::thread::sleep(super::SETTLED);
    let used = || Ok::<_, io::Error>(nodes.usage(2)?.cpu_ns + nodes.usage(3)?.cpu_ns);
    let before = used()?;
    probes.set_span(span::DURING);
    let safe = sys::monotonic_ns();
    nodes.gone(1);
    let mut last = safe;
    for hand in &waiting {
        last = last.max(hand.board.await_stamp()?);
    }
    probes.set_span(span::NONE);
    let cpu_ns = (used()? - before) as f64;
    probes.stop(felt)?;
    let hands = waiting.into_iter().chain(held);
    hands.chain(joined).try_for_each(|hand| hand.stop().map(drop))?;
    Ok(((last - safe) as f64, cpu_ns))
}

fn figures(seen: &[Seen], quick: bool, _: &Units) -> Vec<Figure> {
    let own = Reference::absolute();
    let mut figures: Vec<_> = seen.iter().map(time).collect();
    if let [first, .., last] = seen {
        // How much longer twice the locks take, over the whole range.
        let doublings = (last.locks as f64 / first.locks as f64).log2();
        let factor = (last.last_ns / first.last_ns).powf(1.0 / doublings);
        let what = format!("twice the locks: the time grows by, {} to {}", first.locks, last.locks);
        let mut growth = Figure::new("recovery/double", what, factor, Scale::Plain);
        let rate = last.records as f64 * 1e9 / last.last_ns;
        let what = format!("locks rebuilt per second, {} of them", last.records);
        let mut rebuilt = Figure::new("G16", what, rate, Scale::PerSecond)
            .target(Bar::at_least(1e6, &own))
            .moonshot(Bar::at_least(3e6, &own));
        if !quick {
            growth = growth.must(Bar::at_most(2.0, &own));
            rebuilt = rebuilt.must(Bar::at_least(0.3e6, &own));
        }
        figures.extend([growth, rebuilt]);
    }
    for seen in seen {
        let id = format!("unaffected/{}", short(seen.locks));
        figures.extend(seen.felt.figures(&id, "recovery", span::DURING, quick));
    }
    figures
}

fn time(seen: &Seen) -> Figure {
    let what = format!("master of {} locks killed: its safety to the last grant", seen.locks);
    Figure::new(&format!("recovery/{}", short(seen.locks)), what, seen.last_ns, Scale::Ns).note(
        format!(
            "{} locks move, of the daemons' processor time {} for each",
            seen.records,
            Scale::Ns.show(seen.cpu_ns / seen.records as f64)
        ),
    )
}

/// 10k, 1M.
pub(super) fn short(count: usize) -> String {
    match count {
        count if count >= 1_000_000 => format!("{}M", count / 1_000_000),
        count if count >= 1000 => format!("{}k", count / 1000),
        count => count.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_short() {
        let all = [100, 10_000, 1_000_000].map(short);
        assert_eq!(all, ["100", "10k", "1M"]);
    }
}
