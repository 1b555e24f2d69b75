//! One resource on its master: three queues, what is held, and the value block.
//!
//! Besides the queues it keeps *counts*, so that no question of the grant rules walks a queue:
//! `held` by granted mode answers compatibility, and [`Contention`] answers what is wanted and who
//! still has to be told. Contention exists only where something queues; most resources never have it.

use crate::away::Role;
use crate::lock::{Chain, Lock, Queue};
use crate::name::Name;
use crate::seeded::bug;
use crate::slab::{NIL, Slab};
use crate::table::{Chained, Link};
use crate::{LockFlags, LockState, Mode, Token, Value};

/// Flags that make a queued conversion take part in a pass otherwise than first come, first served.
const SPECIAL_CONVERSION: LockFlags = LockFlags(
    LockFlags::HEADQUE.0 | LockFlags::NODLCKWT.0 | LockFlags::CONVDEADLK.0 | LockFlags::NOORDER.0,
);

/// Holders that are cheaper to walk than to remember.
const HOLDERS_FEW: u32 = 8;

/// A named resource.
#[derive(Clone, Hash, Debug)]
pub(crate) struct Resource {
    pub(crate) name: Name,
    pub(crate) hash: u32,
    chain: Link,
    /// Granted locks, newest grant first (3.5).
    pub(crate) granted: Queue,
    /// Granted modes of all locks, converting ones included, while they are few of each.
    held_few: [u8; 6],
    /// The same once one of them is not few.
    held_many: Option<Box<[u32; 6]>>,
    /// Granted locks that still carry the mode of a failed conversion (3.5).
    stale: u32,
    /// Times the value block was written.
    pub(crate) value_seq: u32,
    /// The value block, once written.
    pub(crate) value: Option<Box<Value>>,
    /// The VALNOTVALID mark.
    pub(crate) invalid: bool,
    /// Number of this node's mastership of the name.
    pub(crate) term: Token,
    /// What this node is to the name, unless it simply serves it as its master.
    pub(crate) role: Option<Box<Role>>,
    /// Not forgotten although unused: something is being done with it.
    pub(crate) pinned: bool,
    /// What queues, and who was told.
    pub(crate) contention: Option<Box<Contention>>,
}

/// The contended part of a resource.
#[derive(Clone, Hash, Debug, Default)]
pub(crate) struct Contention {
    pub(crate) converting: Queue,
    pub(crate) waiting: Queue,
    /// Requested modes of converting locks.
    pub(crate) converting_modes: [u32; 6],
    /// Requested modes of waiting locks.
    pub(crate) waiting_modes: [u32; 6],
    /// Queued conversions with a flag of [`SPECIAL_CONVERSION`].
    pub(crate) special_conversions: u32,
    /// Waiting requests with NOORDER.
    pub(crate) special_waiters: u32,
    /// Locks on the granted queue by granted mode and bast memory.
    told: [[u32; 6]; 6],
    /// Some holder may be told again what it was told already; off only if a walk found none.
    pub(crate) retell: bool,
}

impl Resource {
    /// A resource nobody holds.
    pub(crate) fn new(name: Name, hash: u32) -> Self {
        Self {
            name,
            hash,
            chain: Link::NONE,
            granted: Queue::default(),
            held_few: [0; 6],
            held_many: None,
            stale: 0,
            value_seq: 0,
            value: None,
            invalid: false,
            term: Token(0),
            role: None,
            pinned: false,
            contention: None,
        }
    }

    /// Whether no lock is on any queue.
    pub(crate) fn is_unused(&self) -> bool {
        self.granted.is_empty()
            && !self.has_queue()
            && self.role.as_deref().is_none_or(crate::away::Role::is_unused)
    }

    /// Whether something converts or waits.
    pub(crate) fn has_queue(&self) -> bool {
        self.contention.as_ref().is_some_and(|c| !c.converting.is_empty() || !c.waiting.is_empty())
    }

    /// Head of the converting queue, or [`NIL`].
    pub(crate) fn first_converting(&self) -> u32 {
        self.contention.as_ref().map_or(NIL, |c| c.converting.head)
    }

    /// Head of the waiting queue, or [`NIL`].
    pub(crate) fn first_waiting(&self) -> u32 {
        self.contention.as_ref().map_or(NIL, |c| c.waiting.head)
    }

    /// Requested modes on the converting queue, as a bit set.
    pub(crate) fn converting_set(&self) -> u8 {
        self.contention.as_ref().map_or(0, |c| mode_set(&c.converting_modes))
    }

    /// How many locks hold a mode.
    #[inline]
    pub(crate) fn held(&self, mode: Mode) -> u32 {
        match &self.held_many {
            None => u32::from(self.held_few[mode as usize]),
            Some(many) => many[mode as usize],
        }
    }

