//! Who takes part in a lockspace (membership.md).
//!
//! A backend learns of joins and leaves and answers with views. The core knows no backend; the
//! reactor calls one through [`Membership`] and feeds what it says.

mod single;

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
    /// This node.
    fn own(&self) -> Member;

    /// The backend's name, as configured.
    fn name(&self) -> &'static str;

    /// Whether the cluster may grant.
    fn quorate(&self) -> bool;

    /// This node opened a lockspace; a [`News::View`] with it as a member answers, now or later.
    fn join(&mut self, lockspace: LockspaceId, name: &[u8]);

    /// The core wants a view of a lockspace with a higher number and the same members.
    fn renew(&mut self, lockspace: LockspaceId);

    /// This node left a lockspace.
    fn leave(&mut self, lockspace: LockspaceId, name: &[u8]);

    /// What is new since the last call, oldest first.
    fn next(&mut self) -> Option<News>;
}
