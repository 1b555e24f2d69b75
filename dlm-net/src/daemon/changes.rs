//! What views changed, for listings: the last change of each lockspace, what became of each node,
//! and a bounded history with what every step took.

use std::collections::{BTreeMap, VecDeque};

use dlm_core::{Instant, LockspaceId, Marks, Member, View};
use dlm_ipc::control::{ChangeRecord, RecoveryRecord, SpaceNodeRecord, StepUs, left};

/// Changes that are remembered, of all lockspaces together.
const HISTORY_MAX: usize = 256;

/// The changes of lockspaces.
#[derive(Debug, Default)]
pub(super) struct Changes {
    spaces: BTreeMap<LockspaceId, Space>,
    nodes: BTreeMap<u32, Times>,
    history: VecDeque<Past>,
    /// Changes so far.
    count: u64,
}

/// When something became of a node, in seconds of the daemon's clock; 0: never.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Times {
    pub(super) added: u64,
    pub(super) removed: u64,
    pub(super) failed: u64,
    pub(super) safe: u64,
    /// Why it left ([`left`]); 0: it did not.
    pub(super) left: u32,
}

#[derive(Debug, Default)]
struct Space {
    /// When this node asked to be let in, nanoseconds.
    asked: u64,
    /// The change to the installed view.
    last: ChangeRecord,
    /// The last one before it that was completed.
    completed: ChangeRecord,
    nodes: BTreeMap<u32, Seen>,
}

/// A node in the changes of one lockspace.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    added_seq: u64,
    removed_seq: u64,
    left: u32,
}

/// A change in the history.
#[derive(Debug)]
struct Past {
    record: RecoveryRecord,
    installed: Instant,
    /// Its lockspace, as long as its view is the installed one and its steps are not over.
    open: Option<LockspaceId>,
}

/// A lockspace just before a new view.
pub(super) struct Before<'a> {
    pub(super) id: LockspaceId,
    pub(super) name: &'a [u8],
    pub(super) own: Member,
    pub(super) view: Option<&'a View>,
    pub(super) marks: &'a Marks,
}

/// The clocks.
#[derive(Clone, Copy)]
pub(super) struct Clocks {
    /// The daemon's, nanoseconds.
    pub(super) now: u64,
    /// Wall-clock microseconds since 1970.
    pub(super) wall_us: u64,
}

impl Changes {
    /// This node asked to be let into a lockspace.
    pub(super) fn on_join(&mut self, id: LockspaceId, now: u64) {
        self.spaces.insert(id, Space { asked: now, ..Space::default() });
    }

    /// A lockspace goes from one view to the next.
    pub(super) fn on_view(&mut self, before: &Before<'_>, new: &View, clocks: Clocks) {
        let old = before.view.map_or(&[][..], |view| &view.members);
        let joined: Vec<Member> = only_in(&new.members, old);
        let removed: Vec<Member> = only_in(old, &new.members);
        let (failed, gone): (Vec<Member>, Vec<Member>) =
            removed.iter().partition(|member| new.unsafe_members.contains(member));
        let own = before.own;
        let cause = removed.first().or_else(|| joined.iter().find(|member| **member != own));
        let space = self.spaces.entry(before.id).or_default();
        if before.view.is_none() || before.marks.thawed.is_some() {
            space.completed = std::mem::take(&mut space.last);
        }
        let seq = match before.view {
            None => 1,
            Some(_) => space.last.seq.max(space.completed.seq) + 1,
        };
        space.last = ChangeRecord {
            node: cause.unwrap_or(&own).node.0,
            joined: joined.len() as u32,
            removed: removed.len() as u32,
            failed: failed.len() as u32,
            seq,
            members: numbers(&new.members),
            status: String::new(),
        };
        let seconds = clocks.now / 1_000_000_000;
        let why = |member: &Member| match failed.contains(member) {
            true => left::NODE_DOWN,
            false => left::LEAVE,
        };
        for member in &removed {
            let seen = space.nodes.entry(member.node.0).or_default();
            (seen.removed_seq, seen.left) = (seq, why(member));
            let times = self.nodes.entry(member.node.0).or_default();
            (times.removed, times.left) = (seconds, why(member));
            if failed.contains(member) {
                times.failed = seconds;
            }
        }
        for member in &joined {
            let seen = space.nodes.entry(member.node.0).or_default();
            (seen.added_seq, seen.left) = (seq, 0);
            let times = self.nodes.entry(member.node.0).or_default();
            times.added = if times.added > times.removed { times.added } else { seconds };
            times.left = 0;
        }
        self.close(before.id, Some(before.marks));
        self.remember(Past {
            record: RecoveryRecord {
                lockspace: before.name.to_vec(),
                seq,
                view: new.id.0,
                at_us: clocks.wall_us,
                members: numbers(&new.members),
                joined: numbers(&joined),
                left: numbers(&gone),
                failed: numbers(&failed),
                safe: new.unsafe_members.iter().map(|member| (member.node.0, None)).collect(),
                ..RecoveryRecord::default()
            },
            installed: Instant(clocks.now),
            open: Some(before.id),
        });
    }

