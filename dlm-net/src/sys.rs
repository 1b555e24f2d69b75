//! The system calls of the daemon that no safe crate wraps, each as one safe function.

use std::ffi::CString;
use std::io;
use std::mem::{MaybeUninit, size_of};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::ptr::null_mut;

use libc::c_int;

/// Nanoseconds of CLOCK_BOOTTIME, which goes on while the machine sleeps.
#[inline]
pub(crate) fn boot_nanos() -> u64 {
    let mut time = MaybeUninit::<libc::timespec>::uninit();
    // SAFETY: `time` is room for the result.
    let result = unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, time.as_mut_ptr()) };
    assert_eq!(result, 0, "the kernel has CLOCK_BOOTTIME since 2.6.39");
    // SAFETY: the call succeeded, so it filled the structure.
    let time = unsafe { time.assume_init() };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// This process's effective user id.
pub(crate) fn effective_uid() -> u32 {
    // SAFETY: no pointers, cannot fail.
    unsafe { libc::geteuid() }
}

/// Takes an exclusive lock on an open file, for as long as it stays open; false if another process
/// has it.
pub(crate) fn lock_file(file: impl AsFd) -> io::Result<bool> {
    // SAFETY: no pointers.
    let result = unsafe { libc::flock(file.as_fd().as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) };
    match check(result) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
        Err(error) => Err(error),
    }
}

/// The number of the group of this name, from wherever the system keeps its groups.
pub(crate) fn group_of_name(name: &str) -> io::Result<Option<u32>> {
    let name = CString::new(name)?;
    let mut buffer = vec![0u8; 64 * 1024];
    let mut group = MaybeUninit::<libc::group>::uninit();
    let mut found: *mut libc::group = null_mut();
    let (text, room) = (buffer.as_mut_ptr().cast(), buffer.len());
    // SAFETY: the name is a live C string; `group`, `buffer` and `found` are room for the results.
    let error =
        unsafe { libc::getgrnam_r(name.as_ptr(), group.as_mut_ptr(), text, room, &raw mut found) };
    match error {
        // SAFETY: `found` is not null, so the call filled `group`.
        0 if !found.is_null() => Ok(Some(unsafe { group.assume_init() }.gr_gid)),
        0 | libc::ENOENT | libc::ESRCH => Ok(None),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

/// A timer of the boot clock.
pub(crate) fn timer_descriptor() -> io::Result<OwnedFd> {
    let flags = libc::TFD_CLOEXEC | libc::TFD_NONBLOCK;
    // SAFETY: no pointers; the descriptor is new and nobody else's.
    unsafe { Ok(OwnedFd::from_raw_fd(check(libc::timerfd_create(libc::CLOCK_BOOTTIME, flags))?)) }
}

/// Makes such a timer expire once, at this many boot nanoseconds.
pub(crate) fn set_timer(timer: &OwnedFd, at: u64) -> io::Result<()> {
    // An expiry of 0 would stop the timer.
    let at = at.max(1);
    let zero = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    let expiry = libc::timespec {
        tv_sec: (at / 1_000_000_000) as libc::time_t,
        tv_nsec: (at % 1_000_000_000) as libc::c_long,
    };
    let setting = libc::itimerspec { it_interval: zero, it_value: expiry };
    let flags = libc::TFD_TIMER_ABSTIME;
    // SAFETY: `setting` is live for the call; nothing is written back.
    let result =
        unsafe { libc::timerfd_settime(timer.as_raw_fd(), flags, &raw const setting, null_mut()) };
    check(result).map(drop)
}

/// Blocks these signals and returns a descriptor that reports them instead.
pub(crate) fn signal_descriptor(signals: &[c_int]) -> io::Result<OwnedFd> {
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: `sigemptyset` fills the set before the others read it.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        for signal in signals {
            libc::sigaddset(set.as_mut_ptr(), *signal);
        }
        check(libc::pthread_sigmask(libc::SIG_BLOCK, set.as_ptr(), null_mut()))?;
        let flags = libc::SFD_CLOEXEC | libc::SFD_NONBLOCK;
        let fd = check(libc::signalfd(-1, set.as_ptr(), flags))?;
        Ok(OwnedFd::from_raw_fd(fd))
    }
}

/// The next signal reported by such a descriptor, if any.
pub(crate) fn next_signal(descriptor: &OwnedFd) -> io::Result<Option<c_int>> {
    let mut info = MaybeUninit::<libc::signalfd_siginfo>::uninit();
    let size = size_of::<libc::signalfd_siginfo>();
    // SAFETY: `info` is room for `size` bytes.
    let read = unsafe { libc::read(descriptor.as_raw_fd(), info.as_mut_ptr().cast(), size) };
    if read == size as isize {
        // SAFETY: the call filled the whole structure.
        return Ok(Some(unsafe { info.assume_init() }.ssi_signo as c_int));
    }
    match io::Error::last_os_error() {
        error if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
        error => Err(error),
    }
}

/// Lets this process open as many descriptors as the system allows it; returns how many.
pub(crate) fn raise_descriptor_limit() -> io::Result<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is live for both calls.
    unsafe {
        check(libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit))?;
        limit.rlim_cur = limit.rlim_max;
        check(libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit))?;
    }
    Ok(limit.rlim_cur)
}

