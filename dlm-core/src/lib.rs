//! The lock manager as **one pure state machine**.
//!
//! Everything that decides a grant lives here: six modes, conversions, value blocks, blocking
//! callbacks, lockspace life cycle. The daemon, the simulator, the model checker and the fuzzers are
//! only drivers of [`Node::step`].
//!
//! What may go in: decisions. What may not: I/O, clocks, threads, random numbers, `unsafe`,
//! collections with a randomly seeded hasher. Time is an argument, and the same inputs always give
//! the same outputs.
//!
//! The rules are those of `doc/semantics.md`; code and tests name its sections and its D, T, L rows.
//!
//! # A driver's loop
//!
//! ```
//! use dlm_core::{ClientId, Input, Instant, Member, Node, NodeId, Outbox, Output, Request};
//!
//! let mut node = Node::new(Member { node: NodeId(1), incarnation: 1 });
//! let mut out = Outbox::new();
//! let client = ClientId::new(0, 1);
//! node.step(Instant(0), Input::Client(client, Request::open("demo", 4711)), &mut out);
//! for output in out.drain() {
//!     match output {
//!         Output::Reply { result, .. } => assert!(result.is_err()), // "demo" was never created
//!         other => panic!("unexpected {other:?}"),
//!     }
//! }
//! assert!(node.deadline().is_none());
//! ```
#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod audit;
mod away;
mod blocking;
mod by_name;
mod calls;
mod clients;
mod cluster;
mod deliver;
mod digest;
mod directory;
mod event;
mod flags;
mod grant;
mod holder;
mod id;
mod inspect;
mod invariant;
mod layout;
mod lifecycle;
mod lock;
mod lockspace;
mod marks;
mod master;
pub mod message;
mod mode;
mod name;
mod node;
mod nodir;
mod owed;
mod pass;
mod raised;
mod rebuild;
mod recover;
mod resource;
mod seeded;
mod settle;
mod slab;
mod slots;
mod status;
mod table;
mod time;
mod timer;
mod traffic;
mod value;
mod view;

pub use audit::{Audit, Mastered};
pub use event::{
    Access, Blocking, Call, Completion, Convert, Create, Input, LockCall, LossReason, Open, Outbox,
    Output, Request, Unlock,
};
pub use flags::{LockFlags, SbFlags, SpaceFlags};
pub use id::{ClientId, JOINS_PER_LIFE, LockId, LockspaceId, Member, NodeId, Token, ViewId};
pub use inspect::{
    Due, DumpPage, LockInfo, LockState, LockspaceInfo, NodeCounters, ResourceInfo, Whereabouts,
};
pub use layout::Layout;
pub use marks::Marks;
pub use message::Message;
pub use mode::Mode;
pub use name::{LOCKSPACE_NAME_BYTES_MAX, Name, RESOURCE_NAME_BYTES_MAX};
pub use node::{Limits, Node};
pub use status::{Errno, Status};
pub use time::{Instant, Reason};
pub use view::View;

/// Bytes of a lock value block in a user lockspace (semantics.md section 0).
pub const VALUE_BYTES: usize = 32;
/// A lock value block.
pub type Value = [u8; VALUE_BYTES];
