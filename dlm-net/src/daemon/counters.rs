//! Counts of the daemon's own, beside the core's.

use dlm_core::message::{Body, Tagged, Traffic};

/// Faults of clients that are told in full within [`FAULT_WINDOW_NANOS`].
const FAULTS_TOLD_MAX: u32 = 20;
/// How long a burst of faults is.
const FAULT_WINDOW_NANOS: u64 = 10_000_000_000;

/// Largest errno that is counted by itself.
const ERRNO_MAX: usize = 133;

/// Counts since the start.
#[derive(Debug)]
pub(crate) struct Counters {
    /// Handles open, opening or closing.
    pub(crate) handles: u32,
    /// Control conversations.
    pub(crate) controls: u32,
    /// Turns of the loop.
    pub(crate) turns: u64,
    /// Longest turn, nanoseconds.
    pub(crate) slowest_turn: u64,
    /// Connections that were not let in.
    pub(crate) turned_away: u64,
    /// Rules broken by clients.
    pub(crate) faults: u64,
    /// When the present burst of faults began, and how many of it were told.
    burst: (u64, u32),
    /// Faults that were not told since the last one that was.
    untold: u64,
    refused: [u64; ERRNO_MAX + 1],
    sent: [u64; MESSAGE_KINDS.len()],
}

/// Names of the counters of messages that were given to other nodes' sessions, by [`kind_of`].
const MESSAGE_KINDS: [&str; 24] = [
    "sent_lookup",
    "sent_lookup_reply",
    "sent_remove",
    "sent_remove_ack",
    "sent_need_names",
    "sent_names",
    "sent_names_done",
    "sent_claim",
    "sent_claim_reply",
    "sent_record",
    "sent_locks_done",
    "sent_thawed",
    "sent_recorded",
    "sent_request",
    "sent_convert",
    "sent_unlock",
    "sent_cancel",
    "sent_reply",
    "sent_grant",
    "sent_blocking",
    "sent_not_master",
    "sent_purge",
    "sent_value",
    "sent_other",
];

/// Which of [`MESSAGE_KINDS`].
fn kind_of(body: &Body) -> usize {
    #[allow(unreachable_patterns)] // kinds of later versions are counted together
    match body {
        Body::Tagged(_, tagged) => match tagged {
            Tagged::Lookup { .. } => 0,
            Tagged::LookupReply { .. } => 1,
            Tagged::Remove { .. } => 2,
            Tagged::RemoveAck { .. } => 3,
            Tagged::NeedNames { .. } => 4,
            Tagged::Names { .. } => 5,
            Tagged::NamesDone => 6,
            Tagged::Claim { .. } => 7,
            Tagged::ClaimReply { .. } => 8,
            Tagged::Record(_) => 9,
            Tagged::LocksDone { .. } => 10,
            Tagged::Value(_) => 22,
            _ => MESSAGE_KINDS.len() - 1,
        },
        Body::Traffic(traffic) => match traffic {
            Traffic::Thawed { .. } => 11,
            Traffic::Recorded { .. } => 12,
            Traffic::Request { .. } => 13,
            Traffic::Convert { .. } => 14,
            Traffic::Unlock { .. } => 15,
            Traffic::Cancel { .. } => 16,
            Traffic::Reply { .. } => 17,
            Traffic::Grant { .. } => 18,
            Traffic::Blocking { .. } => 19,
            Traffic::NotMaster { .. } => 20,
            Traffic::Purge { .. } => 21,
            _ => MESSAGE_KINDS.len() - 1,
        },
    }
}

impl Default for Counters {
    fn default() -> Self {
        let refused = [0; ERRNO_MAX + 1];
        Self {
            handles: 0,
            controls: 0,
            turns: 0,
            slowest_turn: 0,
            turned_away: 0,
            faults: 0,
            burst: (0, 0),
            untold: 0,
            refused,
            sent: [0; MESSAGE_KINDS.len()],
        }
    }
}

impl Counters {
    /// A request was refused.
    pub(crate) fn refused(&mut self, errno: i32) {
        let index = usize::try_from(errno).unwrap_or(0).min(ERRNO_MAX);
        self.refused[index] += 1;
    }

    /// A client broke a rule at `now` nanoseconds. Whether the log is to be told, and how many it was
    /// not told before: whoever breaks rules without pause must not fill the disk.
    pub(crate) fn fault(&mut self, now: u64) -> Option<u64> {
        self.faults += 1;
        if now.saturating_sub(self.burst.0) > FAULT_WINDOW_NANOS {
            self.burst = (now, 0);
        }
        self.burst.1 += 1;
        if self.burst.1 > FAULTS_TOLD_MAX {
            self.untold += 1;
            return None;
        }
        Some(std::mem::take(&mut self.untold))
    }

    /// A turn ended.
    #[inline]
    pub(crate) fn turn(&mut self, nanos: u64) {
        self.turns += 1;
        self.slowest_turn = self.slowest_turn.max(nanos);
    }

    /// A message was given to another node's session.
    #[inline]
    pub(crate) fn sent(&mut self, body: &Body) {
        self.sent[kind_of(body)] += 1;
    }

    /// How many messages of each kind were sent, in a fixed order.
    pub(crate) fn messages(&self) -> impl Iterator<Item = (&'static str, u64)> {
        MESSAGE_KINDS.into_iter().zip(self.sent)
    }

    /// How often each errno was answered, those that were, by number.
    pub(crate) fn refusals(&self) -> impl Iterator<Item = (i32, u64)> {
        let all = self.refused.iter().enumerate();
        all.filter(|(_, count)| **count > 0).map(|(errno, count)| (errno as i32, *count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_counted_by_kind() {
        let mut counters = Counters::default();
        counters.sent(&Body::Traffic(Traffic::Purge { pid: 1 }));
        counters.sent(&Body::Tagged(dlm_core::ViewId(1), Tagged::LocksDone { layout: 0 }));
        counters.sent(&Body::Tagged(dlm_core::ViewId(1), Tagged::LocksDone { layout: 0 }));
        let told: Vec<_> = counters.messages().filter(|(_, count)| *count > 0).collect();
        assert_eq!(told, [("sent_locks_done", 2), ("sent_purge", 1)]);
    }

    #[test]
    fn refusals_are_counted_by_errno_and_odd_ones_together() {
        let mut counters = Counters::default();
        for errno in [12, 22, 12, 9999, -5] {
            counters.refused(errno);
        }
        let told: Vec<_> = counters.refusals().collect();
        assert_eq!(told, [(0, 1), (12, 2), (22, 1), (ERRNO_MAX as i32, 1)]);
    }

    #[test]
    fn a_burst_of_faults_is_told_in_part_and_counted_whole() {
        let mut counters = Counters::default();
        let mut told = |now| (0..100).filter_map(|_| counters.fault(now)).collect::<Vec<_>>();
        let second = FAULT_WINDOW_NANOS / 10;
        assert_eq!(told(20 * second), [0; FAULTS_TOLD_MAX as usize]);
        assert_eq!(told(25 * second), []);
        let later = told(31 * second);
        assert_eq!((later.len(), later[0], later[1]), (FAULTS_TOLD_MAX as usize, 180, 0));
        assert_eq!(counters.faults, 300);
    }

    #[test]
    fn the_slowest_turn_is_kept() {
        let mut counters = Counters::default();
        [3, 9, 4].into_iter().for_each(|nanos| counters.turn(nanos));
        assert_eq!((counters.turns, counters.slowest_turn), (3, 9));
    }
}
