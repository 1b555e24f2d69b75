//! Requests of operators.

mod common;

use std::collections::BTreeMap;
use std::os::unix::process::CommandExt;

use common::{Client, Control, EX, Holder, NL, PERSISTENT, PR, daemon, hello, lock, wait_until};
use dlm_ipc::control::{ControlReply, ControlRequest, ResourceRecord, SPACES_PER_ANSWER};
use dlm_ipc::hello::Hello;
use dlm_net::testing::DaemonProcess;

fn table(lockspace: &str, from: u64) -> ControlRequest {
    ControlRequest::Table { lockspace: lockspace.as_bytes().to_vec(), from }
}

/// The whole table, page by page; `between` runs between pages.
fn whole_table(control: &Control, mut between: impl FnMut()) -> Vec<ResourceRecord> {
    let (mut records, mut from) = (Vec::new(), 0);
    loop {
        let ControlReply::Table(page) = control.ask(&table("web", from)) else { panic!("a page") };
        records.extend(page.resources);
        match page.next {
            Some(next) => from = next,
            None => return records,
        }
        between();
    }
}

#[test]
fn lockspaces_are_listed_with_their_facts() {
    let daemon = daemon(&["--nodeid=7", "--cluster_name=prod"]);
    let control = Control::connect(daemon.socket());
    assert_eq!(control.ask(&ControlRequest::Lockspaces), ControlReply::Lockspaces(Vec::new()));
    let mut client = Client::create(&daemon, "web");
    let _second = Client::create(&daemon, "web");
    client.lock(b"x", EX, 0);
    client.lock(b"x", NL, 0);
    let ControlReply::Lockspaces(all) = control.ask(&ControlRequest::Lockspaces) else {
        panic!("a listing")
    };
    let [web] = &all[..] else { panic!("one lockspace: {all:?}") };
    assert_eq!((web.name.as_slice(), web.global_id), (&b"web"[..], client.global_id));
    assert_eq!((web.create_count, web.handles, web.mode), (2, 2, 0o600));
    assert_eq!((web.locks, web.resources, web.orphans), (2, 1, 0));
    assert_eq!((web.state.as_str(), web.members.as_slice()), ("running", &[7][..]));
    assert_eq!((web.change.node, web.change.joined, web.change.removed), (7, 1, 0));
    assert!(web.view > 0 && web.next_change.is_none() && web.waits_for.is_empty());
    let ControlReply::Status(status) = control.ask(&ControlRequest::Status) else { panic!("one") };
    assert_eq!((status.node, status.cluster.as_str()), (7, "prod"));
    assert_eq!((status.membership.as_str(), status.quorate), ("single", true));
    assert_eq!((status.pid, status.clients, status.nodes.len()), (daemon.pid(), 2, 1));
    assert!(status.nodes[0].member && status.nodes[0].node == 7);
}

#[test]
fn many_lockspaces_are_told_in_several_answers() {
    let daemon = daemon(&[]);
    let mut names: Vec<_> = (0..300).map(|number| format!("space-{number}")).collect();
    let clients: Vec<_> = names.iter().map(|name| Client::create(&daemon, name)).collect();
    let control = Control::connect(daemon.socket());
    let (mut told, mut request) = (Vec::new(), ControlRequest::Lockspaces);
    loop {
        let ControlReply::Lockspaces(page) = control.ask(&request) else { panic!("a listing") };
        told.extend(page.iter().map(|space| String::from_utf8(space.name.clone()).expect("plain")));
        assert!(page.len() <= SPACES_PER_ANSWER);
        let Some(last) = page.last() else { break };
        request = ControlRequest::LockspacesAfter { name: last.name.clone() };
    }
    names.sort();
    assert_eq!(told, names);
    drop(clients);
}

/// BL-020.
#[test]
fn a_table_is_complete_while_others_create_and_drop() {
    let daemon = daemon(&[]);
    let mut client = Client::create(&daemon, "web");
    let mut fixed = BTreeMap::new();
    for number in 0..1000u32 {
        let name = format!("fixed-{number}");
        fixed.insert(name.clone(), client.lock(name.as_bytes(), PR, 0));
    }
    let mut churner = Client::create(&daemon, "web");
    let mut number = 0u32;
    let mut mine = Vec::new();
    let control = Control::connect(daemon.socket());
    for _ in 0..5 {
        let records = whole_table(&control, || {
            for _ in 0..40 {
                number += 1;
                mine.push(churner.lock(format!("churn-{number}").as_bytes(), EX, 0));
            }
            for lock in mine.drain(..20) {
                churner.unlock(lock);
            }
        });
        let mut seen = BTreeMap::new();
        for record in &records {
            let name = String::from_utf8(record.name.clone()).expect("plain names");
            if name.starts_with("fixed") {
                let [lock] = &record.locks[..] else { panic!("one lock on {name}") };
                assert_eq!(seen.insert(name, lock.id), None, "listed once");
            }
        }
        assert_eq!(seen, fixed);
    }
}

