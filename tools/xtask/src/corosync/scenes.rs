//! What happens to hosts, wires and processes, and what has to come of it.

use std::time::Duration;

use super::hosts::{Hosts, NODES};
use crate::text;

/// Something that happens while workers work.
pub(super) struct Scene {
    pub(super) name: &'static str,
    /// What this machine lacks for it.
    pub(super) lack: fn() -> Option<String>,
    pub(super) play: fn(&mut Hosts) -> Result<(), String>,
    /// What the workers do (hammer.c): `bare` where all daemons die, and with them all value blocks.
    pub(super) workers: &'static str,
    /// Only with `--long`.
    long: bool,
}

const fn scene(name: &'static str, play: fn(&mut Hosts) -> Result<(), String>) -> Scene {
    Scene { name, lack: nothing, play, workers: "values", long: false }
}

fn nothing() -> Option<String> {
    None
}

const ALL: &[Scene] = &[
    Scene { lack: super::refusals::lack, ..scene("refusals", super::refusals::refusals) },
    scene("crash", crash),
    scene("clean-stop", clean_stop),
    scene("cut-heal", cut_heal),
    scene("one-way-cut", one_way_cut),
    scene("pause-node", pause_node),
    scene("pause-daemon", pause_daemon),
    scene("pause-client", pause_client),
    scene("corosync-killed", corosync_killed),
    scene("link-flap", link_flap),
    scene("wrong-authkey", wrong_authkey),
    Scene { workers: "bare", ..scene("all-restart", all_restart) },
    scene("wiped-state", wiped_state),
    Scene { lack: no_faketime, ..scene("clock-jump", clock_jump) },
    scene("stuck-joiner", stuck_joiner),
    scene("fence-agent-kills", super::fencing::agent_kills),
    scene("fence-agents-fail", super::fencing::agents_fail),
    Scene { long: true, workers: "bare", ..scene("lease", super::leases::lease) },
    scene("lock-port-blocked", lock_port_blocked),
    scene("release-while-cut", release_while_cut),
    Scene { workers: "bare", ..scene("third-without-service", third_without_service) },
    Scene { long: true, workers: "bare", ..scene("start-up-cuts", start_up_cuts) },
    Scene { long: true, workers: "bare", ..scene("silent-host", super::figures::silent_host) },
    Scene { long: true, ..scene("loss", loss) },
    Scene { long: true, ..scene("fast-restarts", fast_restarts) },
];

/// The scenes of these names, or all that fit the time.
pub(super) fn named(names: &[String], long: bool) -> Result<Vec<&'static Scene>, String> {
    if let Some(stranger) = names.iter().find(|name| ALL.iter().all(|scene| scene.name != **name)) {
        let known: Vec<&str> = ALL.iter().map(|scene| scene.name).collect();
        return Err(format!("there is no scene {stranger}; there are: {}", known.join(" ")));
    }
    let wanted = |scene: &&Scene| {
        if names.is_empty() {
            long || !scene.long
        } else {
            names.iter().any(|name| name == scene.name)
        }
    };
    Ok(ALL.iter().filter(wanted).collect())
}

fn wait(ms: u64) {
    std::thread::sleep(Duration::from_millis(ms));
}

const LIFE_OVER: &str = "the cluster went on without this node";

/// The power of a host fails: the others wait for fencing, say so, and go on when a person has been
/// there. BL-079: holders elsewhere keep their locks and their next operation succeeds.
fn crash(hosts: &mut Hosts) -> Result<(), String> {
    let before: Vec<usize> = (1..=2).map(|node| hosts.count(node, LIFE_OVER)).collect();
    hosts.power_off(3)?;
    hosts.fence_ack(1, 3)?;
    let others = hosts.workers.of(&[1, 2]);
    hosts.progress_of(&others, "without node 3")?;
    let after: Vec<usize> = (1..=2).map(|node| hosts.count(node, LIFE_OVER)).collect();
    if before != after {
        return Err("a healthy node lost its life".to_owned());
    }
    // The coordinator itself, while another one has just come back (BL-063).
    hosts.power_on(3)?;
    hosts.power_off(1)?;
    hosts.fence_ack(2, 1)?;
    let others = hosts.workers.of(&[2, 3]);
    hosts.progress_of(&others, "without node 1")?;
    hosts.power_on(1)
}

