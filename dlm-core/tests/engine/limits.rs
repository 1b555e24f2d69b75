//! Ceilings at N and N + 1, and lengths of names.

use dlm_core::{
    Call, ClientId, Errno, Input, Instant, Limits, LockCall, LockFlags, LockId, LockspaceId, Mode,
    Request, Unlock, View, ViewId,
};

use crate::driver::World;

fn ask_lock(world: &mut World, client: ClientId, name: &[u8]) -> Result<LockId, Errno> {
    let call = Call { mode: Mode::NL as u8, ..Call::default() };
    world.ask(client, Request::Lock(LockCall { call, name })).reply(client)
}

#[test]
fn a_client_may_own_so_many_locks_and_no_more() {
    const LOCKS_MAX: u32 = 5;
    let mut world = World::new();
    world.node.set_limits(Limits { locks_per_client: LOCKS_MAX, ..Limits::default() });
    let (one, other) = (world.open("limits", 1), world.open("limits", 2));
    let ids: Vec<_> = (0..LOCKS_MAX)
        .map(|n| ask_lock(&mut world, one, &[n as u8]).expect("below the limit"))
        .collect();
    assert_eq!(ask_lock(&mut world, one, b"one more"), Err(Errno::ENOMEM));
    ask_lock(&mut world, other, b"others have their own").expect("another client");
    // Room made is room again, and a refused request left nothing behind.
    let request = Unlock { lock: ids[0], flags: LockFlags(0), user: None, value: None };
    assert_eq!(world.ask(one, Request::Unlock(request)).reply(one), Ok(LockId(0)));
    ask_lock(&mut world, one, b"again").expect("one was given back");
    assert_eq!(ask_lock(&mut world, one, b"one more"), Err(Errno::ENOMEM));
    let lockspace = world.node.find_lockspace(b"limits").expect("it is open");
    let info = world.node.lockspace(lockspace).expect("it is open");
    assert_eq!(info.locks, u64::from(LOCKS_MAX) + 1);
}

#[test]
fn an_adoption_needs_room_as_a_request_does() {
    let mut world = World::new();
    world.node.set_limits(Limits { locks_per_client: 1, ..Limits::default() });
    let (dying, heir) = (world.open("limits", 1), world.open("limits", 2));
    let (mode, flags) = (Mode::EX as u8, LockFlags::PERSISTENT);
    let request = LockCall { call: Call { mode, flags, ..Call::default() }, name: b"r" };
    let orphan = world.ask(dying, Request::Lock(request)).reply(dying).expect("granted");
    world.feed(Input::ClientGone(dying));
    let own = ask_lock(&mut world, heir, b"own").expect("below the limit");
    let flags = LockFlags::ORPHAN;
    let adoption = LockCall { call: Call { mode, flags, ..Call::default() }, name: b"r" };
    let refused = world.ask(heir, Request::Lock(adoption)).reply(heir);
    assert_eq!(refused, Err(Errno::ENOMEM));
    let unlock = Unlock { lock: own, flags: LockFlags(0), user: None, value: None };
    assert!(world.ask(heir, Request::Unlock(unlock)).reply(heir).is_ok());
    assert_eq!(world.ask(heir, Request::Lock(adoption)).reply(heir), Ok(orphan));
}

#[test]
fn odd_inputs_and_numbers_do_nothing() {
    let mut world = World::new();
    let (stranger, nowhere) = (ClientId::new(77, 1), LockspaceId(77));
    let view = View { id: ViewId(9), members: vec![world.node.member()], unsafe_members: vec![] };
    for input in [
        Input::Tick,
        Input::ClientGone(stranger),
        Input::View(nowhere, view),
        Input::PurgeOrphans(nowhere, 0),
    ] {
        let happened = world.feed(input);
        assert!(happened.replies.is_empty() && happened.events.is_empty(), "{happened:?}");
    }
    // A limit beyond the end of time, and a clock that goes backwards.
    let client = world.open("limits", 1);
    let exclusive = Call { mode: Mode::EX as u8, ..Call::default() };
    let holder = LockCall { call: exclusive, name: b"r" };
    let holder = world.ask(client, Request::Lock(holder)).reply(client).expect("granted");
    let call = Call { flags: LockFlags::TIMEOUT, timeout_cs: u64::MAX, ..exclusive };
    let waiter = world.ask(client, Request::Lock(LockCall { call, name: b"r" }));
    assert!(waiter.reply(client).is_ok());
    assert!(world.wait_ms(1_000_000_000).events.is_empty());
    world.now = Instant(0);
    let unlock = Unlock { lock: holder, flags: LockFlags(0), user: None, value: None };
    let happened = world.ask(client, Request::Unlock(unlock));
    assert_eq!(happened.completions().len(), 2, "unlocked, and the waiter granted");
}

