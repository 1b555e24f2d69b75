//! The client's half of the lease (membership.md section 2): what the words in the page mean here.
//!
//! Until `lease_until` completions are believed. From then on the handle is *frozen*: nothing is
//! delivered and calls wait, since the node may come back. At `lost_at` it cannot any more, and
//! the handle is lost. Nobody has to say so: the daemon may be stopped. A timer, set to that
//! moment, ends every sleep of this process; while the handle is frozen it rings every [`NAP`], so
//! that whoever sleeps looks again whether the lease is back.
//!
//! Invariant: an event is delivered only after a look at the clock that found the lease held, in
//! the same section of the state's mutex in which the event was taken.

use dlm_core::Errno;
use dlm_ipc::layout::LostReason;
use dlm_ipc::page::NO_LEASE;

use crate::event::{Completion, LockEvent};
use crate::state::{End, State};
use crate::sys;

/// How often a frozen handle looks whether its lease is back, in nanoseconds.
const NAP: u64 = 20_000_000;

/// What is known of the lease.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lease {
    /// Whether it was over, and not yet lost, when somebody looked last.
    pub(crate) frozen: bool,
    /// What the timer is set to.
    alarm: u64,
}

impl Default for Lease {
    fn default() -> Self {
        Self { frozen: false, alarm: NO_LEASE }
    }
}

impl State {
    /// Looks at the words by which the daemon, or its silence, takes the lockspace away without an
    /// event.
    pub(crate) fn look_for_loss(&mut self) {
        if let Some(reason) = self.page.lost() {
            return self.end(End::Lost(reason));
        }
        let until = self.page.lease_until();
        if until != NO_LEASE || self.lease.frozen {
            self.look_at_lease(until);
        }
    }

    fn look_at_lease(&mut self, until: u64) {
        if self.end.is_some() {
            return;
        }
        let (now, lost_at) = (sys::boottime_ns(), self.page.lost_at());
        if now >= lost_at {
            return self.end(End::Lost(LostReason::LeaseEnded));
        }
        let frozen = now >= until;
        let alarm = if frozen { lost_at.min(now + NAP) } else { lost_at };
        if alarm != self.lease.alarm {
            self.lease.alarm = alarm;
            // Without the timer nobody would hear of the end in time.
            if self.wake.set_timer(alarm).is_err() {
                return self.end(End::Lost(LostReason::LeaseEnded));
            }
        }
        if std::mem::replace(&mut self.lease.frozen, frozen) && !frozen {
            self.thaw();
        }
    }

    /// The lease is back: everybody looks at what had to wait.
    fn thaw(&mut self) {
        if self.sleeper.is_some() {
            self.kick();
        }
        for waiter in &self.followers {
            waiter.wake.notify_one();
        }
        self.wake.announce();
    }

    /// What was granted and not told before the loss is not told as granted after it.
    pub(crate) fn void_pipelined(&mut self) {
        for tagged in &mut self.pipelined {
            if let LockEvent::Completed(completion) = &mut tagged.event
                && completion.status == 0
            {
                let (lock, status) = (completion.lock, Errno::ENOTRECOVERABLE.0);
                *completion = Completion { lock, status, ..Completion::GONE };
            }
        }
    }
}
