//! What goes into a step and what comes out of it.

use crate::{
    ClientId, Errno, Instant, LockFlags, LockId, LockspaceId, Member, Message, Mode, NodeId,
    SbFlags, SpaceFlags, Status, Token, Value, View, ViewId,
};

/// One thing that happened.
#[derive(Debug)]
pub enum Input<'a> {
    /// A client asks for something. The first request of a client is [`Request::Open`].
    Client(ClientId, Request<'a>),
    /// A client's process or connection is gone. No output for it follows; its slot may be used again
    /// from now on, under a higher generation.
    ClientGone(ClientId),
    /// Membership installed a view of a lockspace: the answer to [`Output::Join`], and later changes.
    View(LockspaceId, View),
    /// A member of another life, or of another view, is harmless from now on: it neither acts for
    /// its clients nor grants (recovery.md B3). True for every lockspace, and remembered.
    Safe(Member),
    /// A message from this node, in the order in which it was sent. The driver vouches for the node,
    /// and that the message's sender belongs to the life it talks to ([`Member::is_of_life`]).
    Peer(NodeId, Message),
    /// This node was excluded, or its lockspace cannot be kept: everything in it is lost, and its
    /// clients are told why.
    Reset(LockspaceId, LossReason),
    /// An administrator removes orphans of `lockspace` that belonged to `pid` (0: of everybody), as
    /// [`Request::Purge`] does for a client. Answered by nothing; count before with
    /// [`Node::dump`](crate::Node::dump).
    PurgeOrphans(LockspaceId, u32),
    /// Until when this node may grant, complete and deliver (membership.md, Lease; recovery.md R20).
    /// From that moment on it takes part in recovery and nothing else, until a later one comes. A
    /// node that was never told of one needs none.
    LeaseUntil(Instant),
    /// The deadline of [`Node::deadline`](crate::Node::deadline) has come.
    Tick,
}

/// Why a lockspace was lost (dlm_ext.h shows the numbers).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum LossReason {
    /// The cluster went on without this node.
    Excluded = 1,
    /// The node's daemon ended or lost its cluster.
    Daemon = 2,
    /// An administrator removed the lockspace by force.
    Released = 3,
}

/// A client's request. Every one is answered by exactly one [`Output::Reply`]. Calls on locks are refused
/// with EUNATCH while the node is without its lease; a driver that wants its clients to wait keeps
/// them until [`Node::is_frozen`](crate::Node::is_frozen) says no.
#[derive(Debug)]
pub enum Request<'a> {
    /// Create, or open, a lockspace and bind this client to it (semantics.md section 9).
    Open(Open<'a>),
    /// Ask for a new lock, or adopt an orphan.
    Lock(LockCall<'a>),
    /// Convert a lock.
    Convert(Convert<'a>),
    /// Unlock or cancel.
    Unlock(Unlock<'a>),
    /// Cancel a pending operation; its completion will say EDEADLK.
    DeadlockCancel {
        /// The lock whose operation is to end.
        lock: LockId,
        /// CANCEL is implied; other bits are checked like those of an unlock.
        flags: LockFlags,
    },
    /// Remove orphans (6.5). `node` 0 or our own: `pid` of this client: everything this client owns;
    /// another pid: that owner's orphans; 0: all orphans. Another node: that node's orphans.
    Purge {
        /// Node whose orphans are meant.
        node: u32,
        /// Owner's pid.
        pid: u32,
    },
    /// End this handle: its locks go, or become orphans (6.4). The client's slot is free afterwards.
    Close,
    /// End this handle and take back one creation of its lockspace. Answered when the lockspace is
    /// gone, or with EBUSY where locks remain and `force` is false; the handle is gone either way.
    Release {
        /// Remove the lockspace although locks remain.
        force: bool,
    },
}

impl<'a> Request<'a> {
    /// Opens an existing lockspace, with nothing special.
    pub fn open(name: &'a str, pid: u32) -> Self {
        Self::Open(Open { name: name.as_bytes(), pid, create: None })
    }

    /// Creates a lockspace, or raises its creation count, and opens it.
    pub fn create(name: &'a str, pid: u32) -> Self {
        let create = Create { flags: SpaceFlags(0), access: Access::default() };
        Self::Open(Open { name: name.as_bytes(), pid, create: Some(create) })
    }
}

/// Arguments of [`Request::Open`].
#[derive(Debug)]
pub struct Open<'a> {
    /// Lockspace name, 1 to 64 bytes.
    pub name: &'a [u8],
    /// Process id of the opener, as the daemon sees it.
    pub pid: u32,
    /// Present when the lockspace is to be created.
    pub create: Option<Create>,
}

/// How to create a lockspace.
#[derive(Clone, Copy, Hash, Debug)]
pub struct Create {
    /// Creation flags.
    pub flags: SpaceFlags,
    /// Who may open it; used only if it does not exist yet.
    pub access: Access,
}

/// Owner, group and mode of a lockspace, as of a device node. The core only keeps them; the driver
/// checks them before it passes an [`Request::Open`] on.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Access {
    /// Owning user id.
    pub uid: u32,
    /// Owning group id.
    pub gid: u32,
    /// Permission bits.
    pub mode: u32,
}

/// What lock and convert calls have in common.
#[derive(Clone, Copy, Debug, Default)]
pub struct Call {
    /// Requested mode as the caller wrote it; checked by the core.
    pub mode: u8,
    /// Flags.
    pub flags: LockFlags,
    /// The caller's word for this lock, returned with its completions and blocking callbacks.
    pub user: u64,
    /// Transaction id, for display.
    pub xid: u64,
    /// Time limit in centiseconds, with TIMEOUT; 0 means none.
    pub timeout_cs: u64,
    /// Whether the caller wants blocking callbacks for this lock.
    pub wants_blocking: bool,
}

/// Arguments of [`Request::Lock`]. The caller's value block plays no part in a new request (6.2).
#[derive(Clone, Copy, Debug)]
pub struct LockCall<'a> {
    /// The common part.
    pub call: Call,
    /// Resource name.
    pub name: &'a [u8],
}

