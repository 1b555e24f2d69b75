//! One attempt to make a victim harmless: its ways, one after the other, until all calls of one have
//! succeeded.

use std::ffi::OsStr;

use super::agent::{Agent, Ending};
use super::message::Victim;
use super::plan::{Call, find_program};

/// An attempt under way.
#[derive(Debug)]
pub(super) struct Attempt {
    pub(super) victim: Victim,
    fail_wall: u64,
    ways: Vec<Vec<Call>>,
    /// The way and the call in it that is tried now.
    at: (usize, usize),
    /// The agent that runs, and since when, boot nanoseconds.
    pub(super) agent: Option<(Agent, u64)>,
    /// What went wrong last, in words.
    pub(super) trouble: String,
}

/// How an attempt stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Standing {
    /// A new agent runs; its descriptors are to be watched.
    Started,
    /// The agent still runs.
    Runs,
    /// All calls of a way succeeded.
    Good,
    /// No way worked.
    Bad,
}

impl Attempt {
    pub(super) fn new(victim: Victim, fail_wall: u64, ways: Vec<Vec<Call>>) -> Self {
        let mut attempt =
            Self { victim, fail_wall, ways, at: (0, 0), agent: None, trouble: String::new() };
        if attempt.ways.is_empty() {
            let node = victim.node;
            attempt.trouble =
                format!("no device of dlm.conf is connected to node {node}: add a connect line");
            tracing::error!("node {node} cannot be fenced: {}", attempt.trouble);
        }
        attempt
    }

    /// The call that is tried now.
    pub(super) fn call(&self) -> Option<&Call> {
        self.ways.get(self.at.0)?.get(self.at.1)
    }

    /// Starts the call that is due, or the next one that can be started; agents are looked for on
    /// `path` and may run for `limit` nanoseconds.
    pub(super) fn begin(&mut self, path: &OsStr, now: u64, limit: u64) -> Standing {
        while let Some(call) = self.call() {
            let node = self.victim.node;
            let input = call.fencing_input(node, self.fail_wall);
            let started = find_program(&call.program, path)
                .ok_or_else(|| "it is not found on PATH; install it or write its path".to_owned())
                .and_then(|program| {
                    let deadline = now.saturating_add(limit);
                    Agent::start(&program, &input, path, deadline).map_err(|e| e.to_string())
                });
            match started {
                Ok(agent) => {
                    let (pid, words) = (agent.pid(), words(call));
                    tracing::info!("fencing node {node}: {words} runs as pid {pid}");
                    self.agent = Some((agent, now));
                    return Standing::Started;
                }
                Err(why) => self.failed(&Ending::NotStarted(why), ""),
            }
        }
        Standing::Bad
    }

    /// Looks after the agent.
    pub(super) fn look(&mut self, path: &OsStr, now: u64, limit: u64) -> Standing {
        let Some((agent, since)) = &mut self.agent else { return Standing::Bad };
        let Some(ending) = agent.look(now) else { return Standing::Runs };
        let (output, took) = (agent.output(), now.saturating_sub(*since) / 1_000_000_000);
        self.agent = None;
        if ending != Ending::Good {
            self.failed(&ending, &output);
            return self.begin(path, now, limit);
        }
        if let Some(call) = self.call() {
            let node = self.victim.node;
            tracing::info!("fencing node {node}: {} succeeded after {took} s", words(call));
            log_output(node, &output);
        }
        self.at.1 += 1;
        if self.call().is_none() { Standing::Good } else { self.begin(path, now, limit) }
    }

    /// The present call failed: the next way is tried.
    fn failed(&mut self, ending: &Ending, output: &str) {
        let Some(call) = self.call() else { return };
        let last = output.lines().last().map_or(String::new(), |line| format!(", saying: {line}"));
        self.trouble = format!("{} {}{last}", words(call), ending.words());
        let node = self.victim.node;
        tracing::error!("fencing node {node}: {}", self.trouble);
        log_output(node, output);
        self.at = (self.at.0 + 1, 0);
    }
}

/// An agent in words: the program, and the device where that is another name.
pub(super) fn words(call: &Call) -> String {
    if call.device == call.program {
        return format!("agent {}", call.program);
    }
    format!("agent {} of device {}", call.program, call.device)
}

fn log_output(node: u32, output: &str) {
    for line in output.lines().filter(|line| !line.trim().is_empty()) {
        tracing::info!("fencing node {node}: agent says: {}", line.escape_debug());
    }
}
