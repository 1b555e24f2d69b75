//! Clients of the simulation: they lock, convert, unlock and cancel at random, remember what they were
//! promised, and say what they believe to the oracle.

use dlm_core::{
    Call, ClientId, Completion, Convert, Errno, Input, LockCall, LockFlags, LockId, Mode, Output,
    Request, SbFlags, Status, Unlock, VALUE_BYTES, Value,
};

use crate::oracle::{Oracle, meet};
use crate::world::{World, name_of};

/// Most locks of a client at a time.
const LOCKS_MAX: usize = 4;

/// A client.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) id: ClientId,
    /// Unique over the whole run.
    life: u64,
    open: bool,
    locks: Vec<Held>,
    next: u64,
}

/// A lock as its client knows it.
#[derive(Clone, Debug)]
struct Held {
    user: u64,
    name: usize,
    id: LockId,
    granted: Option<Mode>,
    /// Requested mode of an operation that must complete.
    pending: Option<Mode>,
    unlocking: bool,
    cancelling: bool,
    flags: LockFlags,
    /// Number of its last grant.
    token: u64,
    /// When the pending operation was asked for.
    since: u64,
    /// Value under way with the pending operation.
    writing: Option<Value>,
}

impl Client {
    pub(crate) fn new(id: ClientId, life: u64) -> Self {
        Self { id, life, open: false, locks: Vec::new(), next: 0 }
    }

    /// A reply reached it: the first one says that its lockspace is open.
    pub(crate) fn replied(&mut self, id: ClientId) {
        self.open |= self.id == id;
    }

    /// Its death: it holds nothing any more.
    pub(crate) fn forget(&self, oracle: &mut Oracle) {
        for lock in &self.locks {
            let (name, holder) = (name_of(lock.name), (self.life, lock.user));
            let _ = oracle.believes(&name, holder, None);
            oracle.write_over(&name, holder);
        }
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.locks.is_empty()
    }
}

impl World {
    /// A client does something.
    pub(crate) fn act(&mut self, node: usize, client: usize) -> Result<(), String> {
        let state = &self.hosts[node].clients[client];
        if !state.open {
            return Ok(());
        }
        if self.calm {
            return self.let_go(node, client);
        }
        let count = state.locks.len();
        if count == 0 || (count < LOCKS_MAX && self.rng.chance(30)) {
            return self.request(node, client);
        }
        let index = self.rng.below(count as u64) as usize;
        let lock = self.hosts[node].clients[client].locks[index].clone();
        if lock.pending.is_none() && !lock.unlocking {
            return match self.rng.chance(60) {
                true => self.convert(node, client, &lock),
                false => self.unlock(node, client, &lock, LockFlags(0)),
            };
        }
        match self.rng.below(20) {
            0 | 1 => self.cancel(node, client, &lock),
            2 => self.unlock(node, client, &lock, LockFlags::FORCEUNLOCK),
            3 => self.unlock(node, client, &lock, LockFlags(0)),
            _ => Ok(()),
        }
    }

    /// In the calm phase everything is given up.
    fn let_go(&mut self, node: usize, client: usize) -> Result<(), String> {
        let locks = self.hosts[node].clients[client].locks.clone();
        for lock in locks.iter().filter(|lock| !lock.unlocking) {
            self.unlock(node, client, lock, LockFlags::FORCEUNLOCK)?;
        }
        Ok(())
    }

    fn request(&mut self, node: usize, client: usize) -> Result<(), String> {
        let name = self.rng.below(self.options.names as u64) as usize;
        let mode = *self.rng.pick(&Mode::ALL);
        let mut flags = LockFlags(0);
        for (flag, percent) in [
            (LockFlags::NOQUEUE, 15),
            (LockFlags::VALBLK, 50),
            (LockFlags::HEADQUE, 8),
            (LockFlags::NOORDER, 8),
            (LockFlags::ALTPR, 8),
            (LockFlags::ALTCW, 8),
            (LockFlags::NOQUEUEBAST, 5),
            (LockFlags::TIMEOUT, 10),
        ] {
            if self.rng.chance(percent) {
                flags = flags.with(flag);
            }
        }
        let timeout_cs = self.rng.range(1, 50);
        let now = self.now;
        let state = &mut self.hosts[node].clients[client];
        state.next += 1;
        let user = state.next;
        state.locks.push(Held {
            user,
            name,
            id: LockId(0),
            granted: None,
            pending: Some(mode),
            unlocking: false,
            cancelling: false,
            flags,
            token: 0,
            since: now,
            writing: None,
        });
        let id = state.id;
        let call = Call { mode: mode as u8, flags, user, xid: 0, timeout_cs, wants_blocking: true };
        let bytes = name_of(name);
        let request = Request::Lock(LockCall { call, name: &bytes });
        let answer = self.call(node, id, request)?;
        match answer {
            Ok(lock) => {
                if let Some(held) = self.find(node, client, user) {
                    held.id = lock; // also where the completion came first and it lives on
                }
            }
            Err(_) => self.drop_lock(node, client, user),
        }
        Ok(())
    }

