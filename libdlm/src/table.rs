//! The locks that a handle knows.
//!
//! The daemon returns a *word* with each event: slot number and generation, never a pointer. A
//! lock's addresses (status block, callbacks, arguments) can be replaced by each convert and
//! unlock, and an event belongs to the addresses that were current when it was *queued*
//! (semantics.md 5.1, the rule of 6.12). So each new set of addresses gets the next generation, and
//! a few old sets are kept until an event of a newer one shows that nothing of theirs can come any
//! more. A word whose lock is gone is stale, and its events are dropped.

use std::collections::{HashMap, VecDeque};
use std::ffi::c_void;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

use crate::EINPROG;
use crate::event::LockEvent;
use crate::wait::Waiter;

/// Old sets of addresses kept per lock. Only calls refused again and again, each with other
/// addresses and with nothing dispatched in between, exceed it; then events go to the oldest set
/// kept.
const OLD_TARGETS_MAX: usize = 8;

/// The status block of C programs, `struct dlm_lksb`.
#[repr(C)]
#[derive(Debug)]
pub struct Lksb {
    /// `sb_status`.
    pub status: i32,
    /// `sb_lkid`.
    pub lkid: u32,
    /// `sb_flags`.
    pub flags: std::ffi::c_char,
    /// `sb_lvbptr`.
    pub lvbptr: *mut std::ffi::c_char,
}

/// A C callback.
pub type CCallback = unsafe extern "C" fn(*mut c_void);

/// What a C program gave with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Addresses {
    pub(crate) lksb: *mut Lksb,
    pub(crate) ast: Option<Code>,
    pub(crate) ast_arg: *mut c_void,
    pub(crate) bast: Option<Code>,
    pub(crate) bast_arg: *mut c_void,
}

// SAFETY: the addresses are the program's own; it gave them to be used on whichever thread
// dispatches (libdlm(3)). This crate only uses them there.
unsafe impl Send for Addresses {}
// SAFETY: as above; shared access only copies the addresses.
unsafe impl Sync for Addresses {}

/// A callback's address. Programs pass `(void *)1` where they expect no callback (adoption of
/// orphans), so nothing within the first page counts as one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Code(CCallback);

impl PartialEq for Code {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::fn_addr_eq(self.0, other.0)
    }
}

impl Eq for Code {}

impl Code {
    pub(crate) fn new(callback: Option<CCallback>) -> Option<Self> {
        callback.filter(|callback| *callback as usize >= 4096).map(Self)
    }

    /// Calls it.
    ///
    /// # Safety
    /// The program promised that it may be called with `arg` as long as the lock exists.
    pub(crate) unsafe fn call(self, arg: *mut c_void) {
        // SAFETY: the caller's promise.
        unsafe { (self.0)(arg) }
    }
}

/// A callback of a Rust program.
pub(crate) type Function = Arc<dyn Fn(LockEvent) + Send + Sync>;

/// Where a lock's events go.
#[derive(Clone)]
pub(crate) enum Target {
    /// They are only noted.
    Nobody,
    /// To a C program.
    Block(Addresses),
    /// To the handle's pipeline, with the caller's key.
    Pipeline(u64),
    /// To a Rust program: blocking callbacks, and, unless somebody waits for them, completions.
    Function { function: Function, completions: bool },
    /// The caller gave up waiting: a grant that comes all the same is given back, a conversion to
    /// this mode.
    GiveBack(Option<u8>),
}

impl Target {
    fn same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Nobody, Self::Nobody) => true,
            (Self::Block(a), Self::Block(b)) => a == b,
            (Self::Pipeline(a), Self::Pipeline(b)) => a == b,
            (
                Self::Function { function: a, completions: c },
                Self::Function { function: b, completions: d },
            ) => Arc::ptr_eq(a, b) && c == d,
            _ => false,
        }
    }

    /// The same, for an operation that somebody waits for.
    pub(crate) fn waited_for(&self) -> Self {
        match self {
            Self::Function { function, .. } => {
                Self::Function { function: Arc::clone(function), completions: false }
            }
            other => other.clone(),
        }
    }

    /// Whether delivering to it runs code of the program.
    pub(crate) fn has_callback(&self, blocking: bool) -> bool {
        match self {
            Self::Block(to) => if blocking { to.bast } else { to.ast }.is_some(),
            Self::Function { completions, .. } => blocking || *completions,
            _ => false,
        }
    }
}

