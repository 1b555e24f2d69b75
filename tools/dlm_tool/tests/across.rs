//! The tool's view of several daemons: names mastered elsewhere, waits in words, history.

mod common;

use std::process::Child;

use common::{Ran, command, eventually, line, signal};
use dlm_net::testing::cluster::Cluster;
use dlm_net::testing::program;
use serde_json::Value;

/// Locks held by processes of their own; ended with this.
#[derive(Default)]
struct Holders(Vec<Child>);

impl Holders {
    /// Holds a lock on a node, and returns the holder's pid when it does.
    fn hold(&mut self, cluster: &Cluster, node: u32, name: &str, mode: &str) -> u32 {
        let words = ["exec", "web", name, "--mode", mode, "--", "sleep", "600"];
        let child = command(cluster.daemon(node).socket(), &words).spawn().expect("it runs");
        let pid = child.id();
        self.0.push(child);
        eventually(&format!("node {node} has {name}"), || {
            let dump = tool(cluster, node, "lockdump web");
            dump.out.lines().any(|l| l.contains(&format!("gr {mode}")) && l.contains(&pid_of(pid)))
        });
        pid
    }

    /// Ends the holder with this pid, as a crash would.
    fn kill(&mut self, pid: u32) {
        let at = self.0.iter().position(|child| child.id() == pid).expect("ours");
        let mut child = self.0.swap_remove(at);
        child.kill().expect("ours");
        child.wait().expect("ours");
    }
}

impl Drop for Holders {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn pid_of(pid: u32) -> String {
    format!("pid {pid} ")
}

fn tool(cluster: &Cluster, node: u32, words: &str) -> Ran {
    line(cluster.daemon(node).socket(), words)
}

fn json(cluster: &Cluster, node: u32, words: &str) -> Value {
    tool(cluster, node, &format!("{words} --json")).json()
}

fn three() -> Cluster {
    let cluster = Cluster::start(&program("dlmd"), 3);
    for node in [1, 2, 3] {
        assert_eq!(tool(&cluster, node, "join web").code, 0);
    }
    cluster.wait_members("web", &[1, 2, 3]);
    cluster
}

/// The master of a name, as a node tells it.
fn master(cluster: &Cluster, node: u32, name: &str) -> u64 {
    json(cluster, node, &format!("lock web {name}"))["master"].as_u64().expect("a master")
}

#[test]
fn a_lock_is_shown_whole_on_every_node() {
    let cluster = three();
    let mut holders = Holders::default();
    // Names with every node as their directory; the first to ask is the master.
    for name in ["a", "b", "c", "d", "e", "f"] {
        let own = holders.hold(&cluster, 1, name, "PR");
        let other = holders.hold(&cluster, 2, name, "CR");
        for node in [1, 2, 3] {
            let ran = tool(&cluster, node, &format!("lock web {name}"));
            assert_eq!(ran.code, 0, "{ran:?}");
            assert!(ran.out.contains("mastered by node 1"), "{ran:?}");
            assert!(ran.out.contains(&format!("node 1 pid {own}")), "node {node}: {ran:?}");
            assert!(ran.out.contains(&format!("node 2 pid {other}")), "node {node}: {ran:?}");
            let shown = json(&cluster, node, &format!("lock web {name}"));
            assert_eq!((shown["whole"].as_bool(), shown["master"].as_u64()), (Some(true), Some(1)));
            // A program's name is known where it runs.
            let locks = shown["granted"].as_array().expect("a list");
            let of = |node: u64| locks.iter().find(|l| l["node"] == node).expect("a lock");
            let named = of(2)["program"] == "dlm_tool";
            assert_eq!(named, node == 2, "{shown}");
        }
    }
    let ran = tool(&cluster, 3, "lock web nobody-uses-this");
    assert_eq!((ran.out.as_str(), ran.code), ("", 1), "{ran:?}");
    assert!(ran.err.contains("nobody holds or waits for"), "{ran:?}");
    assert_eq!(tool(&cluster, 3, "lock nosuch a").code, 1);
}

#[test]
fn a_node_without_the_lockspace_asks_those_that_have_it() {
    let cluster = Cluster::start(&program("dlmd"), 3);
    for node in [1, 2] {
        assert_eq!(tool(&cluster, node, "join web").code, 0);
    }
    cluster.wait_members("web", &[1, 2]);
    let mut holders = Holders::default();
    let pid = holders.hold(&cluster, 2, "a", "EX");
    let ran = tool(&cluster, 3, "lock web a");
    assert!(ran.code == 0 && ran.out.contains(&format!("node 2 pid {pid}")), "{ran:?}");
    let ran = tool(&cluster, 3, "lock nosuch a");
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.err.contains("has a lockspace nosuch"), "{ran:?}");
}

