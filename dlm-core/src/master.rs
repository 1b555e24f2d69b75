//! Operations on a resource by its master: request, convert, unlock, cancel (3.2, 3.3, section 4).
//!
//! The owner's answer comes first, then what the operation sets free, then who must be told.

use crate::blocking::Want;
use crate::grant::{self, Pairs, Standing, Verdict, When};
use crate::lock::Lock;
use crate::lockspace::{Context, LockTable};
use crate::resource::Resource;
use crate::seeded::bug;
use crate::slab::NIL;
use crate::{LockFlags, LockState, Mode, SbFlags, Status};

impl LockTable {
    /// A new request: granted, refused, or queued (3.2).
    pub(crate) fn request(&mut self, cx: &mut Context<'_>, index: u32) {
        if self.is_spent() {
            return self.owe_call(cx, index);
        }
        let lock = &self.locks[index];
        let (resource, flags, mode) = (lock.resource, lock.flags, requested(lock));
        match self.judge_now(index) {
            Verdict::Grant => self.grant(cx, index),
            Verdict::Alternative(mode) => self.grant_alternative(cx, index, mode),
            _ if flags.has(LockFlags::NOQUEUE) => {
                self.end(cx, index, Status::Again);
                if flags.has(LockFlags::NOQUEUEBAST) || bug("failed-try-tells-always") {
                    self.tell_all(cx, resource, Want::Request(mode), NIL);
                }
                self.tidy_resource(cx, resource);
            }
            _ => {
                cx.counters.waits += 1;
                self.resources[resource].join_waiting(&mut self.locks, index);
                self.note_place(index);
                self.arm_limit(cx, index);
                self.tell(cx, resource, Want::Request(mode));
            }
        }
    }

    /// A conversion of a granted lock whose `requested` is set (3.3).
    pub(crate) fn convert(&mut self, cx: &mut Context<'_>, index: u32) {
        if self.is_spent() {
            return self.owe_call(cx, index);
        }
        let resource = self.locks[index].resource;
        let flags = self.locks[index].flags;
        match self.judge_now(index) {
            Verdict::Grant => self.grant(cx, index),
            Verdict::Alternative(mode) => self.grant_alternative(cx, index, mode),
            Verdict::Deadlock if !flags.has(LockFlags::NODLCKWT) => {
                if !bug("edeadlk-keeps-requested") {
                    self.change_granted(index, |lock| lock.requested = None);
                }
                return self.complete(cx, index, Status::Deadlock);
            }
            Verdict::Demote => {
                self.demote(index);
                if !bug("demotion-frees-nothing") {
                    self.pass_converting(cx, resource);
                }
                // What it set free may have taken the last number.
                let spent = self.lacks_numbers(cx, 1);
                if spent {
                    self.cluster.owed.passes.insert(resource);
                }
                if spent || !self.grantable_now(index) || bug("demoted-always-queues") {
                    return self.queue_conversion(cx, index);
                }
                self.grant(cx, index);
            }
            _ if flags.has(LockFlags::NOQUEUE) => {
                let mode = requested(&self.locks[index]);
                if bug("failed-conversion-forgets-mode") {
                    self.change_granted(index, |lock| lock.requested = None);
                }
                self.complete(cx, index, Status::Again);
                if flags.has(LockFlags::NOQUEUEBAST) {
                    self.tell_all(cx, resource, Want::Request(mode), index);
                }
                return;
            }
            _ => return self.queue_conversion(cx, index),
        }
        self.pass(cx, resource);
    }

    /// Ends a lock in any state with an unlock (4.2); a pending conversion is dropped with it.
    pub(crate) fn unlock(&mut self, cx: &mut Context<'_>, index: u32) {
        let resource = self.locks[index].resource;
        self.move_value_at_unlock(index);
        self.leave_queue(index);
        if let Some(mode) = self.locks[index].granted {
            self.resources[resource].release(mode);
        }
        self.end(cx, index, Status::Unlocked);
        self.pass(cx, resource);
        self.tidy_resource(cx, resource);
    }

    /// Drops a lock whose owner is lost: nobody is told, the others go on.
    pub(crate) fn drop_lock(&mut self, cx: &mut Context<'_>, index: u32) {
        let resource = self.locks[index].resource;
        self.leave_queue(index);
        if let Some(mode) = self.locks[index].granted {
            self.resources[resource].release(mode);
        }
        self.destroy_lock(cx, index);
        self.pass(cx, resource);
        self.tidy_resource(cx, resource);
    }

    /// Ends a pending request or conversion with this status; a granted lock has nothing to cancel.
    /// A conversion falls back to its granted mode.
    pub(crate) fn cancel(&mut self, cx: &mut Context<'_>, index: u32, status: Status) {
        let resource = self.locks[index].resource;
        match self.locks[index].state {
            LockState::Granted => return,
            LockState::Waiting => {
                self.leave_queue(index);
                self.end(cx, index, status);
            }
            LockState::Converting => {
                self.leave_queue(index);
                let lock = &mut self.locks[index];
                if !bug("cancel-keeps-requested") {
                    lock.requested = None;
                }
                lock.since = cx.now.into();
                self.resources[resource].join_granted(&mut self.locks, index);
                self.complete(cx, index, status);
            }
        }
        if bug("cancel-without-pass") {
            return self.tidy_resource(cx, resource);
        }
        self.pass(cx, resource);
        self.tidy_resource(cx, resource);
    }

    /// Takes a lock off whatever queue it is on. What it holds still counts.
    pub(crate) fn leave_queue(&mut self, index: u32) {
        let lock = &self.locks[index];
        let state = lock.state;
        let resource = &mut self.resources[lock.resource];
        match state {
            LockState::Granted => resource.leave_granted(&mut self.locks, index),
            LockState::Converting => resource.leave_converting(&mut self.locks, index),
            LockState::Waiting => resource.leave_waiting(&mut self.locks, index),
        }
    }

