//! What listings show: facts of locks, names, lockspaces and counters, in pages (inspect.rs).

use std::collections::BTreeMap;

use dlm_core::{
    Call, ClientId, Convert, Input, LockCall, LockFlags, LockId, LockState, LockspaceId, Mode,
    Request, Unlock,
};

use crate::driver::World;

const LOCKSPACE: &str = "listing";
const PID: u32 = 4711;

fn start() -> (World, ClientId, LockspaceId) {
    let mut world = World::new();
    let client = world.open(LOCKSPACE, PID);
    let lockspace = world.node.find_lockspace(LOCKSPACE.as_bytes()).expect("just created");
    (world, client, lockspace)
}

fn lock(world: &mut World, client: ClientId, name: &[u8], call: Call) -> LockId {
    let happened = world.ask(client, Request::Lock(LockCall { call, name }));
    happened.reply(client).expect("accepted")
}

fn call(mode: Mode) -> Call {
    Call { mode: mode as u8, wants_blocking: true, ..Call::default() }
}

#[test]
fn a_lock_shows_where_it_stands() {
    let (mut world, client, lockspace) = start();
    let holder = lock(&mut world, client, b"r", Call { xid: 77, ..call(Mode::PR) });
    let upgrader = lock(&mut world, client, b"r", call(Mode::PR));
    world.wait_ms(5);
    let (asked, mode) = (world.now, Mode::EX);
    let request = Convert { call: call(mode), lock: upgrader, value: None };
    assert!(world.ask(client, Request::Convert(request)).reply(client).is_ok());
    world.wait_ms(5);
    let flags = LockFlags::PERSISTENT;
    let waiter = lock(&mut world, client, b"r", Call { flags, ..call(Mode::PW) });

    let resource = world.node.resource(lockspace, b"r").expect("in use");
    assert_eq!((resource.name.as_slice(), resource.master), (&b"r"[..], None));
    let [held] = &resource.granted[..] else { panic!("{resource:?}") };
    let [converting] = &resource.converting[..] else { panic!("{resource:?}") };
    let [waiting] = &resource.waiting[..] else { panic!("{resource:?}") };
    assert_eq!((held.id, held.state, held.xid), (holder, LockState::Granted, 77));
    assert_eq!((held.granted, held.requested), (Some(Mode::PR), None));
    assert_eq!(held.told, Some((Mode::EX, asked)), "told of the strongest mode, and when");
    assert_eq!((converting.id, converting.state), (upgrader, LockState::Converting));
    assert_eq!((converting.granted, converting.requested), (Some(Mode::PR), Some(Mode::EX)));
    assert_eq!((about(converting.since), converting.told), (about(asked), None));
    assert_eq!((waiting.id, waiting.state), (waiter, LockState::Waiting));
    assert_eq!((waiting.granted, waiting.requested), (None, Some(Mode::PW)));
    assert_eq!((about(waiting.since), waiting.flags.has(flags)), (about(world.now), true));
    for shown in [held, converting, waiting] {
        assert_eq!((shown.client, shown.pid, shown.remote), (Some(client), PID, None));
    }
    assert!(held.token != waiting.token, "a grant has a number");
}

/// BL-013: an orphan shows that it is one, and whose it was.
#[test]
fn an_orphan_shows_its_dead_owner() {
    let (mut world, _, lockspace) = start();
    let dying = world.open(LOCKSPACE, 99);
    let orphan = Call { flags: LockFlags::PERSISTENT, ..call(Mode::EX) };
    let id = lock(&mut world, dying, b"r", orphan);
    world.feed(Input::ClientGone(dying));
    let resource = world.node.resource(lockspace, b"r").expect("in use");
    let [shown] = &resource.granted[..] else { panic!("{resource:?}") };
    assert_eq!((shown.id, shown.client, shown.pid), (id, None, 99));
    assert_eq!(world.node.lockspace(lockspace).map(|info| info.orphans), Some(1));
}

