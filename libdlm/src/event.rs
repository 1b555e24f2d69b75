//! What happens to a lock, as a Rust program is told.

use dlm_core::{Mode, SbFlags};

use crate::Error;

/// A lock of one handle. Small, copyable; a stale one is refused, it never reaches another lock.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct LockRef {
    /// The lock id, as C programs and `dlm_tool` know it.
    pub id: u32,
    /// Its word when it was requested.
    pub(crate) word: u64,
}

/// A value block (semantics.md 1.4).
pub type Value = [u8; dlm_ipc::layout::VALUE_BYTES];

/// How an operation ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Completion {
    /// The lock.
    pub lock: LockRef,
    /// 0 (granted), EAGAIN, EDEADLK, ETIMEDOUT, ENOTRECOVERABLE, [`ECANCEL`](crate::ECANCEL),
    /// [`EUNLOCK`](crate::EUNLOCK).
    pub status: i32,
    /// Demoted, alternative mode, value not valid.
    pub flags: SbFlags,
    /// The mode that the lock holds now; `None`: the lock is gone.
    pub granted: Option<Mode>,
    /// The value block, where one belongs to this completion.
    pub value: Option<Value>,
    /// The grant's number: for one name it only grows.
    pub token: u64,
}

impl Completion {
    /// Of a lock that is gone.
    pub(crate) const GONE: Self = Self {
        lock: LockRef { id: 0, word: 0 },
        status: crate::EUNLOCK,
        flags: SbFlags(0),
        granted: None,
        value: None,
        token: 0,
    };

    /// The completion as a result: granted and unlocked are good.
    ///
    /// # Errors
    /// Every other status.
    pub fn result(self) -> Result<Self, Error> {
        match self.status {
            0 | crate::EUNLOCK => Ok(self),
            status => Err(Error::of_status(status)),
        }
    }
}

/// One thing that happened to a lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LockEvent {
    /// An operation ended.
    Completed(Completion),
    /// Somebody wants `mode`, which this lock blocks.
    Blocking {
        /// The lock.
        lock: LockRef,
        /// The wanted mode.
        mode: Mode,
    },
    /// A pipelined request was refused; nothing was done.
    Refused {
        /// The lock; for a new request one that does not exist, with id 0.
        lock: LockRef,
        /// Why.
        error: Error,
    },
}
