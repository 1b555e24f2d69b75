//! Who may master names of a lockspace, and how masters are found (libdlm-abi.md 5.4).

use crate::NodeId;

/// How a lockspace is laid out over its members. All members have the same; who has another one is
/// never waited for successfully, so that two layouts cannot grant the same name.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Layout {
    /// The owner of a name's slot is its master, whoever uses it first (semantics.md 7.3). Off: the first
    /// who asks for a free name masters it.
    pub nodir: bool,
    /// Nodes with slots, and their shares; every other node has none. Empty: all have the same share.
    pub masters: Vec<(NodeId, u32)>,
}

impl Layout {
    /// A node's share of the slots, against those of the other members.
    pub(crate) fn weight(&self, node: NodeId) -> u32 {
        if self.masters.is_empty() {
            return 1;
        }
        let of = self.masters.iter().find(|(master, _)| *master == node);
        of.map_or(0, |(_, weight)| *weight)
    }

    /// A number that differs, in all likelihood, where layouts do; 0: nothing special.
    pub(crate) fn mark(&self) -> u32 {
        if *self == Self::default() {
            return 0;
        }
        let mut masters = self.masters.clone();
        masters.sort_unstable();
        let mut hash: u32 = 0x811c_9dc5 ^ u32::from(self.nodir);
        for (node, weight) in masters {
            for part in [node.0, weight] {
                hash = (hash ^ part).wrapping_mul(0x0100_0193);
                hash ^= hash >> 15;
            }
        }
        hash.max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_tell_layouts_apart_and_not_their_spelling() {
        let of = |nodir, masters: &[(u32, u32)]| {
            let masters = masters.iter().map(|(node, weight)| (NodeId(*node), *weight)).collect();
            Layout { nodir, masters }.mark()
        };
        let all = [of(false, &[]), of(true, &[]), of(true, &[(1, 1)]), of(true, &[(1, 2)])];
        assert_eq!(all[0], 0);
        for (index, mark) in all.iter().enumerate() {
            assert!(!all[..index].contains(mark), "layout {index} looks like an earlier one");
        }
        assert_eq!(of(true, &[(1, 1), (2, 5)]), of(true, &[(2, 5), (1, 1)]));
    }
}
