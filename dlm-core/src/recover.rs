//! A new view, and what has to be due before names go on (recovery.md section 5).
//!
//! ```text
//!  View ─► slots, NeedNames, looked-up names again ─► (all unsafe safe) ─► claims, records ─► LocksDone
//!                      │                                                                        │
//!                      └──────── all NamesDone: claims answered        all LocksDone: names finished, slots ready
//! ```
//!
//! Only names whose master is lost wait for it; everything else goes on meanwhile.

use crate::away::{Kind, Moving, Op, OpKind};
use crate::cluster::Job;
use crate::lock::Chain;
use crate::lockspace::{Context, LockTable};
use crate::message::{Flight, Record, Tagged, Traffic};
use crate::seeded::cluster_fault;
use crate::slab::NIL;
use crate::slots::slot_of;
use crate::{LockFlags, LockId, LockState, Marks, Member, Mode, Name, Output, Status, Token, View};

/// Names that one part of a job looks at.
pub(crate) const JOB_PART: u32 = 512;
/// Names, or locks, with which it does something: some tens of microseconds, the time that others wait
/// for it.
pub(crate) const WORK_PART: u32 = 12;
/// Names in one message.
const NAMES_PER_MESSAGE: usize = 32;

impl LockTable {
    /// Installs a view: the steps of section 5, in their order.
    pub(crate) fn install(&mut self, cx: &mut Context<'_>, view: View, first: bool) {
        let gone: Vec<Member> = self
            .cluster
            .view
            .members
            .iter()
            .copied()
            .filter(|member| !first && !view.members.contains(member))
            .collect();
        self.rebase(view.id);
        self.cluster.marks = Marks::begin(cx.now);
        let need = self.install_slots(&view, first); // 2
        let (id, members) = (view.id, view.members.clone());
        self.cluster.view = view; // 1
        self.cluster.departed.extend(gone);
        self.cluster.departed.extend(self.cluster.view.unsafe_members.iter().copied());
        for member in &members {
            self.cluster.departed.remove(member);
        }
        self.cluster.names_due.clear();
        self.cluster.inbox.clear();
        self.cluster.claims_open = 0;
        self.cluster.locks_done_said = false;
        self.cluster.jobs.retain(|job| {
            matches!(job, Job::Drop { .. } | Job::Settle { .. } | Job::Finish { .. })
        });
        self.cluster.moved_all = false;
        self.cluster.locks_due = members.iter().copied().collect(); // 6
        self.cluster.strangers.clear();
        if self.cluster.layout.nodir {
            self.begin_by_slot(cx, need);
        } else if !need.is_empty() {
            self.cluster.names_due = members.iter().copied().collect();
            self.say_to_all(cx, &Tagged::NeedNames { slots: need }); // 3
        }
        self.ask_again(cx); // 4
        self.drop_safe_peers();
        cx.out.push(Output::Acknowledge { lockspace: cx.space, view: id }); // 8
        self.check_all_safe(cx); // 7
        self.make_up(cx); // with the numbers of this view (R19)
        for (from, message) in self.cluster.take_held() {
            self.on_message(cx, from, message); // 9
        }
    }

    /// A member is harmless from now on (B3).
    pub(crate) fn on_safe(&mut self, cx: &mut Context<'_>, member: Member) {
        let before = self.cluster.all_safe();
        self.cluster.safe.insert(member);
        self.drop_safe_peers();
        if !before {
            self.check_all_safe(cx);
        }
    }

    /// Locks of lost members that are safe by now are dropped (R11).
    fn drop_safe_peers(&mut self) {
        for peer in &self.cluster.peers {
            let lost = self.cluster.departed.contains(&peer.member);
            let queued = self
                .cluster
                .jobs
                .iter()
                .any(|job| matches!(job, Job::Drop { of } if *of == peer.member));
            let safe = self.cluster.safe.contains(&peer.member);
            let safe = safe || cluster_fault("lost-locks-dropped-at-view");
            if lost && safe && !queued && !peer.locks.is_empty() {
                self.cluster.jobs.push_back(Job::Drop { of: peer.member });
            }
        }
    }

    /// Once every lost member is safe, locks whose master is lost move (R13).
    pub(crate) fn check_all_safe(&mut self, cx: &mut Context<'_>) {
        let moving = self.cluster.jobs.iter().any(|job| matches!(job, Job::Move { .. }));
        let nodir = self.cluster.directory.nodir.as_deref();
        let moving = moving || nodir.is_some_and(|nodir| !nodir.needs_known());
        if !self.cluster.all_safe() || self.cluster.locks_done_said || moving {
            return;
        }
        if self.resources.len() > 0 {
            return self.cluster.jobs.push_back(Job::Move { from: 1 });
        }
        self.cluster.moved_all = true;
        self.check_locks_done(cx);
    }

