//! The directory's slots: which member answers for which names, as a function of the view.
//!
//! 4,096 slots by the top bits of a fixed hash of the name; each slot belongs to the member with the
//! highest score for it (weighted rendezvous hashing). A change of one member moves only that member's
//! slots.

use std::sync::Arc;

use crate::{Layout, Member};

/// Most draws of one member for a slot: what a weight counts for.
const WEIGHT_MAX: u32 = 1024;

/// Slots of a lockspace.
pub(crate) const SLOTS: usize = 4096;

/// The slot of a name. The cluster agrees on it: never change it.
pub(crate) fn slot_of(name: &[u8]) -> u16 {
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    for byte in name {
        hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    (mix(hash) >> 52) as u16
}

/// Which member owns each slot, by index in `members`, and with which draw; `None` where there is one
/// member.
#[derive(Clone, Debug, Default)]
pub(crate) struct Slots {
    owners: Option<Arc<[Owned]>>,
}

/// A slot's owner.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Owned {
    score: u64,
    index: u16,
}

impl Slots {
    /// The slots of a view. Every member draws once per unit of its weight, and the highest draw wins;
    /// where nobody has any weight, all have one.
    pub(crate) fn new(members: &[Member], layout: &Layout) -> Self {
        if members.len() <= 1 {
            return Self { owners: None };
        }
        let mut owners = vec![Owned::default(); SLOTS];
        let weights = weights(members, layout);
        for (slot, owned) in owners.iter_mut().enumerate() {
            *owned = draw(slot, members, &weights);
        }
        Self { owners: Some(owners.into()) }
    }

    /// The slots of the next view, which has the same layout, from those of the last one: members that
    /// came draw against the owners, and slots of members that went are drawn anew. A view is installed
    /// while everybody waits, and this is most of it.
    pub(crate) fn next(&self, before: &[Member], members: &[Member], layout: &Layout) -> Self {
        let weightless = |all: &[Member]| all.iter().all(|m| layout.weight(m.node) == 0);
        let Some(owners) = &self.owners else { return Self::new(members, layout) };
        if members.len() <= 1 || weightless(before) || weightless(members) {
            return Self::new(members, layout);
        }
        let weights = weights(members, layout);
        let index = |node| members.iter().position(|member| member.node == node);
        let stays: Vec<Option<usize>> = before.iter().map(|member| index(member.node)).collect();
        let mut owners = owners.to_vec();
        for (slot, owned) in owners.iter_mut().enumerate() {
            match stays.get(usize::from(owned.index)).copied().flatten() {
                Some(index) => owned.index = index as u16,
                None => *owned = draw(slot, members, &weights),
            }
        }
        let came = |member: &Member| before.iter().all(|old| old.node != member.node);
        for (index, member) in (0u16..).zip(members).filter(|(_, member)| came(member)) {
            for (slot, owned) in owners.iter_mut().enumerate() {
                for score in scores(slot, *member, weights[usize::from(index)]) {
                    if (score, index) > (owned.score, owned.index) {
                        *owned = Owned { score, index };
                    }
                }
            }
        }
        Self { owners: Some(owners.into()) }
    }

    /// Index of the member that owns a slot.
    #[inline]
    pub(crate) fn owner(&self, slot: u16) -> usize {
        self.owners.as_ref().map_or(0, |owners| usize::from(owners[usize::from(slot)].index))
    }
}

/// How often each member draws.
fn weights(members: &[Member], layout: &Layout) -> Vec<u32> {
    let mut weights: Vec<u32> =
        members.iter().map(|member| layout.weight(member.node).min(WEIGHT_MAX)).collect();
    if weights.iter().all(|weight| *weight == 0) {
        weights.fill(1);
    }
    weights
}

/// What a member draws for a slot.
fn scores(slot: usize, member: Member, weight: u32) -> impl Iterator<Item = u64> {
    let seed = u64::from(member.node.0) << 32 ^ slot as u64;
    (0..u64::from(weight)).map(move |draw| mix(seed ^ (draw << 12)))
}

