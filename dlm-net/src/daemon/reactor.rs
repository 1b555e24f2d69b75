//! The loop: one poll, one thread, turns.
//!
//! A turn reads the clock once, takes up to a bound from every source that has something, steps the
//! core, and then makes everything visible: one bell per client and ring. What a source has beyond
//! the bound waits for the next turn, which then does not sleep; so a client that floods delays
//! others by one turn at most.
//!
//! Sleeping obeys the bell rule (ipc.md section 2) for every client that was active since the last sleep;
//! the others are armed already, so idle clients cost nothing.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::os::fd::RawFd;
use std::time::Duration;

use dlm_core::{ClientId, Input, Instant, Node, NodeId, Outbox};
use dlm_ipc::control::CONTROL_BYTES_MAX;
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Registry, Token};

use super::alarm::Alarm;
use super::changes::Changes;
use super::config::Settings;
use super::counters::Counters;
use super::lease::Tenure;
use super::leftover::{Leftovers, Remnants};
use super::links;
use super::locate::Searches;
use super::log::Log;
use super::lookalike::Lookalike;
use super::news;
use super::pace::Pace;
use super::query::{self, Query};
use super::signal::Signals;
use super::stop::Stop;
use super::tree::Behind;
use crate::ipc::admit::Rights;
use crate::ipc::listen::Door;
use crate::ipc::peer::Peer;
use crate::ipc::table::Table;
use crate::membership::Membership;
use crate::peers::Peers;
use crate::sys;

/// Events taken from the poller at once.
const EVENTS_MAX: usize = 1024;
/// Messages taken from the sockets of handles and newcomers in a turn.
const MESSAGES_PER_TURN: usize = 64;
/// Longest time a newcomer may take to say what it wants.
const GREETING_NANOS_MAX: u64 = 10_000_000_000;

/// How a client ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum End {
    /// Its socket hung up, or its process is gone.
    Gone,
    /// It broke the rules.
    Fault,
    /// It does not read what it is told.
    Deaf,
}

/// Bounds and rights, as the configuration says now.
#[derive(Debug, Default)]
pub(super) struct Policy {
    pub(super) rights: Rights,
    pub(super) clients_max: usize,
    pub(super) events_max: usize,
}

/// Work that is known and not done.
#[derive(Debug, Default)]
pub(super) struct Queues {
    /// Handles whose submissions are served in every turn until they are armed again.
    pub(super) active: Vec<ClientId>,
    /// Handles with entries that are not visible yet.
    pub(super) dirty: Vec<ClientId>,
    /// Connections that end before the turn does.
    pub(super) doomed: Vec<(ClientId, End)>,
    /// Connections whose socket may have a message.
    pub(super) sockets: VecDeque<ClientId>,
    /// Control conversations whose socket may have a request.
    pub(super) controls: VecDeque<ClientId>,
    /// Newcomers with the time when their patience with them ends, oldest first.
    pub(super) greetings: VecDeque<(u64, ClientId)>,
    /// Somebody may be at the door.
    pub(super) door: bool,
    /// Somebody is at the door for whom there is no descriptor.
    pub(super) door_stuck: bool,
    /// Membership was asked for something and may have an answer.
    pub(super) news: bool,
    /// What this daemon reports of itself may have changed.
    pub(super) report: bool,
    /// Openings that are done, while the lease has yet to come.
    pub(super) opened: Vec<ClientId>,
}

