//! What members of a lockspace say to each other (recovery.md section 3).
//!
//! Directory and recovery messages are valid in one view only and carry its id; lock traffic is
//! valid while its receiver is the master and carries none. Every message names the stay of its sender
//! and of its receiver ([`Member`]): what is left of an earlier stay of the same node is for nobody.

use crate::{LockFlags, LockId, Member, Mode, Name, SbFlags, Token, Value, ViewId};

/// A message between two members of one lockspace.
#[derive(Clone, PartialEq, Hash, Debug)]
pub struct Message {
    /// The lockspace's cluster-wide number.
    pub space: u32,
    /// The sender's incarnation in the lockspace ([`Member::incarnation`]).
    pub from: u64,
    /// The receiver's incarnation in the lockspace.
    pub to: u64,
    /// What is said.
    pub body: Body,
}

/// What is said.
#[derive(Clone, PartialEq, Hash, Debug)]
pub enum Body {
    /// Directory and recovery, in the view of this id.
    Tagged(ViewId, Tagged),
    /// Lock traffic.
    Traffic(Traffic),
}

impl Body {
    /// Whether somebody waits for this message alone. The rest is about many names, of which there may
    /// be very many messages at once: it takes its time, and these go past it.
    pub fn is_prompt(&self) -> bool {
        match self {
            Self::Tagged(_, tagged) => {
                matches!(tagged, Tagged::Lookup { .. } | Tagged::LookupReply { .. })
            }
            Self::Traffic(traffic) => !matches!(traffic, Traffic::Recorded { .. }),
        }
    }
}

/// Directory and recovery messages.
#[derive(Clone, PartialEq, Hash, Debug)]
pub enum Tagged {
    /// Who masters this name? If nobody: I do from now on.
    Lookup {
        /// The name.
        name: Name,
        /// A mastership that answered «not me»: wait until the entry is another.
        refused: Option<(Member, Token)>,
    },
    /// The answer to a lookup.
    LookupReply {
        /// The name.
        name: Name,
        /// Its master.
        master: Member,
        /// The mastership's number.
        term: Token,
    },
    /// The master forgets an idle name.
    Remove {
        /// The name.
        name: Name,
        /// The mastership's number.
        term: Token,
        /// The last grant's number.
        last: Token,
    },
    /// The directory forgot it as well.
    RemoveAck {
        /// The name.
        name: Name,
        /// The mastership's number.
        term: Token,
    },
    /// The new owner of these slots asks for the names mastered there; ranges are inclusive.
    NeedNames {
        /// Ranges of slots.
        slots: Vec<(u16, u16)>,
    },
    /// Names mastered by the sender, with the mastership's number and the last grant's.
    Names {
        /// A window of them.
        names: Vec<(Name, Token, Token)>,
    },
    /// All names were said.
    NamesDone,
    /// The sender has locks on a name whose master is lost, and wants a master for it.
    Claim {
        /// The name.
        name: Name,
    },
    /// The answer to a claim.
    ClaimReply {
        /// The name.
        name: Name,
        /// Its new master.
        master: Member,
        /// The mastership's number.
        term: Token,
    },
    /// One lock of the sender, for the new master.
    Record(Box<Record>),
    /// Every lock that had to move was sent, and every lost member is harmless.
    LocksDone {
        /// The sender's layout of the lockspace, as a number: who has another one is not one of us.
        layout: u32,
    },
    /// A name that the sender mastered by its slot, for the slot's new owner (nodir only).
    Value(Box<Ceded>),
}

/// What a master by slot knows of a name that it gives up.
#[derive(Clone, PartialEq, Hash, Debug)]
pub struct Ceded {
    /// The name.
    pub name: Name,
    /// The value block, once written.
    pub value: Option<Value>,
    /// Times it was written.
    pub seq: u32,
    /// The VALNOTVALID mark.
    pub invalid: bool,
    /// The last grant's number: of two that gave the name up, the later one counts.
    pub last: Token,
    /// Whether the sender had the slot right before, so that nobody can have written since.
    pub sure: bool,
}

/// A lock as its owner knows it, for the new master of its name.
#[derive(Clone, PartialEq, Hash, Debug)]
pub struct Record {
    /// The name.
    pub name: Name,
    /// The owner's id for it.
    pub lock: LockId,
    /// Number of the mastership that the receiver was given for the name.
    pub under: Token,
    /// Number of the last mastership the lock was settled under.
    pub term: Token,
    /// Granted mode.
    pub granted: Option<Mode>,
    /// Requested mode, where the lock is queued.
    pub requested: Option<Mode>,
    /// Its place in the old master's queue, if it was ever given one.
    pub place: Option<i64>,
    /// Sticky flags.
    pub flags: LockFlags,
    /// Owner's process id.
    pub pid: u32,
    /// The owner's value block, if it has one: what an operation in flight writes.
    pub value: Option<Value>,
    /// The bytes it last read or wrote, under `value_seq`.
    pub seen: Option<Value>,
    /// These carried the VALNOTVALID mark.
    pub marked: bool,
    /// Value-block sequence number it saw.
    pub value_seq: u32,
    /// Strongest mode it was told about.
    pub told: Mode,
    /// The operation in flight.
    pub flight: Flight,
}

