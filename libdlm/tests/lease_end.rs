//! Leases of real daemons: they end, come back, and are outlived by the other nodes.
//!
//! Spans are short, but no test depends on how long a thing takes: where a machine is slow, leases
//! end that should have been renewed, and what is waited for comes later.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use dlm_client::{Mode, Opening};
use dlm_net::testing::cluster::Cluster;
use dlm_net::testing::{DaemonProcess, HANG_GUARD, TempDir, example, program};

const SHORT: &str = "lease=3\nlease_tick=0.05\nlease_grace=3\nwatchdog=none\n";
/// A lease that ends soon and, however slow the machine, comes back in time.
const COMES_BACK: &str = "lease=0.5\nlease_tick=0.05\nlease_grace=240\nwatchdog=none\n";
/// Long enough that what must not happen would have happened.
const QUIET: Duration = Duration::from_millis(150);

fn cluster(count: u32, lines: &str) -> Cluster {
    Cluster::start_with(&program("dlmd"), count, lines)
}

fn signal(pid: u32, signal: i32) {
    // SAFETY: no pointers; the process is a child of this one that was not reaped.
    assert_eq!(unsafe { libc::kill(pid as i32, signal) }, 0);
}

/// A client in a process of its own: one of this process would be killed with all tests.
struct Teller {
    child: Child,
    told: Receiver<String>,
}

impl Teller {
    fn join(cluster: &Cluster, node: u32) -> Self {
        let mut child = Command::new(example("dlm-client", "teller"))
            .arg(cluster.daemon(node).socket())
            .arg("lease")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let (tell, told) = channel();
        std::thread::spawn(move || {
            lines.map_while(Result::ok).try_for_each(|line| tell.send(line))
        });
        let teller = Self { child, told };
        teller.says("open");
        teller
    }

    fn ask(&mut self, line: &str) {
        writeln!(self.child.stdin.as_mut().unwrap(), "{line}").unwrap();
    }

    fn asked(&mut self, line: &str, answer: &str) {
        self.ask(line);
        self.says(answer);
    }

    #[track_caller]
    fn says(&self, what: &str) {
        let heard = self.told.recv_timeout(HANG_GUARD);
        assert_eq!(heard.as_deref(), Ok(what));
    }

    fn is_quiet(&self) -> bool {
        self.told.recv_timeout(QUIET).is_err()
    }

