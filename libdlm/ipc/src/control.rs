//! Control requests and answers (ipc.md section 4), shared by dlmd and dlm_tool.
//!
//! One message, one answer, both bounded by [`CONTROL_BYTES_MAX`]. Long listings are pulled page by
//! page, so a slow or dying reader costs the daemon nothing.

use bincode::config::{Configuration, Limit, LittleEndian, Varint};
use bincode::{Decode, Encode};

mod cluster;

pub use cluster::{
    DaemonFencing, LocatedRecord, NodeFencing, RecoveryPage, RecoveryRecord, SpaceNodeRecord,
    StepUs, left, wall_seconds,
};

/// Largest encoded control message, in bytes.
pub const CONTROL_BYTES_MAX: usize = 128 * 1024;

/// Most lockspaces of one answer. There may be fewer, and more of them behind: none are the end.
pub const SPACES_PER_ANSWER: usize = 128;

/// Why a control message cannot be made or understood.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// More than [`CONTROL_BYTES_MAX`].
    #[error("{0} bytes of control message, {CONTROL_BYTES_MAX} are allowed; ask for less at once")]
    TooLong(usize),
    /// Bytes behind the end.
    #[error("{0} bytes follow the control message; dlmd and the tool must be of one version")]
    Trailing(usize),
    /// Not such a message.
    #[error("no control message ({0}); dlmd and the tool must be of one version")]
    Malformed(String),
}

/// A message of the control conversation: [`ControlRequest`] and [`ControlReply`].
pub trait ControlMessage: Encode + Decode<()> {
    /// The message's bytes.
    ///
    /// # Errors
    /// It is too long: put fewer records into it.
    fn to_bytes(&self) -> Result<Vec<u8>, ControlError> {
        let bytes = bincode::encode_to_vec(self, CONFIG).map_err(malformed)?;
        if bytes.len() > CONTROL_BYTES_MAX {
            return Err(ControlError::TooLong(bytes.len()));
        }
        Ok(bytes)
    }

    /// Understands a message. A lying length allocates a few MiB at most.
    ///
    /// # Errors
    /// Everything that is not exactly such a message.
    fn from_bytes(bytes: &[u8]) -> Result<Self, ControlError> {
        if bytes.len() > CONTROL_BYTES_MAX {
            return Err(ControlError::TooLong(bytes.len()));
        }
        let (message, used) = bincode::decode_from_slice(bytes, CONFIG).map_err(malformed)?;
        match bytes.len() - used {
            0 => Ok(message),
            more => Err(ControlError::Trailing(more)),
        }
    }
}

impl ControlMessage for ControlRequest {}
impl ControlMessage for ControlReply {}

/// Ceiling of what a message may claim to need in memory while it is taken apart. The largest ratio
/// of memory to message is that of an empty string, 24 bytes to one.
const DECODED_BYTES_MAX: usize = 32 * CONTROL_BYTES_MAX;

const CONFIG: Configuration<LittleEndian, Varint, Limit<DECODED_BYTES_MAX>> =
    bincode::config::standard().with_limit::<DECODED_BYTES_MAX>();

fn malformed(error: impl std::fmt::Display) -> ControlError {
    ControlError::Malformed(error.to_string())
}

