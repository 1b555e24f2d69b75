//! A view's numbers come to an end: names freeze, nothing is lost and nobody is told wrong, until a new view
//! brings new numbers (recovery.md R19). No number carries into the half of the view.

use core::time::Duration;

use dlm_core::message::{Body, Message, Tagged};
use dlm_core::{
    Call, ClientId, Input, Instant, Layout, LockCall, LockFlags, LockId, Mode, Name, Request,
    SbFlags, Status, Token, Unlock, ViewId,
};

use crate::several::{SPACE, Several, client};

const LOW: u64 = (1 << 32) - 1;
const NOTHING: LockFlags = LockFlags(0);
const NQ: LockFlags = LockFlags::NOQUEUE;

fn nodes(count: u32, layout: &Layout) -> Several {
    let mut several = Several::new(count, layout);
    let all: Vec<usize> = (0..count as usize).collect();
    several.install(&all, &[]);
    several
}

/// Leaves a node this many numbers of its view: it hears of a name whose master had the others.
fn leave_numbers(several: &mut Several, index: usize, left: u64) {
    let space = several.space(index);
    let info = several.all[index].node.lockspace(space).expect("it is there");
    let view: ViewId = info.view.expect("a member").id;
    let name = Name::new(b"of another").expect("short");
    let last = Token((u64::from(view.0) << 32) | (LOW - left));
    let body = Body::Tagged(view, Tagged::Remove { name, term: Token(1), last });
    let member = several.all[index].member;
    let (from, to) = (member.incarnation, member.incarnation);
    let message = Message { space: info.global_id, from, to, body };
    several.feed(index, Input::Peer(member.node, message));
    several.settle();
}

/// The next view has the same members.
fn renew(several: &mut Several) {
    let alive = several.all.iter().enumerate().filter(|(_, one)| one.alive);
    let all: Vec<usize> = alive.map(|(index, _)| index).collect();
    several.install(&all, &[]);
}

#[track_caller]
fn granted(several: &Several, index: usize, lock: LockId, mode: Mode) -> u64 {
    let cast = several.last_cast(index, lock).expect("its operation ended");
    assert_eq!((cast.status, cast.granted), (Status::Granted, Some(mode)));
    cast.token.0
}

/// As [`granted`], with a number of the present view.
#[track_caller]
fn granted_now(several: &Several, index: usize, lock: LockId, mode: Mode) {
    let token = granted(several, index, lock, mode);
    assert_eq!(token >> 32, u64::from(several.view.id.0), "{token:#x}");
    assert!(token & LOW < 1000, "{token:#x}");
}

#[track_caller]
fn ended(several: &Several, index: usize, lock: LockId, status: Status) {
    let cast = several.last_cast(index, lock).expect("its operation ended");
    assert_eq!(cast.status, status);
}

fn casts(several: &Several) -> usize {
    several.all.iter().map(|one| one.casts.len()).sum()
}

fn cancel(several: &mut Several, index: usize, lock: LockId) {
    let flags = LockFlags::CANCEL;
    several.ask(index, Request::Unlock(Unlock { lock, flags, user: None, value: None }));
}

/// Everybody lets go of all, and nothing is owed.
#[track_caller]
fn nothing_is_left(several: &mut Several) {
    for index in 0..several.all.len() {
        if several.all[index].alive {
            several.feed(index, Input::Client(client(), Request::Close));
            several.settle();
        }
    }
    for one in several.all.iter().filter(|one| one.alive) {
        let space = one.node.find_lockspace(SPACE.as_bytes()).expect("nobody released it");
        assert_eq!(one.node.lockspace(space).expect("as above").locks, 0);
        assert_eq!(one.node.audit(space).owed, Vec::<String>::new());
    }
}

