//! One lockspace handle: its life from `Hello` to `Done`.
//!
//! Locks of this crate, in the order in which they may be taken: `calls`, `reading` (the socket's
//! receiving side), `state`. None is held while a callback runs.

use std::os::fd::RawFd;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;

use dlm_ipc::ClientSide;
use dlm_ipc::hello::{ClientMessage, HandleHello, Hello, MESSAGE_BYTES_MAX, Welcome};
use dlm_ipc::layout::LostReason;
use dlm_ipc::page::Page;
use dlm_ipc::socket::Connection;
use parking_lot::Mutex;

use crate::call::Calls;
use crate::process::{self, Process};
use crate::state::{End, LossCallback, Serve, State};
use crate::wait::{Unmet, WaitFor, Waiter};
use crate::wake::Wake;
use crate::{Error, sys};

/// A handle on a lockspace, of the process that opened it.
pub struct Handle {
    number: u64,
    /// The process that opened it.
    owner: &'static Process,
    pub(crate) page: Arc<Page>,
    pub(crate) wake: Arc<Wake>,
    pub(crate) calls: Mutex<Calls>,
    pub(crate) state: Mutex<State>,
    /// Held by whoever receives from the socket.
    pub(crate) reading: Mutex<()>,
    helper: Mutex<Option<Helper>>,
}

struct Helper {
    thread: JoinHandle<()>,
    id: usize,
}

/// How to open a lockspace.
#[derive(Clone, Copy, Debug, Default)]
pub struct OpenArgs<'a> {
    /// Lockspace name, 1 to 64 bytes.
    pub name: &'a [u8],
    /// Permission bits and flags of a lockspace to be created; `None`: it must exist.
    pub create: Option<(u32, u32)>,
    /// Text that listings show beside the locks.
    pub label: &'a [u8],
    /// The daemon's socket; `None`: where it always is.
    pub socket: Option<&'a Path>,
}

impl Handle {
    /// Opens or creates a lockspace. Waits as long as the node needs to join it.
    ///
    /// # Errors
    /// [`Error::NotRunning`], or the daemon's refusal.
    pub fn open(args: &OpenArgs<'_>) -> Result<Arc<Self>, Error> {
        let (mode, flags) = args.create.unwrap_or_default();
        let (name, label) = (args.name.to_vec(), args.label.to_vec());
        let create = args.create.is_some();
        let hello = Hello::Handle(HandleHello { create, mode, flags, name, label });
        let hello = hello.encode().map_err(|bad| Error::System(bad.errno()))?;
        let process = process::current();
        let socket = Connection::connect(&dlm_ipc::path::socket_path(args.socket))?;
        socket.send(&hello)?;
        let mut buffer = [0; MESSAGE_BYTES_MAX];
        let received = socket.recv_with_fds(&mut buffer)?.ok_or(Error::NotRunning)?;
        let descriptors = good_welcome(received.message).map(|_| received.descriptors)?;
        let descriptors = descriptors.ok_or(Error::System(libc::EPROTO))?;
        socket.set_nonblocking(true)?;
        let side = ClientSide::open(descriptors).map_err(|_| Error::System(libc::EPROTO))?;
        let ClientSide { page, submissions, replies, events, reply_watch, event_watch } = side;
        let wake = Arc::new(Wake::new(socket, reply_watch, event_watch)?);
        let mut state = State::new(events, Arc::clone(&page), Arc::clone(&wake));
        state.arm();
        state.look_for_loss();
        let handle = Arc::new(Self {
            number: Process::next_number(),
            owner: process,
            page,
            wake,
            calls: Mutex::new(Calls::new(submissions, replies)),
            state: Mutex::new(state),
            reading: Mutex::new(()),
            helper: Mutex::new(None),
        });
        process.register(&handle);
        Ok(handle)
    }

    /// The handle's number in this process.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Whether this process opened it. If not, nothing else of it may be touched: a mutex may have
    /// been held at the moment of the fork, and the pages are the parent's.
    pub(crate) fn is_ours(&self) -> bool {
        std::ptr::eq(process::current(), self.owner)
    }

    /// This node's id.
    pub fn node(&self) -> u32 {
        self.page.node()
    }

    /// The descriptor that is readable when [`Handle::dispatch`] would find something.
    ///
    /// # Errors
    /// The handle is closed, or the process has no descriptor left.
    pub fn descriptor(&self) -> Result<RawFd, Error> {
        if self.state.lock().end == Some(End::Closed) {
            return Err(Error::NotOurs);
        }
        let fd = self.wake.descriptor(self.number)?;
        process::current().register_descriptor(fd, self.number);
        Ok(fd)
    }

    /// Delivers all events that are there, on this thread.
    ///
    /// # Errors
    /// The handle was closed; or lost: then, before this error, each operation in progress got its
    /// last completion, and the loss callback was called.
    pub fn dispatch(&self) -> Result<(), Error> {
        let mut state = self.state.lock();
        loop {
            if let Some(delivery) = state.next(Serve::All, None) {
                state = self.deliver(state, delivery);
                continue;
            }
            if state.end.is_some() {
                break;
            }
            if state.hear()?.socket {
                drop(state);
                self.listen();
                state = self.state.lock();
                continue;
            }
            if state.armed() {
                state.wake.retract();
                return Ok(());
            }
        }
        let end = state.end.map_or(Error::NotOurs, Error::from);
        drop(state);
        self.tell_loss();
        Err(end)
    }

    /// After a loss: delivers the last completions, and calls the loss callback once.
    pub(crate) fn tell_loss(&self) {
        let mut state = self.state.lock();
        let Some(reason) = state.lost() else { return };
        state.sweep();
        while let Some(delivery) = state.next(Serve::All, None) {
            state = self.deliver(state, delivery);
        }
        let callback = state.loss_callback.take();
        drop(state);
        if let Some(callback) = callback {
            callback(reason);
        }
    }

