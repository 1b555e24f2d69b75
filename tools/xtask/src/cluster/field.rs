//! The hosts with all that runs on them, and what can be done to them.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::board::Board;
use super::checks::Baseline;
use super::scenes::Scene;
use super::text;
use crate::Ending;
use crate::nodes::{Hosts, Nodes};
use crate::places::Places;
use crate::products;
use crate::scratch::Scratch;

/// Names that workers fight for.
pub(super) const NAMES: u32 = 8;
/// The lockspace.
pub(super) const SPACE: &str = "field";
/// Address prefix of the hosts.
const NET: &str = "10.79";
/// Hang guard for everything that has to happen.
pub(super) const GUARD: Duration = Duration::from_secs(40);

/// The hosts.
pub(super) struct Field {
    pub(super) places: Places,
    dir: Scratch,
    script: PathBuf,
    prefix: String,
    pub(super) nodes: Nodes,
    pub(super) board: Board,
    hammer: PathBuf,
    workers: Vec<Worker>,
    kind: &'static str,
    per_host: u32,
    draws: u64,
    /// What each daemon had when it was idle first.
    pub(super) baselines: Vec<Option<Baseline>>,
    /// Hosts that are up.
    pub(super) up: BTreeSet<u32>,
    /// Larger sizes.
    pub(super) long: bool,
    pub(super) seed: u64,
}

struct Worker {
    node: u32,
    number: u32,
    child: Child,
}

impl Field {
    pub(super) fn new(places: &Places, count: u32, long: bool) -> Result<Self, Ending> {
        let dir = Scratch::new("field")?;
        let script = places.root.join("tests/cluster/netns-cluster.sh");
        let prefix = format!("dlmx{}", std::process::id() % 10_000);
        let hammer = dir.path().join("hammer");
        let source = places.root.join("tests/cluster/hammer.c");
        products::cc(places, &[source], "dlm_lt", &hammer)?;
        net(&script, &prefix, &["up", &count.to_string()])?;
        let hosts = Hosts::Namespaces { prefix: prefix.clone(), net: NET.to_owned() };
        let nodes = Nodes::start(places, dir.path(), count, hosts, "");
        let nodes = nodes.inspect_err(|_| drop(net(&script, &prefix, &["down"])))?;
        let board = Board::new(&dir.path().join("board"))?;
        Ok(Self {
            places: places.clone(),
            dir,
            script,
            prefix,
            nodes,
            board,
            hammer,
            workers: Vec::new(),
            kind: "values",
            per_host: 2,
            draws: 1,
            baselines: vec![None; count as usize],
            up: (1..=count).collect(),
            long,
            seed: 1,
        })
    }

    /// How many hosts there are.
    pub(super) fn count(&self) -> u32 {
        self.nodes.count()
    }

    /// All that is drawn from now on depends on this number.
    pub(super) fn set_seed(&mut self, seed: u64) {
        (self.seed, self.draws) = (seed, seed);
    }

    /// Workers on all hosts, a scene, and what has to be true after it; how many grants there were.
    pub(super) fn play(&mut self, scene: &Scene) -> Result<u64, String> {
        self.board.clear()?;
        (self.kind, self.per_host) = (scene.workers.0, scene.workers.1);
        for node in 1..=self.count() {
            self.start_workers(node)?;
        }
        self.progress("at the start")?;
        (scene.play)(self)?;
        self.settle()?;
        self.progress("at the end")?;
        if scene.workers.0 != "cycle" {
            self.check_tables()?;
        }
        self.stop_workers()?;
        self.board.verdict()?;
        self.check_leaks()?;
        Ok((0..self.count() * self.per_host).map(|worker| self.board.grants(worker)).sum())
    }

