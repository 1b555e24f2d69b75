//! Records about a cluster, and the original's words for them: fencing, the nodes of a lockspace, what a change of members cost, and a
//! name as its master knows it.

use std::time::{SystemTime, UNIX_EPOCH};

use bincode::{Decode, Encode};

use super::{NodeRecord, ResourceRecord, StatusRecord};

/// Why a node left, in the numbers of the original's listings (libdlm-abi.md 4.3); 0: it did not.
pub mod left {
    /// It left by itself.
    pub const LEAVE: u32 = 2;
    /// Its node went down.
    pub const NODE_DOWN: u32 = 3;
    /// Its daemon went down.
    pub const PROCESS_DOWN: u32 = 5;
}

/// How far, in seconds, a told time may be from a reckoned one and still be meant by it: what was told
/// of an earlier failure is further away.
const WALL_SLACK: u64 = 5;

/// The wall clock, seconds since 1970.
pub fn wall_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
}

impl StatusRecord {
    /// The nodes, by id.
    pub fn sorted(&self) -> Vec<&NodeRecord> {
        let mut nodes: Vec<&NodeRecord> = self.nodes.iter().collect();
        nodes.sort_by_key(|node| node.node);
        nodes
    }

    /// The daemon's state in the original's keys (libdlm-abi.md 4.4).
    pub fn keys(&self) -> [(&'static str, u64); 11] {
        let members = self.nodes.iter().filter(|node| node.member).count() as u64;
        let (cluster, daemon) = self.ring;
        let fencing = &self.fencing;
        [
            ("member_count", members),
            ("joined_count", members.min(1)),
            ("remove_count", self.nodes.len() as u64 - members),
            ("daemon_ringid", daemon),
            ("cluster_ringid", cluster),
            ("quorate", self.quorate.into()),
            ("fence_pid", fencing.pid.into()),
            ("fence_in_progress_unknown", fencing.in_progress_unknown.into()),
            ("zombie_count", fencing.zombies.into()),
            ("monotime", self.now),
            ("stateful_merge_wait", fencing.merge_wait.into()),
        ]
    }
}

impl NodeRecord {
    /// Its state in the original's keys (libdlm-abi.md 4.4); `now` and `wall` as of
    /// [`NodeRecord::walls`].
    pub fn keys(&self, now: u64, wall: u64) -> [(&'static str, String); 16] {
        let (fail_wall, fence_wall) = self.walls(now, wall);
        let fencing = &self.fencing;
        let flag = |set: bool| u32::from(set).to_string();
        [
            ("member", flag(self.member)),
            ("killed", flag(fencing.killed)),
            ("left_reason", self.reason_word().to_owned()),
            ("need_fencing", flag(self.needs_fencing())),
            ("delay_fencing", flag(fencing.delayed)),
            ("fence_pid", fencing.pid.to_string()),
            ("fence_pid_wait", flag(fencing.pid_wait)),
            ("fence_result_wait", flag(fencing.result_wait)),
            ("fence_actor_last", fencing.actor_last.to_string()),
            ("fence_actor_done", fencing.actor_done.to_string()),
            ("add_time", self.added.to_string()),
            ("rem_time", self.removed.to_string()),
            ("fail_walltime", fail_wall.to_string()),
            ("fail_monotime", self.failed.to_string()),
            ("fence_walltime", fence_wall.to_string()),
            ("fence_monotime", self.fenced_since().to_string()),
        ]
    }

    /// Monotonic seconds when it was fenced for its last failure; 0: it was not.
    pub fn fenced_since(&self) -> u64 {
        if self.fenced >= self.failed { self.fenced } else { 0 }
    }

    /// Whether it failed and nobody has said yet that it is harmless.
    pub fn needs_fencing(&self) -> bool {
        // What it was feared for is over once it has left in good order.
        let feared = !self.member && self.left != left::LEAVE && self.failed > self.fenced;
        self.fencing.needed || feared
    }

    /// When it failed and when it was fenced for that, in wall-clock seconds; 0: never. `now` and
    /// `wall` are one moment in seconds of the daemon's clock and of the wall's.
    pub fn walls(&self, now: u64, wall: u64) -> (u64, u64) {
        // What was told is exact; a time that is worked out from two clocks may be a second off, and
        // more where the wall clock was set.
        let exact = |at: u64, told: u64| match wall.saturating_sub(now.saturating_sub(at)) {
            _ if at == 0 => 0,
            reckoned if told.abs_diff(reckoned) <= WALL_SLACK => told,
            reckoned => reckoned,
        };
        let fenced = exact(self.fenced_since(), self.fencing.fence_wall);
        (exact(self.failed, self.fencing.fail_wall), fenced)
    }

    /// Why it left, or is feared, in the original's words (libdlm-abi.md 4.4).
    pub fn reason_word(&self) -> &'static str {
        match (self.left, self.member, self.failed, self.removed) {
            (1, ..) => "join",
            (left::LEAVE, ..) => "leave",
            (left::NODE_DOWN, ..) => "nodedown",
            (4, ..) => "nodeup",
            (left::PROCESS_DOWN, ..) => "procdown",
            _ if self.fencing.needed => "startup",
            (_, true, ..) | (_, _, 0, 0) => "unknown",
            (_, _, 0, _) => "leave",
            _ => "nodedown",
        }
    }
}

/// Fencing of one node (libdlm-abi.md 4.4); all empty where nobody is fenced.
#[derive(Clone, Debug, Default, PartialEq, Encode, Decode)]
pub struct NodeFencing {
    /// Whether it is to be fenced.
    pub needed: bool,
    /// Whether that waits, for instance for quorum.
    pub delayed: bool,
    /// Whether it was killed by the cluster because it came back with its old state.
    pub killed: bool,
    /// Process id of the agent at work; 0 none.
    pub pid: u32,
    /// Whether the end of an agent is waited for.
    pub pid_wait: bool,
    /// Whether another node's result is waited for.
    pub result_wait: bool,
    /// Node that acts, or acted last; 0 none.
    pub actor_last: u32,
    /// Node whose agent succeeded; 0 none.
    pub actor_done: u32,
    /// When it failed last, wall-clock seconds as all nodes were told; 0 unknown.
    pub fail_wall: u64,
    /// When it was fenced last, wall-clock seconds as all nodes were told; 0 unknown.
    pub fence_wall: u64,
}

/// Fencing as the daemon sees it (libdlm-abi.md 4.4).
#[derive(Clone, Debug, Default, PartialEq, Encode, Decode)]
pub struct DaemonFencing {
    /// Process id of the agent at work here; 0 none.
    pub pid: u32,
    /// Whether it is not known yet if others are fencing (`fence_init`).
    pub in_progress_unknown: bool,
    /// Nodes that start-up fencing has still to check.
    pub startup: Vec<u32>,
    /// Members that came back with their old state and are not yet gone.
    pub zombies: u32,
    /// Whether neither side of a merge may decide.
    pub merge_wait: bool,
}

/// A node as one lockspace sees it.
#[derive(Clone, Debug, Default, PartialEq, Encode, Decode)]
pub struct SpaceNodeRecord {
    /// Node id.
    pub node: u32,
    /// Whether it is a member.
    pub member: bool,
    /// Why it left ([`left`]); 0: it did not.
    pub left: u32,
    /// Whether its part of the change in progress has come.
    pub started: bool,
    /// Number of the change that added it; 0 unknown.
    pub added_seq: u64,
    /// Number of the change that removed it; 0: it was never removed.
    pub removed_seq: u64,
    /// Whether the lockspace waits until it is known to be harmless.
    pub feared: bool,
    /// Monotonic seconds when it failed; 0 never.
    pub failed: u64,
}

/// How long a step of a change took from the view on, in microseconds; `None`: it is not over, or
/// never was, since a newer view came first.
pub type StepUs = Option<u64>;

/// One change of a lockspace's members as this node saw it (recovery.md section 5).
#[derive(Clone, Debug, Default, PartialEq, Encode, Decode)]
pub struct RecoveryRecord {
    /// Position in this daemon's history.
    pub number: u64,
    /// Lockspace name.
    pub lockspace: Vec<u8>,
    /// Number of the change, as `ls` shows it.
    pub seq: u64,
    /// Number of the view.
    pub view: u32,
    /// Wall-clock microseconds since 1970 when the view was installed.
    pub at_us: u64,
    /// How long ago that was, microseconds.
    pub age_us: u64,
    /// Members after it.
    pub members: Vec<u32>,
    /// Nodes that joined.
    pub joined: Vec<u32>,
    /// Nodes that left in good order.
    pub left: Vec<u32>,
    /// Nodes that were excluded.
    pub failed: Vec<u32>,
    /// Excluded nodes, also of earlier changes, and when each was known to be harmless.
    pub safe: Vec<(u32, StepUs)>,
    /// All members had said which names they master in slots that moved here.
    pub names_done: StepUs,
    /// Every excluded member was known to be harmless.
    pub all_safe: StepUs,
    /// All members had said that their locks are moved.
    pub locks_done: StepUs,
    /// Rebuilt names were in service again, and own locks settled with their new masters.
    pub thawed: StepUs,
    /// Whether a newer view came before it was over.
    pub superseded: bool,
    /// Names of this node that had to wait for it.
    pub names_waited: u64,
    /// Names that this node rebuilt and masters since.
    pub names_rebuilt: u64,
    /// Own locks that moved to a new master.
    pub locks_moved: u64,
    /// Locks of lost members that were dropped here.
    pub locks_dropped: u64,
}

/// A part of the history.
#[derive(Clone, Debug, Default, PartialEq, Encode, Decode)]
pub struct RecoveryPage {
    /// Changes, oldest first.
    pub changes: Vec<RecoveryRecord>,
    /// Where to go on; `None` at the end.
    pub next: Option<u64>,
}

/// A name as its master knows it, or as much of it as could be learnt.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
pub struct LocatedRecord {
    /// Queues and value block; `None`: nobody uses the name, or nothing could be learnt. Nodes are
    /// written as for a resource of this node: 0 is this node.
    pub resource: Option<ResourceRecord>,
    /// Whether that is all: the master said it.
    pub whole: bool,
    /// Locks that did not fit the answer.
    pub omitted: u64,
    /// Why it is not all, and what to do; empty if it is.
    pub trouble: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_that_were_told_go_before_those_worked_out_from_two_clocks() {
        let mut node = NodeRecord { failed: 900, fenced: 930, ..NodeRecord::default() };
        assert_eq!(node.walls(1000, 5000), (4900, 4930), "worked out");
        (node.fencing.fail_wall, node.fencing.fence_wall) = (4899, 4931);
        assert_eq!(node.walls(1000, 5000), (4899, 4931));
        assert_eq!(node.walls(1001, 5000), (4899, 4931), "whatever the clocks round to");
        node.failed = 980;
        assert_eq!(node.walls(1000, 5000), (4980, 0), "told of the failure before");
        assert!(node.keys(1000, 5000).contains(&("fence_monotime", "0".to_owned())));
        assert_eq!(NodeRecord::default().walls(1000, 5000), (0, 0));
    }
}
