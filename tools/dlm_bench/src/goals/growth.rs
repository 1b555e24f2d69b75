//! What a pair costs more where a million locks are held than where a thousand are.
//!
//! Two daemons, one with each table, are measured in short turns, so that whatever the machine
//! does in between happens to both alike.

use std::io;

use super::table::Held;
use super::{Context, Finish, dlm, start};
use crate::crew::{Board, run_crew};
use crate::daemon::Daemon;
use crate::job::{Job, LockJob};
use crate::measure::median;
use crate::progress::progress;
use crate::report::{Bar, Figure, Scale};
use crate::units::{Unit, Units};

const FEW: usize = 1_000;
const MANY: usize = 1_000_000;

/// Turns of each daemon.
const TURNS: u32 = 10;

/// Medians of the turns, in nanoseconds per pair.
struct Seen {
    single: [f64; 2],
    packed: [f64; 2],
    many: usize,
}

pub(super) fn measure(context: &Context) -> io::Result<Finish> {
    let many = context.bench.plan.count(MANY);
    progress(format_args!("growth: pairs beside {FEW} and beside {many} held locks"));
    let daemons = [context.daemon()?, context.daemon()?];
    let held = [
        Held::take(context, &daemons[0], FEW, false)?,
        Held::take(context, &daemons[1], many, false)?,
    ];
    let (mut single, mut packed) = ([Vec::new(), Vec::new()], [Vec::new(), Vec::new()]);
    for _ in 0..TURNS {
        for (index, daemon) in daemons.iter().enumerate() {
            single[index].push(single_pair(context, daemon)?);
            packed[index].push(packed_pair(context, daemon)?);
        }
    }
    held.into_iter().try_for_each(Held::release)?;
    let middle = |times: [Vec<f64>; 2]| times.map(|times| median(&times));
    let seen = Seen { single: middle(single), packed: middle(packed), many };
    Ok(Box::new(move |units| figures(&seen, units)))
}

fn single_pair(context: &Context, daemon: &Daemon) -> io::Result<f64> {
    let board = Board::new()?;
    let time_ms = (context.bench.plan.rate_time() / TURNS).as_millis() as u64;
    let job = LockJob::Latency { backend: dlm(daemon), time_ms, least: 100 };
    start(job, &board, Some(context.bench.core))?.finish()?;
    Ok(board.result(0))
}

fn packed_pair(context: &Context, daemon: &Daemon) -> io::Result<f64> {
    let time = context.bench.plan.rate_time() / TURNS;
    let window = run_crew(1, Some(context.bench.core), time, |id| {
        let socket = daemon.socket().to_owned();
        Job::Lock(LockJob::Pipeline { id, socket, in_flight: 64 })
    })?;
    Ok(1e9 / window.rate())
}

fn figures(seen: &Seen, units: &Units) -> Vec<Figure> {
    let u9 = units.reference(Unit::U9);
    let figure = |id, what: &str, times: [f64; 2]| {
        Figure::new(id, what, times[1] - times[0], Scale::Ns)
            .per(&u9)
            .must(Bar::at_most(2.0, &u9))
            .note(format!(
                "{} beside {FEW}, {} beside {} held locks",
                Scale::Ns.show(times[0]),
                Scale::Ns.show(times[1]),
                seen.many
            ))
    };
    vec![
        figure("growth", "growth of a pair's p50 from few to many held locks", seen.single),
        figure("growth/64", "growth of a pair's mean with 64 in flight", seen.packed),
    ]
}
