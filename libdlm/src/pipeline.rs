//! Many requests at a time: submitted without waiting for replies, told in one stream.
//!
//! A reply per request costs a wake-up per request. Here nothing is answered but by its completion,
//! or by a refusal in the same stream; what is pushed becomes visible in one [`Pipeline::submit`],
//! with at most one bell. The daemon works through a burst in one turn.

use std::sync::Arc;
use std::time::{Duration, Instant};

use dlm_core::{LockFlags, Mode};
use dlm_ipc::layout::{CallArgs, Operation, Submission};

use crate::event::{LockEvent, LockRef, Value};
use crate::lockspace::{Lockspace, Wanted};
use crate::state::{Serve, State};
use crate::table::Target;
use crate::wait::{Unmet, WaitFor, Waiter};
use crate::{ECANCEL, Error};

/// An event with the key of the request, or of the latest operation, that it belongs to.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Tagged {
    /// The caller's key.
    pub key: u64,
    /// What happened.
    pub event: LockEvent,
}

/// The stream of one handle. Its locks live until they are unlocked or the handle ends; dropping
/// the pipeline lets their events go unheard.
pub struct Pipeline {
    space: Lockspace,
    waiter: Arc<Waiter>,
}

impl Pipeline {
    pub(crate) fn new(space: Lockspace) -> Result<Self, Error> {
        let waiter = Waiter::new(Serve::Waited, WaitFor::Other, std::ptr::null_mut());
        {
            let mut state = space.inner()?.state.lock();
            state.check()?;
            if state.pipeline.is_some() {
                return Err(Error::System(libc::EBUSY));
            }
            state.pipeline = Some(Arc::clone(&waiter));
        }
        Ok(Self { space, waiter })
    }

    /// The handle below, for everything else.
    pub fn space(&self) -> &Lockspace {
        &self.space
    }

    /// Pushes a request for a new lock. `key` comes back with its events. A callback of `wanted` is
    /// not called: everything comes in the stream.
    ///
    /// # Errors
    /// [`Error::Lost`]; EINVAL if the name is too long.
    pub fn lock(
        &mut self,
        name: &[u8],
        mode: Mode,
        wanted: &Wanted,
        key: u64,
    ) -> Result<(), Error> {
        if name.len() > dlm_ipc::layout::NAME_BYTES_MAX {
            return Err(Error::Refused(dlm_core::Errno::EINVAL));
        }
        self.push_lock(name, wanted.call(mode), key)
    }

