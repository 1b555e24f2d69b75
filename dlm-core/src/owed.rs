//! What a node owes while it may not grant: without its lease (recovery.md R20), or with the numbers of the
//! present view used up (R19).
//!
//! It takes part in recovery, so that the others do not wait for it, but it grants nothing: lock traffic
//! is kept in order, names that are rebuilt stay frozen, a queue that something was set free for is noted.
//!
//! - **Without a lease** it completes nothing either: so also what other masters say waits, the answer that
//!   would make it a master, and what clients are to hear. Clients' calls are refused.
//! - **Without a number** only names it masters are frozen. A client's call on one was accepted: its lock
//!   queues meanwhile, so that it can be cancelled, unlocked or run out of time as any other, and the call
//!   is judged when it is made up for, as if it came then. NOQUEUE calls are no exception: nobody is told
//!   that a lock is held because there is no number.
//!
//! All of it is made up for when the lease is back or the next view's numbers are there, or dropped with a
//! view that this node is not in.

use std::collections::{BTreeSet, VecDeque};

use crate::cluster::Job;
use crate::lock::Owner;
use crate::lockspace::{Context, LockTable};
use crate::message::{Body, Tagged, Traffic};
use crate::seeded::cluster_fault;
use crate::{LockId, LockState, Member, Outbox, Output};

/// What is owed.
#[derive(Clone, Hash, Debug, Default)]
pub(crate) struct Owed {
    /// The lease is over.
    pub(crate) frozen: bool,
    /// A number was wanted and this view has none left.
    pub(crate) spent: bool,
    /// What was to be handled meanwhile, in order.
    kept: VecDeque<Kept>,
    /// Names whose queues were not looked at.
    pub(crate) passes: BTreeSet<u32>,
    /// What clients are to hear: also the end of an unlock by recovery is not delivered before.
    outputs: Vec<Output>,
}

/// Something whose handling could grant or complete something.
#[derive(Clone, Hash, Debug)]
enum Kept {
    Message(Member, Body),
    /// A call on a lock of a name served here; the lock is on the waiting or converting queue.
    Call(LockId),
}

impl Owed {
    /// Gives a message back if it can be handled now, else keeps it.
    pub(crate) fn admit(&mut self, from: Member, body: Body) -> Option<Body> {
        let waits = matches!(body, Body::Traffic(_) | Body::Tagged(_, Tagged::LookupReply { .. }));
        if !self.frozen || !waits {
            return Some(body);
        }
        self.kept.push_back(Kept::Message(from, body));
        None
    }

    /// Keeps an operation on a name served here until there is a number for it.
    #[cold]
    pub(crate) fn keep(&mut self, from: Member, traffic: Traffic) {
        self.kept.push_back(Kept::Message(from, Body::Traffic(traffic)));
    }

    /// The call on a lock will not be made up for; whether one was to be.
    pub(crate) fn forget_call(&mut self, lock: LockId) -> bool {
        let before = self.kept.len();
        self.kept.retain(|kept| !matches!(kept, Kept::Call(of) if *of == lock));
        self.kept.len() < before
    }

    /// Whether there is anything to make up for.
    pub(crate) fn is_due(&self) -> bool {
        !(self.kept.is_empty() && self.passes.is_empty() && self.outputs.is_empty())
    }

    /// Has a client told something, now or when the lease is back.
    pub(crate) fn tell(&mut self, out: &mut Outbox, output: Output) {
        match self.frozen && !cluster_fault("ends-told-without-lease") {
            true => self.outputs.push(output),
            false => out.push(output),
        }
    }

    /// Whether a job can run now.
    pub(crate) fn may_run(&self, job: &Job) -> bool {
        match job {
            Job::Finish { .. } => !self.frozen && !self.spent,
            Job::Settle { .. } => !self.frozen,
            _ => true,
        }
    }
}

