//! `membership = single`: this node alone, for ever.
//!
//! Each lockspace gets one view, with a number that no earlier lockspace had, so that grant numbers
//! only grow also when a lockspace of the same name is created again (recovery.md B1).

use std::collections::VecDeque;

use dlm_core::{LockspaceId, Member, NodeId, View};

use super::{Membership, News};
use crate::daemon::state::State;

/// The backend.
#[derive(Debug)]
pub struct Single {
    own: Member,
    state: State,
    news: VecDeque<News>,
}

impl Single {
    /// A backend for this node; `state` gives its incarnation and view numbers.
    pub fn new(node: NodeId, state: State) -> Self {
        let own = Member::of_start(node, state.incarnation());
        Self { own, state, news: VecDeque::new() }
    }
}

impl Membership for Single {
    fn own(&self) -> Member {
        self.own
    }

    fn name(&self) -> &'static str {
        "single"
    }

    fn quorate(&self) -> bool {
        true
    }

    fn join(&mut self, lockspace: LockspaceId, _name: &[u8], member: Member) {
        self.renew(lockspace, member);
    }

    fn renew(&mut self, lockspace: LockspaceId, member: Member) {
        let id = self.state.next_view();
        let view = View { id, members: vec![member], unsafe_members: Vec::new() };
        self.news.push_back(News::View(lockspace, view));
    }

    fn leave(&mut self, _lockspace: LockspaceId, _name: &[u8]) {}

    fn next(&mut self) -> Option<News> {
        self.news.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TempDir;

    #[test]
    fn every_lockspace_gets_its_own_larger_view_of_this_node_alone() {
        let dir = TempDir::new("single");
        let mut single = Single::new(NodeId(4), State::begin(dir.path(), 100));
        let own = Member::of_start(NodeId(4), 101);
        assert_eq!((single.own(), single.name(), single.quorate()), (own, "single", true));
        assert_eq!(single.next(), None);
        single.join(LockspaceId(0), b"a", own);
        single.leave(LockspaceId(0), b"a");
        single.renew(LockspaceId(0), own);
        let mut last = dlm_core::ViewId(0);
        for _ in 0..2 {
            let Some(News::View(LockspaceId(0), view)) = single.next() else { panic!("a view") };
            assert!(view.id > last && view.members == [own] && view.unsafe_members.is_empty());
            last = view.id;
        }
        assert_eq!(single.next(), None);
    }
}