#[test]
fn calls_on_a_master_without_numbers_wait_and_are_judged_in_the_next_view() {
    let mut several = nodes(3, &Layout::default());
    let own = several.lock(0, "own", Mode::NL, NOTHING);
    let held = several.lock(0, "held", Mode::NL, NOTHING);
    let holder = several.lock(1, "held", Mode::EX, NOTHING);
    let far = several.lock(2, "own", Mode::NL, NOTHING);
    leave_numbers(&mut several, 0, 0);
    let before = casts(&several);
    several.convert(0, own, Mode::PR, NOTHING, None);
    several.convert(2, far, Mode::PR, NOTHING, None);
    let tries = [0, 2].map(|node| (node, several.lock(node, "held", Mode::PR, NQ)));
    let lucky = [0, 2].map(|node| (node, several.lock(node, "own", Mode::CR, NQ)));
    let waits = [0, 2].map(|node| (node, several.lock(node, "held", Mode::CW, NOTHING)));
    assert_eq!(casts(&several), before, "nobody is granted, and nobody is told that it is held");
    assert!(several.all[1].basts.is_empty(), "nor is anybody asked to give way for it");
    assert_eq!(several.view_wanted, [0], "one asks for numbers, once");
    renew(&mut several);
    for (node, lock, mode) in [(0, own, Mode::PR), (2, far, Mode::PR)] {
        granted_now(&several, node, lock, mode);
    }
    lucky.iter().for_each(|(node, lock)| granted_now(&several, *node, *lock, Mode::CR));
    tries.iter().for_each(|(node, lock)| ended(&several, *node, *lock, Status::Again));
    assert!(waits.iter().all(|(node, lock)| several.last_cast(*node, *lock).is_none()));
    assert!(!several.all[1].basts.is_empty(), "the holder is asked to give way");
    several.unlock(1, holder, None);
    waits.iter().for_each(|(node, lock)| granted_now(&several, *node, *lock, Mode::CW));
    let _ = held;
    nothing_is_left(&mut several);
}

#[test]
fn what_is_set_free_meanwhile_is_granted_in_order_in_the_next_view() {
    for owner in [0, 1] {
        let mut several = nodes(3, &Layout::default());
        several.lock(0, "n", Mode::NL, NOTHING);
        let holder = several.lock(owner, "n", Mode::EX, NOTHING);
        let first = several.lock(2, "n", Mode::PW, NOTHING);
        let second = several.lock(0, "n", Mode::PW, NOTHING);
        leave_numbers(&mut several, 0, 0);
        several.unlock(owner, holder, None);
        let late = several.lock(1, "n", Mode::PW, NOTHING);
        assert!(
            [(2, first), (0, second), (1, late)]
                .iter()
                .all(|(node, lock)| several.last_cast(*node, *lock).is_none())
        );
        renew(&mut several);
        ended(&several, owner, holder, Status::Unlocked);
        granted_now(&several, 2, first, Mode::PW);
        assert!(several.last_cast(0, second).is_none());
        several.unlock(2, first, None);
        granted_now(&several, 0, second, Mode::PW);
        several.unlock(0, second, None);
        granted_now(&several, 1, late, Mode::PW);
        nothing_is_left(&mut several);
    }
}

/// The last number is given, and the next one does not exist.
#[test]
fn a_queue_is_granted_as_far_as_the_numbers_go() {
    let mut several = nodes(3, &Layout::default());
    several.lock(0, "n", Mode::NL, NOTHING);
    let holder = several.lock(0, "n", Mode::EX, NOTHING);
    let waits: Vec<_> =
        (0..6).map(|n| (n % 3, several.lock(n % 3, "n", Mode::PR, NOTHING))).collect();
    leave_numbers(&mut several, 0, 2);
    several.unlock(0, holder, None);
    let view = u64::from(several.view.id.0);
    for (count, (node, lock)) in waits[..2].iter().enumerate() {
        let token = granted(&several, *node, *lock, Mode::PR);
        assert_eq!(token, (view << 32) | (LOW - 1 + count as u64), "{token:#x}");
    }
    assert!(waits[2..].iter().all(|(node, lock)| several.last_cast(*node, *lock).is_none()));
    assert_eq!(several.view_wanted, [0]);
    renew(&mut several);
    waits[2..].iter().for_each(|(node, lock)| granted_now(&several, *node, *lock, Mode::PR));
    nothing_is_left(&mut several);
}

/// Conversions in any order, and the one that is demoted (1.5), with each count of numbers left.
#[test]
fn conversions_go_on_where_the_numbers_ended() {
    for left in 0..4 {
        let mut several = nodes(3, &Layout::default());
        let [a, b, c] = [0, 1, 2].map(|node| several.lock(node, "n", Mode::PR, NOTHING));
        several.convert(0, a, Mode::EX, NOTHING, None);
        leave_numbers(&mut several, 0, left);
        several.convert(1, b, Mode::EX, LockFlags::CONVDEADLK, None);
        several.unlock(2, c, None);
        assert!(several.all[0].node.lockspaces()[0].locks > 0);
        renew(&mut several);
        renew(&mut several);
        granted(&several, 0, a, Mode::EX);
        several.unlock(0, a, None);
        granted(&several, 1, b, Mode::EX);
        let cast = several.last_cast(1, b).expect("as above");
        assert!(cast.sb_flags.has(SbFlags::DEMOTED), "{left} left: it gave way once");
        nothing_is_left(&mut several);
    }
}

