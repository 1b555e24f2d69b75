//! Bodies of frames: the one place that knows bincode.
//!
//! The core's types know nothing of it; each is written and read here by hand, field by field in the
//! order of its declaration, and each kind of message has a number of its own. So the bytes do not
//! depend on how the core sorts its enums, and golden vectors (tests/wire_vectors.rs) pin them. Every length
//! is compared with its ceiling before anything is allocated, and what a number may be is checked:
//! modes are modes, slots are slots, names have up to 64 bytes.

use bincode::Encode;
use bincode::config::{self, Configuration, Limit, LittleEndian, Varint};
use bincode::de::read::Reader;
use bincode::de::{Decode, Decoder};
use bincode::enc::Encoder;
use bincode::enc::write::Writer;
use bincode::error::{AllowedEnumVariants, DecodeError, EncodeError};
use dlm_core::message::{Body, Ceded, Flight, Message, Outcome, Record, Standing, Tagged, Traffic};
use dlm_core::{LockFlags, LockId, Member, Mode, Name, NodeId, SbFlags, Token, Value, ViewId};

use super::limits::{BODY_BYTES_MAX, NAMES_MAX, REASON_BYTES_MAX, SLOT_RANGES_MAX, SLOTS};

/// Why a body is refused.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BodyError {
    /// It ends too early.
    #[error("a message ends in the middle")]
    Short,
    /// Something follows.
    #[error("{0} bytes follow the end of a message")]
    Trailing(usize),
    /// A number that stands for nothing we know.
    #[error("{found} is no {what}")]
    Unknown {
        /// What was expected.
        what: &'static str,
        /// What is there.
        found: u32,
    },
    /// A length or a number above its ceiling.
    #[error("{0}")]
    Bound(&'static str),
    /// Anything else that the decoder does not accept.
    #[error("a message is malformed ({0})")]
    Malformed(String),
    /// A message that we were to send is too long.
    #[error("a message of {0} bytes does not fit into a frame")]
    TooLarge(usize),
}

/// First words of a connection, in both directions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hello {
    /// Oldest minor version that the sender speaks.
    pub minor_min: u8,
    /// Newest minor version.
    pub minor_max: u8,
    /// Who it is.
    pub own: Member,
    /// The receiver's life with which it has a session; 0: none.
    pub peer_incarnation: u64,
    /// Resume point: the last number of that session it has received.
    pub received: u64,
    /// How often it has dialled in this life; the higher of two connections is the later one.
    pub dialled: u64,
}

/// Last words of a connection that is refused.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refuse {
    /// The receiver's life was excluded, and must begin a new one.
    pub excluded: bool,
    /// Why, for the log; cut to [`REASON_BYTES_MAX`].
    pub reason: String,
}

/// A message's bytes.
///
/// # Errors
/// [`BodyError::TooLarge`], which messages of the core never are.
pub fn encode_message(message: &Message) -> Result<Vec<u8>, BodyError> {
    let bytes = encode(message);
    if bytes.len() > BODY_BYTES_MAX { Err(BodyError::TooLarge(bytes.len())) } else { Ok(bytes) }
}

/// Appends a message's bytes to `out`.
///
/// # Errors
/// As [`encode_message`]; then `out` is as it was.
pub fn append_message(message: &Message, out: &mut Vec<u8>) -> Result<(), BodyError> {
    let before = out.len();
    // As in `encode`: memory takes every value.
    bincode::encode_into_writer(Put(message), Appended(out), LAYOUT)
        .expect("memory takes every value");
    let length = out.len() - before;
    if length > BODY_BYTES_MAX {
        out.truncate(before);
        return Err(BodyError::TooLarge(length));
    }
    Ok(())
}

/// Memory that grows at its end.
struct Appended<'a>(&'a mut Vec<u8>);

impl Writer for Appended<'_> {
    fn write(&mut self, bytes: &[u8]) -> Result<(), EncodeError> {
        self.0.extend_from_slice(bytes);
        Ok(())
    }
}

