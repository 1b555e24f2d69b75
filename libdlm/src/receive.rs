//! From the ring into a queue, and from a queue to the thread that may deliver: see `state.rs`.

use std::collections::VecDeque;
use std::sync::Arc;

use dlm_core::{Errno, Mode};
use dlm_ipc::layout::{LostReason, Notice};

use crate::deliver::{Delivery, What};
use crate::pipeline::Tagged;
use crate::state::{End, Queued, Serve, State, word_of};
use crate::sys;
use crate::table::Target;
use crate::wait::Waiter;

/// An event that was put into a queue.
pub(crate) struct Received {
    slot: u32,
    word: u64,
    /// Whether for a waiting call.
    waited: bool,
}

impl State {
    /// The next event that this thread may deliver. The delivery counts as running until
    /// [`State::finish`].
    pub(crate) fn next(&mut self, serve: Serve, waiter: Option<&Arc<Waiter>>) -> Option<Delivery> {
        self.look_for_loss();
        if self.lease.frozen {
            return None;
        }
        loop {
            if self.end == Some(End::Closed) {
                return None;
            }
            let delivery = match serve {
                Serve::All => self.take_any(),
                Serve::Waited => self.take_waited(waiter),
            };
            if delivery.is_some() {
                return delivery;
            }
            let received = self.receive();
            self.tell_pipeline();
            let received = received?;
            if serve == Serve::Waited {
                self.tell(&received, waiter);
            }
        }
    }

    /// Takes one entry out of the ring into a queue, and tells those whom it concerns; false:
    /// nothing is there.
    pub(crate) fn receive_for_others(&mut self) -> bool {
        let received = self.receive();
        if let Some(received) = &received {
            self.tell(received, None);
        }
        self.tell_pipeline();
        received.is_some()
    }

    /// Takes everything out of the ring on behalf of a pipeline, and tells those whom the rest
    /// concerns.
    pub(crate) fn receive_pipelined(&mut self) {
        self.look_for_loss();
        while let Some(received) = self.receive() {
            self.tell(&received, None);
        }
    }

    /// Puts an event of a living lock into its queue.
    pub(crate) fn queue(&mut self, number: u32, notice: Notice) -> Received {
        let word = word_of(&notice);
        let slot = self.table.slot(number);
        slot.queued += 1;
        let waited = matches!(notice, Notice::Completion { .. }) && !slot.waiters.is_empty();
        let queue = if waited { &mut self.waited } else { &mut self.ready };
        queue.push_back(Queued { number: self.received, notice });
        self.received += 1;
        Received { slot: number, word, waited }
    }

    /// Registers a thread that waits for an operation of a lock. Completions already received are
    /// its business too: they come before its own.
    pub(crate) fn add_waiter(&mut self, number: u32, waiter: &Arc<Waiter>) {
        let slot = self.table.slot(number);
        slot.waiters.push(Arc::clone(waiter));
        if slot.queued == 0 {
            return;
        }
        let table = &self.table;
        let own = |queued: &Queued| match queued.notice {
            Notice::Completion { user, .. } => table.resolve(user) == Some(number),
            _ => false,
        };
        let (moved, kept) = std::mem::take(&mut self.ready).into_iter().partition(own);
        self.ready = kept;
        merge(&mut self.waited, moved);
    }