/// Two conversions exclude each other: the second is told so, when it is judged.
#[test]
fn a_deadlock_is_found_when_the_call_is_judged() {
    for node in [0, 1] {
        let mut several = nodes(2, &Layout::default());
        let a = several.lock(0, "n", Mode::PR, NOTHING);
        let b = several.lock(node, "n", Mode::PR, NOTHING);
        leave_numbers(&mut several, 0, 0);
        several.convert(0, a, Mode::EX, NOTHING, None);
        several.convert(node, b, Mode::EX, NOTHING, None);
        assert!(several.all[0].basts.is_empty() && several.all[node].basts.is_empty());
        renew(&mut several);
        ended(&several, node, b, Status::Deadlock);
        several.unlock(node, b, None);
        granted_now(&several, 0, a, Mode::EX);
        nothing_is_left(&mut several);
    }
}

/// What waits for a number can be given up in every way.
#[test]
fn who_waits_for_a_number_can_be_cancelled_unlocked_and_die() {
    for node in [0, 1] {
        let mut several = nodes(2, &Layout::default());
        several.lock(0, "n", Mode::NL, NOTHING);
        let locks = [(); 3].map(|()| several.lock(node, "n", Mode::CR, NOTHING));
        leave_numbers(&mut several, 0, 0);
        locks.iter().for_each(|lock| several.convert(node, *lock, Mode::PR, NOTHING, None));
        let asked = [(); 3].map(|()| several.lock(node, "n", Mode::PR, NOTHING));
        let before = casts(&several);
        cancel(&mut several, node, locks[0]);
        cancel(&mut several, node, asked[0]);
        let force = LockFlags::FORCEUNLOCK;
        for lock in [locks[1], asked[1]] {
            let unlock = Unlock { lock, flags: force, user: None, value: None };
            several.ask(node, Request::Unlock(unlock));
        }
        if node == 0 {
            assert_eq!(casts(&several), before + 4, "it takes no number");
            several.convert(node, locks[0], Mode::PR, NOTHING, None);
        }
        renew(&mut several);
        granted_now(&several, node, locks[0], Mode::PR);
        granted_now(&several, node, locks[2], Mode::PR);
        match node {
            0 => ended(&several, 0, asked[0], Status::Cancelled),
            // The master hears of the request first, and grants it: the cancel is late.
            _ => granted_now(&several, 1, asked[0], Mode::PR),
        }
        [locks[1], asked[1]].iter().for_each(|l| ended(&several, node, *l, Status::Unlocked));
        granted_now(&several, node, asked[2], Mode::PR);
        leave_numbers(&mut several, 0, 0);
        several.convert(node, locks[2], Mode::EX, NOTHING, None);
        nothing_is_left_after_a_view(&mut several);
    }
}

/// Clients close while their calls wait; what they left is given back in the next view.
#[track_caller]
fn nothing_is_left_after_a_view(several: &mut Several) {
    for index in 0..several.all.len() {
        several.feed(index, Input::Client(client(), Request::Close));
    }
    several.settle();
    renew(several);
    for one in several.all.iter().filter(|one| one.alive) {
        let space = one.node.find_lockspace(SPACE.as_bytes()).expect("nobody released it");
        assert_eq!(one.node.lockspace(space).expect("as above").locks, 0);
        assert_eq!(one.node.audit(space).owed, Vec::<String>::new());
    }
}

#[test]
fn a_time_limit_ends_a_call_that_waits_for_a_number() {
    let mut several = nodes(1, &Layout::default());
    let keeps = several.lock(0, "n", Mode::NL, NOTHING);
    leave_numbers(&mut several, 0, 0);
    let flags = LockFlags::TIMEOUT;
    let call = Call { mode: Mode::PR as u8, flags, timeout_cs: 50, ..Call::default() };
    let timed = several.ask(0, Request::Lock(LockCall { call, name: b"n" }));
    several.now = several.now.after(Duration::from_secs(1));
    several.settle();
    ended(&several, 0, timed, Status::TimedOut);
    renew(&mut several);
    several.convert(0, keeps, Mode::EX, NQ, None);
    granted_now(&several, 0, keeps, Mode::EX);
    nothing_is_left(&mut several);
}

