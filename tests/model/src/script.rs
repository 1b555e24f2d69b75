//! What happens in a scenario: calls of clients, node by node, and what befalls the nodes, in order.

use dlm_core::{Call, ClientId, LockCall, View, ViewId};
use dlm_core::{Input, Instant, LockFlags, Member, Mode, Node, NodeId, Outbox, Output, Request};

use crate::witness::Witness;
use crate::world::World;

/// The lockspace of all scenarios.
pub const SPACE: &str = "m";
/// Number of the first view.
pub const FIRST_VIEW: u32 = 1000;

/// A call of a node's client on one of its locks.
#[derive(Clone, Copy, Debug)]
pub enum Op {
    /// A new lock.
    Lock(Mode, LockFlags),
    /// A conversion; its bytes are this number, 32 times.
    Convert(Mode, LockFlags, u8),
    /// An unlock with these bytes.
    Unlock(LockFlags, u8),
    /// A cancel.
    Cancel,
    /// The end of the client's process.
    Die,
    /// The client takes the lockspace's creation back.
    Release {
        /// Although locks remain.
        force: bool,
    },
}

/// When a call may be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// When nothing of its lock is pending.
    Ready,
    /// At any time: beside what is pending.
    Anytime,
    /// When nothing is pending and its lock was told to let go.
    Told,
}

/// One step of a node's program.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    /// The lock, by its client's number.
    pub lock: u8,
    /// What is asked.
    pub op: Op,
    /// When.
    pub when: When,
}

/// What befalls a node. Nodes are numbered from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It dies, and membership decides a view without it.
    Lose(u32),
    /// Membership decides a view without it; it lives on and does not know.
    Exclude(u32),
    /// The end of a node that was excluded: only now it is safe.
    End(u32),
    /// It starts, or starts again, and membership decides a view with its new stay.
    Join(u32),
    /// A view with the same members.
    Renumber,
    /// A node that has left: membership decides a view without it. Waits for it.
    Left(u32),
    /// One dies and another joins, both in one view.
    Swap {
        /// Who dies.
        lost: u32,
        /// Who joins.
        joined: u32,
    },
    /// Between these two nothing travels any more (B5).
    Cut(u32, u32),
    /// Its lease is over (R20).
    Freeze(u32),
    /// It has a lease again.
    Renew(u32),
}

/// A scenario.
#[derive(Clone)]
pub struct Scenario {
    /// Its name.
    pub name: &'static str,
    /// The resource's name.
    pub key: Vec<u8>,
    /// Nodes that are members of the first view.
    pub first: Vec<u32>,
    /// Nodes that there can be.
    pub nodes: u32,
    /// Calls made one after the other before the exploration, each to its end.
    pub setup: Vec<(u32, Step)>,
    /// What each node's client does, from the front.
    pub programs: Vec<Vec<Step>>,
    /// What the client of a node does that came back.
    pub again: Vec<Step>,
    /// What befalls the nodes, in this order, at any moment.
    pub faults: Vec<Fault>,
    /// Masters go by slot, whoever asks first.
    pub nodir: bool,
    /// Views may be skipped (B2).
    pub skips: bool,
    /// Work over many names is cut at every possible place, instead of being done at once.
    pub slow_work: bool,
    /// Messages about many names are handled at any later moment, instead of when they come: what
    /// concerns one name may go past them.
    pub late_hearing: bool,
    /// Timers may end at any moment.
    pub timers: bool,
    /// What must have happened somewhere, else the scenario shows nothing.
    pub must_see: Vec<Witness>,
    /// What must be true in every state without a next one.
    pub end: fn(&World) -> Result<(), String>,
}

impl Scenario {
    /// Three nodes, nothing happens.
    pub fn new(name: &'static str) -> Self {
        Self {
            name,
            key: b"k".to_vec(),
            first: vec![1, 2, 3],
            nodes: 3,
            setup: Vec::new(),
            programs: vec![Vec::new(); 3],
            again: Vec::new(),
            faults: Vec::new(),
            nodir: false,
            skips: false,
            slow_work: false,
            late_hearing: false,
            timers: false,
            must_see: Vec::new(),
            end: |_| Ok(()),
        }
    }

    /// The name's directory: owner while all first members are there, and what comes after.
    pub fn directory(mut self, owners: &[(&[u32], u32)]) -> Self {
        self.key = key_with(owners);
        self
    }

    /// Members of the first view, where not all.
    pub fn first(mut self, ids: &[u32]) -> Self {
        self.first = ids.to_vec();
        self
    }

    /// Adds calls before the exploration.
    pub fn given(mut self, node: u32, steps: &[Step]) -> Self {
        self.setup.extend(steps.iter().map(|step| (node, *step)));
        self
    }

