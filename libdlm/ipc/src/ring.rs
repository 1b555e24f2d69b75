//! A single-producer single-consumer ring on a page set.
//!
//! Each side keeps its own index privately and takes the other's index from the page only after a
//! range check, so that whatever a peer writes there, no entry outside the ring is touched: the
//! answer is [`Corrupt`], and the daemon ends that client. Entries are copied once, then judged.
//!
//! Producer's turn: [`Producer::push`] until done, then [`Producer::flush`]. Consumer's turn:
//! [`Consumer::pop`] until `None`, then [`Consumer::prepare_sleep`]; true: sleep on the bell, then
//! [`Consumer::awake`]; false: go on popping.

use std::io;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use crate::bell::Bell;
use crate::layout::{Cells, Entry};
use crate::page::Page;
use crate::rule::Words;

/// The other side broke its index: it runs ahead of ours by more than the ring holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the peer's ring {word} {found} is out of range; end this connection")]
pub struct Corrupt {
    /// Which word, `head` or `tail`.
    pub word: &'static str,
    /// What it said.
    pub found: u32,
}

/// Why an entry was not taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PushError {
    /// No room now. Flush what was pushed; then [`Producer::prepare_wait_for_room`].
    #[error("the ring is full; flush, and push again when the peer has taken entries")]
    Full,
    /// The consumer's head is impossible.
    #[error(transparent)]
    Corrupt(#[from] Corrupt),
}

struct Ring<T> {
    page: Arc<Page>,
    offset: usize,
    capacity: u32,
    entry: PhantomData<fn() -> T>,
}

impl<T: Entry> Ring<T> {
    fn new(page: Arc<Page>) -> Self {
        let geometry = page.geometry();
        let (offset, capacity) = (geometry.offset(T::RING), geometry.entries(T::RING));
        Self { page, offset, capacity, entry: PhantomData }
    }

    #[inline]
    fn words(&self) -> Words<'_, AtomicU32> {
        self.page.words(T::RING)
    }

    #[inline]
    fn slot(&self, index: u32) -> &[std::sync::atomic::AtomicU64] {
        let slot = (index & (self.capacity - 1)) as usize;
        self.page.cells(self.offset + slot * size_of::<T>(), size_of::<T>() / 8)
    }
}

/// The writing end. `Send`; put it behind a lock to share it.
pub struct Producer<T> {
    ring: Ring<T>,
    bell: Arc<Bell>,
    /// Next entry to write; may run ahead of the published tail.
    tail: u32,
    published: u32,
    /// The consumer's head as seen last; refreshed when the ring looks full.
    head_seen: u32,
}

impl<T: Entry> Producer<T> {
    pub(crate) fn new(page: Arc<Page>, bell: Arc<Bell>) -> Self {
        Self { ring: Ring::new(page), bell, tail: 0, published: 0, head_seen: 0 }
    }

    /// Writes an entry, not yet visible to the consumer: see [`Producer::flush`].
    ///
    /// # Errors
    /// The ring is full, or the consumer's head is impossible.
    #[inline]
    pub fn push(&mut self, entry: &T) -> Result<(), PushError> {
        if self.tail.wrapping_sub(self.head_seen) >= self.ring.capacity && self.free()? == 0 {
            return Err(PushError::Full);
        }
        entry.store(self.ring.slot(self.tail));
        self.tail = self.tail.wrapping_add(1);
        Ok(())
    }

    /// How many entries can be pushed now.
    ///
    /// # Errors
    /// The consumer's head is impossible.
    pub fn free(&mut self) -> Result<u32, Corrupt> {
        let found = self.ring.words().retired();
        // What was not published cannot have been taken: the head lies between the tail of a full
        // ring and the published tail.
        let unread = self.published.wrapping_sub(found);
        let used = self.tail.wrapping_sub(found);
        if unread > self.ring.capacity || used > self.ring.capacity {
            return Err(Corrupt { word: "head", found });
        }
        self.head_seen = found;
        Ok(self.ring.capacity - used)
    }

