//! Names to resources: a hash table that grows and shrinks one bucket at a time.
//!
//! Linear hashing: an insertion over the load splits one bucket, a removal under it joins one. No
//! insertion ever pays for all names, and an emptied table gives its memory back. Collisions are
//! chained through the resources themselves.
//!
//! With a million names every entry that is looked at is a trip to memory. A link therefore says seven
//! bits of the hash of the entry it leads to, and whether the chain goes on behind it: whether a
//! name is new is mostly decided in the bucket. A removal gives the bucket the link that the entry
//! kept, and touches no other entry either.

/// A link of a chain: an entry's index, what its hash begins with, and whether more follow.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Link(u32);

/// The chain links and hashes that the table needs; implemented by the resource storage.
pub(crate) trait Chained {
    /// The hash of an entry.
    fn hash(&self, index: u32) -> u32;
    /// The link behind an entry.
    fn next(&self, index: u32) -> Link;
    /// Sets the link behind an entry.
    fn set_next(&mut self, index: u32, next: Link);
}

/// Bits of a link that are the index. More entries than that are refused long before: a lockspace
/// has at most [`crate::lock::LOCKS_MAX`] locks, and each name a lock or a place among few idle ones.
const INDEX_BITS: u32 = 24;
/// Bits of a link that repeat the top of the hash.
const TAG_BITS: u32 = 7;
const MORE: u32 = 1 << 31;
const _: () =
    assert!(INDEX_BITS + TAG_BITS == 31 && crate::lock::LOCKS_MAX < 1 << (INDEX_BITS - 1));

/// Fewest buckets.
const BUCKETS_MIN: usize = 16;
/// Buckets for an entry: with two, one new name in ten has to look at an entry; with one, four in ten.
const BUCKETS_PER_ENTRY: usize = 2;
/// Buckets for an entry above which the table shrinks.
const BUCKETS_PER_ENTRY_MAX: usize = 8;
/// Joins that one removal may pay for: enough to keep up.
const JOINS_PER_REMOVAL: usize = BUCKETS_PER_ENTRY_MAX + 1;

/// The buckets: heads of chains.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    buckets: Vec<Link>,
    len: usize,
}

impl Link {
    /// The end of a chain. Index 0 is never an entry.
    pub(crate) const NONE: Self = Self(0);

    /// The link to an entry behind which `next` follows. `MORE` may stay behind where the rest of the
    /// chain has gone, which costs a look and nothing else.
    fn new(index: u32, hash: u32, next: Self) -> Self {
        assert!(index < 1 << INDEX_BITS, "a table of names has no place {index}");
        let more = if next == Self::NONE { 0 } else { MORE };
        Self(index | (tag(hash) << INDEX_BITS) | more)
    }

    #[inline]
    fn index(self) -> u32 {
        self.0 & ((1 << INDEX_BITS) - 1)
    }

    #[inline]
    fn fits(self, hash: u32) -> bool {
        (self.0 >> INDEX_BITS) & ((1 << TAG_BITS) - 1) == tag(hash)
    }

    #[inline]
    fn has_more(self) -> bool {
        self.0 & MORE != 0
    }
}

/// The bits of a hash that a link repeats: not those that choose the bucket.
#[inline]
fn tag(hash: u32) -> u32 {
    hash >> (32 - TAG_BITS)
}

impl Table {
    /// An empty table.
    pub(crate) fn new() -> Self {
        Self { buckets: vec![Link::NONE; BUCKETS_MIN], len: 0 }
    }

