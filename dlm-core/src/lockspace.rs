//! A lockspace's locks and resources on this node, and the storage moves that keep them in step.

use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};

use crate::away::{Kind, Role};
use crate::clients::Clients;
use crate::cluster::Cluster;
use crate::lock::{self, Chain, LOCKS_FREE_MIN, Lock, Owner, Queue};
use crate::name::Name;
use crate::resource::Resource;
use crate::seeded::cluster_fault;
use crate::slab::Slab;
use crate::table::{Table, hash_name};
use crate::timer::{Timer, Timers};
use crate::traffic::Answer;
use crate::{
    Call, ClientId, Instant, Layout, LockId, LockState, LockspaceId, Member, Mode, NodeCounters,
    Outbox, Output, SbFlags, Token, ViewId,
};

/// A name nobody uses is remembered this long if its value block was marked invalid (7.6): a new
/// first lock is still told.
const IDLE: core::time::Duration = core::time::Duration::from_secs(10);
/// Most such names of a lockspace.
const IDLE_NAMES_MAX: usize = 4096;
/// Most unused names of a lockspace, of whatever reason, beyond which no master of another is remembered.
const IDLE_REMOTE_MAX: usize = 65_536;
/// The last number of a view (recovery.md R19): what is above it belongs to the next view.
const LAST_OF_VIEW: u64 = (1 << 32) - 1;
/// Numbers of a view from which on the next one is asked for.
const HALF_OF_VIEW: u64 = 1 << 31;

/// What every step carries along.
pub(crate) struct Context<'a> {
    pub(crate) now: Instant,
    pub(crate) space: LockspaceId,
    pub(crate) out: &'a mut Outbox,
    pub(crate) counters: &'a mut NodeCounters,
    pub(crate) timers: &'a mut Timers,
    pub(crate) clients: &'a mut Clients,
    /// Whom the operation being run is answered to.
    pub(crate) answer: Answer,
}

/// The lock table of one lockspace.
#[derive(Clone, Debug)]
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
    /// This lockspace's part in the cluster.
    pub(crate) cluster: Cluster,
}

impl LockTable {
    /// An empty table of a member; `global` is the lockspace's number in messages.
    pub(crate) fn new(me: Member, global: u32, layout: Layout) -> Self {
        Self {
            locks: Slab::new(LOCKS_FREE_MIN),
            resources: Slab::new(0),
            names: Table::new(),
            orphans: Queue::default(),
            orphan_count: 0,
            idle: BTreeMap::new(),
            last_token: 0,
            asked_view: false,
            cluster: Cluster::new(me, global, layout),
        }
    }

    /// What only this module knows, for the digest.
    pub(crate) fn hash_rest(&self, state: &mut impl Hasher) {
        self.orphan_count.hash(state);
        self.idle.keys().for_each(|index| index.hash(state));
        self.last_token.hash(state);
        self.asked_view.hash(state);
    }

    /// The last number given.
    pub(crate) fn token(&self) -> u64 {
        self.last_token
    }

    /// Numbers go on above this one.
    pub(crate) fn saw_token(&mut self, token: Token) {
        if !cluster_fault("tokens-start-again") {
            self.last_token = self.last_token.max(token.0);
        }
    }

    /// A number for a new mastership, above all others known here (recovery.md R18). There has to be one
    /// ([`Self::lacks_numbers`]).
    pub(crate) fn next_term(&mut self) -> Token {
        debug_assert!(!self.is_spent(), "a mastership without a number");
        self.last_token += 1;
        Token(self.last_token)
    }

    /// Grants from now on are numbered from this view on.
    pub(crate) fn rebase(&mut self, view: ViewId) {
        self.last_token = self.last_token.max(u64::from(view.0) << 32);
        self.asked_view = false;
        self.cluster.owed.spent = false;
    }

    /// Whether this view's numbers are used up: nothing is granted until the next one (R19).
    #[inline]
    pub(crate) fn is_spent(&self) -> bool {
        self.last_token as u32 == u32::MAX
    }

