//! G4: pairs per second of 64 clients, each on names that nobody used before.

use std::io;

use super::{Context, Finish, dlm, dlm_lazy, peer_reference};
use crate::crew::{WORKERS_MAX, run_crew};
use crate::job::{Backend, Job, LockJob};
use crate::peers::Kind;
use crate::progress::progress;
use crate::report::{Bar, Figure, Reference, Scale};
use crate::units::{Unit, Units};

/// Clients, a process each.
const CLIENTS: usize = WORKERS_MAX;

/// Pairs that a packing client has in flight.
const IN_FLIGHT: usize = 64;

struct Seen {
    single: f64,
    lazy: f64,
    packed: f64,
    two_cores: Option<f64>,
    redis: Option<f64>,
    memcached: Option<f64>,
}

pub(super) fn measure(context: &Context) -> io::Result<Finish> {
    progress(format_args!("G4: {CLIENTS} clients"));
    let core = Some(context.bench.core);
    let daemon = context.daemon()?;
    let single = pairs(context, &dlm(&daemon), core)?;
    let lazy = pairs(context, &dlm_lazy(&daemon), core)?;
    let packed = run_crew(CLIENTS, core, context.bench.plan.rate_time(), |id| {
        let socket = daemon.socket().to_owned();
        Job::Lock(LockJob::Pipeline { id, socket, in_flight: IN_FLIGHT })
    })?;
    let other = context.bench.other;
    let two_cores = other.map(|core| pairs(context, &dlm(&daemon), Some(core))).transpose()?;
    drop(daemon);
    let redis = peer(context, Kind::Redis)?;
    let memcached = peer(context, Kind::Memcached)?;
    let seen = Seen { single, lazy, packed: packed.rate(), two_cores, redis, memcached };
    Ok(Box::new(move |units| figures(&seen, units)))
}

fn pairs(context: &Context, backend: &Backend, core: Option<usize>) -> io::Result<f64> {
    let window = run_crew(CLIENTS, core, context.bench.plan.rate_time(), |id| {
        Job::Lock(LockJob::Pairs { id, backend: backend.clone() })
    })?;
    Ok(window.rate())
}

fn peer(context: &Context, kind: Kind) -> io::Result<Option<f64>> {
    let Some(server) = context.peer(kind)? else { return Ok(None) };
    let socket = server.socket().to_owned();
    let backend = match kind {
        Kind::Redis => Backend::Redis { socket },
        Kind::Memcached => Backend::Memcached { socket },
    };
    pairs(context, &backend, Some(context.bench.core)).map(Some)
}

fn figures(seen: &Seen, units: &Units) -> Vec<Figure> {
    let u7 = units.reference(Unit::U7);
    let best = best_peer(seen);
    let rate =
        |id, what: &str, rate| Figure::new(id, what, rate, Scale::PerSecond).per(&best).per(&u7);
    // The goal is about packing; what clients reach that ask for one lock at a time is said beside
    // it.
    let mut awaited = rate("G4/single", "the same, one pair at a time each", seen.single);
    if let Some(two) = seen.two_cores {
        let two = Scale::PerSecond.show(two);
        awaited = awaited.note(format!("clients on a core of their own {two}"));
    }
    let mut figures = vec![
        rate("G4", "pairs, 64 clients with 64 pairs in flight each, one core", seen.packed)
            .must(Bar::at_least(3.0, &best))
            .target(Bar::at_least(8.0, &best))
            .moonshot(Bar::at_least(0.5, &u7)),
        awaited,
        rate("G4/lazy", "the same, unlocks not awaited", seen.lazy),
    ];
    for (kind, seen) in [(Kind::Redis, seen.redis), (Kind::Memcached, seen.memcached)] {
        if let Some(seen) = seen {
            let what = format!("{}: pairs, 64 clients, one at a time each, one core", kind.name());
            figures.push(rate("G4/peer", &what, seen));
        }
    }
    figures
}

/// The faster of the peers that are here.
fn best_peer(seen: &Seen) -> Reference {
    match (seen.redis, seen.memcached) {
        (Some(redis), Some(memcached)) if redis > memcached => {
            peer_reference(Kind::Redis, Some(redis))
        }
        (redis, None) => peer_reference(Kind::Redis, redis),
        (_, memcached) => peer_reference(Kind::Memcached, memcached),
    }
}
