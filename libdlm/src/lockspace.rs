//! The interface for Rust programs: a lockspace, its locks, and guards that let go.

use std::os::fd::{BorrowedFd, RawFd};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use dlm_core::{Errno, LockFlags, Mode};
use dlm_ipc::layout::{CallArgs, LostReason, Operation};

use crate::event::{Completion, LockEvent, LockRef, Value};
use crate::handle::{Handle, OpenArgs};
use crate::ops::{Asking, Which};
use crate::pipeline::Pipeline;
use crate::state::Serve;
use crate::table::{Function, Target};
use crate::wait::{Outcome, WaitFor, Waiter};
use crate::{EUNLOCK, Error};

/// How to open or create a lockspace.
#[derive(Clone, Debug)]
pub struct Opening<'a> {
    create: Option<(u32, u32)>,
    label: &'a str,
    socket: Option<&'a Path>,
}

impl<'a> Opening<'a> {
    /// An existing lockspace.
    pub const fn existing() -> Self {
        Self { create: None, label: "", socket: None }
    }

    /// A lockspace that is created, or whose creation count is raised if it exists. Permission bits
    /// as of a file, for instance `0o600`.
    pub const fn create(mode: u32) -> Self {
        Self { create: Some((mode, 0)), ..Self::existing() }
    }

    /// Creation flags, `DLM_LSFL_` (`dlm_core::SpaceFlags`).
    #[must_use]
    pub const fn flags(mut self, flags: u32) -> Self {
        if let Some((mode, _)) = self.create {
            self.create = Some((mode, flags));
        }
        self
    }

    /// Text of up to 64 bytes that listings show beside the locks.
    #[must_use]
    pub const fn label(mut self, label: &'a str) -> Self {
        self.label = label;
        self
    }

    /// Another socket than the usual one (architecture.md section 8).
    #[must_use]
    pub const fn socket(mut self, socket: &'a Path) -> Self {
        self.socket = Some(socket);
        self
    }

    /// Opens `name`. Waits as long as this node needs to join the lockspace.
    ///
    /// # Errors
    /// [`Error::NotRunning`]; [`Error::Refused`] with ENOENT (no such lockspace), EEXIST, EACCES,
    /// EPERM, EINVAL (name), EUNATCH (no quorum).
    pub fn open(&self, name: impl AsRef<[u8]>) -> Result<Lockspace, Error> {
        let Self { create, label, socket } = *self;
        let args = OpenArgs { name: name.as_ref(), create, label: label.as_bytes(), socket };
        Handle::open(&args).map(|handle| Lockspace { handle: Arc::new(Owned(handle)) })
    }
}

/// An open lockspace: one handle, which owns its locks. Clones are the same handle; it is closed
/// with the last of clones and guards, and its locks go then, or become orphans (PERSISTENT).
#[derive(Clone)]
pub struct Lockspace {
    handle: Arc<Owned>,
}

/// Closes the handle when it goes.
struct Owned(Arc<Handle>);

impl Drop for Owned {
    fn drop(&mut self) {
        // Closed or released before: nothing is left to do.
        let _ = self.0.close();
    }
}

/// What a lock or a conversion asks for, beside name and mode.
#[derive(Clone, Default)]
pub struct Wanted {
    flags: u32,
    xid: u64,
    value: Option<Value>,
    timeout: Option<Duration>,
    events: Option<Function>,
    blocking: bool,
}

impl Wanted {
    /// Nothing special.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds flags.
    #[must_use]
    pub fn flags(mut self, flags: LockFlags) -> Self {
        self.flags |= flags.0;
        self
    }

    /// A transaction id, for listings.
    #[must_use]
    pub fn xid(mut self, xid: u64) -> Self {
        self.xid = xid;
        self
    }

    /// Takes part in value-block transfer; `value` is what a conversion down from EX or PW stores.
    #[must_use]
    pub fn value(mut self, value: Value) -> Self {
        self.value = Some(value);
        self.flags(LockFlags::VALBLK)
    }

