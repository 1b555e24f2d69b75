//! Answers of calls and of completions (semantics.md 2.3 and 4.4).

use core::fmt;

/// The errno of a refused call. The numbers are Linux's on every machine, since they are the interface's.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Errno(pub i32);

macro_rules! errnos {
    ($($(#[$doc:meta])* $name:ident = $number:expr;)*) => {
        impl Errno {
            $($(#[$doc])* pub const $name: Self = Self($number);)*

            /// The symbolic name, or `E?` for a number the core never answers.
            pub const fn name(self) -> &'static str {
                match self.0 {
                    $($number => stringify!($name),)*
                    _ => "E?",
                }
            }
        }
    };
}

errnos! {
    /// Not the owner of the lock (D2), or not allowed.
    EPERM = 1;
    /// No such lock, lockspace or orphan.
    ENOENT = 2;
    /// The handle does not belong to the caller.
    EBADF = 9;
    /// Adoption: an orphan exists in another mode. As a status: NOQUEUE and not grantable.
    EAGAIN = 11;
    /// A limit of this daemon is reached.
    ENOMEM = 12;
    /// The lockspace's mode does not admit the caller.
    EACCES = 13;
    /// An operation is in progress.
    EBUSY = 16;
    /// The lockspace exists and exclusive creation was asked for.
    EEXIST = 17;
    /// Bad argument.
    EINVAL = 22;
    /// Conversion deadlock.
    EDEADLK = 35;
    /// No quorum.
    EUNATCH = 49;
    /// No such node to be told.
    ENOBUFS = 105;
    /// Nothing is running or open.
    ENOTCONN = 107;
    /// A time limit ended.
    ETIMEDOUT = 110;
    /// The node or the lockspace was lost.
    ENOTRECOVERABLE = 131;
}

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}({})", self.name(), self.0)
    }
}

/// How an accepted operation ended, as a completion reports it in `sb_status`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Status {
    /// Granted, or converted.
    Granted,
    /// NOQUEUE and not grantable at once.
    Again,
    /// Conversion deadlock, or a deadlock cancel.
    Deadlock,
    /// The time limit ended (D12).
    TimedOut,
    /// Cancelled.
    Cancelled,
    /// Unlocked.
    Unlocked,
}

impl Status {
    /// The positive number that `sb_status` shows to a program.
    pub const fn number(self) -> i32 {
        match self {
            Self::Granted => 0,
            Self::Again => 11,
            Self::Deadlock => 35,
            Self::TimedOut => 110,
            Self::Cancelled => 0x10001,
            Self::Unlocked => 0x10002,
        }
    }
}
