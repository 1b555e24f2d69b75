//! Raising operations that were in flight to a lost master (recovery.md 6.3).
//!
//! A record says what its lock was *told* that it holds. Where two of them exclude each other, the lost
//! master had done an operation whose answer never came, and granted the other one because of it. Which one
//! that was is told by the locks without an operation in flight; among those with one by their places: each
//! answer gives a new one, so whoever has the later place was granted after the other had given way.

use crate::away::Rebuilt;
use crate::lock::Lock;
use crate::lockspace::LockTable;
use crate::message::Flight;
use crate::seeded::cluster_fault;
use crate::{LockFlags, Mode, SbFlags};

/// How many locks hold a mode.
type Counts = [u32; 6];

/// A raising operation in flight.
#[derive(Clone, Copy)]
struct Open {
    lock: u32,
    granted: Mode,
    target: Mode,
}

impl LockTable {
    /// Raising operations that the lost master must have done, because others were granted since: they
    /// are completed. Records come in the order of their places. Returns these locks.
    pub(crate) fn complete_raised(
        &mut self,
        resource: u32,
        records: &[Rebuilt],
    ) -> Vec<(u32, Option<Mode>)> {
        if cluster_fault("raising-undone") {
            return Vec::new();
        }
        let (mut held, mut asking) = (Counts::default(), Counts::default());
        let mut open: Vec<Open> = Vec::new();
        for record in records.iter().filter(|record| record.flight != Flight::Unlock) {
            let lock = &self.locks[record.lock];
            let Some(granted) = lock.granted else { continue };
            let target = match record.flight {
                Flight::Convert(mode) if !granted.is_down(mode) && granted != mode => Some(mode),
                _ => lock.requested,
            };
            match target {
                Some(target) => {
                    asking[granted as usize] += 1;
                    open.push(Open { lock: record.lock, granted, target });
                }
                None => held[granted as usize] += 1,
            }
        }
        let mut done = Vec::new();
        while let Some((at, mode, flags)) = self.next_raised(&open, &held, &asking) {
            let Some(mode) = mode else {
                let name = &self.resources[resource].name;
                let lock = &self.locks[open[at].lock];
                panic!("{name:?}: records of its owners exclude each other: {lock:?}");
            };
            let Open { lock: index, granted, target } = open.remove(at);
            asking[granted as usize] -= 1;
            held[mode as usize] += 1;
            let lock = &mut self.locks[index];
            lock.granted = Some(mode);
            lock.sb_flags = lock.sb_flags | flags;
            if flags.has(SbFlags::DEMOTED) {
                lock.requested = Some(target);
                continue;
            }
            lock.requested = None;
            lock.told = Mode::NL;
            done.push((index, Some(granted)));
        }
        done
    }

    /// The next operation that must have been done, and what it came to; no mode: nothing fits.
    fn next_raised(
        &self,
        open: &[Open],
        held: &Counts,
        asking: &Counts,
    ) -> Option<(usize, Option<Mode>, SbFlags)> {
        if let Some(at) = open.iter().position(|one| excluded(one.granted, held)) {
            let fits = outcome(&self.locks[open[at].lock], open[at].target, held);
            return Some((at, fits.map(|(mode, _)| mode), fits.map_or(SbFlags(0), |(_, f)| f)));
        }
        let mut first = None;
        for (at, one) in open.iter().enumerate() {
            let mut others = *asking;
            others[one.granted as usize] -= 1;
            if !excluded(one.granted, &others) {
                continue;
            }
            // Those that exclude it came after it; nothing is known of the others.
            let mut then = *held;
            for mode in Mode::ALL.into_iter().filter(|mode| !mode.compatible(one.granted)) {
                then[mode as usize] += others[mode as usize];
            }
            if let Some((mode, flags)) = outcome(&self.locks[one.lock], one.target, &then) {
                return Some((at, Some(mode), flags));
            }
            first = first.or(Some((at, None, SbFlags(0))));
        }
        first
    }
}

/// Whether a mode is excluded by one of these.
fn excluded(mode: Mode, held: &Counts) -> bool {
    Mode::ALL.iter().any(|other| held[*other as usize] > 0 && !other.compatible(mode))
}

/// What an operation can have come to beside these: its mode, its alternative, or NL instead of a deadlock.
fn outcome(lock: &Lock, target: Mode, held: &Counts) -> Option<(Mode, SbFlags)> {
    if !excluded(target, held) {
        return Some((target, SbFlags(0)));
    }
    let alternative = crate::grant::alternative(lock.flags, target);
    if let Some(mode) = alternative.filter(|mode| !excluded(*mode, held)) {
        return Some((mode, SbFlags::ALTMODE));
    }
    lock.flags.has(LockFlags::CONVDEADLK).then_some((Mode::NL, SbFlags::DEMOTED))
}
