//! Handles of a running daemon: opening, locking, ending.

mod common;

use std::time::Duration;

use common::{Client, Control, EX, NOQUEUE, PERSISTENT, PR, daemon, hello, lock, unlock};
use dlm_ipc::control::{ControlReply, ControlRequest};
use dlm_ipc::hello::{ClientMessage, DaemonMessage};
use dlm_ipc::layout::Notice;

#[test]
fn a_lock_is_granted_blocks_others_and_passes_on() {
    let daemon = daemon(&[]);
    let mut a = Client::create(&daemon, "web");
    let mut b = Client::open(&daemon, "web");
    assert_eq!((a.node, a.global_id), (1, b.global_id));
    let held = a.lock(b"orders", EX, 0);
    let wanted = b.call(&lock(b"orders", PR, 0)).expect("accepted");
    match a.event() {
        Notice::Blocking { lkid, mode, .. } => assert_eq!((lkid, mode), (held, PR)),
        other => panic!("{other:?}"),
    }
    let refused = b.call(&lock(b"orders", EX, NOQUEUE)).expect("accepted");
    b.completes(refused, libc::EAGAIN);
    assert_eq!(b.event_within(Duration::from_millis(20)), None, "the other request waits");
    a.unlock(held);
    b.completes(wanted, 0);
    assert_eq!(b.call(&unlock(held)), Err(libc::ENOENT), "a stale id");
    b.unlock(wanted);
    a.close();
    assert_eq!(b.release(false), 0);
    assert_eq!(Client::connect(daemon.socket(), &hello("web", false)).err(), Some(libc::ENOENT));
}

#[test]
fn refused_requests_without_reply_come_as_events() {
    let daemon = daemon(&[]);
    let mut client = Client::create(&daemon, "web");
    let tag = client.submit(&unlock(77), false);
    let want = Notice::Refused { lkid: 77, user: 0, tag, errno: libc::ENOENT };
    assert_eq!(client.event(), want);
    assert_eq!(client.call(&lock(b"x", 9, 0)), Err(libc::EINVAL));
}

#[test]
fn a_hang_up_frees_locks_and_keeps_persistent_ones() {
    let daemon = daemon(&[]);
    let mut a = Client::create(&daemon, "web");
    a.lock(b"plain", EX, 0);
    a.lock(b"kept", EX, PERSISTENT);
    let mut b = Client::open(&daemon, "web");
    let plain = b.call(&lock(b"plain", EX, 0)).expect("accepted");
    let kept = b.call(&lock(b"kept", EX, 0)).expect("accepted");
    drop(a);
    b.completes(plain, 0);
    assert_eq!(b.event_within(Duration::from_millis(20)), None, "an orphan holds the name");
    let control = Control::connect(daemon.socket());
    assert_eq!(control.counter("orphans"), 1);
    let purge = ControlRequest::Purge { lockspace: b"web".to_vec(), pid: std::process::id() };
    assert_eq!(control.ask(&purge), ControlReply::Purged(1));
    b.completes(kept, 0);
}

#[test]
fn an_unlock_on_its_way_counts_although_the_client_hangs_up() {
    let daemon = daemon(&[]);
    let control = Control::connect(daemon.socket());
    let _keeper = Client::create(&daemon, "web");
    for _ in 0..50 {
        let mut client = Client::open(&daemon, "web");
        let held = client.lock(b"kept", EX, PERSISTENT);
        client.submit(&unlock(held), false);
        drop(client);
    }
    control.await_counter("clients", 1);
    assert_eq!((control.counter("locks"), control.counter("orphans")), (0, 0));
}

#[test]
fn release_says_busy_while_locks_remain_and_waits_for_open_handles() {
    let daemon = daemon(&[]);
    let control = Control::connect(daemon.socket());
    let mut holder = Client::create(&daemon, "web");
    let held = holder.lock(b"x", EX, 0);
    assert_eq!(Client::open(&daemon, "web").release(false), libc::EBUSY);
    holder.unlock(held);
    let releaser = Client::open(&daemon, "web");
    let release = ClientMessage::Release { force: false };
    releaser.connection.send(&release.encode().expect("a message")).expect("sent");
    let waits = || match control.ask(&ControlRequest::Lockspaces) {
        ControlReply::Lockspaces(all) => all.iter().flat_map(|s| s.waits_for.clone()).collect(),
        other => panic!("{other:?}"),
    };
    common::wait_until("the lockspace leaves", || !Vec::<String>::is_empty(&waits()));
    let pid = format!("pid {} ", std::process::id());
    assert!(waits().iter().all(|text| text.starts_with(&pid)), "{:?}", waits());
    holder.close();
    assert_eq!(releaser.hear(), Some(DaemonMessage::Done { errno: 0 }));
    assert_eq!(control.counter("lockspaces"), 0);
}

#[test]
fn labels_and_programs_are_shown() {
    let daemon = daemon(&[]);
    let mut client = Client::create(&daemon, "web");
    let held = client.lock(b"x", EX, 0);
    let control = Control::connect(daemon.socket());
    let shown = || {
        let request = ControlRequest::Resource { lockspace: b"web".to_vec(), name: b"x".to_vec() };
        match control.ask(&request) {
            ControlReply::Resource(Some(record)) => record.locks[0].clone(),
            other => panic!("{other:?}"),
        }
    };
    let record = shown();
    assert_eq!((record.id, record.pid, record.state), (held, std::process::id(), 2));
    assert_eq!((record.granted, record.requested, record.orphan), (5, -1, false));
    assert_eq!(record.label, "test");
    let comm = std::fs::read_to_string("/proc/self/comm").expect("readable");
    assert_eq!(record.program, comm.trim_end());
    let label = ClientMessage::Label(b"nightly job".to_vec());
    assert_eq!(client.say(&label), DaemonMessage::Done { errno: 0 });
    assert_eq!(shown().label, "nightly job");
}
