//! The system calls that no safe crate wraps, each as one safe function.
//!
//! Descriptors go in borrowed and come out owned and close-on-exec. Results are `io::Error`s; what
//! they mean is said by the callers.

use std::ffi::{CStr, OsStr};
use std::io;
use std::mem::{MaybeUninit, size_of};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use libc::{c_int, c_uint, c_void};

/// Most descriptors of one message.
pub(crate) const DESCRIPTORS_MAX: usize = 4;

fn check(result: c_int) -> io::Result<c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

fn check_len(result: isize) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

fn own(fd: RawFd) -> OwnedFd {
    // SAFETY: every caller passes a descriptor that the kernel has just made for this process and
    // that nothing else knows.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

/// A new event counter that never blocks.
pub(crate) fn eventfd() -> io::Result<OwnedFd> {
    // SAFETY: no pointers.
    check(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) }).map(own)
}

/// Adds 1 to an event counter.
pub(crate) fn eventfd_add(fd: BorrowedFd<'_>) -> io::Result<()> {
    let one = 1u64.to_ne_bytes();
    // SAFETY: the buffer is live and as long as said.
    check_len(unsafe { libc::write(fd.as_raw_fd(), one.as_ptr().cast(), one.len()) }).map(drop)
}

/// A new epoll set that reports every write to `fd` once, with `data`.
pub(crate) fn epoll_edge(fd: BorrowedFd<'_>, data: u64) -> io::Result<OwnedFd> {
    // SAFETY: no pointers.
    let epoll = own(check(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?);
    let mut event = libc::epoll_event { events: (libc::EPOLLIN | libc::EPOLLET) as u32, u64: data };
    epoll_add(&epoll, fd, &mut event)?;
    Ok(epoll)
}

/// Adds `fd` to an epoll set: reported as long as it is readable or hung up, with `data`.
pub(crate) fn epoll_level(epoll: &OwnedFd, fd: BorrowedFd<'_>, data: u64) -> io::Result<()> {
    let events = (libc::EPOLLIN | libc::EPOLLRDHUP) as u32;
    epoll_add(epoll, fd, &mut libc::epoll_event { events, u64: data })
}

fn epoll_add(epoll: &OwnedFd, fd: BorrowedFd<'_>, event: &mut libc::epoll_event) -> io::Result<()> {
    let (epoll, op) = (epoll.as_raw_fd(), libc::EPOLL_CTL_ADD);
    // SAFETY: `event` is live for the call.
    check(unsafe { libc::epoll_ctl(epoll, op, fd.as_raw_fd(), event) }).map(drop)
}

/// Waits for an epoll set of at most two members; `None` waits for ever. The data words of the
/// ready ones; an interrupted wait reports none.
pub(crate) fn epoll_wait(
    epoll: BorrowedFd<'_>,
    timeout: Option<Duration>,
) -> io::Result<impl Iterator<Item = u64>> {
    let mut events = [libc::epoll_event { events: 0, u64: 0 }; 2];
    let millis = timeout
        .map_or(-1, |span| c_int::try_from(span.as_micros().div_ceil(1000)).unwrap_or(c_int::MAX));
    let (buffer, room) = (events.as_mut_ptr(), events.len() as c_int);
    // SAFETY: `buffer` is live and has `room` entries.
    let ready = match check(unsafe { libc::epoll_wait(epoll.as_raw_fd(), buffer, room, millis) }) {
        Ok(ready) => ready as usize,
        Err(error) if error.kind() == io::ErrorKind::Interrupted => 0,
        Err(error) => return Err(error),
    };
    Ok(events.into_iter().take(ready).map(|event| event.u64))
}

/// A memory file of `bytes` zero bytes that cannot shrink, grow or be unsealed.
pub(crate) fn sealed_memfd(name: &CStr, bytes: usize) -> io::Result<OwnedFd> {
    let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
    // SAFETY: the name is a live C string.
    let create = |flags: c_uint| check(unsafe { libc::memfd_create(name.as_ptr(), flags) });
    // Kernels before 6.3 do not know the flag against execution and say so.
    let fd = own(create(flags | libc::MFD_NOEXEC_SEAL).or_else(|_| create(flags))?);
    let size = libc::off_t::try_from(bytes).map_err(|_| io::ErrorKind::InvalidInput)?;
    // SAFETY: no pointers.
    check(unsafe { libc::ftruncate(fd.as_raw_fd(), size) })?;
    // SAFETY: no pointers.
    check(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_ADD_SEALS, SEALS) })?;
    Ok(fd)
}

