//! Fence agents of our own, over a real corosync: one that really kills the host, one that fails, one
//! that hangs, one that is missing; and what an operator sees in each case (libdlm-abi.md 4.4, 5.4).

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use super::hosts::{Hosts, NODES};
use crate::text;

/// How a lost node is seen while agents run for it, on the node that runs them.
const RUNS: &str = "\nfence 3 nodedown pid ";

/// A host is cut off. The first way to fence it fails, the second kills everything that runs on it;
/// then the others go on, and it comes back clean.
pub(super) fn agent_kills(hosts: &mut Hosts) -> Result<(), String> {
    let go = hosts.dir.path().join("go");
    let namespace = namespace_of(hosts, 3)?;
    agent(hosts, "fence_fails", "echo the switch does not answer >&2; exit 1")?;
    let kill = format!(
        "while [ ! -e {} ]; do sleep 0.05; done\n\
         for p in /proc/[0-9]*; do\n\
         [ \"$(readlink $p/ns/net)\" != '{namespace}' ] || kill -9 ${{p#/proc/}}\n\
         done\nexit 0",
        go.display()
    );
    agent(hosts, "fence_kill", &kill)?;
    configure(hosts, "", &["fence_fails", "fence_kill"])?;
    // Whoever holds something when the agent comes is another scene's business.
    hosts.workers.kill(3)?;
    hosts.wires(&["isolate", "n3"])?;
    hosts.wait_for(1, RUNS)?;
    hosts.wait_for(1, "fence_kill of device d1 runs here as pid ")?;
    let (one, two) = (hosts.status(1), hosts.status(2));
    line_has(&one, "fence 3 ", &[" actor 1 fail ", " fence 0 now "])?;
    line_has(&two, "fence 3 nodedown delay actor 1 fail ", &[" fence 0 now "])?;
    line_has(&one, "waits ", &["wait fencing: node 3 ", "dlm_tool fence_ack 3 ends the wait"])?;
    says(&two, "node 1 runs its agents")?;
    let failed =
        "fence_fails of device d0 failed with exit code 1, saying: the switch does not answer";
    says(&hosts.log(1), failed)?;
    std::fs::write(&go, "").map_err(text)?;
    hosts.wait_for(1, " at 1 ")?;
    hosts.wait_for(2, "\nnode 3 X ")?;
    for node in 1..=2 {
        hosts.wait(&format!("node {node} still waits for fencing"), || {
            !hosts.status(node).contains("wait fencing")
        })?;
        line_has(&hosts.status(node), "node 3 X ", &[" at 1 "])?;
    }
    let others = hosts.workers.of(&[1, 2]);
    hosts.progress_of(&others, "after node 3 was fenced")?;
    hosts.wires(&["heal"])?;
    hosts.kill_daemon(3);
    hosts.power_on(3)?;
    configure_as_before(hosts)
}

/// No way works: each agent is named with what became of it, on every node in turn, and a person ends
/// the wait.
pub(super) fn agents_fail(hosts: &mut Hosts) -> Result<(), String> {
    agent(hosts, "fence_fails", "echo the switch does not answer >&2; exit 1")?;
    agent(hosts, "fence_hangs", "sleep 600")?;
    configure(hosts, "fence_timeout=1\n", &["fence_hangs", "fence_fails", "fence_missing"])?;
    hosts.power_off(3)?;
    hosts.wait_for(1, RUNS)?;
    for node in 1..=2 {
        for words in [
            "fence_hangs of device d0 took too long and was killed",
            "fence_fails of device d1 failed with exit code 1, saying: the switch does not answer",
            "fence_missing of device d2 cannot be run: it is not found on PATH",
        ] {
            hosts.wait(&format!("node {node} does not say '{words}'"), || {
                hosts.log(node).contains(words)
            })?;
        }
    }
    hosts.wait_for(1, "again, as agents of all nodes failed; here agent ")?;
    line_has(&hosts.status(1), "fence 3 nodedown delay actor 1 ", &[])?;
    let others = hosts.workers.of(&[1, 2]);
    hosts.fence_ack(2, 3)?;
    hosts.progress_of(&others, "after a person's word")?;
    line_has(&hosts.status(1), "node 3 X ", &[" at 2 "])?;
    for node in 1..=2 {
        says(&hosts.log(node), "node 3 counts as fenced: an administrator at node 2 said so")?;
    }
    let again = hosts.tool(1, &["fence_ack", "3"])?;
    says(&String::from_utf8_lossy(&again.stderr), "nothing waits for node 3 to be fenced")?;
    hosts.power_on(3)?;
    configure_as_before(hosts)
}

/// The network namespace that a host's daemon runs in.
fn namespace_of(hosts: &Hosts, node: u32) -> Result<String, String> {
    let output = hosts.tool(node, &["status", "--json"])?;
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    let pid = told
        .split("\"pid\":")
        .nth(1)
        .map(|rest| rest.trim().chars().take_while(char::is_ascii_digit).collect::<String>());
    let pid = pid.ok_or_else(|| format!("no pid in {told}"))?;
    let link = std::fs::read_link(format!("/proc/{pid}/ns/net")).map_err(text)?;
    Ok(link.display().to_string())
}

/// An agent of this name; a daemon may be running the one of before.
fn agent(hosts: &Hosts, name: &str, body: &str) -> Result<(), String> {
    let path = agent_path(hosts, name);
    let fresh = path.with_extension("new");
    std::fs::write(&fresh, format!("#!/bin/sh\n{body}\n")).map_err(text)?;
    let mode = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(&fresh, mode).map_err(text)?;
    std::fs::rename(&fresh, &path).map_err(text)
}

fn agent_path(hosts: &Hosts, name: &str) -> PathBuf {
    hosts.dir.path().join(name)
}

/// Gives all daemons that run these keys and agents, as the ways to fence every node.
fn configure(hosts: &Hosts, keys: &str, agents: &[&str]) -> Result<(), String> {
    let device = |(number, agent): (usize, &&str)| {
        let path = agent_path(hosts, agent);
        let connect = |node| format!("connect d{number} node={node} port={node}\n");
        let connects: String = (1..=NODES).map(connect).collect();
        format!("device d{number} {} login=fencer\n{connects}\n", path.display())
    };
    let devices: String = agents.iter().enumerate().map(device).collect();
    reload(hosts, &format!("post_join_delay=0\n{keys}\n{devices}"))
}

fn configure_as_before(hosts: &Hosts) -> Result<(), String> {
    reload(hosts, "")
}

fn reload(hosts: &Hosts, more: &str) -> Result<(), String> {
    for node in 1..=NODES {
        let file = hosts.folder(node).join("dlm.conf");
        std::fs::write(&file, format!("{}{more}", hosts.config())).map_err(text)?;
        let output = hosts.tool(node, &["reload_config"])?;
        if !output.status.success() {
            let told = String::from_utf8_lossy(&output.stderr).into_owned();
            return Err(format!("reload_config on node {node}: {told}"));
        }
    }
    Ok(())
}

/// Whether a line that begins like this has all these words.
fn line_has(told: &str, begin: &str, words: &[&str]) -> Result<(), String> {
    let good = |line: &&str| line.starts_with(begin) && words.iter().all(|w| line.contains(w));
    match told.lines().find(good) {
        Some(_) => Ok(()),
        None => Err(format!("no line '{begin}…' with {words:?} in:\n{told}")),
    }
}

fn says(told: &str, words: &str) -> Result<(), String> {
    if told.contains(words) { Ok(()) } else { Err(format!("no '{words}' in:\n{told}")) }
}
