//! G6, G7: handing one lock from client to client, and whether each gets its turn.
//!
//! What counts is a change of owner: a client that unlocks and at once locks again has handed
//! nothing over. Fairness counts turns, so that such a client would show.

use std::io;

use super::{Context, Finish, dlm, dlm_lazy};
use crate::crew::{Window, run_crew};
use crate::job::{Backend, Job, LockJob};
use crate::locker::RedisQueue;
use crate::peers::Kind;
use crate::progress::progress;
use crate::report::{Bar, Figure, Reference, Scale};
use crate::units::{Unit, Units};

/// Name of the lock that is handed around.
pub(crate) const HOT_NAME: &[u8] = b"the-hot-lock!";

/// The two crowds.
const CLIENTS: [usize; 2] = [2, 16];

/// One crowd on each service.
struct Seen {
    clients: usize,
    awaited: Window,
    lazy: Window,
    two_cores: Option<Window>,
    redis: Option<Window>,
}

pub(super) fn measure(context: &Context) -> io::Result<Finish> {
    let mut seen = Vec::new();
    for clients in CLIENTS {
        progress(format_args!("G6, G7: {clients} clients hand one lock around"));
        let core = Some(context.bench.core);
        let daemon = context.daemon()?;
        let awaited = crowd(context, clients, &dlm(&daemon), core)?;
        let lazy = crowd(context, clients, &dlm_lazy(&daemon), core)?;
        let two_cores = match context.bench.other {
            Some(core) => Some(crowd(context, clients, &dlm(&daemon), Some(core))?),
            None => None,
        };
        drop(daemon);
        let redis = redis(context, clients)?;
        seen.push(Seen { clients, awaited, lazy, two_cores, redis });
    }
    Ok(Box::new(move |units| seen.iter().flat_map(|seen| figures(seen, units)).collect()))
}

fn crowd(
    context: &Context,
    clients: usize,
    backend: &Backend,
    core: Option<usize>,
) -> io::Result<Window> {
    run_crew(clients, core, context.bench.plan.rate_time(), |id| {
        Job::Lock(LockJob::HandOff { id, backend: backend.clone() })
    })
}

fn redis(context: &Context, clients: usize) -> io::Result<Option<Window>> {
    let Some(server) = context.peer(Kind::Redis)? else { return Ok(None) };
    RedisQueue::open(server.socket())?.provide(HOT_NAME)?;
    let backend = Backend::RedisQueue { socket: server.socket().to_owned() };
    crowd(context, clients, &backend, Some(context.bench.core)).map(Some)
}

fn figures(seen: &Seen, units: &Units) -> Vec<Figure> {
    let u6 = units.reference(Unit::U6);
    let blpop =
        Reference { name: "BLPOP".into(), value: seen.redis.as_ref().map(|window| window.rate()) };
    let own = Reference::absolute();
    let clients = seen.clients;
    let rate = |id: &str, what: &str, window: &Window| {
        Figure::new(&format!("{id}/{clients}"), what, window.rate(), Scale::PerSecond)
            .per(&blpop)
            .per(&u6)
            .must(Bar::at_least(1.0, &blpop))
            .target(Bar::at_least(3.0, &blpop))
            .target(Bar::at_least(0.4, &u6))
            .moonshot(Bar::at_least(0.8, &u6))
    };
    let fairness = |id: &str, what: &str, window: &Window| {
        Figure::new(&format!("{id}/{clients}"), what, window.unfairness(), Scale::Plain)
            .must(Bar::at_most(1.10, &own))
            .target(Bar::at_most(1.02, &own))
    };
    let what = format!("hand-offs, {clients} clients, one core");
    let mut first = rate("G6", &what, &seen.awaited);
    if let Some(two) = &seen.two_cores {
        let rate = Scale::PerSecond.show(two.rate());
        first = first.note(format!("clients on a core of their own {rate}"));
    }
    let mut figures = vec![
        first,
        rate("G6/lazy", "the same, unlocks not awaited", &seen.lazy),
        fairness("G7", "turns of the luckiest over the unluckiest", &seen.awaited),
        fairness("G7/lazy", "the same, unlocks not awaited", &seen.lazy),
    ];
    if let Some(window) = &seen.redis {
        let what = format!("redis BLPOP: hand-offs, {clients} clients, one core");
        figures.push(
            Figure::new("G6/peer", what, window.rate(), Scale::PerSecond)
                .per(&u6)
                .note(format!("max/min {:.3}", window.unfairness())),
        );
    }
    figures
}
