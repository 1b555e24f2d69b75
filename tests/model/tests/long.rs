//! What needs many names, many lives of one name, or numbers at their ends, and one order only
//! (recovery.md section 8, R18, R19).

use std::collections::VecDeque;

use dlm_core::message::{Body, Message, Tagged};
use dlm_core::{
    Call, ClientId, Completion, Convert, Input, Instant, LockCall, LockFlags, LockId, LockspaceId,
    Member, Mode, Name, Node, NodeId, Outbox, Output, Request, Status, Token, Unlock, View, ViewId,
};

/// Nodes by number, from 1, and everything between them in one queue.
struct Bed {
    nodes: Vec<Node>,
    post: VecDeque<(u32, Member, Message)>,
    heard: Vec<(u32, Completion)>,
    views_wanted: u32,
    now: Instant,
    last_user: u64,
}

const CLIENT: ClientId = ClientId { slot: 0, generation: 1 };
const SPACE: LockspaceId = LockspaceId(0);

fn member(id: u32, life: u64) -> Member {
    Member { node: NodeId(id), incarnation: life << 24 }
}

impl Bed {
    /// Three nodes in a view of this number.
    fn new(view: u32, life: u64) -> Self {
        let nodes = (1..=3).map(|id| Node::new(member(id, life))).collect();
        let mut bed = Self {
            nodes,
            post: VecDeque::new(),
            heard: Vec::new(),
            views_wanted: 0,
            now: Instant(0),
            last_user: 0,
        };
        for id in 1..=3 {
            bed.step(id, Input::Client(CLIENT, Request::create("long", id)));
        }
        for id in 1..=3 {
            bed.install(id, view, &[1, 2, 3], &[], life);
        }
        bed.settle();
        bed
    }

    fn install(&mut self, id: u32, view: u32, members: &[u32], lost: &[u32], life: u64) {
        let all = |ids: &[u32]| ids.iter().map(|id| member(*id, life)).collect();
        let view = View { id: ViewId(view), members: all(members), unsafe_members: all(lost) };
        self.step(id, Input::View(SPACE, view));
    }

    fn step(&mut self, id: u32, input: Input<'_>) -> Option<LockId> {
        let mut out = Outbox::new();
        let node = &mut self.nodes[id as usize - 1];
        node.step(self.now, input, &mut out);
        let mut answer = None;
        for output in out.drain() {
            match output {
                Output::Send { to, message } => self.post.push_back((id, to, message)),
                Output::Complete { completion, .. } => self.heard.push((id, completion)),
                Output::Reply { result, .. } => answer = result.ok(),
                Output::NeedView { .. } => self.views_wanted += 1,
                _ => {}
            }
        }
        answer
    }

    /// Delivers and works until nothing is left. Nothing reaches node 3 once it is `dead`.
    fn settle_without(&mut self, dead: &[u32]) {
        loop {
            while let Some((from, to, message)) = self.post.pop_front() {
                let gone = dead.contains(&from) || dead.contains(&to.node.0);
                if !gone {
                    self.step(to.node.0, Input::Peer(NodeId(from), message));
                }
            }
            let due = |node: &Node| node.deadline().is_some_and(|(at, _)| at <= self.now);
            let Some(index) = self.nodes.iter().position(due) else { return };
            self.step(index as u32 + 1, Input::Tick);
        }
    }

    fn settle(&mut self) {
        self.settle_without(&[]);
    }

    /// Asks for a lock; its user word is given back.
    fn ask(&mut self, id: u32, name: &[u8], mode: Mode) -> (u64, LockId) {
        self.last_user += 1;
        let user = self.last_user;
        let call = Call { mode: mode as u8, user, ..Call::default() };
        let request = Request::Lock(LockCall { call, name });
        let lock = self.step(id, Input::Client(CLIENT, request)).expect("a lock is asked for");
        (user, lock)
    }

    fn convert(&mut self, id: u32, (user, lock): (u64, LockId), mode: Mode) {
        let call = Call { mode: mode as u8, user, ..Call::default() };
        let request = Request::Convert(Convert { call, lock, value: None });
        self.step(id, Input::Client(CLIENT, request)).expect("a conversion is taken");
    }

    fn unlock(&mut self, id: u32, lock: LockId) {
        let request = Unlock { lock, flags: LockFlags(0), user: None, value: None };
        self.step(id, Input::Client(CLIENT, Request::Unlock(request)));
    }

    /// Grants since the last time, by user word.
    fn grants(&mut self) -> Vec<(u64, Token)> {
        let heard = core::mem::take(&mut self.heard);
        let grants = heard.into_iter().filter(|(_, c)| c.status == Status::Granted);
        grants.map(|(_, completion)| (completion.user, completion.token)).collect()
    }
}

/// A lock and its end, in one node; the grant's number.
fn take_and_give(bed: &mut Bed, id: u32, name: &[u8]) -> u64 {
    let (user, lock) = bed.ask(id, name, Mode::EX);
    bed.settle();
    let grants = bed.grants();
    let (_, token) = grants.iter().find(|(of, _)| *of == user).expect("it is granted");
    bed.unlock(id, lock);
    bed.settle();
    token.0
}

