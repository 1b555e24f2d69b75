//! What a handle knows: its locks, the events on their way to the program, and who waits.
//!
//! One mutex guards it. It is held for moments only, never while a thread sleeps or a callback
//! runs. An event passes through here in two steps: *received* from the ring into a queue
//! (`receive.rs`), then *taken* by a thread that may deliver it. In between lie the rules about
//! threads:
//!
//! - whoever serves [`Serve::All`] takes everything: `dlm_dispatch`, the helper thread, every
//!   waiting call of libdlm_lt, and calls made inside a callback;
//! - a waiting call of libdlm takes only completions of operations that are waited for, and of
//!   those with a callback only its own ([`Serve::Waited`]): it never runs foreign callbacks on an
//!   unexpected thread;
//! - one lock's events are delivered by one thread at a time, in the order of their arrival.
//!
//! Invariant of the bell: whenever this mutex is free, the ring is empty and armed, or its bell is
//! unheard, or an awake thread is bound to look ([`State::arm`] before it sleeps or leaves).

use std::collections::VecDeque;
use std::sync::Arc;

use dlm_ipc::layout::{Event, LostReason, Notice};
use dlm_ipc::page::Page;
use dlm_ipc::ring::Consumer;

use crate::deliver::Delivery;
use crate::event::{Completion, LockRef};
use crate::lease::Lease;
use crate::pipeline::Tagged;
use crate::table::{Table, Target};
use crate::wait::{Outcome, Waiter};
use crate::wake::Wake;
use crate::{Error, sys};

/// Which events a thread may deliver.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Serve {
    /// All of them.
    All,
    /// Those that somebody waits for.
    Waited,
}

/// How a handle ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum End {
    /// By the program.
    Closed,
    /// Not by the program.
    Lost(LostReason),
}

impl From<End> for Error {
    fn from(end: End) -> Self {
        match end {
            End::Closed => Self::NotOurs,
            End::Lost(reason) => Self::Lost(reason),
        }
    }
}

/// An event received and not yet delivered.
pub(crate) struct Queued {
    /// Place in the order of arrival.
    pub(crate) number: u64,
    pub(crate) notice: Notice,
}

impl Queued {
    /// The word of its lock.
    pub(crate) fn word(&self) -> u64 {
        word_of(&self.notice)
    }
}

/// The word of an event's lock.
pub(crate) fn word_of(notice: &Notice) -> u64 {
    let (Notice::Completion { user, .. }
    | Notice::Blocking { user, .. }
    | Notice::Refused { user, .. }) = notice;
    *user
}

/// Called once when the handle is lost.
pub(crate) type LossCallback = Arc<dyn Fn(LostReason) + Send + Sync>;

pub(crate) struct State {
    pub(crate) ring: Consumer<Event>,
    pub(crate) page: Arc<Page>,
    pub(crate) wake: Arc<Wake>,
    pub(crate) table: Table,
    /// For callbacks, in order of arrival.
    pub(crate) ready: VecDeque<Queued>,
    /// For waiting calls, in order of arrival.
    pub(crate) waited: VecDeque<Queued>,
    /// Of locks that another thread is delivering an event of.
    pub(crate) held: Vec<Queued>,
    /// Events received so far.
    pub(crate) received: u64,
    /// Whether the bell was heard and not armed since: then the public set does not show what is in
    /// the ring.
    pub(crate) heard: bool,
    /// The thread that sleeps in the kernel on behalf of all who wait.
    pub(crate) sleeper: Option<Arc<Waiter>>,
    /// Whether the sleeper was kicked.
    kicked: bool,
    /// The others, who sleep on their own condition variables.
    pub(crate) followers: Vec<Arc<Waiter>>,
    /// One entry for each delivery in progress: its thread.
    pub(crate) running: Vec<usize>,
    pub(crate) end: Option<End>,
    pub(crate) loss_callback: Option<LossCallback>,
    pub(crate) lease: Lease,
    /// Whether operations in progress at the loss were given their last completions.
    swept: bool,
    /// Events of the pipeline.
    pub(crate) pipelined: Vec<Tagged>,
    /// The thread that waits for them.
    pub(crate) pipeline: Option<Arc<Waiter>>,
}

