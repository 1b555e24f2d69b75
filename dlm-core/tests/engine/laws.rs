//! What must hold whatever is asked: incompatible modes are never held together, each operation
//! ends once, nothing is left behind, everybody is served. Long runs with a fixed seed, on the
//! engine alone.

use std::collections::BTreeMap;

use dlm_core::{
    Call, ClientId, Convert, Input, LockCall, LockFlags, LockId, LockspaceId, Mode, Request,
    Status, Unlock,
};

use crate::driver::{Event, Happened, World};
use crate::invariants;

const LOCKSPACE: &str = "laws";

/// Numbers that look random and are the same in every run (xorshift64*).
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % bound
    }

    fn mode(&mut self) -> u8 {
        self.below(6) as u8
    }
}

/// What a client knows of a lock.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Known {
    owner: ClientId,
    /// A request or conversion has not ended.
    pending: bool,
}

/// Keeps the books on every lock from the answers alone.
struct Books {
    world: World,
    lockspace: LockspaceId,
    clients: Vec<ClientId>,
    locks: BTreeMap<LockId, Known>,
    grants: u64,
}

impl Books {
    fn new(clients: usize) -> Self {
        let mut world = World::new();
        let clients = (0..clients).map(|n| world.open(LOCKSPACE, n as u32)).collect();
        let lockspace = world.node.find_lockspace(LOCKSPACE.as_bytes()).expect("just created");
        Self { world, lockspace, clients, locks: BTreeMap::new(), grants: 0 }
    }

    fn lock(&mut self, client: usize, name: &[u8], mode: u8, flags: LockFlags) -> Option<LockId> {
        let client = self.clients[client];
        let call = Call { mode, flags, wants_blocking: true, ..Call::default() };
        let happened = self.world.ask(client, Request::Lock(LockCall { call, name }));
        let id = happened.reply(client).ok();
        if let Some(id) = id {
            let before = self.locks.insert(id, Known { owner: client, pending: true });
            assert_eq!(before, None, "{id:?} is in use");
        }
        self.enter(&happened, None);
        id
    }

    fn convert(&mut self, lock: LockId, mode: u8, flags: LockFlags) {
        let Some(owner) = self.locks.get(&lock).map(|known| known.owner) else { return };
        let call = Call { mode, flags, wants_blocking: true, ..Call::default() };
        let request = Convert { call, lock, value: Some(&[1; 32]) };
        let happened = self.world.ask(owner, Request::Convert(request));
        if happened.reply(owner).is_ok() {
            let known = self.locks.get_mut(&lock).expect("it is there");
            assert!(!known.pending, "{lock:?} was converted while something was pending");
            known.pending = true;
        }
        self.enter(&happened, None);
    }

    fn unlock(&mut self, lock: LockId, flags: LockFlags) {
        let Some(owner) = self.locks.get(&lock).map(|known| known.owner) else { return };
        let request = Unlock { lock, flags, user: None, value: None };
        let happened = self.world.ask(owner, Request::Unlock(request));
        let accepted = happened.reply(owner).is_ok() && !flags.has(LockFlags::CANCEL);
        self.enter(&happened, accepted.then_some(lock));
        assert!(!accepted || !self.locks.contains_key(&lock), "{lock:?} outlived its unlock");
    }

    fn die(&mut self, client: usize) {
        let id = self.clients[client];
        let happened = self.world.feed(Input::ClientGone(id));
        self.locks.retain(|_, known| known.owner != id);
        self.enter(&happened, None);
        self.world.forget_client(id);
        self.clients[client] = self.world.open(LOCKSPACE, client as u32);
    }

    fn purge(&mut self) {
        let happened = self.world.feed(Input::PurgeOrphans(self.lockspace, 0));
        self.enter(&happened, None);
    }

    /// Each completion ends something that was pending, or is the end of `unlocked`.
    fn enter(&mut self, happened: &Happened, unlocked: Option<LockId>) {
        for event in &happened.events {
            let Event::Cast(client, done) = event else { continue };
            let known = self.locks.get_mut(&done.lock).unwrap_or_else(|| panic!("stray {done:?}"));
            assert_eq!(known.owner, *client, "{done:?} went to another client");
            match done.status {
                Status::Unlocked => assert_eq!(unlocked, Some(done.lock), "{done:?}"),
                _ => assert!(known.pending, "a second end: {done:?}"),
            }
            known.pending = false;
            self.grants += u64::from(done.status == Status::Granted);
            if done.granted.is_none() {
                self.locks.remove(&done.lock);
            }
        }
    }