/// What a tool asks.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
pub enum ControlRequest {
    /// All lockspaces, by name; the first of them, up to [`SPACES_PER_ANSWER`].
    Lockspaces,
    /// The daemon, its cluster and its nodes.
    Status,
    /// A page of a lockspace's table, from `from` (0, then [`TablePage::next`]).
    Table {
        /// Lockspace name.
        lockspace: Vec<u8>,
        /// Position.
        from: u64,
    },
    /// One resource; refused with E2BIG if it has more locks than an answer holds (the table has them).
    Resource {
        /// Lockspace name.
        lockspace: Vec<u8>,
        /// Resource name.
        name: Vec<u8>,
    },
    /// Lines of the daemon's log ring with number `from` and higher.
    Log {
        /// First line wanted.
        from: u64,
    },
    /// Every configuration key with its value and where it came from.
    Config,
    /// Change a key at run time; `value` `restore` takes back an earlier change.
    SetConfig {
        /// Key.
        key: String,
        /// Value.
        value: String,
    },
    /// Read the configuration file again (keys that may change at run time).
    ReloadConfig,
    /// Remove orphans of `pid` (0: all) in a lockspace.
    Purge {
        /// Lockspace name.
        lockspace: Vec<u8>,
        /// Dead owner's pid, or 0.
        pid: u32,
    },
    /// Stop the daemon.
    Shutdown {
        /// Although lockspaces are in use.
        force: bool,
    },
    /// Counters for monitoring.
    Counters,
    /// An administrator's word that a node is fenced.
    FenceAck {
        /// Node id.
        node: u32,
    },
    /// The lockspaces that follow this name; to go on after an answer that was not empty.
    LockspacesAfter {
        /// Name of the last one that was told.
        name: Vec<u8>,
    },
    /// This node's stays in lockspaces whose name follows `after`, by name, and what else a feeder of
    /// views has to know (membership.md, external).
    Stays {
        /// Name of the last one that was told; empty at first.
        after: Vec<u8>,
    },
    /// Install a view of a lockspace; with `membership = external`.
    View {
        /// Lockspace name.
        lockspace: Vec<u8>,
        /// The view.
        view: ViewRecord,
    },
    /// This member is harmless: neither its daemon nor any client of it acts any more.
    Safe {
        /// The member.
        member: MemberRecord,
    },
    /// The cluster goes on without this life of this node, and without all lives before it.
    Exclude {
        /// The life.
        life: u64,
    },
    /// A page of the history of changes, from `from` (0, then [`RecoveryPage::next`]).
    Recovery {
        /// Lockspace name; empty: all.
        lockspace: Vec<u8>,
        /// Position.
        from: u64,
    },
    /// One resource as its master knows it, wherever that is; answered within a few seconds.
    Locate {
        /// Lockspace name.
        lockspace: Vec<u8>,
        /// Resource name.
        name: Vec<u8>,
    },
    /// The cluster still has this life of this node: its report of this moment was heard, and nobody
    /// had excluded it then.
    Tick {
        /// The life.
        life: u64,
        /// [`StaysRecord::tick`].
        at: u64,
    },
}

/// What the daemon answers.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
pub enum ControlReply {
    /// To [`ControlRequest::Lockspaces`] and [`ControlRequest::LockspacesAfter`].
    Lockspaces(Vec<SpaceRecord>),
    /// To [`ControlRequest::Status`].
    Status(StatusRecord),
    /// To [`ControlRequest::Table`].
    Table(TablePage),
    /// To [`ControlRequest::Resource`]; `None`: nobody uses the name.
    Resource(Option<ResourceRecord>),
    /// To [`ControlRequest::Log`].
    Log(LogPage),
    /// To [`ControlRequest::Config`], in table order.
    Config(Vec<ConfigRecord>),
    /// To [`ControlRequest::Purge`]: how many orphans were removed.
    Purged(u64),
    /// To [`ControlRequest::Counters`]: name and value, in a fixed order.
    Counters(Vec<(String, u64)>),
    /// Done.
    Done,
    /// Refused: an errno and one sentence that says what to do.
    Refused {
        /// Errno.
        errno: i32,
        /// Sentence.
        message: String,
    },
    /// To [`ControlRequest::Stays`].
    Stays(StaysRecord),
    /// To [`ControlRequest::Recovery`].
    Recovery(RecoveryPage),
    /// To [`ControlRequest::Locate`].
    Located(LocatedRecord),
}

/// One stay of a node in a lockspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
pub struct MemberRecord {
    /// Node id.
    pub node: u32,
    /// Which stay.
    pub incarnation: u64,
}

/// A view of a lockspace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct ViewRecord {
    /// Its number.
    pub id: u32,
    /// Members in ascending order.
    pub members: Vec<MemberRecord>,
    /// Members excluded earlier that are not known to be harmless.
    pub unsafe_members: Vec<MemberRecord>,
}