    /// Whether fewer than this many numbers are left. Then the rest is given to nobody, and whoever
    /// asked owes what it wanted them for until the next view comes.
    #[inline]
    pub(crate) fn lacks_numbers(&mut self, cx: &mut Context<'_>, count: u64) -> bool {
        let lacks = LAST_OF_VIEW - (self.last_token & LAST_OF_VIEW) < count;
        if lacks {
            self.run_out(cx);
        }
        lacks
    }

    #[cold]
    fn run_out(&mut self, cx: &mut Context<'_>) {
        self.last_token |= LAST_OF_VIEW;
        self.cluster.owed.spent = true;
        self.ask_view(cx);
    }

    /// Asks for a view with a higher number, once in each view.
    fn ask_view(&mut self, cx: &mut Context<'_>) {
        if !core::mem::replace(&mut self.asked_view, true) {
            cx.out.push(Output::NeedView { lockspace: cx.space });
        }
    }

    /// Names that somebody uses.
    pub(crate) fn resources_used(&self) -> usize {
        self.resources.len() - self.idle.len()
    }

    /// The resource of a name, if it is in memory.
    pub(crate) fn find_resource(&self, name: &[u8]) -> Option<u32> {
        let hash = hash_name(name);
        self.names.candidates(&self.resources, hash).find(|index| {
            let resource = &self.resources[*index];
            resource.hash == hash && resource.name.as_bytes() == name
        })
    }

    /// The resource of a name, made if it is new.
    pub(crate) fn resource_of(&mut self, cx: &mut Context<'_>, name: &[u8]) -> Option<u32> {
        if let Some(index) = self.find_resource(name) {
            self.forget_idle(cx, index);
            return Some(index);
        }
        let index = self.new_resource(Name::new(name)?);
        self.place_name(cx, index);
        Some(index)
    }

    /// Makes the resource of a name that has none.
    pub(crate) fn new_resource(&mut self, name: Name) -> u32 {
        let hash = hash_name(name.as_bytes());
        let resource = Resource::new(name, hash);
        let index = self.resources.insert(|_, _| resource);
        self.names.insert(&mut self.resources, index);
        index
    }

    /// Forgets a resource without locks; at once, unless its mark must be remembered for a while.
    pub(crate) fn tidy_resource(&mut self, cx: &mut Context<'_>, index: u32) {
        let resource = &mut self.resources[index];
        let served = resource.role.is_none();
        if !served || !resource.is_unused() || resource.pinned || self.idle.contains_key(&index) {
            return;
        }
        resource.value = None;
        let marked = resource.invalid;
        let directory_here = self.cluster.alone() || self.directory_is_here(index);
        if directory_here && (!marked || self.idle.len() >= IDLE_NAMES_MAX) {
            return self.forget_resource(index);
        }
        self.remember(cx, index);
    }

    /// Remembers an unused name for a while.
    fn remember(&mut self, cx: &mut Context<'_>, index: u32) {
        let until = cx.now.after(IDLE);
        self.idle.insert(index, until);
        cx.timers.arm(until, cx.space, Timer::Idle(index));
    }

    /// This node has no lock any more on a name mastered elsewhere: who masters it is remembered for a
    /// while, so that whoever locks and unlocks it again and again asks the directory once. If that is
    /// not true any more, the other says so (recovery.md R10).
    pub(crate) fn tidy_remote(&mut self, cx: &mut Context<'_>, index: u32) {
        let role = self.resources[index].role.as_deref();
        let Some(Role { kind: Kind::Remote { master, .. }, .. }) = role else { return };
        if self.idle.len() >= IDLE_REMOTE_MAX || !self.cluster.is_member(*master) {
            self.resources[index].role = None;
            return self.forget_resource(index);
        }
        if !self.idle.contains_key(&index) {
            self.remember(cx, index);
        }
    }

