//! A map from names to what a directory knows about them, by slot.
//!
//! Slots come and go as a whole, so each has a map of its own: giving one up costs the slot, not the
//! table; and a name is found without copying it. It drops nothing by itself.
//!
//! A million names lie scattered over memory, and every look at one is a trip there: a tree would make a
//! handful for each name, a hash table makes two. Its hash is fixed, so that the same history leads to the
//! same order of names on every run.

use std::collections::BTreeMap;
use std::hash::{BuildHasherDefault, Hash, Hasher};
use std::ops::Bound;

use crate::Name;
use crate::slots::slot_of;
use crate::table::fold;

/// The names of one slot. With a fixed hasher the order is the same from run to run.
#[expect(clippy::disallowed_types, reason = "the hasher is fixed")]
type OfSlot<T> = std::collections::HashMap<Name, T, BuildHasherDefault<NameHasher>>;

/// The map.
#[derive(Clone, Debug)]
pub(crate) struct ByName<T> {
    slots: BTreeMap<u16, OfSlot<T>>,
    len: usize,
}

impl<T> Default for ByName<T> {
    fn default() -> Self {
        Self { slots: BTreeMap::new(), len: 0 }
    }
}

/// Two maps that know the same are the same, whatever came first.
impl<T: Hash> Hash for ByName<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        for of_slot in self.slots.values() {
            let mut all: Vec<_> = of_slot.iter().collect();
            all.sort_by_key(|(name, _)| *name);
            all.hash(state);
        }
    }
}

/// Hashes a name; not for anything that outlives the process.
#[derive(Default)]
pub(crate) struct NameHasher(u64);

impl Hasher for NameHasher {
    fn write(&mut self, bytes: &[u8]) {
        self.0 = fold(self.0, bytes);
    }

    fn write_usize(&mut self, number: usize) {
        self.0 ^= number as u64;
    }

    fn finish(&self) -> u64 {
        // The table takes its place from the low bits and a mark of seven from the top.
        fold(self.0, &[1])
    }
}

impl<T> ByName<T> {
    /// How many names.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Whether there is none.
    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// What is known about a name.
    pub(crate) fn get(&self, name: &[u8]) -> Option<&T> {
        self.slots.get(&slot_of(name))?.get(name)
    }

    /// Whether anything is known about a name.
    pub(crate) fn contains(&self, name: &[u8]) -> bool {
        self.get(name).is_some()
    }

    /// Replaces what is known about a name.
    pub(crate) fn insert(&mut self, name: Name, value: T) {
        let of_slot = self.slots.entry(slot_of(name.as_bytes())).or_default();
        self.len += usize::from(of_slot.insert(name, value).is_none());
    }

    /// Forgets a name.
    pub(crate) fn remove(&mut self, name: &[u8]) -> Option<T> {
        let slot = slot_of(name);
        let of_slot = self.slots.get_mut(&slot)?;
        let value = of_slot.remove(name)?;
        if of_slot.is_empty() {
            self.slots.remove(&slot);
        }
        self.len -= 1;
        Some(value)
    }

    /// Forgets the names of all slots but these.
    pub(crate) fn keep_slots(&mut self, keep: impl Fn(u16) -> bool) {
        self.slots.retain(|slot, _| keep(*slot));
        self.len = self.slots.values().map(OfSlot::len).sum();
    }

    /// Forgets what `keep` does not want among the first names behind `after`, of `most` at least, and
    /// says where to go on; `None` at the end.
    pub(crate) fn sweep(
        &mut self,
        after: Option<u16>,
        most: usize,
        keep: impl Fn(&T) -> bool,
    ) -> Option<u16> {
        let begin = after.map_or(Bound::Unbounded, Bound::Excluded);
        let (mut looked, mut last) = (0, None);
        let mut emptied = Vec::new();
        for (slot, of_slot) in self.slots.range_mut((begin, Bound::Unbounded)) {
            let before = of_slot.len();
            of_slot.retain(|_, value| keep(value));
            self.len -= before - of_slot.len();
            if of_slot.is_empty() {
                emptied.push(*slot);
            }
            looked += before;
            if looked >= most {
                last = Some(*slot);
                break;
            }
        }
        for slot in emptied {
            self.slots.remove(&slot);
        }
        last
    }

    /// All names and what is known about them, by slot.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Name, &T)> {
        self.slots.values().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(number: u32) -> Name {
        Name::new(format!("name-{number}").as_bytes()).expect("short")
    }

    fn filled(count: u32) -> ByName<u32> {
        let mut map = ByName::default();
        (0..count).for_each(|number| map.insert(name(number), number));
        map
    }

    #[test]
    fn names_are_found_replaced_and_forgotten() {
        let mut map = filled(1000);
        assert_eq!((map.len(), map.get(name(7).as_bytes())), (1000, Some(&7)));
        map.insert(name(7), 70);
        map.insert(name(2000), 1);
        let sum = map.iter().map(|(_, value)| value).sum::<u32>();
        assert_eq!((map.len(), sum), (1001, 499_500 + 63 + 1));
        assert_eq!(
            (map.remove(name(7).as_bytes()), map.remove(name(7).as_bytes())),
            (Some(70), None)
        );
        assert!(!map.contains(name(7).as_bytes()) && map.contains(name(9).as_bytes()));
    }

    #[test]
    fn slots_are_given_up_as_a_whole() {
        let mut map = filled(1000);
        map.keep_slots(|slot| slot < 2048);
        assert!(map.iter().all(|(name, _)| slot_of(name.as_bytes()) < 2048));
        assert_eq!(map.len(), map.iter().count());
        assert!((300..700).contains(&map.len()), "{}", map.len());
    }

    #[test]
    fn parts_reach_every_name_once() {
        let mut map = filled(1000);
        let (mut after, mut parts) = (None, 1);
        while let Some(next) = map.sweep(after, 50, |number| number % 2 == 0) {
            (after, parts) = (Some(next), parts + 1);
        }
        assert!(parts >= 15, "{parts}");
        assert_eq!((map.len(), map.iter().count()), (500, 500));
    }

    #[test]
    fn equal_contents_have_equal_digests_whatever_came_first() {
        let digest = |numbers: &mut dyn Iterator<Item = u32>| {
            let mut map = ByName::default();
            numbers.for_each(|number| map.insert(name(number), number));
            let mut state = std::hash::DefaultHasher::new();
            map.hash(&mut state);
            state.finish()
        };
        let forth = digest(&mut (0..9000));
        assert_eq!(forth, digest(&mut (0..9000).rev()));
        assert_ne!(forth, digest(&mut (0..8999)));
    }
}
