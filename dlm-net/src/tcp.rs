//! Sockets: one connection with its channel, and what is read and not understood, or said and not
//! written, yet.
//!
//! Edge-triggered: a socket is read until it has no more or the turn's bound is reached; then
//! [`Connection::has_more`] says so, and nobody may sleep.

use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr};

use dlm_core::{Instant, NodeId};
use mio::event::Event;
use mio::net::TcpStream;
use mio::{Interest, Registry, Token};

use crate::secure::{Channel, ChannelError, Setup};
use crate::sys;

/// Bytes said and not written beyond which nothing more is taken from the session: what waits there
/// can still be acknowledged and dropped.
pub(crate) const BACKLOG_BYTES_MAX: usize = 256 * 1024;

/// Whose connection it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Role {
    /// We dialled this node, and it has not introduced itself.
    Dialled(NodeId),
    /// Somebody dialled us, and has not introduced himself.
    Accepted,
    /// This node's, after both have introduced themselves.
    Peer(NodeId),
}

/// Why a connection cannot go on.
#[derive(Debug)]
pub(crate) enum Broken {
    Closed,
    Io(io::ErrorKind),
    Channel(ChannelError),
}

impl From<io::Error> for Broken {
    fn from(error: io::Error) -> Self {
        Self::Io(error.kind())
    }
}

#[derive(Debug)]
pub(crate) struct Connection {
    stream: TcpStream,
    pub(crate) remote: SocketAddr,
    pub(crate) role: Role,
    /// When it began.
    pub(crate) born: Instant,
    /// Whether our greeting was said.
    pub(crate) greeted: bool,
    channel: Channel,
    readable: bool,
    /// Decrypted bytes that are not a whole frame yet.
    pub(crate) plain: Vec<u8>,
    /// Bytes for the socket, of which the first `written` are done.
    out: Vec<u8>,
    written: usize,
}

impl Connection {
    /// Begins to dial `node`.
    pub(crate) fn dial(
        node: NodeId,
        (local, remote): (IpAddr, SocketAddr),
        mark: u32,
        setup: Setup,
        now: Instant,
    ) -> io::Result<Self> {
        let stream = TcpStream::from_std(sys::connect_from(local, remote, mark)?);
        let mut out = Vec::new();
        let channel = Channel::dial(setup, &mut out);
        Ok(Self::new(stream, remote, Role::Dialled(node), channel, out, now))
    }

    /// Somebody who dialled us.
    pub(crate) fn accepted(
        stream: TcpStream,
        remote: SocketAddr,
        setup: Setup,
        now: Instant,
    ) -> Self {
        Self::new(stream, remote, Role::Accepted, Channel::accept(setup), Vec::new(), now)
    }

    fn new(
        stream: TcpStream,
        remote: SocketAddr,
        role: Role,
        channel: Channel,
        out: Vec<u8>,
        born: Instant,
    ) -> Self {
        // Without it a lock request could wait for the acknowledgement of the one before. It fails
        // only where the connection is broken, which the next read tells.
        let _ = stream.set_nodelay(true);
        let (greeted, readable, plain, written) = (false, false, Vec::new(), 0);
        Self { stream, remote, role, born, greeted, channel, readable, plain, out, written }
    }

    pub(crate) fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        registry.register(&mut self.stream, token, Interest::READABLE | Interest::WRITABLE)
    }

    pub(crate) fn deregister(&mut self, registry: &Registry) {
        // It was registered with success; nothing else can fail.
        let _ = registry.deregister(&mut self.stream);
    }

    /// Notes what the socket is ready for. Writing is tried whenever there is something.
    pub(crate) fn on_event(&mut self, event: &Event) {
        self.readable |= event.is_readable() || event.is_read_closed() || event.is_error();
    }

    /// Whether the socket may have more to read.
    pub(crate) fn has_more(&self) -> bool {
        self.readable
    }

    /// Whether frames can be said.
    pub(crate) fn is_open(&self) -> bool {
        self.channel.is_open()
    }

    /// Reads up to `most` bytes into [`Connection::plain`]. On an error everything read
    /// before it is there too.
    pub(crate) fn read(&mut self, buffer: &mut [u8], most: usize) -> Result<(), Broken> {
        let mut total = 0;
        while self.readable && total < most {
            let room = buffer.len().min(most);
            match self.stream.read(&mut buffer[..room]) {
                Ok(0) => return Err(Broken::Closed),
                Ok(length) => {
                    total += length;
                    let read = self.channel.read(&buffer[..length], &mut self.plain, &mut self.out);
                    read.map_err(Broken::Channel)?;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.readable = false,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // A dialled socket says so until it is connected.
                Err(error) if error.kind() == io::ErrorKind::NotConnected => self.readable = false,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Says frames; [`Connection::flush`] writes them.
    pub(crate) fn say(&mut self, frames: &[u8]) {
        self.channel.write(frames, &mut self.out);
    }

    /// Bytes said and not written.
    pub(crate) fn backlog(&self) -> usize {
        self.out.len() - self.written
    }

    /// Writes what the socket takes.
    pub(crate) fn flush(&mut self) -> Result<(), Broken> {
        while self.written < self.out.len() {
            match self.stream.write(&self.out[self.written..]) {
                Ok(0) => return Err(Broken::Closed),
                Ok(length) => self.written += length,
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock | io::ErrorKind::NotConnected => break,
                    io::ErrorKind::Interrupted => {}
                    kind => return Err(Broken::Io(kind)),
                },
            }
        }
        if self.written == self.out.len() {
            self.out.clear();
            self.written = 0;
        } else if self.written >= BACKLOG_BYTES_MAX {
            self.out.drain(..self.written);
            self.written = 0;
        }
        Ok(())
    }
}
