//! Bells: how a sleeping side is woken.
//!
//! The ringing side writes an eventfd. The client must not get the daemon's two eventfds
//! themselves: "non-blocking" is a property of the open file, which all holders share, so a client
//! could clear it, fill the counter, and the daemon would hang in its next ring. Hence the client
//! gets an epoll set that *watches* the eventfd: it reports each ring once, and nothing done to it
//! reaches the eventfd. For the submission bell the roles are harmless: the client writes, and the
//! daemon registers it edge-triggered and never reads it.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::time::Duration;

use crate::sys;

/// A bell to ring, or, for the daemon's poll loop, to register **edge-triggered** and never to
/// read.
#[derive(Debug)]
pub struct Bell(OwnedFd);

impl Bell {
    /// A new bell.
    ///
    /// # Errors
    /// The process has no descriptor left.
    pub fn new() -> io::Result<Self> {
        sys::eventfd().map(Self)
    }

    /// Wakes the other side, once for any number of rings before it wakes.
    ///
    /// # Errors
    /// None in normal life. A bell that is full counts as rung.
    pub fn ring(&self) -> io::Result<()> {
        match sys::eventfd_add(self.0.as_fd()) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
            result => result,
        }
    }

    /// The waiting end of this bell.
    ///
    /// # Errors
    /// The process has no descriptor left.
    pub fn watch(&self) -> io::Result<BellWatch> {
        sys::epoll_edge(self.0.as_fd(), BELL).map(BellWatch)
    }
}

impl From<OwnedFd> for Bell {
    /// The bell of a received descriptor.
    fn from(fd: OwnedFd) -> Self {
        Self(fd)
    }
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsRawFd for Bell {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

const BELL: u64 = 0;
const OTHER: u64 = 1;

/// The waiting end of a bell, in a client. Its descriptor is readable while an unheard ring (or
/// what [`BellWatch::also`] added) waits, and may be polled or put into other poll sets.
///
/// It says nothing about the daemon's end, and a ring not heard before the daemon closed its bell
/// is gone with it: whoever waits here must watch the connection as well, and look into the rings
/// once more after a hang-up.
#[derive(Debug)]
pub struct BellWatch(OwnedFd);

/// What ended a [`BellWatch::wait`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Woken {
    /// The bell rang; heard now.
    pub bell: bool,
    /// The descriptor added by [`BellWatch::also`] is readable or hung up.
    pub other: bool,
}

impl BellWatch {
    /// Makes waits end also when `fd` is readable or hung up: the connection, so that one wait sees
    /// both a bell and the daemon's end. Level-triggered. At most one, and it must outlive the
    /// watch's use.
    ///
    /// # Errors
    /// `fd` cannot be polled, or one was added before.
    pub fn also(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
        sys::epoll_level(&self.0, fd, OTHER)
    }

    /// Waits up to `timeout` (rounded up to milliseconds; `None`: for ever) and hears the bell.
    /// Both fields false: time is up, or a signal came. With a zero timeout it only hears. Any
    /// number of threads may wait; one ring wakes one of them.
    ///
    /// # Errors
    /// None in normal life.
    pub fn wait(&self, timeout: Option<Duration>) -> io::Result<Woken> {
        let mut woken = Woken::default();
        for data in sys::epoll_wait(self.0.as_fd(), timeout)? {
            woken.bell |= data == BELL;
            woken.other |= data == OTHER;
        }
        Ok(woken)
    }
}

impl From<OwnedFd> for BellWatch {
    /// The watch of a received descriptor.
    fn from(fd: OwnedFd) -> Self {
        Self(fd)
    }
}

impl From<BellWatch> for OwnedFd {
    /// To be sent.
    fn from(watch: BellWatch) -> Self {
        watch.0
    }
}

impl AsFd for BellWatch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsRawFd for BellWatch {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Option<Duration> = Some(Duration::from_secs(60));
    const NOW: Option<Duration> = Some(Duration::ZERO);

    #[test]
    fn rings_are_heard_once() {
        let bell = Bell::new().unwrap();
        let watch = bell.watch().unwrap();
        assert_eq!(watch.wait(NOW).unwrap(), Woken::default());
        for _ in 0..2 {
            bell.ring().unwrap();
            bell.ring().unwrap();
            assert_eq!(watch.wait(LONG).unwrap(), Woken { bell: true, other: false });
            assert_eq!(watch.wait(NOW).unwrap(), Woken::default(), "two rings, one waking");
        }
    }

    #[test]
    fn a_watch_outlives_its_bell_and_sees_a_hang_up() {
        let bell = Bell::new().unwrap();
        let watch = bell.watch().unwrap();
        let (near, far) = sys::seqpacket_pair().unwrap();
        watch.also(near.as_fd()).unwrap();
        assert_eq!(watch.wait(NOW).unwrap(), Woken::default());
        drop(bell);
        assert_eq!(watch.wait(NOW).unwrap(), Woken::default());
        drop(far);
        for _ in 0..2 {
            assert_eq!(watch.wait(LONG).unwrap(), Woken { bell: false, other: true });
        }
    }

    #[test]
    fn a_full_bell_counts_as_rung() {
        let bell = Bell::new().unwrap();
        let brim = (u64::MAX - 1).to_ne_bytes();
        let file = std::fs::File::from(bell.0.try_clone().unwrap());
        std::io::Write::write_all(&mut &file, &brim).unwrap();
        bell.ring().unwrap();
    }
}
