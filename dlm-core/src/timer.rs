//! What the engine waits for by the clock.

use std::collections::BTreeSet;

use crate::{Instant, LockspaceId, Reason};

/// What ends at a moment.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum Timer {
    /// A lock's request limit (D12).
    Limit(u32),
    /// The memory of an unused name.
    Idle(u32),
}

/// Armed timers in order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Timers {
    armed: BTreeSet<(Instant, LockspaceId, Timer)>,
}

impl Timers {
    /// Arms a timer.
    pub(crate) fn arm(&mut self, at: Instant, space: LockspaceId, timer: Timer) {
        self.armed.insert((at, space, timer));
    }

    /// Disarms a timer that is armed for exactly this moment.
    pub(crate) fn disarm(&mut self, at: Instant, space: LockspaceId, timer: Timer) {
        self.armed.remove(&(at, space, timer));
    }

    /// Takes out a timer that is due, earliest first.
    pub(crate) fn take_due(&mut self, now: Instant) -> Option<(LockspaceId, Timer)> {
        let first = *self.armed.first().filter(|(at, ..)| *at <= now)?;
        self.armed.remove(&first);
        Some((first.1, first.2))
    }

    /// Forgets the timers of a lockspace that is gone.
    pub(crate) fn forget(&mut self, space: LockspaceId) {
        self.armed.retain(|(_, of, _)| *of != space);
    }

    /// The next moment, and why.
    pub(crate) fn next(&self) -> Option<(Instant, Reason)> {
        self.armed.first().map(|(at, _, timer)| {
            let reason = match timer {
                Timer::Limit(_) => Reason::RequestLimit,
                Timer::Idle(_) => Reason::IdleName,
            };
            (*at, reason)
        })
    }

    /// What is armed, in the order in which it ends.
    pub(crate) fn all(&self) -> impl Iterator<Item = (LockspaceId, Timer)> + '_ {
        self.armed.iter().map(|(_, space, timer)| (*space, *timer))
    }

    /// How many request limits are armed.
    pub(crate) fn limits(&self) -> usize {
        self.armed.iter().filter(|(.., timer)| matches!(timer, Timer::Limit(_))).count()
    }
}