/// What a daemon tells a feeder of views.
#[derive(Clone, Debug, Default, PartialEq, Encode, Decode)]
pub struct StaysRecord {
    /// Node id.
    pub node: u32,
    /// The life that the daemon leads now; its stays have this number or one slightly above.
    pub life: u64,
    /// The first life of the daemon's process. Those between this one and `life` are over.
    pub first_life: u64,
    /// Lives that are over, while clients that were told so have not yet closed their handles.
    pub remains: Vec<u64>,
    /// Nodes that can be talked to now.
    pub connected: Vec<u32>,
    /// Nodes that cannot be talked to for too long.
    pub unreachable: Vec<u32>,
    /// Stays, by lockspace name.
    pub stays: Vec<StayRecord>,
    /// Whether more stays follow.
    pub more: bool,
    /// The node's clock when it wrote this, for [`ControlRequest::Tick`]; 0: it wants none now.
    pub tick: u64,
    /// How many nanoseconds after its exclusion a life of this node is harmless whatever becomes of it;
    /// 0: never by itself.
    pub safe_after: u64,
}

/// A node's stay in a lockspace.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
pub struct StayRecord {
    /// Lockspace name.
    pub lockspace: Vec<u8>,
    /// Which stay.
    pub incarnation: u64,
    /// The installed view, its unsafe members without those that are known to be harmless by now;
    /// number 0 and empty while joining.
    pub view: ViewRecord,
    /// Whether a view with a higher number is wanted.
    pub wants_view: bool,
}

/// A lockspace.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
pub struct SpaceRecord {
    /// Name.
    pub name: Vec<u8>,
    /// Cluster-wide number.
    pub global_id: u32,
    /// Creation flags (`DLM_LSFL_*`).
    pub flags: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Permission bits.
    pub mode: u32,
    /// Creations not yet released.
    pub create_count: u32,
    /// Open handles.
    pub handles: u32,
    /// State in one word: `joining`, `running`, `recovering`, `leaving`, `frozen`.
    pub state: String,
    /// What it waits for, for which node, since when, and what would end it; empty if nothing.
    pub waits_for: Vec<String>,
    /// View number; 0 while joining.
    pub view: u64,
    /// Member nodes in ascending order.
    pub members: Vec<u32>,
    /// The last completed change and one in progress.
    pub change: ChangeRecord,
    /// Change in progress, if any.
    pub next_change: Option<ChangeRecord>,
    /// Locks.
    pub locks: u64,
    /// Names in memory.
    pub resources: u64,
    /// Orphans.
    pub orphans: u64,
    /// Members, and nodes that were, by number.
    pub nodes: Vec<SpaceNodeRecord>,
}

/// A membership change of a lockspace.
#[derive(Clone, Debug, Default, PartialEq, Encode, Decode)]
pub struct ChangeRecord {
    /// Node that caused it.
    pub node: u32,
    /// How many joined.
    pub joined: u32,
    /// How many were removed.
    pub removed: u32,
    /// How many of these failed.
    pub failed: u32,
    /// Its number.
    pub seq: u64,
    /// Members after it.
    pub members: Vec<u32>,
    /// `wait ringid`, `wait quorum`, `wait fencing`, `wait messages <n>`, or empty.
    pub status: String,
}

/// The daemon and the cluster as it sees it.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
pub struct StatusRecord {
    /// Version of the daemon.
    pub version: String,
    /// Own node id.
    pub node: u32,
    /// This start's number.
    pub incarnation: u64,
    /// Cluster name.
    pub cluster: String,
    /// Membership backend.
    pub membership: String,
    /// Whether the cluster is quorate.
    pub quorate: bool,
    /// Cluster ring sequence and the daemon's own.
    pub ring: (u64, u64),
    /// Monotonic seconds of the daemon's clock now.
    pub now: u64,
    /// Seconds since the daemon started.
    pub uptime: u64,
    /// Process id.
    pub pid: u32,
    /// Nodes by id.
    pub nodes: Vec<NodeRecord>,
    /// Open client handles.
    pub clients: u32,
    /// What is waited for, in words.
    pub waits_for: Vec<String>,
    /// Fencing.
    pub fencing: DaemonFencing,
}

