//! What passes between a client and dlmd on one machine: `doc/ipc.md`, byte by byte.
//!
//! What may go in: layouts, rings, bells, the handshake, control messages, the socket's place. What
//! may not: locks, waiting strategies, policy. Client library and daemon both sit on top and share
//! nothing else.
//!
//! | to do | take |
//! |---|---|
//! | find the socket | [`path::socket_path`], [`path::daemon_socket_path`] |
//! | connect, accept, messages | [`socket::Connection`], [`socket::Listener`] |
//! | handshake | [`hello::Hello`], [`hello::Welcome`] |
//! | later messages | [`hello::ClientMessage`], [`hello::DaemonMessage`] |
//! | open as a client | [`handshake::open_handle`], [`handshake::open_control`] |
//! | a handle's pages | [`ClientSide`] in a client, [`DaemonSide::create`] in the daemon |
//! | submit, reply, tell | [`ring::Producer`], [`ring::Consumer`] of [`layout`]'s three entries |
//! | wait without spinning | [`bell::BellWatch`] in a client |
//! | … in the daemon | [`bell::Bell`], registered edge-triggered |
//! | control requests | `control` (feature `control`) |
//!
//! # One request, both ends in one process
//!
//! ```
//! use dlm_ipc::layout::{Geometry, Operation, Reply, Submission};
//! use dlm_ipc::{ClientSide, DaemonSide};
//!
//! let (mut daemon, descriptors) = DaemonSide::create(Geometry::DEFAULT, 1)?;
//! let mut client = ClientSide::open(descriptors.into())?; // in truth: out of a Welcome
//!
//! let purge = Operation::Purge { node: 0, pid: 4711 };
//! client.submissions.push(&Submission::new(&purge, 7, true))?;
//! client.submissions.flush()?; // publishes, and rings if the daemon sleeps
//!
//! let submission = daemon.submissions.pop()?.expect("one was sent");
//! assert_eq!(submission.operation()?, purge);
//! daemon.replies.push(&Reply { result: 0, lkid: 0, tag: submission.tag })?;
//! daemon.replies.flush()?;
//!
//! while client.replies.prepare_sleep() {
//!     client.reply_watch.wait(None)?;
//!     client.replies.awake();
//! }
//! assert_eq!(client.replies.pop()?.map(|reply| reply.tag), Some(7));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![deny(missing_docs)]

pub mod bell;
#[cfg(feature = "control")]
pub mod control;
pub mod handshake;
pub mod hello;
pub mod layout;
pub mod page;
pub mod path;
pub mod ring;
mod rule;
mod side;
pub mod socket;
mod sys;
mod word;

pub use side::{ClientSide, DaemonSide, Descriptors};

/// Version of everything in this crate; ends that differ refuse each other.
pub const LAYOUT_VERSION: u16 = 1;
/// First word of a handshake message and of a page set.
pub const MAGIC: u32 = 0x444c_4d31;