/// A lock, from its request until a completion said that it is gone.
pub(crate) struct Slot {
    /// Generations `base..=newest` are this lock's.
    base: u32,
    newest: u32,
    live: bool,
    /// Whether `by_id` knows it.
    indexed: bool,
    /// Lock id; 0 until reply or first event.
    pub(crate) id: u32,
    /// Granted mode, as far as delivered.
    pub(crate) mode: Option<u8>,
    /// What the last delivered completion said.
    pub(crate) status: i32,
    /// Likewise, flags.
    pub(crate) sb_flags: u8,
    /// Number of the last grant.
    pub(crate) token: u64,
    /// Accepted operations whose completion has not been received. Cancels do not count: they end
    /// the operation they cancel and have no completion of their own (semantics.md 4.2). Below 0
    /// for the moment between a completion's arrival and the answer to the request.
    pub(crate) pending: i32,
    /// Whether an event was taken for delivery; after that the status block's id is set.
    pub(crate) heard: bool,
    /// Place, in the order of arrival, of the completion delivered last.
    pub(crate) completed: u64,
    /// Events received and not delivered.
    pub(crate) queued: u32,
    /// The thread that delivers an event of this lock now, 0: none. One at a time, so that
    /// callbacks of one lock come in order (D10) also where many threads dispatch.
    pub(crate) runner: usize,
    /// Threads that wait for an operation of this lock.
    pub(crate) waiters: Vec<Arc<Waiter>>,
    target: Target,
    /// Earlier targets, each with the last generation that is its own.
    older: VecDeque<(u32, Target)>,
}

/// Slots by number, and slot numbers by lock id.
#[derive(Default)]
pub(crate) struct Table {
    slots: Vec<Slot>,
    free: Vec<u32>,
    by_id: HashMap<u32, u32, BuildHasherDefault<IdHasher>>,
}

/// A slot number with a generation.
pub(crate) const fn word(slot: u32, generation: u32) -> u64 {
    slot as u64 | (generation as u64) << 32
}

const fn generation_of(word: u64) -> u32 {
    (word >> 32) as u32
}

/// Whether generation `a` is `b` or older. Counted in a circle: only few are alive at a time.
const fn not_after(a: u32, b: u32) -> bool {
    b.wrapping_sub(a) <= u32::MAX / 2
}

impl Table {
    /// A slot for a lock about to be requested, and its word.
    pub(crate) fn add(&mut self, target: Target) -> u64 {
        let number = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot::EMPTY);
            (self.slots.len() - 1) as u32
        });
        let slot = &mut self.slots[number as usize];
        let base = slot.newest.wrapping_add(1);
        (slot.base, slot.newest, slot.live, slot.target) = (base, base, true, target);
        (slot.id, slot.indexed, slot.heard, slot.completed) = (0, false, false, 0);
        (slot.mode, slot.status, slot.sb_flags, slot.token) = (None, EINPROG, 0, 0);
        (slot.pending, slot.queued, slot.runner) = (0, 0, 0);
        word(number, base)
    }

    /// The slot of a word, unless the word is stale.
    pub(crate) fn resolve(&self, word: u64) -> Option<u32> {
        let number = word as u32;
        let slot = self.slots.get(number as usize).filter(|slot| slot.live)?;
        let generation = generation_of(word);
        let known = not_after(slot.base, generation) && not_after(generation, slot.newest);
        known.then_some(number)
    }

    /// The slot of a lock id.
    pub(crate) fn find(&self, id: u32) -> Option<u32> {
        self.by_id.get(&id).copied()
    }

    pub(crate) fn slot(&mut self, number: u32) -> &mut Slot {
        &mut self.slots[number as usize]
    }

    pub(crate) fn peek(&self, number: u32) -> &Slot {
        &self.slots[number as usize]
    }

    /// Notes the id of a lock.
    pub(crate) fn bind(&mut self, number: u32, id: u32) {
        let slot = &mut self.slots[number as usize];
        if slot.id == 0 && id != 0 {
            slot.id = id;
            // A pipeline's locks are named by their slot too, so they need no entry.
            slot.indexed = !matches!(slot.target, Target::Pipeline(_));
            if slot.indexed {
                self.by_id.insert(id, number);
            }
        }
    }

    /// Replaces a lock's target; the word that stands for it.
    pub(crate) fn readdress(&mut self, number: u32, target: Target) -> u64 {
        let slot = &mut self.slots[number as usize];
        if !slot.target.same(&target) {
            let old = std::mem::replace(&mut slot.target, target);
            slot.older.push_back((slot.newest, old));
            if slot.older.len() > OLD_TARGETS_MAX {
                slot.older.pop_front();
            }
            slot.newest = slot.newest.wrapping_add(1);
        }
        word(number, slot.newest)
    }

    /// Makes a target the lock's only one: events of all its generations go there.
    pub(crate) fn retarget(&mut self, number: u32, target: Target) {
        let slot = &mut self.slots[number as usize];
        slot.target = target;
        slot.older.clear();
    }

    /// Takes the newest target back: events of its generation go to `target` instead.
    pub(crate) fn restore(&mut self, number: u32, target: Target) {
        self.slots[number as usize].target = target;
    }

    /// Where an event with this word goes. Older targets are forgotten.
    pub(crate) fn target(&mut self, number: u32, word: u64) -> Target {
        let slot = &mut self.slots[number as usize];
        let generation = generation_of(word);
        while slot.older.front().is_some_and(|(last, _)| !not_after(generation, *last)) {
            slot.older.pop_front();
        }
        slot.older.front().map_or(&slot.target, |(_, target)| target).clone()
    }

    /// The newest target.
    pub(crate) fn newest_target(&self, number: u32) -> &Target {
        &self.slots[number as usize].target
    }

    /// The newest word.
    pub(crate) fn newest_word(&self, number: u32) -> u64 {
        word(number, self.slots[number as usize].newest)
    }

    /// The lock is gone.
    pub(crate) fn remove(&mut self, number: u32) {
        let slot = &mut self.slots[number as usize];
        // Emptied as far as `add` does not, and at once, so that what a closure holds is let go.
        (slot.live, slot.target) = (false, Target::Nobody);
        slot.older.clear();
        slot.waiters.clear();
        if slot.indexed && self.by_id.get(&slot.id) == Some(&number) {
            self.by_id.remove(&slot.id);
        }
        self.free.push(number);
    }

    /// Numbers of all living locks.
    pub(crate) fn living(&self) -> Vec<u32> {
        let living = self.slots.iter().enumerate().filter(|(_, slot)| slot.live);
        living.map(|(number, _)| number as u32).collect()
    }
}

