//! Who and what: small copyable names for nodes, clients, locks, lockspaces and grants.

use core::fmt;

/// A cluster node's configured number, 1 or higher.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct NodeId(pub u32);

/// One stay of a node in a lockspace: the number, plus which start of its daemon and which join of
/// that start this is. Locks, masters and directory entries name members, never bare node numbers, so
/// that neither a quick restart nor a quick leave and join is mistaken for the stay before, not even
/// by a member that missed the view between them.
///
/// A daemon's life is the member with incarnation `start * JOINS_PER_LIFE`; the joins of a life count up
/// from there, over all lockspaces.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Member {
    /// The node's number.
    pub node: NodeId,
    /// Which life or stay of that node; larger is later.
    pub incarnation: u64,
}

/// Joins that a daemon can make until it has to be started again.
pub const JOINS_PER_LIFE: u64 = 1 << 24;

impl Member {
    /// The life of node `node` that is its daemon's start number `start`.
    pub const fn of_start(node: NodeId, start: u64) -> Self {
        Self { node, incarnation: start * JOINS_PER_LIFE }
    }

    /// The life that this stay belongs to.
    pub const fn life(self) -> Self {
        let joins = self.incarnation % JOINS_PER_LIFE;
        Self { node: self.node, incarnation: self.incarnation - joins }
    }

    /// Whether this is a stay of that life.
    pub const fn is_of_life(self, life: Self) -> bool {
        let joins = self.incarnation.wrapping_sub(life.incarnation);
        self.node.0 == life.node.0 && joins < JOINS_PER_LIFE
    }
}

/// One open handle on one lockspace, named by the driver. The slot indexes the driver's table and
/// may be used again with a higher generation once the core was told that the client is gone.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ClientId {
    /// Index in the driver's client table; kept small by the driver.
    pub slot: u32,
    /// Which user of the slot.
    pub generation: u32,
}

impl ClientId {
    /// A client id of this slot and generation.
    pub const fn new(slot: u32, generation: u32) -> Self {
        Self { slot, generation }
    }
}

/// A lock's id within its lockspace on this node. Never 0. It carries a generation, so a stale id
/// answers ENOENT and never reaches another lock (semantics.md D1).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct LockId(pub u32);

impl fmt::Debug for LockId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}", self.0)
    }
}

/// A lockspace's index on this node, valid while the lockspace exists.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct LockspaceId(pub u32);

/// Number of a view of one lockspace; from one cluster-wide sequence, never used twice.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct ViewId(pub u32);

/// A grant's number: view in the high half, a counter in the low half. For one name it only grows,
/// so that a store can refuse a holder that was overtaken.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Token(pub u64);
