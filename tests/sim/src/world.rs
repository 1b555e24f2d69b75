//! The world: nodes, time, and what happens next.
//!
//! Time is a heap of events; nothing happens but events, and every choice comes from the seed. A run is
//! some rounds of a rough phase and a healed one, in which everything must come to rest within a bound;
//! at the end everything is given up and nothing may be left.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::rc::Rc;

use dlm_core::{
    ClientId, Input, Instant, LockspaceId, Member, Node, NodeId, Outbox, Output, Reason, View,
};

use crate::client::{Client, Heard};
use crate::lives::{Ghost, Orphan};
use crate::membership::Membership;
use crate::net::{Net, Packet, Parcel};
use crate::options::{MS, Options};
use crate::oracle::Oracle;
use crate::rng::Rng;

/// Something that will happen.
#[derive(Clone, Debug)]
pub(crate) enum Event {
    Deliver { from: usize, to: usize, parcel: Parcel },
    Packet { from: usize, to: usize, connection: u64, packet: Packet },
    Link { node: usize, life: u64, with: usize },
    Dial { node: usize, with: usize },
    Tick { node: usize, life: u64 },
    Act { node: usize, life: u64, client: usize },
    Take { node: usize, life: u64, client: ClientId },
    GiveWay { node: usize, life: u64, client: ClientId, user: u64 },
    Reopen { node: usize, life: u64, client: usize },
    TellView { node: usize, life: u64, space: usize, view: Rc<View> },
    TellSafe { node: usize, life: u64, member: Member },
    TellExcluded { node: usize, life: u64 },
    Renew { node: usize, life: u64 },
    LeaseOver { node: usize, life: u64, until: u64 },
    LeaseSafe { life: Member },
    Notice { life: Member, sure: bool },
    Decide { space: usize },
    BecomeSafe { life: Member },
    Gone { ghost: u64 },
    Start { node: usize },
    Mend { node: usize },
    Wake { node: usize, life: u64 },
    Heal { from: usize, to: usize },
    Faults,
}

impl Event {
    /// Whose doing it is, and of which life; none for what happens to the world.
    fn actor(&self) -> Option<(usize, Option<u64>)> {
        Some(match self {
            Self::Deliver { to, .. } | Self::Packet { to, .. } => (*to, None),
            Self::Link { node, life, .. }
            | Self::Tick { node, life }
            | Self::Act { node, life, .. }
            | Self::Take { node, life, .. }
            | Self::GiveWay { node, life, .. }
            | Self::Reopen { node, life, .. }
            | Self::TellView { node, life, .. }
            | Self::TellSafe { node, life, .. }
            | Self::TellExcluded { node, life }
            | Self::Renew { node, life } => (*node, Some(*life)),
            _ => return None,
        })
    }
}

/// What the world is in the middle of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Phase {
    /// Everything happens.
    Rough,
    /// Faults heal and nobody asks for anything: all must come to rest.
    Heal,
    /// Everything is given up.
    LetGo,
}

/// A node's stay in a lockspace.
#[derive(Clone, Debug)]
pub(crate) struct Stay {
    pub(crate) member: Member,
    pub(crate) id: LockspaceId,
    /// The view it installed.
    pub(crate) view: Option<Rc<View>>,
    /// Who it knows to be harmless.
    pub(crate) safe: BTreeSet<Member>,
}

/// A place for a node's lives.
pub(crate) struct Host {
    pub(crate) life: Member,
    pub(crate) node: Node,
    pub(crate) alive: bool,
    /// Cut off from all others.
    pub(crate) cut: bool,
    /// Its daemon stands still.
    pub(crate) paused: bool,
    /// What happened to it meanwhile.
    pub(crate) backlog: Vec<Event>,
    /// The cluster goes on without this life, which does not know it.
    pub(crate) excluded: bool,
    pub(crate) clients: Vec<Client>,
    pub(crate) orphans: Vec<Orphan>,
    /// By lockspace.
    pub(crate) stays: Vec<Option<Stay>>,
    /// By its own clock; the end of time where there are no leases.
    pub(crate) lease_until: u64,
    /// When its lease was renewed last, by the world's clock.
    pub(crate) renewed: u64,
    tick_at: Option<u64>,
    /// Its clock's speed, per 1,000, and start.
    speed: u64,
    offset: u64,
}

