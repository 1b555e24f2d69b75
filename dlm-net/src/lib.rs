//! Everything around the state machine that touches the world: sockets, membership, configuration,
//! and the daemon's loop.
//!
//! What may go in: drivers of [`dlm_core::Node`], and what they need of the system. What may not:
//! decisions about locks (they are the core's), and the layout of what clients see (`dlm-ipc`).
//!
//! The daemon is one thread and one [`mio::Poll`]. It never trusts and never waits for a client:
//! entries are copied, then judged; queues are bounded; nothing it does on a socket can block.
//!
//! | module | what |
//! |---|---|
//! | [`daemon`] | start, loop, requests of operators, configuration, log, files |
//! | [`fence`] | making lost nodes harmless |
//! | [`ipc`] | connections of clients: slots, rights, rings |
//! | [`membership`] | who takes part in a lockspace |
//! | [`peers`] | the transport between daemons: messages from member to member |
//! | [`session`] | numbers, acknowledgement, resumption between two members; no I/O |
//! | [`secure`] | opening and encryption of connections, the cluster's key |
//! | [`wire`] | frames and bodies in bytes |
#![deny(missing_docs)]

pub mod daemon;
pub mod fence;
pub mod ipc;
pub mod membership;
pub mod peers;
pub mod secure;
pub mod session;
mod sys;
mod tcp;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod wire;
