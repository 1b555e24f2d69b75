//! The SEQPACKET socket: whole messages, and the end of a process seen as a hang-up.

use std::fs::{File, OpenOptions, Permissions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::sys;

/// One conversation.
#[derive(Debug)]
pub struct Connection(OwnedFd);

/// Who is at the other end: the one who connected, at the moment of connecting.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Peer {
    /// Process id.
    pub pid: u32,
    /// User id.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
    /// Supplementary group ids.
    pub groups: Vec<u32>,
}

impl Connection {
    /// Connects to dlmd; blocking.
    ///
    /// # Errors
    /// `NotFound` or `ConnectionRefused`: nobody serves there; `PermissionDenied`: not for us.
    pub fn connect(path: &Path) -> io::Result<Self> {
        let fd = sys::seqpacket(false)?;
        sys::connect(fd.as_fd(), path)?;
        Ok(Self(fd))
    }

    /// Two connections joined to each other, both blocking; for tests and for services in one
    /// process.
    ///
    /// # Errors
    /// The process has no descriptor left.
    pub fn pair() -> io::Result<(Self, Self)> {
        sys::seqpacket_pair().map(|(near, far)| (Self(near), Self(far)))
    }

    /// Makes calls answer `WouldBlock` instead of waiting, or takes that back.
    ///
    /// # Errors
    /// None in normal life.
    pub fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
        sys::set_nonblocking(self.0.as_fd(), nonblocking)
    }

    /// Sends one message.
    ///
    /// # Errors
    /// `BrokenPipe` or `ConnectionReset`: the other side is gone; `WouldBlock`: it does not read.
    pub fn send(&self, message: &[u8]) -> io::Result<()> {
        sys::send(self.0.as_fd(), message)
    }

    /// Sends one message with descriptors.
    ///
    /// # Errors
    /// As [`Connection::send`].
    pub fn send_with_fds(&self, message: &[u8], fds: &[BorrowedFd<'_>; 4]) -> io::Result<()> {
        sys::send_with_fds(self.0.as_fd(), message, fds)
    }

    /// Receives one message into `buffer`; `None`: the other side is gone. Descriptors that came
    /// with it are closed.
    ///
    /// # Errors
    /// `InvalidData`: the message is longer than the buffer; `WouldBlock`: nothing there yet.
    pub fn recv<'b>(&self, buffer: &'b mut [u8]) -> io::Result<Option<&'b [u8]>> {
        let len = match sys::recv(self.0.as_fd(), buffer) {
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => 0,
            result => result?,
        };
        part(buffer, len)
    }

    /// Receives one message with the four descriptors of a good `Welcome`, or with none.
    ///
    /// # Errors
    /// As [`Connection::recv`].
    pub fn recv_with_fds<'b>(&self, buffer: &'b mut [u8]) -> io::Result<Option<Received<'b>>> {
        let (len, descriptors) = match sys::recv_with_fds(self.0.as_fd(), buffer) {
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Ok(None),
            result => result?,
        };
        let descriptors = descriptors.try_into().ok();
        Ok(part(buffer, len)?.map(|message| Received { message, descriptors }))
    }

    /// Who connected.
    ///
    /// # Errors
    /// None in normal life.
    pub fn peer(&self) -> io::Result<Peer> {
        peer_of(self.0.as_fd())
    }

    /// A descriptor of the process that connected, readable when that ends. To be asked for as soon
    /// as the connection is there: on kernels before 6.5 it is found by its number, which another
    /// process may have later.
    ///
    /// # Errors
    /// `ESRCH`: it has ended already. `EINVAL`: it cannot be seen from here.
    pub fn peer_process(&self) -> io::Result<OwnedFd> {
        match sys::peer_pidfd(self.0.as_fd()) {
            Err(error) if error.raw_os_error() == Some(libc::ENOPROTOOPT) => {
                watch_process(self.peer()?.pid)
            }
            found => found,
        }
    }
}

/// A message with what came along.
#[derive(Debug)]
pub struct Received<'b> {
    /// The message.
    pub message: &'b [u8],
    /// Exactly four descriptors, if that many came.
    pub descriptors: Option<[OwnedFd; 4]>,
}

fn part(buffer: &[u8], len: usize) -> io::Result<Option<&[u8]>> {
    match buffer.get(..len) {
        Some([]) => Ok(None),
        Some(message) => Ok(Some(message)),
        None => {
            let text = format!("a message of {len} bytes; at most {} are allowed", buffer.len());
            Err(io::Error::new(io::ErrorKind::InvalidData, text))
        }
    }
}

impl From<OwnedFd> for Connection {
    fn from(fd: OwnedFd) -> Self {
        Self(fd)
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsRawFd for Connection {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

/// The daemon's door. Non-blocking. The path is removed when it is dropped.
#[derive(Debug)]
pub struct Listener {
    fd: OwnedFd,
    path: PathBuf,
    /// Held for the listener's life: whoever has it may replace a socket file that a dead daemon
    /// left.
    _lock: File,
}

/// Connections that may wait to be accepted; the kernel's own limit cuts it.
const BACKLOG: i32 = 4096;

impl Listener {
    /// Serves at `path` with these permission bits (0o666: everybody may connect; what he may open
    /// is another question). A socket file left behind by a dead daemon is replaced.
    ///
    /// # Errors
    /// `AddrInUse`: another daemon serves there; else the directory is missing or not ours.
    pub fn bind(path: &Path, mode: u32) -> io::Result<Self> {
        let mut lock_path = path.as_os_str().to_owned();
        lock_path.push(".lock");
        let lock = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(0o600)
            .custom_flags(libc::O_NOFOLLOW)
            .open(lock_path)?;
        sys::try_flock(lock.as_fd()).map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock => in_use(path),
            _ => error,
        })?;
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let fd = sys::seqpacket(true)?;
        sys::bind(fd.as_fd(), path)?;
        let listener = Self { fd, path: path.to_owned(), _lock: lock };
        std::fs::set_permissions(path, Permissions::from_mode(mode))?;
        sys::listen(listener.fd.as_fd(), BACKLOG)?;
        Ok(listener)
    }

    /// Accepts one connection; it is non-blocking.
    ///
    /// # Errors
    /// `WouldBlock`: nobody waits. Others (no descriptor left, for one) leave the caller in the
    /// queue: try again when something was closed, not at once.
    pub fn accept(&self) -> io::Result<Connection> {
        sys::accept(self.fd.as_fd()).map(Connection)
    }

    /// Where it serves.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // Somebody else may have removed it already; nobody can be told here.
        let _ = std::fs::remove_file(&self.path);
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl AsRawFd for Listener {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

fn in_use(path: &Path) -> io::Error {
    let text =
        format!("another dlmd serves at {}; stop it, or choose another path", path.display());
    io::Error::new(io::ErrorKind::AddrInUse, text)
}

/// Who is at the other end of a connected UNIX socket.
///
/// # Errors
/// None in normal life.
pub fn peer_of(socket: BorrowedFd<'_>) -> io::Result<Peer> {
    let found = sys::peer_credentials(socket)?;
    let pid = u32::try_from(found.pid).map_err(|_| io::ErrorKind::InvalidData)?;
    let groups = sys::peer_groups(socket)?;
    Ok(Peer { pid, uid: found.uid, gid: found.gid, groups })
}

/// A descriptor that becomes readable when process `pid` ends.
///
/// # Errors
/// `ESRCH`: it has ended already.
pub fn watch_process(pid: u32) -> io::Result<OwnedFd> {
    sys::pidfd_open(pid)
}

#[cfg(test)]
mod tests;
