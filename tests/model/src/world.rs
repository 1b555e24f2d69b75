//! A cluster without a clock: nodes, one queue per ordered pair of them, and a membership that follows a
//! script. A copy costs no more than what the next step changes.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use dlm_core::{
    ClientId, Errno, Input, Instant, LockId, LockspaceId, Member, Message, Node, NodeId, Outbox,
    Output, Reason, View, ViewId,
};

use crate::client::Client;
use crate::script::{FIRST_VIEW, Fault, Scenario};
use crate::witness;

/// A message in its queue; what it says is hashed once.
#[derive(Clone, Debug)]
pub struct Letter(Arc<(u64, Message)>);

impl Letter {
    /// What it says.
    pub fn message(&self) -> &Message {
        &self.0.1
    }
}

/// A node and its client.
#[derive(Clone, Hash, Debug)]
pub struct Host {
    /// The engine.
    pub node: Node,
    /// Who it is in the lockspace; `None`: not in it.
    pub stay: Option<Member>,
    /// The lockspace.
    pub space: Option<LockspaceId>,
    /// Whether it runs.
    pub up: bool,
    /// Number of the installed view; 0: none.
    pub view: u32,
    /// It left of its own will.
    pub left: bool,
    /// Members that it was told are safe, by their place in [`World::lost`].
    pub told_safe: u32,
    /// Its client.
    pub client: Client,
    /// The next step of its client's program.
    pub step: usize,
    /// Lives so far.
    pub life: u64,
    /// Its clock. No part of the state.
    pub now: Clock,
}

/// A moment that does not tell states apart.
#[derive(Clone, Copy, Debug, Default)]
pub struct Clock(pub u64);

impl Hash for Clock {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

/// The whole.
#[derive(Clone, Debug)]
pub struct World {
    /// Nodes by number, from 1.
    pub hosts: Vec<Arc<(u64, Host)>>,
    /// Messages by sender and receiver.
    queues: Vec<Vec<Letter>>,
    /// Views decided so far.
    pub views: Vec<Arc<View>>,
    /// Stays that were excluded or died, in that order, and whether their end is certain.
    pub lost: Vec<(Member, bool)>,
    /// Pairs that nothing passes between.
    cuts: Vec<(u32, u32)>,
    /// The next fault.
    pub fault: usize,
    /// The highest grant number that clients saw, by mode.
    tokens: [u64; 6],
    /// What went wrong.
    pub error: Option<Arc<str>>,
    /// The answer to the call being made.
    pub(crate) answer: Option<Result<LockId, Errno>>,
    /// Every output of every step, for a person to read.
    pub trace: Option<Vec<String>>,
}

impl World {
    /// A cluster that has joined, and made the calls of the setup.
    pub fn new(scenario: &Scenario) -> Self {
        let count = scenario.nodes as usize;
        let hosts = (1..=scenario.nodes).map(|id| Arc::new((0, Host::absent(id)))).collect();
        let mut world = Self {
            hosts,
            queues: vec![Vec::new(); count * count],
            views: Vec::new(),
            lost: Vec::new(),
            cuts: Vec::new(),
            fault: 0,
            tokens: [0; 6],
            error: None,
            answer: None,
            trace: None,
        };
        for id in &scenario.first {
            world.start(scenario, *id);
        }
        world.decide(scenario.first.clone());
        for id in &scenario.first {
            world.install(scenario, *id, 0);
        }
        world.settle(scenario);
        for (node, step) in &scenario.setup {
            world.make_call(scenario, *node, step);
            world.settle(scenario);
        }
        assert!(world.error.is_none(), "{}: the setup fails: {:?}", scenario.name, world.error);
        world
    }

    /// A node and its client.
    pub fn host(&self, id: u32) -> &Host {
        &self.hosts[id as usize - 1].1
    }

    pub(crate) fn host_mut(&mut self, id: u32) -> &mut Host {
        let slot = Arc::make_mut(&mut self.hosts[id as usize - 1]);
        slot.0 = 0; // its digest is taken when the step is through
        &mut slot.1
    }

    /// Messages from one node to another, first first.
    pub fn queue(&self, from: u32, to: u32) -> &[Letter] {
        &self.queues[self.pair(from, to)]
    }

