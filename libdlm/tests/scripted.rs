//! The client against a daemon that does what each test says: what a real one rarely does, or only
//! in one moment out of thousands.

mod script;

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use dlm_client::{Errno, Error, LockEvent, LockFlags, LostReason, Mode, Opening, Wanted};
use dlm_ipc::layout::{Event, Notice, hint, op};
use dlm_net::testing::TempDir;
use script::{Stage, blocking, completion, readable, wait_for, wait_readable};

/// Counts what its callback was told.
#[derive(Clone, Default)]
struct Told(Arc<Mutex<Vec<LockEvent>>>);

impl Told {
    fn wanted(&self) -> Wanted {
        let told = self.clone();
        Wanted::new().events(move |event| told.0.lock().unwrap().push(event))
    }

    fn statuses(&self) -> Vec<i32> {
        let status = |event: &LockEvent| match event {
            LockEvent::Completed(completion) => completion.status,
            _ => -1,
        };
        self.0.lock().unwrap().iter().map(status).collect()
    }
}

#[test]
fn nobody_there_is_one_error() {
    let directory = TempDir::new("nobody");
    let socket = script::nobody(directory.path());
    let opened = Opening::existing().socket(&socket).open("x").map(drop);
    assert_eq!(opened, Err(Error::NotRunning));
    assert_eq!(Error::NotRunning.errno(), libc::ENOTCONN);
}

#[test]
fn a_request_says_what_was_asked() {
    let (space, mut peer, _stage) = Stage::new("asked").open();
    let daemon = std::thread::spawn(move || {
        let submission = peer.grant(41);
        assert_eq!((submission.op, submission.mode, submission.name_len), (op::LOCK, 5, 4));
        assert_eq!(&submission.payload[..4], b"name");
        assert_eq!(submission.flags, LockFlags::HEADQUE.0);
        assert_eq!(submission.hints, hint::REPLY);
        assert_eq!(peer.unlock().lkid, 41);
        peer.close();
    });
    let wanted = Wanted::new().flags(LockFlags::HEADQUE);
    let completion = space.lock_wait(b"name", Mode::EX, &wanted).unwrap();
    assert_eq!((completion.lock.id, completion.granted, completion.token), (41, Some(Mode::EX), 9));
    space.unlock_wait(completion.lock, None).unwrap();
    space.close();
    daemon.join().unwrap();
}

#[test]
fn a_refusal_leaves_nothing() {
    let (space, mut peer, _stage) = Stage::new("refused").open();
    let daemon = std::thread::spawn(move || {
        let submission = peer.next();
        peer.reply(&submission, Errno::EINVAL.0, 0);
        (peer, submission)
    });
    let told = Told::default();
    let refused = space.request(b"name", Mode::EX, &told.wanted());
    assert_eq!(refused, Err(Error::Refused(Errno::EINVAL)));
    let (mut peer, submission) = daemon.join().unwrap();
    peer.tell(&completion(&submission, 5, 0, Some(5)));
    space.dispatch().unwrap();
    assert_eq!(told.statuses(), [], "an event of a request that was refused");
    drop(peer);
}

#[test]
fn an_event_goes_where_its_operation_said() {
    let (space, mut peer, _stage) = Stage::new("words").open();
    let (first, second) = (Told::default(), Told::default());
    let (wanted, other) = (first.wanted(), second.wanted());
    let daemon = std::thread::spawn(move || {
        let lock = peer.grant(1);
        let convert = peer.grant(1);
        assert_ne!(lock.user, convert.user, "new addresses, new word");
        peer.tell(&blocking(&convert, 1, 5));
        (peer, lock)
    });
    let lock = space.request(b"n", Mode::PR, &wanted).unwrap();
    space.convert(lock, Mode::PW, &other).unwrap();
    let (mut peer, old) = daemon.join().unwrap();
    space.dispatch().unwrap();
    assert_eq!(first.statuses(), [0], "the completion of the first request");
    assert_eq!(second.statuses(), [0, -1], "that of the conversion, and what blocks it");
    let daemon = std::thread::spawn(move || {
        let unlock = peer.unlock();
        peer.tell(&completion(&unlock, 1, 0, Some(3)));
        peer.tell(&completion(&old, 1, 0, Some(3)));
        peer
    });
    space.unlock_wait(lock, None).unwrap();
    let peer = daemon.join().unwrap();
    space.dispatch().unwrap();
    assert_eq!((first.statuses().len(), second.statuses().len()), (1, 2), "stale words");
    drop(peer);
}