/// A daemon without lockspaces ends and comes back: nobody fears it, and nobody has to be fenced.
fn clean_stop(hosts: &mut Hosts) -> Result<(), String> {
    hosts.workers.kill(2)?;
    hosts.leave(2)?;
    hosts.stop_daemon(2)?;
    let others = hosts.workers.of(&[1, 3]);
    hosts.progress_of(&others, "without node 2")?;
    hosts.settle()?;
    if hosts.status(1).contains("wait fencing") {
        return Err("a node that left is feared".to_owned());
    }
    hosts.start_daemon(2)?;
    hosts.start_workers(2)
}

/// A host is cut off and heals. The part without quorum stops and says why; what it holds is not given
/// away before its programs know. BL-048, BL-065, BL-080, BL-061: its daemon says the loss once.
fn cut_heal(hosts: &mut Hosts) -> Result<(), String> {
    let lost = hosts.count(3, LIFE_OVER);
    hosts.wires(&["isolate", "n3"])?;
    hosts.wait_for(3, "wait quorum")?;
    hosts.wait_for(1, "wait fencing: node 3 ")?;
    let alone = hosts.workers.of(&[3]);
    let before: Vec<u64> = alone.iter().map(|worker| hosts.workers.board.grants(*worker)).collect();
    wait(1500);
    let after: Vec<u64> = alone.iter().map(|worker| hosts.workers.board.grants(*worker)).collect();
    if before != after {
        return Err("a node without quorum granted locks".to_owned());
    }
    hosts.wires(&["heal"])?;
    hosts.progress("after a cut")?;
    match hosts.count(3, LIFE_OVER) - lost {
        1 => Ok(()),
        times => Err(format!("node 3 said {times} times that it was done without")),
    }
}

/// Node 1 no longer hears node 3.
fn one_way_cut(hosts: &mut Hosts) -> Result<(), String> {
    hosts.wires(&["cut", "n3", "n1"])?;
    wait(9000);
    hosts.wires(&["heal"])?;
    hosts.settle()?;
    hosts.progress("after a one-way cut")
}

/// A whole host stands still for 7 s. It then sees the change and the merge in one burst, and never a
/// lack of quorum. BL-092: nothing of its old life comes back.
fn pause_node(hosts: &mut Hosts) -> Result<(), String> {
    let lost = hosts.count(2, LIFE_OVER);
    hosts.wires(&["pause", "n2"])?;
    hosts.workers.signal(2, "STOP")?;
    hosts.wait_for(1, "wait fencing: node 2 ")?;
    wait(3000);
    hosts.wires(&["resume", "n2"])?;
    hosts.workers.signal(2, "CONT")?;
    hosts
        .wait("node 2 does not notice that it stood still", || hosts.count(2, LIFE_OVER) > lost)?;
    hosts.settle()?;
    hosts.progress("after a pause")
}

/// Only the daemon stands still: corosync does not see that, its peers do. BL-085.
fn pause_daemon(hosts: &mut Hosts) -> Result<(), String> {
    for node in [3, 1] {
        let lost = hosts.count(node, LIFE_OVER);
        hosts.signal_daemon(node, "STOP")?;
        hosts.wait_for(2, &format!("wait fencing: node {node} "))?;
        wait(500);
        hosts.signal_daemon(node, "CONT")?;
        hosts.wait("it does not notice that it stood still", || {
            hosts.count(node, LIFE_OVER) > lost
        })?;
        hosts.settle()?;
        hosts.progress("after a pause of a daemon")?;
    }
    Ok(())
}

/// Programs stand still: they keep what they hold, and nobody is excluded.
fn pause_client(hosts: &mut Hosts) -> Result<(), String> {
    let lost: Vec<usize> = (1..=NODES).map(|node| hosts.count(node, LIFE_OVER)).collect();
    hosts.workers.signal(2, "STOP")?;
    wait(2000);
    hosts.workers.signal(2, "CONT")?;
    hosts.progress("after a pause of programs")?;
    let after: Vec<usize> = (1..=NODES).map(|node| hosts.count(node, LIFE_OVER)).collect();
    if lost == after { Ok(()) } else { Err("a node lost its life".to_owned()) }
}

/// corosync dies under a daemon: its programs are told at once (BL-061), and it joins again by itself.
fn corosync_killed(hosts: &mut Hosts) -> Result<(), String> {
    let lost = hosts.count(2, "corosync is lost");
    hosts.kill_corosync(2)?;
    hosts.wait("node 2 does not notice", || hosts.count(2, "corosync is lost") > lost)?;
    hosts.wait_for(2, "corosync does not run")?;
    let others = hosts.workers.of(&[1, 3]);
    hosts.start_corosync(2)?;
    hosts.settle()?;
    hosts.progress_of(&others, "after corosync was killed elsewhere")?;
    hosts.progress("after corosync was killed")
}

