//! Lock traffic between a master and an owner (semantics.md 4.3, 7.4): the master runs the same
//! operations for a copy of another member's lock as for its own clients' locks.

use crate::away::{Kind, Op, OpKind, Role};
use crate::lock::{Lock, Owner};
use crate::lockspace::{Context, LockTable};
use crate::message::{Outcome, Standing, Traffic};
use crate::nodir::Visit;
use crate::seeded::cluster_fault;
use crate::{
    Call, LockFlags, LockId, LockState, Member, Mode, Name, SbFlags, Status, VALUE_BYTES, Value,
    ViewId,
};

impl LockTable {
    /// Lock traffic from another member, or from oneself.
    pub(crate) fn on_traffic(&mut self, cx: &mut Context<'_>, from: Member, traffic: Traffic) {
        if !cluster_fault("early-traffic-dropped")
            && let Some(resource) = self.rebuilt_for(from, &traffic)
            && let Some(role) = &mut self.resources[resource].role
        {
            return role.parked.push((from, traffic));
        }
        match traffic {
            Traffic::Request { ref name, lock, seq, mode, flags, pid, view } => {
                let name = name.clone();
                match self.reception(cx, &name, view) {
                    Reception::Serve if self.lacks_numbers(cx, 1) => {
                        self.cluster.owed.keep(from, traffic);
                    }
                    Reception::Serve => {
                        self.on_request(cx, from, &name, lock, seq, mode, flags, pid);
                    }
                    Reception::Park(resource) => {
                        if let Some(role) = &mut self.resources[resource].role {
                            role.parked.push((from, traffic));
                        }
                    }
                    Reception::Refuse => {
                        self.send_traffic(cx, from, Traffic::NotMaster { lock, seq });
                    }
                    Reception::Void => {}
                }
            }
            Traffic::Convert { to, lock, seq, mode, flags, value, silent } => {
                let Some(index) = self.copy_of(from, to, lock) else { return };
                if self.lacks_numbers(cx, 1) {
                    return self.cluster.owed.keep(from, traffic);
                }
                let answer = if silent { Answer::Silent } else { Answer::Due { index, seq } };
                self.on_convert(cx, index, mode, flags, value, answer);
            }
            Traffic::Unlock { to, lock, seq, flags, value } => {
                let Some(index) = self.copy_of(from, to, lock) else {
                    return self.answer_unknown(cx, from, lock, seq, Outcome::Unlocked);
                };
                if self.lacks_numbers(cx, 1) {
                    return self.cluster.owed.keep(from, traffic); // behind a conversion, perhaps
                }
                let copy = &mut self.locks[index];
                copy.flags = flags;
                copy.sb_flags = SbFlags(0);
                if value.is_some() {
                    copy.rare().value = value;
                }
                cx.answer = Answer::Due { index, seq };
                self.unlock(cx, index);
                cx.answer = Answer::None;
            }
            Traffic::Cancel { to, lock, seq } => {
                let Some(index) = self.copy_of(from, to, lock) else {
                    return self.answer_unknown(cx, from, lock, seq, Outcome::NothingToCancel);
                };
                if self.lacks_numbers(cx, 1) {
                    return self.cluster.owed.keep(from, traffic);
                }
                self.locks[index].sb_flags = SbFlags(0);
                cx.answer = Answer::Due { index, seq };
                self.cancel(cx, index, Status::Cancelled);
                self.answer_rest(cx, Outcome::NothingToCancel);
            }
            Traffic::Reply { lock, from: id, seq, outcome, now } => {
                match self.answered_lock(from, lock) {
                    Some(index) => self.on_reply(cx, index, id, seq, outcome, &now),
                    None => self.give_back(cx, from, lock, id, outcome),
                }
            }
            Traffic::Grant { lock, now } => {
                if let Some(index) = self.answered_lock(from, lock)
                    && self.settle_early(cx, index)
                {
                    self.on_grant(cx, index, &now);
                }
            }
            Traffic::Blocking { lock, mode } => {
                if let Some(index) = self.answered_lock(from, lock)
                    && self.settle_early(cx, index)
                {
                    self.locks[index].told = mode;
                    self.block(cx, index, mode);
                }
            }
            Traffic::NotMaster { lock, seq } => self.on_not_master(cx, from, lock, seq),
            Traffic::Recorded { lock, id } => self.on_recorded(cx, from, lock, id),
            Traffic::Purge { pid } => self.purge_orphans(cx, pid),
            Traffic::Thawed { round } => self.on_thawed(from, round),
        }
    }

