//! What the group below reports, and what daemons tell each other in it, in bytes.
//!
//! The group delivers every message to all its members, the sender too, in one order, and tells them
//! of joins and losses at the same place of that order. So whatever is decided from messages alone is
//! decided alike by all who move together. A body is a version and a bincode body with a bound on its
//! length; anything else is refused, never half taken.

use std::collections::{BTreeMap, BTreeSet};

use bincode::{Decode, Encode};
use dlm_ipc::control::{MemberRecord, StayRecord, ViewRecord};

use crate::wire::envelope::{open, seal};

/// Largest encoded message, in bytes; far below what the group carries at once.
pub(crate) const MESSAGE_BYTES_MAX: usize = 256 * 1024;
/// The form of these messages.
const VERSION: u8 = 1;

/// A membership of the engine below: a number that grows, and the node that formed it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Encode, Decode)]
pub(crate) struct Ring {
    /// Who formed it.
    pub(crate) node: u32,
    /// Its number.
    pub(crate) seq: u64,
}

/// A process in the group.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Encode, Decode)]
pub(crate) struct Process {
    pub(crate) node: u32,
    pub(crate) pid: u32,
}

/// Why a process is not in the group any more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Left {
    /// It left by itself.
    Leave,
    /// Its node is out of the ring.
    NodeDown,
    /// It ended without leaving.
    ProcessDown,
}

impl Left {
    /// In corosync's numbers.
    pub(crate) fn of(reason: u32) -> Self {
        match reason {
            2 => Self::Leave,
            3 => Self::NodeDown,
            _ => Self::ProcessDown,
        }
    }

    /// In the numbers of listings (`dlm_ipc::control::left`).
    pub(crate) fn number(self) -> u32 {
        match self {
            Self::Leave => dlm_ipc::control::left::LEAVE,
            Self::NodeDown => dlm_ipc::control::left::NODE_DOWN,
            Self::ProcessDown => dlm_ipc::control::left::PROCESS_DOWN,
        }
    }
}

/// What the engine below says.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Event {
    /// The group is in this ring.
    Ring(Ring),
    /// Who is in the group, and who is not any more.
    Group {
        /// All members.
        members: Vec<Process>,
        /// Who left, and why.
        left: Vec<(Process, Left)>,
        /// Whether that is since nodes came or went: the new ring is told next.
        new_ring: bool,
    },
    /// A message.
    Message {
        /// Its sender.
        from: Process,
        /// What.
        bytes: Vec<u8>,
    },
    /// Quorum in a ring.
    Quorum {
        /// Which ring.
        ring: Ring,
        /// Whether it is quorate.
        quorate: bool,
    },
}

/// One configuration of the group: the ring, and a digest of who is in the group. A decision counts
/// only in the configuration for which it was made.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Encode, Decode)]
pub(crate) struct Tag {
    pub(crate) ring: Ring,
    pub(crate) members: u64,
}

impl Tag {
    /// The configuration of this ring and these processes, in ascending order.
    pub(crate) fn of(ring: Ring, members: &BTreeSet<Process>) -> Self {
        let words = members.iter().flat_map(|process| [process.node, process.pid]);
        // FNV-1a: it tells configurations of one ring apart, it protects against nobody.
        let step = |hash: u64, word: u32| (hash ^ u64::from(word)).wrapping_mul(0x0100_0000_01b3);
        Self { ring, members: words.fold(0xcbf2_9ce4_8422_2325, step) }
    }
}

/// Which history a daemon follows: how often the set of lives that take part was changed, and which
/// life decided that last. Nobody is in two histories, and the longer one counts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Encode, Decode)]
pub(crate) struct Lineage {
    /// How many changes; 0: none was heard of.
    pub(crate) epoch: u64,
    /// Node and life that decided the last one.
    pub(crate) decider: (u32, u64),
}

