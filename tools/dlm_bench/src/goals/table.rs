//! G8, G9: a million locks held by one client: memory, and the time to take them.

use std::io;

use super::{Context, Finish, start};
use crate::crew::Board;
use crate::daemon::Daemon;
use crate::job::LockJob;
use crate::progress::progress;
use crate::report::{Bar, Figure, Reference, Scale};
use crate::units::{Unit, Units};

/// Locks taken in one go.
const BATCH_LOCKS: usize = 1_000_000;

/// Locks taken one by one, each answer awaited.
const SINGLE_LOCKS: usize = 200_000;

struct Seen {
    locks: usize,
    bytes_per_lock: f64,
    batch_ns: f64,
    single_ns: f64,
}

/// A client that holds locks, and what that did to the daemon.
pub(super) struct Held {
    /// Nanoseconds it took to take them.
    pub took_ns: f64,
    /// Growth of the daemon's resident memory.
    pub bytes: f64,
    worker: crate::crew::Worker,
    board: Board,
}

impl Held {
    /// Has a client on the daemon's core take `locks` locks and hold them.
    pub(super) fn take(
        context: &Context,
        daemon: &Daemon,
        locks: usize,
        singly: bool,
    ) -> io::Result<Self> {
        let board = Board::new()?;
        let before = daemon.usage()?;
        let job = LockJob::Hold { socket: daemon.socket().to_owned(), locks, singly, mib: 0 };
        let worker = start(job, &board, Some(context.bench.core))?;
        board.await_ready(1)?;
        let bytes = daemon.usage()?.resident as f64 - before.resident as f64;
        Ok(Self { took_ns: board.result(0), bytes, worker, board })
    }

    /// Lets the locks go.
    pub(super) fn release(self) -> io::Result<()> {
        self.board.stop();
        self.worker.finish()
    }
}

pub(super) fn measure(context: &Context) -> io::Result<Finish> {
    let locks = context.bench.plan.count(BATCH_LOCKS);
    progress(format_args!("G8, G9: one client takes {locks} locks at once"));
    let daemon = context.daemon()?;
    let batch = Held::take(context, &daemon, locks, false)?;
    let (bytes, batch_ns) = (batch.bytes, batch.took_ns);
    batch.release()?;
    drop(daemon);
    let single_locks = context.bench.plan.count(SINGLE_LOCKS);
    progress(format_args!("G9: one client takes {single_locks} locks one by one"));
    let daemon = context.daemon()?;
    let single = Held::take(context, &daemon, single_locks, true)?;
    let single_ns = single.took_ns / single_locks as f64;
    single.release()?;
    let seen = Seen { locks, bytes_per_lock: bytes / locks as f64, batch_ns, single_ns };
    Ok(Box::new(move |units| figures(&seen, units)))
}

fn figures(seen: &Seen, units: &Units) -> Vec<Figure> {
    let (u2, u9) = (units.reference(Unit::U2), units.reference(Unit::U9));
    let own = Reference::absolute();
    // The bars are for a million locks; a smaller batch is given its share of the time.
    let million = seen.batch_ns * BATCH_LOCKS as f64 / seen.locks as f64;
    let each =
        Reference { name: "U9 each".into(), value: u9.value.map(|ns| ns * BATCH_LOCKS as f64) };
    vec![
        Figure::new(
            "G8",
            "daemon memory per held lock, 13-byte names",
            seen.bytes_per_lock,
            Scale::Bytes,
        )
        .must(Bar::at_most(200.0, &own))
        .target(Bar::at_most(96.0, &own))
        .moonshot(Bar::at_most(48.0, &own))
        .note(format!("{} locks", seen.locks)),
        Figure::new(
            "G9/loop",
            "lock of a fresh name, answer awaited, mean",
            seen.single_ns,
            Scale::Ns,
        )
        .per(&u2)
        .must(Bar::at_most(2.5, &u2)),
        Figure::new("G9/batch", "a million locks by one client, batch", million, Scale::Ns)
            .per(&each)
            .must(Bar::at_most(2.5e9, &own))
            .target(Bar::at_most(1e9, &own))
            .moonshot(Bar::at_most(0.4e9, &own))
            .note(format!("measured with {} locks", seen.locks)),
    ]
}