/// A cluster node.
#[derive(Clone, Debug, Default, PartialEq, Encode, Decode)]
pub struct NodeRecord {
    /// Node id.
    pub node: u32,
    /// Whether it is a member.
    pub member: bool,
    /// Address or empty.
    pub address: String,
    /// State in words.
    pub state: String,
    /// Monotonic seconds when it was added; 0 never.
    pub added: u64,
    /// Monotonic seconds when it was removed; 0 never.
    pub removed: u64,
    /// Monotonic seconds when it failed; 0 never.
    pub failed: u64,
    /// Monotonic seconds when it was fenced; 0 never.
    pub fenced: u64,
    /// Why it left ([`left`]); 0: it did not.
    pub left: u32,
    /// Fencing.
    pub fencing: NodeFencing,
}

/// A part of a lockspace's table.
#[derive(Clone, Debug, Default, PartialEq, Encode, Decode)]
pub struct TablePage {
    /// Resources, each whole; one with more locks than an answer holds goes on, under the same name,
    /// at the start of the next page.
    pub resources: Vec<ResourceRecord>,
    /// Where to go on; `None` at the end.
    pub next: Option<u64>,
}

/// A resource with its queues.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
pub struct ResourceRecord {
    /// Name.
    pub name: Vec<u8>,
    /// Master node; 0: this node.
    pub master: u32,
    /// Whether it has no master at the moment: that is being looked up, or a new one rebuilds it.
    pub unsettled: bool,
    /// Value block, if one is stored.
    pub value: Option<ValueRecord>,
    /// Granted, newest grant first; then converting and waiting, head first.
    pub locks: Vec<LockRecord>,
}

/// A stored value block.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
pub struct ValueRecord {
    /// Bytes.
    pub bytes: Vec<u8>,
    /// Sequence number.
    pub seq: u32,
    /// Whether it is valid.
    pub valid: bool,
}

/// A lock.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
pub struct LockRecord {
    /// Lock id.
    pub id: u32,
    /// Owner's node; 0: this node.
    pub node: u32,
    /// Id on the owner's node (or on the master), if that is another node.
    pub remote_id: u32,
    /// Owner's pid.
    pub pid: u32,
    /// Owner's program name, as the kernel knows it (`comm`); empty for the dead.
    pub program: String,
    /// Label the application gave.
    pub label: String,
    /// Whether it is an orphan.
    pub orphan: bool,
    /// Transaction id.
    pub xid: u64,
    /// Sticky LKF_ flags.
    pub flags: u32,
    /// 1 waiting, 2 granted, 3 converting.
    pub state: u8,
    /// Granted mode, or -1.
    pub granted: i8,
    /// Requested mode, or -1.
    pub requested: i8,
    /// Strongest mode the holder was told about, or -1.
    pub told: i8,
    /// How long ago it was told, microseconds.
    pub told_age_us: u64,
    /// How long it has been in its queue, microseconds.
    pub age_us: u64,
    /// Value-block sequence number seen last.
    pub value_seq: u32,
    /// Token of the last grant.
    pub token: u64,
}

/// Lines of the log ring.
#[derive(Clone, Debug, Default, PartialEq, Encode, Decode)]
pub struct LogPage {
    /// Number of the first line below.
    pub first: u64,
    /// Lines without newline: `<monotonic s> [<lockspace> ]text`.
    pub lines: Vec<String>,
    /// Where to go on; `None` at the end.
    pub next: Option<u64>,
}

/// A configuration key.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
pub struct ConfigRecord {
    /// Key.
    pub key: String,
    /// Value as text.
    pub value: String,
    /// Where it came from: empty for the default, else `set_config`, `cli option`, `dlm.conf`.
    pub source: String,
}

#[cfg(test)]
mod tests;
