//! One operation of a generated sequence. Locks are named by their distance from the newest one, so
//! that sequences stay meaningful while they shrink.

use dlm_core::{LockFlags, Mode};

use crate::notation::show_flags;

/// Clients of a generated sequence; each is a process of its own.
pub(crate) const CLIENTS: usize = 3;
/// Names of a generated sequence.
pub(crate) const NAMES: [&str; 2] = ["r", "q"];

/// What lock and convert have in common.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Wish {
    pub(crate) mode: u8,
    pub(crate) flags: LockFlags,
    pub(crate) nobast: bool,
    pub(crate) limit_cs: u8,
}

/// How a handle ends.
#[derive(Clone, Copy, Debug)]
pub(crate) enum End {
    Close,
    Die,
    PurgeOwn,
}

/// One operation.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Operation {
    Lock {
        client: usize,
        name: usize,
        wish: Wish,
    },
    Adopt {
        client: usize,
        name: usize,
        wish: Wish,
    },
    Convert {
        back: usize,
        wish: Wish,
        value: Option<u8>,
    },
    Unlock {
        back: usize,
        flags: LockFlags,
        value: Option<u8>,
    },
    /// A client that need not be the owner tries a conversion and an unlock (D2).
    Stranger {
        client: usize,
        back: usize,
    },
    DeadlockCancel {
        back: usize,
    },
    End {
        client: usize,
        how: End,
    },
    /// `of`: a client's pid, or everybody's.
    PurgeOrphans {
        by: Option<usize>,
        of: Option<usize>,
    },
    Wait {
        ms: u64,
    },
}

impl Wish {
    /// The wish as the tables write it.
    pub(crate) fn text(&self) -> String {
        let mode = Mode::from_number(self.mode);
        mode.map_or(self.mode.to_string(), |mode| mode.name().to_owned()) + &show_flags(self.flags)
    }

    /// Its options as the tables write them.
    pub(crate) fn options(&self) -> String {
        let nobast = if self.nobast { " nobast" } else { "" };
        let limit = if self.limit_cs > 0 { format!(" limit={}", self.limit_cs) } else { "".into() };
        format!("{nobast}{limit}")
    }
}

/// A value block of generated sequences, and its text.
pub(crate) fn value_text(number: u8) -> String {
    format!("v{number}")
}
