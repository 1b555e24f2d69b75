//! `libdlm_lt.so.3`: the C interface for programs that use no threads, or only their own.
//!
//! It never starts a thread. Waiting calls dispatch in a loop, so callbacks of any lock of the
//! lockspace run inside them; a lock that failed is -1 with its status as errno (libdlm-abi.md
//! 2.5).
//!
//! What may go in: nothing. All calls are those of the sister library, compiled for the other
//! convention.

use dlm_client::c::Library;

/// Which library this is.
const LIBRARY: Library = Library::Plain;

#[path = "../../so/src/boundary.rs"]
mod boundary;
#[path = "../../so/src/ext.rs"]
pub mod ext;
#[path = "../../so/src/locks.rs"]
pub mod locks;
#[path = "../../so/src/spaces.rs"]
pub mod spaces;