    /// Why the handle was lost, if it was. Never waits.
    pub fn lost(&self) -> Option<LostReason> {
        if !self.wake.has_ended() {
            self.listen();
        }
        let mut state = self.state.lock();
        state.look_for_loss();
        state.lost()
    }

    /// Has `callback` called once when the handle is lost; `None` takes that back.
    pub fn set_loss_callback(&self, callback: Option<LossCallback>) {
        let mut state = self.state.lock();
        state.loss_callback = callback;
        if state.lost().is_some() {
            state.wake.announce();
        }
    }

    /// Starts the helper thread, which delivers everything as it comes.
    ///
    /// # Errors
    /// EEXIST: it runs already; else the system's.
    pub fn start_helper(self: &Arc<Self>) -> Result<(), Error> {
        let mut helper = self.helper.lock();
        if helper.is_some() {
            return Err(Error::System(libc::EEXIST));
        }
        self.state.lock().check()?;
        let handle = Arc::clone(self);
        let (told, id) = std::sync::mpsc::channel();
        let thread = std::thread::Builder::new().name("dlm-events".into()).spawn(move || {
            // The receiver waits right below; if it is gone nobody needs the id.
            let _ = told.send(sys::this_thread());
            let waiter = Waiter::new(Serve::All, WaitFor::Other, std::ptr::null_mut());
            let never = |_: &mut State| None::<()>;
            if let Err(Unmet::Ended(Error::Lost(_))) = handle.wait_until(&waiter, None, never) {
                handle.tell_loss();
            }
        })?;
        let id = id.recv().map_err(|_| Error::System(libc::EAGAIN))?;
        *helper = Some(Helper { thread, id });
        Ok(())
    }

    /// Gives listings a new text for this handle.
    ///
    /// # Errors
    /// The text is too long, or the handle has ended.
    pub fn set_label(&self, label: &[u8]) -> Result<(), Error> {
        self.state.lock().check()?;
        let message = ClientMessage::Label(label.to_vec()).encode();
        let message = message.map_err(|bad| Error::System(bad.errno()))?;
        match self.converse(&message)? {
            0 => Ok(()),
            errno => Err(Error::Refused(dlm_core::Errno(errno))),
        }
    }

    /// Ends the handle. Other threads' calls end with an error; no callback runs after this has
    /// returned, except the one it was called from.
    ///
    /// # Errors
    /// The handle was closed before.
    pub fn close(&self) -> Result<(), Error> {
        if self.shut()?.is_some() {
            // Nothing is left to be said, perhaps to a daemon that is stopped. The hang-up tells it,
            // or the next one, that this program does not rely on its locks any more.
            self.hang_up();
            return Ok(());
        }
        // A daemon that is gone has ended the handle as well.
        let _ = self.finish(&ClientMessage::Close);
        Ok(())
    }

    /// Ends the handle and takes back one creation of its lockspace. May wait until other handles
    /// on it are closed.
    ///
    /// # Errors
    /// The handle was closed before (nothing is done), the daemon is gone, or its refusal: EBUSY
    /// where locks remain and `force` is false. The handle is ended all the same.
    pub fn release(&self, force: bool) -> Result<(), Error> {
        if let Some(reason) = self.shut()? {
            self.hang_up();
            return Err(Error::Lost(reason));
        }
        match self.finish(&ClientMessage::Release { force })? {
            0 => Ok(()),
            errno => Err(Error::Refused(dlm_core::Errno(errno))),
        }
    }

    /// Makes the handle unusable for everybody, and waits until nobody uses it. Says if it was
    /// lost.
    fn shut(&self) -> Result<Option<LostReason>, Error> {
        process::current().forget(self.number).ok_or(Error::NotOurs)?;
        let lost;
        {
            let mut state = self.state.lock();
            state.look_for_loss();
            lost = state.lost();
            state.end(End::Closed);
            while state.others_deliver() {
                self.wake.quiet.wait(&mut state);
            }
        }
        if let Some(helper) = self.helper.lock().take()
            && helper.id != sys::this_thread()
        {
            // It ends at once; a panic in a callback has been reported by its own hook.
            let _ = helper.thread.join();
        }
        self.wake.close_descriptor();
        Ok(lost)
    }

    /// The last conversation of a handle.
    fn finish(&self, message: &ClientMessage) -> Result<i32, Error> {
        // Calls of other threads have seen the end, and leave.
        let _no_calls = self.calls.lock();
        let message = message.encode().map_err(|bad| Error::System(bad.errno()))?;
        let answer = self.converse(&message);
        self.hang_up();
        answer
    }

    fn hang_up(&self) {
        sys::shut_down(std::os::fd::AsFd::as_fd(&self.wake.socket));
    }
}

/// Whether a dlmd answers at the socket that is used without an explicit one.
///
/// # Errors
/// [`Error::NotRunning`], or the system's.
pub fn probe() -> Result<(), Error> {
    let socket = Connection::connect(&dlm_ipc::path::socket_path(None))?;
    let hello = Hello::Control.encode().map_err(|bad| Error::System(bad.errno()))?;
    socket.send(&hello)?;
    let mut buffer = [0; MESSAGE_BYTES_MAX];
    let answer = socket.recv(&mut buffer)?.ok_or(Error::NotRunning)?;
    good_welcome(answer).map(drop)
}

fn good_welcome(message: &[u8]) -> Result<Welcome, Error> {
    let welcome = Welcome::decode(message).map_err(|bad| Error::System(bad.errno()))?;
    match welcome.errno {
        0 => Ok(welcome),
        errno => Err(Error::Refused(dlm_core::Errno(errno))),
    }
}