    /// What to do with a request for a name (R10).
    fn reception(&mut self, cx: &mut Context<'_>, name: &Name, view: ViewId) -> Reception {
        if self.cluster.layout.nodir {
            return match self.visit(cx, name, view) {
                Visit::Serve => Reception::Serve,
                Visit::Park(resource) => Reception::Park(resource),
                Visit::Void => Reception::Void,
            };
        }
        let Some(resource) = self.find_resource(name.as_bytes()) else { return Reception::Refuse };
        match self.resources[resource].role.as_deref() {
            None => Reception::Serve,
            // The answer to its claim may be behind, and say that this node is the master by now.
            Some(Role { kind: Kind::Remote { .. }, claimed, .. })
                if *claimed || self.is_moving(resource) =>
            {
                Reception::Park(resource)
            }
            Some(Role { kind: Kind::Remote { .. } | Kind::Leaving, .. }) => Reception::Refuse,
            Some(_) => Reception::Park(resource),
        }
    }

    #[allow(clippy::too_many_arguments)] // the fields of one message
    fn on_request(
        &mut self,
        cx: &mut Context<'_>,
        from: Member,
        name: &Name,
        lock: LockId,
        seq: u32,
        mode: Mode,
        flags: LockFlags,
        pid: u32,
    ) {
        let Some(resource) = self.resource_of(cx, name.as_bytes()) else { return };
        let call = Call { flags, wants_blocking: true, ..Call::default() };
        let index = self.new_copy(cx, from, lock, resource, Some(mode), &call, pid);
        cx.answer = Answer::Due { index, seq };
        self.request(cx, index);
        self.answer_rest(cx, Outcome::Queued);
    }

    fn on_convert(
        &mut self,
        cx: &mut Context<'_>,
        index: u32,
        mode: Mode,
        flags: LockFlags,
        value: Option<Value>,
        answer: Answer,
    ) {
        if self.locks[index].state != LockState::Granted {
            // An owner converts granted locks only. It does not know that the lost master had queued it.
            cx.answer = if cluster_fault("queued-unsaid") { Answer::None } else { answer };
            return self.answer_rest(cx, Outcome::Queued);
        }
        self.change_granted(index, |lock| lock.requested = Some(mode));
        let copy = &mut self.locks[index];
        copy.flags = flags;
        copy.sb_flags = SbFlags(0);
        if value.is_some() {
            copy.rare().value = value;
        }
        cx.answer = answer;
        self.convert(cx, index);
        self.answer_rest(cx, Outcome::Queued);
    }

    /// Makes the master's copy of another member's lock; on no queue yet.
    #[allow(clippy::too_many_arguments)] // the fields of a record
    pub(crate) fn new_copy(
        &mut self,
        cx: &mut Context<'_>,
        owner: Member,
        id: LockId,
        resource: u32,
        requested: Option<Mode>,
        call: &Call,
        pid: u32,
    ) -> u32 {
        let peer = self.cluster.peer(owner);
        let owner = Owner::Remote { peer, id };
        let index = self.new_record(cx, owner, resource, requested, call, pid);
        if call.flags.has(LockFlags::VALBLK) {
            self.locks[index].rare().value = Some([0; VALUE_BYTES]);
        }
        index
    }

    /// The name of an operation on a lock whose record this node has and does not serve yet: the owner
    /// heard of the thaw before this node came to the name. The operation waits for that (R15).
    fn rebuilt_for(&self, from: Member, traffic: &Traffic) -> Option<u32> {
        let (to, lock) = match traffic {
            Traffic::Convert { to, lock, .. }
            | Traffic::Unlock { to, lock, .. }
            | Traffic::Cancel { to, lock, .. } => (*to, *lock),
            _ => return None,
        };
        let index = self.record_of_peer(from, to, lock).filter(|index| !self.is_served(*index))?;
        Some(self.locks[index].resource)
    }

    fn is_served(&self, index: u32) -> bool {
        self.resources[self.locks[index].resource].role.is_none()
    }

    /// The copy of this member's lock under this id, where the name is served.
    fn copy_of(&self, from: Member, to: LockId, id: LockId) -> Option<u32> {
        self.record_of_peer(from, to, id).filter(|index| self.is_served(*index))
    }

    /// What is kept here of this member's lock under this id.
    fn record_of_peer(&self, from: Member, to: LockId, id: LockId) -> Option<u32> {
        let index = self.find_lock(to)?;
        let Owner::Remote { peer, id: of } = self.locks[index].owner else { return None };
        let owner = self.cluster.peers.get(usize::from(peer))?.member;
        (owner == from && of == id).then_some(index)
    }

