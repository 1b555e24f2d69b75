//! A node without its lease grants, completes and delivers nothing, and makes up for it when the
//! lease is back (membership.md, Lease; recovery.md R20).

use dlm_core::{
    Call, ClientId, Errno, Input, Instant, LockCall, LockFlags, LockId, Mode, Request, Status,
    Unlock,
};

use crate::driver::World;

fn lock(name: &[u8], mode: Mode, flags: LockFlags, limit: u64) -> Request<'_> {
    let call = Call { mode: mode as u8, flags, timeout_cs: limit, ..Call::default() };
    Request::Lock(LockCall { call, name })
}

/// Two clients; the first holds a name, the second waits for it.
fn held_and_wanted(limit: u64) -> (World, ClientId, ClientId, LockId) {
    let mut world = World::new();
    let (holder, waiter) = (world.open("lease", 1), world.open("lease", 2));
    world.feed(Input::LeaseUntil(Instant(world.now.0 + 1_000_000_000)));
    let held = world.ask(holder, lock(b"n", Mode::EX, LockFlags(0), 0)).reply(holder);
    let flags = if limit > 0 { LockFlags::TIMEOUT } else { LockFlags(0) };
    let waits = world.ask(waiter, lock(b"n", Mode::EX, flags, limit));
    assert!(waits.reply(waiter).is_ok() && waits.completions().is_empty());
    (world, holder, waiter, held.expect("a free name is granted"))
}

#[test]
fn what_a_dead_client_sets_free_is_granted_when_the_lease_is_back() {
    let (mut world, holder, waiter, _) = held_and_wanted(0);
    world.wait_ms(1000);
    assert!(world.node.is_frozen(world.now));
    assert!(world.feed(Input::ClientGone(holder)).events.is_empty());
    assert!(world.feed(Input::Tick).events.is_empty());
    world.node.check();
    let back = world.feed(Input::LeaseUntil(Instant(world.now.0 + 1)));
    let granted = back.completions();
    assert_eq!(granted.len(), 1, "one grant is owed: {granted:?}");
    assert_eq!((granted[0].status, granted[0].granted), (Status::Granted, Some(Mode::EX)));
    assert!(back.replies.is_empty());
    world.node.check();
    let _ = waiter;
}

#[test]
fn calls_on_locks_are_refused_and_change_nothing() {
    let (mut world, holder, waiter, held) = held_and_wanted(0);
    world.feed(Input::LeaseUntil(Instant(0)));
    let unlock = Unlock { lock: held, flags: LockFlags(0), user: None, value: None };
    let refused = Err(Errno::EUNATCH);
    assert_eq!(world.ask(holder, Request::Unlock(unlock)).reply(holder), refused);
    let free = lock(b"free", Mode::EX, LockFlags(0), 0);
    assert_eq!(world.ask(waiter, free).reply(waiter), refused);
    assert_eq!(world.node.lockspaces()[0].locks, 2);
    // Giving up and opening work, and what they set free is owed.
    let third = world.open("lease", 3);
    assert_eq!(world.ask(third, Request::Close).reply(third), Ok(LockId(0)));
    assert_eq!(world.ask(holder, Request::Close).reply(holder), Ok(LockId(0)));
    let back = world.feed(Input::LeaseUntil(Instant(u64::MAX)));
    assert_eq!(back.completions().len(), 1);
    assert_eq!(world.node.lease_until(), None, "the last moment of all is no limit");
}

#[test]
fn a_time_limit_that_ends_meanwhile_is_reported_afterwards() {
    let (mut world, _, waiter, _) = held_and_wanted(50); // 500 ms
    world.feed(Input::LeaseUntil(Instant(world.now.0 + 1)));
    assert!(world.wait_ms(2000).events.is_empty());
    assert_eq!(world.node.deadline(), None, "a frozen node waits for its lease only");
    world.feed(Input::LeaseUntil(Instant(world.now.0 + 10_000_000_000)));
    let late = world.wait_ms(1);
    let ended = late.completions();
    assert_eq!((ended.len(), ended[0].status), (1, Status::TimedOut));
    let _ = waiter;
}

#[test]
fn a_node_that_was_never_given_a_lease_needs_none() {
    let mut world = World::new();
    let client = world.open("lease", 1);
    world.wait_ms(1 << 40);
    assert!(!world.node.is_frozen(world.now));
    assert!(world.ask(client, lock(b"n", Mode::EX, LockFlags(0), 0)).reply(client).is_ok());
}