    /// Questions of the old view are asked again in the new one; a name that was being forgotten is
    /// forgotten (R8), unless its directory is still the same.
    fn ask_again(&mut self, cx: &mut Context<'_>) {
        for resource in core::mem::take(&mut self.cluster.asking).iter() {
            let Some(role) = self.resources.get_mut(resource).and_then(|r| r.role.as_deref_mut())
            else {
                continue;
            };
            let claimed = core::mem::take(&mut role.claimed);
            let unused = role.own.is_empty();
            match role.kind {
                // Nothing is to be moved any more, and what the directory said is not known: it is asked
                // again, or it might name this node for ever (R9).
                Kind::Remote { .. } if claimed && unused => self.set_role(resource, Kind::Claiming),
                Kind::Lookup { first, .. } => {
                    // A mastership of the old view refuses nothing in the new one.
                    self.cluster.marks.names_waited += 1;
                    self.set_role(resource, Kind::Lookup { first, refused: None });
                    if !cluster_fault("look-ups-not-repeated") {
                        self.look_up(cx, resource);
                    }
                }
                Kind::Leaving => {
                    let name = self.resources[resource].name.clone();
                    if self.slot_owner(name.as_bytes()) == self.cluster.me {
                        self.forgotten(cx, resource);
                    } else {
                        self.cluster.asking.insert(resource);
                        self.say_remove(cx, resource);
                    }
                }
                _ => {}
            }
        }
    }

    fn set_claimed(&mut self, resource: u32, claimed: bool) {
        if let Some(role) = self.resources[resource].role.as_deref_mut() {
            role.claimed = claimed;
            let asks = claimed || matches!(role.kind, Kind::Lookup { .. } | Kind::Leaving);
            match asks {
                true => self.cluster.asking.insert(resource),
                false => self.cluster.asking.remove(resource),
            }
        }
    }

    /// One part of the work that is due; true while there is more.
    pub(crate) fn work(&mut self, cx: &mut Context<'_>) -> bool {
        let cluster = &mut self.cluster;
        if !cluster.inbox.is_empty() {
            self.work_inbox(cx);
            return self.cluster.has_work();
        }
        let Some(next) = cluster.jobs.iter().position(|job| cluster.owed.may_run(job)) else {
            return false;
        };
        let Some(job) = cluster.jobs.remove(next) else { return false };
        let rest = match job {
            Job::Names { to, slots, from } => self.job_names(cx, to, slots, from),
            Job::Drop { of } => self.job_drop(cx, of),
            Job::Move { from } => self.job_move(cx, from),
            Job::Settle { master, round, from } => self.job_settle(cx, master, round, from),
            Job::Finish { round, from } => self.job_finish(cx, round, from),
            Job::Reconsider { after } => self.job_reconsider(cx, after),
            Job::Sweep { from } => self.job_sweep(from),
        };
        if let Some(job) = rest {
            self.cluster.jobs.push_front(job);
        }
        self.cluster.has_work()
    }

    /// Says which names of these slots are mastered here (R5).
    fn job_names(
        &mut self,
        cx: &mut Context<'_>,
        to: Member,
        slots: Vec<(u16, u16)>,
        from: u32,
    ) -> Option<Job> {
        let mut end = self.resources.end().min(from.saturating_add(JOB_PART));
        let last = Token(self.token());
        let mut names = Vec::new();
        for index in from..end {
            if names.len() >= NAMES_PER_MESSAGE {
                end = index;
                break;
            }
            let Some(resource) = self.resources.get(index) else { continue };
            let mine = match resource.role.as_deref() {
                None => true,
                Some(role) => matches!(role.kind, Kind::Rebuilding(_)),
            };
            let slot = slot_of(resource.name.as_bytes());
            // Ranges are in order, and have no slot in common.
            let range = slots.partition_point(|(_, high)| *high < slot);
            if mine && slots.get(range).is_some_and(|(low, _)| *low <= slot) {
                names.push((resource.name.clone(), resource.term, last));
            }
        }
        if !names.is_empty() {
            self.say(cx, to, Tagged::Names { names });
        }
        if end < self.resources.end() {
            return Some(Job::Names { to, slots, from: end });
        }
        self.say(cx, to, Tagged::NamesDone);
        None
    }

