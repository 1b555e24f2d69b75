//! A set of table indices: one bit each, so that putting a million in and taking them out again costs
//! a million bits and no tree.

use std::hash::{Hash, Hasher};

/// The set; it goes through its members in ascending order.
#[derive(Clone, Debug, Default)]
pub(crate) struct IndexSet {
    words: Vec<u64>,
    len: usize,
}

impl IndexSet {
    /// Puts an index in.
    pub(crate) fn insert(&mut self, index: u32) {
        let (word, bit) = place(index);
        if word >= self.words.len() {
            self.words.resize(word + 1, 0);
        }
        self.len += usize::from(self.words[word] & bit == 0);
        self.words[word] |= bit;
    }

    /// Takes an index out.
    pub(crate) fn remove(&mut self, index: u32) {
        let (word, bit) = place(index);
        let Some(word) = self.words.get_mut(word) else { return };
        self.len -= usize::from(*word & bit != 0);
        *word &= !bit;
        if self.len == 0 && self.words.len() > WORDS_KEPT {
            self.words = Vec::new();
        }
    }

    /// All that are in it.
    pub(crate) fn iter(&self) -> impl Iterator<Item = u32> {
        self.words.iter().enumerate().flat_map(|(at, word)| {
            let mut rest = *word;
            core::iter::from_fn(move || {
                let bit = (rest != 0).then(|| rest.trailing_zeros())?;
                rest &= rest - 1;
                Some(at as u32 * u64::BITS + bit)
            })
        })
    }
}

/// Words that an emptied set keeps.
const WORDS_KEPT: usize = 1024;

fn place(index: u32) -> (usize, u64) {
    ((index / u64::BITS) as usize, 1 << (index % u64::BITS))
}

impl Hash for IndexSet {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.iter().for_each(|index| index.hash(state));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_come_in_order_and_go() {
        let mut set = IndexSet::default();
        for index in [200_000, 3, 64, 63, 3] {
            set.insert(index);
        }
        assert!(set.iter().eq([3, 63, 64, 200_000]));
        set.remove(64);
        set.remove(65);
        set.remove(9_000_000);
        assert!(set.iter().eq([3, 63, 200_000]));
        [3, 63, 200_000].into_iter().for_each(|index| set.remove(index));
        assert!(set.iter().next().is_none());
        assert!(set.words.is_empty(), "an emptied set gives its memory back");
    }
}