    fn remember(&mut self, mut past: Past) {
        self.count += 1;
        past.record.number = self.count;
        if self.history.len() == HISTORY_MAX {
            self.history.pop_front();
        }
        self.history.push_back(past);
    }

    /// The open change of a lockspace ends: its steps are over, or a newer view comes first.
    fn close(&mut self, id: LockspaceId, marks: Option<&Marks>) {
        for past in self.history.iter_mut().filter(|past| past.open == Some(id)) {
            if let Some(marks) = marks {
                fill(&mut past.record, marks);
            }
            past.record.superseded = past.record.thawed.is_none();
            past.open = None;
        }
    }

    /// Notes changes whose steps are over by now, and returns them.
    pub(super) fn follow<'a>(
        &mut self,
        marks: impl Fn(LockspaceId) -> Option<&'a Marks>,
    ) -> Vec<RecoveryRecord> {
        let mut over = Vec::new();
        for past in self.history.iter_mut().rev().filter(|past| past.open.is_some()) {
            let marks = past.open.and_then(&marks).filter(|marks| marks.thawed.is_some());
            if let Some(marks) = marks {
                fill(&mut past.record, marks);
                past.open = None;
                over.push(past.record.clone());
            }
        }
        over
    }

    /// Whether a change is not over, so that [`Changes::follow`] has something to look at.
    pub(super) fn is_open(&self) -> bool {
        // A newer change of the same lockspace closes an older one: open ones are among the last.
        self.history.iter().rev().take(self.spaces.len()).any(|past| past.open.is_some())
    }

    /// A member is harmless.
    pub(super) fn on_safe(&mut self, member: Member, now: u64) {
        self.nodes.entry(member.node.0).or_default().safe = now / 1_000_000_000;
        for past in self.history.iter_mut().filter(|past| past.open.is_some()) {
            let took = Instant(now).since(past.installed).as_micros() as u64;
            for (node, when) in &mut past.record.safe {
                if *node == member.node.0 {
                    when.get_or_insert(took);
                }
            }
        }
    }

    /// A lockspace is gone.
    pub(super) fn on_leave(&mut self, id: LockspaceId) {
        self.close(id, None);
        self.spaces.remove(&id);
    }

    /// The last completed change of a lockspace, and the one in progress.
    pub(super) fn of_space(
        &self,
        id: LockspaceId,
        over: bool,
    ) -> (ChangeRecord, Option<ChangeRecord>) {
        let Some(space) = self.spaces.get(&id) else { return Default::default() };
        if over {
            return (space.last.clone(), None);
        }
        (space.completed.clone(), Some(space.last.clone()))
    }

    /// When this node asked to be let into a lockspace, nanoseconds.
    pub(super) fn asked(&self, id: LockspaceId) -> u64 {
        self.spaces.get(&id).map_or(0, |space| space.asked)
    }

    /// Members of a lockspace and those that were, by number.
    pub(super) fn nodes_of(&self, id: LockspaceId) -> Vec<SpaceNodeRecord> {
        let Some(space) = self.spaces.get(&id) else { return Vec::new() };
        let record = |(node, seen): (&u32, &Seen)| SpaceNodeRecord {
            node: *node,
            member: space.last.members.contains(node),
            left: seen.left,
            added_seq: seen.added_seq,
            removed_seq: seen.removed_seq,
            failed: self.of_node(*node).failed,
            ..SpaceNodeRecord::default()
        };
        space.nodes.iter().map(record).collect()
    }

    /// What became of a node.
    pub(super) fn of_node(&self, node: u32) -> Times {
        self.nodes.get(&node).copied().unwrap_or_default()
    }

    /// Changes from number `from` on, oldest first, as they are now.
    pub(super) fn history<'a>(
        &'a self,
        from: u64,
        now: u64,
        marks: impl Fn(LockspaceId) -> Option<&'a Marks> + 'a,
    ) -> impl Iterator<Item = RecoveryRecord> + 'a {
        let later = self.history.iter().filter(move |past| past.record.number >= from);
        later.map(move |past| {
            let mut record = past.record.clone();
            if let Some(marks) = past.open.and_then(&marks) {
                fill(&mut record, marks);
            }
            record.age_us = Instant(now).since(past.installed).as_micros() as u64;
            record
        })
    }
}