#[test]
fn the_descriptor_is_readable_while_something_waits() {
    let (space, mut peer, _stage) = Stage::new("fd").open();
    let fd = space.descriptor().unwrap();
    assert!(!readable(fd), "nothing has happened yet");
    space.dispatch().unwrap();
    let told = Told::default();
    let daemon = std::thread::spawn(move || {
        let submission = peer.grant(1);
        (peer, submission)
    });
    space.request(b"n", Mode::PR, &told.wanted()).unwrap();
    let (mut peer, submission) = daemon.join().unwrap();
    for round in 1..=3 {
        wait_readable(fd);
        assert!(readable(fd), "as long as it was not dispatched");
        assert_eq!(told.0.lock().unwrap().len(), round - 1);
        space.dispatch().unwrap();
        assert_eq!(told.0.lock().unwrap().len(), round);
        // The bell may have been rung behind the look into the ring: once, then it is quiet.
        if readable(fd) {
            space.dispatch().unwrap();
        }
        assert!(!readable(fd), "quiet after dispatch");
        peer.tell(&blocking(&submission, 1, 5));
    }
}

#[test]
fn a_waiting_call_leaves_foreign_callbacks_to_dispatch() {
    let (space, mut peer, _stage) = Stage::new("parked").open();
    let fd = space.descriptor().unwrap();
    let told = Told::default();
    let daemon = std::thread::spawn(move || {
        let held = peer.grant(1);
        let wanted = peer.next();
        peer.tell(&blocking(&held, 1, 5));
        peer.reply(&wanted, 0, 2);
        std::thread::sleep(Duration::from_millis(5));
        peer.tell(&completion(&wanted, 2, 0, Some(5)));
        peer
    });
    space.request(b"held", Mode::PR, &told.wanted()).unwrap();
    space.lock_wait(b"wanted", Mode::EX, &Wanted::new()).unwrap();
    assert_eq!(told.statuses(), [], "no callback ran inside the waiting call");
    wait_readable(fd);
    space.dispatch().unwrap();
    assert_eq!(told.statuses(), [0, -1]);
    if readable(fd) {
        space.dispatch().unwrap();
    }
    assert!(!readable(fd), "quiet after dispatch");
    drop(daemon.join().unwrap());
}

#[test]
fn a_slow_reply_does_not_hold_up_other_waits() {
    let (space, mut peer, _stage) = Stage::new("attention").open();
    let (other, (asked, was_asked)) = (space.clone(), mpsc::channel());
    let waiting = std::thread::spawn(move || other.lock_wait(b"first", Mode::EX, &Wanted::new()));
    let first = peer.next();
    peer.reply(&first, 0, 1);
    let slow = space.clone();
    let slowly = std::thread::spawn(move || {
        asked.send(()).unwrap();
        slow.lock_wait(b"second", Mode::EX, &Wanted::new())
    });
    was_asked.recv().unwrap();
    let second = peer.next();
    // The second call keeps the bell silent while it waits for its reply; but not for long.
    peer.tell(&completion(&first, 1, 0, Some(5)));
    assert!(waiting.join().unwrap().is_ok(), "granted before the second call was answered");
    peer.reply(&second, 0, 2);
    peer.tell(&completion(&second, 2, 0, Some(5)));
    assert!(slowly.join().unwrap().is_ok());
}

