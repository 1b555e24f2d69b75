//! Names to resources: a hash table that grows and shrinks one bucket at a time.
//!
//! Linear hashing: an insertion over the load splits one bucket, a removal under it joins one. No
//! insertion ever pays for all names, and an emptied table gives its memory back. Collisions are
//! chained through the resources themselves.

use crate::slab::NIL;

/// The chain links and hashes that the table needs; implemented by the resource storage.
pub(crate) trait Chained {
    /// The hash of an entry.
    fn hash(&self, index: u32) -> u32;
    /// The next entry of its bucket, or [`NIL`].
    fn next(&self, index: u32) -> u32;
    /// Sets the next entry of its bucket.
    fn set_next(&mut self, index: u32, next: u32);
}

/// Fewest buckets.
const BUCKETS_MIN: usize = 16;
/// Joins that one removal may pay for: enough to keep up with a load of one quarter.
const JOINS_PER_REMOVAL: usize = 5;

/// The buckets: heads of chains.
#[derive(Debug)]
pub(crate) struct Table {
    buckets: Vec<u32>,
    len: usize,
}

impl Table {
    /// An empty table.
    pub(crate) fn new() -> Self {
        Self { buckets: vec![NIL; BUCKETS_MIN], len: 0 }
    }

    /// First entry of the chain that a hash belongs to.
    #[inline]
    pub(crate) fn chain(&self, hash: u32) -> u32 {
        self.buckets[self.bucket(hash)]
    }

    /// Adds an entry, which must not be in.
    pub(crate) fn insert(&mut self, entries: &mut impl Chained, index: u32) {
        let bucket = self.bucket(entries.hash(index));
        entries.set_next(index, self.buckets[bucket]);
        self.buckets[bucket] = index;
        self.len += 1;
        if self.len > self.buckets.len() {
            self.split(entries);
        }
    }

    /// Takes an entry out, which must be in.
    pub(crate) fn remove(&mut self, entries: &mut impl Chained, index: u32) {
        let bucket = self.bucket(entries.hash(index));
        let next = entries.next(index);
        let mut at = self.buckets[bucket];
        if at == index {
            self.buckets[bucket] = next;
        } else {
            while entries.next(at) != index {
                at = entries.next(at);
            }
            entries.set_next(at, next);
        }
        self.len -= 1;
        for _ in 0..JOINS_PER_REMOVAL {
            if self.buckets.len() > BUCKETS_MIN && self.len * 4 < self.buckets.len() {
                self.join(entries);
            }
        }
    }

    /// Adds a bucket and moves the half of its twin that belongs there.
    fn split(&mut self, entries: &mut impl Chained) {
        let new = self.buckets.len();
        let twin = new - (new + 1).next_power_of_two() / 2;
        let mut at = core::mem::replace(&mut self.buckets[twin], NIL);
        self.buckets.push(NIL);
        while at != NIL {
            let next = entries.next(at);
            let bucket = self.bucket(entries.hash(at));
            debug_assert!(bucket == new || bucket == twin);
            entries.set_next(at, self.buckets[bucket]);
            self.buckets[bucket] = at;
            at = next;
        }
    }

    /// Takes the last bucket away and gives its entries to its twin.
    fn join(&mut self, entries: &mut impl Chained) {
        let mut at = self.buckets.pop().unwrap_or(NIL);
        while at != NIL {
            let next = entries.next(at);
            let bucket = self.bucket(entries.hash(at));
            entries.set_next(at, self.buckets[bucket]);
            self.buckets[bucket] = at;
            at = next;
        }
        if self.buckets.len() * 4 < self.buckets.capacity() {
            self.buckets.shrink_to(self.buckets.len() * 2);
        }
    }

    #[inline]
    fn bucket(&self, hash: u32) -> usize {
        let full = self.buckets.len().next_power_of_two();
        let bucket = hash as usize & (full - 1);
        if bucket < self.buckets.len() { bucket } else { bucket & (full / 2 - 1) }
    }
}

/// The hash of a name: multiply and fold, eight bytes a round. Its only user is this table; what the
/// cluster agrees on (directory slots) has its own, fixed hash.
pub(crate) fn hash_name(name: &[u8]) -> u32 {
    const K: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut state = (name.len() as u64).wrapping_mul(K) ^ 0x51_7c_c1_b7_27_22_0a_95;
    for part in name.chunks(8) {
        let mut word = [0; 8];
        word[..part.len()].copy_from_slice(part);
        let mixed = u128::from(state ^ u64::from_le_bytes(word)).wrapping_mul(u128::from(K));
        state = (mixed as u64) ^ ((mixed >> 64) as u64);
    }
    let mixed = u128::from(state).wrapping_mul(u128::from(K | 1));
    (mixed as u32) ^ ((mixed >> 64) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Entries(Vec<(u32, u32)>);

    impl Chained for Entries {
        fn hash(&self, index: u32) -> u32 {
            self.0[index as usize].0
        }
        fn next(&self, index: u32) -> u32 {
            self.0[index as usize].1
        }
        fn set_next(&mut self, index: u32, next: u32) {
            self.0[index as usize].1 = next;
        }
    }

    fn finds(table: &Table, entries: &Entries, index: u32) -> bool {
        let mut at = table.chain(entries.hash(index));
        while at != NIL && at != index {
            at = entries.next(at);
        }
        at == index
    }

    #[test]
    fn every_entry_is_found_while_the_table_grows_and_shrinks() {
        let mut entries = Entries(
            (0..5000u32).map(|i| (hash_name(format!("name{i}").as_bytes()), NIL)).collect(),
        );
        let mut table = Table::new();
        for index in 1..5000 {
            table.insert(&mut entries, index);
        }
        assert!((1..5000).all(|index| finds(&table, &entries, index)));
        for index in 1..4990 {
            table.remove(&mut entries, index);
            assert!(!finds(&table, &entries, index));
        }
        assert!((4990..5000).all(|index| finds(&table, &entries, index)));
        assert!(table.buckets.len() < 100, "{} buckets left", table.buckets.len());
    }

    #[test]
    fn names_of_equal_beginning_spread() {
        let mut counts = [0u32; 256];
        for i in 0..25_600u32 {
            counts[(hash_name(format!("resource-{i:06}").as_bytes()) & 255) as usize] += 1;
        }
        assert!(counts.iter().all(|c| (40..250).contains(c)), "{counts:?}");
    }
}
