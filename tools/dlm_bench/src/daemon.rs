//! A dlmd of this run's own, and what it costs while it runs.

use std::fs::{self, File};
use std::io;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::scratch::Scratch;
use crate::sys;

/// Longest wait for the daemon to serve, or to stop: a hang guard.
const PATIENCE: Duration = Duration::from_secs(20);

/// A running daemon; killed when dropped. Its socket, run and state directory are its own.
pub(crate) struct Daemon {
    child: Child,
    socket: PathBuf,
    scratch: Scratch,
    _run: Scratch,
}

/// File in the scratch directory that has what the daemon said.
const LOG: &str = "dlmd.log";

/// What a daemon has used up to a moment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Usage {
    /// Processor time of all its threads, in nanoseconds.
    pub cpu_ns: u64,
    /// How often its threads went to sleep and were woken.
    pub wake_ups: u64,
    /// Resident memory, in bytes.
    pub resident: u64,
}

impl Daemon {
    /// Starts `program` on `core`, alone in its cluster, and waits until it serves.
    pub(crate) fn start(program: &Path, core: Option<usize>) -> io::Result<Self> {
        Self::start_with(program, core, "membership=single\n")
    }

    /// Starts `program` on `core` with these lines in its dlm.conf, and waits until it serves.
    pub(crate) fn start_with(program: &Path, core: Option<usize>, lines: &str) -> io::Result<Self> {
        let scratch = Scratch::new()?;
        let socket = scratch.path().join("dlmd.sock");
        let config = scratch.path().join("dlm.conf");
        fs::write(&config, format!("create=all\nlog=error\n{lines}"))?;
        let mut command = Command::new(program);
        command.arg("--config").arg(&config).arg("--socket").arg(&socket);
        let run = Scratch::in_memory()?;
        command.arg("--run_dir").arg(run.path().join("run"));
        command.arg("--state_dir").arg(scratch.path().join("state"));
        // Its locks are seen by this run alone, whatever the kernel does.
        command.arg("--override-kernel-dlm");
        let log = File::create(scratch.path().join(LOG))?;
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        sys::confine(&mut command, core);
        let child = command.spawn().map_err(|error| {
            io::Error::new(error.kind(), format!("cannot start {}: {error}", program.display()))
        })?;
        let mut daemon = Self { child, socket, scratch, _run: run };
        daemon.await_service()?;
        Ok(daemon)
    }

    /// Process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    fn await_service(&mut self) -> io::Result<()> {
        let start = Instant::now();
        while UnixStream::connect(&self.socket).err().is_some_and(|error| {
            // A SEQPACKET socket refuses a stream with EPROTOTYPE: then somebody listens.
            error.raw_os_error() != Some(libc::EPROTOTYPE)
        }) {
            if let Some(status) = self.child.try_wait()? {
                let said = fs::read_to_string(self.scratch.path().join(LOG)).unwrap_or_default();
                let said = said.trim_end();
                return Err(io::Error::other(format!("dlmd ended at once, {status}: {said}")));
            }
            if start.elapsed() > PATIENCE {
                return Err(io::Error::other("dlmd does not serve"));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// Where it listens.
    pub(crate) fn socket(&self) -> &Path {
        &self.socket
    }

    /// Kills it as a power cut would, and reaps it.
    pub(crate) fn kill(mut self) -> io::Result<()> {
        self.child.kill()?;
        self.child.wait().map(drop)
    }

    /// What it has used so far.
    pub(crate) fn usage(&self) -> io::Result<Usage> {
        let process = PathBuf::from(format!("/proc/{}", self.child.id()));
        let mut usage = Usage { cpu_ns: 0, wake_ups: 0, resident: 0 };
        for thread in fs::read_dir(process.join("task"))? {
            let thread = thread?.path();
            let times = fs::read_to_string(thread.join("schedstat"))?;
            usage.cpu_ns += times.split(' ').next().and_then(|ns| ns.parse().ok()).unwrap_or(0);
            let status = fs::read_to_string(thread.join("status"))?;
            usage.wake_ups += field(&status, "voluntary_ctxt_switches:").unwrap_or(0);
        }
        let status = fs::read_to_string(process.join("status"))?;
        usage.resident = field(&status, "VmRSS:").unwrap_or(0) * 1024;
        Ok(usage)
    }
}

/// The number behind a name in a status file of /proc.
fn field(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // SIGKILL: lockspaces are still in use, and nothing of this daemon is to outlive the run.
        // Both fail only if the process is gone already, which is what they are for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_a_status_file() {
        let text = "Name:\tdlmd\nVmRSS:\t    5124 kB\nvoluntary_ctxt_switches:\t12\n\
                    nonvoluntary_ctxt_switches:\t3\n";
        assert_eq!(field(text, "VmRSS:"), Some(5124));
        assert_eq!(field(text, "voluntary_ctxt_switches:"), Some(12));
        assert_eq!(field(text, "VmSwap:"), None);
    }

    #[test]
    fn a_program_that_ends_at_once_is_reported() {
        let error = Daemon::start(Path::new("/bin/false"), None).err().unwrap();
        assert!(error.to_string().contains("ended at once"), "{error}");
        let error = Daemon::start(Path::new("/nonexistent/dlmd"), None).err().unwrap();
        assert!(error.to_string().contains("/nonexistent/dlmd"), "{error}");
    }
}
