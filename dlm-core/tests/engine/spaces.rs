//! Lockspaces from creation to removal (semantics.md section 9; rows R26 and R27 as far as one node
//! shows them).

use dlm_core::{
    Access, Call, ClientId, Create, Errno, Input, LockCall, LockFlags, LockId, LockspaceId,
    LockspaceInfo, Mode, Open, Request, SpaceFlags, Status, Unlock,
};

use crate::driver::{Happened, World};
use crate::invariants;

const NAME: &str = "alpha";
const DONE: Option<Result<LockId, Errno>> = Some(Ok(LockId(0)));

fn create_with(world: &mut World, flags: SpaceFlags) -> (ClientId, Happened) {
    let client = world.new_client();
    let access = Access { uid: client.slot, gid: 7, mode: 0o600 };
    let create = Some(Create { flags, access });
    let open = Open { name: NAME.as_bytes(), pid: 100 + client.slot, create };
    let happened = world.ask(client, Request::Open(open));
    (client, happened)
}

fn create(world: &mut World) -> (ClientId, Happened) {
    create_with(world, SpaceFlags(0))
}

fn open(world: &mut World) -> (ClientId, Happened) {
    let client = world.new_client();
    let happened = world.ask(client, Request::open(NAME, 100 + client.slot));
    (client, happened)
}

fn release(world: &mut World, client: ClientId, force: bool) -> Happened {
    let happened = world.ask(client, Request::Release { force });
    if happened.reply_to(client).is_some() {
        world.forget_client(client);
    }
    happened
}

fn close(world: &mut World, client: ClientId) -> Happened {
    let happened = world.ask(client, Request::Close);
    assert_eq!(happened.reply_to(client), DONE, "a close is always answered at once");
    world.forget_client(client);
    happened
}

fn info(world: &World) -> Option<LockspaceInfo> {
    world.node.find_lockspace(NAME.as_bytes()).and_then(|id| world.node.lockspace(id))
}

fn id(world: &World) -> LockspaceId {
    world.node.find_lockspace(NAME.as_bytes()).expect("the lockspace exists")
}

fn lock(world: &mut World, client: ClientId, mode: Mode, flags: LockFlags) -> (LockId, Happened) {
    let call = Call { mode: mode as u8, flags, wants_blocking: true, ..Call::default() };
    let happened = world.ask(client, Request::Lock(LockCall { call, name: b"r" }));
    (happened.reply(client).expect("the request is accepted"), happened)
}

fn unlock(world: &mut World, client: ClientId, lock: LockId) -> Happened {
    let unlock = Unlock { lock, flags: LockFlags(0), user: None, value: None };
    world.ask(client, Request::Unlock(unlock))
}

#[test]
fn each_creation_needs_its_release() {
    let mut world = World::new();
    let (one, happened) = create(&mut world);
    assert_eq!(happened.reply(one), Ok(LockId(0)));
    assert_eq!(happened.joins.len(), 1);
    let (two, happened) = create(&mut world);
    assert_eq!(happened.reply(two), Ok(LockId(0)));
    assert!(happened.joins.is_empty(), "it is joined already");
    let (three, _) = open(&mut world);
    let facts = info(&world).expect("it exists");
    assert_eq!((facts.create_count, facts.handles), (2, 3), "an open is no creation");

    let happened = release(&mut world, one, false);
    assert_eq!(happened.reply(one), Ok(LockId(0)));
    assert!(happened.leaves.is_empty());
    assert_eq!(info(&world).map(|facts| (facts.create_count, facts.handles)), Some((1, 2)));
    close(&mut world, three);
    let happened = release(&mut world, two, false);
    assert_eq!(happened.reply(two), Ok(LockId(0)));
    assert_eq!(happened.leaves.len(), 1);
    assert_eq!(happened.leaves[0].1, NAME.as_bytes());
    assert!(info(&world).is_none() && world.node.lockspaces().is_empty());
}

