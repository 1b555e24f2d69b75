//! Lockspaces and locks through the client library, with an eye on the daemon while a call waits.
//!
//! A call of the library waits as long as it must, and cannot tell a daemon that is busy joining
//! from one that is stopped. So it runs on a thread of its own, and meanwhile the control
//! conversation is asked whether anybody answers.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use dlm_client::{Error, Handle, LockFlags, Lockspace, LostReason, OpenArgs, Opening, Wanted};
use dlm_ipc::control::{ControlRequest, SpaceRecord};

use crate::context::{Daemon, Trouble};
use crate::daemon::{PATIENCE, Socket};
use crate::exec::{Event, NotGranted, Patience, Request};
use crate::join::{Spaces, refusal};
use crate::ls::lockspaces;
use crate::name::escape;

/// How often a daemon is asked whether it is there while a call waits for it.
const HEARTBEAT: Duration = Duration::from_millis(400);
/// Permission bits of a lockspace that `exec` creates.
const EXEC_MODE: u32 = 0o600;

/// Lockspaces of the daemon at a socket.
pub(crate) struct ClientSpaces {
    path: PathBuf,
}

impl ClientSpaces {
    /// Those of the daemon that serves at `path`.
    pub(crate) fn new(path: PathBuf) -> Self {
        Self { path }
    }

    /// Opens a handle, as long as the daemon answers.
    fn open(&self, name: &[u8], create: Option<(u32, u32)>) -> Result<Arc<Handle>, Trouble> {
        check_daemon(&self.path)?;
        let (path, owned) = (self.path.clone(), name.to_vec());
        let opened = start(move || {
            let args = OpenArgs { name: &owned, create, label: b"", socket: Some(&path) };
            Handle::open(&args)
        });
        let call = if create.is_some() { "create" } else { "open" };
        self.await_call(&opened, None)?
            .unwrap_or(Err(Error::System(libc::EIO)))
            .map_err(|error| self.trouble(call, name, error))
    }

    /// Waits for a call's result. `None`: it is still not there after `limit`.
    fn await_call<T>(
        &self,
        result: &Receiver<T>,
        limit: Option<Duration>,
    ) -> Result<Option<T>, Trouble> {
        let begin = Instant::now();
        loop {
            match result.recv_timeout(limit.unwrap_or(HEARTBEAT).min(HEARTBEAT)) {
                Ok(result) => return Ok(Some(result)),
                Err(RecvTimeoutError::Disconnected) => return Ok(None),
                Err(RecvTimeoutError::Timeout) => check_daemon(&self.path)?,
            }
            if limit.is_some_and(|limit| begin.elapsed() >= limit) {
                return Ok(None);
            }
        }
    }

    fn trouble(&self, call: &str, name: &[u8], error: Error) -> Trouble {
        trouble(&self.path, call, name, error)
    }
}

impl Spaces for ClientSpaces {
    fn create(&mut self, name: &[u8], mode: u32, flags: u32) -> Result<(), Trouble> {
        let handle = self.open(name, Some((mode, flags)))?;
        let closed = start(move || handle.close());
        self.await_call(&closed, Some(PATIENCE))?;
        Ok(())
    }

    fn remove(&mut self, name: &[u8]) -> Result<Result<(), Trouble>, Trouble> {
        let handle = self.open(name, None)?;
        let released = start(move || handle.release(true));
        match self.await_call(&released, Some(PATIENCE - HEARTBEAT)) {
            Ok(Some(result)) => Ok(result.map_err(|error| self.trouble("release", name, error))),
            Ok(None) => Ok(Err(self.still_open(name))),
            Err(trouble) => Ok(Err(trouble)),
        }
    }
}

impl ClientSpaces {
    /// Why a lockspace that was released is still there.
    fn still_open(&self, name: &[u8]) -> Trouble {
        let record = find_space(&self.path, name);
        let waits_for = record.map_or_else(Vec::new, |record| record.waits_for);
        let users = match waits_for.as_slice() {
            [] => "its last handles are closed".to_owned(),
            users => users.join("; "),
        };
        let message =
            format!("lockspace \"{}\" goes when this has happened: {users}", escape(name));
        Trouble::Refused { errno: libc::EBUSY, message }
    }
}

/// Runs a call of the library on a thread of its own.
fn start<T: Send + 'static>(call: impl FnOnce() -> T + Send + 'static) -> Receiver<T> {
    let (done, result) = channel();
    thread::spawn(move || {
        // Nobody listens any more if the tool has given up.
        let _ = done.send(call());
    });
    result
}

/// An error if no daemon answers at `path`.
pub(crate) fn check_daemon(path: &Path) -> Result<(), Trouble> {
    Socket::new(path.to_owned()).ask(&ControlRequest::Status).map(drop)
}

fn find_space(path: &Path, name: &[u8]) -> Option<SpaceRecord> {
    let all = lockspaces(&mut Socket::new(path.to_owned())).ok()?;
    all.into_iter().find(|space| space.name == name)
}

