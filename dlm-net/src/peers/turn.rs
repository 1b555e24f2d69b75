//! A turn: accept, read, judge, dial, watch, and at its end write.

use std::io;
use std::time::Duration;

use dlm_core::{Instant, NodeId};

use super::node::Link;
use super::{DownReason, Event, Peers, Refusal};
use crate::secure::ChannelError;
use crate::session::{Received, SILENCE_MAX, Session};
use crate::tcp::{BACKLOG_BYTES_MAX, Broken, Connection, Role};
use crate::wire::body::{BodyError, decode_hello, decode_message, decode_refuse};
use crate::wire::frame::{Frame, Header, Kind, split};
use crate::wire::limits::{BODY_BYTES_MAX, HELLO_BYTES_MAX};

/// Connections accepted in a turn.
const ACCEPTS_PER_TURN: usize = 16;
/// Connections of strangers that may wait to be introduced.
const STRANGERS_MAX: usize = 64;
/// Time in which both sides must have introduced themselves.
const INTRODUCTION_MAX: Duration = Duration::from_secs(3);
/// A turn that is later than this stood still itself, and that is no peer's silence.
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// Bytes taken from one peer in a turn.
const READ_BYTES: usize = 64 * 1024;
/// Bytes that are worth a write although nobody waits for them.
const WRITE_BYTES: usize = 4 * 1024;
/// Times that a turn writes to one peer.
const WRITES_PER_TURN: usize = 4;

/// Why a connection ends.
enum End {
    /// Somebody who was introduced.
    Down(DownReason),
    /// Somebody who was not.
    Refused(Refusal),
}

impl Peers {
    /// Reads a bounded amount from every socket that has something, accepts, dials, and finds out
    /// who has fallen silent. To be called in every turn.
    pub fn on_time(&mut self, now: Instant) {
        let late = self.deadline().map_or(Duration::ZERO, |due| now.since(due));
        let pause = now.since(std::mem::replace(&mut self.turned, now));
        if late > PAUSE_MAX {
            tracing::warn!("this daemon stood still for {} ms", late.as_millis());
            self.nodes.values_mut().for_each(|node| node.excuse(pause));
        }
        self.busy = false;
        self.accept(now);
        for slot in 0..self.connections.len() {
            self.serve(slot, now);
        }
        self.watch(now);
        let ids: Vec<NodeId> = self.nodes.keys().copied().collect();
        for id in ids {
            self.dial(id, now);
        }
    }

    /// Writes what waits: one sealed write per peer. To be called at the end of every turn. With `lazy`,
    /// for a caller who comes again at once, what nobody waits for is kept until it is worth a write.
    pub fn flush(&mut self, lazy: bool, now: Instant) {
        for slot in 0..self.connections.len() {
            if lazy && !self.is_pressing(slot, now) {
                continue;
            }
            if let Err(broken) = self.write(slot, now) {
                self.end(slot, broken.into_end(), now);
            }
        }
    }

    /// Whether something has to be written now.
    fn is_pressing(&self, slot: usize, now: Instant) -> bool {
        let Some(Some(connection)) = self.connections.get(slot) else { return false };
        let Role::Peer(id) = connection.role else { return true };
        let Some(node) = self.nodes.get(&id) else { return true };
        let much = |session: &Session| session.unsaid_bytes() >= WRITE_BYTES;
        let due = |session: &Session| session.must_speak(now) || much(session);
        node.prompt || connection.backlog() > 0 || node.session.as_ref().is_some_and(due)
    }

