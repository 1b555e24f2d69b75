//! System calls that no crate of ours wraps: binding, futexes, robust mutexes, SEQPACKET pairs,
//! pidfds.
//!
//! Every function here is safe to call; what makes each block sound is said beside it. Nothing in
//! this file measures anything.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::time::Duration;

use memmap2::MmapRaw;

/// Bytes of a cache line: two words that different processes write never share one.
pub(crate) const LINE_BYTES: usize = 64;

/// Turns the -1 of a system call into the error it stands for.
fn checked(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Nanoseconds of CLOCK_MONOTONIC: one clock for all processes of a run.
pub(crate) fn monotonic_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` is a valid timespec to write to, and this clock always exists.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// How often the calling thread has gone to sleep so far.
pub(crate) fn times_slept() -> io::Result<u64> {
    // SAFETY: an all-zero rusage is a valid value, and the call fills the one it is given.
    unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        checked(libc::getrusage(libc::RUSAGE_THREAD, &mut usage))?;
        Ok(usage.ru_nvcsw as u64)
    }
}

/// Binds the calling process (its one thread) to `core`; `None` gives it all cores back.
pub(crate) fn bind(core: Option<usize>) -> io::Result<()> {
    // SAFETY: an all-zero cpu_set_t is the empty set, CPU_SET stays within it for any index that
    // the assertion lets pass, and the call reads exactly the set whose size is given.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        match core {
            Some(core) => {
                assert!(core < libc::CPU_SETSIZE as usize);
                libc::CPU_SET(core, &mut set);
            }
            None => (0..libc::CPU_SETSIZE as usize).for_each(|core| libc::CPU_SET(core, &mut set)),
        }
        checked(libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set)).map(drop)
    }
}

/// The cores this process may run on, in order.
pub(crate) fn allowed_cores() -> io::Result<Vec<usize>> {
    // SAFETY: an all-zero cpu_set_t is the empty set; the call fills the set whose size is given, and
    // CPU_ISSET stays within it for these indexes.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        checked(libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &mut set))?;
        Ok((0..libc::CPU_SETSIZE as usize).filter(|core| libc::CPU_ISSET(*core, &set)).collect())
    }
}

/// Makes the program that `command` starts run on `core` only, and die with this process: a
/// benchmark that is killed leaves no daemon behind.
pub(crate) fn confine(command: &mut Command, core: Option<usize>) {
    let hook = move || {
        // SAFETY: prctl with a constant option and a signal number touches no memory.
        checked(unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) })?;
        bind(core)
    };
    // SAFETY: between fork and exec the hook makes two system calls on its own stack: it takes no
    // lock and allocates only in the error that aborts the start.
    unsafe { command.pre_exec(hook) };
}

/// Ranks a process behind all others.
pub(crate) fn rank_behind(pid: u32) -> io::Result<()> {
    /// Far enough that it gets what others leave.
    const NICE: libc::c_int = 15;
    // SAFETY: no pointers.
    checked(unsafe { libc::setpriority(libc::PRIO_PROCESS, pid, NICE) }).map(drop)
}

/// An anonymous file of `len` bytes of zeros, to be mapped by several processes.
pub(crate) fn memfd(len: usize) -> io::Result<File> {
    // SAFETY: the name is a NUL-terminated literal.
    let fd = checked(unsafe { libc::memfd_create(c"dlm_bench".as_ptr(), libc::MFD_CLOEXEC) })?;
    // SAFETY: the descriptor was just opened and nobody else owns it.
    let file = File::from(unsafe { OwnedFd::from_raw_fd(fd) });
    file.set_len(len as u64)?;
    Ok(file)
}

/// Two connected SEQPACKET sockets.
pub(crate) fn seqpacket_pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut fds = [-1; 2];
    let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
    // SAFETY: `fds` has room for the two descriptors the call writes.
    checked(unsafe { libc::socketpair(libc::AF_UNIX, kind, 0, fds.as_mut_ptr()) })?;
    // SAFETY: both descriptors were just opened and nobody else owns them.
    Ok(unsafe { (OwnedFd::from_raw_fd(fds[0]), OwnedFd::from_raw_fd(fds[1])) })
}

/// A descriptor that becomes readable when the process `pid` has ended.
pub(crate) fn pidfd(pid: u32) -> io::Result<OwnedFd> {
    // SAFETY: pidfd_open takes two integers and returns a new descriptor or -1.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid as libc::pid_t, 0) };
    let fd = checked(fd as libc::c_int)?;
    // SAFETY: the descriptor was just opened and nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Waits until `fd` is readable or hung up; false: not within `limit`.
pub(crate) fn wait_readable(fd: impl AsFd, limit: Option<Duration>) -> io::Result<bool> {
    let fd = fd.as_fd().as_raw_fd();
    let limit = limit.map_or(-1, |limit| libc::c_int::try_from(limit.as_millis()).unwrap_or(-1));
    let mut entry = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    // SAFETY: one valid pollfd, as the count says.
    checked(unsafe { libc::poll(&mut entry, 1, limit) }).map(|ready| ready > 0)
}

/// Sleeps while `word` holds `expected`, at most `limit`. Returns early for any reason: callers
/// look again.
pub(crate) fn futex_wait(word: &AtomicU32, expected: u32, limit: Option<Duration>) {
    let limit = limit.map(|limit| libc::timespec {
        tv_sec: limit.as_secs() as libc::time_t,
        tv_nsec: libc::c_long::from(limit.subsec_nanos()),
    });
    let limit = limit.as_ref().map_or(std::ptr::null(), |limit| limit as *const libc::timespec);
    // SAFETY: the word is alive and aligned for the whole call; the time is null or a live
    // timespec.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAIT, expected, limit) };
}

/// Wakes up to `count` sleepers of `word`.
pub(crate) fn futex_wake(word: &AtomicU32, count: u32) {
    // SAFETY: the word is alive and aligned; FUTEX_WAKE does not write to it.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, count) };
}

/// Shared pages, seen as an array of cache lines that hold atomic words and robust mutexes.
pub(crate) struct Lines {
    map: MmapRaw,
}

impl Lines {
    /// Maps a whole file.
    pub(crate) fn map(file: &File) -> io::Result<Self> {
        Ok(Self { map: MmapRaw::map_raw(file)? })
    }

    /// Address of a line; panics where the map has no such line.
    fn line(&self, index: usize) -> *mut u8 {
        assert!((index + 1) * LINE_BYTES <= self.map.len(), "line {index} is outside of the pages");
        self.map.as_mut_ptr().wrapping_add(index * LINE_BYTES)
    }

    /// The first four bytes of a line.
    pub(crate) fn word(&self, index: usize) -> &AtomicU32 {
        // SAFETY: the address is inside the map, which lives as long as `self`, aligned to a cache
        // line, and every process touches it by atomic operations only.
        unsafe { AtomicU32::from_ptr(self.line(index).cast()) }
    }

    /// The first eight bytes of a line.
    pub(crate) fn long(&self, index: usize) -> &AtomicU64 {
        // SAFETY: as in `word`.
        unsafe { AtomicU64::from_ptr(self.line(index).cast()) }
    }

    /// A whole line as eight words.
    pub(crate) fn message(&self, index: usize) -> &[AtomicU64; LINE_BYTES / 8] {
        // SAFETY: as in `word`; the line has exactly these 64 bytes.
        unsafe { &*self.line(index).cast() }
    }

    /// Makes a robust process-shared mutex in a line that nobody uses yet.
    pub(crate) fn make_mutex(&self, index: usize) -> io::Result<RobustMutex<'_>> {
        let mutex = self.mutex(index);
        // SAFETY: the attribute is initialized before use and destroyed after; the mutex memory is
        // inside the map, large enough by the assertion in `mutex`, and not in use yet.
        let error = unsafe {
            let mut attribute: libc::pthread_mutexattr_t = std::mem::zeroed();
            libc::pthread_mutexattr_init(&mut attribute);
            libc::pthread_mutexattr_setpshared(&mut attribute, libc::PTHREAD_PROCESS_SHARED);
            libc::pthread_mutexattr_setrobust(&mut attribute, libc::PTHREAD_MUTEX_ROBUST);
            let error = libc::pthread_mutex_init(mutex.at, &attribute);
            libc::pthread_mutexattr_destroy(&mut attribute);
            error
        };
        if error == 0 { Ok(mutex) } else { Err(io::Error::from_raw_os_error(error)) }
    }

    /// The mutex that [`Lines::make_mutex`] made in this line, perhaps in another process.
    pub(crate) fn mutex(&self, index: usize) -> RobustMutex<'_> {
        const { assert!(size_of::<libc::pthread_mutex_t>() <= LINE_BYTES) };
        RobustMutex { at: self.line(index).cast(), _pages: self }
    }
}

/// A robust process-shared mutex in shared pages.
pub(crate) struct RobustMutex<'a> {
    at: *mut libc::pthread_mutex_t,
    _pages: &'a Lines,
}

impl RobustMutex<'_> {
    /// Locks it; true if the last owner died with it.
    pub(crate) fn lock(&self) -> io::Result<bool> {
        // SAFETY: the mutex lies in live shared pages and was initialized by `make_mutex`.
        match unsafe { libc::pthread_mutex_lock(self.at) } {
            0 => Ok(false),
            libc::EOWNERDEAD => {
                // SAFETY: as above, and this thread owns the mutex now.
                unsafe { libc::pthread_mutex_consistent(self.at) };
                Ok(true)
            }
            error => Err(io::Error::from_raw_os_error(error)),
        }
    }

    /// Unlocks it.
    pub(crate) fn unlock(&self) {
        // SAFETY: as in `lock`; unlocking a mutex that is not ours only returns an error.
        unsafe { libc::pthread_mutex_unlock(self.at) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering;

    #[test]
    fn lines_are_shared_between_two_maps() {
        let file = memfd(4096).unwrap();
        let (one, two) = (Lines::map(&file).unwrap(), Lines::map(&file).unwrap());
        one.word(3).store(7, Ordering::SeqCst);
        one.message(4)[7].store(9, Ordering::SeqCst);
        assert_eq!(two.word(3).load(Ordering::SeqCst), 7);
        assert_eq!(two.message(4)[7].load(Ordering::SeqCst), 9);
    }

    #[test]
    #[should_panic(expected = "outside of the pages")]
    fn a_line_behind_the_end_is_refused() {
        let file = memfd(4096).unwrap();
        Lines::map(&file).unwrap().word(64);
    }

    #[test]
    fn a_robust_mutex_tells_of_a_dead_owner() {
        let file = memfd(4096).unwrap();
        let lines = Lines::map(&file).unwrap();
        let mutex = lines.make_mutex(1).unwrap();
        assert!(!mutex.lock().unwrap());
        mutex.unlock();
        std::thread::scope(|scope| {
            // A thread that ends with the mutex is, to the kernel's robust list, a dead owner.
            scope.spawn(|| lines.mutex(1).lock().unwrap());
        });
        assert!(mutex.lock().unwrap());
        mutex.unlock();
    }

    #[test]
    fn a_thread_can_be_bound_to_a_core_it_may_use() {
        let core = *allowed_cores().unwrap().last().unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                bind(Some(core)).unwrap();
                assert_eq!(allowed_cores().unwrap(), [core]);
            });
        });
    }

    #[test]
    fn a_process_can_be_watched_to_its_end() {
        let mut child = Command::new("true");
        confine(&mut child, allowed_cores().unwrap().first().copied());
        let mut child = child.spawn().unwrap();
        let watch = pidfd(child.id()).unwrap();
        assert!(wait_readable(&watch, None).unwrap());
        assert!(child.wait().unwrap().success());
    }
}
