//! The owner's side of locks that are mastered elsewhere: one operation at a time is in flight, and
//! what overlaps it is noted or sent beside it (semantics.md 4.2, 4.3).

use crate::away::{Away, Kind, Op, OpKind, Role};
use crate::lock::{Chain, Lock, Owner, Queue};
use crate::lockspace::{Context, LockTable};
use crate::message::{Tagged, Traffic};
use crate::seeded::cluster_fault;
use crate::{Errno, LockFlags, LockId, LockState, Member, Mode, Name, Status, Token, Value};

impl LockTable {
    /// Gives a new resource its role: served here if the directory is here and says it is free, else
    /// the directory is asked.
    pub(crate) fn place_name(&mut self, cx: &mut Context<'_>, resource: u32) {
        if self.cluster.layout.nodir {
            return self.place_by_slot(cx, resource);
        }
        let name = self.resources[resource].name.clone();
        if self.may_take(name.as_bytes()) && !self.lacks_numbers(cx, 1) {
            self.resources[resource].term = self.next_term();
            return;
        }
        self.set_role(resource, Kind::Lookup { first: LockId(0), refused: None });
        self.look_up(cx, resource);
    }

    /// Makes a resource one that is not served here.
    pub(crate) fn set_role(&mut self, resource: u32, kind: Kind) {
        match kind {
            Kind::Lookup { .. } | Kind::Leaving => self.cluster.asking.insert(resource),
            // A claim that is not answered is a question as well.
            _ if self.resources[resource].role.as_deref().is_some_and(|role| role.claimed) => {}
            _ => self.cluster.asking.remove(resource),
        }
        let round = self.cluster.view.id;
        match &mut self.resources[resource].role {
            Some(role) => (role.kind, role.round) = (kind, round),
            role => {
                let (own, parked) = (Queue::default(), Vec::new());
                *role = Some(Box::new(Role { kind, own, parked, claimed: false, round }));
            }
        }
    }

    /// Sends the look-up of a resource in that state.
    pub(crate) fn look_up(&mut self, cx: &mut Context<'_>, resource: u32) {
        let name = self.resources[resource].name.clone();
        let refused = match self.resources[resource].role.as_deref() {
            Some(Role { kind: Kind::Lookup { refused, .. }, .. }) => *refused,
            _ => None,
        };
        let owner = self.slot_owner(name.as_bytes());
        self.say(cx, owner, Tagged::Lookup { name, refused });
    }

    /// A new request on a name that is not served here.
    pub(crate) fn away_request(&mut self, cx: &mut Context<'_>, index: u32) {
        let id = self.locks[index].id;
        let resource = self.locks[index].resource;
        self.locks[index].rare().away = Some(Away::default());
        self.cluster.away_locks += 1;
        let role = self.resources[resource].role.as_mut().expect("a name not served has a role");
        role.own.push_back(&mut self.locks, Chain::Resource, index);
        if let Kind::Lookup { first, .. } = &mut role.kind
            && first.0 == 0
        {
            *first = id;
        }
        self.arm_limit(cx, index);
        self.start(cx, index, OpKind::Request);
    }

    /// A conversion. Giving up rights needs nobody's consent: unless the master must get bytes (D14)
    /// it is complete at once.
    pub(crate) fn away_convert(&mut self, cx: &mut Context<'_>, index: u32) {
        let lock = &mut self.locks[index];
        // On an away lock a requested mode says that the *master* queued it.
        let mode = lock.requested.take().expect("a conversion asks for a mode");
        let granted = lock.granted.expect("a granted lock has a mode");
        if let Some(away) = lock.away_mut() {
            away.cancel_status.take_if(|_| !cluster_fault("late-limit-names-next-cancel")); // of an earlier operation, whose cancel came too late
        }
        let recorded = lock.away().and_then(|away| away.moving).is_some_and(|m| m.sent.is_some());
        let bytes = lock.flags.any(LockFlags::VALBLK | LockFlags::IVVALBLK);
        if !granted.is_down(mode) || bytes || recorded {
            self.arm_limit(cx, index);
            return self.start(cx, index, OpKind::Convert(mode));
        }
        if let Some(master) = self.reachable_master(index).or_else(|| self.settled_master(index)) {
            let lock = &self.locks[index];
            let message = convert_message(lock, mode, 0, true);
            self.send_traffic(cx, master, message);
        } else if self.cluster.layout.nodir {
            self.note_untold(index);
        }
        self.complete_lowered(cx, index, mode);
    }

