//! Clients that a test moves by number: one per node, with locks that remember what they were told.

use std::collections::BTreeMap;

use dlm_core::{
    Call, ClientId, Convert, Errno, Input, LockCall, LockFlags, LockId, Mode, Output, Request,
    SbFlags, Status, Token, Unlock,
};

use crate::agree;
use crate::bed::Bed;
use crate::play::IDLE_MS;

/// A lock as its client knows it.
#[derive(Clone, Debug)]
pub(crate) struct Hand {
    pub(crate) node: u32,
    id: LockId,
    /// What it holds.
    pub(crate) granted: Option<Mode>,
    /// Number of its last grant.
    token: Token,
    /// Whether an answer is due.
    pub(crate) pending: bool,
    /// How its last operation ended.
    pub(crate) last: Option<Status>,
    /// What else its last completion said.
    pub(crate) flags: SbFlags,
    /// Whether somebody wants it to give way.
    pub(crate) told: bool,
}

impl Hand {
    /// Whether there is a lock at all.
    pub(crate) fn exists(&self) -> bool {
        self.granted.is_some() || self.pending
    }
}

/// A bed with clients.
pub(crate) struct Hands {
    pub(crate) bed: Bed,
    clients: BTreeMap<u32, ClientId>,
    pub(crate) hands: Vec<Hand>,
    /// Completions seen.
    pub(crate) ends: usize,
}

/// A pseudo-random sequence.
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % bound.max(1)
    }
}

impl Hands {
    pub(crate) fn new(nodes: u32) -> Self {
        Self::on(Bed::new(nodes))
    }

    pub(crate) fn on(bed: Bed) -> Self {
        Self { bed, clients: BTreeMap::new(), hands: Vec::new(), ends: 0 }
    }

    fn client(&mut self, node: u32) -> ClientId {
        if let Some(client) = self.clients.get(&node) {
            return *client;
        }
        let client = self.bed.client(node, 1000 + node);
        self.clients.insert(node, client);
        self.hear();
        client
    }

    /// Asks for a lock; its number.
    pub(crate) fn ask(&mut self, node: u32, name: &str, mode: Mode, flags: LockFlags) -> usize {
        let client = self.client(node);
        let user = self.hands.len();
        let id = LockId(0);
        let (granted, last) = (None, None);
        let (token, told, pending) = (Token(0), false, true);
        let said = SbFlags(0);
        self.hands.push(Hand { node, id, granted, token, pending, last, flags: said, told });
        let call = Call { mode: mode as u8, flags, user: user as u64, ..Call::default() };
        let call = Call { wants_blocking: true, timeout_cs: 5, ..call };
        let request = Request::Lock(LockCall { call, name: name.as_bytes() });
        let id = self.call(node, client, request).expect("a good request");
        self.hands[user].id = id;
        user
    }

    /// As [`Hands::ask`], with everything that follows from it; it has to be granted.
    pub(crate) fn lock(&mut self, node: u32, name: &str, mode: Mode) -> usize {
        let hand = self.ask(node, name, mode, LockFlags(0));
        self.settle();
        assert_eq!(self.hands[hand].granted, Some(mode), "{name} on node {node}");
        hand
    }

    pub(crate) fn convert(&mut self, hand: usize, mode: Mode, flags: LockFlags) {
        self.try_convert(hand, mode, flags).expect("a good conversion");
    }

    /// As [`Hands::convert`], where a cancel may still be under way.
    pub(crate) fn try_convert(
        &mut self,
        hand: usize,
        mode: Mode,
        flags: LockFlags,
    ) -> Result<LockId, Errno> {
        let Hand { node, id, .. } = self.hands[hand];
        let call = Call { mode: mode as u8, flags, user: hand as u64, ..Call::default() };
        let call = Call { wants_blocking: true, ..call };
        let client = self.client(node);
        let request = Request::Convert(Convert { call, lock: id, value: Some(&[1; 32]) });
        self.hands[hand].pending = true;
        let answer = self.call(node, client, request);
        self.hands[hand].pending &= answer.is_ok();
        answer
    }

    pub(crate) fn unlock(&mut self, hand: usize) {
        self.give_up(hand, LockFlags(0)).expect("a good unlock");
    }

