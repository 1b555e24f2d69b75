//! `cargo xtask cluster`: real daemons on hosts in network namespaces, and what happens to hosts.
//!
//! Each scenario lets workers on every host lock and check (tests/cluster/hammer.c), does something to hosts or
//! wires, heals it, and demands three things: that no two holders met and no value block was wrong, that every worker
//! got on afterwards, and that nothing stays behind in the tables.

mod board;
mod scenes;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::Ending;
use crate::nodes::{Hosts, Nodes};
use crate::packages;
use crate::places::Places;
use crate::products;
use crate::scratch::Scratch;
use crate::tally::Tally;
use board::Board;

/// Hosts.
const NODES: u32 = 3;
/// Workers on each.
const WORKERS: u32 = 2;
/// Names they fight for.
const NAMES: u32 = 8;
/// Address prefix of the hosts.
const NET: &str = "10.79";
/// Hang guard for everything that has to happen.
const GUARD: Duration = Duration::from_secs(40);

/// The hosts with all that runs on them.
struct Field {
    places: Places,
    dir: Scratch,
    script: PathBuf,
    prefix: String,
    nodes: Nodes,
    board: Board,
    hammer: PathBuf,
    workers: Vec<Worker>,
    seed: u64,
}

struct Worker {
    node: u32,
    number: u32,
    child: Child,
}

/// Runs the command.
pub(crate) fn run(places: &Places, args: &[String]) -> Result<(), Ending> {
    let scenes = scenes::named(args).map_err(Ending::Usage)?;
    if !packages::is_root() {
        return Err(Ending::CannotRun("cluster needs root, for network namespaces".into()));
    }
    if let Some(lack) = packages::lack(&["iproute2", "nftables", "python3", "gcc"]) {
        return Err(Ending::CannotRun(lack));
    }
    products::build(places)?;
    let mut tally = Tally::default();
    let mut field = Field::new(places)?;
    for (name, scene) in scenes {
        let begin = Instant::now();
        let verdict = field.play(scene);
        tally.count(name, verdict.is_ok());
        let took = begin.elapsed().as_millis();
        match verdict {
            Ok(grants) => println!("ok - {name} ({grants} grants, {took} ms)"),
            Err(why) => {
                println!("not ok - {name} ({took} ms)");
                for line in format!("{why}\n{}", field.nodes.logs()).lines() {
                    println!("#  {line}");
                }
                drop(field);
                field = Field::new(places)?;
            }
        }
    }
    tally.print();
    tally.verdict()
}

impl Field {
    fn new(places: &Places) -> Result<Self, Ending> {
        let dir = Scratch::new("field")?;
        let script = places.root.join("tests/cluster/netns-cluster.sh");
        let prefix = format!("dlmx{}", std::process::id() % 10_000);
        let hammer = dir.path().join("hammer");
        let source = places.root.join("tests/cluster/hammer.c");
        products::cc(places, &[source], "dlm_lt", &hammer)?;
        net(&script, &prefix, &["up", &NODES.to_string()])?;
        let hosts = Hosts::Namespaces { prefix: prefix.clone(), net: NET.to_owned() };
        let nodes = Nodes::start(places, dir.path(), NODES, hosts, "");
        let nodes = nodes.inspect_err(|_| drop(net(&script, &prefix, &["down"])))?;
        let board = Board::new(&dir.path().join("board"))?;
        let (places, workers, seed) = (places.clone(), Vec::new(), 1);
        Ok(Self { places, dir, script, prefix, nodes, board, hammer, workers, seed })
    }

    /// Workers on all hosts, a scene, and what has to be true after it; how many grants there were.
    fn play(&mut self, scene: scenes::Scene) -> Result<u64, String> {
        self.board.clear()?;
        for node in 1..=NODES {
            self.start_workers(node)?;
        }
        self.progress("at the start")?;
        scene(self)?;
        self.settle()?;
        self.progress("at the end")?;
        self.stop_workers()?;
        self.board.verdict()?;
        self.nothing_left()?;
        Ok((0..NODES * WORKERS).map(|worker| self.board.grants(worker)).sum())
    }