impl State {
    pub(crate) fn new(ring: Consumer<Event>, page: Arc<Page>, wake: Arc<Wake>) -> Self {
        Self {
            ring,
            page,
            wake,
            table: Table::default(),
            ready: VecDeque::new(),
            waited: VecDeque::new(),
            held: Vec::new(),
            received: 0,
            heard: false,
            sleeper: None,
            kicked: false,
            followers: Vec::new(),
            running: Vec::new(),
            end: None,
            loss_callback: None,
            lease: Lease::default(),
            swept: false,
            pipelined: Vec::new(),
            pipeline: None,
        }
    }

    /// An error if the handle has ended.
    pub(crate) fn check(&mut self) -> Result<(), Error> {
        self.look_for_loss();
        self.end.map_or(Ok(()), |end| Err(end.into()))
    }

    /// Why the handle was lost, if it was.
    pub(crate) fn lost(&self) -> Option<LostReason> {
        match self.end {
            Some(End::Lost(reason)) => Some(reason),
            _ => None,
        }
    }

    /// Events received and not yet delivered.
    pub(crate) fn undelivered(&self) -> u64 {
        (self.ready.len() + self.waited.len() + self.held.len()) as u64
    }

    /// Whether the calling thread is inside a callback of this handle.
    pub(crate) fn in_callback(&self) -> bool {
        self.running.contains(&sys::this_thread())
    }

    /// Whether another thread is delivering an event.
    pub(crate) fn others_deliver(&self) -> bool {
        let me = sys::this_thread();
        self.running.iter().any(|thread| *thread != me)
    }

    /// Makes sure that nothing is overlooked while this thread sleeps or is gone: everything
    /// received is in a queue whose servant knows, and the bell will ring for the next event.
    pub(crate) fn arm(&mut self) {
        while !self.armed() {
            while self.receive_for_others() {}
        }
    }

    /// The bell will ring for the next event; false: something is there already.
    pub(crate) fn armed(&mut self) -> bool {
        if self.lease.frozen {
            return true; // What is there has to wait, and the lease's timer rings.
        }
        let armed = self.end.is_some() || self.ring.prepare_sleep();
        self.heard &= !armed;
        armed
    }

    /// Hears the bell, so that the public set is quiet until the next ring.
    pub(crate) fn hear(&mut self) -> std::io::Result<crate::wake::Woken> {
        self.heard = true;
        self.wake.hear()
    }

    /// To be called by a thread that served and stops: others go on in its place.
    pub(crate) fn hand_over(&mut self) {
        self.arm();
        if !self.ready.is_empty() {
            self.call_servant();
        }
        let waited = self.waited.iter().filter_map(|queued| self.table.resolve(queued.word()));
        for number in waited.collect::<Vec<_>>() {
            self.notify_waiters(number);
        }
        if self.sleeper.is_none() {
            self.wake_one_follower();
        }
    }

    /// Before code of the program runs: an idle thread takes over what may come, or is there
    /// already.
    pub(crate) fn share(&mut self) {
        let in_ring = !self.armed();
        if self.sleeper.is_none() {
            self.wake_one_follower();
        }
        if in_ring && self.heard && self.followers.is_empty() {
            self.wake.announce();
        }
        if !self.ready.is_empty() {
            self.call_servant();
        }
    }

    /// Somebody who may deliver everything is told that there is something.
    pub(crate) fn call_servant(&mut self) {
        let idle = |waiter: &&Arc<Waiter>| waiter.serve == Serve::All;
        if let Some(servant) = self.followers.iter().find(idle) {
            servant.wake.notify_one();
        } else if self.sleeper.as_ref().is_some_and(|sleeper| sleeper.serve == Serve::All) {
            self.kick();
        } else {
            self.wake.announce();
        }
    }

    /// Wakes the threads that wait for a lock.
    pub(crate) fn notify_waiters(&mut self, number: u32) {
        for waiter in self.table.peek(number).waiters.clone() {
            self.notify(&waiter);
        }
    }

    /// Wakes a waiting thread, wherever it sleeps.
    pub(crate) fn notify(&mut self, waiter: &Arc<Waiter>) {
        waiter.wake.notify_one();
        if self.sleeper.as_ref().is_some_and(|sleeper| Arc::ptr_eq(sleeper, waiter)) {
            self.kick();
        }
    }

    /// The sleeper is awake and holds the mutex.
    pub(crate) fn woke_up(&mut self) {
        self.sleeper = None;
        self.heard = true;
        self.ring.awake();
        if self.kicked && self.end.is_none() {
            self.wake.unkick();
        }
        self.kicked = false;
    }

