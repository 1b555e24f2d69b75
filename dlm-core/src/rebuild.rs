//! Names whose master was lost, put together again by a new one from what the owners know
//! (recovery.md R14, R15 and section 6).

use crate::away::{Kind, Op, OpKind, Rebuilt};
use crate::cluster::Job;
use crate::lock::{Chain, Owner};
use crate::lockspace::{Context, LockTable};
use crate::message::{Ceded, Flight, Record, Tagged, Traffic};
use crate::mode::{ValueMove, value_move};
use crate::seeded::cluster_fault;
use crate::slab::NIL;
use crate::{
    Call, Errno, LockFlags, LockId, LockState, Member, Mode, SbFlags, Status, Token, Value, ViewId,
};

/// Names that one part of the job looks at, and finishes.
const FINISH_LOOK: u32 = 512;
const FINISH_PART: u32 = 12;

impl LockTable {
    /// This node is the new master of a name and collects records.
    pub(crate) fn begin_rebuild(&mut self, resource: u32, term: Token) {
        let name = &self.resources[resource].name;
        self.cluster.directory.entries.remove(name.as_bytes());
        let resource_now = &mut self.resources[resource];
        let rebuilding =
            resource_now.role.as_ref().is_some_and(|r| matches!(r.kind, Kind::Rebuilding(_)));
        resource_now.term = resource_now.term.max(term);
        self.cluster.rebuilt = true;
        if !rebuilding {
            self.set_role(resource, Kind::Rebuilding(Vec::new()));
        }
        if let Some(role) = &mut self.resources[resource].role {
            role.round = self.cluster.view.id;
        }
    }

    /// A lock record for a name that this node is to master (R14).
    pub(crate) fn on_record(&mut self, cx: &mut Context<'_>, from: Member, record: Record) {
        if self.cluster.layout.nodir && !self.takes_records(cx, &record.name) {
            return;
        }
        self.saw_token(record.under);
        let of_lock = |lock: u32| self.locks[lock].resource;
        let own = self.find_lock(record.lock).filter(|_| from == self.cluster.me).map(of_lock);
        let found = own.or_else(|| self.find_resource(record.name.as_bytes()));
        let resource = match found {
            Some(resource)
                if self.resources[resource].role.is_none()
                    && !cluster_fault("served-names-take-records") =>
            {
                // A serving master: every genuine record came before its thaw. It does not know this one.
                return self.refuse_record(cx, from, record.lock);
            }
            Some(resource) => resource,
            None => self.new_resource(record.name.clone()),
        };
        // Own records follow the claim's answer, which began it.
        if own.is_none() || !self.is_rebuilding(resource) {
            self.begin_rebuild(resource, record.under);
        }
        if from != self.cluster.me {
            self.cluster.record_owners.insert(from);
        }
        let known = self.known_record(resource, from, record.lock);
        let lock = match known {
            Some(lock) => lock,
            None if from == self.cluster.me => match self.find_lock(record.lock) {
                Some(lock) => {
                    // What is in flight is in the record; the queues know only what was queued.
                    let own = &mut self.locks[lock];
                    own.requested = own.requested.filter(|_| own.state != LockState::Granted);
                    lock
                }
                None => return,
            },
            None => {
                let call = Call { flags: record.flags, wants_blocking: true, ..Call::default() };
                let peer = self.cluster.peer(from);
                let owner = Owner::Remote { peer, id: record.lock };
                self.new_record(cx, owner, resource, record.requested, &call, record.pid)
            }
        };
        if from != self.cluster.me {
            let copy = &mut self.locks[lock];
            copy.granted = record.granted;
            copy.requested = record.requested;
            copy.flags = record.flags;
            copy.saw_value_seq(record.value_seq);
            copy.told = record.told;
            if record.value.is_some() {
                copy.rare().value = record.value;
                copy.rare().seen = record.seen;
                copy.rare().current = record.seen.is_some();
                copy.rare().marked = record.marked;
            }
            let id = copy.id;
            self.send_traffic(cx, from, Traffic::Recorded { lock: record.lock, id });
        }
        if known.is_none() {
            self.cluster.arrivals += 1;
            let arrival = self.cluster.arrivals;
            let Record { place, term, flight, .. } = record;
            let rebuilt = Rebuilt { lock, place, term, flight, lowered: false, arrival };
            if let Some(records) = self.records(resource) {
                records.push(rebuilt);
            }
        } else if let Some(old) =
            self.records(resource).and_then(|all| all.iter_mut().find(|old| old.lock == lock))
        {
            old.flight = record.flight;
            old.place = record.place;
        }
    }

