//! The system calls of the client: poll sets, wake-up words, a timer, the fork mark.
//!
//! What may go in: one safe function or type per system facility. What may not: any decision.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use libc::{c_int, c_void};

fn check(result: c_int) -> io::Result<c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

fn own(fd: RawFd) -> OwnedFd {
    // SAFETY: the callers below pass a descriptor that the kernel has just made for us alone.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

/// How a descriptor is watched by a [`PollSet`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Watch {
    /// Readable as long as something is there.
    Level,
    /// Once for each new thing.
    Edge,
}

/// A set of descriptors to wait for; itself readable while one of them is.
#[derive(Debug)]
pub(crate) struct PollSet(OwnedFd);

/// Most descriptors that one [`poll`] reports.
const REPORTS_MAX: usize = 8;

impl PollSet {
    /// An empty set.
    pub(crate) fn new() -> io::Result<Self> {
        // SAFETY: plain system call without pointers.
        check(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) }).map(|fd| Self(own(fd)))
    }

    /// Adds `fd`; `cookie` comes back with its reports and stands in `/proc/self/fdinfo`.
    pub(crate) fn add(&self, fd: BorrowedFd<'_>, watch: Watch, cookie: u64) -> io::Result<()> {
        add_to(self.0.as_fd(), fd, watch, cookie)
    }
}

impl AsFd for PollSet {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Adds `fd` to a poll set that somebody else made.
pub(crate) fn add_to(
    set: BorrowedFd<'_>,
    fd: BorrowedFd<'_>,
    watch: Watch,
    cookie: u64,
) -> io::Result<()> {
    let edge = if watch == Watch::Edge { libc::EPOLLET } else { 0 };
    let events = (libc::EPOLLIN | libc::EPOLLRDHUP | edge) as u32;
    let mut event = libc::epoll_event { events, u64: cookie };
    let (set, fd) = (set.as_raw_fd(), fd.as_raw_fd());
    // SAFETY: `event` lives across the call; both descriptors are borrowed, hence open.
    check(unsafe { libc::epoll_ctl(set, libc::EPOLL_CTL_ADD, fd, &raw mut event) }).map(drop)
}

/// Waits until a member of `set` has something to report, `timeout` is over (`None`: for ever), or
/// a signal came, and calls `report` with the cookies.
pub(crate) fn poll(
    set: BorrowedFd<'_>,
    timeout: Option<Duration>,
    mut report: impl FnMut(u64),
) -> io::Result<()> {
    let mut events = [libc::epoll_event { events: 0, u64: 0 }; REPORTS_MAX];
    let (buffer, room) = (events.as_mut_ptr(), REPORTS_MAX as c_int);
    // SAFETY: `buffer` has `room` entries and lives across the call.
    match check(unsafe { libc::epoll_wait(set.as_raw_fd(), buffer, room, millis(timeout)) }) {
        Ok(count) => events.iter().take(count as usize).for_each(|event| report(event.u64)),
        Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
        Err(error) => return Err(error),
    }
    Ok(())
}

/// The cookies of the poll set behind a descriptor number of this process; `None`: it is no poll
/// set, or not open.
pub(crate) fn cookies_of(fd: RawFd) -> Option<Vec<u64>> {
    let text = std::fs::read_to_string(format!("/proc/self/fdinfo/{fd}")).ok()?;
    let cookies: Vec<u64> = text.lines().filter_map(cookie_of_line).collect();
    (!cookies.is_empty()).then_some(cookies)
}

/// `tfd:        9 events: 80002019 data:               2a  pos:0 ino:…`
fn cookie_of_line(line: &str) -> Option<u64> {
    let rest = line.strip_prefix("tfd:")?;
    let mut words = rest.split_whitespace().skip_while(|word| *word != "data:").skip(1);
    u64::from_str_radix(words.next()?, 16).ok()
}

/// A wake-up word: readable while its count is not 0.
#[derive(Debug)]
pub(crate) struct Bell(OwnedFd);

impl Bell {
    /// A silent bell.
    pub(crate) fn new() -> io::Result<Self> {
        // SAFETY: plain system call without pointers.
        check(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) })
            .map(|fd| Self(own(fd)))
    }

    /// Rings. A bell that is full counts as rung, so there is nothing to report.
    pub(crate) fn ring(&self) {
        let one = 1u64.to_ne_bytes();
        // SAFETY: `one` has 8 bytes and lives across the call.
        unsafe { libc::write(self.0.as_raw_fd(), one.as_ptr().cast::<c_void>(), one.len()) };
    }

    /// Silences it.
    pub(crate) fn hear(&self) {
        let mut count = [0u8; 8];
        // SAFETY: `count` has 8 bytes and lives across the call.
        unsafe { libc::read(self.0.as_raw_fd(), count.as_mut_ptr().cast::<c_void>(), 8) };
    }
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// A timer on the clock that also runs while the machine sleeps; readable once it has expired.
#[derive(Debug)]
pub(crate) struct Timer(OwnedFd);

impl Timer {
    /// A timer that is not set.
    pub(crate) fn new() -> io::Result<Self> {
        let flags = libc::TFD_CLOEXEC | libc::TFD_NONBLOCK;
        // SAFETY: plain system call without pointers.
        check(unsafe { libc::timerfd_create(libc::CLOCK_BOOTTIME, flags) }).map(|fd| Self(own(fd)))
    }