impl Slot {
    const EMPTY: Self = Self {
        base: 0,
        newest: 0,
        live: false,
        indexed: false,
        id: 0,
        mode: None,
        status: EINPROG,
        sb_flags: 0,
        token: 0,
        pending: 0,
        heard: false,
        completed: 0,
        queued: 0,
        runner: 0,
        waiters: Vec::new(),
        target: Target::Nobody,
        older: VecDeque::new(),
    };
}

/// Whether an event with `word` belongs to an operation asked for with `of` or later.
pub(crate) fn at_or_after(word: u64, of: u64) -> bool {
    not_after(generation_of(of), generation_of(word))
}

/// Lock ids are numbers that no outsider chooses; one multiplication spreads them.
#[derive(Default)]
pub(crate) struct IdHasher(u64);

impl Hasher for IdHasher {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u32(u32::from(*byte));
        }
    }

    fn write_u32(&mut self, number: u32) {
        self.0 = (self.0 ^ u64::from(number)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn finish(&self) -> u64 {
        self.0 ^ self.0 >> 32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(target: Target) -> u64 {
        match target {
            Target::Pipeline(key) => key,
            _ => panic!("another target"),
        }
    }

    #[test]
    fn a_slot_used_again_does_not_know_its_old_words() {
        let mut table = Table::default();
        let first = table.add(Target::Nobody);
        let slot = table.resolve(first).unwrap();
        table.bind(slot, 77);
        assert_eq!(table.find(77), Some(slot));
        table.remove(slot);
        assert_eq!((table.resolve(first), table.find(77)), (None, None));
        let second = table.add(Target::Nobody);
        assert_eq!(table.resolve(second), Some(slot), "the slot is used again");
        assert_eq!(table.resolve(first), None);
        assert_eq!(table.resolve(word(9, 0)), None, "never made");
    }

    #[test]
    fn an_event_goes_where_its_word_says() {
        let mut table = Table::default();
        let one = table.add(Target::Pipeline(1));
        let slot = table.resolve(one).unwrap();
        let two = table.readdress(slot, Target::Pipeline(2));
        let three = table.readdress(slot, Target::Pipeline(3));
        assert_eq!(table.readdress(slot, Target::Pipeline(3)), three, "nothing new, no new word");
        assert!(at_or_after(three, two) && !at_or_after(one, two));
        assert_eq!(key(table.target(slot, one)), 1);
        assert_eq!(key(table.target(slot, two)), 2);
        assert_eq!(key(table.target(slot, three)), 3);
        assert_eq!(key(table.target(slot, three)), 3);
    }

    #[test]
    fn old_targets_are_bounded_and_never_lose_an_event() {
        let mut table = Table::default();
        let first = table.add(Target::Pipeline(0));
        let slot = table.resolve(first).unwrap();
        for number in 1..=100 {
            table.readdress(slot, Target::Pipeline(number));
        }
        assert_eq!(table.peek(slot).older.len(), OLD_TARGETS_MAX);
        assert_eq!(key(table.target(slot, first)), 100 - OLD_TARGETS_MAX as u64);
        table.retarget(slot, Target::Pipeline(7));
        assert_eq!(key(table.target(slot, first)), 7);
    }

    #[test]
    fn generations_may_wrap() {
        let mut table = Table::default();
        let first = table.add(Target::Pipeline(0));
        let slot = table.resolve(first).unwrap();
        table.remove(slot);
        table.slot(slot).newest = u32::MAX - 1;
        let last = table.add(Target::Pipeline(1));
        let wrapped = table.readdress(slot, Target::Pipeline(2));
        assert_eq!((last >> 32, wrapped >> 32), (u64::from(u32::MAX), 0));
        assert!(table.resolve(last).is_some() && table.resolve(wrapped).is_some());
        assert_eq!(table.resolve(word(slot, 1)), None);
        assert!(at_or_after(wrapped, last) && !at_or_after(last, wrapped));
    }

    #[test]
    fn addresses_in_the_first_page_are_no_callbacks() {
        unsafe extern "C" fn real(_: *mut c_void) {}
        // SAFETY: a function pointer of this value is never called, which is what is tested.
        let one: CCallback = unsafe { std::mem::transmute(1usize) };
        assert!(Code::new(Some(one)).is_none());
        assert!(Code::new(None).is_none());
        assert!(Code::new(Some(real)).is_some());
    }
}
