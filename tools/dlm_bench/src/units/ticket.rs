//! U6: what handing a lock from process to process in order costs.
//!
//! A ticket by fetch-and-add, a word to sleep on per ticket: the one who leaves wakes exactly the
//! next one, so no hand-off costs more than one wake-up and nobody overtakes.

use std::io;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Release};

use super::{Bench, Reading};
use crate::crew::{Board, line, run_crew_on};
use crate::job::{Job, UnitJob};
use crate::report::Scale;
use crate::sys;

/// Processes that want the lock.
const PROCESSES: usize = 16;

/// Words to sleep on; more than processes, so that no two tickets in the queue share one.
const TURNS: u32 = 64;

const NEXT: usize = line::FREE;
const TURN: usize = line::FREE + 8;
/// One word per turn: whether its ticket's holder sleeps.
const SLEEPS: usize = TURN + TURNS as usize;

pub(super) fn measure(bench: Bench) -> io::Result<Reading> {
    sys::bind(None)?;
    let one = hand_offs(bench, PROCESSES, Some(bench.core))?;
    let reading = Reading::of(one);
    if bench.other.is_none() {
        return Ok(reading);
    }
    let two = hand_offs(bench, PROCESSES, None)?;
    Ok(reading.beside("two cores", two, Scale::PerSecond))
}

fn hand_offs(bench: Bench, processes: usize, core: Option<usize>) -> io::Result<f64> {
    let board = Board::new()?;
    // The turn of ticket 0 has come.
    board.lines().word(TURN).store(1, Release);
    let window = run_crew_on(&board, processes, core, bench.plan.unit_time(), |id| {
        Job::Unit(UnitJob::Ticket { id })
    })?;
    Ok(window.rate())
}

/// The worker: takes the lock, counts the change of owner, and passes it on.
pub(super) fn take_turns(board: &Board, id: usize) -> io::Result<()> {
    let lines = board.lines();
    board.ready_and_wait();
    while !board.stopped() {
        let ticket = lines.word(NEXT).fetch_add(1, AcqRel);
        let place = (ticket % TURNS) as usize;
        let (turn, sleeps) = (lines.word(TURN + place), lines.word(SLEEPS + place));
        // A turn's word holds its ticket plus one once that ticket may go.
        let mine = ticket.wrapping_add(1);
        while turn.load(Acquire) != mine {
            let seen = turn.load(Acquire);
            sleeps.swap(1, AcqRel);
            if seen != mine {
                sys::futex_wait(turn, seen, None);
            }
        }
        sleeps.store(0, Release);
        board.count_hand_off(id);
        let next = (mine % TURNS) as usize;
        lines.word(TURN + next).swap(mine.wrapping_add(1), AcqRel);
        if lines.word(SLEEPS + next).load(Acquire) == 1 {
            sys::futex_wake(lines.word(TURN + next), 1);
        }
    }
    Ok(())
}