    /// A conversion that only gave up rights is complete: at once, or when a new master counts it in.
    pub(crate) fn complete_lowered(&mut self, cx: &mut Context<'_>, index: u32, mode: Mode) {
        let lock = &mut self.locks[index];
        lock.granted = Some(mode);
        lock.requested = None;
        lock.told = Mode::NL;
        lock.since = cx.now.into();
        self.report(cx, index, Status::Granted, Some(mode));
    }

    /// Whether an unlock or cancel is possible now, by the table of 4.2; nothing is changed.
    pub(crate) fn away_check_unlock(&self, index: u32, flags: LockFlags) -> Result<(), Errno> {
        let away = self.locks[index].away().expect("asked for away locks only");
        if flags.has(LockFlags::CANCEL) {
            return if away.ends() || away.cancels() { Err(Errno::EINVAL) } else { Ok(()) };
        }
        if flags.has(LockFlags::FORCEUNLOCK) {
            return if away.ends() { Err(Errno::EINVAL) } else { Ok(()) };
        }
        if away.is_busy() { Err(Errno::EBUSY) } else { Ok(()) }
    }

    /// An accepted unlock, plain or by force.
    pub(crate) fn away_unlock(&mut self, cx: &mut Context<'_>, index: u32) {
        if self.is_parked(index) {
            return self.end_away(cx, index, Some(Status::Unlocked));
        }
        let reachable = self.reachable_master(index);
        let away = self.locks[index].away_mut().expect("asked for away locks only");
        match away.op {
            None => self.start(cx, index, OpKind::Unlock),
            Some(Op { kind: OpKind::Convert(_) | OpKind::Cancel, seq }) if seq != 0 => {
                if let Some(master) = reachable {
                    let seq = away.next_seq();
                    away.beside.get_or_insert_default().unlock = seq;
                    let message = unlock_message(&self.locks[index], seq);
                    return self.send_traffic(cx, master, message);
                }
                away.noted_unlock = true;
            }
            Some(_) => away.noted_unlock = true,
        }
    }

    /// An accepted cancel.
    pub(crate) fn away_cancel(&mut self, cx: &mut Context<'_>, index: u32) {
        if self.is_parked(index) {
            let status = self.take_cancel_status(index);
            return self.end_away(cx, index, Some(status));
        }
        let reachable = self.reachable_master(index);
        let state = self.locks[index].state;
        let away = self.locks[index].away_mut().expect("asked for away locks only");
        match away.op {
            None if state == LockState::Granted => {}
            None => self.start(cx, index, OpKind::Cancel),
            Some(Op { kind: OpKind::Convert(_), seq }) if seq != 0 && reachable.is_some() => {
                let seq = away.next_seq();
                away.beside.get_or_insert_default().cancel = seq;
                let message = cancel_message(&self.locks[index], seq);
                self.send_traffic(cx, reachable.expect("checked by the guard"), message);
            }
            Some(_) => away.noted_cancel = true,
        }
    }

    /// Starts an operation: sent at once if its master can be talked to, else when it can.
    pub(crate) fn start(&mut self, cx: &mut Context<'_>, index: u32, kind: OpKind) {
        let away = self.locks[index].away_mut().expect("operations start on away locks only");
        debug_assert!(away.op.is_none());
        away.op = Some(Op { kind, seq: 0 });
        away.reached = false;
        self.send_op(cx, index);
    }

