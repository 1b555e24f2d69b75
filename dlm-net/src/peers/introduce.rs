//! Who is at the other end: greetings, and everything that refuses one.
//!
//! Of each pair the node with the lower number dials, so at most one connection is meant to exist; a
//! greeting carries how often its sender has dialled, so of several the latest wins whatever order they
//! are read in. The acceptor greets after it has judged, so both resume points are exact: what an
//! earlier connection still holds is dropped by both and sent again.

use dlm_core::{Instant, Member, NodeId};

use super::node::{Link, Node};
use super::{DownReason, Event, Peers, Refusal};
use crate::session::{Resume, SessionError};
use crate::tcp::Role;
use crate::wire::body::{Hello, Refuse, encode_hello, encode_refuse};
use crate::wire::frame::{Header, Kind};

impl Peers {
    /// Says who we are, if it is our turn to and the connection is ready.
    pub(super) fn greet(&mut self, slot: usize) {
        let Some(Some(connection)) = self.connections.get_mut(slot) else { return };
        let (Role::Dialled(id) | Role::Peer(id)) = connection.role else { return };
        if connection.greeted || !connection.is_open() {
            return;
        }
        connection.greeted = true;
        let known = self.nodes.get(&id).and_then(|node| node.session.as_ref());
        let resume = known.map_or(Resume { peer_incarnation: 0, received: 0 }, |s| s.resume());
        let hello = Hello {
            minor_min: self.config.versions.minor_min,
            minor_max: self.config.versions.minor_max,
            own: self.config.own,
            peer_incarnation: resume.peer_incarnation,
            received: resume.received,
            dialled: if matches!(connection.role, Role::Dialled(_)) { self.dialled } else { 0 },
        };
        connection.say(&frame(Kind::Hello, &encode_hello(&hello)));
    }

    /// Judges a greeting; if it is good, the pair can talk.
    pub(super) fn introduce(
        &mut self,
        slot: usize,
        hello: &Hello,
        now: Instant,
    ) -> Result<(), Refusal> {
        let id = self.judge(slot, hello)?;
        let known = self.nodes.get(&id).and_then(Node::member);
        if known != Some(hello.own) {
            // Only now, as a stranger must not end a session.
            self.begin_session_over(slot, hello.own, now);
        } else if let Some(Link::Up(old)) = self.nodes.get(&id).map(|node| node.link)
            && old != slot
        {
            self.unlink(id, &DownReason::Replaced, now);
        }
        let Some(node) = self.nodes.get_mut(&id) else {
            return Err(Refusal::UnknownAddress);
        };
        let Some(session) = node.session.as_mut() else {
            return Err(Refusal::UnknownAddress);
        };
        let resume = Resume { peer_incarnation: hello.peer_incarnation, received: hello.received };
        if let Err(error) = session.connect(resume, now) {
            if matches!(error, SessionError::Forgotten { .. }) {
                self.report_unreachable(id);
            }
            return Err(error.into());
        }
        node.last_dialled = hello.dialled;
        node.minor = self.config.versions.agree(hello.minor_min, hello.minor_max);
        node.on_up(slot);
        if let Some(Some(connection)) = self.connections.get_mut(slot) {
            connection.role = Role::Peer(id);
        }
        self.greet(slot);
        tracing::info!("node {} incarnation {} can be talked to", id.0, hello.own.incarnation);
        self.events.push_back(Event::Up { member: hello.own });
        Ok(())
    }

    /// Begins a session with a new life without ending the connection in `slot`, which is its own.
    fn begin_session_over(&mut self, slot: usize, life: Member, now: Instant) {
        let link = self.nodes.get(&life.node).map(|node| node.link);
        let dialled = link == Some(Link::Dialling(slot));
        if dialled && let Some(node) = self.nodes.get_mut(&life.node) {
            node.link = Link::None { dial_at: now };
        }
        self.begin_session(life, now);
        if dialled && let Some(node) = self.nodes.get_mut(&life.node) {
            node.link = Link::Dialling(slot);
        }
    }

