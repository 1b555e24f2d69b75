//! Counts of the daemon's own, beside the core's.

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
