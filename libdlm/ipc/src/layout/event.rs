//! What the daemon tells a client: 16-byte replies (ipc.md 2.2) and 64-byte events (2.3).

use core::mem::{offset_of, size_of};

use super::VALUE_BYTES;

/// A reply entry: the answer to a submission that asked for one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct Reply {
    /// 0, or a positive errno.
    pub result: i32,
    /// The lock of an accepted lock request, else 0.
    pub lkid: u32,
    /// The submission's tag.
    pub tag: u64,
}

const _: () = assert!(size_of::<Reply>() == 16 && offset_of!(Reply, tag) == 8);

/// An event entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct Event {
    /// 1 completion, 2 blocking, 3 refused.
    pub kind: u8,
    /// Completion: granted mode, 255 for none; blocking: the blocked mode.
    pub mode: u8,
    /// Completion: DLM_SBF_ flags.
    pub sb_flags: u8,
    /// Completion: not 0 if `value` is to be copied to the caller.
    pub has_value: u8,
    /// Completion: positive status; refused: positive errno.
    pub status: i32,
    /// The lock; refused: the one named by the submission.
    pub lkid: u32,
    /// 0.
    pub pad: u32,
    /// The lock's word; refused: the submission's.
    pub user: u64,
    /// Completion: the grant's number; refused: the submission's tag.
    pub token: u64,
    /// Value block.
    pub value: [u8; VALUE_BYTES],
}

const _: () = assert!(size_of::<Event>() == 64);
const _: () = assert!(offset_of!(Event, status) == 4 && offset_of!(Event, lkid) == 8);
const _: () = assert!(offset_of!(Event, user) == 16 && offset_of!(Event, token) == 24);
const _: () = assert!(offset_of!(Event, value) == 32);

const COMPLETION: u8 = 1;
const BLOCKING: u8 = 2;
const REFUSED: u8 = 3;
/// `mode` of a completion whose lock is gone.
const NO_MODE: u8 = 255;

/// An event's plain meaning.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Notice {
    /// An accepted operation ended.
    Completion {
        /// The lock.
        lkid: u32,
        /// The lock's word.
        user: u64,
        /// Positive status: 0, EAGAIN, 0x10001 …
        status: i32,
        /// DLM_SBF_ flags.
        sb_flags: u8,
        /// The mode the lock holds now; `None`: the lock is gone.
        granted: Option<u8>,
        /// Value block to be copied to the caller.
        value: Option<[u8; VALUE_BYTES]>,
        /// The grant's number.
        token: u64,
    },
    /// Somebody wants a mode that this lock blocks.
    Blocking {
        /// The lock.
        lkid: u32,
        /// The lock's word.
        user: u64,
        /// The blocked mode.
        mode: u8,
    },
    /// A submission without reply hint was refused.
    Refused {
        /// The lock named by the submission, or 0.
        lkid: u32,
        /// The submission's word.
        user: u64,
        /// The submission's tag.
        tag: u64,
        /// Positive errno.
        errno: i32,
    },
}

/// An event of no known kind: the daemon speaks another version.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("event kind {0} does not exist; client library and dlmd must be of the same version")]
pub struct BadEvent(pub u8);

impl Event {
    /// The entry that says `notice`.
    pub fn new(notice: &Notice) -> Self {
        let zero = [0; VALUE_BYTES];
        match *notice {
            Notice::Completion { lkid, user, status, sb_flags, granted, value, token } => Self {
                kind: COMPLETION,
                mode: granted.unwrap_or(NO_MODE),
                sb_flags,
                has_value: u8::from(value.is_some()),
                value: value.unwrap_or(zero),
                ..Self::bare(lkid, user, status, token)
            },
            Notice::Blocking { lkid, user, mode } => {
                Self { kind: BLOCKING, mode, ..Self::bare(lkid, user, 0, 0) }
            }
            Notice::Refused { lkid, user, tag, errno } => {
                Self { kind: REFUSED, ..Self::bare(lkid, user, errno, tag) }
            }
        }
    }

    /// The plain meaning of an entry.
    ///
    /// # Errors
    /// The kind does not exist.
    pub fn notice(&self) -> Result<Notice, BadEvent> {
        let (lkid, user) = (self.lkid, self.user);
        Ok(match self.kind {
            COMPLETION => Notice::Completion {
                lkid,
                user,
                status: self.status,
                sb_flags: self.sb_flags,
                granted: (self.mode != NO_MODE).then_some(self.mode),
                value: (self.has_value != 0).then_some(self.value),
                token: self.token,
            },
            BLOCKING => Notice::Blocking { lkid, user, mode: self.mode },
            REFUSED => Notice::Refused { lkid, user, tag: self.token, errno: self.status },
            other => return Err(BadEvent(other)),
        })
    }

    const fn bare(lkid: u32, user: u64, status: i32, token: u64) -> Self {
        let value = [0; VALUE_BYTES];
        Self {
            kind: 0,
            mode: 0,
            sb_flags: 0,
            has_value: 0,
            status,
            lkid,
            pad: 0,
            user,
            token,
            value,
        }
    }
}

/// Why a lockspace was lost for a client: the `lost` word of its page, and the `Lost` message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum LostReason {
    /// The daemon is gone; written by nobody, concluded by the client from the hang-up.
    DaemonGone = 1,
    /// The daemon was told to stop.
    Shutdown = 2,
    /// The lockspace was removed by force.
    Removed = 3,
    /// The client broke the rules of its pages.
    Protocol = 4,
    /// This node lost the cluster.
    NodeLost = 5,
    /// The lease ran out.
    LeaseEnded = 6,
}

impl LostReason {
    const ALL: [Self; 6] = [
        Self::DaemonGone,
        Self::Shutdown,
        Self::Removed,
        Self::Protocol,
        Self::NodeLost,
        Self::LeaseEnded,
    ];

    /// The reason of a number; `None` for 0 (alive). An unknown number is a reason all the same:
    /// the daemon knew one that we do not, and the lockspace is lost.
    pub fn from_number(number: u32) -> Option<Self> {
        let known = Self::ALL.into_iter().find(|reason| *reason as u32 == number);
        known.or((number != 0).then_some(Self::NodeLost))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_means_what_it_was_made_of() {
        let value = Some([9; VALUE_BYTES]);
        let gone = Notice::Completion {
            lkid: 1,
            user: 2,
            status: 0x10002,
            sb_flags: 0,
            granted: None,
            value: None,
            token: 0,
        };
        let granted = Notice::Completion {
            lkid: 1,
            user: u64::MAX,
            status: 0,
            sb_flags: 3,
            granted: Some(5),
            value,
            token: 1 << 33,
        };
        let blocking = Notice::Blocking { lkid: 8, user: 9, mode: 3 };
        let refused = Notice::Refused { lkid: 8, user: 9, tag: 10, errno: 22 };
        for notice in [gone, granted, blocking, refused] {
            assert_eq!(Event::new(&notice).notice(), Ok(notice));
        }
        let unknown = Event { kind: 4, ..Event::new(&blocking) };
        assert_eq!(unknown.notice(), Err(BadEvent(4)));
    }

    #[test]
    fn every_number_but_zero_is_a_loss() {
        assert_eq!(LostReason::from_number(0), None);
        for reason in LostReason::ALL {
            assert_eq!(LostReason::from_number(reason as u32), Some(reason));
        }
        assert_eq!(LostReason::from_number(99), Some(LostReason::NodeLost));
    }
}
