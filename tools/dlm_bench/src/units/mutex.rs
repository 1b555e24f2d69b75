//! U1: what a lock costs that never leaves the process while nobody else wants it.

use std::hint::black_box;
use std::io;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use super::{Bench, Reading};
use crate::crew::{Board, line};
use crate::measure::mean_of_batches;
use crate::report::Scale;
use crate::sys;

/// Pairs between two looks at the clock.
const BATCH: u64 = 1000;

pub(super) fn measure(bench: Bench) -> io::Result<Reading> {
    sys::bind(Some(bench.core))?;
    let board = Board::new()?;
    let mutex = board.lines().make_mutex(line::FREE)?;
    let robust = mean_of_batches(bench.plan.unit_time(), BATCH, || {
        for _ in 0..BATCH {
            mutex.lock().expect("nobody else has this mutex");
            mutex.unlock();
        }
    });
    let word: &AtomicU32 = board.lines().word(line::FREE + 1);
    let bare = mean_of_batches(bench.plan.unit_time() / 4, BATCH, || {
        for _ in 0..BATCH {
            let _ = black_box(word).compare_exchange(0, 1, Acquire, Relaxed);
            let _ = black_box(word).compare_exchange(1, 0, Release, Relaxed);
        }
    });
    Ok(Reading::of(robust).beside("bare CAS pair", bare, Scale::Ns))
}
