//! What clients hear, and whether it can be true.

use dlm_core::{ClientId, Completion, LockFlags, Mode, SbFlags, Status};

use crate::client::{Heard, Held};
use crate::values::Read;
use crate::world::{Event, World};

impl World {
    /// A client is told something; it looks at it now, or when it gets round to it.
    pub(crate) fn tell_client(
        &mut self,
        node: usize,
        client: ClientId,
        heard: Heard,
    ) -> Result<(), String> {
        let slot = client.slot as usize;
        let state = &mut self.hosts[node].clients[slot];
        if state.id != client {
            return Err(format!("a dead client hears {heard:?}"));
        }
        state.inbox.push(heard);
        let slow = state.slow;
        if slow == 0 {
            return self.take_inbox(node, slot);
        }
        if !core::mem::replace(&mut state.taking, true) {
            let (life, of) = (self.hosts[node].life.incarnation, client);
            self.later(slow, Event::Take { node, life, client: of });
        }
        Ok(())
    }

    /// A client looks at what it was told.
    pub(crate) fn take_inbox(&mut self, node: usize, client: usize) -> Result<(), String> {
        let state = &mut self.hosts[node].clients[client];
        state.taking = false;
        for heard in core::mem::take(&mut state.inbox) {
            match heard {
                Heard::Completion(completion) => self.completed(node, client, &completion)?,
                Heard::Blocking { user, mode } => self.blocked(node, client, user, mode)?,
            }
        }
        Ok(())
    }

    /// A client is told that it blocks somebody.
    fn blocked(&mut self, node: usize, client: usize, user: u64, mode: Mode) -> Result<(), String> {
        let state = &mut self.hosts[node].clients[client];
        let polite = state.polite;
        let id = state.id;
        let Some(held) = state.find(user) else {
            return Err(format!("a note of {mode:?} for a lock that is gone"));
        };
        held.told |= 1 << mode as u8;
        if polite && held.rests() && !held.granted.is_some_and(|granted| granted.compatible(mode)) {
            let life = self.hosts[node].life.incarnation;
            self.later(self.options.pace, Event::GiveWay { node, life, client: id, user });
        }
        Ok(())
    }

    /// A polite holder makes room.
    pub(crate) fn give_way(&mut self, node: usize, client: usize, user: u64) -> Result<(), String> {
        if self.is_frozen(node) {
            return Ok(());
        }
        let state = &mut self.hosts[node].clients[client];
        let Some(held) = state.find(user).filter(|held| held.rests()).cloned() else {
            return Ok(());
        };
        match self.rng.chance(50) {
            true => self.convert(node, client, &held, Some(Mode::NL)),
            false => self.unlock(node, client, &held, LockFlags(0)),
        }
    }

    /// An operation ended.
    fn completed(
        &mut self,
        node: usize,
        client: usize,
        completion: &Completion,
    ) -> Result<(), String> {
        let state = &mut self.hosts[node].clients[client];
        let Some(held) = state.find(completion.user) else {
            return Err(format!("nobody asked for {completion:?}"));
        };
        let before = held.clone();
        check_status(&before, completion)?;
        if before.granted.is_some()
            && completion.granted.is_some()
            && completion.token.0 < before.token
        {
            return Err(format!("token: {before:?} got an earlier number with {completion:?}"));
        }
        held.granted = completion.granted;
        held.token = completion.token.0;
        if completion.status != Status::Unlocked {
            held.pending = None;
            held.cancelling = false;
        }
        if completion.status == Status::Granted {
            held.told = 0;
            held.buffer = completion.value.or(held.buffer);
        }
        let after = held.clone();
        let (name, holder) = (state.name(&before), state.holder(&before));
        if completion.granted.is_none() {
            state.drop_lock(before.user);
        }
        if before.unlocking {
            if let Some(value) = before.writing.filter(|_| completion.status == Status::Unlocked) {
                // Who adopted a lock hears its number only now.
                let token = before.token.max(completion.token.0);
                self.oracle.values.wrote((before.since, self.now), name, holder, (token, value));
            }
            if completion.granted.is_none() {
                self.oracle.values.over(name, holder);
            }
            // It was given up by the call already.
            return self.oracle.believes(name, holder, None);
        }
        self.oracle.values.over(name, holder);
        if after.rests() && before.flags.has(LockFlags::VALBLK) {
            self.oracle.values.rests(self.now, name, holder);
        }
        if completion.status == Status::Granted {
            // Giving up rights may be complete before the master numbered it.
            let new = |mode| before.granted.is_none_or(|old: Mode| !old.is_down(mode));
            if let Some(mode) = completion.granted.filter(|mode| new(*mode)) {
                self.oracle.token(name, mode, completion.token.0)?;
            }
            if let Some(value) = before.writing.filter(|_| wrote(&before, completion)) {
                self.oracle.values.wrote(
                    (before.since, self.now),
                    name,
                    holder,
                    (completion.token.0, value),
                );
            }
            self.check_read(&before, completion, name)?;
        }
        self.oracle.believes(name, holder, completion.granted)
    }

    fn check_read(
        &mut self,
        lock: &Held,
        completion: &Completion,
        name: (usize, usize),
    ) -> Result<(), String> {
        let Some(mode) = completion.granted.filter(|_| lock.flags.has(LockFlags::VALBLK)) else {
            return Ok(());
        };
        let demoted = completion.sb_flags.has(SbFlags::DEMOTED);
        let from = if demoted { Some(Mode::NL) } else { lock.granted };
        let marked = completion.sb_flags.has(SbFlags::VALNOTVALID);
        if let Some(value) = completion.value.filter(|_| reads(from, mode)) {
            let (since, own) = (lock.since, lock.buffer);
            self.oracle.values.reads(name, Read { since, mode, value, own, marked })?;
        }
        if mode > Mode::CR {
            self.oracle.values.seen(name);
        }
        Ok(())
    }
}

/// Row R of the table of 1.4.
fn reads(from: Option<Mode>, to: Mode) -> bool {
    match from {
        None | Some(Mode::NL) => true,
        Some(Mode::CR | Mode::CW) => from.is_some_and(|from| to >= from),
        Some(Mode::PR) => to >= Mode::PR,
        Some(Mode::PW) => to == Mode::EX,
        Some(Mode::EX) => false,
    }
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
        Status::TimedOut => lock.flags.has(LockFlags::TIMEOUT) && lock.pending.is_some(),
        Status::Granted | Status::Again | Status::Deadlock => lock.pending.is_some(),
    };
    if open { Ok(()) } else { Err(format!("{completion:?} answers nothing of {lock:?}")) }
}