    /// The modes held, as a bit set.
    #[inline]
    pub(crate) fn held_set(&self) -> u8 {
        match &self.held_many {
            None => {
                let few = self.held_few.iter().enumerate();
                few.fold(0, |set, (mode, count)| set | (u8::from(*count > 0) << mode))
            }
            Some(many) => mode_set(many),
        }
    }

    fn holders(&self) -> u32 {
        Mode::ALL.iter().map(|mode| self.held(*mode)).sum()
    }

    /// Counts a holder in.
    pub(crate) fn hold(&mut self, mode: Mode) {
        let index = mode as usize;
        match (&mut self.held_many, self.held_few[index].checked_add(1)) {
            (Some(many), _) => many[index] += 1,
            (None, Some(count)) => self.held_few[index] = count,
            (None, None) => {
                let mut many = Box::new(self.held_few.map(u32::from));
                many[index] += 1;
                self.held_many = Some(many);
            }
        }
    }

    /// Counts a holder out.
    pub(crate) fn release(&mut self, mode: Mode) {
        let Some(many) = &mut self.held_many else {
            self.held_few[mode as usize] -= 1;
            return;
        };
        many[mode as usize] -= 1;
        if many.iter().all(|count| *count < u32::from(u8::MAX) / 2) {
            self.held_few = many.map(|count| count as u8);
            self.held_many = None;
        }
    }

    /// Whether a granted mode of another lock than one holding `own` forbids `mode`: rules 2 and 3
    /// of 3.1, without a walk.
    #[inline]
    pub(crate) fn conflicts(&self, own: Option<Mode>, mode: Mode) -> bool {
        let mut held = self.held_set();
        let own = own.filter(|_| !bug("own-mode-conflicts"));
        if let Some(own) = own.filter(|own| self.held(*own) == 1) {
            held &= !(1 << own as u8);
        }
        held & !mode.compatible_set() != 0
    }

    /// The contended part; made, and its counts taken, on first need.
    pub(crate) fn contend(&mut self, locks: &Slab<Lock>) -> &mut Contention {
        if self.contention.is_none() {
            let mut contention = Box::<Contention>::default();
            for index in self.granted.iter(locks, Chain::Resource) {
                if let Some(mode) = locks[index].granted {
                    contention.told[mode as usize][locks[index].told as usize] += 1;
                }
                contention.retell |= locks[index].may_be_told_again();
            }
            self.contention = Some(contention);
        }
        self.contention.as_mut().expect("made above")
    }

    /// Gives the contended part back when nothing queues. With many holders it is kept: making it
    /// again costs a walk over them.
    pub(crate) fn settle(&mut self) {
        if !self.has_queue() && self.holders() <= HOLDERS_FEW {
            self.contention = None;
        }
    }

    /// Puts a lock on the granted queue in its granted mode: at the head, but behind locks that a
    /// failed conversion left with the same or a stronger requested mode (3.5).
    pub(crate) fn join_granted(&mut self, locks: &mut Slab<Lock>, index: u32) {
        let mode = locks[index].granted.expect("a lock on the granted queue has a mode");
        let mut at = if bug("grants-at-tail") { NIL } else { self.granted.head };
        if self.stale > 0 {
            while at != NIL && locks[at].requested.is_some_and(|stale| stale >= mode) {
                at = locks[at].next(Chain::Resource);
            }
        }
        self.granted.insert_before(locks, Chain::Resource, at, index);
        locks[index].state = LockState::Granted;
        self.count_granted(&locks[index], true);
    }

    /// Takes a lock off the granted queue.
    pub(crate) fn leave_granted(&mut self, locks: &mut Slab<Lock>, index: u32) {
        self.count_granted(&locks[index], false);
        self.granted.remove(locks, Chain::Resource, index);
    }

    /// Keeps the counts true around a change of a lock that stays on the granted queue.
    pub(crate) fn change_granted(&mut self, lock: &mut Lock, change: impl FnOnce(&mut Lock)) {
        self.count_granted(lock, false);
        change(lock);
        self.count_granted(lock, true);
    }

    /// Puts a lock on the converting queue.
    pub(crate) fn join_converting(&mut self, locks: &mut Slab<Lock>, index: u32) {
        self.contend(locks);
        let contention = self.contention.as_mut().expect("made above");
        let headque = locks[index].flags.has(LockFlags::HEADQUE);
        let at = if headque && !bug("headque-converts-at-tail") {
            contention.converting.head
        } else {
            NIL
        };
        contention.converting.insert_before(locks, Chain::Resource, at, index);
        let lock = &mut locks[index];
        lock.state = LockState::Converting;
        contention.converting_modes[requested(lock)] += 1;
        contention.special_conversions += u32::from(lock.flags.any(SPECIAL_CONVERSION));
    }

