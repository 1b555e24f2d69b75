//! What clients do: they lock, convert, unlock and cancel, and say what they believe to the oracle
//! before anything that follows from it.

use dlm_core::{
    Call, ClientId, Convert, Errno, Input, LockCall, LockFlags, LockId, Mode, Output, Request,
    Unlock, VALUE_BYTES, Value,
};

use crate::client::{Habit, Held, LOCKS_MAX, during_conversion};
use crate::world::{Phase, World, name_of};

const REQUEST_FLAGS: &[(LockFlags, u64)] = &[
    (LockFlags::NOQUEUE, 15),
    (LockFlags::HEADQUE, 8),
    (LockFlags::NOORDER, 8),
    (LockFlags::ALTPR, 8),
    (LockFlags::ALTCW, 8),
    (LockFlags::NOQUEUEBAST, 5),
    (LockFlags::TIMEOUT, 10),
];

const CONVERT_FLAGS: &[(LockFlags, u64)] = &[
    (LockFlags::NOQUEUE, 10),
    (LockFlags::HEADQUE, 8),
    (LockFlags::NOORDER, 5),
    (LockFlags::CONVDEADLK, 15),
    (LockFlags::NODLCKWT, 10),
    (LockFlags::ALTPR, 8),
    (LockFlags::ALTCW, 8),
    (LockFlags::TIMEOUT, 5),
];

impl World {
    /// A client does something.
    pub(crate) fn act(&mut self, node: usize, client: usize) -> Result<(), String> {
        let state = &self.hosts[node].clients[client];
        if !state.open || self.is_frozen(node) {
            return Ok(());
        }
        match self.phase {
            Phase::Rough => {}
            Phase::Heal => return Ok(()),
            Phase::LetGo => return self.let_go(node, client),
        }
        if state.habit == Habit::Anchor {
            return self.anchor(node, client);
        }
        let count = state.locks.len();
        if count == 0 || (count < LOCKS_MAX && self.rng.chance(30)) {
            return self.request(node, client);
        }
        let index = self.rng.below(count as u64) as usize;
        let lock = self.hosts[node].clients[client].locks[index].clone();
        if lock.pending.is_none() && !lock.unlocking {
            return match self.rng.chance(60) {
                true => self.convert(node, client, &lock, None),
                false => self.unlock(node, client, &lock, LockFlags(0)),
            };
        }
        match self.rng.below(20) {
            0 | 1 => self.cancel(node, client, &lock, false),
            2 => self.unlock(node, client, &lock, LockFlags::FORCEUNLOCK),
            3 => self.unlock(node, client, &lock, LockFlags(0)),
            4 => self.cancel(node, client, &lock, true),
            _ => Ok(()),
        }
    }

    /// Takes a weak lock with a value block on each name, and keeps it.
    fn anchor(&mut self, node: usize, client: usize) -> Result<(), String> {
        let state = &self.hosts[node].clients[client];
        let missing =
            (0..self.options.names).find(|name| !state.locks.iter().any(|lock| lock.name == *name));
        let Some(name) = missing else { return Ok(()) };
        let mode = if self.rng.chance(70) { Mode::NL } else { Mode::CR };
        self.request_name(node, client, name, mode, LockFlags::VALBLK)
    }

    /// In the last phase everything is given up.
    fn let_go(&mut self, node: usize, client: usize) -> Result<(), String> {
        let locks = self.hosts[node].clients[client].locks.clone();
        for lock in locks.iter().filter(|lock| !lock.unlocking) {
            self.unlock(node, client, lock, LockFlags::FORCEUNLOCK)?;
        }
        self.purge(node, client)
    }

    fn draw_flags(&mut self, from: &[(LockFlags, u64)]) -> LockFlags {
        let mut flags = LockFlags(0);
        for (flag, percent) in from {
            if self.rng.chance(*percent) {
                flags = flags.with(*flag);
            }
        }
        if self.rng.chance(self.options.values) {
            flags = flags.with(LockFlags::VALBLK);
        }
        if self.options.persistent > 0 && self.rng.chance(self.options.persistent) {
            flags = flags.with(LockFlags::PERSISTENT);
        }
        flags
    }