    /// The new master's id of a lock whose record it has.
    pub(crate) fn on_recorded(
        &mut self,
        cx: &mut Context<'_>,
        from: Member,
        lock: LockId,
        id: LockId,
    ) {
        let Some(index) = self.find_lock(lock) else { return };
        let Some(away) = self.locks[index].away_mut() else { return };
        let sent = away.moving.and_then(|moving| moving.sent);
        if sent.is_none_or(|(to, _)| to != from) {
            return;
        }
        if id.0 != 0 {
            away.master_id = id;
            return;
        }
        self.cluster.marks.thaw_refused(from);
        let unlocking = matches!(away.op, Some(Op { kind: OpKind::Unlock, .. }));
        if unlocking && away.moving.is_some_and(|moving| moving.flight == Flight::Unlock) {
            // The lost master did it, and the name has begun a new life since (section 6, rule 4).
            self.end_away(cx, index, Some(Status::Unlocked));
        }
    }

    fn refuse_record(&mut self, cx: &mut Context<'_>, to: Member, lock: LockId) {
        if to != self.cluster.me {
            self.send_traffic(cx, to, Traffic::Recorded { lock, id: LockId(0) });
        }
    }

    fn records(&mut self, resource: u32) -> Option<&mut Vec<Rebuilt>> {
        match &mut self.resources[resource].role.as_deref_mut()?.kind {
            Kind::Rebuilding(records) => Some(records),
            _ => None,
        }
    }

    fn known_record(&mut self, resource: u32, from: Member, id: LockId) -> Option<u32> {
        let me = self.cluster.me;
        let peer = self.cluster.peer(from);
        let Kind::Rebuilding(records) = &self.resources[resource].role.as_deref()?.kind else {
            return None;
        };
        let same = |record: &&Rebuilt| match self.locks[record.lock].owner {
            Owner::Remote { peer: of, id: lock } => from != me && of == peer && lock == id,
            _ => from == me && self.locks[record.lock].id == id,
        };
        records.iter().find(same).map(|record| record.lock)
    }

    /// Drops the record of a lost member's lock.
    pub(crate) fn drop_record(&mut self, cx: &mut Context<'_>, lock: u32) {
        let resource = self.locks[lock].resource;
        if let Some(records) = self.records(resource) {
            records.retain(|record| record.lock != lock);
        }
        self.destroy_lock(cx, lock);
    }

    /// Takes rebuilt names into service, a part at a time.
    /// Not those of a newer view, whose records are still on their way (R15).
    pub(crate) fn job_finish(
        &mut self,
        cx: &mut Context<'_>,
        round: ViewId,
        from: u32,
    ) -> Option<Job> {
        let mut end = self.resources.end().min(from.saturating_add(FINISH_LOOK));
        let mut finished = 0;
        for resource in from..end {
            if finished >= FINISH_PART {
                end = resource;
                break;
            }
            let rebuilding = self
                .resources
                .get(resource)
                .and_then(|r| r.role.as_ref())
                .filter(|role| role.round <= round || cluster_fault("newer-rounds-finished"))
                .is_some_and(|role| matches!(role.kind, Kind::Rebuilding(_)));
            if rebuilding {
                // Each record takes two numbers at most, and the name itself one.
                let records = self.records(resource).map_or(0, |records| records.len() as u64);
                if self.lacks_numbers(cx, 2 * records + 1) {
                    end = resource;
                    break;
                }
                finished += 1;
                self.finish_name(cx, resource);
            }
        }
        (end < self.resources.end()).then_some(Job::Finish { round, from: end })
    }

