//! What a client does when its lease ends, comes back, or does not, with a daemon that is silent.

mod script;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use dlm_client::{Error, LostReason, Mode, Wanted};
use dlm_ipc::hello::{ClientMessage, MESSAGE_BYTES_MAX};
use dlm_ipc::page::NO_LEASE;
use script::{Peer, Stage, completion, wait_for, wait_readable};

const MILLI: u64 = 1_000_000;
/// No test waits so long.
const FAR: u64 = 3_600_000 * MILLI;
const LEASE_ENDED: Error = Error::Lost(LostReason::LeaseEnded);

fn boottime() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` lives across the call.
    unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &raw mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// The lease is over; the node may come back for `notice`.
fn freeze(peer: &Peer, notice: u64) {
    peer.side.page.set_lease_notice(notice);
    peer.side.page.set_lease_until(boottime());
    peer.side.events.ring_bell().unwrap();
}

/// The lease is back; nobody rings.
fn renew(peer: &Peer) {
    peer.side.page.set_lease_until(boottime() + FAR);
}

/// Long enough that what must not happen would have happened; no claim about speed.
fn pause() {
    std::thread::sleep(std::time::Duration::from_millis(120));
}

#[test]
fn nothing_is_delivered_without_the_lease_and_all_of_it_when_it_is_back() {
    let (space, mut peer, _stage) = Stage::new("frozen").open();
    let (seen, fd) = (Arc::new(AtomicU32::new(0)), space.descriptor().unwrap());
    let count = Arc::clone(&seen);
    let wanted = Wanted::new().events(move |_| {
        count.fetch_add(1, Ordering::SeqCst);
    });
    let mut submissions = Vec::new();
    for id in 1..=3 {
        let (space, wanted) = (space.clone(), wanted.clone());
        let asking = std::thread::spawn(move || space.request(b"n", Mode::EX, &wanted));
        let submission = peer.next();
        peer.reply(&submission, 0, id);
        asking.join().unwrap().unwrap();
        submissions.push(submission);
    }
    peer.tell(&completion(&submissions[0], 1, 0, Some(5)));
    wait_readable(fd);
    freeze(&peer, FAR);
    peer.tell(&completion(&submissions[1], 2, 0, Some(5)));
    assert_eq!(space.dispatch(), Ok(()), "frozen, not lost");
    pause();
    peer.tell(&completion(&submissions[2], 3, 0, Some(5)));
    assert_eq!(space.dispatch(), Ok(()));
    assert_eq!((seen.load(Ordering::SeqCst), space.lost()), (0, None));
    renew(&peer);
    wait_readable(fd);
    wait_for("all three", || {
        space.dispatch().unwrap();
        (seen.load(Ordering::SeqCst) == 3).then_some(())
    });
    peer.side.page.set_lease_until(NO_LEASE);
    std::thread::scope(|scope| {
        scope.spawn(|| peer.close());
        space.close();
    });
}

#[test]
fn calls_wait_without_the_lease_wherever_they_sleep() {
    let (space, mut peer, _stage) = Stage::new("calls").open();
    renew(&peer);
    let waiting = |name: &'static [u8]| {
        let space = space.clone();
        std::thread::spawn(move || space.lock_wait(name, Mode::EX, &Wanted::new()))
    };
    // One sleeps for events, one follows it, one waits for its reply.
    let mut asked = Vec::new();
    for (id, name) in [(1, b"one"), (2, b"two")] {
        let thread = waiting(name);
        let submission = peer.next();
        peer.reply(&submission, 0, id);
        asked.push((thread, submission));
    }
    freeze(&peer, FAR);
    let third = waiting(b"six");
    let last = peer.next();
    for (id, (_, submission)) in (1..).zip(&asked) {
        peer.tell(&completion(submission, id, 0, Some(5)));
    }
    pause();
    assert!(asked.iter().all(|(thread, _)| !thread.is_finished()), "granted in a frozen node");
    renew(&peer);
    for (thread, _) in asked {
        assert_eq!(thread.join().unwrap().unwrap().granted, Some(Mode::EX));
    }
    peer.tell(&completion(&last, 3, 0, Some(5)));
    peer.reply(&last, 0, 3);
    assert!(third.join().unwrap().is_ok());
}

#[test]
fn a_silent_daemon_ends_every_call_when_the_lease_is_lost() {
    let (space, mut peer, _stage) = Stage::new("silent").open();
    renew(&peer);
    let calls = [b"a", b"b"].map(|name| {
        let space = space.clone();
        std::thread::spawn(move || space.lock_wait(name, Mode::EX, &Wanted::new()).map(drop))
    });
    let first = peer.next();
    peer.reply(&first, 0, 1);
    peer.next(); // Never answered.
    let label = space.clone();
    let label = std::thread::spawn(move || label.set_label("x"));
    freeze(&peer, 40 * MILLI);
    for call in calls {
        assert_eq!(call.join().unwrap(), Err(LEASE_ENDED));
    }
    assert_eq!(label.join().unwrap(), Err(LEASE_ENDED));
    // What the daemon says now comes too late.
    renew(&peer);
    peer.tell(&completion(&first, 1, 0, Some(5)));
    assert_eq!(space.dispatch(), Err(LEASE_ENDED));
    assert_eq!(space.lock_wait(b"c", Mode::EX, &Wanted::new()).map(drop), Err(LEASE_ENDED));
    assert_eq!(space.release(false), Err(LEASE_ENDED), "and does not wait for an answer");
}

#[test]
fn only_the_programs_close_says_that_it_knows() {
    let (space, peer, _stage) = Stage::new("confirm").open();
    let told = Arc::new(AtomicU32::new(0));
    let reason = Arc::clone(&told);
    space.on_loss(move |why| reason.store(why as u32, Ordering::SeqCst));
    space.spawn_dispatcher().unwrap();
    freeze(&peer, MILLI);
    wait_for("the loss", || (told.load(Ordering::SeqCst) != 0).then_some(()));
    assert_eq!(told.load(Ordering::SeqCst), LostReason::LeaseEnded as u32);
    let mut buffer = [0; MESSAGE_BYTES_MAX];
    let mut silent = || peer.socket.recv(&mut buffer).map(|message| message.map(<[u8]>::to_vec));
    let quiet = silent().expect_err("the handle is open");
    assert_eq!(quiet.kind(), std::io::ErrorKind::WouldBlock);
    space.close(); // Would wait for ever for this daemon's answer.
    assert_eq!(silent().expect("a hang-up"), None);
}

#[test]
fn a_pipeline_is_held_up_and_then_void() {
    let (space, mut peer, _stage) = Stage::new("pipeline").open();
    renew(&peer);
    let mut pipeline = space.pipeline().unwrap();
    pipeline.lock_many([b"a", b"b"].map(|name| &name[..]), Mode::EX, &Wanted::new(), 0).unwrap();
    pipeline.submit().unwrap();
    let (one, two) = (peer.next(), peer.next());
    let mut events = Vec::new();
    freeze(&peer, FAR);
    peer.tell(&completion(&one, 1, 0, Some(5)));
    pause();
    assert_eq!(pipeline.poll(&mut events), Ok(0));
    renew(&peer);
    assert_eq!(pipeline.wait(&mut events, None), Ok(1));
    peer.tell(&completion(&two, 2, 0, Some(5)));
    freeze(&peer, 0);
    assert_eq!(pipeline.poll(&mut events), Err(LEASE_ENDED), "a late grant is none");
    assert_eq!(events.len(), 1);
}

#[test]
fn a_close_waits_for_its_answer_no_longer_than_the_lease() {
    let (space, peer, _stage) = Stage::new("closing").open();
    // The daemon is stopped right after it renewed the lease.
    peer.side.page.set_lease_until(boottime() + 100 * MILLI);
    space.close();
    let mut buffer = [0; MESSAGE_BYTES_MAX];
    let mut heard = || peer.socket.recv(&mut buffer).map(|message| message.map(<[u8]>::to_vec));
    let close = heard().unwrap().expect("a message");
    assert_eq!(ClientMessage::decode(&close), Ok(ClientMessage::Close));
    assert_eq!(heard().unwrap(), None, "then a hang-up");
}