/// New names need a number as well: the directory's answer waits, whoever asks.
#[test]
fn a_directory_without_numbers_gives_no_name() {
    for count in [1, 3] {
        let mut several = nodes(count, &Layout::default());
        leave_numbers(&mut several, 0, 0);
        let names: Vec<String> = (0..60).map(|number| format!("name-{number}")).collect();
        let mut asked = Vec::new();
        for (number, name) in names.iter().enumerate() {
            let node = number % count as usize;
            asked.push((node, several.lock(node, name, Mode::EX, NQ)));
        }
        let waits = |several: &Several| {
            asked.iter().filter(|(node, lock)| several.last_cast(*node, *lock).is_none()).count()
        };
        let waiting = waits(&several);
        // A third of the slots is node 1's; who masters one of the other names has numbers.
        assert!(if count == 1 { waiting == 60 } else { waiting >= 20 }, "{waiting}");
        cancel_one(&mut several, &asked);
        renew(&mut several);
        let ended_now = asked.iter().filter(|(node, lock)| {
            let cast = several.last_cast(*node, *lock).expect("all are answered");
            cast.status == Status::Granted
        });
        assert_eq!(ended_now.count(), 59, "all but the cancelled one");
        nothing_is_left(&mut several);
    }
}

/// Cancels the first of these that waits.
fn cancel_one(several: &mut Several, asked: &[(usize, LockId)]) {
    let (node, lock) = *asked
        .iter()
        .find(|(node, lock)| several.last_cast(*node, *lock).is_none())
        .expect("one waits");
    cancel(several, node, lock);
}

/// Names of a lost master cannot be claimed without a number: they wait one view longer.
#[test]
fn claims_wait_for_a_number() {
    let mut several = nodes(3, &Layout::default());
    let names: Vec<String> = (0..30).map(|number| format!("name-{number}")).collect();
    let held: Vec<_> = names
        .iter()
        .map(|name| {
            several.lock(2, name, Mode::NL, NOTHING);
            several.lock(1, name, Mode::EX, NOTHING)
        })
        .collect();
    several.kill(2);
    several.decide(&[0, 1], &[2]);
    several.hold = true;
    [0, 1].iter().for_each(|index| several.tell(*index));
    several.hold = false;
    leave_numbers(&mut several, 0, 0);
    several.safe(2);
    let audit = several.all[0].node.audit(several.space(0));
    assert!(audit.owed.iter().any(|what| what == "claims wait"), "{:?}", audit.owed);
    assert_eq!(several.view_wanted, [0]);
    several.install(&[0, 1], &[]);
    for (name, lock) in names.iter().zip(held) {
        several.convert(1, lock, Mode::PW, NOTHING, None);
        granted_now(&several, 1, lock, Mode::PW);
        let tried = several.lock(0, name, Mode::PW, NQ);
        ended(&several, 0, tried, Status::Again);
    }
    nothing_is_left(&mut several);
}

/// A new master has no numbers for what it has put together: the names stay frozen after their thaw was said.
#[test]
fn a_rebuilt_name_waits_for_numbers() {
    for left in 0..8 {
        let mut several = nodes(3, &Layout::default());
        several.lock(2, "n", Mode::NL, NOTHING);
        let holder = several.lock(1, "n", Mode::PR, NOTHING);
        let [first, second] = [(); 2].map(|()| several.lock(0, "n", Mode::EX, NOTHING));
        several.kill(2);
        several.install(&[0, 1], &[2]);
        // Whoever becomes the master.
        [0, 1].iter().for_each(|index| leave_numbers(&mut several, *index, left));
        several.safe(2);
        let try_now = several.lock(1, "n", Mode::CR, NQ);
        several.unlock(1, holder, None);
        several.install(&[0, 1], &[]);
        ended(&several, 1, holder, Status::Unlocked);
        ended(&several, 1, try_now, Status::Again);
        granted(&several, 0, first, Mode::EX);
        assert!(several.last_cast(0, second).is_none(), "{left} left");
        several.unlock(0, first, None);
        granted_now(&several, 0, second, Mode::EX);
        nothing_is_left(&mut several);
    }
}

