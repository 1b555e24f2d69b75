//! The world: nodes, what travels between them, and the membership that all of them are told.
//!
//! Time is a heap of events; nothing happens but events, and every choice comes from the seed. The
//! membership is the simulation's own (it knows who is dead): views and «safe» reach each node late,
//! at different times, and sometimes only the latest one.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use dlm_core::{
    ClientId, Input, Instant, Layout, LockspaceId, Member, Message, Node, NodeId, Outbox, Output, Request,
    View, ViewId,
};

use crate::client::Client;
use crate::oracle::Oracle;
use crate::rng::Rng;

/// Milliseconds of the world, in its microseconds.
pub const MS: u64 = 1000;

/// How rough a run is; drawn from the seed, so that runs differ in kind (swarm).
#[derive(Clone, Debug)]
pub struct Options {
    /// Nodes at the start.
    pub nodes: usize,
    /// Clients per node.
    pub clients: usize,
    /// Names they use.
    pub names: usize,
    /// Length of the rough phase.
    pub rough: u64,
    /// Longest delay of a message.
    pub delay: u64,
    /// Crashes, in percent per 100 ms.
    pub crashes: u64,
    /// Nodes cut off alive, in percent per 100 ms.
    pub cuts: u64,
    /// Client deaths, in percent per 100 ms.
    pub deaths: u64,
    /// How late `safe` may come.
    pub safe_delay: u64,
    /// Masters are the owners of their names' slots.
    pub nodir: bool,
    /// Print every event.
    pub trace: bool,
}

impl Options {
    /// The kind of run that a seed stands for.
    pub fn of_seed(seed: u64, nodes: usize) -> Self {
        let mut rng = Rng::new(seed ^ 0xabcd);
        Self {
            nodes,
            clients: rng.range(1, 4) as usize,
            names: rng.range(1, 6) as usize,
            rough: rng.range(500, 3000) * MS,
            delay: *rng.pick(&[300, 2 * MS, 20 * MS]),
            crashes: *rng.pick(&[0, 3, 10, 25]),
            cuts: *rng.pick(&[0, 0, 5, 15]),
            deaths: *rng.pick(&[0, 5, 20]),
            safe_delay: *rng.pick(&[1, 20 * MS, 400 * MS]),
            nodir: rng.chance(30) || std::env::var_os("NODIR").is_some(),
            trace: false,
        }
    }
}

/// Something that will happen.
#[derive(Debug)]
enum Event {
    Deliver { from: usize, life: u64, to: usize, to_life: u64, message: Box<Message> },
    Tick { node: usize, life: u64 },
    Act { node: usize, life: u64, client: usize },
    TellView { node: usize, life: u64 },
    TellSafe { node: usize, life: u64, member: Member },
    Change { members: Vec<Member> },
    BecomeSafe { member: Member },
    Kill { node: usize, life: u64 },
    Start { node: usize },
    Faults,
}

/// A place for a node's lives.
pub(crate) struct Host {
    pub(crate) member: Member,
    pub(crate) node: Node,
    pub(crate) alive: bool,
    /// Cut off from the others, still alive.
    cut: bool,
    pub(crate) clients: Vec<Client>,
    pub(crate) space: Option<LockspaceId>,
    told_view: u32,
    tick_at: Option<u64>,
}

