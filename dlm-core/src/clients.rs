//! The open handles of this node, as far as the engine must know them.

use crate::lock::Queue;
use crate::{ClientId, LockspaceId};

/// What a client is doing.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Phase {
    /// Waits for the lockspace to be joined or to be gone.
    Opening,
    /// May call.
    Open,
    /// Its handle ended; it waits for the lockspace's end.
    Releasing,
    /// It ended, and some of its locks have not.
    Ending {
        /// It lives, and waits for that.
        answer: bool,
    },
}

/// A client.
#[derive(Clone, Hash, Debug)]
pub(crate) struct Client {
    pub(crate) id: ClientId,
    pub(crate) space: LockspaceId,
    pub(crate) pid: u32,
    pub(crate) phase: Phase,
    /// Its locks, oldest first.
    pub(crate) locks: Queue,
    pub(crate) lock_count: u32,
    /// Nothing is delivered any more: its handle is being ended, or it purges its own locks.
    pub(crate) muted: bool,
}

/// All clients by slot.
#[derive(Clone, Hash, Debug, Default)]
pub(crate) struct Clients {
    slots: Vec<Option<Client>>,
    /// Those whose locks are being ended, oldest first; their slots may be others' already.
    ending: Vec<Client>,
}

impl Clients {
    /// Adds a client; false if its slot is taken.
    pub(crate) fn add(&mut self, client: Client) -> bool {
        let slot = client.id.slot as usize;
        if slot >= self.slots.len() {
            self.slots.resize_with(slot + 1, || None);
        }
        let free = self.slots[slot].is_none();
        if free {
            self.slots[slot] = Some(client);
        }
        free
    }

    /// Forgets a client.
    pub(crate) fn remove(&mut self, id: ClientId) {
        if let Some(slot) = self.slots.get_mut(id.slot as usize) {
            slot.take_if(|client| client.id == id);
        }
        self.ending.retain(|client| client.id != id);
    }

    /// The client of this id.
    #[inline]
    pub(crate) fn get(&self, id: ClientId) -> Option<&Client> {
        let there = self.slots.get(id.slot as usize).and_then(Option::as_ref);
        there
            .filter(|client| client.id == id)
            .or_else(|| self.ending.iter().find(|client| client.id == id))
    }

    /// As [`Self::get`], to change it.
    #[inline]
    pub(crate) fn get_mut(&mut self, id: ClientId) -> Option<&mut Client> {
        let there = self.slots.get_mut(id.slot as usize).and_then(Option::as_mut);
        there
            .filter(|client| client.id == id)
            .or_else(|| self.ending.iter_mut().find(|client| client.id == id))
    }

    /// An open client ends: nothing is delivered to it any more, its slot is free, and its locks are
    /// ended by and by. False: there is none of this id with an open handle.
    pub(crate) fn retire(&mut self, id: ClientId, answer: bool) -> bool {
        let open = |client: &mut Client| client.id == id && client.phase == Phase::Open;
        let slot = self.slots.get_mut(id.slot as usize);
        let Some(mut client) = slot.and_then(|slot| slot.take_if(open)) else { return false };
        (client.muted, client.phase) = (true, Phase::Ending { answer });
        self.ending.push(client);
        true
    }

    /// The client that ended first of those whose locks have not, in this lockspace or in any.
    pub(crate) fn first_ending(&self, space: Option<LockspaceId>) -> Option<ClientId> {
        let of = |client: &&Client| space.is_none_or(|space| client.space == space);
        self.ending.iter().find(of).map(|client| client.id)
    }

    /// All clients of a lockspace.
    pub(crate) fn of_space(&self, space: LockspaceId) -> Vec<ClientId> {
        let of = |client: &&Client| client.space == space;
        let all = self.slots.iter().flatten().chain(&self.ending);
        all.filter(of).map(|client| client.id).collect()
    }

    /// Its list of locks.
    pub(crate) fn locks_of(&mut self, id: ClientId) -> Option<&mut Queue> {
        self.get_mut(id).map(|client| &mut client.locks)
    }

    /// Counts a lock in (1) or out (-1).
    pub(crate) fn count(&mut self, id: ClientId, change: i32) {
        if let Some(client) = self.get_mut(id) {
            client.lock_count = client.lock_count.saturating_add_signed(change);
        }
    }

    /// How many locks it owns.
    pub(crate) fn owned(&self, id: ClientId) -> u32 {
        self.get(id).map_or(0, |client| client.lock_count)
    }

    /// Its process id.
    pub(crate) fn pid(&self, id: ClientId) -> u32 {
        self.get(id).map_or(0, |client| client.pid)
    }

    /// Whether callbacks still reach it.
    pub(crate) fn hears(&self, id: ClientId) -> bool {
        self.get(id).is_some_and(|client| !client.muted)
    }

    /// Stops, or starts again, its callbacks.
    pub(crate) fn mute(&mut self, id: ClientId, muted: bool) {
        if let Some(client) = self.get_mut(id) {
            client.muted = muted;
        }
    }
}
