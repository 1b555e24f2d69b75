//! What was sent and is not acknowledged: numbered from 1, kept to be sent again over the next
//! connection, bounded in bytes.
//!
//! Bodies lie one behind the other in one piece of memory, written there by whoever makes them: a
//! recovery sends a few messages for each lock, and each would cost an allocation and a copy.

use std::collections::VecDeque;

use super::SessionError;
use crate::wire::frame::Kind;
use crate::wire::limits::HEADER_BYTES;

/// Bytes counted for an entry beside its body: the frame's header and the queue's own record.
const ENTRY_BYTES: usize = HEADER_BYTES + size_of::<Entry>();
/// Acknowledged bytes are given back once they are so many, and half of all.
const DEAD_BYTES: usize = 64 * 1024;
/// Memory that an empty window keeps.
const IDLE_BYTES: usize = 1 << 20;

#[derive(Debug)]
struct Entry {
    kind: Kind,
    length: u32,
}

/// Frames that wait for their acknowledgement, in order.
#[derive(Debug)]
pub(super) struct Window {
    entries: VecDeque<Entry>,
    /// The entries' bodies, behind what was acknowledged.
    bodies: Vec<u8>,
    /// Where the first entry's body begins.
    first: usize,
    /// Highest acknowledged number; the first entry has the next one.
    acked: u64,
    /// How many of the entries this connection has carried.
    carried: usize,
    /// Where the body of the next entry to carry begins.
    next: usize,
    bytes_max: usize,
}

impl Window {
    pub(super) fn new(bytes_max: usize) -> Self {
        Self {
            entries: VecDeque::new(),
            bodies: Vec::new(),
            first: 0,
            acked: 0,
            carried: 0,
            next: 0,
            bytes_max,
        }
    }

    /// Adds a frame behind the others, whose body `write` appends; false if there is no room. An empty
    /// window takes any. Nothing is added where `write` fails.
    pub(super) fn push<E>(
        &mut self,
        kind: Kind,
        write: impl FnOnce(&mut Vec<u8>) -> Result<(), E>,
    ) -> Result<bool, E> {
        let before = self.bodies.len();
        if let Err(error) = write(&mut self.bodies) {
            self.bodies.truncate(before);
            return Err(error);
        }
        let length = self.bodies.len().saturating_sub(before);
        let full = self.bytes() + ENTRY_BYTES > self.bytes_max && !self.entries.is_empty();
        let Some(length) = u32::try_from(length).ok().filter(|_| !full) else {
            self.bodies.truncate(before);
            return Ok(false);
        };
        self.entries.push_back(Entry { kind, length });
        Ok(true)
    }

    /// Drops what was received up to number `ack`. Older acknowledgements than the last change nothing.
    pub(super) fn acknowledge(&mut self, ack: u64) -> Result<(), SessionError> {
        // What this connection has not carried yet, an earlier one may have.
        if ack > self.sent() {
            return Err(SessionError::Ack { ack, sent: self.sent() });
        }
        while self.acked < ack {
            let entry = self.entries.pop_front().expect("numbers up to `sent` are in the window");
            self.first += entry.length as usize;
            self.carried = self.carried.saturating_sub(1);
            self.acked += 1;
        }
        self.next = self.next.max(self.first);
        self.give_back();
        Ok(())
    }

    fn give_back(&mut self) {
        let dead = self.first;
        if self.entries.is_empty() {
            self.bodies.clear();
            self.bodies.shrink_to(IDLE_BYTES);
        } else if dead >= DEAD_BYTES && dead >= self.bodies.len() / 2 {
            self.bodies.drain(..dead);
        } else {
            return;
        }
        self.next -= dead;
        self.first = 0;
    }

    /// A new connection carries everything that is not acknowledged.
    pub(super) fn rewind(&mut self) {
        self.carried = 0;
        self.next = self.first;
    }

    /// The next frame that this connection has to carry.
    pub(super) fn next(&mut self) -> Option<(u64, Kind, &[u8])> {
        let entry = self.entries.get(self.carried)?;
        let begin = self.next;
        self.next += entry.length as usize;
        self.carried += 1;
        Some((self.acked + self.carried as u64, entry.kind, &self.bodies[begin..self.next]))
    }

    /// Bytes of the frames that this connection has to carry.
    pub(super) fn unsaid_bytes(&self) -> usize {
        let frames = self.entries.len() - self.carried;
        self.bodies.len() - self.next + frames * HEADER_BYTES
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
        self.bodies.len() - self.first + self.entries.len() * ENTRY_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn push(window: &mut Window, body: &[u8]) {
        let pushed = window.push(Kind::Note, |out| {
            out.extend_from_slice(body);
            Ok::<_, ()>(())
        });
        assert_eq!(pushed, Ok(true));
    }

    #[test]
    fn a_body_that_cannot_be_written_leaves_nothing() {
        let mut window = Window::new(1 << 20);
        push(&mut window, &[1]);
        let failed = window.push(Kind::Note, |out| {
            out.extend([5; 100]);
            Err("too long")
        });
        assert_eq!(failed, Err("too long"));
        push(&mut window, &[2]);
        assert_eq!(window.next(), Some((1, Kind::Note, &[1][..])));
        assert_eq!(window.next(), Some((2, Kind::Note, &[2][..])));
    }

    #[test]
    fn bodies_stay_what_they_were_while_memory_is_given_back() {
        let mut window = Window::new(16 << 20);
        let body = |number: u64| vec![number as u8; 100 + number as usize % 1000];
        for number in 1..=1000 {
            push(&mut window, &body(number));
        }
        for acked in [0, 1, 300, 301, 900, 999] {
            window.acknowledge(acked).expect("it was sent");
            window.rewind();
            for number in acked + 1..=1000 {
                let expected = body(number);
                assert_eq!(window.next(), Some((number, Kind::Note, &expected[..])));
            }
            assert!(!window.has_next());
        }
        push(&mut window, &[7]);
        assert_eq!(window.next(), Some((1001, Kind::Note, &[7][..])));
        window.acknowledge(1001).expect("it was sent");
        assert_eq!((window.bytes(), window.next()), (0, None));
    }

    #[test]
    fn an_acknowledgement_of_what_another_connection_carried_moves_on() {
        let mut window = Window::new(1 << 20);
        for number in 0..4u8 {
            push(&mut window, &[number]);
        }
        window.rewind();
        window.acknowledge(2).expect("it was sent");
        assert_eq!(window.next(), Some((3, Kind::Note, &[2][..])));
        window.acknowledge(4).expect("it was sent");
        assert_eq!(window.next(), None);
    }
}
