//! Lock ids: never 0, never of another lock, not soon used again (D1).

use std::collections::BTreeSet;

use dlm_core::{
    Call, ClientId, Convert, Errno, LockCall, LockFlags, LockId, Mode, Request, Status, Unlock,
};

use crate::driver::World;

/// Locks made and given up while an old id is kept.
const PAIRS: usize = 1_000_000;
/// How many of the latest ids a new one must differ from.
const RECENT: usize = 10_000;

fn lock(world: &mut World, client: ClientId, name: &[u8], mode: Mode) -> LockId {
    let call = Call { mode: mode as u8, ..Call::default() };
    let happened = world.ask(client, Request::Lock(LockCall { call, name }));
    happened.reply(client).expect("the request is accepted")
}

fn unlock(world: &mut World, client: ClientId, lock: LockId) -> Result<LockId, Errno> {
    let request = Unlock { lock, flags: LockFlags(0), user: None, value: None };
    world.ask(client, Request::Unlock(request)).reply(client)
}

fn convert(world: &mut World, client: ClientId, lock: LockId, mode: Mode) -> Result<LockId, Errno> {
    let call = Call { mode: mode as u8, ..Call::default() };
    world.ask(client, Request::Convert(Convert { call, lock, value: None })).reply(client)
}

#[test]
fn d1_a_stale_id_never_names_another_lock() {
    let mut world = World::new();
    let client = world.open("ids", 1);
    let kept = lock(&mut world, client, b"kept", Mode::PR);
    let stale = lock(&mut world, client, b"r", Mode::EX);
    assert_eq!(unlock(&mut world, client, stale), Ok(LockId(0)));
    let (mut recent, mut order) = (BTreeSet::new(), std::collections::VecDeque::new());
    for pair in 0..PAIRS {
        let id = lock(&mut world, client, b"r", Mode::EX);
        assert!(id != LockId(0) && id != stale && id != kept, "pair {pair}: {id:?}");
        assert!(recent.insert(id), "pair {pair}: {id:?} came again too soon");
        order.push_back(id);
        if order.len() > RECENT {
            recent.remove(&order.pop_front().expect("it is longer than that"));
        }
        // While the new lock lives, wherever it lies.
        assert_eq!(convert(&mut world, client, stale, Mode::NL), Err(Errno::ENOENT));
        assert_eq!(unlock(&mut world, client, id), Ok(LockId(0)));
    }
    assert_eq!(convert(&mut world, client, kept, Mode::NL), Ok(LockId(0)), "the kept lock lives");
}

/// The same with every place in use that was ever used.
#[test]
fn d1_a_stale_id_is_unknown_among_many_locks() {
    let mut world = World::new();
    let client = world.open("ids", 1);
    let stale = lock(&mut world, client, b"r", Mode::EX);
    assert_eq!(unlock(&mut world, client, stale), Ok(LockId(0)));
    for n in 0..40_000u32 {
        lock(&mut world, client, &n.to_le_bytes(), Mode::EX);
    }
    assert_eq!(convert(&mut world, client, stale, Mode::NL), Err(Errno::ENOENT));
    assert_eq!(unlock(&mut world, client, stale), Err(Errno::ENOENT));
}

#[test]
fn ids_of_many_held_locks_differ() {
    let mut world = World::new();
    let client = world.open("ids", 1);
    let mut ids = BTreeSet::new();
    for n in 0..100_000u32 {
        let id = lock(&mut world, client, &n.to_le_bytes(), Mode::EX);
        assert!(ids.insert(id), "{id:?} twice");
    }
    for id in ids {
        assert_eq!(unlock(&mut world, client, id), Ok(LockId(0)));
    }
    let lockspace = world.node.find_lockspace(b"ids").expect("it is open");
    let info = world.node.lockspace(lockspace).expect("it is open");
    assert_eq!((info.locks, info.resources), (0, 0));
}

/// BL-070: an id of another lockspace is unknown here, even if the same number means a lock there.
#[test]
fn ids_belong_to_their_lockspace() {
    let mut world = World::new();
    let here = world.open("here", 1);
    let there = world.open("there", 1);
    let id = lock(&mut world, there, b"r", Mode::EX);
    assert_eq!(unlock(&mut world, here, id), Err(Errno::ENOENT));
    let other = lock(&mut world, here, b"r", Mode::EX);
    if other != id {
        assert_eq!(unlock(&mut world, there, other), Err(Errno::ENOENT));
    }
    assert_eq!(unlock(&mut world, there, id), Ok(LockId(0)));
}

/// The word for a lock goes with its calls: a convert replaces it, an unlock only if it brings one.
#[test]
fn the_users_word_is_that_of_the_last_accepted_call() {
    let mut world = World::new();
    let client = world.open("ids", 1);
    let call = Call { mode: Mode::EX as u8, user: 7, wants_blocking: true, ..Call::default() };
    let happened = world.ask(client, Request::Lock(LockCall { call, name: b"r" }));
    let id = happened.reply(client).expect("accepted");
    assert_eq!(happened.completions()[0].user, 7);

    let call = Call { mode: Mode::PR as u8, user: 8, wants_blocking: true, ..Call::default() };
    let happened = world.ask(client, Request::Convert(Convert { call, lock: id, value: None }));
    assert_eq!(happened.completions()[0].user, 8);

    let request = Unlock { lock: id, flags: LockFlags(0), user: Some(9), value: None };
    let happened = world.ask(client, Request::Unlock(request));
    let done = happened.completions();
    assert_eq!((done[0].user, done[0].status, done[0].granted), (9, Status::Unlocked, None));
}

/// Tokens of one name only grow, over its locks, conversions and forgetting (Output::Complete).
#[test]
fn tokens_of_a_name_only_grow() {
    let mut world = World::new();
    let client = world.open("ids", 1);
    let mut last = None;
    for round in 0..100 {
        let call = Call { mode: Mode::EX as u8, ..Call::default() };
        let happened = world.ask(client, Request::Lock(LockCall { call, name: b"r" }));
        let id = happened.reply(client).expect("accepted");
        let mut tokens = vec![happened.completions()[0].token];
        for mode in [Mode::PR, Mode::EX] {
            let call = Call { mode: mode as u8, ..Call::default() };
            let request = Request::Convert(Convert { call, lock: id, value: None });
            tokens.push(world.ask(client, request).completions()[0].token);
        }
        for token in tokens {
            assert!(Some(token) > last, "round {round}: {token:?} after {last:?}");
            last = Some(token);
        }
        assert_eq!(unlock(&mut world, client, id), Ok(LockId(0)));
        world.wait_ms(20_000 * (round % 2));
    }
}
