//! How fast work over many names goes: no faster than other nodes take it in, and never so that
//! anybody else waits for long.
//!
//! A recovery says something about every lock that moves. Said all at once it would stand in the
//! sessions before everything that clients want in the meantime. So a part of the work is done when
//! what was said before has been heard, but for a little; and after each turn that did such work, or
//! heard much of it from others, whoever else wants the processor gets it.

use std::time::Duration;

use dlm_core::{Input, Reason};

use super::reactor::Reactor;
use crate::peers::Peers;
use crate::sys;

/// Bytes that may wait for a node's acknowledgement before work stops: a few parts of it.
const BEHIND_BYTES: usize = 32 * 1024;
/// Longest time that work stops: a node that hears nothing must not hold up what concerns others.
const HOLD: Duration = Duration::from_millis(1);
/// Whoever gave way and got the processor back only after so long has to share it with somebody who works,
/// and does not give way in the middle of a turn for [`STAY`].
const LONG: Duration = Duration::from_micros(100);
const STAY: Duration = Duration::from_millis(100);
/// Messages of one turn that are much.
const MUCH: u32 = 32;

/// When work was done, and what this turn did.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// When a part of the work was done last, nanoseconds.
    worked: u64,
    /// Work is due and waits for others to hear what was said.
    holds: bool,
    /// This turn did a part of the work.
    works: bool,
    /// Messages heard in this turn.
    heard: u32,
    /// Until when the processor is not given away in the middle of a turn, nanoseconds.
    stays: u64,
    /// Requests of clients in this turn: unlocks, and others.
    unlocks: u32,
    others: u32,
}

impl Pace {
    /// A message of another node was heard.
    #[inline]
    pub(super) fn hear(&mut self) {
        self.heard += 1;
    }

    /// A client asked for something.
    #[inline]
    pub(super) fn ask(&mut self, unlock: bool) {
        let count = if unlock { &mut self.unlocks } else { &mut self.others };
        *count += 1;
    }
}

impl Reactor {
    /// Lets the core do what is due by the clock, or a part of its work over many names.
    pub(super) fn tick(&mut self) {
        let Some((at, reason)) = self.node.deadline() else { return };
        if at.0 > self.now {
            return;
        }
        if reason == Reason::Work {
            let behind = self.links.as_ref().map_or(0, Peers::most_waiting) >= BEHIND_BYTES;
            self.pace.holds = behind && self.now < self.pace.worked + HOLD.as_nanos() as u64;
            if self.pace.holds {
                return;
            }
            self.pace.worked = self.now;
        }
        self.pace.works = matches!(reason, Reason::Heard | Reason::Work);
        self.step(Input::Tick);
    }

    /// When [`Reactor::tick`] is next needed, though nothing happens.
    pub(super) fn next_tick(&self) -> Option<u64> {
        let (at, reason) = self.node.deadline()?;
        let held = self.pace.holds && reason == Reason::Work;
        Some(if held { self.pace.worked + HOLD.as_nanos() as u64 } else { at.0 })
    }

    /// Whether the core has something to do at once.
    pub(super) fn has_due_work(&self) -> bool {
        self.next_tick().is_some_and(|at| at <= self.now)
    }

    /// Who unlocks often locks something next, and waits for that alone. Where the client shares a
    /// core with the daemon it was interrupted by its own bell before it could say so; it is let on, so
    /// that both go to the other node together.
    pub(super) fn hear_on(&mut self) {
        let alone = self.pace.unlocks > 0 && self.pace.others == 0 && !self.pace.works;
        if self.links.is_none() || !alone || self.now < self.pace.stays {
            return;
        }
        let before = sys::boot_nanos();
        std::thread::yield_now();
        let after = sys::boot_nanos();
        if after - before >= LONG.as_nanos() as u64 {
            self.pace.stays = after + STAY.as_nanos() as u64;
        }
        self.serve_rings();
    }

    /// After a turn with work over many names the processor is others' first.
    pub(super) fn give_way(&mut self) {
        let much = self.pace.works || self.pace.heard >= MUCH;
        (self.pace.works, self.pace.heard) = (false, 0);
        (self.pace.unlocks, self.pace.others) = (0, 0);
        if much {
            std::thread::yield_now();
        }
    }
}