    /// An own lock that `from` is the present master of (R3).
    fn answered_lock(&self, from: Member, id: LockId) -> Option<u32> {
        let index = self.find_lock(id)?;
        let away = self.locks[index].away()?;
        (away.master == Some(from)).then_some(index)
    }

    fn answer_unknown(
        &mut self,
        cx: &mut Context<'_>,
        to: Member,
        lock: LockId,
        seq: u32,
        outcome: Outcome,
    ) {
        let nodir = self.cluster.directory.nodir.as_deref();
        if nodir.is_some_and(|nodir| nodir.was_dropped(to, lock)) {
            return;
        }
        let now = Standing {
            granted: None,
            sb_flags: SbFlags(0),
            value: None,
            seen: false,
            marked: false,
            value_seq: 0,
            token: crate::Token(0),
            term: crate::Token(0),
            place: 0,
        };
        let reply = Traffic::Reply { lock, from: LockId(0), seq, outcome, now };
        self.send_traffic(cx, to, reply);
    }

    /// Answers an operation that nothing was reported for: it was queued, or found nothing to do.
    fn answer_rest(&mut self, cx: &mut Context<'_>, outcome: Outcome) {
        if let Answer::Due { index, seq } = core::mem::take(&mut cx.answer) {
            self.reply_to_owner(cx, index, seq, outcome);
        }
    }

    /// A copy's operation ended: the reply to the operation being run, or a grant out of the queue.
    pub(crate) fn report_to_peer(
        &mut self,
        cx: &mut Context<'_>,
        index: u32,
        status: Status,
        granted: Option<Mode>,
    ) {
        let outcome = match status {
            Status::Granted => Outcome::Granted,
            Status::Again => Outcome::Again,
            Status::Deadlock => Outcome::Deadlock,
            Status::Cancelled | Status::TimedOut => Outcome::Cancelled,
            Status::Unlocked => Outcome::Unlocked,
        };
        match cx.answer {
            Answer::Due { index: due, seq } if due == index => {
                cx.answer = Answer::None;
                self.reply_to_owner(cx, index, seq, outcome);
            }
            Answer::Silent if status == Status::Granted && granted.is_some() => {
                cx.answer = Answer::None;
            }
            _ if status == Status::Granted => {
                let (to, id, now) = self.standing_for_owner(index);
                self.send_traffic(cx, to, Traffic::Grant { lock: id, now });
            }
            _ => {}
        }
    }

    fn reply_to_owner(&mut self, cx: &mut Context<'_>, index: u32, seq: u32, outcome: Outcome) {
        let from = self.locks[index].id;
        let (to, lock, now) = self.standing_for_owner(index);
        self.send_traffic(cx, to, Traffic::Reply { lock, from, seq, outcome, now });
    }

    fn standing_for_owner(&mut self, index: u32) -> (Member, LockId, Standing) {
        let lock = &self.locks[index];
        let Owner::Remote { peer, id } = lock.owner else {
            panic!("only another member's lock is reported to a peer")
        };
        let head = lock.state != LockState::Granted && lock.flags.has(LockFlags::HEADQUE);
        let place = self.cluster.next_place(head);
        let lock = &self.locks[index];
        let member = self.cluster.peers[usize::from(peer)].member;
        let now = Standing {
            granted: lock.granted,
            sb_flags: lock.sb_flags,
            value: lock.value().filter(|_| lock.flags.has(LockFlags::VALBLK)).copied(),
            seen: lock.rare.as_ref().is_some_and(|r| r.seen.is_some() && r.seen == r.value),
            marked: lock.rare.as_ref().is_some_and(|rare| rare.marked),
            value_seq: lock.value_seq(),
            token: lock.token,
            term: self.resources[lock.resource].term,
            place,
        };
        (member, id, now)
    }

    /// A member has a lock of this node that this node does not want of it: the request was parked there
    /// while the name was looked up, this node became the name's master itself meanwhile and served it,
    /// and forgot the name before the other was given it (R10).
    fn give_back(
        &mut self,
        cx: &mut Context<'_>,
        to: Member,
        lock: LockId,
        id: LockId,
        outcome: Outcome,
    ) {
        let taken = id.0 != 0 && matches!(outcome, Outcome::Granted | Outcome::Queued);
        // By slot it is the master that drops what was sent in another view.
        if taken && !self.cluster.layout.nodir && !cluster_fault("strays-kept") {
            let flags = LockFlags::FORCEUNLOCK;
            let unlock = Traffic::Unlock { to: id, lock, seq: 0, flags, value: None };
            self.send_traffic(cx, to, unlock);
        }
    }

