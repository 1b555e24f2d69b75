//! Sessions.

use dlm_core::NodeId;

/// Why two members' accounts of what was said do not fit together.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SessionError {
    /// A message is missing before this one. The connection is given up; the next one carries it.
    #[error("message {got} came where {want} was due")]
    Gap {
        /// Number that was due.
        want: u64,
        /// Number that came.
        got: u64,
    },
    /// It acknowledges what was never sent.
    #[error("it acknowledged message {ack}, but only {sent} were sent")]
    Ack {
        /// What it acknowledged.
        ack: u64,
        /// What was sent.
        sent: u64,
    },
    /// It lost its half of the session: what was acknowledged, or what it sent, is unknown to it.
    /// The pair cannot go on without loss.
    #[error(
        "node {} does not remember the session of this life of it; one of the two nodes must begin a \
         new life", node.0
    )]
    Forgotten {
        /// The node that forgot.
        node: NodeId,
    },
}