    /// When [`Peers::on_time`] is next needed though no socket is ready; a moment that has passed if
    /// work was left over.
    pub fn deadline(&self) -> Option<Instant> {
        if self.busy || self.door || !self.events.is_empty() {
            return Some(self.turned);
        }
        let introductions = self.connections.iter().flatten().filter_map(|connection| {
            let waits = !matches!(connection.role, Role::Peer(_));
            waits.then(|| connection.born.after(INTRODUCTION_MAX))
        });
        let nodes = self.nodes.iter().flat_map(|(id, node)| {
            let dials = self.config.own.node < *id;
            let link = match node.link {
                Link::None { dial_at } => dials.then_some(dial_at),
                Link::Dialling(_) => None,
                Link::Up(slot) => self.link_deadline(slot, *id),
            };
            let report = (!node.reported).then(|| node.heard().after(self.config.peer_limit));
            [link, report].into_iter().flatten()
        });
        introductions.chain(nodes).min()
    }

    fn link_deadline(&self, slot: usize, id: NodeId) -> Option<Instant> {
        let session = self.nodes.get(&id)?.session.as_ref()?;
        let connection = self.connections.get(slot)?.as_ref()?;
        // What cannot be written now is written when the socket says so.
        let stuck = connection.backlog() > 0;
        if stuck { Some(session.heard().after(SILENCE_MAX)) } else { session.deadline() }
    }

