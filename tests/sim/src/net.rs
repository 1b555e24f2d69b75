//! What is between the nodes.
//!
//! Two kinds. A *plain* wire keeps everything and its order, per pair; a cut only holds it up. Or real
//! *sessions* of dlm-net over connections that lose, double and turn round frames and break; then every
//! message that arrives is compared with what was due (recovery.md B5: FIFO, nothing lost, nothing twice).

use std::collections::{BTreeMap, BTreeSet};

use dlm_core::{Member, Message};
use dlm_net::session::{Received, Resume, SILENCE_MAX, Session};
use dlm_net::wire::body::{decode_message, encode_message};
use dlm_net::wire::frame::{Header, Kind};
use dlm_net::wire::limits::{BODY_BYTES_MAX, HEADER_BYTES};

use crate::world::{Event, World};

/// Everything between the nodes.
#[derive(Debug, Default)]
pub(crate) struct Net {
    /// Directions that carry nothing.
    pub(crate) cut: BTreeSet<(usize, usize)>,
    /// When the last thing of a direction arrives.
    last: BTreeMap<(usize, usize), u64>,
    /// What a cut holds up on a plain wire.
    stalled: BTreeMap<(usize, usize), Vec<Parcel>>,
    /// Ends of sessions: whose, and with whom.
    ends: BTreeMap<(usize, usize), End>,
    /// Messages that sessions carry, by number.
    carried: BTreeMap<u64, Parcel>,
    number: u64,
    connection: u64,
    /// The connection that a node dialled last.
    dialled: BTreeMap<(usize, usize), u64>,
    /// Pairs that will be dialled.
    dialling: BTreeSet<(usize, usize)>,
    /// From when on nothing of a dead life arrives any more at a node.
    muted: BTreeMap<(Member, usize), u64>,
    /// Messages on a plain wire, held up ones included.
    pub(crate) under_way: usize,
}

/// A message with its sender's and its receiver's life.
#[derive(Clone, Debug)]
pub(crate) struct Parcel {
    pub(crate) life: Member,
    pub(crate) to_life: Member,
    pub(crate) message: Box<Message>,
    /// Its place among all from this life to that.
    ordinal: u64,
}

/// One end of a session.
#[derive(Debug)]
struct End {
    own: Member,
    session: Session,
    /// The connection it has, or is about to get.
    connection: u64,
    sent: u64,
    heard: u64,
    armed: bool,
}

/// What travels between two ends.
#[derive(Clone, Debug)]
pub(crate) enum Packet {
    /// Who dials, and what it knows of the session.
    Hello {
        life: Member,
        resume: Resume,
        answer: bool,
    },
    Frame(Vec<u8>),
    /// The connection was given up.
    Broken,
}

impl World {
    /// Sends a message from a node to a member.
    pub(crate) fn send(
        &mut self,
        from: usize,
        to: Member,
        message: &Message,
    ) -> Result<(), String> {
        self.messages += 1;
        let (life, to_life) = (self.hosts[from].life, to.life());
        let to = to.node.0 as usize - 1;
        let mut message = Box::new(message.clone());
        if self.options.codec {
            let bytes = encode_message(&message).map_err(|error| format!("codec: {error}"))?;
            let back = decode_message(&bytes).map_err(|error| format!("codec: {error}"))?;
            if back != *message {
                return Err(format!("codec: {message:?} became {back:?}"));
            }
            *message = back;
        }
        let parcel = Parcel { life, to_life, message, ordinal: 0 };
        if self.options.sessions {
            return self.push(from, to, parcel);
        }
        self.net.under_way += 1;
        if self.net.cut.contains(&(from, to)) {
            self.net.stalled.entry((from, to)).or_default().push(parcel);
            return Ok(());
        }
        let at = self.arrival(from, to);
        self.at(at, Event::Deliver { from, to, parcel });
        Ok(())
    }

