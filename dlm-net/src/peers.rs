//! The front of the transport between daemons: whole messages in order, from member to member.
//!
//! A driver gives [`Peers`] a range of mio tokens and calls it in every turn of its loop:
//!
//! ```no_run
//! # fn f(poll: &mut mio::Poll, peers: &mut dlm_net::peers::Peers) -> std::io::Result<()> {
//! # let clock = || dlm_core::Instant(0);
//! # let mut events = mio::Events::with_capacity(64);
//! let sleep = peers.deadline().map(|at| at.since(clock()));
//! poll.poll(&mut events, sleep)?;
//! for event in &events {
//!     if peers.owns(event.token()) {
//!         peers.on_event(event);
//!     }
//! }
//! peers.on_time(clock());                     // reads, accepts, dials, watches the silent
//! while let Some(event) = peers.next_event() { // messages, ups and downs, in order
//!     drop(event);                            // … step the core, which calls peers.send(…)
//! }
//! peers.flush(false, clock());                // one write per peer
//! # Ok(())
//! # }
//! ```
//!
//! Promise (recovery.md B5): between two members everything that [`Peers::send`] took arrives once and in
//! order as long as both live, whatever happens to connections (BL-015); or `Unreachable` is told.
//! Sessions belong to members, so a node that restarts never hears what was meant for its earlier life.

pub mod config;
pub mod event;
mod introduce;
mod log;
mod node;
#[cfg(test)]
mod tests;
mod turn;

pub use config::{Config, NodeAddress, Versions};
pub use event::{DownReason, Event, Refusal, SendError};

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::ops::Range;

use dlm_core::{Instant, JOINS_PER_LIFE, Member, Message, NodeId};
use mio::net::TcpListener;
use mio::{Interest, Registry, Token};

use crate::secure::{Crypto, Setup};
use crate::session::Session;
use crate::tcp::Connection;
use crate::wire::body::append_message;
use crate::wire::frame::Kind;
use crate::wire::limits::BODY_BYTES_MAX;

use log::Complaints;
use node::{Link, Node};

/// What the transport knows about a configured node, for listings.
#[derive(Clone, Debug)]
pub struct PeerState {
    /// The node.
    pub node: NodeId,
    /// Where it is reached.
    pub address: SocketAddr,
    /// The life of it that was last heard of, or that something is to be sent to.
    pub member: Option<Member>,
    /// Whether the pair can talk at the moment.
    pub up: bool,
    /// When it was last heard, or when it was configured.
    pub heard: Instant,
    /// Bytes sent to it that it has not acknowledged.
    pub waiting_bytes: usize,
    /// Connections that were introduced so far.
    pub connections: u64,
    /// Minor version of the protocol that is spoken with it.
    pub minor: Option<u8>,
}

/// All peers of this daemon.
#[derive(Debug)]
pub struct Peers {
    config: Config,
    setup: Setup,
    registry: Registry,
    tokens: Range<usize>,
    listener: Option<TcpListener>,
    local: SocketAddr,
    /// Somebody may be at the door.
    door: bool,
    nodes: BTreeMap<NodeId, Node>,
    /// Lives that are over: up to this incarnation nothing is heard from the node.
    over: BTreeMap<NodeId, u64>,
    /// By token.
    connections: Vec<Option<Connection>>,
    events: VecDeque<Event>,
    complaints: Complaints,
    /// How often this life has dialled.
    dialled: u64,
    random: u64,
    /// When the last turn was.
    turned: Instant,
    /// Something was left over in the last turn.
    busy: bool,
    /// Room for what is read, and for frames that are said.
    buffer: Vec<u8>,
    frames: Vec<u8>,
}

