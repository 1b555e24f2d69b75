//! Bounds at N and N+1.

mod common;

use std::time::{Duration, Instant};

use common::{Client, Control, EX, PR, daemon, hello, lock, unlock};
use dlm_ipc::control::{ControlReply, ControlRequest};
use dlm_ipc::layout::Notice;

#[test]
fn clients_max_counts_handles_and_leaves_the_operator_a_way_in() {
    let daemon = daemon(&["--clients_max=3"]);
    let clients: Vec<_> = (0..3).map(|_| Client::create(&daemon, "web")).collect();
    let more = || Client::connect(daemon.socket(), &hello("web", false));
    assert_eq!(more().err(), Some(libc::ENOMEM));
    let control = Control::connect(daemon.socket());
    assert_eq!((control.counter("clients"), control.counter("refused_ENOMEM")), (3, 1));
    clients.into_iter().for_each(Client::close);
    assert!(more().is_ok());
    let set = |value: &str| {
        let (key, value) = ("clients_max".to_owned(), value.to_owned());
        control.ask(&ControlRequest::SetConfig { key, value })
    };
    control.await_counter("clients", 0);
    assert_eq!(set("1"), ControlReply::Done);
    let _one = more().expect("the first");
    assert_eq!(more().err(), Some(libc::ENOMEM));
    assert_eq!(set("restore"), ControlReply::Done);
    assert!(more().is_ok());
}

#[test]
fn lockspaces_max_and_client_locks_max_are_refused_with_enomem() {
    let daemon = daemon(&["--lockspaces_max=2", "--client_locks_max=10"]);
    let mut first = Client::create(&daemon, "a");
    let _second = Client::create(&daemon, "b");
    let third = || Client::connect(daemon.socket(), &hello("c", true));
    assert_eq!(third().err(), Some(libc::ENOMEM));
    assert!(Client::connect(daemon.socket(), &hello("b", true)).is_ok(), "b exists");
    let held: Vec<_> = (0..10u8).map(|name| first.lock(&[name], EX, 0)).collect();
    assert_eq!(first.call(&lock(b"more", EX, 0)), Err(libc::ENOMEM));
    first.unlock(held[0]);
    first.lock(b"more", EX, 0);
    assert_eq!(first.release(true), 0);
    assert!(third().is_ok());
}

/// BL-105, BL-106.
#[test]
fn names_have_1_to_64_bytes_for_lockspaces_and_0_to_64_for_resources() {
    let daemon = daemon(&[]);
    let long = "n".repeat(64);
    let mut client = Client::create(&daemon, &long);
    client.lock(&[b'r'; 64], EX, 0);
    client.lock(b"", EX, 0);
    client.lock(b"a\0b/../c", EX, 0);
    let tree = daemon.dir().join("config/dlm/cluster/spaces").join(&long);
    assert!(tree.join("nodes/1").exists());
    assert!(hello(&"n".repeat(65), true).encode().is_err(), "a client cannot even say it");
}

#[test]
fn unread_events_bound_new_requests_but_not_unlocks() {
    let daemon = daemon(&["--client_events_max=500"]);
    let mut client = Client::create(&daemon, "web");
    let mut held = Vec::new();
    let errno = loop {
        match client.call(&lock(&held.len().to_ne_bytes(), PR, 0)) {
            Ok(lock) => held.push(lock),
            Err(errno) => break errno,
        }
        assert!(held.len() < 10_000, "never bounded");
    };
    assert_eq!(errno, libc::ENOMEM);
    assert_eq!(held.len(), 1024 + 500, "what the ring and the queue hold");
    for lock in &held {
        client.call(&unlock(*lock)).expect("unlocks are never refused for room");
    }
    for status in [0, 0x10002] {
        for lock in &held {
            client.completes(*lock, status);
        }
    }
    client.lock(b"again", EX, 0);
}

#[test]
fn refusals_nobody_reads_hold_the_client_back_and_none_is_lost() {
    let daemon = daemon(&["--client_events_max=100"]);
    let mut client = Client::create(&daemon, "web");
    let mut other = Client::create(&daemon, "web");
    // Until nothing moves any more: ring, queue, and the submissions that then stay in theirs.
    let (mut sent, mut moved) = (0, Instant::now());
    while moved.elapsed() < Duration::from_millis(100) {
        if client.side.submissions.free().expect("a good ring") > 0 {
            client.submit(&unlock(7), false);
            (sent, moved) = (sent + 1, Instant::now());
        }
    }
    assert!(sent <= 1024 + 101 + 256, "bounded, but {sent} were taken");
    let held = other.lock(b"x", EX, 0);
    other.unlock(held);
    for tag in 1..=sent {
        match client.event() {
            Notice::Refused { tag: told, errno, .. } => {
                assert_eq!((told, errno), (tag, libc::ENOENT));
            }
            other => panic!("{other:?}"),
        }
    }
    client.lock(b"y", EX, 0);
}

#[test]
fn answers_nobody_reads_hold_only_that_client_back() {
    let daemon = daemon(&[]);
    let mut deaf = Client::create(&daemon, "web");
    let mut other = Client::create(&daemon, "web");
    let mut tags = Vec::new();
    for _ in 0..512 {
        if deaf.side.submissions.free().expect("a good ring") == 0 {
            break;
        }
        tags.push(deaf.submit(&unlock(7), true));
    }
    let held = other.lock(b"x", EX, 0);
    other.unlock(held);
    for tag in tags {
        assert_eq!(deaf.reply().tag, tag);
    }
    deaf.lock(b"y", EX, 0);
}
