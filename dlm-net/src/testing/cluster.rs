//! A cluster of daemons on one machine: each has a loopback address of its own, views come from a
//! feeder in the test's process.
//!
//! ```no_run
//! use dlm_net::testing::{cluster::Cluster, program};
//!
//! let mut cluster = Cluster::start(&program("dlmd"), 3);
//! println!("DLM_SOCKET of node 2: {}", cluster.daemon(2).socket().display());
//! cluster.kill(2); // kill its clients first
//! cluster.settle();
//! cluster.restart(2);
//! ```

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use super::{DaemonProcess, HANG_GUARD, TempDir};
use crate::membership::feed::{Feed, Service};
use crate::secure::key::keygen;

/// Daemons, numbered from 1.
pub struct Cluster {
    program: PathBuf,
    hosts: Vec<Host>,
    // Before the key's directory, after the daemons.
    feed: Service,
    _key: TempDir,
}

enum Host {
    Up(DaemonProcess),
    Down(TempDir),
    Moving,
}

impl Cluster {
    /// Starts `count` daemons, with encryption.
    ///
    /// # Panics
    /// If one does not serve.
    pub fn start(program: &Path, count: u32) -> Self {
        Self::start_with(program, count, "")
    }

    /// As [`Cluster::start`], with more lines in every dlm.conf.
    ///
    /// # Panics
    /// As there.
    pub fn start_with(program: &Path, count: u32, lines: &str) -> Self {
        let key = TempDir::new("key");
        let authkey = key.path().join("authkey");
        keygen(&authkey).expect("the directory is writable");
        let addresses = addresses(count);
        let mut hosts = Vec::new();
        for node in 1..=count {
            let dir = TempDir::new("node");
            let mut text = format!("nodeid={node}\nmembership=external\ncreate=all\n");
            writeln!(text, "authkey={}\n{lines}", authkey.display()).expect("room");
            for (other, address) in (1..).zip(&addresses) {
                writeln!(text, "node id={other} addr={address}").expect("room");
            }
            std::fs::write(dir.path().join("dlm.conf"), text).expect("the directory is writable");
            hosts.push(Host::Up(DaemonProcess::start_in(dir, program, &[])));
        }
        let sockets = (1..).zip(&hosts).map(|(node, host)| (node, socket(host)));
        let feed = Service::start(Feed::new(sockets)).expect("a thread");
        Self { program: program.to_owned(), hosts, feed, _key: key }
    }

    /// A running daemon.
    ///
    /// # Panics
    /// If it does not run.
    pub fn daemon(&self, node: u32) -> &DaemonProcess {
        match &self.hosts[node as usize - 1] {
            Host::Up(daemon) => daemon,
            _ => panic!("node {node} is down"),
        }
    }

    /// Kills a daemon like a power cut would; its clients have to be gone already. The others do not
    /// hear of it before [`Cluster::gone`].
    ///
    /// # Panics
    /// If it does not run.
    pub fn crash(&mut self, node: u32) {
        let host = &mut self.hosts[node as usize - 1];
        match std::mem::replace(host, Host::Moving) {
            Host::Up(daemon) => *host = Host::Down(daemon.into_dir()),
            _ => panic!("node {node} is down"),
        }
    }

    /// The feeder hears that a crashed node, and all its clients, are gone.
    pub fn gone(&self, node: u32) {
        self.feed.with(|feed| feed.gone(node));
    }

    /// A crash that the feeder hears of at once.
    pub fn kill(&mut self, node: u32) {
        self.crash(node);
        self.gone(node);
    }

    /// The others go on without this life of a node.
    pub fn exclude(&self, node: u32) {
        self.feed.with(|feed| feed.exclude(node));
    }

    /// Does something while nobody hears of the cluster.
    pub fn silence<R>(&self, act: impl FnOnce() -> R) -> R {
        self.feed.with(|_| act())
    }

    /// Starts a crashed node again, with its state directory.
    ///
    /// # Panics
    /// If it runs, or does not come up.
    pub fn restart(&mut self, node: u32) {
        let host = &mut self.hosts[node as usize - 1];
        match std::mem::replace(host, Host::Moving) {
            Host::Down(dir) => {
                *host = Host::Up(DaemonProcess::start_in(dir, &self.program, &[]));
            }
            _ => panic!("node {node} runs"),
        }
    }

    /// Waits until every daemon has the views it should have and nobody lost is feared.
    ///
    /// # Panics
    /// If that never comes; the daemons' logs are in the message.
    pub fn settle(&self) {
        self.wait_until("membership settles", || self.feed.with(|feed| feed.is_settled()));
    }

    /// Waits until a lockspace has exactly these members and all is settled.
    ///
    /// # Panics
    /// As [`Cluster::settle`].
    pub fn wait_members(&self, lockspace: &str, nodes: &[u32]) {
        let members = |feed: &mut Feed| -> Vec<u32> {
            let view = feed.view(lockspace.as_bytes()).filter(|_| feed.is_settled());
            view.map_or(Vec::new(), |view| view.members.iter().map(|m| m.node.0).collect())
        };
        let what = format!("{lockspace} has members {nodes:?}");
        self.wait_until(&what, || self.feed.with(members) == nodes);
    }

    /// Waits until something is so.
    ///
    /// # Panics
    /// If it never is; the daemons' logs are in the message.
    pub fn wait_until(&self, what: &str, mut so: impl FnMut() -> bool) {
        let begin = Instant::now();
        while !so() {
            assert!(begin.elapsed() < HANG_GUARD, "never: {what}\n{}", self.logs());
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// What the daemons wrote to standard error.
    pub fn logs(&self) -> String {
        let mut text = String::new();
        for (node, host) in (1..).zip(&self.hosts) {
            let log = match host {
                Host::Up(daemon) => daemon.log(),
                Host::Down(dir) => {
                    std::fs::read_to_string(dir.path().join("log")).unwrap_or_default()
                }
                Host::Moving => String::new(),
            };
            text += &format!("--- node {node}\n{log}");
        }
        text
    }
}

fn socket(host: &Host) -> PathBuf {
    match host {
        Host::Up(daemon) => daemon.socket().to_owned(),
        Host::Down(dir) => dir.path().join("dlmd.sock"),
        Host::Moving => PathBuf::new(),
    }
}

/// Loopback addresses that no other cluster of this machine has, as far as process ids differ in
/// their low half.
fn addresses(count: u32) -> Vec<String> {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    let first = NEXT.fetch_add(count, Ordering::Relaxed);
    assert!(first + count < 255, "at most 254 nodes in one process");
    let pid = std::process::id();
    let network = |host| format!("127.{}.{}.{host}", (pid >> 8 & 0x7f) + 1, pid & 0xff);
    (first..first + count).map(network).collect()
}