    /// Entries that may have this hash.
    #[inline]
    pub(crate) fn candidates<'a>(
        &self,
        entries: &'a impl Chained,
        hash: u32,
    ) -> impl Iterator<Item = u32> + 'a {
        let mut link = self.buckets[self.bucket(hash)];
        core::iter::from_fn(move || {
            while link != Link::NONE {
                let this = link;
                link = if this.has_more() { entries.next(this.index()) } else { Link::NONE };
                if this.fits(hash) {
                    return Some(this.index());
                }
            }
            None
        })
    }

    /// Adds an entry, which must not be in.
    pub(crate) fn insert(&mut self, entries: &mut impl Chained, index: u32) {
        self.put(entries, index);
        self.len += 1;
        while self.len * BUCKETS_PER_ENTRY > self.buckets.len() {
            self.split(entries);
        }
    }

    /// Takes an entry out, which must be in.
    pub(crate) fn remove(&mut self, entries: &mut impl Chained, index: u32) {
        let bucket = self.bucket(entries.hash(index));
        let next = entries.next(index);
        let mut at = self.buckets[bucket].index();
        if at == index {
            self.buckets[bucket] = next;
        } else {
            while entries.next(at).index() != index {
                at = entries.next(at).index();
            }
            entries.set_next(at, next);
        }
        self.len -= 1;
        for _ in 0..JOINS_PER_REMOVAL {
            if self.buckets.len() > BUCKETS_MIN
                && self.len * BUCKETS_PER_ENTRY_MAX < self.buckets.len()
            {
                self.join(entries);
            }
        }
    }

    /// Makes an entry the head of its chain.
    fn put(&mut self, entries: &mut impl Chained, index: u32) {
        let hash = entries.hash(index);
        let bucket = self.bucket(hash);
        let next = self.buckets[bucket];
        entries.set_next(index, next);
        self.buckets[bucket] = Link::new(index, hash, next);
    }

    /// Adds a bucket and moves the half of its twin that belongs there.
    fn split(&mut self, entries: &mut impl Chained) {
        let new = self.buckets.len();
        let twin = new - (new + 1).next_power_of_two() / 2;
        let chain = core::mem::replace(&mut self.buckets[twin], Link::NONE);
        self.buckets.push(Link::NONE);
        self.put_all(entries, chain);
    }

    /// Takes the last bucket away and gives its entries to its twin.
    fn join(&mut self, entries: &mut impl Chained) {
        let chain = self.buckets.pop().unwrap_or(Link::NONE);
        self.put_all(entries, chain);
        if self.buckets.len() * 4 < self.buckets.capacity() {
            self.buckets.shrink_to(self.buckets.len() * 2);
        }
    }

    fn put_all(&mut self, entries: &mut impl Chained, mut chain: Link) {
        while chain != Link::NONE {
            let index = chain.index();
            chain = entries.next(index);
            self.put(entries, index);
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

    struct Entries(Vec<(u32, Link)>);

    impl Chained for Entries {
        fn hash(&self, index: u32) -> u32 {
            self.0[index as usize].0
        }
        fn next(&self, index: u32) -> Link {
            self.0[index as usize].1
        }
        fn set_next(&mut self, index: u32, next: Link) {
            self.0[index as usize].1 = next;
        }
    }

    fn finds(table: &Table, entries: &Entries, index: u32) -> bool {
        table.candidates(entries, entries.hash(index)).any(|candidate| candidate == index)
    }

    #[test]
    fn every_entry_is_found_while_the_table_grows_and_shrinks() {
        let mut entries = Entries(
            (0..5000u32).map(|i| (hash_name(format!("name{i}").as_bytes()), Link::NONE)).collect(),
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

    #[test]
    fn whether_a_name_is_new_is_mostly_decided_in_the_bucket() {
        let hash = |i: u32| hash_name(format!("name{i}").as_bytes());
        let mut entries = Entries((0..5000).map(|i| (hash(i), Link::NONE)).collect());
        let mut table = Table::new();
        (1..5000).for_each(|index| table.insert(&mut entries, index));
        let looks: usize = (5000..9000).map(|i| table.candidates(&entries, hash(i)).count()).sum();
        assert!(looks < 4000 / 20, "{looks} entries looked at for 4000 new names");
    }

    #[test]
    fn colliding_entries_leave_in_any_order() {
        // One bucket, one tag: the hashes differ in bits that neither looks at.
        let mut entries = Entries((0..6u32).map(|i| (i << 16, Link::NONE)).collect());
        for order in [[1, 2, 3, 4, 5], [5, 4, 3, 2, 1], [3, 1, 5, 2, 4]] {
            let mut table = Table::new();
            (1..6).for_each(|index| table.insert(&mut entries, index));
            for (gone, index) in order.into_iter().enumerate() {
                table.remove(&mut entries, index);
                let found = order.into_iter().filter(|other| finds(&table, &entries, *other));
                assert!(found.eq(order[gone + 1..].iter().copied()), "{order:?} after {index}");
            }
        }
    }
}