const SEALS: c_int = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;

/// Whether the file's size is sealed for ever.
pub(crate) fn size_is_sealed(fd: BorrowedFd<'_>) -> io::Result<bool> {
    // SAFETY: no pointers.
    let seals = check(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GET_SEALS) })?;
    Ok(seals & SEALS == SEALS)
}

/// Size of a file in bytes.
pub(crate) fn file_bytes(fd: BorrowedFd<'_>) -> io::Result<u64> {
    let mut stat = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: `stat` is room for the result.
    check(unsafe { libc::fstat(fd.as_raw_fd(), stat.as_mut_ptr()) })?;
    // SAFETY: the call succeeded, so it filled the structure.
    let stat = unsafe { stat.assume_init() };
    u64::try_from(stat.st_size).map_err(|_| io::ErrorKind::InvalidData.into())
}

/// A new SEQPACKET socket.
pub(crate) fn seqpacket(nonblocking: bool) -> io::Result<OwnedFd> {
    let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
    let kind = if nonblocking { kind | libc::SOCK_NONBLOCK } else { kind };
    // SAFETY: no pointers.
    check(unsafe { libc::socket(libc::AF_UNIX, kind, 0) }).map(own)
}

/// Two SEQPACKET sockets connected to each other.
pub(crate) fn seqpacket_pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut fds: [RawFd; 2] = [-1; 2];
    let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
    // SAFETY: `fds` has room for two.
    check(unsafe { libc::socketpair(libc::AF_UNIX, kind, 0, fds.as_mut_ptr()) })?;
    Ok((own(fds[0]), own(fds[1])))
}