impl LockTable {
    /// The lease is over, or back.
    pub(crate) fn set_frozen(&mut self, cx: &mut Context<'_>, frozen: bool) {
        self.cluster.owed.frozen = frozen;
        self.make_up(cx);
    }

    /// A request, or a conversion of a granted lock, that there is no number for.
    #[cold]
    pub(crate) fn owe_call(&mut self, cx: &mut Context<'_>, index: u32) {
        self.lacks_numbers(cx, 1);
        let lock = &mut self.locks[index];
        let (id, resource) = (lock.id, lock.resource);
        debug_assert!(!matches!(lock.owner, Owner::Remote { .. }), "traffic is kept instead");
        lock.since = cx.now.into();
        if lock.state == LockState::Granted {
            self.resources[resource].leave_granted(&mut self.locks, index);
            self.resources[resource].join_converting(&mut self.locks, index);
        } else {
            self.resources[resource].join_waiting(&mut self.locks, index);
        }
        self.note_place(index);
        self.arm_limit(cx, index);
        self.cluster.owed.forget_call(id);
        self.cluster.owed.kept.push_back(Kept::Call(id));
    }

    /// Makes up for what is owed, in order: as if it came now.
    pub(crate) fn make_up(&mut self, cx: &mut Context<'_>) {
        if self.cluster.owed.frozen {
            return;
        }
        for output in core::mem::take(&mut self.cluster.owed.outputs) {
            let client = match &output {
                Output::Complete { client, .. } | Output::Blocking { client, .. } => *client,
                _ => continue,
            };
            if cx.clients.hears(client) {
                cx.out.push(output);
            }
        }
        let ready = !self.is_spent();
        let mut kept = core::mem::take(&mut self.cluster.owed.kept);
        let mut pinned = BTreeSet::new();
        if ready {
            kept.retain(|kept| match kept {
                Kept::Call(lock) => self.take_back(*lock, &mut pinned),
                Kept::Message(..) => true,
            });
        }
        for resource in core::mem::take(&mut self.cluster.owed.passes) {
            // Who is being rebuilt gets its pass at the end of that.
            if self.resources.get(resource).is_some_and(|r| r.role.is_none()) {
                self.pass(cx, resource);
                self.tidy_resource(cx, resource);
            }
        }
        for kept in kept {
            match kept {
                Kept::Message(from, body) => self.take_owed(cx, from, body),
                Kept::Call(lock) if ready => self.call_owed(cx, lock),
                Kept::Call(_) => self.cluster.owed.kept.push_back(kept),
            }
        }
        for resource in pinned {
            self.resources[resource].pinned = false;
            self.tidy_resource(cx, resource);
        }
    }

    /// Takes a lock off its queue, where its call put it only to wait, and keeps its name; false if the
    /// call has ended since.
    fn take_back(&mut self, lock: LockId, pinned: &mut BTreeSet<u32>) -> bool {
        let queued = |index: &u32| self.locks[*index].state != LockState::Granted;
        let Some(index) = self.find_lock(lock).filter(queued) else { return false };
        self.leave_queue(index);
        let lock = &self.locks[index];
        let resource = lock.resource;
        self.resources[resource].pinned = true;
        pinned.insert(resource);
        if lock.state == LockState::Converting {
            self.resources[resource].join_granted(&mut self.locks, index);
        }
        true
    }

    /// Judges a call that was kept.
    fn call_owed(&mut self, cx: &mut Context<'_>, lock: LockId) {
        let Some(index) = self.find_lock(lock) else { return };
        match self.locks[index].state {
            LockState::Waiting => self.request(cx, index),
            _ => self.convert(cx, index),
        }
    }

    /// What came in an older view, or from a member that is lost by now, is void (R1, R2).
    fn take_owed(&mut self, cx: &mut Context<'_>, from: Member, body: Body) {
        let current = match &body {
            Body::Tagged(view, _) => *view == self.cluster.view.id,
            Body::Traffic(_) => true,
        };
        if current && self.cluster.is_member(from) {
            self.on_body(cx, from, body);
        }
    }
}