#[test]
fn a_name_with_many_locks_goes_on_in_the_next_page() {
    let daemon = daemon(&[]);
    let mut client = Client::create(&daemon, "web");
    let mut locks = vec![client.lock(b"hot", EX, 0)];
    for _ in 0..3000 {
        locks.push(client.call(&lock(b"hot", EX, 0)).expect("accepted"));
    }
    Client::open(&daemon, "web").lock(b"other", EX, PERSISTENT);
    let control = Control::connect(daemon.socket());
    let mut pages = 1;
    let records = whole_table(&control, || pages += 1);
    assert!(pages > 2, "more than one answer holds");
    let hot = records.iter().filter(|record| record.name == b"hot");
    let listed: Vec<_> = hot.flat_map(|record| record.locks.iter().map(|lock| lock.id)).collect();
    assert_eq!(listed, locks, "each once, in queue order");
    assert_eq!(records.iter().filter(|record| record.name == b"other").count(), 1);
    match control.ask(&table("web", (1 << 63) | 77)) {
        ControlReply::Refused { errno: libc::EINVAL, .. } => {}
        other => panic!("{other:?}"),
    }
    let resource = ControlRequest::Resource { lockspace: b"web".to_vec(), name: b"hot".to_vec() };
    match control.ask(&resource) {
        ControlReply::Refused { errno: libc::E2BIG, .. } => {}
        other => panic!("{other:?}"),
    }
}

#[test]
fn unknown_lockspaces_and_unused_names_say_so() {
    let daemon = daemon(&[]);
    let control = Control::connect(daemon.socket());
    match control.ask(&table("none", 0)) {
        ControlReply::Refused { errno: libc::ENOENT, message } => {
            assert_eq!(message, "there is no lockspace none on this node");
        }
        other => panic!("{other:?}"),
    }
    let _client = Client::create(&daemon, "web");
    let resource = ControlRequest::Resource { lockspace: b"web".to_vec(), name: b"x".to_vec() };
    assert_eq!(control.ask(&resource), ControlReply::Resource(None));
    match control.ask(&ControlRequest::FenceAck { node: 2 }) {
        ControlReply::Refused { errno: libc::EOPNOTSUPP, message } => {
            assert!(message.contains("membership is single"), "{message}");
        }
        other => panic!("{other:?}"),
    }
}

/// BL-013.
#[test]
fn orphans_of_one_pid_are_purged_and_others_stay() {
    let daemon = daemon(&[]);
    let mut keeper = Client::create(&daemon, "web");
    let mut dead = Holder::holding(&daemon, "web", &["a!", "b!", "c"]);
    let mut other = Holder::holding(&daemon, "web", &["d!"]);
    let pid = dead.pid();
    dead.kill();
    other.kill();
    let control = Control::connect(daemon.socket());
    control.await_counter("orphans", 3);
    let a = ControlRequest::Resource { lockspace: b"web".to_vec(), name: b"a".to_vec() };
    let ControlReply::Resource(Some(record)) = control.ask(&a) else { panic!("a record") };
    assert!(record.locks[0].orphan && record.locks[0].pid == pid);
    assert_eq!(record.locks[0].program, "", "the dead have no program");
    let wanted = keeper.call(&lock(b"a", EX, PERSISTENT)).expect("accepted");
    let purge = |pid| control.ask(&ControlRequest::Purge { lockspace: b"web".to_vec(), pid });
    assert_eq!(purge(1), ControlReply::Purged(0));
    assert_eq!(purge(pid), ControlReply::Purged(2));
    keeper.completes(wanted, 0);
    assert_eq!(purge(0), ControlReply::Purged(1));
}

