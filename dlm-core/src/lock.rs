//! One lock: who owns it, where it stands, what it remembers.

use crate::seeded::{bug, cluster_fault};
use crate::slab::{NIL, Slab};
use crate::time::Coarse;
use crate::{ClientId, Instant, LockFlags, LockId, LockState, Mode, SbFlags, Token, Value};

/// Bits of a lock id that are the place in the storage; the rest is the place's generation.
const INDEX_BITS: u32 = 23;
/// Most locks of a lockspace on one node.
pub(crate) const LOCKS_MAX: usize = (1 << INDEX_BITS) - (1 << 14);
/// Vacated places kept unused: with the generations, a stale id stays dead for millions of new locks.
pub(crate) const LOCKS_FREE_MIN: usize = 8192;

/// Who a lock belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Owner {
    /// A client of this node.
    Client(ClientId),
    /// Nobody: its owner died and it was PERSISTENT (semantics.md 6.5).
    Orphan,
    /// Nobody, and it goes as soon as its master can be told.
    Nobody,
    /// Another member; this is the master's copy.
    Remote {
        /// Index of the member.
        peer: u16,
        /// The owner's id for it.
        id: LockId,
    },
}

/// A lock. Kept small: held locks are what the daemon's memory consists of.
#[derive(Clone, Hash, Debug)]
pub(crate) struct Lock {
    /// The id programs see.
    pub(crate) id: LockId,
    /// The resource, by index.
    pub(crate) resource: u32,
    /// Who it belongs to.
    pub(crate) owner: Owner,
    /// Which queue it is on.
    pub(crate) state: LockState,
    /// A request that is on the waiting queue, not only about to be judged.
    pub(crate) queued: bool,
    /// Granted mode; `None` is the interface's IV.
    pub(crate) granted: Option<Mode>,
    /// Requested mode while something is pending. On the granted queue: the left-over of a
    /// conversion that failed with EAGAIN, which still matters for order (3.5).
    pub(crate) requested: Option<Mode>,
    /// Bast memory: strongest mode the holder was told about since its last grant (3.5).
    pub(crate) told: Mode,
    /// Granted mode as of the last completion queued; `None`: no completion yet (5.2).
    pub(crate) cast: Option<Option<Mode>>,
    /// The last callback queued was a blocking one for this mode (5.2).
    pub(crate) last_blocking: Option<Mode>,
    /// Flags for the status block.
    pub(crate) sb_flags: SbFlags,
    /// Whether blocking callbacks are delivered.
    pub(crate) wants_blocking: bool,
    /// The next cancellation is reported as EDEADLK (4.4).
    pub(crate) deadlock_cancel: bool,
    /// Sticky flags (4.1).
    pub(crate) flags: LockFlags,
    /// Neighbours in its queue.
    pub(crate) links: Links,
    /// Neighbours among its owner's locks, oldest first.
    pub(crate) siblings: Links,
    /// Process id of the owner, dead or alive.
    pub(crate) pid: u32,
    /// The owner's word for it.
    pub(crate) user: u64,
    /// When it entered its queue.
    pub(crate) since: Coarse,
    /// Number of its last grant.
    pub(crate) token: Token,
    /// What few locks have.
    pub(crate) rare: Option<Box<Rare>>,
}

/// What few locks have.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rare {
    /// The caller's value block; exists once VALBLK was used (6.2).
    pub(crate) value: Option<Value>,
    /// The bytes it last read from the resource, or wrote to it. With a conversion under way `value`
    /// holds what the caller wants to write, which nobody may take for the resource's.
    pub(crate) seen: Option<Value>,
    /// The block carried the VALNOTVALID mark then.
    pub(crate) marked: bool,
    /// It held modes above CR ever since: nobody else can have written.
    pub(crate) current: bool,
    /// Value-block sequence number seen last.
    pub(crate) value_seq: u32,
    /// Transaction id.
    pub(crate) xid: u64,
    /// Time limit of the last call, in centiseconds (D12).
    pub(crate) limit_cs: u64,
    /// When the pending operation's time limit ends.
    pub(crate) limit: Option<Instant>,
    /// When the holder was told `told`.
    pub(crate) told_at: Instant,
    /// Its place in the queue, where masters are by slot and its master is this node.
    pub(crate) place: Option<i64>,
    /// What the owner keeps of a lock that is mastered elsewhere.
    pub(crate) away: Option<crate::away::Away>,
}

/// Neighbours in an intrusive list.
#[derive(Clone, Copy, Hash, Debug, Default)]
pub(crate) struct Links {
    prev: u32,
    next: u32,
}

/// Which of a lock's two lists a [`Queue`] runs through.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Chain {
    /// A queue of its resource.
    Resource,
    /// The locks of its owner.
    Owner,
}

/// Ends of an intrusive list of locks.
#[derive(Clone, Copy, Hash, Debug, Default)]
pub(crate) struct Queue {
    pub(crate) head: u32,
    tail: u32,
}

impl Lock {
    /// The rarely used part, made if absent.
    pub(crate) fn rare(&mut self) -> &mut Rare {
        self.rare.get_or_insert_default()
    }

    /// Whether a callback that repeats what its holder was told would reach it: it was told, and has
    /// heard a completion since (5.2).
    pub(crate) fn may_be_told_again(&self) -> bool {
        self.told != Mode::NL && self.last_blocking.is_none()
    }

