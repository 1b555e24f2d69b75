//! Several real daemons on loopback addresses, with views from a feeder.

mod common;

use std::path::Path;
use std::time::Duration;

use common::{CONVERT, Client, Control, EX, NL, NOQUEUE, PR, hello, lock, unlock, wait_until};
use dlm_ipc::control::{ControlReply, ControlRequest};
use dlm_ipc::hello::{ClientMessage, DaemonMessage};
use dlm_ipc::layout::{CallArgs, LostReason, Notice, Operation};
use dlm_net::testing::cluster::Cluster;

const VALBLK: u32 = 0x8;
const EAGAIN: i32 = 11;
/// Long enough that what must not happen would have happened; no claim about speed.
const QUIET: Duration = Duration::from_millis(150);

fn cluster(count: u32) -> Cluster {
    Cluster::start(Path::new(env!("CARGO_BIN_EXE_dlmd")), count)
}

fn join(cluster: &Cluster, node: u32, name: &str) -> Client {
    Client::create(cluster.daemon(node), name)
}

/// Asks for a lock that has to wait.
fn wait_for(client: &mut Client, name: &[u8], mode: u8) -> u32 {
    let waiter = client.call(&lock(name, mode, 0)).expect("accepted");
    assert_eq!(client.event_within(QUIET), None, "it waits");
    waiter
}

fn convert(client: &mut Client, lkid: u32, mode: u8, value: Option<&[u8; 32]>) -> Option<[u8; 32]> {
    let flags = CONVERT | VALBLK;
    let call = CallArgs { mode, flags, wants_blocking: true, ..CallArgs::default() };
    client.call(&Operation::Convert { call, lkid, value }).expect("accepted");
    loop {
        match client.event() {
            Notice::Blocking { .. } => {}
            Notice::Completion { status: 0, value, .. } => return value,
            other => panic!("{other:?}"),
        }
    }
}

fn refused(client: &mut Client, name: &[u8], mode: u8) {
    let lock = client.call(&lock(name, mode, NOQUEUE)).expect("accepted");
    client.completes(lock, EAGAIN);
}

#[test]
fn three_nodes_exclude_each_other_and_pass_a_value_round() {
    let cluster = cluster(3);
    let mut clients: Vec<Client> = (1..=3).map(|node| join(&cluster, node, "web")).collect();
    cluster.wait_members("web", &[1, 2, 3]);
    assert!(clients.iter().all(|client| client.global_id == clients[0].global_id));
    for name in [&b"a"[..], b"b", b"c", b"d"] {
        let [one, two, three] = &mut clients[..] else { panic!("three") };
        let first = one.lock(name, EX, 0);
        refused(two, name, PR);
        let second = wait_for(two, name, EX);
        assert!(matches!(one.event(), Notice::Blocking { lkid, mode: EX, .. } if lkid == first));
        one.unlock(first);
        two.completes(second, 0);
        refused(three, name, PR);
        two.unlock(second);
        let third = three.lock(name, EX, 0);
        three.unlock(third);
    }
    let holds: Vec<u32> =
        clients.iter_mut().map(|client| client.lock(b"value", NL, VALBLK)).collect();
    for round in 1..=9u8 {
        let at = usize::from(round) % 3;
        let (client, held) = (&mut clients[at], holds[at]);
        let read = convert(client, held, EX, Some(&[0; 32])).expect("a value");
        assert_eq!(read[0], round - 1);
        convert(client, held, NL, Some(&[round; 32]));
    }
}

#[test]
fn locks_of_a_killed_node_are_given_away_once_it_is_known_to_be_gone() {
    let mut cluster = cluster(3);
    let (mut one, mut two, mut three) =
        (join(&cluster, 1, "web"), join(&cluster, 2, "web"), join(&cluster, 3, "web"));
    cluster.wait_members("web", &[1, 2, 3]);
    let names: Vec<Vec<u8>> = (0..24).map(|n| format!("name-{n}").into_bytes()).collect();
    // The dead node masters half of the names; each survivor holds, or waits for, some of both kinds.
    for (index, name) in names.iter().enumerate() {
        match index % 4 {
            0 => drop(two.lock(name, EX, 0)),
            1 => drop(one.lock(name, EX, 0)),
            2 => {
                let first = two.lock(name, NL, 0);
                three.lock(name, EX, 0);
                two.unlock(first);
            }
            _ => drop((two.lock(name, PR, 0), one.lock(name, PR, 0))),
        }
    }
    let waiters: Vec<(usize, u32)> = (0..names.len())
        .step_by(4)
        .map(|index| (index, three.call(&lock(&names[index], EX, 0)).expect("accepted")))
        .collect();
    assert_eq!(three.event_within(QUIET), None);
    // First the daemon: a client that leaves it alive takes its locks along, and they are free.
    cluster.crash(2);
    drop(two);
    cluster.exclude(2);
    assert_eq!(three.event_within(QUIET), None, "not before it is known to be gone");
    // What the lost node had nothing to do with goes on.
    cluster.gone(2);
    let mut granted: Vec<u32> = Vec::new();
    while granted.len() < waiters.len() {
        match three.event() {
            Notice::Completion { lkid, status: 0, .. } => granted.push(lkid),
            other => panic!("{other:?}\n{}", cluster.logs()),
        }
    }
    granted.sort_unstable();
    let mut wanted: Vec<u32> = waiters.iter().map(|(_, lkid)| *lkid).collect();
    wanted.sort_unstable();
    assert_eq!(granted, wanted);
    cluster.settle();
    // Exclusion holds for what survived, from either side.
    for (index, name) in names.iter().enumerate() {
        match index % 4 {
            0 | 2 => refused(&mut one, name, PR),
            1 => refused(&mut three, name, PR),
            _ => refused(&mut three, name, EX),
        }
    }
    cluster.restart(2);
    let mut two = join(&cluster, 2, "web");
    cluster.wait_members("web", &[1, 2, 3]);
    refused(&mut two, &names[0], PR);
    two.lock(b"fresh", EX, 0);
    refused(&mut one, b"fresh", EX);
}