    /// Sends an operation that was not sent yet, if it can be.
    pub(crate) fn send_op(&mut self, cx: &mut Context<'_>, index: u32) {
        let Some(master) = self.reachable_master(index) else { return };
        let lock = &mut self.locks[index];
        let away = lock.away_mut().expect("operations are sent for away locks only");
        let Some(Op { kind, seq: 0 }) = away.op else { return };
        let seq = away.next_seq();
        away.op = Some(Op { kind, seq });
        away.asked = self.cluster.view.id;
        away.master = Some(master);
        away.given &= !matches!(kind, OpKind::Convert(_));
        let lock = &self.locks[index];
        let message = match kind {
            OpKind::Request => Traffic::Request {
                name: self.resources[lock.resource].name.clone(),
                lock: lock.id,
                seq,
                mode: lock.requested.expect("a request asks for a mode"),
                flags: lock.flags,
                pid: lock.pid,
                view: self.cluster.view.id,
            },
            OpKind::Convert(mode) => convert_message(lock, mode, seq, false),
            OpKind::Unlock => unlock_message(lock, seq),
            OpKind::Cancel => cancel_message(lock, seq),
        };
        self.send_traffic(cx, master, message);
    }

    /// The master of an away lock, if lock traffic can be sent to it now.
    pub(crate) fn reachable_master(&self, index: u32) -> Option<Member> {
        let lock = &self.locks[index];
        let moving = lock.away().is_some_and(|away| away.moving.is_some());
        match self.resources[lock.resource].role.as_deref()?.kind {
            Kind::Remote { master, .. }
                if self.cluster.is_member(master) && !moving && self.speaks_to(index, master) =>
            {
                Some(master)
            }
            _ => None,
        }
    }

    /// The living master of a granted lock, also while its name is looked up again because another
    /// request was refused.
    fn settled_master(&self, index: u32) -> Option<Member> {
        let away = self.locks[index].away()?;
        let settled = away.moving.is_none() && !self.cluster.layout.nodir;
        away.master.filter(|master| settled && self.cluster.is_member(*master))
    }

    /// A request that waits behind another's look-up: nobody else knows of it.
    fn is_parked(&self, index: u32) -> bool {
        let lock = &self.locks[index];
        let unsent = lock.away().is_some_and(Away::is_unsent_request);
        let first = match self.resources[lock.resource].role.as_deref() {
            Some(Role { kind: Kind::Lookup { first, .. }, .. }) => *first == lock.id,
            _ => false,
        };
        unsent && !first
    }

    /// How the cancellation of a lock is reported; a mark is used up (4.4).
    pub(crate) fn take_cancel_status(&mut self, index: u32) -> Status {
        let lock = &mut self.locks[index];
        let special = lock.away_mut().and_then(|away| away.cancel_status.take());
        match core::mem::take(&mut lock.deadlock_cancel) {
            true => Status::Deadlock,
            false => special.unwrap_or(Status::Cancelled),
        }
    }

    /// Ends an away lock: tells its owner, if `status` says so, and removes it.
    pub(crate) fn end_away(&mut self, cx: &mut Context<'_>, index: u32, status: Option<Status>) {
        let resource = self.locks[index].resource;
        self.leave_own(resource, index);
        match status {
            Some(status) => self.end(cx, index, status),
            None => self.destroy_lock(cx, index),
        }
        self.tidy_role(cx, resource);
    }

    /// Takes a lock off the list of own locks of a name.
    pub(crate) fn leave_own(&mut self, resource: u32, index: u32) {
        let role = self.resources[resource].role.as_mut().expect("an away lock's name has a role");
        role.own.remove(&mut self.locks, Chain::Resource, index);
        if let Kind::Rebuilding(records) = &mut role.kind {
            records.retain(|record| record.lock != index);
        }
        self.cluster.away_locks -= 1;
    }

