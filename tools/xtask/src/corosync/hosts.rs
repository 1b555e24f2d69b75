//! The hosts with corosync, daemons and workers, and what can be done to them.

use std::collections::BTreeSet;
use std::fs::File;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use super::scenes::Scene;
use crate::Ending;
use crate::cluster::board::Board;
use crate::daemon::Daemon;
use crate::leftover;
use crate::places::Places;
use crate::products;
use crate::scratch::Scratch;

/// Hosts.
pub(super) const NODES: u32 = 3;
/// Workers on each.
const WORKERS: u32 = 2;
/// Names they fight for.
const NAMES: u32 = 8;
/// Address prefix of the hosts.
const NET: &str = "10.80";
/// The lockspace.
pub(super) const SPACE: &str = "field";
/// Hang guard for everything that has to happen.
pub(super) const GUARD: Duration = Duration::from_secs(40);

/// The hosts.
pub(super) struct Hosts {
    places: Places,
    pub(super) dir: Scratch,
    script: PathBuf,
    prefix: String,
    pub(super) board: Board,
    hammer: PathBuf,
    daemons: Vec<Option<Daemon>>,
    workers: Vec<Worker>,
    up: BTreeSet<u32>,
    config: String,
    /// What workers do.
    kind: &'static str,
    draws: u64,
}

struct Worker {
    node: u32,
    number: u32,
    child: Child,
}

impl Hosts {
    pub(super) fn new(places: &Places) -> Result<Self, Ending> {
        let dir = Scratch::new("coro")?;
        let hammer = dir.path().join("hammer");
        let source = places.root.join("tests/cluster/hammer.c");
        products::cc(places, &[source], "dlm_lt", &hammer)?;
        let authkey = dir.path().join("authkey");
        let made = Command::new(places.release().join("dlm_tool"))
            .arg("keygen")
            .arg(&authkey)
            .stdout(Stdio::null())
            .status()?;
        if !made.success() {
            return Err(Ending::CannotRun("dlm_tool keygen failed".into()));
        }
        let config = format!("membership=corosync\nauthkey={}\n", authkey.display());
        let mut hosts = Self {
            places: places.clone(),
            script: places.root.join("tests/cluster/netns-cluster.sh"),
            prefix: format!("dlmc{}", std::process::id() % 10_000),
            board: Board::new(&dir.path().join("board"))?,
            dir,
            hammer,
            daemons: (0..NODES).map(|_| None).collect(),
            workers: Vec::new(),
            up: BTreeSet::new(),
            config,
            kind: "values",
            draws: 1,
        };
        hosts.wires(&["up", &NODES.to_string()]).map_err(Ending::CannotRun)?;
        // Below this token healthy hosts fall apart on two busy cores.
        hosts.wires(&["corosync-up", "token: 1000"]).map_err(Ending::CannotRun)?;
        for node in 1..=NODES {
            hosts.start_daemon(node).map_err(Ending::CannotRun)?;
        }
        Ok(hosts)
    }

    /// Workers on all hosts, a scene, and what has to be true after it. `Some`: why it cannot be
    /// played here.
    pub(super) fn play(&mut self, scene: &Scene) -> Result<Option<String>, String> {
        if let Some(lack) = (scene.lack)() {
            return Ok(Some(lack));
        }
        self.board.clear()?;
        self.kind = scene.workers;
        self.settle()?;
        for node in 1..=NODES {
            self.start_workers(node)?;
        }
        self.progress("at the start")?;
        (scene.play)(self)?;
        self.settle()?;
        self.progress("at the end")?;
        self.stop_workers()?;
        self.board.verdict()?;
        self.nothing_left()?;
        Ok(None)
    }

    /// How many grants there were.
    pub(super) fn grants(&self) -> u64 {
        (0..NODES * WORKERS).map(|worker| self.board.grants(worker)).sum()
    }

    /// Words of a command line that run what follows on a host.
    fn on(&self, node: u32) -> Vec<String> {
        let mut words = vec!["env".to_owned()];
        words.extend(self.environment());
        words.extend([self.script.display().to_string(), "exec".to_owned(), format!("n{node}")]);
        words
    }

    fn environment(&self) -> Vec<String> {
        vec![
            format!("NC_PREFIX={}", self.prefix),
            format!("NC_NET={NET}"),
            "NC_LINKS=2".to_owned(),
            format!("NC_DIR={}", self.net().display()),
        ]
    }

    /// Where the hosts' own files are.
    pub(super) fn net(&self) -> PathBuf {
        self.dir.path().join("net")
    }

