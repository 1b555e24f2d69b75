//! A cluster of this run's own: daemons on loopback addresses, with encryption as in life, and a
//! feeder of views in this process.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use dlm_ipc::control::{CONTROL_BYTES_MAX, ControlMessage, ControlReply, ControlRequest};
use dlm_ipc::hello::Hello;
use dlm_ipc::socket::Connection;
use dlm_net::membership::feed::{Feed, Service};
use dlm_net::secure::key::keygen;

use crate::daemon::{Daemon, Usage};
use crate::locker::LOCKSPACE;
use crate::scratch::Scratch;
use crate::sys;

/// Longest wait for a membership: a hang guard. A million locks of a node that left take seconds.
const PATIENCE: Duration = Duration::from_secs(120);

/// Daemons, numbered from 1.
pub(crate) struct Nodes {
    daemons: BTreeMap<u32, Daemon>,
    feed: Service,
    _key: Scratch,
}

/// A daemon's counters by name.
pub(crate) type Counters = BTreeMap<String, u64>;

impl Nodes {
    /// Starts `count` daemons, each on `core`, which have not opened any lockspace.
    pub(crate) fn start(program: &Path, core: Option<usize>, count: u32) -> io::Result<Self> {
        let key = Scratch::new()?;
        let authkey = key.path().join("authkey");
        keygen(&authkey).map_err(io::Error::other)?;
        let addresses = addresses(count);
        let mut daemons = BTreeMap::new();
        for node in 1..=count {
            let mut lines = format!("nodeid={node}\nmembership=external\n");
            let _ = writeln!(lines, "authkey={}", authkey.display());
            for (other, address) in (1..).zip(&addresses) {
                let _ = writeln!(lines, "node id={other} addr={address}");
            }
            daemons.insert(node, Daemon::start_with(program, core, &lines)?);
        }
        let sockets = daemons.iter().map(|(node, daemon)| (*node, daemon.socket().to_owned()));
        let feed = Service::start(Feed::new(sockets))?;
        Ok(Self { daemons, feed, _key: key })
    }

    /// Where a node's daemon listens.
    pub(crate) fn socket(&self, node: u32) -> &Path {
        self.daemon(node).socket()
    }

    fn daemon(&self, node: u32) -> &Daemon {
        &self.daemons[&node]
    }

    /// What a node's daemon has used so far.
    pub(crate) fn usage(&self, node: u32) -> io::Result<Usage> {
        self.daemon(node).usage()
    }

    /// Ranks a node's daemon behind all others, as if it had a processor of its own that nobody else
    /// needs.
    pub(crate) fn rank_behind(&self, node: u32) -> io::Result<()> {
        sys::rank_behind(self.daemon(node).pid())
    }

    /// Kills a daemon as a power cut would. Membership does not hear of it before [`Self::gone`].
    pub(crate) fn crash(&mut self, node: u32) -> io::Result<()> {
        self.daemons.remove(&node).map_or(Ok(()), Daemon::kill)
    }

    /// Membership hears that a crashed node and all its clients are gone: the others get a view without
    /// it and the word that it is safe.
    pub(crate) fn gone(&self, node: u32) {
        self.feed.with(|feed| feed.gone(node));
    }

    /// Runs something while membership says and asks nothing.
    pub(crate) fn unfed<R>(&self, run: impl FnOnce() -> R) -> R {
        self.feed.with(|_| run())
    }

    /// Waits until exactly these nodes are in the lockspace, and nothing is left to do for membership.
    pub(crate) fn await_members(&self, nodes: &[u32]) -> io::Result<()> {
        let start = Instant::now();
        let members = |feed: &Feed| -> Vec<u32> {
            let view = feed.view(LOCKSPACE.as_bytes()).filter(|_| feed.is_settled());
            view.map_or(Vec::new(), |view| view.members.iter().map(|m| m.node.0).collect())
        };
        while self.feed.look(members) != nodes {
            if start.elapsed() > PATIENCE {
                return Err(io::Error::other(format!(
                    "the lockspace did not get the members {nodes:?} within {} s",
                    PATIENCE.as_secs()
                )));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    /// The counters of all daemons, summed.
    pub(crate) fn counters(&self) -> io::Result<Counters> {
        let mut all = Counters::new();
        for daemon in self.daemons.values() {
            for (name, value) in counters(daemon.socket())? {
                *all.entry(name).or_default() += value;
            }
        }
        Ok(all)
    }
}

/// A daemon's counters, as `dlm_tool counters` shows them.
fn counters(socket: &Path) -> io::Result<Vec<(String, u64)>> {
    let connection = Connection::connect(socket)?;
    let mut buffer = vec![0; CONTROL_BYTES_MAX];
    let hello = Hello::Control.encode().map_err(io::Error::other)?;
    connection.send(&hello)?;
    connection.recv(&mut buffer)?;
    let request = ControlRequest::Counters.to_bytes().map_err(io::Error::other)?;
    connection.send(&request)?;
    let answer = connection.recv(&mut buffer)?.unwrap_or_default();
    match ControlReply::from_bytes(answer) {
        Ok(ControlReply::Counters(counters)) => Ok(counters),
        other => Err(io::Error::other(format!("no counters, but {other:?}"))),
    }
}

/// Loopback addresses that no other run on this machine has, as far as process ids differ in their
/// low half.
fn addresses(count: u32) -> Vec<String> {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    let first = NEXT.fetch_add(count, Ordering::Relaxed);
    let pid = std::process::id();
    // 128 and above: those below are the tests'.
    let network =
        |host| format!("127.{}.{}.{}", (pid >> 8 & 0x7e) + 128, pid & 0xff, host % 254 + 1);
    (first..first + count).map(network).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_distinct_and_of_this_machine() {
        let all: Vec<_> = [addresses(3), addresses(8)].concat();
        let distinct: std::collections::BTreeSet<_> = all.iter().collect();
        assert_eq!((all.len(), distinct.len()), (11, 11));
        for address in all {
            let parsed: std::net::Ipv4Addr = address.parse().expect("an address");
            assert!(parsed.is_loopback(), "{address}");
        }
    }
}