    /// Ends the request when it was not granted for so long (steps of 10 ms, at least 10).
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self.flags(LockFlags::TIMEOUT)
    }

    /// Has `callback` called with what happens to the lock: completions of calls that do not wait,
    /// and that somebody wants a mode which the lock blocks. It runs inside
    /// [`Lockspace::dispatch`], or on the thread of [`Lockspace::spawn_dispatcher`]; it must not
    /// block for long, since others wait behind it.
    #[must_use]
    pub fn events(mut self, callback: impl Fn(LockEvent) + Send + Sync + 'static) -> Self {
        self.events = Some(Arc::new(callback));
        self.blocking()
    }

    /// Wants to be told when somebody asks for a mode that the lock blocks: for a [`Pipeline`],
    /// whose stream brings these events too.
    #[must_use]
    pub fn blocking(mut self) -> Self {
        self.blocking = true;
        self
    }

    pub(crate) fn call(&self, mode: Mode) -> CallArgs {
        CallArgs {
            mode: mode as u8,
            flags: self.flags,
            user: 0,
            xid: self.xid,
            timeout_cs: self
                .timeout
                .map_or(0, |limit| limit.as_millis().div_ceil(10).max(1) as u64),
            wants_blocking: self.blocking,
        }
    }

    pub(crate) fn value_block(&self) -> Option<&Value> {
        self.value.as_ref()
    }

    fn deadline(&self) -> Option<Instant> {
        self.timeout.and_then(|limit| Instant::now().checked_add(limit))
    }

    fn target(&self) -> Target {
        self.events.as_ref().map_or(Target::Nobody, |events| Target::Function {
            function: Arc::clone(events),
            completions: true,
        })
    }
}

impl Lockspace {
    /// Opens an existing lockspace.
    ///
    /// # Errors
    /// As [`Opening::open`].
    pub fn open(name: &str) -> Result<Self, Error> {
        Opening::existing().open(name)
    }

    /// Creates a lockspace for this user alone, or raises its creation count.
    ///
    /// # Errors
    /// As [`Opening::open`].
    pub fn create(name: &str) -> Result<Self, Error> {
        Opening::create(0o600).open(name)
    }

    /// Takes a lock and waits for it. It is let go when the guard is dropped.
    ///
    /// # Errors
    /// [`Error::TimedOut`], [`Error::WouldBlock`] (NOQUEUE), [`Error::Cancelled`],
    /// [`Error::Deadlock`], [`Error::Lost`], [`Error::Refused`].
    pub fn lock(&self, name: &[u8], mode: Mode, wanted: &Wanted) -> Result<Guard, Error> {
        let completion = self.lock_wait(name, mode, wanted)?;
        Ok(Guard { space: self.clone(), completion, kept: false })
    }

