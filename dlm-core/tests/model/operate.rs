//! The calls on locks: semantics.md 2.3, 3.2, 3.3 and section 4.

use super::grant::{Try, When};
use super::{
    EAGAIN, EBUSY, ECANCEL, EDEADLK, EINVAL, ENOENT, EPERM, ETIMEDOUT, EUNLOCK, EX, IV, Lock,
    Model, NL, PW, Resource, Value, flag, quecvt_legal,
};

const NAME_BYTES_MAX: usize = 64;
const IDLE_MS: u64 = 10_000;
const MS_PER_CS: u64 = 10;

/// What lock and convert have in common.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ask {
    pub(crate) mode: u8,
    pub(crate) flags: u32,
    pub(crate) wants_basts: bool,
    pub(crate) limit_cs: u64,
}

impl Model {
    /// A new request (not an adoption): its place in `locks`.
    pub(crate) fn lock(
        &mut self,
        client: usize,
        pid: u32,
        name: &[u8],
        ask: Ask,
    ) -> Result<usize, i32> {
        let has = |flag: u32| ask.flags & flag != 0;
        let conversions_only = flag::CANCEL | flag::QUECVT | flag::CONVDEADLK;
        let bad_expedite = has(flag::EXPEDITE) && (has(flag::NOQUEUE) || ask.mode as i8 != NL);
        if ask.mode > 5 || name.len() > NAME_BYTES_MAX || has(conversions_only) || bad_expedite {
            return Err(EINVAL);
        }
        let age = self.next_age();
        let buffer = has(flag::VALBLK).then_some([0; 32]);
        self.locks.push(Lock {
            client: Some(client),
            pid,
            gr: IV,
            rq: ask.mode as i8,
            flags: ask.flags,
            sb_flags: 0,
            buffer,
            seq: 0,
            memory: NL,
            wants_basts: ask.wants_basts,
            last_cast: IV,
            last_bast: IV,
            deadlock_mark: false,
            limit: None,
            age,
        });
        let lock = self.locks.len() - 1;
        let resource = self.find_or_make(name);
        self.request(lock, resource, ask);
        self.forget_if_empty(resource);
        Ok(lock)
    }

    fn find_or_make(&mut self, name: &[u8]) -> usize {
        let over = |place: &Resource| {
            place.idle_since_ms.is_some_and(|since| since + IDLE_MS <= self.now_ms)
        };
        self.resources.retain(|place| !over(place));
        if let Some(at) = self.resources.iter().position(|resource| resource.name == name) {
            self.resources[at].idle_since_ms = None;
            return at;
        }
        self.resources.push(Resource { name: name.to_vec(), ..Resource::default() });
        self.resources.len() - 1
    }

    fn forget_if_empty(&mut self, resource: usize) {
        let place = &mut self.resources[resource];
        let locks = place.granted.len() + place.converting.len() + place.waiting.len();
        if locks > 0 {
            return;
        }
        place.value = None;
        place.idle_since_ms = Some(self.now_ms);
        if !place.marked {
            self.resources.remove(resource);
        }
    }

    /// 3.2.
    fn request(&mut self, lock: usize, resource: usize, ask: Ask) {
        if self.try_grant(lock, resource, When::Now) == Try::Yes {
            return self.grant(lock, resource);
        }
        let mode = self.locks[lock].rq;
        if ask.flags & flag::NOQUEUE != 0 {
            self.cast(lock, EAGAIN);
            self.locks[lock].client = None;
            if ask.flags & flag::NOQUEUEBAST != 0 {
                self.tell_all(lock, resource, mode);
            }
            return;
        }
        let waiting = &mut self.resources[resource].waiting;
        let at = if ask.flags & flag::HEADQUE != 0 { 0 } else { waiting.len() };
        waiting.insert(at, lock);
        self.set_limit(lock, ask);
        let granted = self.resources[resource].granted.clone();
        self.tell(&granted, lock, mode);
    }

    fn tell_all(&mut self, asker: usize, resource: usize, mode: i8) {
        let granted = self.resources[resource].granted.clone();
        let converting = self.resources[resource].converting.clone();
        self.tell(&granted, asker, mode);
        self.tell(&converting, asker, mode);
    }

    /// D12.
    fn set_limit(&mut self, lock: usize, ask: Ask) {
        if ask.flags & flag::TIMEOUT != 0 && ask.limit_cs > 0 {
            self.locks[lock].limit = Some(self.now_ms + ask.limit_cs * MS_PER_CS);
        }
    }

    /// The lock's resource, if this handle may operate it (D2).
    fn mine(&self, client: usize, lock: usize) -> Result<usize, i32> {
        let resource = self.place(lock).ok_or(ENOENT)?;
        if self.locks[lock].client == Some(client) { Ok(resource) } else { Err(EPERM) }
    }

    /// A conversion. The caller's words and bytes are taken even if it is refused (6.2).
    pub(crate) fn convert(
        &mut self,
        client: usize,
        lock: usize,
        ask: Ask,
        value: Option<Value>,
    ) -> Result<(), i32> {
        let resource = self.mine(client, lock)?;
        let has = |flag: u32| ask.flags & flag != 0;
        self.locks[lock].wants_basts = ask.wants_basts;
        if has(flag::VALBLK) && value.is_some() {
            self.locks[lock].buffer = value;
        }
        let bad = has(flag::CANCEL | flag::EXPEDITE)
            || (has(flag::CONVDEADLK) && has(flag::NOQUEUE))
            || (has(flag::VALBLK) && value.is_none());
        if ask.mode > 5 || bad {
            return Err(EINVAL);
        }
        if !self.resources[resource].granted.contains(&lock) {
            return Err(EBUSY);
        }
        if has(flag::QUECVT) && !quecvt_legal(self.locks[lock].gr, ask.mode as i8) {
            return Err(EINVAL);
        }
        let own = &mut self.locks[lock];
        own.flags = ask.flags & !flag::CONVERT;
        own.sb_flags = 0;
        own.rq = ask.mode as i8;
        self.conversion(lock, resource, ask);
        Ok(())
    }