    /// The answer to an operation of an own lock.
    fn on_reply(
        &mut self,
        cx: &mut Context<'_>,
        index: u32,
        id: LockId,
        seq: u32,
        outcome: Outcome,
        now: &Standing,
    ) {
        let away = self.locks[index].away_mut().expect("looked up as an away lock");
        if id.0 != 0 {
            away.master_id = id;
        }
        let beside = away.beside.unwrap_or_default();
        if seq != 0 && beside.unlock == seq {
            return self.end_away(cx, index, Some(Status::Unlocked));
        }
        if seq != 0 && beside.cancel == seq {
            away.beside = Some(crate::away::Beside { cancel: 0, ..beside })
                .filter(|beside| beside.unlock != 0);
            return self.on_cancel_answer(cx, index, outcome, now);
        }
        let Some(op) = away.op.filter(|op| op.seq == seq && seq != 0) else { return };
        // What was sent beside it is waited for from now on: an unlock as the operation itself, a
        // cancel only if there is still something to cancel.
        let queued = outcome == Outcome::Queued;
        let cancel = if queued || op.kind != OpKind::Request { beside.cancel } else { 0 };
        let cancel = if outcome == Outcome::Granted { 0 } else { cancel };
        (away.op, away.beside) = match (beside.unlock, cancel) {
            (0, 0) => (None, None),
            (0, cancel) if queued => (Some(Op { kind: OpKind::Cancel, seq: cancel }), None),
            (0, _) => (None, None),
            (unlock, 0) => (Some(Op { kind: OpKind::Unlock, seq: unlock }), None),
            (unlock, cancel) => {
                let rest = crate::away::Beside { cancel, unlock: 0 };
                (Some(Op { kind: OpKind::Unlock, seq: unlock }), Some(rest))
            }
        };
        match (op.kind, outcome) {
            (_, Outcome::Unlocked) => self.end_away(cx, index, Some(Status::Unlocked)),
            (OpKind::Cancel, _) => self.on_cancel_answer(cx, index, outcome, now),
            (OpKind::Request, Outcome::Again) => {
                self.locks[index].sb_flags = now.sb_flags;
                self.end_away(cx, index, Some(Status::Again));
            }
            (OpKind::Request, Outcome::Queued) => {
                self.take_standing(index, now);
                self.run_noted(cx, index);
            }
            (OpKind::Convert(mode), Outcome::Queued) => {
                self.take_standing(index, now);
                let lock = &mut self.locks[index];
                lock.requested = Some(mode);
                lock.state = LockState::Converting;
                lock.since = cx.now.into();
                self.run_noted(cx, index);
            }
            (_, Outcome::Granted) => {
                self.granted_away(cx, index, now);
                // A cancel that came too late evaporates.
                if let Some(away) = self.locks[index].away_mut() {
                    away.noted_cancel = false;
                    away.cancel_status = None;
                }
                self.run_noted(cx, index);
            }
            (_, Outcome::Deadlock | Outcome::Again) => {
                let status = match outcome {
                    Outcome::Deadlock => Status::Deadlock,
                    _ => Status::Again,
                };
                self.take_standing(index, now);
                self.locks[index].requested = None;
                let granted = self.locks[index].granted;
                self.report(cx, index, status, granted);
                if let Some(away) = self.locks[index].away_mut() {
                    away.noted_cancel = false;
                }
                self.run_noted(cx, index);
            }
            _ => {}
        }
    }

    fn on_cancel_answer(
        &mut self,
        cx: &mut Context<'_>,
        index: u32,
        outcome: Outcome,
        now: &Standing,
    ) {
        if outcome != Outcome::Cancelled {
            return self.run_noted(cx, index);
        }
        let status = self.take_cancel_status(index);
        if self.locks[index].state == LockState::Waiting {
            self.locks[index].sb_flags = now.sb_flags;
            return self.end_away(cx, index, Some(status));
        }
        self.take_standing(index, now);
        let lock = &mut self.locks[index];
        lock.sb_flags = now.sb_flags;
        lock.state = LockState::Granted;
        lock.requested = None;
        lock.since = cx.now.into();
        let granted = lock.granted;
        self.report(cx, index, status, granted);
        self.run_noted(cx, index);
    }

