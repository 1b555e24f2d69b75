//! The read-only query socket of the original daemon, for the distribution's own `dlm_tool`
//! (libdlm-abi.md 4.9): an abstract stream socket, one request and one answer on each connection.
//!
//! It is served only where `abstract_socket=1` asks for it, because an abstract name has no
//! permissions and is shared by everybody in the network namespace (BL-122); those whom `socket_mode`
//! would not admit are hung up on. A guest costs one descriptor and its answer; guests that are too
//! many or too slow are hung up on too. Nothing here changes anything.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};

use dlm_ipc::socket::{Peer, peer_of};
use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};

use super::query_words::{Header, Wanted, answer};
use super::reactor::Reactor;

/// The name, without the NUL in front and none behind.
pub(super) const NAME: &[u8] = b"dlmc_query_sock";
/// The token of the listener and of all guests: any of them means that all are looked at.
pub(super) const TOKEN: Token = Token(8);
/// Most guests at once.
const GUESTS_MAX: usize = 16;
/// How long a guest may take to ask and to read, nanoseconds.
const PATIENCE: u64 = 10_000_000_000;

/// Who may connect.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Admission {
    /// `socket_mode`.
    pub(crate) mode: u32,
    /// `socket_group`, else the daemon's group.
    pub(crate) group: Option<u32>,
    /// The daemon's user.
    pub(crate) own_uid: u32,
}

impl Admission {
    /// Whether a socket file of this mode, owner and group would let `who` connect.
    fn admits(self, who: &Peer) -> bool {
        let in_group = |group: u32| who.gid == group || who.groups.contains(&group);
        let class = if who.uid == self.own_uid {
            self.mode >> 6
        } else if self.group.is_some_and(in_group) {
            self.mode >> 3
        } else {
            self.mode
        };
        who.uid == 0 || class & 0o2 != 0
    }
}

/// The socket with its guests.
#[derive(Debug)]
pub(crate) struct Query {
    listener: UnixListener,
    admission: Admission,
    guests: Vec<Guest>,
    /// Something may have happened.
    woken: bool,
}

#[derive(Debug)]
struct Guest {
    stream: UnixStream,
    since: u64,
    request: Vec<u8>,
    answer: Option<(Vec<u8>, usize)>,
}

/// What a guest needs next.
#[derive(PartialEq, Debug)]
enum Next {
    /// More from the other side.
    Wait,
    /// An answer to this.
    Answer(Box<Header>),
    /// Nothing: it goes.
    End,
}

impl Query {
    /// Takes the name.
    ///
    /// # Errors
    /// A sentence: somebody else has it.
    pub(crate) fn open(admission: Admission) -> Result<Self, String> {
        let listener = SocketAddr::from_abstract_name(NAME)
            .and_then(|address| UnixListener::bind_addr(&address))
            .and_then(|listener| listener.set_nonblocking(true).map(|()| listener));
        let listener = listener.map_err(|error| {
            let name = String::from_utf8_lossy(NAME);
            format!(
                "abstract_socket=1, and @{name} cannot be had: {error}. Another daemon serves it in \
                 this network namespace; stop it, or set abstract_socket=0"
            )
        })?;
        Ok(Self { listener, admission, guests: Vec::new(), woken: true })
    }

    /// To be watched under [`TOKEN`].
    pub(super) fn raw(&self) -> RawFd {
        self.listener.as_raw_fd()
    }

    /// Something happened at the listener or at a guest.
    pub(super) fn wake(&mut self) {
        self.woken = true;
    }

    /// When the slowest guest has to be hung up on, nanoseconds.
    pub(super) fn deadline(&self) -> Option<u64> {
        let oldest = self.guests.first().map(|guest| guest.since + PATIENCE);
        if self.woken { Some(0) } else { oldest }
    }

