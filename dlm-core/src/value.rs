//! Value blocks: what a grant and an unlock do with them (semantics.md 1.4).

use crate::lock::Lock;
use crate::lockspace::LockTable;
use crate::mode::{ValueMove, value_move};
use crate::seeded::bug;
use crate::{LockFlags, Mode, SbFlags, VALUE_BYTES, Value};

impl LockTable {
    /// The value-block operation of a grant, with the modes as they are at that moment.
    pub(crate) fn move_value_at_grant(&mut self, index: u32, from: Option<Mode>, to: Mode) {
        let lock = &mut self.locks[index];
        let resource = &mut self.resources[lock.resource];
        if from.is_none_or(|mode| mode <= Mode::CR)
            && let Some(rare) = &mut lock.rare
        {
            rare.current = false;
        }
        match value_move(from, to) {
            _ if from == Some(Mode::PW) && to == Mode::EX && bug("pw-to-ex-writes") => {
                self.store_value(index);
            }
            ValueMove::Read => {
                if !lock.flags.has(LockFlags::VALBLK) || lock.value().is_none() {
                    return;
                }
                lock.rare().current = true;
                lock.rare().marked = resource.invalid;
                let Some(stored) = &resource.value else {
                    lock.rare().seen = Some([0; VALUE_BYTES]);
                    return;
                };
                // Of a name that was just rebuilt: bytes given with an unlock that waits are what it writes.
                let parting = lock.away().is_some_and(|away| away.parting);
                if !parting {
                    lock.rare().value = Some(**stored);
                }
                lock.rare().seen = Some(**stored);
                lock.saw_value_seq(resource.value_seq);
                if resource.invalid && !bug("reader-not-warned") {
                    lock.sb_flags = lock.sb_flags | SbFlags::VALNOTVALID;
                }
            }
            ValueMove::Write => self.store_value(index),
            ValueMove::Keep if resource.invalid && !bug("kept-mode-hides-mark") => {
                lock.sb_flags = lock.sb_flags | SbFlags::VALNOTVALID;
            }
            ValueMove::Keep => {}
        }
    }

    /// The value-block operation of an unlock: only PW and EX write. A conversion that is still
    /// pending does not count.
    pub(crate) fn move_value_at_unlock(&mut self, index: u32) {
        let writes = matches!(self.locks[index].granted, Some(Mode::PW | Mode::EX));
        if writes || bug("every-unlock-writes") {
            self.store_value(index);
        }
    }

    /// Row W: IVVALBLK wins over VALBLK; without either nothing happens.
    fn store_value(&mut self, index: u32) {
        let lock = &mut self.locks[index];
        let resource = &mut self.resources[lock.resource];
        let valblk = lock.flags.has(LockFlags::VALBLK) && bug("valblk-beats-ivvalblk");
        if lock.flags.has(LockFlags::IVVALBLK) && !valblk {
            resource.invalid = true;
            return;
        }
        let Some(value) = lock.value().filter(|_| lock.flags.has(LockFlags::VALBLK)).copied()
        else {
            return;
        };
        lock.rare().seen = Some(value);
        lock.rare().current = true;
        lock.rare().marked = false;
        match &mut resource.value {
            Some(stored) => **stored = value,
            None => resource.value = Some(Box::new(value)),
        }
        resource.value_seq = resource.value_seq.wrapping_add(1);
        lock.saw_value_seq(resource.value_seq);
        if !bug("write-keeps-mark") {
            resource.invalid = false;
        }
    }
}

/// The bytes that go with a completion (6.3): those of a granted lock that has a block, unless the
/// way from the mode of its last completion to this one writes.
pub(crate) fn value_for_completion(lock: &Lock) -> Option<Value> {
    let before = lock.cast.flatten();
    let moved = value_move(before, lock.granted?);
    let moved = moved != ValueMove::Write || bug("writes-return-bytes");
    lock.value().filter(|_| moved).copied()
}