    /// Events whose lock is not being delivered any more go back to their place.
    pub(crate) fn release_held(&mut self) {
        let table = &self.table;
        let busy = |queued: &Queued| {
            table.resolve(queued.word()).is_some_and(|n| table.peek(n).runner != 0)
        };
        let (kept, freed): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.held).into_iter().partition(busy);
        self.held = kept;
        for queued in freed {
            let Some(number) = self.table.resolve(queued.word()) else { continue };
            let completion = matches!(queued.notice, Notice::Completion { .. });
            let waited = completion && !self.table.peek(number).waiters.is_empty();
            let queue = if waited { &mut self.waited } else { &mut self.ready };
            merge(queue, VecDeque::from([queued]));
        }
    }

    /// Takes one event that needs a thread out of the ring into its queue; those that need none are
    /// dealt with on the way.
    fn receive(&mut self) -> Option<Received> {
        loop {
            if self.end.is_some() || self.lease.frozen {
                return None;
            }
            let notice = match self.ring.pop() {
                Ok(Some(event)) => event.notice().ok(),
                Ok(None) => return None,
                Err(_) => None,
            };
            let Some(notice) = notice else {
                self.end(End::Lost(LostReason::Protocol));
                return None;
            };
            let Some(number) = self.table.resolve(word_of(&notice)) else { continue };
            self.note(number, &notice);
            if !self.pass_on(number, &notice) {
                return Some(self.queue(number, notice));
            }
        }
    }

    /// What is known of a lock as soon as an event of it has arrived.
    fn note(&mut self, number: u32, notice: &Notice) {
        let (Notice::Completion { lkid, .. }
        | Notice::Blocking { lkid, .. }
        | Notice::Refused { lkid, .. }) = *notice;
        self.table.bind(number, lkid);
        let slot = self.table.slot(number);
        match notice {
            Notice::Completion { granted: None, .. } => slot.pending = 0,
            Notice::Completion { .. } | Notice::Refused { .. } => slot.pending -= 1,
            Notice::Blocking { .. } => {}
        }
    }

    /// Events of the pipeline and of nobody need no thread: they are dealt with at once.
    fn pass_on(&mut self, number: u32, notice: &Notice) -> bool {
        let slot = self.table.peek(number);
        if slot.queued > 0 || slot.runner != 0 || !slot.waiters.is_empty() {
            return false;
        }
        let target = self.table.target(number, word_of(notice));
        if !matches!(target, Target::Pipeline(_) | Target::Nobody) {
            return false;
        }
        let queued = Queued { number: self.received, notice: *notice };
        self.received += 1;
        if let Some(delivery) = self.judge(number, &queued, target)
            && let Target::Pipeline(key) = delivery.target
            && let Some(event) = delivery.event()
        {
            self.pipelined.push(Tagged { key, event });
        }
        true
    }

    /// Tells the pipeline's thread that events of its own were received.
    fn tell_pipeline(&mut self) {
        if !self.pipelined.is_empty()
            && let Some(waiter) = self.pipeline.clone()
        {
            self.notify(&waiter);
        }
    }

    /// Tells whom an event concerns that this thread received and may not be able to deliver.
    fn tell(&mut self, received: &Received, me: Option<&Arc<Waiter>>) {
        if !received.waited {
            return self.call_servant();
        }
        let target = self.table.target(received.slot, received.word);
        if me.is_some() && !target.has_callback(false) {
            return; // This thread delivers it next.
        }
        self.notify_waiters(received.slot);
    }

    fn take_any(&mut self) -> Option<Delivery> {
        loop {
            let ready = self.ready.front().map(|queued| queued.number);
            let waited = self.waited.front().map(|queued| queued.number);
            let from_ready = ready.is_some_and(|ready| waited.is_none_or(|waited| ready < waited));
            let queue = if from_ready { &mut self.ready } else { &mut self.waited };
            let queued = queue.pop_front()?;
            if let Some(delivery) = self.take(queued) {
                return Some(delivery);
            }
        }
    }

    fn take_waited(&mut self, me: Option<&Arc<Waiter>>) -> Option<Delivery> {
        let mut place = 0;
        loop {
            let word = self.waited.get(place)?.word();
            let may = self.table.resolve(word).is_none_or(|number| {
                let waiters = &self.table.peek(number).waiters;
                let own = waiters.iter().any(|it| me.is_some_and(|me| Arc::ptr_eq(me, it)));
                own || !self.table.target(number, word).has_callback(false)
            });
            if !may {
                place += 1;
                continue;
            }
            let queued = self.waited.remove(place)?;
            if let Some(delivery) = self.take(queued) {
                return Some(delivery);
            }
        }
    }

    /// Takes an event for this thread; `None`: there is nothing to deliver, or not now.
    fn take(&mut self, queued: Queued) -> Option<Delivery> {
        let word = queued.word();
        let number = self.table.resolve(word)?;
        let me = sys::this_thread();
        let slot = self.table.slot(number);
        if slot.runner != 0 && slot.runner != me {
            self.held.push(queued);
            return None;
        }
        slot.queued -= 1;
        let target = self.table.target(number, word);
        let delivery = self.judge(number, &queued, target);
        if delivery.is_some() {
            self.running.push(me);
            if let Some(number) = self.table.resolve(word) {
                self.table.slot(number).runner = me;
            }
        }
        delivery
    }

    /// Updates what is known of the lock, and says what is to be told.
    fn judge(&mut self, number: u32, queued: &Queued, target: Target) -> Option<Delivery> {
        let word = queued.word();
        let lost = self.lost().is_some();
        let slot = self.table.slot(number);
        let (lkid, outer_runner) = (slot.id, slot.runner);
        let mut waiters = Vec::new();
        let what = match queued.notice {
            Notice::Completion { mut status, sb_flags, mut granted, mut value, token, .. } => {
                if lost && status == 0 {
                    // A grant of a daemon that is gone is none.
                    (status, granted, value) = (Errno::ENOTRECOVERABLE.0, None, None);
                }
                (slot.status, slot.sb_flags, slot.mode) = (status, sb_flags, granted);
                (slot.heard, slot.completed) = (true, queued.number);
                if status == 0 {
                    slot.token = token;
                }
                if !slot.waiters.is_empty() {
                    let ends = |it: &Arc<Waiter>| granted.is_none() || it.ends_with(word);
                    let all = std::mem::take(&mut slot.waiters);
                    (waiters, slot.waiters) = all.into_iter().partition(ends);
                }
                if granted.is_none() {
                    self.table.remove(number);
                }
                What::Completion { status, sb_flags, granted, value, token }
            }
            Notice::Blocking { mode, .. } => {
                if !target.has_callback(true) && !matches!(target, Target::Pipeline(_)) {
                    return None;
                }
                // A completion overtook it, and the lock does not block that mode any more.
                let held = slot.mode.and_then(Mode::from_number);
                let (held, wanted) = (held?, Mode::from_number(mode)?);
                if slot.completed > queued.number && held.compatible(wanted) {
                    return None;
                }
                What::Blocking { mode: wanted }
            }
            Notice::Refused { errno, .. } => {
                if slot.id == 0 {
                    self.table.remove(number);
                }
                What::Refused { errno }
            }
        };
        Some(Delivery { word, lkid, target, what, waiters, outer_runner })
    }
}

/// Inserts events by their order of arrival.
fn merge(queue: &mut VecDeque<Queued>, moved: VecDeque<Queued>) {
    for queued in moved {
        let place = queue.partition_point(|other| other.number < queued.number);
        queue.insert(place, queued);
    }
}