    fn arrival(&mut self, from: usize, to: usize) -> u64 {
        let wanted = self.now + self.rng.below(self.options.delay) + 50;
        let last = self.net.last.entry((from, to)).or_default();
        *last = wanted.max(*last + 1);
        *last
    }

    /// A direction works again.
    pub(crate) fn heal(&mut self, from: usize, to: usize) {
        if !self.net.cut.remove(&(from, to)) {
            return;
        }
        for parcel in self.net.stalled.remove(&(from, to)).unwrap_or_default() {
            let at = self.arrival(from, to);
            self.at(at, Event::Deliver { from, to, parcel });
        }
    }

    /// A new life of a node begins: it knows of no session.
    pub(crate) fn forget_sessions(&mut self, node: usize) {
        self.net.ends.retain(|(of, _), _| *of != node);
        self.net.dialled.retain(|(of, _), _| *of != node);
    }

    /// A node died: an unknown part of what it had sent to each other is lost with it.
    pub(crate) fn mute(&mut self, life: Member) {
        for to in 0..self.hosts.len() {
            let at = self.now + self.rng.below(self.options.delay);
            self.net.muted.insert((life, to), at);
        }
    }

    /// Whether this came too late from a node that died.
    pub(crate) fn is_muted(&self, life: Member, to: usize) -> bool {
        self.net.muted.get(&(life, to)).is_some_and(|at| self.now > *at)
    }

    /// Whether nothing is under way but signs of life.
    pub(crate) fn net_is_quiet(&self) -> bool {
        let over = |own: Member| self.hosts[own.node.0 as usize - 1].life != own;
        self.net.under_way == 0
            && self.net.ends.values().all(|end| {
                over(end.own) || over(end.session.peer()) || end.session.waiting_bytes() == 0
            })
    }

    /// Gives a message to the session with its receiver's life.
    fn push(&mut self, from: usize, to: usize, mut parcel: Parcel) -> Result<(), String> {
        let (own, peer) = (parcel.life, parcel.to_life);
        if !self.meet_peer(from, to, own, peer) {
            return Ok(()); // to a life that is over
        }
        self.net.number += 1;
        let number = self.net.number;
        let end = self.net.ends.get_mut(&(from, to)).expect("made above");
        end.sent += 1;
        parcel.ordinal = end.sent;
        if !end.session.push(Kind::Message, &number.to_le_bytes()) {
            return Err("session: a window is full".into());
        }
        self.net.carried.insert(number, parcel);
        Ok(())
    }

    /// Sees to it that there is an end for this pair of lives; false for an older life than is known.
    fn meet_peer(&mut self, node: usize, with: usize, own: Member, peer: Member) -> bool {
        let now = self.clock(node);
        let known = self.net.ends.get(&(node, with));
        if let Some(end) = known.filter(|end| end.own == own && end.session.peer() >= peer) {
            return end.session.peer() == peer;
        }
        let session = Session::new(own, peer, usize::MAX / 2, now);
        let end = End { own, session, connection: 0, sent: 0, heard: 0, armed: false };
        self.net.ends.insert((node, with), end);
        self.dial_later(node, with);
        true
    }

    fn dial_later(&mut self, one: usize, other: usize) {
        let (node, with) = (one.min(other), one.max(other));
        if self.net.dialling.insert((node, with)) {
            self.later(self.options.delay, Event::Dial { node, with });
        }
    }