    /// Takes a lock if it is free.
    ///
    /// # Errors
    /// As [`Lockspace::lock`], without those of waiting.
    pub fn try_lock(&self, name: &[u8], mode: Mode) -> Result<Option<Guard>, Error> {
        match self.lock(name, mode, &Wanted::new().flags(LockFlags::NOQUEUE)) {
            Ok(guard) => Ok(Some(guard)),
            Err(Error::WouldBlock) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Takes a lock and waits for it; nothing lets it go but [`Lockspace::unlock_wait`] and the end
    /// of the handle.
    ///
    /// # Errors
    /// As [`Lockspace::lock`].
    pub fn lock_wait(&self, name: &[u8], mode: Mode, wanted: &Wanted) -> Result<Completion, Error> {
        check_name(name)?;
        let (waiter, deadline) = (self.waiter(WaitFor::Operation)?, wanted.deadline());
        let asking = Asking { waiter: Some(&waiter), deadline };
        let target = wanted.target().waited_for();
        let asked = self.inner()?.request(name, wanted.call(mode), target, asking);
        let lock = self.accepted(asked, &waiter)?;
        if LockFlags(wanted.flags).has(LockFlags::ORPHAN) {
            self.inner()?.state.lock().remove_waiter(lock.word, &waiter);
            return Ok(Completion { lock, status: 0, granted: Some(mode), ..Completion::GONE });
        }
        self.ended(lock.word, &waiter, deadline).and_then(Completion::result)
    }

    /// Asks for a lock and returns when the daemon has the request; how it ends is told to the
    /// callback of [`Wanted::events`].
    ///
    /// # Errors
    /// [`Error::Lost`], [`Error::Refused`]; then nothing was done.
    pub fn request(&self, name: &[u8], mode: Mode, wanted: &Wanted) -> Result<LockRef, Error> {
        check_name(name)?;
        self.inner()?.request(name, wanted.call(mode), wanted.target(), Asking::default())
    }

    /// Converts a lock and waits for it. Its callback stays, unless `wanted` has another one.
    ///
    /// # Errors
    /// As [`Lockspace::lock`]; the lock keeps its mode.
    pub fn convert_wait(
        &self,
        lock: LockRef,
        mode: Mode,
        wanted: &Wanted,
    ) -> Result<Completion, Error> {
        let (waiter, deadline) = (self.waiter(WaitFor::Operation)?, wanted.deadline());
        let asking = Asking { waiter: Some(&waiter), deadline };
        let (call, value) = (wanted.call(mode), wanted.value_block());
        let target = keeping(wanted);
        let target = |before: &Target| target(before).waited_for();
        let asked = self.inner()?.convert(Which::Ref(lock), call, value, target, asking);
        let word = self.accepted(asked, &waiter)?;
        self.ended(word, &waiter, deadline).and_then(Completion::result)
    }

    /// Asks for a conversion and returns when the daemon has the request.
    ///
    /// # Errors
    /// As [`Lockspace::request`].
    pub fn convert(&self, lock: LockRef, mode: Mode, wanted: &Wanted) -> Result<(), Error> {
        let (call, value) = (wanted.call(mode), wanted.value_block());
        let asking = Asking::default();
        self.inner()?.convert(Which::Ref(lock), call, value, keeping(wanted), asking).map(drop)
    }

    /// Lets a lock go and waits until it is gone. `value`: what an EX or PW lock stores.
    ///
    /// # Errors
    /// [`Error::Lost`], [`Error::Refused`].
    pub fn unlock_wait(&self, lock: LockRef, value: Option<&Value>) -> Result<(), Error> {
        let flags = if value.is_some() { LockFlags::VALBLK } else { LockFlags::default() };
        self.unlock_with(lock, flags, value)
    }

    /// Unlocks with flags of your own (FORCEUNLOCK, IVVALBLK), and waits until the lock is gone.
    ///
    /// # Errors
    /// As [`Lockspace::unlock_wait`].
    pub fn unlock_with(
        &self,
        lock: LockRef,
        flags: LockFlags,
        value: Option<&Value>,
    ) -> Result<(), Error> {
        let waiter = self.waiter(WaitFor::Unlock)?;
        let asking = Asking { waiter: Some(&waiter), deadline: None };
        let target = Target::waited_for;
        let asked = self.inner()?.unlock(Which::Ref(lock), flags, value, target, asking);
        let word = self.accepted(asked, &waiter)?;
        match self.ended(word, &waiter, None)?.status {
            0 | EUNLOCK => Ok(()),
            status => Err(Error::of_status(status)),
        }
    }

    /// Asks for the end of a pending request or conversion. Its own completion tells whether it was
    /// cancelled or came first.
    ///
    /// # Errors
    /// [`Error::Lost`], [`Error::Refused`].
    pub fn cancel(&self, lock: LockRef) -> Result<(), Error> {
        let (flags, asking) = (LockFlags::CANCEL, Asking::default());
        self.inner()?.unlock(Which::Ref(lock), flags, None, Target::clone, asking).map(drop)
    }

    /// As [`Lockspace::cancel`], but the completion will say EDEADLK.
    ///
    /// # Errors
    /// As [`Lockspace::cancel`].
    pub fn deadlock_cancel(&self, lock: LockRef) -> Result<(), Error> {
        self.inner()?.plain_call(&Operation::DeadlockCancel { lkid: lock.id, flags: 0 })
    }

    /// Removes orphans of a dead process (`pid` 0: of all) on a node (0: this one).
    ///
    /// # Errors
    /// [`Error::Lost`], [`Error::Refused`].
    pub fn purge(&self, node: u32, pid: u32) -> Result<(), Error> {
        self.inner()?.purge(node, pid)
    }

    /// Runs the callbacks of everything that has happened, on this thread.
    ///
    /// # Errors
    /// [`Error::Lost`], after the last completions and the loss callback.
    pub fn dispatch(&self) -> Result<(), Error> {
        self.inner()?.dispatch()
    }

    /// Starts a thread that dispatches as long as the handle is open.
    ///
    /// # Errors
    /// [`Error::System`] with EEXIST if it runs already; else what the system says.
    pub fn spawn_dispatcher(&self) -> Result<(), Error> {
        self.inner()?.start_helper()
    }

    /// A descriptor that is readable while [`Lockspace::dispatch`] would find something; for poll
    /// sets.
    ///
    /// # Errors
    /// The process has no descriptor left.
    pub fn descriptor(&self) -> Result<BorrowedFd<'_>, Error> {
        let fd: RawFd = self.inner()?.descriptor()?;
        // SAFETY: it is open until the handle is closed, which the borrow outlives.
        Ok(unsafe { BorrowedFd::borrow_raw(fd) })
    }

    /// Has `callback` called once when the handle is lost, where callbacks run.
    pub fn on_loss(&self, callback: impl Fn(LostReason) + Send + Sync + 'static) {
        if let Ok(handle) = self.inner() {
            handle.set_loss_callback(Some(Arc::new(callback)));
        }
    }

    /// Why the handle was lost, if it was. Never waits.
    pub fn lost(&self) -> Option<LostReason> {
        self.inner().ok()?.lost()
    }

    /// Gives listings a text beside the locks of this handle, up to 64 bytes.
    ///
    /// # Errors
    /// [`Error::Lost`]; EINVAL if it is longer.
    pub fn set_label(&self, label: &str) -> Result<(), Error> {
        self.inner()?.set_label(label.as_bytes())
    }

    /// This node's id.
    pub fn node(&self) -> u32 {
        self.handle.0.node()
    }

    /// Requests without waiting for replies, for many at a time. One pipeline per handle.
    ///
    /// # Errors
    /// EBUSY: this handle has a pipeline already.
    pub fn pipeline(&self) -> Result<Pipeline, Error> {
        Pipeline::new(self.clone())
    }

    /// Closes the handle at once, whatever clones and guards there are.
    pub fn close(self) {
        // Closed before: as wanted.
        let _ = self.handle.0.close();
    }

    /// Closes the handle and takes back one creation of the lockspace, which goes with the last
    /// one. Waits until other handles on it are closed.
    ///
    /// # Errors
    /// EBUSY where others' locks remain and `force` is false: then the lockspace stays.
    pub fn release(self, force: bool) -> Result<(), Error> {
        self.inner()?.release(force)
    }

    /// The handle, unless this process is a child of its owner: then it must not even be looked at.
    pub(crate) fn inner(&self) -> Result<&Arc<Handle>, Error> {
        if self.handle.0.is_ours() { Ok(&self.handle.0) } else { Err(Error::NotOurs) }
    }

    fn waiter(&self, wait_for: WaitFor) -> Result<Arc<Waiter>, Error> {
        let nested = self.inner()?.state.lock().in_callback();
        let serve = if nested { Serve::All } else { Serve::Waited };
        Ok(Waiter::new(serve, wait_for, std::ptr::null_mut()))
    }

    fn accepted<T>(&self, asked: Result<T, Error>, waiter: &Arc<Waiter>) -> Result<T, Error> {
        let Err(error) = asked else { return asked };
        let handle = self.inner()?;
        if error != Error::TimedOut {
            handle.state.lock().hand_over();
        } else if let Ok(Outcome::Completed(Completion { lock, status: 0, .. })) =
            handle.abandon(waiter.word(), waiter)
        {
            // What was granted in the last moment is given back: its caller has given up.
            handle.unlock_quietly(lock);
        }
        Err(error)
    }

    fn ended(
        &self,
        word: u64,
        waiter: &Arc<Waiter>,
        deadline: Option<Instant>,
    ) -> Result<Completion, Error> {
        match self.inner()?.await_completion(word, waiter, false, deadline)? {
            Outcome::Completed(completion) => Ok(completion),
            Outcome::Nothing => Ok(Completion::GONE),
        }
    }
}

/// A held lock. Dropping it lets the lock go, without waiting.
#[must_use = "the lock is let go when the guard is dropped"]
pub struct Guard {
    space: Lockspace,
    completion: Completion,
    kept: bool,
}

impl Guard {
    /// The lock, for conversions and unlocks.
    pub fn lock(&self) -> LockRef {
        self.completion.lock
    }

