//! Requests, conversions, unlocks and cancels: what all interfaces of this crate have in common.
//!
//! Each operation is announced in the table *before* it is submitted, since its completion may be
//! delivered by another thread before the reply has been read.

use std::sync::Arc;
use std::time::{Duration, Instant};

use dlm_core::LockFlags;
use dlm_ipc::layout::{CallArgs, Operation, Submission};

use crate::Error;
use crate::call::Patience;
use crate::deliver::{Delivery, What};
use crate::event::{LockRef, Value};
use crate::handle::Handle;
use crate::state::{Serve, State};
use crate::table::{Target, word};
use crate::wait::{Outcome, Unmet, Waiter};

/// How much later than the daemon a time limit ends here, should the daemon not answer.
const GRACE: Duration = Duration::from_secs(2);

/// A lock as its caller names it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Which {
    /// By its id, as C programs do.
    Id(u32),
    /// By our own reference.
    Ref(LockRef),
}

impl Which {
    fn id(self) -> u32 {
        match self {
            Self::Id(id) | Self::Ref(LockRef { id, .. }) => id,
        }
    }

    fn find(self, state: &State) -> Option<u32> {
        match self {
            Self::Id(id) => state.table.find(id),
            Self::Ref(lock) => {
                let number = state.table.resolve(lock.word)?;
                (state.table.peek(number).id == lock.id).then_some(number)
            }
        }
    }
}

/// How an operation is asked for: by whom it is waited for, and how long.
#[derive(Clone, Copy, Default)]
pub(crate) struct Asking<'a> {
    pub(crate) waiter: Option<&'a Arc<Waiter>>,
    /// End of a time limit.
    pub(crate) deadline: Option<Instant>,
}

impl Asking<'_> {
    fn patience(&self) -> Patience {
        let until = self.deadline.map(|deadline| deadline + GRACE);
        Patience { attends: self.waiter.is_some(), until }
    }

    fn register(&self, state: &mut State, number: u32, word: u64) {
        if let Some(waiter) = self.waiter {
            waiter.set_word(word);
            state.add_waiter(number, waiter);
        }
    }
}

impl Handle {
    /// Asks for a new lock, or adopts an orphan.
    pub(crate) fn request(
        &self,
        name: &[u8],
        mut call: CallArgs,
        target: Target,
        asking: Asking<'_>,
    ) -> Result<LockRef, Error> {
        let adopts = LockFlags(call.flags).has(LockFlags::ORPHAN);
        {
            let mut state = self.state.lock();
            state.check()?;
            call.user = state.table.add(target);
            asking.register(&mut state, call.user as u32, call.user);
        }
        let (user, mode) = (call.user, call.mode);
        self.call(&Operation::Lock { call, name }, asking.patience(), |state, answer| {
            let id = match answer {
                Ok(id) => id,
                Err(Error::TimedOut) => return Err(Error::TimedOut),
                Err(error) => {
                    if let Some(number) = state.table.resolve(user) {
                        state.table.remove(number);
                    }
                    return Err(error);
                }
            };
            if let Some(number) = state.table.resolve(user) {
                state.table.bind(number, id);
                // A completion that another thread is delivering may not have written it yet, and
                // this call's caller may use the id at once.
                let slot = state.table.peek(number);
                if !slot.heard || slot.runner != 0 {
                    write_id(state.table.newest_target(number), id);
                }
                let slot = state.table.slot(number);
                if adopts {
                    slot.mode = Some(mode); // No completion will tell it.
                } else {
                    slot.pending += 1;
                }
            }
            Ok(LockRef { id, word: user })
        })
    }

    /// Converts a lock. `target` makes the new addresses of the old ones.
    pub(crate) fn convert(
        &self,
        which: Which,
        mut call: CallArgs,
        value: Option<&Value>,
        target: impl FnOnce(&Target) -> Target,
        asking: Asking<'_>,
    ) -> Result<u64, Error> {
        let (user, before) = self.readdress(which, target, asking)?;
        call.user = user.unwrap_or_default();
        let operation = Operation::Convert { call, lkid: which.id(), value };
        self.call(&operation, asking.patience(), |state, answer| {
            settle(state, user, answer.map(|_| 1), before, asking)
        })
    }