    fn convert(&mut self, node: usize, client: usize, lock: &Held) -> Result<(), String> {
        let Some(granted) = lock.granted else { return Ok(()) };
        let mode = *self.rng.pick(&Mode::ALL);
        let mut flags = LockFlags(0);
        for (flag, percent) in [
            (LockFlags::NOQUEUE, 10),
            (LockFlags::VALBLK, 50),
            (LockFlags::HEADQUE, 8),
            (LockFlags::NOORDER, 5),
            (LockFlags::CONVDEADLK, 15),
            (LockFlags::NODLCKWT, 10),
            (LockFlags::ALTPR, 8),
            (LockFlags::ALTCW, 8),
            (LockFlags::IVVALBLK, 3),
        ] {
            if self.rng.chance(percent) {
                flags = flags.with(flag);
            }
        }
        if granted.quecvt_allows(mode) && self.rng.chance(10) {
            flags = flags.with(LockFlags::QUECVT);
        }
        let value = self.fresh_value();
        let writes = matches!(granted, Mode::PW | Mode::EX)
            && flags.has(LockFlags::VALBLK)
            && !flags.has(LockFlags::IVVALBLK);
        let name = name_of(lock.name);
        let life = self.hosts[node].clients[client].life;
        let during = during_conversion(granted, mode, flags);
        let call = Call { mode: mode as u8, flags, user: lock.user, ..Call::default() };
        let call = Call { wants_blocking: true, ..call };
        self.oracle.believes(&name, (life, lock.user), Some(during))?;
        if writes {
            self.oracle.writes(&name, (life, lock.user), Some(value), u64::MAX);
        }
        if let Some(held) = self.find(node, client, lock.user) {
            held.pending = Some(mode);
            held.flags = flags;
            held.writing = writes.then_some(value);
            held.cancelling = false;
        }
        let id = self.hosts[node].clients[client].id;
        let request = Request::Convert(Convert { call, lock: lock.id, value: Some(&value) });
        if self.call(node, id, request)?.is_err() {
            self.oracle.believes(&name, (life, lock.user), Some(granted))?;
            if let Some(held) = self.find(node, client, lock.user) {
                held.pending = None;
                held.flags = lock.flags;
            }
        }
        Ok(())
    }

    fn unlock(
        &mut self,
        node: usize,
        client: usize,
        lock: &Held,
        flags: LockFlags,
    ) -> Result<(), String> {
        let value = self.fresh_value();
        let mut flags = flags;
        if self.rng.chance(30) && !self.calm {
            flags = flags.with(LockFlags::VALBLK);
        }
        let name = name_of(lock.name);
        // A conversion under way may have been granted before the unlock reaches the master.
        let writer = |mode| matches!(mode, Some(Mode::PW | Mode::EX));
        let writes = (writer(lock.granted) || writer(lock.pending))
            && flags.with(lock.flags).has(LockFlags::VALBLK)
            && !flags.with(lock.flags).has(LockFlags::IVVALBLK);
        let client_id = self.hosts[node].clients[client].id;
        let life = self.hosts[node].clients[client].life;
        if writes {
            // Without VALBLK in this call the bytes given last are written (D3).
            let bytes = if flags.has(LockFlags::VALBLK) { Some(value) } else { None };
            let token = if lock.pending.is_none() { lock.token } else { u64::MAX };
            self.oracle.writes(&name, (life, lock.user), bytes, token);
        }
        let request = Unlock { lock: lock.id, flags, user: None, value: Some(&value) };
        // The hold ends with the call, before anything that follows from it.
        self.oracle.believes(&name, (life, lock.user), None)?;
        if let Some(held) = self.find(node, client, lock.user) {
            held.unlocking = true;
        }
        let refused = self.call(node, client_id, Request::Unlock(request))?;
        if let Err(errno) = refused {
            if let Some(held) = self.find(node, client, lock.user) {
                held.unlocking = lock.unlocking;
            }
            if !lock.unlocking {
                let holds = lock.granted.map(|granted| match lock.pending {
                    Some(mode) => during_conversion(granted, mode, lock.flags),
                    None => granted,
                });
                self.oracle.believes(&name, (life, lock.user), holds)?;
            }
            let expected = [Errno::EBUSY, Errno::EINVAL, Errno::ENOENT];
            if !expected.contains(&errno) || (errno == Errno::ENOENT && lock.id.0 == 0) {
                return Err(format!("unlock of {lock:?} answered {errno:?}"));
            }
        }
        Ok(())
    }

    fn cancel(&mut self, node: usize, client: usize, lock: &Held) -> Result<(), String> {
        let id = self.hosts[node].clients[client].id;
        let request = Unlock { lock: lock.id, flags: LockFlags::CANCEL, user: None, value: None };
        if let Some(held) = self.find(node, client, lock.user) {
            held.cancelling = true;
        }
        let refused = self.call(node, id, Request::Unlock(request))?.is_err();
        if let Some(held) = self.find(node, client, lock.user).filter(|_| refused) {
            held.cancelling = lock.cancelling;
        }
        Ok(())
    }

