//! Worker processes: this program again, with a hidden subcommand, shared pages and perhaps a
//! socket.
//!
//! A worker is a process and not a thread because what is measured is what processes pay each
//! other, and because workers are killed. It gets the shared pages as its standard input and a
//! socket, if any, as its standard output, so nothing has to be inherited by number. It dies with
//! its parent.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::time::{Duration, Instant};

use crate::job::Job;
use crate::sys::{self, LINE_BYTES, Lines};

/// Longest wait for a worker to come to a point: a hang guard. A million remote locks take half a minute.
const PATIENCE: Duration = Duration::from_secs(180);

/// Most workers of one board.
pub(crate) const WORKERS_MAX: usize = 64;

/// Most numbers that a worker hands back.
pub(crate) const RESULTS_MAX: usize = 16;

/// Parts of a probe's time.
pub(crate) const SPANS: usize = 4;

/// Lines of the shared pages and what they mean.
pub(crate) mod line {
    /// 0 = wait, 1 = go, 2 = stop.
    pub(crate) const PHASE: usize = 0;
    /// How many workers are ready.
    pub(crate) const READY: usize = 1;
    /// A time stamp of the event that is measured, 0 = not yet.
    pub(crate) const STAMP: usize = 2;
    /// Who had the lock last, plus one.
    pub(crate) const OWNER: usize = 3;
    /// Not 0: a worker failed, and said why.
    pub(crate) const FAILED: usize = 4;
    /// Which part of a probe's time it is, below [`super::SPANS`].
    pub(crate) const SPAN: usize = 5;
    /// First of [`super::RESULTS_MAX`] numbers that a worker hands back.
    pub(crate) const RESULT: usize = 8;
    /// First of [`super::WORKERS_MAX`] counters of events, one per worker.
    pub(crate) const COUNT: usize = 64;
    /// First of [`super::WORKERS_MAX`] counters of turns at a shared lock, one per worker.
    pub(crate) const TURNS: usize = 128;
    /// First line free for a job's own use.
    pub(crate) const FREE: usize = 192;
    /// All lines.
    pub(crate) const ALL: usize = 512;
}

/// The shared pages of one measurement.
#[derive(Clone)]
pub(crate) struct Board {
    lines: Arc<Lines>,
    file: Arc<File>,
}

impl Board {
    /// Fresh pages.
    pub(crate) fn new() -> io::Result<Self> {
        Self::of(sys::memfd(line::ALL * LINE_BYTES)?)
    }

    /// The pages of the parent, in a worker.
    pub(crate) fn inherited() -> io::Result<Self> {
        Self::of(io::stdin().as_fd().try_clone_to_owned()?.into())
    }

    fn of(file: File) -> io::Result<Self> {
        Ok(Self { lines: Arc::new(Lines::map(&file)?), file: Arc::new(file) })
    }

    /// The pages.
    pub(crate) fn lines(&self) -> &Lines {
        &self.lines
    }

    /// Says that this worker is ready.
    pub(crate) fn ready(&self) {
        self.lines.word(line::READY).fetch_add(1, Release);
        sys::futex_wake(self.lines.word(line::READY), 1);
    }

    /// Says ready and sleeps until the parent says go.
    pub(crate) fn ready_and_wait(&self) {
        self.ready();
        while self.lines.word(line::PHASE).load(Acquire) == 0 {
            sys::futex_wait(self.lines.word(line::PHASE), 0, None);
        }
    }

    /// Sleeps until the parent says stop.
    pub(crate) fn wait_for_stop(&self) {
        let phase = self.lines.word(line::PHASE);
        loop {
            match phase.load(Acquire) {
                2 => return,
                other => sys::futex_wait(phase, other, None),
            }
        }
    }

    /// Whether the parent said stop.
    pub(crate) fn stopped(&self) -> bool {
        self.lines.word(line::PHASE).load(Relaxed) == 2
    }

    /// Which part of a probe's time it is.
    pub(crate) fn span(&self) -> usize {
        self.lines.word(line::SPAN).load(Relaxed) as usize % SPANS
    }

    /// Begins a part of a probe's time.
    pub(crate) fn set_span(&self, span: usize) {
        assert!(span < SPANS);
        self.lines.word(line::SPAN).store(span as u32, Relaxed);
    }

    /// Says that this worker failed, so that nobody waits for it.
    pub(crate) fn fail(&self) {
        self.lines.word(line::FAILED).store(1, Release);
    }

