//! What the transport has to know before it can start.

use std::net::SocketAddr;
use std::time::Duration;

use dlm_core::{Member, NodeId};

use crate::secure::Crypto;
use crate::wire::limits::{MINOR_MAX, MINOR_MIN, PROTOCOL_MAJOR};

/// TCP port of the peers where none is configured.
pub const PORT_DEFAULT: u16 = 21064;
/// Longest name of a cluster, in bytes.
pub const CLUSTER_NAME_BYTES_MAX: usize = 64;
/// How long a pair may be unable to talk before membership is told (recovery.md B5).
pub const PEER_LIMIT: Duration = Duration::from_secs(10);
/// Bytes that may wait for the acknowledgement of one peer.
pub const WINDOW_BYTES_MAX: usize = 256 << 20;

/// Which versions of the protocol are spoken. Majors must be equal; of the minors the highest that
/// both sides have is used, so that a later release can roll through a cluster node by node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Versions {
    /// Incompatible generations.
    pub major: u8,
    /// Oldest minor version that is still spoken.
    pub minor_min: u8,
    /// Newest minor version.
    pub minor_max: u8,
}

impl Versions {
    /// Those of this program.
    pub const OWN: Self =
        Self { major: PROTOCOL_MAJOR, minor_min: MINOR_MIN, minor_max: MINOR_MAX };

    /// The minor version to speak with a peer of this range; `None` if there is none.
    pub fn agree(self, minor_min: u8, minor_max: u8) -> Option<u8> {
        let newest = self.minor_max.min(minor_max);
        (newest >= self.minor_min.max(minor_min)).then_some(newest)
    }
}

/// Settings of [`Peers`](crate::peers::Peers).
#[derive(Clone, Debug)]
pub struct Config {
    /// This life of this node.
    pub own: Member,
    /// Name of the cluster, 1 to [`CLUSTER_NAME_BYTES_MAX`] bytes; the same on all nodes.
    pub cluster: String,
    /// Encryption, with the cluster's key.
    pub crypto: Crypto,
    /// This node's address: it is listened on, and dialled from, as peers compare where a connection
    /// comes from with the address they have for its node. Port 0 takes any free one (tests).
    pub listen: SocketAddr,
    /// Socket mark of all connections; 0: none.
    pub mark: u32,
    /// Spreads the times of dialling; any number that differs between nodes.
    pub seed: u64,
    /// See [`PEER_LIMIT`].
    pub peer_limit: Duration,
    /// See [`WINDOW_BYTES_MAX`].
    pub window_bytes_max: usize,
    /// See [`Versions`]; other values than [`Versions::OWN`] are for tests of mixed clusters.
    pub versions: Versions,
}

impl Config {
    /// Settings with the usual bounds.
    pub fn new(own: Member, cluster: &str, crypto: Crypto, listen: SocketAddr) -> Self {
        Self {
            own,
            cluster: cluster.to_owned(),
            crypto,
            listen,
            mark: 0,
            seed: own.incarnation ^ u64::from(own.node.0) << 48,
            peer_limit: PEER_LIMIT,
            window_bytes_max: WINDOW_BYTES_MAX,
            versions: Versions::OWN,
        }
    }
}

/// Where a configured node is reached.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NodeAddress {
    /// The node.
    pub node: NodeId,
    /// Its address and port; a connection that claims to be this node must come from this address,
    /// from any port.
    pub address: SocketAddr,
}
