//! Who takes part in a lockspace (membership.md).
//!
//! A backend learns of joins and leaves and answers with views. The core knows no backend; the
//! reactor calls one through [`Membership`] and feeds what it says.
//!
//! | module | what |
//! |---|---|
//! | [`Single`] | this node alone, for ever |
//! | [`External`] | the daemon's side of views that somebody else decides |
//! | [`feeder`] | that somebody: the rules B1 to B4 of recovery.md as a state machine |
//! | [`feed`] | the conversations of a feeder with its daemons |

mod external;
pub mod feed;
pub mod feeder;
mod single;

pub use external::External;
pub use single::Single;

use dlm_core::{LockspaceId, Member, NodeId, View};
use dlm_ipc::control::{ChangeRecord, DaemonFencing, NodeFencing};

/// What a backend tells the core.
#[derive(Clone, PartialEq, Debug)]
pub enum News {
    /// Install this view of a lockspace.
    View(LockspaceId, View),
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