    /// Does something to wires or hosts.
    pub(super) fn wires(&self, words: &[&str]) -> Result<(), String> {
        let output = Command::new("env")
            .args(self.environment())
            .arg(&self.script)
            .args(words)
            .stdin(Stdio::null())
            .output()
            .map_err(text)?;
        if output.status.success() {
            return Ok(());
        }
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        Err(format!("netns-cluster.sh {}: {}: {told}", words.join(" "), output.status))
    }

    /// Runs a command on a host.
    pub(super) fn run_on(&self, node: u32, words: &[&str]) -> Result<Output, String> {
        let on = self.on(node);
        let mut command = Command::new(&on[0]);
        command.args(&on[1..]).args(words).stdin(Stdio::null()).output().map_err(text)
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
        let mut before = self.on(node);
        if !more.is_empty() {
            before.push("env".to_owned());
            before.extend(more.iter().cloned());
        }
        let dir = self.folder(node);
        let daemon = Daemon::start_as(&self.places, &dir, &self.config, &[], &before);
        self.daemons[node as usize - 1] = Some(daemon.map_err(text)?);
        self.up.insert(node);
        Ok(())
    }

    /// Kills a host's daemon; its programs see it.
    pub(super) fn kill_daemon(&mut self, node: u32) {
        self.daemons[node as usize - 1] = None;
        self.up.remove(&node);
    }

    /// Asks a host's daemon to end.
    pub(super) fn stop_daemon(&mut self, node: u32) -> Result<(), String> {
        let daemon = self.daemons[node as usize - 1].as_mut().ok_or("it does not run")?;
        let status = daemon.stop().map_err(text)?;
        self.kill_daemon(node);
        match status {
            Some(status) if status.success() => Ok(()),
            other => Err(format!("dlmd of node {node} ended with {other:?}")),
        }
    }

    /// Kills all daemons and starts them with another dlm.conf.
    pub(super) fn restart_all(&mut self, config: String) -> Result<(), String> {
        self.config = config;
        (1..=NODES).for_each(|node| self.kill_daemon(node));
        (1..=NODES).try_for_each(|node| self.start_daemon(node))
    }

    /// The dlm.conf of all daemons.
    pub(super) fn config(&self) -> &str {
        &self.config
    }

    /// What a host's daemon writes.
    pub(super) fn folder(&self, node: u32) -> PathBuf {
        self.dir.path().join(format!("d{node}"))
    }

    pub(super) fn start_workers(&mut self, node: u32) -> Result<(), String> {
        for index in 0..WORKERS {
            let number = (node - 1) * WORKERS + index;
            self.draws += 1;
            let log = File::options()
                .create(true)
                .append(true)
                .open(self.dir.path().join("hammer.log"))
                .map_err(text)?;
            let child = Command::new(&self.hammer)
                .arg(self.dir.path().join("board"))
                .args([number.to_string(), SPACE.into(), NAMES.to_string()])
                .args([self.draws.to_string(), self.kind.to_owned()])
                .env("DLM_SOCKET", self.folder(node).join("dlmd.sock"))
                .env("LD_LIBRARY_PATH", self.places.libraries())
                .stdin(Stdio::null())
                .stdout(log)
                .spawn()
                .map_err(text)?;
            self.workers.push(Worker { node, number, child });
        }
        Ok(())
    }

    fn stop_workers(&mut self) -> Result<(), String> {
        self.board.stop()?;
        let end = Instant::now() + GUARD;
        for worker in &mut self.workers {
            loop {
                match worker.child.try_wait().map_err(text)? {
                    Some(status) if status.success() => break,
                    Some(status) => return Err(format!("worker {}: {status}", worker.number)),
                    None if Instant::now() > end => {
                        return Err(format!("worker {} does not end", worker.number));
                    }
                    None => std::thread::sleep(Duration::from_millis(2)),
                }
            }
        }
        self.workers.clear();
        Ok(())
    }

    /// Kills the programs of a host; its daemon, if it runs, gives up what they held.
    pub(super) fn kill_workers(&mut self, node: u32) -> Result<(), String> {
        // Stopped first: what a dead one held is given away, and then no mark may say otherwise.
        for worker in self.workers.iter().filter(|worker| worker.node == node) {
            leftover::signal("STOP", worker.child.id()).map_err(text)?;
        }
        for number in self.workers_of(&[node]) {
            self.board.forget(number)?;
        }
        for worker in self.workers.iter_mut().filter(|worker| worker.node == node) {
            worker.child.kill().map_err(text)?;
            worker.child.wait().map_err(text)?;
        }
        self.workers.retain(|worker| worker.node != node);
        Ok(())
    }

    /// The power of a host is cut. The others hear nothing.
    pub(super) fn power_off(&mut self, node: u32) -> Result<(), String> {
        // The daemon first: it would give away what a dead program held.
        self.wires(&["crash", &format!("n{node}")])?;
        self.kill_daemon(node);
        self.kill_workers(node)
    }

