//! Names mastered elsewhere, or by nobody yet, and this node's locks on them.

use crate::lock::Queue;
use crate::message::{Flight, Traffic};
use crate::{LockId, Member, Mode, Status, Token, ViewId};

/// What this node is to a name that it does not simply serve.
#[derive(Clone, Hash, Debug)]
pub(crate) struct Role {
    pub(crate) kind: Kind,
    /// This node's locks on the name, in order of submission. They are on no queue here.
    pub(crate) own: Queue,
    /// Traffic of others that waits until this node knows what it is to the name (recovery.md R10).
    pub(crate) parked: Vec<(Member, Traffic)>,
    /// A claim is not answered yet: the directory may be about to name this node as the master, so
    /// the name is not forgotten before (R9).
    pub(crate) claimed: bool,
    /// The view in which it became what it is, or a record was last added.
    pub(crate) round: ViewId,
}

impl Role {
    /// Whether it is only remembered who masters the name.
    pub(crate) fn is_unused(&self) -> bool {
        let remote = matches!(self.kind, Kind::Remote { .. });
        remote && self.own.is_empty() && self.parked.is_empty() && !self.claimed
    }
}

/// The kinds of a [`Role`].
#[derive(Clone, Hash, Debug)]
pub(crate) enum Kind {
    /// The directory was asked.
    Lookup {
        /// The lock that made it ask; 0 where nobody wants the answer any more.
        first: LockId,
        /// The mastership that said «not me».
        refused: Option<(Member, Token)>,
    },
    /// Another member is the master.
    Remote {
        /// Which.
        master: Member,
        /// Number of its mastership.
        term: Token,
    },
    /// The master is lost; a new one was asked for.
    Claiming,
    /// This node is the new master and collects what owners know (recovery.md R14, R15).
    Rebuilding(Vec<Rebuilt>),
    /// This node was the master, has no lock, and told the directory to forget the name (R8).
    Leaving,
}

/// A lock record collected for a rebuilt name.
#[derive(Clone, Hash, Debug)]
pub(crate) struct Rebuilt {
    /// The lock here: this node's own, or a copy made for another member's.
    pub(crate) lock: u32,
    /// Its place in the old queue.
    pub(crate) place: Option<i64>,
    /// Number of the last mastership it was settled under.
    pub(crate) term: Token,
    /// What was in flight.
    pub(crate) flight: crate::message::Flight,
    /// What was in flight lowered its mode and counts as done.
    pub(crate) lowered: bool,
    /// Order of arrival, for those without a place.
    pub(crate) arrival: u32,
}

/// What an owner keeps of a lock that is mastered elsewhere.
#[derive(Clone, Hash, Debug, Default)]
pub(crate) struct Away {
    /// Whom its last operation was sent to: the master it is, or will be, settled with.
    pub(crate) master: Option<Member>,
    /// The master's id for it; 0 until known.
    pub(crate) master_id: LockId,
    /// Its place in the master's queue.
    pub(crate) place: Option<i64>,
    /// Number of the mastership it was last settled under.
    pub(crate) term: Token,
    /// The operation in flight, or about to be sent.
    pub(crate) op: Option<Op>,
    /// `op` was sent to a master that was lost since: it may have been done.
    pub(crate) reached: bool,
    /// Number of the last operation.
    pub(crate) seq: u32,
    /// The view in which its request was sent last.
    pub(crate) asked: ViewId,
    /// A cancel or unlock in flight beside `op`.
    pub(crate) beside: Option<Beside>,
    /// To be cancelled when the operation in flight is answered.
    pub(crate) noted_cancel: bool,
    /// To be unlocked when the operation in flight is answered.
    pub(crate) noted_unlock: bool,
    /// The caller gave bytes with its unlock: they are what is written, whatever is read until then.
    pub(crate) parting: bool,
    /// The caller gave bytes that its master does not know, with a call that was refused (6.2).
    pub(crate) given: bool,
    /// How a cancellation is reported.
    pub(crate) cancel_status: Option<Status>,
    /// Its name's master is being replaced; which master has its record, since which view.
    pub(crate) moving: Option<Moving>,
}

/// A lock between two masters.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Moving {
    /// Who has the record, and the first view in which it was sent.
    pub(crate) sent: Option<(Member, ViewId)>,
    /// What the record said was in flight; whatever was asked for later runs after the thaw.
    pub(crate) flight: Flight,
}

/// An operation of the owner.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Op {
    pub(crate) kind: OpKind,
    /// Number of the operation; 0 while it was not sent.
    pub(crate) seq: u32,
}

/// Kinds of operations.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum OpKind {
    Request,
    Convert(Mode),
    Unlock,
    Cancel,
}

/// What is in flight beside a conversion or a cancel.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Beside {
    /// Number of a cancel; 0: none.
    pub(crate) cancel: u32,
    /// Number of an unlock; 0: none.
    pub(crate) unlock: u32,
}

impl Away {
    /// Whether it is a request that nobody was sent yet.
    pub(crate) fn is_unsent_request(&self) -> bool {
        matches!(self.op, Some(Op { kind: OpKind::Request, seq: 0 }))
    }

    /// Whether an operation is in flight, noted, or waits to be sent.
    pub(crate) fn is_busy(&self) -> bool {
        self.op.is_some() || self.beside.is_some() || self.noted_cancel || self.noted_unlock
    }

    /// Whether an unlock is under way or noted.
    pub(crate) fn ends(&self) -> bool {
        let unlocking = matches!(self.op, Some(Op { kind: OpKind::Unlock, .. }));
        unlocking || self.noted_unlock || self.beside.is_some_and(|beside| beside.unlock != 0)
    }

    /// Whether a cancel is under way or noted.
    pub(crate) fn cancels(&self) -> bool {
        let cancelling = matches!(self.op, Some(Op { kind: OpKind::Cancel, .. }));
        cancelling || self.noted_cancel || self.beside.is_some_and(|beside| beside.cancel != 0)
    }
}
