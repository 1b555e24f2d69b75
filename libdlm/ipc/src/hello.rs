//! The messages on the socket of a handle (ipc.md section 1), byte by byte.
//!
//! Host byte order, no padding. Every length is checked, and a message with bytes left over is
//! refused: what one version does not understand it does not skip.
//!
//! | message | bytes |
//! |---|---|
//! | [`Hello`] | magic u32, version u16, kind u16 (1 handle, 2 control) |
//! | … of kind 1 | op u32, mode u32, flags u32, name length u16, label length u16, name, label |
//! | [`Welcome`] | magic u32, version u16, 0 u16, errno i32, node u32, lockspace u32, 3 sizes u32 |
//! | `Close` | 1 u16 |
//! | `Release` | 2 u16, force u8 |
//! | `Label` | 3 u16, label |
//! | `Done` | 16 u16, errno i32 |
//! | `Lost` | 17 u16, reason u32 |

use crate::layout::{Geometry, LostReason, NAME_BYTES_MAX};
use crate::{LAYOUT_VERSION, MAGIC};

/// Longest application label, in bytes.
pub const LABEL_BYTES_MAX: usize = 64;
/// Longest message of this module, in bytes; a buffer of this size receives every good one.
pub const MESSAGE_BYTES_MAX: usize = 24 + NAME_BYTES_MAX + LABEL_BYTES_MAX;

/// Why a message is none. The sender is refused with [`BadMessage::errno`] and the connection ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BadMessage {
    /// Not a message of this protocol.
    #[error("not a dlm message; the process behind the socket is something else")]
    Magic,
    /// Another version.
    #[error("layout version {0} is not {LAYOUT_VERSION}; dlmd and library must be of one version")]
    Version(u16),
    /// Unknown kind of conversation, operation or message.
    #[error("message kind {0} does not exist in this version")]
    Kind(u32),
    /// Too short, or longer than it says.
    #[error("a message of {0} bytes is not as long as it must be")]
    Length(usize),
    /// A name must have 1 to 64 bytes.
    #[error("a lockspace name of {0} bytes; it must have 1 to 64")]
    NameLength(usize),
    /// A label may have 64 bytes.
    #[error("a label of {0} bytes; it may have 64")]
    LabelLength(usize),
    /// A field has a value it cannot have.
    #[error("a field of the message has an impossible value")]
    Field,
}

impl BadMessage {
    /// The errno to answer with: EINVAL where an argument of the user is wrong, else EPROTO.
    pub const fn errno(self) -> i32 {
        match self {
            Self::NameLength(_) | Self::LabelLength(_) => libc::EINVAL,
            _ => libc::EPROTO,
        }
    }
}

/// The first message of a client.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Hello {
    /// A handle on a lockspace; answered when it is open, which may take as long as a join takes.
    Handle(HandleHello),
    /// A control conversation.
    Control,
}

/// Which lockspace, and how.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HandleHello {
    /// Creates the lockspace, or raises its creation count, instead of only opening it.
    pub create: bool,
    /// Permission bits of a new lockspace.
    pub mode: u32,
    /// DLM_LSFL_ flags of a new lockspace.
    pub flags: u32,
    /// Lockspace name, 1 to 64 bytes.
    pub name: Vec<u8>,
    /// Application label, up to 64 bytes.
    pub label: Vec<u8>,
}

const KIND_HANDLE: u16 = 1;
const KIND_CONTROL: u16 = 2;
const OP_OPEN: u32 = 1;
const OP_CREATE: u32 = 2;

impl Hello {
    /// The message's bytes.
    ///
    /// # Errors
    /// Name or label have an impossible length.
    pub fn encode(&self) -> Result<Vec<u8>, BadMessage> {
        let mut out = Vec::with_capacity(MESSAGE_BYTES_MAX);
        out.extend(MAGIC.to_ne_bytes());
        out.extend(LAYOUT_VERSION.to_ne_bytes());
        let Self::Handle(handle) = self else {
            out.extend(KIND_CONTROL.to_ne_bytes());
            return Ok(out);
        };
        check_lengths(&handle.name, &handle.label)?;
        out.extend(KIND_HANDLE.to_ne_bytes());
        let op = if handle.create { OP_CREATE } else { OP_OPEN };
        for word in [op, handle.mode, handle.flags] {
            out.extend(word.to_ne_bytes());
        }
        for text in [&handle.name, &handle.label] {
            out.extend((text.len() as u16).to_ne_bytes());
        }
        out.extend(&handle.name);
        out.extend(&handle.label);
        Ok(out)
    }

