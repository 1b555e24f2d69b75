//! Raising operations in flight to a lost master: which of them it must have done (recovery.md 6.3).
//!
//! What was granted at one time fits together. So where the records of a name do not, some owner did not
//! hear how its operation ended, and there are few ways in which it can have.

use crate::away::Rebuilt;
use crate::lock::Lock;
use crate::lockspace::LockTable;
use crate::message::Flight;
use crate::seeded::cluster_fault;
use crate::{LockFlags, Mode, SbFlags};

/// How a raising operation was done.
enum Raised {
    To(Mode),
    Alternative(Mode),
    /// For a conversion deadlock.
    Demoted,
}

/// Whether a mode is excluded by one of these.
fn conflict(mode: Mode, held: &[u32; 6]) -> bool {
    Mode::ALL.iter().any(|m| held[*m as usize] > 0 && !m.compatible(mode))
}

/// How an operation to `target` can have been done beside these modes.
fn outcome(lock: &Lock, target: Mode, held: &[u32; 6]) -> Option<Raised> {
    if !conflict(target, held) {
        return Some(Raised::To(target));
    }
    let alternative = crate::grant::alternative(lock.flags, target);
    if let Some(mode) = alternative.filter(|mode| !conflict(*mode, held)) {
        return Some(Raised::Alternative(mode));
    }
    lock.flags.has(LockFlags::CONVDEADLK).then_some(Raised::Demoted)
}

impl LockTable {
    /// Raising operations that the lost master must have done, because others were granted since:
    /// they are completed (rule 3). Returns these locks.
    pub(crate) fn complete_raised(
        &mut self,
        resource: u32,
        records: &[Rebuilt],
    ) -> Vec<(u32, Option<Mode>)> {
        if cluster_fault("raising-undone") {
            return Vec::new();
        }
        let mut held = [0u32; 6];
        let mut open: Vec<(u32, Mode)> = Vec::new();
        for record in records.iter().filter(|record| record.flight != Flight::Unlock) {
            let lock = &self.locks[record.lock];
            let Some(granted) = lock.granted else { continue };
            let target = match record.flight {
                Flight::Convert(mode) if !granted.is_down(mode) && granted != mode => Some(mode),
                _ => lock.requested,
            };
            match target {
                Some(target) => open.push((record.lock, target)),
                None => held[granted as usize] += 1,
            }
        }
        let mut done = Vec::new();
        while let Some((position, others)) = self.next_to_complete(&open, &held) {
            let (index, target) = open.remove(position);
            let lock = &mut self.locks[index];
            let from = lock.granted;
            match outcome(lock, target, &others) {
                Some(Raised::To(mode)) => lock.granted = Some(mode),
                Some(Raised::Alternative(mode)) => {
                    lock.granted = Some(mode);
                    lock.sb_flags = lock.sb_flags | SbFlags::ALTMODE;
                }
                Some(Raised::Demoted) => {
                    lock.granted = Some(Mode::NL);
                    lock.requested = Some(target);
                    lock.sb_flags = lock.sb_flags | SbFlags::DEMOTED;
                    held[Mode::NL as usize] += 1;
                    continue;
                }
                None => {
                    let name = &self.resources[resource].name;
                    panic!("{name:?}: records of its owners exclude each other: {lock:?}");
                }
            }
            lock.requested = None;
            lock.told = Mode::NL;
            held[lock.granted.expect("set above") as usize] += 1;
            done.push((index, from));
        }
        done
    }

    /// The next of the raising operations that was done, and the modes that it has to live with: one whose
    /// granted mode what is held excludes, or else, of two that exclude each other, one of which can be
    /// told how it was done; who may be demoted was.
    fn next_to_complete(&self, open: &[(u32, Mode)], held: &[u32; 6]) -> Option<(usize, [u32; 6])> {
        let granted = |position: usize| self.locks[open[position].0].granted;
        let excluded = |position: usize, modes: &[u32; 6]| {
            granted(position).is_some_and(|mode| conflict(mode, modes))
        };
        if let Some(position) = (0..open.len()).find(|position| excluded(*position, held)) {
            return Some((position, *held));
        }
        let mut all = *held;
        (0..open.len()).filter_map(granted).for_each(|mode| all[mode as usize] += 1);
        let beside = |position: usize| {
            let mut others = all;
            granted(position).into_iter().for_each(|mode| others[mode as usize] -= 1);
            (position, others)
        };
        let fits = |(position, modes): &(usize, [u32; 6])| {
            let (index, target) = open[*position];
            excluded(*position, modes) && outcome(&self.locks[index], target, modes).is_some()
        };
        let yields = |(position, _): &(usize, [u32; 6])| {
            !self.locks[open[*position].0].flags.has(LockFlags::CONVDEADLK)
        };
        (0..open.len()).map(beside).filter(fits).min_by_key(yields)
    }
}