    /// A name is not idle any more.
    pub(crate) fn forget_idle(&mut self, cx: &mut Context<'_>, index: u32) {
        if let Some(until) = self.idle.remove(&index) {
            cx.timers.disarm(until, cx.space, Timer::Idle(index));
        }
    }

    /// The time of an idle name is over.
    pub(crate) fn idle_over(&mut self, cx: &mut Context<'_>, index: u32) {
        // The timer may be of another name that was in this place.
        if self.idle.get(&index).is_none_or(|until| *until > cx.now) {
            return;
        }
        self.idle.remove(&index);
        if self.resources[index].role.is_some() {
            if self.resources[index].is_unused() {
                self.resources[index].role = None;
                self.forget_resource(index);
            }
            return;
        }
        if self.cluster.alone() || self.directory_is_here(index) {
            return self.forget_resource(index);
        }
        if !self.cluster.locks_due.is_empty() {
            // Not while names move (R8).
            return self.remember(cx, index);
        }
        self.set_role(index, Kind::Leaving);
        self.say_remove(cx, index);
    }

    fn directory_is_here(&self, index: u32) -> bool {
        self.slot_owner(self.resources[index].name.as_bytes()) == self.cluster.me
    }

    /// Takes a resource without locks and role out of memory.
    pub(crate) fn forget_resource(&mut self, index: u32) {
        self.idle.remove(&index);
        self.cluster.asking.remove(index);
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
        call: &Call,
    ) -> u32 {
        let pid = cx.clients.pid(client);
        self.new_record(cx, Owner::Client(client), resource, Some(mode), call, pid)
    }

    /// Makes a lock record of any owner, on no queue yet.
    pub(crate) fn new_record(
        &mut self,
        cx: &mut Context<'_>,
        owner: Owner,
        resource: u32,
        requested: Option<Mode>,
        call: &Call,
        pid: u32,
    ) -> u32 {
        let index = self.locks.insert(|index, generation| Lock {
            id: lock::lock_id(index, generation),
            resource,
            owner,
            state: LockState::Waiting,
            queued: false,
            granted: None,
            requested,
            told: Mode::NL,
            cast: None,
            last_blocking: None,
            sb_flags: SbFlags(0),
            wants_blocking: call.wants_blocking,
            deadlock_cancel: false,
            flags: call.flags,
            links: lock::Links::default(),
            siblings: lock::Links::default(),
            pid,
            user: call.user,
            since: cx.now.into(),
            token: Token(0),
            rare: None,
        });
        match owner {
            Owner::Client(client) => {
                if let Some(list) = cx.clients.locks_of(client) {
                    list.push_back(&mut self.locks, Chain::Owner, index);
                }
                cx.clients.count(client, 1);
            }
            Owner::Remote { peer, .. } => {
                let list = &mut self.cluster.peers[usize::from(peer)].locks;
                list.push_back(&mut self.locks, Chain::Owner, index);
            }
            Owner::Orphan | Owner::Nobody => {}
        }
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
            Owner::Remote { peer, .. } => {
                let list = &mut self.cluster.peers[usize::from(peer)].locks;
                list.remove(&mut self.locks, Chain::Owner, index);
            }
            Owner::Nobody => {}
        }
    }

    /// The lock of an id.
    pub(crate) fn find_lock(&self, id: LockId) -> Option<u32> {
        lock::find(&self.locks, id)
    }

    /// The number of the next grant (recovery.md R18). There has to be one: who grants asks before
    /// ([`Self::is_spent`], [`Self::lacks_numbers`]), so that it never carries into the view's half (R19).
    pub(crate) fn next_token(&mut self, cx: &mut Context<'_>) -> Token {
        debug_assert!(!self.is_spent(), "a grant without a number");
        let half_spent = self.last_token & LAST_OF_VIEW >= HALF_OF_VIEW;
        self.last_token += 1;
        if half_spent {
            self.ask_view(cx);
        }
        Token(self.last_token)
    }
}
