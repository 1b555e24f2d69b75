//! Scenarios of two and three nodes: a daemon and an agent of the runner per node, and who kills nodes.
//!
//! Across nodes the order of events of different locks inside one step is only the network's. So answers
//! are compared step by step: replies exactly, events lock by lock in order.

use std::collections::BTreeMap;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::job::{Ended, Job};
use crate::nodes::{Hosts, Nodes};
use crate::places::Places;
use crate::scratch::Scratch;
use crate::text;
use crate::wires::Wires;

/// Port of the agents.
const PORT: &str = "7707";
/// Silence, in ms, after the death of a node; a recovery here takes a few milliseconds.
const KILLED_QUIET_MS: &str = "2500";

/// What to play.
pub(super) struct Scenario<'a> {
    pub(super) places: &'a Places,
    /// The runner program.
    pub(super) runner: &'a Path,
    pub(super) file: PathBuf,
    pub(super) nodes: u32,
    pub(super) quiet_ms: u32,
    /// Where the runner's output goes.
    pub(super) log: PathBuf,
    pub(super) budget: Duration,
    /// The hosts of a corosync that runs, where membership is to be its.
    pub(super) engine: Option<&'a Engine>,
}

/// A corosync of three hosts in network namespaces.
pub(super) struct Engine {
    wires: Wires,
    _dir: Scratch,
}

/// Scenarios of fewer nodes leave the others without a daemon.
const LINES: &str = "enable_startup_fencing=0";

impl Engine {
    /// Starts it.
    pub(super) fn start(places: &Places) -> Result<Self, String> {
        let dir = Scratch::new("engine").map_err(text)?;
        let wires = Wires::up(places, "dlmn", "10.82", 3, 1, dir.path().join("net"))?;
        wires.start_corosync()?;
        Ok(Self { wires, _dir: dir })
    }
}

/// The cluster while a scenario is played.
struct Stage {
    nodes: Nodes,
    agents: Vec<Agent>,
}

/// A runner's agent with its workers, in a process group of its own.
struct Agent {
    node: u32,
    child: Child,
}

/// Plays a scenario; the runner's ending, and what the daemons logged.
pub(super) fn play(scenario: &Scenario<'_>) -> Result<(Ended, String), String> {
    let dir = Scratch::new("many").map_err(text)?;
    let (hosts, lines) = match scenario.engine {
        Some(engine) => (engine.wires.members(), LINES),
        None => (Hosts::Loopback, ""),
    };
    let nodes = Nodes::start(scenario.places, dir.path(), scenario.nodes, hosts, lines);
    let nodes = nodes.map_err(text)?;
    let mut words = nodes.beside(1);
    words.push(scenario.runner.display().to_string());
    let own = nodes.socket(1);
    let network = nodes.address(1).rsplit_once('.').map_or("", |(net, _)| net).to_owned();
    let first: u32 = nodes.address(1).rsplit('.').next().and_then(|n| n.parse().ok()).unwrap_or(1);
    let mut agents = Vec::new();
    for node in 2..=scenario.nodes {
        agents.push(Agent::start(scenario, &nodes, node).map_err(text)?);
    }
    let stage = Mutex::new(Stage { nodes, agents });
    let over = AtomicBool::new(false);
    let job = Job::new(&words[0], scenario.log.clone(), scenario.budget)
        .quiet()
        .args(&words[1..])
        .args(["-q", &scenario.quiet_ms.to_string(), "-n", "1"])
        .arg(&scenario.file)
        .dir(dir.path())
        .envs([
            ("DLM_SOCKET", own.into()),
            ("LD_LIBRARY_PATH", scenario.places.libraries().into()),
            ("SCN_ADDR", format!("{network}.+{}", first - 1).into()),
            ("SCN_KILL_DIR", dir.path().into()),
            ("SCN_KILL_QUIET", KILLED_QUIET_MS.into()),
        ]);
    let ended = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                kill_who_is_to_die(&stage, dir.path());
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        let ended = job.run();
        over.store(true, Ordering::Relaxed);
        ended
    });
    let mut stage = stage.into_inner().unwrap_or_else(PoisonError::into_inner);
    for node in 1..=stage.nodes.count() {
        let Ok(daemon) = stage.nodes.daemon(node) else { continue };
        if let Some(status) = daemon.ended().map_err(text)? {
            return Err(format!(
                "dlmd of node {node} ended with {status}:\n{}",
                stage.nodes.logs()
            ));
        }
    }
    let logs = stage.nodes.logs();
    Ok((ended.map_err(text)?, logs))
}

/// A node dies whole: its programs, its daemon; then whoever reaped them says so.
fn kill_who_is_to_die(stage: &Mutex<Stage>, dir: &Path) {
    let mut stage = stage.lock().unwrap_or_else(PoisonError::into_inner);
    for node in 2..=stage.nodes.count() {
        if std::fs::remove_file(dir.join(format!("kill.{node}"))).is_err() {
            continue;
        }
        stage.agents.retain(|agent| agent.node != node);
        stage.nodes.crash(node);
        if let Err(error) = stage.nodes.gone(node) {
            eprintln!("the death of node {node} cannot be told: {error}");
        }
    }
}

impl Agent {
    fn start(scenario: &Scenario<'_>, nodes: &Nodes, node: u32) -> std::io::Result<Self> {
        let mut words = nodes.beside(node);
        words.push(scenario.runner.display().to_string());
        let child = Command::new(&words[0])
            .args(&words[1..])
            .args(["-d", PORT])
            .env("DLM_SOCKET", nodes.socket(node))
            .env("LD_LIBRARY_PATH", scenario.places.libraries())
            .env("SCN_ADDR", nodes.address(node))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .process_group(0)
            .spawn()?;
        Ok(Self { node, child })
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let group = format!("-{}", self.child.id());
        let mut kill = Command::new("kill");
        let _ = kill.args(["-KILL", "--", &group]).stderr(Stdio::null()).status();
        let _ = self.child.wait();
    }
}

/// One step: its command, its replies, and its events by lock.
type Step<'a> = (&'a str, Vec<&'a str>, BTreeMap<&'a str, Vec<&'a str>>);

/// Whether two answers differ at most in the order of events of different locks.
pub(super) fn same_per_lock(one: &str, other: &str) -> bool {
    steps(one) == steps(other)
}

fn steps(text: &str) -> Vec<Step<'_>> {
    let mut steps: Vec<Step<'_>> = Vec::new();
    for line in text.lines() {
        if line.starts_with('>') {
            steps.push((line, Vec::new(), BTreeMap::new()));
        } else if let Some((_, replies, events)) = steps.last_mut() {
            let mut words = line.split_whitespace();
            match (words.next(), words.next()) {
                (Some("cast" | "bast"), Some(lock)) => events.entry(lock).or_default().push(line),
                _ => replies.push(line),
            }
        }
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::same_per_lock;

    #[test]
    fn only_the_order_of_different_locks_is_free() {
        let kernel = "> lock a\n  ret=0\n  cast a st=0\n  bast b st=0\n  bast a st=0\n";
        let moved = "> lock a\n  ret=0\n  bast b st=0\n  cast a st=0\n  bast a st=0\n";
        let swapped = "> lock a\n  ret=0\n  bast a st=0\n  cast a st=0\n  bast b st=0\n";
        let later = "> lock a\n  ret=0\n  cast a st=0\n> x\n  bast b st=0\n  bast a st=0\n";
        assert!(same_per_lock(kernel, kernel) && same_per_lock(kernel, moved));
        assert!(!same_per_lock(kernel, swapped) && !same_per_lock(kernel, later));
    }
}