impl Peers {
    /// Listens at `config.listen`. `tokens` are for nobody else: the first is the listener's, the
    /// others bound the number of connections.
    ///
    /// # Errors
    /// The address cannot be listened on, or a setting makes no sense.
    pub fn new(
        config: Config,
        registry: &Registry,
        tokens: Range<usize>,
        now: Instant,
    ) -> io::Result<Self> {
        let wrong = |sentence: &str| io::Error::new(io::ErrorKind::InvalidInput, sentence);
        if !(1..=config::CLUSTER_NAME_BYTES_MAX).contains(&config.cluster.len()) {
            return Err(wrong("a cluster's name has 1 to 64 bytes"));
        }
        if life_of(config.own) != config.own {
            return Err(wrong("peers are lives of nodes, not their stays in lockspaces"));
        }
        if matches!(config.crypto, Crypto::None) {
            tracing::warn!(
                "crypto=none: peers are NOT authenticated and nothing is encrypted; whoever reaches \
                 {} can take and break any lock of the cluster",
                config.listen
            );
        }
        let mut listener = TcpListener::bind(config.listen)?;
        let local = listener.local_addr()?;
        registry.register(&mut listener, Token(tokens.start), Interest::READABLE)?;
        let setup = Setup {
            major: config.versions.major,
            cluster: config.cluster.clone(),
            crypto: config.crypto.clone(),
        };
        Ok(Self {
            random: config.seed,
            config,
            setup,
            registry: registry.try_clone()?,
            tokens,
            listener: Some(listener),
            local,
            door: true,
            nodes: BTreeMap::new(),
            over: BTreeMap::new(),
            connections: Vec::new(),
            events: VecDeque::new(),
            complaints: Complaints::default(),
            dialled: 0,
            turned: now,
            busy: false,
            buffer: vec![0; 64 * 1024],
            frames: Vec::new(),
        })
    }

    /// Sets which nodes there are and where; this node itself may be among them. Sessions with nodes
    /// that are no longer there, or at another address, end for good, as if they had been excluded.
    pub fn set_members(&mut self, nodes: &[NodeAddress], now: Instant) {
        let stays = |node: NodeId, address| {
            nodes.iter().any(|other| other.node == node && other.address == address)
        };
        let gone: Vec<NodeId> = self
            .nodes
            .iter()
            .filter(|(id, node)| !stays(**id, node.address))
            .map(|(id, _)| *id)
            .collect();
        for id in gone {
            self.unlink(id, &DownReason::Removed, now);
            if let Some(session) = self.nodes.remove(&id).and_then(|node| node.session) {
                self.end_life(session.peer());
            }
        }
        for NodeAddress { node, address } in nodes {
            if *node != self.config.own.node {
                self.nodes.entry(*node).or_insert_with(|| Node::new(*address, now));
            }
        }
    }

    /// Ends the session with this life of a node, and every earlier one, for good: nothing is heard
    /// from it (recovery.md R1), what waits for it is dropped, and its connections are refused. A later
    /// life is welcome. For a node that is out of the cluster; leaving one lockspace ends no session.
    pub fn exclude(&mut self, member: Member, now: Instant) {
        let life = life_of(member);
        self.end_life(life);
        let node = self.nodes.get(&life.node);
        if node.and_then(Node::member).is_some_and(|known| known.incarnation <= life.incarnation) {
            self.tell_excluded(life.node);
            self.unlink(life.node, &DownReason::Excluded, now);
            self.nodes.entry(life.node).and_modify(|node| node.session = None);
        }
    }

    /// Begins a new life of this node: all sessions end, and peers are told with the next connection.
    ///
    /// # Panics
    /// If it is another node, or not a later life.
    pub fn renew(&mut self, own: Member, now: Instant) {
        assert!(own.node == self.config.own.node && own > self.config.own && life_of(own) == own);
        self.config.own = own;
        let ids: Vec<NodeId> = self.nodes.keys().copied().collect();
        for id in ids {
            self.unlink(id, &DownReason::Renewed, now);
            self.nodes.entry(id).and_modify(|node| node.session = None);
        }
        // Greetings of the old life may be on their way.
        for slot in 0..self.connections.len() {
            self.drop_connection(slot);
        }
        for node in self.nodes.values_mut() {
            node.link = Link::None { dial_at: now };
        }
    }

    /// Sends a message after everything sent to this life before. `to` is the life, or a stay of it
    /// in a lockspace. It need not be heard of yet: the message waits. Nothing leaves before
    /// [`Peers::flush`].
    ///
    /// # Errors
    /// As [`SendError`] says; the message was not taken.
    pub fn send(&mut self, to: Member, message: &Message) -> Result<(), SendError> {
        self.push(life_of(to), Kind::Message, message.body.is_prompt(), |out| {
            append_message(message, out).map_err(|_| SendError::TooLarge(BODY_BYTES_MAX))
        })
    }