    /// The lower node dials, if the two are without a connection.
    pub(crate) fn dial(&mut self, node: usize, with: usize) {
        self.net.dialling.remove(&(node, with));
        let is_up = |net: &Net, node, with| {
            let end: Option<&End> = net.ends.get(&(node, with));
            end.filter(|end| end.session.is_connected()).map(|end| end.connection)
        };
        let (one, other) = (is_up(&self.net, node, with), is_up(&self.net, with, node));
        let both_alive = self.hosts[node].alive && self.hosts[with].alive;
        if !both_alive || (one.is_some() && one == other) {
            return;
        }
        // Until it is made: whatever of this is lost is tried again.
        self.net.dialling.insert((node, with));
        self.at(self.now + 6 * self.options.delay + MS_20, Event::Dial { node, with });
        if self.hosts[node].paused {
            return;
        }
        self.net.connection += 1;
        let connection = self.net.connection;
        self.net.dialled.insert((node, with), connection);
        let life = self.hosts[node].life;
        if let Some(end) = self.net.ends.get_mut(&(node, with)).filter(|end| end.own == life) {
            end.session.disconnect();
            end.connection = connection;
        }
        let hello = self.hello(node, with, false);
        self.post(node, with, connection, hello);
    }

    fn hello(&self, node: usize, with: usize, answer: bool) -> Packet {
        let life = self.hosts[node].life;
        let end = self.net.ends.get(&(node, with)).filter(|end| end.own == life);
        let none = Resume { peer_incarnation: 0, received: 0 };
        let resume = end.map_or(none, |end| end.session.resume());
        Packet::Hello { life, resume, answer }
    }

    /// Puts something on the wire, which may lose, double or delay it.
    fn post(&mut self, from: usize, to: usize, connection: u64, packet: Packet) {
        let lossy = matches!(packet, Packet::Frame(_)) && self.phase_is_rough();
        let wire = if lossy { self.options.wire } else { 0 };
        if self.net.cut.contains(&(from, to)) || self.rng.below(1000) < wire {
            if matches!(packet, Packet::Frame(_)) {
                // Below, it is sent again and again, and the connection given up in the end.
                self.give_up(from, to, connection, 6 * self.options.delay + MS_20);
            }
            return;
        }
        let mut at = self.arrival(from, to);
        if self.rng.below(1000) < wire {
            at += self.rng.below(3 * self.options.delay) + 1;
        }
        if self.rng.below(1000) < wire {
            let packet = packet.clone();
            self.at(at + 1, Event::Packet { from, to, connection, packet });
        }
        self.at(at, Event::Packet { from, to, connection, packet });
    }

    /// Something arrives.
    pub(crate) fn arrived(
        &mut self,
        from: usize,
        to: usize,
        connection: u64,
        packet: Packet,
    ) -> Result<(), String> {
        if !self.hosts[to].alive {
            return Ok(());
        }
        match packet {
            Packet::Hello { life, resume, answer } => {
                self.greeted(from, to, connection, (life, resume, answer))?;
            }
            Packet::Broken => {
                if self.net.ends.get(&(to, from)).is_some_and(|end| end.connection == connection) {
                    self.break_connection(to, from);
                }
            }
            Packet::Frame(bytes) => self.frame(from, to, connection, &bytes)?,
        }
        self.flush(to);
        Ok(())
    }

    fn greeted(
        &mut self,
        from: usize,
        to: usize,
        connection: u64,
        (life, resume, answer): (Member, Resume, bool),
    ) -> Result<(), String> {
        let (own, now) = (self.hosts[to].life, self.clock(to));
        if answer && self.net.dialled.get(&(to, from)) != Some(&connection) {
            return Ok(()); // another one was dialled since
        }
        if !answer && self.net.ends.get(&(to, from)).is_some_and(|end| end.connection > connection)
        {
            return Ok(());
        }
        if !self.meet_peer(to, from, own, life) {
            return Ok(());
        }
        let reply = self.hello(to, from, true);
        let end = self.net.ends.get_mut(&(to, from)).expect("made above");
        end.session.disconnect();
        end.connection = connection;
        end.session.connect(resume, now).map_err(|error| format!("session: {error}"))?;
        if !answer {
            self.post(to, from, connection, reply);
        }
        Ok(())
    }