    /// Pushes a request for each of `names`, with keys from `first_key` upwards, in the cheapest
    /// way.
    ///
    /// # Errors
    /// As [`Pipeline::lock`]; the names before the bad one were pushed.
    pub fn lock_many<'n>(
        &mut self,
        names: impl IntoIterator<Item = &'n [u8]>,
        mode: Mode,
        wanted: &Wanted,
        first_key: u64,
    ) -> Result<(), Error> {
        (first_key..).zip(names).try_for_each(|(key, name)| self.lock(name, mode, wanted, key))
    }

    /// Pushes a conversion.
    ///
    /// # Errors
    /// [`Error::Lost`]; ENOENT if the lock is not one of this pipeline.
    pub fn convert(
        &mut self,
        lock: LockRef,
        mode: Mode,
        wanted: &Wanted,
        key: u64,
    ) -> Result<(), Error> {
        let user = self.announce(lock, key, 1)?;
        let call = CallArgs { user, ..wanted.call(mode) };
        self.push(&Operation::Convert { call, lkid: lock.id, value: wanted.value_block() }, key)
    }

    /// Pushes an unlock. `value`: what an EX or PW lock stores.
    ///
    /// # Errors
    /// As [`Pipeline::convert`].
    pub fn unlock(&mut self, lock: LockRef, value: Option<&Value>, key: u64) -> Result<(), Error> {
        let flags = if value.is_some() { LockFlags::VALBLK.0 } else { 0 };
        let user = Some(self.announce(lock, key, 1)?);
        self.push(&Operation::Unlock { lkid: lock.id, flags, user, value }, key)
    }

    /// Pushes a cancel. The completion of what it ends tells: [`ECANCEL`], or how it came first.
    ///
    /// # Errors
    /// As [`Pipeline::convert`].
    pub fn cancel(&mut self, lock: LockRef, key: u64) -> Result<(), Error> {
        const { assert!(ECANCEL == 0x10001) };
        let user = Some(self.announce(lock, key, 0)?);
        let flags = LockFlags::CANCEL.0;
        self.push(&Operation::Unlock { lkid: lock.id, flags, user, value: None }, key)
    }

    /// Lets the daemon see what was pushed.
    ///
    /// # Errors
    /// [`Error::Lost`].
    pub fn submit(&mut self) -> Result<(), Error> {
        let handle = self.space.inner()?;
        handle.flush(&mut handle.calls.lock())
    }

    /// Takes what has happened so far; returns how many events that were.
    ///
    /// # Errors
    /// [`Error::Lost`].
    pub fn poll(&mut self, events: &mut Vec<Tagged>) -> Result<usize, Error> {
        let mut state = self.space.inner()?.state.lock();
        let taken = drain(&mut state, events);
        if taken == 0 { state.check().map(|()| 0) } else { Ok(taken) }
    }

    /// [`Pipeline::submit`], then waits until something has happened, and takes it; 0: the time is
    /// over.
    ///
    /// # Errors
    /// [`Error::Lost`].
    pub fn wait(
        &mut self,
        events: &mut Vec<Tagged>,
        timeout: Option<Duration>,
    ) -> Result<usize, Error> {
        self.submit()?;
        let deadline = timeout.and_then(|limit| Instant::now().checked_add(limit));
        let goal = |state: &mut State| match drain(state, events) {
            0 => None,
            taken => Some(taken),
        };
        match self.space.inner()?.wait_until(&self.waiter, deadline, goal) {
            Ok(taken) => Ok(taken),
            Err(Unmet::TimedOut) => Ok(0),
            Err(Unmet::Ended(error)) => Err(error),
        }
    }

    fn push_lock(&self, name: &[u8], mut call: CallArgs, key: u64) -> Result<(), Error> {
        {
            let mut state = self.space.inner()?.state.lock();
            state.check()?;
            call.user = state.table.add(Target::Pipeline(key));
            state.table.slot(call.user as u32).pending = 1;
        }
        self.push(&Operation::Lock { call, name }, key)
    }

    /// Notes the operation's key; the word that stands for it.
    fn announce(&self, lock: LockRef, key: u64, pending: i32) -> Result<u64, Error> {
        let mut state = self.space.inner()?.state.lock();
        state.check()?;
        let number = state.table.resolve(lock.word);
        let number = number.filter(|number| state.table.peek(*number).id == lock.id);
        let number = number.ok_or(Error::Refused(dlm_core::Errno::ENOENT))?;
        state.table.slot(number).pending += pending;
        Ok(state.table.readdress(number, Target::Pipeline(key)))
    }

    fn push(&self, operation: &Operation<'_>, key: u64) -> Result<(), Error> {
        let handle = self.space.inner()?;
        handle.submit(&mut handle.calls.lock(), &Submission::new(operation, key, false))
    }
}

impl Drop for Pipeline {
    fn drop(&mut self) {
        let Ok(handle) = self.space.inner() else { return };
        // Pushed is pushed.
        let _ = handle.flush(&mut handle.calls.lock());
        let mut state = handle.state.lock();
        state.pipeline = None;
        state.pipelined.clear();
        state.drop_pipeline_targets();
    }
}

fn drain(state: &mut State, events: &mut Vec<Tagged>) -> usize {
    state.receive_pipelined();
    if state.lease.frozen {
        return 0;
    }
    let taken = state.pipelined.len();
    if events.is_empty() {
        std::mem::swap(events, &mut state.pipelined);
    } else {
        events.append(&mut state.pipelined);
    }
    taken
}