/// What the core noted goes into a record.
fn fill(record: &mut RecoveryRecord, marks: &Marks) {
    let took = |at: Option<Instant>| -> StepUs {
        at.map(|at| u64::try_from(at.since(marks.installed).as_micros()).unwrap_or(u64::MAX))
    };
    record.names_done = took(marks.names_done);
    record.all_safe = took(marks.all_safe);
    record.locks_done = took(marks.locks_done);
    record.thawed = took(marks.thawed);
    record.names_waited = marks.names_waited;
    record.names_rebuilt = marks.names_rebuilt;
    record.locks_moved = marks.locks_moved;
    record.locks_dropped = marks.locks_dropped;
    if record.all_safe.is_some() {
        // Who was known to be harmless before the view came.
        for (_, when) in &mut record.safe {
            when.get_or_insert(0);
        }
    }
}

fn numbers(members: &[Member]) -> Vec<u32> {
    members.iter().map(|member| member.node.0).collect()
}

fn only_in(these: &[Member], those: &[Member]) -> Vec<Member> {
    these.iter().filter(|member| !those.contains(member)).copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use dlm_core::{NodeId, ViewId};

    const SECOND: u64 = 1_000_000_000;

    fn view(id: u32, members: &[u32], lost: &[u32]) -> View {
        let of = |nodes: &[u32]| nodes.iter().map(|node| member(*node)).collect();
        View { id: ViewId(id), members: of(members), unsafe_members: of(lost) }
    }

    fn member(node: u32) -> Member {
        Member { node: NodeId(node), incarnation: 1 }
    }

    fn marks(installed: u64, over: bool) -> Marks {
        let at = Some(Instant(installed + 5000)).filter(|_| over);
        let begin = Instant(installed);
        Marks {
            installed: begin,
            names_done: Some(begin),
            all_safe: at,
            locks_done: at,
            thawed: at,
            names_waited: 3,
            ..Marks::default()
        }
    }

    /// Runs through the views 1; 1 2 3; 1 3; 1 (3 failed), each over unless it is the last.
    fn run() -> Changes {
        let mut changes = Changes::default();
        let (id, own) = (LockspaceId(0), member(1));
        let members: [&[u32]; 4] = [&[1], &[1, 2, 3], &[1, 3], &[1]];
        let lost: [&[u32]; 4] = [&[], &[], &[], &[3]];
        let records = [(1, 1, 0, 0), (2, 2, 0, 0), (2, 0, 1, 0), (3, 0, 1, 1)];
        let mut last = None;
        for (step, want) in records.into_iter().enumerate() {
            let next = view(step as u32 + 10, members[step], lost[step]);
            let marks = marks(step as u64 * SECOND, true);
            let before = Before { id, name: b"web", own, view: last.as_ref(), marks: &marks };
            let now = (step as u64 + 1) * SECOND;
            changes.on_view(&before, &next, Clocks { now, wall_us: 77 });
            let (record, _) = changes.of_space(id, true);
            assert_eq!((record.node, record.joined, record.removed, record.failed), want);
            assert_eq!((record.seq, record.members), (step as u64 + 1, members[step].to_vec()));
            last = Some(next);
        }
        changes
    }

    #[test]
    fn changes_name_who_caused_them() {
        let mut changes = run();
        let (id, three) = (LockspaceId(0), member(3));
        changes.on_safe(three, 9 * SECOND);
        let times = changes.of_node(3);
        assert_eq!((times.added, times.removed, times.failed, times.safe), (2, 4, 4, 9));
        assert_eq!((times.left, changes.of_node(2).left), (left::NODE_DOWN, left::LEAVE));
        assert_eq!(changes.of_node(2).failed, 0);
        changes.on_leave(id);
        assert_eq!(changes.of_space(id, true), (ChangeRecord::default(), None));
    }

    #[test]
    fn a_change_in_progress_stands_beside_the_last_completed_one() {
        let changes = run();
        let (done, next) = changes.of_space(LockspaceId(0), false);
        assert_eq!((done.seq, next.as_ref().map(|change| change.seq)), (3, Some(4)));
        let nodes = changes.nodes_of(LockspaceId(0));
        let seen = |at: usize| {
            let node: &SpaceNodeRecord = &nodes[at];
            (node.node, node.member, node.left, node.added_seq, node.removed_seq)
        };
        assert_eq!(seen(0), (1, true, 0, 1, 0));
        assert_eq!(seen(1), (2, false, left::LEAVE, 2, 3));
        assert_eq!(seen(2), (3, false, left::NODE_DOWN, 2, 4));
    }

    #[test]
    fn history_tells_what_every_step_took_and_which_change_was_overtaken() {
        let mut changes = run();
        let open = marks(4 * SECOND, false);
        let all: Vec<_> = changes.history(0, 14 * SECOND, |_| Some(&open)).collect();
        assert_eq!(all.len(), 4);
        assert_eq!((all[0].number, all[3].number, all[3].view), (1, 4, 13));
        assert_eq!((all[0].thawed, all[0].superseded, all[0].names_waited), (Some(5), false, 3));
        assert_eq!((&all[3].failed[..], &all[3].safe[..]), (&[3][..], &[(3, None)][..]));
        assert_eq!((all[3].thawed, all[3].age_us), (None, 10_000_000));
        assert!(changes.is_open());
        changes.on_safe(member(3), 6 * SECOND);
        assert!(changes.follow(|_| Some(&open)).is_empty());
        let over = marks(4 * SECOND, true);
        let told = changes.follow(|_| Some(&over));
        assert_eq!((told.len(), told[0].all_safe), (1, Some(5)));
        assert_eq!(told[0].safe, [(3, Some(2_000_000))]);
        assert!(!changes.is_open());
        assert_eq!(changes.history(4, 0, |_| None).count(), 1);
    }

    #[test]
    fn a_view_over_an_unfinished_one_and_a_leave_end_it() {
        let mut changes = run();
        let open = marks(4 * SECOND, false);
        let (id, own, old) = (LockspaceId(0), member(1), view(13, &[1], &[3]));
        let before = Before { id, name: b"web", own, view: Some(&old), marks: &open };
        changes.on_view(&before, &view(14, &[1, 2], &[3]), Clocks { now: SECOND, wall_us: 0 });
        assert_eq!(changes.of_space(id, false).0.seq, 3, "4 was never completed");
        changes.on_leave(id);
        let last: Vec<_> = changes.history(4, 0, |_| None).collect();
        assert!(last.iter().all(|record| record.superseded), "{last:?}");
    }

    #[test]
    fn the_history_is_bounded() {
        let mut changes = Changes::default();
        let marks = marks(0, true);
        let (id, own) = (LockspaceId(0), member(1));
        for number in 0..HISTORY_MAX as u32 + 9 {
            let next = view(number, &[1], &[]);
            let before = Before { id, name: b"web", own, view: None, marks: &marks };
            changes.on_view(&before, &next, Clocks { now: 0, wall_us: 0 });
        }
        let all: Vec<_> = changes.history(0, 0, |_| None).collect();
        assert_eq!((all.len(), all[0].number), (HISTORY_MAX, 10));
    }
}