/// A life that was lost and may still do harm.
#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
pub(crate) struct LostRecord {
    /// Its node and incarnation; 0: whatever the node did before it was ever seen.
    pub(crate) life: MemberRecord,
    /// Why ([`Left::number`]); 0: it was never seen.
    pub(crate) why: u32,
    /// When, wall-clock seconds of who decided it.
    pub(crate) wall: u64,
    /// Which boot of its machine it belonged to; 0 unknown.
    pub(crate) boot: u128,
    /// Who took part then, without it.
    pub(crate) witnesses: BTreeSet<u32>,
    /// After how many nanoseconds its lease has made it harmless; 0: it had none.
    pub(crate) safe_after: u64,
}

/// Said by every daemon in every new configuration, and when it begins a new life.
#[derive(Clone, PartialEq, Debug, Encode, Decode)]
pub(crate) struct Hello {
    pub(crate) tag: Tag,
    /// The present life and the first one of the process.
    pub(crate) life: u64,
    pub(crate) first_life: u64,
    /// Whether no client of an earlier process on this machine can act any more.
    pub(crate) clean: bool,
    /// Which boot of the machine this is.
    pub(crate) boot: u128,
    /// After how many nanoseconds its lease makes it harmless; 0: it has none.
    pub(crate) safe_after: u64,
    /// Whether this life never took part in anything.
    pub(crate) fresh: bool,
    /// What it knows of history.
    pub(crate) lineage: Lineage,
    /// Who takes part, by that history: the life of each node.
    pub(crate) body: BTreeMap<u32, u64>,
    /// Who is feared, by that history.
    pub(crate) lost: Vec<LostRecord>,
    /// Up to which life each node is known to be harmless.
    pub(crate) harmless: BTreeMap<u32, u64>,
    /// Single lives beyond that which are harmless.
    pub(crate) cleared: BTreeSet<(u32, u64)>,
    /// View numbers up to this one may have been used.
    pub(crate) view_floor: u32,
}

/// A message.
#[derive(Clone, PartialEq, Debug, Encode, Decode)]
pub(crate) enum Message {
    /// Who somebody is.
    Hello(Hello),
    /// What changed of a daemon's report since its last part; the first part in a configuration
    /// carries all.
    Report(ReportPart),
    /// Who takes part from now on.
    Body {
        tag: Tag,
        /// What this follows.
        after: Lineage,
        /// Who decides.
        decider: (u32, u64),
        /// The life of each node.
        members: BTreeMap<u32, u64>,
        /// All who are feared from now on.
        lost: Vec<LostRecord>,
        /// Lives that are out by this and held nothing.
        idle: BTreeMap<u32, u64>,
    },
    /// A view of a lockspace.
    View { tag: Tag, lineage: Lineage, lockspace: Vec<u8>, view: ViewRecord },
    /// A member of a view is harmless.
    Safe { member: MemberRecord },
    /// This life of the node, and all before it, is harmless.
    Harmless { node: u32, life: u64 },
    /// Sent at this time of the sender's clock.
    Tick {
        at: u64,
        /// The last ticks that the sender heard of others.
        heard: Vec<(Process, u64)>,
    },
    /// Fencing's own.
    Fence(Vec<u8>),
    /// This life has no lockspace any more, and its daemon leaves.
    Goodbye { life: u64 },
}

/// A part of a report.
#[derive(Clone, PartialEq, Debug, Encode, Decode)]
pub(crate) struct ReportPart {
    pub(crate) tag: Tag,
    /// Whether what was said before is void.
    pub(crate) anew: bool,
    /// Whether more parts belong to it.
    pub(crate) more: bool,
    pub(crate) life: u64,
    pub(crate) first_life: u64,
    pub(crate) remains: Vec<u64>,
    pub(crate) connected: Vec<u32>,
    pub(crate) unreachable: Vec<u32>,
    /// Stays that are new or changed.
    pub(crate) stays: Vec<StayRecord>,
    /// Lockspaces that were left.
    pub(crate) left: Vec<Vec<u8>>,
}

