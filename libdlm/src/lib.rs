//! The client of dlmd.
#![deny(missing_docs)]

mod call;
mod deliver;
mod error;
mod event;
mod handle;
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