#[test]
fn r26_what_is_refused_at_creation() {
    let mut world = World::new();
    let (stranger, happened) = open(&mut world);
    assert_eq!(happened.reply(stranger), Err(Errno::ENOENT));
    world.forget_client(stranger);
    let (first, happened) = create_with(&mut world, SpaceFlags::NEWEXCL);
    assert_eq!(happened.reply(first), Ok(LockId(0)), "NEWEXCL of a new name is good");
    let (second, happened) = create_with(&mut world, SpaceFlags::NEWEXCL);
    assert_eq!(happened.reply(second), Err(Errno::EEXIST));
    world.forget_client(second);
    let (third, happened) = create_with(&mut world, SpaceFlags::SOFTIRQ);
    assert_eq!(happened.reply(third), Err(Errno::EINVAL));
    world.forget_client(third);
    let facts = info(&world).expect("it exists");
    assert_eq!((facts.create_count, facts.handles), (1, 1), "refused ones count nothing");
    // The refused clients are none: their ids are free, their calls go nowhere.
    assert_eq!(world.ask(second, Request::Close).reply(second), Err(Errno::EBADF));
}

#[test]
fn r27_a_release_is_busy_while_locks_remain() {
    let mut world = World::new();
    let (one, _) = create(&mut world);
    let (two, _) = create(&mut world);
    let (holder, _) = open(&mut world);
    lock(&mut world, holder, Mode::PR, LockFlags(0));
    assert_eq!(release(&mut world, one, false).reply(one), Ok(LockId(0)));
    assert_eq!(release(&mut world, two, false).reply(two), Err(Errno::EBUSY));
    let facts = info(&world).expect("it stays");
    assert_eq!((facts.create_count, facts.handles, facts.locks), (1, 1, 1));
    close(&mut world, holder);
    let (three, _) = open(&mut world);
    let happened = release(&mut world, three, false);
    assert_eq!((happened.reply(three), happened.leaves.len()), (Ok(LockId(0)), 1));
}

#[test]
fn the_releasing_handles_own_locks_do_not_make_it_busy() {
    let mut world = World::new();
    let (one, _) = create(&mut world);
    lock(&mut world, one, Mode::EX, LockFlags(0));
    let happened = release(&mut world, one, false);
    assert_eq!((happened.reply(one), happened.leaves.len()), (Ok(LockId(0)), 1));
    assert!(happened.events.is_empty(), "nothing is delivered to a handle that ended");
}

#[test]
fn orphans_keep_a_lockspace_busy_and_go_with_a_forced_release() {
    let mut world = World::new();
    let (one, _) = create(&mut world);
    lock(&mut world, one, Mode::EX, LockFlags::PERSISTENT);
    assert_eq!(release(&mut world, one, false).reply(one), Err(Errno::EBUSY));
    assert_eq!(info(&world).map(|facts| (facts.orphans, facts.handles)), Some((1, 0)));
    let (two, _) = open(&mut world);
    let happened = release(&mut world, two, true);
    assert_eq!((happened.reply(two), happened.leaves.len()), (Ok(LockId(0)), 1));
    // A new lockspace of that name knows nothing of the old one.
    let (three, _) = create(&mut world);
    assert_eq!(info(&world).map(|facts| (facts.locks, facts.orphans)), Some((0, 0)));
    lock(&mut world, three, Mode::EX, LockFlags::NOQUEUE);
}

#[test]
fn the_first_creators_flags_and_access_stay() {
    let mut world = World::new();
    let flags = SpaceFlags::NODIR | SpaceFlags::NEWEXCL | SpaceFlags::TIMEWARN;
    let (one, _) = create_with(&mut world, flags);
    create_with(&mut world, SpaceFlags::FS);
    let facts = info(&world).expect("it exists");
    assert_eq!(facts.flags, SpaceFlags::NODIR);
    assert_eq!(facts.access, Access { uid: one.slot, gid: 7, mode: 0o600 });
    assert_eq!(facts.name, NAME.as_bytes());
}

#[test]
fn a_creation_is_answered_when_the_view_is_there() {
    let mut world = World::new();
    world.hold_views = true;
    let (one, happened) = create_with(&mut world, SpaceFlags::NEWEXCL);
    assert!(happened.replies.is_empty() && happened.joins.len() == 1, "{happened:?}");
    let lockspace = happened.joins[0].0;
    let (early, happened) = open(&mut world);
    assert_eq!(happened.reply(early), Err(Errno::ENOENT), "it is not there yet");
    world.forget_client(early);
    let (two, happened) = create(&mut world);
    assert!(happened.replies.is_empty() && happened.joins.is_empty(), "{happened:?}");
    let (three, happened) = create_with(&mut world, SpaceFlags::NEWEXCL);
    assert!(happened.replies.is_empty(), "{happened:?}");
    assert_eq!(info(&world).map(|facts| facts.view), Some(None));

    let happened = world.install_view(lockspace);
    let both = [(one, Ok(LockId(0))), (two, Ok(LockId(0))), (three, Err(Errno::EEXIST))];
    assert_eq!(happened.replies, both);
    world.forget_client(three);
    let facts = info(&world).expect("it is joined");
    assert_eq!((facts.create_count, facts.handles), (2, 2));
    assert!(facts.view.is_some() && !facts.leaving);
}