    /// Unlocks or cancels.
    pub(crate) fn unlock(
        &self,
        which: Which,
        flags: LockFlags,
        value: Option<&Value>,
        target: impl FnOnce(&Target) -> Target,
        asking: Asking<'_>,
    ) -> Result<u64, Error> {
        let (user, before) = self.readdress(which, target, asking)?;
        let operation = Operation::Unlock { lkid: which.id(), flags: flags.0, user, value };
        let pending = i32::from(!flags.has(LockFlags::CANCEL));
        self.call(&operation, asking.patience(), |state, answer| {
            settle(state, user, answer.map(|_| pending), before, asking)
        })
    }

    /// A call that has no completion of its own.
    pub(crate) fn plain_call(&self, operation: &Operation<'_>) -> Result<(), Error> {
        self.call(operation, Patience::default(), |_, answer| answer.map(drop))
    }

    /// Purges orphans; of this node and this process: everything that this handle owns, silently.
    pub(crate) fn purge(&self, node: u32, pid: u32) -> Result<(), Error> {
        let own = (node == 0 || node == self.node()) && pid == crate::sys::this_process();
        let operation = Operation::Purge { node, pid };
        self.call(&operation, Patience::default(), |state, answer| {
            answer?;
            if own {
                state.forget_all();
            }
            Ok(())
        })
    }

    /// Waits for the completion of an operation that was accepted.
    pub(crate) fn await_completion(
        &self,
        word: u64,
        waiter: &Arc<Waiter>,
        cancels: bool,
        deadline: Option<Instant>,
    ) -> Result<Outcome, Error> {
        let guard = deadline.map(|deadline| deadline + GRACE);
        let idle = |state: &mut State| (cancels && state.is_idle(word)).then_some(Outcome::Nothing);
        let waited =
            self.wait_until(waiter, guard, |state| waiter.outcome().or_else(|| idle(state)));
        match waited {
            Ok(Outcome::Nothing) => {
                self.state.lock().remove_waiter(word, waiter);
                Ok(Outcome::Nothing)
            }
            Ok(outcome) => Ok(outcome),
            Err(Unmet::TimedOut) => self.abandon(word, waiter),
            Err(Unmet::Ended(error)) => {
                {
                    let mut state = self.state.lock();
                    state.remove_waiter(word, waiter);
                    // The caller's status block is not ours any more once its call has returned.
                    if let Some(number) = state.table.resolve(word) {
                        state.table.retarget(number, Target::Nobody);
                    }
                }
                if waiter.serve == Serve::All {
                    self.tell_loss();
                }
                Err(error)
            }
        }
    }

    /// Gives up waiting, though the daemon has not ended the operation: it is cancelled, and a
    /// grant that comes all the same is given back.
    pub(crate) fn abandon(&self, word: u64, waiter: &Arc<Waiter>) -> Result<Outcome, Error> {
        let mut state = self.state.lock();
        loop {
            if let Some(outcome) = waiter.outcome() {
                return Ok(outcome);
            }
            let Some(number) = state.table.resolve(word) else { break };
            if state.table.peek(number).runner == 0 {
                break;
            }
            // Another thread is delivering the completion right now.
            state.followers.push(Arc::clone(waiter));
            waiter.wake.wait_for(&mut state, Duration::from_millis(10));
            state.followers.retain(|other| !Arc::ptr_eq(other, waiter));
        }
        state.remove_waiter(word, waiter);
        let Some(number) = state.table.resolve(word) else { return Err(Error::TimedOut) };
        let (id, mode) = (state.table.peek(number).id, state.table.peek(number).mode);
        state.table.retarget(number, Target::GiveBack(mode));
        drop(state);
        if id != 0 {
            let flags = LockFlags::CANCEL.0;
            self.submit_quietly(&Operation::Unlock { lkid: id, flags, user: None, value: None });
        }
        Err(Error::TimedOut)
    }

