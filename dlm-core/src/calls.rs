//! Clients' calls: checks in their published order, then the operation (2.3, section 4, 6.2 to 6.5).

use crate::away::Away;
use crate::lock::{Chain, Owner};
use crate::lockspace::{Context, LockTable};
use crate::seeded::{bug, cluster_fault};
use crate::{
    Call, ClientId, Convert, Errno, LockCall, LockFlags, LockId, LockState, Mode, NodeId, SbFlags,
    Status, Unlock, VALUE_BYTES, Value,
};

/// Flags an unlock may have (2.3).
const UNLOCK_FLAGS: LockFlags = LockFlags(
    LockFlags::CANCEL.0 | LockFlags::VALBLK.0 | LockFlags::IVVALBLK.0 | LockFlags::FORCEUNLOCK.0,
);

impl LockTable {
    /// [`crate::Request::Lock`].
    pub(crate) fn call_lock(
        &mut self,
        cx: &mut Context<'_>,
        client: ClientId,
        request: &LockCall<'_>,
        locks_max: u32,
    ) -> Result<(LockId, Pending), Errno> {
        let LockCall { call, name } = request;
        if call.flags.has(LockFlags::ORPHAN) {
            return Ok((self.adopt(cx, client, call, name, locks_max)?, Pending::Nothing));
        }
        let mode = check_lock(call, name)?;
        if cx.clients.owned(client) >= locks_max || self.locks.len() >= crate::lock::LOCKS_MAX {
            return Err(Errno::ENOMEM);
        }
        let resource = self.resource_of(cx, name).ok_or(Errno::EINVAL)?;
        let index = self.new_lock(cx, client, resource, mode, call);
        let lock = &mut self.locks[index];
        if call.flags.has(LockFlags::VALBLK) {
            lock.rare().value = Some([0; VALUE_BYTES]);
        }
        if call.xid != 0 || call.timeout_cs != 0 {
            lock.rare().xid = call.xid;
            lock.rare().limit_cs = call.timeout_cs;
        }
        Ok((lock.id, Pending::Request(index)))
    }

    /// [`crate::Request::Convert`]. The caller's words are taken even if the call is refused (6.2).
    pub(crate) fn call_convert(
        &mut self,
        client: ClientId,
        request: &Convert<'_>,
    ) -> Result<(LockId, Pending), Errno> {
        let Convert { call, lock: id, value } = request;
        let index = self.owned_lock(client, *id)?;
        let flags = call.flags.with(LockFlags::CONVERT);
        let lock = &mut self.locks[index];
        lock.user = call.user;
        lock.wants_blocking = call.wants_blocking;
        if call.xid != 0 || call.timeout_cs != 0 || lock.rare.is_some() {
            lock.rare().xid = call.xid;
            lock.rare().limit_cs = call.timeout_cs;
        }
        if flags.has(LockFlags::VALBLK) {
            take_value(lock, *value);
            if let Some(away) = lock.away_mut() {
                away.given = true;
            }
        }
        let mode = check_convert(call)?;
        if flags.has(LockFlags::VALBLK) && value.is_none() {
            return Err(Errno::EINVAL);
        }
        let busy = lock.away().is_some_and(crate::away::Away::is_busy);
        if lock.state != LockState::Granted || busy {
            return Err(Errno::EBUSY);
        }
        let granted = lock.granted.expect("a lock on the granted queue has a mode");
        if flags.has(LockFlags::QUECVT) && !granted.quecvt_allows(mode) && !bug("quecvt-unchecked")
        {
            return Err(Errno::EINVAL);
        }
        if lock.away().is_some() {
            lock.requested = Some(mode);
        } else {
            self.change_granted(index, |lock| lock.requested = Some(mode));
        }
        let lock = &mut self.locks[index];
        lock.flags = if bug("flags-pile-up") { lock.flags.with(flags) } else { flags };
        lock.sb_flags = SbFlags(0);
        Ok((LockId(0), Pending::Convert(index)))
    }

    /// [`crate::Request::Unlock`].
    pub(crate) fn call_unlock(
        &mut self,
        client: ClientId,
        request: &Unlock<'_>,
    ) -> Result<(LockId, Pending), Errno> {
        let Unlock { lock: id, flags, user, value } = request;
        let index = self.owned_lock(client, *id)?;
        check_unlock(*flags)?;
        if self.locks[index].away().is_some() {
            self.away_check_unlock(index, *flags)?;
        }
        let lock = &mut self.locks[index];
        if let Some(user) = user {
            lock.user = *user;
        }
        if flags.has(LockFlags::VALBLK) {
            take_value(lock, *value);
            if let Some(away) = lock.away_mut().filter(|_| !flags.has(LockFlags::CANCEL)) {
                away.parting = true;
            }
        }
        // A conversion under way to another node's master is not on its queue yet, nor is it nothing.
        let under_way = lock.away().is_some_and(Away::is_busy);
        let idle = lock.state == LockState::Granted && !under_way && !bug("idle-cancel-sticks");
        if flags.has(LockFlags::CANCEL) && idle {
            return Ok((LockId(0), Pending::Nothing)); // nothing to cancel, so no flag stays
        }
        lock.flags = lock.flags.with(*flags);
        lock.sb_flags = lock.demotion(); // a cancel may come too late
        let pending = match flags.has(LockFlags::CANCEL) {
            true => Pending::Cancel(index),
            false => Pending::Unlock(index),
        };
        Ok((LockId(0), pending))
    }

