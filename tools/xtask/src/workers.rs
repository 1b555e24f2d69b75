//! Programs that lock and check on the hosts of a cluster (tests/cluster/hammer.c), and the board on
//! which they see whether two of them hold a lock.

mod board;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::places::Places;
use crate::{Ending, leftover, products, text};
use board::Board;

/// The lockspace that they use.
pub(crate) const SPACE: &str = "field";
/// Names that they fight for, where nobody wants more.
pub(crate) const NAMES: u32 = 8;
/// Hang guard for everything that has to happen.
pub(crate) const GUARD: Duration = Duration::from_secs(40);

/// The workers of all hosts; dropping them kills them.
pub(crate) struct Workers {
    /// Where their program, their board and their log are.
    dir: PathBuf,
    libraries: PathBuf,
    pub(crate) board: Board,
    /// Names that they fight for.
    pub(crate) names: u32,
    kind: &'static str,
    per_host: u32,
    draws: u64,
    running: Vec<Worker>,
}

struct Worker {
    node: u32,
    number: u32,
    child: Child,
}

impl Workers {
    /// Builds their program; nobody works yet.
    pub(crate) fn new(places: &Places, dir: &Path, names: u32) -> Result<Self, Ending> {
        let source = places.root.join("tests/cluster/hammer.c");
        products::cc(places, &[source], "dlm_lt", &dir.join("hammer"))?;
        Ok(Self {
            dir: dir.to_path_buf(),
            libraries: places.libraries(),
            board: Board::new(&dir.join("board"))?,
            names,
            kind: "values",
            per_host: 2,
            draws: 1,
            running: Vec::new(),
        })
    }

    /// Who is started from now on does this (hammer.c), and a host has so many of them. Nobody may be
    /// working now.
    pub(crate) fn assign(&mut self, kind: &'static str, per_host: u32) -> Result<(), String> {
        (self.kind, self.per_host) = (kind, per_host);
        self.board.clear()
    }

    /// All that they draw from now on depends on this number.
    pub(crate) fn set_seed(&mut self, seed: u64) {
        self.draws = seed;
    }

    /// Starts those of a host, whose daemon has this socket.
    pub(crate) fn start(&mut self, node: u32, socket: &Path) -> Result<(), String> {
        for index in 0..self.per_host {
            let number = (node - 1) * self.per_host + index;
            self.draws += 1;
            let log = File::options().create(true).append(true).open(self.log_path());
            let child = Command::new(self.dir.join("hammer"))
                .arg(self.board.path())
                .args([number.to_string(), SPACE.into(), self.names.to_string()])
                .args([self.draws.to_string(), self.kind.to_owned()])
                .env("DLM_SOCKET", socket)
                .env("LD_LIBRARY_PATH", &self.libraries)
                .stdin(Stdio::null())
                .stdout(log.map_err(text)?)
                .spawn()
                .map_err(text)?;
            self.running.push(Worker { node, number, child });
        }
        Ok(())
    }

    /// They end, and all was as it has to be.
    pub(crate) fn stop(&mut self) -> Result<(), String> {
        self.board.stop()?;
        let end = Instant::now() + GUARD;
        for worker in &mut self.running {
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
        self.running.clear();
        self.board.verdict()
    }

    /// Kills those of a host; its daemon, if it runs, gives up what they held.
    pub(crate) fn kill(&mut self, node: u32) -> Result<(), String> {
        // Stopped first: what a dead one held is given away, and then no mark may say otherwise.
        self.signal(node, "STOP")?;
        self.of(&[node]).into_iter().try_for_each(|number| self.board.forget(number))?;
        for mut worker in self.running.extract_if(.., |worker| worker.node == node) {
            worker.child.kill().map_err(text)?;
            worker.child.wait().map_err(text)?;
        }
        Ok(())
    }

    /// Sends a signal to those of a host.
    pub(crate) fn signal(&self, node: u32, signal: &str) -> Result<(), String> {
        let mut these = self.running.iter().filter(|worker| worker.node == node);
        these.try_for_each(|worker| leftover::signal(signal, worker.child.id()).map_err(text))
    }

    /// The numbers of those that run on these hosts.
    pub(crate) fn of(&self, nodes: &[u32]) -> Vec<u32> {
        let these = self.running.iter().filter(|worker| nodes.contains(&worker.node));
        these.map(|worker| worker.number).collect()
    }

    /// Every one that runs gets on.
    pub(crate) fn progress(&self, when: &str) -> Result<(), String> {
        let numbers: Vec<u32> = self.running.iter().map(|worker| worker.number).collect();
        self.progress_of(&numbers, when)
    }

    /// These get on.
    pub(crate) fn progress_of(&self, numbers: &[u32], when: &str) -> Result<(), String> {
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

    /// What they wrote.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.log_path()).unwrap_or_default()
    }

    fn log_path(&self) -> PathBuf {
        self.dir.join("hammer.log")
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        for worker in &mut self.running {
            let _ = worker.child.kill();
            let _ = worker.child.wait();
        }
    }
}