    fn finish_name(&mut self, cx: &mut Context<'_>, resource: u32) {
        let records = self.records(resource).map(core::mem::take).unwrap_or_default();
        let mut records = records;
        records.sort_by_key(|r| (r.place.is_none(), r.place, r.arrival));
        self.resources[resource].pinned = true;
        self.cluster.marks.names_rebuilt += 1;
        let newest = records.iter().map(|record| record.term).max().unwrap_or_default();
        if self.cluster.layout.nodir {
            // The life of a name goes on with its locks (6.4).
            self.resources[resource].term =
                if newest == Token(0) { self.next_term() } else { newest };
        }
        let mut value = PendingValue::default();
        for record in &mut records {
            self.lower(record, newest, &mut value);
        }
        let done = self.complete_raised(resource, &records);
        self.recover_value(resource, &records, &value);
        let mut resumed = Vec::new();
        for record in &records {
            self.enqueue_rebuilt(cx, resource, record, &mut resumed);
        }
        let mut role = self.resources[resource].role.take().expect("a rebuilt name has a role");
        self.check_exclusion(resource);
        for (lock, from) in done {
            self.finish_operation(cx, lock, from);
        }
        // The owner's own answer comes before what others are told.
        for (index, _) in resumed.iter().filter(|(_, lowered)| *lowered) {
            self.complete(cx, *index, Status::Granted);
        }
        self.pass_recovering(cx, resource);
        for (index, lowered) in resumed {
            self.resume_own(cx, index, true, lowered);
        }
        // What is left was unlocked, or asks anew; in order of submission.
        while role.own.head != NIL {
            let index = role.own.head;
            role.own.remove(&mut self.locks, Chain::Resource, index);
            self.cluster.away_locks -= 1;
            self.resume_own(cx, index, false, false);
        }
        self.serve_parked(cx, role.parked);
        self.resources[resource].pinned = false;
        self.tidy_resource(cx, resource);
    }

    /// A lowering operation in flight may have been done by the lost master, and others granted
    /// because of it: it counts as done, with its bytes (section 6, rule 2).
    fn lower(&mut self, record: &mut Rebuilt, newest: Token, pending: &mut PendingValue) {
        let lock = &mut self.locks[record.lock];
        let Some(held) = lock.granted else { return };
        let writes = match record.flight {
            Flight::Convert(mode) if held.is_down(mode) && !cluster_fault("lowering-undone") => {
                lock.granted = Some(mode);
                if !cluster_fault("lowered-not-told-anew") {
                    lock.told = Mode::NL;
                }
                record.lowered = true;
                value_move(Some(held), mode) == ValueMove::Write
            }
            // An unlock of an older life of the name was done then (rule 4).
            Flight::Unlock => matches!(held, Mode::PW | Mode::EX) && record.term == newest,
            _ => false,
        };
        if !writes || cluster_fault("bytes-in-flight-dropped") {
            return;
        }
        if lock.flags.has(LockFlags::IVVALBLK) {
            pending.invalidates = true;
        } else if let Some((value, seq)) = lock.count_as_written()
            && pending.write.is_none_or(|(_, old)| newer(seq, old))
        {
            pending.write = Some((value, seq));
        }
    }

