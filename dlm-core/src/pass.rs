//! The pass over the queues after something was set free (3.4), and who is told after it.
//!
//! In the usual case (no conversion with HEADQUE, NODLCKWT, CONVDEADLK or NOORDER is queued, no
//! waiter has NOORDER) only the head of a queue can be granted and no queued conversion can be in a
//! conversion deadlock: each was tested against all before it when it was queued, and has changed
//! nothing since. So a pass looks at heads only and costs what it grants. Otherwise it walks, once
//! per round, in the published order.

use crate::blocking::Want;
use crate::grant::{self, Pairs, Verdict, When};
use crate::lock::Chain;
use crate::lockspace::{Context, LockTable};
use crate::master::{requested, standing};
use crate::resource::{mode_set, strongest};
use crate::seeded::bug;
use crate::slab::NIL;
use crate::{LockFlags, Mode};

/// What a pass leaves blocked.
#[derive(Clone, Copy, Default)]
struct Blocked {
    /// Requested modes.
    modes: u8,
    /// A CW request was blocked in any round: this is not forgotten when a round starts again.
    cw: bool,
}

impl Blocked {
    fn add(&mut self, modes: u8) {
        self.modes |= modes;
        self.cw |= modes & (1 << Mode::CW as u8) != 0;
    }
}

impl LockTable {
    /// Grants what can be granted, converting locks first, and tells the holders that block the rest.
    pub(crate) fn pass(&mut self, cx: &mut Context<'_>, resource: u32) {
        self.pass_when(cx, resource, When::Later);
    }

    /// The converting half of a pass, for a lock that has just been demoted (3.3).
    pub(crate) fn pass_converting(&mut self, cx: &mut Context<'_>, resource: u32) {
        self.pass_conversions(cx, resource, When::Later);
    }

    /// The pass over a rebuilt name: conversions in any order (3.1 rule 4).
    pub(crate) fn pass_recovering(&mut self, cx: &mut Context<'_>, resource: u32) {
        self.pass_when(cx, resource, When::Recovery);
    }

    fn pass_when(&mut self, cx: &mut Context<'_>, resource: u32, when: When) {
        if self.cluster.owed.frozen {
            self.cluster.owed.passes.insert(resource);
            return;
        }
        if self.resources[resource].has_queue() {
            if self.lacks_numbers(cx, 1) {
                self.cluster.owed.passes.insert(resource);
                return;
            }
            let mut blocked = self.pass_conversions(cx, resource, when);
            if !bug("pass-grants-no-waiter") {
                self.pass_waiters(cx, resource, &mut blocked);
            }
            if let Some(high) = strongest(blocked.modes).filter(|_| !bug("pass-tells-nobody")) {
                self.tell(cx, resource, Want::Pass { high, cw: blocked.cw });
            }
            if self.lacks_numbers(cx, 1) {
                self.cluster.owed.passes.insert(resource); // it may have ended too early
            }
        }
        self.resources[resource].settle();
    }

    fn pass_conversions(&mut self, cx: &mut Context<'_>, resource: u32, when: When) -> Blocked {
        let mut blocked = Blocked::default();
        let special = self.resources[resource]
            .contention
            .as_ref()
            .is_some_and(|contention| contention.special_conversions > 0);
        if !special && when != When::Recovery {
            loop {
                let head = self.resources[resource].first_converting();
                if head == NIL || !self.try_grant(cx, head, true) {
                    break;
                }
            }
            blocked.add(self.resources[resource].converting_set());
            return blocked;
        }
        let mut demotion_rounds = 0;
        loop {
            blocked.modes = 0;
            let (granted, demoted) = self.walk_conversions(cx, resource, when, &mut blocked);
            demotion_rounds += u32::from(demoted && !granted);
            let again = granted || (demoted && demotion_rounds == 1);
            if !again || bug("pass-without-restart") {
                return blocked;
            }
        }
    }

    /// One round over the converting queue; whether something was granted, and demoted.
    fn walk_conversions(
        &mut self,
        cx: &mut Context<'_>,
        resource: u32,
        when: When,
        blocked: &mut Blocked,
    ) -> (bool, bool) {
        let (mut granted, mut demoted) = (false, false);
        let mut behind = self.converting_pairs(resource);
        let mut ahead = 0;
        let mut at = self.resources[resource].first_converting();
        while at != NIL && !self.is_spent() {
            let lock = &self.locks[at];
            let (next, mode, flags) = (lock.next(Chain::Resource), requested(lock), lock.flags);
            let held = lock.granted.expect("a converting lock holds a mode");
            behind.remove(held, mode);
            let table = &self.resources[resource];
            let first = table.first_converting() == at;
            let verdict = grant::decide(
                &standing(lock, table, first),
                mode,
                when,
                |mode| table.conflicts(Some(held), mode),
                || grant::conversion_deadlock(held, mode, ahead, &behind),
            );
            match verdict {
                Verdict::Grant => self.grant(cx, at),
                Verdict::Alternative(mode) => self.grant_alternative(cx, at, mode),
                Verdict::Demote => self.demote(at),
                Verdict::Deadlock if flags.has(LockFlags::NODLCKWT) => self.tell_self(cx, at, mode),
                Verdict::Deadlock if bug("deadlocked-counts-as-blocked") => {
                    blocked.add(1 << mode as u8)
                }
                Verdict::Deadlock => {}
                Verdict::No => blocked.add(1 << mode as u8),
            }
            match verdict {
                Verdict::Grant | Verdict::Alternative(_) => granted = true,
                _ => ahead |= 1 << mode as u8,
            }
            demoted |= verdict == Verdict::Demote;
            at = next;
        }
        (granted, demoted)
    }

    fn pass_waiters(&mut self, cx: &mut Context<'_>, resource: u32, blocked: &mut Blocked) {
        let special = self.resources[resource]
            .contention
            .as_ref()
            .is_some_and(|contention| contention.special_waiters > 0);
        let mut at = self.resources[resource].first_waiting();
        while at != NIL {
            let next = self.locks[at].next(Chain::Resource);
            let first = self.resources[resource].first_waiting() == at;
            if !self.try_grant(cx, at, first) && !special {
                break;
            }
            at = next;
        }
        if let Some(contention) = &self.resources[resource].contention {
            blocked.add(mode_set(&contention.waiting_modes));
        }
    }

    /// Grants a queued lock if the rules allow it now, and a number is left.
    fn try_grant(&mut self, cx: &mut Context<'_>, index: u32, first: bool) -> bool {
        if self.is_spent() {
            return false;
        }
        let lock = &self.locks[index];
        let resource = &self.resources[lock.resource];
        let conflict = |mode| resource.conflicts(lock.granted, mode);
        let standing = standing(lock, resource, first);
        match grant::decide(&standing, requested(lock), When::Later, conflict, || false) {
            Verdict::Grant => self.grant(cx, index),
            Verdict::Alternative(mode) => self.grant_alternative(cx, index, mode),
            _ => return false,
        }
        true
    }

    fn converting_pairs(&self, resource: u32) -> Pairs {
        let mut pairs = Pairs::default();
        if let Some(contention) = &self.resources[resource].contention {
            for index in contention.converting.iter(&self.locks, Chain::Resource) {
                let lock = &self.locks[index];
                pairs.add(lock.granted.expect("a converting lock holds a mode"), requested(lock));
            }
        }
        pairs
    }
}
