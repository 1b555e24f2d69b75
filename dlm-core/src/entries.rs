//! What a directory knows: names with their masters, by slot.
//!
//! Entries lie in the order in which they came, which is about the order in which a recovery asks for
//! them: a million names scattered over memory would be a trip there for each.
//! Slots come and go as a whole, and giving one up must not cost the names in it: each slot counts
//! how often that happened, an entry remembers the count it was written under, and one of an older
//! count is no entry; [`Entries::sweep`] takes such away in parts.

use std::hash::{Hash, Hasher};

use crate::directory::Entry;
use crate::name::Name;
use crate::slab::Slab;
use crate::slots::{SLOTS, slot_of};
use crate::table::{Chained, Link, Table, hash_name};

/// The entries of all slots.
#[derive(Clone, Debug)]
pub(crate) struct Entries {
    known: Slab<Known>,
    names: Table,
    /// By number; none before the first entry.
    slots: Vec<OfSlot>,
    len: usize,
}

#[derive(Clone, Debug)]
struct Known {
    name: Name,
    hash: u32,
    chain: Link,
    slot: u16,
    /// How often the slot had been given up.
    lives: u32,
    entry: Entry,
}

#[derive(Clone, Copy, Debug, Default)]
struct OfSlot {
    /// How often it was given up.
    lives: u32,
    /// Entries that count.
    len: u32,
}

impl Default for Entries {
    fn default() -> Self {
        Self { known: Slab::new(0), names: Table::new(), slots: Vec::new(), len: 0 }
    }
}

impl Entries {
    /// How many names.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Whether there is none.
    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether there is something to sweep.
    pub(crate) fn takes_room(&self) -> bool {
        self.known.len() > 0
    }

    fn counts(&self, known: &Known) -> bool {
        self.slots[usize::from(known.slot)].lives == known.lives
    }

    /// The place of a name, whether it counts or not.
    fn find(&self, hash: u32, name: &[u8]) -> Option<u32> {
        self.names.candidates(&self.known, hash).find(|index| {
            let known = &self.known[*index];
            known.hash == hash && known.name.as_bytes() == name
        })
    }

    /// What is known about a name.
    pub(crate) fn get(&self, name: &[u8]) -> Option<&Entry> {
        let known = &self.known[self.find(hash_name(name), name)?];
        self.counts(known).then_some(&known.entry)
    }

    /// Whether anything is known about a name.
    pub(crate) fn contains(&self, name: &[u8]) -> bool {
        self.get(name).is_some()
    }

    /// Replaces what is known about a name.
    pub(crate) fn insert(&mut self, name: &Name, entry: Entry) {
        if self.slots.is_empty() {
            self.slots = vec![OfSlot::default(); SLOTS];
        }
        let hash = hash_name(name.as_bytes());
        let found = self.find(hash, name.as_bytes());
        if let Some(index) = found.filter(|index| self.counts(&self.known[*index])) {
            self.known[index].entry = entry;
            return;
        }
        let slot = slot_of(name.as_bytes());
        let of_slot = &mut self.slots[usize::from(slot)];
        of_slot.len += 1;
        self.len += 1;
        let lives = of_slot.lives;
        if let Some(index) = found {
            let known = &mut self.known[index];
            (known.lives, known.entry) = (lives, entry);
            return;
        }
        let known = Known { name: name.clone(), hash, chain: Link::NONE, slot, lives, entry };
        let index = self.known.insert(|_, _| known);
        self.names.insert(&mut self.known, index);
    }

    /// Forgets a name.
    pub(crate) fn remove(&mut self, name: &[u8]) {
        if let Some(index) = self.find(hash_name(name), name) {
            self.take_out(index);
        }
    }

    fn take_out(&mut self, index: u32) {
        if self.counts(&self.known[index]) {
            self.slots[usize::from(self.known[index].slot)].len -= 1;
            self.len -= 1;
        }
        self.names.remove(&mut self.known, index);
        self.known.remove(index);
    }

    /// Forgets the names of all slots but these.
    pub(crate) fn keep_slots(&mut self, keep: impl Fn(u16) -> bool) {
        for (slot, of_slot) in (0u16..).zip(&mut self.slots) {
            if of_slot.len > 0 && !keep(slot) {
                self.len -= of_slot.len as usize;
                *of_slot = OfSlot { lives: of_slot.lives + 1, len: 0 };
            }
        }
    }

    /// Takes what `keep` does not want, and what does not count, out of the next `most` places, and says
    /// where to go on; `None` at the end.
    pub(crate) fn sweep(
        &mut self,
        from: u32,
        most: u32,
        keep: impl Fn(&Entry) -> bool,
    ) -> Option<u32> {
        let end = self.known.end().min(from.saturating_add(most));
        for index in from..end {
            let Some(known) = self.known.get(index) else { continue };
            if !self.counts(known) || !keep(&known.entry) {
                self.take_out(index);
            }
        }
        (end < self.known.end()).then_some(end)
    }

