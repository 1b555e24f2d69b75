//! The one door to atomics.
//!
//! The bell rule is written against [`Word`], so that the model checker of the tests puts its own
//! atomics behind the same lines of code that run in the daemon.

use std::sync::atomic::{AtomicU32, Ordering, fence};

/// A shared 32-bit word and the full fence that belongs to its family.
pub(crate) trait Word {
    /// Reads.
    fn load(&self, order: Ordering) -> u32;
    /// Writes.
    fn store(&self, value: u32, order: Ordering);
    /// Writes and returns what was there.
    fn swap(&self, value: u32, order: Ordering) -> u32;
    /// Nothing before may be seen after anything behind, by anybody.
    fn full_fence();
}

impl Word for AtomicU32 {
    #[inline]
    fn load(&self, order: Ordering) -> u32 {
        self.load(order)
    }

    #[inline]
    fn store(&self, value: u32, order: Ordering) {
        self.store(value, order);
    }

    #[inline]
    fn swap(&self, value: u32, order: Ordering) -> u32 {
        self.swap(value, order)
    }

    #[inline]
    fn full_fence() {
        fence(Ordering::SeqCst);
    }
}