    fn pair(&self, from: u32, to: u32) -> usize {
        (from as usize - 1) * self.hosts.len() + to as usize - 1
    }

    /// Whether a queue's head can be delivered.
    pub fn can_deliver(&self, from: u32, to: u32) -> bool {
        !self.queue(from, to).is_empty() && self.host(to).up && !self.is_cut(from, to)
    }

    fn is_cut(&self, a: u32, b: u32) -> bool {
        self.cuts.iter().any(|cut| *cut == (a, b) || *cut == (b, a))
    }

    /// Delivers all there is, in a fixed order.
    fn settle(&mut self, scenario: &Scenario) {
        let ids = 1..=self.hosts.len() as u32;
        while self.error.is_none() {
            let mut pairs = ids.clone().flat_map(|a| ids.clone().map(move |b| (a, b)));
            let Some((from, to)) = pairs.find(|(from, to)| self.can_deliver(*from, *to)) else {
                let Some(id) = ids.clone().find(|id| self.has_work(*id)) else { return };
                self.work(scenario, id);
                continue;
            };
            self.deliver(scenario, from, to);
        }
    }

    /// Delivers the head of a queue.
    pub fn deliver(&mut self, scenario: &Scenario, from: u32, to: u32) {
        let pair = self.pair(from, to);
        let letter = self.queues[pair].remove(0);
        witness::delivery(self, from, to, letter.message());
        let message = letter.message().clone();
        self.step(scenario, to, Input::Peer(NodeId(from), message));
    }

    /// Whether a node has work over many names to go on with.
    pub fn has_work(&self, id: u32) -> bool {
        let host = self.host(id);
        host.up && host.node.deadline().is_some_and(|(_, reason)| is_work(reason))
    }

    /// Whether when it does so is a choice of its own.
    pub fn may_wait(&self, scenario: &Scenario, id: u32) -> bool {
        let heard = || matches!(self.host(id).node.deadline(), Some((_, Reason::Heard)));
        scenario.slow_work || scenario.late_hearing && heard()
    }

    /// One part of that work.
    pub fn work(&mut self, scenario: &Scenario, id: u32) {
        self.step(scenario, id, Input::Tick);
    }

    /// When a node's next timer ends.
    pub fn timer(&self, id: u32) -> Option<u64> {
        let host = self.host(id);
        let (at, reason) = host.node.deadline().filter(|_| host.up)?;
        (!is_work(reason)).then_some(at.0)
    }

    /// Time passes until a node's next timer ends.
    pub fn end_timer(&mut self, scenario: &Scenario, id: u32) {
        if let Some(at) = self.timer(id) {
            self.host_mut(id).now = Clock(at);
            self.step(scenario, id, Input::Tick);
        }
    }

    /// Membership decides the next view.
    pub fn decide(&mut self, ids: Vec<u32>) {
        let members = ids.iter().filter_map(|id| self.host(*id).stay).collect();
        let unsafe_members = self.lost.iter().map(|(member, _)| *member).collect();
        let id = ViewId(FIRST_VIEW + self.views.len() as u32);
        self.views.push(Arc::new(View { id, members, unsafe_members }));
    }

    /// Members of the latest view.
    pub fn members(&self) -> Vec<u32> {
        let view = self.views.last().expect("there is a first view");
        view.members.iter().map(|member| member.node.0).collect()
    }

    /// Whether a node can install a view, by its place in the order of views.
    pub fn can_install(&self, id: u32, view: usize) -> bool {
        let host = self.host(id);
        let Some(stay) = host.stay.filter(|_| host.up) else { return false };
        self.views[view].id.0 > host.view && self.views[view].members.contains(&stay)
    }

    /// Installs a view at a node.
    pub fn install(&mut self, scenario: &Scenario, id: u32, view: usize) {
        let view = (*self.views[view]).clone();
        let Some(space) = self.host(id).space else { return };
        witness::install(self, id, &view);
        self.host_mut(id).view = view.id.0;
        self.step(scenario, id, Input::View(space, view));
    }

    /// Whether a node can be told that a member is safe (B3).
    pub fn can_tell_safe(&self, id: u32, lost: usize) -> bool {
        let host = self.host(id);
        let stays = host.up && host.stay.is_some_and(|stay| !self.is_lost(stay));
        stays && self.lost[lost].1 && host.told_safe & (1 << lost) == 0
    }