#[test]
fn dumps_have_copies_on_the_master_and_the_masters_ids_elsewhere() {
    let cluster = three();
    let mut holders = Holders::default();
    holders.hold(&cluster, 1, "name", "PR");
    let pid = holders.hold(&cluster, 2, "name", "PR");
    let waits = ["exec", "web", "name", "--", "true"];
    let child = command(cluster.daemon(2).socket(), &waits).spawn().expect("it runs");
    let waiter = child.id();
    holders.0.push(child);
    let lines = |node: u32, words: &str| -> Vec<String> {
        tool(&cluster, node, words).out.lines().map(str::to_owned).collect()
    };
    eventually("the waiter is queued at the master", || {
        lines(1, "lockdump -M web").iter().any(|l| l.contains("gr IV rq EX"))
    });
    // Without -M the master lists its own lock alone.
    assert_eq!(lines(1, "lockdump web").len(), 1);
    let copies: Vec<String> = lines(1, "lockdump -M web")
        .into_iter()
        .filter(|l| l.contains("MSTCPY 2 \"name\""))
        .collect();
    assert_eq!(copies.len(), 2, "{copies:?}");
    assert!(
        copies.iter().any(|l| l.contains(&format!("gr PR rq IV {}", pid_of(pid)))),
        "{copies:?}"
    );
    assert!(copies.iter().any(|l| l.contains(&format!("gr IV rq EX {}", pid_of(waiter)))));
    let own = lines(2, "lockdump -M web");
    assert_eq!(own.iter().filter(|l| l.contains("master 1 \"name\"")).count(), 2, "{own:?}");

    // Each side names the other's id (libdlm-abi.md 4.8).
    let at_master = tool(&cluster, 1, "lockdebug -s web").out;
    let at_owner = tool(&cluster, 2, "lockdebug -s web").out;
    assert!(at_master.contains("\nMaster           \n"), "{at_master}");
    assert!(at_owner.contains("\nMaster:1         \n"), "{at_owner}");
    let pairs = |text: &str, word: &str| -> Vec<(String, String)> {
        let of = |l: &str| {
            let (id, rest) = l.split_once(' ')?;
            let (_, place) = rest.split_once(word)?;
            let mut words = place.split_whitespace().skip(1);
            Some((id.to_owned(), words.next()?.to_owned()))
        };
        text.lines().filter_map(of).collect()
    };
    let mut copies = pairs(&at_master, "Remote:");
    let mut swapped: Vec<_> =
        pairs(&at_owner, "Master:").into_iter().map(|(id, there)| (there, id)).collect();
    copies.sort();
    swapped.sort();
    assert_eq!(copies.len(), 2, "{at_master}");
    assert_eq!(copies, swapped, "{at_master}\n{at_owner}");
    assert!(at_master.contains("  master copy   2\n"), "{at_master}");
    assert!(at_owner.contains("  process copy  2\n"), "{at_owner}");
}

