//! Several daemons of our own as one cluster, with the views of `dlm_tool feed`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::daemon::Daemon;
use crate::places::Places;
use crate::{leftover, text};

/// Hang guard for what has to happen.
const GUARD: Duration = Duration::from_secs(20);

/// Where the daemons run.
pub(crate) enum Hosts {
    /// On loopback addresses of their own.
    Loopback,
    /// In the network namespaces `<prefix>-n1` and so on, as made by tests/cluster/netns-cluster.sh with
    /// this address prefix.
    Namespaces { prefix: String, net: String },
    /// In those namespaces, as members of the corosync that runs there; `words` are the beginning of
    /// a command line that runs something on a host whose number follows.
    Corosync { prefix: String, net: String, words: Vec<String> },
}

impl Hosts {
    /// The beginning of a command line that runs something beside a node's daemon.
    pub(crate) fn beside(&self, node: u32) -> Vec<String> {
        match self {
            Hosts::Loopback => Vec::new(),
            Hosts::Namespaces { prefix, .. } | Hosts::Corosync { prefix, .. } => {
                let host = format!("{prefix}-n{node}");
                ["ip", "netns", "exec"].map(str::to_owned).into_iter().chain([host]).collect()
            }
        }
    }

    /// The same for the daemon itself.
    fn under(&self, node: u32) -> Vec<String> {
        match self {
            Hosts::Corosync { words, .. } => {
                words.iter().cloned().chain([format!("n{node}")]).collect()
            }
            _ => self.beside(node),
        }
    }
}

/// What `dlm_tool counters` says, by name.
pub(crate) type Counters = BTreeMap<String, u64>;

/// The cluster; dropping it ends it.
pub(crate) struct Nodes {
    places: Places,
    dir: PathBuf,
    /// The dlm.conf of all daemons, but for the number of each.
    pub(crate) config: String,
    addresses: Vec<String>,
    hosts: Hosts,
    daemons: Vec<Option<Daemon>>,
    /// Who decides views, where that is not corosync.
    feed: Option<Feed>,
}

impl Nodes {
    /// Starts `count` daemons with everything they write in `dir`; `lines` are further lines of their
    /// dlm.conf.
    pub(crate) fn start(
        places: &Places,
        dir: &Path,
        count: u32,
        hosts: Hosts,
        lines: &str,
    ) -> io::Result<Nodes> {
        std::fs::create_dir_all(dir)?;
        let authkey = dir.join("authkey");
        let made = Command::new(places.release().join("dlm_tool"))
            .arg("keygen")
            .arg(&authkey)
            .stdout(Stdio::null())
            .status()?;
        if !made.success() {
            return Err(io::Error::other("dlm_tool keygen failed"));
        }
        let addresses = addresses(&hosts, count);
        let external = !matches!(hosts, Hosts::Corosync { .. });
        let membership = if external { "external" } else { "corosync" };
        let mut config =
            format!("membership={membership}\nauthkey={}\n{lines}\n", authkey.display());
        for (node, address) in (1..).zip(&addresses).filter(|_| external) {
            let _ = writeln!(config, "node id={node} addr={address}");
        }
        let sockets = (1..=count).map(|node| (node, dir.join(format!("n{node}/dlmd.sock"))));
        let feed = if external { Some(Feed::start(places, sockets)?) } else { None };
        let (places, dir) = (places.clone(), dir.to_path_buf());
        let daemons = (0..count).map(|_| None).collect();
        let mut nodes = Nodes { places, dir, config, addresses, hosts, daemons, feed };
        for node in 1..=count {
            nodes.restart(node)?;
        }
        Ok(nodes)
    }

    /// How many there are.
    pub(crate) fn count(&self) -> u32 {
        self.daemons.len() as u32
    }

    /// A running daemon.
    pub(crate) fn daemon(&mut self, node: u32) -> io::Result<&mut Daemon> {
        let daemon = self.daemons.get_mut(node as usize - 1).and_then(Option::as_mut);
        daemon.ok_or_else(|| io::Error::other(format!("node {node} is down")))
    }

    /// The address of a node.
    pub(crate) fn address(&self, node: u32) -> &str {
        &self.addresses[node as usize - 1]
    }

    /// Where a node's daemon writes.
    pub(crate) fn folder(&self, node: u32) -> PathBuf {
        self.dir.join(format!("n{node}"))
    }

    /// The socket of a node's daemon.
    pub(crate) fn socket(&self, node: u32) -> PathBuf {
        self.folder(node).join("dlmd.sock")
    }

    /// Sends a signal, by name, to a node's daemon.
    pub(crate) fn signal(&mut self, node: u32, name: &str) -> io::Result<()> {
        leftover::signal(name, self.daemon(node)?.pid())
    }

    /// Kills a node's daemon, whose clients are gone already; the others do not hear of it.
    pub(crate) fn crash(&mut self, node: u32) {
        self.daemons[node as usize - 1] = None;
    }

    /// Starts a node's daemon, again or for the first time.
    pub(crate) fn restart(&mut self, node: u32) -> io::Result<()> {
        self.restart_with(node, &[])
    }

