//! Sessions: everything between two members in order, once, over any number of connections.
//!
//! Pure: no sockets, and time is an argument. A [`Session`] belongs to one life of this node and one
//! of the other. A driver makes one when it hears of a member or has something for it, connects it
//! ([`Session::connect`]) each time a connection has been introduced, moves frames through
//! [`Session::transmit`] and [`Session::receive`] while it lasts, and says [`Session::disconnect`]
//! when it broke. The session goes on until the driver drops it, as a later life ends it (B1).
//!
//! Why numbers above TCP: a connection that breaks takes an unknown part of what was written to it
//! along; without numbers those messages hang or run twice (BL-015).
//!
//! Clocks: a side says something at least every [`KEEP_ALIVE`]; hearing nothing for [`SILENCE_MAX`]
//! means that the connection is half open; hearing nothing for the driver's limit over all connections
//! is for membership (B5). A side that was itself stopped has no right to complain: [`Session::excuse`].

mod resume;
#[cfg(test)]
mod tests;
mod window;

use std::time::Duration;

use dlm_core::{Instant, Member, NodeId};

pub use resume::Resume;
use window::Window;

use crate::wire::frame::{Header, Kind};

/// Longest time without saying anything.
pub const KEEP_ALIVE: Duration = Duration::from_millis(500);
/// Time without hearing anything after which a connection is given up.
pub const SILENCE_MAX: Duration = Duration::from_millis(2_500);
/// Longest time until an acknowledgement leaves if nothing else does that could carry it.
pub const ACK_DELAY: Duration = Duration::from_millis(20);
/// Bytes received after which an acknowledgement leaves at once: who sends much sends the next part
/// when the last one was heard.
pub const ACK_BYTES: usize = 8 * 1024;

const _: () = {
    assert!(SILENCE_MAX.as_millis() >= 4 * KEEP_ALIVE.as_millis());
    assert!(ACK_DELAY.as_millis() < KEEP_ALIVE.as_millis());
};

/// Why two members' accounts of what was said do not fit together.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SessionError {
    /// A message is missing before this one. The connection is given up; the next one carries it.
    #[error("message {got} came where {want} was due")]
    Gap {
        /// Number that was due.
        want: u64,
        /// Number that came.
        got: u64,
    },
    /// It acknowledges what was never sent.
    #[error("it acknowledged message {ack}, but only {sent} were sent")]
    Ack {
        /// What it acknowledged.
        ack: u64,
        /// What was sent.
        sent: u64,
    },
    /// It lost its half of the session: what was acknowledged, or what it sent, is unknown to it.
    /// The pair cannot go on without loss.
    #[error(
        "node {} does not remember the session of this life of it; one of the two nodes must begin a \
         new life", node.0
    )]
    Forgotten {
        /// The node that forgot.
        node: NodeId,
    },
}

/// What a received frame is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Received {
    /// A numbered frame whose turn it is: deliver it.
    Fresh,
    /// A numbered frame that was delivered before: drop it.
    Repeated,
    /// A frame without number.
    Plain,
}

/// One half of what two members have said to each other.
#[derive(Debug)]
pub struct Session {
    own: Member,
    peer: Member,
    window: Window,
    /// Last number received.
    received: u64,
    /// Last number acknowledged.
    told: u64,
    /// What is received is not acknowledged for now.
    withholds: bool,
    /// Bytes received since the last acknowledgement left.
    untold_bytes: usize,
    /// When the acknowledgement of what was received must leave.
    ack_due: Option<Instant>,
    connected: bool,
    heard: Instant,
    said: Instant,
}

impl Session {
    /// A session that has said and heard nothing. Up to `bytes_max` bytes wait for acknowledgement.
    pub fn new(own: Member, peer: Member, bytes_max: usize, now: Instant) -> Self {
        Self {
            own,
            peer,
            window: Window::new(bytes_max),
            received: 0,
            told: 0,
            withholds: false,
            untold_bytes: 0,
            ack_due: None,
            connected: false,
            heard: now,
            said: now,
        }
    }

    /// The other side.
    pub fn peer(&self) -> Member {
        self.peer
    }

    /// What the greeting of the next connection tells.
    pub fn resume(&self) -> Resume {
        Resume { peer_incarnation: self.peer.incarnation, received: self.received }
    }

    /// A connection was introduced and the other side told `resume`: what it lacks is sent again. Before
    /// this, [`Session::disconnect`] must have ended the last connection.
    ///
    /// # Errors
    /// The halves do not fit; the session is as it was.
    pub fn connect(&mut self, resume: Resume, now: Instant) -> Result<(), SessionError> {
        let own = resume::Own {
            member: self.own,
            received: self.received,
            acked: self.window.acked(),
            sent: self.window.sent(),
        };
        let ack = resume::fit(own, self.peer, resume)?;
        self.window.acknowledge(ack)?;
        self.window.rewind();
        self.connected = true;
        self.heard = now;
        // The greeting told what was received.
        self.told = self.received;
        self.note_told(now);
        Ok(())
    }

