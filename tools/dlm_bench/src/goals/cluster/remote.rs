//! G12: one lock+unlock pair on a name whose master is another daemon.
//!
//! The floor is one message to the daemon and back (U2) and one round trip on the network (U4): an
//! unlock is sent and not waited for.

use std::io;

use super::{Context, Finish, Hand, client, mode, owner};
use crate::crew::Board;
use crate::goals::start;
use crate::job::{LockJob, Names};
use crate::nodes::Nodes;
use crate::progress::progress;
use crate::report::{Bar, Figure, Reference, Scale};
use crate::units::{Unit, Units};

/// Names that are locked in turn.
const NAMES: usize = 64;

/// Fewest pairs behind a percentile.
const PAIRS_MIN: usize = 5_000;

/// Percentiles of pairs, in nanoseconds.
struct Pairs {
    p50: f64,
    p90: f64,
    p99: f64,
    count: f64,
}

struct Seen {
    lazy: Pairs,
    awaited: Pairs,
    here: Pairs,
    two_cores: Option<Pairs>,
}

pub(super) fn measure(context: &Context) -> io::Result<Finish> {
    progress(format_args!("G12: pairs on names mastered by another daemon"));
    let core = Some(context.bench.core);
    let nodes = context.nodes(core, 2)?;
    let names = Names::below(owner::TABLE, NAMES);
    let keeper = Hand::keep(nodes.socket(1), names, mode::NL, core)?;
    let lazy = pairs(context, &nodes, 2, names, true, core)?;
    let awaited = pairs(context, &nodes, 2, names, false, core)?;
    let here = pairs(context, &nodes, 1, names, true, core)?;
    keeper.stop()?;
    drop(nodes);
    let two_cores = context.bench.other.map(|_| apart(context, names)).transpose()?;
    let seen = Seen { lazy, awaited, here, two_cores };
    let quick = context.bench.plan.quick;
    Ok(Box::new(move |units| figures(&seen, quick, units)))
}

/// The same with processes wherever the kernel puts them.
fn apart(context: &Context, names: Names) -> io::Result<Pairs> {
    let nodes = context.nodes(None, 2)?;
    let keeper = Hand::keep(nodes.socket(1), names, mode::NL, None)?;
    let pairs = pairs(context, &nodes, 2, names, true, None)?;
    keeper.stop()?;
    Ok(pairs)
}

fn pairs(
    context: &Context,
    nodes: &Nodes,
    node: u32,
    names: Names,
    lazy: bool,
    core: Option<usize>,
) -> io::Result<Pairs> {
    let board = Board::new()?;
    let plan = context.bench.plan;
    let time_ms = plan.rate_time().as_millis() as u64;
    let least = plan.count(PAIRS_MIN) as u64;
    let backend = client(nodes, node, lazy);
    start(LockJob::Cycle { backend, names, time_ms, least }, &board, core)?.finish()?;
    Ok(Pairs {
        p50: board.result(0),
        p99: board.result(1),
        count: board.result(2),
        p90: board.result(3),
    })
}

/// U2 + U4.
pub(super) fn round_trips(units: &Units) -> Reference {
    let (u2, u4) = (units.reference(Unit::U2), units.reference(Unit::U4));
    let value = u2.value.zip(u4.value).map(|(u2, u4)| u2 + u4);
    Reference { name: "(U2+U4)".into(), value }
}

fn figures(seen: &Seen, quick: bool, units: &Units) -> Vec<Figure> {
    let sum = round_trips(units);
    let figure = |id, what: &str, pairs: &Pairs| {
        let show = |ns| Scale::Ns.show(ns);
        Figure::new(id, what, pairs.p50, Scale::Ns).per(&sum).note(format!(
            "p90 {}, p99 {} of {} pairs",
            show(pairs.p90),
            show(pairs.p99),
            pairs.count
        ))
    };
    let mut first = figure("G12", "lock+unlock, name mastered by another daemon, p50", &seen.lazy)
        .target(Bar::at_most(1.2, &sum))
        .moonshot(Bar::at_most(1.0, &sum))
        .note("the unlock is not awaited");
    if !quick {
        first = first.must(Bar::at_most(1.8, &sum));
    }
    if let Some(two) = &seen.two_cores {
        first = first.note(format!("not bound to a core p50 {}", Scale::Ns.show(two.p50)));
    }
    vec![
        first,
        figure("G12/awaited", "the same, the unlock's answer awaited", &seen.awaited),
        figure("G12/here", "the same at the master's node, unlock not awaited", &seen.here),
    ]
}