/// 10,000 names, of which the lost node mastered one: while nobody says that it is safe, only that one
/// waits (D17, R12).
#[test]
fn of_10_000_names_only_the_affected_one_waits() {
    let names: Vec<Vec<u8>> = (0..10_000).map(|n| format!("name-{n}").into_bytes()).collect();
    let mut bed = Bed::new(1000, 1);
    bed.ask(3, b"affected", Mode::NL);
    bed.settle();
    let affected = bed.ask(1, b"affected", Mode::NL);
    let locks: Vec<_> = names.iter().map(|name| bed.ask(1, name, Mode::NL)).collect();
    bed.settle();
    assert_eq!(bed.grants().len(), names.len() + 2);
    bed.install(1, 1001, &[1, 2], &[3], 1);
    bed.install(2, 1001, &[1, 2], &[3], 1);
    // Who knows the master waits for nothing, not even for the other's view.
    for lock in &locks {
        bed.convert(1, *lock, Mode::PR);
    }
    assert_eq!(bed.grants().len(), names.len(), "before any message");
    bed.convert(1, affected, Mode::PR);
    bed.settle_without(&[3]);
    for name in &names {
        bed.ask(2, name, Mode::PR);
    }
    bed.settle_without(&[3]);
    assert_eq!(bed.grants().len(), names.len(), "while node 3 is feared");
    for id in [1, 2] {
        bed.step(id, Input::Safe(member(3, 1)));
    }
    bed.settle_without(&[3]);
    let last: Vec<u64> = bed.grants().into_iter().map(|(user, _)| user).collect();
    assert_eq!(last, [affected.0], "when it is safe");
}

/// A name that is forgotten and taken again, 1,000 times in one view, by one node and another: its
/// numbers only grow (R8, R18).
#[test]
fn a_name_that_returns_1_000_times_in_one_view_has_growing_numbers() {
    let mut bed = Bed::new(1000, 1);
    let mut last = 0;
    for round in 0..1_000 {
        let token = take_and_give(&mut bed, 1 + round % 3, b"returns");
        assert!(token > last, "round {round}: {token:#x} after {last:#x}");
        assert_eq!(token >> 32, 1000, "it is one view");
        last = token;
        bed.now = bed.now.after(core::time::Duration::from_secs(11));
        bed.settle();
        let left: u64 = bed.nodes.iter().flat_map(Node::lockspaces).map(|s| s.resources).sum();
        assert_eq!(left, 0, "round {round}: the name is forgotten everywhere");
    }
}

/// Makes all numbers of a bed go on above this low half: a master of another name returns it (R18).
fn raise(bed: &mut Bed, low: u64) {
    for to in 1..=3_u32 {
        let from = 1 + to % 3;
        let space = bed.nodes[0].lockspace(SPACE).expect("it is there").global_id;
        let name = Name::new(b"another").expect("short");
        let last = Token((1000 << 32) | low);
        let body = Body::Tagged(ViewId(1000), Tagged::Remove { name, term: Token(1), last });
        let stay = 1 << 24;
        let message = Message { space, from: stay, to: stay, body };
        bed.step(to, Input::Peer(NodeId(from), message));
    }
    bed.settle();
}

/// A counter half spent asks for a view, once, and goes on above it when it comes (R19).
#[test]
fn a_counter_half_spent_asks_for_a_view() {
    let mut bed = Bed::new(1000, 1);
    take_and_give(&mut bed, 1, b"name");
    raise(&mut bed, (1 << 31) - 1);
    assert_eq!(bed.views_wanted, 0);
    let before = take_and_give(&mut bed, 1, b"name");
    let again = take_and_give(&mut bed, 1, b"name");
    assert!(again > before && again >> 32 == 1000);
    assert_eq!(bed.views_wanted, 1, "once");
    for id in 1..=3 {
        bed.install(id, 1001, &[1, 2, 3], &[], 1);
    }
    bed.settle();
    let after = take_and_give(&mut bed, 1, b"name");
    assert!(after >> 32 == 1001 && after & 0xffff_ffff < 100, "{after:#x}");
}

/// At its very end the counter gives its last number and then waits for a view: it never carries into the
/// number of the view (R19).
#[test]
fn a_counter_never_carries_into_the_view() {
    let mut bed = Bed::new(1000, 1);
    let (_, lock) = bed.ask(1, b"name", Mode::NL);
    bed.settle();
    raise(&mut bed, (1 << 32) - 2);
    bed.convert(1, (1, lock), Mode::NL);
    bed.settle();
    let last = bed.grants().last().expect("the last number is given").1.0;
    assert_eq!(last, (1000 << 32) | 0xffff_ffff);
    bed.convert(1, (1, lock), Mode::NL);
    bed.ask(2, b"name", Mode::NL);
    bed.ask(3, b"other", Mode::NL);
    bed.settle();
    assert!(bed.grants().is_empty(), "a number beyond the last was given");
    for id in 1..=3 {
        bed.install(id, 1001, &[1, 2, 3], &[], 1);
    }
    bed.settle();
    let after = bed.grants();
    assert_eq!(after.len(), 3, "nothing is lost");
    assert!(after.iter().all(|(_, token)| token.0 >> 32 == 1001 && token.0 & 0xffff_ffff < 100));
}

/// All nodes start again, and membership goes on above the views it has stored: so do numbers (B1).
#[test]
fn a_restart_of_all_goes_on_above() {
    let mut bed = Bed::new(1000, 1);
    let before: Vec<u64> = (1..=3).map(|id| take_and_give(&mut bed, id, b"name")).collect();
    let mut bed = Bed::new(1001, 2);
    let after: Vec<u64> = (1..=3).map(|id| take_and_give(&mut bed, id, b"name")).collect();
    assert!(before.iter().max() < after.iter().min(), "{before:x?}, then {after:x?}");
}
