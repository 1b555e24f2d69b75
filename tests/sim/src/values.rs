//! What a reader of a value block may see (semantics.md 1.4, 8.5; D7, D14, D20).
//!
//! - Unmarked bytes are the last ones written, or ones whose writer has not been told yet.
//! - Zeros are seen only where the block may be gone: as long as somebody holds a lock with a value block,
//!   idle and on a living node (an *anchor*), a written block is kept.
//! - After a writer's death the block is marked until somebody writes: whoever is granted a mode that the
//!   dead one excluded is told, while an anchor keeps the block. (A mark can die with a second node, if by
//!   then a reader above CR survives; so it is demanded of the first such reader only, and of nobody after
//!   another loss.)
//! - Marked bytes are ones that were once written, or zeros.

use std::collections::{BTreeMap, BTreeSet};

use dlm_core::{Mode, VALUE_BYTES, Value};

use crate::oracle::{Holder, Key};

/// All value blocks.
#[derive(Debug, Default)]
pub(crate) struct Values {
    names: BTreeMap<Key, Written>,
}

/// What was written to a name's value block.
#[derive(Debug, Default)]
struct Written {
    /// Writes whose owner was told, and when, last one last.
    sure: Vec<(u64, Value)>,
    /// Token of the last of them.
    last_token: u64,
    /// Writes that may have been done since, or may still be.
    perhaps: Vec<Perhaps>,
    /// A client died with a write under way: its lock may yet be granted, and written with, after others
    /// have died. Until the next write that is told.
    late: bool,
    /// Every value ever given, to be written or not.
    given: BTreeSet<Value>,
    /// Locks with a value block that do nothing: while there is one, the block is not forgotten.
    anchors: BTreeSet<Holder>,
    /// Since when there has been an anchor all the time.
    anchored: Option<u64>,
    /// Since when it is known that the block was written and that there was an anchor ever since.
    kept: Option<u64>,
    /// A writer died: the mode it held, and when.
    marked: Option<(Mode, u64)>,
}

/// A write of which nobody was told whether it was done.
#[derive(Debug, Clone)]
struct Perhaps {
    holder: Holder,
    /// `None`: bytes that the simulation does not know.
    value: Option<Value>,
    /// Its writer's grant.
    token: u64,
    /// It cannot be done any more.
    over: bool,
    /// When another write was known to have come after it.
    replaced: Option<u64>,
}

/// A grant that read the block.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Read {
    /// When it was asked for.
    pub(crate) since: u64,
    /// The mode granted.
    pub(crate) mode: Mode,
    /// The bytes.
    pub(crate) value: Value,
    /// The bytes that the reader itself gave with its call: where there is no block it gets them back.
    pub(crate) own: Option<Value>,
    /// Whether it was told that they may be old.
    pub(crate) marked: bool,
}

impl Written {
    fn was_last(&self, since: u64, value: Value) -> bool {
        // Of two things at one moment, as when a node wakes up, nobody knows which was first.
        let first = self.sure.partition_point(|(at, _)| *at < since).saturating_sub(1);
        self.sure[first..].iter().any(|(_, written)| *written == value)
    }

    fn perhaps(&self, since: u64, value: Value) -> bool {
        self.perhaps.iter().any(|perhaps| {
            let recent = perhaps.replaced.is_none_or(|at| at >= since);
            recent && perhaps.value.is_none_or(|v| v == value)
        })
    }
}

impl Values {
    fn of(&mut self, name: Key) -> &mut Written {
        self.names.entry(name).or_default()
    }

    /// A client asked to write; `None`: bytes that are not known. `token` is the writer's grant, as far
    /// as it is known.
    pub(crate) fn writes(&mut self, name: Key, holder: Holder, value: Option<Value>, token: u64) {
        let written = self.of(name);
        written.perhaps.push(Perhaps { holder, value, token, over: false, replaced: None });
        written.given.extend(value);
        written.marked = None;
    }

    /// Bytes that a client gave; whether they are ever written is another matter.
    pub(crate) fn given(&mut self, name: Key, value: Value) {
        self.of(name).given.insert(value);
    }