/// Arguments of [`Request::Convert`].
#[derive(Clone, Copy, Debug)]
pub struct Convert<'a> {
    /// The common part.
    pub call: Call,
    /// The lock.
    pub lock: LockId,
    /// The caller's value block; looked at only with VALBLK (D4).
    pub value: Option<&'a Value>,
}

/// Arguments of [`Request::Unlock`].
#[derive(Clone, Copy, Debug)]
pub struct Unlock<'a> {
    /// The lock.
    pub lock: LockId,
    /// CANCEL, VALBLK, IVVALBLK, FORCEUNLOCK.
    pub flags: LockFlags,
    /// Replaces the caller's word for this lock if present.
    pub user: Option<u64>,
    /// The caller's value block; looked at only with VALBLK (D3).
    pub value: Option<&'a Value>,
}

/// One thing to do, in order.
#[derive(Clone, PartialEq, Hash, Debug)]
pub enum Output {
    /// The answer to a request. For [`Request::Lock`] the id of the lock, else 0. A request that
    /// was accepted and failed to be granted (NOQUEUE, EDEADLK) is `Ok` here; its completion tells.
    Reply {
        /// Whose request.
        client: ClientId,
        /// Lock id or errno.
        result: Result<LockId, Errno>,
    },
    /// An accepted operation ended.
    Complete {
        /// Whose lock.
        client: ClientId,
        /// How it ended.
        completion: Completion,
    },
    /// Somebody wants a mode that this lock blocks.
    Blocking {
        /// Whose lock.
        client: ClientId,
        /// Which lock, which mode.
        blocking: Blocking,
    },
    /// A lockspace was created here and waits for its first view, [`Input::View`].
    Join {
        /// Which lockspace.
        lockspace: LockspaceId,
        /// Its name.
        name: Vec<u8>,
        /// Its flags.
        flags: SpaceFlags,
        /// Who this node is in it: views name this member, and no later stay of this node does.
        member: Member,
    },
    /// The lockspace's grant numbers of this view are half spent: membership gives a view with a
    /// higher number and the same members, [`Input::View`] (recovery.md R19).
    NeedView {
        /// Which lockspace.
        lockspace: LockspaceId,
    },
    /// A message to another member; order per member matters.
    Send {
        /// Whom to.
        to: Member,
        /// What.
        message: Message,
    },
    /// A view was installed (B4).
    Acknowledge {
        /// Which lockspace.
        lockspace: LockspaceId,
        /// Which view.
        view: ViewId,
    },
    /// A client's lockspace is lost; its handle is dead and its id free.
    Lost {
        /// Whose.
        client: ClientId,
        /// Why.
        reason: LossReason,
    },
    /// A lockspace is gone from this node.
    Leave {
        /// Which lockspace; the id may be used again from now on.
        lockspace: LockspaceId,
        /// Its name.
        name: Vec<u8>,
    },
}

/// The end of an accepted operation.
#[derive(Clone, PartialEq, Hash, Debug)]
pub struct Completion {
    /// The lock.
    pub lock: LockId,
    /// The caller's word for it.
    pub user: u64,
    /// How the operation ended.
    pub status: Status,
    /// Flags for the status block.
    pub sb_flags: SbFlags,
    /// The mode the lock holds now; `None`: the lock is gone, its id and `user` are dead.
    pub granted: Option<Mode>,
    /// Value block to be copied to the caller, where one belongs to this completion (6.3).
    pub value: Option<Value>,
    /// The grant's number.
    pub token: Token,
}

/// A blocking callback.
#[derive(Clone, PartialEq, Hash, Debug)]
pub struct Blocking {
    /// The lock that blocks.
    pub lock: LockId,
    /// The caller's word for it.
    pub user: u64,
    /// The mode that is being blocked.
    pub mode: Mode,
}

/// Outputs of a step, in the order in which they must be carried out.
#[derive(Debug, Default)]
pub struct Outbox {
    outputs: Vec<Output>,
}

impl Outbox {
    /// An empty outbox; one is enough for a driver's life.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether nothing is to be done.
    pub fn is_empty(&self) -> bool {
        self.outputs.is_empty()
    }

    /// Takes everything out, first to do first. Keeps the memory for the next step.
    pub fn drain(&mut self) -> impl Iterator<Item = Output> + '_ {
        self.outputs.drain(..)
    }

    /// Adds one thing to do behind the others.
    pub(crate) fn push(&mut self, output: Output) {
        self.outputs.push(output);
    }
}
