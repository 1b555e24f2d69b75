//! Several nodes, the links between them and the membership that all are told, under the hand of a test.
//!
//! Nothing happens by itself: a message travels when the test lets it, a node that stands still takes
//! nothing, and every order is the same in every run. After each step, when nothing is under way, the tables
//! of all nodes must agree (`tables`).

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use dlm_core::{
    ClientId, Input, Instant, Layout, LockspaceId, LossReason, Member, Message, Node, NodeId,
    Outbox, Output, Request, View, ViewId,
};

pub(crate) const LOCKSPACE: &str = "several";
const NANOS_PER_MS: u64 = 1_000_000;
/// Deliveries after which a step is called endless.
const STEPS_MAX: usize = 200_000;

/// What reached a client, or a driver.
#[derive(Clone, Debug)]
pub(crate) struct Heard {
    pub(crate) node: u32,
    pub(crate) output: Output,
}

/// A place for a node's lives.
pub(crate) struct Host {
    pub(crate) member: Member,
    pub(crate) node: Node,
    pub(crate) alive: bool,
    pub(crate) space: Option<LockspaceId>,
    /// What membership told it while it stood still.
    untold: VecDeque<Word>,
    slots: u32,
}

/// What membership says.
#[derive(Clone, Debug)]
enum Word {
    View(View),
    Safe(Member),
}

/// The whole.
pub(crate) struct Bed {
    pub(crate) hosts: BTreeMap<u32, Host>,
    pub(crate) view: View,
    layout: Layout,
    links: BTreeMap<(u32, u32), VecDeque<Message>>,
    /// Nodes that stand still.
    pub(crate) still: BTreeSet<u32>,
    /// Directions on which nothing travels.
    shut: BTreeSet<(u32, u32)>,
    excluded: BTreeSet<Member>,
    safe: BTreeSet<Member>,
    now: Instant,
    lives: u64,
    /// Messages sent so far.
    pub(crate) messages: u64,
    /// What was heard since it was taken last.
    heard: Vec<Heard>,
}

impl Bed {
    /// Nodes 1 to `count`, all members of the first view.
    pub(crate) fn new(count: u32) -> Self {
        Self::with_layout(count, Layout::default())
    }

    /// The same with a lockspace of this layout.
    pub(crate) fn with_layout(count: u32, layout: Layout) -> Self {
        let view = View { id: ViewId(100), members: Vec::new(), unsafe_members: Vec::new() };
        let mut bed = Self {
            hosts: BTreeMap::new(),
            view,
            layout,
            links: BTreeMap::new(),
            still: BTreeSet::new(),
            shut: BTreeSet::new(),
            excluded: BTreeSet::new(),
            safe: BTreeSet::new(),
            now: Instant(NANOS_PER_MS),
            lives: 0,
            messages: 0,
            heard: Vec::new(),
        };
        (1..=count).for_each(|node| bed.boot(node));
        bed.change();
        bed.settle();
        bed.take_heard();
        bed
    }

    /// A new life of a node, whose first client creates the lockspace.
    fn boot(&mut self, node: u32) {
        self.lives += 1;
        let member = Member { node: NodeId(node), incarnation: self.lives };
        let mut life = Node::new(member);
        life.set_layout(LOCKSPACE.as_bytes(), self.layout.clone());
        let host = Host {
            member,
            node: life,
            alive: true,
            space: None,
            untold: VecDeque::new(),
            slots: 0,
        };
        self.hosts.insert(node, host);
        self.client(node, 1);
    }

    /// Boots a node, or one again, and lets it in; nothing travels yet.
    pub(crate) fn join(&mut self, node: u32) {
        assert!(self.hosts.get(&node).is_none_or(|host| !host.alive), "node {node} is up");
        self.boot(node);
        self.change();
    }

    /// A new client of a node's lockspace.
    pub(crate) fn client(&mut self, node: u32, pid: u32) -> ClientId {
        let host = self.host(node);
        let client = ClientId::new(host.slots, 1);
        host.slots += 1;
        self.step(node, Input::Client(client, Request::create(LOCKSPACE, pid)));
        client
    }

    pub(crate) fn host(&mut self, node: u32) -> &mut Host {
        self.hosts.get_mut(&node).unwrap_or_else(|| panic!("there is no node {node}"))
    }

    /// Nodes that are up.
    pub(crate) fn up(&self) -> Vec<u32> {
        self.hosts.iter().filter(|(_, host)| host.alive).map(|(node, _)| *node).collect()
    }

