//! What daemons tell each other about fencing, in bytes.
//!
//! The group that carries them delivers every message to all its members, the sender too, in one
//! order; so what is decided from messages alone is decided alike everywhere. A body is a version
//! and a bincode body with a bound on its length; anything else is refused, never half taken.

use std::collections::BTreeSet;

use bincode::{Decode, Encode};
use dlm_core::{Member, NodeId};

use crate::wire::envelope::{open, seal};

/// Largest encoded message, in bytes.
pub const MESSAGE_BYTES_MAX: usize = 48 * 1024;
/// Most memory that a message may claim while it is taken apart: a set of numbers takes many times
/// its encoded length.
const DECODED_BYTES_MAX: usize = 32 * MESSAGE_BYTES_MAX;
/// The form of these messages.
const VERSION: u8 = 1;

/// A life of a node that has to be made harmless; life 0: whatever it did before it was ever seen.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Encode, Decode)]
pub struct Victim {
    /// The node's number.
    pub node: u32,
    /// The life's incarnation, or 0.
    pub life: u64,
}

impl From<Member> for Victim {
    fn from(member: Member) -> Self {
        let life = member.life();
        Self { node: life.node.0, life: life.incarnation }
    }
}

impl Victim {
    /// The life as the core names it.
    pub const fn member(self) -> Member {
        Member { node: NodeId(self.node), incarnation: self.life }
    }
}

/// How an attempt ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Encode, Decode)]
pub enum Outcome {
    /// The agents said that the node is off.
    Fenced,
    /// No way that the configuration names worked.
    Failed,
    /// A person said that the node is off.
    Acknowledged,
}

/// A message.
#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
pub enum Message {
    /// An attempt ended.
    Result {
        /// Whose.
        victim: Victim,
        /// How.
        outcome: Outcome,
        /// When, wall-clock seconds.
        wall: u64,
    },
    /// For a daemon that has just come: how far each case is.
    Cases(Vec<CaseNote>),
    /// Every attempt that the sender has under way or is about to begin, and no other. It begins when
    /// its own message comes back and nobody was first; said again whenever somebody comes.
    Attempts(Vec<Victim>),
}

/// How far a case is.
#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
pub struct CaseNote {
    /// Whose.
    pub victim: Victim,
    /// Witnesses that have taken part ever since.
    pub witnesses: BTreeSet<u32>,
    /// Whose agents failed in the present round.
    pub tried: BTreeSet<u32>,
}

impl Message {
    /// The message's bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        seal::<DECODED_BYTES_MAX>(VERSION, self)
    }

    /// Understands a message; `None` for anything else.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        open::<Self, DECODED_BYTES_MAX>(VERSION, MESSAGE_BYTES_MAX, bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cases(nodes: u32) -> Message {
        let all: BTreeSet<u32> = (1..=nodes).collect();
        let note = |node| CaseNote {
            victim: Victim { node, life: u64::MAX },
            witnesses: all.clone(),
            tried: all.clone(),
        };
        Message::Cases((1..=nodes).map(note).collect())
    }

    fn attempts(nodes: u32) -> Message {
        Message::Attempts((1..=nodes).map(|node| Victim { node, life: u64::MAX }).collect())
    }

    #[test]
    fn messages_come_back_as_they_were() {
        let victim = Victim { node: 3, life: 7 << 24 };
        let result = |outcome| Message::Result { victim, outcome, wall: 1_700_000_000 };
        let outcomes = [Outcome::Fenced, Outcome::Failed, Outcome::Acknowledged];
        for message in outcomes.map(result).into_iter().chain([cases(3), cases(0), attempts(3)]) {
            let bytes = message.to_bytes();
            assert!(Message::from_bytes(&bytes) == Some(message));
        }
    }

    #[test]
    fn the_largest_cluster_in_the_worst_state_fits() {
        let message = cases(128);
        let bytes = message.to_bytes();
        assert!(bytes.len() < MESSAGE_BYTES_MAX, "{}", bytes.len());
        assert!(Message::from_bytes(&bytes) == Some(message));
    }

    #[test]
    fn anything_else_is_refused() {
        let good = cases(2).to_bytes();
        for length in 0..good.len() {
            assert_eq!(Message::from_bytes(&good[..length]), None, "cut at {length}");
        }
        let mut longer = good.clone();
        longer.push(0);
        assert_eq!(Message::from_bytes(&longer), None);
        let mut newer = good;
        newer[0] = VERSION + 1;
        assert_eq!(Message::from_bytes(&newer), None);
        assert_eq!(Message::from_bytes(&[VERSION, 1, 0xfd, 0xff, 0xff, 0xff]), None);
    }
}