    /// [`crate::Request::DeadlockCancel`]: a cancel whose completion says EDEADLK. On an idle lock the
    /// mark stays for the next cancellation (4.4).
    pub(crate) fn call_deadlock_cancel(
        &mut self,
        client: ClientId,
        id: LockId,
        flags: LockFlags,
    ) -> Result<(LockId, Pending), Errno> {
        let index = self.owned_lock(client, id)?;
        check_unlock(flags.with(LockFlags::CANCEL))?;
        if self.locks[index].away().is_some() {
            self.away_check_unlock(index, flags.with(LockFlags::CANCEL))?;
        }
        let lock = &mut self.locks[index];
        lock.deadlock_cancel = true;
        lock.flags = lock.flags.with(flags).with(LockFlags::CANCEL);
        lock.sb_flags = lock.demotion(); // a cancel may come too late
        Ok((LockId(0), Pending::Cancel(index)))
    }

    /// Carries out what an accepted call asked for.
    pub(crate) fn perform(&mut self, cx: &mut Context<'_>, pending: Pending) {
        cx.counters.operations += 1;
        match pending {
            Pending::Nothing => {}
            Pending::Request(index)
                if self.resources[self.locks[index].resource].role.is_some() =>
            {
                self.away_request(cx, index);
            }
            Pending::Convert(index) if self.locks[index].away().is_some() => {
                self.away_convert(cx, index);
            }
            Pending::Unlock(index) if self.locks[index].away().is_some() => {
                self.away_unlock(cx, index);
            }
            Pending::Cancel(index) if self.locks[index].away().is_some() => {
                self.away_cancel(cx, index);
            }
            Pending::Request(index) => self.request(cx, index),
            Pending::Convert(index) => self.convert(cx, index),
            Pending::Unlock(index) => self.unlock(cx, index),
            Pending::Cancel(index) if self.locks[index].state == LockState::Granted => {}
            Pending::Cancel(index) => {
                let lock = &mut self.locks[index];
                let deadlock = lock.deadlock_cancel;
                lock.deadlock_cancel = deadlock && bug("deadlock-mark-stays");
                let status = if deadlock { Status::Deadlock } else { Status::Cancelled };
                self.cancel(cx, index, status);
            }
        }
    }

    /// [`crate::Request::Purge`] (6.5).
    pub(crate) fn purge(
        &mut self,
        cx: &mut Context<'_>,
        client: ClientId,
        own_node: NodeId,
        node: u32,
        pid: u32,
    ) -> Result<(), Errno> {
        if node != 0 && node != own_node.0 {
            return self.purge_elsewhere(cx, node, pid);
        }
        if pid != 0 && pid == cx.clients.pid(client) {
            cx.clients.mute(client, true);
            self.end_locks_of(cx, client, false, u32::MAX);
            cx.clients.mute(client, false);
        } else {
            self.purge_orphans(cx, pid);
        }
        Ok(())
    }

    /// Removes the orphans of a dead owner, or all (`pid` 0).
    pub(crate) fn purge_orphans(&mut self, cx: &mut Context<'_>, pid: u32) {
        let mut at = self.orphans.head;
        while at != crate::slab::NIL {
            let next = self.locks[at].next(Chain::Owner);
            if pid == 0 || self.locks[at].pid == pid {
                self.force_unlock(cx, at);
            }
            at = next;
        }
    }

    /// Ends locks of a client, oldest first (6.4), `most` of them: PERSISTENT ones become orphans if
    /// `keep`, the others are unlocked by force, and what they could have written is marked invalid.
    /// Returns whether it has none any more.
    pub(crate) fn end_locks_of(
        &mut self,
        cx: &mut Context<'_>,
        client: ClientId,
        keep: bool,
        most: u32,
    ) -> bool {
        let mut ended = 0;
        while let Some(index) = cx.clients.locks_of(client).map(|locks| locks.head) {
            if index == crate::slab::NIL {
                break;
            }
            if ended == most {
                return false;
            }
            ended += 1;
            let lock = &self.locks[index];
            let waits = lock.state == LockState::Waiting;
            let away = lock.away().is_some();
            if keep && !waits && lock.flags.has(LockFlags::PERSISTENT) {
                self.orphan(cx, index);
            } else if away {
                self.abandon(cx, index);
            } else {
                // A waiting request of a dead owner is removed, never orphaned (D8).
                self.force_unlock(cx, index);
            }
        }
        true
    }

    fn force_unlock(&mut self, cx: &mut Context<'_>, index: u32) {
        if self.locks[index].away().is_some() {
            return self.abandon(cx, index);
        }
        let lock = &mut self.locks[index];
        lock.flags = lock.flags.with(LockFlags::FORCEUNLOCK);
        if !bug("death-leaves-block-valid") {
            lock.flags = lock.flags.with(LockFlags::IVVALBLK);
        }
        self.unlock(cx, index);
    }