    fn accept(&mut self, now: Instant) {
        for _ in 0..ACCEPTS_PER_TURN {
            if !self.door {
                return;
            }
            let Some(listener) = &self.listener else {
                self.door = false;
                return;
            };
            match listener.accept() {
                Ok((stream, remote)) => {
                    if let Err(why) = self.admit(stream, remote, now) {
                        self.complain(remote, why, now);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.door = false,
                // The one at the door is gone again, or there is no descriptor for him; the next
                // one who comes rings again.
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(error) => {
                    tracing::warn!("a peer's connection was not accepted: {error}");
                    self.door = false;
                }
            }
        }
    }

    fn admit(
        &mut self,
        stream: mio::net::TcpStream,
        remote: std::net::SocketAddr,
        now: Instant,
    ) -> Result<(), Refusal> {
        let from = remote.ip().to_canonical();
        if !self.nodes.values().any(|node| node.address.ip().to_canonical() == from) {
            return Err(Refusal::UnknownAddress);
        }
        let strangers = self.connections.iter().flatten().filter(|c| c.role == Role::Accepted);
        if strangers.count() >= STRANGERS_MAX {
            return Err(Refusal::Crowded);
        }
        let connection = Connection::accepted(stream, remote, self.setup.clone(), now);
        match self.add_connection(connection) {
            Ok(Some(_)) => Ok(()),
            Ok(None) | Err(_) => Err(Refusal::Crowded),
        }
    }

    /// Reads from a connection and judges what it brought.
    fn serve(&mut self, slot: usize, now: Instant) {
        let Some(Some(connection)) = self.connections.get_mut(slot) else { return };
        if !connection.has_more() {
            return;
        }
        let read = connection.read(&mut self.buffer, READ_BYTES);
        self.busy |= connection.has_more();
        self.greet(slot);
        // What came before the end counts.
        let judged = self.take_frames(slot, now);
        let end = judged.and(read.map_err(Broken::into_end));
        if let Err(end) = end {
            self.end(slot, end, now);
        }
    }

    fn take_frames(&mut self, slot: usize, now: Instant) -> Result<(), End> {
        let Some(Some(connection)) = self.connections.get_mut(slot) else { return Ok(()) };
        let plain = std::mem::take(&mut connection.plain);
        let mut rest = &plain[..];
        let result = loop {
            let Some(Some(connection)) = self.connections.get(slot) else { return Ok(()) };
            let introduced = matches!(connection.role, Role::Peer(_));
            let limit = if introduced { BODY_BYTES_MAX } else { HELLO_BYTES_MAX };
            let frame = match split(rest, limit) {
                Ok(Some(frame)) => frame,
                Ok(None) => break Ok(()),
                Err(error) => break Err(End::of_channel(error.into())),
            };
            rest = frame.rest;
            if let Err(end) = self.on_frame(slot, &frame, now) {
                break Err(end);
            }
        };
        let used = plain.len() - rest.len();
        if let Some(Some(connection)) = self.connections.get_mut(slot) {
            connection.plain = plain;
            connection.plain.drain(..used);
        }
        result
    }

    fn on_frame(&mut self, slot: usize, frame: &Frame<'_>, now: Instant) -> Result<(), End> {
        let Frame { header, body, .. } = frame;
        let Some(Some(connection)) = self.connections.get(slot) else { return Ok(()) };
        let of_body = |error: BodyError| End::of_channel(error.into());
        match (connection.role, header.kind) {
            (Role::Dialled(_) | Role::Accepted, Kind::Hello) => {
                let hello = decode_hello(body).map_err(of_body)?;
                self.introduce(slot, &hello, now).map_err(End::Refused)
            }
            (_, Kind::Refuse) => {
                let refuse = decode_refuse(body).map_err(of_body)?;
                let printable = refuse.reason.escape_default().to_string();
                Err(End::Refused(match refuse.excluded {
                    true => Refusal::ExcludedHere,
                    false => Refusal::Told(printable),
                }))
            }
            (Role::Peer(id), Kind::Message | Kind::Note | Kind::Alive) => {
                self.on_session_frame(id, header, body, now)
            }
            (Role::Peer(_), Kind::Goodbye) => Err(End::Down(DownReason::Goodbye)),
            // Greetings come first and once.
            _ => Err(End::of_channel(ChannelError::NotAPeer)),
        }
    }

    fn on_session_frame(
        &mut self,
        id: NodeId,
        header: &Header,
        body: &[u8],
        now: Instant,
    ) -> Result<(), End> {
        let own = self.config.own;
        let session = self.nodes.get_mut(&id).and_then(|node| node.session.as_mut());
        let Some(session) = session else { return Ok(()) };
        let from = session.peer();
        // Understood before it counts: what is not understood is not acknowledged.
        let event = match header.kind {
            Kind::Message => {
                let message = decode_message(body).map_err(|e| End::of_channel(e.into()))?;
                let stay = |node, incarnation| dlm_core::Member { node, incarnation };
                if !stay(id, message.from).is_of_life(from)
                    || !stay(own.node, message.to).is_of_life(own)
                {
                    let bound = BodyError::Bound("a message is of another life than its session");
                    return Err(End::of_channel(bound.into()));
                }
                Some(Event::Message { from, message })
            }
            Kind::Note => Some(Event::Note { from, note: body.to_vec() }),
            _ => None,
        };
        let received = session.receive(header, now).map_err(|e| End::Down(e.into()))?;
        if received == Received::Fresh {
            self.events.extend(event);
        }
        Ok(())
    }

    /// Ends connections that say nothing, and reports nodes that nobody hears.
    fn watch(&mut self, now: Instant) {
        for slot in 0..self.connections.len() {
            let Some(Some(connection)) = self.connections.get(slot) else { continue };
            let late = now.since(connection.born) >= INTRODUCTION_MAX;
            let silent = |id: &NodeId| {
                let session = self.nodes.get(id).and_then(|node| node.session.as_ref());
                session.map_or(Duration::ZERO, |session| session.silence(now))
            };
            let end = match connection.role {
                Role::Dialled(_) | Role::Accepted if late => {
                    End::Refused(Refusal::Slow(INTRODUCTION_MAX.as_millis() as u64))
                }
                Role::Peer(id) if silent(&id) >= SILENCE_MAX => {
                    End::Down(DownReason::Silent(SILENCE_MAX.as_millis() as u64))
                }
                _ => continue,
            };
            self.end(slot, end, now);
        }
        let limit = self.config.peer_limit;
        let silent = |node: &super::Node| now.since(node.heard()) >= limit && !node.reported;
        let ids: Vec<NodeId> =
            self.nodes.iter().filter(|(_, node)| silent(node)).map(|(id, _)| *id).collect();
        for id in ids {
            self.report_unreachable(id);
        }
    }

    /// Dials a node if that is ours to do, and due.
    fn dial(&mut self, id: NodeId, now: Instant) {
        let Some(node) = self.nodes.get(&id) else { return };
        let due = matches!(node.link, Link::None { dial_at } if dial_at <= now);
        if !due || self.config.own.node > id {
            return;
        }
        self.dialled += 1;
        let ends = (self.local.ip(), node.address);
        let begun = Connection::dial(id, ends, self.config.mark, self.setup.clone(), now);
        let random = self.random();
        match begun.and_then(|connection| self.add_connection(connection)) {
            Ok(Some(slot)) => {
                if let Some(node) = self.nodes.get_mut(&id) {
                    node.link = Link::Dialling(slot);
                }
            }
            failed => {
                if let Some(node) = self.nodes.get_mut(&id) {
                    tracing::debug!(
                        "node {} at {} was not dialled: {failed:?}",
                        id.0,
                        node.address
                    );
                    node.on_gone(now, random);
                }
            }
        }
    }

    /// Takes from the session what the socket can take, and writes it.
    fn write(&mut self, slot: usize, now: Instant) -> Result<(), Broken> {
        for _ in 0..WRITES_PER_TURN {
            let Some(Some(connection)) = self.connections.get_mut(slot) else { return Ok(()) };
            if let Role::Peer(id) = connection.role
                && connection.backlog() < BACKLOG_BYTES_MAX
                && let Some(node) = self.nodes.get_mut(&id)
                && let Some(session) = &mut node.session
            {
                node.prompt = false;
                self.frames.clear();
                session.transmit(&mut self.frames, BACKLOG_BYTES_MAX, now);
                connection.say(&self.frames);
            }
            if connection.backlog() == 0 {
                return Ok(());
            }
            connection.flush()?;
            if connection.backlog() > 0 {
                return Ok(());
            }
        }
        self.busy = true;
        Ok(())
    }

    /// A connection is over.
    fn end(&mut self, slot: usize, end: End, now: Instant) {
        let Some(Some(connection)) = self.connections.get(slot) else { return };
        let (role, remote) = (connection.role, connection.remote);
        match (role, end) {
            (Role::Peer(id), End::Down(why)) => self.lose(id, slot, &why, now),
            (Role::Peer(id), End::Refused(why)) => {
                let down = match why {
                    Refusal::ExcludedHere => DownReason::ExcludedHere,
                    _ => DownReason::Closed,
                };
                self.lose(id, slot, &down, now);
                self.complain(remote, why, now);
            }
            (_, End::Refused(why)) => self.refuse(slot, why, now),
            (Role::Dialled(id), End::Down(DownReason::Io(kind))) => {
                // Nobody is there, which is not worth a warning each time.
                tracing::debug!("node {} at {remote} does not answer: {kind:?}", id.0);
                self.drop_connection(slot);
                self.dial_later(id, slot, now);
            }
            (_, End::Down(DownReason::Channel(why))) => self.refuse(slot, why.into(), now),
            (_, End::Down(DownReason::Session(why))) => self.refuse(slot, why.into(), now),
            (_, End::Down(_)) => self.refuse(slot, Refusal::HungUp, now),
        }
    }

    /// The connection in `slot` to a node that could be talked to is over.
    fn lose(&mut self, id: NodeId, slot: usize, why: &DownReason, now: Instant) {
        if self.nodes.get(&id).map(|node| node.link) == Some(Link::Up(slot)) {
            self.unlink(id, why, now);
            let random = self.random();
            if let Some(node) = self.nodes.get_mut(&id) {
                node.on_gone(now, random);
            }
        } else {
            self.drop_connection(slot);
        }
    }
}

impl Broken {
    fn into_end(self) -> End {
        match self {
            Self::Closed => End::Down(DownReason::Closed),
            Self::Io(kind) => End::Down(DownReason::Io(kind)),
            Self::Channel(error) => End::of_channel(error),
        }
    }
}

impl End {
    fn of_channel(error: ChannelError) -> Self {
        Self::Down(DownReason::Channel(error))
    }
}