    /// Who it is, if it may come in.
    fn judge(&self, slot: usize, hello: &Hello) -> Result<NodeId, Refusal> {
        let ours = self.config.versions;
        if ours.agree(hello.minor_min, hello.minor_max).is_none() {
            return Err(Refusal::Version {
                major: ours.major,
                theirs_min: hello.minor_min,
                theirs_max: hello.minor_max,
                ours_min: ours.minor_min,
                ours_max: ours.minor_max,
            });
        }
        let Member { node: id, incarnation } = hello.own;
        if id == self.config.own.node {
            return Err(Refusal::OwnNodeId(id.0));
        }
        let wrong = Refusal::NodeId { claimed: id.0 };
        let Some(Some(connection)) = self.connections.get(slot) else { return Err(wrong) };
        let Some(node) = self.nodes.get(&id) else { return Err(wrong) };
        match connection.role {
            Role::Dialled(meant) if meant != id => return Err(wrong),
            Role::Dialled(_) => {}
            Role::Accepted => {
                let from = connection.remote.ip().to_canonical();
                if from != node.address.ip().to_canonical() {
                    return Err(wrong);
                }
                if id > self.config.own.node {
                    return Err(Refusal::Direction(id.0));
                }
            }
            Role::Peer(_) => return Err(wrong),
        }
        if self.over.get(&id).is_some_and(|over| incarnation <= *over) {
            return Err(Refusal::Excluded { node: id.0, incarnation });
        }
        match node.member() {
            Some(known) if incarnation < known.incarnation => Err(Refusal::OldIncarnation {
                node: id.0,
                told: incarnation,
                known: known.incarnation,
            }),
            Some(known)
                if known == hello.own
                    && connection.role == Role::Accepted
                    && hello.dialled <= node.last_dialled =>
            {
                Err(Refusal::OldConnection(id.0))
            }
            _ => Ok(id),
        }
    }

    /// Refuses a connection: tells the other side, the log and the driver.
    pub(super) fn refuse(&mut self, slot: usize, why: Refusal, now: Instant) {
        let Some(Some(connection)) = self.connections.get_mut(slot) else { return };
        let told_by_it = matches!(why, Refusal::Told(_) | Refusal::ExcludedHere | Refusal::HungUp);
        if connection.is_open() && !told_by_it {
            let excluded = matches!(why, Refusal::Excluded { .. });
            let refuse = Refuse { excluded, reason: why.to_string() };
            connection.say(&frame(Kind::Refuse, &encode_refuse(&refuse)));
        }
        // A last word; whoever does not take it sees the hang-up.
        let _ = connection.flush();
        let (address, role) = (connection.remote, connection.role);
        self.drop_connection(slot);
        if let Role::Dialled(id) | Role::Peer(id) = role {
            self.dial_later(id, slot, now);
        }
        self.complain(address, why, now);
    }

    pub(super) fn complain(&mut self, address: std::net::SocketAddr, why: Refusal, now: Instant) {
        let sentence = why.to_string();
        if self.complaints.is_news(address.ip(), &sentence, now) {
            tracing::warn!("no connection with {address}: {sentence}");
        }
        self.events.push_back(Event::Refused { address, why });
    }

    /// The connection in `slot` to a node is gone.
    pub(super) fn dial_later(&mut self, id: NodeId, slot: usize, now: Instant) {
        let random = self.random();
        if let Some(node) = self.nodes.get_mut(&id)
            && matches!(node.link, Link::Dialling(s) | Link::Up(s) if s == slot)
        {
            node.on_gone(now, random);
        }
    }

    /// Tells a member that it was excluded, if it can be told.
    pub(super) fn tell_excluded(&mut self, id: NodeId) {
        let refuse = Refuse { excluded: true, reason: "it was excluded".into() };
        self.say_last(id, Kind::Refuse, encode_refuse(&refuse));
    }

    /// Says a last frame to a node that is up.
    pub(super) fn say_last(&mut self, id: NodeId, kind: Kind, body: Vec<u8>) {
        if let Some(Link::Up(slot)) = self.nodes.get(&id).map(|node| node.link)
            && let Some(Some(connection)) = self.connections.get_mut(slot)
        {
            connection.say(&frame(kind, &body));
            // Whoever does not take it sees the hang-up.
            let _ = connection.flush();
        }
    }

    /// The next number of the seed's sequence (splitmix64).
    pub(super) fn random(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }
}

/// A frame without number.
fn frame(kind: Kind, body: &[u8]) -> Vec<u8> {
    let header = Header { kind, length: body.len(), sequence: 0, ack: 0 };
    let mut frame = header.encode().to_vec();
    frame.extend_from_slice(body);
    frame
}
