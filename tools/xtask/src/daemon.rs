//! A dlmd of our own, on a socket nobody else knows.

use std::fs::File;
use std::io;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use crate::leftover;
use crate::places::Places;

/// Hang guard for starting and stopping; never asserted.
const GUARD: Duration = Duration::from_secs(20);

/// A running dlmd; dropping it ends it.
pub(crate) struct Daemon {
    child: Child,
    dir: PathBuf,
}

impl Daemon {
    /// Starts the release build's dlmd with everything it writes in `dir`, and waits until it says READY.
    /// It ends with us, by its standard input. Its log is `dir/dlmd.log`. `options` are further words of its command line.
    pub(crate) fn start(places: &Places, dir: &Path, options: &[&str]) -> io::Result<Daemon> {
        let config = "# no configuration of the machine's own daemon\n";
        Self::start_as(places, dir, config, options, &[])
    }

    /// As [`Daemon::start`], with this dlm.conf, and as the last words of another command line (a
    /// command that becomes its last words). `dir` may be one that an earlier daemon has used.
    pub(crate) fn start_as(
        places: &Places,
        dir: &Path,
        configuration: &str,
        options: &[&str],
        before: &[String],
    ) -> io::Result<Daemon> {
        std::fs::create_dir_all(dir)?;
        let config = dir.join("dlm.conf");
        std::fs::write(&config, configuration)?;
        let _ = std::fs::remove_file(dir.join("notify"));
        let notify_path = dir.join("notify");
        let notify = UnixDatagram::bind(&notify_path)?;
        notify.set_read_timeout(Some(Duration::from_millis(50)))?;
        let log = File::options().create(true).append(true).open(dir.join("dlmd.log"))?;
        let program = places.release().join("dlmd");
        let mut words = before.iter().map(PathBuf::from).chain([program.clone()]);
        let first = words.next().unwrap_or_default();
        let child = Command::new(first)
            .args(words)
            .args(["--foreground", "--until-stdin-closes", "--override-kernel-dlm", "--config"])
            .arg(&config)
            .arg("--socket")
            .arg(dir.join("dlmd.sock"))
            .args(options)
            .env("NOTIFY_SOCKET", &notify_path)
            .env_remove("DLM_SOCKET")
            .env_remove("JOURNAL_STREAM")
            .stdin(Stdio::piped())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .map_err(|error| {
                io::Error::new(error.kind(), format!("{}: {error}", program.display()))
            })?;
        let mut daemon = Daemon { child, dir: dir.to_path_buf() };
        daemon.wait_ready(&notify)?;
        Ok(daemon)
    }

    fn wait_ready(&mut self, notify: &UnixDatagram) -> io::Result<()> {
        let end = Instant::now() + GUARD;
        let mut words = [0; 4096];
        while Instant::now() < end {
            if let Ok(length) = notify.recv(&mut words)
                && String::from_utf8_lossy(&words[..length]).lines().any(|line| line == "READY=1")
            {
                return Ok(());
            }
            if let Some(status) = self.child.try_wait()? {
                let why = format!("dlmd ended with {status} before it served:\n{}", self.log());
                return Err(io::Error::other(why));
            }
        }
        Err(io::Error::other(format!("dlmd did not say that it serves:\n{}", self.log())))
    }

    /// Process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Its socket, for `$DLM_SOCKET`.
    pub(crate) fn socket(&self) -> PathBuf {
        self.dir.join("dlmd.sock")
    }

    /// The look-alike of the kernel's configfs tree that it keeps.
    pub(crate) fn lookalike(&self) -> PathBuf {
        self.dir.join("config/dlm/cluster")
    }

    /// What it logged so far.
    pub(crate) fn log(&self) -> String {
        let bytes = std::fs::read(self.dir.join("dlmd.log")).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// `Some` when it has ended, which it should not have.
    pub(crate) fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        self.child.try_wait()
    }

    /// Asks it to end, as an administrator would: a second signal forces it while lockspaces are in use.
    /// The answer is its exit status, or `None` when it had to be killed.
    pub(crate) fn stop(&mut self) -> io::Result<Option<ExitStatus>> {
        let end = Instant::now() + GUARD;
        let mut asked = 0;
        while Instant::now() < end {
            if let Some(status) = self.child.try_wait()? {
                return Ok(Some(status));
            }
            if asked < 2 {
                leftover::signal("TERM", self.child.id())?;
                asked += 1;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        Ok(None)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // It may have ended already; then there is nothing to do.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
