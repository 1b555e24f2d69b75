//! A map from names to what a directory knows about them, by slot.
//!
//! Slots come and go as a whole, so each has a map of its own: giving one up costs the slot, not the
//! table; and a name is found without copying it. It drops nothing by itself.

use std::collections::BTreeMap;
use std::ops::Bound;

use crate::Name;
use crate::slots::slot_of;

/// The map.
#[derive(Clone, Hash, Debug)]
pub(crate) struct ByName<T> {
    slots: BTreeMap<u16, BTreeMap<Name, T>>,
    len: usize,
}

impl<T> Default for ByName<T> {
    fn default() -> Self {
        Self { slots: BTreeMap::new(), len: 0 }
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

    /// What is known about a name, made if there is nothing.
    pub(crate) fn entry(&mut self, name: &Name) -> &mut T
    where
        T: Default,
    {
        let of_slot = self.slots.entry(slot_of(name.as_bytes())).or_default();
        let before = of_slot.len();
        if !of_slot.contains_key(name.as_bytes()) {
            of_slot.insert(name.clone(), T::default());
        }
        self.len += of_slot.len() - before;
        of_slot.get_mut(name.as_bytes()).expect("it was inserted above")
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

    /// Forgets all.
    pub(crate) fn clear(&mut self) {
        (self.slots, self.len) = (BTreeMap::new(), 0);
    }

    /// Forgets the names of all slots but these.
    pub(crate) fn keep_slots(&mut self, keep: impl Fn(u16) -> bool) {
        self.slots.retain(|slot, _| keep(*slot));
        self.len = self.slots.values().map(BTreeMap::len).sum();
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

    /// The first names behind `after`, `most` of them at most.
    pub(crate) fn names_after(&self, after: Option<&Name>, most: usize) -> Vec<Name> {
        let slot = after.map_or(0, |name| slot_of(name.as_bytes()));
        let behind = |name: &Name, at: u16| after.is_none_or(|a| at > slot || name > a);
        let all = self.slots.range(slot..).flat_map(|(at, names)| names.keys().map(|n| (*at, n)));
        let rest = all.filter(|(at, name)| behind(name, *at));
        rest.map(|(_, name)| name.clone()).take(most).collect()
    }

    /// All names and what is known about them.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Name, &T)> {
        self.slots.values().flatten()
    }

    /// All that is known.
    pub(crate) fn values(&self) -> impl Iterator<Item = &T> {
        self.iter().map(|(_, value)| value)
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
        *map.entry(&name(8)) = 80;
        *map.entry(&name(2000)) += 1;
        assert_eq!((map.len(), map.values().sum::<u32>()), (1001, 499_500 + 63 + 72 + 1));
        assert_eq!(
            (map.remove(name(7).as_bytes()), map.remove(name(7).as_bytes())),
            (Some(70), None)
        );
        assert!(!map.contains(name(7).as_bytes()) && map.contains(name(9).as_bytes()));
        map.clear();
        assert!(map.is_empty() && map.iter().next().is_none());
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
        let (mut seen, mut after): (Vec<Name>, _) = (Vec::new(), None);
        loop {
            let part = map.names_after(after.as_ref(), 70);
            let Some(last) = part.last().cloned() else { break };
            (after, seen) = (Some(last), [seen, part].concat());
        }
        assert!(seen.iter().eq(map.iter().map(|(name, _)| name)));
    }
}