    /// Nothing may be left of a name: it is forgotten, now or after a while.
    pub(crate) fn tidy_role(&mut self, cx: &mut Context<'_>, resource: u32) {
        let Some(used) = self.resources.get(resource) else { return };
        match used.role.as_deref() {
            None => self.tidy_resource(cx, resource),
            Some(role) if role.is_unused() => self.tidy_remote(cx, resource),
            Some(_) => {}
        }
    }

    /// The owner of a lock is gone: it is unlocked by force whenever that becomes possible, and
    /// nobody hears of it.
    pub(crate) fn abandon(&mut self, cx: &mut Context<'_>, index: u32) {
        self.leave_owner(cx, index);
        let lock = &mut self.locks[index];
        lock.owner = Owner::Nobody;
        lock.flags = lock.flags.with(LockFlags::FORCEUNLOCK).with(LockFlags::IVVALBLK);
        let ends = lock.away().is_some_and(Away::ends);
        if !ends {
            self.away_unlock(cx, index);
        }
    }

    /// An away lock's owner dies and wants it kept.
    pub(crate) fn orphan_away(&mut self, cx: &mut Context<'_>, index: u32) {
        let away = self.locks[index].away().expect("asked for away locks only");
        if !away.ends() && !away.cancels() {
            self.away_cancel(cx, index);
        }
    }

    /// A time limit on an away lock ended. If the master cannot be asked now the owner is told at
    /// once (D11), and what the master may still grant is given back.
    pub(crate) fn away_limit_over(&mut self, cx: &mut Context<'_>, index: u32) {
        let reachable = self.reachable_master(index).is_some();
        let lock = &mut self.locks[index];
        let waits = lock.state == LockState::Waiting;
        let away = lock.away_mut().expect("asked for away locks only");
        if away.ends() || away.cancels() {
            return;
        }
        if waits && !reachable {
            self.report(cx, index, Status::TimedOut, None);
            return self.abandon(cx, index);
        }
        away.cancel_status = Some(Status::TimedOut);
        self.away_cancel(cx, index);
    }

    /// Own locks of a name, in order of submission.
    pub(crate) fn own_locks(&self, resource: u32) -> Vec<u32> {
        let role = self.resources[resource].role.as_ref();
        role.map_or(Vec::new(), |role| role.own.iter(&self.locks, Chain::Resource).collect())
    }

    /// The master answered a look-up.
    pub(crate) fn on_lookup_reply(
        &mut self,
        cx: &mut Context<'_>,
        name: &Name,
        master: Member,
        term: Token,
    ) {
        let Some(resource) = self.find_resource(name.as_bytes()) else { return };
        let role = self.resources[resource].role.as_ref();
        let Some(role) = role.filter(|role| matches!(role.kind, Kind::Lookup { .. })) else {
            return;
        };
        let claimed = role.claimed;
        self.saw_token(term);
        if master == self.cluster.me {
            // By its claim, whose answer waits in the other lane and says how to begin.
            if claimed && !cluster_fault("look-up-before-claim") {
                return;
            }
            // Given in an earlier view, perhaps to a claim: others may move locks here (R14, R15).
            let earlier = term.0 >> 32 < u64::from(self.cluster.view.id.0);
            if earlier
                && !self.cluster.locks_due.is_empty()
                && !cluster_fault("claimed-name-served-at-once")
            {
                return self.begin_rebuild(resource, term);
            }
            return self.begin_service(cx, resource, term);
        }
        self.set_role(resource, Kind::Remote { master, term });
        for index in self.own_locks(resource) {
            if !self.end_if_noted(cx, index) {
                self.send_op(cx, index);
            }
        }
        self.refuse_parked(cx, resource);
        self.tidy_role(cx, resource);
    }

