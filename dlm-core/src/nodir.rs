//! Lockspaces whose masters are the owners of their names' slots (semantics.md 7.3; recovery.md
//! section 5, nodir).
//!
//! There is no directory to ask. When a slot's owner changes, also by a join, all names in it move:
//!
//! ```text
//!  View ─► old owner gives its names up, Value ─┐
//!      └─► new owner asks all for locks ────────┴─► (all unsafe safe) ─► Records ─► LocksDone ─► Thawed
//! ```
//!
//! - The **new owner** asks, for every slot it did not own and serve right before (R4). Owners of locks never
//!   guess from «the owner changed»: they stop sending where the owner is another now, and move what
//!   they are asked for.
//! - An owner whose locks are between masters although the slot's owner kept serving them (others saw
//!   a view that this owner skipped) sends their records all the same; the master then gives the slot
//!   up by itself and asks for one more view.
//! - Requests carry their view: one from before the slot came here was for another, and is sent anew.

use std::collections::{BTreeMap, BTreeSet};

use crate::away::{Away, Kind, Moving, Op, OpKind, Role};
use crate::lock::{Chain, Owner};
use crate::lockspace::{Context, LockTable};
use crate::message::{Ceded, Flight, Tagged};
use crate::seeded::bug;
use crate::slots::{SLOTS, SlotSet, slot_of};
use crate::{LockFlags, LockId, LockState, Member, Mode, Name, Output, Token, ViewId};

/// What a member of such a lockspace keeps beside the rest.
#[derive(Clone, Hash, Debug)]
pub(crate) struct BySlot {
    /// Since which view each slot of this node is its own, without a gap.
    since: Box<[ViewId]>,
    /// Slots that this node gives up with the next view, whoever owns them then.
    pub(crate) spoiled: SlotSet,
    /// Names given up, by this node or to it, until their slots are served.
    ceded: BTreeMap<(u16, Box<[u8]>), Ceded>,
    /// Locks of others on names given up, whose owners may not know it yet.
    dropped: BTreeSet<(Member, LockId)>,
    /// Members that have yet to say which slots they need in this view.
    needs_due: BTreeSet<Member>,
    /// Slots whose owners need all locks.
    needed: SlotSet,
}

impl Default for BySlot {
    fn default() -> Self {
        Self {
            since: vec![ViewId(0); SLOTS].into(),
            spoiled: SlotSet::default(),
            ceded: BTreeMap::new(),
            dropped: BTreeSet::new(),
            needs_due: BTreeSet::new(),
            needed: SlotSet::default(),
        }
    }
}

impl BySlot {
    /// A view begins; `kept` are the slots that stay this node's, `had` those it owned before; `lost`
    /// says that a member is gone.
    pub(crate) fn begin(&mut self, view: ViewId, kept: &SlotSet, had: &SlotSet, lost: bool) {
        for slot in (0..SLOTS as u16).filter(|slot| !kept.contains(*slot)) {
            self.since[usize::from(slot)] = view;
        }
        self.spoiled.clear();
        self.needed.clear();
        // Whoever owned the slot meanwhile may have served it and be lost, and so may a writer.
        for ((slot, _), ceded) in &mut self.ceded {
            ceded.sure &= (had.contains(*slot) && !lost) || bug("nodir-values-always-sure");
        }
    }

    /// Whether every member said which slots it needs.
    pub(crate) fn needs_known(&self) -> bool {
        self.needs_due.is_empty()
    }

    /// Nothing older follows from a member that said this view's `LocksDone`.
    pub(crate) fn forget_dropped(&mut self, of: Member) {
        self.dropped.retain(|(owner, _)| *owner != of);
    }

    /// Whether this lock was known until its name was given up: its record says all, and an
    /// operation on it is not answered.
    pub(crate) fn was_dropped(&self, owner: Member, lock: LockId) -> bool {
        self.dropped.contains(&(owner, lock)) && !bug("nodir-given-up-locks-answered")
    }
}

/// What to do with a request where masters are by slot.
pub(crate) enum Visit {
    Serve,
    Park(u32),
    Void,
}

impl LockTable {
    fn by_slot(&mut self) -> &mut BySlot {
        self.cluster.directory.nodir.as_mut().expect("masters are by slot here")
    }

    /// Whether this node serves a slot.
    fn serves(&self, slot: u16) -> bool {
        let cluster = &self.cluster;
        cluster.view.members.get(cluster.directory.slots.owner(slot)) == Some(&cluster.me)
            && cluster.directory.is_ready(slot)
    }

