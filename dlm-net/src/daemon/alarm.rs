//! When the loop wakes up by itself.
//!
//! Some deadline nearly always exists, and nearly never comes: a mark to be forgotten, a lease, a
//! peer to be greeted. Given to the poller as a timeout it would be set and taken back in every
//! sleep. Here it is set once, and again only when it has to come *earlier*; where the deadline
//! moved away the alarm rings too early, once, and is set anew.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use crate::sys;

/// The alarm clock of a loop. Its descriptor is to be registered edge-triggered, and not read.
#[derive(Debug)]
pub(super) struct Alarm {
    timer: OwnedFd,
    /// When it will ring, in boot nanoseconds; `u64::MAX`: it will not.
    rings_at: u64,
}

impl Alarm {
    /// An alarm that is not set.
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self { timer: sys::timer_descriptor()?, rings_at: u64::MAX })
    }

    pub(super) fn raw(&self) -> RawFd {
        self.timer.as_raw_fd()
    }

    /// Makes it ring at `at` or before. What has passed rings at once.
    pub(super) fn ring_by(&mut self, at: u64) -> io::Result<()> {
        if at < self.rings_at {
            sys::set_timer(&self.timer, at)?;
            self.rings_at = at;
        }
        Ok(())
    }

    /// It rang.
    pub(super) fn rang(&mut self) {
        self.rings_at = u64::MAX;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mio::unix::SourceFd;
    use mio::{Events, Interest, Poll, Token};
    use std::time::Duration;

    #[test]
    fn it_rings_by_the_earliest_and_can_be_set_again() {
        let mut alarm = Alarm::new().unwrap();
        let (mut poll, mut events) = (Poll::new().unwrap(), Events::with_capacity(4));
        let registry = poll.registry();
        registry.register(&mut SourceFd(&alarm.raw()), Token(1), Interest::READABLE).unwrap();
        let far = sys::boot_nanos() + 3_600_000_000_000;
        alarm.ring_by(far).unwrap();
        poll.poll(&mut events, Some(Duration::ZERO)).unwrap();
        assert!(events.is_empty());
        for near in [0, sys::boot_nanos() + 1_000_000] {
            alarm.ring_by(near).unwrap();
            alarm.ring_by(far).unwrap();
            poll.poll(&mut events, Some(Duration::from_secs(60))).unwrap();
            assert_eq!(events.iter().count(), 1);
            alarm.rang();
            poll.poll(&mut events, Some(Duration::ZERO)).unwrap();
            assert!(events.is_empty(), "one ring is one event");
        }
    }
}