    fn is_lost(&self, member: Member) -> bool {
        self.lost.iter().any(|(lost, _)| *lost == member)
    }

    /// Tells a node that a lost member is safe.
    pub fn tell_safe(&mut self, scenario: &Scenario, id: u32, lost: usize) {
        let member = self.lost[lost].0;
        witness::safe(self, id, member);
        self.host_mut(id).told_safe |= 1 << lost;
        self.step(scenario, id, Input::Safe(member));
    }

    /// Whether the next fault can happen now.
    pub fn can_befall(&self, scenario: &Scenario) -> bool {
        match scenario.faults.get(self.fault) {
            None => false,
            Some(Fault::Left(id)) => self.host(*id).left,
            // The new stay of a node waits for the end of its old one (B3).
            Some(Fault::Join(id)) => !self.host(*id).up || self.host(*id).stay.is_none(),
            Some(_) => true,
        }
    }

    /// The next fault happens.
    pub fn befall(&mut self, scenario: &Scenario) {
        let fault = scenario.faults[self.fault];
        self.fault += 1;
        let mut members = self.members();
        match fault {
            Fault::Lose(id) => {
                members.retain(|member| *member != id);
                self.lose(id);
                self.end(id);
                self.decide(members);
            }
            Fault::Exclude(id) => {
                members.retain(|member| *member != id);
                self.lose(id);
                self.decide(members);
            }
            Fault::End(id) => self.end(id),
            Fault::Join(id) => {
                self.start(scenario, id);
                members.push(id);
                members.sort_unstable();
                self.decide(members);
            }
            Fault::Renumber => self.decide(members),
            Fault::Left(id) => {
                members.retain(|member| *member != id);
                self.decide(members);
            }
            Fault::Swap { lost, joined } => {
                members.retain(|member| *member != lost);
                self.lose(lost);
                self.end(lost);
                self.start(scenario, joined);
                members.push(joined);
                members.sort_unstable();
                self.decide(members);
            }
            Fault::Freeze(id) => self.lease(scenario, id, 0),
            Fault::Renew(id) => self.lease(scenario, id, u64::MAX - 1),
            Fault::Cut(a, b) => self.cuts.push((a, b)),
        }
        self.note_digests();
    }

    fn lease(&mut self, scenario: &Scenario, id: u32, until: u64) {
        if self.host(id).up {
            self.step(scenario, id, Input::LeaseUntil(Instant(until)));
        }
    }

    fn lose(&mut self, id: u32) {
        let stay = self.host(id).stay.expect("only members are lost");
        self.lost.push((stay, false));
    }

    /// A node is dead, and its client with it.
    fn end(&mut self, id: u32) {
        let host = self.host_mut(id);
        host.up = false;
        host.client = Client::default();
        host.step = usize::MAX;
        let stay = host.stay.take();
        for from in 1..=self.hosts.len() as u32 {
            let pair = self.pair(from, id);
            self.queues[pair].clear();
        }
        for lost in self.lost.iter_mut().filter(|lost| Some(lost.0) == stay) {
            lost.1 = true;
        }
    }

    /// A node starts, or its client opens the lockspace again.
    fn start(&mut self, scenario: &Scenario, id: u32) {
        for to in 1..=self.hosts.len() as u32 {
            let pair = self.pair(id, to);
            self.queues[pair].clear(); // sessions of the old life are void
        }
        let mut host = Host::absent(id);
        host.life = self.host(id).life + 1;
        host.up = true;
        host.step = 0;
        host.node = Node::new(Member { node: NodeId(id), incarnation: host.life << 24 });
        self.hosts[id as usize - 1] = Arc::new((0, host));
        self.open(scenario, id);
    }

    /// Feeds an input and carries out what comes of it; then the work that is due, unless that is
    /// explored by itself.
    pub(crate) fn step(&mut self, scenario: &Scenario, id: u32, input: Input<'_>) {
        self.step_once(scenario, id, input);
        while self.error.is_none() && self.has_work(id) && !self.may_wait(scenario, id) {
            self.step_once(scenario, id, Input::Tick);
        }
        self.note_digests();
    }