/// One of two links goes and comes: a new ring of the same members is no recovery.
fn link_flap(hosts: &mut Hosts) -> Result<(), String> {
    let views: Vec<usize> = (1..=NODES).map(|node| hosts.count(node, "field view")).collect();
    for _ in 0..2 {
        hosts.wires(&["unplug", "n3", "2"])?;
        wait(2000);
        hosts.wires(&["plug", "n3", "2"])?;
        wait(1000);
    }
    hosts.settle()?;
    let after: Vec<usize> = (1..=NODES).map(|node| hosts.count(node, "field view")).collect();
    if views == after { Ok(()) } else { Err("a link that flapped changed views".to_owned()) }
}

/// A host comes back with a wrong key of corosync's: it is alone, says so, and harms nobody.
fn wrong_authkey(hosts: &mut Hosts) -> Result<(), String> {
    let key = hosts.net().join("n3/etc/corosync/authkey");
    let right = std::fs::read(&key).map_err(text)?;
    let wrong: Vec<u8> = right.iter().map(|byte| byte ^ 0x55).collect();
    hosts.power_off(3)?;
    hosts.fence_ack(1, 3)?;
    std::fs::write(&key, wrong).map_err(text)?;
    hosts.start_corosync(3)?;
    hosts.start_daemon(3)?;
    hosts.wait_for(3, "wait quorum")?;
    let others = hosts.workers.of(&[1, 2]);
    hosts.progress_of(&others, "beside a node with a wrong key")?;
    hosts.power_off(3)?;
    std::fs::write(&key, right).map_err(text)?;
    hosts.power_on(3)
}

/// All daemons die and are back within 50 ms: service comes back by itself (BL-094, BL-060).
fn all_restart(hosts: &mut Hosts) -> Result<(), String> {
    for _ in 0..2 {
        for node in 1..=NODES {
            hosts.kill_daemon(node);
        }
        for node in 1..=NODES {
            hosts.start_daemon(node)?;
        }
        hosts.settle()?;
        hosts.progress("after all daemons were killed")?;
    }
    // A majority, one after the other, without waiting.
    for node in [2, 3] {
        hosts.kill_daemon(node);
        hosts.start_daemon(node)?;
    }
    hosts.settle()?;
    hosts.progress("after two daemons were killed")
}

/// A daemon comes back under its number without memory (BL-093), and faster than anybody notices
/// (BL-045).
fn wiped_state(hosts: &mut Hosts) -> Result<(), String> {
    let lost: Vec<usize> = [1, 2].map(|node| hosts.count(node, LIFE_OVER)).into();
    for _ in 0..3 {
        hosts.kill_daemon(3);
        let _ = std::fs::remove_file(hosts.folder(3).join("state"));
        hosts.start_daemon(3)?;
        hosts.progress("after a restart without memory")?;
    }
    let after: Vec<usize> = [1, 2].map(|node| hosts.count(node, LIFE_OVER)).into();
    if lost == after { Ok(()) } else { Err("a healthy node lost its life".to_owned()) }
}

const FAKETIME: &str = "/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1";

fn no_faketime() -> Option<String> {
    crate::packages::lack(&["libfaketime"])
}

/// A daemon whose wall clock is an hour off, and one that runs apart: nobody is excluded (BL-103).
fn clock_jump(hosts: &mut Hosts) -> Result<(), String> {
    let lost: Vec<usize> = (1..=NODES).map(|node| hosts.count(node, LIFE_OVER)).collect();
    for shift in ["+3600s", "-3600s", "+0 x20"] {
        hosts.kill_daemon(2);
        let more = [
            format!("LD_PRELOAD={FAKETIME}"),
            format!("FAKETIME={shift}"),
            "FAKETIME_DONT_FAKE_MONOTONIC=1".to_owned(),
        ];
        hosts.start_daemon_with(2, &more)?;
        hosts.settle()?;
        hosts.progress("with a wrong clock")?;
        wait(1000);
    }
    let after: Vec<usize> = (1..=NODES).map(|node| hosts.count(node, LIFE_OVER)).collect();
    if lost != after {
        return Err("a wrong wall clock cost a node its life".to_owned());
    }
    hosts.kill_daemon(2);
    hosts.start_daemon(2)
}