/// Reads a message, which must be all of `bytes`.
///
/// # Errors
/// As [`BodyError`] says.
pub fn decode_message(bytes: &[u8]) -> Result<Message, BodyError> {
    let (message, used) = decode(bytes)?;
    if used < bytes.len() { Err(BodyError::Trailing(bytes.len() - used)) } else { Ok(message) }
}

/// A greeting's bytes.
pub fn encode_hello(hello: &Hello) -> Vec<u8> {
    encode(hello)
}

/// Reads a greeting. Bytes behind it belong to later minor versions, and are skipped.
///
/// # Errors
/// As [`BodyError`] says.
pub fn decode_hello(bytes: &[u8]) -> Result<Hello, BodyError> {
    decode(bytes).map(|(hello, _)| hello)
}

/// A refusal's bytes.
pub fn encode_refuse(refuse: &Refuse) -> Vec<u8> {
    encode(refuse)
}

/// Reads a refusal. Bytes behind it belong to later minor versions, and are skipped.
///
/// # Errors
/// As [`BodyError`] says.
pub fn decode_refuse(bytes: &[u8]) -> Result<Refuse, BodyError> {
    decode(bytes).map(|(refuse, _)| refuse)
}

type Layout = Configuration<LittleEndian, Varint, Limit<BODY_BYTES_MAX>>;

const LAYOUT: Layout = config::standard().with_limit::<BODY_BYTES_MAX>();

fn encode<F: Field>(value: &F) -> Vec<u8> {
    // The writer is memory and every value can be written, so nothing can fail.
    bincode::encode_to_vec(Put(value), LAYOUT).expect("memory takes every value")
}

fn decode<F: Field>(bytes: &[u8]) -> Result<(F, usize), BodyError> {
    match bincode::decode_from_slice::<Take<F>, _>(bytes, LAYOUT) {
        Ok((Take(value), used)) => Ok((value, used)),
        Err(DecodeError::UnexpectedEnd { .. }) => Err(BodyError::Short),
        Err(DecodeError::UnexpectedVariant { type_name, found, .. }) => {
            Err(BodyError::Unknown { what: type_name, found })
        }
        Err(DecodeError::Other(sentence)) => Err(BodyError::Bound(sentence)),
        Err(DecodeError::LimitExceeded) => Err(BodyError::Bound("a message is too long")),
        Err(other) => Err(BodyError::Malformed(other.to_string())),
    }
}

/// Something that can be written and read.
trait Field: Sized {
    fn put<E: Encoder>(&self, e: &mut E) -> Result<(), EncodeError>;
    fn take<D: Decoder>(d: &mut D) -> Result<Self, DecodeError>;
}

struct Put<'a, F>(&'a F);
struct Take<F>(F);

impl<F: Field> Encode for Put<'_, F> {
    fn encode<E: Encoder>(&self, e: &mut E) -> Result<(), EncodeError> {
        self.0.put(e)
    }
}

impl<C, F: Field> Decode<C> for Take<F> {
    fn decode<D: Decoder<Context = C>>(d: &mut D) -> Result<Self, DecodeError> {
        F::take(d).map(Self)
    }
}

macro_rules! plain {
    ($($type:ty)*) => { $(impl Field for $type {
        fn put<E: Encoder>(&self, e: &mut E) -> Result<(), EncodeError> {
            Encode::encode(self, e)
        }
        fn take<D: Decoder>(d: &mut D) -> Result<Self, DecodeError> {
            Decode::decode(d)
        }
    })* };
}

plain! { u8 u16 u32 u64 i64 bool Value }

macro_rules! number {
    ($($type:ident)*) => { $(impl Field for $type {
        fn put<E: Encoder>(&self, e: &mut E) -> Result<(), EncodeError> {
            self.0.put(e)
        }
        fn take<D: Decoder>(d: &mut D) -> Result<Self, DecodeError> {
            Field::take(d).map(Self)
        }
    })* };
}

number! { NodeId LockId Token ViewId LockFlags SbFlags }

macro_rules! record {
    ($type:ident { $($field:ident),* }) => {
        impl Field for $type {
            fn put<E: Encoder>(&self, e: &mut E) -> Result<(), EncodeError> {
                $(self.$field.put(e)?;)*
                Ok(())
            }
            fn take<D: Decoder>(d: &mut D) -> Result<Self, DecodeError> {
                Ok(Self { $($field: Field::take(d)?),* })
            }
        }
    };
}

