//! Running the tool against a daemon of its own, with a guard against hanging.

// Each test program uses its part of this module.
#![allow(dead_code)]

use std::ffi::OsStr;
use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use dlm_net::testing::{DaemonProcess, HANG_GUARD, program};
use serde_json::Value;

/// The tool.
pub(crate) const TOOL: &str = env!("CARGO_BIN_EXE_dlm_tool");

/// What a run of the tool gave.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Ran {
    pub(crate) out: String,
    pub(crate) err: String,
    pub(crate) code: i32,
}

impl Ran {
    /// The output as one JSON document.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|e| panic!("{e} in {self:?}"))
    }

    /// Output, error output and code, to compare with a row of a table.
    pub(crate) fn parts(&self) -> (&str, &str, i32) {
        (&self.out, &self.err, self.code)
    }
}

/// A daemon for one test.
pub(crate) fn daemon() -> DaemonProcess {
    DaemonProcess::start(&program("dlmd"))
}

/// A command of the tool for the daemon at `socket`.
pub(crate) fn command<S: AsRef<OsStr>>(socket: &Path, words: &[S]) -> Command {
    let mut command = Command::new(TOOL);
    command.args(words).env("DLM_SOCKET", socket).stdin(Stdio::null());
    command
}

/// Runs the tool to its end.
pub(crate) fn tool<S: AsRef<OsStr>>(socket: &Path, words: &[S]) -> Ran {
    finish(command(socket, words))
}

/// As [`tool`], of words in one line.
pub(crate) fn line(socket: &Path, words: &str) -> Ran {
    tool(socket, &words.split_whitespace().collect::<Vec<_>>())
}

/// Runs a command to its end.
pub(crate) fn finish(mut command: Command) -> Ran {
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    collect(child)
}

/// Waits for a command whose output is piped.
pub(crate) fn collect(mut child: Child) -> Ran {
    let (mut stdout, mut stderr) = (child.stdout.take(), child.stderr.take());
    let out = thread::spawn(move || read_all(stdout.as_mut()));
    let err = thread::spawn(move || read_all(stderr.as_mut()));
    let code = end_of(&mut child);
    Ran { out: out.join().expect("read"), err: err.join().expect("read"), code }
}

/// Waits for the end; the code, or minus the signal.
pub(crate) fn end_of(child: &mut Child) -> i32 {
    use std::os::unix::process::ExitStatusExt;
    let begin = Instant::now();
    loop {
        if let Some(status) = child.try_wait().expect("our child") {
            return status.code().unwrap_or_else(|| -status.signal().unwrap_or(0));
        }
        if begin.elapsed() > HANG_GUARD {
            let _ = child.kill();
            panic!("the command does not end");
        }
        thread::sleep(Duration::from_millis(2));
    }
}

fn read_all(stream: Option<&mut impl Read>) -> String {
    let mut bytes = Vec::new();
    if let Some(stream) = stream {
        stream.read_to_end(&mut bytes).expect("readable");
    }
    String::from_utf8(bytes).expect("text forms are UTF-8")
}

/// Waits until something is so.
pub(crate) fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < HANG_GUARD, "never so: {what}");
        thread::sleep(Duration::from_millis(2));
    }
}

/// Sends a signal, by the name that kill(1) knows.
pub(crate) fn signal(pid: u32, name: &str) {
    let status = Command::new("kill").args(["-s", name, &pid.to_string()]).status();
    assert!(status.expect("kill runs").success(), "kill -s {name} {pid}");
}