#[test]
fn a_lost_node_is_waited_for_in_words_and_remembered_in_the_history() {
    let mut cluster = three();
    let mut holders = Holders::default();
    let lost = holders.hold(&cluster, 3, "lost", "PR");
    assert_eq!(master(&cluster, 1, "lost"), 3);
    let survivor = holders.hold(&cluster, 1, "lost", "PR");
    let free = json(&cluster, 1, "status");
    assert_eq!(
        (free["state"].as_str(), free["waits_for"].as_array().map(Vec::len)),
        (Some("running"), Some(0))
    );

    // Its daemon goes first, so that nobody gives its locks back.
    cluster.crash(3);
    holders.kill(lost);
    let ran = tool(&cluster, 1, "lock web lost");
    assert!(ran.err.contains("only what this node has itself is shown: node 3"), "{ran:?}");
    assert!(ran.out.contains(&format!("node 1 pid {survivor}")), "{ran:?}");
    let ran = tool(&cluster, 2, "lock web lost --json");
    assert_eq!((ran.code, ran.json()["state"].as_str()), (3, Some("unknown")), "{ran:?}");

    cluster.exclude(3);
    cluster.wait_until("node 3 is feared", || {
        tool(&cluster, 1, "ls").out.contains("new status    wait fencing")
    });
    let ls = tool(&cluster, 1, "ls -n").out;
    for want in [
        "flags         0x00000004 kern_stop",
        "change        member 3 joined ",
        "members       1 2 3 \n",
        "new change    member 2 joined 0 remove 1 failed 1 seq ",
        "new members   1 2 \n",
        "nodeid 3 member 0 failed 3 start 0 seq_add ",
        " check fence ",
    ] {
        assert!(ls.contains(want), "{want:?} in {ls}");
    }
    let status = tool(&cluster, 1, "status").out;
    assert!(status.contains("\nfence 3 nodedown delay actor 0 fail "), "{status}");
    assert!(status.contains("\nstate 3 lost, not known to be safe, 127."), "{status}");
    assert!(status.contains("\nstate 2 connected, 127."), "{status}");
    assert!(status.contains("\nwaits web: node 3 to be known as safe, lost since "), "{status}");
    assert!(status.contains("dlm_tool safe 3"), "{status}");
    assert_eq!(json(&cluster, 1, "status")["state"], "waiting");
    let open = tool(&cluster, 1, "recovery web").out;
    assert!(open.contains("node 3 failed; members 1 2") && open.contains("not yet"), "{open}");

    cluster.gone(3);
    cluster.settle();
    eventually("the name has a new master", || {
        json(&cluster, 2, "lock web lost")["whole"].as_bool() == Some(true)
    });
    assert_ne!(master(&cluster, 2, "lost"), 3);
    eventually("nothing is waited for", || {
        [1, 2].iter().all(|node| json(&cluster, *node, "status")["state"] == "running")
    });
    let all: Vec<Value> = [1, 2].map(|node| last_change(&cluster, node)).into();
    for change in &all {
        assert_eq!(change["failed"], serde_json::json!([3]));
        assert_eq!(change["safe"][0]["node"], 3);
        assert_eq!(change["superseded"], false);
        let steps = ["names_done_us", "all_safe_us", "locks_done_us", "in_service_us"];
        let took: Vec<u64> = steps.iter().map(|step| change[step].as_u64().expect(step)).collect();
        assert!(took[0] <= took[2] && took[1] <= took[2] && took[2] <= took[3], "{change}");
    }
    // The survivor's lock moved, to whichever node took the name.
    let sum = |key: &str| all.iter().map(|change| change[key].as_u64().expect(key)).sum::<u64>();
    assert_eq!(sum("locks_moved"), 1, "{all:?}");
    assert_eq!(sum("names_rebuilt"), 1, "{all:?}");
    assert!(sum("names_waited") >= 1, "{all:?}");
    let log = tool(&cluster, 1, "dump").out;
    assert!(log.contains("all in service after"), "{log}");

    cluster.restart(3);
    assert_eq!(tool(&cluster, 3, "join web").code, 0);
    cluster.wait_members("web", &[1, 2, 3]);
    let change = last_change(&cluster, 1);
    assert_eq!(
        (&change["joined"], &change["failed"]),
        (&serde_json::json!([3]), &serde_json::json!([]))
    );
    eventually("node 3 is a member again", || {
        tool(&cluster, 1, "ls -n").out.contains("nodeid 3 member 1 failed 0 start 1 seq_add ")
    });
}

/// The last change in a node's history.
fn last_change(cluster: &Cluster, node: u32) -> Value {
    let history = json(cluster, node, "recovery web");
    history["changes"].as_array().and_then(|all| all.last()).expect("a change").clone()
}

#[test]
fn a_member_that_does_not_answer_is_named() {
    let cluster = three();
    let pid = cluster.daemon(3).pid();
    signal(pid, "STOP");
    // A view that it cannot answer to.
    assert_eq!(tool(&cluster, 2, "leave web").code, 0);
    let waits = || {
        let status = tool(&cluster, 1, "status").out;
        status.lines().any(|l| l.starts_with("waits web: messages from node 3 ("))
    };
    cluster.wait_until("node 1 waits for node 3", waits);
    let status = tool(&cluster, 1, "status").out;
    let ls = tool(&cluster, 1, "ls").out;
    assert!(ls.contains("new status    wait messages 1"), "{ls}");
    assert!(status.contains("since "), "{status}");
    signal(pid, "CONT");
    cluster.settle();
    eventually("nothing is waited for", || json(&cluster, 1, "status")["state"] == "running");
}
