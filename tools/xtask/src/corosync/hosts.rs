//! The hosts with corosync, daemons and workers, and what can be done to them.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use super::scenes::Scene;
use crate::nodes::Nodes;
use crate::places::Places;
use crate::scratch::Scratch;
use crate::wires::Wires;
use crate::workers::{GUARD, NAMES, SPACE, Workers};
use crate::{Ending, job, leftover, text};

/// Hosts.
pub(super) const NODES: u32 = 3;
/// Workers on each.
const WORKERS: u32 = 2;

/// The hosts. Dropping them ends what is on them, in the order of the fields.
pub(super) struct Hosts {
    pub(super) workers: Workers,
    nodes: Nodes,
    wires: Wires,
    pub(super) dir: Scratch,
    places: Places,
    up: BTreeSet<u32>,
}

impl Hosts {
    pub(super) fn new(places: &Places) -> Result<Self, Ending> {
        let dir = Scratch::new("coro")?;
        let workers = Workers::new(places, dir.path(), NAMES)?;
        let wires = Wires::up(places, "dlmc", "10.80", NODES, 2, dir.path().join("net"))
            .map_err(Ending::CannotRun)?;
        wires.start_corosync().map_err(Ending::CannotRun)?;
        Ok(Self {
            workers,
            nodes: Nodes::start(places, dir.path(), NODES, wires.members(), "")?,
            wires,
            dir,
            places: places.clone(),
            up: (1..=NODES).collect(),
        })
    }

    /// Workers on all hosts, a scene, and what has to be true after it. `Some`: why it cannot be
    /// played here.
    pub(super) fn play(&mut self, scene: &Scene) -> Result<Option<String>, String> {
        if let Some(lack) = (scene.lack)() {
            return Ok(Some(lack));
        }
        self.workers.assign(scene.workers, WORKERS)?;
        self.settle()?;
        for node in 1..=NODES {
            self.start_workers(node)?;
        }
        self.progress("at the start")?;
        (scene.play)(self)?;
        self.settle()?;
        self.progress("at the end")?;
        self.workers.stop()?;
        self.nothing_left()?;
        Ok(None)
    }

    /// How many grants there were.
    pub(super) fn grants(&self) -> u64 {
        self.workers.board.all_grants()
    }

    /// Where the hosts' own files are.
    pub(super) fn net(&self) -> &Path {
        self.wires.dir()
    }

    /// Does something to wires or hosts.
    pub(super) fn wires(&self, words: &[&str]) -> Result<(), String> {
        self.wires.run(words)
    }

    /// Runs a command on a host.
    pub(super) fn run_on(&self, node: u32, words: &[&str]) -> Result<Output, String> {
        let on = self.wires.exec();
        let mut command = Command::new(&on[0]);
        command.args(&on[1..]).arg(format!("n{node}")).args(words);
        command.stdin(Stdio::null()).output().map_err(text)
    }

    /// A program of ours.
    pub(super) fn program(&self, name: &str) -> PathBuf {
        self.places.release().join(name)
    }

    /// The cluster's key.
    pub(super) fn key(&self) -> PathBuf {
        self.dir.path().join("authkey")
    }

    pub(super) fn start_daemon(&mut self, node: u32) -> Result<(), String> {
        self.start_daemon_with(node, &[])
    }

    /// Starts a host's daemon with these variables in its environment.
    pub(super) fn start_daemon_with(&mut self, node: u32, more: &[String]) -> Result<(), String> {
        self.nodes.restart_with(node, more).map_err(text)?;
        self.up.insert(node);
        Ok(())
    }

    /// Kills a host's daemon; its programs see it.
    pub(super) fn kill_daemon(&mut self, node: u32) {
        self.nodes.crash(node);
        self.up.remove(&node);
    }

    /// Asks a host's daemon to end.
    pub(super) fn stop_daemon(&mut self, node: u32) -> Result<(), String> {
        let status = self.nodes.daemon(node).and_then(|daemon| daemon.stop()).map_err(text)?;
        self.kill_daemon(node);
        match status {
            Some(status) if status.success() => Ok(()),
            other => Err(format!("dlmd of node {node} ended with {other:?}")),
        }
    }

    /// Kills all daemons and starts them with another dlm.conf.
    pub(super) fn restart_all(&mut self, config: String) -> Result<(), String> {
        self.nodes.config = config;
        (1..=NODES).for_each(|node| self.kill_daemon(node));
        (1..=NODES).try_for_each(|node| self.start_daemon(node))
    }

    /// The dlm.conf of all daemons.
    pub(super) fn config(&self) -> &str {
        &self.nodes.config
    }

    /// What a host's daemon writes.
    pub(super) fn folder(&self, node: u32) -> PathBuf {
        self.nodes.folder(node)
    }

    pub(super) fn start_workers(&mut self, node: u32) -> Result<(), String> {
        self.workers.start(node, &self.nodes.socket(node))
    }

    /// A host, whose programs are gone, leaves the lockspace in good order.
    pub(super) fn leave(&self, node: u32) -> Result<(), String> {
        self.nodes.leave(node, SPACE)
    }