/// A daemon stands still right after its start: the others go on (BL-050).
fn stuck_joiner(hosts: &mut Hosts) -> Result<(), String> {
    for pause in [0, 100] {
        // In good order, so that nobody has to fear what it was before.
        hosts.workers.kill(3)?;
        hosts.leave(3)?;
        hosts.stop_daemon(3)?;
        hosts.start_daemon(3)?;
        wait(pause);
        hosts.signal_daemon(3, "STOP")?;
        let others = hosts.workers.of(&[1, 2]);
        let went_on = hosts.progress_of(&others, "beside a daemon that stands still");
        hosts.signal_daemon(3, "CONT")?;
        went_on?;
        hosts.settle()?;
        hosts.start_workers(3)?;
        hosts.progress("after it went on")?;
    }
    Ok(())
}

/// A lockspace is released while its peers cannot be reached, and created again (BL-062).
fn release_while_cut(hosts: &mut Hosts) -> Result<(), String> {
    hosts.wires(&["isolate", "n2"])?;
    hosts.wait_for(2, "wait quorum")?;
    hosts.workers.kill(2)?;
    hosts.leave(2)?;
    hosts.wires(&["heal"])?;
    hosts.start_workers(2)?;
    hosts.settle()?;
    hosts.progress("after a release without peers")
}

/// Lets nothing of node 1's lock traffic through.
const BLOCK: &str = "table inet block {
  chain input {
    type filter hook input priority 0;
    ip saddr 10.80.1.1 tcp dport 21064 drop;
    ip saddr 10.80.1.1 tcp sport 21064 drop;
  }
}
";

/// Membership works and the lock port does not (BL-064).
fn lock_port_blocked(hosts: &mut Hosts) -> Result<(), String> {
    let lost = [1, 3].map(|node| hosts.count(node, LIFE_OVER));
    hosts.wires(&["exec", "n3", "nft", BLOCK])?;
    let others = hosts.workers.of(&[1, 2]);
    let excluded = hosts
        .wait("nobody is excluded", || [1, 3].map(|node| hosts.count(node, LIFE_OVER)) != lost);
    let went_on = excluded.and_then(|()| hosts.progress_of(&others[..2], "with a blocked port"));
    let named =
        hosts.status(1).contains("unreachable") || hosts.status(3).contains("not connected");
    hosts.wires(&["exec", "n3", "nft", "delete table inet block"])?;
    went_on?;
    hosts.settle()?;
    hosts.progress("after the port was opened")?;
    let again = [1, 3].map(|node| hosts.count(node, LIFE_OVER));
    let times: usize = again.iter().zip(lost).map(|(after, before)| after - before).sum();
    match (named, times) {
        (false, _) => Err("no status names the pair that cannot talk".to_owned()),
        (_, 1..=2) => Ok(()),
        (_, times) => Err(format!("nodes were excluded {times} times")),
    }
}

/// Two of three nodes run the service, the third one only corosync: once it is known to have nothing,
/// service runs (BL-118).
fn third_without_service(hosts: &mut Hosts) -> Result<(), String> {
    for node in 1..=NODES {
        hosts.kill_daemon(node);
    }
    hosts.workers.kill(3)?;
    for node in 1..=2 {
        hosts.start_daemon(node)?;
    }
    hosts.fence_ack(1, 3)?;
    let others = hosts.workers.of(&[1, 2]);
    hosts.progress_of(&others, "two of three")?;
    hosts.settle()?;
    if hosts.status(1).contains("node 3 M ") {
        return Err("a node without the service takes part".to_owned());
    }
    hosts.start_daemon(3)?;
    hosts.start_workers(3)
}

/// The network is cut while daemons start (BL-051).
fn start_up_cuts(hosts: &mut Hosts) -> Result<(), String> {
    for pause in [200, 700, 1500] {
        for node in 1..=NODES {
            hosts.kill_daemon(node);
        }
        for node in 1..=NODES {
            hosts.start_daemon(node)?;
        }
        wait(pause);
        hosts.wires(&["isolate", "n1"])?;
        wait(5000);
        hosts.wires(&["heal"])?;
        hosts.settle()?;
        hosts.progress("after a cut at the start")?;
    }
    Ok(())
}

/// A fifth of all frames of a host is lost (BL-081).
fn loss(hosts: &mut Hosts) -> Result<(), String> {
    hosts.wires(&["loss", "n2", "20"])?;
    wait(20_000);
    hosts.wires(&["heal"])?;
    hosts.settle()?;
    hosts.progress("after losses")
}

/// A daemon is killed with its programs and is back at once, again and again (BL-045).
fn fast_restarts(hosts: &mut Hosts) -> Result<(), String> {
    for _ in 0..20 {
        hosts.kill_daemon(2);
        hosts.workers.kill(2)?;
        hosts.start_daemon(2)?;
        hosts.start_workers(2)?;
        hosts.progress("after a fast restart")?;
    }
    Ok(())
}
