//! What every command works with, and how a command ends.
//!
//! A command writes to [`Context::out`] and [`Context::err`] and asks [`Context::daemon`]; it never
//! touches the process's own streams, so that each format has a test on literal records.

use std::fmt;
use std::io::{self, Write};

use dlm_ipc::control::{ControlReply, ControlRequest};
use serde::Serialize;

/// Exit code of the process.
pub(crate) type Code = u8;

/// Good.
pub(crate) const GOOD: Code = 0;
/// No: not found, refused, not granted.
pub(crate) const NO: Code = 1;
/// The command line is wrong (own commands; the old ones say 1).
pub(crate) const USAGE: Code = 2;
/// The daemon does not answer, or the lock was lost.
pub(crate) const SILENT: Code = 3;
/// Failure of an old command that says so at all (libdlm-abi.md 4.1).
pub(crate) const OLD_FAILURE: Code = 255;
/// The reader of our output went away; as if SIGPIPE had ended us.
pub(crate) const PIPE: Code = 128 + 13;

/// Why a conversation with the daemon failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// Nothing listens at the socket.
    Absent(String),
    /// Something listens and does not answer in time, or broke off.
    Silent(String),
    /// It answered, but does not know: another node would.
    Unknown(String),
    /// It answered no.
    Refused {
        /// Errno.
        errno: i32,
        /// One sentence.
        message: String,
    },
}

impl Trouble {
    /// The code that own commands and `--json` end with.
    pub(crate) fn code(&self) -> Code {
        match self {
            Self::Absent(_) | Self::Silent(_) | Self::Unknown(_) => SILENT,
            Self::Refused { .. } => NO,
        }
    }

    /// The `state` word of JSON answers.
    pub(crate) fn state(&self) -> &'static str {
        match self {
            Self::Absent(_) => "daemon-absent",
            Self::Silent(_) => "daemon-silent",
            Self::Unknown(_) => "unknown",
            Self::Refused { errno: libc::ENOENT, .. } => "not-found",
            Self::Refused { .. } => "refused",
        }
    }

    /// Errno of a refusal.
    pub(crate) fn errno(&self) -> Option<i32> {
        match self {
            Self::Refused { errno, .. } => Some(*errno),
            Self::Absent(_) | Self::Silent(_) | Self::Unknown(_) => None,
        }
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Absent(message)
            | Self::Silent(message)
            | Self::Unknown(message)
            | Self::Refused { message, .. } => f.write_str(message),
        }
    }
}

/// Why a command could not go on.
#[derive(Debug)]
pub(crate) enum Fail {
    /// Its output cannot be written.
    Output(io::Error),
    /// The daemon failed it in a way the command has no own text for.
    Daemon(Trouble),
}

impl From<io::Error> for Fail {
    fn from(error: io::Error) -> Self {
        Self::Output(error)
    }
}

impl From<serde_json::Error> for Fail {
    fn from(error: serde_json::Error) -> Self {
        Self::Output(error.into())
    }
}

impl From<Trouble> for Fail {
    fn from(trouble: Trouble) -> Self {
        Self::Daemon(trouble)
    }
}

/// How a command ends.
pub(crate) type Outcome = Result<Code, Fail>;

/// The daemon as commands see it: one question, one answer, within a few seconds.
pub(crate) trait Daemon {
    /// Asks; a refusal is an error.
    fn ask(&mut self, request: &ControlRequest) -> Result<ControlReply, Trouble>;
}

/// What a command works with.
pub(crate) struct Context<'a> {
    /// Standard output, buffered.
    pub(crate) out: &'a mut dyn Write,
    /// Standard error.
    pub(crate) err: &'a mut dyn Write,
    /// The daemon.
    pub(crate) daemon: &'a mut dyn Daemon,
}

impl Context<'_> {
    /// Asks for one kind of answer; `pick` returns `None` for any other.
    pub(crate) fn ask<T>(
        &mut self,
        request: &ControlRequest,
        pick: impl FnOnce(ControlReply) -> Option<T>,
    ) -> Result<T, Trouble> {
        pick(self.daemon.ask(request)?).ok_or_else(misunderstood)
    }

    /// One sentence on standard error.
    pub(crate) fn say(&mut self, sentence: impl fmt::Display) -> io::Result<()> {
        writeln!(self.err, "dlm_tool: {sentence}")
    }

    /// A whole JSON document and a newline.
    pub(crate) fn json(&mut self, document: &impl Serialize) -> Result<(), Fail> {
        serde_json::to_writer_pretty(&mut *self.out, document)?;
        writeln!(self.out)?;
        Ok(())
    }

    /// Ends a command that speaks the truth: the sentence on standard error, with `--json` also a
    /// document with its `state`, and the code.
    pub(crate) fn fail_truly(&mut self, trouble: &Trouble, json: bool) -> Outcome {
        if json {
            self.json(&Problem {
                state: trouble.state(),
                error: trouble.to_string(),
                errno: trouble.errno(),
            })?;
        }
        self.say(trouble)?;
        Ok(trouble.code())
    }

    /// Ends an old command whose daemon is there and silent: the original would hang, we say it.
    pub(crate) fn fail_silent(&mut self, trouble: &Trouble) -> Outcome {
        self.say(trouble)?;
        Ok(SILENT)
    }
}

/// The JSON answer of a command that failed.
#[derive(Serialize)]
struct Problem {
    state: &'static str,
    error: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    errno: Option<i32>,
}

/// The answer of a daemon of another version.
pub(crate) fn misunderstood() -> Trouble {
    Trouble::Silent(
        "the daemon answered another question; install dlm_tool and dlmd of the same version"
            .to_owned(),
    )
}

/// The text of an errno, without Rust's number behind it.
pub(crate) fn errno_text(errno: i32) -> String {
    let text = io::Error::from_raw_os_error(errno).to_string();
    match text.rfind(" (os error") {
        Some(end) => text[..end].to_owned(),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errno_texts_are_those_of_the_c_library() {
        assert_eq!(errno_text(libc::ENOENT), "No such file or directory");
        assert_eq!(errno_text(libc::EACCES), "Permission denied");
    }

    #[test]
    fn each_trouble_has_its_code_and_state() {
        let refused = |errno| Trouble::Refused { errno, message: String::new() };
        let table = [
            (Trouble::Absent(String::new()), SILENT, "daemon-absent"),
            (Trouble::Silent(String::new()), SILENT, "daemon-silent"),
            (Trouble::Unknown(String::new()), SILENT, "unknown"),
            (refused(libc::ENOENT), NO, "not-found"),
            (refused(libc::EPERM), NO, "refused"),
        ];
        for (trouble, code, state) in table {
            assert_eq!((trouble.code(), trouble.state()), (code, state));
        }
    }
}