    fn frame(
        &mut self,
        from: usize,
        to: usize,
        connection: u64,
        bytes: &[u8],
    ) -> Result<(), String> {
        let (own, now) = (self.hosts[to].life, self.clock(to));
        let Some(end) = self.net.ends.get_mut(&(to, from)) else { return Ok(()) };
        if end.connection != connection || end.own != own || !end.session.is_connected() {
            return Ok(());
        }
        let (head, body) = bytes.split_at(HEADER_BYTES);
        let head = head.try_into().expect("split at its length");
        let header = Header::decode(&head, BODY_BYTES_MAX).map_err(|e| format!("frame: {e}"))?;
        match end.session.receive(&header, now) {
            Ok(Received::Fresh) => {}
            Ok(Received::Repeated | Received::Plain) => return Ok(()),
            Err(_) => {
                self.break_connection(to, from);
                self.post(to, from, connection, Packet::Broken);
                return Ok(());
            }
        }
        let number = u64::from_le_bytes(body.try_into().expect("a message's number"));
        end.heard += 1;
        let due = (end.session.peer(), end.own, end.heard);
        let parcel = self.net.carried.remove(&number).ok_or("session: a message came twice")?;
        if (parcel.life, parcel.to_life, parcel.ordinal) != due {
            return Err(format!("session: {due:?} was due and came {parcel:?}"));
        }
        self.deliver(from, to, parcel)
    }

    /// This end gives its connection up.
    pub(crate) fn break_connection(&mut self, node: usize, with: usize) {
        if let Some(end) = self.net.ends.get_mut(&(node, with)) {
            end.session.disconnect();
        }
        self.dial_later(node, with);
    }

    /// A connection breaks, and what it carried is lost.
    pub(crate) fn reset_connection(&mut self, node: usize, with: usize) {
        let Some(connection) = self.net.ends.get(&(node, with)).map(|end| end.connection) else {
            return;
        };
        self.give_up(node, with, connection, self.options.delay);
    }

    /// Both ends will see that a connection is broken.
    fn give_up(&mut self, node: usize, with: usize, connection: u64, longest: u64) {
        for (to, from) in [(node, with), (with, node)] {
            let packet = Packet::Broken;
            self.later(longest, Event::Packet { from, to, connection, packet });
        }
    }

    /// Sends what the sessions of a node have for their connections.
    pub(crate) fn flush(&mut self, node: usize) {
        if !self.options.sessions {
            return;
        }
        let (now, own) = (self.clock(node), self.hosts[node].life);
        for with in 0..self.hosts.len() {
            let Some(end) = self.net.ends.get_mut(&(node, with)).filter(|end| end.own == own)
            else {
                continue;
            };
            let connection = end.connection;
            let mut bytes = Vec::new();
            end.session.transmit(&mut bytes, usize::MAX, now);
            let deadline = end.session.deadline().filter(|_| !end.armed);
            end.armed |= deadline.is_some();
            let mut rest = &bytes[..];
            while let Some(head) = rest.first_chunk::<HEADER_BYTES>() {
                let header = Header::decode(head, BODY_BYTES_MAX).expect("made by a session");
                let (frame, after) = rest.split_at(HEADER_BYTES + header.length);
                self.post(node, with, connection, Packet::Frame(frame.to_vec()));
                rest = after;
            }
            if let Some(deadline) = deadline {
                let at = self.world_time(node, deadline).max(self.now + 1);
                self.at(at, Event::Link { node, life: own.incarnation, with });
            }
        }
    }

    /// A session's deadline: it must speak, or the other side is silent.
    pub(crate) fn link(&mut self, node: usize, with: usize) {
        let (now, own) = (self.clock(node), self.hosts[node].life);
        let Some(end) = self.net.ends.get_mut(&(node, with)).filter(|end| end.own == own) else {
            return;
        };
        end.armed = false;
        if end.session.is_connected() && end.session.silence(now) >= SILENCE_MAX {
            self.break_connection(node, with);
        }
        self.flush(node);
    }
}

/// A pause between two attempts.
const MS_20: u64 = 20 * crate::options::MS;
