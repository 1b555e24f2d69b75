//! What was sent and is not acknowledged: numbered from 1, kept to be sent again over the next
//! connection, bounded in bytes.

use std::collections::VecDeque;

use super::SessionError;
use crate::wire::frame::Kind;
use crate::wire::limits::HEADER_BYTES;

/// Bytes counted for an entry beside its body: the frame's header and the queue's own record.
const ENTRY_BYTES: usize = HEADER_BYTES + size_of::<Entry>();

#[derive(Debug)]
struct Entry {
    kind: Kind,
    body: Box<[u8]>,
}

/// Frames that wait for their acknowledgement, in order.
#[derive(Debug)]
pub(super) struct Window {
    entries: VecDeque<Entry>,
    /// Highest acknowledged number; the first entry has the next one.
    acked: u64,
    /// How many of the entries this connection has carried.
    carried: usize,
    bytes: usize,
    bytes_max: usize,
}

impl Window {
    pub(super) fn new(bytes_max: usize) -> Self {
        Self { entries: VecDeque::new(), acked: 0, carried: 0, bytes: 0, bytes_max }
    }

    /// Adds a frame behind the others; false if there is no room. An empty window takes any.
    pub(super) fn push(&mut self, kind: Kind, body: Box<[u8]>) -> bool {
        let bytes = self.bytes + ENTRY_BYTES + body.len();
        if bytes > self.bytes_max && !self.entries.is_empty() {
            return false;
        }
        self.bytes = bytes;
        self.entries.push_back(Entry { kind, body });
        true
    }

    /// Drops what was received up to number `ack`. Older acknowledgements than the last change nothing.
    pub(super) fn acknowledge(&mut self, ack: u64) -> Result<(), SessionError> {
        // What this connection has not carried yet, an earlier one may have.
        if ack > self.sent() {
            return Err(SessionError::Ack { ack, sent: self.sent() });
        }
        while self.acked < ack {
            let entry = self.entries.pop_front().expect("numbers up to `sent` are in the window");
            self.bytes -= ENTRY_BYTES + entry.body.len();
            self.carried = self.carried.saturating_sub(1);
            self.acked += 1;
        }
        Ok(())
    }

    /// A new connection carries everything that is not acknowledged.
    pub(super) fn rewind(&mut self) {
        self.carried = 0;
    }

    /// The next frame that this connection has to carry.
    pub(super) fn next(&mut self) -> Option<(u64, Kind, &[u8])> {
        let entry = self.entries.get(self.carried)?;
        self.carried += 1;
        Some((self.acked + self.carried as u64, entry.kind, &entry.body))
    }

    /// Whether this connection has something to carry.
    pub(super) fn has_next(&self) -> bool {
        self.carried < self.entries.len()
    }

    /// Highest number given.
    pub(super) fn sent(&self) -> u64 {
        self.acked + self.entries.len() as u64
    }

    /// Highest acknowledged number.
    pub(super) fn acked(&self) -> u64 {
        self.acked
    }

    /// Bytes that wait.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }
}
