//! What a client asks, as one 128-byte entry (ipc.md 2.1) and as a plain value.

use core::mem::{offset_of, size_of};

use super::{NAME_BYTES_MAX, VALUE_BYTES};

/// Numbers of [`Submission::op`].
pub mod op {
    /// A new lock, or the adoption of an orphan.
    pub const LOCK: u8 = 1;
    /// A conversion.
    pub const CONVERT: u8 = 2;
    /// An unlock or a cancel, by the flags.
    pub const UNLOCK: u8 = 3;
    /// A deadlock cancel.
    pub const DEADLOCK_CANCEL: u8 = 4;
    /// A purge of orphans.
    pub const PURGE: u8 = 5;
}

/// Bits of [`Submission::hints`].
pub mod hint {
    /// A reply is wanted also on success.
    pub const REPLY: u8 = 1;
    /// Blocking callbacks are wanted for this lock.
    pub const BLOCKING: u8 = 2;
    /// The payload holds a value block (convert, unlock).
    pub const VALUE: u8 = 4;
    /// `user` replaces the lock's word (unlock).
    pub const USER: u8 = 8;
}

/// A submission entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct Submission {
    /// One of [`op`].
    pub op: u8,
    /// Requested mode as the caller wrote it.
    pub mode: u8,
    /// Lock: bytes of the name in the payload.
    pub name_len: u8,
    /// Bits of [`hint`].
    pub hints: u8,
    /// LKF_ flags; purge: node.
    pub flags: u32,
    /// Convert, unlock, cancel: the lock; purge: pid.
    pub lkid: u32,
    /// 0.
    pub pad: u32,
    /// The client's word for this lock: an index with a generation, never a pointer.
    pub user: u64,
    /// Transaction id.
    pub xid: u64,
    /// Centiseconds, with LKF_TIMEOUT.
    pub timeout: u64,
    /// Returned with the reply.
    pub tag: u64,
    /// 0.
    pub reserved: [u8; 16],
    /// The name, or a value block in the first [`VALUE_BYTES`].
    pub payload: [u8; 64],
}

const _: () = assert!(size_of::<Submission>() == 128);
const _: () = assert!(offset_of!(Submission, hints) == 3 && offset_of!(Submission, flags) == 4);
const _: () = assert!(offset_of!(Submission, lkid) == 8 && offset_of!(Submission, user) == 16);
const _: () = assert!(offset_of!(Submission, xid) == 24 && offset_of!(Submission, timeout) == 32);
const _: () = assert!(offset_of!(Submission, tag) == 40 && offset_of!(Submission, payload) == 64);
const _: () = assert!(NAME_BYTES_MAX == 64 && VALUE_BYTES <= 64);

/// What lock and convert have in common.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CallArgs {
    /// Requested mode as the caller wrote it; the engine checks it.
    pub mode: u8,
    /// LKF_ flags.
    pub flags: u32,
    /// The client's word for this lock, returned with its events.
    pub user: u64,
    /// Transaction id, for display.
    pub xid: u64,
    /// Time limit in centiseconds, with LKF_TIMEOUT; 0 means none.
    pub timeout_cs: u64,
    /// Whether blocking callbacks are wanted for this lock.
    pub wants_blocking: bool,
}

/// A submission's plain meaning. Borrows name and value block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operation<'a> {
    /// A new lock, or the adoption of an orphan.
    Lock {
        /// The common part.
        call: CallArgs,
        /// Resource name, 0 to [`NAME_BYTES_MAX`] bytes; [`Submission::new`] panics on a longer
        /// one.
        name: &'a [u8],
    },
    /// A conversion.
    Convert {
        /// The common part.
        call: CallArgs,
        /// The lock.
        lkid: u32,
        /// The caller's value block, if it sends one.
        value: Option<&'a [u8; VALUE_BYTES]>,
    },
    /// An unlock or a cancel.
    Unlock {
        /// The lock.
        lkid: u32,
        /// LKF_ flags.
        flags: u32,
        /// Replaces the lock's word if present.
        user: Option<u64>,
        /// The caller's value block, if it sends one.
        value: Option<&'a [u8; VALUE_BYTES]>,
    },
    /// Ends a pending operation with EDEADLK.
    DeadlockCancel {
        /// The lock.
        lkid: u32,
        /// LKF_ flags.
        flags: u32,
    },
    /// Removes orphans.
    Purge {
        /// Node whose orphans are meant; 0: this node.
        node: u32,
        /// Owner's pid.
        pid: u32,
    },
}

/// Why a submission is none. A client that sends one is ended (ipc.md section 3).
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BadSubmission {
    /// Unknown operation.
    #[error("operation {0} does not exist; the client does not speak this layout version")]
    Op(u8),
    /// Name longer than the payload.
    #[error("a name of {0} bytes does not fit an entry; at most 64 are possible")]
    NameLength(u8),
}

