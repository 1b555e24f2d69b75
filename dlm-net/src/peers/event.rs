//! What the transport tells the daemon.

use std::net::SocketAddr;

use dlm_core::{Instant, Member, Message, NodeId};

use crate::secure::ChannelError;
use crate::session::SessionError;

/// One piece of news, in the order in which it happened.
///
/// For one member: `Up` comes before its first `Message`; `Up` and `Down` alternate; messages of
/// one session are whole and in order, however many connections carried them; nothing of a member
/// comes after the `NewIncarnation` that replaced it.
#[derive(Clone, PartialEq, Debug)]
pub enum Event {
    /// A lock message, in the order in which it was sent; never lost, never twice (B5).
    Message {
        /// Who sent it.
        from: Member,
        /// What.
        message: Message,
    },
    /// Bytes that the other daemon sent with `send_note`, in one order with its messages.
    Note {
        /// Who sent it.
        from: Member,
        /// What; the daemons agree on its meaning.
        note: Vec<u8>,
    },
    /// The pair can talk.
    Up {
        /// The other side.
        member: Member,
    },
    /// The pair cannot talk at the moment. Nothing is lost by that, unless `why` says so.
    Down {
        /// The other side.
        member: Member,
        /// Why.
        why: DownReason,
    },
    /// A node began a new life. What was to be sent to the old one is void, and nothing more is heard
    /// from it. The old life is over only in the sense that its daemon was replaced: whether it is
    /// harmless is membership's to say.
    NewIncarnation {
        /// The life before.
        old: Member,
        /// The life that talks now.
        new: Member,
    },
    /// A pair could not talk for `PEER_LIMIT`, or cannot go on without loss: membership must exclude
    /// one of the two (B5). Told once for each such stretch. `Up` ends it, except where the session
    /// broke.
    Unreachable {
        /// The node.
        node: NodeId,
        /// Its life, if it was ever heard of.
        member: Option<Member>,
        /// When it was last heard, or when it was configured.
        since: Instant,
    },
    /// Somebody was refused, or refused us; the log says the same in words.
    Refused {
        /// The other end.
        address: SocketAddr,
        /// Why.
        why: Refusal,
    },
}

/// Why a pair cannot talk.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum DownReason {
    /// The other side closed the connection, or the network did.
    #[error("the connection was closed")]
    Closed,
    /// The system reported an error.
    #[error("{0:?}")]
    Io(std::io::ErrorKind),
    /// Nothing was heard for too long.
    #[error("nothing was heard for {0} ms")]
    Silent(u64),
    /// The peer dialled anew.
    #[error("a newer connection took its place")]
    Replaced,
    /// The peer broke the rules of the protocol; it is dialled again.
    #[error("{0}")]
    Session(#[from] SessionError),
    /// Its bytes could not be decrypted or understood.
    #[error("{0}")]
    Channel(#[from] ChannelError),
    /// The node is no longer configured, or has another address.
    #[error("the node is no longer configured at this address")]
    Removed,
    /// This side excluded the member.
    #[error("it was excluded")]
    Excluded,
    /// The other side excluded this life of this node.
    #[error("the other side excluded this life of this node")]
    ExcludedHere,
    /// The other side ended its daemon and said so.
    #[error("its daemon ended")]
    Goodbye,
    /// This side began a new incarnation.
    #[error("this node began a new life")]
    Renewed,
}

impl DownReason {
    /// Whether somebody should look at it: a peer that is broken, or a network that is.
    pub(super) const fn is_fault(&self) -> bool {
        matches!(self, Self::Silent(_) | Self::Session(_) | Self::Channel(_) | Self::ExcludedHere)
    }
}

/// Why a connection was refused.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refusal {
    /// It comes from, or was accepted at, an address that no configured node has.
    #[error("no configured node has this address; add it to the node lines of dlm.conf")]
    UnknownAddress,
    /// The opening bytes, the key, the cluster's name or the version do not fit.
    #[error("{0}")]
    Channel(#[from] ChannelError),
    /// No minor version is spoken by both.
    #[error(
        "it speaks versions {major}.{theirs_min} to {major}.{theirs_max} of the protocol and this \
         node {major}.{ours_min} to {major}.{ours_max}; update the older one"
    )]
    Version {
        /// The common major.
        major: u8,
        /// The peer's oldest.
        theirs_min: u8,
        /// The peer's newest.
        theirs_max: u8,
        /// Our oldest.
        ours_min: u8,
        /// Our newest.
        ours_max: u8,
    },
    /// It claims to be a node that has another address.
    #[error(
        "it says it is node {claimed}, which is not configured at this address; make nodeid and the \
         node lines agree on all nodes"
    )]
    NodeId {
        /// The node it claims to be.
        claimed: u32,
    },
    /// It claims to be this node.
    #[error("it says it is node {0}, which is this node; give every node its own nodeid")]
    OwnNodeId(u32),
    /// The node with the lower number dials, and this one is not it.
    #[error("node {0} has the higher number and must wait to be dialled")]
    Direction(u32),
    /// An earlier life of a node of which a later one is known.
    #[error("it is incarnation {told} of node {node}, of which {known} is known")]
    OldIncarnation {
        /// The node.
        node: u32,
        /// The life that called.
        told: u64,
        /// The later life.
        known: u64,
    },
    /// A connection that was dialled before one that is already in use.
    #[error("node {0} dialled again in the meantime")]
    OldConnection(u32),
    /// The member was excluded.
    #[error("incarnation {incarnation} of node {node} was excluded; it must begin a new one")]
    Excluded {
        /// The node.
        node: u32,
        /// The life.
        incarnation: u64,
    },
    /// The two do not agree on what was said before.
    #[error("{0}")]
    Session(#[from] SessionError),
    /// The other side refused this one, in its own words about us.
    #[error("it refuses this node and says: {0}")]
    Told(String),
    /// The other side excluded this life of this node: only a new one ([`Peers::renew`]) is welcome.
    ///
    /// [`Peers::renew`]: crate::peers::Peers::renew
    #[error("it has excluded this life of this node")]
    ExcludedHere,
    /// It said nothing useful in time.
    #[error("it did not introduce itself within {0} ms")]
    Slow(u64),
    /// It hung up before it had introduced itself.
    #[error("it hung up before it had introduced itself")]
    HungUp,
    /// Too many connections wait to be introduced.
    #[error("too many connections wait to be introduced")]
    Crowded,
}

/// Why a message was not taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SendError {
    /// No node of this number is configured.
    #[error("node {0} is not configured; add its node line to dlm.conf")]
    UnknownNode(u32),
    /// The member was excluded, or its node has a later life: nobody would hear it.
    #[error("incarnation {incarnation} of node {node} is over")]
    Over {
        /// The node.
        node: u32,
        /// The life.
        incarnation: u64,
    },
    /// The bytes that wait for this peer's acknowledgement are at their bound. As order would be
    /// broken by the next message, the session takes nothing any more: membership has to exclude one
    /// of the two (`Unreachable` was told).
    #[error("{bytes} bytes wait for node {node}, the bound; one of the two must be excluded")]
    Full {
        /// The node.
        node: u32,
        /// Bytes that wait.
        bytes: usize,
    },
    /// The message does not fit into a frame; the session is as it was.
    #[error("a message of more than {0} bytes cannot be sent")]
    TooLarge(usize),
}
