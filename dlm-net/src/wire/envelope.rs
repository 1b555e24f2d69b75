//! A version byte and a value in bincode: how messages that are broadcast to all nodes look.
//!
//! `LIMIT` bounds what a value may take in memory while it is understood, so that a few bytes cannot
//! claim much of it.

use bincode::config::{self, Configuration, Limit, LittleEndian, Varint};
use bincode::{Decode, Encode};

const fn config<const LIMIT: usize>() -> Configuration<LittleEndian, Varint, Limit<LIMIT>> {
    config::standard().with_limit::<LIMIT>()
}

/// The bytes of a value.
pub(crate) fn seal<const LIMIT: usize>(version: u8, value: &impl Encode) -> Vec<u8> {
    let mut bytes = vec![version];
    let body = bincode::encode_to_vec(value, config::<LIMIT>());
    bytes.extend(body.expect("plain values can be encoded"));
    bytes
}

/// The value of these bytes; `None` if they are of another version, longer than `bytes_max`, or
/// anything but one whole value.
pub(crate) fn open<T: Decode<()>, const LIMIT: usize>(
    version: u8,
    bytes_max: usize,
    bytes: &[u8],
) -> Option<T> {
    let (found, body) = bytes.split_first()?;
    if *found != version || body.len() > bytes_max {
        return None;
    }
    let (value, used) = bincode::decode_from_slice(body, config::<LIMIT>()).ok()?;
    (used == body.len()).then_some(value)
}