/// An operation in flight to a lost master.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Flight {
    /// Nothing that the new master must know.
    Nothing,
    /// A conversion to this mode.
    Convert(Mode),
    /// An unlock that writes or invalidates the value block.
    Unlock,
}

/// Lock traffic.
#[derive(Clone, PartialEq, Hash, Debug)]
pub enum Traffic {
    /// The sender of rebuilt names took them into service in round `round`.
    Thawed {
        /// The view in which they were rebuilt.
        round: ViewId,
    },
    /// The new master's id of a lock whose record it has. Like the thaw it counts over a change of
    /// the view, and comes before it.
    Recorded {
        /// The owner's id.
        lock: LockId,
        /// The master's id; 0: it serves the name and does not know the lock.
        id: LockId,
    },
    /// A new lock.
    Request {
        /// The name.
        name: Name,
        /// The owner's id.
        lock: LockId,
        /// Number of the operation on this lock; the reply repeats it.
        seq: u32,
        /// Requested mode.
        mode: Mode,
        /// Flags.
        flags: LockFlags,
        /// Owner's process id.
        pid: u32,
        /// The owner's view; counts where masters are by slot.
        view: ViewId,
    },
    /// A conversion.
    Convert {
        /// The master's id.
        to: LockId,
        /// The owner's id.
        lock: LockId,
        /// Number of the operation.
        seq: u32,
        /// Requested mode.
        mode: Mode,
        /// Flags.
        flags: LockFlags,
        /// The caller's value block.
        value: Option<Value>,
        /// The owner completed it already: no reply.
        silent: bool,
    },
    /// An unlock in any state.
    Unlock {
        /// The master's id.
        to: LockId,
        /// The owner's id.
        lock: LockId,
        /// Number of the operation.
        seq: u32,
        /// Sticky flags.
        flags: LockFlags,
        /// The caller's value block.
        value: Option<Value>,
    },
    /// A cancel of what is pending.
    Cancel {
        /// The master's id.
        to: LockId,
        /// The owner's id.
        lock: LockId,
        /// Number of the operation.
        seq: u32,
    },
    /// The master's answer to an operation.
    Reply {
        /// The owner's id.
        lock: LockId,
        /// The master's id.
        from: LockId,
        /// Number of the operation.
        seq: u32,
        /// How it went.
        outcome: Outcome,
        /// The lock as it is now.
        now: Standing,
    },
    /// A queued lock was granted.
    Grant {
        /// The owner's id.
        lock: LockId,
        /// The lock as it is now.
        now: Standing,
    },
    /// A lock blocks somebody.
    Blocking {
        /// The owner's id.
        lock: LockId,
        /// The mode that is blocked.
        mode: Mode,
    },
    /// The receiver of a request does not master its name.
    NotMaster {
        /// The owner's id.
        lock: LockId,
        /// Number of the operation.
        seq: u32,
    },
    /// Remove orphans of this node.
    Purge {
        /// Dead owner's process id; 0: all.
        pid: u32,
    },
}

/// How an operation went at the master.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Outcome {
    /// Granted or converted.
    Granted,
    /// It waits on a queue.
    Queued,
    /// NOQUEUE and not grantable.
    Again,
    /// Conversion deadlock.
    Deadlock,
    /// Cancelled.
    Cancelled,
    /// There was nothing to cancel.
    NothingToCancel,
    /// Unlocked, or unknown to the master: gone either way.
    Unlocked,
}

/// A lock as its master sees it.
#[derive(Clone, Copy, PartialEq, Hash, Debug)]
pub struct Standing {
    /// Granted mode.
    pub granted: Option<Mode>,
    /// Flags for the status block.
    pub sb_flags: SbFlags,
    /// The master's copy of the value block.
    pub value: Option<Value>,
    /// That copy is what the resource holds under `value_seq`.
    pub seen: bool,
    /// That carried the VALNOTVALID mark.
    pub marked: bool,
    /// Value-block sequence number.
    pub value_seq: u32,
    /// Number of the last grant.
    pub token: Token,
    /// Number of the mastership: the owner may remember an earlier one.
    pub term: Token,
    /// Its place in its queue.
    pub place: i64,
}
