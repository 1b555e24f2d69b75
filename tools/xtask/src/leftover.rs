//! Processes that a job started and did not end.
//!
//! A job's processes carry a word of ours in their environment, which children inherit across new sessions,
//! process groups and namespaces. So exactly what a job started can be found and ended, by
//! process id, and nothing else is ever touched.

use std::fs;
use std::io;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// A process that should be gone.
pub(crate) struct Leftover {
    /// Its id.
    pub(crate) pid: u32,
    /// Its command line, spaces between the words.
    pub(crate) command: String,
}

/// Processes with `mark` as a variable of their environment.
pub(crate) fn find(mark: &str) -> Vec<Leftover> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let word = format!("{mark}=");
    let mut found = Vec::new();
    for entry in entries.flatten() {
        let Ok(pid) = entry.file_name().to_string_lossy().parse::<u32>() else { continue };
        let Ok(environment) = fs::read(entry.path().join("environ")) else { continue };
        if environment.split(|byte| *byte == 0).any(|pair| pair.starts_with(word.as_bytes())) {
            let command = fs::read(entry.path().join("cmdline")).unwrap_or_default();
            let command = String::from_utf8_lossy(&command).replace('\0', " ");
            found.push(Leftover { pid, command: command.trim().into() });
        }
    }
    found
}

/// What is still there after `grace`; looks until nothing is.
pub(crate) fn after(mark: &str, grace: Duration) -> Vec<Leftover> {
    let end = Instant::now() + grace;
    loop {
        let found = find(mark);
        if found.is_empty() || Instant::now() >= end {
            return found;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Ends them all, including what they start meanwhile.
pub(crate) fn kill(mark: &str) {
    for _ in 0..20 {
        let found = find(mark);
        if found.is_empty() {
            return;
        }
        for process in &found {
            // A process that is gone by now is what we want.
            let _ = signal("KILL", process.pid);
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Sends a signal, by name, to one process.
pub(crate) fn signal(name: &str, pid: u32) -> io::Result<()> {
    let script = format!("kill -{name} {pid}");
    let status = Command::new("sh").args(["-c", &script]).stderr(Stdio::null()).status()?;
    if status.success() { Ok(()) } else { Err(io::Error::other(format!("{script}: {status}"))) }
}