    /// Understands a client's first message.
    ///
    /// # Errors
    /// Everything that is not exactly such a message.
    pub fn decode(message: &[u8]) -> Result<Self, BadMessage> {
        let mut rest = Reader::new(message);
        rest.magic_and_version()?;
        match rest.u16()? {
            KIND_CONTROL => rest.end().map(|()| Self::Control),
            KIND_HANDLE => {
                let create = match rest.u32()? {
                    OP_OPEN => false,
                    OP_CREATE => true,
                    other => return Err(BadMessage::Kind(other)),
                };
                let (mode, flags) = (rest.u32()?, rest.u32()?);
                let (name_len, label_len) = (rest.u16()?, rest.u16()?);
                let name = rest.bytes(name_len.into())?;
                let label = rest.bytes(label_len.into())?;
                rest.end()?;
                check_lengths(name, label)?;
                let (name, label) = (name.to_vec(), label.to_vec());
                Ok(Self::Handle(HandleHello { create, mode, flags, name, label }))
            }
            other => Err(BadMessage::Kind(other.into())),
        }
    }
}

fn check_lengths(name: &[u8], label: &[u8]) -> Result<(), BadMessage> {
    if !(1..=NAME_BYTES_MAX).contains(&name.len()) {
        return Err(BadMessage::NameLength(name.len()));
    }
    if label.len() > LABEL_BYTES_MAX {
        return Err(BadMessage::LabelLength(label.len()));
    }
    Ok(())
}

/// The daemon's answer to a [`Hello`]. With errno 0 to a handle it brings the four descriptors;
/// otherwise, and to a control conversation, only `errno` and `node` count.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Welcome {
    /// 0, or a positive errno; then the connection closes.
    pub errno: i32,
    /// The daemon's node id.
    pub node: u32,
    /// The lockspace's cluster-wide number.
    pub lockspace: u32,
    /// Ring sizes of the pages.
    pub geometry: Geometry,
}

impl Welcome {
    /// A refusal, or (errno 0) the welcome to a control conversation.
    pub const fn without_pages(errno: i32, node: u32) -> Self {
        let geometry = Geometry { submissions: 0, replies: 0, events: 0 };
        Self { errno, node, lockspace: 0, geometry }
    }

    /// The message's bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(32);
        out.extend(MAGIC.to_ne_bytes());
        out.extend(LAYOUT_VERSION.to_ne_bytes());
        out.extend([0, 0]);
        out.extend(self.errno.to_ne_bytes());
        let Geometry { submissions, replies, events } = self.geometry;
        for word in [self.node, self.lockspace, submissions, replies, events] {
            out.extend(word.to_ne_bytes());
        }
        out
    }

    /// Understands the daemon's answer.
    ///
    /// # Errors
    /// Everything that is not exactly such a message.
    pub fn decode(message: &[u8]) -> Result<Self, BadMessage> {
        let mut rest = Reader::new(message);
        rest.magic_and_version()?;
        if rest.u16()? != 0 {
            return Err(BadMessage::Field);
        }
        let welcome = Self {
            errno: rest.i32()?,
            node: rest.u32()?,
            lockspace: rest.u32()?,
            geometry: Geometry {
                submissions: rest.u32()?,
                replies: rest.u32()?,
                events: rest.u32()?,
            },
        };
        rest.end().map(|()| welcome)
    }
}

/// What a client says on a handle's socket later.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ClientMessage {
    /// The handle ends: locks go or become orphans.
    Close,
    /// The handle ends, then one creation of the lockspace is taken back.
    Release {
        /// Although locks remain.
        force: bool,
    },
    /// A new application label, up to [`LABEL_BYTES_MAX`].
    Label(Vec<u8>),
}

const TAG_CLOSE: u16 = 1;
const TAG_RELEASE: u16 = 2;
const TAG_LABEL: u16 = 3;
const TAG_DONE: u16 = 16;
const TAG_LOST: u16 = 17;

