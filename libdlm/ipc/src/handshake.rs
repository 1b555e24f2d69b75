//! A client's first exchange, whole: `Hello` out, `Welcome` in.

use std::io;

use crate::hello::{BadMessage, Hello, MESSAGE_BYTES_MAX, Welcome};
use crate::page::PageError;
use crate::side::ClientSide;
use crate::socket::Connection;

/// Why there is no conversation.
#[derive(Debug, thiserror::Error)]
pub enum HandshakeError {
    /// The daemon refused, with this positive errno.
    #[error("dlmd refuses: {}", io::Error::from_raw_os_error(*.0))]
    Refused(i32),
    /// The daemon ended the connection without an answer.
    #[error("dlmd ended the connection; look at its log")]
    Closed,
    /// The socket failed.
    #[error("the socket of dlmd fails: {0}")]
    Io(#[from] io::Error),
    /// A name or label of ours is impossible, or the answer is none.
    #[error(transparent)]
    Message(#[from] BadMessage),
    /// The pages are not usable.
    #[error(transparent)]
    Page(#[from] PageError),
    /// A welcome without pages, or with others than it says.
    #[error("dlmd's welcome lacks its pages; dlmd and this library must be of one version")]
    NoPages,
}

impl HandshakeError {
    /// The errno that says it best to a C caller.
    pub fn errno(&self) -> i32 {
        match self {
            Self::Refused(errno) => *errno,
            Self::Closed => libc::ECONNRESET,
            Self::Io(error) => error.raw_os_error().unwrap_or(libc::EPROTO),
            Self::Message(error) => error.errno(),
            Self::Page(PageError::Io(error)) => error.raw_os_error().unwrap_or(libc::EPROTO),
            Self::Page(_) | Self::NoPages => libc::EPROTO,
        }
    }
}

/// Opens a handle on a blocking connection. Waits as long as the lockspace takes to open.
///
/// # Errors
/// See [`HandshakeError`]. The connection is of no further use then.
pub fn open_handle(
    connection: &Connection,
    hello: &crate::hello::HandleHello,
) -> Result<(Welcome, ClientSide), HandshakeError> {
    let (welcome, descriptors) = exchange(connection, &Hello::Handle(hello.clone()))?;
    let side = ClientSide::open(descriptors.ok_or(HandshakeError::NoPages)?)?;
    if side.page.geometry() != welcome.geometry {
        return Err(HandshakeError::NoPages);
    }
    Ok((welcome, side))
}

/// Opens a control conversation on a blocking connection.
///
/// # Errors
/// See [`HandshakeError`]. The connection is of no further use then.
pub fn open_control(connection: &Connection) -> Result<Welcome, HandshakeError> {
    exchange(connection, &Hello::Control).map(|(welcome, _)| welcome)
}

type Answer = (Welcome, Option<[std::os::fd::OwnedFd; 4]>);

fn exchange(connection: &Connection, hello: &Hello) -> Result<Answer, HandshakeError> {
    // A daemon that refuses before it reads answers and hangs up: its word is worth more than our
    // broken pipe.
    let sent = connection.send(&hello.encode()?);
    let mut buffer = [0; MESSAGE_BYTES_MAX];
    let received = connection.recv_with_fds(&mut buffer)?;
    let Some(received) = received else {
        sent?;
        return Err(HandshakeError::Closed);
    };
    let welcome = Welcome::decode(received.message)?;
    match welcome.errno {
        0 => Ok((welcome, received.descriptors)),
        errno => Err(HandshakeError::Refused(errno)),
    }
}
