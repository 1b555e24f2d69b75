//! How threads wait for events: one sleeps in the kernel, the others behind it.
//!
//! Any number of threads may wait on one handle. The first becomes the *sleeper* and waits for the
//! event bell; later ones *follow* on condition variables of their own. The sleeper receives
//! whatever came, delivers what it may, and wakes whom the rest concerns. A thread that stops
//! waiting hands over: it empties and arms the ring and wakes a follower, who becomes the sleeper.
//! So no wake-up is lost (BL-087): every event finds a sleeper, an awake thread bound to look, or a
//! ringing bell.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use dlm_ipc::hello::{DaemonMessage, MESSAGE_BYTES_MAX};
use dlm_ipc::layout::LostReason;
use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::event::Completion;
use crate::handle::Handle;
use crate::state::{End, Serve, State};
use crate::table::{Lksb, at_or_after};
use crate::{Error, deliver::Delivery};

/// What a waiting call waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum WaitFor {
    /// The completion of a request or conversion, or of what a cancel ends.
    Operation,
    /// That the lock is gone.
    Unlock,
    /// Something else than a lock.
    Other,
}

/// What a waiting call was told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    /// A completion.
    Completed(Completion),
    /// There was nothing to wait for.
    Nothing,
}

/// A thread that waits.
pub(crate) struct Waiter {
    /// Where it sleeps while it follows; with the state's mutex.
    pub(crate) wake: Condvar,
    /// What it may deliver.
    pub(crate) serve: Serve,
    wait_for: WaitFor,
    lksb: *mut Lksb,
    /// Written and read with the state's mutex held.
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    word: u64,
    outcome: Option<Outcome>,
}

// SAFETY: the status block's address is only handed to the thread that delivers the completion,
// while the thread that waits is inside the call that got it.
unsafe impl Send for Waiter {}
// SAFETY: as above.
unsafe impl Sync for Waiter {}

impl Waiter {
    pub(crate) fn new(serve: Serve, wait_for: WaitFor, lksb: *mut Lksb) -> Arc<Self> {
        Arc::new(Self { wake: Condvar::new(), serve, wait_for, lksb, inner: Mutex::default() })
    }

    /// The word of the operation that is waited for.
    pub(crate) fn set_word(&self, word: u64) {
        self.inner.lock().word = word;
    }

    /// The word of the operation that is waited for; 0 until it was announced.
    pub(crate) fn word(&self) -> u64 {
        self.inner.lock().word
    }

    /// Whether a completion with this word, of a lock that stays, is what is waited for.
    pub(crate) fn ends_with(&self, word: u64) -> bool {
        self.wait_for == WaitFor::Operation && at_or_after(word, self.inner.lock().word)
    }

    pub(crate) fn settle(&self, outcome: Outcome) {
        self.inner.lock().outcome = Some(outcome);
    }

    pub(crate) fn outcome(&self) -> Option<Outcome> {
        self.inner.lock().outcome
    }

    pub(crate) fn lksb(&self) -> *mut Lksb {
        self.lksb
    }
}

/// Why a wait ended without its goal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Unmet {
    /// The time is over.
    TimedOut,
    /// The handle has ended.
    Ended(Error),
}

impl Handle {
    /// Waits, serving as the waiter may, until `goal` is met; then it says what it found.
    pub(crate) fn wait_until<T>(
        &self,
        waiter: &Arc<Waiter>,
        deadline: Option<Instant>,
        mut goal: impl FnMut(&mut State) -> Option<T>,
    ) -> Result<T, Unmet> {
        let mut state = self.state.lock();
        let result = loop {
            if let Some(found) = goal(&mut state) {
                break Ok(found);
            }
            if let Some(end) = state.end {
                break Err(Unmet::Ended(end.into()));
            }
            let received = state.received;
            if let Some(delivery) = state.next(waiter.serve, Some(waiter)) {
                state = self.deliver(state, delivery);
                continue;
            }
            if state.end.is_some() || state.received != received {
                continue; // Looking changed something: look at the goal again before sleeping.
            }
            let left = match deadline.map(|end| end.saturating_duration_since(Instant::now())) {
                Some(Duration::ZERO) => break Err(Unmet::TimedOut),
                left => left,
            };
            state = if state.sleeper.is_none() {
                self.sleep(state, waiter, left)
            } else {
                self.follow(state, waiter, left)
            };
        };
        state.hand_over();
        result
    }