#[test]
fn calls_before_the_handle_is_open_are_refused() {
    let mut world = World::new();
    world.hold_views = true;
    let (one, happened) = create(&mut world);
    let lockspace = happened.joins[0].0;
    for request in [
        Request::Purge { node: 0, pid: 0 },
        Request::Lock(LockCall { call: Call::default(), name: b"r" }),
        Request::DeadlockCancel { lock: LockId(1), flags: LockFlags(0) },
    ] {
        assert_eq!(world.ask(one, request).reply(one), Err(Errno::EBADF));
    }
    assert_eq!(world.install_view(lockspace).reply(one), Ok(LockId(0)));
    lock(&mut world, one, Mode::EX, LockFlags(0));
}

#[test]
fn a_creator_that_dies_while_joining_is_answered_nothing() {
    let mut world = World::new();
    world.hold_views = true;
    let (one, happened) = create(&mut world);
    let lockspace = happened.joins[0].0;
    let (two, _) = create(&mut world);
    let happened = world.feed(Input::ClientGone(one));
    assert!(happened.replies.is_empty() && happened.leaves.is_empty(), "{happened:?}");
    world.forget_client(one);
    let happened = world.install_view(lockspace);
    assert_eq!(happened.replies, [(two, Ok(LockId(0)))]);
    assert_eq!(info(&world).map(|facts| facts.handles), Some(1));
    lock(&mut world, two, Mode::EX, LockFlags(0));
    // However creations are counted then, it can be removed in the end.
    world.hold_views = false;
    let mut last = two;
    while info(&world).is_some_and(|facts| facts.create_count > 1) {
        release(&mut world, last, false);
        (last, _) = open(&mut world);
    }
    assert_eq!(release(&mut world, last, true).leaves.len(), 1);
}

#[test]
fn a_release_waits_until_the_others_closed_while_their_locks_go_on() {
    let mut world = World::new();
    let (one, _) = create(&mut world);
    let (two, _) = open(&mut world);
    let (three, _) = open(&mut world);
    let happened = release(&mut world, one, true);
    assert!(happened.replies.is_empty() && happened.leaves.is_empty(), "{happened:?}");
    assert_eq!(info(&world).map(|facts| (facts.leaving, facts.handles)), Some((true, 2)));

    let (late, happened) = open(&mut world);
    assert_eq!(happened.reply(late), Err(Errno::ENOENT), "nobody opens it any more");
    world.forget_client(late);
    let (a, _) = lock(&mut world, two, Mode::EX, LockFlags(0));
    let (b, happened) = lock(&mut world, three, Mode::PR, LockFlags(0));
    assert_eq!(happened.events.len(), 1, "the holder is told");
    let happened = unlock(&mut world, two, a);
    let ended: Vec<_> =
        happened.completions().iter().map(|done| (done.lock, done.status)).collect();
    assert_eq!(ended, [(a, Status::Unlocked), (b, Status::Granted)]);
    invariants::check(&world.node, id(&world));

    assert!(close(&mut world, two).leaves.is_empty());
    let happened = world.feed(Input::ClientGone(three));
    assert_eq!(happened.replies, [(one, Ok(LockId(0)))]);
    assert_eq!(happened.leaves.len(), 1);
    world.forget_client(one);
    world.forget_client(three);
    assert!(info(&world).is_none());
}

#[test]
fn a_creation_during_a_removal_waits_and_starts_anew() {
    let mut world = World::new();
    let (one, _) = create(&mut world);
    let (holder, _) = open(&mut world);
    release(&mut world, one, true);
    let (two, happened) = create_with(&mut world, SpaceFlags::NEWEXCL);
    assert!(happened.replies.is_empty() && happened.joins.is_empty(), "{happened:?}");
    let (three, happened) = create(&mut world);
    assert!(happened.replies.is_empty(), "{happened:?}");
    lock(&mut world, holder, Mode::EX, LockFlags::PERSISTENT);

    let happened = close(&mut world, holder);
    assert_eq!(happened.leaves.len(), 1);
    assert_eq!(happened.joins.len(), 1, "the name is joined again");
    assert_eq!(happened.reply_to(one), DONE);
    assert_eq!(happened.reply_to(two), DONE, "its NEWEXCL found nothing");
    assert_eq!(happened.reply_to(three), DONE);
    let facts = info(&world).expect("it is new");
    assert_eq!((facts.create_count, facts.handles, facts.locks), (2, 2, 0));
    assert!(!facts.leaving);
}