    /// A node ends without a word; what it sent and has not arrived is lost.
    pub(crate) fn die(&mut self, node: u32) {
        self.host(node).alive = false;
        self.still.remove(&node);
        self.links.retain(|(from, to), _| *from != node && *to != node);
    }

    /// Membership goes on without a node.
    pub(crate) fn exclude(&mut self, node: u32) {
        let member = self.host(node).member;
        self.excluded.insert(member);
        self.change();
    }

    /// A node's present life is known to be harmless.
    pub(crate) fn make_safe(&mut self, node: u32) {
        let member = self.host(node).member;
        self.safe.insert(member);
        self.tell(&Word::Safe(member));
    }

    /// A node that was excluded hears of it: its next life begins.
    pub(crate) fn reset(&mut self, node: u32) {
        let host = self.host(node);
        host.untold.clear();
        let space = host.space.take().expect("it has the lockspace");
        self.still.remove(&node);
        self.links.retain(|(from, to), _| *from != node && *to != node);
        self.step(node, Input::Reset(space, LossReason::Excluded));
        self.host(node).alive = false;
    }

    /// The next view: who is up and not excluded.
    pub(crate) fn change(&mut self) {
        let joined = |host: &&Host| host.alive && host.space.is_some();
        let members = self.hosts.values().filter(joined).map(|host| host.member);
        let members = members.filter(|member| !self.excluded.contains(member)).collect();
        let unsafe_members = self.excluded.difference(&self.safe).copied().collect();
        self.view = View { id: ViewId(self.view.id.0 + 1), members, unsafe_members };
        self.tell(&Word::View(self.view.clone()));
    }

    fn tell(&mut self, word: &Word) {
        for node in self.up() {
            if self.still.contains(&node) {
                self.host(node).untold.push_back(word.clone());
            } else {
                self.hear_word(node, word.clone());
            }
        }
    }

    fn hear_word(&mut self, node: u32, word: Word) {
        let host = self.host(node);
        match word {
            Word::View(view) if view.members.contains(&host.member) => {
                let space = host.space.expect("members have the lockspace");
                self.step(node, Input::View(space, view));
            }
            Word::View(_) => {}
            Word::Safe(member) => self.step(node, Input::Safe(member)),
        }
    }

    /// A node goes on after it stood still.
    pub(crate) fn go_on(&mut self, node: u32) {
        self.still.remove(&node);
        while let Some(word) = self.host(node).untold.pop_front() {
            self.hear_word(node, word);
        }
    }

    /// Nothing travels in this direction any more, or again.
    pub(crate) fn shut(&mut self, from: u32, to: u32, shut: bool) {
        match shut {
            true => self.shut.insert((from, to)),
            false => self.shut.remove(&(from, to)),
        };
    }

    /// One input of a node; its messages are put on their links.
    pub(crate) fn step(&mut self, node: u32, input: Input<'_>) {
        let now = self.now;
        let trace = std::env::var_os("DLM_TRACE").is_some();
        if trace {
            println!("n{node} <- {input:?}");
        }
        let host = self.host(node);
        let mut out = Outbox::new();
        host.node.step(now, input, &mut out);
        host.node.check();
        let from = node;
        for output in out.drain() {
            if trace {
                println!("    n{node} -> {output:?}");
            }
            match &output {
                Output::Send { to, message } => {
                    self.messages += 1;
                    let live = |host: &&Host| host.alive && host.member == *to;
                    if self.hosts.get(&to.node.0).filter(live).is_some() {
                        let link = self.links.entry((from, to.node.0)).or_default();
                        link.push_back(message.clone());
                    }
                }
                Output::Join { lockspace, .. } => self.host(node).space = Some(*lockspace),
                Output::Leave { .. } => self.left(node),
                Output::NeedView { .. } => self.change(),
                Output::Acknowledge { .. } => {}
                Output::Reply { .. }
                | Output::Complete { .. }
                | Output::Blocking { .. }
                | Output::Lost { .. } => self.heard.push(Heard { node, output }),
            }
        }
    }

    /// A clean leave: the next view is without it, and it is no one to fear.
    fn left(&mut self, node: u32) {
        let host = self.host(node);
        host.space = None;
        self.change();
    }

    /// Lets everything travel that may, and all that is due be done.
    pub(crate) fn settle(&mut self) {
        for _ in 0..STEPS_MAX {
            if !self.one_message() && !self.one_tick() {
                return;
            }
        }
        panic!("no end of messages");
    }

