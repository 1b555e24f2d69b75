//! Several nodes without processes and without delay: what one says the others hear at once, in order.

use std::collections::VecDeque;

use dlm_core::message::{Body, Tagged};
use dlm_core::{
    Blocking, Call, ClientId, Completion, Convert, Input, Instant, Layout, LockCall, LockFlags,
    LockId, LockspaceId, LossReason, Member, Message, Mode, Node, NodeId, Outbox, Output, Request,
    Unlock, Value, View, ViewId,
};

pub(crate) const SPACE: &str = "several";

/// A node with one client.
pub(crate) struct One {
    pub(crate) node: Node,
    pub(crate) member: Member,
    pub(crate) alive: bool,
    pub(crate) casts: Vec<Completion>,
    pub(crate) basts: Vec<Blocking>,
    pub(crate) losses: Vec<LossReason>,
    last_reply: Option<Result<LockId, dlm_core::Errno>>,
}

/// The nodes, by index; node numbers are one more.
pub(crate) struct Several {
    pub(crate) all: Vec<One>,
    pub(crate) view: View,
    on_the_way: VecDeque<(NodeId, Member, Message)>,
    /// Messages are kept, not delivered.
    pub(crate) hold: bool,
    /// This node hears of nobody that its locks are moved.
    pub(crate) hears_no_end: Option<usize>,
    /// Nodes that asked for a view with a higher number, since the last one.
    pub(crate) view_wanted: Vec<usize>,
    pub(crate) now: Instant,
}

pub(crate) fn client() -> ClientId {
    ClientId::new(0, 1)
}

impl Several {
    /// `count` nodes of this layout that have opened the lockspace; the first view is not there yet.
    pub(crate) fn new(count: u32, layout: &Layout) -> Self {
        let view = View { id: ViewId(100), members: Vec::new(), unsafe_members: Vec::new() };
        let mut several = Self {
            all: Vec::new(),
            view,
            on_the_way: VecDeque::new(),
            hold: false,
            hears_no_end: None,
            view_wanted: Vec::new(),
            now: Instant(1),
        };
        for _ in 0..count {
            several.add(layout.clone());
        }
        several
    }

    /// One more node, not a member yet; its index.
    pub(crate) fn add(&mut self, layout: Layout) -> usize {
        let index = self.all.len();
        let member = Member { node: NodeId(index as u32 + 1), incarnation: 1 << 24 };
        let mut node = Node::new(member);
        node.set_layout(SPACE.as_bytes(), layout);
        let (casts, basts, losses) = (Vec::new(), Vec::new(), Vec::new());
        self.all.push(One { node, member, alive: true, casts, basts, losses, last_reply: None });
        self.feed(index, Input::Client(client(), Request::create(SPACE, 1000 + index as u32)));
        index
    }

    pub(crate) fn space(&self, index: usize) -> LockspaceId {
        self.all[index].node.find_lockspace(SPACE.as_bytes()).expect("created at the start")
    }

    /// The next view: these nodes, with these lost ones feared.
    pub(crate) fn install(&mut self, nodes: &[usize], lost: &[usize]) {
        self.decide(nodes, lost);
        for index in nodes {
            self.tell(*index);
        }
        self.settle();
    }

    /// Decides the next view without telling anybody.
    pub(crate) fn decide(&mut self, nodes: &[usize], lost: &[usize]) {
        let of = |of: &[usize]| of.iter().map(|index| self.all[*index].member).collect();
        let (members, unsafe_members) = (of(nodes), of(lost));
        self.view = View { id: ViewId(self.view.id.0 + 1), members, unsafe_members };
        self.view_wanted.clear();
    }

    /// Tells a node the view that was decided last.
    pub(crate) fn tell(&mut self, index: usize) {
        self.feed(index, Input::View(self.space(index), self.view.clone()));
    }

    /// A node is harmless, and all that live know it.
    pub(crate) fn safe(&mut self, lost: usize) {
        let member = self.all[lost].member;
        for index in 0..self.all.len() {
            if self.all[index].alive {
                self.feed(index, Input::Safe(member));
            }
        }
        self.settle();
    }