    /// As [`Nodes::restart`], with these variables (`NAME=VALUE`) in its environment.
    pub(crate) fn restart_with(&mut self, node: u32, more: &[String]) -> io::Result<()> {
        let mut before = self.hosts.under(node);
        if !more.is_empty() {
            before.push("env".to_owned());
            before.extend_from_slice(more);
        }
        let number = if self.feed.is_some() { format!("nodeid={node}\n") } else { String::new() };
        let config = number + &self.config;
        let dir = self.folder(node);
        let daemon = Daemon::start_as(&self.places, &dir, &config, &[], &before)?;
        self.daemons[node as usize - 1] = Some(daemon);
        Ok(())
    }

    /// Tells the feeder something; its answer.
    pub(crate) fn say(&mut self, line: &str) -> io::Result<String> {
        match &mut self.feed {
            Some(feed) => feed.say(line),
            None => Err(io::Error::other("corosync decides, there is no feeder")),
        }
    }

    /// A node's daemon and programs are gone, and were reaped: whoever waits for that is told.
    pub(crate) fn gone(&mut self, node: u32) -> io::Result<()> {
        if self.feed.is_some() {
            return self.say(&format!("gone {node}")).map(drop);
        }
        let witness = (1..=self.count()).find(|other| self.daemons[*other as usize - 1].is_some());
        let Some(witness) = witness else { return Ok(()) };
        let end = Instant::now() + GUARD;
        while Instant::now() < end {
            let status = self.tool(witness, &["status"])?;
            let status = String::from_utf8_lossy(&status.stdout).into_owned();
            let feared = status.contains(&format!("wait fencing: node {node} "));
            if feared && self.tool(witness, &["fence_ack", &node.to_string()])?.status.success() {
                return Ok(());
            }
            if !feared && status.contains(&format!("node {node} X ")) {
                // It held nothing.
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Err(io::Error::other(format!("nobody waits for node {node} to be fenced")))
    }

    /// Runs dlm_tool on a node.
    pub(crate) fn tool(&self, node: u32, words: &[&str]) -> io::Result<Output> {
        Command::new(self.places.release().join("dlm_tool"))
            .args(words)
            .env("DLM_SOCKET", self.socket(node))
            .stdin(Stdio::null())
            .output()
    }

    /// A node leaves a lockspace in good order: it takes back what its programs, which are gone,
    /// created, once in each of their lives.
    pub(crate) fn leave(&self, node: u32, space: &str) -> Result<(), String> {
        for _ in 0..1000 {
            if !self.tool(node, &["leave", space, "--json"]).map_err(text)?.status.success() {
                return Ok(());
            }
        }
        Err(format!("node {node} never leaves"))
    }

    /// What a node counts.
    pub(crate) fn counters(&self, node: u32) -> io::Result<Counters> {
        let output = self.tool(node, &["counters"])?;
        let listed = String::from_utf8_lossy(&output.stdout).into_owned();
        let pair = |line: &str| {
            let mut words = line.split_whitespace();
            Some((words.next()?.to_owned(), words.next()?.parse().ok()?))
        };
        Ok(listed.lines().filter_map(pair).collect())
    }

    /// The beginning of a command line that runs something beside a node's daemon.
    pub(crate) fn beside(&self, node: u32) -> Vec<String> {
        self.hosts.beside(node)
    }

    /// What a node's daemon logged.
    pub(crate) fn log(&self, node: u32) -> String {
        let bytes = std::fs::read(self.folder(node).join("dlmd.log")).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// What all daemons logged.
    pub(crate) fn logs(&self) -> String {
        let mut text = String::new();
        for node in 1..=self.count() {
            let _ = writeln!(text, "--- node {node}\n{}", self.log(node));
        }
        text
    }
}

/// `dlm_tool feed`.
struct Feed {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Feed {
    fn start(places: &Places, sockets: impl Iterator<Item = (u32, PathBuf)>) -> io::Result<Feed> {
        let nodes = sockets.map(|(node, socket)| format!("{node}={}", socket.display()));
        let mut child = Command::new(places.release().join("dlm_tool"))
            .arg("feed")
            .args(nodes)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let (input, output) = (child.stdin.take(), child.stdout.take());
        match (input, output) {
            (Some(input), Some(output)) => {
                Ok(Feed { child, input, output: BufReader::new(output) })
            }
            _ => Err(io::Error::other("dlm_tool feed has no pipes")),
        }
    }

    fn say(&mut self, line: &str) -> io::Result<String> {
        writeln!(self.input, "{line}")?;
        self.input.flush()?;
        let mut answer = String::new();
        self.output.read_line(&mut answer)?;
        Ok(answer.trim_end().to_owned())
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn addresses(hosts: &Hosts, count: u32) -> Vec<String> {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    match hosts {
        Hosts::Namespaces { net, .. } | Hosts::Corosync { net, .. } => {
            (1..=count).map(|node| format!("{net}.1.{node}")).collect()
        }
        Hosts::Loopback => {
            // Others of this process, and of other processes, have others.
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let pid = std::process::id();
            let network =
                format!("127.{}.{}", 128 + (pid & 0x3f), (pid >> 6 & 0xff) ^ (number >> 4));
            (1..=count).map(|node| format!("{network}.{}", (number & 15) * 16 + node)).collect()
        }
    }
}