    /// Lets this many messages travel or deeds be done, in the order of [`Bed::settle`].
    pub(crate) fn run(&mut self, steps: usize) {
        for _ in 0..steps {
            if !self.one_message() && !self.one_tick() {
                return;
            }
        }
    }

    /// As [`Bed::settle`], with the links in an order that `pick` chooses each time.
    pub(crate) fn settle_by(&mut self, mut pick: impl FnMut(usize) -> usize) {
        for _ in 0..STEPS_MAX {
            if !self.one_by(&mut pick) {
                return;
            }
        }
        panic!("no end of messages");
    }

    /// As [`Bed::run`], in such an order.
    pub(crate) fn run_by(&mut self, steps: usize, mut pick: impl FnMut(usize) -> usize) {
        for _ in 0..steps {
            self.one_by(&mut pick);
        }
    }

    fn one_by(&mut self, pick: &mut impl FnMut(usize) -> usize) -> bool {
        let open = self.links.iter().filter(|(direction, link)| {
            let free = !self.shut.contains(direction) && !self.still.contains(&direction.1);
            !link.is_empty() && free
        });
        let open: Vec<(u32, u32)> = open.map(|(direction, _)| *direction).collect();
        let due: Vec<u32> = self.up().into_iter().filter(|node| self.is_due(*node)).collect();
        if open.is_empty() && due.is_empty() {
            return false;
        }
        let at = pick(open.len() + due.len());
        match open.get(at) {
            Some(direction) => self.deliver(*direction),
            None => self.step(due[at - open.len()], Input::Tick),
        }
        true
    }

    fn deliver(&mut self, (from, to): (u32, u32)) {
        let message = self.links.get_mut(&(from, to)).and_then(VecDeque::pop_front);
        if let Some(message) = message {
            self.step(to, Input::Peer(NodeId(from), message));
        }
    }

    fn one_message(&mut self) -> bool {
        let free = |((from, to), link): (&(u32, u32), &VecDeque<Message>)| {
            let open = !link.is_empty() && !self.shut.contains(&(*from, *to));
            (open && !self.still.contains(to)).then_some((*from, *to))
        };
        let Some(direction) = self.links.iter().find_map(free) else { return false };
        self.deliver(direction);
        true
    }

    fn one_tick(&mut self) -> bool {
        let Some(node) = self.up().into_iter().find(|node| self.is_due(*node)) else {
            return false;
        };
        self.step(node, Input::Tick);
        true
    }

    fn is_due(&self, node: u32) -> bool {
        let deadline = self.hosts[&node].node.deadline();
        !self.still.contains(&node) && deadline.is_some_and(|(at, _)| at <= self.now)
    }

    /// Lets time go by.
    pub(crate) fn wait_ms(&mut self, ms: u64) {
        for _ in 0..ms {
            self.now = Instant(self.now.0 + NANOS_PER_MS);
            self.settle();
        }
    }

    /// How many messages are under way in this direction.
    pub(crate) fn under_way(&self, from: u32, to: u32) -> usize {
        self.links.get(&(from, to)).map_or(0, VecDeque::len)
    }

    /// Whether nothing is on its way, nobody stands still, and nothing of a change is due.
    pub(crate) fn is_quiet(&self) -> bool {
        let over = |host: &Host| match host.space.and_then(|space| host.node.lockspace(space)) {
            Some(info) => info.due.is_empty() && info.view.as_ref() == Some(&self.view),
            None => true,
        };
        let mut up = self.hosts.values().filter(|host| host.alive);
        let members = self.view.members.iter();
        members.map(|member| &self.hosts[&member.node.0]).all(|host| host.alive)
            && up.all(over)
            && self.still.is_empty()
            && self.links.values().all(VecDeque::is_empty)
    }

    /// What is not quiet, in words.
    pub(crate) fn unrest(&self) -> String {
        let mut text = format!("still {:?}, {:?}", self.still, self.view);
        for (node, host) in self.hosts.iter().filter(|(_, host)| host.alive) {
            let info = host.space.and_then(|space| host.node.lockspace(space));
            let info = info.map(|info| (info.view, info.due));
            text += &format!("\n  node {node}: {info:?}");
        }
        for (direction, link) in self.links.iter().filter(|(_, link)| !link.is_empty()) {
            text += &format!("\n  {direction:?}: {} messages", link.len());
        }
        text
    }

    /// What was heard since the last time.
    pub(crate) fn take_heard(&mut self) -> Vec<Heard> {
        std::mem::take(&mut self.heard)
    }
}