/// What each way of losing the lockspace looks like: the request in progress ends, the callback is
/// called once, and every call says the same from then on.
fn loses(name: &str, reason: LostReason, lose: impl FnOnce(&mut script::Peer)) {
    let (space, mut peer, _stage) = Stage::new(name).open();
    let (told, losses) = (Told::default(), Arc::new(AtomicU32::new(0)));
    let fd = space.descriptor().unwrap();
    let daemon = std::thread::spawn(move || {
        let submission = peer.next();
        peer.reply(&submission, 0, 1);
        (peer, submission)
    });
    let lock = space.request(b"n", Mode::EX, &told.wanted()).unwrap();
    let (mut peer, submission) = daemon.join().unwrap();
    let counted = Arc::clone(&losses);
    space.on_loss(move |why| {
        assert_eq!(why, reason);
        counted.fetch_add(1, Ordering::Relaxed);
    });
    lose(&mut peer);
    wait_readable(fd);
    let lost = Err(Error::Lost(reason));
    wait_for("the loss", || (space.dispatch() == lost).then_some(()));
    assert_eq!(told.statuses(), [Errno::ENOTRECOVERABLE.0], "its last completion");
    assert_eq!(losses.load(Ordering::Relaxed), 1);
    assert_eq!(space.lost(), Some(reason));
    // What comes now is not believed.
    let _ = peer.side.events.push(&Event::new(&completion(&submission, 1, 0, Some(5))));
    let _ = peer.side.events.flush();
    assert_eq!(space.dispatch(), lost);
    assert_eq!(space.unlock_wait(lock, None), lost);
    assert_eq!(space.lock_wait(b"m", Mode::EX, &Wanted::new()).map(drop), lost);
    assert!(readable(fd), "stays readable");
    assert_eq!((told.statuses().len(), losses.load(Ordering::Relaxed)), (1, 1));
    space.close();
}

#[test]
fn the_daemons_end_is_a_loss() {
    loses("gone", LostReason::DaemonGone, |peer| {
        let (near, _) = dlm_ipc::socket::Connection::pair().unwrap();
        peer.socket = near;
    });
}

#[test]
fn a_message_on_the_socket_is_a_loss() {
    loses("message", LostReason::Removed, |peer| peer.lose(LostReason::Removed));
}

#[test]
fn the_word_in_the_page_is_a_loss() {
    loses("word", LostReason::NodeLost, |peer| {
        peer.side.page.set_lost(LostReason::NodeLost);
        peer.side.events.ring_bell().unwrap();
    });
}

#[test]
fn a_lease_that_runs_out_is_a_loss() {
    loses("lease", LostReason::LeaseEnded, |peer| {
        peer.side.page.set_lease_until(1);
        peer.side.events.ring_bell().unwrap();
    });
}

