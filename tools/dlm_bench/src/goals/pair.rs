//! G2, G18: one lock+unlock pair through the daemon, and how much its time varies.

use std::io;

use super::{Context, Finish, dlm, dlm_lazy, peer_reference, start};
use crate::crew::Board;
use crate::job::{Backend, LockJob};
use crate::peers::Kind;
use crate::progress::progress;
use crate::report::{Bar, Figure, Reference, Scale};
use crate::units::{Unit, Units};

/// Fewest pairs behind a percentile.
const PAIRS_MIN: usize = 20_000;

/// The percentiles of single pairs.
#[derive(Clone, Copy)]
struct Pairs {
    p50: f64,
    p99: f64,
    count: f64,
    p90: f64,
    p999: f64,
}

/// Everything this group measures.
struct Seen {
    rust: Pairs,
    lazy: Pairs,
    c: Option<Pairs>,
    two_cores: Option<Pairs>,
    redis: Option<Pairs>,
    memcached: Option<Pairs>,
}

pub(super) fn measure(context: &Context) -> io::Result<Finish> {
    progress(format_args!("G2, G18: single pairs"));
    let core = Some(context.bench.core);
    let daemon = context.daemon()?;
    let rust = pairs(context, dlm(&daemon), core)?;
    let lazy = pairs(context, dlm_lazy(&daemon), core)?;
    let c = match &context.library {
        Some(library) => {
            let (socket, library) = (daemon.socket().to_owned(), library.clone());
            Some(pairs(context, Backend::DlmC { socket, library }, core)?)
        }
        None => {
            progress(format_args!(
                "libdlm_lt.so.3 is not here: G2 as a C program sees it is skipped"
            ));
            None
        }
    };
    let other = context.bench.other;
    let two_cores = other.map(|core| pairs(context, dlm(&daemon), Some(core))).transpose()?;
    drop(daemon);
    let redis = peer_pairs(context, Kind::Redis)?;
    let memcached = peer_pairs(context, Kind::Memcached)?;
    let seen = Seen { rust, lazy, c, two_cores, redis, memcached };
    Ok(Box::new(move |units| figures(&seen, units)))
}

fn pairs(context: &Context, backend: Backend, core: Option<usize>) -> io::Result<Pairs> {
    let board = Board::new()?;
    let plan = context.bench.plan;
    let time_ms = plan.rate_time().as_millis() as u64;
    let least = plan.count(PAIRS_MIN) as u64;
    let worker = start(LockJob::Latency { backend, time_ms, least }, &board, core)?;
    worker.finish()?;
    Ok(Pairs {
        p50: board.result(0),
        p99: board.result(1),
        count: board.result(2),
        p90: board.result(3),
        p999: board.result(4),
    })
}

fn peer_pairs(context: &Context, kind: Kind) -> io::Result<Option<Pairs>> {
    let Some(server) = context.peer(kind)? else { return Ok(None) };
    let socket = server.socket().to_owned();
    let backend = match kind {
        Kind::Redis => Backend::Redis { socket },
        Kind::Memcached => Backend::Memcached { socket },
    };
    pairs(context, backend, Some(context.bench.core)).map(Some)
}

fn figures(seen: &Seen, units: &Units) -> Vec<Figure> {
    let (u2, u3) = (units.reference(Unit::U2), units.reference(Unit::U3));
    let redis = peer_reference(Kind::Redis, seen.redis.map(|pairs| pairs.p50));
    let held = |id, what, pairs: Pairs| {
        latency(id, what, pairs)
            .per(&u2)
            .per(&u3)
            .per(&redis)
            .must(Bar::at_most(2.2, &u2))
            .must(Bar::at_most(0.6, &redis))
            .target(Bar::at_most(1.3, &u2))
            .moonshot(Bar::at_most(1.5, &u3))
    };
    let mut rust = held("G2", "lock+unlock, both answers awaited, one core, p50", seen.rust);
    if let Some(two) = seen.two_cores {
        rust = rust.note(format!("two cores p50 {}", Scale::Ns.show(two.p50)));
    }
    let spread = seen.rust.p99 / seen.rust.p50;
    let own = Reference::absolute();
    let mut figures = vec![
        rust,
        held("G2/lazy", "the same, unlock not awaited", seen.lazy),
        Figure::new("G18", "p99 / p50 of G2", spread, Scale::Plain)
            .must(Bar::at_most(3.0, &own))
            .target(Bar::at_most(1.6, &own))
            .moonshot(Bar::at_most(1.3, &own)),
    ];
    if let Some(c) = seen.c {
        figures.push(held("G2/C", "the same as G2 through libdlm_lt.so.3", c));
        figures.push(
            Figure::new("G18/C", "p99 / p50 of G2/C", c.p99 / c.p50, Scale::Plain)
                .must(Bar::at_most(3.0, &own))
                .target(Bar::at_most(1.6, &own)),
        );
    }
    for (kind, pairs) in [(Kind::Redis, seen.redis), (Kind::Memcached, seen.memcached)] {
        if let Some(pairs) = pairs {
            let what = format!("{}: lock+unlock, one core, p50", kind.name());
            figures.push(latency("G2/peer", &what, pairs).per(&u2));
        }
    }
    figures
}

fn latency(id: &str, what: &str, pairs: Pairs) -> Figure {
    let show = |ns| Scale::Ns.show(ns);
    let (p90, p99, p999) = (show(pairs.p90), show(pairs.p99), show(pairs.p999));
    Figure::new(id, what, pairs.p50, Scale::Ns)
        .note(format!("p90 {p90}, p99 {p99}, p99.9 {p999} of {} pairs", pairs.count))
}