    /// The grant's number: for one name it only grows, so that a store can refuse whom we overtook.
    pub fn token(&self) -> u64 {
        self.completion.token
    }

    /// How the last request or conversion ended, with the value block if one came along.
    pub fn completion(&self) -> &Completion {
        &self.completion
    }

    /// Converts the lock and waits for it.
    ///
    /// # Errors
    /// As [`Lockspace::convert_wait`]; the lock keeps its mode.
    pub fn convert(&mut self, mode: Mode, wanted: &Wanted) -> Result<(), Error> {
        self.completion = self.space.convert_wait(self.lock(), mode, wanted)?;
        Ok(())
    }

    /// Lets the lock go, and waits until it is gone.
    ///
    /// # Errors
    /// As [`Lockspace::unlock_wait`]; the lock is let go when the handle ends.
    pub fn unlock(mut self) -> Result<(), Error> {
        self.kept = true;
        self.space.unlock_wait(self.lock(), None)
    }

    /// The lock without its guard: nothing lets it go but the end of the handle.
    pub fn keep(mut self) -> LockRef {
        self.kept = true;
        self.lock()
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if let (false, Ok(handle)) = (self.kept, self.space.inner()) {
            handle.unlock_quietly(self.lock());
        }
    }
}

/// A conversion's callback is the earlier one, unless there is a new one.
fn keeping(wanted: &Wanted) -> impl FnOnce(&Target) -> Target {
    let new = wanted.target();
    move |before| match (&new, before) {
        (Target::Nobody, Target::Function { function, .. }) => {
            Target::Function { function: Arc::clone(function), completions: true }
        }
        (Target::Nobody, before) => before.clone(),
        _ => new,
    }
}

fn check_name(name: &[u8]) -> Result<(), Error> {
    match name.len() {
        0..=dlm_ipc::layout::NAME_BYTES_MAX => Ok(()),
        _ => Err(Error::Refused(Errno::EINVAL)),
    }
}