    /// Sleeps until `count` workers are ready.
    pub(crate) fn await_ready(&self, count: u32) -> io::Result<()> {
        self.await_word(
            || self.lines.word(line::READY).load(Acquire),
            count,
            |seen| {
                sys::futex_wait(
                    self.lines.word(line::READY),
                    seen,
                    Some(Duration::from_millis(100)),
                );
            },
        )
    }

    /// Lets the workers go.
    pub(crate) fn go(&self) {
        self.set_phase(1);
    }

    /// Asks the workers to stop.
    pub(crate) fn stop(&self) {
        self.set_phase(2);
    }

    fn set_phase(&self, phase: u32) {
        self.lines.word(line::PHASE).store(phase, Release);
        sys::futex_wake(self.lines.word(line::PHASE), i32::MAX as u32);
    }

    /// Stamps the event with the time of now.
    pub(crate) fn stamp(&self) {
        self.lines.long(line::STAMP).store(sys::monotonic_ns(), Release);
        sys::futex_wake(self.lines.word(line::STAMP), 1);
    }

    /// Sleeps until the event was stamped, and returns its time.
    pub(crate) fn await_stamp(&self) -> io::Result<u64> {
        let stamp = || self.lines.long(line::STAMP).load(Acquire);
        self.await_word(
            || u32::from(stamp() != 0),
            1,
            |_| {
                sys::futex_wait(self.lines.word(line::STAMP), 0, Some(Duration::from_millis(100)));
            },
        )?;
        Ok(stamp())
    }

    /// Adds `events` to a worker's counter (its only writer).
    pub(crate) fn count(&self, worker: usize, events: u64) {
        let counter = self.lines.long(line::COUNT + worker);
        counter.store(counter.load(Relaxed) + events, Relaxed);
    }

    /// Events of each worker since it was started.
    pub(crate) fn events(&self, workers: usize) -> Vec<u64> {
        self.counts(line::COUNT, workers)
    }

    /// The counters of `workers` from line `first` on.
    fn counts(&self, first: usize, workers: usize) -> Vec<u64> {
        (0..workers).map(|worker| self.lines.long(first + worker).load(Relaxed)).collect()
    }

    /// Hands a number back to the parent.
    pub(crate) fn hand_back(&self, index: usize, value: f64) {
        assert!(index < RESULTS_MAX);
        self.lines.long(line::RESULT + index).store(value.to_bits(), Release);
    }

    /// A number that a worker handed back.
    pub(crate) fn result(&self, index: usize) -> f64 {
        f64::from_bits(self.lines.long(line::RESULT + index).load(Acquire))
    }

    /// To be called by the owner of a lock that all workers take: counts changes of owner only, for
    /// one who unlocks and at once locks again has handed nothing over.
    pub(crate) fn count_hand_off(&self, worker: usize) {
        let turns = self.lines.long(line::TURNS + worker);
        turns.store(turns.load(Relaxed) + 1, Relaxed);
        let owner = self.lines.word(line::OWNER);
        let me = worker as u32 + 1;
        if owner.load(Relaxed) != me {
            owner.store(me, Relaxed);
            self.count(worker, 1);
        }
    }

    /// Sleeps by `sleep` until `word` is at least `wanted`.
    fn await_word(
        &self,
        word: impl Fn() -> u32,
        wanted: u32,
        sleep: impl Fn(u32),
    ) -> io::Result<()> {
        let start = Instant::now();
        loop {
            let seen = word();
            if seen >= wanted {
                return Ok(());
            }
            if self.lines.word(line::FAILED).load(Acquire) != 0 {
                return Err(io::Error::other("a worker process failed; its message is above"));
            }
            if start.elapsed() > PATIENCE {
                return Err(io::Error::other(format!(
                    "a worker process did not answer within {} s",
                    PATIENCE.as_secs()
                )));
            }
            sleep(seen);
        }
    }
}

/// A running worker; killed when dropped.
pub(crate) struct Worker {
    child: Child,
}

impl Worker {
    /// Starts a worker on `core` (`None`: anywhere) with the board's pages.
    pub(crate) fn start(
        job: &Job,
        board: &Board,
        socket: Option<OwnedFd>,
        core: Option<usize>,
    ) -> io::Result<Self> {
        let mut command = Command::new("/proc/self/exe");
        command.arg("worker").arg(serde_json::to_string(job)?);
        command.stdin(Stdio::from(board.file.try_clone()?));
        command.stdout(socket.map_or_else(Stdio::null, Stdio::from));
        if let Some(socket) = job.dlm_socket() {
            command.env("DLM_SOCKET", socket);
        }
        sys::confine(&mut command, core);
        Ok(Self { child: command.spawn()? })
    }