    fn orphan(&mut self, cx: &mut Context<'_>, index: u32) {
        self.leave_owner(cx, index);
        self.locks[index].owner = Owner::Orphan;
        self.orphans.push_back(&mut self.locks, Chain::Owner, index);
        self.orphan_count += 1;
        if self.locks[index].away().is_some() {
            return self.orphan_away(cx, index);
        }
        self.cancel(cx, index, Status::Cancelled);
    }

    /// Takes an orphan over: exact name and granted mode, the oldest first; no completion (6.5).
    fn adopt(
        &mut self,
        cx: &mut Context<'_>,
        client: ClientId,
        call: &Call,
        name: &[u8],
        locks_max: u32,
    ) -> Result<LockId, Errno> {
        let mode = check_lock(call, name)?;
        let resource = self.find_resource(name).ok_or(Errno::ENOENT)?;
        let mut found = Err(Errno::ENOENT);
        let mut held: Vec<u32> = self.own_locks(resource);
        held.reverse();
        held.extend(self.resources[resource].granted.iter(&self.locks, Chain::Resource));
        for index in held {
            let lock = &self.locks[index];
            // What its dead owner asked another master for may still be granted: not settled yet.
            let busy = lock.away().is_some_and(crate::away::Away::is_busy);
            let busy = busy && !cluster_fault("busy-orphans-adopted");
            let fits = (lock.granted == Some(mode) && !busy) || bug("any-mode-adopted");
            if lock.owner == Owner::Orphan && fits {
                found = Ok(index); // the last one seen was granted first
            } else if lock.owner == Owner::Orphan && found.is_err() {
                found = Err(Errno::EAGAIN);
            }
        }
        let index = found?;
        if cx.clients.owned(client) >= locks_max {
            return Err(Errno::ENOMEM);
        }
        self.leave_owner(cx, index);
        let pid = cx.clients.pid(client);
        let lock = &mut self.locks[index];
        lock.owner = Owner::Client(client);
        lock.pid = pid;
        lock.flags = call.flags;
        lock.user = call.user;
        lock.wants_blocking = call.wants_blocking;
        let id = lock.id;
        if let Some(list) = cx.clients.locks_of(client) {
            list.push_back(&mut self.locks, Chain::Owner, index);
        }
        cx.clients.count(client, 1);
        Ok(id)
    }

    /// The lock of an id, if it is this client's (D1, D2).
    fn owned_lock(&self, client: ClientId, id: LockId) -> Result<u32, Errno> {
        let index = self.find_lock(id).ok_or(Errno::ENOENT)?;
        if self.locks[index].owner == Owner::Nobody {
            return Err(Errno::ENOENT); // its end was told; it only has to be given back to its master
        }
        match self.locks[index].owner == Owner::Client(client) || bug("strangers-may-unlock") {
            true => Ok(index),
            false => Err(Errno::EPERM),
        }
    }
}

/// What an accepted call still has to do; the answer to the call goes out first.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Pending {
    /// Done already.
    Nothing,
    /// Judge a new request.
    Request(u32),
    /// Judge a conversion.
    Convert(u32),
    /// Unlock.
    Unlock(u32),
    /// Cancel what is pending, if anything.
    Cancel(u32),
}

fn take_value(lock: &mut crate::lock::Lock, value: Option<&Value>) {
    if let Some(value) = value {
        lock.rare().value = Some(*value);
    }
}

fn check_lock(call: &Call, name: &[u8]) -> Result<Mode, Errno> {
    let mode = Mode::from_number(call.mode).ok_or(Errno::EINVAL)?;
    let flags = call.flags;
    let only_elsewhere =
        LockFlags::CANCEL | LockFlags::QUECVT | LockFlags::CONVDEADLK | LockFlags::CONVERT;
    let expedite = flags.has(LockFlags::EXPEDITE);
    if name.len() > crate::RESOURCE_NAME_BYTES_MAX
        || flags.any(only_elsewhere)
        || (expedite && (flags.has(LockFlags::NOQUEUE) || mode != Mode::NL))
    {
        return Err(Errno::EINVAL);
    }
    Ok(mode)
}

fn check_convert(call: &Call) -> Result<Mode, Errno> {
    let mode = Mode::from_number(call.mode).ok_or(Errno::EINVAL)?;
    let flags = call.flags;
    if flags.any(LockFlags::CANCEL | LockFlags::EXPEDITE)
        || flags.has(LockFlags::CONVDEADLK | LockFlags::NOQUEUE)
    {
        return Err(Errno::EINVAL);
    }
    Ok(mode)
}

fn check_unlock(flags: LockFlags) -> Result<(), Errno> {
    let both = LockFlags::CANCEL | LockFlags::FORCEUNLOCK;
    if flags.0 & !UNLOCK_FLAGS.0 != 0 || flags.has(both) {
        return Err(Errno::EINVAL);
    }
    Ok(())
}