impl Submission {
    /// An entry for `operation`. The answer will carry `tag`; without `reply_wanted` a success is
    /// not answered and a refusal comes as an event.
    ///
    /// # Panics
    /// If a name is longer than [`NAME_BYTES_MAX`]: the client library has refused it before.
    pub fn new(operation: &Operation<'_>, tag: u64, reply_wanted: bool) -> Self {
        let mut entry = Self { tag, ..Self::EMPTY };
        match *operation {
            Operation::Lock { call, name } => {
                entry.set_call(op::LOCK, &call);
                entry.payload[..name.len()].copy_from_slice(name);
                entry.name_len = name.len() as u8;
            }
            Operation::Convert { call, lkid, value } => {
                entry.set_call(op::CONVERT, &call);
                entry.lkid = lkid;
                entry.set_value(value);
            }
            Operation::Unlock { lkid, flags, user, value } => {
                (entry.op, entry.lkid, entry.flags) = (op::UNLOCK, lkid, flags);
                if let Some(user) = user {
                    entry.user = user;
                    entry.hints |= hint::USER;
                }
                entry.set_value(value);
            }
            Operation::DeadlockCancel { lkid, flags } => {
                (entry.op, entry.lkid, entry.flags) = (op::DEADLOCK_CANCEL, lkid, flags);
            }
            Operation::Purge { node, pid } => {
                (entry.op, entry.lkid, entry.flags) = (op::PURGE, pid, node);
            }
        }
        if reply_wanted {
            entry.hints |= hint::REPLY;
        }
        entry
    }

    /// The plain meaning of an entry that was copied out of the page.
    ///
    /// # Errors
    /// The operation does not exist, or a name is too long.
    pub fn operation(&self) -> Result<Operation<'_>, BadSubmission> {
        let (lkid, flags) = (self.lkid, self.flags);
        Ok(match self.op {
            op::LOCK => {
                let name = self.payload.get(..usize::from(self.name_len));
                let name = name.ok_or(BadSubmission::NameLength(self.name_len))?;
                Operation::Lock { call: self.call(), name }
            }
            op::CONVERT => Operation::Convert { call: self.call(), lkid, value: self.value() },
            op::UNLOCK => {
                let user = (self.hints & hint::USER != 0).then_some(self.user);
                Operation::Unlock { lkid, flags, user, value: self.value() }
            }
            op::DEADLOCK_CANCEL => Operation::DeadlockCancel { lkid, flags },
            op::PURGE => Operation::Purge { node: flags, pid: lkid },
            other => return Err(BadSubmission::Op(other)),
        })
    }

    /// Whether the client wants a reply also on success.
    pub fn reply_wanted(&self) -> bool {
        self.hints & hint::REPLY != 0
    }

    const EMPTY: Self = Self {
        op: 0,
        mode: 0,
        name_len: 0,
        hints: 0,
        flags: 0,
        lkid: 0,
        pad: 0,
        user: 0,
        xid: 0,
        timeout: 0,
        tag: 0,
        reserved: [0; 16],
        payload: [0; 64],
    };

    fn set_call(&mut self, op: u8, call: &CallArgs) {
        (self.op, self.mode, self.flags) = (op, call.mode, call.flags);
        (self.user, self.xid, self.timeout) = (call.user, call.xid, call.timeout_cs);
        if call.wants_blocking {
            self.hints |= hint::BLOCKING;
        }
    }

    fn call(&self) -> CallArgs {
        CallArgs {
            mode: self.mode,
            flags: self.flags,
            user: self.user,
            xid: self.xid,
            timeout_cs: self.timeout,
            wants_blocking: self.hints & hint::BLOCKING != 0,
        }
    }

    fn set_value(&mut self, value: Option<&[u8; VALUE_BYTES]>) {
        if let Some(value) = value {
            self.payload[..VALUE_BYTES].copy_from_slice(value);
            self.hints |= hint::VALUE;
        }
    }

    fn value(&self) -> Option<&[u8; VALUE_BYTES]> {
        let value = self.payload.first_chunk();
        value.filter(|_| self.hints & hint::VALUE != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_means_what_it_was_made_of() {
        let call = CallArgs {
            mode: 5,
            flags: 0x4_0088,
            user: 1 << 40,
            xid: 9,
            timeout_cs: 250,
            wants_blocking: true,
        };
        let plain = CallArgs { mode: 255, ..CallArgs::default() };
        let value = [7; VALUE_BYTES];
        let long = [b'n'; NAME_BYTES_MAX];
        let all = [
            Operation::Lock { call, name: b"a\0b" },
            Operation::Lock { call: plain, name: b"" },
            Operation::Lock { call, name: &long },
            Operation::Convert { call, lkid: 3, value: Some(&value) },
            Operation::Convert { call: plain, lkid: u32::MAX, value: None },
            Operation::Unlock { lkid: 3, flags: 8, user: Some(0), value: Some(&value) },
            Operation::Unlock { lkid: 3, flags: 2, user: None, value: None },
            Operation::DeadlockCancel { lkid: 4, flags: 2 },
            Operation::Purge { node: 2, pid: 77 },
        ];
        for operation in &all {
            for reply_wanted in [false, true] {
                let entry = Submission::new(operation, 42, reply_wanted);
                assert_eq!(entry.operation(), Ok(*operation));
                assert_eq!((entry.tag, entry.reply_wanted()), (42, reply_wanted));
            }
        }
    }

    #[test]
    fn unknown_operations_and_long_names_are_refused() {
        for number in (0..=255).filter(|number| !(op::LOCK..=op::PURGE).contains(number)) {
            let entry = Submission { op: number, ..Submission::EMPTY };
            assert_eq!(entry.operation(), Err(BadSubmission::Op(number)));
        }
        let entry = |name_len| Submission { op: op::LOCK, name_len, ..Submission::EMPTY };
        assert!(entry(64).operation().is_ok());
        assert_eq!(entry(65).operation(), Err(BadSubmission::NameLength(65)));
        assert_eq!(entry(255).operation(), Err(BadSubmission::NameLength(255)));
    }
}
