//! The C library as a [`Locker`].

use std::ffi::CString;
use std::io;
use std::path::Path;

use super::sys::CHandle;
use super::{LOCKSPACE, Locker};

/// A handle of `libdlm_lt.so.3`, which finds its daemon by `$DLM_SOCKET`.
pub(crate) struct CLocker {
    handle: CHandle,
}

impl CLocker {
    /// Loads the library and opens the lockspace.
    pub(crate) fn open(library: &Path) -> io::Result<Self> {
        let lockspace = CString::new(LOCKSPACE)?;
        Ok(Self { handle: CHandle::open(library, &lockspace)? })
    }
}

impl Locker for CLocker {
    fn lock(&mut self, name: &[u8]) -> io::Result<()> {
        self.handle.lock(name)
    }

    fn unlock(&mut self) -> io::Result<()> {
        self.handle.unlock()
    }
}