/// The daemon at work.
pub(crate) struct Reactor {
    poll: Poll,
    events: Events,
    alarm: Alarm,
    pub(super) door: Door,
    signals: Signals,
    pub(super) peers: Table<Peer>,
    pub(super) node: Node,
    pub(super) outbox: Outbox,
    pub(super) membership: Box<dyn Membership>,
    pub(super) queues: Queues,
    pub(super) settings: Settings,
    pub(super) policy: Policy,
    pub(super) counters: Counters,
    pub(super) log: Log,
    pub(super) lookalike: Lookalike,
    /// Where it is not as views say.
    pub(super) behind: Behind,
    pub(super) leftovers: Leftovers,
    /// The original's query socket, where it is served.
    pub(super) query: Option<Query>,
    pub(super) stop: Stop,
    /// Other daemons, where there are any.
    pub(super) links: Option<Peers>,
    /// Names that other daemons were asked about.
    pub(super) searches: Searches,
    /// How fast work over many names goes.
    pub(super) pace: Pace,
    /// What views changed.
    pub(super) changes: Changes,
    /// Nodes that cannot be talked to for too long.
    pub(super) unreachable: BTreeSet<NodeId>,
    /// Whether membership lets this node grant.
    pub(super) standing: bool,
    /// The lease, where there is one.
    pub(super) tenure: Option<Tenure>,
    /// Lost lives of this node, and how many clients have not closed their handles yet.
    pub(super) remains: BTreeMap<u64, u32>,
    heap: sys::Heap,
    /// The clock's value of this turn, nanoseconds.
    pub(super) now: u64,
    /// The clock's value at the start, nanoseconds.
    pub(super) started: u64,
    /// Room for a message.
    pub(super) buffer: Vec<u8>,
}

/// What a daemon is made of.
pub(crate) struct Parts {
    /// The door.
    pub(crate) door: Door,
    /// The signals.
    pub(crate) signals: Signals,
    /// Who takes part.
    pub(crate) membership: Box<dyn Membership>,
    /// Other daemons.
    pub(crate) others: Option<links::Others>,
    /// The configuration.
    pub(crate) settings: Settings,
    /// The log.
    pub(crate) log: Log,
    /// The look-alike tree.
    pub(crate) lookalike: Lookalike,
    /// The list of lockspaces.
    pub(crate) leftovers: Leftovers,
    /// The original's query socket, where it is served.
    pub(crate) query: Option<Query>,
    /// Whether to end when standard input closes.
    pub(crate) until_stdin_closes: bool,
}

impl Reactor {
    /// Puts a daemon together.
    ///
    /// # Errors
    /// No descriptor left, or a group of the configuration does not exist.
    pub(crate) fn new(parts: Parts) -> io::Result<Self> {
        let node = Node::new(parts.membership.own());
        let now = sys::boot_nanos();
        let mut reactor = Self {
            poll: Poll::new()?,
            events: Events::with_capacity(EVENTS_MAX),
            alarm: Alarm::new()?,
            door: parts.door,
            signals: parts.signals,
            peers: Table::default(),
            node,
            outbox: Outbox::new(),
            membership: parts.membership,
            queues: Queues { door: true, report: true, ..Queues::default() },
            settings: parts.settings,
            policy: Policy::default(),
            counters: Counters::default(),
            log: parts.log,
            lookalike: parts.lookalike,
            behind: Behind::default(),
            leftovers: parts.leftovers,
            query: parts.query,
            stop: Stop::default(),
            links: None,
            pace: Pace::default(),
            searches: Searches::default(),
            changes: Changes::default(),
            unreachable: BTreeSet::new(),
            standing: true,
            tenure: None,
            remains: BTreeMap::new(),
            heap: sys::Heap::new(),
            now,
            started: now,
            buffer: vec![0; CONTROL_BYTES_MAX],
        };
        reactor.apply_settings().map_err(io::Error::other)?;
        reactor.register(reactor.door.raw(), DOOR)?;
        reactor.register(reactor.signals.raw(), SIGNALS)?;
        reactor.register(reactor.alarm.raw(), ALARM)?;
        if parts.until_stdin_closes {
            reactor.register(0, STDIN)?;
        }
        if let Some(query) = &reactor.query {
            reactor.register(query.raw(), query::TOKEN)?;
        }
        reactor.membership.open(reactor.poll.registry(), news::TOKENS, Instant(now))?;
        if let Some(others) = parts.others {
            reactor.links = Some(links::open(others, reactor.poll.registry(), now)?);
        }
        Ok(reactor)
    }

