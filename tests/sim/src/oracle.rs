//! What must be true of the whole, known to no node: who believes to hold what, and which value was
//! written last.
//!
//! A hold begins when its owner is told and ends when the owner asks to give it up; while a
//! conversion is pending the holder counts with what both its modes allow.

use std::collections::BTreeMap;

use dlm_core::{Mode, VALUE_BYTES, Value};

/// A lock of the simulation: a client's life and the number it gave the lock.
pub(crate) type Holder = (u64, u64);

/// What all clients believe, per name.
#[derive(Debug, Default)]
pub struct Oracle {
    holds: BTreeMap<Vec<u8>, BTreeMap<Holder, Mode>>,
    values: BTreeMap<Vec<u8>, Written>,
    /// The highest grant number seen, by mode.
    tokens: BTreeMap<Vec<u8>, [u64; 6]>,
    /// Grants seen.
    pub grants: u64,
}

/// What was written to a name's value block.
#[derive(Debug, Default, Clone)]
struct Written {
    /// Writes whose owner was told, and when, last one last.
    sure: Vec<(u64, Value)>,
    /// Token of the last of them.
    last_token: u64,
    /// Writes that may have been done since, or may still be.
    perhaps: Vec<Perhaps>,
}

/// A write of which nobody was told whether it was done.
#[derive(Debug, Clone)]
struct Perhaps {
    holder: Holder,
    /// `None`: bytes that the simulation does not track.
    value: Option<Value>,
    /// Its writer's grant.
    token: u64,
    /// It cannot be done any more.
    over: bool,
    /// When another write was known to have come after it.
    replaced: Option<u64>,
}

impl Written {
    fn was_last(&self, since: u64, value: Value) -> bool {
        let first = self.sure.partition_point(|(at, _)| *at <= since).saturating_sub(1);
        self.sure[first..].iter().any(|(_, written)| *written == value)
    }
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
    pub fn believes(
        &mut self,
        name: &[u8],
        holder: Holder,
        mode: Option<Mode>,
    ) -> Result<(), String> {
        let holds = self.holds.entry(name.to_vec()).or_default();
        match mode {
            None => {
                holds.remove(&holder);
            }
            Some(mode) => {
                let other =
                    holds.iter().find(|(of, held)| **of != holder && !held.compatible(mode));
                if let Some((of, held)) = other {
                    return Err(format!(
                        "exclusion: {} is held {held:?} by {of:?} and {mode:?} by {holder:?}",
                        name.escape_ascii()
                    ));
                }
                holds.insert(holder, mode);
            }
        }
        Ok(())
    }

    /// A grant's number: of two holders that exclude each other the later one has the higher.
    pub fn token(&mut self, name: &[u8], mode: Mode, token: u64) -> Result<(), String> {
        self.grants += 1;
        let tokens = self.tokens.entry(name.to_vec()).or_default();
        let excluded = Mode::ALL.iter().filter(|other| !other.compatible(mode));
        let last = excluded.map(|other| tokens[*other as usize]).max().unwrap_or(0);
        let of_mode = &mut tokens[mode as usize];
        *of_mode = token.max(*of_mode);
        if token <= last {
            return Err(format!(
                "token: {} was granted {token:#x} after {last:#x}",
                name.escape_ascii()
            ));
        }
        Ok(())
    }

    /// A client asked to write; `None`: whatever it gave last.
    /// `token` is the writer's grant, as far as it is known.
    pub fn writes(&mut self, name: &[u8], holder: Holder, value: Option<Value>, token: u64) {
        let written = self.values.entry(name.to_vec()).or_default();
        written.perhaps.push(Perhaps { holder, value, token, over: false, replaced: None });
    }

    /// A holder's operation ended, or the holder: it was done by now, or never will be.
    pub fn write_over(&mut self, name: &[u8], holder: Holder) {
        let written = self.values.entry(name.to_vec()).or_default();
        for perhaps in written.perhaps.iter_mut().filter(|perhaps| perhaps.holder == holder) {
            perhaps.over = true;
        }
    }

    /// A client was told that its write is done.
    /// The token says in which order: of two writers the earlier one may hear of it later.
    pub fn wrote(&mut self, now: u64, name: &[u8], holder: Holder, (token, value): (u64, Value)) {
        let written = self.values.entry(name.to_vec()).or_default();
        if token >= written.last_token {
            written.last_token = token;
            written.sure.push((now, value));
        }
        for perhaps in &mut written.perhaps {
            let older = perhaps.over && perhaps.token < token;
            if (older || perhaps.holder == holder) && perhaps.replaced.is_none() {
                perhaps.replaced = Some(now);
            }
        }
    }

    /// A client that asked at `since` read this value, and was not told that it may be old: it was the
    /// last one at some moment from then on.
    pub fn reads(&self, since: u64, name: &[u8], value: Value) -> Result<(), String> {
        let Some(written) = self.values.get(name) else { return Ok(()) };
        let known = value == [0; VALUE_BYTES]
            || written.was_last(since, value)
            || written.perhaps.iter().any(|perhaps| {
                let recent = perhaps.replaced.is_none_or(|at| at >= since);
                recent && perhaps.value.is_none_or(|v| v == value)
            });
        if known {
            return Ok(());
        }
        Err(format!(
            "value: a reader of {} got {:?} which is not the last one written, unmarked: {:?}",
            name.escape_ascii(),
            &value[..8],
            written.sure.last().map(|(_, value)| value[..8].to_vec())
        ))
    }

    /// Whether nobody believes to hold anything.
    pub fn nothing_held(&self) -> bool {
        self.holds.values().all(BTreeMap::is_empty)
    }
}