/// Ranks this process before ordinary ones, unless somebody gave it a rank. EACCES: it may not.
pub(crate) fn take_precedence() -> io::Result<()> {
    /// As much as makes the daemon run at once when a bell rings, and far from real time.
    const NICE: c_int = -10;
    // SAFETY: no pointers.
    let rank = unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) };
    if rank != 0 {
        return Ok(());
    }
    // SAFETY: no pointers.
    check(unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, NICE) }).map(drop)
}

/// The heap, of which large parts are to lie on large pages: a table of a million locks is larger than
/// what a processor knows the pages of, and every look at a lock would look for its page as well.
#[derive(Debug)]
pub(crate) struct Heap {
    /// Where it began, and up to where the system was asked.
    begin: usize,
    asked: usize,
}

impl Heap {
    /// The heap grows by this much at once, so that there is something to ask for before it is used.
    const GROWTH: usize = 16 << 20;
    /// A smaller heap stays as it is.
    const LARGE: usize = 32 << 20;

    /// The heap as it is.
    pub(crate) fn new() -> Self {
        // SAFETY: no pointers; a setting that is refused is one that stays.
        unsafe { libc::mallopt(libc::M_TOP_PAD, Self::GROWTH as c_int) };
        let end = heap_end();
        Self { begin: end, asked: end }
    }

    /// Asks for large pages where the heap has grown; to be called now and then. Where the system has none
    /// everything stays as it is.
    pub(crate) fn ask(&mut self) {
        let end = heap_end();
        if end < self.asked {
            self.asked = end;
        }
        if end - self.asked < Self::GROWTH / 2 || end - self.begin.min(end) < Self::LARGE {
            return;
        }
        let first = self.asked & !(page_bytes() - 1);
        // SAFETY: the range is this process's heap, and advice changes no byte of it.
        unsafe { libc::madvise(first as *mut libc::c_void, end - first, libc::MADV_HUGEPAGE) };
        self.asked = end;
    }
}

fn heap_end() -> usize {
    // SAFETY: an increment of 0 only tells where the heap ends.
    unsafe { libc::sbrk(0) as usize }
}

fn page_bytes() -> usize {
    // SAFETY: no pointers.
    unsafe { libc::sysconf(libc::_SC_PAGESIZE) as usize }
}

/// Splits off a child that goes on; true in the child. Only to be called while this process has one
/// thread.
pub(crate) fn fork_child() -> io::Result<bool> {
    // SAFETY: the caller has one thread, so the child owns all that it inherits.
    check(unsafe { libc::fork() }).map(|pid| pid == 0)
}

/// Waits for the only child; its exit code.
pub(crate) fn wait_for_child() -> io::Result<c_int> {
    let mut status = 0;
    // SAFETY: `status` is live for the call.
    check(unsafe { libc::wait(&raw mut status) })?;
    Ok(if libc::WIFEXITED(status) { libc::WEXITSTATUS(status) } else { 1 })
}