/// The member with the highest draw; of equal ones the last.
fn draw(slot: usize, members: &[Member], weights: &[u32]) -> Owned {
    let mut best = Owned::default();
    for (index, (member, weight)) in (0u16..).zip(members.iter().zip(weights)) {
        for score in scores(slot, *member, *weight) {
            if score >= best.score {
                best = Owned { score, index };
            }
        }
    }
    best
}

impl Slots {
    /// The slots of the member with this index.
    pub(crate) fn of(&self, index: Option<usize>) -> SlotSet {
        let Some(index) = index else { return SlotSet::default() };
        let Some(owners) = &self.owners else { return SlotSet { words: [u64::MAX; SLOTS / 64] } };
        let mut set = SlotSet::default();
        for (word, owners) in set.words.iter_mut().zip(owners.chunks(64)) {
            let bits = owners.iter().map(|owned| u64::from(usize::from(owned.index) == index));
            *word = bits.zip(0u32..).fold(0, |word, (bit, at)| word | bit << at);
        }
        set
    }
}

/// A set of slots.
#[derive(Clone, Hash, Debug)]
pub(crate) struct SlotSet {
    words: [u64; SLOTS / 64],
}

impl Default for SlotSet {
    fn default() -> Self {
        Self { words: [0; SLOTS / 64] }
    }
}

impl SlotSet {
    /// Whether no slot is in it.
    pub(crate) fn is_empty(&self) -> bool {
        self.words.iter().all(|word| *word == 0)
    }

    /// Whether this slot is in it.
    #[inline]
    pub(crate) fn contains(&self, slot: u16) -> bool {
        self.words[usize::from(slot) / 64] & (1 << (slot % 64)) != 0
    }

    /// Puts a slot in.
    pub(crate) fn insert(&mut self, slot: u16) {
        self.words[usize::from(slot) / 64] |= 1 << (slot % 64);
    }

    /// The slots that are in both.
    pub(crate) fn and(&self, other: &Self) -> Self {
        self.with(other, |a, b| a & b)
    }

    /// The slots that are in either.
    pub(crate) fn or(&self, other: &Self) -> Self {
        self.with(other, |a, b| a | b)
    }

    /// The slots that are not in the other.
    pub(crate) fn without(&self, other: &Self) -> Self {
        self.with(other, |a, b| a & !b)
    }

    fn with(&self, other: &Self, join: impl Fn(u64, u64) -> u64) -> Self {
        let mut both = self.clone();
        both.words.iter_mut().zip(other.words).for_each(|(word, other)| *word = join(*word, other));
        both
    }

    /// Its slots as inclusive ranges, in order.
    pub(crate) fn ranges(&self) -> Vec<(u16, u16)> {
        let mut ranges: Vec<(u16, u16)> = Vec::new();
        for (first, word) in (0u16..).step_by(64).zip(self.words) {
            let mut rest = word;
            while rest != 0 {
                let slot = first + rest.trailing_zeros() as u16;
                rest &= rest - 1;
                match ranges.last_mut().filter(|last| last.1 + 1 == slot) {
                    Some(last) => last.1 = slot,
                    None => ranges.push((slot, slot)),
                }
            }
        }
        ranges
    }

    /// Takes all out.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }
}