    /// Sets it to a moment of [`boottime_ns`].
    pub(crate) fn set(&self, until_ns: u64) -> io::Result<()> {
        // 0 would disarm it; a moment that has passed expires at once.
        let until_ns = until_ns.max(1);
        let value = libc::timespec {
            tv_sec: (until_ns / 1_000_000_000) as libc::time_t,
            tv_nsec: (until_ns % 1_000_000_000) as libc::c_long,
        };
        let none = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        let spec = libc::itimerspec { it_interval: none, it_value: value };
        let (fd, flags) = (self.0.as_raw_fd(), libc::TFD_TIMER_ABSTIME);
        // SAFETY: `spec` lives across the call; the old value is not asked for.
        let set =
            unsafe { libc::timerfd_settime(fd, flags, &raw const spec, std::ptr::null_mut()) };
        check(set).map(drop)
    }
}

impl AsFd for Timer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Nanoseconds since the machine started, sleep included: the clock of leases.
pub(crate) fn boottime_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` lives across the call.
    unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &raw mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Ends a conversation in both directions; whoever waits on it wakes up.
pub(crate) fn shut_down(socket: BorrowedFd<'_>) {
    // SAFETY: plain system call without pointers; a socket that has ended already is no matter.
    unsafe { libc::shutdown(socket.as_raw_fd(), libc::SHUT_RDWR) };
}

/// Waits until a socket is readable or has ended, `timeout` is over (`None`: for ever), or a signal
/// came.
pub(crate) fn wait_readable(socket: BorrowedFd<'_>, timeout: Option<Duration>) -> io::Result<()> {
    let mut poll = libc::pollfd { fd: socket.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one entry, which lives across the call.
    match check(unsafe { libc::poll(&raw mut poll, 1, millis(timeout)) }) {
        Err(error) if error.kind() != io::ErrorKind::Interrupted => Err(error),
        _ => Ok(()),
    }
}

/// A time limit as the poll calls want it, rounded up; -1: none.
fn millis(timeout: Option<Duration>) -> c_int {
    timeout
        .map_or(-1, |span| c_int::try_from(span.as_micros().div_ceil(1000)).unwrap_or(c_int::MAX))
}

/// Which thread this is: a number that no other living thread of the process has, never 0.
pub(crate) fn this_thread() -> usize {
    // SAFETY: plain call without pointers.
    unsafe { libc::pthread_self() as usize }
}

/// The process id.
pub(crate) fn this_process() -> u32 {
    std::process::id()
}

/// A word that a forked child finds zeroed. `None`: this kernel cannot do that (before 4.14).
pub(crate) fn fork_mark() -> Option<&'static AtomicUsize> {
    let (prot, flags) =
        (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    let bytes = size_of::<AtomicUsize>();
    // SAFETY: a new anonymous mapping at an address of the kernel's choice; the kernel rounds its
    // size up to a page and fills it with zeros.
    let page = unsafe { libc::mmap(std::ptr::null_mut(), bytes, prot, flags, -1, 0) };
    if page == libc::MAP_FAILED {
        return None;
    }
    // SAFETY: our own mapping from above.
    if unsafe { libc::madvise(page, bytes, libc::MADV_WIPEONFORK) } != 0 {
        // SAFETY: our own mapping, to which nothing points yet.
        unsafe { libc::munmap(page, bytes) };
        return None;
    }
    // SAFETY: a page-aligned mapping of zeros, a valid AtomicUsize; it is never unmapped.
    Some(unsafe { &*page.cast::<AtomicUsize>() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fdinfo_lines_give_their_cookie() {
        let line = "tfd:       11 events:     2019 data:               2a  pos:0 ino:3f sdev:f";
        assert_eq!(cookie_of_line(line), Some(0x2a));
        assert_eq!(cookie_of_line("pos:\t0"), None);
        assert_eq!(cookie_of_line("tfd: 11 events: 2019"), None);
    }

    #[test]
    fn a_duplicated_poll_set_is_known_by_its_cookie() {
        let (set, bell) = (PollSet::new().unwrap(), Bell::new().unwrap());
        set.add(bell.as_fd(), Watch::Level, 0xfeed_beef).unwrap();
        let copy = set.0.try_clone().unwrap();
        assert_eq!(cookies_of(copy.as_raw_fd()), Some(vec![0xfeed_beef]));
        assert_eq!(cookies_of(bell.as_fd().as_raw_fd()), None);
        assert_eq!(cookies_of(-1), None);
    }

    #[test]
    fn level_and_edge_differ() {
        let (set, bell) = (PollSet::new().unwrap(), Bell::new().unwrap());
        let edge = Bell::new().unwrap();
        set.add(bell.as_fd(), Watch::Level, 1).unwrap();
        set.add(edge.as_fd(), Watch::Edge, 2).unwrap();
        let reports = || {
            let mut seen = Vec::new();
            poll(set.as_fd(), Some(Duration::ZERO), |cookie| seen.push(cookie)).unwrap();
            seen.sort_unstable();
            seen
        };
        assert_eq!(reports(), []);
        bell.ring();
        edge.ring();
        assert_eq!(reports(), [1, 2]);
        assert_eq!(reports(), [1]);
        bell.hear();
        edge.ring();
        assert_eq!(reports(), [2]);
        assert_eq!(reports(), []);
    }

    #[test]
    fn a_timer_of_the_past_expires_at_once() {
        let (set, timer) = (PollSet::new().unwrap(), Timer::new().unwrap());
        set.add(timer.as_fd(), Watch::Level, 7).unwrap();
        let mut seen = Vec::new();
        poll(set.as_fd(), Some(Duration::ZERO), |cookie| seen.push(cookie)).unwrap();
        assert_eq!(seen, []);
        timer.set(boottime_ns().saturating_sub(1)).unwrap();
        poll(set.as_fd(), Some(Duration::from_secs(60)), |cookie| seen.push(cookie)).unwrap();
        assert_eq!(seen, [7]);
    }
}