#[test]
fn a_node_excluded_alive_tells_its_clients_and_comes_back_when_they_have_closed() {
    let cluster = cluster(2);
    let (mut one, mut two) = (join(&cluster, 1, "web"), join(&cluster, 2, "web"));
    cluster.wait_members("web", &[1, 2]);
    two.lock(b"held", EX, 0);
    let waiter = wait_for(&mut one, b"held", EX);
    assert!(matches!(two.event(), Notice::Blocking { .. }));
    cluster.exclude(2);
    assert_eq!(two.hear(), Some(DaemonMessage::Lost(LostReason::NodeLost)));
    assert_eq!(two.side.page.lost(), Some(LostReason::NodeLost));
    assert_eq!(one.event_within(QUIET), None, "its client has not said that it knows");
    let status =
        |node| match Control::connect(cluster.daemon(node).socket()).ask(&ControlRequest::Status) {
            ControlReply::Status(status) => status,
            other => panic!("{other:?}"),
        };
    assert!(status(2).waits_for.iter().any(|text| text.contains("to close its handle")));
    assert!(status(1).waits_for.iter().any(|text| text.contains("dlm_tool safe 2")));
    two.connection.send(&ClientMessage::Close.encode().expect("a message")).expect("sent");
    assert_eq!(two.hear(), Some(DaemonMessage::Done { errno: 0 }));
    one.completes(waiter, 0);
    let mut again = join(&cluster, 2, "web");
    cluster.wait_members("web", &[1, 2]);
    refused(&mut again, b"held", PR);
    one.unlock(waiter);
    again.lock(b"held", EX, 0);
    wait_until("nothing is waited for", || status(1).waits_for.is_empty());
}

#[test]
fn joining_and_leaving_without_pause_disturbs_nobody() {
    let cluster = cluster(3);
    let mut one = join(&cluster, 1, "web");
    let held = one.lock(b"held", EX, 0);
    let mut counted = 0;
    for round in 0..20u32 {
        for node in [2, 3] {
            let mut guest = join(&cluster, node, "web");
            refused(&mut guest, b"held", PR);
            let mine = guest.lock(format!("own-{round}").as_bytes(), EX, 0);
            if round % 2 == 0 {
                guest.unlock(mine);
                assert_eq!(guest.release(false), 0);
            } else {
                assert_eq!(guest.release(true), 0);
            }
            let busy = one.lock(b"busy", EX, 0);
            one.unlock(busy);
            counted += 1;
        }
    }
    assert_eq!(counted, 40);
    cluster.wait_members("web", &[1]);
    one.unlock(held);
    for node in [2, 3] {
        let opened = Client::connect(cluster.daemon(node).socket(), &hello("web", false));
        assert_eq!(opened.err(), Some(2), "it is gone there");
    }
}

#[test]
fn a_daemon_that_stops_for_a_while_loses_nothing() {
    let cluster = cluster(2);
    let (mut one, mut two) = (join(&cluster, 1, "web"), join(&cluster, 2, "web"));
    cluster.wait_members("web", &[1, 2]);
    let held = two.lock(b"held", EX, 0);
    let pid = cluster.daemon(2).pid();
    common::signal(pid, "STOP");
    let waiter = one.call(&lock(b"held", EX, 0)).expect("accepted");
    two.submit(&unlock(held), true);
    assert_eq!(one.event_within(QUIET), None);
    common::signal(pid, "CONT");
    one.completes(waiter, 0);
}

#[test]
fn a_value_that_only_the_dead_master_knew_is_marked_also_for_who_never_saw_one() {
    let mut cluster = cluster(2);
    let (mut one, mut two) = (join(&cluster, 1, "web"), join(&cluster, 2, "web"));
    cluster.wait_members("web", &[1, 2]);
    let writer = two.lock(b"value", NL, VALBLK);
    let reader = one.lock(b"value", NL, VALBLK);
    convert(&mut two, writer, EX, Some(&[0; 32]));
    convert(&mut two, writer, NL, Some(&[7; 32]));
    drop(two);
    cluster.kill(2);
    cluster.settle();
    let call = CallArgs { mode: PR, flags: CONVERT | VALBLK, ..CallArgs::default() };
    one.call(&Operation::Convert { call, lkid: reader, value: Some(&[1; 32]) }).expect("accepted");
    match one.event() {
        Notice::Completion { status: 0, sb_flags, value: Some(value), .. } => {
            assert_eq!((sb_flags & 2, value), (2, [0; 32]), "VALNOTVALID");
        }
        other => panic!("{other:?}"),
    }
}