/// A finalizer that spreads every input bit over every output bit.
fn mix(mut x: u64) -> u64 {
    x ^= x >> 33;
    x = x.wrapping_mul(0xff51_afd7_ed55_8ccd);
    x ^= x >> 33;
    x = x.wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    x ^ (x >> 33)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::NodeId;

    fn members(ids: &[u32]) -> Vec<Member> {
        ids.iter().map(|id| Member { node: NodeId(*id), incarnation: 1 }).collect()
    }

    #[test]
    fn slots_of_names_are_fixed() {
        let vectors: [(&[u8], u16); 4] =
            [(b"", 3837), (b"a", 2090), (b"res0", 2760), (b"res1", 3079)];
        for (name, slot) in vectors {
            assert_eq!(slot_of(name), slot, "{}", name.escape_ascii());
        }
    }

    #[test]
    fn a_set_knows_each_slot() {
        let mut set = SlotSet::default();
        for slot in [0, 63, 64, 4095] {
            set.insert(slot);
        }
        let all: Vec<u16> = (0..SLOTS as u16).filter(|slot| set.contains(*slot)).collect();
        assert_eq!(all, [0, 63, 64, 4095]);
        assert_eq!(set.ranges(), [(0, 0), (63, 64), (4095, 4095)]);
        let mut other = SlotSet::default();
        (60..70).for_each(|slot| other.insert(slot));
        assert_eq!(set.and(&other).ranges(), [(63, 64)]);
        assert_eq!(set.without(&other).ranges(), [(0, 0), (4095, 4095)]);
        assert_eq!(set.or(&other).ranges(), [(0, 0), (60, 69), (4095, 4095)]);
        set.clear();
        assert!(set.is_empty());
    }

    #[test]
    fn a_member_that_comes_moves_only_its_own_share() {
        let (three, four) = (members(&[1, 2, 3]), members(&[1, 2, 3, 4]));
        let layout = Layout::default();
        let (before, after) = (Slots::new(&three, &layout), Slots::new(&four, &layout));
        let mut moved = 0;
        for slot in 0..SLOTS as u16 {
            let (old, new) = (three[before.owner(slot)], four[after.owner(slot)]);
            if old != new {
                assert_eq!(new.node, NodeId(4), "slot {slot} moved between old members");
                moved += 1;
            }
        }
        assert!((700..1400).contains(&moved), "{moved} slots moved");
        for index in 0..4 {
            let set = after.of(Some(index));
            assert!(
                (0..SLOTS as u16).all(|slot| set.contains(slot) == (after.owner(slot) == index))
            );
        }
        assert!(after.of(None).is_empty());
        assert_eq!(Slots::new(&three[..1], &layout).of(Some(0)).ranges(), [(0, 4095)]);
    }

    #[test]
    fn weights_are_shares_and_who_has_none_owns_nothing() {
        let three = members(&[1, 2, 3]);
        let share = |layout: &Layout, of: usize| {
            let slots = Slots::new(&three, layout);
            (0..SLOTS as u16).filter(|slot| slots.owner(*slot) == of).count()
        };
        let masters = vec![(NodeId(1), 1), (NodeId(3), 3)];
        let layout = Layout { nodir: false, masters };
        let shares = [0, 1, 2].map(|of| share(&layout, of));
        assert_eq!((shares[1], shares[0] + shares[2]), (0, SLOTS));
        assert!((2900..3250).contains(&shares[2]), "three quarters: {shares:?}");
        // All masters are away: everybody is one.
        let elsewhere = Layout { nodir: false, masters: vec![(NodeId(9), 5)] };
        assert!((0..3).all(|of| share(&elsewhere, of) > 1000));
    }

    #[test]
    fn the_next_views_slots_are_those_of_that_view_whatever_came_before() {
        let views: [&[u32]; 8] =
            [&[1, 2, 3], &[1, 3], &[1, 3, 9], &[9, 2], &[2], &[2, 4, 5, 6], &[6, 4, 1, 2], &[7, 8]];
        let masters = vec![(NodeId(2), 3), (NodeId(3), 1), (NodeId(9), 2), (NodeId(4), 1)];
        let weighted = Layout { masters, ..Layout::default() };
        for layout in [Layout::default(), weighted] {
            let (mut slots, mut before) = (Slots::default(), members(&[5]));
            for ids in views {
                let now = members(ids);
                slots = slots.next(&before, &now, &layout);
                assert_eq!(slots.owners, Slots::new(&now, &layout).owners, "{ids:?}");
                before = now;
            }
        }
    }
}