    fn request(&mut self, node: usize, client: usize) -> Result<(), String> {
        if !self.hosts[node].orphans.is_empty() && self.rng.chance(30) {
            return self.take_orphan(node, client);
        }
        let name = self.rng.below(self.options.names as u64) as usize;
        let (mode, flags) = if self.hosts[node].clients[client].habit == Habit::Writer {
            let modes = [Mode::NL, Mode::CR, Mode::PR, Mode::PW, Mode::EX, Mode::EX];
            (*self.rng.pick(&modes), LockFlags::VALBLK)
        } else {
            (*self.rng.pick(&Mode::ALL), self.draw_flags(REQUEST_FLAGS))
        };
        self.request_name(node, client, name, mode, flags)
    }

    fn request_name(
        &mut self,
        node: usize,
        client: usize,
        name: usize,
        mode: Mode,
        flags: LockFlags,
    ) -> Result<(), String> {
        let timeout_cs = self.rng.range(1, 50);
        let now = self.now;
        let state = &mut self.hosts[node].clients[client];
        state.next += 1;
        let user = state.next;
        state.locks.push(Held::new(user, name, mode, flags, now));
        let id = state.id;
        let call = Call { mode: mode as u8, flags, user, xid: 0, timeout_cs, wants_blocking: true };
        let bytes = name_of(name);
        let request = Request::Lock(LockCall { call, name: &bytes });
        match self.call(node, id, request)? {
            Ok(lock) => {
                if let Some(held) = self.hosts[node].clients[client].find(user) {
                    held.id = lock; // also where the completion came first and it lives on
                }
            }
            Err(_) => self.hosts[node].clients[client].drop_lock(user),
        }
        Ok(())
    }

    /// Converts a lock, to this mode or to any.
    pub(crate) fn convert(
        &mut self,
        node: usize,
        client: usize,
        lock: &Held,
        to: Option<Mode>,
    ) -> Result<(), String> {
        let Some(granted) = lock.granted else { return Ok(()) };
        let writer = self.hosts[node].clients[client].habit == Habit::Writer;
        let mode = to.unwrap_or_else(|| match (writer, granted) {
            (true, Mode::EX | Mode::PW) => *self.rng.pick(&[Mode::NL, Mode::PR, Mode::EX]),
            (true, _) => *self.rng.pick(&[Mode::NL, Mode::PR, Mode::EX, Mode::PW]),
            (false, _) => *self.rng.pick(&Mode::ALL),
        });
        let mut flags = match writer {
            true => LockFlags::VALBLK,
            false => self.draw_flags(CONVERT_FLAGS),
        };
        if self.rng.chance(3) {
            flags = flags.with(LockFlags::IVVALBLK);
        }
        if flags.has(LockFlags::CONVDEADLK | LockFlags::NOQUEUE) {
            flags = flags.without(LockFlags::NOQUEUE);
        }
        if granted.quecvt_allows(mode) && self.rng.chance(10) {
            flags = flags.with(LockFlags::QUECVT);
        }
        let value = self.fresh_value();
        let has_value = flags.has(LockFlags::VALBLK);
        let writes = lock.may_write() && has_value && !flags.has(LockFlags::IVVALBLK);
        let timeout_cs = self.rng.range(1, 50);
        let now = self.now;
        let state = &mut self.hosts[node].clients[client];
        let (name, holder) = (state.name(lock), state.holder(lock));
        let during = during_conversion(granted, mode, flags);
        let call = Call { mode: mode as u8, flags, user: lock.user, timeout_cs, ..Call::default() };
        let call = Call { wants_blocking: true, ..call };
        if let Some(held) = state.find(lock.user) {
            held.pending = Some(mode);
            held.flags = flags;
            held.writing = writes.then_some(value);
            held.buffer = if has_value { Some(value) } else { held.buffer };
            held.cancelling = false;
            held.since = now;
        }
        let id = state.id;
        self.oracle.believes(name, holder, Some(during))?;
        self.oracle.values.moves(name, holder);
        self.oracle.values.given(name, value);
        if writes {
            self.oracle.values.writes(name, holder, Some(value), u64::MAX);
        }
        let request = Request::Convert(Convert { call, lock: lock.id, value: Some(&value) });
        if self.call(node, id, request)?.is_err() {
            self.oracle.believes(name, holder, lock.holds())?;
            if let Some(held) = self.hosts[node].clients[client].find(lock.user) {
                held.pending = None;
                held.flags = lock.flags;
            }
        }
        Ok(())
    }