    /// Ends the handle, unless it has ended: all threads are woken.
    pub(crate) fn end(&mut self, end: End) {
        if self.end.is_some() && end != End::Closed {
            return;
        }
        self.end = Some(end);
        self.lease.frozen = false;
        self.wake.end();
        for waiter in &self.followers {
            waiter.wake.notify_one();
        }
        if let End::Lost(reason) = end {
            self.void_pipelined();
            self.wake.announce();
            // Hanging up tells the daemon that the program knows. Where others wait for that, because
            // they are going to use what this program held, only its closing the handle says so.
            if matches!(reason, LostReason::Protocol | LostReason::Removed) {
                sys::shut_down(std::os::fd::AsFd::as_fd(&self.wake.socket));
            }
        }
    }

    /// After a loss, once: a last completion for each operation in progress that nobody waits for.
    pub(crate) fn sweep(&mut self) {
        if self.swept {
            return;
        }
        self.swept = true;
        for number in self.table.living() {
            let slot = self.table.peek(number);
            if slot.pending <= 0 || !slot.waiters.is_empty() {
                continue;
            }
            let notice = Notice::Completion {
                lkid: slot.id,
                user: self.table.newest_word(number),
                status: dlm_core::Errno::ENOTRECOVERABLE.0,
                sb_flags: 0,
                granted: None,
                value: None,
                token: 0,
            };
            self.queue(number, notice);
        }
    }

    /// After a purge of everything that this handle owns: its locks are gone without a word.
    /// Threads that waited for one are told that it is unlocked.
    pub(crate) fn forget_all(&mut self) {
        for number in self.table.living() {
            let slot = self.table.slot(number);
            let (id, waiters) = (slot.id, std::mem::take(&mut slot.waiters));
            if id == 0 {
                continue; // Asked for behind the purge.
            }
            let lock = LockRef { id, word: self.table.newest_word(number) };
            self.table.remove(number);
            let gone = Completion { lock, status: crate::EUNLOCK, ..Completion::GONE };
            for waiter in waiters {
                waiter.settle(Outcome::Completed(gone));
                self.notify(&waiter);
            }
        }
    }

    /// The pipeline is gone: events of its locks go unheard.
    pub(crate) fn drop_pipeline_targets(&mut self) {
        for number in self.table.living() {
            if matches!(self.table.newest_target(number), Target::Pipeline(_)) {
                self.table.retarget(number, Target::Nobody);
            }
        }
    }

    /// Whether a cancel has nothing (more) to wait for: no operation of the lock is in progress, and
    /// no completion is on its way.
    pub(crate) fn is_idle(&self, word: u64) -> bool {
        let Some(number) = self.table.resolve(word) else { return true };
        let slot = self.table.peek(number);
        let own = |queued: &Queued| self.table.resolve(queued.word()) == Some(number);
        let delivering = slot.runner != 0 && slot.runner != sys::this_thread();
        slot.pending <= 0
            && !delivering
            && !self.waited.iter().any(own)
            && !self.held.iter().any(own)
    }

    /// The delivery is done.
    pub(crate) fn finish(&mut self, delivery: &Delivery) {
        let me = sys::this_thread();
        if let Some(entry) = self.running.iter().position(|thread| *thread == me) {
            self.running.swap_remove(entry);
        }
        if let Some(number) = self.table.resolve(delivery.word) {
            let slot = self.table.slot(number);
            if slot.runner == me {
                slot.runner = delivery.outer_runner;
            }
            if !slot.waiters.is_empty() {
                // What a cancel waits for may be just that.
                self.notify_waiters(number);
            }
        }
        if !self.held.is_empty() {
            self.release_held();
        }
        for waiter in &delivery.waiters {
            waiter.settle(delivery.completion());
            self.notify(waiter);
        }
        if self.end.is_some() {
            self.wake.quiet.notify_all();
        }
    }

    /// The thread waits no longer.
    pub(crate) fn remove_waiter(&mut self, word: u64, waiter: &Arc<Waiter>) {
        if let Some(number) = self.table.resolve(word) {
            self.table.slot(number).waiters.retain(|other| !Arc::ptr_eq(other, waiter));
        }
    }

    pub(crate) fn kick(&mut self) {
        if !self.kicked {
            self.kicked = true;
            self.wake.kick();
        }
    }

    fn wake_one_follower(&self) {
        let servant = self.followers.iter().find(|waiter| waiter.serve == Serve::All);
        if let Some(next) = servant.or(self.followers.first()) {
            next.wake.notify_one();
        }
    }
}