    /// What a node's client does.
    pub fn program(mut self, node: u32, steps: &[Step]) -> Self {
        self.programs[node as usize - 1].extend_from_slice(steps);
        self
    }

    /// What the client of a node does that came back.
    pub fn again(mut self, steps: &[Step]) -> Self {
        self.again.extend_from_slice(steps);
        self
    }

    /// What befalls the nodes.
    pub fn faults(mut self, faults: &[Fault]) -> Self {
        self.faults.extend_from_slice(faults);
        self
    }

    /// What must have happened somewhere.
    pub fn sees(mut self, witnesses: &[Witness]) -> Self {
        self.must_see.extend_from_slice(witnesses);
        self
    }

    /// What must be true at the end.
    pub fn ends(mut self, end: fn(&World) -> Result<(), String>) -> Self {
        self.end = end;
        self
    }

    /// Masters go by slot.
    pub fn nodir(mut self) -> Self {
        self.nodir = true;
        self
    }

    /// Views may be skipped.
    pub fn skipping(mut self) -> Self {
        self.skips = true;
        self
    }

    /// Work is cut.
    pub fn slow(mut self) -> Self {
        self.slow_work = true;
        self
    }

    /// Messages about many names wait.
    pub fn hearing_late(mut self) -> Self {
        self.late_hearing = true;
        self
    }

    /// Timers end.
    pub fn timed(mut self) -> Self {
        self.timers = true;
        self
    }
}

/// A new lock, asked for when nothing is pending.
pub fn lock(lock: u8, mode: Mode) -> Step {
    lock_with(lock, mode, LockFlags(0))
}

/// The same with flags.
pub fn lock_with(lock: u8, mode: Mode, flags: LockFlags) -> Step {
    Step { lock, op: Op::Lock(mode, flags), when: When::Ready }
}

/// A conversion.
pub fn convert(lock: u8, mode: Mode) -> Step {
    convert_with(lock, mode, LockFlags(0), 0)
}

/// The same with flags and bytes.
pub fn convert_with(lock: u8, mode: Mode, flags: LockFlags, bytes: u8) -> Step {
    Step { lock, op: Op::Convert(mode, flags, bytes), when: When::Ready }
}

/// An unlock.
pub fn unlock(lock: u8) -> Step {
    unlock_with(lock, LockFlags(0), 0)
}

/// The same with flags and bytes.
pub fn unlock_with(lock: u8, flags: LockFlags, bytes: u8) -> Step {
    Step { lock, op: Op::Unlock(flags, bytes), when: When::Ready }
}

/// A cancel at any time.
pub fn cancel(lock: u8) -> Step {
    Step { lock, op: Op::Cancel, when: When::Anytime }
}

impl Step {
    /// At any time, beside what is pending.
    pub fn anytime(self) -> Self {
        Self { when: When::Anytime, ..self }
    }

    /// Once the holder is told to let go.
    pub fn told(self) -> Self {
        Self { when: When::Told, ..self }
    }
}

/// The member a node is in its first life.
pub fn member(node: u32) -> Member {
    Member { node: NodeId(node), incarnation: 1 << 24 }
}

/// A name whose directory is at these nodes while these are the members.
pub fn key_with(owners: &[(&[u32], u32)]) -> Vec<u8> {
    let fits = |key: &[u8]| owners.iter().all(|(members, owner)| owner_of(key, members) == *owner);
    let keys = (0..100_000_u32).map(|number| format!("k{number}").into_bytes());
    keys.into_iter().find(|key| fits(key)).expect("some name has its directory there")
}

/// The node whose directory has a name while these are the members: whom the first of them asks.
pub fn owner_of(key: &[u8], members: &[u32]) -> u32 {
    if members.len() == 1 {
        return members[0];
    }
    let mut node = Node::new(member(members[0]));
    let mut out = Outbox::new();
    let client = ClientId::new(0, 1);
    node.step(Instant(0), Input::Client(client, Request::create(SPACE, 1)), &mut out);
    let space = node.find_lockspace(SPACE.as_bytes()).expect("created");
    let view = View {
        id: ViewId(1),
        members: members.iter().map(|id| member(*id)).collect(),
        unsafe_members: Vec::new(),
    };
    node.step(Instant(0), Input::View(space, view), &mut out);
    out.drain().for_each(drop);
    let call = Call { mode: Mode::NL as u8, ..Call::default() };
    let request = Request::Lock(LockCall { call, name: key });
    node.step(Instant(0), Input::Client(client, request), &mut out);
    let asked = out.drain().find_map(|output| match output {
        Output::Send { to, .. } => Some(to.node.0),
        _ => None,
    });
    asked.unwrap_or(members[0])
}