/// The whole.
pub struct World {
    pub(crate) rng: Rng,
    /// How long work waits.
    lazy: Rng,
    pub(crate) now: u64,
    pub(crate) options: Options,
    pub(crate) hosts: Vec<Host>,
    pub(crate) oracle: Oracle,
    pub(crate) phase: Phase,
    pub(crate) net: Net,
    pub(crate) membership: Membership,
    /// Clients whose daemon is gone and who may not know it yet.
    pub(crate) ghosts: BTreeMap<u64, Ghost>,
    heap: BinaryHeap<Reverse<(u64, u64)>>,
    events: BTreeMap<u64, Event>,
    next_event: u64,
    pub(crate) lives: u64,
    pub(crate) client_lives: u64,
    /// Messages sent between nodes.
    pub messages: u64,
    /// Views agreed.
    pub views: u64,
}

/// Names of the world.
pub(crate) fn name_of(index: usize) -> Vec<u8> {
    format!("name-{index}").into_bytes()
}

impl World {
    /// A world of this kind, from this seed.
    pub fn new(seed: u64, options: Options) -> Self {
        let mut world = Self {
            rng: Rng::new(seed),
            lazy: Rng::new(seed ^ 0x1a27),
            now: 0,
            hosts: Vec::new(),
            oracle: Oracle::default(),
            phase: Phase::Rough,
            net: Net::default(),
            membership: Membership::new(options.spaces),
            ghosts: BTreeMap::new(),
            heap: BinaryHeap::new(),
            events: BTreeMap::new(),
            next_event: 0,
            lives: 0,
            client_lives: 0,
            messages: 0,
            views: 0,
            options,
        };
        for index in 0..world.options.nodes {
            let member = Member { node: NodeId(index as u32 + 1), incarnation: 0 };
            let mut host = Host::dead(member, world.options.spaces);
            let drift = world.options.drift;
            host.speed = 1000 - drift + world.rng.below(2 * drift + 1);
            host.offset = world.rng.below(1_000_000);
            world.hosts.push(host);
            world.at(index as u64 * MS, Event::Start { node: index });
        }
        world.at(world.options.period, Event::Faults);
        world
    }

    /// Runs the world to its end.
    pub fn run(&mut self) -> Result<(), String> {
        for _ in 0..self.options.rounds {
            self.phase = Phase::Rough;
            let end = self.now + self.options.rough;
            while let Some(event) = self.next(end) {
                self.handle(event)?;
            }
            self.now = self.now.max(end);
            self.phase = Phase::Heal;
            self.until(Self::is_settled)?;
            self.check_rest()?;
        }
        self.phase = Phase::LetGo;
        self.until(Self::is_empty)
    }

    /// Goes on until something is so; how long that may take is bounded.
    fn until(&mut self, so: impl Fn(&Self) -> bool) -> Result<(), String> {
        let options = &self.options;
        let slowest = options.period + options.notice + options.delay + options.slow.1;
        let end = self.now + 60_000 * MS + 200 * slowest + 20 * options.safe_delay;
        let mut checks = 0;
        while let Some(event) = self.next(end) {
            self.handle(event)?;
            checks += 1;
            if checks % 50 == 0 && so(self) {
                return Ok(());
            }
        }
        if so(self) {
            return Ok(());
        }
        Err(format!("liveness: {:?} has no end: {}", self.phase, self.unrest()))
    }

    fn next(&mut self, end: u64) -> Option<Event> {
        let Reverse((at, id)) = *self.heap.peek()?;
        if at > end {
            return None;
        }
        self.heap.pop();
        self.now = self.now.max(at);
        self.events.remove(&id)
    }

    pub(crate) fn at(&mut self, at: u64, event: Event) {
        self.next_event += 1;
        self.heap.push(Reverse((at, self.next_event)));
        self.events.insert(self.next_event, event);
    }

    /// After a while of at most this length.
    pub(crate) fn later(&mut self, longest: u64, event: Event) {
        let at = self.now + self.rng.below(longest.max(1)) + 1;
        self.at(at, event);
    }

    pub(crate) fn phase_is_rough(&self) -> bool {
        self.phase == Phase::Rough
    }

