//! The end of a client that owns more locks than are ended in one step (semantics.md 6.4): the others
//! of its node go on between the parts, and whatever depends on the end finds it whole.

use dlm_core::{
    Call, ClientId, Errno, Input, Instant, Limits, LockCall, LockFlags, LockId, LossReason, Mode,
    Open, Reason, Request,
};

use crate::driver::{Happened, World};

const NAME: &str = "endings";
const PART: u32 = 2;
const LOCKS: u8 = 5;

fn request(mode: Mode, flags: LockFlags, name: &[u8]) -> Request<'_> {
    Request::Lock(LockCall { call: Call { mode: mode as u8, flags, ..Call::default() }, name })
}

/// A node on which a client holds more locks than go at once, and another one is there.
fn crowded(flags: LockFlags) -> (World, ClientId, ClientId) {
    let mut world = World::new();
    world.node.set_limits(Limits { locks_ended_at_once: PART, ..Limits::default() });
    let (dying, other) = (world.open(NAME, 1), world.open(NAME, 2));
    for n in 0..LOCKS {
        world.ask(dying, request(Mode::EX, flags, &[n])).reply(dying).expect("granted");
    }
    (world, dying, other)
}

fn end(world: &mut World, client: ClientId) -> Happened {
    world.forget_client(client);
    world.feed(Input::ClientGone(client))
}

fn locks(world: &World) -> u64 {
    let space = world.node.find_lockspace(NAME.as_bytes()).expect("it is there");
    world.node.lockspace(space).expect("it is there").locks
}

fn works(world: &World) -> bool {
    matches!(world.node.deadline(), Some((at, Reason::Work)) if at == world.now)
}

#[test]
fn others_are_served_between_the_parts() {
    let (mut world, dying, other) = crowded(LockFlags(0));
    let last = request(Mode::EX, LockFlags(0), &[LOCKS - 1]);
    world.ask(other, last).reply(other).expect("it waits");
    assert!(end(&mut world, dying).events.is_empty());
    assert_eq!(locks(&world), u64::from(LOCKS) + 1 - u64::from(PART));
    assert!(works(&world));
    let free = world.ask(other, request(Mode::EX, LockFlags(0), b"free"));
    assert_eq!((free.reply(other).is_ok(), free.completions().len()), (true, 1));

    assert!(world.feed(Input::Tick).events.is_empty());
    assert!(works(&world), "one is left");
    assert_eq!(world.feed(Input::Tick).completions().len(), 1, "the waiting one has its turn");
    assert_eq!((locks(&world), works(&world)), (2, false));
    world.node.check();
}

#[test]
fn the_place_of_a_client_that_ends_is_free() {
    let (mut world, dying, _) = crowded(LockFlags(0));
    end(&mut world, dying);
    let next = world.open(NAME, 3);
    assert_eq!(next.slot, dying.slot);
    let id = world.ask(next, request(Mode::EX, LockFlags(0), b"mine")).reply(next);
    assert_eq!(world.ask(dying, Request::Close).reply(dying), Err(Errno::EBADF));
    while works(&world) {
        world.feed(Input::Tick);
    }
    assert_eq!(locks(&world), 1, "the newcomer keeps {id:?}");
    world.node.check();
    assert_eq!(world.ask(next, Request::Close).reply(next), Ok(LockId(0)));
    assert_eq!(locks(&world), 0);
}

#[test]
fn orphans_are_all_there_for_whoever_asks() {
    let (mut world, dying, other) = crowded(LockFlags::PERSISTENT);
    end(&mut world, dying);
    let adoption = request(Mode::EX, LockFlags::ORPHAN, &[LOCKS - 1]);
    assert!(world.ask(other, adoption).reply(other).is_ok());
    assert!(!works(&world));

    let (mut world, dying, other) = crowded(LockFlags::PERSISTENT);
    end(&mut world, dying);
    let purge = Request::Purge { node: 0, pid: 1 };
    assert!(world.ask(other, purge).reply(other).is_ok());
    assert_eq!((locks(&world), works(&world)), (0, false), "none became an orphan later");

    let (mut world, dying, _) = crowded(LockFlags::PERSISTENT);
    end(&mut world, dying);
    let space = world.node.find_lockspace(NAME.as_bytes()).expect("it is there");
    world.feed(Input::PurgeOrphans(space, 0));
    assert_eq!((locks(&world), works(&world)), (0, false));
}

#[test]
fn a_release_finds_no_locks_of_who_ended_before() {
    let (mut world, dying, other) = crowded(LockFlags(0));
    end(&mut world, dying);
    assert_eq!(locks(&world), u64::from(LOCKS - PART as u8));
    // `dying` created the lockspace; `other` opened it and takes that creation back.
    let happened = world.ask(other, Request::Release { force: false });
    assert_eq!((happened.reply(other), happened.leaves.len()), (Ok(LockId(0)), 1));
}

#[test]
fn a_close_is_answered_when_all_are_gone() {
    let (mut world, closing, _) = crowded(LockFlags(0));
    let mut happened = world.ask(closing, Request::Close);
    let mut parts = 1;
    while works(&world) {
        assert_eq!(happened.replies, [], "after {parts} parts");
        happened = world.feed(Input::Tick);
        parts += 1;
    }
    assert_eq!((happened.reply(closing), parts, locks(&world)), (Ok(LockId(0)), 3, 0));

    let (mut world, closing, _) = crowded(LockFlags(0));
    world.ask(closing, Request::Close);
    end(&mut world, closing);
    while works(&world) {
        assert_eq!(world.feed(Input::Tick).replies, [], "it died meanwhile");
    }
    assert_eq!(locks(&world), 0);
}

#[test]
fn a_lockspace_waits_for_the_last_part() {
    let (mut world, dying, other) = crowded(LockFlags(0));
    let left = world.ask(other, Request::Release { force: true });
    assert_eq!((left.replies.len(), left.leaves.len()), (0, 0), "a handle is open");
    assert_eq!(end(&mut world, dying).leaves, []);
    assert_eq!(world.feed(Input::Tick).leaves, []);
    let last = world.feed(Input::Tick);
    assert_eq!((last.leaves.len(), last.reply(other)), (1, Ok(LockId(0))));
    assert_eq!(world.node.deadline(), None::<(Instant, Reason)>);
}

#[test]
fn a_lockspace_that_is_lost_takes_the_rest_with_it() {
    let (mut world, dying, other) = crowded(LockFlags(0));
    let created = world.ask(other, Request::Close);
    assert!(created.reply(other).is_ok());
    world.forget_client(other);
    end(&mut world, dying);
    let space = world.node.find_lockspace(NAME.as_bytes()).expect("it is there");
    let happened = world.feed(Input::Reset(space, LossReason::Excluded));
    assert_eq!((happened.replies, works(&world)), (vec![], false), "nobody is there to be told");
    let again = world.new_client();
    let open = Open { name: NAME.as_bytes(), pid: 9, create: None };
    assert_eq!(world.ask(again, Request::Open(open)).reply(again), Err(Errno::ENOENT));
}
