//! Frames: a header of 24 bytes, written and read by hand, and a body (wire.md section 3).

use super::limits::{BODY_BYTES_MAX, HEADER_BYTES};

/// First two bytes of every frame.
pub const MAGIC: [u8; 2] = *b"DF";
/// Layout of the header.
pub const FRAME_VERSION: u8 = 1;

/// What a frame carries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Kind {
    /// Who is there and what it has heard so far: first in both directions.
    Hello = 1,
    /// Why there will be no conversation; last.
    Refuse = 2,
    /// A numbered lock message.
    Message = 3,
    /// A numbered note of the daemon.
    Note = 4,
    /// Nothing but the header: I live, and have heard this far.
    Alive = 5,
    /// The daemon ends; last.
    Goodbye = 6,
}

impl Kind {
    const ALL: [Self; 6] =
        [Self::Hello, Self::Refuse, Self::Message, Self::Note, Self::Alive, Self::Goodbye];

    /// Whether frames of this kind have a number and are sent again until they are acknowledged.
    pub const fn is_numbered(self) -> bool {
        matches!(self, Self::Message | Self::Note)
    }

    /// Whether frames of this kind have a body.
    const fn has_body(self) -> bool {
        !matches!(self, Self::Alive | Self::Goodbye)
    }

    fn of_number(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| *kind as u8 == number)
    }
}

/// A frame's header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// What the frame carries.
    pub kind: Kind,
    /// Bytes of the body.
    pub length: usize,
    /// Number of a numbered frame, from 1; else 0.
    pub sequence: u64,
    /// Highest number up to which the sender has received everything.
    pub ack: u64,
}

/// What is wrong with a header.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FrameError {
    /// The stream is out of step, or not ours.
    #[error("a frame begins with {0:02x}{1:02x}")]
    Magic(u8, u8),
    /// A layout we do not know.
    #[error("a frame has layout {0}")]
    Version(u8),
    /// A kind we do not know.
    #[error("a frame is of the unknown kind {0}")]
    Kind(u8),
    /// Bits that mean nothing yet.
    #[error("a frame has unknown flags {0:#04x}")]
    Flags(u8),
    /// The body is longer than allowed, or there is one where none belongs.
    #[error("a frame of kind {kind} has {length} bytes, of which {max} are allowed")]
    Length {
        /// The kind's number.
        kind: u8,
        /// What the header says.
        length: usize,
        /// What is allowed at this point of the conversation.
        max: usize,
    },
    /// A number where none belongs, or none where one belongs.
    #[error("a frame of kind {kind} has number {sequence}")]
    Sequence {
        /// The kind's number.
        kind: u8,
        /// What the header says.
        sequence: u64,
    },
}

impl Header {
    /// The header's bytes.
    ///
    /// # Panics
    /// If `length` is above [`BODY_BYTES_MAX`]: bodies are bounded where they are made.
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        assert!(self.length <= BODY_BYTES_MAX, "{} bytes", self.length);
        let mut bytes = [0; HEADER_BYTES];
        bytes[..2].copy_from_slice(&MAGIC);
        bytes[2] = FRAME_VERSION;
        bytes[3] = self.kind as u8;
        bytes[5..8].copy_from_slice(&(self.length as u32).to_le_bytes()[..3]);
        bytes[8..16].copy_from_slice(&self.sequence.to_le_bytes());
        bytes[16..].copy_from_slice(&self.ack.to_le_bytes());
        bytes
    }

    /// Reads a header; bodies may have up to `length_max` bytes.
    ///
    /// # Errors
    /// As [`FrameError`] says.
    pub fn decode(bytes: &[u8; HEADER_BYTES], length_max: usize) -> Result<Self, FrameError> {
        let [m0, m1, version, number, flags, l0, l1, l2, numbers @ ..] = bytes;
        if [*m0, *m1] != MAGIC {
            return Err(FrameError::Magic(*m0, *m1));
        }
        if *version != FRAME_VERSION {
            return Err(FrameError::Version(*version));
        }
        let kind = Kind::of_number(*number).ok_or(FrameError::Kind(*number))?;
        if *flags != 0 {
            return Err(FrameError::Flags(*flags));
        }
        let length = u32::from_le_bytes([*l0, *l1, *l2, 0]) as usize;
        let max = if kind.has_body() { length_max } else { 0 };
        if length > max {
            return Err(FrameError::Length { kind: *number, length, max });
        }
        let (sequence, ack) = numbers.split_at(8);
        let word = |bytes: &[u8]| bytes.iter().rev().fold(0, |w, byte| w << 8 | u64::from(*byte));
        let (sequence, ack) = (word(sequence), word(ack));
        if kind.is_numbered() != (sequence != 0) {
            return Err(FrameError::Sequence { kind: *number, sequence });
        }
        Ok(Self { kind, length, sequence, ack })
    }
}