    /// A new name.
    pub(crate) fn place_by_slot(&mut self, cx: &mut Context<'_>, resource: u32) {
        let name = &self.resources[resource].name;
        let (slot, owner) = (slot_of(name.as_bytes()), self.slot_owner(name.as_bytes()));
        if self.serves(slot) && !self.lacks_numbers(cx, 1) {
            self.resources[resource].term = self.next_term();
        } else {
            self.aim(resource, owner);
        }
    }

    /// Makes a name one that this member is to serve.
    fn aim(&mut self, resource: u32, owner: Member) {
        if owner == self.cluster.me {
            self.cluster.rebuilt = true;
            self.set_role(resource, Kind::Rebuilding(Vec::new()));
        } else {
            self.set_role(resource, Kind::Remote { master: owner, term: Token(0) });
        }
    }

    /// A view was installed: names go to their slots' owners; `need` are the slots that came here.
    pub(crate) fn begin_by_slot(&mut self, cx: &mut Context<'_>, need: Vec<(u16, u16)>) {
        let members: BTreeSet<Member> = self.cluster.view.members.iter().copied().collect();
        self.cluster.names_due = members.clone();
        self.by_slot().needs_due = members;
        for resource in 1..self.resources.end() {
            let Some(known) = self.resources.get(resource) else { continue };
            let slot = slot_of(known.name.as_bytes());
            let served = known.role.is_none() || self.is_rebuilding(resource);
            if served && self.serves(slot) {
                continue;
            }
            let owner = self.slot_owner(self.resources[resource].name.as_bytes());
            self.give_up(cx, resource);
            self.aim(resource, owner);
            self.go_on(cx, resource);
        }
        self.say_to_all(cx, &Tagged::NeedNames { slots: need });
    }

    pub(crate) fn is_rebuilding(&self, resource: u32) -> bool {
        let role = self.resources[resource].role.as_deref();
        role.is_some_and(|role| matches!(role.kind, Kind::Rebuilding(_)))
    }

    /// Sends what can be sent to the slot's owner now, or forgets a name that nobody here wants.
    fn go_on(&mut self, cx: &mut Context<'_>, resource: u32) {
        let own = self.own_locks(resource);
        if own.is_empty() {
            self.resources[resource].role = None;
            return self.forget_resource(resource);
        }
        for index in own {
            self.send_op(cx, index);
        }
    }

    /// Stops serving, or rebuilding, a name: what others own is dropped, what this node owns goes to
    /// the list of own locks.
    fn give_up(&mut self, cx: &mut Context<'_>, resource: u32) {
        match self.resources[resource].role.as_deref_mut() {
            Some(Role { kind: Kind::Rebuilding(records), parked, .. }) => {
                parked.clear(); // sent anew, as everything is
                let records = core::mem::take(records);
                for record in records {
                    if matches!(self.locks[record.lock].owner, Owner::Remote { .. }) {
                        self.drop_copy(cx, record.lock);
                    }
                }
            }
            Some(role) => role.parked.clear(),
            None => self.cede(cx, resource),
        }
    }

    fn drop_copy(&mut self, cx: &mut Context<'_>, index: u32) {
        let Owner::Remote { peer, id } = self.locks[index].owner else { return };
        let owner = self.cluster.peers[usize::from(peer)].member;
        self.by_slot().dropped.insert((owner, id));
        self.destroy_lock(cx, index);
    }