record! { Member { node, incarnation } }
record! { Hello { minor_min, minor_max, own, peer_incarnation, received, dialled } }
record! { Message { space, from, to, body } }
record! { Standing { granted, sb_flags, value, seen, marked, value_seq, token, term, place } }
record! { Ceded { name, value, seq, invalid, last, sure } }
record! { Record {
    name, lock, under, term, granted, requested, place, flags, pid, value, seen, marked, value_seq, told,
    flight
} }

/// An enum: a number for the variant, then its fields.
macro_rules! variants {
    ($type:ident, $what:literal: $($number:literal $variant:ident { $($at:tt : $field:ident),* })*) => {
        impl Field for $type {
            fn put<E: Encoder>(&self, e: &mut E) -> Result<(), EncodeError> {
                match self {
                    $(Self::$variant { $($at: $field),* } => {
                        u8::put(&$number, e)?;
                        $($field.put(e)?;)*
                        Ok(())
                    })*
                }
            }
            fn take<D: Decoder>(d: &mut D) -> Result<Self, DecodeError> {
                match u8::take(d)? {
                    $($number => Ok(Self::$variant { $($at: Field::take(d)?),* }),)*
                    other => Err(unknown($what, other)),
                }
            }
        }
    };
}

variants! { Body, "class of message":
    1 Tagged { 0: view, 1: tagged }
    2 Traffic { 0: traffic }
}

variants! { Tagged, "directory or recovery message":
    1 Lookup { name: name, refused: refused }
    2 LookupReply { name: name, master: master, term: term }
    3 Remove { name: name, term: term, last: last }
    4 RemoveAck { name: name, term: term }
    5 NeedNames { slots: slots }
    6 Names { names: names }
    7 NamesDone {}
    8 Claim { name: name }
    9 ClaimReply { name: name, master: master, term: term }
    10 Record { 0: record }
    11 LocksDone { layout: layout }
    12 Value { 0: ceded }
}

variants! { Traffic, "lock message":
    1 Thawed { round: round }
    2 Recorded { lock: lock, id: id }
    3 Request {
        name: name, lock: lock, seq: seq, mode: mode, flags: flags, pid: pid, view: view
    }
    4 Convert {
        to: to, lock: lock, seq: seq, mode: mode, flags: flags, value: value, silent: silent
    }
    5 Unlock { to: to, lock: lock, seq: seq, flags: flags, value: value }
    6 Cancel { to: to, lock: lock, seq: seq }
    7 Reply { lock: lock, from: from, seq: seq, outcome: outcome, now: now }
    8 Grant { lock: lock, now: now }
    9 Blocking { lock: lock, mode: mode }
    10 NotMaster { lock: lock, seq: seq }
    11 Purge { pid: pid }
}

variants! { Flight, "operation in flight":
    0 Nothing {}
    1 Convert { 0: mode }
    2 Unlock {}
}

variants! { Outcome, "outcome":
    0 Granted {}
    1 Queued {}
    2 Again {}
    3 Deadlock {}
    4 Cancelled {}
    5 NothingToCancel {}
    6 Unlocked {}
}

impl Field for Mode {
    fn put<E: Encoder>(&self, e: &mut E) -> Result<(), EncodeError> {
        (*self as u8).put(e)
    }
    fn take<D: Decoder>(d: &mut D) -> Result<Self, DecodeError> {
        let number = u8::take(d)?;
        Self::from_number(number).ok_or_else(|| unknown("lock mode", number))
    }
}

impl Field for Name {
    fn put<E: Encoder>(&self, e: &mut E) -> Result<(), EncodeError> {
        let bytes = self.as_bytes();
        (bytes.len() as u8).put(e)?;
        e.writer().write(bytes)
    }
    fn take<D: Decoder>(d: &mut D) -> Result<Self, DecodeError> {
        let mut room = [0; dlm_core::RESOURCE_NAME_BYTES_MAX];
        let room = room.get_mut(..usize::from(u8::take(d)?));
        let room = room.ok_or(DecodeError::Other("a resource name has more than 64 bytes"))?;
        d.reader().read(room)?;
        Self::new(room).ok_or(DecodeError::Other("a resource name has more than 64 bytes"))
    }
}