    /// A request whose look-up is through, but that was cancelled meanwhile.
    pub(crate) fn end_if_noted(&mut self, cx: &mut Context<'_>, index: u32) -> bool {
        let away = self.locks[index].away().expect("an own lock is away");
        if !away.is_unsent_request() {
            return false;
        }
        let status = match (away.noted_unlock, away.noted_cancel) {
            (true, _) => Status::Unlocked,
            (false, true) => self.take_cancel_status(index),
            (false, false) => return false,
        };
        let resource = self.locks[index].resource;
        self.leave_own(resource, index);
        self.end(cx, index, status);
        true
    }

    /// This node is the master of a name from now on: own requests first, then what others asked.
    pub(crate) fn begin_service(&mut self, cx: &mut Context<'_>, resource: u32, term: Token) {
        let name = self.resources[resource].name.clone();
        self.cluster.asking.remove(resource);
        self.cluster.directory.entries.remove(name.as_bytes());
        self.resources[resource].term = term;
        // Whatever ends meanwhile, the resource stays until all who asked were served.
        self.resources[resource].pinned = true;
        let mut asked = Vec::new();
        for index in self.own_locks(resource) {
            // Also one under way to who was the master: that one only says that it is not.
            if let Some(away) = self.locks[index].away_mut() {
                away.op = away.op.map(|op| Op { seq: 0, ..op });
            }
            if !self.end_if_noted(cx, index) {
                self.leave_own(resource, index);
                self.locks[index].rare().away = None;
                asked.push(index);
            }
        }
        let role = self.resources[resource].role.take();
        for index in asked {
            self.request(cx, index);
        }
        self.serve_parked(cx, role.map(|role| role.parked).unwrap_or_default());
        self.resources[resource].pinned = false;
        self.reconsider(cx, &name);
        self.tidy_resource(cx, resource);
    }

    /// Tells those who asked this node that it is not the master.
    pub(crate) fn refuse_parked(&mut self, cx: &mut Context<'_>, resource: u32) {
        let Some(role) = self.resources[resource].role.as_mut() else { return };
        let parked = core::mem::take(&mut role.parked);
        self.serve_parked(cx, parked);
    }

    /// Handles traffic that waited; what lost members said is void (R1, R17).
    pub(crate) fn serve_parked(&mut self, cx: &mut Context<'_>, parked: Vec<(Member, Traffic)>) {
        for (from, traffic) in parked {
            if self.cluster.is_member(from) {
                self.on_traffic(cx, from, traffic);
            }
        }
    }
}

impl Away {
    fn next_seq(&mut self) -> u32 {
        self.seq = self.seq.wrapping_add(1).max(1);
        self.seq
    }
}

impl Lock {
    /// The part of a lock that is mastered elsewhere.
    pub(crate) fn away(&self) -> Option<&Away> {
        self.rare.as_ref()?.away.as_ref()
    }

    /// As [`Self::away`], to change it.
    pub(crate) fn away_mut(&mut self) -> Option<&mut Away> {
        self.rare.as_mut()?.away.as_mut()
    }
}

fn sent_value(lock: &Lock) -> Option<Value> {
    lock.value().filter(|_| lock.flags.has(LockFlags::VALBLK)).copied()
}

fn convert_message(lock: &Lock, mode: Mode, seq: u32, silent: bool) -> Traffic {
    let to = lock.away().map_or(LockId(0), |away| away.master_id);
    let value = sent_value(lock);
    Traffic::Convert { to, lock: lock.id, seq, mode, flags: lock.flags, value, silent }
}

fn unlock_message(lock: &Lock, seq: u32) -> Traffic {
    let to = lock.away().map_or(LockId(0), |away| away.master_id);
    // Without bytes of its own the master's copy knows best what was read or given last (D3).
    let unknown = lock.away().is_some_and(|away| away.parting || away.given);
    let value = sent_value(lock).filter(|_| unknown);
    Traffic::Unlock { to, lock: lock.id, seq, flags: lock.flags, value }
}

fn cancel_message(lock: &Lock, seq: u32) -> Traffic {
    let to = lock.away().map_or(LockId(0), |away| away.master_id);
    Traffic::Cancel { to, lock: lock.id, seq }
}