    /// Gives up a name that this node serves, and keeps its value block for the new master.
    fn cede(&mut self, cx: &mut Context<'_>, resource: u32) {
        self.forget_idle(cx, resource);
        let mut locks = self.queued_locks(resource);
        let last = Token(self.token());
        let (term, seq) = (self.resources[resource].term, self.resources[resource].value_seq);
        let mut invalid = self.resources[resource].invalid;
        let value = self.resources[resource].value.as_deref().copied();
        let mut writes = false;
        self.set_role(resource, Kind::Rebuilding(Vec::new()));
        for index in locks.drain(..) {
            self.leave_queue(index);
            let lock = &mut self.locks[index];
            writes |= lock.flags.has(LockFlags::VALBLK);
            if let Some(mode) = lock.granted {
                self.resources[resource].release(mode);
            }
            if lock.state == LockState::Granted {
                lock.requested = None;
            }
            if let Owner::Remote { peer, .. } = lock.owner {
                let writer = matches!(lock.granted, Some(Mode::PW | Mode::EX));
                let owner = self.cluster.peers[usize::from(peer)].member;
                let lost = !self.cluster.is_member(owner);
                invalid |= lost && writer && self.locks[index].flags.has(LockFlags::VALBLK);
                self.drop_copy(cx, index);
                continue;
            }
            let seen = value.filter(|_| lock.value_seq() == seq && lock.value().is_some());
            let owed = self.cluster.owed.forget_call(lock.id) && lock.state != LockState::Granted;
            let rare = lock.rare();
            rare.marked = if seen.is_some() { invalid } else { rare.marked };
            rare.seen = seen.or(rare.seen);
            let place = rare.place.take();
            let me = self.cluster.me;
            rare.away = Some(Away { master: Some(me), place, term, ..Away::default() });
            if owed {
                self.ask_anew(index);
            }
            self.cluster.away_locks += 1;
            let role = self.resources[resource].role.as_mut().expect("set above");
            role.own.push_back(&mut self.locks, Chain::Resource, index);
        }
        let given = &mut self.resources[resource];
        given.settle();
        given.contention = None;
        (given.value, given.invalid, given.value_seq) = (None, false, 0);
        // Also that nothing was written is worth saying to whoever rebuilds a write in flight.
        if value.is_some() || invalid || seq > 0 || writes {
            let name = given.name.clone();
            self.keep_ceded(Ceded { name, value, seq, invalid, last, sure: true });
        }
    }

    /// A call on a lock that its master had not judged yet is the next one's to judge (R19).
    fn ask_anew(&mut self, index: u32) {
        let lock = &mut self.locks[index];
        let converts = lock.granted.and(lock.requested);
        if converts.is_some() {
            (lock.state, lock.requested) = (LockState::Granted, None);
        }
        let Some(away) = lock.away_mut() else { return };
        let kind = converts.map_or(OpKind::Request, OpKind::Convert);
        (away.op, away.place) = (Some(Op { kind, seq: 0 }), None);
        away.master = away.master.filter(|_| converts.is_some());
    }

    /// All locks on a name that is served here: oldest grant first, then the queues.
    fn queued_locks(&self, resource: u32) -> Vec<u32> {
        let known = &self.resources[resource];
        let mut all: Vec<u32> = known.granted.iter(&self.locks, Chain::Resource).collect();
        all.reverse();
        if let Some(contention) = &known.contention {
            all.extend(contention.converting.iter(&self.locks, Chain::Resource));
            all.extend(contention.waiting.iter(&self.locks, Chain::Resource));
        }
        all
    }

    fn keep_ceded(&mut self, ceded: Ceded) {
        let key = (slot_of(ceded.name.as_bytes()), ceded.name.as_bytes().into());
        let known = &mut self.by_slot().ceded;
        let better = known
            .get(&key)
            .is_none_or(|old: &Ceded| (ceded.sure, ceded.last) > (old.sure, old.last));
        if better {
            known.insert(key, ceded);
        }
    }

    /// What the master so far knew of a name.
    pub(crate) fn on_ceded(&mut self, ceded: Ceded) {
        if self.cluster.layout.nodir {
            self.saw_token(ceded.last);
            self.keep_ceded(ceded);
        }
    }

    /// The value block that came with a name, for the one who serves it now.
    pub(crate) fn take_ceded(&mut self, resource: u32) -> Option<Ceded> {
        let name = self.resources[resource].name.as_bytes();
        let key = (slot_of(name), name.into());
        self.cluster.directory.nodir.as_mut()?.ceded.remove(&key)
    }

    /// All slots are served: what was given up has arrived. Of names that nobody holds only the mark
    /// is left.
    pub(crate) fn forget_ceded(&mut self, cx: &mut Context<'_>) {
        let all = core::mem::take(&mut self.by_slot().ceded);
        for (key, ceded) in all {
            match self.find_resource(&key.1) {
                Some(resource) if self.is_rebuilding(resource) => {
                    self.by_slot().ceded.insert(key, ceded);
                }
                None if ceded.invalid && self.serves(key.0) => {
                    if let Some(resource) = self.resource_of(cx, &key.1) {
                        self.resources[resource].invalid = true;
                        self.tidy_resource(cx, resource);
                    }
                }
                _ => {}
            }
        }
    }