    /// Process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends SIGKILL, and does not wait for the end.
    pub(crate) fn kill(&mut self) -> io::Result<()> {
        self.child.kill()
    }

    /// Waits for a worker that comes to its end by itself; fails if it failed. Asleep all the time:
    /// a parent that looks every millisecond would be every hundredth pair's delay.
    pub(crate) fn finish(mut self) -> io::Result<()> {
        if !sys::wait_readable(sys::pidfd(self.pid())?, Some(PATIENCE))? {
            return Err(io::Error::other("a worker process did not stop; it was killed"));
        }
        let status = self.child.wait()?;
        if status.success() {
            return Ok(());
        }
        Err(io::Error::other(format!("a worker process failed: {status}")))
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // Both fail only if the process is gone already, which is what they are for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What happened while workers ran: changes of their counters in a window of time.
pub(crate) struct Window {
    /// Length of the window.
    pub seconds: f64,
    /// Events of each worker within it.
    pub events: Vec<u64>,
    /// Turns of each worker at a shared lock within it.
    pub turns: Vec<u64>,
}

impl Window {
    /// Events of all workers per second.
    pub(crate) fn rate(&self) -> f64 {
        self.events.iter().sum::<u64>() as f64 / self.seconds
    }

    /// Turns of the luckiest worker over those of the unluckiest; infinite if one got none.
    pub(crate) fn unfairness(&self) -> f64 {
        let most = self.turns.iter().max().copied().unwrap_or(0);
        let least = self.turns.iter().min().copied().unwrap_or(0);
        most as f64 / least as f64
    }
}

/// Starts `workers` jobs, lets them run, and counts for `time` after a tenth of it as warm-up.
pub(crate) fn run_crew(
    workers: usize,
    core: Option<usize>,
    time: Duration,
    job: impl Fn(usize) -> Job,
) -> io::Result<Window> {
    run_crew_on(&Board::new()?, workers, core, time, job)
}

/// The same on a board that was prepared.
pub(crate) fn run_crew_on(
    board: &Board,
    workers: usize,
    core: Option<usize>,
    time: Duration,
    job: impl Fn(usize) -> Job,
) -> io::Result<Window> {
    assert!(workers <= WORKERS_MAX);
    let crew: io::Result<Vec<_>> =
        (0..workers).map(|id| Worker::start(&job(id), board, None, core)).collect();
    let crew = crew?;
    board.await_ready(workers as u32)?;
    board.go();
    std::thread::sleep(time / 10);
    let counts = || (board.counts(line::COUNT, workers), board.counts(line::TURNS, workers));
    let (before, start) = (counts(), Instant::now());
    std::thread::sleep(time);
    let (after, seconds) = (counts(), start.elapsed().as_secs_f64());
    board.stop();
    crew.into_iter().try_for_each(Worker::finish)?;
    let grown = |before: Vec<u64>, after: Vec<u64>| {
        before.into_iter().zip(after).map(|(before, after)| after - before).collect()
    };
    Ok(Window { seconds, events: grown(before.0, after.0), turns: grown(before.1, after.1) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rate_and_unfairness() {
        let window = Window { seconds: 2.0, events: vec![100, 110, 90], turns: vec![100, 110] };
        assert_eq!(window.rate(), 150.0);
        assert!((window.unfairness() - 1.1).abs() < 1e-12);
        let starved = Window { seconds: 1.0, events: Vec::new(), turns: vec![5, 0] };
        assert!(starved.unfairness().is_infinite());
    }

    #[test]
    fn only_changes_of_owner_are_hand_offs() {
        let board = Board::new().unwrap();
        [0, 0, 1, 1, 0].into_iter().for_each(|worker| board.count_hand_off(worker));
        assert_eq!(board.counts(line::COUNT, 2), [2, 1]);
        assert_eq!(board.counts(line::TURNS, 2), [3, 2]);
    }

    #[test]
    fn numbers_come_back() {
        let board = Board::new().unwrap();
        board.hand_back(3, 1.5);
        assert_eq!(board.result(3), 1.5);
    }
}
