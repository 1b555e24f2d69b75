//! What membership tells the core about one lockspace (membership.md, recovery.md B1 to B5).

use crate::{Member, ViewId};

/// Who has a lockspace open, as agreed by all members who install this view.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct View {
    /// Number of the view; larger than that of every earlier view of any lockspace.
    pub id: ViewId,
    /// Members in ascending order.
    pub members: Vec<Member>,
    /// Members excluded earlier that are not yet known to be harmless.
    pub unsafe_members: Vec<Member>,
}
