//! System calls that the standard library does not wrap: the only file of this crate with `unsafe`.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read};
use std::mem::{MaybeUninit, size_of};
use std::os::fd::FromRawFd;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// `CLOCK_MONOTONIC` in nanoseconds.
pub(crate) fn monotonic_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` is a timespec that the call may write, and lives through it.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
    let (s, ns) = (u64::try_from(now.tv_sec), u64::try_from(now.tv_nsec));
    s.unwrap_or(0) * 1_000_000_000 + ns.unwrap_or(0)
}

/// Signals that end a program or mean something to it; a command under a lock gets them passed on.
const PASSED_ON: [libc::c_int; 6] =
    [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM, libc::SIGUSR1, libc::SIGUSR2];

/// The blocked signals of this thread and those it starts, as a file to read.
pub(crate) struct Signals {
    file: File,
    /// The mask before, for the command.
    before: libc::sigset_t,
}

/// A signal that arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Signal {
    /// Its number.
    pub(crate) number: i32,
    /// Whether a process sent it. The terminal's go to the whole foreground group, the command
    /// included.
    pub(crate) from_process: bool,
}

impl Signals {
    /// Blocks the signals. To be called before any thread is started.
    pub(crate) fn block() -> io::Result<Self> {
        let mut set = MaybeUninit::<libc::sigset_t>::uninit();
        let mut before = MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: sigemptyset initialises `set` before anything reads it; sigaddset and
        // pthread_sigmask get pointers to these two locals only.
        let fd = unsafe {
            libc::sigemptyset(set.as_mut_ptr());
            for signal in PASSED_ON {
                libc::sigaddset(set.as_mut_ptr(), signal);
            }
            libc::pthread_sigmask(libc::SIG_BLOCK, set.as_ptr(), before.as_mut_ptr());
            libc::signalfd(-1, set.as_ptr(), libc::SFD_CLOEXEC)
        };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: `fd` was just made and belongs to nobody else; pthread_sigmask cannot fail with
        // SIG_BLOCK, so `before` is initialised.
        let (file, before) = unsafe { (File::from_raw_fd(fd), before.assume_init()) };
        Ok(Self { file, before })
    }

    /// Waits for the next signal.
    pub(crate) fn next(&self) -> io::Result<Signal> {
        let mut bytes = [0; size_of::<libc::signalfd_siginfo>()];
        (&self.file).read_exact(&mut bytes)?;
        // SAFETY: the struct is plain integers, for which every bit pattern is valid, and the
        // kernel writes whole ones.
        let info: libc::signalfd_siginfo = unsafe { std::mem::transmute(bytes) };
        let number = i32::try_from(info.ssi_signo).unwrap_or(0);
        Ok(Signal { number, from_process: info.ssi_code <= 0 })
    }

    /// Makes a command start with the signal mask from before, and die with this process: a command
    /// that outlived its lock's holder would work without the lock.
    pub(crate) fn prepare(&self, command: &mut Command) {
        let before = self.before;
        // The value is only compared with getppid, so a wrap would only refuse to start.
        let parent = std::process::id().cast_signed();
        // SAFETY: the closure runs in the child between fork and exec and calls only functions that
        // are async-signal-safe; it touches no memory but its own copies.
        unsafe {
            command.pre_exec(move || {
                libc::pthread_sigmask(libc::SIG_SETMASK, &before, std::ptr::null_mut());
                if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) != 0 {
                    return Err(io::Error::last_os_error());
                }
                // The parent may have died before the line above.
                if libc::getppid() != parent {
                    return Err(io::Error::from_raw_os_error(libc::ESRCH));
                }
                Ok(())
            });
        }
    }
}

/// Sends a signal to a process. A process that has just ended is no error.
pub(crate) fn send(pid: u32, signal: i32) {
    if let Ok(pid) = i32::try_from(pid)
        && pid > 0
    {
        // SAFETY: kill takes plain numbers; `pid` names one process, never a group.
        unsafe { libc::kill(pid, signal) };
    }
}

/// Waits until a child has ended, and leaves it to be reaped, so that its pid stays its own.
pub(crate) fn wait_for_end(child: u32) {
    loop {
        let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
        // SAFETY: `info` is a siginfo_t that the call may write, and lives through it.
        let result = unsafe {
            libc::waitid(libc::P_PID, child, info.as_mut_ptr(), libc::WEXITED | libc::WNOWAIT)
        };
        if result == 0 || io::Error::last_os_error().raw_os_error() != Some(libc::EINTR) {
            return;
        }
    }
}

/// From now on children of a child that ends become ours, so that [`reap`] and [`descendants`]
/// see them.
pub(crate) fn adopt_orphans() {
    // SAFETY: this prctl takes plain numbers.
    unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) };
}

/// Reaps all children that have ended; false if there is no child left.
pub(crate) fn reap() -> bool {
    loop {
        // SAFETY: waitpid takes plain numbers and a null status.
        let pid = unsafe { libc::waitpid(-1, std::ptr::null_mut(), libc::WNOHANG) };
        match pid {
            0 => return true,
            1.. => {}
            _ => return io::Error::last_os_error().raw_os_error() == Some(libc::EINTR),
        }
    }
}

/// All processes below this one, by /proc.
pub(crate) fn descendants() -> BTreeSet<u32> {
    let mut found = BTreeSet::new();
    let mut parents = vec![std::process::id()];
    while let Some(parent) = parents.pop() {
        let Ok(tasks) = std::fs::read_dir(format!("/proc/{parent}/task")) else { continue };
        for task in tasks.flatten() {
            let children = std::fs::read_to_string(task.path().join("children"));
            for child in children.unwrap_or_default().split_ascii_whitespace() {
                if let Ok(child) = child.parse()
                    && found.insert(child)
                {
                    parents.push(child);
                }
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Stdio;

    #[test]
    fn the_clock_moves_and_is_not_the_wall_clock() {
        let first = monotonic_ns();
        assert!(first > 0 && monotonic_ns() >= first);
    }

    #[test]
    fn descendants_are_found_at_every_depth() {
        let mut shell = Command::new("sh")
            .args(["-c", "sleep 60 & echo $!; wait"])
            .stdout(Stdio::piped())
            .spawn()
            .expect("sh");
        let mut line = String::new();
        let stdout = shell.stdout.take().expect("piped");
        io::BufRead::read_line(&mut io::BufReader::new(stdout), &mut line).expect("a pid");
        let sleeper: u32 = line.trim().parse().expect("a pid");
        let found = descendants();
        assert!(found.contains(&shell.id()) && found.contains(&sleeper), "{found:?}");
        send(sleeper, libc::SIGKILL);
        wait_for_end(shell.id());
        assert!(shell.try_wait().expect("not yet reaped").is_some());
    }
}
