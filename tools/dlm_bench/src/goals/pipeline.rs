//! Pairs per second of one client that keeps 64 of them in flight: what a core of the daemon gives.

use std::io;

use super::{Context, Finish};
use crate::crew::{Board, run_crew_on};
use crate::job::{Job, LockJob};
use crate::progress::progress;
use crate::report::{Bar, Figure, Reference, Scale};
use crate::units::{Unit, Units};

/// Pairs in flight.
const IN_FLIGHT: usize = 64;

/// One arrangement of client and daemon.
#[derive(Clone, Copy)]
struct Seen {
    /// Pairs per second of the clock.
    rate: f64,
    /// Daemon's processor time per pair, in nanoseconds.
    daemon_ns: f64,
}

pub(super) fn measure(context: &Context) -> io::Result<Finish> {
    progress(format_args!("pipeline: {IN_FLIGHT} pairs in flight"));
    let same = on(context, context.bench.core)?;
    let apart = context.bench.other.map(|core| on(context, core)).transpose()?;
    Ok(Box::new(move |units| figures(same, apart, units)))
}

fn on(context: &Context, core: usize) -> io::Result<Seen> {
    let daemon = context.daemon()?;
    let board = Board::new()?;
    let before = daemon.usage()?;
    let window = run_crew_on(&board, 1, Some(core), context.bench.plan.rate_time(), |id| {
        let socket = daemon.socket().to_owned();
        Job::Lock(LockJob::Pipeline { id, socket, in_flight: IN_FLIGHT })
    })?;
    // Processor time and pairs both of the whole run, warm-up included.
    let pairs: u64 = board.events(1).iter().sum();
    let daemon_ns = (daemon.usage()?.cpu_ns - before.cpu_ns) as f64 / pairs as f64;
    Ok(Seen { rate: window.rate(), daemon_ns })
}

fn figures(same: Seen, apart: Option<Seen>, units: &Units) -> Vec<Figure> {
    let u7 = units.reference(Unit::U7);
    let own = Reference::absolute();
    let figure = |id, what: &str, seen: Seen| {
        Figure::new(id, what, seen.rate, Scale::PerSecond)
            .per(&u7)
            .note(format!("daemon's time per pair {}", Scale::Ns.show(seen.daemon_ns)))
    };
    let same_what = "pairs, 64 in flight, client on the daemon's core";
    let mut figures = vec![figure("pipeline", same_what, same).must(Bar::at_least(1e6, &own))];
    if let Some(apart) = apart {
        figures.push(figure("pipeline/2", "the same, client on a core of its own", apart));
    }
    figures
}