    /// After a delivery: whether it was a grant that nobody waits for any more.
    pub(crate) fn give_back(&self, delivery: &Delivery) {
        let Target::GiveBack(mode) = delivery.target else { return };
        let What::Completion { status: 0, granted: Some(_), .. } = delivery.what else { return };
        let Some(user) = self.disown(delivery.word) else { return };
        let lkid = delivery.lkid;
        match mode {
            None => {
                self.submit_quietly(&Operation::Unlock { lkid, flags: 0, user: None, value: None });
            }
            Some(mode) => {
                let call = CallArgs { mode, user, ..CallArgs::default() };
                self.submit_quietly(&Operation::Convert { call, lkid, value: None });
            }
        }
    }

    /// Unlocks without waiting for anything; what happens to the lock concerns nobody any more.
    pub(crate) fn unlock_quietly(&self, lock: LockRef) {
        if self.disown(lock.word).is_some() {
            let (lkid, flags) = (lock.id, 0);
            self.submit_quietly(&Operation::Unlock { lkid, flags, user: None, value: None });
        }
    }

    fn disown(&self, lock: u64) -> Option<u64> {
        let mut state = self.state.lock();
        let number = state.table.resolve(lock)?;
        state.table.retarget(number, Target::Nobody);
        state.table.slot(number).pending += 1;
        Some(state.table.newest_word(number))
    }

    /// Submits without wanting a reply. A handle that has ended needs nothing given back.
    fn submit_quietly(&self, operation: &Operation<'_>) {
        let mut calls = self.calls.lock();
        if self.state.lock().check().is_ok() {
            let entry = Submission::new(operation, 0, false);
            let _ = self.submit(&mut calls, &entry).and_then(|()| self.flush(&mut calls));
        }
    }

    /// Gives a lock new addresses; its word, and the addresses before. `None`: the lock is unknown
    /// here, and the daemon will say what is wrong with it.
    fn readdress(
        &self,
        which: Which,
        target: impl FnOnce(&Target) -> Target,
        asking: Asking<'_>,
    ) -> Result<(Option<u64>, Target), Error> {
        let mut state = self.state.lock();
        state.check()?;
        let Some(number) = which.find(&state) else { return Ok((None, Target::Nobody)) };
        let before = state.table.newest_target(number).clone();
        let user = state.table.readdress(number, target(&before));
        asking.register(&mut state, number, user);
        Ok((Some(user), before))
    }
}

/// The answer to an operation on an existing lock; `pending` of a good one: completions to come.
fn settle(
    state: &mut State,
    user: Option<u64>,
    pending: Result<i32, Error>,
    before: Target,
    asking: Asking<'_>,
) -> Result<u64, Error> {
    let number = user.and_then(|user| state.table.resolve(user));
    match (&pending, number, asking.waiter) {
        (Ok(pending), Some(number), _) => state.table.slot(number).pending += pending,
        // The daemon may have replaced the lock's word although it refused (semantics.md 6.2), but
        // the caller's addresses are not ours once a waiting call has returned.
        (Err(error), Some(number), Some(waiter)) if *error != Error::TimedOut => {
            state.remove_waiter(user.unwrap_or_default(), waiter);
            state.table.restore(number, before);
        }
        _ => {}
    }
    pending.map(|_| user.unwrap_or(word(u32::MAX, 0)))
}

/// Tells a C program the id of its new lock.
fn write_id(target: &Target, id: u32) {
    if let Target::Block(to) = target
        && !to.lksb.is_null()
    {
        // SAFETY: the program keeps the block until the lock is gone, and that was not told yet.
        unsafe { (&raw mut (*to.lksb).lkid).write_volatile(id) };
    }
}