    pub(crate) fn handle(&mut self, event: Event) -> Result<(), String> {
        if self.options.trace {
            println!("{:>9} {event:?}", self.now);
        }
        if let Some((node, life)) = event.actor() {
            let host = &mut self.hosts[node];
            let now = host.alive && life.is_none_or(|life| life == host.life.incarnation);
            if host.alive && host.paused {
                host.backlog.push(event);
                return Ok(());
            }
            if !now {
                if matches!(event, Event::Deliver { .. }) {
                    self.net.under_way -= 1;
                }
                return Ok(());
            }
        }
        self.happen(event)
    }

    fn happen(&mut self, event: Event) -> Result<(), String> {
        match event {
            Event::Deliver { from, to, parcel } => {
                self.net.under_way -= 1;
                self.deliver(from, to, parcel)
            }
            Event::Packet { from, to, connection, packet } => {
                self.arrived(from, to, connection, packet)
            }
            Event::Link { node, with, .. } => {
                self.link(node, with);
                Ok(())
            }
            Event::Dial { node, with } => {
                self.dial(node, with);
                Ok(())
            }
            Event::Tick { node, .. } => {
                self.hosts[node].tick_at = None;
                self.step(node, Input::Tick).map(drop)
            }
            Event::Act { node, life, client } => {
                self.act(node, client)?;
                let letting_go = self.phase == Phase::LetGo;
                let pause = if letting_go { self.options.period } else { self.options.pace };
                self.later(pause, Event::Act { node, life, client });
                Ok(())
            }
            Event::Take { node, client, .. } => {
                let slot = client.slot as usize;
                let same = self.hosts[node].clients.get(slot).is_some_and(|c| c.id == client);
                if same { self.take_inbox(node, slot) } else { Ok(()) }
            }
            Event::GiveWay { node, client, user, .. } => {
                let slot = client.slot as usize;
                let same = self.hosts[node].clients.get(slot).is_some_and(|c| c.id == client);
                if same { self.give_way(node, slot, user) } else { Ok(()) }
            }
            Event::Reopen { node, client, .. } => self.reopen(node, client),
            Event::Start { node } => self.start(node),
            Event::Gone { ghost } => {
                self.ghost_gone(ghost);
                Ok(())
            }
            Event::Faults => self.faults(),
            other => self.membership_event(other),
        }
    }

    /// A message reaches a node. What its view does not admit must have no effect (R1, R2).
    pub(crate) fn deliver(&mut self, from: usize, to: usize, parcel: Parcel) -> Result<(), String> {
        let host = &self.hosts[to];
        if parcel.to_life != host.life || self.is_muted(parcel.life, to) {
            return Ok(());
        }
        let message = *parcel.message;
        let sender = Member { incarnation: message.from, node: parcel.life.node };
        let stay = host.stays.iter().flatten().find(|stay| stay.member.incarnation == message.to);
        let view = stay.and_then(|stay| stay.view.clone());
        let void = view.is_none_or(|view| {
            let tag = match &message.body {
                dlm_core::message::Body::Tagged(tag, _) => Some(*tag),
                dlm_core::message::Body::Traffic(_) => None,
            };
            !view.members.contains(&sender) || tag.is_some_and(|tag| tag != view.id)
        });
        let what = void.then(|| message.clone());
        let outputs = self.step(to, Input::Peer(NodeId(from as u32 + 1), message))?;
        match what {
            Some(message) if !outputs.is_empty() && self.options.lease.is_none() => Err(format!(
                "old view: node {} acted on {message:?} from {sender:?}: {outputs:?}",
                to + 1
            )),
            _ => Ok(()),
        }
    }

    /// A node's clock now.
    pub(crate) fn clock(&self, node: usize) -> Instant {
        let host = &self.hosts[node];
        Instant(self.now * host.speed + host.offset)
    }

    /// When a node's clock will show this.
    pub(crate) fn world_time(&self, node: usize, at: Instant) -> u64 {
        let host = &self.hosts[node];
        at.0.saturating_sub(host.offset).div_ceil(host.speed)
    }

    /// Whether a node is without the lease it needs.
    pub(crate) fn is_frozen(&self, node: usize) -> bool {
        self.clock(node).0 >= self.hosts[node].lease_until
    }

