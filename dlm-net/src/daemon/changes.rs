//! What views changed, for listings.

use std::collections::BTreeMap;

use dlm_core::{LockspaceId, Member, View};
use dlm_ipc::control::ChangeRecord;

/// The last change of each lockspace, and what became of each node.
#[derive(Debug, Default)]
pub(super) struct Changes {
    spaces: BTreeMap<LockspaceId, ChangeRecord>,
    nodes: BTreeMap<u32, Times>,
}

/// When something became of a node, in seconds of the daemon's clock; 0: never.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Times {
    pub(super) added: u64,
    pub(super) removed: u64,
    pub(super) failed: u64,
    pub(super) safe: u64,
}

impl Changes {
    /// A lockspace of member `own` goes from one view to the next.
    pub(super) fn on_view(
        &mut self,
        id: LockspaceId,
        own: Member,
        old: Option<&View>,
        new: &View,
        now: u64,
    ) {
        let before = old.map_or(&[][..], |view| &view.members);
        let joined: Vec<Member> = only_in(&new.members, before);
        let removed: Vec<Member> = only_in(before, &new.members);
        let failed = removed.iter().filter(|member| new.unsafe_members.contains(member)).count();
        let cause = removed.first().or_else(|| joined.iter().find(|member| **member != own));
        let record = self.spaces.entry(id).or_default();
        *record = ChangeRecord {
            node: cause.unwrap_or(&own).node.0,
            joined: joined.len() as u32,
            removed: removed.len() as u32,
            failed: failed as u32,
            seq: if old.is_none() { 1 } else { record.seq + 1 },
            members: new.members.iter().map(|member| member.node.0).collect(),
            status: String::new(),
        };
        for member in joined {
            let times = self.nodes.entry(member.node.0).or_default();
            times.added = if times.added > times.removed { times.added } else { now };
        }
        for member in removed {
            let times = self.nodes.entry(member.node.0).or_default();
            times.removed = now;
            if new.unsafe_members.contains(&member) {
                times.failed = now;
            }
        }
    }

    /// A member is harmless.
    pub(super) fn on_safe(&mut self, member: Member, now: u64) {
        self.nodes.entry(member.node.0).or_default().safe = now;
    }

    /// A lockspace is gone.
    pub(super) fn on_leave(&mut self, id: LockspaceId) {
        self.spaces.remove(&id);
    }

    /// The last change of a lockspace.
    pub(super) fn of_space(&self, id: LockspaceId) -> ChangeRecord {
        self.spaces.get(&id).cloned().unwrap_or_default()
    }

    /// What became of a node.
    pub(super) fn of_node(&self, node: u32) -> Times {
        self.nodes.get(&node).copied().unwrap_or_default()
    }
}

fn only_in(these: &[Member], those: &[Member]) -> Vec<Member> {
    these.iter().filter(|member| !those.contains(member)).copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use dlm_core::{NodeId, ViewId};

    fn view(id: u32, members: &[u32], lost: &[u32]) -> View {
        let of = |nodes: &[u32]| nodes.iter().map(|node| member(*node)).collect();
        View { id: ViewId(id), members: of(members), unsafe_members: of(lost) }
    }

    fn member(node: u32) -> Member {
        Member { node: NodeId(node), incarnation: 1 }
    }

    #[test]
    fn changes_name_who_caused_them() {
        let mut changes = Changes::default();
        let (id, own) = (LockspaceId(0), member(1));
        let mut last = None;
        let members: [&[u32]; 4] = [&[1], &[1, 2, 3], &[1, 3], &[1]];
        let lost: [&[u32]; 4] = [&[], &[], &[], &[3]];
        let records = [(1, 1, 0, 0), (2, 2, 0, 0), (2, 0, 1, 0), (3, 0, 1, 1)];
        let steps = members.into_iter().zip(lost).zip(records);
        for (seq, ((members, lost), want)) in steps.enumerate() {
            let next = view(seq as u32 + 10, members, lost);
            changes.on_view(id, own, last.as_ref(), &next, seq as u64 + 1);
            let record = changes.of_space(id);
            assert_eq!((record.node, record.joined, record.removed, record.failed), want);
            assert_eq!((record.seq, record.members), (seq as u64 + 1, members.to_vec()));
            last = Some(next);
        }
        changes.on_safe(member(3), 9);
        let three = changes.of_node(3);
        assert_eq!((three.added, three.removed, three.failed, three.safe), (2, 4, 4, 9));
        assert_eq!(changes.of_node(2).failed, 0);
        changes.on_leave(id);
        assert_eq!(changes.of_space(id), ChangeRecord::default());
    }
}