    fn check(&self) {
        invariants::check(&self.world.node, self.lockspace);
        self.world.node.check();
        for resource in invariants::table(&self.world.node, self.lockspace) {
            for lock in resource.granted.iter().filter(|lock| lock.client.is_some()) {
                assert!(!self.locks[&lock.id].pending, "{lock:?} is idle but nobody was told");
            }
            for lock in resource.converting.iter().chain(&resource.waiting) {
                assert!(self.locks[&lock.id].pending, "{lock:?} is queued but was ended");
            }
        }
    }

    /// Everybody unlocks; every pending operation ends, nothing is left.
    fn wind_up(&mut self) {
        let locks: Vec<LockId> = self.locks.keys().copied().collect();
        for lock in locks {
            self.unlock(lock, LockFlags(0));
        }
        self.purge();
        assert!(self.locks.is_empty(), "still open: {:?}", self.locks);
        self.check();
        let info = self.world.node.lockspace(self.lockspace).expect("it is open");
        assert_eq!((info.locks, info.resources, info.orphans), (0, 0, 0));
        assert_eq!(self.world.node.counters().timers, 0);
    }
}

const REQUEST_FLAGS: [LockFlags; 8] = [
    LockFlags(0),
    LockFlags(0),
    LockFlags::NOQUEUE,
    LockFlags::HEADQUE,
    LockFlags::NOORDER,
    LockFlags::ALTPR,
    LockFlags::PERSISTENT,
    LockFlags::VALBLK,
];
const CONVERT_FLAGS: [LockFlags; 8] = [
    LockFlags(0),
    LockFlags::QUECVT,
    LockFlags::CONVDEADLK,
    LockFlags::NODLCKWT,
    LockFlags::NOQUEUE,
    LockFlags::HEADQUE,
    LockFlags::ALTCW,
    LockFlags::VALBLK,
];

#[test]
fn a_long_mixed_run_keeps_every_law() {
    const STEPS: u64 = 30_000;
    const LIVE_MAX: usize = 32;
    let mut books = Books::new(6);
    let mut dice = Dice(0x5eed);
    let mut live: Vec<LockId> = Vec::new();
    for step in 0..STEPS {
        live.retain(|lock| books.locks.contains_key(lock));
        let pick = |dice: &mut Dice| match live.len() as u64 {
            0 => LockId(0),
            count => live[dice.below(count) as usize],
        };
        match dice.below(20) {
            0..6 if live.len() < LIVE_MAX => {
                let client = dice.below(6) as usize;
                let name = [b'a' + dice.below(4) as u8];
                let flags = REQUEST_FLAGS[dice.below(8) as usize];
                live.extend(books.lock(client, &name, dice.mode(), flags));
            }
            6..12 => {
                let (lock, mode) = (pick(&mut dice), dice.mode());
                books.convert(lock, mode, CONVERT_FLAGS[dice.below(8) as usize]);
            }
            12..15 => books.unlock(pick(&mut dice), LockFlags::CANCEL),
            19 if dice.below(8) == 0 => books.die(dice.below(6) as usize),
            19 => books.purge(),
            _ => books.unlock(pick(&mut dice), LockFlags(0)),
        }
        if step % 64 == 0 {
            books.check();
        }
    }
    assert!(books.grants > STEPS / 10, "only {} grants", books.grants);
    books.wind_up();
}

/// BL-034: holders give back on the notice; each of three is served.
#[test]
fn bl_034_everybody_who_waits_is_served() {
    const GRANTS: u64 = 1000;
    let mut books = Books::new(3);
    let mut served = [0u64; 3];
    let mut waiting: Vec<Option<LockId>> =
        (0..3).map(|client| books.lock(client, b"r", Mode::EX as u8, LockFlags(0))).collect();
    for _ in 0..GRANTS {
        let granted: Vec<usize> = (0..3)
            .filter(|client| waiting[*client].is_some_and(|lock| !books.locks[&lock].pending))
            .collect();
        let [holder] = granted[..] else { panic!("one holder at a time: {granted:?}") };
        served[holder] += 1;
        books.unlock(waiting[holder].expect("it holds"), LockFlags(0));
        waiting[holder] = books.lock(holder, b"r", Mode::EX as u8, LockFlags(0));
    }
    assert!(served.iter().all(|served| *served >= GRANTS / 5), "{served:?}");
    books.wind_up();
}