    pub(crate) fn unlock(
        &mut self,
        node: usize,
        client: usize,
        lock: &Held,
        flags: LockFlags,
    ) -> Result<(), String> {
        let value = self.fresh_value();
        let mut flags = flags;
        if self.rng.chance(30) && self.phase == Phase::Rough {
            flags = flags.with(LockFlags::VALBLK);
        }
        let has_value = flags.has(LockFlags::VALBLK);
        // A conversion under way may have been granted before the unlock reaches the master.
        let may = lock.may_write() || matches!(lock.pending, Some(Mode::PW | Mode::EX));
        let all = flags.with(lock.flags);
        let writes = may && all.has(LockFlags::VALBLK) && !all.has(LockFlags::IVVALBLK);
        // Without VALBLK in this call the bytes given last are written (D3).
        let pure = lock.pending.is_none();
        let bytes = if has_value { Some(value) } else { lock.buffer.filter(|_| pure) };
        let now = self.now;
        let state = &mut self.hosts[node].clients[client];
        let (id, name, holder) = (state.id, state.name(lock), state.holder(lock));
        if let Some(held) = state.find(lock.user) {
            held.unlocking = true;
            held.since = now;
            held.buffer = if has_value { Some(value) } else { held.buffer };
            held.writing = bytes.filter(|_| writes && pure);
        }
        if writes {
            let token = if pure { lock.token } else { u64::MAX };
            self.oracle.values.writes(name, holder, bytes, token);
        }
        self.oracle.values.moves(name, holder);
        self.oracle.values.given(name, value);
        let request = Unlock { lock: lock.id, flags, user: None, value: Some(&value) };
        // The hold ends with the call, before anything that follows from it.
        self.oracle.believes(name, holder, None)?;
        let Err(errno) = self.call(node, id, Request::Unlock(request))? else { return Ok(()) };
        if let Some(held) = self.hosts[node].clients[client].find(lock.user) {
            held.unlocking = lock.unlocking;
            held.writing = lock.writing;
            held.buffer = lock.buffer;
            held.since = lock.since;
        }
        if !lock.unlocking {
            self.oracle.believes(name, holder, lock.holds())?;
        }
        let expected = [Errno::EBUSY, Errno::EINVAL, Errno::ENOENT];
        if !expected.contains(&errno) || (errno == Errno::ENOENT && lock.id.0 == 0) {
            return Err(format!("unlock of {lock:?} answered {errno:?}"));
        }
        Ok(())
    }

    fn cancel(
        &mut self,
        node: usize,
        client: usize,
        lock: &Held,
        deadlock: bool,
    ) -> Result<(), String> {
        let state = &mut self.hosts[node].clients[client];
        let (id, flags) = (state.id, LockFlags::CANCEL);
        if let Some(held) = state.find(lock.user) {
            held.cancelling = true;
        }
        let request = match deadlock {
            true => Request::DeadlockCancel { lock: lock.id, flags },
            false => Request::Unlock(Unlock { lock: lock.id, flags, user: None, value: None }),
        };
        let refused = self.call(node, id, request)?.is_err();
        let held = self.hosts[node].clients[client].find(lock.user);
        if let Some(held) = held.filter(|_| refused) {
            held.cancelling = lock.cancelling;
        }
        Ok(())
    }

    /// Makes a call and gives its answer.
    pub(crate) fn call(
        &mut self,
        node: usize,
        client: ClientId,
        request: Request<'_>,
    ) -> Result<Result<LockId, Errno>, String> {
        if self.options.trace {
            println!("          node {} {client:?} calls {request:?}", node + 1);
        }
        let outputs = self.step(node, Input::Client(client, request))?;
        outputs
            .iter()
            .find_map(|output| match output {
                Output::Reply { client: of, result } if *of == client => Some(*result),
                _ => None,
            })
            .ok_or_else(|| "a call was not answered".into())
    }

    fn fresh_value(&mut self) -> Value {
        let mut value = [0; VALUE_BYTES];
        value[..8].copy_from_slice(&(self.rng.any() | 1).to_le_bytes());
        value
    }
}