    /// Lets in who is waiting.
    fn accept(&mut self, registry: &Registry, now: u64) {
        while let Ok((stream, _)) = self.listener.accept() {
            let fits = self.guests.len() < GUESTS_MAX
                && peer_of(stream.as_fd()).is_ok_and(|who| self.admission.admits(&who))
                && stream.set_nonblocking(true).is_ok();
            let interest = Interest::READABLE | Interest::WRITABLE;
            let raw = stream.as_raw_fd();
            if fits && registry.register(&mut SourceFd(&raw), TOKEN, interest).is_ok() {
                let (request, answer) = (Vec::new(), None);
                self.guests.push(Guest { stream, since: now, request, answer });
            }
        }
    }
}

impl Guest {
    /// Reads and writes what can be without waiting.
    fn go_on(&mut self) -> Next {
        if let Some((bytes, at)) = &mut self.answer {
            while *at < bytes.len() {
                match self.stream.write(&bytes[*at..]) {
                    Ok(count) => *at += count,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Next::Wait,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(_) => return Next::End,
                }
            }
            return Next::End;
        }
        let mut buffer = [0; Header::BYTES];
        while self.request.len() < Header::BYTES {
            match self.stream.read(&mut buffer[self.request.len()..]) {
                Ok(0) => return Next::End,
                Ok(count) => {
                    let from = self.request.len();
                    self.request.extend(&buffer[from..from + count]);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Next::Wait,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return Next::End,
            }
        }
        Header::from_bytes(&self.request).map_or(Next::End, |header| Next::Answer(Box::new(header)))
    }
}

impl Reactor {
    /// Serves the query socket, where there is one.
    pub(super) fn serve_queries(&mut self) {
        // Answers are made from all the rest.
        let Some(mut query) = self.query.take() else { return };
        let now = self.now;
        query.guests.retain(|guest| guest.since + PATIENCE > now);
        if std::mem::take(&mut query.woken) {
            query.accept(self.registry(), now);
            query.guests.retain_mut(|guest| self.serve_guest(guest));
        }
        self.query = Some(query);
    }

    /// Whether the guest stays.
    fn serve_guest(&self, guest: &mut Guest) -> bool {
        loop {
            match guest.go_on() {
                Next::Wait => return true,
                Next::End => return false,
                Next::Answer(header) => {
                    guest.answer = Some((answer(&header, &self.wanted(&header)), 0));
                }
            }
        }
    }

    /// The facts that an answer is made of.
    fn wanted(&self, header: &Header) -> Wanted {
        let spaces = || {
            let all = self.node.lockspaces();
            all.iter().map(|info| self.space_record(info)).collect::<Vec<_>>()
        };
        match header.command {
            Header::DUMP_DEBUG => Wanted::Text(self.whole_log()),
            Header::DUMP_CONFIG => Wanted::Config(self.config_records()),
            Header::DUMP_STATUS => Wanted::Status(Box::new(self.status_record())),
            Header::DUMP_LOG_PLOCK | Header::DUMP_RUN => Wanted::Text(String::new()),
            Header::DUMP_PLOCKS
            | Header::LOCKSPACE_INFO
            | Header::NODE_INFO
            | Header::LOCKSPACES
            | Header::LOCKSPACE_NODES => Wanted::Spaces(spaces()),
            _ => Wanted::Nothing,
        }
    }

    fn whole_log(&self) -> String {
        let (mut text, mut from) = (String::new(), Some(0));
        while let Some(at) = from {
            let page = self.log.page(at);
            for line in &page.lines {
                text.push_str(line);
                text.push('\n');
            }
            from = page.next;
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_could_not_open_a_file_of_the_mode_is_not_admitted() {
        let who = |uid, gid, groups: &[u32]| Peer { pid: 1, uid, gid, groups: groups.to_vec() };
        let admission = |mode| Admission { mode, group: Some(70), own_uid: 500 };
        let (root, own) = (who(0, 0, &[]), who(500, 500, &[]));
        let (member, stranger) = (who(9, 9, &[70]), who(9, 9, &[]));
        let cases = [
            (0o666, [true, true, true, true]),
            (0o660, [true, true, true, false]),
            (0o600, [true, true, false, false]),
            (0o060, [true, false, true, false]),
            (0o000, [true, false, false, false]),
        ];
        for (mode, want) in cases {
            let got = [&root, &own, &member, &stranger].map(|who| admission(mode).admits(who));
            assert_eq!(got, want, "{mode:o}");
        }
    }
}