    /// Feeds one input and carries out what comes of it.
    pub(crate) fn step(&mut self, node: usize, input: Input<'_>) -> Result<Vec<Output>, String> {
        let mut out = Outbox::new();
        let now = self.clock(node);
        let host = &mut self.hosts[node];
        host.node.step(now, input, &mut out);
        host.node.check();
        let outputs: Vec<Output> = out.drain().collect();
        if self.is_frozen(node)
            && let Some(output) = outputs.iter().find(|output| grants(output))
        {
            return Err(format!("lease: node {} without a lease says {output:?}", node + 1));
        }
        for output in &outputs {
            self.carry_out(node, output)?;
        }
        self.arm(node);
        self.flush(node);
        Ok(outputs)
    }

    fn arm(&mut self, node: usize) {
        let Some((at, reason)) = self.hosts[node].node.deadline() else { return };
        let mut at = self.world_time(node, at).max(self.now);
        if matches!(reason, Reason::Heard | Reason::Work) {
            at += self.lazy.below(self.options.work_delay.max(1));
        }
        let host = &mut self.hosts[node];
        if host.tick_at.is_none_or(|armed| armed > at || armed < self.now) {
            host.tick_at = Some(at);
            let life = host.life.incarnation;
            self.at(at, Event::Tick { node, life });
        }
    }

    fn carry_out(&mut self, node: usize, output: &Output) -> Result<(), String> {
        if self.options.trace {
            println!("          node {} {output:?}", node + 1);
        }
        match output {
            Output::Send { to, message } => self.send(node, *to, message),
            Output::Reply { client, result } => {
                let slot = client.slot as usize;
                let state = self.hosts[node].clients.get_mut(slot).filter(|c| c.id == *client);
                if let Some(state) = state.filter(|_| result.is_ok()) {
                    state.open = true; // the first reply says that its lockspace is open
                }
                Ok(())
            }
            Output::Complete { client, completion } => {
                self.tell_client(node, *client, Heard::Completion(completion.clone()))
            }
            Output::Blocking { client, blocking } => {
                let heard = Heard::Blocking { user: blocking.user, mode: blocking.mode };
                self.tell_client(node, *client, heard)
            }
            Output::Join { lockspace, name, member, .. } => {
                self.join(node, *lockspace, name, *member);
                Ok(())
            }
            Output::Leave { name, .. } => {
                self.left(node, name);
                Ok(())
            }
            Output::NeedView { lockspace } => {
                let mut stays = self.hosts[node].stays.iter();
                let space = stays.position(|s| s.as_ref().is_some_and(|s| s.id == *lockspace));
                self.membership.renew.extend(space);
                Ok(())
            }
            Output::Acknowledge { .. } | Output::Lost { .. } => Ok(()),
        }
    }

    /// Grants seen.
    pub fn grants(&self) -> u64 {
        self.oracle.grants
    }

    /// How long it lasted, in its own microseconds.
    pub fn lasted(&self) -> u64 {
        self.now
    }
}

/// Whether an output grants, completes or delivers something (R20).
fn grants(output: &Output) -> bool {
    use dlm_core::message::{Body, Outcome, Traffic};
    match output {
        Output::Complete { .. } | Output::Blocking { .. } => true,
        Output::Send { message, .. } => match &message.body {
            Body::Traffic(Traffic::Grant { .. }) => true,
            Body::Traffic(Traffic::Reply { outcome, .. }) => *outcome == Outcome::Granted,
            _ => false,
        },
        _ => false,
    }
}

impl Host {
    fn dead(life: Member, spaces: usize) -> Self {
        Self {
            life,
            node: Node::new(life),
            alive: false,
            cut: false,
            paused: false,
            backlog: Vec::new(),
            excluded: false,
            clients: Vec::new(),
            orphans: Vec::new(),
            stays: vec![None; spaces],
            lease_until: u64::MAX,
            renewed: 0,
            tick_at: None,
            speed: 1000,
            offset: 0,
        }
    }

    /// A new life begins: nothing of the one before is left.
    pub(crate) fn begin(&mut self, life: Member) {
        let fresh = Self::dead(life, self.stays.len());
        let (cut, speed, offset) = (self.cut, self.speed, self.offset);
        *self = Self { alive: true, cut, speed, offset, ..fresh };
    }
}
