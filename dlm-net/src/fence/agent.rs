//! One run of a fence agent (libdlm-abi.md 5.4).
//!
//! An agent is a program of somebody else's that may hang, flood or fork. So: its arguments go to its
//! standard input and that is closed; its environment is `PATH` and a plain locale; it leads a
//! process group of its own, and at the deadline that whole group is killed; what it prints is read
//! while it runs, so that it never blocks on it, and only the last [`OUTPUT_BYTES_MAX`] are kept.
//! **Exit code 0 of the program itself, before the deadline, is success; everything else is not.**

use std::ffi::OsStr;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};

use dlm_ipc::socket::watch_process;
use mio::unix::pipe::Receiver;

use super::sys;

/// How much of an agent's output is kept: the end of it, where the trouble is told.
pub const OUTPUT_BYTES_MAX: usize = 4096;
/// Most bytes of arguments; a pipe takes as many at once, so that the daemon never waits.
pub const INPUT_BYTES_MAX: usize = 32 * 1024;
/// Most bytes of output taken in a turn.
const READ_PER_TURN: usize = 64 * 1024;

/// How a run ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Ending {
    /// Exit code 0.
    Good,
    /// Another exit code.
    Code(i32),
    /// A signal that we did not send.
    Signal(i32),
    /// It took too long and was killed.
    Deadline,
    /// It could not be started, and why.
    NotStarted(String),
}

impl Ending {
    /// In words that follow "agent x".
    pub fn words(&self) -> String {
        match self {
            Self::Good => "succeeded".to_owned(),
            Self::Code(code) => format!("failed with exit code {code}"),
            Self::Signal(signal) => format!("was ended by signal {signal}"),
            Self::Deadline => "took too long and was killed".to_owned(),
            Self::NotStarted(why) => format!("cannot be run: {why}"),
        }
    }
}

/// A running agent.
#[derive(Debug)]
pub struct Agent {
    child: Child,
    pidfd: OwnedFd,
    output: Receiver,
    kept: Vec<u8>,
    /// Whether output was left for the next look; no descriptor announces it again.
    more: bool,
    deadline: u64,
    killed: bool,
    ending: Option<Ending>,
}

