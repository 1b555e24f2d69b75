//! Recovery: the daemon that masters a table of locks dies, survivors hold locks in it and wait for
//! some. How long until the last is granted, how that grows with the table, and what locks on other
//! names feel of it.
//!
//! Every name has a lock of the dead node (CW) and one of a survivor (CR, held); on every tenth name a
//! survivor waits (PR). The word that the node is safe and the view without it come at once, as from a
//! supervisor that reaps its children.

use std::io;
use std::time::Duration;

use super::{Context, Finish, Hand, join_all, mode, owner};
use crate::crew::Board;
use crate::job::{LockJob, Names};
use crate::nodes::Nodes;
use crate::progress::progress;
use crate::report::{Bar, Figure, Reference, Scale};
use crate::sys;
use crate::units::Units;

/// One name in so many is waited for.
const WAITED: usize = 10;
/// Names that a probe locks in turn.
const PROBED: usize = 16;

/// Spans of a probe's time.
pub(super) mod span {
    pub(in super::super) const NONE: usize = 0;
    pub(in super::super) const BEFORE: usize = 1;
    pub(in super::super) const DURING: usize = 2;
    pub(in super::super) const LATER: usize = 3;
}

/// What a probe saw in one span, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span {
    pub(super) p99: f64,
    worst: f64,
    pub(super) count: f64,
}

impl Span {
    /// What a probe handed back.
    pub(super) fn of(board: &Board, span: usize) -> Self {
        let at = span * 4;
        Self { p99: board.result(at + 1), worst: board.result(at + 2), count: board.result(at + 3) }
    }
}

/// Probes of names that the change does not touch: mastered at the prober's node, and at another
/// survivor.
pub(super) struct Probes {
    pinned: Hand,
    here: Hand,
    there: Hand,
}

impl Probes {
    /// Starts probes at nodes 2 and 3.
    pub(super) fn start(nodes: &Nodes) -> io::Result<Self> {
        let (here, there) =
            (Names::below(owner::LOCAL, PROBED), Names::below(owner::REMOTE, PROBED));
        let pinned = Hand::keep(nodes.socket(2), there, mode::NL, None)?;
        let probe = |node, names| {
            Hand::start(LockJob::Probe { socket: nodes.socket(node).to_owned(), names }, None)
        };
        Ok(Self { pinned, here: probe(2, here)?, there: probe(3, there)? })
    }

    /// Begins a span.
    pub(super) fn set_span(&self, span: usize) {
        self.here.board.set_span(span);
        self.there.board.set_span(span);
    }

    /// Ends them; what they saw, here and there.
    pub(super) fn stop(self) -> io::Result<[Board; 2]> {
        let boards = [self.here.stop()?, self.there.stop()?];
        self.pinned.stop()?;
        Ok(boards)
    }
}

struct Seen {
    locks: usize,
    /// Records that move: locks of survivors, held and waiting.
    records: usize,
    last_ns: f64,
    /// Processor time of both survivors.
    cpu_ns: f64,
    before: [Span; 2],
    during: [Span; 2],
}

pub(super) fn measure(context: &Context) -> io::Result<Finish> {
    let plan = context.bench.plan;
    let sizes = context.sizes.iter();
    let seen: io::Result<Vec<_>> = sizes.map(|locks| round(context, *locks)).collect();
    let seen = seen?;
    Ok(Box::new(move |units| figures(&seen, plan.quick, units)))
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

fn round(context: &Context, locks: usize) -> io::Result<Seen> {
    progress(format_args!("recovery: a node that masters {locks} locks of others is killed"));
    let mut nodes = context.nodes(None, 3)?;
    let mut joined = join_all(&nodes, 3, None)?;
    let (victim, held, waiting) = table(&nodes, locks)?;
    let probes = Probes::start(&nodes)?;
    std::thread::sleep(super::SETTLED);
    probes.set_span(span::BEFORE);
    std::thread::sleep(context.bench.plan.rate_time().min(Duration::from_secs(2)));
    probes.set_span(span::DURING);
    nodes.crash(1)?;
    drop((victim, joined.remove(0)));
    let used = || Ok::<_, io::Error>(nodes.usage(2)?.cpu_ns + nodes.usage(3)?.cpu_ns);
    let before = used()?;
    let safe = sys::monotonic_ns();
    nodes.gone(1);
    let mut last = safe;
    for hand in &waiting {
        last = last.max(hand.board.await_stamp()?);
    }
    let cpu_ns = (used()? - before) as f64;
    waiting.into_iter().try_for_each(|hand| hand.worker.finish())?;
    probes.set_span(span::NONE);
    let boards = probes.stop()?;
    held.into_iter().chain(joined).try_for_each(|hand| hand.stop().map(drop))?;
    let spans = |span| [Span::of(&boards[0], span), Span::of(&boards[1], span)];
    Ok(Seen {
        locks,
        records: locks + locks / WAITED,
        last_ns: (last - safe) as f64,
        cpu_ns,
        before: spans(span::BEFORE),
        during: spans(span::DURING),
    })
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
        figures.extend(unaffected(&id, "recovery", seen.before, seen.during, quick));
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

/// What locks on other names felt of a change: p99 during it over p99 before it.
pub(super) fn unaffected(
    id: &str,
    change: &str,
    before: [Span; 2],
    during: [Span; 2],
    quick: bool,
) -> Vec<Figure> {
    let own = Reference::absolute();
    let figure = |at: usize, place: &str| {
        let (before, during) = (before[at], during[at]);
        let show = |ns| Scale::Ns.show(ns);
        let what = format!("p99 of other names mastered {place}: during {change} over before it");
        let figure =
            Figure::new(&format!("{id}/{place}"), what, during.p99 / before.p99, Scale::Plain)
                .note(format!(
                    "p99 {} and {}, longest {} and {}, of {} and {} pairs",
                    show(before.p99),
                    show(during.p99),
                    show(before.worst),
                    show(during.worst),
                    before.count,
                    during.count
                ));
        if quick { figure } else { figure.must(Bar::at_most(3.0, &own)) }
    };
    vec![figure(0, "here"), figure(1, "elsewhere")]
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