impl Field for Refuse {
    fn put<E: Encoder>(&self, e: &mut E) -> Result<(), EncodeError> {
        self.excluded.put(e)?;
        // A character cut in two is repaired by the reader.
        let end = self.reason.len().min(REASON_BYTES_MAX);
        (end as u16).put(e)?;
        e.writer().write(&self.reason.as_bytes()[..end])
    }
    fn take<D: Decoder>(d: &mut D) -> Result<Self, DecodeError> {
        let excluded = bool::take(d)?;
        let length = usize::from(u16::take(d)?);
        if length > REASON_BYTES_MAX {
            return Err(DecodeError::Other("the reason of a refusal is too long"));
        }
        let mut reason = vec![0; length];
        d.reader().read(&mut reason)?;
        Ok(Self { excluded, reason: String::from_utf8_lossy(&reason).into_owned() })
    }
}

impl<F: Field> Field for Option<F> {
    fn put<E: Encoder>(&self, e: &mut E) -> Result<(), EncodeError> {
        self.is_some().put(e)?;
        self.as_ref().map_or(Ok(()), |value| value.put(e))
    }
    fn take<D: Decoder>(d: &mut D) -> Result<Self, DecodeError> {
        bool::take(d)?.then(|| F::take(d)).transpose()
    }
}

impl<F: Field> Field for Box<F> {
    fn put<E: Encoder>(&self, e: &mut E) -> Result<(), EncodeError> {
        (**self).put(e)
    }
    fn take<D: Decoder>(d: &mut D) -> Result<Self, DecodeError> {
        F::take(d).map(Self::new)
    }
}

impl Field for (Member, Token) {
    fn put<E: Encoder>(&self, e: &mut E) -> Result<(), EncodeError> {
        self.0.put(e)?;
        self.1.put(e)
    }
    fn take<D: Decoder>(d: &mut D) -> Result<Self, DecodeError> {
        Ok((Field::take(d)?, Field::take(d)?))
    }
}

/// Names with their mastership's number and the last grant's.
impl Field for Vec<(Name, Token, Token)> {
    fn put<E: Encoder>(&self, e: &mut E) -> Result<(), EncodeError> {
        (self.len() as u16).put(e)?;
        self.iter().try_for_each(|(name, term, last)| {
            name.put(e)?;
            term.put(e)?;
            last.put(e)
        })
    }
    fn take<D: Decoder>(d: &mut D) -> Result<Self, DecodeError> {
        let count = usize::from(u16::take(d)?);
        if count > NAMES_MAX {
            return Err(DecodeError::Other("a message has more than 1024 names"));
        }
        (0..count).map(|_| Ok((Field::take(d)?, Field::take(d)?, Field::take(d)?))).collect()
    }
}

/// Inclusive ranges of slots.
impl Field for Vec<(u16, u16)> {
    fn put<E: Encoder>(&self, e: &mut E) -> Result<(), EncodeError> {
        (self.len() as u16).put(e)?;
        self.iter().try_for_each(|(first, last)| {
            first.put(e)?;
            last.put(e)
        })
    }
    fn take<D: Decoder>(d: &mut D) -> Result<Self, DecodeError> {
        let count = usize::from(u16::take(d)?);
        if count > SLOT_RANGES_MAX {
            return Err(DecodeError::Other("a message has more than 2048 ranges of slots"));
        }
        let range = |_| match (u16::take(d)?, u16::take(d)?) {
            (first, last) if first <= last && last < SLOTS => Ok((first, last)),
            _ => Err(DecodeError::Other("a range of slots is none")),
        };
        (0..count).map(range).collect()
    }
}

fn unknown(what: &'static str, found: u8) -> DecodeError {
    const ALL: &AllowedEnumVariants = &AllowedEnumVariants::Allowed(&[]);
    DecodeError::UnexpectedVariant { type_name: what, allowed: ALL, found: found.into() }
}