impl Agent {
    /// Starts `program` with `input` as its standard input; it may run until `deadline`, boot
    /// nanoseconds.
    ///
    /// # Errors
    /// It is not there, is not a program, or there are no resources.
    pub fn start(program: &Path, input: &str, path: &OsStr, deadline: u64) -> io::Result<Self> {
        if input.len() > INPUT_BYTES_MAX {
            let sentence = format!("its arguments are longer than {INPUT_BYTES_MAX} bytes");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, sentence));
        }
        let (from_agent, to_us) = io::pipe()?;
        let mut command = Command::new(program);
        command.env_clear().env("PATH", path).env("LC_ALL", "C.UTF-8").current_dir("/");
        command.stdin(Stdio::piped()).stdout(to_us.try_clone()?).stderr(to_us);
        command.process_group(0);
        let child = command.spawn();
        // Our copies of its output's end; else we would never read its end.
        drop(command);
        let mut child = child?;
        if let Some(mut pipe) = child.stdin.take() {
            // Whoever does not read its arguments fails by itself.
            let _ = pipe.write_all(input.as_bytes());
        }
        let output = Receiver::from(OwnedFd::from(from_agent));
        let watched = output.set_nonblocking(true).and_then(|()| watch_process(child.id()));
        match watched {
            Ok(pidfd) => {
                let (kept, more, killed, ending) = (Vec::new(), false, false, None);
                Ok(Self { child, pidfd, output, kept, more, deadline, killed, ending })
            }
            Err(error) => {
                sys::kill_group(child.id());
                let _ = child.wait();
                Err(error)
            }
        }
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// When [`Agent::look`] has to be called without a descriptor having something, boot nanoseconds.
    pub fn deadline(&self) -> Option<u64> {
        match (self.more, self.killed) {
            (true, _) => Some(0),
            (false, true) => None,
            (false, false) => Some(self.deadline),
        }
    }

    /// Descriptors that have something when there is something to do: its end, its output.
    pub fn descriptors(&self) -> [RawFd; 2] {
        [self.pidfd.as_raw_fd(), self.output.as_raw_fd()]
    }

    /// Looks after it at `now`, boot nanoseconds; its ending once it is gone.
    pub fn look(&mut self, now: u64) -> Option<Ending> {
        if self.ending.is_some() {
            return self.ending.clone();
        }
        self.read();
        if let Ok(Some(status)) = self.child.try_wait() {
            self.read();
            self.ending = Some(self.judge(status));
        } else if now >= self.deadline {
            self.kill();
        }
        self.ending.clone()
    }

    /// Ends it and all it started; [`Agent::look`] tells when it is gone.
    pub fn kill(&mut self) {
        if self.ending.is_none() && !self.killed {
            sys::kill_group(self.child.id());
            self.killed = true;
        }
    }

    /// The end of what it printed, as lines of text.
    pub fn output(&self) -> String {
        String::from_utf8_lossy(&self.kept).trim().to_owned()
    }

    fn judge(&self, status: ExitStatus) -> Ending {
        match (status.code(), status.signal()) {
            (Some(0), _) if !self.killed => Ending::Good,
            // It may have ended well in the moment of its death; nobody can tell.
            _ if self.killed => Ending::Deadline,
            (Some(code), _) => Ending::Code(code),
            (None, signal) => Ending::Signal(signal.unwrap_or(0)),
        }
    }

    fn read(&mut self) {
        let mut buffer = [0; 4096];
        let mut room = READ_PER_TURN;
        self.more = false;
        while room > 0 {
            match self.output.read(&mut buffer) {
                Ok(0) => return,
                Ok(count) => {
                    room = room.saturating_sub(count);
                    self.kept.extend(&buffer[..count]);
                    let surplus = self.kept.len().saturating_sub(OUTPUT_BYTES_MAX);
                    self.kept.drain(..surplus);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return,
            }
        }
        self.more = true;
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        if self.ending.is_none() {
            sys::kill_group(self.child.id());
            // It is not waited for: one that hangs in the kernel must not hold the daemon up.
            let _ = self.child.try_wait();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{HANG_GUARD, TempDir};
    use std::time::{Duration, Instant};

    const FAR: u64 = u64::MAX;

    fn start(program: &Path, input: &str, deadline: u64) -> Agent {
        Agent::start(program, input, OsStr::new("/usr/bin:/bin"), deadline).expect("started")
    }

    /// Looks after an agent until it is gone; `now` is what the clock says.
    fn finish(agent: &mut Agent, now: u64) -> Ending {
        let begun = Instant::now();
        loop {
            if let Some(ending) = agent.look(now) {
                return ending;
            }
            assert!(begun.elapsed() < HANG_GUARD, "the agent hangs");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    #[test]
    fn arguments_come_on_standard_input_and_the_environment_is_bare() {
        let dir = TempDir::new("agent");
        let body = "cat; echo \"[$(env | cut -d= -f1 | grep -v -e ^PWD -e ^SHLVL -e ^_ | sort | \
            tr '\\n' ' ')]\" >&2; pwd";
        let program = dir.script("fence_show", body);
        let mut agent = start(&program, "ip=10.0.0.2\nnode=3\n", FAR);
        assert_eq!(finish(&mut agent, 0), Ending::Good);
        assert_eq!(agent.output(), "ip=10.0.0.2\nnode=3\n[LC_ALL PATH ]\n/");
        assert_eq!(agent.look(0), Some(Ending::Good), "asked again");
    }

    #[test]
    fn only_exit_code_0_is_good() {
        let dir = TempDir::new("agent");
        let cases = [
            ("exit 1", Ending::Code(1), "failed with exit code 1"),
            ("kill -TERM $$; sleep 60", Ending::Signal(15), "was ended by signal 15"),
        ];
        for (body, want, words) in cases {
            let program = dir.script("fence_bad", body);
            let ending = finish(&mut start(&program, "", FAR), 0);
            assert_eq!((ending.words().as_str(), ending), (words, want), "{body}");
        }
        let error = Agent::start(&dir.path().join("none"), "", OsStr::new(""), FAR);
        assert_eq!(error.expect_err("missing").kind(), io::ErrorKind::NotFound);
        let long = "x".repeat(INPUT_BYTES_MAX + 1);
        let program = dir.script("fence_good", "exit 0");
        assert!(Agent::start(&program, &long, OsStr::new(""), FAR).is_err());
    }

    #[test]
    fn at_the_deadline_all_that_it_started_is_killed() {
        let dir = TempDir::new("agent");
        let pid_file = dir.path().join("child");
        let body = format!(
            "sleep 600 & echo $! >{0}.new; mv {0}.new {0}; trap '' TERM; wait; sleep 600",
            pid_file.display()
        );
        let program = dir.script("fence_hang", &body);
        let mut agent = start(&program, "", 1000);
        let begun = Instant::now();
        while !pid_file.exists() {
            assert_eq!(agent.look(999), None);
            assert!(begun.elapsed() < HANG_GUARD);
            std::thread::sleep(Duration::from_millis(2));
        }
        assert_eq!(agent.deadline(), Some(1000));
        assert_eq!(finish(&mut agent, 1000), Ending::Deadline);
        let child = std::fs::read_to_string(&pid_file).expect("readable");
        let gone = || {
            let stat = std::fs::read_to_string(format!("/proc/{}/stat", child.trim()));
            stat.map_or(true, |stat| stat.contains(") Z "))
        };
        while !gone() {
            assert!(begun.elapsed() < HANG_GUARD, "its child lives");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    #[test]
    fn a_flood_is_read_and_only_its_end_is_kept() {
        let dir = TempDir::new("agent");
        let body = "head -c 3000000 /dev/zero | tr '\\0' x; echo; echo the end";
        let program = dir.script("fence_flood", body);
        let mut agent = start(&program, "", FAR);
        assert_eq!(finish(&mut agent, 0), Ending::Good);
        assert!(agent.output().ends_with("x\nthe end"));
        assert!(agent.output().len() <= OUTPUT_BYTES_MAX);
    }

    #[test]
    fn a_dropped_agent_is_killed() {
        let dir = TempDir::new("agent");
        let program = dir.script("fence_hang", "sleep 600");
        let agent = start(&program, "", FAR);
        let stat = format!("/proc/{}/stat", agent.pid());
        drop(agent);
        let begun = Instant::now();
        while std::fs::read_to_string(&stat).is_ok_and(|stat| !stat.contains(") Z ")) {
            assert!(begun.elapsed() < HANG_GUARD, "it lives");
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}
