//! A C program of the demo: what it says is read by us and printed for the spectator.

use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use crate::leftover;

/// Hang guard of a single wait.
pub(super) const GUARD: Duration = Duration::from_secs(15);

/// A running program. Dropping it ends it.
pub(super) struct Party {
    /// What the spectator knows it as.
    pub(super) name: String,
    child: Child,
    lines: Receiver<String>,
}

impl Party {
    /// Starts a program for the daemon at `socket`; what it says aloud is printed with its name.
    pub(super) fn start(
        program: &Path,
        words: &[&str],
        name: &str,
        socket: &Path,
        libraries: &Path,
        aloud: bool,
    ) -> io::Result<Party> {
        let mut child = Command::new(program)
            .args(words)
            .env("DLM_SOCKET", socket)
            .env("LD_LIBRARY_PATH", libraries)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let output = child.stdout.take().ok_or_else(|| io::Error::other("no output"))?;
        let (sender, lines) = channel();
        let who = name.to_string();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if aloud {
                    println!("   {who}: {line}");
                }
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Ok(Party { name: name.into(), child, lines })
    }

    /// Process id.
    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Gives it a line to read.
    pub(super) fn say(&mut self, line: &str) -> io::Result<()> {
        let input = self.child.stdin.as_mut().ok_or_else(|| io::Error::other("no input"))?;
        writeln!(input, "{line}")
    }

    /// Reads lines up to the first that contains `words`, and returns them all.
    pub(super) fn until(&mut self, words: &str) -> io::Result<Vec<String>> {
        let mut seen = Vec::new();
        loop {
            let line = match self.lines.recv_timeout(GUARD) {
                Ok(line) => line,
                Err(RecvTimeoutError::Timeout) => {
                    let why = format!("{} never said {words:?}", self.name);
                    return Err(io::Error::other(why));
                }
                Err(RecvTimeoutError::Disconnected) => {
                    let why = format!("{} ended before it said {words:?}", self.name);
                    return Err(io::Error::other(why));
                }
            };
            let found = line.contains(words);
            seen.push(line);
            if found {
                return Ok(seen);
            }
        }
    }

    /// What it said and nobody asked for.
    pub(super) fn unread(&mut self) -> Vec<String> {
        self.lines.try_iter().collect()
    }

    /// Says a line, waits for the answer that contains `words`, and returns it.
    pub(super) fn ask(&mut self, line: &str, words: &str) -> io::Result<String> {
        self.say(line)?;
        Ok(self.until(words)?.pop().unwrap_or_default())
    }

    /// Ends its input and waits until it has ended, well.
    pub(super) fn end(&mut self) -> io::Result<()> {
        self.child.stdin = None;
        let status = self.child.wait()?;
        if status.success() {
            return Ok(());
        }
        Err(io::Error::other(format!("{} ended with {status}", self.name)))
    }

    /// Kills it (kill -9) and waits until it is gone.
    pub(super) fn kill(&mut self) -> io::Result<()> {
        self.child.kill()?;
        self.child.wait().map(drop)
    }
}

impl Drop for Party {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            // Only after something went wrong; what matters is that it is not left behind.
            let _ = leftover::signal("KILL", self.child.id());
            let _ = self.child.wait();
        }
    }
}
