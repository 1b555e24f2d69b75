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

/// Which member owns each slot, by index in `members`; `None` where there is one member.
#[derive(Clone, Debug, Default)]
pub(crate) struct Slots {
    owners: Option<Arc<[u16]>>,
}

impl Slots {
    /// The slots of a view. Every member draws once per unit of its weight, and the highest draw wins;
    /// where nobody has any weight, all have one.
    pub(crate) fn new(members: &[Member], layout: &Layout) -> Self {
        if members.len() <= 1 {
            return Self { owners: None };
        }
        let mut weights: Vec<u32> =
            members.iter().map(|member| layout.weight(member.node).min(WEIGHT_MAX)).collect();
        if weights.iter().all(|weight| *weight == 0) {
            weights.fill(1);
        }
        // Member by member over all slots: a view is installed while everybody waits, and this is most of it.
        let (mut best, mut owners) = (vec![None; SLOTS], vec![0u16; SLOTS]);
        for (index, member) in (0u16..).zip(members) {
            let node = u64::from(member.node.0) << 32;
            for draw in 0..u64::from(weights[usize::from(index)]) {
                let seed = node ^ (draw << 12);
                for (slot, (best, owner)) in (0u64..).zip(best.iter_mut().zip(&mut owners)) {
                    let score = Some(mix(seed ^ slot));
                    if score >= *best {
                        (*best, *owner) = (score, index);
                    }
                }
            }
        }
        Self { owners: Some(owners.into()) }
    }

    /// Index of the member that owns a slot.
    #[inline]
    pub(crate) fn owner(&self, slot: u16) -> usize {
        self.owners.as_ref().map_or(0, |owners| usize::from(owners[usize::from(slot)]))
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

    /// Takes a slot out.
    pub(crate) fn remove(&mut self, slot: u16) {
        self.words[usize::from(slot) / 64] &= !(1 << (slot % 64));
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
        set.remove(64);
        assert!(!set.contains(64) && set.contains(63));
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
}