    /// The value block of a rebuilt name (8.5, and rule 4 of section 6).
    fn recover_value(&mut self, resource: u32, records: &[Rebuilt], pending: &PendingValue) {
        let ceded = self.take_ceded(resource);
        // A holder above CR keeps writers away: what it saw there is what there is. Of others the latest
        // is taken, and marked: somebody may have written since.
        let mut sure: Option<(Value, u32)> = None;
        let mut best: Option<(bool, Value, u32)> = None;
        // A mark that such a holder saw is there still: only a write takes it away.
        let mut marked = false;
        for queued in [false, true] {
            for record in records.iter().filter(|record| record.flight != Flight::Unlock) {
                let lock = &self.locks[record.lock];
                let Some(granted) = lock.granted else { continue };
                if lock.requested.is_some() != queued || !lock.flags.has(LockFlags::VALBLK) {
                    continue;
                }
                let seen = lock.seen();
                let candidate = (seen.unwrap_or_default(), lock.value_seq());
                if granted > Mode::CR && sure.is_none() && seen.is_some() {
                    sure = Some(candidate);
                    let rare = lock.rare.as_ref();
                    marked = rare.is_some_and(|rare| rare.marked);
                }
                let better = |(saw, _, seq): (bool, Value, u32)| match seen.is_some() == saw {
                    true => !newer(seq, lock.value_seq()),
                    false => seen.is_some(),
                };
                if best.is_none_or(better) {
                    best = Some((seen.is_some(), candidate.0, candidate.1));
                }
            }
        }
        let (mut known, mut doubtful) = (None, false);
        match ceded {
            // Nobody can have written since.
            Some(ceded) if ceded.sure => {
                (known, doubtful) = (Some((ceded.value, ceded.seq)), ceded.invalid);
            }
            Some(Ceded { value: Some(value), seq, .. })
                if best.is_none_or(|(saw, _, known)| !saw || newer(seq, known)) =>
            {
                best = Some((true, value, seq));
            }
            _ => {}
        }
        let resource = &mut self.resources[resource];
        let mut found = match known {
            Some((value, seq)) => {
                resource.value_seq = seq;
                value.map(|value| (value, seq))
            }
            None => {
                doubtful = marked || (sure.is_none() && best.is_some());
                sure.or(best.map(|(_, value, seq)| (value, seq)))
            }
        };
        resource.invalid |= doubtful && !cluster_fault("weak-readers-trusted");
        let write = pending.write.map(|(value, seq)| match known {
            // A master that lives had not heard of it, whatever its writer knows of earlier writes.
            Some((_, old)) => (value, old.wrapping_add(1)),
            None => (value, seq),
        });
        if let Some((value, seq)) = write
            && found.is_none_or(|(_, old)| !newer(old, seq))
        {
            found = Some((value, seq));
            // Its writer gave the name up: clients of the lost master may have written after it, and only
            // a holder who keeps writers away proves that nobody did.
            resource.invalid = known.is_none() && sure.is_none();
        }
        resource.invalid |= pending.invalidates;
        if let Some((value, seq)) = found {
            resource.value = Some(Box::new(value));
            resource.value_seq = seq;
        }
    }

    /// Puts a rebuilt lock where it belongs. Records come in the order of their places.
    fn enqueue_rebuilt(
        &mut self,
        cx: &mut Context<'_>,
        resource: u32,
        record: &Rebuilt,
        resumed: &mut Vec<(u32, bool)>,
    ) {
        let index = record.lock;
        let copy = matches!(self.locks[index].owner, Owner::Remote { .. });
        if record.flight == Flight::Unlock {
            if copy {
                self.destroy_lock(cx, index); // its owner is told by the thaw
            }
            return;
        }
        if let Some(place) = record.place {
            self.cluster.saw_place(place);
        }
        if !copy {
            // From the list of own locks to the queues of the name.
            let role = self.resources[resource].role.as_mut().expect("still being rebuilt");
            role.own.remove(&mut self.locks, Chain::Resource, index);
            self.cluster.away_locks -= 1;
            if self.cluster.layout.nodir {
                self.locks[index].rare().place = record.place;
            }
            resumed.push((index, record.lowered));
        }
        let lock = &self.locks[index];
        let (granted, requested) = (lock.granted, lock.requested);
        let table = &mut self.resources[resource];
        if let Some(granted) = granted {
            table.hold(granted);
        }
        match (granted, requested) {
            (Some(_), None) => table.join_granted(&mut self.locks, index),
            (Some(_), Some(_)) => table.rejoin(&mut self.locks, index, LockState::Converting),
            (None, Some(_)) => table.rejoin(&mut self.locks, index, LockState::Waiting),
            (None, None) => {}
        }
    }

    /// An operation that the lost master had done is completed.
    fn finish_operation(&mut self, cx: &mut Context<'_>, index: u32, from: Option<Mode>) {
        let to = self.locks[index].granted.expect("it was granted a mode");
        self.move_value_at_grant(index, from, to);
        self.locks[index].token = self.next_token(cx);
        if let Some(away) = self.locks[index].away_mut() {
            away.op = None;
            away.noted_cancel = false;
        }
        self.complete(cx, index, Status::Granted);
    }

