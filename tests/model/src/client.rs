//! A node's client: what it asked for, what it was told, and so what it believes to hold.

use dlm_core::{Completion, LockFlags, LockId, Mode, SbFlags, Status};

/// A lock as its client knows it.
#[derive(Clone, Copy, Hash, PartialEq, Debug)]
pub struct Held {
    /// The client's number for it.
    pub lock: u8,
    /// Its id.
    pub id: LockId,
    /// The mode it holds.
    pub granted: Option<Mode>,
    /// The mode of an operation that must complete.
    pub pending: Option<Mode>,
    /// An unlock must complete.
    pub unlocking: bool,
    /// A cancel was accepted.
    pub cancelling: bool,
    /// Flags of its last call.
    pub flags: LockFlags,
    /// Told to let go since its last grant.
    pub told: Option<Mode>,
    /// The first byte of the value block it read last, and whether that was marked.
    pub read: Option<(u8, bool)>,
    /// How its last operation ended.
    pub status: Option<Status>,
    /// The lock is gone.
    pub gone: bool,
    /// Number of its last grant.
    pub token: u64,
}

/// A client: one per node.
#[derive(Clone, Hash, PartialEq, Debug, Default)]
pub struct Client {
    /// Its locks, dead ones included.
    pub locks: Vec<Held>,
    /// It was told that its lockspace is lost.
    pub lost: bool,
}

/// The mode that allows no more than both.
fn meet(a: Mode, b: Mode) -> Mode {
    let middle = matches!((a, b), (Mode::PR, Mode::CW) | (Mode::CW, Mode::PR));
    if middle { Mode::CR } else { a.min(b) }
}

/// What a holder may count on while its conversion is pending (recovery.md 6.3).
fn during_conversion(granted: Mode, mode: Mode, flags: LockFlags) -> Mode {
    let mut least = meet(granted, mode);
    if flags.has(LockFlags::ALTPR) {
        least = meet(least, Mode::PR);
    }
    if flags.has(LockFlags::ALTCW) {
        least = meet(least, Mode::CW);
    }
    if flags.has(LockFlags::CONVDEADLK) { Mode::NL } else { least }
}

impl Held {
    /// A lock that is asked for.
    pub fn new(lock: u8, mode: Mode, flags: LockFlags) -> Self {
        Self {
            lock,
            id: LockId(0),
            granted: None,
            pending: Some(mode),
            unlocking: false,
            cancelling: false,
            flags,
            told: None,
            read: None,
            status: None,
            gone: false,
            token: 0,
        }
    }

    /// What its holder counts on now.
    pub fn believed(&self) -> Option<Mode> {
        let granted = self.granted.filter(|_| !self.unlocking && !self.gone)?;
        Some(match self.pending {
            Some(mode) => during_conversion(granted, mode, self.flags),
            None => granted,
        })
    }

    /// Whether an operation must still complete.
    pub fn is_busy(&self) -> bool {
        !self.gone && (self.pending.is_some() || self.unlocking)
    }

    /// An operation ended; a sentence if none was open that it could be.
    pub fn complete(&mut self, completion: &Completion) -> Result<(), String> {
        let open = match completion.status {
            Status::Unlocked => self.unlocking,
            Status::Cancelled => self.cancelling && self.pending.is_some(),
            Status::Granted | Status::Again | Status::Deadlock | Status::TimedOut => {
                self.pending.is_some()
            }
        };
        if !open || self.gone {
            return Err(format!("{completion:?} answers nothing of {self:?}"));
        }
        if completion.status == Status::Granted && completion.granted.is_none() {
            return Err(format!("{completion:?} grants nothing"));
        }
        if completion.status != Status::Unlocked {
            self.pending = None;
            self.cancelling = false;
        }
        if let Some(value) = completion.value.filter(|_| completion.status == Status::Granted) {
            self.read = Some((value[0], completion.sb_flags.has(SbFlags::VALNOTVALID)));
        }
        if completion.status == Status::Granted {
            self.told = None;
        }
        self.granted = completion.granted;
        self.token = completion.token.0;
        self.status = Some(completion.status);
        self.gone = completion.granted.is_none();
        Ok(())
    }
}

impl Client {
    /// A lock that is alive.
    pub fn find(&mut self, lock: u8) -> Option<&mut Held> {
        self.locks.iter_mut().rev().find(|held| held.lock == lock && !held.gone)
    }

    /// The last lock of this number, dead or alive.
    pub fn last(&self, lock: u8) -> Option<&Held> {
        self.locks.iter().rev().find(|held| held.lock == lock)
    }
}
