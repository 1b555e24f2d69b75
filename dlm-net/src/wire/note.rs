//! Notes: what daemons say to each other beside the lock messages of the core (wire.md section 8).
//!
//! A note decides nothing about locks. One that is not understood is dropped, so that a later
//! version may have more of them.

use bincode::config::{Configuration, Limit, LittleEndian, Varint};
use bincode::{Decode, Encode};
use dlm_core::{Member, NodeId};
use dlm_ipc::control::{MemberRecord, ResourceRecord};

use super::limits::BODY_BYTES_MAX;

/// Largest ratio of memory to message is that of an empty string, 24 bytes to one.
const DECODED_BYTES_MAX: usize = 32 * BODY_BYTES_MAX;

const CONFIG: Configuration<LittleEndian, Varint, Limit<DECODED_BYTES_MAX>> =
    bincode::config::standard().with_limit::<DECODED_BYTES_MAX>();

/// A note.
#[derive(Clone, PartialEq, Debug, Encode, Decode)]
pub enum Note {
    /// Who holds a name, and who waits for it? Answered by [`Note::Told`] with the same ticket.
    Ask {
        /// The asker's number for the question.
        ticket: u64,
        /// Lockspace name.
        lockspace: Vec<u8>,
        /// Resource name.
        name: Vec<u8>,
    },
    /// The answer.
    Told {
        /// The question's number.
        ticket: u64,
        /// What the answerer knows.
        answer: Told,
    },
}

/// What a daemon knows of a name.
#[derive(Clone, PartialEq, Debug, Encode, Decode)]
pub enum Told {
    /// It masters the name.
    Here {
        /// Queues and value block; nodes by their numbers, 0 for none.
        resource: ResourceRecord,
        /// Locks that did not fit.
        omitted: u64,
    },
    /// Another member masters it.
    Master(MemberRecord),
    /// Another member's directory knows.
    Directory(MemberRecord),
    /// Nobody uses it.
    Nowhere,
    /// Nobody serves it at the moment.
    Unsettled,
    /// The answerer has not opened the lockspace.
    NoLockspace,
}

impl Note {
    /// The note's bytes; `None` if it is longer than a frame's body may be.
    pub fn to_bytes(&self) -> Option<Vec<u8>> {
        let bytes = bincode::encode_to_vec(self, CONFIG).ok()?;
        (bytes.len() <= BODY_BYTES_MAX).then_some(bytes)
    }

    /// Understands a note; `None` for anything else.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (note, used) = bincode::decode_from_slice(bytes, CONFIG).ok()?;
        (used == bytes.len()).then_some(note)
    }
}

/// A member as notes write it.
pub fn record(member: Member) -> MemberRecord {
    MemberRecord { node: member.node.0, incarnation: member.incarnation }
}

/// A member as the core writes it.
pub fn member(record: MemberRecord) -> Member {
    Member { node: NodeId(record.node), incarnation: record.incarnation }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn golden(note: &Note, hex: &str) {
        let bytes = note.to_bytes().expect("short");
        let found: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(found, hex, "{note:?}");
        assert_eq!(Note::from_bytes(&bytes).as_ref(), Some(note));
        for len in 0..bytes.len() {
            assert_eq!(Note::from_bytes(&bytes[..len]), None, "cut to {len}: {note:?}");
        }
        assert_eq!(Note::from_bytes(&[&bytes[..], &[0]].concat()), None, "{note:?}");
    }

    #[test]
    fn notes_have_these_bytes() {
        let ask = Note::Ask { ticket: 300, lockspace: b"web".to_vec(), name: vec![0, 0xff] };
        golden(&ask, "00fb2c01037765620200ff");
        let told = |answer| Note::Told { ticket: 1, answer };
        let resource = ResourceRecord {
            name: b"r".to_vec(),
            master: 2,
            unsettled: false,
            value: None,
            locks: Vec::new(),
        };
        golden(&told(Told::Here { resource, omitted: 9 }), "01010001720200000009");
        let of = MemberRecord { node: 3, incarnation: 1 << 24 };
        golden(&told(Told::Master(of)), "01010103fc00000001");
        golden(&told(Told::Directory(of)), "01010203fc00000001");
        golden(&told(Told::Nowhere), "010103");
        golden(&told(Told::Unsettled), "010104");
        golden(&told(Told::NoLockspace), "010105");
    }

    #[test]
    fn unknown_notes_and_lying_lengths_are_none() {
        assert_eq!(Note::from_bytes(&[2, 1]), None);
        assert_eq!(Note::from_bytes(b"\x00\x01\xfd\x00\x00\x00\x00\x00\x00\x00\x40"), None);
        let long = Note::Ask { ticket: 1, lockspace: vec![0; BODY_BYTES_MAX], name: Vec::new() };
        assert_eq!(long.to_bytes(), None);
    }
}
