//! What must be true of the whole, known to no node: who believes to hold what, and in which order
//! grants are numbered. (Values: [`crate::values`].)
//!
//! A hold begins when its owner is told and ends when the owner asks to give it up; while a
//! conversion is pending the holder counts with what both its modes allow.

use std::collections::BTreeMap;

use dlm_core::Mode;

use crate::values::Values;

/// A lock of the simulation: a client's life and the number it gave the lock.
pub(crate) type Holder = (u64, u64);
/// A name: its lockspace, and which of that one's names.
pub(crate) type Key = (usize, usize);

/// What all clients believe, per name.
#[derive(Debug, Default)]
pub(crate) struct Oracle {
    holds: BTreeMap<Key, BTreeMap<Holder, Mode>>,
    pub(crate) values: Values,
    /// The highest grant number seen, by mode.
    tokens: BTreeMap<Key, [u64; 6]>,
    /// Grants seen.
    pub(crate) grants: u64,
}

/// The mode that allows no more than both.
pub(crate) fn meet(a: Mode, b: Mode) -> Mode {
    match a.is_middle(b) {
        true => Mode::CR,
        false => a.min(b),
    }
}

impl Oracle {
    /// A holder believes to hold `mode` now (`None`: nothing).
    pub(crate) fn believes(
        &mut self,
        name: Key,
        holder: Holder,
        mode: Option<Mode>,
    ) -> Result<(), String> {
        let holds = self.holds.entry(name).or_default();
        let Some(mode) = mode else {
            holds.remove(&holder);
            return Ok(());
        };
        let other = holds.iter().find(|(of, held)| **of != holder && !held.compatible(mode));
        if let Some((of, held)) = other {
            return Err(format!(
                "exclusion: {name:?} is held {held:?} by {of:?} and {mode:?} by {holder:?}"
            ));
        }
        holds.insert(holder, mode);
        Ok(())
    }

    /// A grant's number: of two holders that exclude each other the later one has the higher.
    pub(crate) fn token(&mut self, name: Key, mode: Mode, token: u64) -> Result<(), String> {
        self.grants += 1;
        let tokens = self.tokens.entry(name).or_default();
        let excluded = Mode::ALL.iter().filter(|other| !other.compatible(mode));
        let last = excluded.map(|other| tokens[*other as usize]).max().unwrap_or(0);
        let of_mode = &mut tokens[mode as usize];
        *of_mode = token.max(*of_mode);
        if token <= last {
            return Err(format!("token: {name:?} was granted {token:#x} after {last:#x}"));
        }
        Ok(())
    }

    /// A holder is gone with all it had.
    pub(crate) fn gone(&mut self, name: Key, holder: Holder) {
        let _ = self.believes(name, holder, None);
        self.values.ended(name, holder);
    }

    /// Whether nobody believes to hold anything.
    pub(crate) fn nothing_held(&self) -> bool {
        self.holds.values().all(BTreeMap::is_empty)
    }
}