#[test]
fn configuration_is_listed_and_changed_with_its_source() {
    let daemon = daemon(&["--create=all"]);
    let control = Control::connect(daemon.socket());
    let value = |key: &str| {
        let ControlReply::Config(all) = control.ask(&ControlRequest::Config) else { panic!("all") };
        let record = all.into_iter().find(|record| record.key == key).expect("listed");
        (record.value, record.source)
    };
    let own = |value: &str, source: &str| (value.to_owned(), source.to_owned());
    assert_eq!(value("create"), own("all", "cli option"));
    assert_eq!(value("log"), own("info", ""));
    let set = |key: &str, value: &str| {
        control.ask(&ControlRequest::SetConfig { key: key.into(), value: value.into() })
    };
    assert_eq!(set("log", "debug"), ControlReply::Done);
    assert_eq!(value("log"), own("debug", "set_config"));
    assert_eq!(set("log", "restore"), ControlReply::Done);
    assert_eq!(value("log"), own("info", ""));
    for (key, value, want) in [
        ("logg", "debug", "unknown key 'logg'; the nearest is 'log'"),
        ("nodeid", "3", "nodeid cannot change while the daemon runs"),
        ("log", "loud", "log: 'loud' is not one of"),
        ("create_group", "no-such-group-here", "there is no group"),
    ] {
        match set(key, value) {
            ControlReply::Refused { errno: libc::EINVAL, message } => {
                assert!(message.starts_with(want) || message.contains(want), "{message}");
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(value("create_group"), own("", ""), "a refused change changes nothing");
}

#[test]
fn the_log_is_read_page_by_page() {
    let daemon = daemon(&["--log=debug"]);
    let control = Control::connect(daemon.socket());
    for _ in 0..1000 {
        let unknown = Client::connect(daemon.socket(), &hello(&"n".repeat(64), false));
        assert_eq!(unknown.err(), Some(libc::ENOENT));
    }
    let (mut lines, mut from, mut pages) = (Vec::new(), 0, 0);
    loop {
        let ControlReply::Log(page) = control.ask(&ControlRequest::Log { from }) else {
            panic!("a page")
        };
        assert_eq!(page.first, lines.len() as u64);
        lines.extend(page.lines);
        pages += 1;
        match page.next {
            Some(next) => from = next,
            None => break,
        }
    }
    let want = format!(" {} user ", "n".repeat(32));
    assert_eq!(lines.iter().filter(|line| line.contains(&want)).count(), 1000);
    assert!(pages > 1 && lines[0].contains("serves at"), "{pages} {}", lines[0]);
}

#[test]
fn counters_tell_what_is_there() {
    let daemon = daemon(&[]);
    let control = Control::connect(daemon.socket());
    let before = control.counter("descriptors");
    assert!(before > 5 && control.counter("rss_kib") > 500);
    let mut client = Client::create(&daemon, "web");
    client.lock(b"x", EX, 0);
    assert_eq!(client.call(&common::unlock(99)), Err(libc::ENOENT));
    assert_eq!((control.counter("locks"), control.counter("lockspaces")), (1, 1));
    assert_eq!((control.counter("refused_ENOENT"), control.counter("clients")), (1, 1));
    assert!(control.counter("descriptors") > before);
    assert_eq!(client.release(true), 0);
    control.await_counter("clients", 0);
    assert_eq!(control.counter("descriptors"), before, "everything is closed again");
    assert!(control.counter("turns") > 0 && control.counter("steps") > 0);
}

#[test]
fn a_conversation_that_does_not_read_is_dropped_and_others_served() {
    let daemon = daemon(&[]);
    let mut client = Client::create(&daemon, "web");
    for number in 0..2000u32 {
        client.lock(&number.to_ne_bytes(), PR, 0);
    }
    let deaf = dlm_ipc::socket::Connection::connect(daemon.socket()).expect("connected");
    deaf.send(&Hello::Control.encode().expect("a message")).expect("sent");
    let bytes = dlm_ipc::control::ControlMessage::to_bytes(&table("web", 0)).expect("short");
    deaf.set_nonblocking(true).expect("possible");
    let control = Control::connect(daemon.socket());
    wait_until("it is dropped", || {
        let _ = deaf.send(&bytes);
        control.counter("connections") == 2
    });
    client.lock(b"x", EX, 0);
}

/// Runs the holder as nobody; what it said on standard error.
fn as_nobody(daemon: &DaemonProcess, lockspace: &str) -> String {
    let mut command = Holder::command();
    command.arg(daemon.socket()).arg(lockspace).uid(65534).gid(65534);
    command.stdin(std::process::Stdio::null()).stderr(std::process::Stdio::piped());
    let output = command.output().expect("it runs");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// BL-122.
#[test]
fn strangers_may_neither_create_nor_open_what_is_not_theirs() {
    let daemon = daemon(&[]);
    let _client = Client::create(&daemon, "web");
    let is_root = std::fs::metadata("/proc/self")
        .is_ok_and(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0);
    if !is_root {
        println!("skipped: only root can start a process of another user");
        return;
    }
    let open_dir = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(daemon.dir(), open_dir).expect("ours");
    if as_nobody(&daemon, "new").contains("Permission denied (os error 13)") {
        println!("skipped: another user cannot reach the program or the temporary directory");
        return;
    }
    assert!(as_nobody(&daemon, "new").contains("Operation not permitted"));
    let control = Control::connect(daemon.socket());
    let (key, value) = ("create".to_owned(), "all".to_owned());
    assert_eq!(control.ask(&ControlRequest::SetConfig { key, value }), ControlReply::Done);
    assert_eq!(as_nobody(&daemon, "new"), "");
    assert!(as_nobody(&daemon, "web").contains("Permission denied"));
    assert!(Client::connect(daemon.socket(), &hello("new", false)).is_ok(), "root passes");
}