    /// Starts the programs of a host.
    pub(super) fn start_workers(&mut self, node: u32) -> Result<(), String> {
        for index in 0..self.per_host {
            let number = (node - 1) * self.per_host + index;
            self.draws += 1;
            let log = std::fs::File::options()
                .create(true)
                .append(true)
                .open(self.dir.path().join("hammer.log"))
                .map_err(text)?;
            let names = if self.long { 4 * NAMES } else { NAMES };
            let child = Command::new(&self.hammer)
                .arg(self.board.path())
                .args([number.to_string(), SPACE.into(), names.to_string()])
                .args([self.draws.to_string(), self.kind.to_owned()])
                .env("DLM_SOCKET", self.nodes.socket(node))
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

    /// The power of a host is cut: programs and daemon are killed and reaped. The others hear nothing.
    pub(super) fn power_off(&mut self, node: u32) -> Result<(), String> {
        self.power_off_with(node, "KILL")
    }

    /// As [`Field::power_off`], where this signal is what the daemon dies of.
    pub(super) fn power_off_with(&mut self, node: u32, signal: &str) -> Result<(), String> {
        // The daemon first: it would give away what a dead program held.
        let end = Instant::now() + GUARD;
        while signal != "KILL"
            && self.nodes.daemon(node).map_err(text)?.ended().map_err(text)?.is_none()
        {
            if Instant::now() > end {
                return Err(format!("the daemon of node {node} does not die of {signal}"));
            }
            // More than once: the first one may only take a handler of the runtime away.
            self.signal(node, signal)?;
            std::thread::sleep(Duration::from_millis(1));
        }
        self.nodes.crash(node);
        self.kill_workers(node)?;
        self.up.remove(&node);
        self.baselines[node as usize - 1] = None;
        Ok(())
    }

    /// Kills the programs of a host. Their marks mean nothing from here on: nobody is granted what they held
    /// before their daemon, or `gone`, says so.
    fn kill_workers(&mut self, node: u32) -> Result<(), String> {
        let mut gone = Vec::new();
        for worker in self.workers.iter_mut().filter(|worker| worker.node == node) {
            worker.child.kill().map_err(text)?;
            worker.child.wait().map_err(text)?;
            gone.push(worker.number);
        }
        self.workers.retain(|worker| worker.node != node);
        gone.into_iter().try_for_each(|number| self.board.forget(number))
    }

    /// A host comes back, with its programs.
    pub(super) fn power_on(&mut self, node: u32) -> Result<(), String> {
        self.nodes.restart(node).map_err(text)?;
        self.up.insert(node);
        self.start_workers(node)
    }

    /// The programs of a host are killed, and it leaves the lockspace in good order.
    pub(super) fn leave(&mut self, node: u32) -> Result<(), String> {
        // Stopped first: the daemon gives away what a dead program held, and then no mark may say otherwise.
        let stop = |worker: &Worker| crate::leftover::signal("STOP", worker.child.id());
        for worker in self.workers.iter().filter(|worker| worker.node == node) {
            stop(worker).map_err(text)?;
        }
        self.workers_of(&[node]).into_iter().try_for_each(|number| self.board.forget(number))?;
        self.kill_workers(node)?;
        // Every program created it once, in each of its lives.
        for _ in 0..1000 {
            if !self.tool(node, &["leave", SPACE, "--json"])?.status.success() {
                return Ok(());
            }
        }
        Err(format!("node {node} never leaves"))
    }

    /// Runs dlm_tool on a host.
    pub(super) fn tool(&self, node: u32, words: &[&str]) -> Result<std::process::Output, String> {
        Command::new(self.places.release().join("dlm_tool"))
            .args(words)
            .env("DLM_SOCKET", self.nodes.socket(node))
            .stdin(Stdio::null())
            .output()
            .map_err(text)
    }

    /// What became of a node is told to the feeder.
    pub(super) fn say(&mut self, line: &str) -> Result<(), String> {
        match self.nodes.say(line).map_err(text)?.as_str() {
            "done" | "settled" => Ok(()),
            other => Err(format!("{line}: {other}")),
        }
    }

    pub(super) fn settle(&mut self) -> Result<(), String> {
        self.say(&format!("settle {}", GUARD.as_millis()))
    }

    /// Every worker that runs gets on.
    pub(super) fn progress(&mut self, when: &str) -> Result<(), String> {
        let numbers: Vec<u32> = self.workers.iter().map(|worker| worker.number).collect();
        self.progress_of(&numbers, when)
    }

    pub(super) fn progress_of(&mut self, numbers: &[u32], when: &str) -> Result<(), String> {
        let wanted: Vec<(u32, u64)> =
            numbers.iter().map(|number| (*number, self.board.grants(*number) + 5)).collect();
        let end = Instant::now() + GUARD;
        while let Some((number, grants)) =
            wanted.iter().find(|(number, grants)| self.board.grants(*number) < *grants)
        {
            if Instant::now() > end {
                let has = self.board.grants(*number);
                return Err(format!("worker {number} does not get on {when}: {has} of {grants}"));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// Does something to the wires.
    pub(super) fn wires(&self, words: &[&str]) -> Result<(), String> {
        net(&self.script, &self.prefix, words).map_err(text)
    }

    /// Sends a signal to a node's daemon.
    pub(super) fn signal(&mut self, node: u32, signal: &str) -> Result<(), String> {
        let pid = self.nodes.daemon(node).map_err(text)?.pid();
        crate::leftover::signal(signal, pid).map_err(text)
    }

    pub(super) fn workers_of(&self, nodes: &[u32]) -> Vec<u32> {
        let these = self.workers.iter().filter(|worker| nodes.contains(&worker.node));
        these.map(|worker| worker.number).collect()
    }

    /// What the workers and the daemons wrote, the end of it.
    pub(super) fn logs(&self) -> String {
        let mut all = String::new();
        if let Ok(log) = std::fs::read_to_string(self.dir.path().join("hammer.log")) {
            all += "--- workers\n";
            all += &last_lines(&log, 40);
        }
        all + &last_lines(&self.nodes.logs(), 400)
    }

    /// How often a scene does what it does.
    pub(super) fn rounds(&self, few: u32) -> u32 {
        if self.long { few * 10 } else { few }
    }
}

fn last_lines(text: &str, most: usize) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let from = lines.len().saturating_sub(most);
    lines[from..].join("\n") + "\n"
}

impl Drop for Field {
    fn drop(&mut self) {
        for worker in &mut self.workers {
            let _ = worker.child.kill();
            let _ = worker.child.wait();
        }
        for node in 1..=self.count() {
            self.nodes.crash(node);
        }
        if let Err(error) = net(&self.script, &self.prefix, &["down"]) {
            eprintln!("{error}");
        }
    }
}

fn net(script: &Path, prefix: &str, words: &[&str]) -> std::io::Result<()> {
    let status = Command::new(script)
        .args(words)
        .env("NC_PREFIX", prefix)
        .env("NC_NET", NET)
        .stdin(Stdio::null())
        .status()?;
    if status.success() {
        return Ok(());
    }
    Err(std::io::Error::other(format!("netns-cluster.sh {}: {status}", words.join(" "))))
}