    /// A host comes back, with corosync, daemon and programs.
    pub(super) fn power_on(&mut self, node: u32) -> Result<(), String> {
        self.start_corosync(node)?;
        self.start_daemon(node)?;
        self.start_workers(node)
    }

    pub(super) fn start_corosync(&mut self, node: u32) -> Result<(), String> {
        // It goes on as a process of the host; its output must not be waited for.
        let status = Command::new("env")
            .args(self.environment())
            .arg(&self.script)
            .args(["corosync-start", &format!("n{node}")])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .status()
            .map_err(text)?;
        if status.success() { Ok(()) } else { Err(format!("corosync-start n{node}: {status}")) }
    }

    /// Kills corosync of a host, and nothing else.
    pub(super) fn kill_corosync(&mut self, node: u32) -> Result<(), String> {
        let output = Command::new("ip")
            .args(["netns", "pids", &format!("{}-n{node}", self.prefix)])
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
    pub(super) fn signal_daemon(&self, node: u32, signal: &str) -> Result<(), String> {
        let daemon = self.daemons[node as usize - 1].as_ref().ok_or("it does not run")?;
        leftover::signal(signal, daemon.pid()).map_err(text)
    }

    /// Sends a signal to a host's programs.
    pub(super) fn signal_workers(&self, node: u32, signal: &str) -> Result<(), String> {
        let these = self.workers.iter().filter(|worker| worker.node == node);
        these
            .map(|worker| worker.child.id())
            .try_for_each(|pid| leftover::signal(signal, pid).map_err(text))
    }

    pub(super) fn workers_of(&self, nodes: &[u32]) -> Vec<u32> {
        let these = self.workers.iter().filter(|worker| nodes.contains(&worker.node));
        these.map(|worker| worker.number).collect()
    }

    /// Runs dlm_tool on a host.
    pub(super) fn tool(&self, node: u32, words: &[&str]) -> Result<Output, String> {
        Command::new(self.places.release().join("dlm_tool"))
            .args(words)
            .env("DLM_SOCKET", self.folder(node).join("dlmd.sock"))
            .stdin(Stdio::null())
            .output()
            .map_err(text)
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
                let all = (1..=NODES).map(|node| format!("--- {node}\n{}", self.status(node)));
                return Err(format!("{what}:\n{}", all.collect::<String>()));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
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
        let numbers: Vec<u32> = self.workers.iter().map(|worker| worker.number).collect();
        self.progress_of(&numbers, when)
    }

    pub(super) fn progress_of(&self, numbers: &[u32], when: &str) -> Result<(), String> {
        for number in numbers {
            let wanted = self.board.grants(*number) + 5;
            self.wait(&format!("worker {number} does not get on {when}"), || {
                self.board.grants(*number) >= wanted
            })?;
        }
        Ok(())
    }

    /// No lock stays in any table.
    fn nothing_left(&self) -> Result<(), String> {
        for node in &self.up {
            self.wait(&format!("node {node} still has locks or clients"), || {
                let counters = self.tool(*node, &["counters"]);
                let counters = counters.map_or_else(
                    |why| why,
                    |output| String::from_utf8_lossy(&output.stdout).into_owned(),
                );
                let is_zero = |name: &str| {
                    counters.lines().any(|line| {
                        let mut words = line.split_whitespace();
                        words.next() == Some(name) && words.next() == Some("0")
                    })
                };
                is_zero("locks") && is_zero("clients")
            })?;
        }
        Ok(())
    }

    /// What a host's daemon logged so far.
    pub(super) fn log(&self, node: u32) -> String {
        let bytes = std::fs::read(self.folder(node).join("dlmd.log")).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// How often a host's daemon logged these words.
    pub(super) fn count(&self, node: u32, words: &str) -> usize {
        self.log(node).matches(words).count()
    }

    /// The ends of all logs.
    pub(super) fn logs(&self) -> String {
        let mut all = String::new();
        for node in 1..=NODES {
            let log = self.log(node);
            let lines: Vec<&str> = log.lines().collect();
            let from = lines.len().saturating_sub(120);
            all += &format!("--- node {node}\n{}\n", lines[from..].join("\n"));
        }
        let hammer = std::fs::read_to_string(self.dir.path().join("hammer.log"));
        all + "--- workers\n" + &hammer.unwrap_or_default()
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for worker in &mut self.workers {
            let _ = worker.child.kill();
            let _ = worker.child.wait();
        }
        self.daemons.clear();
        if let Err(error) = self.wires(&["down"]) {
            eprintln!("{error}");
        }
    }
}

pub(super) fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}
