//! A name as its master knows it, asked for through another daemon.

mod common;

use std::path::Path;
use std::time::Duration;

use common::{Client, Control, EX, Holder, NL, PR, lock, signal, wait_until};
use dlm_ipc::control::{ControlMessage, ControlReply, ControlRequest, LocatedRecord};
use dlm_ipc::hello::{Hello, Welcome};
use dlm_ipc::socket::Connection;
use dlm_net::testing::cluster::Cluster;

fn cluster(count: u32) -> Cluster {
    Cluster::start(Path::new(env!("CARGO_BIN_EXE_dlmd")), count)
}

fn request(name: &str) -> ControlRequest {
    ControlRequest::Locate { lockspace: b"web".to_vec(), name: name.into() }
}

fn locate(control: &Control, name: &str) -> LocatedRecord {
    match control.ask(&request(name)) {
        ControlReply::Located(found) => found,
        other => panic!("{other:?}"),
    }
}

/// Node 2 masters `name` and holds it; node 1 knows the lockspace.
fn two(name: &[u8]) -> (Cluster, Client, Client) {
    let cluster = cluster(2);
    let one = Client::create(cluster.daemon(1), "web");
    let mut two = Client::create(cluster.daemon(2), "web");
    cluster.wait_members("web", &[1, 2]);
    two.lock(name, EX, 0);
    (cluster, one, two)
}

#[test]
fn numbers_of_nodes_and_ids_are_the_askers() {
    let (cluster, mut one, mut two) = two(b"name");
    let waiter = one.call(&lock(b"name", PR, 0)).expect("accepted");
    let asked = Control::connect(cluster.daemon(1).socket());
    wait_until("the waiter is queued", || {
        locate(&asked, "name").resource.is_some_and(|resource| resource.locks.len() == 2)
    });
    let found = locate(&asked, "name");
    assert!(found.whole && found.trouble.is_empty(), "{found:?}");
    let resource = found.resource.expect("in use");
    assert_eq!((resource.master, resource.unsettled), (2, false));
    let locks: Vec<_> = resource.locks.iter().map(|lock| (lock.node, lock.state)).collect();
    assert_eq!(locks, [(2, 2), (0, 1)], "node 2 holds, this node waits");
    assert_eq!(resource.locks[1].remote_id, waiter);
    // The master's own view of the same.
    let master = Control::connect(cluster.daemon(2).socket());
    let resource = locate(&master, "name").resource.expect("in use");
    let locks: Vec<_> = resource.locks.iter().map(|lock| (lock.node, lock.state)).collect();
    assert_eq!((resource.master, &locks[..]), (0, &[(0, 2), (1, 1)][..]));
    assert_eq!(locate(&asked, "other").resource, None);
    two.unlock(resource.locks[0].id);
    one.completes(waiter, 0);
    // A name that nobody uses any more may be remembered, but is not shown.
    one.unlock(waiter);
    wait_until("nobody uses the name", || locate(&master, "name").resource.is_none());
    let found = locate(&asked, "name");
    assert_eq!((found.resource, found.whole), (None, true));
}

#[test]
fn a_silent_master_is_named_and_holds_up_nobody_else() {
    let (cluster, _one, _two) = two(b"name");
    let socket = cluster.daemon(1).socket();
    let asked = Control::connect(socket);
    assert!(locate(&asked, "name").whole, "node 1 knows the way");
    let pid = cluster.daemon(2).pid();
    signal(pid, "STOP");
    // Two requests on one conversation: the second one is answered after the first.
    let connection = Connection::connect(socket).expect("the daemon serves");
    let say = |request: &ControlRequest| {
        connection.send(&request.to_bytes().expect("short")).expect("sent");
    };
    connection.send(&Hello::Control.encode().expect("a message")).expect("sent");
    let mut buffer = vec![0; dlm_ipc::control::CONTROL_BYTES_MAX];
    let hear =
        |buffer: &mut [u8]| connection.recv(buffer).expect("received").expect("one").to_vec();
    assert_eq!(Welcome::decode(&hear(&mut buffer)).expect("a welcome").errno, 0);
    say(&request("name"));
    say(&ControlRequest::Status);
    // Others are served meanwhile, and whoever hangs up in the middle is missed by nobody.
    let other = Control::connect(socket);
    assert!(matches!(other.ask(&ControlRequest::Status), ControlReply::Status(_)));
    let gone = Connection::connect(socket).expect("the daemon serves");
    gone.send(&Hello::Control.encode().expect("a message")).expect("sent");
    gone.recv(&mut buffer).expect("received");
    gone.send(&request("name").to_bytes().expect("short")).expect("sent");
    std::thread::sleep(Duration::from_millis(20));
    drop(gone);
    let first = ControlReply::from_bytes(&hear(&mut buffer)).expect("an answer");
    let ControlReply::Located(found) = first else { panic!("{first:?}") };
    assert!(!found.whole && found.trouble.contains("node 2, which "), "{found:?}");
    assert_eq!(found.resource, None, "this node has nothing of it");
    let second = ControlReply::from_bytes(&hear(&mut buffer)).expect("an answer");
    assert!(matches!(second, ControlReply::Status(_)), "{second:?}");
    signal(pid, "CONT");
    wait_until("node 2 answers again", || locate(&other, "name").whole);
    cluster.settle();
}

#[test]
fn an_orphan_of_a_name_mastered_elsewhere_is_listed_as_one_and_purged() {
    let cluster = cluster(2);
    let (mut one, _two) =
        (Client::create(cluster.daemon(1), "web"), Client::create(cluster.daemon(2), "web"));
    cluster.wait_members("web", &[1, 2]);
    // Node 1 masters the name.
    one.lock(b"name", NL, 0);
    let mut holder = Holder::holding(cluster.daemon(2), "web", &["name!"]);
    let pid = holder.pid();
    holder.kill();
    let control = Control::connect(cluster.daemon(2).socket());
    control.await_counter("orphans", 1);
    let own = |record: LocatedRecord| {
        let locks = record.resource.map_or(Vec::new(), |resource| resource.locks);
        locks
            .into_iter()
            .filter(|lock| lock.node == 0)
            .map(|lock| (lock.pid, lock.orphan))
            .collect()
    };
    let located: Vec<_> = own(locate(&control, "name"));
    assert_eq!(located, [(pid, true)]);
    let table = ControlRequest::Table { lockspace: b"web".to_vec(), from: 0 };
    let ControlReply::Table(page) = control.ask(&table) else { panic!("a page") };
    let orphans = page.resources.iter().flat_map(|resource| &resource.locks);
    assert_eq!(orphans.filter(|lock| lock.orphan && lock.node == 0).count(), 1, "{page:?}");
    let purge = ControlRequest::Purge { lockspace: b"web".to_vec(), pid };
    assert_eq!(control.ask(&purge), ControlReply::Purged(1));
    let master = Control::connect(cluster.daemon(1).socket());
    wait_until("the master heard of it", || {
        locate(&master, "name").resource.is_some_and(|resource| resource.locks.len() == 1)
    });
}

#[test]
fn a_queue_that_is_too_long_is_cut_and_counted() {
    const LOCKS: usize = 1200;
    let (cluster, _one, mut two) = two(b"other");
    for _ in 0..LOCKS {
        two.lock(b"long", PR, 0);
    }
    let asked = Control::connect(cluster.daemon(1).socket());
    let found = locate(&asked, "long");
    let shown = found.resource.as_ref().map_or(0, |resource| resource.locks.len());
    assert!(found.whole && shown > 100, "{shown} of {}", found.omitted);
    assert_eq!(shown as u64 + found.omitted, LOCKS as u64);
}