    /// The power of a host is cut. The others hear nothing.
    pub(super) fn power_off(&mut self, node: u32) -> Result<(), String> {
        // The daemon first: it would give away what a dead program held.
        self.wires(&["crash", &format!("n{node}")])?;
        self.kill_daemon(node);
        self.workers.kill(node)
    }

    /// A host comes back, with corosync, daemon and programs.
    pub(super) fn power_on(&mut self, node: u32) -> Result<(), String> {
        self.start_corosync(node)?;
        self.start_daemon(node)?;
        self.start_workers(node)
    }

    pub(super) fn start_corosync(&mut self, node: u32) -> Result<(), String> {
        self.wires(&["corosync-start", &format!("n{node}")])
    }

    /// Kills corosync of a host, and nothing else.
    pub(super) fn kill_corosync(&mut self, node: u32) -> Result<(), String> {
        let output = Command::new("ip")
            .args(["netns", "pids", &self.wires.namespace(node)])
            .output()
            .map_err(text)?;
        let pids = String::from_utf8_lossy(&output.stdout).into_owned();
        for pid in pids.lines().filter_map(|line| line.trim().parse::<u32>().ok()) {
            let comm = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
            if comm.trim() == "corosync" {
                leftover::signal("KILL", pid).map_err(text)?;
                return Ok(());
            }
        }
        Err(format!("no corosync runs on node {node}"))
    }

    /// Sends a signal to a host's daemon.
    pub(super) fn signal_daemon(&mut self, node: u32, signal: &str) -> Result<(), String> {
        self.nodes.signal(node, signal).map_err(text)
    }

    /// Runs dlm_tool on a host.
    pub(super) fn tool(&self, node: u32, words: &[&str]) -> Result<Output, String> {
        self.nodes.tool(node, words).map_err(text)
    }

    /// What `dlm_tool status` prints on a host.
    pub(super) fn status(&self, node: u32) -> String {
        let output = self.tool(node, &["status"]);
        output.map_or_else(|why| why, |output| String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Waits until the status of a host has these words.
    pub(super) fn wait_for(&self, node: u32, words: &str) -> Result<(), String> {
        self.wait(&format!("node {node} does not say '{words}'"), || {
            self.status(node).contains(words)
        })
    }

    /// Waits until something is so.
    pub(super) fn wait(&self, what: &str, is_so: impl Fn() -> bool) -> Result<(), String> {
        let end = Instant::now() + GUARD;
        while !is_so() {
            if Instant::now() > end {
                return Err(self.with_status(what));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// What is wrong, with what every host says of itself.
    fn with_status(&self, what: &str) -> String {
        let all = (1..=NODES).map(|node| format!("--- {node}\n{}", self.status(node)));
        format!("{what}:\n{}", all.collect::<String>())
    }

    /// A person's word, on a host, that another one is off, once the host wants to know.
    pub(super) fn fence_ack(&self, on: u32, node: u32) -> Result<(), String> {
        self.wait_for(on, &format!("wait fencing: node {node} "))?;
        let output = self.tool(on, &["fence_ack", &node.to_string()])?;
        if output.status.success() {
            return Ok(());
        }
        Err(format!("fence_ack {node}: {}", String::from_utf8_lossy(&output.stderr)))
    }

    /// Waits until nobody waits for anything and all who are up take part.
    pub(super) fn settle(&self) -> Result<(), String> {
        for node in &self.up {
            self.wait(&format!("node {node} still waits"), || {
                let status = self.status(*node);
                let members =
                    self.up.iter().all(|other| status.contains(&format!("node {other} M ")));
                members && status.contains("quorate 1") && !status.contains("waits ")
            })?;
        }
        Ok(())
    }

    /// Every worker that runs gets on.
    pub(super) fn progress(&self, when: &str) -> Result<(), String> {
        self.workers.progress(when).map_err(|why| self.with_status(&why))
    }

    pub(super) fn progress_of(&self, numbers: &[u32], when: &str) -> Result<(), String> {
        self.workers.progress_of(numbers, when).map_err(|why| self.with_status(&why))
    }

    /// No lock stays in any table.
    fn nothing_left(&self) -> Result<(), String> {
        for node in &self.up {
            self.wait(&format!("node {node} still has locks or clients"), || {
                let counters = self.nodes.counters(*node).unwrap_or_default();
                ["locks", "clients"].iter().all(|name| counters.get(*name) == Some(&0))
            })?;
        }
        Ok(())
    }

    /// What a host's daemon logged so far.
    pub(super) fn log(&self, node: u32) -> String {
        self.nodes.log(node)
    }

    /// How often a host's daemon logged these words.
    pub(super) fn count(&self, node: u32, words: &str) -> usize {
        self.log(node).matches(words).count()
    }

    /// The ends of all logs.
    pub(super) fn logs(&self) -> String {
        let end = |node| format!("--- node {node}\n{}\n", job::last_lines(&self.log(node), 120));
        (1..=NODES).map(end).collect::<String>() + "--- workers\n" + &self.workers.log()
    }
}