    /// Puts a rebuilt lock at the tail of the converting or waiting queue; rebuilt locks come in the
    /// order of their places.
    pub(crate) fn rejoin(&mut self, locks: &mut Slab<Lock>, index: u32, state: LockState) {
        let flags = locks[index].flags;
        locks[index].flags = flags.without(LockFlags::HEADQUE);
        match state {
            LockState::Converting => self.join_converting(locks, index),
            _ => self.join_waiting(locks, index),
        }
        locks[index].flags = flags;
        if let Some(contention) = &mut self.contention {
            // The head queue flag is counted when it leaves.
            let special = flags.any(SPECIAL_CONVERSION)
                && !flags.without(LockFlags::HEADQUE).any(SPECIAL_CONVERSION);
            contention.special_conversions += u32::from(special && state == LockState::Converting);
        }
    }

    /// Takes a lock off the converting queue.
    pub(crate) fn leave_converting(&mut self, locks: &mut Slab<Lock>, index: u32) {
        let contention = self.contention.as_mut().expect("a converting lock is contention");
        let lock = &locks[index];
        contention.converting_modes[requested(lock)] -= 1;
        contention.special_conversions -= u32::from(lock.flags.any(SPECIAL_CONVERSION));
        contention.converting.remove(locks, Chain::Resource, index);
    }

    /// Puts a lock on the waiting queue.
    pub(crate) fn join_waiting(&mut self, locks: &mut Slab<Lock>, index: u32) {
        self.contend(locks);
        let contention = self.contention.as_mut().expect("made above");
        let headque = locks[index].flags.has(LockFlags::HEADQUE);
        let at =
            if headque && !bug("headque-waits-at-tail") { contention.waiting.head } else { NIL };
        contention.waiting.insert_before(locks, Chain::Resource, at, index);
        let lock = &mut locks[index];
        lock.state = LockState::Waiting;
        lock.queued = true;
        contention.waiting_modes[requested(lock)] += 1;
        contention.special_waiters += u32::from(lock.flags.has(LockFlags::NOORDER));
    }

    /// Takes a lock off the waiting queue.
    pub(crate) fn leave_waiting(&mut self, locks: &mut Slab<Lock>, index: u32) {
        let contention = self.contention.as_mut().expect("a waiting lock is contention");
        let lock = &locks[index];
        contention.waiting_modes[requested(lock)] -= 1;
        contention.special_waiters -= u32::from(lock.flags.has(LockFlags::NOORDER));
        contention.waiting.remove(locks, Chain::Resource, index);
        locks[index].queued = false;
    }

    fn count_granted(&mut self, lock: &Lock, joins: bool) {
        let mode = lock.granted.expect("a lock on the granted queue has a mode");
        let stale = u32::from(lock.requested.is_some());
        let told = self.contention.as_mut().map(|c| &mut c.told[mode as usize][lock.told as usize]);
        if joins {
            self.stale += stale;
            told.into_iter().for_each(|count| *count += 1);
        } else {
            self.stale -= stale;
            told.into_iter().for_each(|count| *count -= 1);
        }
    }
}

impl Contention {
    /// Whether any holder on the granted queue falls under `rule` (granted mode, bast memory); the
    /// rule says whether the holder would be told something new.
    pub(crate) fn any_holder(&self, rule: impl Fn(Mode, Mode) -> bool) -> bool {
        Mode::ALL.iter().any(|granted| {
            let row = &self.told[*granted as usize];
            Mode::ALL.iter().any(|told| row[*told as usize] > 0 && rule(*granted, *told))
        })
    }
}

/// The modes with a count, as a bit set.
#[inline]
pub(crate) fn mode_set(counts: &[u32; 6]) -> u8 {
    counts.iter().enumerate().fold(0, |set, (mode, count)| set | (u8::from(*count > 0) << mode))
}

/// The strongest mode of a set.
pub(crate) fn strongest(set: u8) -> Option<Mode> {
    Mode::from_number((u8::BITS - 1).checked_sub(set.leading_zeros())? as u8)
}

fn requested(lock: &Lock) -> usize {
    lock.requested.expect("a queued lock asks for a mode") as usize
}

impl Chained for Slab<Resource> {
    fn hash(&self, index: u32) -> u32 {
        self[index].hash
    }

    fn next(&self, index: u32) -> Link {
        self[index].chain
    }

    fn set_next(&mut self, index: u32, next: Link) {
        self[index].chain = next;
    }
}