    /// Drops locks of a lost member; what it could have written is marked (8.5).
    fn job_drop(&mut self, cx: &mut Context<'_>, of: Member) -> Option<Job> {
        // If they all ended meanwhile its place may be another member's.
        let peer = self.cluster.peers.iter().position(|peer| peer.member == of)?;
        for _ in 0..WORK_PART {
            let head = self.cluster.peers[peer].locks.head;
            if head == NIL {
                return None;
            }
            let lock = &self.locks[head];
            let writer = matches!(lock.granted, Some(Mode::PW | Mode::EX));
            let marks = writer && lock.flags.has(LockFlags::VALBLK);
            let resource = lock.resource;
            self.cluster.marks.locks_dropped += 1;
            if self.resources[resource].role.is_some() {
                // A name being rebuilt: the record is dropped with its member.
                self.drop_record(cx, head);
                continue;
            }
            self.resources[resource].invalid |= marks && !cluster_fault("lost-writer-unmarked");
            self.drop_lock(cx, head);
        }
        Some(Job::Drop { of })
    }

    /// Moves own locks whose master is lost, and those already moving (R13, R17).
    fn job_move(&mut self, cx: &mut Context<'_>, from: u32) -> Option<Job> {
        let mut end = self.resources.end().min(from.saturating_add(JOB_PART));
        let mut moved = 0;
        for index in from..end {
            if moved >= WORK_PART {
                end = index;
                break;
            }
            let Some(role) = self.resources.get(index).and_then(|r| r.role.as_deref()) else {
                continue;
            };
            if self.cluster.layout.nodir {
                self.move_by_slot(cx, index);
                continue;
            }
            let lost = match role.kind {
                Kind::Remote { master, .. } => !self.cluster.is_member(master),
                Kind::Claiming => true,
                Kind::Lookup { .. } | Kind::Rebuilding(_) | Kind::Leaving => false,
            };
            let moves = lost
                || (matches!(role.kind, Kind::Remote { .. }) && !role.parked.is_empty())
                || role.own.iter(&self.locks, Chain::Resource).any(|lock| self.must_move(lock));
            if moves {
                moved += 1;
                self.move_name(cx, index);
            }
        }
        if end < self.resources.end() {
            return Some(Job::Move { from: end });
        }
        self.cluster.moved_all = true;
        self.check_locks_done(cx);
        None
    }

    /// Whether a lock is between two masters, or its master is lost.
    pub(crate) fn must_move(&self, index: u32) -> bool {
        self.locks[index].away().is_some_and(|away| {
            away.moving.is_some()
                || away.master.is_some_and(|master| !self.cluster.is_member(master))
        })
    }

    fn move_name(&mut self, cx: &mut Context<'_>, resource: u32) {
        self.cluster.marks.names_waited += 1;
        for index in self.own_locks(resource) {
            if self.must_move(index) {
                self.prepare_move(cx, index);
            }
        }
        let moving = self.is_moving(resource);
        let role = self.resources[resource].role.as_ref().expect("a name to move has a role");
        let lost = match role.kind {
            Kind::Remote { master, .. } => !self.cluster.is_member(master),
            Kind::Claiming => true,
            _ => false,
        };
        let name = self.resources[resource].name.clone();
        // A claim of an older view may have made this node the master, for others too: it is made again
        // although nothing moves (R9), and a look-up would not do, since records may come (R14).
        if moving || matches!(role.kind, Kind::Claiming) || !role.parked.is_empty() {
            if lost {
                self.set_role(resource, Kind::Claiming);
            }
            self.cluster.claims_open += 1;
            self.set_claimed(resource, true);
            let owner = self.slot_owner(name.as_bytes());
            self.say(cx, owner, Tagged::Claim { name });
        } else if lost {
            let first = match role.own.head {
                NIL => LockId(0),
                head => self.locks[head].id,
            };
            if role.own.is_empty() && role.parked.is_empty() {
                self.resources[resource].role = None;
                return self.forget_resource(resource);
            }
            self.set_role(resource, Kind::Lookup { first, refused: None });
            self.look_up(cx, resource);
        } else if !cluster_fault("lost-requests-wait") {
            // A request was under way to a lost node that was not the master any more: the master is known.
            for index in self.own_locks(resource) {
                self.send_op(cx, index);
            }
        }
    }

