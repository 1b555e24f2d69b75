//! What a change of membership is to those whom it does not concern: two programs lock and unlock names
//! that keep their masters, before it, during it and afterwards.
//!
//! A short change sees few of their pairs, so it is done again until there are enough for a p99.

use std::io;

use super::{Hand, mode, owner};
use crate::crew::SPANS;
use crate::job::{LockJob, Names};
use crate::measure::Latency;
use crate::nodes::Nodes;
use crate::report::{Bar, Figure, Reference, Scale};
use crate::scratch::Scratch;

/// Names that a probe locks in turn.
const PROBED: usize = 16;
/// Pairs that make a p99.
const ENOUGH: u64 = 1000;
/// Times that a change is done at most.
pub(super) const TIMES_MAX: usize = 40;

/// Spans of a probe's time.
pub(super) mod span {
    pub(in super::super) const NONE: usize = 0;
    pub(in super::super) const BEFORE: usize = 1;
    pub(in super::super) const DURING: usize = 2;
    pub(in super::super) const LATER: usize = 3;
}

/// Probes at work: of names mastered at the prober's node, and at another node that stays.
pub(super) struct Probes {
    pinned: Hand,
    here: Hand,
    there: Hand,
    seen: Scratch,
}

impl Probes {
    /// Starts probes at nodes 2 and 3.
    pub(super) fn start(nodes: &Nodes) -> io::Result<Self> {
        let (here, there) =
            (Names::below(owner::LOCAL, PROBED), Names::below(owner::REMOTE, PROBED));
        let pinned = Hand::keep(nodes.socket(2), there, mode::NL, None)?;
        let seen = Scratch::new()?;
        let probe = |node, names, file| {
            let (socket, seen) = (nodes.socket(node).to_owned(), seen.path().join(file));
            Hand::start(LockJob::Probe { socket, names, seen }, None)
        };
        let (here, there) = (probe(2, here, "here")?, probe(3, there, "there")?);
        Ok(Self { pinned, here, there, seen })
    }

    /// Begins a span.
    pub(super) fn set_span(&self, span: usize) {
        self.here.board.set_span(span);
        self.there.board.set_span(span);
    }

    /// Ends them, and adds what they saw.
    pub(super) fn stop(self, sum: &mut Seen) -> io::Result<()> {
        self.here.stop()?;
        self.there.stop()?;
        self.pinned.stop()?;
        for (place, file) in ["here", "there"].into_iter().enumerate() {
            let text = std::fs::read(self.seen.path().join(file))?;
            let spans: Vec<Vec<u64>> = serde_json::from_slice(&text)?;
            for (span, pairs) in spans.into_iter().enumerate().take(SPANS) {
                let latency = &mut sum.places[place][span];
                pairs.into_iter().for_each(|ns| latency.record(ns));
            }
        }
        Ok(())
    }
}

/// What probes saw: pairs of names mastered here and elsewhere, by span.
pub(super) struct Seen {
    places: [Vec<Latency>; 2],
}

impl Seen {
    /// Nothing yet.
    pub(super) fn nothing() -> Self {
        let spans = || (0..SPANS).map(|_| Latency::new()).collect();
        Self { places: [spans(), spans()] }
    }

    /// Whether both saw enough of these spans.
    pub(super) fn is_enough(&self, spans: &[usize]) -> bool {
        self.places.iter().all(|place| spans.iter().all(|span| place[*span].len() >= ENOUGH))
    }

    /// What locks on other names felt of a change: p99 in its span over p99 before it.
    pub(super) fn figures(
        &self,
        id: &str,
        change: &str,
        during: usize,
        quick: bool,
    ) -> Vec<Figure> {
        let own = Reference::absolute();
        let figure = |at: usize, place: &str| {
            let (before, during) = (&self.places[at][span::BEFORE], &self.places[at][during]);
            let (p99, show) = (|l: &Latency| l.percentile(99.0), |ns| Scale::Ns.show(ns));
            let what =
                format!("p99 of other names mastered {place}: during {change} over before it");
            let ratio = p99(during) / p99(before);
            let figure = Figure::new(&format!("{id}/{place}"), what, ratio, Scale::Plain);
            let figure = figure.note(format!(
                "p99 {} and {}, longest {} and {}, of {} and {} pairs",
                show(p99(before)),
                show(p99(during)),
                show(before.percentile(100.0)),
                show(during.percentile(100.0)),
                before.len(),
                during.len()
            ));
            if quick { figure } else { figure.must(Bar::at_most(3.0, &own)) }
        };
        vec![figure(0, "here"), figure(1, "elsewhere")]
    }
}
