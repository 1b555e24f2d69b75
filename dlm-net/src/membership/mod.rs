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

use dlm_core::{LockspaceId, Member, View};

/// What a backend tells the core.
#[derive(Clone, PartialEq, Debug)]
pub enum News {
    /// Install this view of a lockspace.
    View(LockspaceId, View),
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

    /// The backend, where views are fed by somebody else.
    fn external(&mut self) -> Option<&mut External> {
        None
    }
}
