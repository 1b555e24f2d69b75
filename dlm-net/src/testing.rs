//! Help for tests: temporary directories, and a daemon in a process of its own that never outlives
//! the test.
//!
//! ```no_run
//! use dlm_net::testing::{DaemonProcess, program};
//!
//! let daemon = DaemonProcess::start(&program("dlmd"));
//! println!("export DLM_SOCKET={}", daemon.socket().display());
//! ```

pub mod cluster;

use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// How long anything may take before a test is called stuck. Never a performance claim.
pub const HANG_GUARD: Duration = Duration::from_secs(60);

/// A directory that is removed at the end.
#[derive(Debug)]
pub struct TempDir(PathBuf);

impl TempDir {
    /// A new, empty directory whose name contains `name`.
    pub fn new(name: &str) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let pid = std::process::id();
        let path = std::env::temp_dir().join(format!("dlm-{name}-{pid}-{number}"));
        std::fs::create_dir_all(&path).expect("the temporary directory is writable");
        Self(path)
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// A shell script in it that can be run, also while one of this name runs.
    pub fn script(&self, name: &str, body: &str) -> PathBuf {
        let path = self.0.join(name);
        // Written by a child: nobody may run a file that is open for writing, and a child that
        // another test's thread is just forking has open what this process has.
        let fresh = path.with_extension("new");
        let copy = Command::new("sh")
            .args(["-c", "printf '#!/bin/sh\\n%s\\n' \"$1\" >\"$2\"", "sh", body])
            .arg(&fresh)
            .status();
        assert!(copy.expect("sh can be run").success());
        let mode = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(&fresh, mode).expect("ours");
        std::fs::rename(&fresh, &path).expect("ours");
        path
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The path of a program of this workspace, built in the profile of the running test if it is not
/// up to date. For tests of other packages; a package's own tests have `env!("CARGO_BIN_EXE_…")`.
///
/// # Panics
/// If it cannot be built.
pub fn program(package: &str) -> PathBuf {
    build(package, &["--bin", package]).join(package)
}

/// The path of an example of a package, built like [`program`].
///
/// # Panics
/// If it cannot be built.
pub fn example(package: &str, name: &str) -> PathBuf {
    build(package, &["--example", name]).join("examples").join(name)
}

/// Builds a target and returns where its profile's results lie.
fn build(package: &str, target: &[&str]) -> PathBuf {
    let test = std::env::current_exe().expect("the running test has a path");
    let profile = test.parent().and_then(Path::parent).expect("target/<profile>/deps/<test>");
    let release = profile.file_name().is_some_and(|name| name == "release");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut build = Command::new(cargo);
    build.args(["build", "--quiet", "--package", package]).args(target);
    build.args(release.then_some("--release"));
    build.current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(".."));
    let status = build.status().expect("cargo can be run");
    assert!(status.success(), "building {package} failed");
    profile.to_owned()
}

/// A running daemon, killed at the end.
#[derive(Debug)]
pub struct DaemonProcess {
    child: Child,
    dir: TempDir,
    socket: PathBuf,
}

impl DaemonProcess {
    /// Starts `program` with everything in a temporary directory (also `dlm.conf`, empty unless it is
    /// there), and waits until it serves.
    ///
    /// # Panics
    /// If it ends or does not serve; its error output is in the message.
    pub fn start(program: &Path) -> Self {
        Self::start_with(program, &[])
    }

    /// As [`DaemonProcess::start`], with more options.
    ///
    /// # Panics
    /// As there.
    pub fn start_with(program: &Path, options: &[&str]) -> Self {
        Self::start_in(TempDir::new("daemon"), program, options)
    }

    /// As [`DaemonProcess::start_with`], in a directory that an earlier daemon perhaps has used.
    ///
    /// # Panics
    /// As there.
    pub fn start_in(dir: TempDir, program: &Path, options: &[&str]) -> Self {
        let socket = dir.path().join("dlmd.sock");
        let notify_path = dir.path().join("notify.sock");
        let _ = std::fs::remove_file(&notify_path);
        let notify = UnixDatagram::bind(&notify_path).expect("the directory is writable");
        // A daemon of another user must be able to say that it serves.
        let all: std::fs::Permissions = std::os::unix::fs::PermissionsExt::from_mode(0o777);
        std::fs::set_permissions(&notify_path, all).expect("the socket is ours");
        notify.set_read_timeout(Some(Duration::from_millis(20))).expect("a timeout can be set");
        let config = dir.path().join("dlm.conf");
        let mut open = std::fs::File::options();
        drop(open.create(true).append(true).open(&config).expect("the directory is writable"));
        let log = std::fs::File::options().create(true).append(true).open(dir.path().join("log"));
        let child = Command::new(program)
            .arg("--foreground")
            .args(["--until-stdin-closes", "--override-kernel-dlm", "--socket"])
            .arg(&socket)
            .arg("--config")
            .arg(&config)
            .args(options)
            .env("NOTIFY_SOCKET", &notify_path)
            .env_remove("DLM_SOCKET")
            .env_remove("JOURNAL_STREAM")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(log.expect("the directory is writable"))
            .spawn()
            .unwrap_or_else(|error| panic!("{}: {error}", program.display()));
        let mut daemon = Self { child, dir, socket };
        daemon.wait_until_ready(&notify);
        daemon
    }

    fn wait_until_ready(&mut self, notify: &UnixDatagram) {
        let begin = Instant::now();
        let mut buffer = [0; 256];
        loop {
            if let Ok(length) = notify.recv(&mut buffer)
                && buffer[..length].starts_with(b"READY=1")
            {
                return;
            }
            let ended = self.child.try_wait().expect("the child is ours");
            assert!(ended.is_none(), "the daemon ended: {ended:?}\n{}", self.log());
            assert!(begin.elapsed() < HANG_GUARD, "the daemon does not serve\n{}", self.log());
        }
    }

    /// The socket, for `$DLM_SOCKET`.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// The directory with all its files.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What it wrote to standard error so far.
    pub fn log(&self) -> String {
        let mut text = String::new();
        let file = std::fs::File::open(self.dir.path().join("log"));
        file.and_then(|mut file| file.read_to_string(&mut text)).map_or(String::new(), |_| text)
    }

    /// Kills it like a crash would, and leaves its files.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// How it ended, if it has.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("the child is ours")
    }

    /// Waits until it ends.
    ///
    /// # Panics
    /// If it does not.
    pub fn wait(&mut self) -> ExitStatus {
        let begin = Instant::now();
        loop {
            if let Some(status) = self.ended() {
                return status;
            }
            assert!(begin.elapsed() < HANG_GUARD, "the daemon does not end\n{}", self.log());
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Ends it if it runs, and hands its directory on to a next daemon.
    pub fn into_dir(mut self) -> TempDir {
        self.kill();
        std::mem::replace(&mut self.dir, TempDir::new("empty"))
    }
}

impl Drop for DaemonProcess {
    fn drop(&mut self) {
        self.kill();
    }
}
