//! What tells two states of a node apart, for model checkers that keep the states they have seen.
//!
//! Everything that decides what a node will ever do goes in; what only listings show stays out, else
//! no two ways would ever lead to the same state: counters, and moments of the clock. That
//! a timer is armed counts, when it ends does not.

use std::hash::{Hash, Hasher};

use crate::lock::Rare;
use crate::lockspace::LockTable;
use crate::name::Name;
use crate::slab::Slab;
use crate::slots::Slots;
use crate::time::Coarse;
use crate::timer::Timers;
use crate::{LockState, Node};

/// Two nodes of the same digest act alike on the same inputs, but for the time at which they do so:
/// counters and past readings of the clock play no part.
impl Hash for Node {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.member().hash(state);
        self.joins.hash(state);
        self.spaces.hash(state);
        self.clients.hash(state);
        self.timers.hash(state);
        self.frozen.hash(state);
        self.lease_until().hash(state);
    }
}

impl Hash for LockTable {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.locks.hash(state);
        self.resources.hash(state);
        self.orphans.hash(state);
        self.hash_rest(state);
        self.cluster.hash(state);
    }
}

impl Hash for Rare {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.value.hash(state);
        self.seen.hash(state);
        self.current.hash(state);
        self.marked.hash(state);
        self.value_seq.hash(state);
        self.limit_cs.hash(state);
        self.limit.is_some().hash(state);
        self.away.hash(state);
    }
}

impl Hash for Timers {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.all().for_each(|timer| timer.hash(state));
    }
}

impl Hash for Name {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_bytes().hash(state);
    }
}

impl Hash for LockState {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (*self as u8).hash(state);
    }
}

/// Entries with their places, and how often each other place was used: ids depend on it.
impl<T: Hash> Hash for Slab<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.len().hash(state);
        for index in 1..self.end() {
            match self.get(index) {
                Some(entry) => (index, entry).hash(state),
                None => (index, self.vacated(index)).hash(state),
            }
        }
    }
}

/// A moment in a listing.
impl Hash for Coarse {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

/// A function of the view.
impl Hash for Slots {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}
