//! Own locks that moved to a new master, once it has taken their names into service (recovery.md R16):
//! what was in flight is completed or sent again, and what waited for that runs.

use crate::away::{Kind, OpKind};
use crate::cluster::Job;
use crate::lock::Chain;
use crate::lockspace::{Context, LockTable};
use crate::message::Flight;
use crate::mode::{ValueMove, value_move};
use crate::recover::{JOB_PART, WORK_PART};
use crate::seeded::cluster_fault;
use crate::{Member, Status, ViewId};

impl LockTable {
    /// The new master took the names it rebuilt up to round `round` into service: own locks are
    /// settled with it, and what waited for that runs, in order of submission (R16).
    pub(crate) fn on_thawed(&mut self, from: Member, round: ViewId) {
        if from != self.cluster.me {
            self.cluster.jobs.push_back(Job::Settle { master: from, round, from: 1 });
        }
    }

    pub(crate) fn job_settle(
        &mut self,
        cx: &mut Context<'_>,
        master: Member,
        round: ViewId,
        from: u32,
    ) -> Option<Job> {
        let mut end = self.resources.end().min(from.saturating_add(JOB_PART));
        let mut settled = 0;
        for resource in from..end {
            if settled >= WORK_PART {
                end = resource;
                break;
            }
            let role = self.resources.get(resource).and_then(|r| r.role.as_deref());
            let due = role.is_some_and(|role| {
                let mut own = role.own.iter(&self.locks, Chain::Resource);
                own.any(|lock| self.locks[lock].away().is_some_and(|away| away.moving.is_some()))
            });
            if !due {
                continue;
            }
            settled += 1;
            for index in self.own_locks(resource) {
                self.settle_with(cx, index, master, round);
            }
            self.refuse_settled(cx, resource);
            self.tidy_role(cx, resource);
        }
        if end < self.resources.end() {
            return Some(Job::Settle { master, round, from: end });
        }
        // Only now: until it was looked at, a record may have been sent once more to who serves already.
        self.cluster.marks.thaws_due.remove(&master);
        None
    }

    /// Settles one own lock with its new master, if that master thawed it.
    fn settle_with(&mut self, cx: &mut Context<'_>, index: u32, master: Member, round: ViewId) {
        let away = self.locks[index].away_mut().expect("an own lock is away");
        let sent = away.moving.and_then(|moving| moving.sent);
        if sent.is_some_and(|(to, since)| to == master && since <= round) {
            let flight = away.moving.take().map_or(Flight::Nothing, |moving| moving.flight);
            self.settle(cx, index, flight);
        }
    }

    /// Traffic about a lock that is still between two masters: the new one speaks only after its thaw,
    /// so the lock is settled first. False: no thaw was heard that is about the record it has. Then it
    /// spoke before it gave the name up, by slot, and was given it again; that is void (R16).
    pub(crate) fn settle_early(&mut self, cx: &mut Context<'_>, index: u32) -> bool {
        let Some(moving) = self.locks[index].away().and_then(|away| away.moving) else {
            return true;
        };
        let thawed = moving.sent.is_some_and(|(to, since)| {
            self.cluster.jobs.iter().any(|job| match job {
                Job::Settle { master, round, .. } => *master == to && *round >= since,
                _ => false,
            })
        });
        if !thawed && !cluster_fault("word-before-thaw-settles") {
            return false;
        }
        let away = self.locks[index].away_mut().expect("looked up above");
        away.moving = None;
        let resource = self.locks[index].resource;
        self.settle(cx, index, moving.flight);
        self.refuse_settled(cx, resource);
        self.locks.get(index).is_some()
    }

    /// Whoever asked this node while its own locks were between masters asked the wrong one (R10).
    fn refuse_settled(&mut self, cx: &mut Context<'_>, resource: u32) {
        let role = self.resources.get(resource).and_then(|r| r.role.as_deref());
        let settled = role.is_some_and(|role| {
            let remote = matches!(role.kind, Kind::Remote { .. }) && !role.claimed;
            remote && !role.parked.is_empty()
        });
        if settled && !self.is_moving(resource) {
            self.refuse_parked(cx, resource);
        }
    }

    /// A moved lock has a master again. `told` is what its record said was in flight.
    pub(crate) fn settle(&mut self, cx: &mut Context<'_>, index: u32, told: Flight) {
        let role = self.resources[self.locks[index].resource].role.as_deref();
        let term = match role.map(|role| &role.kind) {
            // By slot a life of the name has its number from the locks themselves.
            Some(Kind::Remote { term, .. }) if !self.cluster.layout.nodir => Some(*term),
            _ => None,
        };
        let lock = &mut self.locks[index];
        let granted = lock.granted;
        let away = lock.away_mut().expect("only away locks move");
        away.term = term.unwrap_or(away.term);
        match away.op.map(|op| op.kind) {
            Some(OpKind::Unlock) if told == Flight::Unlock => {
                let resource = self.locks[index].resource;
                self.leave_own(resource, index);
                self.end(cx, index, Status::Unlocked);
            }
            Some(OpKind::Convert(mode))
                if told == Flight::Convert(mode)
                    && granted.is_some_and(|held| held.is_down(mode)) =>
            {
                away.op = None;
                if value_move(granted, mode) == ValueMove::Write {
                    lock.count_as_written();
                }
                self.complete_lowered(cx, index, mode);
                self.run_noted(cx, index);
            }
            Some(OpKind::Convert(_)) => self.send_raising(cx, index, told),
            Some(_) => self.send_op(cx, index),
            None => self.run_noted(cx, index),
        }
    }

    /// A raising conversion is sent again, unless it was cancelled or unlocked meanwhile. Where the new
    /// master was told of it, it may count it as done: then it decides about the cancel too (6.3).
    fn send_raising(&mut self, cx: &mut Context<'_>, index: u32, told: Flight) {
        let known = matches!(told, Flight::Convert(_)) && !cluster_fault("known-raise-cancelled");
        let away = self.locks[index].away_mut().expect("only away locks move");
        if !away.noted_unlock && (known || !away.noted_cancel) {
            let cancelled = core::mem::take(&mut away.noted_cancel);
            self.send_op(cx, index);
            if cancelled {
                self.away_cancel(cx, index);
            }
            return;
        }
        away.op = None;
        let unlock = core::mem::take(&mut away.noted_unlock);
        away.noted_cancel = false;
        let lock = &mut self.locks[index];
        lock.requested = None;
        if unlock {
            return self.start(cx, index, OpKind::Unlock);
        }
        let granted = lock.granted;
        let status = self.take_cancel_status(index);
        self.report(cx, index, status, granted);
    }
}