/// The whole.
pub struct World {
    pub(crate) rng: Rng,
    pub(crate) now: u64,
    pub(crate) options: Options,
    pub(crate) hosts: Vec<Host>,
    pub(crate) oracle: Oracle,
    pub(crate) calm: bool,
    heap: BinaryHeap<Reverse<(u64, u64)>>,
    events: BTreeMap<u64, Event>,
    next_event: u64,
    last_delivery: BTreeMap<(usize, usize), u64>,
    view: View,
    safe: BTreeSet<Member>,
    excluded: BTreeSet<Member>,
    lives: u64,
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
            now: 0,
            hosts: Vec::new(),
            oracle: Oracle::default(),
            calm: false,
            heap: BinaryHeap::new(),
            events: BTreeMap::new(),
            next_event: 0,
            last_delivery: BTreeMap::new(),
            view: View { id: ViewId(100), members: Vec::new(), unsafe_members: Vec::new() },
            safe: BTreeSet::new(),
            excluded: BTreeSet::new(),
            lives: 0,
            messages: 0,
            views: 0,
            options,
        };
        for index in 0..world.options.nodes {
            let member = Member { node: NodeId(index as u32 + 1), incarnation: 0 };
            world.hosts.push(Host::dead(member));
            world.at(index as u64 * MS, Event::Start { node: index });
        }
        world.at(100 * MS, Event::Faults);
        world
    }

    /// Runs the rough phase, then heals everything and demands that all comes to rest.
    pub fn run(&mut self) -> Result<(), String> {
        while let Some(event) = self.next(self.options.rough) {
            self.handle(event)?;
        }
        self.calm = true;
        let end = self.options.rough + 120_000 * MS;
        let mut checks = 0;
        while let Some(event) = self.next(end) {
            self.handle(event)?;
            checks += 1;
            if checks % 50 == 0 && self.at_rest() {
                return Ok(());
            }
        }
        if self.at_rest() { Ok(()) } else { Err(format!("liveness: {}", self.unrest())) }
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

    fn at(&mut self, at: u64, event: Event) {
        self.next_event += 1;
        self.heap.push(Reverse((at, self.next_event)));
        self.events.insert(self.next_event, event);
    }

    fn later(&mut self, longest: u64, event: Event) {
        let at = self.now + self.rng.below(longest.max(1)) + 1;
        self.at(at, event);
    }

    fn handle(&mut self, event: Event) -> Result<(), String> {
        if self.options.trace {
            println!("{:>9} {event:?}", self.now);
        }
        match event {
            Event::Deliver { from, life, to, to_life, message } => {
                // A session is between two lives; what is left of it ends with either.
                let sender = self.member_of_life(from, life);
                if self.lives_now(to, to_life) && !self.hosts[to].cut {
                    self.step(to, Input::Peer(sender.node, *message))?;
                }
            }
            Event::Tick { node, life } if self.lives_now(node, life) => {
                self.hosts[node].tick_at = None;
                self.step(node, Input::Tick)?;
            }
            Event::Act { node, life, client } if self.lives_now(node, life) => {
                self.act(node, client)?;
                let pause = if self.calm { 2 * MS } else { self.rng.range(100, 5 * MS) };
                self.at(self.now + pause, Event::Act { node, life, client });
            }
            Event::TellView { node, life } if self.lives_now(node, life) => self.tell_view(node)?,
            Event::TellSafe { node, life, member } if self.lives_now(node, life) => {
                self.step(node, Input::Safe(member))?;
            }
            Event::Change { members } => self.change(members),
            Event::BecomeSafe { member } => self.become_safe(member),
            Event::Kill { node, life } if self.lives_now(node, life) => self.kill(node),
            Event::Start { node } => self.start(node)?,
            Event::Faults => self.faults(),
            _ => {}
        }
        Ok(())
    }

    fn lives_now(&self, node: usize, life: u64) -> bool {
        self.hosts[node].alive && self.hosts[node].member.incarnation == life
    }

    fn member_of_life(&self, node: usize, life: u64) -> Member {
        Member { node: NodeId(node as u32 + 1), incarnation: life }
    }

    /// A new life of a node: its daemon starts and its clients create the lockspace.
    fn start(&mut self, node: usize) -> Result<(), String> {
        let old = self.hosts[node].member;
        if self.hosts[node].alive || (old.incarnation != 0 && !self.safe.contains(&old)) {
            self.later(50 * MS, Event::Start { node });
            return Ok(());
        }
        self.lives += 1;
        let life = self.lives;
        let member = Member { incarnation: life, ..old };
        let mut daemon = Node::new(member);
        daemon.set_layout(b"sim", Layout { nodir: self.options.nodir, masters: Vec::new() });
        self.hosts[node] = Host { alive: true, node: daemon, ..Host::dead(member) };
        for client in 0..self.options.clients {
            let id = ClientId::new(client as u32, life as u32);
            self.hosts[node].clients.push(Client::new(id, life * 100 + client as u64));
            self.step(node, Input::Client(id, Request::create("sim", 1000 + client as u32)))?;
            self.later(10 * MS, Event::Act { node, life, client });
        }
        Ok(())
    }

    /// The end of a life: nothing is told to anybody.
    fn kill(&mut self, node: usize) {
        let host = &mut self.hosts[node];
        host.alive = false;
        let member = host.member;
        let clients = core::mem::take(&mut host.clients);
        for client in &clients {
            client.forget(&mut self.oracle);
        }
        if self.view.members.contains(&member) {
            let members = self.view.members.iter().copied().filter(|m| *m != member).collect();
            self.later(100 * MS, Event::Change { members });
        }
        self.later(self.options.safe_delay + 1, Event::BecomeSafe { member });
        self.later(300 * MS, Event::Start { node });
    }

    /// Membership agrees on new members; everybody hears of it sooner or later.
    fn change(&mut self, members: Vec<Member>) {
        // Changes are made against the view of now: keep whoever came meanwhile, drop the dead.
        let mut members = members;
        members.extend(self.view.members.iter().copied());
        members.sort();
        members.dedup();
        let hosts = &self.hosts;
        members.retain(|member| {
            let host = &hosts[member.node.0 as usize - 1];
            host.member == *member && host.alive && !host.cut
        });
        if members == self.view.members {
            return;
        }
        for gone in self.view.members.iter().filter(|member| !members.contains(member)) {
            self.excluded.insert(*gone);
        }
        let unsafe_members = self.excluded.difference(&self.safe).copied().collect();
        self.view = View { id: ViewId(self.view.id.0 + 1), members, unsafe_members };
        self.views += 1;
        for member in self.view.members.clone() {
            let node = member.node.0 as usize - 1;
            let life = member.incarnation;
            self.later(self.options.delay * 2, Event::TellView { node, life });
        }
    }

    fn tell_view(&mut self, node: usize) -> Result<(), String> {
        let host = &mut self.hosts[node];
        let Some(space) = host.space else {
            let life = host.member.incarnation;
            self.later(MS, Event::TellView { node, life });
            return Ok(());
        };
        if host.told_view < self.view.id.0 && self.view.members.contains(&host.member) {
            host.told_view = self.view.id.0;
            let view = self.view.clone();
            self.step(node, Input::View(space, view))?;
        }
        Ok(())
    }

    fn become_safe(&mut self, member: Member) {
        self.safe.insert(member);
        for node in 0..self.hosts.len() {
            if self.hosts[node].alive {
                let life = self.hosts[node].member.incarnation;
                self.later(self.options.delay * 3, Event::TellSafe { node, life, member });
            }
        }
    }

    /// Draws faults while the world is rough; heals what is cut when it is calm.
    fn faults(&mut self) {
        for node in 0..self.hosts.len() {
            let host = &self.hosts[node];
            let life = host.member.incarnation;
            let alive = self.hosts.iter().filter(|host| host.alive && !host.cut).count();
            if !host.alive {
                continue;
            }
            if host.cut {
                if self.calm || self.rng.chance(30) {
                    self.later(50 * MS, Event::Kill { node, life });
                }
            } else if !self.calm && alive > 1 && self.rng.chance(self.options.crashes) {
                self.kill(node);
            } else if !self.calm && alive > 1 && self.rng.chance(self.options.cuts) {
                self.hosts[node].cut = true;
                let member = self.hosts[node].member;
                let members = self.view.members.iter().copied().filter(|m| *m != member).collect();
                self.later(100 * MS, Event::Change { members });
            }
        }
        if !self.calm {
            self.client_deaths();
        }
        self.at(self.now + 100 * MS, Event::Faults);
    }

    fn client_deaths(&mut self) {
        for node in 0..self.hosts.len() {
            if self.hosts[node].alive && self.rng.chance(self.options.deaths) {
                let client = self.rng.below(self.options.clients as u64) as usize;
                // The new life of a client opens the lockspace again.
                let _ = self.restart_client(node, client);
            }
        }
    }

    /// Feeds one input and carries out what comes of it.
    pub(crate) fn step(&mut self, node: usize, input: Input<'_>) -> Result<Vec<Output>, String> {
        let mut out = Outbox::new();
        let now = Instant(self.now * 1000);
        let host = &mut self.hosts[node];
        host.node.step(now, input, &mut out);
        host.node.check();
        let outputs: Vec<Output> = out.drain().collect();
        for output in &outputs {
            self.carry_out(node, output)?;
        }
        self.arm(node);
        Ok(outputs)
    }

    fn arm(&mut self, node: usize) {
        let host = &self.hosts[node];
        let Some((at, _)) = host.node.deadline() else { return };
        let at = at.0.div_ceil(1000).max(self.now);
        if host.tick_at.is_none_or(|armed| armed > at || armed < self.now) {
            let life = host.member.incarnation;
            self.hosts[node].tick_at = Some(at);
            self.at(at, Event::Tick { node, life });
        }
    }

    fn carry_out(&mut self, node: usize, output: &Output) -> Result<(), String> {
        if self.options.trace {
            println!("          node {} {output:?}", node + 1);
        }
        match output {
            Output::Send { to, message } => {
                self.messages += 1;
                let (from, to_life) = (node, to.incarnation);
                let to = to.node.0 as usize - 1;
                if self.hosts[node].cut || self.hosts[to].cut {
                    return Ok(());
                }
                let life = self.hosts[node].member.incarnation;
                let wanted = self.now + self.rng.below(self.options.delay) + 50;
                let last = self.last_delivery.entry((from, to)).or_default();
                *last = wanted.max(*last + 1);
                let at = *last;
                let message = Box::new(message.clone());
                self.at(at, Event::Deliver { from, life, to, to_life, message });
            }
            Output::Reply { client, result: Ok(_) } => {
                if let Some(state) = self.hosts[node].clients.get_mut(client.slot as usize) {
                    state.replied(*client);
                }
            }
            Output::Complete { client, completion } => self.completed(node, *client, completion)?,
            Output::Join { lockspace, .. } => {
                let host = &mut self.hosts[node];
                host.space = Some(*lockspace);
                let members = vec![host.member];
                self.later(5 * MS, Event::Change { members });
            }
            Output::NeedView { .. } => {
                let members = self.view.members.clone();
                self.later(5 * MS, Event::Change { members });
            }
            _ => {}
        }
        Ok(())
    }

    /// Grants seen.
    pub fn grants(&self) -> u64 {
        self.oracle.grants
    }

    fn at_rest(&self) -> bool {
        let hosts_rest = self.hosts.iter().all(|host| {
            host.alive
                && !host.cut
                && host.told_view == self.view.id.0
                && host.clients.iter().all(Client::is_idle)
                && host.node.lockspaces().iter().all(|space| space.locks == 0)
        });
        hosts_rest && self.view.members.len() == self.hosts.len() && self.oracle.nothing_held()
    }

    fn unrest(&self) -> String {
        let mut text = String::new();
        for host in &self.hosts {
            let spaces = host.node.lockspaces();
            text += &format!(
                "\n  {:?} alive {} cut {} view {} of {} spaces {:?}",
                host.member,
                host.alive,
                host.cut,
                host.told_view,
                self.view.id.0,
                spaces.iter().map(|s| (s.locks, s.resources)).collect::<Vec<_>>()
            );
            for space in &spaces {
                text += &format!("\n    {:?}", host.node.dump(space.id, 0, 100).resources);
            }
            for client in host.clients.iter().filter(|client| !client.is_idle()) {
                text += &format!("\n    {client:?}");
            }
        }
        text
    }
}

impl Host {
    fn dead(member: Member) -> Self {
        Self {
            member,
            node: Node::new(member),
            alive: false,
            cut: false,
            clients: Vec::new(),
            space: None,
            told_view: 0,
            tick_at: None,
        }
    }
}
