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
//! peers.flush(clock());                       // one write per peer
//! # Ok(())
//! # }
//! ```
//!
//! Promise (recovery.md B5): between two members everything that [`Peers::send`] took arrives once and in
//! order as long as both live, whatever happens to connections (BL-015); or `Unreachable` is told.
//! Sessions belong to members, so a node that restarts never hears what was meant for its earlier life.

pub mod config;
pub mod event;

pub use config::{Config, NodeAddress, Versions};
pub use event::{DownReason, Event, Refusal, SendError};

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::ops::Range;

use dlm_core::{Instant, JOINS_PER_LIFE, Member, Message, NodeId};
use mio::{Registry, Token};

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
}

/// All peers of this daemon.
#[derive(Debug)]
pub struct Peers {
    config: Config,
    registry: Registry,
    tokens: Range<usize>,
    events: VecDeque<Event>,
}

impl Peers {
    /// Listens at `config.listen`. `tokens` are for nobody else: the first is the listener's, the
    /// others bound the number of connections.
    ///
    /// # Errors
    /// The address cannot be listened on.
    pub fn new(
        config: Config,
        registry: &Registry,
        tokens: Range<usize>,
        _now: Instant,
    ) -> io::Result<Self> {
        let registry = registry.try_clone()?;
        Ok(Self { config, registry, tokens, events: VecDeque::new() })
    }

    /// Sets which nodes there are and where; this node itself may be among them. Sessions with nodes
    /// that are no longer there, or at another address, end.
    pub fn set_members(&mut self, _nodes: &[NodeAddress], _now: Instant) {}

    /// Ends the session with this life of a node, and every earlier one, for good: nothing is heard
    /// from it (recovery.md R1), what waits for it is dropped, and its connections are refused. A later
    /// life is welcome. For a node that is out of the cluster; leaving one lockspace ends no session.
    pub fn exclude(&mut self, _member: Member, _now: Instant) {}

    /// Begins a new life of this node: all sessions end, and peers are told with the next connection.
    pub fn renew(&mut self, own: Member, _now: Instant) {
        self.config.own = own;
    }

    /// Sends a message after everything sent to this life before. `to` is the life, or a stay of it
    /// in a lockspace. It need not be heard of yet: the message waits. Nothing leaves before
    /// [`Peers::flush`].
    ///
    /// # Errors
    /// As [`SendError`] says; the message was not taken.
    pub fn send(&mut self, to: Member, _message: &Message) -> Result<(), SendError> {
        Err(SendError::UnknownNode(to.node.0))
    }

    /// Sends bytes whose meaning the daemons agree on, as [`Peers::send`] sends messages and in one
    /// order with them; up to [`wire::limits::BODY_BYTES_MAX`](crate::wire::limits::BODY_BYTES_MAX).
    ///
    /// # Errors
    /// As [`SendError`] says; the note was not taken.
    pub fn send_note(&mut self, to: Member, _note: &[u8]) -> Result<(), SendError> {
        Err(SendError::UnknownNode(to.node.0))
    }

    /// Whether a token is of the range.
    pub fn owns(&self, token: Token) -> bool {
        self.tokens.contains(&token.0)
    }

    /// Notes what a socket is ready for; the work is done by [`Peers::on_time`] and [`Peers::flush`].
    pub fn on_event(&mut self, _event: &mio::event::Event) {}

    /// Reads a bounded amount from every socket that has something, accepts, dials, and finds out
    /// who has fallen silent. To be called in every turn.
    pub fn on_time(&mut self, _now: Instant) {}

    /// The next piece of news; to be called until there is none, in every turn.
    pub fn next_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Writes what waits: one sealed write per peer. To be called at the end of every turn.
    pub fn flush(&mut self, _now: Instant) {}

    /// When [`Peers::on_time`] is next needed though no socket is ready; a moment that has passed if
    /// work was left over.
    pub fn deadline(&self) -> Option<Instant> {
        None
    }

    /// Tells all peers that this daemon ends; nothing is sent after it. What waits is lost, so lockspaces
    /// have to be left before.
    pub fn goodbye(&mut self, _now: Instant) {}

    /// Where this node listens.
    pub fn local_address(&self) -> SocketAddr {
        self.config.listen
    }

    /// All configured nodes but this one, by number.
    pub fn states(&self) -> Vec<PeerState> {
        Vec::new()
    }
}

/// The life that a stay belongs to.
pub fn life_of(member: Member) -> Member {
    let incarnation = member.incarnation / JOINS_PER_LIFE * JOINS_PER_LIFE;
    Member { node: member.node, incarnation }
}