    pub(crate) fn is_moving(&self, resource: u32) -> bool {
        let own = self.resources[resource].role.iter();
        own.flat_map(|role| role.own.iter(&self.locks, Chain::Resource))
            .any(|index| self.locks[index].away().is_some_and(|a| a.moving.is_some()))
    }

    /// An unlock followed a conversion to a master that is lost now. It may have done both, and granted
    /// others what the lock had: it counts as an unlock in flight, from the most that the lock can have
    /// held.
    fn move_as_unlock(&mut self, index: u32) {
        let lock = &mut self.locks[index];
        let (granted, requested) = (lock.granted, lock.requested);
        let Some(away) = lock.away_mut() else { return };
        let unlocks = away.beside.is_some_and(|beside| beside.unlock != 0);
        let kept = away.moving.and_then(|moving| moving.sent);
        if !unlocks || granted.is_none() || kept.is_some() || cluster_fault("unlock-beside-noted") {
            return;
        }
        let target = match away.op.map(|op| op.kind) {
            Some(OpKind::Convert(mode)) => Some(mode),
            _ => requested,
        };
        away.beside = None;
        away.op = Some(Op { kind: OpKind::Unlock, seq: 0 });
        (away.reached, away.noted_cancel) = (true, false);
        lock.granted = target.filter(|mode| matches!(mode, Mode::PW | Mode::EX)).or(granted);
        (lock.requested, lock.state) = (None, LockState::Granted);
    }

    /// What becomes of one own lock whose master is lost (R13): ended, asked for anew, or moved.
    pub(crate) fn prepare_move(&mut self, cx: &mut Context<'_>, index: u32) {
        self.move_as_unlock(index);
        let state = self.locks[index].state;
        let bytes = self.locks[index].flags.any(LockFlags::VALBLK | LockFlags::IVVALBLK)
            && matches!(self.locks[index].granted, Some(Mode::PW | Mode::EX));
        let members = &self.cluster.view.members;
        let away = self.locks[index].away_mut().expect("an own lock is away");
        let sent = away.moving.and_then(|moving| moving.sent);
        if sent.is_some_and(|(master, _)| members.contains(&master)) {
            return; // its new master has the record, and gets it again (R17)
        }
        let op = away.op;
        // A cancel beside a conversion, or an unlock of a request, was lost with the master: it is noted instead.
        if let Some(beside) = away.beside.take() {
            away.noted_unlock |= beside.unlock != 0;
            away.noted_cancel |= beside.cancel != 0;
        }
        match op.map(|op| op.kind) {
            Some(OpKind::Request) if !cluster_fault("lost-requests-forgotten") => {
                away.op = Some(Op { kind: OpKind::Request, seq: 0 });
                (away.moving, away.master) = (None, None);
                if away.noted_unlock || away.noted_cancel {
                    self.end_if_noted(cx, index);
                }
                return;
            }
            Some(OpKind::Unlock) if !bytes => {
                let resource = self.locks[index].resource;
                self.leave_own(resource, index);
                return self.end(cx, index, Status::Unlocked);
            }
            Some(OpKind::Cancel) if state == LockState::Waiting => {
                let status = self.take_cancel_status(index);
                let resource = self.locks[index].resource;
                self.leave_own(resource, index);
                return self.end(cx, index, status);
            }
            Some(OpKind::Cancel) => {
                away.op = None;
                away.noted_cancel = true;
            }
            Some(kind) => {
                away.reached |= op.is_some_and(|op| op.seq != 0);
                away.op = Some(Op { kind, seq: 0 });
            }
            None => {}
        }
        let away = self.locks[index].away_mut().expect("an own lock is away");
        away.master_id = LockId(0);
        away.master = None;
        away.moving = Some(Moving { sent: None, flight: Flight::Nothing });
    }

    /// A claim was answered: the records go to the new master.
    pub(crate) fn on_claim_reply(
        &mut self,
        cx: &mut Context<'_>,
        name: &Name,
        master: Member,
        term: Token,
    ) {
        self.cluster.claims_open = self.cluster.claims_open.saturating_sub(1);
        self.saw_token(term);
        if let Some(resource) = self.find_resource(name.as_bytes()) {
            self.move_records(cx, resource, master, term);
        }
        self.check_locks_done(cx);
    }