    /// Sends bytes whose meaning the daemons agree on, as [`Peers::send`] sends messages and in one
    /// order with them; up to [`wire::limits::BODY_BYTES_MAX`](crate::wire::limits::BODY_BYTES_MAX).
    ///
    /// # Errors
    /// As [`SendError`] says; the note was not taken.
    pub fn send_note(&mut self, to: Member, note: &[u8]) -> Result<(), SendError> {
        if note.len() > BODY_BYTES_MAX {
            return Err(SendError::TooLarge(BODY_BYTES_MAX));
        }
        self.push(life_of(to), Kind::Note, true, |out| {
            out.extend_from_slice(note);
            Ok(())
        })
    }

    fn push(
        &mut self,
        to: Member,
        kind: Kind,
        prompt: bool,
        write: impl FnOnce(&mut Vec<u8>) -> Result<(), SendError>,
    ) -> Result<(), SendError> {
        let over = SendError::Over { node: to.node.0, incarnation: to.incarnation };
        if self.over.get(&to.node).is_some_and(|last| to.incarnation <= *last) {
            return Err(over);
        }
        let Some(node) = self.nodes.get(&to.node) else {
            return Err(SendError::UnknownNode(to.node.0));
        };
        match node.member() {
            Some(known) if known.incarnation > to.incarnation => return Err(over),
            Some(known) if known == to => {}
            _ => self.begin_session(to, self.turned),
        }
        let unknown = SendError::UnknownNode(to.node.0);
        let node = self.nodes.get_mut(&to.node).ok_or(unknown)?;
        let session = node.session.as_mut().ok_or(unknown)?;
        if !node.full && session.push_with(kind, write)? {
            node.prompt |= prompt;
            return Ok(());
        }
        let bytes = session.waiting_bytes();
        if !std::mem::replace(&mut node.full, true) {
            tracing::error!(
                "node {}: {bytes} bytes wait for its acknowledgement, the bound; the pair cannot go on",
                to.node.0
            );
            self.report_unreachable(to.node);
        }
        Err(SendError::Full { node: to.node.0, bytes })
    }

    /// Whether a token is of the range.
    pub fn owns(&self, token: Token) -> bool {
        self.tokens.contains(&token.0)
    }

    /// Notes what a socket is ready for; the work is done by [`Peers::on_time`] and [`Peers::flush`].
    pub fn on_event(&mut self, event: &mio::event::Event) {
        let Some(at) = event.token().0.checked_sub(self.tokens.start) else { return };
        match at.checked_sub(1) {
            None => self.door = true,
            Some(slot) => {
                if let Some(Some(connection)) = self.connections.get_mut(slot) {
                    connection.on_event(event);
                }
            }
        }
    }

    /// The next piece of news; to be called until there is none, in every turn.
    pub fn next_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Tells all peers that this daemon ends; nothing is sent after it. What waits is lost, so lockspaces
    /// have to be left before.
    pub fn goodbye(&mut self) {
        self.listener = None;
        for id in self.nodes.keys().copied().collect::<Vec<_>>() {
            self.say_last(id, Kind::Goodbye, Vec::new());
        }
        for slot in 0..self.connections.len() {
            self.drop_connection(slot);
        }
        self.nodes.clear();
    }

    /// From now on nothing new is acknowledged, or everything again: whoever has not handled yet what came
    /// wants no more of what can wait ([`Session::withhold`]).
    pub fn withhold(&mut self, withholds: bool) {
        let sessions = self.nodes.values_mut().filter_map(|node| node.session.as_mut());
        sessions.for_each(|session| session.withhold(withholds));
    }

    /// The most bytes that wait for the acknowledgement of one node that can be talked to.
    pub fn most_waiting(&self) -> usize {
        let up = self.nodes.values().filter(|node| matches!(node.link, Link::Up(_)));
        up.filter_map(|node| node.session.as_ref()).map(Session::waiting_bytes).max().unwrap_or(0)
    }