    /// Begins to need a lease, where the configuration says so; the watchdog is armed once clients of
    /// the daemon before are gone.
    ///
    /// # Errors
    /// A sentence that says what to do.
    pub(crate) fn begin_lease(&mut self, remnants: Remnants) -> Result<(), String> {
        self.tenure = Tenure::begin(&self.settings, remnants, sys::boot_nanos())?;
        self.set_permit();
        Ok(())
    }

    /// Serves until somebody ends the daemon.
    ///
    /// # Errors
    /// The poller failed, which it does only if this process is broken.
    pub(crate) fn run(mut self) -> io::Result<()> {
        while !self.stop.is_decided() {
            self.turn()?;
        }
        self.wind_up();
        Ok(())
    }

    fn turn(&mut self) -> io::Result<()> {
        let timeout = self.timeout()?;
        if let Err(error) = self.poll.poll(&mut self.events, timeout)
            && error.kind() != io::ErrorKind::Interrupted
        {
            return Err(error);
        }
        self.now = sys::boot_nanos();
        self.take_events();
        self.serve_membership();
        self.keep_lease();
        self.serve_links();
        self.tick();
        self.serve_door();
        self.serve_opened();
        self.serve_sockets();
        self.serve_rings();
        self.hear_on();
        self.follow_changes();
        if !self.queues.controls.is_empty() {
            // Operators, and views, may take their time: not that of clients who have their answers.
            self.flush();
            self.flush_links();
        }
        self.serve_controls();
        self.serve_queries();
        self.expire_searches();
        self.expire_greetings();
        self.end_doomed();
        self.report();
        self.flush();
        self.flush_links();
        self.arm();
        self.keep_tree();
        self.heap.ask();
        self.counters.turn(sys::boot_nanos() - self.now);
        self.give_way();
        Ok(())
    }

    /// How long the poller may sleep; `None`: until something happens, of which the alarm is one.
    fn timeout(&mut self) -> io::Result<Option<Duration>> {
        let q = &self.queues;
        // Rings wait for the lease.
        let rings = q.active.is_empty() && q.dirty.is_empty() || self.is_frozen();
        let sockets = q.sockets.is_empty() && q.controls.is_empty();
        let busy = !(rings && sockets && q.doomed.is_empty() && self.behind.is_empty()) || q.door;
        if busy {
            return Ok(Some(Duration::ZERO));
        }
        if self.has_due_work() {
            return Ok(Some(Duration::ZERO));
        }
        let core = self.next_tick();
        let greeting = q.greetings.front().map(|(at, _)| *at);
        let links = self.links.as_ref().and_then(Peers::deadline).map(|at| at.0);
        let membership = self.membership.deadline().map(|at| at.0);
        let lease = self.tenure.as_ref().map(|tenure| tenure.deadline(self.now));
        let searches = self.searches.deadline();
        let query = self.query.as_ref().and_then(Query::deadline);
        let all = [core, greeting, links, membership, lease, searches, query];
        if let Some(next) = all.into_iter().flatten().min() {
            self.alarm.ring_by(next)?;
        }
        Ok(None)
    }

    fn take_events(&mut self) {
        let events = std::mem::replace(&mut self.events, Events::with_capacity(0));
        for event in &events {
            match event.token() {
                DOOR => self.queues.door = true,
                SIGNALS => self.take_signals(),
                ALARM => self.alarm.rang(),
                query::TOKEN => {
                    if let Some(query) = &mut self.query {
                        query.wake();
                    }
                }
                STDIN => {
                    if event.is_read_closed() {
                        self.stop.end("standard input is closed");
                    }
                }
                token if news::TOKENS.contains(&token.0) => self.membership.ready(token),
                token => match &mut self.links {
                    Some(links) if links.owns(token) => links.on_event(event),
                    _ => self.take_client_event(token),
                },
            }
        }
        self.events = events;
    }

