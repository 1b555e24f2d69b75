//! What has to be true after every scenario, beside what the workers see for themselves.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::field::Field;
use super::listing;
use crate::nodes::Counters;
use crate::text;
use crate::workers::{GUARD, SPACE};

/// Names that nobody uses are forgotten after this time.
const IDLE: Duration = Duration::from_secs(10);
/// Descriptors above those of the first idle moment: connections of other nodes that are being made.
const DESCRIPTORS_MORE: u64 = 4;
/// Resident memory above that of the first idle moment, KiB.
const MEMORY_MORE: u64 = 24 * 1024;

/// What an idle daemon has.
#[derive(Clone, Copy, Debug)]
pub(super) struct Baseline {
    descriptors: u64,
    memory: u64,
}

impl Field {
    /// While whoever holds a lock keeps it, the tables of all nodes come to rest, and are one table.
    pub(super) fn check_tables(&mut self) -> Result<(), String> {
        self.workers.board.hold(true)?;
        let agreed = self.wait_for("the tables of all nodes agree", Self::tables_differ);
        self.workers.board.hold(false)?;
        agreed
    }

    /// What is wrong with the tables now.
    fn tables_differ(&mut self) -> Result<Option<String>, String> {
        let mut nodes = BTreeMap::new();
        for node in self.up.clone() {
            let output = self.tool(node, &["lockdebug", SPACE])?;
            let listed = String::from_utf8_lossy(&output.stdout).into_owned();
            nodes.insert(node, listing::parse(&listed)?);
        }
        if nodes.values().all(BTreeMap::is_empty) {
            return Ok(Some("no node lists any lock".to_owned()));
        }
        Ok(listing::disagreement(&nodes))
    }

    /// The workers have gone: no lock, client, orphan or time limit is left on any node, and daemons are as
    /// small as they were.
    pub(super) fn check_leaks(&mut self) -> Result<(), String> {
        self.wait_for("nothing is left", |field| {
            for node in field.up.clone() {
                let now = field.nodes.counters(node).map_err(text)?;
                let left = ["locks", "clients", "orphans", "timers"].map(|what| value(&now, what));
                // Idle names have a time limit each.
                let timers = left[3].min(value(&now, "resources"));
                if (left[0], left[1], left[2], left[3] - timers) != (0, 0, 0, 0) {
                    return Ok(Some(format!("node {node}: {now:?}")));
                }
                if value(&now, "resources") > u64::from(field.workers.names) {
                    return Ok(Some(format!("node {node} has names that never were: {now:?}")));
                }
                if let Some(why) = field.grown(node, &now) {
                    return Ok(Some(why));
                }
            }
            Ok(None)
        })?;
        for node in self.up.clone() {
            if let Some(status) = self.nodes.daemon(node).map_err(text)?.ended().map_err(text)? {
                return Err(format!("the daemon of node {node} ended with {status}"));
            }
        }
        match self.nodes.logs().lines().find(|line| line.contains("panicked at")) {
            Some(line) => Err(line.to_owned()),
            None => Ok(()),
        }
    }

    /// What a daemon has more than when it was idle first.
    fn grown(&mut self, node: u32, now: &Counters) -> Option<String> {
        let is = Baseline { descriptors: value(now, "descriptors"), memory: value(now, "rss_kib") };
        let was = *self.baselines[node as usize - 1].get_or_insert(is);
        let grown = is.descriptors > was.descriptors + DESCRIPTORS_MORE
            || is.memory > was.memory + MEMORY_MORE;
        grown.then(|| format!("node {node} has {is:?}, and had {was:?}"))
    }

    /// In the end nobody remembers a name that nobody uses, directories included.
    pub(super) fn forgotten(&mut self) -> Result<(), String> {
        std::thread::sleep(IDLE);
        self.wait_for("names without users are forgotten", |field| {
            for node in field.up.clone() {
                let now = field.nodes.counters(node).map_err(text)?;
                if (value(&now, "resources"), value(&now, "directory_entries")) != (0, 0) {
                    return Ok(Some(format!("node {node}: {now:?}")));
                }
            }
            Ok(None)
        })
    }

    /// Waits until nothing is wrong any more; what was wrong last is the error.
    fn wait_for(
        &mut self,
        what: &str,
        mut wrong: impl FnMut(&mut Self) -> Result<Option<String>, String>,
    ) -> Result<(), String> {
        let end = Instant::now() + GUARD;
        while let Some(why) = wrong(self)? {
            if Instant::now() > end {
                return Err(format!("never: {what}: {why}"));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }
}

/// A counter; one that is not there is too high for every check.
fn value(counters: &Counters, name: &str) -> u64 {
    counters.get(name).copied().unwrap_or(u64::MAX)
}
