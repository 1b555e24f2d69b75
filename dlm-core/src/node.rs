//! The state machine's front: one dispatcher over inputs.

use crate::{
    DumpPage, Input, Instant, LockspaceId, LockspaceInfo, Member, NodeCounters, Outbox, Reason,
    ResourceInfo,
};

/// Ceilings of one node; each is refused with ENOMEM when reached.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Lockspaces.
    pub lockspaces: u32,
    /// Locks owned by one client.
    pub locks_per_client: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self { lockspaces: 1024, locks_per_client: 4_000_000 }
    }
}

/// A node of the lock manager.
#[derive(Debug)]
pub struct Node {
    member: Member,
}

impl Node {
    /// A node without lockspaces.
    pub fn new(member: Member) -> Self {
        Self { member }
    }

    /// Replaces the ceilings.
    pub fn set_limits(&mut self, _limits: Limits) {}

    /// Who this node is.
    pub fn member(&self) -> Member {
        self.member
    }

    /// Feeds one input at `now` and appends what must be done, in the order in which it must be done.
    pub fn step(&mut self, _now: Instant, _input: Input<'_>, _out: &mut Outbox) {}

    /// When [`Input::Tick`] is next needed, and why.
    pub fn deadline(&self) -> Option<(Instant, Reason)> {
        None
    }

    /// The lockspace of this name, if it exists here (also while joining or leaving).
    pub fn find_lockspace(&self, _name: &[u8]) -> Option<LockspaceId> {
        None
    }

    /// A lockspace's facts.
    pub fn lockspace(&self, _id: LockspaceId) -> Option<LockspaceInfo> {
        None
    }

    /// All lockspaces, by name.
    pub fn lockspaces(&self) -> Vec<LockspaceInfo> {
        Vec::new()
    }

    /// A part of a lockspace's table: resources from position `from` (0 at first, then
    /// [`DumpPage::next`]) until `locks_max` locks are collected, at least one resource. A lock that
    /// is held all the time appears exactly once over all pages.
    pub fn dump(&self, _id: LockspaceId, _from: u64, _locks_max: usize) -> DumpPage {
        DumpPage::default()
    }

    /// One resource by name.
    pub fn resource(&self, _id: LockspaceId, _name: &[u8]) -> Option<ResourceInfo> {
        None
    }

    /// Counts since the start.
    pub fn counters(&self) -> NodeCounters {
        NodeCounters::default()
    }
}