    /// An own lock of a name that this node serves now: what was in flight or noted runs.
    fn resume_own(&mut self, cx: &mut Context<'_>, index: u32, queued: bool, lowered: bool) {
        let Some(away) = self.locks[index].rare.as_mut().and_then(|rare| rare.away.take()) else {
            return;
        };
        match away.op.map(|op| op.kind) {
            Some(OpKind::Request) => match (away.noted_unlock, away.noted_cancel) {
                (true, _) => self.end(cx, index, Status::Unlocked),
                (_, true) => self.end(cx, index, away.cancel_status.unwrap_or(Status::Cancelled)),
                _ => self.request(cx, index),
            },
            Some(OpKind::Unlock) if queued => self.unlock(cx, index),
            Some(OpKind::Unlock) => self.end(cx, index, Status::Unlocked),
            Some(OpKind::Cancel) => {
                self.cancel_resumed(cx, index, &away);
                if away.noted_unlock && self.locks.get(index).is_some() {
                    self.unlock(cx, index);
                }
            }
            Some(OpKind::Convert(mode)) => self.resume_conversion(cx, index, mode, lowered, &away),
            _ if away.noted_unlock => self.unlock(cx, index),
            _ if away.noted_cancel => self.cancel_resumed(cx, index, &away),
            _ => {}
        }
    }

    fn resume_conversion(
        &mut self,
        cx: &mut Context<'_>,
        index: u32,
        mode: Mode,
        lowered: bool,
        away: &crate::away::Away,
    ) {
        let lock = &self.locks[index];
        if lowered {
            // Completed before the pass.
        } else if away.noted_unlock {
            return self.unlock(cx, index);
        } else if lock.state == LockState::Granted && away.noted_cancel {
            self.complete(cx, index, away.cancel_status.unwrap_or(Status::Cancelled));
        } else if lock.state == LockState::Granted {
            self.change_granted(index, |lock| lock.requested = Some(mode));
            return self.convert(cx, index);
        } else if away.noted_cancel {
            return self.cancel_resumed(cx, index, away);
        }
        if away.noted_unlock {
            self.unlock(cx, index);
        }
    }

    fn cancel_resumed(&mut self, cx: &mut Context<'_>, index: u32, away: &crate::away::Away) {
        self.locks[index].sb_flags = SbFlags(0);
        let deadlock = core::mem::take(&mut self.locks[index].deadlock_cancel);
        let status = away.cancel_status.unwrap_or(Status::Cancelled);
        self.cancel(cx, index, if deadlock { Status::Deadlock } else { status });
    }

    /// Tells the directory that an idle name is nobody's any more (R8).
    pub(crate) fn say_remove(&mut self, cx: &mut Context<'_>, resource: u32) {
        let name = self.resources[resource].name.clone();
        let term = self.resources[resource].term;
        let last = Token(self.token());
        let owner = self.slot_owner(name.as_bytes());
        self.say(cx, owner, Tagged::Remove { name, term, last });
    }

    pub(crate) fn on_remove_ack(&mut self, cx: &mut Context<'_>, name: &crate::Name, term: Token) {
        let Some(resource) = self.find_resource(name.as_bytes()) else { return };
        let leaving = self.resources[resource]
            .role
            .as_ref()
            .is_some_and(|role| matches!(role.kind, Kind::Leaving));
        if leaving && self.resources[resource].term == term {
            self.forgotten(cx, resource);
        }
    }

    /// A name is nobody's any more: whoever asked for it meanwhile looks it up.
    pub(crate) fn forgotten(&mut self, cx: &mut Context<'_>, resource: u32) {
        let own = self.own_locks(resource);
        let Some(first) = own.first().map(|index| self.locks[*index].id) else {
            self.resources[resource].role = None;
            return self.forget_resource(resource);
        };
        self.set_role(resource, Kind::Lookup { first, refused: None });
        self.look_up(cx, resource);
    }

    /// Has another node remove its orphans.
    pub(crate) fn purge_elsewhere(
        &mut self,
        cx: &mut Context<'_>,
        node: u32,
        pid: u32,
    ) -> Result<(), Errno> {
        let target = self.cluster.view.members.iter().find(|member| member.node.0 == node);
        let member = *target.ok_or(Errno::ENOBUFS)?;
        self.send_traffic(cx, member, Traffic::Purge { pid });
        Ok(())
    }
}

/// What lowering operations in flight say about the value block.
#[derive(Debug, Default)]
struct PendingValue {
    write: Option<(Value, u32)>,
    invalidates: bool,
}

/// Whether sequence number `a` is later than `b`, by signed difference.
fn newer(a: u32, b: u32) -> bool {
    a.wrapping_sub(b).cast_signed() > 0
}
