//! A daemon without processes: it feeds inputs, keeps the clock, answers `Join` and sorts what
//! comes out, as a real driver would.

use dlm_core::{
    Blocking, ClientId, Completion, Errno, Input, Instant, LockId, LockspaceId, Member, Node,
    NodeId, Outbox, Output, Request, SpaceFlags, View, ViewId,
};

/// This node's number in every test.
pub(crate) const OWN_NODE: u32 = 1;
const NANOS_PER_MS: u64 = 1_000_000;

/// A callback, in the order of delivery.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Event {
    /// Completion.
    Cast(ClientId, Completion),
    /// Blocking callback.
    Bast(ClientId, Blocking),
}

/// What one or more steps brought, sorted by kind; each kind in order.
#[derive(Debug, Default)]
pub(crate) struct Happened {
    pub(crate) replies: Vec<(ClientId, Result<LockId, Errno>)>,
    pub(crate) events: Vec<Event>,
    pub(crate) joins: Vec<(LockspaceId, Vec<u8>, SpaceFlags)>,
    pub(crate) leaves: Vec<(LockspaceId, Vec<u8>)>,
}

impl Happened {
    /// The one reply of a step that makes exactly one.
    #[track_caller]
    pub(crate) fn reply(&self, client: ClientId) -> Result<LockId, Errno> {
        match self.replies.as_slice() {
            [(to, result)] if *to == client => *result,
            other => panic!("one reply to {client:?} was due, got {other:?}"),
        }
    }

    /// The reply to `client` among others.
    pub(crate) fn reply_to(&self, client: ClientId) -> Option<Result<LockId, Errno>> {
        self.replies.iter().find(|(to, _)| *to == client).map(|(_, result)| *result)
    }

    /// The completions, in order.
    pub(crate) fn completions(&self) -> Vec<&Completion> {
        let casts = self.events.iter().filter_map(|event| match event {
            Event::Cast(_, completion) => Some(completion),
            Event::Bast(..) => None,
        });
        casts.collect()
    }
}

/// The node and what its driver remembers.
pub(crate) struct World {
    pub(crate) node: Node,
    pub(crate) now: Instant,
    /// Leave `Join` unanswered; the test installs the view itself.
    pub(crate) hold_views: bool,
    views: u32,
    /// Generation of each client slot; a slot not in use is free for the next client.
    slots: Vec<(u32, bool)>,
}

impl World {
    pub(crate) fn new() -> Self {
        let node = Node::new(Member { node: NodeId(OWN_NODE), incarnation: 1 });
        let now = Instant(NANOS_PER_MS);
        Self { node, now, hold_views: false, views: 0, slots: Vec::new() }
    }

    /// A client id that is not in use; slots are used again with a higher generation.
    pub(crate) fn new_client(&mut self) -> ClientId {
        let slot = self.slots.iter().position(|(_, used)| !used).unwrap_or(self.slots.len());
        if slot == self.slots.len() {
            self.slots.push((0, false));
        }
        let (generation, used) = &mut self.slots[slot];
        (*generation, *used) = (*generation + 1, true);
        ClientId::new(slot as u32, *generation)
    }

    /// The driver's half of the end of a client.
    pub(crate) fn forget_client(&mut self, client: ClientId) {
        self.slots[client.slot as usize].1 = false;
    }

    /// One input; a `Join` that comes out of it is answered unless `hold_views` is set.
    pub(crate) fn feed(&mut self, input: Input<'_>) -> Happened {
        let mut happened = Happened::default();
        self.feed_into(input, &mut happened);
        happened
    }

    /// A request of a client.
    pub(crate) fn ask(&mut self, client: ClientId, request: Request<'_>) -> Happened {
        self.feed(Input::Client(client, request))
    }

    /// A new client with an open handle on a lockspace that may have to be created.
    #[track_caller]
    pub(crate) fn open(&mut self, name: &str, pid: u32) -> ClientId {
        let client = self.new_client();
        let request = match self.node.find_lockspace(name.as_bytes()) {
            Some(_) => Request::open(name, pid),
            None => Request::create(name, pid),
        };
        assert_eq!(self.ask(client, request).reply(client), Ok(LockId(0)), "open of {name}");
        client
    }

    /// Lets time pass, with a tick at each deadline on the way.
    pub(crate) fn wait_ms(&mut self, ms: u64) -> Happened {
        let end = Instant(self.now.0 + ms * NANOS_PER_MS);
        let mut happened = Happened::default();
        while let Some((due, _)) = self.node.deadline().filter(|(due, _)| *due <= end) {
            self.now = self.now.max(due);
            self.feed_into(Input::Tick, &mut happened);
            let next = self.node.deadline().map(|(due, _)| due);
            assert!(
                next.is_none_or(|next| next > due),
                "a tick left its deadline {due:?} standing"
            );
        }
        self.now = end;
        happened
    }

    /// The answer to `Join`: this node alone.
    pub(crate) fn install_view(&mut self, lockspace: LockspaceId) -> Happened {
        let mut happened = Happened::default();
        self.install_view_into(lockspace, &mut happened);
        happened
    }

    fn install_view_into(&mut self, lockspace: LockspaceId, happened: &mut Happened) {
        self.views += 1;
        let members = vec![self.node.lockspace(lockspace).expect("it joins").member];
        let view = View { id: ViewId(self.views), members, unsafe_members: Vec::new() };
        self.feed_into(Input::View(lockspace, view), happened);
    }

    fn feed_into(&mut self, input: Input<'_>, happened: &mut Happened) {
        let mut out = Outbox::new();
        self.node.step(self.now, input, &mut out);
        for output in out.drain() {
            match output {
                Output::Reply { client, result } => happened.replies.push((client, result)),
                Output::Complete { client, completion } => {
                    happened.events.push(Event::Cast(client, completion));
                }
                Output::Blocking { client, blocking } => {
                    happened.events.push(Event::Bast(client, blocking));
                }
                Output::Join { lockspace, name, flags, .. } => {
                    happened.joins.push((lockspace, name, flags));
                    if !self.hold_views {
                        self.install_view_into(lockspace, happened);
                    }
                }
                Output::NeedView { lockspace } => self.install_view_into(lockspace, happened),
                Output::Acknowledge { .. } => {}
                other @ (Output::Send { .. } | Output::Lost { .. }) => {
                    panic!("a node alone has nobody to talk to and nothing to lose: {other:?}")
                }
                Output::Leave { lockspace, name } => happened.leaves.push((lockspace, name)),
            }
        }
    }
}
