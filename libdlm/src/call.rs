//! Calls: a request goes to the daemon, its answer comes back.
//!
//! One call at a time is between a handle and the daemon. Its thread sleeps on the reply watch.
//! Threads that will look at the event ring anyway (waiting calls) tell the daemon not to ring the
//! event bell meanwhile: the usual grant arrives together with the reply, and both bells would cost
//! twice. Since a reply may be slow, that favour ends after [`ATTENTION`].

use std::time::{Duration, Instant};

use dlm_ipc::layout::{LostReason, Operation, Reply, Submission};
use dlm_ipc::ring::{Consumer, Producer, PushError};

use crate::Error;
use crate::handle::Handle;
use crate::state::{End, State};

/// How long a thread that waits for its reply keeps the event bell silent. Longer than a scheduler
/// tick: a timer that is the next to expire has to be programmed and taken back in each sleep,
/// which in a virtual machine costs more than the call itself.
const ATTENTION: Duration = Duration::from_millis(20);

/// The calling side of a handle.
pub(crate) struct Calls {
    submissions: Producer<Submission>,
    replies: Consumer<Reply>,
    tag: u64,
    /// Requests whose caller gave up before the reply, by tag, with the word of the new lock.
    abandoned: Vec<(u64, u64)>,
}

/// How a call waits.
#[derive(Clone, Copy, Default)]
pub(crate) struct Patience {
    /// Whether the caller looks at the event ring afterwards, whatever happens.
    pub(crate) attends: bool,
    /// When to give up waiting for the reply.
    pub(crate) until: Option<Instant>,
}

impl Calls {
    pub(crate) fn new(submissions: Producer<Submission>, replies: Consumer<Reply>) -> Self {
        Self { submissions, replies, tag: 0, abandoned: Vec::new() }
    }
}

impl Handle {
    /// Submits `operation` and waits for its reply. `settle` runs with the answer before the next
    /// call of any thread can be submitted, so that what is known of locks follows the daemon's
    /// order.
    pub(crate) fn call<T>(
        &self,
        operation: &Operation<'_>,
        patience: Patience,
        settle: impl FnOnce(&mut State, Result<u32, Error>) -> T,
    ) -> T {
        let mut calls = self.calls.lock();
        let answer = self.call_locked(&mut calls, operation, patience);
        let mut state = self.state.lock();
        settle(&mut state, answer)
    }

    fn call_locked(
        &self,
        calls: &mut Calls,
        operation: &Operation<'_>,
        patience: Patience,
    ) -> Result<u32, Error> {
        {
            let mut state = self.state.lock();
            state.check()?;
            if patience.attends {
                state.ring.awake();
            }
        }
        calls.tag += 1;
        let tag = calls.tag;
        self.submit(calls, &Submission::new(operation, tag, true))?;
        self.flush(calls)?;
        match self.wait_for_reply(calls, tag, patience)? {
            Some(Reply { result: 0, lkid, .. }) => Ok(lkid),
            Some(reply) => Err(Error::Refused(dlm_core::Errno(reply.result))),
            None => {
                if let Operation::Lock { call, .. } = operation {
                    calls.abandoned.push((tag, call.user));
                }
                Err(Error::TimedOut)
            }
        }
    }

    /// Puts an entry into the ring, waiting for room if need be. Visible after [`Handle::flush`].
    pub(crate) fn submit(&self, calls: &mut Calls, entry: &Submission) -> Result<(), Error> {
        loop {
            match calls.submissions.push(entry) {
                Ok(()) => return Ok(()),
                Err(PushError::Full) => {
                    // Who pushes that much has events to take: the daemon need not keep them.
                    self.state.lock().receive_pipelined();
                    self.wait_for_room(calls)?;
                }
                Err(PushError::Corrupt(_)) => return Err(self.broken()),
            }
        }
    }

    /// Makes what was submitted visible, with at most one bell.
    pub(crate) fn flush(&self, calls: &mut Calls) -> Result<(), Error> {
        calls.submissions.flush().map(drop).map_err(|_| self.broken())
    }

    fn wait_for_room(&self, calls: &mut Calls) -> Result<(), Error> {
        self.flush(calls)?;
        while calls.submissions.prepare_wait_for_room() {
            self.check_alive()?;
            self.sleep_for_reply(None)?;
            if calls.submissions.free().map_err(|_| self.broken())? > 0 {
                break;
            }
        }
        Ok(())
    }

    /// The reply with this tag; `None`: it did not come in time.
    fn wait_for_reply(
        &self,
        calls: &mut Calls,
        tag: u64,
        patience: Patience,
    ) -> Result<Option<Reply>, Error> {
        let mut attends = patience.attends;
        loop {
            match calls.replies.pop() {
                Ok(Some(reply)) if reply.tag == tag => return Ok(Some(reply)),
                Ok(Some(late)) => self.forget_abandoned(calls, &late),
                Ok(None) if !calls.replies.prepare_sleep() => {}
                Ok(None) => {
                    self.check_alive()?;
                    let now = Instant::now;
                    let left = patience.until.map(|end| end.saturating_duration_since(now()));
                    if left == Some(Duration::ZERO) {
                        return Ok(None);
                    }
                    let attention = attends.then_some(ATTENTION);
                    let nap = left.map(|left| left.min(attention.unwrap_or(left))).or(attention);
                    let woken = self.sleep_for_reply(nap)?;
                    calls.replies.awake();
                    if attends && !woken {
                        attends = false;
                        self.state.lock().arm();
                    }
                }
                Err(_) => return Err(self.broken()),
            }
        }
    }

    /// The reply to a request whose caller gave up: a refused one leaves nothing to wait for.
    fn forget_abandoned(&self, calls: &mut Calls, late: &Reply) {
        let Some(place) = calls.abandoned.iter().position(|(tag, _)| *tag == late.tag) else {
            return;
        };
        let (_, word) = calls.abandoned.swap_remove(place);
        if late.result != 0 {
            let mut state = self.state.lock();
            if let Some(number) = state.table.resolve(word) {
                state.table.remove(number);
            }
        }
    }

    /// Whether the daemon said something.
    fn sleep_for_reply(&self, timeout: Option<Duration>) -> Result<bool, Error> {
        let woken = self.wake.sleep_for_reply(timeout).map_err(|_| self.broken())?;
        if woken.socket {
            self.listen();
        }
        if woken.timer {
            self.state.lock().look_for_loss();
        }
        Ok(woken.bell || woken.socket)
    }

    fn check_alive(&self) -> Result<(), Error> {
        if self.wake.has_ended() { self.state.lock().check() } else { Ok(()) }
    }

    /// The pages or a bell are broken: the handle is of no use any more.
    fn broken(&self) -> Error {
        let mut state = self.state.lock();
        state.end(End::Lost(LostReason::Protocol));
        state.end.map_or(Error::NotOurs, Error::from)
    }
}
