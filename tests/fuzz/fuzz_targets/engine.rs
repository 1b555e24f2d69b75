//! Any sequence of inputs into the engine: no panic, every invariant after each step, one reply to
//! each request, and a table that listings show whole.
#![no_main]

use dlm_core::{
    Access, Call, ClientId, Convert, Create, Errno, Input, Instant, Limits, LockCall, LockFlags,
    LockId, LockspaceId, Member, Node, NodeId, Open, Outbox, Output, Reason, Request, SpaceFlags,
    Unlock, View, ViewId,
};
use dlm_fuzz::Choices;
use libfuzzer_sys::fuzz_target;

const NAMES: [&[u8]; 4] = [b"", b"a", b"nm\0", &[b'x'; 65]];
const SPACES: [&[u8]; 4] = [b"one", b"two", b"", b"a/b"];
const CLIENTS: usize = 4;
const MEMBER: Member = Member { node: NodeId(1), incarnation: 1 };

fuzz_target!(|bytes: &[u8]| {
    let mut world = World::new();
    let mut choices = Choices::new(bytes);
    while world.turn(&mut choices).is_some() {
        world.node.check();
    }
    world.settle();
});

/// The engine with what its driver knows.
struct World {
    node: Node,
    out: Outbox,
    now: Instant,
    views: u32,
    joining: Vec<LockspaceId>,
    /// The present user of each client slot.
    generations: [u32; CLIENTS],
    locks: Vec<LockId>,
    replies: u32,
    /// The latest reply.
    last: Option<Result<LockId, Errno>>,
    /// Tells every input and output; set `DLM_FUZZ_SHOW` when replaying a failure.
    shown: bool,
}

impl World {
    fn new() -> Self {
        let mut node = Node::new(MEMBER);
        node.set_limits(Limits { lockspaces: 2, locks_per_client: 12, locks_ended_at_once: 2 });
        let (out, joining, locks) = (Outbox::new(), Vec::new(), Vec::new());
        let shown = std::env::var_os("DLM_FUZZ_SHOW").is_some();
        Self {
            node,
            out,
            now: Instant(1),
            views: 0,
            joining,
            locks,
            replies: 0,
            shown,
            generations: [1; CLIENTS],
            last: None,
        }
    }

    /// One input; `None` at the end of the stream.
    fn turn(&mut self, choices: &mut Choices<'_>) -> Option<()> {
        let who = usize::from(choices.byte()?);
        let (slot, generation) = (who % CLIENTS, self.generations[who % CLIENTS]);
        // Now and then somebody speaks who has ended.
        let client = ClientId::new(slot as u32, generation - u32::from(who >= 250));
        let value = [choices.byte()?; dlm_core::VALUE_BYTES];
        let value = (value[0] % 2 == 0).then_some(&value);
        match choices.below(16)? {
            0 => self.open(ClientId::new(slot as u32, generation), choices)?,
            1..=4 => {
                let name = NAMES[usize::from(choices.below(4)?)];
                let call = call(choices)?;
                self.request(client, Request::Lock(LockCall { call, name }));
            }
            5..=7 => {
                let (lock, call) = (self.lock(choices)?, call(choices)?);
                self.request(client, Request::Convert(Convert { call, lock, value }));
            }
            8..=10 => {
                let (lock, flags) = (self.lock(choices)?, flags(choices)?);
                let user = (choices.byte()? % 2 == 0).then_some(7);
                self.request(client, Request::Unlock(Unlock { lock, flags, user, value }));
            }
            11 => {
                let (lock, flags) = (self.lock(choices)?, flags(choices)?);
                self.request(client, Request::DeadlockCancel { lock, flags });
            }
            12 => {
                let (node, pid) = (u32::from(choices.below(3)?), u32::from(choices.below(6)?));
                match choices.byte()? % 2 {
                    0 => self.request(client, Request::Purge { node, pid }),
                    _ => self.feed(Input::PurgeOrphans(LockspaceId(node), pid)),
                }
            }
            13 => {
                let force = choices.byte()?;
                let client = ClientId::new(slot as u32, generation);
                self.last = None;
                match force % 4 {
                    0 => self.request(client, Request::Close),
                    1 => self.feed(Input::ClientGone(client)),
                    _ => self.request(client, Request::Release { force: force % 4 == 3 }),
                }
                // Who was not open has not ended either.
                if self.last != Some(Err(Errno::EBADF)) {
                    self.generations[slot] += 1;
                }
            }
            14 => self.join(),
            _ => {
                self.now = Instant(self.now.0 + (u64::from(choices.byte()?) << 24));
                self.feed(Input::Tick);
            }
        }
        Some(())
    }

