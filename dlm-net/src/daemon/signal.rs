//! Signals as one more descriptor of the loop.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use crate::sys;

/// What a signal asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Wish {
    /// SIGTERM, SIGINT: end, unless lockspaces are in use.
    End,
    /// SIGHUP: read the configuration again.
    Reload,
}

/// The signals that the daemon answers; blocked for the rest of the process's life.
#[derive(Debug)]
pub(crate) struct Signals(OwnedFd);

impl Signals {
    /// Takes the signals over.
    ///
    /// # Errors
    /// The process has no descriptor left.
    pub(crate) fn take() -> io::Result<Self> {
        sys::signal_descriptor(&[libc::SIGTERM, libc::SIGINT, libc::SIGHUP]).map(Self)
    }

    /// To be registered with the loop; readable when a signal came.
    pub(crate) fn raw(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    /// The next wish, if any.
    pub(crate) fn next(&self) -> Option<Wish> {
        match sys::next_signal(&self.0) {
            Ok(Some(libc::SIGHUP)) => Some(Wish::Reload),
            Ok(Some(_)) => Some(Wish::End),
            Ok(None) => None,
            Err(error) => {
                tracing::error!("cannot read signals: {error}");
                None
            }
        }
    }
}