/// Masters by slot: new names, calls on served ones, and a slot that moves away while calls wait.
#[test]
fn masters_by_slot_without_numbers() {
    let layout = Layout { nodir: true, masters: Vec::new() };
    for left in [0, 1] {
        let mut several = Several::new(3, &layout);
        several.install(&[0, 1], &[]);
        let names: Vec<String> = (0..60).map(|number| format!("name-{number}")).collect();
        let (old, new) = names.split_at(30);
        let held: Vec<_> =
            old.iter().map(|name| several.lock(1, name, Mode::EX, NOTHING)).collect();
        let converts: Vec<_> =
            old.iter().map(|name| several.lock(0, name, Mode::NL, NOTHING)).collect();
        [0, 1].iter().for_each(|index| leave_numbers(&mut several, *index, left));
        let tries: Vec<_> = old.iter().map(|name| several.lock(0, name, Mode::PR, NQ)).collect();
        for lock in &converts {
            several.convert(0, *lock, Mode::NL, NQ, None);
        }
        let firsts: Vec<_> =
            new.iter().map(|name| several.lock(0, name, Mode::EX, NOTHING)).collect();
        let seconds: Vec<_> = new.iter().map(|name| several.lock(1, name, Mode::EX, NQ)).collect();
        several.install(&[0, 1, 2], &[]);
        for number in 0..30 {
            granted(&several, 1, held[number], Mode::EX);
            ended(&several, 0, tries[number], Status::Again);
            granted(&several, 0, converts[number], Mode::NL);
            // Who came first depends on the way; one has it, and the other is told.
            let of = |node, lock| several.last_cast(node, lock).map(|cast| cast.status);
            match (of(0, firsts[number]), of(1, seconds[number])) {
                (Some(Status::Granted), Some(Status::Again)) | (None, Some(Status::Granted)) => {}
                other => panic!("{}: {other:?}", new[number]),
            }
        }
        for lock in held {
            several.unlock(1, lock, None);
        }
        nothing_is_left(&mut several);
    }
}

/// Without numbers and without its lease: both must be back.
#[test]
fn without_a_number_and_without_the_lease() {
    for lease_first in [false, true] {
        let mut several = nodes(2, &Layout::default());
        let own = several.lock(0, "n", Mode::NL, NOTHING);
        let far = several.lock(1, "n", Mode::NL, NOTHING);
        leave_numbers(&mut several, 0, 0);
        several.convert(0, own, Mode::PR, NQ, None);
        several.convert(1, far, Mode::EX, NQ, None);
        let before = casts(&several);
        several.feed(0, Input::LeaseUntil(Instant(0)));
        several.settle();
        let back = Input::LeaseUntil(Instant(u64::MAX));
        if lease_first {
            several.feed(0, back);
            several.settle();
            assert_eq!(casts(&several), before);
            renew(&mut several);
        } else {
            renew(&mut several);
            assert_eq!(casts(&several), before);
            several.feed(0, back);
            several.settle();
        }
        granted_now(&several, 0, own, Mode::PR);
        ended(&several, 1, far, Status::Again);
        nothing_is_left(&mut several);
    }
}

/// A dead client's lock that waits for a number is nobody's afterwards; a persistent one falls back.
#[test]
fn a_dead_client_whose_call_waits_for_a_number() {
    let mut several = nodes(1, &Layout::default());
    let other = ClientId::new(7, 1);
    several.feed(0, Input::Client(other, Request::open(SPACE, 7)));
    several.lock(0, "n", Mode::NL, NOTHING);
    let call = Call { mode: Mode::CR as u8, flags: LockFlags::PERSISTENT, ..Call::default() };
    several.feed(0, Input::Client(other, Request::Lock(LockCall { call, name: b"n" })));
    leave_numbers(&mut several, 0, 0);
    let call = Call { mode: Mode::PR as u8, ..Call::default() };
    several.feed(0, Input::Client(other, Request::Lock(LockCall { call, name: b"n" })));
    let lock = several.all[0].node.dump(several.space(0), 0, 10).resources[0].granted[0].id;
    let call = Call { mode: Mode::PR as u8, flags: LockFlags::PERSISTENT, ..Call::default() };
    let convert = dlm_core::Convert { call, lock, value: None };
    several.feed(0, Input::Client(other, Request::Convert(convert)));
    several.feed(0, Input::ClientGone(other));
    several.settle();
    let info = several.all[0].node.lockspaces().remove(0);
    assert_eq!((info.locks, info.orphans), (2, 1));
    renew(&mut several);
    let tried = several.lock(0, "n", Mode::PW, NQ);
    granted_now(&several, 0, tried, Mode::PW);
    several.feed(0, Input::PurgeOrphans(several.space(0), 0));
    nothing_is_left(&mut several);
}

/// Who leaves the lockspace waits for a directory's answer (R9), and for nothing after it.
#[test]
fn a_leave_that_waits_for_a_number_ends_with_the_view() {
    let mut several = nodes(1, &Layout::default());
    leave_numbers(&mut several, 0, 0);
    several.lock(0, "new", Mode::EX, NOTHING);
    several.feed(0, Input::Client(client(), Request::Release { force: true }));
    several.settle();
    assert!(several.all[0].node.find_lockspace(SPACE.as_bytes()).is_some());
    several.decide(&[0], &[]);
    several.tell(0);
    assert!(several.all[0].node.find_lockspace(SPACE.as_bytes()).is_none(), "nothing follows");
}