fn address(path: &Path) -> io::Result<(libc::sockaddr_un, libc::socklen_t)> {
    // SAFETY: all zero is a valid (empty) address.
    let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    let bytes = OsStr::as_bytes(path.as_os_str());
    if bytes.is_empty() || bytes.contains(&0) || bytes.len() >= address.sun_path.len() {
        let text = format!(
            "socket path {} has {} bytes; choose one of 1 to {} bytes",
            path.display(),
            bytes.len(),
            address.sun_path.len() - 1
        );
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    for (to, from) in address.sun_path.iter_mut().zip(bytes) {
        *to = *from as libc::c_char;
    }
    Ok((address, size_of::<libc::sockaddr_un>() as libc::socklen_t))
}

/// Binds a socket to a path.
pub(crate) fn bind(fd: BorrowedFd<'_>, path: &Path) -> io::Result<()> {
    let (address, len) = address(path)?;
    // SAFETY: the address is live and as long as said.
    check(unsafe { libc::bind(fd.as_raw_fd(), (&raw const address).cast(), len) }).map(drop)
}

/// Starts to listen.
pub(crate) fn listen(fd: BorrowedFd<'_>, backlog: c_int) -> io::Result<()> {
    // SAFETY: no pointers.
    check(unsafe { libc::listen(fd.as_raw_fd(), backlog) }).map(drop)
}

/// Connects a socket to a path.
pub(crate) fn connect(fd: BorrowedFd<'_>, path: &Path) -> io::Result<()> {
    let (address, len) = address(path)?;
    let connect = || {
        // SAFETY: the address is live and as long as said.
        check(unsafe { libc::connect(fd.as_raw_fd(), (&raw const address).cast(), len) })
    };
    retry(connect).map(drop)
}

/// Accepts a connection, non-blocking.
pub(crate) fn accept(fd: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let flags = libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    let none = std::ptr::null_mut();
    // SAFETY: the call takes null for an address nobody wants.
    retry(|| check(unsafe { libc::accept4(fd.as_raw_fd(), none, none.cast(), flags) })).map(own)
}

/// Makes calls on the socket answer `WouldBlock` instead of waiting, or takes that back.
pub(crate) fn set_nonblocking(fd: BorrowedFd<'_>, nonblocking: bool) -> io::Result<()> {
    let mut flag = c_int::from(nonblocking);
    // SAFETY: `flag` is live for the call.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), libc::FIONBIO, &raw mut flag) }).map(drop)
}

/// Sends one message, without a signal if nobody is there.
pub(crate) fn send(fd: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<()> {
    let (data, len) = (bytes.as_ptr().cast::<c_void>(), bytes.len());
    let send = || {
        // SAFETY: the buffer is live and as long as said.
        check_len(unsafe { libc::send(fd.as_raw_fd(), data, len, libc::MSG_NOSIGNAL) })
    };
    retry(send).map(drop)
}

/// Receives one message and returns its true length, which exceeds the buffer's if it was cut.
/// Descriptors that come along are closed by the kernel.
pub(crate) fn recv(fd: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<usize> {
    let (data, len) = (buffer.as_mut_ptr().cast::<c_void>(), buffer.len());
    // SAFETY: the buffer is live and as long as said.
    retry(|| check_len(unsafe { libc::recv(fd.as_raw_fd(), data, len, libc::MSG_TRUNC) }))
}

fn retry<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

/// Room for the ancillary data of [`DESCRIPTORS_MAX`] descriptors, aligned as its header must be.
#[repr(C, align(8))]
struct Ancillary([u8; 64]);

const FDS_BYTES: c_uint = (DESCRIPTORS_MAX * size_of::<RawFd>()) as c_uint;

// SAFETY: `CMSG_SPACE` only computes.
const _: () = assert!(unsafe { libc::CMSG_SPACE(FDS_BYTES) } as usize <= size_of::<Ancillary>());
const _: () = assert!(align_of::<libc::cmsghdr>() <= align_of::<Ancillary>());

fn message(part: &mut libc::iovec, ancillary: &mut Ancillary) -> libc::msghdr {
    // SAFETY: all zero is a valid (empty) message header.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    (header.msg_iov, header.msg_iovlen) = (part, 1);
    header.msg_control = ancillary.0.as_mut_ptr().cast();
    header
}

/// Sends one message with descriptors.
pub(crate) fn send_with_fds(
    fd: BorrowedFd<'_>,
    bytes: &[u8],
    descriptors: &[BorrowedFd<'_>; DESCRIPTORS_MAX],
) -> io::Result<()> {
    let mut part = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    let mut ancillary = Ancillary([0; 64]);
    let mut header = message(&mut part, &mut ancillary);
    // SAFETY: `CMSG_SPACE` and `CMSG_LEN` only compute; the buffer is large enough for one header
    // with all descriptors (asserted above), so `CMSG_FIRSTHDR` is not null and its data has room
    // for them.
    unsafe {
        header.msg_controllen = libc::CMSG_SPACE(FDS_BYTES) as _;
        let control = libc::CMSG_FIRSTHDR(&raw const header);
        (*control).cmsg_level = libc::SOL_SOCKET;
        (*control).cmsg_type = libc::SCM_RIGHTS;
        (*control).cmsg_len = libc::CMSG_LEN(FDS_BYTES) as _;
        let data = libc::CMSG_DATA(control).cast::<RawFd>();
        for (i, descriptor) in descriptors.iter().enumerate() {
            data.add(i).write_unaligned(descriptor.as_raw_fd());
        }
    }
    let send = || {
        // SAFETY: header, part, data and ancillary buffer are live for the call.
        check_len(unsafe { libc::sendmsg(fd.as_raw_fd(), &raw const header, libc::MSG_NOSIGNAL) })
    };
    retry(send).map(drop)
}

/// Receives one message with up to [`DESCRIPTORS_MAX`] descriptors. Returns its true length, as
/// [`recv`], and the descriptors.
pub(crate) fn recv_with_fds(
    fd: BorrowedFd<'_>,
    buffer: &mut [u8],
) -> io::Result<(usize, Vec<OwnedFd>)> {
    let mut part = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    let mut ancillary = Ancillary([0; 64]);
    let mut header = message(&mut part, &mut ancillary);
    let room = header.msg_control;
    let receive = || {
        header.msg_control = room;
        // SAFETY: `CMSG_SPACE` only computes.
        header.msg_controllen = unsafe { libc::CMSG_SPACE(FDS_BYTES) } as _;
        let flags = libc::MSG_TRUNC | libc::MSG_CMSG_CLOEXEC;
        // SAFETY: header, part, data and ancillary buffer are live for the call.
        check_len(unsafe { libc::recvmsg(fd.as_raw_fd(), &raw mut header, flags) })
    };
    let len = retry(receive)?;
    let mut descriptors = Vec::with_capacity(DESCRIPTORS_MAX);
    // SAFETY: the kernel filled header and ancillary buffer, both still live; `CMSG_FIRSTHDR` and
    // `CMSG_NXTHDR` stay inside, and a rights header's length says how many descriptors follow it,
    // each new and ours.
    unsafe {
        let mut control = libc::CMSG_FIRSTHDR(&raw const header);
        while !control.is_null() {
            let rights = (*control).cmsg_level == libc::SOL_SOCKET
                && (*control).cmsg_type == libc::SCM_RIGHTS;
            if rights {
                let bytes = (*control).cmsg_len as usize - libc::CMSG_LEN(0) as usize;
                let data = libc::CMSG_DATA(control).cast::<RawFd>();
                for i in 0..bytes / size_of::<RawFd>() {
                    descriptors.push(own(data.add(i).read_unaligned()));
                }
            }
            control = libc::CMSG_NXTHDR(&raw const header, control);
        }
    }
    Ok((len, descriptors))
}

/// Process, user and group of the one who connected.
pub(crate) fn peer_credentials(fd: BorrowedFd<'_>) -> io::Result<libc::ucred> {
    let mut credentials = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut len = size_of::<libc::ucred>() as libc::socklen_t;
    let (level, option) = (libc::SOL_SOCKET, libc::SO_PEERCRED);
    let result = (&raw mut credentials).cast();
    // SAFETY: result and length are live and belong together.
    check(unsafe { libc::getsockopt(fd.as_raw_fd(), level, option, result, &raw mut len) })?;
    Ok(credentials)
}

/// All groups of the one who connected, besides the one in [`peer_credentials`].
pub(crate) fn peer_groups(fd: BorrowedFd<'_>) -> io::Result<Vec<libc::gid_t>> {
    let mut groups: Vec<libc::gid_t> = vec![0; 64];
    loop {
        let mut len = (groups.len() * size_of::<libc::gid_t>()) as libc::socklen_t;
        let (level, option) = (libc::SOL_SOCKET, libc::SO_PEERGROUPS);
        let result = groups.as_mut_ptr().cast();
        // SAFETY: result and length are live and belong together.
        let done =
            check(unsafe { libc::getsockopt(fd.as_raw_fd(), level, option, result, &raw mut len) });
        let count = len as usize / size_of::<libc::gid_t>();
        match done {
            Ok(_) => {
                groups.truncate(count);
                return Ok(groups);
            }
            // The kernel said how much room is needed.
            Err(error) if error.raw_os_error() == Some(libc::ERANGE) && count > groups.len() => {
                groups.resize(count, 0);
            }
            Err(error) => return Err(error),
        }
    }
}

/// As [`pidfd_open`], of the process that connected a socket, and of no later one of its number.
/// `ENOPROTOOPT`: this kernel cannot tell (before 6.5).
pub(crate) fn peer_pidfd(socket: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    const SO_PEERPIDFD: c_int = 77;
    let mut fd: c_int = -1;
    let mut size = size_of::<c_int>() as libc::socklen_t;
    let (level, value) = (libc::SOL_SOCKET, (&raw mut fd).cast());
    // SAFETY: `fd` is room for the result, whose size is said.
    check(unsafe {
        libc::getsockopt(socket.as_raw_fd(), level, SO_PEERPIDFD, value, &raw mut size)
    })?;
    Ok(own(fd))
}

/// A descriptor that becomes readable when the process ends.
pub(crate) fn pidfd_open(pid: u32) -> io::Result<OwnedFd> {
    // SAFETY: no pointers.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, libc::c_long::from(pid), 0) };
    check(fd as c_int).map(own)
}

/// Takes the exclusive lock of an open file, or answers `WouldBlock`.
pub(crate) fn try_flock(fd: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: no pointers.
    check(unsafe { libc::flock(fd.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) }).map(drop)
}

/// Whether this process runs as root.
pub(crate) fn is_root() -> bool {
    // SAFETY: no arguments, cannot fail.
    unsafe { libc::geteuid() == 0 }
}

/// Whether this program has more rights than its caller, who may have set the environment.
pub(crate) fn is_privileged_beyond_caller() -> bool {
    // SAFETY: no pointers.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}