    /// All names and what is known about them.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Name, &Entry)> {
        let all = (1..self.known.end()).filter_map(|index| self.known.get(index));
        all.filter(|known| self.counts(known)).map(|known| (&known.name, &known.entry))
    }
}

impl Chained for Slab<Known> {
    fn hash(&self, index: u32) -> u32 {
        self[index].hash
    }

    fn next(&self, index: u32) -> Link {
        self[index].chain
    }

    fn set_next(&mut self, index: u32, next: Link) {
        self[index].chain = next;
    }
}

/// Who knows the same is the same, whatever came first.
impl Hash for Entries {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let mut all: Vec<_> = self.iter().collect();
        all.sort_by_key(|(name, _)| *name);
        all.hash(state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Member, NodeId, Token};

    fn name(number: u32) -> Name {
        Name::new(format!("name-{number}").as_bytes()).expect("short")
    }

    fn entry(term: u64) -> Entry {
        Entry { master: Member { node: NodeId(1), incarnation: 1 }, term: Token(term) }
    }

    fn filled(numbers: impl Iterator<Item = u32>) -> Entries {
        let mut entries = Entries::default();
        numbers.for_each(|number| entries.insert(&name(number), entry(u64::from(number))));
        entries
    }

    fn term(entries: &Entries, number: u32) -> Option<u64> {
        entries.get(name(number).as_bytes()).map(|entry| entry.term.0)
    }

    fn digest(entries: &Entries) -> u64 {
        let mut state = std::hash::DefaultHasher::new();
        entries.hash(&mut state);
        state.finish()
    }

    #[test]
    fn names_are_found_replaced_and_forgotten() {
        let mut entries = filled(0..1000);
        assert_eq!((entries.len(), term(&entries, 7)), (1000, Some(7)));
        entries.insert(&name(7), entry(70));
        entries.insert(&name(2000), entry(1));
        assert_eq!(
            (entries.len(), term(&entries, 7), term(&entries, 2000)),
            (1001, Some(70), Some(1))
        );
        entries.remove(name(7).as_bytes());
        entries.remove(name(7).as_bytes());
        assert_eq!((entries.len(), entries.iter().count(), term(&entries, 7)), (1000, 1000, None));
        assert!(entries.contains(name(9).as_bytes()));
    }

    #[test]
    fn slots_are_given_up_as_a_whole_and_come_back_empty() {
        let low = |number: &u32| slot_of(name(*number).as_bytes()) < 2048;
        let mut entries = filled(0..1000);
        entries.keep_slots(|slot| slot < 2048);
        let kept = (0..1000).filter(low).count();
        assert_eq!((entries.len(), entries.iter().count()), (kept, kept));
        assert_eq!(digest(&entries), digest(&filled((0..1000).filter(low))));
        let lost = (0..1000).find(|number| !low(number)).expect("half of them");
        assert_eq!(term(&entries, lost), None);
        entries.remove(name(lost).as_bytes());
        entries.insert(&name(lost), entry(5));
        let another = (lost + 1..1000).find(|number| !low(number)).expect("half of them");
        entries.insert(&name(another), entry(6));
        assert_eq!((term(&entries, lost), term(&entries, another)), (Some(5), Some(6)));
        assert_eq!((entries.len(), entries.iter().count()), (kept + 2, kept + 2));
    }

    #[test]
    fn parts_of_a_sweep_reach_every_entry_once() {
        let mut entries = filled(0..1000);
        entries.keep_slots(|slot| slot >= 2048);
        let (mut next, mut parts) = (Some(1), 0);
        while let Some(from) = next {
            next = entries.sweep(from, 50, |entry| entry.term.0 % 2 == 0);
            parts += 1;
        }
        assert!(parts >= 20, "{parts}");
        let stays =
            |number: &u32| number.is_multiple_of(2) && slot_of(name(*number).as_bytes()) >= 2048;
        assert_eq!(entries.len(), (0..1000).filter(stays).count());
        assert_eq!(entries.known.len(), entries.len());
        entries.keep_slots(|_| false);
        assert!(entries.is_empty() && entries.takes_room());
        assert_eq!(entries.sweep(1, u32::MAX, |_| true), None);
        assert!(!entries.takes_room());
    }

    #[test]
    fn equal_contents_have_equal_digests_whatever_came_first() {
        assert_eq!(digest(&filled(0..9000)), digest(&filled((0..9000).rev())));
        assert_ne!(digest(&filled(0..9000)), digest(&filled(0..8999)));
    }
}