#[test]
fn who_waits_for_a_removal_may_die_meanwhile() {
    let mut world = World::new();
    let (one, _) = create(&mut world);
    let (holder, _) = open(&mut world);
    release(&mut world, one, true);
    let (two, _) = create(&mut world);
    for waiting in [one, two] {
        let happened = world.feed(Input::ClientGone(waiting));
        assert!(happened.replies.is_empty() && happened.leaves.is_empty(), "{happened:?}");
        world.forget_client(waiting);
    }
    let happened = close(&mut world, holder);
    assert_eq!(happened.leaves.len(), 1, "the release was asked for all the same");
    assert_eq!(happened.replies, [(holder, Ok(LockId(0)))]);
    assert!(info(&world).is_none(), "nobody wants it any more");
}

#[test]
fn time_limits_end_with_their_lockspace() {
    let mut world = World::new();
    let (one, _) = create(&mut world);
    lock(&mut world, one, Mode::EX, LockFlags(0));
    let flags = LockFlags::TIMEOUT;
    let mode = Mode::EX as u8;
    let call = Call { mode, flags, timeout_cs: 100, ..Call::default() };
    let happened = world.ask(one, Request::Lock(LockCall { call, name: b"r" }));
    assert!(happened.reply(one).is_ok());
    assert_eq!(world.node.counters().timers, 1);
    assert_eq!(release(&mut world, one, true).leaves.len(), 1);
    assert_eq!(world.node.counters().timers, 0);
    assert!(world.wait_ms(5_000).events.is_empty());
    assert!(world.node.deadline().is_none());
}

#[test]
fn a_later_view_disturbs_nothing() {
    let mut world = World::new();
    let (one, _) = create(&mut world);
    let (a, _) = lock(&mut world, one, Mode::EX, LockFlags(0));
    let (b, _) = lock(&mut world, one, Mode::PR, LockFlags(0));
    let lockspace = id(&world);
    let happened = world.install_view(lockspace);
    assert!(happened.events.is_empty() && happened.replies.is_empty(), "{happened:?}");
    let happened = unlock(&mut world, one, a);
    let ended: Vec<_> =
        happened.completions().iter().map(|done| (done.lock, done.status)).collect();
    assert_eq!(ended, [(a, Status::Unlocked), (b, Status::Granted)]);
}

#[test]
fn an_unknown_or_ended_client_is_told_ebadf() {
    let mut world = World::new();
    let (one, _) = create(&mut world);
    let (two, _) = open(&mut world);
    close(&mut world, two);
    assert_eq!(world.ask(two, Request::Close).reply(two), Err(Errno::EBADF));
    let happened = world.feed(Input::ClientGone(two));
    assert!(happened.replies.is_empty() && happened.events.is_empty(), "{happened:?}");
    // The slot's next user is another client.
    let (three, _) = open(&mut world);
    assert_eq!((three.slot, three.generation > two.generation), (two.slot, true));
    assert_eq!(world.ask(two, Request::Close).reply(two), Err(Errno::EBADF));
    lock(&mut world, three, Mode::EX, LockFlags(0));
    assert_eq!(info(&world).map(|facts| (facts.handles, facts.locks)), Some((2, 1)));
    assert_eq!(release(&mut world, one, false).reply(one), Err(Errno::EBUSY));
}

#[test]
fn names_are_forgotten_with_their_last_lock() {
    let mut world = World::new();
    let (one, _) = create(&mut world);
    for round in 0..3u32 {
        let mut ids = Vec::new();
        for n in 0..1000u32 {
            let call = Call { mode: Mode::EX as u8, flags: LockFlags::VALBLK, ..Call::default() };
            let name = format!("name-{round}-{n}-long-enough-for-the-heap");
            let request = Request::Lock(LockCall { call, name: name.as_bytes() });
            ids.push(world.ask(one, request).reply(one).expect("granted"));
        }
        assert_eq!(info(&world).map(|facts| (facts.locks, facts.resources)), Some((1000, 1000)));
        for id in ids {
            unlock(&mut world, one, id);
        }
        assert_eq!(info(&world).map(|facts| (facts.locks, facts.resources)), Some((0, 0)));
    }
}