fn trouble(path: &Path, call: &str, name: &[u8], error: Error) -> Trouble {
    match error {
        Error::NotRunning => Trouble::Absent(format!("no dlmd serves at {}", path.display())),
        Error::Lost(reason) => Trouble::Silent(lost(reason).to_owned()),
        error => refusal(call, name, error.errno()),
    }
}

/// What a loss means, in words that go on after "lost:".
fn lost(reason: LostReason) -> &'static str {
    match reason {
        LostReason::DaemonGone => "dlmd ended without a word; look at its log",
        LostReason::Shutdown => "dlmd was told to end",
        LostReason::Removed => "the lockspace was removed by force",
        LostReason::Protocol => "dlmd and dlm_tool did not understand each other",
        LostReason::NodeLost => "this node lost the cluster",
        LostReason::LeaseEnded => "the lease of this node ran out",
    }
}

/// An open lockspace of `exec`.
#[derive(Clone)]
pub(crate) struct Opened {
    space: Lockspace,
    path: PathBuf,
    name: Vec<u8>,
    /// Whether opening it raised its creation count.
    created: bool,
}

impl Opened {
    /// Ends the handle, which lets its lock or its request go, and takes the creation back unless
    /// that would take the lockspace from somebody who has only opened it.
    pub(crate) fn give_back(self) -> Result<(), Trouble> {
        let shared = self.created
            && find_space(&self.path, &self.name)
                .is_none_or(|space| space.create_count == 1 && space.handles > 1);
        if shared || !self.created {
            self.space.close();
            return Ok(());
        }
        match self.space.release(false) {
            // Others have locks in it: it stays for them.
            Ok(()) | Err(Error::Refused(dlm_client::Errno::EBUSY)) => Ok(()),
            Err(error) => Err(trouble(&self.path, "release", &self.name, error)),
        }
    }
}

/// Opens the lockspace and takes the lock, on a thread of its own; everything is told as events.
pub(crate) fn take_lock(path: &Path, request: Request, events: Sender<Event>) {
    let path = path.to_owned();
    thread::spawn(move || {
        let end = match open_for_exec(&path, &request.lockspace) {
            Ok(opened) => {
                let space = opened.space.clone();
                // Whoever waits for events may have left; then the process ends, and the handle
                // with it.
                let _ = events.send(Event::Opened(opened));
                wait_for_lock(&path, &space, &request, &events)
            }
            Err(trouble) => Event::NotGranted(NotGranted::Trouble(trouble)),
        };
        let _ = events.send(end);
    });
}

fn open_for_exec(path: &Path, name: &[u8]) -> Result<Opened, Trouble> {
    let open = |opening: Opening<'_>| opening.label("dlm_tool exec").socket(path).open(name);
    let (result, created) = match open(Opening::create(EXEC_MODE)) {
        Err(Error::Refused(dlm_client::Errno::EPERM)) => (open(Opening::existing()), false),
        result => (result, true),
    };
    match result {
        Ok(space) => Ok(Opened { space, path: path.to_owned(), name: name.to_vec(), created }),
        Err(Error::Refused(errno @ dlm_client::Errno::ENOENT)) if !created => {
            let message = format!(
                "you may not create lockspaces, and there is none called \"{}\"; ask an \
                 administrator for dlm_tool join",
                escape(name)
            );
            Err(Trouble::Refused { errno: errno.0, message })
        }
        Err(error) => Err(trouble(path, "open", name, error)),
    }
}

fn wait_for_lock(
    path: &Path,
    space: &Lockspace,
    request: &Request,
    events: &Sender<Event>,
) -> Event {
    let loss = events.clone();
    space.on_loss(move |reason| {
        let _ = loss.send(Event::Lost(lost(reason).to_owned()));
    });
    if let Err(error) = space.spawn_dispatcher() {
        let trouble = trouble(path, "watch", &request.lockspace, error);
        return Event::NotGranted(NotGranted::Trouble(trouble));
    }
    let wanted = match request.patience {
        Patience::Try => Wanted::new().flags(LockFlags::NOQUEUE),
        Patience::Limit(limit) => Wanted::new().timeout(limit),
        Patience::Forever => Wanted::new(),
    };
    match space.lock_wait(&request.name, request.mode, &wanted) {
        Ok(completion) => Event::Granted(completion.token),
        Err(Error::WouldBlock) => Event::NotGranted(NotGranted::Held("is held")),
        Err(Error::TimedOut) => {
            Event::NotGranted(NotGranted::Held("was not granted within the time limit"))
        }
        Err(error) => {
            let trouble = match error {
                Error::Lost(reason) => {
                    Trouble::Silent(format!("the lock was not granted: {}", lost(reason)))
                }
                error => {
                    let message = format!("lock \"{}\": {error}", escape(&request.name));
                    Trouble::Refused { errno: error.errno(), message }
                }
            };
            Event::NotGranted(NotGranted::Trouble(trouble))
        }
    }
}