#[test]
fn a_lease_runs_out_by_itself() {
    let (space, peer, _stage) = Stage::new("timer").open();
    let fd = space.descriptor().unwrap();
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` lives across the call.
    unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &raw mut now) };
    let now = now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64;
    peer.side.page.set_lease_until(now + 50_000_000);
    peer.side.events.ring_bell().unwrap();
    wait_readable(fd);
    assert_eq!(space.dispatch(), Ok(()), "the timer is set");
    // Nobody rings any more: the timer alone makes it readable.
    wait_readable(fd);
    wait_for("the loss", || {
        (space.dispatch() == Err(Error::Lost(LostReason::LeaseEnded))).then_some(())
    });
}

#[test]
fn an_unknown_event_is_a_loss() {
    loses("kind", LostReason::Protocol, |peer| {
        let bad = Notice::Refused { lkid: 0, user: 0, tag: 0, errno: 1 };
        let bad = Event { kind: 77, ..Event::new(&bad) };
        peer.side.events.push(&bad).unwrap();
        peer.side.events.flush().unwrap();
    });
}

#[test]
fn a_loss_ends_all_waiting_calls() {
    let (space, mut peer, _stage) = Stage::new("waiting").open();
    let waiting: Vec<_> = (0..8)
        .map(|_| {
            let space = space.clone();
            std::thread::spawn(move || space.lock_wait(b"n", Mode::EX, &Wanted::new()).map(drop))
        })
        .collect();
    for id in 1..=7 {
        let submission = peer.next();
        peer.reply(&submission, 0, id);
    }
    peer.next(); // The last one waits for its reply.
    drop(peer);
    for thread in waiting {
        assert_eq!(thread.join().unwrap(), Err(Error::Lost(LostReason::DaemonGone)));
    }
}

#[test]
fn closing_ends_all_waiting_calls() {
    let (space, mut peer, _stage) = Stage::new("closing").open();
    let waiting: Vec<_> = (0..4)
        .map(|_| {
            let space = space.clone();
            std::thread::spawn(move || space.lock_wait(b"n", Mode::EX, &Wanted::new()).map(drop))
        })
        .collect();
    for id in 1..=3 {
        let submission = peer.next();
        peer.reply(&submission, 0, id);
    }
    peer.next(); // The last one waits for its reply.
    let daemon = std::thread::spawn(move || peer.close());
    space.close();
    for thread in waiting {
        assert_eq!(thread.join().unwrap(), Err(Error::NotOurs));
    }
    daemon.join().unwrap();
}

#[test]
fn a_silent_daemon_ends_a_timed_wait_and_a_late_grant_is_given_back() {
    let (space, mut peer, _stage) = Stage::new("silent").open();
    let wanted = Wanted::new().timeout(Duration::from_millis(15));
    let timed = std::thread::spawn(move || {
        let ended = space.lock_wait(b"n", Mode::EX, &wanted).map(drop);
        (space, ended)
    });
    let submission = peer.next();
    assert_eq!((submission.flags, submission.timeout), (LockFlags::TIMEOUT.0, 2), "centiseconds");
    peer.reply(&submission, 0, 6);
    let (space, ended) = timed.join().unwrap();
    assert_eq!(ended, Err(Error::TimedOut));
    let cancel = peer.next();
    assert_eq!((cancel.op, cancel.lkid, cancel.flags), (op::UNLOCK, 6, LockFlags::CANCEL.0));
    peer.tell(&completion(&submission, 6, 0, Some(5)));
    space.dispatch().unwrap();
    let back = peer.next();
    assert_eq!((back.op, back.lkid, back.flags), (op::UNLOCK, 6, 0), "given back");
    assert!(peer.is_quiet());
    drop(peer); // Before the client: it waits for the answer to its goodbye.
    drop(space);
}

#[test]
fn a_pipeline_is_one_stream_and_fills_the_ring() {
    const LOCKS: u32 = 2000;
    let (space, mut peer, _stage) = Stage::new("pipeline").open();
    let daemon = std::thread::spawn(move || {
        for id in 1..=LOCKS {
            let submission = peer.next();
            assert!(!submission.reply_wanted(), "no reply is asked for");
            let user = submission.user;
            let notice = if id % 10 == 0 {
                Notice::Refused { lkid: 0, user, tag: submission.tag, errno: Errno::ENOMEM.0 }
            } else {
                completion(&submission, id, 0, Some(3))
            };
            while peer.side.events.push(&Event::new(&notice)).is_err() {
                peer.side.events.flush().unwrap();
                std::thread::sleep(Duration::from_micros(50));
            }
            peer.side.events.flush().unwrap();
            // An empty ring: whoever waits for room is woken.
            if peer.side.submissions.available().unwrap() == 0 {
                peer.side.submissions.prepare_sleep();
            }
        }
        peer
    });
    let mut pipeline = space.pipeline().unwrap();
    assert_eq!(space.pipeline().map(drop).unwrap_err().errno(), libc::EBUSY);
    let names = (0..LOCKS).map(|_| b"name".as_slice());
    pipeline.lock_many(names, Mode::PR, &Wanted::new(), 0).unwrap();
    let (mut events, mut seen) = (Vec::new(), Vec::new());
    while seen.len() < LOCKS as usize {
        pipeline.wait(&mut events, None).unwrap();
        seen.append(&mut events);
    }
    for (key, tagged) in (0..).zip(&seen) {
        assert_eq!(tagged.key, key, "in order");
        let refused = matches!(tagged.event, LockEvent::Refused { error, .. }
            if error == Error::Refused(Errno::ENOMEM));
        assert_eq!(refused, (key + 1) % 10 == 0, "{tagged:?}");
    }
    drop(daemon.join().unwrap());
}