    /// Changes a lock that stays on the granted queue.
    pub(crate) fn change_granted(&mut self, index: u32, change: impl FnOnce(&mut Lock)) {
        let lock = &mut self.locks[index];
        self.resources[lock.resource].change_granted(lock, change);
    }

    /// Grants the requested mode of a lock, wherever it is now, and completes its operation.
    pub(crate) fn grant(&mut self, cx: &mut Context<'_>, index: u32) {
        let lock = &self.locks[index];
        let (from, to, state) = (lock.granted, requested(lock), lock.state);
        let resource = lock.resource;
        self.move_value_at_grant(index, from, to);
        let token = self.next_token(cx);
        let now = cx.now;
        let apply = |lock: &mut Lock| {
            lock.granted = Some(to);
            lock.requested = None;
            if !bug("grant-keeps-memory") {
                lock.told = Mode::NL;
            }
            lock.since = now.into();
            lock.token = token;
        };
        let table = &mut self.resources[resource];
        if let Some(from) = from {
            table.release(from);
        }
        table.hold(to);
        if state == LockState::Granted && from == Some(to) && !bug("same-mode-to-head") {
            table.change_granted(&mut self.locks[index], apply);
        } else {
            match state {
                LockState::Granted => table.leave_granted(&mut self.locks, index),
                LockState::Converting => table.leave_converting(&mut self.locks, index),
                LockState::Waiting if self.locks[index].queued => {
                    table.leave_waiting(&mut self.locks, index);
                }
                LockState::Waiting => {}
            }
            apply(&mut self.locks[index]);
            self.resources[resource].join_granted(&mut self.locks, index);
        }
        cx.counters.grants += 1;
        self.check_exclusion(resource);
        self.complete(cx, index, Status::Granted);
    }

    /// Grants an alternative mode (1.5).
    pub(crate) fn grant_alternative(&mut self, cx: &mut Context<'_>, index: u32, mode: Mode) {
        self.ask_for(index, mode);
        let lock = &mut self.locks[index];
        lock.sb_flags = lock.sb_flags | SbFlags::ALTMODE;
        self.grant(cx, index);
    }

    /// Demotes a converting lock to NL to resolve a conversion deadlock (1.5).
    pub(crate) fn demote(&mut self, index: u32) {
        let lock = &mut self.locks[index];
        let resource = &mut self.resources[lock.resource];
        let mode = lock.granted.expect("only a conversion is demoted");
        resource.release(mode);
        resource.hold(Mode::NL);
        let apply = |lock: &mut Lock| {
            lock.granted = Some(Mode::NL);
            lock.sb_flags = lock.sb_flags | SbFlags::DEMOTED;
        };
        match lock.state {
            LockState::Granted => resource.change_granted(lock, apply),
            _ => apply(lock),
        }
    }

    fn queue_conversion(&mut self, cx: &mut Context<'_>, index: u32) {
        cx.counters.waits += 1;
        let lock = &mut self.locks[index];
        let (resource, mode) = (lock.resource, requested(lock));
        lock.since = cx.now.into();
        self.resources[resource].leave_granted(&mut self.locks, index);
        self.resources[resource].join_converting(&mut self.locks, index);
        self.note_place(index);
        self.arm_limit(cx, index);
        match bug("queued-conversion-tells-converters") {
            true => self.tell_all(cx, resource, Want::Request(mode), index),
            false => self.tell(cx, resource, Want::Request(mode)),
        }
    }

    /// Replaces the requested mode of a lock, keeping the counts of its queue.
    fn ask_for(&mut self, index: u32, mode: Mode) {
        let lock = &mut self.locks[index];
        let old = requested(lock) as usize;
        let queued = self.resources[lock.resource].contention.as_mut();
        let counts = match (lock.state, queued) {
            (LockState::Converting, Some(contention)) => &mut contention.converting_modes,
            (LockState::Waiting, Some(contention)) if lock.queued => &mut contention.waiting_modes,
            _ => return lock.requested = Some(mode),
        };
        counts[old] -= 1;
        counts[mode as usize] += 1;
        lock.requested = Some(mode);
    }

    fn judge_now(&self, index: u32) -> Verdict {
        let lock = &self.locks[index];
        let resource = &self.resources[lock.resource];
        let standing = standing(lock, resource, false);
        let conflict = |mode| resource.conflicts(lock.granted, mode);
        let deadlock = || {
            let ahead = resource.converting_set();
            let granted = lock.granted.expect("only conversions are tested");
            grant::conversion_deadlock(granted, requested(lock), ahead, &Pairs::default())
        };
        grant::decide(&standing, requested(lock), When::Now, conflict, deadlock)
    }

    fn grantable_now(&self, index: u32) -> bool {
        let lock = &self.locks[index];
        let resource = &self.resources[lock.resource];
        let conflict = |mode| resource.conflicts(lock.granted, mode);
        grant::grantable(&standing(lock, resource, false), requested(lock), When::Now, conflict)
    }
}

/// What the rules need to know of a lock.
pub(crate) fn standing(lock: &Lock, resource: &Resource, first: bool) -> Standing {
    Standing {
        granted: lock.granted,
        flags: lock.flags,
        converting_empty: resource.first_converting() == NIL,
        waiting_empty: resource.first_waiting() == NIL,
        first,
    }
}

/// The mode a lock asks for.
pub(crate) fn requested(lock: &Lock) -> Mode {
    lock.requested.expect("a lock with a pending operation asks for a mode")
}