    /// A queued lock was granted by its master.
    fn on_grant(&mut self, cx: &mut Context<'_>, index: u32, now: &Standing) {
        if self.locks.get(index).is_none() {
            return;
        }
        let waits = self.locks[index].state != LockState::Granted
            || self.locks[index].away().is_some_and(|away| away.op.is_some());
        if waits {
            // A conversion that the lost master had done is completed by its successor's grant.
            if let Some(away) = self.locks[index].away_mut() {
                away.op = away.op.filter(|op| !matches!(op.kind, OpKind::Convert(_)));
            }
            self.granted_away(cx, index, now);
        }
    }

    /// An own lock was granted: the owner hears of it.
    pub(crate) fn granted_away(&mut self, cx: &mut Context<'_>, index: u32, now: &Standing) {
        self.take_standing(index, now);
        let lock = &mut self.locks[index];
        lock.state = LockState::Granted;
        lock.requested = None;
        lock.told = Mode::NL;
        lock.since = cx.now.into();
        let granted = lock.granted;
        cx.counters.grants += 1;
        self.report(cx, index, Status::Granted, granted);
    }

    fn take_standing(&mut self, index: u32, now: &Standing) {
        let resource = self.locks[index].resource;
        if let Some(Role { kind: Kind::Remote { term, .. }, .. }) =
            self.resources[resource].role.as_deref_mut()
        {
            *term = (*term).max(now.term);
        }
        let lock: &mut Lock = &mut self.locks[index];
        if lock.granted.is_none_or(|mode| mode <= Mode::CR)
            && let Some(rare) = &mut lock.rare
        {
            rare.current = false;
        }
        lock.granted = now.granted;
        let demotion =
            if cluster_fault("demotion-forgotten") { SbFlags(0) } else { lock.demotion() };
        lock.sb_flags = now.sb_flags | demotion;
        lock.saw_value_seq(now.value_seq);
        // A master that took the lock over does not know it (R18).
        lock.token = lock.token.max(now.token);
        let parting = lock.away().is_some_and(|away| away.parting)
            && !cluster_fault("parting-bytes-overwritten");
        if now.value.is_some() && lock.value().is_some() && !parting {
            lock.rare().value = now.value;
            if let Some(away) = lock.away_mut() {
                away.given = false;
            }
        }
        if now.seen && now.value.is_some() {
            lock.rare().seen = now.value;
            lock.rare().current = true;
            lock.rare().marked = now.marked;
        }
        if let Some(away) = lock.away_mut() {
            away.place = Some(now.place);
            away.term = now.term;
        }
    }

    /// Runs what was noted while an operation was in flight.
    pub(crate) fn run_noted(&mut self, cx: &mut Context<'_>, index: u32) {
        let Some(away) = self.locks.get_mut(index).and_then(Lock::away_mut) else { return };
        if away.op.is_some() {
            return;
        }
        let (unlock, cancel) = (away.noted_unlock, away.noted_cancel);
        away.noted_unlock = false;
        away.noted_cancel = false;
        if unlock {
            self.start(cx, index, OpKind::Unlock);
        } else if cancel && self.locks[index].state != LockState::Granted {
            self.start(cx, index, OpKind::Cancel);
        }
    }

    /// The receiver of a request does not master its name: ask the directory again (R10).
    fn on_not_master(&mut self, cx: &mut Context<'_>, from: Member, id: LockId, seq: u32) {
        let Some(index) = self.find_lock(id) else { return };
        let resource = self.locks[index].resource;
        let Some(away) = self.locks[index].away_mut() else { return };
        let request = away.op == Some(Op { kind: OpKind::Request, seq });
        if !request {
            return;
        }
        away.op = Some(Op { kind: OpKind::Request, seq: 0 });
        let refused = match self.resources[resource].role.as_deref() {
            Some(Role { kind: Kind::Remote { master, term }, .. }) if *master == from => {
                Some((*master, *term))
            }
            _ => None,
        };
        if self.end_if_noted(cx, index) {
            return self.tidy_role(cx, resource);
        }
        if refused.is_some() {
            self.set_role(resource, Kind::Lookup { first: id, refused });
            self.look_up(cx, resource);
        } else {
            self.send_op(cx, index);
        }
    }
}

/// Whom the operation being run is answered to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Answer {
    /// Nobody waits for a reply.
    #[default]
    None,
    /// The owner of this copy, for this operation.
    Due { index: u32, seq: u32 },
    /// The owner completed the operation already (7.4).
    Silent,
}

enum Reception {
    Serve,
    Park(u32),
    Refuse,
    Void,
}