/// BL-040: locks in use are never thrown out, however many other names come and go.
#[test]
fn bl_040_held_locks_stay_while_others_come_and_go() {
    let mut books = Books::new(2);
    let held: Vec<Option<LockId>> = (0..1000u32)
        .map(|n| books.lock(0, format!("held{n}").as_bytes(), Mode::PR as u8, LockFlags(0)))
        .collect();
    for n in 0..100_000u32 {
        let lock = books.lock(1, &n.to_le_bytes(), Mode::EX as u8, LockFlags(0));
        books.unlock(lock.expect("granted"), LockFlags(0));
        if n % 10_000 == 0 {
            books.world.wait_ms(60_000);
        }
    }
    let info = books.world.node.lockspace(books.lockspace).expect("it is open");
    assert_eq!((info.locks, info.resources), (1000, 1000));
    assert!(held.iter().flatten().all(|lock| books.locks.contains_key(lock)));
    books.wind_up();
}

/// BL-068: fifty waiters give up one after the other; nobody is left in the line.
#[test]
fn bl_068_waiters_that_gave_up_leave_the_line() {
    const WAITERS: u64 = 50;
    let mut books = Books::new(3);
    let holder = books.lock(0, b"r", Mode::EX as u8, LockFlags(0)).expect("granted");
    for n in 0..WAITERS {
        let client = books.clients[1 + n as usize % 2];
        let (mode, flags) = (Mode::EX as u8, LockFlags::TIMEOUT);
        let call = Call { mode, flags, timeout_cs: 1 + n, ..Call::default() };
        let happened = books.world.ask(client, Request::Lock(LockCall { call, name: b"r" }));
        let id = happened.reply(client).expect("accepted");
        books.locks.insert(id, Known { owner: client, pending: true });
        books.enter(&happened, None);
    }
    let happened = books.world.wait_ms(10 * WAITERS);
    let ended = happened.completions();
    assert_eq!(ended.len() as u64, WAITERS);
    assert!(ended.iter().all(|done| done.status == Status::TimedOut));
    books.enter(&happened, None);
    books.unlock(holder, LockFlags(0));
    let next = books.lock(2, b"r", Mode::EX as u8, LockFlags(0)).expect("accepted");
    assert!(!books.locks[&next].pending, "granted at once");
    books.wind_up();
}

/// BL-076: try-locks without pause and deaths in between leave nothing.
#[test]
fn bl_076_a_storm_of_tries_leaves_nothing() {
    let mut books = Books::new(20);
    let mut dice = Dice(76);
    let mut held: Vec<LockId> = Vec::new();
    for _ in 0..50_000 {
        let client = dice.below(20) as usize;
        let name = [b'n', dice.below(30) as u8];
        let lock = books.lock(client, &name, Mode::EX as u8, LockFlags::NOQUEUE);
        held.extend(lock.filter(|lock| books.locks.contains_key(lock)));
        match dice.below(10) {
            0 => {}
            1 if dice.below(50) == 0 => books.die(client),
            _ => {
                if let Some(lock) = held.pop() {
                    books.unlock(lock, LockFlags(0));
                }
            }
        }
    }
    books.wind_up();
}

/// BL-115: of two exclusive requests one has it at once, the other after the release.
#[test]
fn bl_115_one_of_two_has_it() {
    let mut books = Books::new(2);
    for round in 0..10_000u32 {
        let name = round.to_le_bytes();
        let first = books.lock(0, &name, Mode::EX as u8, LockFlags(0)).expect("accepted");
        let second = books.lock(1, &name, Mode::EX as u8, LockFlags(0)).expect("accepted");
        assert!(!books.locks[&first].pending && books.locks[&second].pending);
        books.unlock(first, LockFlags(0));
        assert!(!books.locks[&second].pending);
        books.unlock(second, LockFlags(0));
    }
    books.wind_up();
}

/// BL-119: a writer among overlapping readers is served after those that were there before it.
#[test]
fn bl_119_a_writer_is_not_starved_by_readers() {
    let mut books = Books::new(11);
    let mut readers: Vec<LockId> = (0..10)
        .map(|client| books.lock(client, b"r", Mode::PR as u8, LockFlags(0)).expect("granted"))
        .collect();
    let writer = books.lock(10, b"r", Mode::EX as u8, LockFlags(0)).expect("accepted");
    for (client, reader) in readers.iter_mut().enumerate() {
        assert!(books.locks[&writer].pending, "readers from before are still there");
        books.unlock(*reader, LockFlags(0));
        *reader = books.lock(client, b"r", Mode::PR as u8, LockFlags(0)).expect("accepted");
    }
    assert!(!books.locks[&writer].pending, "the readers before it are gone");
    assert!(readers.iter().all(|reader| books.locks[reader].pending), "later ones wait");
    books.wind_up();
}
