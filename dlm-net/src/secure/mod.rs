//! What keeps strangers out: the opening of a connection, its encryption, and the cluster's key.

mod channel;
pub mod key;
mod noise;

pub use channel::{Channel, Setup};
pub use key::{ClusterKey, KeyError};

/// Encryption between nodes.
#[derive(Clone, Debug)]
pub enum Crypto {
    /// Noise_NNpsk0_25519_AESGCM_SHA256 with the cluster's key.
    Noise(ClusterKey),
    /// None: whoever reaches the port can take and break any lock. For closed networks and tests.
    None,
}

impl Crypto {
    /// The word of the configuration.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Noise(_) => "noise",
            Self::None => "none",
        }
    }

    /// The number in the opening.
    const fn number(&self) -> u8 {
        match self {
            Self::None => 0,
            Self::Noise(_) => 1,
        }
    }
}

/// Why a connection could not be opened, or cannot go on.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ChannelError {
    /// The first bytes are not ours.
    #[error("it does not speak this protocol")]
    NotAPeer,
    /// Another generation of the protocol.
    #[error(
        "it speaks version {theirs} of the protocol and this node version {ours}; run releases of one \
         generation"
    )]
    Major {
        /// The peer's.
        theirs: u8,
        /// Ours.
        ours: u8,
    },
    /// Another cluster.
    #[error(
        "it belongs to cluster \"{theirs}\" and this node to \"{ours}\"; make cluster_name equal or \
         the ports different"
    )]
    Cluster {
        /// The peer's, made printable.
        theirs: String,
        /// Ours.
        ours: String,
    },
    /// One side encrypts, the other does not.
    #[error("it has crypto={theirs} and this node crypto={ours}; make them equal")]
    Crypto {
        /// The peer's.
        theirs: &'static str,
        /// Ours.
        ours: &'static str,
    },
    /// The key exchange failed.
    #[error("it does not have this cluster's key; copy one authkey file to all nodes")]
    Key,
    /// A record was changed on its way, or sent by somebody else.
    #[error("what it sent was not sealed with the key that was agreed on")]
    Seal,
    /// A frame is not one.
    #[error("it broke the protocol: {0}")]
    Frame(#[from] crate::wire::frame::FrameError),
    /// A body is not one.
    #[error("it broke the protocol: {0}")]
    Body(#[from] crate::wire::body::BodyError),
}
