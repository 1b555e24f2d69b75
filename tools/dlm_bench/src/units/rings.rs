//! U7: requests per second through two rings in shared memory, 64 in flight.
//!
//! The asker fills the request ring, sleeps, and takes all replies at once; a bell is rung only
//! for one who sleeps. That is the shape of any batch of lock requests, with the lock manager's
//! own work left out.

use std::io;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};
use std::time::Duration;

use super::{Bench, Reading};
use crate::crew::{Board, Worker, line};
use crate::job::{Job, UnitJob};
use crate::measure::repeat;
use crate::report::Scale;
use crate::sys;

/// Entries of a ring, a cache line each.
const ENTRIES: u32 = 64;

/// One direction: where its control words and its entries lie.
struct Ring<'a> {
    board: &'a Board,
    control: usize,
    entries: usize,
    /// How far this side has come.
    position: u32,
}

impl<'a> Ring<'a> {
    fn requests(board: &'a Board) -> Self {
        Self { board, control: line::FREE, entries: line::FREE + 16, position: 0 }
    }

    fn replies(board: &'a Board) -> Self {
        let entries = line::FREE + 16 + ENTRIES as usize;
        Self { board, control: line::FREE + 8, entries, position: 0 }
    }

    fn entry(&self, position: u32) -> &[AtomicU64; 8] {
        self.board.lines().message(self.entries + (position % ENTRIES) as usize)
    }

    /// Writes `count` entries, publishes them, and rings if the other side sleeps.
    fn produce(&mut self, count: u32, value: u64) {
        for _ in 0..count {
            for (word, part) in self.entry(self.position).iter().zip(0..) {
                word.store(value + part, Relaxed);
            }
            self.position = self.position.wrapping_add(1);
        }
        let (tail, sleeping) = self.words();
        tail.store(self.position, SeqCst);
        if sleeping.load(SeqCst) == 1 && sleeping.swap(0, SeqCst) == 1 {
            sys::futex_wake(sleeping, 1);
        }
    }

    /// Sleeps until there is something, takes everything, and returns how much and a sum of it.
    fn consume(&mut self) -> (u32, u64) {
        let (tail, sleeping) = self.words();
        let mut end = tail.load(Acquire);
        while end == self.position {
            sleeping.store(1, SeqCst);
            if tail.load(SeqCst) == self.position {
                sys::futex_wait(sleeping, 1, None);
            }
            sleeping.store(0, Relaxed);
            end = tail.load(Acquire);
        }
        let count = end.wrapping_sub(self.position);
        let mut sum = 0u64;
        while self.position != end {
            for word in self.entry(self.position) {
                sum = sum.wrapping_add(word.load(Relaxed));
            }
            self.position = self.position.wrapping_add(1);
        }
        (count, sum)
    }

    /// Tail and sleeping word.
    fn words(&self) -> (&'a std::sync::atomic::AtomicU32, &'a std::sync::atomic::AtomicU32) {
        (self.board.lines().word(self.control), self.board.lines().word(self.control + 1))
    }
}

pub(super) fn measure(bench: Bench) -> io::Result<Reading> {
    let one = requests(bench, bench.core, bench.plan.unit_time())?;
    let reading = Reading::of(one);
    let Some(other) = bench.other else { return Ok(reading) };
    let two = requests(bench, other, bench.plan.unit_time() / 4)?;
    Ok(reading.beside("two cores", two, Scale::PerSecond))
}

fn requests(bench: Bench, core: usize, time: Duration) -> io::Result<f64> {
    sys::bind(Some(bench.core))?;
    let board = Board::new()?;
    let worker = Worker::start(&Job::Unit(UnitJob::Rings), &board, None, Some(core))?;
    board.await_ready(1)?;
    let (mut requests, mut replies) = (Ring::requests(&board), Ring::replies(&board));
    let latency = repeat(time, 10, || {
        requests.produce(ENTRIES, 1);
        let mut missing = ENTRIES;
        while missing > 0 {
            missing -= replies.consume().0;
        }
        Ok::<(), io::Error>(())
    })?;
    board.stop();
    requests.produce(1, 1);
    worker.finish()?;
    Ok(f64::from(ENTRIES) * 1e9 / latency.p50())
}

/// The worker: answers every request with a reply that depends on it.
pub(super) fn answer(board: &Board) -> io::Result<()> {
    let (mut requests, mut replies) = (Ring::requests(board), Ring::replies(board));
    board.ready();
    while !board.stopped() {
        let (count, sum) = requests.consume();
        replies.produce(count, sum);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_fit_into_the_board() {
        let last = line::FREE + 16 + 2 * ENTRIES as usize;
        assert!(last <= line::ALL);
    }

    #[test]
    fn what_goes_in_comes_out() {
        let board = Board::new().unwrap();
        let (mut producer, mut consumer) = (Ring::requests(&board), Ring::requests(&board));
        producer.produce(3, 10);
        // Words 10 to 17, three times.
        assert_eq!(consumer.consume(), (3, 3 * (8 * 10 + 28)));
        producer.produce(ENTRIES, 0);
        assert_eq!(consumer.consume(), (ENTRIES, u64::from(ENTRIES) * 28));
    }
}