    /// Makes a call and gives its answer; the completions that come with it are handled.
    fn call(
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

    /// The end of a client's process, and its next life.
    pub(crate) fn restart_client(&mut self, node: usize, client: usize) -> Result<(), String> {
        let old = &self.hosts[node].clients[client];
        old.forget(&mut self.oracle);
        let gone = old.id;
        let life = old.life + 1_000_000;
        self.hosts[node].clients[client] =
            Client::new(ClientId::new(gone.slot, gone.generation + 1_000_000), life);
        self.step(node, Input::ClientGone(gone))?;
        let id = self.hosts[node].clients[client].id;
        self.step(node, Input::Client(id, Request::create("sim", life as u32)))?;
        Ok(())
    }

    /// An operation ended.
    pub(crate) fn completed(
        &mut self,
        node: usize,
        client: ClientId,
        completion: &Completion,
    ) -> Result<(), String> {
        let slot = client.slot as usize;
        let life = self.hosts[node].clients[slot].life;
        if self.hosts[node].clients[slot].id != client {
            return Err(format!("a dead client hears {completion:?}"));
        }
        let Some(held) = self.find(node, slot, completion.user) else {
            return Err(format!("nobody asked for {completion:?}"));
        };
        let before = held.clone();
        check_status(&before, completion)?;
        held.granted = completion.granted;
        held.token = completion.token.0;
        if completion.status != Status::Unlocked {
            held.pending = None;
            held.cancelling = false;
        }
        let (name, user) = (name_of(before.name), before.user);
        if !before.unlocking || completion.granted.is_none() {
            self.oracle.write_over(&name, (life, user));
        }
        if completion.granted.is_none() {
            self.drop_lock(node, slot, user);
        }
        if before.unlocking {
            // It was given up by the call already.
            return self.oracle.believes(&name, (life, user), None);
        }
        if completion.status == Status::Granted {
            // Giving up rights may be complete before the master numbered it.
            let new = |mode| before.granted.is_none_or(|old: Mode| !old.is_down(mode));
            if let Some(mode) = completion.granted.filter(|mode| new(*mode)) {
                self.oracle.token(&name, mode, completion.token.0)?;
            }
            if let Some(value) = before.writing.filter(|_| wrote(&before, completion)) {
                self.oracle.wrote(self.now, &name, (life, user), (completion.token.0, value));
            }
            self.check_read(&before, completion)?;
        }
        self.oracle.believes(&name, (life, user), completion.granted)
    }

    fn check_read(&mut self, lock: &Held, completion: &Completion) -> Result<(), String> {
        let Some(value) = completion.value else { return Ok(()) };
        let reads = lock.flags.has(LockFlags::VALBLK)
            && lock.writing.is_none()
            && completion.granted.is_some_and(|to| to >= Mode::CR)
            && lock.granted.is_none();
        if reads && !completion.sb_flags.has(SbFlags::VALNOTVALID) {
            self.oracle.reads(lock.since, &name_of(lock.name), value)?;
        }
        Ok(())
    }

    fn fresh_value(&mut self) -> Value {
        let mut value = [0; VALUE_BYTES];
        value[..8].copy_from_slice(&(self.rng.any() | 1).to_le_bytes());
        value
    }

    fn find(&mut self, node: usize, client: usize, user: u64) -> Option<&mut Held> {
        self.hosts[node].clients[client].locks.iter_mut().find(|lock| lock.user == user)
    }

    fn drop_lock(&mut self, node: usize, client: usize, user: u64) {
        self.hosts[node].clients[client].locks.retain(|lock| lock.user != user);
    }
}

/// What a holder may count on while its conversion is pending.
fn during_conversion(granted: Mode, mode: Mode, flags: LockFlags) -> Mode {
    let mut least = meet(granted, mode);
    if flags.has(LockFlags::ALTPR) {
        least = meet(least, Mode::PR);
    }
    if flags.has(LockFlags::ALTCW) {
        least = meet(least, Mode::CW);
    }
    if flags.has(LockFlags::CONVDEADLK) { Mode::NL } else { least }
}

/// Whether a granted conversion wrote the block: the mode that was really granted decides, and a lock
/// that was demoted first writes nothing.
fn wrote(lock: &Held, completion: &Completion) -> bool {
    let demoted = completion.sb_flags.has(SbFlags::DEMOTED);
    let up = lock.granted == Some(Mode::PW) && completion.granted == Some(Mode::EX);
    !demoted && !up
}

/// Whether a completion answers something that is open.
fn check_status(lock: &Held, completion: &Completion) -> Result<(), String> {
    let open = match completion.status {
        Status::Unlocked => lock.unlocking,
        Status::Cancelled => lock.cancelling && lock.pending.is_some(),
        Status::Granted | Status::Again | Status::Deadlock | Status::TimedOut => {
            lock.pending.is_some()
        }
    };
    if open { Ok(()) } else { Err(format!("{completion:?} answers nothing of {lock:?}")) }
}