/// Leaves the terminal's session.
pub(crate) fn new_session() -> io::Result<()> {
    // SAFETY: no pointers.
    check(unsafe { libc::setsid() }).map(drop)
}

/// Makes standard input, output and error another file.
pub(crate) fn replace_standard_files(file: impl AsFd) -> io::Result<()> {
    for standard in 0..=2 {
        // SAFETY: no pointers; the three numbers stay open, only what they mean changes.
        check(unsafe { libc::dup2(file.as_fd().as_raw_fd(), standard) })?;
    }
    Ok(())
}

/// Ends this process at once, without running anything else.
pub(crate) fn exit_now(code: c_int) -> ! {
    // SAFETY: does not return.
    unsafe { libc::_exit(code) }
}

/// Begins a TCP connection from this address (any port) to that one. The socket does not block; it is
/// writable once the connection is made or has failed. `mark` 0: none.
pub(crate) fn connect_from(local: IpAddr, to: SocketAddr, mark: u32) -> io::Result<TcpStream> {
    let family = if to.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    let kind = libc::SOCK_STREAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: no pointers.
    let fd = check(unsafe { libc::socket(family, kind, 0) })?;
    // SAFETY: the descriptor is new and nobody else's.
    let socket = unsafe { OwnedFd::from_raw_fd(fd) };
    let one = 1;
    // Many nodes may be dialled from one port.
    set_option(&socket, libc::IPPROTO_IP, libc::IP_BIND_ADDRESS_NO_PORT, one)?;
    if mark != 0 {
        set_option(&socket, libc::SOL_SOCKET, libc::SO_MARK, mark as c_int)?;
    }
    with_address(SocketAddr::new(local, 0), |address, length| {
        // SAFETY: `address` points to `length` bytes of a socket address.
        check(unsafe { libc::bind(socket.as_raw_fd(), address, length) })
    })?;
    let begun = with_address(to, |address, length| {
        // SAFETY: as above.
        check(unsafe { libc::connect(socket.as_raw_fd(), address, length) })
    });
    match begun {
        Err(error) if error.raw_os_error() != Some(libc::EINPROGRESS) => Err(error),
        _ => Ok(TcpStream::from(socket)),
    }
}

fn set_option(socket: &OwnedFd, level: c_int, name: c_int, value: c_int) -> io::Result<()> {
    let size = size_of::<c_int>() as libc::socklen_t;
    // SAFETY: the pointer is to `size` bytes that live for the call.
    let result = unsafe {
        libc::setsockopt(socket.as_raw_fd(), level, name, (&raw const value).cast(), size)
    };
    check(result).map(drop)
}

/// Calls `use_it` with an address as the system writes it.
fn with_address<T>(
    address: SocketAddr,
    use_it: impl FnOnce(*const libc::sockaddr, libc::socklen_t) -> T,
) -> T {
    match address {
        SocketAddr::V4(v4) => {
            let address = libc::sockaddr_in {
                sin_family: libc::AF_INET as libc::sa_family_t,
                sin_port: v4.port().to_be(),
                sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(v4.ip().octets()) },
                sin_zero: [0; 8],
            };
            use_it((&raw const address).cast(), size_of::<libc::sockaddr_in>() as _)
        }
        SocketAddr::V6(v6) => {
            let address = libc::sockaddr_in6 {
                sin6_family: libc::AF_INET6 as libc::sa_family_t,
                sin6_port: v6.port().to_be(),
                sin6_flowinfo: v6.flowinfo(),
                sin6_addr: libc::in6_addr { s6_addr: v6.ip().octets() },
                sin6_scope_id: v6.scope_id(),
            };
            use_it((&raw const address).cast(), size_of::<libc::sockaddr_in6>() as _)
        }
    }
}