    fn open(&mut self, client: ClientId, choices: &mut Choices<'_>) -> Option<()> {
        let name = SPACES[usize::from(choices.below(8)? / 2)];
        let flags = SpaceFlags(u32::from(choices.byte()?) & !SpaceFlags::SOFTIRQ.0);
        let create =
            (choices.byte()? % 4 != 0).then_some(Create { flags, access: Access::default() });
        self.request(client, Request::Open(Open { name, pid: client.slot + 1, create }));
        Some(())
    }

    fn lock(&self, choices: &mut Choices<'_>) -> Option<LockId> {
        let index = usize::from(choices.byte()?);
        Some(match self.locks.len() {
            0 => LockId(index as u32),
            len => self.locks[index % len],
        })
    }

    /// Feeds a request. All of its client's are answered at once, but a create and a release, which
    /// wait for views.
    fn request(&mut self, client: ClientId, request: Request<'_>) {
        let waits = matches!(request, Request::Open(_) | Request::Release { .. });
        let closes = matches!(request, Request::Close);
        let before = self.replies;
        self.feed(Input::Client(client, request));
        // A close is answered when the last part of what it leaves has ended.
        for _ in 0..if closes { 16 } else { 0 } {
            if self.replies > before {
                break;
            }
            self.feed(Input::Tick);
        }
        if !waits {
            assert!(self.replies > before, "a request without reply");
        }
    }

    fn join(&mut self) {
        for space in std::mem::take(&mut self.joining) {
            self.views += 1;
            let Some(info) = self.node.lockspace(space) else { continue };
            let (id, members, unsafe_members) = (ViewId(self.views), vec![info.member], vec![]);
            self.feed(Input::View(space, View { id, members, unsafe_members }));
        }
    }

    fn feed(&mut self, input: Input<'_>) {
        if self.shown {
            eprintln!("{:?} {input:?}", self.now);
        }
        self.node.step(self.now, input, &mut self.out);
        for output in self.out.drain() {
            if self.shown {
                eprintln!("    {output:?}");
            }
            match output {
                Output::Reply { result, .. } => {
                    self.replies += 1;
                    self.last = Some(result);
                    if let Ok(lock) = result
                        && lock != LockId(0)
                        && self.locks.len() < 64
                    {
                        self.locks.push(lock);
                    }
                }
                Output::Join { lockspace, .. } | Output::NeedView { lockspace } => {
                    self.joining.push(lockspace);
                }
                Output::Leave { lockspace, .. } => self.joining.retain(|id| *id != lockspace),
                Output::Send { .. } | Output::Lost { .. } => panic!("a node alone says {output:?}"),
                Output::Complete { .. } | Output::Blocking { .. } | Output::Acknowledge { .. } => {}
            }
        }
    }

    /// Listings show each lock once; when all clients are gone and the orphans purged nothing is left.
    fn settle(&mut self) {
        for info in self.node.lockspaces() {
            assert_eq!(self.listed(info.id), info.locks);
        }
        self.join();
        for (slot, generation) in self.generations.into_iter().enumerate() {
            self.feed(Input::ClientGone(ClientId::new(slot as u32, generation)));
        }
        self.node.check();
        for info in self.node.lockspaces() {
            self.feed(Input::PurgeOrphans(info.id, 0));
            let left = self.node.lockspace(info.id).map_or(0, |info| info.locks);
            assert_eq!((left, self.listed(info.id)), (0, 0), "locks of nobody");
        }
        self.node.check();
        // Idle names are forgotten in the end, and nobody's time limit is left.
        for _ in 0..16 {
            let Some((at, reason)) = self.node.deadline() else { return };
            assert_ne!(reason, Reason::RequestLimit, "a time limit of nobody");
            self.now = at;
            self.feed(Input::Tick);
        }
        panic!("the engine wants to be woken for ever");
    }

    fn listed(&self, space: LockspaceId) -> u64 {
        let (mut locks, mut from) = (0, Some(0));
        while let Some(at) = from {
            let page = self.node.dump(space, at, 5);
            for resource in &page.resources {
                let queues = [&resource.granted, &resource.converting, &resource.waiting];
                locks += queues.iter().map(|queue| queue.len() as u64).sum::<u64>();
            }
            from = page.next;
        }
        locks
    }
}

fn flags(choices: &mut Choices<'_>) -> Option<LockFlags> {
    // Most calls carry few flags; any word must do no harm.
    Some(LockFlags(match choices.below(4)? {
        0 => 0,
        1 => 1 << choices.below(19)?,
        2 => (1 << choices.below(19)?) | (1 << choices.below(19)?),
        _ => choices.word()?,
    }))
}

fn call(choices: &mut Choices<'_>) -> Option<Call> {
    let (mode, flags) = (choices.below(7)?, flags(choices)?);
    let (user, timeout_cs) = (u64::from(choices.byte()?), u64::from(choices.byte()?));
    let wants_blocking = user % 2 == 0;
    Some(Call { mode, flags, user, xid: 0, timeout_cs, wants_blocking })
}
