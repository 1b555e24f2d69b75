//! A lockspace's locks and resources on this node, and the storage moves that keep them in step.

use std::collections::BTreeMap;

use crate::clients::Clients;
use crate::lock::{self, Chain, LOCKS_FREE_MIN, Lock, Owner, Queue};
use crate::name::Name;
use crate::resource::Resource;
use crate::slab::{NIL, Slab};
use crate::table::{Table, hash_name};
use crate::timer::{Timer, Timers};
use crate::{
    ClientId, Instant, LockId, LockState, LockspaceId, Mode, NodeCounters, Outbox, Output, SbFlags,
    Token, ViewId,
};

/// A name nobody uses is remembered this long if its value block was marked invalid (7.6): a new
/// first lock is still told.
const IDLE: core::time::Duration = core::time::Duration::from_secs(10);
/// Most such names of a lockspace.
const IDLE_NAMES_MAX: usize = 4096;

/// What every step carries along.
pub(crate) struct Context<'a> {
    pub(crate) now: Instant,
    pub(crate) space: LockspaceId,
    pub(crate) out: &'a mut Outbox,
    pub(crate) counters: &'a mut NodeCounters,
    pub(crate) timers: &'a mut Timers,
    pub(crate) clients: &'a mut Clients,
}

/// The lock table of one lockspace.
#[derive(Debug)]
pub(crate) struct LockTable {
    pub(crate) locks: Slab<Lock>,
    pub(crate) resources: Slab<Resource>,
    names: Table,
    /// Locks whose owner died, oldest first (6.5).
    pub(crate) orphans: Queue,
    pub(crate) orphan_count: u64,
    /// Unused names kept for their mark, and until when.
    idle: BTreeMap<u32, Instant>,
    /// The last grant's number.
    last_token: u64,
    /// A new view was asked for, since this one's grant numbers are half spent.
    asked_view: bool,
}

impl LockTable {
    /// An empty table.
    pub(crate) fn new() -> Self {
        Self {
            locks: Slab::new(LOCKS_FREE_MIN),
            resources: Slab::new(0),
            names: Table::new(),
            orphans: Queue::default(),
            orphan_count: 0,
            idle: BTreeMap::new(),
            last_token: 0,
            asked_view: false,
        }
    }

    /// Grants from now on are numbered from this view on.
    pub(crate) fn rebase(&mut self, view: ViewId) {
        self.last_token = self.last_token.max(u64::from(view.0) << 32);
        self.asked_view = false;
    }

    /// Names that somebody uses.
    pub(crate) fn resources_used(&self) -> usize {
        self.resources.len() - self.idle.len()
    }

    /// The resource of a name, if it is in memory.
    pub(crate) fn find_resource(&self, name: &[u8]) -> Option<u32> {
        let mut at = self.names.chain(hash_name(name));
        while at != NIL {
            let resource = &self.resources[at];
            if resource.name.as_bytes() == name {
                return Some(at);
            }
            at = crate::table::Chained::next(&self.resources, at);
        }
        None
    }

    /// The resource of a name, made if it is new.
    pub(crate) fn resource_of(&mut self, cx: &mut Context<'_>, name: &[u8]) -> Option<u32> {
        if let Some(index) = self.find_resource(name) {
            if let Some(until) = self.idle.remove(&index) {
                cx.timers.disarm(until, cx.space, Timer::Idle(index));
            }
            return Some(index);
        }
        let resource = Resource::new(Name::new(name)?, hash_name(name));
        let index = self.resources.insert(|_, _| resource);
        self.names.insert(&mut self.resources, index);
        Some(index)
    }

    /// Forgets a resource without locks; at once, unless its mark must be remembered for a while.
    pub(crate) fn tidy_resource(&mut self, cx: &mut Context<'_>, index: u32) {
        let resource = &mut self.resources[index];
        if !resource.is_unused() {
            return;
        }
        resource.value = None;
        if !resource.invalid || self.idle.len() >= IDLE_NAMES_MAX {
            return self.forget_resource(index);
        }
        let until = cx.now.after(IDLE);
        self.idle.insert(index, until);
        cx.timers.arm(until, cx.space, Timer::Idle(index));
    }

    /// The time of an idle name is over.
    pub(crate) fn idle_over(&mut self, index: u32) {
        if self.idle.remove(&index).is_some() {
            self.forget_resource(index);
        }
    }

    fn forget_resource(&mut self, index: u32) {
        self.names.remove(&mut self.resources, index);
        self.resources.remove(index);
    }

    /// Makes a lock record that asks for `mode` and is on no queue yet.
    pub(crate) fn new_lock(
        &mut self,
        cx: &mut Context<'_>,
        client: ClientId,
        resource: u32,
        mode: Mode,
        call: &crate::Call,
    ) -> u32 {
        let pid = cx.clients.pid(client);
        let index = self.locks.insert(|index, generation| Lock {
            id: lock::lock_id(index, generation),
            resource,
            owner: Owner::Client(client),
            state: LockState::Waiting,
            queued: false,
            granted: None,
            requested: Some(mode),
            told: Mode::NL,
            cast: None,
            last_blocking: None,
            sb_flags: SbFlags(0),
            wants_blocking: call.wants_blocking,
            deadlock_cancel: false,
            flags: call.flags,
            links: lock::Links::default(),
            siblings: lock::Links::default(),
            value_seq: 0,
            pid,
            user: call.user,
            since: cx.now,
            token: Token(0),
            rare: None,
        });
        if let Some(list) = cx.clients.locks_of(client) {
            list.push_back(&mut self.locks, Chain::Owner, index);
        }
        cx.clients.count(client, 1);
        index
    }

    /// Removes a lock record that is on no queue.
    pub(crate) fn destroy_lock(&mut self, cx: &mut Context<'_>, index: u32) {
        self.leave_owner(cx, index);
        self.locks.remove(index);
    }

    /// Takes a lock out of its owner's list.
    pub(crate) fn leave_owner(&mut self, cx: &mut Context<'_>, index: u32) {
        match self.locks[index].owner {
            Owner::Client(client) => {
                if let Some(list) = cx.clients.locks_of(client) {
                    list.remove(&mut self.locks, Chain::Owner, index);
                }
                cx.clients.count(client, -1);
            }
            Owner::Orphan => {
                self.orphans.remove(&mut self.locks, Chain::Owner, index);
                self.orphan_count -= 1;
            }
        }
    }

    /// The lock of an id.
    pub(crate) fn find_lock(&self, id: LockId) -> Option<u32> {
        lock::find(&self.locks, id)
    }

    /// The number of the next grant (recovery.md R18, R19). It never carries into the view's half: a
    /// counter half spent asks for a new view long before.
    pub(crate) fn next_token(&mut self, cx: &mut Context<'_>) -> Token {
        const HALF: u64 = 1 << 31;
        const LOW: u64 = (1 << 32) - 1;
        let low = self.last_token & LOW;
        assert!(low < LOW, "grant numbers of this view are used up and no new view came");
        self.last_token += 1;
        if low >= HALF && !self.asked_view {
            self.asked_view = true;
            cx.out.push(Output::NeedView { lockspace: cx.space });
        }
        Token(self.last_token)
    }
}
