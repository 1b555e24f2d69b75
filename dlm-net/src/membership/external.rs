//! `membership = external`: views are decided by a feeder and come over the control socket.
//!
//! The daemon only keeps what the feeder asks for: which lockspaces want a view with a higher number,
//! who is known to be harmless, and which life of the node this is. A life ends when the feeder
//! excludes it; the next one begins at once, and joins wait until the old one is harmless.

use std::collections::BTreeSet;

use dlm_core::{LockspaceId, Member, NodeId};

use super::{Membership, News};
use crate::daemon::state::State;

/// The backend.
#[derive(Debug)]
pub struct External {
    own: Member,
    first: Member,
    state: State,
    wanted: BTreeSet<LockspaceId>,
    safe: BTreeSet<Member>,
}

impl External {
    /// A backend for this node; `state` gives the numbers of its lives.
    pub fn new(node: NodeId, state: State) -> Self {
        let own = Member::of_start(node, state.incarnation());
        Self { own, first: own, state, wanted: BTreeSet::new(), safe: BTreeSet::new() }
    }

    /// A view of a lockspace was fed.
    pub fn fed(&mut self, lockspace: LockspaceId) {
        self.wanted.remove(&lockspace);
    }

    /// A member is harmless from now on.
    pub fn add_safe(&mut self, member: Member) {
        self.safe.insert(member);
    }
}

impl Membership for External {
    fn own(&self) -> Member {
        self.own
    }

    fn name(&self) -> &'static str {
        "external"
    }

    fn quorate(&self) -> bool {
        true
    }

    fn join(&mut self, _lockspace: LockspaceId, _name: &[u8], _member: Member) {}

    fn renew(&mut self, lockspace: LockspaceId, _member: Member) {
        self.wanted.insert(lockspace);
    }

    fn leave(&mut self, lockspace: LockspaceId, _name: &[u8]) {
        self.wanted.remove(&lockspace);
    }

    fn next(&mut self) -> Option<News> {
        None
    }

    fn first(&self) -> Member {
        self.first
    }

    fn begin_life(&mut self) -> Member {
        self.wanted.clear();
        self.own = Member::of_start(self.own.node, self.state.next_incarnation());
        self.own
    }

    fn is_safe(&self, member: Member) -> bool {
        self.safe.contains(&member)
    }

    fn wants_view(&self, lockspace: LockspaceId) -> bool {
        self.wanted.contains(&lockspace)
    }

    fn external(&mut self) -> Option<&mut External> {
        Some(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TempDir;

    #[test]
    fn lives_of_one_process_and_of_the_next_one_never_share_a_number() {
        let dir = TempDir::new("external");
        let mut external = External::new(NodeId(4), State::begin(dir.path(), 100));
        let first = external.own();
        assert_eq!(first, Member::of_start(NodeId(4), 101));
        let second = external.begin_life();
        assert!(second > first && !second.is_of_life(first));
        assert_eq!((external.own(), external.first()), (second, first));
        let next = External::new(NodeId(4), State::begin(dir.path(), 0));
        assert!(next.own() > second);
    }

    #[test]
    fn a_wanted_view_is_wanted_until_it_is_fed_or_the_lockspace_left() {
        let dir = TempDir::new("external");
        let mut external = External::new(NodeId(1), State::begin(dir.path(), 5));
        let (a, b) = (LockspaceId(0), LockspaceId(1));
        let own = external.own();
        external.join(a, b"a", own);
        assert!(!external.wants_view(a) && external.next().is_none());
        external.renew(a, own);
        external.renew(b, own);
        assert!(external.wants_view(a) && external.wants_view(b));
        external.fed(a);
        external.leave(b, b"b");
        assert!(!external.wants_view(a) && !external.wants_view(b));
        external.add_safe(own);
        assert!(external.is_safe(own));
    }
}