impl ClientMessage {
    /// The message's bytes.
    ///
    /// # Errors
    /// The label is too long.
    pub fn encode(&self) -> Result<Vec<u8>, BadMessage> {
        Ok(match self {
            Self::Close => TAG_CLOSE.to_ne_bytes().to_vec(),
            Self::Release { force } => {
                [&TAG_RELEASE.to_ne_bytes()[..], &[u8::from(*force)]].concat()
            }
            Self::Label(label) if label.len() > LABEL_BYTES_MAX => {
                return Err(BadMessage::LabelLength(label.len()));
            }
            Self::Label(label) => [&TAG_LABEL.to_ne_bytes()[..], label].concat(),
        })
    }

    /// Understands a client's later message.
    ///
    /// # Errors
    /// Everything that is not exactly such a message.
    pub fn decode(message: &[u8]) -> Result<Self, BadMessage> {
        let mut rest = Reader::new(message);
        match rest.u16()? {
            TAG_CLOSE => rest.end().map(|()| Self::Close),
            TAG_RELEASE => {
                let force = match rest.bytes(1)? {
                    [0] => false,
                    [1] => true,
                    _ => return Err(BadMessage::Field),
                };
                rest.end().map(|()| Self::Release { force })
            }
            TAG_LABEL if rest.0.len() > LABEL_BYTES_MAX => {
                Err(BadMessage::LabelLength(rest.0.len()))
            }
            TAG_LABEL => Ok(Self::Label(rest.0.to_vec())),
            other => Err(BadMessage::Kind(other.into())),
        }
    }
}

/// What the daemon says on a handle's socket later.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DaemonMessage {
    /// The answer to the oldest unanswered [`ClientMessage`].
    Done {
        /// 0, or a positive errno.
        errno: i32,
    },
    /// The lockspace is lost; the daemon closes the connection.
    Lost(LostReason),
}

impl DaemonMessage {
    /// The message's bytes.
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Self::Done { errno } => [&TAG_DONE.to_ne_bytes()[..], &errno.to_ne_bytes()].concat(),
            Self::Lost(reason) => {
                [&TAG_LOST.to_ne_bytes()[..], &(*reason as u32).to_ne_bytes()].concat()
            }
        }
    }

    /// Understands a daemon's later message.
    ///
    /// # Errors
    /// Everything that is not exactly such a message.
    pub fn decode(message: &[u8]) -> Result<Self, BadMessage> {
        let mut rest = Reader::new(message);
        let message = match rest.u16()? {
            TAG_DONE => Self::Done { errno: rest.i32()? },
            TAG_LOST => Self::Lost(LostReason::from_number(rest.u32()?).ok_or(BadMessage::Field)?),
            other => return Err(BadMessage::Kind(other.into())),
        };
        rest.end().map(|()| message)
    }
}

/// Takes a message apart from the front.
struct Reader<'a>(&'a [u8], usize);

impl<'a> Reader<'a> {
    fn new(message: &'a [u8]) -> Self {
        Self(message, message.len())
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], BadMessage> {
        let (first, rest) = self.0.split_first_chunk().ok_or(BadMessage::Length(self.1))?;
        self.0 = rest;
        Ok(*first)
    }

    fn u16(&mut self) -> Result<u16, BadMessage> {
        self.array().map(u16::from_ne_bytes)
    }

    fn u32(&mut self) -> Result<u32, BadMessage> {
        self.array().map(u32::from_ne_bytes)
    }

    fn i32(&mut self) -> Result<i32, BadMessage> {
        self.array().map(i32::from_ne_bytes)
    }

    fn bytes(&mut self, count: usize) -> Result<&'a [u8], BadMessage> {
        let (first, rest) = self.0.split_at_checked(count).ok_or(BadMessage::Length(self.1))?;
        self.0 = rest;
        Ok(first)
    }

    fn magic_and_version(&mut self) -> Result<(), BadMessage> {
        if self.u32()? != MAGIC {
            return Err(BadMessage::Magic);
        }
        match self.u16()? {
            LAYOUT_VERSION => Ok(()),
            other => Err(BadMessage::Version(other)),
        }
    }

    fn end(&self) -> Result<(), BadMessage> {
        if self.0.is_empty() { Ok(()) } else { Err(BadMessage::Length(self.1)) }
    }
}

#[cfg(test)]
mod tests;