    /// The connection is gone.
    pub fn disconnect(&mut self) {
        self.connected = false;
    }

    /// Whether there is a connection.
    pub fn is_connected(&self) -> bool {
        self.connected
    }

    /// Takes a frame to be sent in its turn; false if the window has no room for it.
    pub fn push(&mut self, kind: Kind, body: &[u8]) -> bool {
        let taken: Result<_, std::convert::Infallible> = self.push_with(kind, |out| {
            out.extend_from_slice(body);
            Ok(())
        });
        matches!(taken, Ok(true))
    }

    /// As [`Session::push`], with a body that `write` appends, and nothing else.
    ///
    /// # Errors
    /// That of `write`; then nothing was taken.
    pub fn push_with<E>(
        &mut self,
        kind: Kind,
        write: impl FnOnce(&mut Vec<u8>) -> Result<(), E>,
    ) -> Result<bool, E> {
        debug_assert!(kind.is_numbered());
        self.window.push(kind, write)
    }

    /// Appends to `out` what the connection has to carry, frame by frame, until `out` has `room` bytes
    /// or nothing is left. Adds a bare header where an acknowledgement or a sign of life is due.
    pub fn transmit(&mut self, out: &mut Vec<u8>, room: usize, now: Instant) {
        if !self.connected {
            return;
        }
        let before = out.len();
        if !self.withholds {
            self.told = self.received;
        }
        let ack = self.told;
        while out.len() < room {
            let Some((sequence, kind, body)) = self.window.next() else { break };
            let header = Header { kind, length: body.len(), sequence, ack };
            out.extend_from_slice(&header.encode());
            out.extend_from_slice(body);
        }
        if out.len() == before && self.must_speak(now) {
            let header = Header { kind: Kind::Alive, length: 0, sequence: 0, ack };
            out.extend_from_slice(&header.encode());
        }
        if out.len() > before {
            self.note_told(now);
        }
    }

    /// Judges a frame that the connection brought; [`Kind::Hello`] and [`Kind::Refuse`] are the driver's.
    ///
    /// # Errors
    /// The connection must be given up; the session is as it was.
    pub fn receive(&mut self, header: &Header, now: Instant) -> Result<Received, SessionError> {
        self.window.acknowledge(header.ack)?;
        self.heard = now;
        if !header.kind.is_numbered() {
            return Ok(Received::Plain);
        }
        let (got, want) = (header.sequence, self.received + 1);
        if got > want {
            return Err(SessionError::Gap { want, got });
        }
        self.ack_due.get_or_insert(now.after(ACK_DELAY));
        if got < want {
            return Ok(Received::Repeated);
        }
        self.received = got;
        self.untold_bytes += header.length;
        Ok(Received::Fresh)
    }

    /// Begins or ends to acknowledge nothing new: who sends much to a side that has not handled what came
    /// before waits for it, and everything else is still heard.
    pub fn withhold(&mut self, withholds: bool) {
        self.withholds = withholds;
    }

    /// Whether [`Session::transmit`] has something for the connection now.
    pub fn wants_to_speak(&self, now: Instant) -> bool {
        self.connected && (self.window.has_next() || self.must_speak(now))
    }

    /// For how long nothing was heard, over whatever connections.
    pub fn silence(&self, now: Instant) -> Duration {
        now.since(self.heard)
    }

    /// When something was heard last.
    pub fn heard(&self) -> Instant {
        self.heard
    }

    /// This side did not look for `span`: that is not the other side's silence.
    pub fn excuse(&mut self, span: Duration) {
        self.heard = self.heard.after(span);
    }

    /// When [`Session::transmit`] is next needed, or silence ends the connection.
    pub fn deadline(&self) -> Option<Instant> {
        if !self.connected {
            return None;
        }
        let alive = self.said.after(KEEP_ALIVE);
        let due = self.ack_due.filter(|_| !self.withholds);
        let speak = due.map_or(alive, |due| due.min(alive));
        Some(speak.min(self.heard.after(SILENCE_MAX)))
    }

    /// Bytes that wait for acknowledgement.
    pub fn waiting_bytes(&self) -> usize {
        self.window.bytes()
    }

    /// Bytes that wait for a connection to carry them.
    pub fn unsaid_bytes(&self) -> usize {
        self.window.unsaid_bytes()
    }

    /// Whether something is to be said although nothing waits: an acknowledgement, or a sign of life.
    pub fn must_speak(&self, now: Instant) -> bool {
        let due = self.ack_due.is_some_and(|due| due <= now) || self.untold_bytes >= ACK_BYTES;
        due && !self.withholds || self.said.after(KEEP_ALIVE) <= now
    }

    fn note_told(&mut self, now: Instant) {
        if self.told == self.received {
            self.untold_bytes = 0;
            self.ack_due = None;
        }
        self.said = now;
    }
}