    /// An unlock with flags, or a cancel.
    pub(crate) fn give_up(&mut self, hand: usize, flags: LockFlags) -> Result<LockId, Errno> {
        let Hand { node, id, .. } = self.hands[hand];
        let client = self.client(node);
        let pending = self.hands[hand].pending;
        self.hands[hand].pending |= !flags.has(LockFlags::CANCEL);
        let request = Request::Unlock(Unlock { lock: id, flags, user: None, value: None });
        let answer = self.call(node, client, request);
        if answer.is_err() {
            self.hands[hand].pending = pending;
        }
        answer
    }

    fn call(&mut self, node: u32, client: ClientId, request: Request<'_>) -> Result<LockId, Errno> {
        self.hear();
        self.bed.step(node, Input::Client(client, request));
        self.hear().expect("every call is answered")
    }

    /// Takes in what was heard; the last answer to a call.
    pub(crate) fn hear(&mut self) -> Option<Result<LockId, Errno>> {
        let mut answer = None;
        for heard in self.bed.take_heard() {
            match heard.output {
                Output::Reply { result, .. } => answer = Some(result),
                Output::Complete { completion, .. } => {
                    let hand = &mut self.hands[completion.user as usize];
                    assert!(hand.pending, "{completion:?} ends nothing of {hand:?}");
                    self.ends += 1;
                    hand.pending = false;
                    if completion.granted.is_some() {
                        // Whoever masters the name by now (recovery.md R18).
                        assert!(completion.token >= hand.token, "{completion:?} after {hand:?}");
                        hand.token = completion.token;
                    }
                    hand.granted = completion.granted;
                    hand.last = Some(completion.status);
                    hand.flags = completion.sb_flags;
                }
                Output::Blocking { blocking, .. } => {
                    self.hands[blocking.user as usize].told = true;
                }
                _ => {}
            }
        }
        answer
    }

    /// Lets everything happen.
    pub(crate) fn settle(&mut self) {
        self.bed.settle();
        self.hear();
    }

    pub(crate) fn settle_by(&mut self, dice: &mut Dice) {
        self.bed.settle_by(|bound| dice.below(bound));
        self.hear();
    }

    /// The client of a node ends, with its locks.
    pub(crate) fn client_dies(&mut self, node: u32) {
        self.hear();
        let client = self.clients.remove(&node).expect("it has a client");
        for hand in self.hands.iter_mut().filter(|hand| hand.node == node) {
            (hand.granted, hand.pending) = (None, false);
        }
        self.bed.step(node, Input::ClientGone(client));
        self.hear();
    }

    /// A node ends, and it is known.
    pub(crate) fn gone(&mut self, node: u32) {
        self.dies(node);
        self.bed.exclude(node);
        self.bed.make_safe(node);
    }

    /// A node ends with its client.
    pub(crate) fn dies(&mut self, node: u32) {
        self.hear();
        self.bed.die(node);
        self.clients.remove(&node);
        for hand in self.hands.iter_mut().filter(|hand| hand.node == node) {
            (hand.granted, hand.pending) = (None, false);
        }
    }

    /// Everybody on a node closes and the lockspace is removed there, by force.
    pub(crate) fn leave(&mut self, node: u32) {
        self.hear();
        for client in self.clients.remove(&node).into_iter().chain([ClientId::new(0, 1)]) {
            self.bed.step(node, Input::Client(client, Request::Release { force: true }));
        }
        for hand in self.hands.iter_mut().filter(|hand| hand.node == node) {
            (hand.granted, hand.pending) = (None, false);
        }
        self.hear();
    }

    /// The tables of all nodes agree.
    #[track_caller]
    pub(crate) fn agree(&self, when: &str) {
        assert!(self.bed.is_quiet(), "{when}: not all is quiet: {}", self.bed.unrest());
        if let Some(why) = agree::disagreement(&self.bed) {
            panic!("{when}: {why}");
        }
    }

    /// Holders give up their locks one after the other: everybody who waits is granted, and nothing
    /// is left.
    #[track_caller]
    pub(crate) fn let_go(&mut self, when: &str) {
        self.settle();
        loop {
            let free = |hand: &Hand| hand.granted.is_some() && !hand.pending;
            let Some(hand) = self.hands.iter().position(free) else { break };
            self.unlock(hand);
            self.settle();
            assert_eq!(self.hands[hand].last, Some(Status::Unlocked), "{when}");
        }
        let stuck: Vec<&Hand> = self.hands.iter().filter(|hand| hand.exists()).collect();
        assert!(stuck.is_empty(), "{when}: never granted {stuck:?}");
        self.agree(when);
        self.bed.wait_ms(IDLE_MS);
        if let Some(why) = agree::left_over(&self.bed) {
            panic!("{when}: {why}");
        }
    }
}
