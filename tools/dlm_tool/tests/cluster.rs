//! Listings of a cluster of two real daemons.

mod common;

use common::{command, line};
use dlm_net::testing::cluster::Cluster;
use dlm_net::testing::program;

#[test]
fn every_node_lists_all_members_and_the_master_lists_copies() {
    let mut cluster = Cluster::start(&program("dlmd"), 2);
    for node in [1, 2] {
        assert_eq!(line(cluster.daemon(node).socket(), "join web").code, 0);
    }
    cluster.wait_members("web", &[1, 2]);
    // One hold on each node, of different names and of one.
    let hold = |node: u32, name: &str, mode: &str| {
        let words = ["exec", "web", name, "--mode", mode, "--", "sleep", "60"];
        command(cluster.daemon(node).socket(), &words).spawn().expect("it runs")
    };
    let mut holders = vec![hold(1, "shared", "PR"), hold(2, "shared", "PR"), hold(2, "own", "EX")];
    let dump = |node: u32| line(cluster.daemon(node).socket(), "lockdump -M web").out;
    cluster.wait_until("one node masters the name and shows both holders", || {
        [1, 2].iter().any(|node| dump(*node).matches("shared").count() == 2)
    });
    let master = if dump(1).matches("shared").count() == 2 { 1 } else { 2 };
    let shown = line(cluster.daemon(master).socket(), "lock web shared").out;
    assert!(shown.contains("node 1 pid") && shown.contains("node 2 pid"), "{shown}");
    for holder in &mut holders {
        holder.kill().expect("ours");
        holder.wait().expect("ours");
    }
    let tool =
        |cluster: &Cluster, node: u32, words: &str| line(cluster.daemon(node).socket(), words).out;
    for node in [1, 2] {
        let listing = tool(&cluster, node, "ls -n");
        assert!(listing.contains("members       1 2"), "{listing}");
        assert!(listing.contains("nodeid 1 member 1") && listing.contains("nodeid 2 member 1"));
        let status = tool(&cluster, node, "status");
        assert!(status.contains("node 1 M") && status.contains("node 2 M"), "{status}");
        let members = tool(&cluster, node, "members");
        assert_eq!(members.matches("(this node)").count(), 1, "{members}");
    }
    cluster.crash(2);
    cluster.exclude(2);
    cluster.wait_until("node 2 is feared", || {
        tool(&cluster, 1, "members").contains("lost, not known to be safe")
    });
    assert!(tool(&cluster, 1, "status").contains("node 2 X"));
    let said = tool(&cluster, 1, "safe 2");
    assert_eq!(said, "node 2 is safe\n");
    assert!(!tool(&cluster, 1, "members").contains("lost"));
}
