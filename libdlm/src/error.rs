//! What can go wrong for a user of this crate.

use dlm_core::Errno;
use dlm_ipc::layout::LostReason;

/// Why a call failed. [`Error::errno`] is what the C libraries report.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Nobody serves at the socket (D18).
    #[error("no dlmd answers at the socket; start dlmd, or set DLM_SOCKET to its socket")]
    NotRunning,
    /// The handle was lost: daemon, node or lockspace is gone, and so are its locks (D18).
    #[error("the lockspace handle was lost ({0:?}); its locks are gone: close it and open anew")]
    Lost(LostReason),
    /// The handle was closed, or belongs to the process that forked this one (D19).
    #[error(
        "the lockspace handle is closed or belongs to another process; open one in this process"
    )]
    NotOurs,
    /// An argument is wrong.
    #[error("an argument is not allowed: {0}")]
    Argument(&'static str),
    /// The daemon refused the call; nothing was done.
    #[error("dlmd refused the call with {0:?}")]
    Refused(Errno),
    /// The lock was not to be had at once, and waiting was not wanted.
    #[error("the lock is held in a conflicting mode; wait for it, or try later")]
    WouldBlock,
    /// The time limit is over; the request is gone (D12).
    #[error("the lock was not granted within the time limit; the request is gone")]
    TimedOut,
    /// Somebody cancelled the request.
    #[error("the request was cancelled; nothing is left of it")]
    Cancelled,
    /// Two conversions wait for each other (semantics.md 1.6).
    #[error("the conversion would wait for ever; unlock or convert down, then ask again")]
    Deadlock,
    /// An operation ended with a status that does not belong to it.
    #[error("the operation ended with status {0}")]
    Ended(i32),
    /// The system refused something.
    #[error("the system refused with errno {0}")]
    System(i32),
}

impl Error {
    /// The errno (or positive status) that belongs to this error.
    pub fn errno(&self) -> i32 {
        match self {
            Self::NotRunning => Errno::ENOTCONN.0,
            Self::Lost(_) => Errno::ENOTRECOVERABLE.0,
            Self::NotOurs => Errno::EBADF.0,
            Self::Argument(_) => Errno::EINVAL.0,
            Self::Refused(errno) => errno.0,
            Self::WouldBlock => Errno::EAGAIN.0,
            Self::TimedOut => Errno::ETIMEDOUT.0,
            Self::Cancelled => crate::ECANCEL,
            Self::Deadlock => Errno::EDEADLK.0,
            Self::Ended(status) => *status,
            Self::System(errno) => *errno,
        }
    }

    /// The error of a completion with this positive status.
    pub(crate) fn of_status(status: i32) -> Self {
        match status {
            s if s == Errno::EAGAIN.0 => Self::WouldBlock,
            s if s == Errno::EDEADLK.0 => Self::Deadlock,
            s if s == Errno::ETIMEDOUT.0 => Self::TimedOut,
            crate::ECANCEL => Self::Cancelled,
            other => Self::Ended(other),
        }
    }
}

impl From<std::io::Error> for Error {
    fn from(error: std::io::Error) -> Self {
        use std::io::ErrorKind::{BrokenPipe, ConnectionRefused, ConnectionReset, NotFound};
        match error.kind() {
            NotFound | ConnectionRefused | ConnectionReset | BrokenPipe => Self::NotRunning,
            _ => Self::System(error.raw_os_error().unwrap_or(libc::EIO)),
        }
    }
}

impl From<Error> for std::io::Error {
    fn from(error: Error) -> Self {
        match error {
            Error::System(errno) => Self::from_raw_os_error(errno),
            other => Self::other(other),
        }
    }
}