    fn start_workers(&mut self, node: u32) -> Result<(), String> {
        for index in 0..WORKERS {
            let number = (node - 1) * WORKERS + index;
            self.seed += 1;
            let log = std::fs::File::options()
                .create(true)
                .append(true)
                .open(self.dir.path().join("hammer.log"))
                .map_err(text)?;
            let child = Command::new(&self.hammer)
                .arg(self.board.path())
                .args([number.to_string(), "field".into(), NAMES.to_string()])
                .arg(self.seed.to_string())
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
            while worker.child.try_wait().map_err(text)?.is_none() {
                if Instant::now() > end {
                    return Err(format!("worker {} does not end", worker.number));
                }
                std::thread::sleep(Duration::from_millis(2));
            }
        }
        self.workers.clear();
        Ok(())
    }

    /// The power of a host is cut: programs and daemon are killed and reaped. The others hear nothing.
    fn power_off(&mut self, node: u32) -> Result<(), String> {
        // The daemon first: it would give away what a dead program held.
        self.nodes.crash(node);
        let mut gone = Vec::new();
        for worker in self.workers.iter_mut().filter(|worker| worker.node == node) {
            worker.child.kill().map_err(text)?;
            worker.child.wait().map_err(text)?;
            gone.push(worker.number);
        }
        self.workers.retain(|worker| worker.node != node);
        // Marks of the dead mean nothing from here on, and nobody is granted before `gone`.
        gone.into_iter().try_for_each(|number| self.board.forget(number))
    }

    /// What became of a node is told to the feeder.
    fn say(&mut self, line: &str) -> Result<(), String> {
        match self.nodes.say(line).map_err(text)?.as_str() {
            "done" | "settled" => Ok(()),
            other => Err(format!("{line}: {other}")),
        }
    }

    fn settle(&mut self) -> Result<(), String> {
        self.say(&format!("settle {}", GUARD.as_millis()))
    }

    /// A host comes back, with its programs.
    fn power_on(&mut self, node: u32) -> Result<(), String> {
        self.nodes.restart(node).map_err(text)?;
        self.start_workers(node)
    }

    /// Every worker that runs gets on.
    fn progress(&mut self, when: &str) -> Result<(), String> {
        let numbers: Vec<u32> = self.workers.iter().map(|worker| worker.number).collect();
        self.progress_of(&numbers, when)
    }

    fn progress_of(&mut self, numbers: &[u32], when: &str) -> Result<(), String> {
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

    /// No lock stays in any table.
    fn nothing_left(&mut self) -> Result<(), String> {
        let end = Instant::now() + GUARD;
        for node in 1..=NODES {
            loop {
                let output = Command::new(self.places.release().join("dlm_tool"))
                    .arg("counters")
                    .env("DLM_SOCKET", self.nodes.socket(node))
                    .output()
                    .map_err(text)?;
                let counters = String::from_utf8_lossy(&output.stdout).into_owned();
                let value = |name: &str| {
                    let lines = counters.lines().filter_map(|line| {
                        let mut words = line.split_whitespace();
                        Some((words.next()?, words.next()?))
                    });
                    lines
                        .into_iter()
                        .find(|(key, _)| *key == name)
                        .map(|(_, value)| value.to_owned())
                };
                if value("locks").as_deref() == Some("0")
                    && value("clients").as_deref() == Some("0")
                {
                    break;
                }
                if Instant::now() > end {
                    return Err(format!("node {node} still has locks or clients:\n{counters}"));
                }
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        Ok(())
    }

    /// Does something to the wires.
    fn wires(&self, words: &[&str]) -> Result<(), String> {
        net(&self.script, &self.prefix, words).map_err(text)
    }

    /// Sends a signal to a node's daemon.
    fn signal(&mut self, node: u32, signal: &str) -> Result<(), String> {
        let pid = self.nodes.daemon(node).map_err(text)?.pid();
        crate::leftover::signal(signal, pid).map_err(text)
    }

    fn workers_of(&self, nodes: &[u32]) -> Vec<u32> {
        let these = self.workers.iter().filter(|worker| nodes.contains(&worker.node));
        these.map(|worker| worker.number).collect()
    }
}

impl Drop for Field {
    fn drop(&mut self) {
        for worker in &mut self.workers {
            let _ = worker.child.kill();
            let _ = worker.child.wait();
        }
        for node in 1..=NODES {
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

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}
