//! The goals of several daemons: what a lock costs whose master is elsewhere, and what it costs
//! everybody when a node dies, comes or goes.
//!
//! All daemons run on this machine and talk over TCP on loopback addresses, with encryption as in
//! life; views come from a feeder in this process. What one core can show is judged on one core, as
//! with one daemon. Recovery is not: survivors share all cores, as hosts would have their own.

mod handoff;
mod idle;
mod messages;
mod probe;
mod recovery;
mod remote;
mod takeover;
mod visit;

use std::io;
use std::path::Path;
use std::time::Duration;

use super::{Context, Finish, Group, start};
use crate::crew::{Board, Worker};
use crate::job::{Backend, LockJob, Names};
use crate::nodes::Nodes;
use crate::units::Unit;

/// All groups of `dlm_bench cluster`, in the order in which they run.
pub(crate) const CLUSTER_GROUPS: [Group; 7] = [
    Group { ids: &["G12"], units: &[Unit::U2, Unit::U4], measure: remote::measure },
    Group { ids: &["G13", "G7"], units: &[Unit::U2, Unit::U4], measure: handoff::measure },
    Group { ids: &["messages"], units: &[], measure: messages::measure },
    Group { ids: &["G14"], units: &[], measure: takeover::measure },
    Group { ids: &["recovery", "G16", "unaffected"], units: &[], measure: recovery::measure },
    Group { ids: &["join", "leave"], units: &[], measure: visit::measure },
    Group { ids: &["G17"], units: &[], measure: idle::measure },
];

/// Units that these goals name.
pub(crate) const CLUSTER_UNITS: [Unit; 2] = [Unit::U2, Unit::U4];

/// Time for what is on its way to arrive.
const SETTLED: Duration = Duration::from_millis(300);

/// Numbers of modes.
mod mode {
    pub(super) const NL: u8 = 0;
    pub(super) const CR: u8 = 1;
    pub(super) const CW: u8 = 2;
    pub(super) const PR: u8 = 3;
    pub(super) const EX: u8 = 5;
}

/// Owners of rows of names.
mod owner {
    pub(super) const TABLE: usize = 900;
    pub(super) const LOCAL: usize = 901;
    pub(super) const REMOTE: usize = 902;
    pub(super) const FRESH: usize = 903;
    pub(super) const HOT: usize = 904;
}

impl Context {
    /// `count` daemons on `core`.
    fn nodes(&self, core: Option<usize>, count: u32) -> io::Result<Nodes> {
        Nodes::start(&self.dlmd, core, count)
    }
}

/// A worker process at one node, with its board.
struct Hand {
    worker: Worker,
    board: Board,
}

impl Hand {
    /// Starts a worker on `core` and waits until it is ready.
    fn start(job: LockJob, core: Option<usize>) -> io::Result<Self> {
        let board = Board::new()?;
        let worker = start(job, &board, core)?;
        board.await_ready(1)?;
        Ok(Self { worker, board })
    }

    /// Has a worker take and hold locks.
    fn keep(socket: &Path, names: Names, mode: u8, core: Option<usize>) -> io::Result<Self> {
        Self::start(LockJob::Keep { socket: socket.to_owned(), names, mode }, core)
    }

    /// Asks it to stop, and waits until it has; what it handed back can be read then.
    fn stop(self) -> io::Result<Board> {
        self.board.stop();
        self.worker.finish()?;
        Ok(self.board)
    }
}

/// The Rust client at one node.
fn client(nodes: &Nodes, node: u32, lazy: bool) -> Backend {
    Backend::Dlm { socket: nodes.socket(node).to_owned(), lazy }
}

/// Waits until all of the nodes `1..=count` have joined: each gets a client that holds one lock.
fn join_all(nodes: &Nodes, count: u32, core: Option<usize>) -> io::Result<Vec<Hand>> {
    let name = |node: u32| Names::below(owner::LOCAL, 1).shifted(u64::from(node) * 1000);
    let hands: io::Result<Vec<_>> = (1..=count)
        .map(|node| Hand::keep(nodes.socket(node), name(node), mode::NL, core))
        .collect();
    nodes.await_members(&(1..=count).collect::<Vec<_>>())?;
    hands
}
