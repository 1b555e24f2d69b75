//! What a worker process is told to do, as it travels on its command line.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// A job.
#[derive(Serialize, Deserialize, Clone, Debug)]
pub(crate) enum Job {
    /// A part of measuring a unit.
    Unit(UnitJob),
    /// A part of measuring a lock service.
    Lock(LockJob),
}

/// A part of measuring a unit; needs nothing of ours.
#[derive(Serialize, Deserialize, Clone, Debug)]
pub(crate) enum UnitJob {
    /// Answer every message of the socket with itself.
    Echo,
    /// Answer a futex ping with a pong; `spin`: never sleep.
    Pong { spin: bool },
    /// Answer ring requests with ring replies.
    Rings,
    /// Touch so much memory, take the robust mutex, and wait to be killed.
    Victim { mib: usize },
    /// Sleep in the robust mutex; stamp the time when it is ours.
    WaitMutex,
    /// Sleep in a read of the socket; stamp the time of its end.
    WaitEof,
    /// Sleep until that process has ended; stamp the time.
    WaitPidfd { pid: u32 },
    /// Take the FIFO ticket lock again and again.
    Ticket { id: usize },
}

/// A part of measuring a lock service.
#[derive(Serialize, Deserialize, Clone, Debug)]
pub(crate) enum LockJob {
    /// Time single lock+unlock pairs on fresh names; hands back p50, p99, how many,
    /// p90 and p99.9.
    Latency { backend: Backend, time_ms: u64, least: u64 },
    /// Lock and unlock fresh names of one's own, and count.
    Pairs { id: usize, backend: Backend },
    /// Take turns at one lock, and count changes of owner and turns.
    HandOff { id: usize, backend: Backend },
    /// Keep so many lock+unlock pairs in flight, and count.
    Pipeline { id: usize, socket: PathBuf, in_flight: usize },
    /// Touch `mib` of memory, take `locks` locks, all at once or one by one (`singly`), hand back
    /// the nanoseconds it took, and hold them until stopped or killed.
    Hold { socket: PathBuf, locks: usize, singly: bool, mib: usize },
    /// Ask for all the locks that a [`LockJob::Hold`] holds, say ready once they wait, and stamp
    /// the time when the last one is ours.
    AwaitAll { socket: PathBuf, locks: usize },
    /// Take locks of one mode, say ready, and hold them until stopped or killed.
    Keep { socket: PathBuf, names: Names, mode: u8 },
    /// Ask for locks that others hold, say ready once all requests are out, and stamp the time when the
    /// last is ours, and hold them until stopped or killed.
    Await { socket: PathBuf, names: Names, mode: u8 },
    /// As [`LockJob::Latency`], over names that stay.
    Cycle { backend: Backend, names: Names, time_ms: u64, least: u64 },
    /// Lock and unlock one of these names every now and then until stopped; writes to the file `seen` how
    /// long each pair took, nanoseconds, by span ([`crate::crew::line::SPAN`]).
    Probe { socket: PathBuf, names: Names, seen: PathBuf },
    /// Ask for the first of these names so many times at once, say ready, and unlock each lock as it is granted; hands
    /// back how often this process slept meanwhile.
    Drain { id: usize, socket: PathBuf, name: Names, locks: usize },
    /// Say ready, wait to be let go, take fresh names, and stamp the time when they are held.
    Fresh { socket: PathBuf, names: Names },
    /// Say ready, wait to be let go, open the lockspace, take fresh names, stamp the time when they are
    /// held, and leave the lockspace when stopped, with its creation.
    Visit { socket: PathBuf, names: Names },
}

/// A row of names that stay: those numbered `first`, `first + step` and so on, below `end`.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Names {
    /// Who has made them up: rows of different owners have no name in common.
    pub owner: usize,
    /// First number.
    pub first: u64,
    /// Behind the last number.
    pub end: u64,
    /// Step.
    pub step: usize,
}

impl Names {
    /// All names of an owner below a number.
    pub(crate) fn below(owner: usize, end: usize) -> Self {
        Self { owner, first: 0, end: end as u64, step: 1 }
    }

    /// Every `step`th of them, from `first` on.
    pub(crate) fn every(self, step: usize, first: u64) -> Self {
        Self { first, step, ..self }
    }

    /// As many names, from later numbers.
    pub(crate) fn shifted(self, by: u64) -> Self {
        Self { first: self.first + by, end: self.end + by, ..self }
    }

    /// Their numbers.
    pub(crate) fn numbers(self) -> impl Iterator<Item = u64> + Clone {
        (self.first..self.end).step_by(self.step)
    }
}

/// The lock service that a job speaks to.
#[derive(Serialize, Deserialize, Clone, Debug)]
pub(crate) enum Backend {
    /// dlmd through the Rust client; `lazy`: unlocks are sent without waiting for their answer.
    Dlm { socket: PathBuf, lazy: bool },
    /// dlmd through the C library without threads, as a C program would.
    DlmC { socket: PathBuf, library: PathBuf },
    /// redis, a key with an owner.
    Redis { socket: PathBuf },
    /// redis, a list with a token, first come first served.
    RedisQueue { socket: PathBuf },
    /// memcached, a key.
    Memcached { socket: PathBuf },
}

impl Backend {
    /// The socket of dlmd, if that is who is meant.
    fn dlm_socket(&self) -> Option<&Path> {
        match self {
            Self::Dlm { socket, .. } | Self::DlmC { socket, .. } => Some(socket),
            Self::Redis { .. } | Self::RedisQueue { .. } | Self::Memcached { .. } => None,
        }
    }
}

impl Job {
    /// The socket of dlmd, if the job speaks to it.
    pub(crate) fn dlm_socket(&self) -> Option<&Path> {
        match self {
            Self::Unit(_) => None,
            Self::Lock(job) => match job {
                LockJob::Latency { backend, .. }
                | LockJob::Pairs { backend, .. }
                | LockJob::HandOff { backend, .. }
                | LockJob::Cycle { backend, .. } => backend.dlm_socket(),
                LockJob::Pipeline { socket, .. }
                | LockJob::Hold { socket, .. }
                | LockJob::AwaitAll { socket, .. }
                | LockJob::Keep { socket, .. }
                | LockJob::Await { socket, .. }
                | LockJob::Probe { socket, .. }
                | LockJob::Drain { socket, .. }
                | LockJob::Fresh { socket, .. }
                | LockJob::Visit { socket, .. } => Some(socket),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_survive_the_command_line() {
        let socket = PathBuf::from("/run/a b.sock");
        let job = Job::Lock(LockJob::AwaitAll { socket: socket.clone(), locks: 3 });
        let text = serde_json::to_string(&job).unwrap();
        let back: Job = serde_json::from_str(&text).unwrap();
        assert_eq!(back.dlm_socket(), Some(&*socket));
        assert!(matches!(back, Job::Lock(LockJob::AwaitAll { locks: 3, .. })));
    }

    #[test]
    fn rows_of_names() {
        let row = Names::below(7, 10);
        assert_eq!(row.numbers().count(), 10);
        assert!(row.every(4, 1).numbers().eq([1, 5, 9]));
    }

    #[test]
    fn a_job_for_a_peer_has_no_dlm_socket() {
        let backend = Backend::Redis { socket: "/r".into() };
        assert!(Job::Lock(LockJob::Pairs { id: 0, backend }).dlm_socket().is_none());
        assert!(Job::Unit(UnitJob::Echo).dlm_socket().is_none());
    }
}