    /// A holder's operation ended, or the holder: it was done by now, or never will be.
    pub(crate) fn over(&mut self, name: Key, holder: Holder) {
        let written = self.of(name);
        for perhaps in written.perhaps.iter_mut().filter(|perhaps| perhaps.holder == holder) {
            perhaps.over = true;
        }
        self.moves(name, holder);
    }

    /// The holder's client ended, with what it had under way.
    pub(crate) fn ended(&mut self, name: Key, holder: Holder) {
        let written = self.of(name);
        let open = |perhaps: &Perhaps| perhaps.holder == holder && !perhaps.over;
        written.late |= written.perhaps.iter().any(open);
        self.over(name, holder);
    }

    /// A client was told that its write is done.
    /// The token says in which order: of two writers the earlier one may hear of it later.
    /// It was asked for at `since`: an anchor that was there before keeps what was written.
    pub(crate) fn wrote(
        &mut self,
        (since, now): (u64, u64),
        name: Key,
        holder: Holder,
        (token, value): (u64, Value),
    ) {
        let written = self.of(name);
        if token >= written.last_token {
            (written.last_token, written.late) = (token, false);
            written.sure.push((now, value));
        }
        for perhaps in &mut written.perhaps {
            let older = perhaps.over && perhaps.token < token;
            if (older || perhaps.holder == holder) && perhaps.replaced.is_none() {
                perhaps.replaced = Some(now);
            }
        }
        written.marked = None;
        written.kept = written.anchored.filter(|at| *at < since).map(|_| now);
    }

    /// A holder of a lock with a value block rests in a granted mode.
    pub(crate) fn rests(&mut self, now: u64, name: Key, holder: Holder) {
        let written = self.of(name);
        written.anchors.insert(holder);
        written.anchored.get_or_insert(now);
    }

    /// A holder does something, or is gone: the block does not depend on it alone any more.
    pub(crate) fn moves(&mut self, name: Key, holder: Holder) {
        let written = self.of(name);
        written.anchors.remove(&holder);
        if written.anchors.is_empty() {
            written.anchored = None;
            written.kept = None;
            written.marked = None;
        }
    }

    /// A resting holder of `mode` died: what it could have written is lost.
    pub(crate) fn writer_died(&mut self, now: u64, name: Key, holder: Holder, mode: Mode) {
        self.moves(name, holder);
        let written = self.of(name);
        let pending = written.late || written.perhaps.iter().any(|perhaps| !perhaps.over);
        if written.kept.is_some() && !pending {
            written.marked = Some((mode, now));
        }
    }

    /// Somebody was granted a mode that readers above CR hold: whatever it was told, a mark may not
    /// survive the next loss.
    pub(crate) fn seen(&mut self, name: Key) {
        self.of(name).marked = None;
    }

    /// A node is lost: marks that only it knew are lost with it.
    pub(crate) fn node_lost(&mut self) {
        for written in self.names.values_mut() {
            written.marked = None;
        }
    }

    /// Whether a reader may see this.
    pub(crate) fn reads(&mut self, name: Key, read: Read) -> Result<(), String> {
        let Read { since, mode, value, own, marked } = read;
        let written = self.of(name);
        let zeros = value == [0; VALUE_BYTES];
        if marked {
            let known = zeros || written.given.contains(&value);
            let unknown = written.perhaps.iter().any(|perhaps| perhaps.value.is_none());
            return if known || unknown {
                Ok(())
            } else {
                Err(format!("value: a reader of {name:?} got marked bytes that nobody ever wrote"))
            };
        }
        let last = written.was_last(since, value) || written.perhaps(since, value);
        let none = zeros || own == Some(value);
        if !last && (!none || written.kept.is_some_and(|at| at <= since)) {
            return Err(format!(
                "value: a reader of {name:?} got {:x?}, which is not the last one written ({:x?}), \
                 unmarked",
                &value[..8],
                written.sure.last().map(|(_, value)| value[..8].to_vec())
            ));
        }
        if let Some((held, at)) = written.marked
            && since >= at
            && !held.compatible(mode)
        {
            return Err(format!(
                "value: a reader of {name:?} was not told that a writer ({held:?}) died at {at}"
            ));
        }
        Ok(())
    }
}