    /// Makes all pushed entries visible, in one store. Follow up by
    /// [`Producer::ring_bell_if_sleeping`].
    #[inline]
    pub fn publish(&mut self) {
        if self.published != self.tail {
            self.ring.words().publish(self.tail);
            self.published = self.tail;
        }
    }

    /// Wakes the consumer if it sleeps; true if the bell was rung.
    ///
    /// # Errors
    /// None in normal life; the bell is broken.
    #[inline]
    pub fn ring_bell_if_sleeping(&self) -> io::Result<bool> {
        let sleeps = self.ring.words().take_sleeper();
        if sleeps {
            self.bell.ring()?;
        }
        Ok(sleeps)
    }

    /// [`Producer::publish`], then, if there was something, [`Producer::ring_bell_if_sleeping`].
    ///
    /// # Errors
    /// None in normal life; the bell is broken.
    #[inline]
    pub fn flush(&mut self) -> io::Result<bool> {
        if self.published == self.tail {
            return Ok(false);
        }
        self.publish();
        self.ring_bell_if_sleeping()
    }

    /// After [`PushError::Full`] and a flush: asks to be woken when there is room. True: the
    /// consumer will ring *our* bell (in a client the reply bell, in the daemon the submission
    /// bell) once it has taken everything. False: there is room already; push again.
    pub fn prepare_wait_for_room(&mut self) -> bool {
        self.ring.words().may_wait_for_room(self.head_seen)
    }

    /// Rings the consumer's bell whatever it does: after a change of the lost or lease words.
    ///
    /// # Errors
    /// None in normal life; the bell is broken.
    pub fn ring_bell(&self) -> io::Result<()> {
        self.bell.ring()
    }

    /// Number of entries of the ring.
    pub fn capacity(&self) -> u32 {
        self.ring.capacity
    }
}

/// The reading end. `Send`; put it behind a lock to share it.
pub struct Consumer<T> {
    ring: Ring<T>,
    /// Rung when the producer waits for room.
    room_bell: Arc<Bell>,
    /// Next entry to take.
    head: u32,
    /// The producer's tail as seen last.
    tail_seen: u32,
}

impl<T: Entry> Consumer<T> {
    pub(crate) fn new(page: Arc<Page>, room_bell: Arc<Bell>) -> Self {
        Self { ring: Ring::new(page), room_bell, head: 0, tail_seen: 0 }
    }

    /// Copies the next entry out of the page; `None`: nothing there.
    ///
    /// # Errors
    /// The producer's tail is impossible. It stays so: end the connection.
    #[inline]
    pub fn pop(&mut self) -> Result<Option<T>, Corrupt> {
        if self.head == self.tail_seen && self.available()? == 0 {
            return Ok(None);
        }
        let entry = <T as Cells>::load(self.ring.slot(self.head));
        self.head = self.head.wrapping_add(1);
        self.ring.words().retire(self.head);
        Ok(Some(entry))
    }

    /// How many entries are there now.
    ///
    /// # Errors
    /// The producer's tail is impossible.
    pub fn available(&mut self) -> Result<u32, Corrupt> {
        let found = self.ring.words().published();
        let available = found.wrapping_sub(self.head);
        if available > self.ring.capacity {
            return Err(Corrupt { word: "tail", found });
        }
        self.tail_seen = found;
        Ok(available)
    }

    /// To be called when [`Consumer::pop`] said `None`, before sleeping. True: the bell will ring
    /// for the next entry. False: something came meanwhile; pop again. A producer that waits for
    /// room is woken. A fresh ring counts as awake, so this is also the first call on it.
    pub fn prepare_sleep(&mut self) -> bool {
        let words = self.ring.words();
        let may_sleep = words.may_sleep(self.head);
        if words.take_room_waiter() {
            // A bell that cannot be rung belongs to a peer that broke it.
            let _ = self.room_bell.ring();
        }
        may_sleep
    }

    /// To be called after sleeping: no bell is needed until the next [`Consumer::prepare_sleep`].
    #[inline]
    pub fn awake(&mut self) {
        self.ring.words().awake();
    }

    /// Number of entries of the ring.
    pub fn capacity(&self) -> u32 {
        self.ring.capacity
    }
}

#[cfg(test)]
mod tests;
