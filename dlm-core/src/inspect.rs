//! What an operator sees: bounded pages of the lock table, without stopping anything.

use crate::{
    Access, ClientId, Instant, LockFlags, LockId, LockspaceId, Mode, NodeId, SpaceFlags, Token,
    Value, View,
};

/// A lockspace on this node.
#[derive(Clone, Debug, PartialEq)]
pub struct LockspaceInfo {
    /// Its index here.
    pub id: LockspaceId,
    /// Its name.
    pub name: Vec<u8>,
    /// The cluster-wide number derived from the name (libdlm-abi.md 4.3).
    pub global_id: u32,
    /// Creation flags.
    pub flags: SpaceFlags,
    /// Owner, group, mode.
    pub access: Access,
    /// How often it was created and not yet released.
    pub create_count: u32,
    /// Open handles.
    pub handles: u32,
    /// The installed view; `None` while joining.
    pub view: Option<View>,
    /// Whether it is being removed and only waits for its last handles.
    pub leaving: bool,
    /// Locks of any state.
    pub locks: u64,
    /// Names in memory.
    pub resources: u64,
    /// Locks whose owner is dead and that wait for adoption or purge.
    pub orphans: u64,
}

/// Where a lock stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockState {
    /// Waiting for its first grant.
    Waiting,
    /// Granted.
    Granted,
    /// Granted, and converting.
    Converting,
}

/// A lock as listings show it.
#[derive(Clone, Debug, PartialEq)]
pub struct LockInfo {
    /// Its id.
    pub id: LockId,
    /// The handle that owns it; `None` for an orphan.
    pub client: Option<ClientId>,
    /// Its owner's node and the id there, where the owner is not this node.
    pub remote: Option<(NodeId, LockId)>,
    /// Process id of its (perhaps dead) owner.
    pub pid: u32,
    /// Transaction id.
    pub xid: u64,
    /// Sticky flags.
    pub flags: LockFlags,
    /// Where it stands.
    pub state: LockState,
    /// Granted mode.
    pub granted: Option<Mode>,
    /// Requested mode, while something is pending.
    pub requested: Option<Mode>,
    /// Strongest mode its holder was told about, and when.
    pub told: Option<(Mode, Instant)>,
    /// When it entered its queue.
    pub since: Instant,
    /// Value-block sequence number it saw last.
    pub value_seq: u32,
    /// Number of its last grant.
    pub token: Token,
}

/// A resource as listings show it: locks in queue order.
#[derive(Clone, Debug, PartialEq)]
pub struct ResourceInfo {
    /// Its name.
    pub name: Vec<u8>,
    /// Its master; `None`: this node.
    pub master: Option<NodeId>,
    /// Value block with sequence number and whether it is valid, if one is stored.
    pub value: Option<(Value, u32, bool)>,
    /// Granted queue, newest grant first.
    pub granted: Vec<LockInfo>,
    /// Converting queue, head first.
    pub converting: Vec<LockInfo>,
    /// Waiting queue, head first.
    pub waiting: Vec<LockInfo>,
}

/// A bounded part of a lockspace's table.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DumpPage {
    /// Resources, each whole.
    pub resources: Vec<ResourceInfo>,
    /// Where to go on; `None` at the end.
    pub next: Option<u64>,
}

/// Counts since the start, for operators and benchmarks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeCounters {
    /// Steps made.
    pub steps: u64,
    /// New requests, conversions, unlocks and cancels that were accepted.
    pub operations: u64,
    /// Calls refused with an errno.
    pub refusals: u64,
    /// Grants, conversions included.
    pub grants: u64,
    /// Operations that had to queue.
    pub waits: u64,
    /// Blocking callbacks handed out.
    pub blocking: u64,
    /// Armed time limits at this moment.
    pub timers: u64,
}