    /// Where this node listens.
    pub fn local_address(&self) -> SocketAddr {
        self.local
    }

    /// This life of this node.
    pub fn own(&self) -> Member {
        self.config.own
    }

    /// All configured nodes but this one, by number.
    pub fn states(&self) -> Vec<PeerState> {
        self.nodes.keys().filter_map(|id| self.state(*id)).collect()
    }

    /// One of [`Peers::states`].
    pub fn state(&self, id: NodeId) -> Option<PeerState> {
        let node = self.nodes.get(&id)?;
        Some(PeerState {
            node: id,
            address: node.address,
            member: node.member(),
            up: matches!(node.link, Link::Up(_)),
            heard: node.heard(),
            waiting_bytes: node.session.as_ref().map_or(0, Session::waiting_bytes),
            connections: node.connections,
            minor: node.minor,
        })
    }

    /// Marks a life, and all before it, as over.
    fn end_life(&mut self, life: Member) {
        let over = self.over.entry(life.node).or_insert(0);
        *over = (*over).max(life.incarnation);
    }

    /// A session with a life of which nothing was known; an earlier life's ends.
    fn begin_session(&mut self, life: Member, now: Instant) {
        let old = self.nodes.get(&life.node).and_then(Node::member);
        if let Some(old) = old {
            self.unlink(life.node, &DownReason::Replaced, now);
            self.events.push_back(Event::NewIncarnation { old, new: life });
        }
        if let Some(node) = self.nodes.get_mut(&life.node) {
            let session = Session::new(self.config.own, life, self.config.window_bytes_max, now);
            node.session = Some(session);
            (node.full, node.reported, node.last_dialled) = (false, false, 0);
        }
    }

    /// Ends the connection of a node that was introduced, or that is being dialled.
    fn unlink(&mut self, id: NodeId, why: &DownReason, now: Instant) {
        let Some(node) = self.nodes.get_mut(&id) else { return };
        let again = Link::None { dial_at: now };
        match std::mem::replace(&mut node.link, again) {
            Link::None { dial_at } => node.link = Link::None { dial_at },
            Link::Dialling(slot) => self.drop_connection(slot),
            Link::Up(slot) => {
                node.configured = now.max(node.configured);
                if let Some(session) = &mut node.session {
                    session.disconnect();
                    let member = session.peer();
                    let (id, fault) = (id.0, why.is_fault());
                    if fault {
                        tracing::warn!("node {id} cannot be talked to: {why}");
                    } else {
                        tracing::info!("node {id} cannot be talked to: {why}");
                    }
                    self.events.push_back(Event::Down { member, why: why.clone() });
                }
                self.drop_connection(slot);
            }
        }
    }

    fn drop_connection(&mut self, slot: usize) {
        if let Some(mut connection) = self.connections.get_mut(slot).and_then(Option::take) {
            connection.deregister(&self.registry);
        }
    }

    /// Gives a connection a token; `None` if there is none left.
    fn add_connection(&mut self, mut connection: Connection) -> io::Result<Option<usize>> {
        let free = self.connections.iter().position(Option::is_none);
        let slot = free.unwrap_or(self.connections.len());
        if slot + 1 >= self.tokens.len() {
            return Ok(None);
        }
        connection.register(&self.registry, Token(self.tokens.start + 1 + slot))?;
        if slot == self.connections.len() {
            self.connections.push(None);
        }
        self.connections[slot] = Some(connection);
        Ok(Some(slot))
    }

    /// Tells membership once that a pair cannot talk (B5).
    fn report_unreachable(&mut self, id: NodeId) {
        let Some(node) = self.nodes.get_mut(&id) else { return };
        if !std::mem::replace(&mut node.reported, true) {
            let (member, since) = (node.member(), node.heard());
            self.events.push_back(Event::Unreachable { node: id, member, since });
        }
    }
}

/// The life that a stay belongs to.
pub fn life_of(member: Member) -> Member {
    let incarnation = member.incarnation / JOINS_PER_LIFE * JOINS_PER_LIFE;
    Member { node: member.node, incarnation }
}