    /// Sends the moving locks of a name to its new master, unless all were settled meanwhile.
    fn move_records(&mut self, cx: &mut Context<'_>, resource: u32, master: Member, term: Token) {
        let Some(role) = self.resources[resource].role.as_ref() else { return };
        let same = matches!(role.kind, Kind::Remote { master: of, .. } if of == master);
        let claiming = matches!(role.kind, Kind::Claiming);
        self.set_claimed(resource, false);
        if master == self.cluster.me {
            // Also where nothing moves any more: the directory says so to everybody.
            self.begin_rebuild(resource, term);
        } else if !claiming && !self.is_moving(resource) {
            self.refuse_parked(cx, resource);
            return self.tidy_role(cx, resource);
        } else if !same {
            self.set_role(resource, Kind::Remote { master, term });
        }
        self.send_records(cx, resource, master, term);
        if master != self.cluster.me {
            self.refuse_parked(cx, resource);
            self.tidy_role(cx, resource);
        }
    }

    pub(crate) fn send_records(
        &mut self,
        cx: &mut Context<'_>,
        resource: u32,
        master: Member,
        under: Token,
    ) {
        let view = self.cluster.view.id;
        // By slot whoever takes a record has not served the name since an earlier view.
        let anew = self.cluster.layout.nodir && !cluster_fault("nodir-old-thaw-settles");
        for index in self.own_locks(resource) {
            let mut record = self.record_of(index, under);
            let away = self.locks[index].away_mut().expect("an own lock is away");
            let Some(moving) = &mut away.moving else {
                self.send_op(cx, index);
                continue;
            };
            let since = match moving.sent {
                Some((to, since)) if to == master => {
                    // It may serve the lock by now, and know of no later call.
                    record.flight = moving.flight;
                    if anew { view } else { since }
                }
                _ => view,
            };
            moving.sent = Some((master, since));
            self.cluster.marks.locks_moved += 1;
            if master != self.cluster.me {
                *self.cluster.marks.thaws_due.entry(master).or_default() += 1;
            }
            moving.flight = record.flight;
            away.master = Some(master);
            self.say(cx, master, Tagged::Record(Box::new(record)));
        }
    }

    fn record_of(&self, index: u32, under: Token) -> Record {
        let lock = &self.locks[index];
        let away = lock.away().expect("an own lock is away");
        let flight = match away.op.map(|op| op.kind) {
            _ if !away.reached => Flight::Nothing, // made after the loss: it runs after the thaw
            Some(OpKind::Convert(mode)) => Flight::Convert(mode),
            Some(OpKind::Unlock) => Flight::Unlock,
            _ => Flight::Nothing,
        };
        Record {
            name: self.resources[lock.resource].name.clone(),
            lock: lock.id,
            under,
            term: away.term,
            granted: lock.granted,
            requested: lock.requested.filter(|_| lock.state != LockState::Granted),
            place: away.place,
            flags: lock.flags,
            pid: lock.pid,
            value: lock.value().copied(),
            seen: lock.seen(),
            marked: lock.rare.as_ref().is_some_and(|rare| rare.marked),
            value_seq: lock.value_seq(),
            told: lock.told,
            flight,
        }
    }

    /// When every own lock was sent and every lost member is safe, all members hear of it (R13).
    fn check_locks_done(&mut self, cx: &mut Context<'_>) {
        let done = self.cluster.moved_all
            && self.cluster.claims_open == 0
            && !self.cluster.locks_done_said
            && self.cluster.all_safe();
        if done {
            self.cluster.locks_done_said = true;
            let layout = self.cluster.layout.mark();
            self.say_to_all(cx, &Tagged::LocksDone { layout });
        }
    }

    pub(crate) fn on_locks_done(&mut self, cx: &mut Context<'_>, from: Member, layout: u32) {
        if layout != self.cluster.layout.mark() {
            self.cluster.strangers.insert(from);
            return;
        }
        if let Some(nodir) = &mut self.cluster.directory.nodir {
            nodir.forget_dropped(from);
        }
        let due = &mut self.cluster.locks_due;
        if due.remove(&from) && (due.is_empty() || cluster_fault("thaw-at-first-done")) {
            if !self.cluster.layout.nodir {
                self.thaw(cx);
            }
            self.check_ready(cx);
        }
    }

    /// Tells the owners of rebuilt names, then takes the names into service (R15).
    pub(crate) fn thaw(&mut self, cx: &mut Context<'_>) {
        let round = self.cluster.view.id;
        for owner in core::mem::take(&mut self.cluster.record_owners) {
            if self.cluster.is_member(owner) {
                self.send_traffic(cx, owner, Traffic::Thawed { round });
            }
        }
        if core::mem::take(&mut self.cluster.rebuilt) {
            self.cluster.jobs.push_back(Job::Finish { round, from: 1 });
        }
    }
}