    /// DEMOTED, where a conversion that waits at another node's master was demoted: it is told when the
    /// conversion is granted, also by a later master, which does not know it.
    pub(crate) fn demotion(&self) -> SbFlags {
        let waits = self.state == LockState::Converting && self.away().is_some();
        SbFlags(if waits { self.sb_flags.0 & SbFlags::DEMOTED.0 } else { 0 })
    }

    /// The caller's value block, if one was ever given.
    pub(crate) fn value(&self) -> Option<&Value> {
        self.rare.as_ref()?.value.as_ref()
    }

    /// The bytes that it last read or wrote. Of a lock above CR these are the resource's, or it saw none
    /// since it got there.
    pub(crate) fn seen(&self) -> Option<Value> {
        let weak = self.granted.is_none_or(|mode| mode <= Mode::CR);
        let rare = self
            .rare
            .as_ref()
            .filter(|rare| weak || rare.current || cluster_fault("stale-sight-vouches"))?;
        rare.seen
    }

    /// Value-block sequence number seen last.
    pub(crate) fn value_seq(&self) -> u32 {
        self.rare.as_ref().map_or(0, |rare| rare.value_seq)
    }

    /// Keeps a value-block sequence number, if there is anything to keep.
    pub(crate) fn saw_value_seq(&mut self, seq: u32) {
        if seq != self.value_seq() {
            self.rare().value_seq = seq;
        }
    }

    /// A write under way to a lost master counts as done (recovery.md 6.2): if it has bytes they are the
    /// ones that the lock saw last.
    pub(crate) fn count_as_written(&mut self) -> Option<(Value, u32)> {
        let writes = self.flags.has(LockFlags::VALBLK) && !self.flags.has(LockFlags::IVVALBLK);
        let value = *self.value().filter(|_| writes)?;
        let seq = self.value_seq().wrapping_add(1);
        let rare = self.rare();
        (rare.seen, rare.current, rare.marked) = (Some(value), true, false);
        rare.value_seq = seq;
        Some((value, seq))
    }

    fn links(&mut self, chain: Chain) -> &mut Links {
        match chain {
            Chain::Resource => &mut self.links,
            Chain::Owner => &mut self.siblings,
        }
    }

    /// The lock behind this one in a list, or [`NIL`].
    pub(crate) fn next(&self, chain: Chain) -> u32 {
        match chain {
            Chain::Resource => self.links.next,
            Chain::Owner => self.siblings.next,
        }
    }
}

/// The id of a place in its generation; never 0, since place 0 is not used.
pub(crate) fn lock_id(index: u32, generation: u16) -> LockId {
    LockId((u32::from(generation) << INDEX_BITS) | index)
}

/// The lock of an id, unless the id is stale (D1).
#[inline]
pub(crate) fn find(locks: &Slab<Lock>, id: LockId) -> Option<u32> {
    let index = id.0 & ((1 << INDEX_BITS) - 1);
    locks.get(index).filter(|lock| lock.id == id || bug("stale-ids-live")).map(|_| index)
}

impl Queue {
    /// A queue to walk from its head; nothing can be added to it.
    pub(crate) fn from_heads(head: u32) -> Self {
        Self { head, tail: NIL }
    }

    /// Whether nothing is on it.
    pub(crate) fn is_empty(self) -> bool {
        self.head == NIL
    }

    /// Adds a lock at the tail.
    pub(crate) fn push_back(&mut self, locks: &mut Slab<Lock>, chain: Chain, index: u32) {
        *locks[index].links(chain) = Links { prev: self.tail, next: NIL };
        match self.tail {
            NIL => self.head = index,
            tail => locks[tail].links(chain).next = index,
        }
        self.tail = index;
    }

    /// Adds a lock before `at`; at the tail if `at` is [`NIL`].
    pub(crate) fn insert_before(
        &mut self,
        locks: &mut Slab<Lock>,
        chain: Chain,
        at: u32,
        index: u32,
    ) {
        if at == NIL {
            return self.push_back(locks, chain, index);
        }
        let prev = core::mem::replace(&mut locks[at].links(chain).prev, index);
        *locks[index].links(chain) = Links { prev, next: at };
        match prev {
            NIL => self.head = index,
            prev => locks[prev].links(chain).next = index,
        }
    }

    /// Takes a lock out.
    pub(crate) fn remove(&mut self, locks: &mut Slab<Lock>, chain: Chain, index: u32) {
        let Links { prev, next } = core::mem::take(locks[index].links(chain));
        match prev {
            NIL => self.head = next,
            prev => locks[prev].links(chain).next = next,
        }
        match next {
            NIL => self.tail = prev,
            next => locks[next].links(chain).prev = prev,
        }
    }

    /// The locks in order.
    pub(crate) fn iter(self, locks: &Slab<Lock>, chain: Chain) -> impl Iterator<Item = u32> + '_ {
        let mut at = self.head;
        core::iter::from_fn(move || {
            let index = at;
            (index != NIL).then(|| at = locks[index].next(chain))?;
            Some(index)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::Lock;
    use crate::resource::Resource;

    /// Held locks are what the daemon's memory consists of (performance.md G8).
    #[test]
    fn records_stay_small() {
        assert!(size_of::<Lock>() <= 88, "a lock takes {} bytes", size_of::<Lock>());
        assert!(size_of::<Resource>() <= 88, "a resource takes {} bytes", size_of::<Resource>());
    }
}
