//! G17: what a daemon costs while its clients hold their locks and do nothing.

use std::io;

use super::table::Held;
use super::{Context, Finish};
use crate::progress::progress;
use crate::report::{Bar, Figure, Reference, Scale};
use crate::units::Units;

/// Locks that are held.
const LOCKS: usize = 100_000;

struct Seen {
    percent: f64,
    wake_ups: f64,
}

pub(super) fn measure(context: &Context) -> io::Result<Finish> {
    let (plan, daemon) = (context.bench.plan, context.daemon()?);
    let held = Held::take(context, &daemon, LOCKS, false)?;
    progress(format_args!("G17: {} s of an idle daemon", plan.idle_time().as_secs()));
    std::thread::sleep(plan.idle_time() / 10);
    let before = daemon.usage()?;
    std::thread::sleep(plan.idle_time());
    let after = daemon.usage()?;
    held.release()?;
    let seconds = plan.idle_time().as_secs_f64();
    let seen = Seen {
        percent: (after.cpu_ns - before.cpu_ns) as f64 / seconds / 1e7,
        wake_ups: (after.wake_ups - before.wake_ups) as f64 / seconds,
    };
    Ok(Box::new(move |units| figures(&seen, units)))
}

fn figures(seen: &Seen, _: &Units) -> Vec<Figure> {
    let own = Reference::absolute();
    vec![
        Figure::new(
            "G17",
            "idle daemon, 100,000 locks held: part of a core",
            seen.percent,
            Scale::Percent,
        )
        .must(Bar::at_most(1.0, &own))
        .target(Bar::at_most(0.2, &own)),
        Figure::new("G17/wake", "wake-ups meanwhile", seen.wake_ups, Scale::PerSecond)
            .moonshot(Bar::at_most(20.0, &own)),
    ]
}
