//! One command with a time budget and a log.
//!
//! A wrong lock manager makes programs hang, not fail: so nothing runs here without a budget, and what runs
//! beyond it is ended with everything it started. Standard input is empty, output goes to a file.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::leftover;

const PROGRESS: Duration = Duration::from_secs(30);
const LEFTOVER_GRACE: Duration = Duration::from_secs(3);

/// A command to run.
pub(crate) struct Job {
    command: Command,
    log: PathBuf,
    budget: Duration,
    mark: String,
    quiet: bool,
}

/// How it ended.
pub(crate) struct Ended {
    /// `None`: it was ended because its budget was used up.
    pub(crate) status: Option<ExitStatus>,
    /// How long it ran.
    pub(crate) took: Duration,
    /// What it left running (ended by now): pid and command line.
    pub(crate) leftovers: Vec<String>,
    /// What it printed, bytes that are not UTF-8 replaced.
    pub(crate) output: String,
}

impl Ended {
    /// It ended by itself, with exit code 0, and left nothing behind.
    pub(crate) fn good(&self) -> bool {
        self.status.is_some_and(|status| status.success()) && self.leftovers.is_empty()
    }

    /// One sentence on everything that was wrong with the ending itself.
    pub(crate) fn trouble(&self) -> Option<String> {
        let mut words = Vec::new();
        match self.status {
            None => words.push(format!("not finished after {} s", self.took.as_secs())),
            Some(status) if !status.success() => words.push(format!("ended with {status}")),
            Some(_) => {}
        }
        if !self.leftovers.is_empty() {
            words.push(format!("left processes behind: {}", self.leftovers.join("; ")));
        }
        if words.is_empty() { None } else { Some(words.join(", ")) }
    }

    /// The last lines of what it printed.
    pub(crate) fn tail(&self, lines: usize) -> String {
        last_lines(&self.output, lines)
    }
}

/// The last lines of a text, `most` at most.
pub(crate) fn last_lines(text: &str, most: usize) -> String {
    let all: Vec<&str> = text.lines().collect();
    all[all.len().saturating_sub(most)..].join("\n")
}

impl Job {
    /// A command that prints into `log` and may take `budget`.
    pub(crate) fn new(program: impl AsRef<OsStr>, log: PathBuf, budget: Duration) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let mark = format!("DLM_JOB_{}_{count}", std::process::id());
        let mut command = Command::new(program);
        command.env(&mark, "1");
        Job { command, log, budget, mark, quiet: false }
    }

    /// Adds arguments.
    pub(crate) fn args<I, S>(mut self, args: I) -> Self
    where
        I: IntoIterator<Item = S>,
        S: AsRef<OsStr>,
    {
        self.command.args(args);
        self
    }

    /// Adds one argument.
    pub(crate) fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.command.arg(arg);
        self
    }

    /// Sets variables of its environment.
    pub(crate) fn envs<I>(mut self, pairs: I) -> Self
    where
        I: IntoIterator<Item = (&'static str, OsString)>,
    {
        self.command.envs(pairs);
        self
    }

    /// Where it runs.
    pub(crate) fn dir(mut self, dir: &Path) -> Self {
        self.command.current_dir(dir);
        self
    }

    /// No sign of life on the terminal while it runs.
    pub(crate) fn quiet(mut self) -> Self {
        self.quiet = true;
        self
    }

    /// Runs it to its end, or to the end of its budget.
    pub(crate) fn run(mut self) -> io::Result<Ended> {
        if let Some(folder) = self.log.parent() {
            std::fs::create_dir_all(folder)?;
        }
        let log = File::create(&self.log)?;
        let started = Instant::now();
        self.command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let name = self.command.get_program().to_string_lossy().into_owned();
        let mut child = self.command.spawn().map_err(|error| {
            io::Error::new(error.kind(), format!("cannot start {name}: {error}"))
        })?;
        let status = self.wait(&mut child, started)?;
        let took = started.elapsed();
        let grace = if status.is_some() { LEFTOVER_GRACE } else { Duration::ZERO };
        let mut leftovers = Vec::new();
        if status.is_some() {
            for process in leftover::after(&self.mark, grace) {
                leftovers.push(format!("{} {}", process.pid, process.command));
            }
        }
        leftover::kill(&self.mark);
        if status.is_none() {
            child.wait()?;
        }
        let output = String::from_utf8_lossy(&std::fs::read(&self.log)?).into_owned();
        Ok(Ended { status, took, leftovers, output })
    }

    fn wait(
        &self,
        child: &mut std::process::Child,
        started: Instant,
    ) -> io::Result<Option<ExitStatus>> {
        let mut next_word = PROGRESS;
        let mut nap = Duration::from_millis(2);
        loop {
            if let Some(status) = child.try_wait()? {
                return Ok(Some(status));
            }
            let age = started.elapsed();
            if age >= self.budget {
                return Ok(None);
            }
            if age >= next_word && !self.quiet {
                println!("   … {} s: {}", age.as_secs(), last_line(&self.log));
                next_word += PROGRESS;
            }
            std::thread::sleep(nap);
            nap = (nap * 2).min(Duration::from_millis(100));
        }
    }
}

/// The last line that says something, shortened.
fn last_line(log: &Path) -> String {
    let bytes = std::fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes[bytes.len().saturating_sub(4096)..]).into_owned();
    let line = text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("");
    line.trim().chars().take(90).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;

    fn shell(script: &str, budget: Duration) -> Ended {
        let dir = Scratch::new("job").expect("a folder for the log");
        let log = dir.path().join("log");
        let job = Job::new("sh", log, budget).args(["-c", script]).quiet();
        job.run().expect("sh runs")
    }

    #[test]
    fn a_good_end_is_good() {
        let ended = shell("echo one; echo two >&2; cat", Duration::from_secs(60));
        assert!(ended.good(), "{:?}", ended.trouble());
        assert_eq!(ended.output, "one\ntwo\n");
        assert_eq!(ended.tail(1), "two");
    }

    #[test]
    fn a_bad_exit_code_is_trouble() {
        let ended = shell("exit 7", Duration::from_secs(60));
        assert!(!ended.good());
        assert!(ended.trouble().is_some_and(|why| why.contains("exit status: 7")));
    }

    #[test]
    fn a_command_beyond_its_budget_is_ended_with_its_children() {
        let (child, own) = (sleep(971), sleep(972));
        let ended = shell(&format!("setsid {child} & {own}"), Duration::from_millis(300));
        assert!(ended.status.is_none());
        assert!(ended.trouble().is_some_and(|why| why.contains("not finished")));
        assert!(!running(&child) && !running(&own));
    }

    #[test]
    fn what_is_left_behind_is_named_and_ended() {
        let child = sleep(973);
        let ended = shell(&format!("setsid {child} >/dev/null 2>&1 &"), Duration::from_secs(60));
        assert!(ended.status.is_some_and(|status| status.success()));
        assert!(ended.leftovers.iter().any(|line| line.contains(&child)));
        assert!(!ended.good() && !running(&child));
    }

    /// A command that no other run of these tests on this machine starts.
    fn sleep(seconds: u32) -> String {
        format!("sleep {seconds}.{}", std::process::id())
    }

    fn running(command: &str) -> bool {
        leftover::find("PATH").iter().any(|process| process.command == command)
    }
}