impl Message {
    /// The message's bytes.
    ///
    /// # Panics
    /// Never: plain values can be encoded.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        seal::<{ 8 * MESSAGE_BYTES_MAX }>(VERSION, self)
    }

    /// Understands a message; `None` for anything else.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        open::<Self, { 8 * MESSAGE_BYTES_MAX }>(VERSION, MESSAGE_BYTES_MAX, bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples() -> Vec<Message> {
        let tag = Tag::of(Ring { node: 1, seq: 8 }, &BTreeSet::from([Process { node: 1, pid: 9 }]));
        let life = MemberRecord { node: 2, incarnation: 7 << 24 };
        let lost = LostRecord {
            life,
            why: 3,
            wall: 5,
            boot: 1 << 100,
            witnesses: [1, 3].into(),
            safe_after: 9,
        };
        let view = ViewRecord { id: 4, members: vec![life], unsafe_members: Vec::new() };
        let lineage = Lineage { epoch: 3, decider: (1, 1 << 30) };
        let hello = Hello {
            tag,
            life: 1,
            first_life: 1,
            clean: true,
            boot: 2,
            safe_after: 9,
            fresh: true,
            lineage,
            body: [(1, 1)].into(),
            lost: vec![lost.clone()],
            harmless: [(2, 6)].into(),
            cleared: [(2, 9)].into(),
            view_floor: 9,
        };
        let stay = StayRecord {
            lockspace: b"a".to_vec(),
            incarnation: 1,
            view: view.clone(),
            wants_view: true,
        };
        let part = ReportPart {
            tag,
            anew: true,
            more: false,
            life: 1,
            first_life: 1,
            remains: vec![1],
            connected: vec![2],
            unreachable: vec![3],
            stays: vec![stay],
            left: vec![b"b".to_vec()],
        };
        vec![
            Message::Hello(hello),
            Message::Report(part),
            Message::Body {
                tag,
                after: lineage,
                decider: (1, 1),
                members: [(1, 1)].into(),
                lost: vec![lost],
                idle: [(2, 1)].into(),
            },
            Message::View { tag, lineage, lockspace: b"a".to_vec(), view },
            Message::Safe { member: life },
            Message::Harmless { node: 1, life: 2 },
            Message::Tick { at: u64::MAX, heard: vec![(Process { node: 2, pid: 9 }, 7)] },
            Message::Fence(vec![0; 300]),
            Message::Goodbye { life: 1 },
        ]
    }

    #[test]
    fn messages_come_back_as_they_were_and_anything_else_is_refused() {
        for message in samples() {
            let bytes = message.to_bytes();
            assert_eq!(Message::from_bytes(&bytes).as_ref(), Some(&message));
            for length in 0..bytes.len() {
                assert_eq!(
                    Message::from_bytes(&bytes[..length]),
                    None,
                    "{message:?} cut at {length}"
                );
            }
            let mut other = bytes.clone();
            other.push(0);
            assert_eq!(Message::from_bytes(&other), None);
            other.pop();
            other[0] = VERSION + 1;
            assert_eq!(Message::from_bytes(&other), None);
        }
    }

    #[test]
    fn configurations_differ_by_ring_and_by_processes() {
        let (one, two) = (Process { node: 1, pid: 5 }, Process { node: 2, pid: 5 });
        let ring = Ring { node: 1, seq: 4 };
        let both = Tag::of(ring, &[one, two].into());
        assert_eq!(both, Tag::of(ring, &[two, one].into()));
        assert_ne!(both, Tag::of(ring, &[one].into()));
        assert_ne!(both, Tag::of(Ring { node: 1, seq: 8 }, &[one, two].into()));
        assert_ne!(both, Tag::of(ring, &[one, Process { node: 2, pid: 6 }].into()));
    }
}