    fn step_once(&mut self, scenario: &Scenario, id: u32, input: Input<'_>) {
        let host = self.host_mut(id);
        let now = Instant(host.now.0);
        let mut out = Outbox::new();
        let run = AssertUnwindSafe(|| {
            host.node.step(now, input, &mut out);
            host.node.check();
        });
        if let Err(panic) = catch_unwind(run) {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).to_owned()));
            self.fail(format!("node {id} stops: {}", text.unwrap_or_default()));
            return;
        }
        for output in out.drain() {
            self.carry_out(scenario, id, output);
        }
    }

    /// Something went wrong; the first thing counts.
    pub(crate) fn fail(&mut self, error: String) {
        self.error.get_or_insert_with(|| error.into());
    }

    fn carry_out(&mut self, scenario: &Scenario, id: u32, output: Output) {
        if let Some(trace) = &mut self.trace {
            trace.push(format!("    node {id}: {output:?}"));
        }
        match output {
            Output::Send { to, message } => {
                let pair = self.pair(id, to.node.0);
                if self.host(to.node.0).up {
                    let digest = digest_of(&message);
                    self.queues[pair].push(Letter(Arc::new((digest, message))));
                }
            }
            Output::Join { lockspace, member, .. } => {
                let host = self.host_mut(id);
                host.space = Some(lockspace);
                host.stay = Some(member);
            }
            Output::Leave { .. } => {
                let host = self.host_mut(id);
                host.left = true;
                host.stay = None;
                host.space = None;
            }
            Output::Reply { result, .. } => self.answer = Some(result),
            Output::Complete { completion, .. } => self.completed(id, &completion),
            Output::Blocking { blocking, .. } => self.told(id, &blocking),
            Output::Lost { .. } => {
                let client = &mut self.host_mut(id).client;
                client.lost = true;
                client.locks.clear();
            }
            Output::NeedView { .. } if scenario.faults.is_empty() => {
                self.fail("a new view is asked for".into());
            }
            Output::NeedView { .. } | Output::Acknowledge { .. } => {}
        }
    }

    /// A grant's number: of two holders that exclude each other the later one has the higher.
    pub(crate) fn saw_token(&mut self, mode: dlm_core::Mode, token: u64) {
        let excluded = dlm_core::Mode::ALL.iter().filter(|other| !other.compatible(mode));
        let last = excluded.map(|other| self.tokens[*other as usize]).max().unwrap_or(0);
        let of_mode = &mut self.tokens[mode as usize];
        *of_mode = token.max(*of_mode);
        if token <= last {
            self.fail(format!("token: {mode:?} was granted as {token:#x} after {last:#x}"));
        }
    }

    /// Takes the digests of nodes that have changed.
    pub(crate) fn note_digests(&mut self) {
        for slot in &mut self.hosts {
            if slot.0 == 0 {
                let slot = Arc::make_mut(slot);
                slot.0 = digest_of(&slot.1) | 1;
            }
        }
    }

    /// The client of a node.
    pub(crate) fn client_id(&self, id: u32) -> ClientId {
        ClientId::new(0, self.host(id).life as u32)
    }
}

impl Host {
    fn absent(id: u32) -> Self {
        Self {
            node: Node::new(Member { node: NodeId(id), incarnation: 1 << 24 }),
            stay: None,
            space: None,
            up: false,
            view: 0,
            left: false,
            told_safe: 0,
            client: Client::default(),
            step: usize::MAX,
            life: 0,
            now: Clock(0),
        }
    }
}

/// Whether a node wants to go on with work, and not to be told the time.
fn is_work(reason: Reason) -> bool {
    matches!(reason, Reason::Heard | Reason::Work)
}

fn digest_of(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

impl Hash for World {
    fn hash<H: Hasher>(&self, state: &mut H) {
        for slot in &self.hosts {
            debug_assert!(slot.0 != 0);
            slot.0.hash(state);
        }
        for queue in &self.queues {
            queue.len().hash(state);
            queue.iter().for_each(|letter| letter.0.0.hash(state));
        }
        self.views.len().hash(state);
        self.lost.hash(state);
        self.cuts.hash(state);
        self.fault.hash(state);
        self.tokens.hash(state);
        self.error.hash(state);
    }
}

impl PartialEq for World {
    fn eq(&self, other: &Self) -> bool {
        digest_of(self) == digest_of(other)
    }
}