    /// Delivers an event with the mutex free.
    pub(crate) fn deliver<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        delivery: Delivery,
    ) -> MutexGuard<'a, State> {
        if delivery.has_callback() {
            state.share();
        }
        drop(state);
        // A guard, so that a callback of a Rust program that panics leaves everything in order.
        let finish = Finish { handle: self, delivery };
        finish.delivery.run();
        self.give_back(&finish.delivery);
        drop(finish);
        self.state.lock()
    }

    /// Sleeps in the kernel on behalf of all who wait.
    fn sleep<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        waiter: &Arc<Waiter>,
        left: Option<Duration>,
    ) -> MutexGuard<'a, State> {
        if !state.armed() {
            return state;
        }
        state.sleeper = Some(Arc::clone(waiter));
        drop(state);
        let woken = self.wake.sleep_for_event(left);
        if woken.as_ref().is_ok_and(|woken| woken.socket) {
            self.listen();
        }
        let mut state = self.state.lock();
        state.woke_up();
        if woken.is_err() {
            state.end(End::Lost(LostReason::DaemonGone));
        }
        state
    }

    fn follow<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        waiter: &Arc<Waiter>,
        left: Option<Duration>,
    ) -> MutexGuard<'a, State> {
        if !state.armed() {
            return state;
        }
        state.followers.push(Arc::clone(waiter));
        match left {
            Some(left) => {
                waiter.wake.wait_for(&mut state, left);
            }
            None => waiter.wake.wait(&mut state),
        }
        state.followers.retain(|other| !Arc::ptr_eq(other, waiter));
        state
    }

    /// Reads what the daemon said on the socket unasked: that the handle is lost, or nothing more.
    pub(crate) fn listen(&self) {
        // Whoever waits for an answer on the socket listens already.
        let Some(_reading) = self.reading.try_lock() else { return std::thread::yield_now() };
        if let Some(reason) = self.read_loss() {
            self.state.lock().end(End::Lost(reason));
        }
    }

    fn read_loss(&self) -> Option<LostReason> {
        let mut buffer = [0; MESSAGE_BYTES_MAX];
        loop {
            let gone = || self.page.lost().unwrap_or(LostReason::DaemonGone);
            match self.wake.socket.recv(&mut buffer) {
                Ok(Some(message)) => match DaemonMessage::decode(message) {
                    Ok(DaemonMessage::Lost(reason)) => return Some(reason),
                    // An answer that nobody waits for any more.
                    Ok(DaemonMessage::Done { .. }) => {}
                    Err(_) => return Some(LostReason::Protocol),
                },
                Ok(None) => return Some(gone()),
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return None,
                Err(_) => return Some(gone()),
            }
        }
    }

    /// Says something on the socket, and waits for the answer's errno.
    pub(crate) fn converse(&self, message: &[u8]) -> Result<i32, Error> {
        let _reading = self.reading.lock();
        let socket = &self.wake.socket;
        let mut buffer = [0; MESSAGE_BYTES_MAX];
        let mut said = socket.send(message).is_ok();
        while said {
            let left = self.lease_left();
            if left == Some(Duration::ZERO) {
                break;
            }
            said = crate::sys::wait_readable(socket.as_fd(), left).is_ok();
            match socket.recv(&mut buffer) {
                Ok(Some(answer)) => match DaemonMessage::decode(answer) {
                    Ok(DaemonMessage::Done { errno }) => return Ok(errno),
                    Ok(DaemonMessage::Lost(reason)) => {
                        self.state.lock().end(End::Lost(reason));
                        return Err(Error::Lost(reason));
                    }
                    Err(_) => break,
                },
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Ok(None) | Err(_) => break,
            }
        }
        let ended = match self.lease_left() {
            Some(Duration::ZERO) => LostReason::LeaseEnded,
            _ => LostReason::DaemonGone,
        };
        let reason = self.page.lost().unwrap_or(ended);
        self.state.lock().end(End::Lost(reason));
        Err(Error::Lost(reason))
    }

    /// How long the daemon may still be waited for; `None`: for ever.
    fn lease_left(&self) -> Option<Duration> {
        let at = Some(self.page.lost_at()).filter(|at| *at != dlm_ipc::page::NO_LEASE)?;
        Some(Duration::from_nanos(at.saturating_sub(crate::sys::boottime_ns())))
    }
}

struct Finish<'a> {
    handle: &'a Handle,
    delivery: Delivery,
}

impl Drop for Finish<'_> {
    fn drop(&mut self) {
        self.handle.state.lock().finish(&self.delivery);
    }
}
