//! A daemon that does what a test says, step by step, over the real socket and pages.
#![allow(dead_code)] // each test file uses a part

use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use dlm_client::{Lockspace, Opening};
use dlm_ipc::DaemonSide;
use dlm_ipc::hello::{ClientMessage, DaemonMessage, Hello, MESSAGE_BYTES_MAX, Welcome};
use dlm_ipc::layout::{Event, Geometry, LostReason, Notice, Reply, Submission};
use dlm_ipc::socket::{Connection, Listener};
use dlm_net::testing::{HANG_GUARD, TempDir};

/// Where one scripted daemon serves.
pub(crate) struct Stage {
    directory: TempDir,
    listener: Option<Listener>,
}

impl Stage {
    pub(crate) fn new(name: &str) -> Self {
        let directory = TempDir::new(name);
        let listener = Listener::bind(&directory.path().join("s"), 0o600).unwrap();
        Self { directory, listener: Some(listener) }
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.directory.path().join("s")
    }

    /// Waits for a client.
    pub(crate) fn accepting(mut self) -> (JoinHandle<Peer>, Self) {
        let listener = self.listener.take().unwrap();
        (accept(listener, Geometry::DEFAULT), self)
    }

    /// One client and its daemon.
    pub(crate) fn open(self) -> (Lockspace, Peer, Self) {
        let (accepting, this) = self.accepting();
        let space = Opening::create(0o600).socket(&this.socket()).open("scripted").unwrap();
        (space, accepting.join().unwrap(), this)
    }
}

/// A client's connection to the scripted daemon.
pub(crate) struct Peer {
    pub(crate) socket: Connection,
    pub(crate) side: DaemonSide,
    _listener: Listener,
}

fn accept(listener: Listener, geometry: Geometry) -> JoinHandle<Peer> {
    std::thread::spawn(move || {
        let socket = wait_for("a connection", || listener.accept().ok());
        let mut buffer = [0; MESSAGE_BYTES_MAX];
        let hello = wait_for("a hello", || match socket.recv(&mut buffer) {
            Ok(Some(message)) => Some(Hello::decode(message).unwrap()),
            _ => None,
        });
        assert!(matches!(hello, Hello::Handle(_)), "{hello:?}");
        let (mut side, descriptors) = DaemonSide::create(geometry, 7).unwrap();
        let welcome = Welcome { errno: 0, node: 7, lockspace: 1, geometry };
        socket.send_with_fds(&welcome.encode(), &descriptors.as_fds()).unwrap();
        side.submissions.prepare_sleep();
        Peer { socket, side, _listener: listener }
    })
}

impl Peer {
    /// The client's next submission.
    pub(crate) fn next(&mut self) -> Submission {
        wait_for("a submission", || self.side.submissions.pop().unwrap())
    }

    /// Whether nothing is submitted for a while.
    pub(crate) fn is_quiet(&mut self) -> bool {
        std::thread::sleep(Duration::from_millis(20));
        self.side.submissions.pop().unwrap().is_none()
    }

    /// Answers a submission.
    pub(crate) fn reply(&mut self, to: &Submission, result: i32, lkid: u32) {
        self.side.replies.push(&Reply { result, lkid, tag: to.tag }).unwrap();
        self.side.replies.flush().unwrap();
    }

    /// Tells an event.
    pub(crate) fn tell(&mut self, notice: &Notice) {
        self.side.events.push(&Event::new(notice)).unwrap();
        self.side.events.flush().unwrap();
    }

    /// The next submission is accepted, and granted at once.
    pub(crate) fn grant(&mut self, lkid: u32) -> Submission {
        let submission = self.next();
        self.tell(&completion(&submission, lkid, 0, Some(submission.mode)));
        self.reply(&submission, 0, lkid);
        submission
    }

    /// The next submission is an unlock, and done at once.
    pub(crate) fn unlock(&mut self) -> Submission {
        let submission = self.next();
        assert_eq!(submission.op, dlm_ipc::layout::op::UNLOCK);
        self.tell(&completion(&submission, submission.lkid, dlm_client::EUNLOCK, None));
        if submission.reply_wanted() {
            self.reply(&submission, 0, 0);
        }
        submission
    }

    /// Answers the client's `Close`.
    pub(crate) fn close(self) {
        let mut buffer = [0; MESSAGE_BYTES_MAX];
        let message = wait_for("a close", || match self.socket.recv(&mut buffer) {
            Ok(Some(message)) => Some(ClientMessage::decode(message).unwrap()),
            _ => None,
        });
        assert_eq!(message, ClientMessage::Close);
        self.socket.send(&DaemonMessage::Done { errno: 0 }.encode()).unwrap();
    }

    /// Says that the lockspace is lost.
    pub(crate) fn lose(&self, reason: LostReason) {
        self.socket.send(&DaemonMessage::Lost(reason).encode()).unwrap();
    }
}

/// The completion of what `submission` asked for.
pub(crate) fn completion(
    submission: &Submission,
    lkid: u32,
    status: i32,
    granted: Option<u8>,
) -> Notice {
    let user = submission.user;
    Notice::Completion { lkid, user, status, sb_flags: 0, granted, value: None, token: 9 }
}

/// Somebody wants a lock.
pub(crate) fn blocking(submission: &Submission, lkid: u32, mode: u8) -> Notice {
    Notice::Blocking { lkid, user: submission.user, mode }
}

/// What `look` finds, sooner or later.
pub(crate) fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + HANG_GUARD;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < end, "{what} does not come");
        std::thread::sleep(Duration::from_micros(200));
    }
}

/// Whether a descriptor is readable now.
pub(crate) fn readable(fd: impl std::os::fd::AsFd) -> bool {
    let watch = poll(fd, Duration::ZERO);
    assert!(watch.is_none_or(|events| events == libc::POLLIN), "never a hang-up: {watch:?}");
    watch.is_some()
}

/// Waits until a descriptor is readable.
pub(crate) fn wait_readable(fd: impl std::os::fd::AsFd) {
    assert_eq!(poll(fd, HANG_GUARD), Some(libc::POLLIN));
}

fn poll(fd: impl std::os::fd::AsFd, timeout: Duration) -> Option<i16> {
    use std::os::fd::AsRawFd;
    let mut entry = libc::pollfd { fd: fd.as_fd().as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one entry, which lives across the call.
    let ready = unsafe { libc::poll(&raw mut entry, 1, timeout.as_millis() as i32) };
    (ready == 1).then_some(entry.revents)
}

/// The path of a socket that nobody serves.
pub(crate) fn nobody(directory: &Path) -> PathBuf {
    directory.join("nobody")
}
