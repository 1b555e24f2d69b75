//! Ceilings of everything that comes from a peer, and the numbers of the protocol.
//!
//! A length is compared with its ceiling before anything is allocated for it.

/// Incompatible generation of the protocol.
pub const PROTOCOL_MAJOR: u8 = 1;
/// Oldest minor version that is spoken.
pub const MINOR_MIN: u8 = 0;
/// Newest minor version.
pub const MINOR_MAX: u8 = 0;

/// Bytes of a frame's header.
pub const HEADER_BYTES: usize = 24;
/// Longest body of a frame.
pub const BODY_BYTES_MAX: usize = 256 * 1024;
/// Longest body before the other side has introduced itself.
pub const HELLO_BYTES_MAX: usize = 512;
/// Longest reason of a refusal.
pub const REASON_BYTES_MAX: usize = 400;
/// Most names in one window of names.
pub const NAMES_MAX: usize = 1024;
/// Most ranges of slots in one question for names.
pub const SLOT_RANGES_MAX: usize = 2048;
/// Slots of a directory; ranges lie below.
pub const SLOTS: u16 = 4096;

const _: () = {
    // A length is 24 bits.
    assert!(BODY_BYTES_MAX < 1 << 24);
    assert!(REASON_BYTES_MAX < HELLO_BYTES_MAX && HELLO_BYTES_MAX <= BODY_BYTES_MAX);
    // Longest window: names of 64 bytes with a length byte, and two numbers of up to nine bytes.
    assert!(NAMES_MAX * (1 + dlm_core::RESOURCE_NAME_BYTES_MAX + 2 * 9) + 64 <= BODY_BYTES_MAX);
    assert!(SLOT_RANGES_MAX * 6 + 64 <= BODY_BYTES_MAX);
    // Disjoint ranges that do not touch cannot be more.
    assert!(SLOT_RANGES_MAX * 2 == SLOTS as usize);
};