    /// The end of a node.
    pub(crate) fn kill(&mut self, index: usize) {
        self.all[index].alive = false;
    }

    pub(crate) fn feed(&mut self, index: usize, input: Input<'_>) {
        let mut out = Outbox::new();
        let one = &mut self.all[index];
        one.node.step(self.now, input, &mut out);
        for output in out.drain() {
            match output {
                Output::Reply { result, .. } => one.last_reply = Some(result),
                Output::Complete { completion, .. } => one.casts.push(completion),
                Output::Blocking { blocking, .. } => one.basts.push(blocking),
                Output::Send { to, message } => {
                    self.on_the_way.push_back((one.member.node, to, message));
                }
                Output::Join { member, .. } => one.member = member,
                Output::Lost { reason, .. } => one.losses.push(reason),
                Output::NeedView { .. } => self.view_wanted.push(index),
                Output::Acknowledge { .. } | Output::Leave { .. } => {}
            }
        }
    }

    /// Delivers and works until nothing is left to do.
    pub(crate) fn settle(&mut self) {
        loop {
            while !self.hold
                && let Some((from, to, message)) = self.on_the_way.pop_front()
            {
                let index = to.node.0 as usize - 1;
                let sender = from.0 as usize - 1;
                let end = matches!(message.body, Body::Tagged(_, Tagged::LocksDone { .. }));
                let lost = end && self.hears_no_end == Some(index);
                if self.all[index].alive && self.all[sender].alive && !lost {
                    self.feed(index, Input::Peer(from, message));
                }
            }
            let due =
                |one: &One| one.alive && one.node.deadline().is_some_and(|(at, _)| at <= self.now);
            let Some(index) = self.all.iter().position(due) else { break };
            self.feed(index, Input::Tick);
        }
        for one in self.all.iter().filter(|one| one.alive) {
            one.node.check();
        }
    }

    /// Asks for a lock and lets everything settle.
    #[track_caller]
    pub(crate) fn lock(
        &mut self,
        index: usize,
        name: &str,
        mode: Mode,
        flags: LockFlags,
    ) -> LockId {
        let call = Call { mode: mode as u8, flags, wants_blocking: true, ..Call::default() };
        let request = Request::Lock(LockCall { call, name: name.as_bytes() });
        self.ask(index, request)
    }

    #[track_caller]
    pub(crate) fn convert(
        &mut self,
        index: usize,
        lock: LockId,
        mode: Mode,
        flags: LockFlags,
        value: Option<Value>,
    ) {
        let call = Call { mode: mode as u8, flags, wants_blocking: true, ..Call::default() };
        self.ask(index, Request::Convert(Convert { call, lock, value: value.as_ref() }));
    }

    #[track_caller]
    pub(crate) fn unlock(&mut self, index: usize, lock: LockId, value: Option<Value>) {
        let flags = if value.is_some() { LockFlags::VALBLK } else { LockFlags(0) };
        let value = value.as_ref();
        self.ask(index, Request::Unlock(Unlock { lock, flags, user: None, value }));
    }

    #[track_caller]
    pub(crate) fn ask(&mut self, index: usize, request: Request<'_>) -> LockId {
        self.all[index].last_reply = None;
        self.feed(index, Input::Client(client(), request));
        let reply = self.all[index].last_reply.expect("every request is answered at once");
        self.settle();
        reply.expect("the call is accepted")
    }

    /// Who masters a name, as this node knows.
    pub(crate) fn master(&self, index: usize, name: &str) -> Option<NodeId> {
        let node = &self.all[index].node;
        let info = node.resource(self.space(index), name.as_bytes())?;
        Some(info.master.unwrap_or(self.all[index].member.node))
    }

    /// The last completion of a lock.
    pub(crate) fn last_cast(&self, index: usize, lock: LockId) -> Option<&Completion> {
        self.all[index].casts.iter().rev().find(|cast| cast.lock == lock)
    }
}