    fn end(&mut self) -> ExitStatus {
        let end = Instant::now() + HANG_GUARD;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(Instant::now() < end, "the process does not end");
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

impl Drop for Teller {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_stopped_daemons_client_is_told_before_another_node_is_granted() {
    let cluster = cluster(2, SHORT);
    let (mut one, mut two) = (Teller::join(&cluster, 1), Teller::join(&cluster, 2));
    cluster.wait_members("lease", &[1, 2]);
    two.asked("lock name", "granted name");
    one.ask("lock name");
    let stopped = cluster.daemon(2).pid();
    signal(stopped, libc::SIGSTOP);
    cluster.exclude(2);
    two.says("lost LeaseEnded");
    assert!(one.is_quiet(), "the client was told, and may not have given up yet");
    two.asked("try other", "Lost(LeaseEnded)");
    one.says("granted name");
    // Closing is the confirmation, and waits for nobody. The node comes back as a new life.
    two.asked("close", "closed");
    signal(stopped, libc::SIGCONT);
    two.asked("open", "open");
    cluster.wait_members("lease", &[1, 2]);
    two.asked("try name", "busy name");
    two.asked("try other", "granted other");
}

#[test]
fn a_node_without_its_lease_grants_nothing_until_it_is_back() {
    let cluster = cluster(2, COMES_BACK);
    let mut tellers: Vec<Teller> =
        [1, 2, 1, 2].iter().map(|node| Teller::join(&cluster, *node)).collect();
    cluster.wait_members("lease", &[1, 2]);
    let frozen = |node| cluster.daemon(node).log().matches("the lease is over").count();
    let before = [frozen(1), frozen(2)];
    cluster.silence(|| {
        cluster.wait_until("both nodes freeze", || frozen(1) > before[0] && frozen(2) > before[1]);
        for (teller, name) in tellers.iter_mut().zip(["a", "b", "c", "d"]) {
            teller.ask(&format!("lock {name}"));
        }
        assert!(tellers.iter().all(Teller::is_quiet), "granted without a lease");
        // Who ends needs no lease for that.
        drop(tellers.pop());
    });
    for (teller, name) in tellers.iter().zip(["a", "b", "c"]) {
        teller.says(&format!("granted {name}"));
    }
    tellers[0].asked("try d", "granted d");
}

#[test]
fn a_lost_client_that_ends_in_time_is_not_killed_and_the_node_returns() {
    let cluster = cluster(2, SHORT);
    let (mut one, mut two) = (Teller::join(&cluster, 1), Teller::join(&cluster, 2));
    cluster.wait_members("lease", &[1, 2]);
    two.asked("lock name", "granted name");
    one.asked("try name", "busy name");
    cluster.exclude(2);
    two.says("lost NodeLost");
    drop(two.child.stdin.take());
    assert_eq!(two.end().code(), Some(0));
    let mut two = Teller::join(&cluster, 2);
    cluster.wait_members("lease", &[1, 2]);
    two.asked("try name", "granted name");
}

#[test]
fn who_does_not_close_a_lost_lockspace_is_killed_and_the_node_returns() {
    let cluster = cluster(2, SHORT);
    let (mut one, mut two) = (Teller::join(&cluster, 1), Teller::join(&cluster, 2));
    cluster.wait_members("lease", &[1, 2]);
    two.asked("lock name", "granted name");
    one.ask("lock name");
    cluster.exclude(2);
    two.says("lost NodeLost");
    let killed = two.end().signal();
    assert_eq!(killed, Some(libc::SIGKILL), "{}", cluster.logs());
    one.says("granted name");
    assert!(cluster.daemon(2).log().contains("in time; killed"), "{}", cluster.logs());
    let mut two = Teller::join(&cluster, 2);
    cluster.wait_members("lease", &[1, 2]);
    two.asked("try free", "granted free");
}

/// What a watchdog was told so far.
struct Fifo {
    _dir: TempDir,
    file: std::fs::File,
    path: String,
    heard: Vec<u8>,
}

impl Fifo {
    fn new() -> Self {
        let dir = TempDir::new("fifo");
        let path = dir.path().join("watchdog");
        let status = Command::new("mkfifo").arg(&path).status().unwrap();
        assert!(status.success());
        let mut open = std::fs::File::options();
        let file = open.read(true).custom_flags(libc::O_NONBLOCK).open(&path).unwrap();
        Self { _dir: dir, file, path: path.display().to_string(), heard: Vec::new() }
    }

    fn hear(&mut self) -> &[u8] {
        let mut bytes = [0; 4096];
        while let Ok(length @ 1..) = self.file.read(&mut bytes) {
            self.heard.extend(&bytes[..length]);
        }
        &self.heard
    }
}

fn fed(fifo: &Fifo) -> Cluster {
    let lines = format!(
        "lease=2\nlease_tick=0.02\nlease_grace=1\nwatchdog={}\nwatchdog_timeout=5\n",
        fifo.path
    );
    cluster(1, &lines)
}

#[test]
fn the_watchdog_is_fed_and_released_at_a_clean_end() {
    let mut fifo = Fifo::new();
    let cluster = fed(&fifo);
    cluster.wait_until("it is fed, again and again", || fifo.hear().len() > 5);
    assert!(fifo.hear().iter().all(|byte| *byte == 0), "nothing but feeding");
    signal(cluster.daemon(1).pid(), libc::SIGTERM);
    cluster.wait_until("the magic close", || fifo.hear().last() == Some(&b'V'));
    let before = fifo.hear().iter().filter(|byte| **byte == b'V').count();
    assert_eq!(before, 1);
}

#[test]
fn a_crash_releases_nothing_and_a_forced_end_takes_its_clients_along() {
    let mut fifo = Fifo::new();
    let mut cluster = fed(&fifo);
    cluster.wait_until("it is fed", || fifo.hear().len() > 2);
    cluster.crash(1);
    assert!(!fifo.hear().contains(&b'V'), "a crash is not the end of its clients");
    cluster.gone(1);
    cluster.restart(1);
    let mut holder = Teller::join(&cluster, 1);
    signal(cluster.daemon(1).pid(), libc::SIGTERM);
    cluster
        .wait_until("refused, as it is in use", || cluster.daemon(1).log().contains("not ending"));
    assert!(!fifo.hear().contains(&b'V'));
    signal(cluster.daemon(1).pid(), libc::SIGTERM);
    holder.says("lost Shutdown");
    assert_eq!(holder.end().signal(), Some(libc::SIGKILL));
    cluster.wait_until("the magic close", || fifo.hear().last() == Some(&b'V'));
}

#[test]
fn after_a_crash_the_watchdog_is_fed_once_the_clients_are_gone() {
    let mut fifo = Fifo::new();
    let mut cluster = fed(&fifo);
    let mut teller = Teller::join(&cluster, 1);
    cluster.crash(1);
    teller.says("lost DaemonGone");
    let before = fifo.hear().len();
    cluster.restart(1);
    let told = "clients of the dlmd that crashed here may still act";
    assert!(cluster.daemon(1).log().contains(told), "{}", cluster.logs());
    std::thread::sleep(3 * QUIET);
    assert_eq!(fifo.hear().len(), before, "nobody vouches for the client");
    drop(teller.child.stdin.take());
    teller.end();
    if !all_processes_can_be_seen() {
        println!("SKIPPED: that it is fed again; not all processes can be seen from here");
        return;
    }
    cluster.wait_until("it is fed", || fifo.hear().len() > before);
}

/// Whether a daemon can prove here that no client of an earlier one is left.
fn all_processes_can_be_seen() -> bool {
    let initial = std::fs::read_link("/proc/self/ns/pid");
    let mut processes = std::fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    let refused = |entry: std::fs::DirEntry| {
        let maps = std::fs::read(entry.path().join("maps"));
        maps.is_err_and(|error| error.kind() == std::io::ErrorKind::PermissionDenied)
    };
    initial.is_ok_and(|link| link.as_os_str() == "pid:[4026531836]") && !processes.any(refused)
}

#[test]
fn a_daemon_that_wants_a_lease_and_has_no_watchdog_does_not_start() {
    let dir = TempDir::new("lease-start");
    let says = |lines: &str| {
        let config = dir.path().join("dlm.conf");
        std::fs::write(
            &config,
            format!("membership=external\ncrypto=none\nnode id=1 addr=127.0.0.1\n{lines}"),
        )
        .unwrap();
        run(&config, dir.path())
    };
    let missing = dir.path().join("none");
    let (code, text) = says(&format!("lease=4\nwatchdog={}\n", missing.display()));
    assert_eq!(code, Some(3), "{text}");
    assert!(text.contains("or write watchdog=none if a node may be forgotten"), "{text}");
    let (code, text) = says("lease=1\nlease_tick=0.5\nwatchdog=none\n");
    assert_eq!(code, Some(3), "{text}");
    assert!(text.contains("make the lease at least 4 ticks"), "{text}");
}

fn run(config: &Path, dir: &Path) -> (Option<i32>, String) {
    let output = Command::new(program("dlmd"))
        .args(["--foreground", "--override-kernel-dlm", "--socket"])
        .arg(dir.join("s"))
        .arg("--config")
        .arg(config)
        .output()
        .unwrap();
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn without_a_cluster_a_lease_means_nothing() {
    let daemon = DaemonProcess::start_with(&program("dlmd"), &["--lease", "4"]);
    let space = Opening::create(0o600).socket(daemon.socket()).open("alone").unwrap();
    assert!(space.try_lock(b"n", Mode::EX).unwrap().is_some());
    assert!(daemon.log().contains("accepted without effect: lease"), "{}", daemon.log());
}