    /// A member says which slots it has to rebuild: it gets what this node knows of their names, and
    /// later this node's locks.
    pub(crate) fn on_need_locks(
        &mut self,
        cx: &mut Context<'_>,
        from: Member,
        slots: Vec<(u16, u16)>,
    ) {
        let nodir = self.by_slot();
        nodir.needs_due.remove(&from);
        let mut values = Vec::new();
        for (low, high) in slots {
            (low..=high).for_each(|slot| nodir.needed.insert(slot));
            let from = (low, Box::<[u8]>::default());
            let names = nodir.ceded.range(from..).take_while(|((slot, _), _)| *slot <= high);
            values.extend(names.map(|(_, ceded)| ceded.clone()));
        }
        for ceded in values {
            self.say(cx, from, Tagged::Value(Box::new(ceded)));
        }
        self.say(cx, from, Tagged::NamesDone);
        self.check_all_safe(cx);
    }

    /// Moves own locks on a name to the slot's owner, if it needs them, or if they are between
    /// masters (R13).
    pub(crate) fn move_by_slot(&mut self, cx: &mut Context<'_>, resource: u32) {
        let name = self.resources[resource].name.clone();
        let needed = self.by_slot().needed.contains(slot_of(name.as_bytes()));
        let mut moves = false;
        for index in self.own_locks(resource) {
            let moved = needed && !self.asked_now(index);
            if moved || self.must_move(index) {
                moves = true;
                self.prepare_move(cx, index);
            }
        }
        if moves {
            let owner = self.slot_owner(name.as_bytes());
            self.send_records(cx, resource, owner, Token(0));
            self.tidy_role(cx, resource);
        }
    }

    /// Whether a lock is a request that was sent in this view, and so to the member that rebuilds or
    /// serves its name.
    fn asked_now(&self, index: u32) -> bool {
        self.locks[index].away().is_some_and(|away| {
            let sent = matches!(away.op, Some(op) if op.kind == OpKind::Request && op.seq != 0);
            sent && away.asked == self.cluster.view.id
        })
    }

    /// A conversion that only gave up rights was completed and nobody told: the lock moves, so that its
    /// master hears of it whoever that is.
    pub(crate) fn note_untold(&mut self, index: u32) {
        let Some(away) = self.locks[index].away_mut() else { return };
        if away.master.is_some() && away.moving.is_none() {
            away.moving = Some(Moving { sent: None, flight: Flight::Nothing });
        }
    }

    /// Whether records for a name are taken. One for a name that is served says that its owner moved
    /// away in a view that this node skipped: the slot is given up, with the next view.
    pub(crate) fn takes_records(&mut self, cx: &mut Context<'_>, name: &Name) -> bool {
        let slot = slot_of(name.as_bytes());
        if !self.serves(slot) {
            return self.slot_owner(name.as_bytes()) == self.cluster.me;
        }
        if bug("nodir-late-movers-ignored") {
            return false;
        }
        let spoiled = &mut self.by_slot().spoiled;
        if !spoiled.contains(slot) {
            spoiled.insert(slot);
            cx.out.push(Output::NeedView { lockspace: cx.space });
        }
        false
    }

    /// What to do with a request that was sent in `view`.
    pub(crate) fn visit(&mut self, cx: &mut Context<'_>, name: &Name, view: ViewId) -> Visit {
        let slot = slot_of(name.as_bytes());
        let mine = self.slot_owner(name.as_bytes()) == self.cluster.me;
        let old = view < self.by_slot().since[usize::from(slot)];
        if !mine || (old && !bug("nodir-old-requests-served")) {
            return Visit::Void;
        }
        let resource = match self.find_resource(name.as_bytes()) {
            // A new name takes a number, and who asks for it another one.
            None if self.serves(slot) && !self.lacks_numbers(cx, 2) => return Visit::Serve,
            None => {
                let resource = self.new_resource(name.clone());
                self.aim(resource, self.cluster.me);
                resource
            }
            Some(resource) if self.resources[resource].role.is_none() => return Visit::Serve,
            Some(resource) => resource,
        };
        Visit::Park(resource)
    }

    /// Whether an own lock may speak to the slot's owner: it never spoke to another, or moved.
    pub(crate) fn speaks_to(&self, index: u32, master: Member) -> bool {
        let away = self.locks[index].away();
        !self.cluster.layout.nodir
            || away.is_none_or(|away| {
                let fresh = matches!(away.op, Some(op) if op.kind == OpKind::Request);
                fresh || away.master.is_none_or(|of| of == master)
            })
    }

    /// A place in the queue for a lock of this node that waits: its next master goes by it.
    pub(crate) fn note_place(&mut self, index: u32) {
        let lock = &self.locks[index];
        if !self.cluster.layout.nodir || matches!(lock.owner, Owner::Remote { .. }) {
            return;
        }
        let place = self.cluster.next_place(lock.flags.has(LockFlags::HEADQUE));
        self.locks[index].rare().place = Some(place);
    }
}