/// Requests that fail at once give their place back (BL-076).
#[test]
fn failed_tries_do_not_use_up_the_limit() {
    const LOCKS_MAX: u32 = 3;
    let mut world = World::new();
    world.node.set_limits(Limits { locks_per_client: LOCKS_MAX, ..Limits::default() });
    let (holder, tries) = (world.open("limits", 1), world.open("limits", 2));
    let exclusive = Call { mode: Mode::EX as u8, ..Call::default() };
    let request = |flags| LockCall { call: Call { flags, ..exclusive }, name: b"r" };
    world.ask(holder, Request::Lock(request(LockFlags(0)))).reply(holder).expect("granted");
    for _ in 0..10 * LOCKS_MAX {
        let happened = world.ask(tries, Request::Lock(request(LockFlags::NOQUEUE)));
        assert!(happened.reply(tries).is_ok(), "each try is accepted, and fails");
    }
    for n in 0..LOCKS_MAX {
        ask_lock(&mut world, tries, &[n as u8]).expect("the limit is unused");
    }
}

#[test]
fn a_node_may_have_so_many_lockspaces_and_no_more() {
    const LOCKSPACES_MAX: u32 = 3;
    let mut world = World::new();
    world.node.set_limits(Limits { lockspaces: LOCKSPACES_MAX, ..Limits::default() });
    let clients: Vec<_> = (0..LOCKSPACES_MAX).map(|n| world.open(&format!("ls{n}"), 1)).collect();
    let refused = world.new_client();
    let happened = world.ask(refused, Request::create("one-more", 1));
    assert_eq!(happened.reply(refused), Err(Errno::ENOMEM));
    assert!(happened.joins.is_empty());
    // Opening what exists is no creation; after a release there is room again.
    world.forget_client(refused);
    world.open("ls0", 2);
    let release = world.ask(clients[1], Request::Release { force: false });
    assert_eq!(release.reply(clients[1]), Ok(LockId(0)));
    world.forget_client(clients[1]);
    world.open("one-more", 1);
    assert_eq!(world.node.lockspaces().len(), LOCKSPACES_MAX as usize);
}

/// BL-105: resource names of 0 to 64 bytes work, longer ones are refused and never cut.
#[test]
fn bl_105_lengths_of_resource_names() {
    let mut world = World::new();
    let client = world.open("limits", 1);
    for length in [0, 1, 22, 23, 63, 64] {
        let name = vec![0xff; length];
        ask_lock(&mut world, client, &name).unwrap_or_else(|e| panic!("{length} bytes: {e:?}"));
        let lockspace = world.node.find_lockspace(b"limits").expect("it is open");
        let resource = world.node.resource(lockspace, &name).expect("it is there");
        assert_eq!(resource.name, name);
    }
    for length in [65, 255, 4096] {
        let name = vec![0xff; length];
        assert_eq!(ask_lock(&mut world, client, &name), Err(Errno::EINVAL), "{length} bytes");
    }
}

#[test]
fn bl_105_lengths_of_lockspace_names() {
    let mut world = World::new();
    for length in [1, 63, 64] {
        let name = "x".repeat(length);
        let client = world.open(&name, 1);
        assert_eq!(world.node.lockspaces().len(), 1, "{length} bytes");
        world.ask(client, Request::Release { force: false });
        world.forget_client(client);
    }
    for length in [0, 65, 255] {
        let client = world.new_client();
        let happened = world.ask(client, Request::create(&"x".repeat(length), 1));
        assert_eq!(happened.reply(client), Err(Errno::EINVAL), "{length} bytes");
        world.forget_client(client);
    }
    assert!(world.node.lockspaces().is_empty());
}
