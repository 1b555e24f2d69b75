//! The hosts with all that runs on them, and what can be done to them.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use super::checks::Baseline;
use super::scenes::Scene;
use crate::nodes::Nodes;
use crate::places::Places;
use crate::scratch::Scratch;
use crate::wires::Wires;
use crate::workers::{GUARD, NAMES, SPACE, Workers};
use crate::{Ending, job, text};

/// The hosts. Dropping them ends what is on them, in the order of the fields.
pub(super) struct Field {
    pub(super) workers: Workers,
    pub(super) nodes: Nodes,
    wires: Wires,
    _dir: Scratch,
    /// What each daemon had when it was idle first.
    pub(super) baselines: Vec<Option<Baseline>>,
    /// Hosts that are up.
    pub(super) up: BTreeSet<u32>,
    /// Larger sizes.
    pub(super) long: bool,
    pub(super) seed: u64,
}

impl Field {
    pub(super) fn new(places: &Places, count: u32, long: bool) -> Result<Self, Ending> {
        let dir = Scratch::new("field")?;
        let names = if long { 4 * NAMES } else { NAMES };
        let workers = Workers::new(places, dir.path(), names)?;
        let wires = Wires::up(places, "dlmx", "10.79", count, 1, dir.path().join("net"))
            .map_err(Ending::CannotRun)?;
        Ok(Self {
            workers,
            nodes: Nodes::start(places, dir.path(), count, wires.told(), "")?,
            wires,
            _dir: dir,
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
        self.seed = seed;
        self.workers.set_seed(seed);
    }

    /// Workers on all hosts, a scene, and what has to be true after it; how many grants there were.
    pub(super) fn play(&mut self, scene: &Scene) -> Result<u64, String> {
        self.workers.assign(scene.workers.0, scene.workers.1)?;
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
        self.workers.stop()?;
        self.check_leaks()?;
        Ok(self.workers.board.all_grants())
    }

    /// Starts the programs of a host.
    pub(super) fn start_workers(&mut self, node: u32) -> Result<(), String> {
        self.workers.start(node, &self.nodes.socket(node))
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
        self.up.remove(&node);
        self.baselines[node as usize - 1] = None;
        // Their marks mean nothing from here on: nobody is granted what they held before their
        // daemon, or `gone`, says so.
        self.workers.kill(node)
    }

    /// A host comes back, with its programs.
    pub(super) fn power_on(&mut self, node: u32) -> Result<(), String> {
        self.nodes.restart(node).map_err(text)?;
        self.up.insert(node);
        self.start_workers(node)
    }

    /// The programs of a host are killed, and it leaves the lockspace in good order.
    pub(super) fn leave(&mut self, node: u32) -> Result<(), String> {
        self.workers.kill(node)?;
        self.nodes.leave(node, SPACE)
    }

    /// Runs dlm_tool on a host.
    pub(super) fn tool(&self, node: u32, words: &[&str]) -> Result<std::process::Output, String> {
        self.nodes.tool(node, words).map_err(text)
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
    pub(super) fn progress(&self, when: &str) -> Result<(), String> {
        self.workers.progress(when)
    }

    pub(super) fn progress_of(&self, numbers: &[u32], when: &str) -> Result<(), String> {
        self.workers.progress_of(numbers, when)
    }

    /// Does something to the wires.
    pub(super) fn wires(&self, words: &[&str]) -> Result<(), String> {
        self.wires.run(words)
    }

    /// Sends a signal to a node's daemon.
    pub(super) fn signal(&mut self, node: u32, signal: &str) -> Result<(), String> {
        self.nodes.signal(node, signal).map_err(text)
    }

    /// What the workers and the daemons wrote, the end of it.
    pub(super) fn logs(&self) -> String {
        let workers = job::last_lines(&self.workers.log(), 40);
        format!("--- workers\n{workers}\n{}\n", job::last_lines(&self.nodes.logs(), 400))
    }

    /// How often a scene does what it does.
    pub(super) fn rounds(&self, few: u32) -> u32 {
        if self.long { few * 10 } else { few }
    }
}