    /// 3.3.
    fn conversion(&mut self, lock: usize, resource: usize, ask: Ask) {
        let has = |flag: u32| ask.flags & flag != 0;
        let mut outcome = self.try_grant(lock, resource, When::Now);
        if outcome == Try::Demoted {
            self.pass_converting(resource);
            if self.grantable(lock, resource, When::Now) {
                outcome = Try::Yes;
            }
        }
        let mode = self.locks[lock].rq;
        if outcome == Try::Yes {
            self.grant(lock, resource);
            self.pass(resource);
        } else if outcome == Try::Deadlock && !has(flag::NODLCKWT) {
            self.locks[lock].rq = IV;
            self.cast(lock, EDEADLK);
        } else if has(flag::NOQUEUE) {
            self.cast(lock, EAGAIN);
            if has(flag::NOQUEUEBAST) {
                self.tell_all(lock, resource, mode);
            }
        } else {
            self.take_out(lock, resource);
            let converting = &mut self.resources[resource].converting;
            let at = if has(flag::HEADQUE) { 0 } else { converting.len() };
            converting.insert(at, lock);
            self.set_limit(lock, ask);
            let granted = self.resources[resource].granted.clone();
            self.tell(&granted, lock, mode);
        }
    }

    /// Unlock, or cancel by flag (section 4).
    pub(crate) fn unlock(
        &mut self,
        client: usize,
        lock: usize,
        flags: u32,
        value: Option<Value>,
    ) -> Result<(), i32> {
        let resource = self.mine(client, lock)?;
        let legal = flag::CANCEL | flag::VALBLK | flag::IVVALBLK | flag::FORCEUNLOCK;
        let both = flag::CANCEL | flag::FORCEUNLOCK;
        if flags & !legal != 0 || flags & both == both {
            return Err(EINVAL);
        }
        let cancel = flags & flag::CANCEL != 0;
        let own = &mut self.locks[lock];
        if let (Some(value), true) = (value, flags & flag::VALBLK != 0) {
            own.buffer = Some(value);
        }
        if cancel && self.resources[resource].granted.contains(&lock) {
            return Ok(()); // nothing to cancel, nothing accepted
        }
        own.flags |= flags & !flag::CANCEL; // D5
        own.sb_flags = 0;
        match cancel {
            true => self.stop_waiting(lock, resource, ECANCEL),
            false => self.remove(lock, resource, EUNLOCK),
        }
        Ok(())
    }

    /// A cancel that says EDEADLK; on an idle lock it leaves its mark (4.4).
    pub(crate) fn deadlock_cancel(&mut self, client: usize, lock: usize) -> Result<(), i32> {
        let resource = self.mine(client, lock)?;
        self.locks[lock].deadlock_mark = true;
        if !self.resources[resource].granted.contains(&lock) {
            self.locks[lock].sb_flags = 0;
            self.stop_waiting(lock, resource, ECANCEL);
        }
        Ok(())
    }

    /// Ends a conversion, which goes back to its old mode, or a waiting request, which goes.
    pub(crate) fn stop_waiting(&mut self, lock: usize, resource: usize, status: i32) {
        let own = &mut self.locks[lock];
        let deadlock = status == ECANCEL && std::mem::take(&mut own.deadlock_mark);
        let status = if deadlock { EDEADLK } else { status };
        if own.gr == IV {
            return self.remove(lock, resource, status);
        }
        own.rq = IV;
        own.sb_flags = 0;
        own.limit = None;
        self.take_out(lock, resource);
        self.put_granted(lock, resource);
        self.cast(lock, status);
        self.pass(resource);
    }

    /// Takes a lock away: value block (1.4, "unlock from"), cast, pass.
    pub(crate) fn remove(&mut self, lock: usize, resource: usize, status: i32) {
        let (own, place) = (&mut self.locks[lock], &mut self.resources[resource]);
        if matches!(own.gr, PW | EX) {
            if own.flags & flag::IVVALBLK != 0 {
                place.marked = true;
            } else if let (Some(buffer), true) = (own.buffer, own.flags & flag::VALBLK != 0) {
                place.value = Some(buffer);
                place.seq += 1;
                place.marked = false;
            }
        }
        own.gr = IV;
        own.rq = IV;
        own.limit = None;
        self.take_out(lock, resource);
        self.cast(lock, status);
        self.locks[lock].client = None;
        self.pass(resource);
        self.forget_if_empty(resource);
    }

    /// Time goes by; limits end one after the other (D12). No rule says which of two comes first that
    /// end in the same moment; here as in the engine the older lock's.
    pub(crate) fn wait_until(&mut self, ms: u64) {
        let due = |model: &Self| {
            let limits = model.locks.iter().enumerate();
            let limits = limits.filter_map(|(n, lock)| Some((lock.limit?, n)));
            limits.min().filter(|(end, _)| *end <= ms)
        };
        while let Some((end, lock)) = due(self) {
            self.now_ms = end;
            let resource = self.place(lock).expect("a lock with a limit is queued");
            self.stop_waiting(lock, resource, ETIMEDOUT);
        }
        self.now_ms = ms;
    }
}