/// Sets a watchdog's timeout in seconds; what the device made of it.
pub(crate) fn set_watchdog_timeout(device: impl AsFd, seconds: u32) -> io::Result<u32> {
    /// `_IOWR('W', 6, int)` of `linux/watchdog.h`.
    const WDIOC_SETTIMEOUT: libc::c_ulong = 0xc004_5706;
    let mut value = seconds as c_int;
    let fd = device.as_fd().as_raw_fd();
    // SAFETY: the request reads and writes one int, which lives for the call.
    check(unsafe { libc::ioctl(fd, WDIOC_SETTIMEOUT, &raw mut value) })?;
    Ok(value as u32)
}

/// Whether a watchdog stops only if a `V` was written before it is closed.
pub(crate) fn watchdog_closes_by_magic(device: impl AsFd) -> io::Result<bool> {
    /// `_IOR('W', 0, struct watchdog_info)`: options, firmware version, 32 bytes of name.
    const WDIOC_GETSUPPORT: libc::c_ulong = 0x8028_5700;
    const WDIOF_MAGICCLOSE: u32 = 0x100;
    let mut info = [0u32; 10];
    let fd = device.as_fd().as_raw_fd();
    // SAFETY: the request writes 40 bytes, which live for the call.
    check(unsafe { libc::ioctl(fd, WDIOC_GETSUPPORT, info.as_mut_ptr()) })?;
    Ok(info[0] & WDIOF_MAGICCLOSE != 0)
}

/// Sends SIGKILL to the process behind a pidfd: to that one and no later one of its number.
pub(crate) fn kill_process(pidfd: impl AsFd) -> io::Result<()> {
    let (fd, none) = (pidfd.as_fd().as_raw_fd(), null_mut::<libc::siginfo_t>());
    // SAFETY: no signal information is passed; the descriptor is borrowed, hence open.
    let result = unsafe { libc::syscall(libc::SYS_pidfd_send_signal, fd, libc::SIGKILL, none, 0) };
    check(result as c_int).map(drop)
}

/// Whether a descriptor is readable now.
pub(crate) fn is_readable(fd: impl AsFd) -> bool {
    let mut poll = libc::pollfd { fd: fd.as_fd().as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one entry, which lives for the call.
    unsafe { libc::poll(&raw mut poll, 1, 0) == 1 }
}

/// Makes a fifo.
#[cfg(test)]
pub(crate) fn make_fifo(path: &std::path::Path) -> io::Result<()> {
    use std::os::unix::ffi::OsStrExt;
    let path = CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: the path is a live C string.
    check(unsafe { libc::mkfifo(path.as_ptr(), 0o600) }).map(drop)
}

fn check(result: c_int) -> io::Result<c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_runs() {
        let before = boot_nanos();
        assert!(boot_nanos() >= before && before > 0);
    }

    #[test]
    fn groups_are_found_by_name() {
        assert_eq!(group_of_name("root").expect("readable"), Some(0));
        assert_eq!(group_of_name("no-such-group-here").expect("readable"), None);
        assert!(group_of_name("a\0b").is_err());
    }

    #[test]
    fn connections_come_from_the_address_they_should() {
        for host in ["127.0.0.1", "::1"] {
            let host: IpAddr = host.parse().expect("an address");
            let Ok(listener) = std::net::TcpListener::bind((host, 0)) else {
                println!("skipped: {host} does not exist here");
                continue;
            };
            let local = if host.is_ipv4() { "127.0.0.5".parse().expect("one") } else { host };
            let to = listener.local_addr().expect("bound");
            let stream = connect_from(local, to, 0).expect("loopback can be dialled");
            let (_, from) = listener.accept().expect("somebody dials");
            assert_eq!(from.ip(), local);
            drop(stream);
        }
    }

    #[test]
    fn a_locked_file_is_refused_to_others() {
        let dir = crate::testing::TempDir::new("flock");
        let open = || std::fs::File::create(dir.path().join("l")).expect("writable");
        let first = open();
        assert!(lock_file(&first).expect("lockable"));
        assert!(!lock_file(open()).expect("lockable"));
        drop(first);
        assert!(lock_file(open()).expect("lockable"));
    }
}
