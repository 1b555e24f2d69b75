//! Clients of the simulation: what they know of their locks, and what they do next.

use dlm_core::{ClientId, Completion, LockFlags, LockId, Mode, VALUE_BYTES, Value};

use crate::oracle::{Holder, Key, Oracle, meet};

/// Most locks of a client at a time.
pub(crate) const LOCKS_MAX: usize = 4;

/// What a client does all day.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Habit {
    /// Everything.
    Any,
    /// Writes and reads value blocks.
    Writer,
    /// Holds a weak lock with a value block on each name and does nothing else.
    Anchor,
}

/// A client.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    pub(crate) id: ClientId,
    /// Unique over the whole run.
    pub(crate) life: u64,
    /// Its lockspace.
    pub(crate) space: usize,
    pub(crate) pid: u32,
    pub(crate) open: bool,
    pub(crate) habit: Habit,
    /// How long it takes, at most, until it looks at what it was told; 0: at once.
    pub(crate) slow: u64,
    /// It gives way when it blocks others.
    pub(crate) polite: bool,
    pub(crate) locks: Vec<Held>,
    pub(crate) inbox: Vec<Heard>,
    /// An event that empties the inbox is under way.
    pub(crate) taking: bool,
    pub(crate) next: u64,
}

/// Something that a client was told and has not looked at.
#[derive(Clone, Debug)]
pub(crate) enum Heard {
    Completion(Completion),
    Blocking { user: u64, mode: Mode },
}

/// A lock as its client knows it.
#[derive(Clone, Debug)]
pub(crate) struct Held {
    pub(crate) user: u64,
    pub(crate) name: usize,
    pub(crate) id: LockId,
    pub(crate) granted: Option<Mode>,
    /// Requested mode of an operation that must complete.
    pub(crate) pending: Option<Mode>,
    pub(crate) unlocking: bool,
    pub(crate) cancelling: bool,
    /// Flags of the last request or conversion, with those of later unlocks and cancels.
    pub(crate) flags: LockFlags,
    /// Number of its last grant.
    pub(crate) token: u64,
    /// When the pending operation was asked for.
    pub(crate) since: u64,
    /// The bytes that an unlock without bytes of its own writes; `None`: not known.
    pub(crate) buffer: Option<Value>,
    /// Bytes under way with the pending operation.
    pub(crate) writing: Option<Value>,
    /// Modes it was told it blocks since its last grant, as bits.
    pub(crate) told: u8,
    /// It was granted past the queue: nobody told it of those who waited then.
    pub(crate) unordered: bool,
}

impl Held {
    pub(crate) fn new(user: u64, name: usize, mode: Mode, flags: LockFlags, since: u64) -> Self {
        Self {
            user,
            name,
            id: LockId(0),
            granted: None,
            pending: Some(mode),
            unlocking: false,
            cancelling: false,
            flags,
            token: 0,
            since,
            buffer: flags.has(LockFlags::VALBLK).then_some([0; VALUE_BYTES]),
            writing: None,
            told: 0,
            unordered: flags.has(LockFlags::NOORDER),
        }
    }

    /// What its holder may count on.
    pub(crate) fn holds(&self) -> Option<Mode> {
        let granted = self.granted.filter(|_| !self.unlocking)?;
        match self.pending {
            Some(mode) => Some(during_conversion(granted, mode, self.flags)),
            None => Some(granted),
        }
    }

    /// Granted, and nothing under way.
    pub(crate) fn rests(&self) -> bool {
        self.granted.is_some() && self.pending.is_none() && !self.unlocking && !self.cancelling
    }

    pub(crate) fn may_write(&self) -> bool {
        matches!(self.granted, Some(Mode::PW | Mode::EX))
    }
}

impl Client {
    pub(crate) fn new(id: ClientId, life: u64, space: usize, pid: u32) -> Self {
        Self {
            id,
            life,
            space,
            pid,
            open: false,
            habit: Habit::Any,
            slow: 0,
            polite: false,
            locks: Vec::new(),
            inbox: Vec::new(),
            taking: false,
            next: 0,
        }
    }

    pub(crate) fn name(&self, held: &Held) -> Key {
        (self.space, held.name)
    }

    pub(crate) fn holder(&self, held: &Held) -> Holder {
        (self.life, held.user)
    }

    pub(crate) fn find(&mut self, user: u64) -> Option<&mut Held> {
        self.locks.iter_mut().find(|lock| lock.user == user)
    }

    pub(crate) fn drop_lock(&mut self, user: u64) {
        self.locks.retain(|lock| lock.user != user);
    }

    /// Its end, or that of all it had: it holds nothing any more. `marks` says of a lock whether the
    /// value block is marked by that.
    pub(crate) fn forget(&self, oracle: &mut Oracle, now: u64, marks: impl Fn(&Held) -> bool) {
        for lock in &self.locks {
            let (name, holder) = (self.name(lock), self.holder(lock));
            let writer = lock.granted.filter(|_| lock.may_write() && lock.rests());
            if let Some(mode) = writer.filter(|_| marks(lock) && self.inbox.is_empty()) {
                oracle.values.writer_died(now, name, holder, mode);
            }
            oracle.gone(name, holder);
        }
    }

    /// Its locks keep no value block any more: the others go on without it.
    pub(crate) fn unanchor(&self, oracle: &mut Oracle) {
        for lock in &self.locks {
            oracle.values.moves(self.name(lock), self.holder(lock));
        }
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.locks.is_empty()
    }
}

/// What a holder may count on while its conversion is pending (recovery.md 6.3).
pub(crate) fn during_conversion(granted: Mode, mode: Mode, flags: LockFlags) -> Mode {
    let mut least = meet(granted, mode);
    if flags.has(LockFlags::ALTPR) {
        least = meet(least, Mode::PR);
    }
    if flags.has(LockFlags::ALTCW) {
        least = meet(least, Mode::CW);
    }
    if flags.has(LockFlags::CONVDEADLK) { Mode::NL } else { least }
}
