//! Fuzz inputs as a stream of choices.
//!
//! Every byte string is a valid stream, and a cut one ends the run, so the fuzzer's mutations never
//! waste themselves on a format.

/// The fuzzer's bytes, taken from the front.
pub struct Choices<'a>(&'a [u8]);

impl<'a> Choices<'a> {
    /// All of `bytes`.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// The next byte; `None` at the end.
    pub fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    /// The next byte, cut down to below `count`.
    pub fn below(&mut self, count: u8) -> Option<u8> {
        self.byte().map(|byte| byte % count)
    }

    /// The next four bytes as a number.
    pub fn word(&mut self) -> Option<u32> {
        let (first, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u32::from_le_bytes(*first))
    }

    /// Up to `count` bytes, fewer at the end.
    pub fn bytes(&mut self, count: usize) -> &'a [u8] {
        let (first, rest) = self.0.split_at(count.min(self.0.len()));
        self.0 = rest;
        first
    }
}
