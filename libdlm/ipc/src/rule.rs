//! When to publish, when to ring, when to sleep: the bell rule (ipc.md section 2).
//!
//! Problem: neither side may sleep while the other has given it something, and a bell that rings
//! per entry costs a system call per entry. Each half writes its own word, fences, and reads the
//! other's word; so at least one of the two sees the other, and the one who sees acts:
//!
//! | who | writes | fence | reads |
//! |---|---|---|---|
//! | consumer going to sleep | `sleeping` = 1 | full | `tail`: something there? stay awake |
//! | producer with entries | `tail` | full | `sleeping`: 1? swap to 0, ring |
//! | producer without room | `room` = 1 | full | `head`: room there? go on |
//! | consumer having emptied the ring | `head` | full | `room`: 1? swap to 0, ring back |
//!
//! With a release or acquire instead of the fence both may read the old word, and both sleep: the
//! tests show it (`without_the_fence_…`).

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use crate::word::Word;

/// The control words of one ring. The other process may write any of them at any moment.
#[derive(Clone, Copy)]
pub(crate) struct Words<'a, W> {
    /// Number of the next entry to take; the consumer's.
    pub(crate) head: &'a W,
    /// Number of the next entry to write; the producer's.
    pub(crate) tail: &'a W,
    /// Not 0: the consumer sleeps; set by it, cleared by whoever wakes it.
    pub(crate) sleeping: &'a W,
    /// Not 0: the producer waits for room; set by it, cleared by whoever wakes it.
    pub(crate) room: &'a W,
}

impl<W: Word> Words<'_, W> {
    /// Producer: entries below `tail` are written and may be read.
    #[inline]
    pub(crate) fn publish(&self, tail: u32) {
        // SYNC POINT: release; pairs with the acquire in `published`, and carries the entries.
        self.tail.store(tail, Release);
    }

    /// Producer, after `publish`: whether the consumer has to be woken by the bell.
    #[inline]
    pub(crate) fn take_sleeper(&self) -> bool {
        // SYNC POINT: full fence between `publish` and the load below; pairs with that of
        // `may_sleep`.
        W::full_fence();
        // SYNC POINT: relaxed look, as the fence above orders it; the swap pairs with that of
        // `may_sleep`.
        self.sleeping.load(Relaxed) != 0 && self.sleeping.swap(0, AcqRel) != 0
    }

    /// Consumer: entries below this number may be read.
    #[inline]
    pub(crate) fn published(&self) -> u32 {
        // SYNC POINT: acquire; pairs with the release in `publish`.
        self.tail.load(Acquire)
    }

    /// Consumer: entries below `head` were copied and may be overwritten.
    #[inline]
    pub(crate) fn retire(&self, head: u32) {
        // SYNC POINT: release; pairs with the acquire in `retired`: the copy is finished before.
        self.head.store(head, Release);
    }

    /// Producer: entries below this number may be overwritten.
    #[inline]
    pub(crate) fn retired(&self) -> u32 {
        // SYNC POINT: acquire; pairs with the release in `retire`.
        self.head.load(Acquire)
    }

    /// Consumer that took everything below `head`: whether it may sleep until the bell rings.
    pub(crate) fn may_sleep(&self, head: u32) -> bool {
        // SYNC POINT: a swap, so that it is ordered behind the producer's swap in `take_sleeper`
        // that may still be under way for an earlier sleep; ordered before the load of the tail by
        // the fence.
        self.sleeping.swap(1, AcqRel);
        // SYNC POINT: full fence; pairs with that of `take_sleeper`.
        W::full_fence();
        let empty = self.published() == head;
        if !empty {
            self.awake();
        }
        empty
    }

    /// Consumer, after `retire` and a full fence (`may_sleep` has one): whether the producer waits
    /// for room and has to be woken by its bell.
    pub(crate) fn take_room_waiter(&self) -> bool {
        // SYNC POINT: relaxed; ordered behind `retire` by the fence of `may_sleep`, which pairs
        // with that of `may_wait_for_room`.
        self.room.load(Relaxed) != 0 && self.room.swap(0, AcqRel) != 0
    }

    /// Consumer that is up again: no bell needed until the next `may_sleep`.
    #[inline]
    pub(crate) fn awake(&self) {
        // SYNC POINT: relaxed; a producer that still reads 1 rings once too often, which is
        // harmless; one that reads 0 is safe, as `may_sleep` looks at the tail again before any
        // sleep.
        self.sleeping.store(0, Relaxed);
    }

    /// Producer that found the ring full at `head`: whether it may sleep until its bell rings.
    pub(crate) fn may_wait_for_room(&self, head: u32) -> bool {
        // SYNC POINT: a swap for the reason given in `may_sleep`; pairs with that of
        // `take_room_waiter`; ordered before the load of the head by the fence.
        self.room.swap(1, AcqRel);
        // SYNC POINT: full fence; pairs with that of `may_sleep`.
        W::full_fence();
        let full = self.retired() == head;
        if !full {
            // SYNC POINT: relaxed, as in `awake`.
            self.room.store(0, Relaxed);
        }
        full
    }
}

#[cfg(test)]
mod model;
