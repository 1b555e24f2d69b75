//! The path of a request: ring, core, ring.
//!
//! Nothing here allocates in normal life, and nothing depends on how many clients or locks exist.

use dlm_core::{
    Call, ClientId, Convert, Errno, Input, Instant, LockCall, LockFlags, LockId, Output, Request,
    Unlock,
};
use dlm_ipc::layout::{CallArgs, Operation, Submission};
use dlm_ipc::ring::Corrupt;

use super::reactor::{End, Reactor};
use crate::ipc::peer::{Handle, Peer, Stage, Ticket};
use crate::ipc::table::Table;

/// Submissions taken from all clients in a turn, as long as they are not very many: a turn then lasts
/// a few milliseconds at most.
const ENTRIES_PER_TURN: usize = 8192;
/// Most that are taken from one client.
const ENTRIES_PER_CLIENT_MAX: usize = 256;
/// Least that are taken from one client.
const ENTRIES_PER_CLIENT_MIN: usize = 8;

/// What taking one submission came to.
enum Taken {
    /// One was served; there may be more.
    One,
    /// There is none.
    None,
    /// The client has to take its answers first.
    HeldBack,
    /// The client is no handle, or ends.
    Over,
}

impl Reactor {
    /// A client rang.
    pub(super) fn activate(&mut self, id: ClientId) {
        let Some(handle) = handle_mut(&mut self.peers, id) else { return };
        let unloaded = handle.unload();
        if !std::mem::replace(&mut handle.active, true) {
            handle.side.submissions.awake();
            self.queues.active.push(id);
        }
        if handle.dirty {
            self.queues.dirty.push(id);
        }
        self.judge(id, unloaded);
    }

    /// Takes from every active client up to a bound; nothing while the node is frozen.
    pub(super) fn serve_rings(&mut self) {
        if self.is_frozen() {
            return;
        }
        let active = self.queues.active.len();
        let share = ENTRIES_PER_TURN / active.max(1);
        let share = share.clamp(ENTRIES_PER_CLIENT_MIN, ENTRIES_PER_CLIENT_MAX);
        for index in 0..active {
            let id = self.queues.active[index];
            for _ in 0..share {
                match self.take_submission(id, true) {
                    Taken::One => {}
                    Taken::None | Taken::HeldBack | Taken::Over => break,
                }
            }
        }
    }

    /// Serves what a client has submitted before it ends, so that an unlock on its way is not lost.
    pub(super) fn serve_rest(&mut self, id: ClientId) {
        for _ in 0..ENTRIES_PER_CLIENT_MAX {
            if !matches!(self.take_submission(id, false), Taken::One) {
                return;
            }
        }
    }

    /// Before sleeping: every client that was active and has nothing more is armed.
    pub(super) fn arm(&mut self) {
        let mut active = std::mem::take(&mut self.queues.active);
        active.retain(|id| {
            let events_max = self.policy.events_max;
            let Some(handle) = handle_mut(&mut self.peers, *id) else { return false };
            // Who is held back rings when it has taken its answers.
            let idle = handle.is_held_back(events_max) || handle.side.submissions.prepare_sleep();
            handle.active = !idle;
            !idle
        });
        self.queues.active = active;
    }

    /// Makes everything visible that was pushed in this turn, or since the node froze (recovery.md
    /// R20).
    pub(super) fn flush(&mut self) {
        if self.is_frozen() {
            return;
        }
        let mut dirty = std::mem::take(&mut self.queues.dirty);
        for id in dirty.drain(..) {
            let Some(handle) = handle_mut(&mut self.peers, id) else { continue };
            match handle.flush() {
                Ok(true) => {}
                Ok(false) => self.activate(id),
                Err(corrupt) => self.judge(id, Err(corrupt)),
            }
        }
        // `activate` may have found more to make visible; that is the next turn's.
        dirty.append(&mut self.queues.dirty);
        self.queues.dirty = dirty;
    }

    #[inline]
    fn take_submission(&mut self, id: ClientId, answers_count: bool) -> Taken {
        let events_max = self.policy.events_max;
        let Some(handle) = handle_mut(&mut self.peers, id) else { return Taken::Over };
        if answers_count && handle.is_held_back(events_max) {
            return Taken::HeldBack;
        }
        let entry = match handle.side.submissions.pop() {
            Ok(Some(entry)) => entry,
            Ok(None) => return Taken::None,
            Err(corrupt) => {
                self.judge(id, Err(corrupt));
                return Taken::Over;
            }
        };
        let request = match request(&entry) {
            Ok(request) => request,
            Err(bad) => {
                self.tell_fault(id, "ended", &bad);
                self.doom(id, End::Fault);
                return Taken::Over;
            }
        };
        let ticket = Ticket::from(&entry);
        let asks = matches!(request, Request::Lock(_) | Request::Convert(_));
        if asks && handle.events_waiting() >= events_max {
            self.refuse(id, ticket, Errno::ENOMEM);
            return Taken::One;
        }
        self.pace.ask(matches!(request, Request::Unlock(_)));
        handle.due.push_back(ticket);
        self.node.step(Instant(self.now), Input::Client(id, request), &mut self.outbox);
        self.carry_out();
        Taken::One
    }

    fn refuse(&mut self, id: ClientId, ticket: Ticket, errno: Errno) {
        self.counters.refused(errno.0);
        self.with_handle(id, |handle| handle.answer(ticket, Err(errno.0)));
    }

