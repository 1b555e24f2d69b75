//! `libdlm.so.3`: the C interface, with a helper thread for programs that want one.
//!
//! What may go in: C signatures, one line of meaning each, that call `dlm_client::c`; and the
//! boundary that no panic crosses. What may not: decisions about locks. The signature files are
//! compiled into `libdlm_lt.so.3` as well, with another `LIBRARY`; `threads.rs` is this library's
//! alone.

use dlm_client::c::Library;

/// Which library this is.
const LIBRARY: Library = Library::Threads;

mod boundary;
pub mod ext;
pub mod locks;
pub mod spaces;
pub mod threads;
