//! What owners hear: completions in order, blocking callbacks through the filters (section 5).

use crate::blocking::{self, Want};
use crate::lock::{Chain, Owner};
use crate::lockspace::{Context, LockTable};
use crate::message::Traffic;
use crate::seeded::bug;
use crate::slab::NIL;
use crate::timer::Timer;
use crate::value::value_for_completion;
use crate::{Blocking, Completion, LockFlags, Mode, Output, Status};

impl LockTable {
    /// Tells the owner that its operation ended; the lock lives on.
    pub(crate) fn complete(&mut self, cx: &mut Context<'_>, index: u32, status: Status) {
        let granted = self.locks[index].granted;
        self.report(cx, index, status, granted);
        let lock = &self.locks[index];
        if let Some(contention) = &mut self.resources[lock.resource].contention {
            contention.retell |= lock.may_be_told_again() && !bug("retell-forgotten");
        }
    }

    /// Tells the owner that its operation ended and the lock with it, and removes the lock, which is
    /// on no queue any more.
    pub(crate) fn end(&mut self, cx: &mut Context<'_>, index: u32, status: Status) {
        self.report(cx, index, status, None);
        self.destroy_lock(cx, index);
    }

    pub(crate) fn report(
        &mut self,
        cx: &mut Context<'_>,
        index: u32,
        status: Status,
        granted: Option<Mode>,
    ) {
        self.disarm_limit(cx, index);
        let lock = &mut self.locks[index];
        let granted_now = status == Status::Granted;
        let value = if granted_now { value_for_completion(lock) } else { None };
        lock.cast = Some(granted);
        lock.last_blocking = None;
        let client = match lock.owner {
            Owner::Client(client) => client,
            Owner::Remote { .. } => return self.report_to_peer(cx, index, status, granted),
            Owner::Orphan | Owner::Nobody => return,
        };
        if !cx.clients.hears(client) {
            return;
        }
        let completion = Completion {
            lock: lock.id,
            user: lock.user,
            status,
            sb_flags: lock.sb_flags,
            granted,
            value,
            token: lock.token,
        };
        self.cluster.owed.tell(cx.out, Output::Complete { client, completion });
    }

    /// Tells holders on the granted queue, newest grant first (3.5). If nobody would hear anything
    /// new the queue is not walked.
    pub(crate) fn tell(&mut self, cx: &mut Context<'_>, resource: u32, want: Want) {
        self.tell_granted(cx, resource, want, NIL);
    }

    /// Tells holders on the granted *and* the converting queue, except one (NOQUEUEBAST).
    pub(crate) fn tell_all(
        &mut self,
        cx: &mut Context<'_>,
        resource: u32,
        want: Want,
        except: u32,
    ) {
        self.tell_granted(cx, resource, want, except);
        let mut at = self.resources[resource].first_converting();
        while at != NIL {
            let next = self.locks[at].next(Chain::Resource);
            if at != except {
                self.tell_one(cx, at, want);
            }
            at = next;
        }
        self.resources[resource].settle();
    }

    fn tell_granted(&mut self, cx: &mut Context<'_>, resource: u32, want: Want, except: u32) {
        let contention = self.resources[resource].contend(&self.locks);
        let retell = contention.retell;
        let news = contention.any_holder(|granted, told| {
            want.tells(granted, told).is_some() && (retell || told != want.memory())
        });
        if !news {
            return;
        }
        let mut retell = false;
        let mut at = self.resources[resource].granted.head;
        while at != NIL {
            let next = self.locks[at].next(Chain::Resource);
            if at != except {
                self.tell_one(cx, at, want);
            }
            retell |= self.locks[at].may_be_told_again();
            at = next;
        }
        self.resources[resource].contend(&self.locks).retell = retell;
    }

    fn tell_one(&mut self, cx: &mut Context<'_>, index: u32, want: Want) {
        let lock = &self.locks[index];
        let granted = lock.granted.expect("a holder holds a mode");
        if let Some(mode) = want.tells(granted, lock.told) {
            self.set_told(index, want.memory());
            self.block(cx, index, mode);
        }
    }

    /// A queued conversion in a deadlock that NODLCKWT let in hears of its own request (3.4 A).
    pub(crate) fn tell_self(&mut self, cx: &mut Context<'_>, index: u32, mode: Mode) {
        if self.locks[index].told < mode {
            self.set_told(index, mode);
            self.block(cx, index, mode);
        }
    }

    fn set_told(&mut self, index: u32, told: Mode) {
        let lock = &mut self.locks[index];
        match lock.state {
            crate::LockState::Granted => {
                self.resources[lock.resource].change_granted(lock, |lock| lock.told = told);
            }
            _ => lock.told = told,
        }
    }

    pub(crate) fn block(&mut self, cx: &mut Context<'_>, index: u32, mode: Mode) {
        let lock = &mut self.locks[index];
        if let Owner::Remote { peer, id } = lock.owner {
            lock.rare().told_at = cx.now;
            let to = self.cluster.peers[usize::from(peer)].member;
            return self.send_traffic(cx, to, Traffic::Blocking { lock: id, mode });
        }
        let Owner::Client(client) = lock.owner else { return };
        if !blocking::delivered(mode, lock.cast, lock.last_blocking) {
            return;
        }
        lock.last_blocking = Some(mode);
        if !lock.wants_blocking || !cx.clients.hears(client) {
            return;
        }
        lock.rare().told_at = cx.now;
        cx.counters.blocking += 1;
        let blocking = Blocking { lock: lock.id, user: lock.user, mode };
        self.cluster.owed.tell(cx.out, Output::Blocking { client, blocking });
    }

    /// Arms the time limit of a lock that has just been queued (D12).
    pub(crate) fn arm_limit(&mut self, cx: &mut Context<'_>, index: u32) {
        let lock = &mut self.locks[index];
        if !lock.flags.has(LockFlags::TIMEOUT) {
            return;
        }
        let unarmed =
            |rare: &&mut Box<crate::lock::Rare>| rare.limit_cs > 0 && rare.limit.is_none();
        let Some(rare) = lock.rare.as_mut().filter(unarmed) else { return };
        let limit = core::time::Duration::from_millis(rare.limit_cs.saturating_mul(10));
        let at = cx.now.after(limit);
        rare.limit = Some(at);
        cx.timers.arm(at, cx.space, Timer::Limit(index));
    }

    fn disarm_limit(&mut self, cx: &mut Context<'_>, index: u32) {
        let rare = self.locks[index].rare.as_mut().filter(|_| !bug("limit-outlives-operation"));
        if let Some(at) = rare.and_then(|rare| rare.limit.take()) {
            cx.timers.disarm(at, cx.space, Timer::Limit(index));
        }
    }

    /// A time limit ended: the request is gone, a conversion falls back (D12).
    pub(crate) fn limit_over(&mut self, cx: &mut Context<'_>, index: u32) {
        if let Some(rare) = self.locks[index].rare.as_mut() {
            rare.limit = None;
        }
        self.locks[index].sb_flags = crate::SbFlags(0);
        if self.locks[index].away().is_some() {
            return self.away_limit_over(cx, index);
        }
        self.cancel(cx, index, Status::TimedOut);
    }
}