    /// Does what the core said, in its order, until nothing is left to do.
    pub(super) fn carry_out(&mut self) {
        loop {
            let mut outbox = std::mem::take(&mut self.outbox);
            for output in outbox.drain() {
                self.perform(output);
            }
            self.outbox = outbox;
            if !std::mem::take(&mut self.queues.news) {
                return;
            }
            self.take_news();
        }
    }

    #[inline]
    fn perform(&mut self, output: Output) {
        match output {
            Output::Reply { client, result } => self.on_reply(client, result),
            Output::Complete { client, completion } => {
                self.with_handle(client, |handle| handle.complete(&completion));
            }
            Output::Blocking { client, blocking } => {
                self.with_handle(client, |handle| handle.blocking(&blocking));
            }
            Output::Join { lockspace, name, member, .. } => {
                self.membership.join(lockspace, &name, member);
                (self.queues.news, self.queues.report) = (true, true);
                self.on_join(lockspace, &name);
            }
            Output::NeedView { lockspace } => {
                let Some(info) = self.node.lockspace(lockspace) else { return };
                self.membership.renew(lockspace, info.member);
                (self.queues.news, self.queues.report) = (true, true);
            }
            Output::Send { to, message } => self.send_to_member(to, &message),
            // Reports name the installed view.
            Output::Acknowledge { .. } => self.queues.report = true,
            Output::Lost { client, reason } => self.lose(client, reason),
            Output::Leave { lockspace, name } => {
                self.membership.leave(lockspace, &name);
                self.queues.report = true;
                self.on_leave(lockspace, &name);
            }
        }
    }

    #[inline]
    fn on_reply(&mut self, id: ClientId, result: Result<LockId, Errno>) {
        let lock = match result {
            Ok(lock) => lock.0,
            Err(errno) => return self.on_refusal(id, errno),
        };
        let answered = self.with_handle(id, |handle| match handle.due.pop_front() {
            Some(ticket) => handle.answer(ticket, Ok(lock)),
            None => Ok(()),
        });
        if !answered {
            self.on_slow_reply(id, result);
        }
    }

    #[cold]
    fn on_refusal(&mut self, id: ClientId, errno: Errno) {
        let Some(handle) = handle_mut(&mut self.peers, id) else {
            return self.on_slow_reply(id, Err(errno));
        };
        let Some(ticket) = handle.due.pop_front() else { return };
        let (pid, name) = (self.pid(id), errno.name());
        tracing::debug!(pid, "request on lock {:08x} refused: {name}", ticket.lkid);
        self.refuse(id, ticket, errno);
    }

    /// Changes a handle, if there is one of this name; notes that it has something to make visible, or
    /// that it broke the rules.
    #[inline]
    fn with_handle(
        &mut self,
        id: ClientId,
        act: impl FnOnce(&mut Handle) -> Result<(), Corrupt>,
    ) -> bool {
        let Some(handle) = handle_mut(&mut self.peers, id) else { return false };
        let was_dirty = handle.dirty;
        let result = act(handle);
        if handle.dirty && !was_dirty {
            self.queues.dirty.push(id);
        }
        if result.is_err() {
            self.judge(id, result);
        }
        true
    }

    /// Ends a client that broke its rings.
    #[inline]
    fn judge(&mut self, id: ClientId, result: Result<(), Corrupt>) {
        if let Err(corrupt) = result {
            self.tell_fault(id, "ended", &corrupt);
            self.doom(id, End::Fault);
        }
    }

    /// Logs that a client broke a rule, and what came of it.
    #[cold]
    pub(super) fn tell_fault(&mut self, id: ClientId, outcome: &str, why: &dyn std::fmt::Display) {
        let pid = self.pid(id);
        match self.counters.fault(self.now) {
            Some(0) => tracing::warn!(pid, "client {outcome}: {why}"),
            Some(more) => tracing::warn!(pid, "client {outcome}: {why} ({more} others before)"),
            None => {}
        }
    }

    /// A connection's process id, for the log.
    pub(super) fn pid(&self, id: ClientId) -> u32 {
        self.peers.get(id).map_or(0, |peer| peer.who.pid)
    }
}

/// The open handle of this name.
#[inline]
pub(super) fn handle_mut(peers: &mut Table<Peer>, id: ClientId) -> Option<&mut Handle> {
    match &mut peers.get_mut(id)?.stage {
        Stage::Handle(handle) => Some(handle),
        _ => None,
    }
}

/// A submission in the core's words.
#[inline]
fn request(entry: &Submission) -> Result<Request<'_>, dlm_ipc::layout::BadSubmission> {
    Ok(match entry.operation()? {
        Operation::Lock { call: args, name } => Request::Lock(LockCall { call: call(&args), name }),
        Operation::Convert { call: args, lkid, value } => {
            Request::Convert(Convert { call: call(&args), lock: LockId(lkid), value })
        }
        Operation::Unlock { lkid, flags, user, value } => {
            Request::Unlock(Unlock { lock: LockId(lkid), flags: LockFlags(flags), user, value })
        }
        Operation::DeadlockCancel { lkid, flags } => {
            Request::DeadlockCancel { lock: LockId(lkid), flags: LockFlags(flags) }
        }
        Operation::Purge { node, pid } => Request::Purge { node, pid },
    })
}

#[inline]
fn call(args: &CallArgs) -> Call {
    Call {
        mode: args.mode,
        flags: LockFlags(args.flags),
        user: args.user,
        xid: args.xid,
        timeout_cs: args.timeout_cs,
        wants_blocking: args.wants_blocking,
    }
}
