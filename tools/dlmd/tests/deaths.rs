//! Clients that die, stop or share, and a daemon that dies.

mod common;

use std::time::Duration;

use common::{Client, Control, EX, Holder, PR, daemon, lock, process_state, signal, wait_until};
use dlm_ipc::control::{ControlReply, ControlRequest};
use dlm_ipc::layout::Notice;

/// BL-102.
#[test]
fn a_killed_clients_locks_go_to_the_waiter() {
    let daemon = daemon(&[]);
    let mut waiter = Client::create(&daemon, "web");
    let mut holder = Holder::holding(&daemon, "web", &["x", "y"]);
    let wanted = waiter.call(&lock(b"x", EX, 0)).expect("accepted");
    assert_eq!(waiter.event_within(Duration::from_millis(20)), None, "x is held");
    holder.kill();
    waiter.completes(wanted, 0);
    let control = Control::connect(daemon.socket());
    assert_eq!((control.counter("locks"), control.counter("clients")), (1, 1));
}

/// D19.
#[test]
fn a_child_that_shares_the_connection_keeps_nothing_alive() {
    let daemon = daemon(&[]);
    let mut waiter = Client::create(&daemon, "web");
    let mut holder = Holder::lending(&daemon, "web", &["x"]);
    let wanted = waiter.call(&lock(b"x", EX, 0)).expect("accepted");
    holder.kill(); // the child still has the socket open: it is no hang-up
    waiter.completes(wanted, 0);
}

/// BL-090, BL-126.
#[test]
fn a_client_that_exits_with_requests_under_way_leaves_nothing() {
    let daemon = daemon(&[]);
    let control = Control::connect(daemon.socket());
    let mut keeper = Client::create(&daemon, "web");
    let held = keeper.lock(b"x", EX, 0);
    for _ in 0..100 {
        let mut client = Client::open(&daemon, "web");
        for _ in 0..20 {
            client.submit(&lock(b"x", PR, 0), false);
            client.submit(&lock(b"free", PR, 0), false);
        }
    }
    keeper.unlock(held);
    control.await_counter("clients", 1);
    assert_eq!((control.counter("locks"), control.counter("timers")), (0, 0));
}

/// BL-112.
#[test]
fn a_stopped_client_stalls_nobody_and_goes_on_later() {
    let daemon = daemon(&[]);
    let mut other = Client::create(&daemon, "web");
    let holder = Holder::holding(&daemon, "web", &["x"]);
    signal(holder.pid(), "STOP");
    wait_until("it is stopped", || process_state(holder.pid()) == 'T');
    let wanted = other.call(&lock(b"x", EX, 0)).expect("accepted");
    for round in 0..3000u32 {
        let name = round.to_ne_bytes();
        let held = other.lock(&name, EX, 0);
        other.unlock(held);
    }
    let control = Control::connect(daemon.socket());
    let request = ControlRequest::Resource { lockspace: b"web".to_vec(), name: b"x".to_vec() };
    let ControlReply::Resource(Some(record)) = control.ask(&request) else { panic!("a record") };
    assert_eq!((record.locks[0].pid, record.locks[0].told), (holder.pid(), 5));
    assert_eq!((record.locks[1].id, record.locks[1].state), (wanted, 1));
    signal(holder.pid(), "CONT");
    let mut holder = holder;
    holder.kill();
    other.completes(wanted, 0);
}

/// BL-011.
#[test]
fn a_client_that_never_reads_its_events_stalls_nobody_and_loses_none() {
    let daemon = daemon(&[]);
    let mut deaf = Client::create(&daemon, "web");
    let mut other = Client::open(&daemon, "web");
    let mut held = Vec::new();
    for number in 0..3000u32 {
        held.push(deaf.call(&lock(&number.to_ne_bytes(), PR, 0)).expect("accepted"));
    }
    let wanted = other.call(&lock(&0u32.to_ne_bytes(), EX, 0)).expect("accepted");
    let mine = other.lock(b"mine", EX, 0);
    other.unlock(mine);
    for lock in &held {
        deaf.completes(*lock, 0); // all of them, in order, more than the ring holds
    }
    match deaf.event() {
        Notice::Blocking { lkid, mode, .. } => assert_eq!((lkid, mode), (held[0], EX)),
        other => panic!("{other:?}"),
    }
    deaf.unlock(held[0]);
    other.completes(wanted, 0);
}

/// BL-099.
#[test]
fn a_killed_daemon_is_a_hang_up() {
    let mut daemon = daemon(&[]);
    let mut client = Client::create(&daemon, "web");
    client.lock(b"x", EX, 0);
    daemon.kill();
    assert_eq!(client.hear(), None);
    assert_eq!(client.side.page.lost(), None, "nobody was there to say it");
}

/// G17: nothing wakes an idle daemon, however much is held.
#[test]
fn an_idle_daemon_sleeps() {
    let daemon = daemon(&[]);
    let mut clients: Vec<_> = (0..20).map(|_| Client::create(&daemon, "web")).collect();
    for (number, client) in clients.iter_mut().enumerate() {
        client.lock(&number.to_ne_bytes(), EX, 0);
    }
    let waits = clients[1].call(&lock(&0usize.to_ne_bytes(), EX, 0)).expect("accepted");
    let wakes = || {
        let status = std::fs::read_to_string(format!("/proc/{}/status", daemon.pid()));
        let status = status.expect("it runs");
        let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        line.expect("a line").trim().parse::<u64>().expect("a number")
    };
    wait_until("it is asleep", || process_state(daemon.pid()) == 'S');
    let before = wakes();
    std::thread::sleep(Duration::from_millis(400));
    assert_eq!(wakes(), before, "woken without a reason");
    assert!(waits > 0);
}

/// BL-089: descriptors and locks of clients that came and went are as at the start.
#[test]
fn clients_that_come_and_go_leave_nothing() {
    let daemon = daemon(&[]);
    let control = Control::connect(daemon.socket());
    let _keeper = Client::create(&daemon, "web");
    let before = control.counter("descriptors");
    for round in 0..300 {
        let mut client = Client::open(&daemon, "web");
        for number in 0..10u8 {
            client.lock(&[number, (round % 7) as u8], PR, 0);
        }
        if round % 2 == 0 {
            client.close();
        }
    }
    control.await_counter("clients", 1);
    assert_eq!((control.counter("locks"), control.counter("descriptors")), (0, before));
}

/// BL-056: parallel creations all succeed.
#[test]
fn parallel_creations_all_get_a_handle() {
    let daemon = daemon(&[]);
    let create = |_| Holder::start(&daemon, "web", &[]);
    let holders: Vec<_> = (0..20).map(create).collect();
    let holders: Vec<_> = holders.into_iter().map(Holder::when_holding).collect();
    let control = Control::connect(daemon.socket());
    let ControlReply::Lockspaces(all) = control.ask(&ControlRequest::Lockspaces) else {
        panic!("a listing")
    };
    assert_eq!((all[0].create_count, all[0].handles as usize), (20, holders.len()));
}