    fn take_client_event(&mut self, token: Token) {
        let (id, kind) = meaning(token);
        match kind {
            Kind::Bell => self.activate(id),
            Kind::Socket => self.queues.sockets.push_back(id),
            Kind::Process => self.queues.doomed.push((id, End::Gone)),
        }
    }

    fn take_signals(&mut self) {
        while let Some(wish) = self.signals.next() {
            self.on_wish(wish);
        }
    }

    fn serve_sockets(&mut self) {
        for _ in 0..MESSAGES_PER_TURN.min(self.queues.sockets.len()) {
            let Some(id) = self.queues.sockets.pop_front() else { return };
            self.serve_socket(id);
        }
    }

    fn expire_greetings(&mut self) {
        while let Some((at, id)) = self.queues.greetings.front().copied() {
            let waits = self.is_greeting(id);
            if waits && at > self.now {
                return;
            }
            self.queues.greetings.pop_front();
            if waits {
                tracing::debug!("a client said nothing for 10 s and was dropped");
                self.remove_peer(id);
            }
        }
    }

    /// When a newcomer of this turn has to have spoken.
    pub(super) fn greeting_deadline(&self) -> u64 {
        self.now + GREETING_NANOS_MAX
    }

    /// Feeds the core and does what it says.
    pub(super) fn step(&mut self, input: Input<'_>) {
        self.node.step(Instant(self.now), input, &mut self.outbox);
        self.carry_out();
    }

    /// Ends a client before the turn is over.
    pub(super) fn doom(&mut self, id: ClientId, end: End) {
        self.queues.doomed.push((id, end));
    }

    fn end_doomed(&mut self) {
        while let Some((id, end)) = self.queues.doomed.pop() {
            self.end_peer(id, end);
        }
    }

    pub(super) fn registry(&self) -> &Registry {
        self.poll.registry()
    }

    /// Watches a descriptor, edge-triggered.
    pub(super) fn register(&self, fd: RawFd, token: Token) -> io::Result<()> {
        self.poll.registry().register(&mut SourceFd(&fd), token, Interest::READABLE)
    }

    /// Ends the watch of a descriptor that somebody else may hold open.
    pub(super) fn deregister(&self, fd: RawFd) {
        // It was registered with success; nothing else can fail.
        let _ = self.poll.registry().deregister(&mut SourceFd(&fd));
    }
}

const DOOR: Token = Token(0);
const SIGNALS: Token = Token(1);
const STDIN: Token = Token(2);
const ALARM: Token = Token(3);

/// Which of a connection's descriptors.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// The socket.
    Socket = 1,
    /// The submission bell.
    Bell = 2,
    /// The opener's process.
    Process = 3,
}

/// A token: generation in the high half, then slot, then kind. Generations start at 1, so that the
/// daemon's own tokens are none of these.
pub(super) fn token(id: ClientId, kind: Kind) -> Token {
    const { assert!(usize::BITS == 64) };
    Token((id.generation as usize) << 32 | (id.slot as usize) << 2 | kind as usize)
}

fn meaning(token: Token) -> (ClientId, Kind) {
    let slot = (token.0 as u32) >> 2;
    let kind = match token.0 & 3 {
        1 => Kind::Socket,
        2 => Kind::Bell,
        _ => Kind::Process,
    };
    (ClientId::new(slot, (token.0 >> 32) as u32), kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_carry_slot_generation_and_kind() {
        for kind in [Kind::Socket, Kind::Bell, Kind::Process] {
            for id in [ClientId::new(0, 1), ClientId::new((1 << 30) - 1, u32::MAX)] {
                assert_eq!(meaning(token(id, kind)), (id, kind));
                assert!(![DOOR, SIGNALS, STDIN, ALARM].contains(&token(id, kind)));
            }
        }
    }
}
