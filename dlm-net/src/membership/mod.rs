//! Who takes part in a lockspace (membership.md).
//!
//! A backend learns of joins and leaves and answers with views. The core knows no backend; the
//! reactor calls one through [`Membership`] and feeds what it says.
//!
//! In every turn of the loop: descriptors of the backend that have something are told to it
//! ([`Membership::ready`]), then [`Membership::on_time`], then its [`News`] are taken until there
//! are none. News of a view and of safety go into the core; [`News::LifeOver`] resets every
//! lockspace, tells clients, and begins the next life; [`News::Standing`] and [`News::Lease`] bound
//! what the core may grant. At the end of a turn in which something of it changed, a backend that
//! decides views from what daemons say ([`Membership::wants_reports`]) gets this daemon's own report:
//! its lives, its stays with their installed views (the acknowledgement of B4), and whom it can talk
//! to. A backend never blocks, and sleeps no longer than until [`Membership::deadline`].
//!
//! | module | what |
//! |---|---|
//! | [`Single`] | this node alone, for ever |
//! | [`External`] | the daemon's side of views that somebody else decides |
//! | [`feeder`] | that somebody: the rules B1 to B4 of recovery.md as a state machine |
//! | [`feed`] | the conversations of a feeder with its daemons |
//! | [`lease`] | how long a node may act on its own word |
//! | [`watchdog`] | what resets a machine that nobody can vouch for |
//! | [`Fencing`] | who makes lost nodes harmless, for backends that do not know by themselves |

pub(crate) mod corosync;
mod external;
pub mod feed;
pub mod feeder;
mod fencing;
pub mod lease;
mod single;
pub mod watchdog;

pub use external::External;
pub use fencing::{Fencing, FencingNews, Lost};
pub use single::Single;

use std::io;
use std::ops::Range;

use dlm_core::{Instant, LockspaceId, Member, NodeId, View};
use dlm_ipc::control::{ChangeRecord, DaemonFencing, NodeFencing, StaysRecord};
use mio::{Registry, Token};

use crate::daemon::config::Settings;

/// What a backend tells the core.
#[derive(Clone, PartialEq, Debug)]
pub enum News {
    /// Install this view of a lockspace.
    View(LockspaceId, View),
    /// This member, or all stays of this life, is harmless from now on (B3).
    Safe(Member),
    /// The cluster went on without this life of this node, or cannot be followed any more; the
    /// reactor ends it and asks for the next one ([`Membership::begin_life`]).
    LifeOver(String),
    /// Whether the cluster lets this node grant: false without quorum, without agreement on who is
    /// there, and from the moment on when the cluster engine is lost. Until told: it does.
    Standing(bool),
    /// The cluster had this node at this moment, which was read before the tick was sent that came
    /// back in agreed order while quorate: the lease counts from here.
    Lease(Instant),
}

/// What keeps a lockspace from its next view (libdlm-abi.md 4.3).
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Hindrance {
    /// The change that waits, with its `status`: `wait ringid`, `wait quorum`, `wait fencing`. Its
    /// `seq` is filled in by the listing.
    pub change: ChangeRecord,
    /// What is waited for, for which node, since when, and what would end it, a sentence each.
    pub words: Vec<String>,
}

/// A node as the cluster below sees it, in one lockspace or none (libdlm-abi.md 4.4). Times are
/// seconds of the daemon's clock; 0: never.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct ClusterNode {
    /// Whether it is a member of the cluster.
    pub member: bool,
    /// State in words; empty: as the connection to it says.
    pub state: String,
    /// Why it left, as `dlm_ipc::control::left` numbers it; 0: it did not.
    pub left: u32,
    /// When it was added.
    pub added: u64,
    /// When it was removed.
    pub removed: u64,
    /// When it failed.
    pub failed: u64,
    /// When it was fenced.
    pub fenced: u64,
    /// Its fencing.
    pub fencing: NodeFencing,
}

/// A source of views.
pub trait Membership {
    /// This life of this node.
    fn own(&self) -> Member;

    /// The backend's name, as configured.
    fn name(&self) -> &'static str;

    /// Whether the cluster may grant.
    fn quorate(&self) -> bool;

    /// This node opened a lockspace, as this member; a [`News::View`] with it answers, now or later.
    fn join(&mut self, lockspace: LockspaceId, name: &[u8], member: Member);

    /// The core wants a view of a lockspace with a higher number and the same members, of whom this
    /// is its own.
    fn renew(&mut self, lockspace: LockspaceId, member: Member);

    /// This node left a lockspace.
    fn leave(&mut self, lockspace: LockspaceId, name: &[u8]);

    /// What is new since the last call, oldest first.
    fn next(&mut self) -> Option<News>;

    /// Begins: descriptors are watched under these tokens, which are for nobody else.
    ///
    /// # Errors
    /// A descriptor cannot be watched.
    fn open(
        &mut self,
        _registry: &Registry,
        _tokens: Range<usize>,
        _now: Instant,
    ) -> io::Result<()> {
        Ok(())
    }

    /// A descriptor that it watches has something.
    fn ready(&mut self, _token: Token) {}

    /// Does what is due; called in every turn.
    fn on_time(&mut self, _now: Instant) {}

    /// When [`Membership::on_time`] has to be called at the latest.
    fn deadline(&self) -> Option<Instant> {
        None
    }

    /// Whether it decides from reports.
    fn wants_reports(&self) -> bool {
        false
    }

    /// What this daemon has to say of itself now.
    fn report(&mut self, _report: StaysRecord, _now: Instant) {}

    /// The first life of this process.
    fn first(&self) -> Member {
        self.own()
    }

    /// The life before is over and all its lockspaces are reset; begins the next one.
    fn begin_life(&mut self) -> Member {
        self.own()
    }

    /// Whether a member is known to be harmless.
    fn is_safe(&self, _member: Member) -> bool {
        false
    }

    /// Whether a view of this lockspace with a higher number is wanted of somebody else.
    fn wants_view(&self, _lockspace: LockspaceId) -> bool {
        false
    }

    /// The daemon ends, with no lockspace left or with the lockspaces that are reset.
    fn close(&mut self) {}

    /// What keeps a lockspace from its next view; `None`: nothing that this backend knows of.
    fn hindrance(&self, _lockspace: LockspaceId) -> Option<Hindrance> {
        None
    }

    /// What is waited for beside lockspaces, a sentence each.
    fn waits_for(&self) -> Vec<String> {
        Vec::new()
    }

    /// Ring numbers: the cluster's, and the one that the daemon acts on.
    fn rings(&self) -> (u64, u64) {
        (1, 1)
    }

    /// What the cluster below knows of a node; `None`: the backend has none below.
    fn cluster_node(&self, _node: NodeId) -> Option<ClusterNode> {
        None
    }

    /// The configuration may have changed.
    fn configure(&mut self, _settings: &Settings) {}

    /// Fencing as a whole.
    fn fencing(&self) -> DaemonFencing {
        DaemonFencing::default()
    }

    /// An administrator's word that a failed node is dead; `None`: the backend does not take it.
    ///
    /// # Errors
    /// A sentence about why it is not so, or not needed.
    fn fence_acknowledged(&mut self, _node: NodeId) -> Option<Result<(), String>> {
        None
    }

    /// The backend, where views are fed by somebody else.
    fn external(&mut self) -> Option<&mut External> {
        None
    }
}