/// A whole frame at the beginning of a stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Frame<'a> {
    /// Its header.
    pub header: Header,
    /// Its body.
    pub body: &'a [u8],
    /// What follows.
    pub rest: &'a [u8],
}

/// Takes the first frame from `stream`, `None` if it is not complete yet; bodies may have up to
/// `length_max` bytes.
///
/// # Errors
/// As [`FrameError`] says; nothing after it can be understood.
pub fn split(stream: &[u8], length_max: usize) -> Result<Option<Frame<'_>>, FrameError> {
    let Some((head, rest)) = stream.split_first_chunk() else {
        return Ok(None);
    };
    let header = Header::decode(head, length_max)?;
    let frame = rest.split_at_checked(header.length);
    Ok(frame.map(|(body, rest)| Frame { header, body, rest }))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const GOLDEN: [u8; HEADER_BYTES] = [
        0x44, 0x46, 1, 3, 0, 0x03, 0x02, 0x01, 8, 7, 6, 5, 4, 3, 2, 1, 18, 17, 16, 15, 14, 13, 12,
        11,
    ];

    #[test]
    fn the_header_has_these_bytes() {
        let header = Header {
            kind: Kind::Message,
            length: 0x01_0203,
            sequence: 0x0102_0304_0506_0708,
            ack: 0x0b0c_0d0e_0f10_1112,
        };
        assert_eq!(header.encode(), GOLDEN);
        assert_eq!(Header::decode(&GOLDEN, BODY_BYTES_MAX), Ok(header));
    }

    #[test]
    fn each_wrong_field_has_its_own_error() {
        let with = |at: usize, byte: u8| {
            let mut bytes = GOLDEN;
            bytes[at] = byte;
            Header::decode(&bytes, BODY_BYTES_MAX).expect_err("refused")
        };
        assert_eq!(with(0, 0), FrameError::Magic(0, 0x46));
        assert_eq!(with(2, 2), FrameError::Version(2));
        for kind in [0, 7, 255] {
            assert_eq!(with(3, kind), FrameError::Kind(kind));
        }
        assert_eq!(with(4, 1), FrameError::Flags(1));
        let length = BODY_BYTES_MAX + 0x0203;
        assert_eq!(with(7, 4), FrameError::Length { kind: 3, length, max: BODY_BYTES_MAX });
        assert!(matches!(with(3, 5), FrameError::Length { kind: 5, max: 0, .. }));
        assert!(matches!(with(3, 1), FrameError::Sequence { kind: 1, .. }));
        let mut unnumbered = GOLDEN;
        unnumbered[8..16].fill(0);
        let refused = Header::decode(&unnumbered, BODY_BYTES_MAX);
        assert_eq!(refused, Err(FrameError::Sequence { kind: 3, sequence: 0 }));
        assert!(
            Header::decode(&GOLDEN, 0x01_0202).is_err()
                && Header::decode(&GOLDEN, 0x01_0203).is_ok()
        );
    }

    #[test]
    fn frames_are_split_only_when_complete() {
        let header = Header { kind: Kind::Note, length: 3, sequence: 1, ack: 0 };
        let mut stream = header.encode().to_vec();
        stream.extend(b"abcrest");
        for end in 0..HEADER_BYTES + 3 {
            assert_eq!(split(&stream[..end], 3), Ok(None), "{end}");
        }
        assert_eq!(split(&stream, 3), Ok(Some(Frame { header, body: b"abc", rest: b"rest" })));
    }

    proptest! {
        #[test]
        fn any_bytes_are_understood_or_refused(mut bytes: [u8; HEADER_BYTES], ours: [bool; 5]) {
            for (at, ours) in ours.into_iter().enumerate() {
                if ours {
                    bytes[at] = GOLDEN[at];
                }
            }
            if let Ok(header) = Header::decode(&bytes, BODY_BYTES_MAX) {
                prop_assert_eq!(header.encode(), bytes);
            }
            let _ = split(&bytes, BODY_BYTES_MAX);
        }
    }
}
