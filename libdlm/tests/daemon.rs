//! The Rust interface against a real daemon.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::time::{Duration, Instant};

use dlm_client::{
    Completion, Errno, Error, LockEvent, LockFlags, Lockspace, LostReason, Mode, Opening, Wanted,
};
use dlm_net::testing::{DaemonProcess, HANG_GUARD, program};

fn daemon() -> DaemonProcess {
    DaemonProcess::start(&program("dlmd"))
}

fn create(daemon: &DaemonProcess) -> Lockspace {
    Opening::create(0o600).socket(daemon.socket()).open("test").unwrap()
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + HANG_GUARD;
    while !is_so() {
        assert!(Instant::now() < end, "never came true: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn guards_hold_and_let_go() {
    let daemon = daemon();
    let (space, other) = (create(&daemon), create(&daemon));
    let guard = space.lock(b"n", Mode::EX, &Wanted::new()).unwrap();
    assert!(other.try_lock(b"n", Mode::CR).unwrap().is_none());
    assert!(other.try_lock(b"m", Mode::EX).unwrap().is_some());
    drop(guard);
    let mut mine = other.lock(b"n", Mode::EX, &Wanted::new()).unwrap();
    let first = mine.token();
    mine.convert(Mode::PR, &Wanted::new()).unwrap();
    let shared = space.lock(b"n", Mode::PR, &Wanted::new()).unwrap();
    assert!(shared.token() > first, "tokens of one name grow");
    assert_eq!(shared.completion().granted, Some(Mode::PR));
    mine.unlock().unwrap();
    let kept = shared.keep();
    assert!(other.try_lock(b"n", Mode::EX).unwrap().is_none(), "no guard, and still held");
    space.unlock_wait(kept, None).unwrap();
    assert_eq!(space.unlock_wait(kept, None), Err(Error::Refused(Errno::ENOENT)));
    assert!(other.try_lock(b"n", Mode::EX).unwrap().is_some());
}

#[test]
fn values_go_from_writer_to_reader() {
    let daemon = daemon();
    let (writer, reader) = (create(&daemon), create(&daemon));
    let mut written = [0; 32];
    written[..5].copy_from_slice(b"hello");
    let nothing = Wanted::new().value([0; 32]);
    let mut lock = writer.lock(b"n", Mode::EX, &nothing).unwrap();
    lock.convert(Mode::NL, &Wanted::new().value(written)).unwrap();
    let seen = reader.lock(b"n", Mode::PR, &nothing).unwrap();
    assert_eq!(seen.completion().value, Some(written));
    let lock = reader.convert_wait(seen.keep(), Mode::EX, &nothing).unwrap().lock;
    written[0] = b'H';
    reader.unlock_wait(lock, Some(&written)).unwrap();
    lock_is(&writer, &written);
}

fn lock_is(space: &Lockspace, value: &[u8; 32]) {
    let wanted = Wanted::new().value([0; 32]);
    let seen = space.lock(b"n", Mode::PR, &wanted).unwrap();
    assert_eq!(seen.completion().value.as_ref(), Some(value));
}

#[test]
fn time_limits_end_waits_and_leave_nothing() {
    let daemon = daemon();
    let (space, other) = (create(&daemon), create(&daemon));
    let guard = space.lock(b"n", Mode::EX, &Wanted::new()).unwrap();
    let limited = Wanted::new().timeout(Duration::from_millis(20));
    assert_eq!(other.lock(b"n", Mode::PR, &limited).map(drop), Err(Error::TimedOut));
    let mut null = other.lock(b"n", Mode::NL, &Wanted::new()).unwrap();
    assert_eq!(null.convert(Mode::EX, &limited), Err(Error::TimedOut));
    drop(guard);
    until("the name is free", || space.try_lock(b"n", Mode::EX).unwrap().is_some());
    null.convert(Mode::EX, &limited).unwrap();
}

#[test]
fn callbacks_come_where_they_are_dispatched() {
    let daemon = daemon();
    let (space, other) = (create(&daemon), create(&daemon));
    let events = Arc::new(Mutex::new(Vec::new()));
    let told = Arc::clone(&events);
    let here = std::thread::current().id();
    let wanted = Wanted::new().events(move |event| {
        assert_eq!(std::thread::current().id(), here);
        told.lock().unwrap().push(event);
    });
    let lock = space.request(b"n", Mode::PR, &wanted).unwrap();
    let waiting = std::thread::spawn(move || other.lock(b"n", Mode::EX, &Wanted::new()).map(drop));
    until("a blocking callback", || {
        space.dispatch().unwrap();
        events.lock().unwrap().len() == 2
    });
    let seen = events.lock().unwrap().clone();
    let LockEvent::Completed(granted) = seen[0] else { panic!("{seen:?}") };
    assert_eq!((granted.status, granted.granted), (0, Some(Mode::PR)));
    assert_eq!(seen[1], LockEvent::Blocking { lock, mode: Mode::EX });
    space.unlock_wait(lock, None).unwrap();
    waiting.join().unwrap().unwrap();
}

#[test]
fn a_callback_may_wait_for_what_another_callback_gives() {
    let daemon = daemon();
    let (space, other) = (create(&daemon), create(&daemon));
    let (inner, done) = (space.clone(), Arc::new(AtomicBool::new(false)));
    space.spawn_dispatcher().unwrap();
    let giver = space.clone();
    // Held here; given back by its own blocking callback, on the dispatching thread.
    let given = Wanted::new().events(move |event| {
        if let LockEvent::Blocking { lock, .. } = event {
            giver.unlock_wait(lock, None).unwrap();
        }
    });
    space.lock_wait(b"given", Mode::EX, &given).unwrap();
    let finished = Arc::clone(&done);
    // Waits, inside a callback on that thread, for the name above.
    let taker = Wanted::new().events(move |event| {
        if matches!(event, LockEvent::Completed(Completion { status: 0, .. })) {
            inner.lock(b"given", Mode::EX, &Wanted::new()).unwrap().unlock().unwrap();
            finished.store(true, Ordering::Release);
        }
    });
    space.request(b"first", Mode::EX, &taker).unwrap();
    until("the waiting callback ends", || done.load(Ordering::Acquire));
    assert_eq!(space.spawn_dispatcher(), Err(Error::System(libc::EEXIST)));
    drop(other);
    space.close();
}

#[test]
fn many_threads_share_one_handle() {
    const THREADS: usize = 8;
    const ROUNDS: usize = 200;
    let daemon = daemon();
    let space = create(&daemon);
    space.spawn_dispatcher().unwrap();
    let inside: Arc<[AtomicU32; 3]> = Arc::default();
    let threads: Vec<_> = (0..THREADS)
        .map(|thread| {
            let (space, inside) = (space.clone(), Arc::clone(&inside));
            std::thread::spawn(move || {
                for round in 0..ROUNDS {
                    let which = (thread + round) % 3;
                    let name = [b'a' + which as u8];
                    let guard = space.lock(&name, Mode::EX, &Wanted::new()).unwrap();
                    assert_eq!(inside[which].fetch_add(1, Ordering::SeqCst), 0, "one holder");
                    inside[which].fetch_sub(1, Ordering::SeqCst);
                    if round % 2 == 0 { guard.unlock().unwrap() } else { drop(guard) }
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

#[test]
fn a_pipeline_keeps_many_in_flight() {
    const LOCKS: u64 = 5000;
    let daemon = daemon();
    let mut pipeline = create(&daemon).pipeline().unwrap();
    let names: Vec<_> = (0..LOCKS).map(|number| number.to_be_bytes()).collect();
    let names = names.iter().map(<[u8; 8]>::as_slice);
    pipeline.lock_many(names, Mode::EX, &Wanted::new(), 0).unwrap();
    let (mut events, mut granted, mut gone) = (Vec::new(), 0, 0);
    while gone < LOCKS {
        assert!(pipeline.wait(&mut events, Some(HANG_GUARD)).unwrap() > 0, "nothing comes");
        for tagged in std::mem::take(&mut events) {
            let LockEvent::Completed(completion) = tagged.event else { panic!("{tagged:?}") };
            if completion.granted.is_some() {
                assert_eq!(tagged.key, granted, "in order");
                granted += 1;
                pipeline.unlock(completion.lock, None, LOCKS + tagged.key).unwrap();
            } else {
                assert_eq!((completion.status, tagged.key), (dlm_client::EUNLOCK, LOCKS + gone));
                gone += 1;
            }
        }
    }
    assert_eq!(pipeline.poll(&mut events), Ok(0));
    // A refusal comes in the stream, and a waiting call beside it works as ever.
    let twice = pipeline.space().lock_wait(b"n", Mode::EX, &Wanted::new()).unwrap().lock;
    let quecvt = Wanted::new().flags(LockFlags::QUECVT);
    pipeline.lock(b"m", Mode::PR, &quecvt, 77).unwrap();
    assert_eq!(pipeline.wait(&mut events, Some(HANG_GUARD)), Ok(1));
    assert_eq!(events[0].key, 77);
    assert!(matches!(
        events[0].event,
        LockEvent::Refused { error: Error::Refused(Errno::EINVAL), .. }
    ));
    pipeline.space().unlock_wait(twice, None).unwrap();
}

#[test]
fn lockspaces_are_counted_and_errors_told_apart() {
    let daemon = daemon();
    let existing = Opening::existing().socket(daemon.socket());
    assert_eq!(existing.open("test").map(drop), Err(Error::Refused(Errno::ENOENT)));
    let (first, second) = (create(&daemon), create(&daemon));
    let exclusive = Opening::create(0o600).flags(8).socket(daemon.socket());
    assert_eq!(exclusive.open("test").map(drop), Err(Error::Refused(Errno::EEXIST)));
    assert_eq!(existing.open("").map(drop).unwrap_err().errno(), libc::EINVAL);
    first.set_label("a label").unwrap();
    assert_eq!(first.set_label(&"x".repeat(65)).unwrap_err().errno(), libc::EINVAL);
    let other = existing.open("test").unwrap();
    other.lock(b"n", Mode::EX, &Wanted::new()).unwrap().keep();
    first.release(false).unwrap();
    assert_eq!(second.release(false), Err(Error::Refused(Errno::EBUSY)), "a lock remains");
    drop(other);
    existing.open("test").unwrap().release(true).unwrap();
    assert_eq!(existing.open("test").map(drop), Err(Error::Refused(Errno::ENOENT)));
}

#[test]
fn orphans_are_adopted() {
    let daemon = daemon();
    let (space, other) = (create(&daemon), create(&daemon));
    let persistent = Wanted::new().flags(LockFlags::PERSISTENT);
    other.lock(b"n", Mode::EX, &persistent).unwrap().keep();
    drop(other);
    let adopt = Wanted::new().flags(LockFlags::PERSISTENT | LockFlags::ORPHAN);
    assert_eq!(space.lock(b"n", Mode::PR, &adopt).map(drop), Err(Error::Refused(Errno::EAGAIN)));
    assert_eq!(space.lock(b"m", Mode::EX, &adopt).map(drop), Err(Error::Refused(Errno::ENOENT)));
    let mut adopted = space.lock(b"n", Mode::EX, &adopt).unwrap();
    adopted.convert(Mode::PR, &Wanted::new()).unwrap();
    adopted.unlock().unwrap();
    assert!(space.try_lock(b"n", Mode::EX).unwrap().is_some());
}

#[test]
fn a_killed_daemon_is_a_loss() {
    let mut daemon = daemon();
    let space = create(&daemon);
    let losses = Arc::new(Mutex::new(Vec::new()));
    let told = Arc::clone(&losses);
    space.on_loss(move |reason| told.lock().unwrap().push(reason));
    space.spawn_dispatcher().unwrap();
    let held = space.lock(b"n", Mode::EX, &Wanted::new()).unwrap();
    let waiting = space.clone();
    let waiting =
        std::thread::spawn(move || waiting.lock(b"n", Mode::EX, &Wanted::new()).map(drop));
    assert_eq!(space.lost(), None);
    daemon.kill();
    let lost = Error::Lost(LostReason::DaemonGone);
    assert_eq!(waiting.join().unwrap(), Err(lost));
    until("the callback", || !losses.lock().unwrap().is_empty());
    assert_eq!(*losses.lock().unwrap(), [LostReason::DaemonGone]);
    assert_eq!(space.lost(), Some(LostReason::DaemonGone));
    assert_eq!(space.lock(b"m", Mode::EX, &Wanted::new()).map(drop), Err(lost));
    drop(held);
    assert_eq!(space.release(false), Err(lost));
}

#[test]
fn a_forked_child_is_refused_and_harms_nothing() {
    let daemon = daemon();
    let (space, other) = (create(&daemon), create(&daemon));
    let guard = space.lock(b"n", Mode::EX, &Wanted::new()).unwrap();
    let (asked, lock) = (space.clone(), guard.lock());
    // SAFETY: the child calls only what is tested, and ends by `_exit`.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let refused = asked.unlock_wait(lock, None) == Err(Error::NotOurs)
            && asked.lock_wait(b"m", Mode::EX, &Wanted::new()).is_err()
            && asked.dispatch() == Err(Error::NotOurs)
            && asked.lost().is_none();
        drop((guard, asked, space));
        // SAFETY: ends this process without running anything of the parent's.
        unsafe { libc::_exit(if refused { 0 } else { 1 }) }
    }
    let mut status = 0;
    // SAFETY: our own child; `status` lives across the call.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0, "refused in the child");
    assert!(other.try_lock(b"n", Mode::CR).unwrap().is_none(), "still held by the parent");
    guard.unlock().unwrap();
    assert!(other.try_lock(b"n", Mode::EX).unwrap().is_some());
}

#[test]
fn first_uses_of_a_handle_by_many_threads() {
    let daemon = daemon();
    let space = create(&daemon);
    let barrier = Arc::new(Barrier::new(16));
    let threads: Vec<_> = (0..16u8)
        .map(|number| {
            let (space, barrier) = (space.clone(), Arc::clone(&barrier));
            std::thread::spawn(move || {
                barrier.wait();
                space.descriptor().unwrap();
                space.lock(&[number], Mode::EX, &Wanted::new()).map(drop)
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap().unwrap();
    }
}