#[test]
fn what_does_not_exist_shows_nothing() {
    let (world, _, lockspace) = start();
    assert!(world.node.resource(lockspace, b"r").is_none());
    assert!(world.node.dump(lockspace, 0, 10).resources.is_empty());
    let stranger = LockspaceId(lockspace.0 + 1);
    assert!(world.node.lockspace(stranger).is_none());
    assert!(world.node.resource(stranger, b"r").is_none());
    assert_eq!(world.node.dump(stranger, 0, 10), dlm_core::DumpPage::default());
    assert_eq!(world.node.find_lockspace(b"nosuch"), None);
}

#[test]
fn lockspaces_are_listed_by_name() {
    let mut world = World::new();
    for name in ["b", "c", "a"] {
        world.open(name, PID);
    }
    let names: Vec<Vec<u8>> = world.node.lockspaces().into_iter().map(|info| info.name).collect();
    assert_eq!(names, [b"a", b"b", b"c"]);
}

/// Pages are read while locks come and go: a lock held all the time is in exactly one of them.
#[test]
fn pages_show_what_stays_exactly_once() {
    const HELD: u32 = 500;
    const PAGE_LOCKS: usize = 7;
    let (mut world, client, lockspace) = start();
    let held: Vec<LockId> = (0..HELD)
        .map(|n| lock(&mut world, client, format!("held{}", n / 2).as_bytes(), call(Mode::PR)))
        .collect();
    let mut passing: Vec<LockId> = Vec::new();
    let mut seen: BTreeMap<LockId, u32> = BTreeMap::new();
    let (mut from, mut pages) = (0, 0u32);
    loop {
        let page = world.node.dump(lockspace, from, PAGE_LOCKS);
        for resource in &page.resources {
            for shown in &resource.granted {
                *seen.entry(shown.id).or_default() += 1;
            }
        }
        pages += 1;
        for n in 0..5 {
            let name = format!("passing{pages}-{n}");
            passing.push(lock(&mut world, client, name.as_bytes(), call(Mode::EX)));
        }
        for lock in passing.drain(..passing.len() / 2) {
            let flags = LockFlags(0);
            let request = Unlock { lock, flags, user: None, value: None };
            assert!(world.ask(client, Request::Unlock(request)).reply(client).is_ok());
        }
        match page.next {
            Some(next) => from = next,
            None => break,
        }
    }
    assert!(pages > HELD / PAGE_LOCKS as u32 / 2, "{pages} pages");
    assert!(held.iter().all(|lock| seen.get(lock) == Some(&1)), "each exactly once");
}

#[test]
fn counters_count() {
    let (mut world, client, _) = start();
    let before = world.node.counters();
    let holder = lock(&mut world, client, b"r", call(Mode::EX));
    let limit = Call { flags: LockFlags::TIMEOUT, timeout_cs: 100, ..call(Mode::PR) };
    lock(&mut world, client, b"r", limit);
    let refused = LockCall { call: Call { mode: 9, ..call(Mode::EX) }, name: b"r" };
    assert!(world.ask(client, Request::Lock(refused)).reply(client).is_err());
    let after = world.node.counters();
    assert_eq!(after.steps - before.steps, 3);
    assert_eq!(after.operations - before.operations, 2);
    assert_eq!(after.refusals - before.refusals, 1);
    assert_eq!(after.grants - before.grants, 1);
    assert_eq!(after.waits - before.waits, 1);
    assert_eq!(after.blocking - before.blocking, 1);
    assert_eq!(after.timers, 1);
    let request = Unlock { lock: holder, flags: LockFlags(0), user: None, value: None };
    world.ask(client, Request::Unlock(request));
    let end = world.node.counters();
    assert_eq!(
        (end.grants - after.grants, end.operations - after.operations, end.timers),
        (1, 1, 0)
    );
}

/// Ages in listings are kept in steps of 2^24 ns.
fn about(at: dlm_core::Instant) -> u64 {
    at.0 >> 24
}
