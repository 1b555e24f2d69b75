//! The client of dlmd: lockspaces, locks, callbacks, for Rust programs and for the two C libraries.
//!
//! # A lock in five lines
//!
//! ```no_run
//! use dlm_client::{Lockspace, Mode, Wanted};
//!
//! let space = Lockspace::create("jobs")?;
//! let guard = space.lock(b"nightly", Mode::EX, &Wanted::new())?; // waits
//! println!("ours, with token {}", guard.token());
//! guard.unlock()?; // or drop it
//! # Ok::<(), dlm_client::Error>(())
//! ```
//!
//! `examples/one_at_a_time.rs` is that as a program.
//!
//! # What to use
//!
//! | to do | take |
//! |---|---|
//! | open or create a lockspace | [`Lockspace::open`], [`Lockspace::create`], [`Opening`] |
//! | wait for a lock | [`Lockspace::lock`], [`Wanted::timeout`], [`Lockspace::try_lock`] |
//! | hear that somebody wants it | [`Wanted::events`] |
//! | run its callbacks | [`Lockspace::spawn_dispatcher`], [`Lockspace::dispatch`] |
//! | many at a time | [`Lockspace::pipeline`] |
//! | know that all is lost | [`Lockspace::on_loss`], [`Error::Lost`] |
//!
//! # Promises
//!
//! - Locks belong to the handle, and the handle to the process that opened it: a forked child gets
//!   [`Error::NotOurs`] (D19), and its end touches nothing.
//! - A daemon that is gone is one error for ever, [`Error::Lost`]; nothing reconnects silently.
//! - No lock of this crate is held while a callback runs: a callback may call everything, also what
//!   waits, and close.
//! - One lock's events come one at a time, in order. Callbacks run only where the program
//!   dispatches.
//!
//! # How it is cut
//!
//! What may go in: the client's half of `doc/ipc.md`, and the rules of threads. What may not:
//! decisions about locks; they are the daemon's.
//!
//! | module | what |
//! |---|---|
//! | `handle` | a handle's life: open, dispatch, helper thread, close |
//! | `call` | request and reply |
//! | `ops` | lock, convert, unlock, cancel, for all interfaces |
//! | `table` | the locks of a handle; words, generations, addresses |
//! | `state`, `receive`, `deliver` | events from the ring to the program |
//! | `wait`, `wake` | who sleeps where, who wakes whom |
//! | `lease` | what is not believed any more, and when all is lost |
//! | `process` | which handles this process has; forks |
//! | `lockspace`, `pipeline` | the Rust interface |
//! | `c` | the meaning of the C interface |
#![deny(missing_docs)]

mod call;
mod deliver;
mod error;
mod event;
mod handle;
mod lease;
mod lockspace;
mod ops;
mod pipeline;
mod process;
mod receive;
mod state;
mod sys;
mod table;
mod wait;
mod wake;

#[doc(hidden)]
pub mod c;

pub use error::Error;
pub use event::{Completion, LockEvent, LockRef, Value};
#[doc(hidden)]
pub use handle::{Handle, OpenArgs, probe};
pub use lockspace::{Guard, Lockspace, Opening, Wanted};
pub use pipeline::{Pipeline, Tagged};

pub use dlm_core::{Errno, LockFlags, Mode, SbFlags, SpaceFlags};
pub use dlm_ipc::layout::LostReason;

/// Status of a cancelled operation (`ECANCEL` of `<libdlm.h>`).
pub const ECANCEL: i32 = 0x10001;
/// Status of an unlock (`EUNLOCK` of `<libdlm.h>`).
pub const EUNLOCK: i32 = 0x10002;
/// Status of an operation in progress (`EINPROG` of `<libdlm.h>`).
pub const EINPROG: i32 = 0x10003;
