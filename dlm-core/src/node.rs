//! The state machine's front: one dispatcher over inputs.

use std::collections::BTreeMap;
use std::ops::Bound;

use crate::clients::{Clients, Phase};
use crate::cluster::Cluster;
use crate::lifecycle::Space;
use crate::lockspace::{Context, LockTable};
use crate::seeded::cluster_fault;
use crate::timer::{Timer, Timers};
use crate::{
    Audit, ClientId, DumpPage, Errno, Input, Instant, Layout, LockFlags, LockId, LockspaceId,
    LockspaceInfo, Marks, Member, Message, NodeCounters, NodeId, Outbox, Output, Reason, Request,
    ResourceInfo, Whereabouts,
};

/// Ceilings of one node; the first two are refused with ENOMEM when reached.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Lockspaces.
    pub lockspaces: u32,
    /// Locks owned by one client.
    pub locks_per_client: u32,
    /// Locks of a client that ended which are ended in one step; the others of this node wait for it.
    pub locks_ended_at_once: u32,
}

/// Whether a call is about what clients leave behind, so that those that ended must have ended whole.
fn needs_all_ended(request: &Request<'_>) -> bool {
    match request {
        Request::Lock(lock) => lock.call.flags.has(LockFlags::ORPHAN),
        Request::Purge { .. } => true,
        _ => false,
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self { lockspaces: 1024, locks_per_client: 4_000_000, locks_ended_at_once: 128 }
    }
}

/// A node of the lock manager.
#[derive(Clone, Debug)]
pub struct Node {
    member: Member,
    /// Joins made; the next one's number.
    pub(crate) joins: u64,
    pub(crate) limits: Limits,
    pub(crate) spaces: Vec<Option<Box<Space>>>,
    pub(crate) by_name: BTreeMap<Vec<u8>, LockspaceId>,
    pub(crate) clients: Clients,
    pub(crate) timers: Timers,
    counters: NodeCounters,
    now: Instant,
    /// Lockspaces that are laid out in a special way.
    pub(crate) layouts: BTreeMap<Vec<u8>, Layout>,
    /// When the lease ends.
    lease_until: Instant,
    /// Without a lease since the last step.
    pub(crate) frozen: bool,
}

impl Node {
    /// A node without lockspaces.
    pub fn new(member: Member) -> Self {
        Self {
            member,
            joins: 0,
            limits: Limits::default(),
            spaces: Vec::new(),
            by_name: BTreeMap::new(),
            clients: Clients::default(),
            timers: Timers::default(),
            counters: NodeCounters::default(),
            now: Instant(0),
            layouts: BTreeMap::new(),
            lease_until: Instant(u64::MAX),
            frozen: false,
        }
    }

    /// Replaces the ceilings.
    pub fn set_limits(&mut self, limits: Limits) {
        self.limits = limits;
    }

    /// How a lockspace of this name is laid out from its next creation on; the same on every node.
    pub fn set_layout(&mut self, name: &[u8], layout: Layout) {
        self.layouts.insert(name.to_vec(), layout);
    }

    /// Who this node is: its life. In a lockspace it is a stay of it ([`Output::Join`]).
    pub fn member(&self) -> Member {
        self.member
    }

    /// Feeds one input at `now` and appends what must be done, in the order in which it must be done.
    /// A `now` earlier than the last one counts as the last one.
    pub fn step(&mut self, now: Instant, input: Input<'_>, out: &mut Outbox) {
        self.now = self.now.max(now);
        self.counters.steps += 1;
        if let Input::LeaseUntil(until) = input {
            self.lease_until = until;
        }
        self.test_lease(out);
        match input {
            Input::Client(client, request) => self.on_request(client, &request, out),
            Input::ClientGone(client) => self.end_handle(client, false, out),
            Input::View(space, view) => self.install_view(space, view, out),
            Input::PurgeOrphans(space, pid) => {
                self.end_all(space, out);
                self.with_table(space, out, |table, cx| table.purge_orphans(cx, pid));
            }
            Input::Safe(member) => self.on_safe(member, out),
            Input::Peer(from, message) => self.on_peer(from, message, out),
            Input::Reset(space, reason) => self.reset(space, reason, out),
            Input::LeaseUntil(_) => {}
            Input::Tick => self.on_tick(out),
        }
    }

    /// Whether this node is without the lease it needs at this moment: it grants, completes and
    /// delivers nothing (recovery.md R20).
    pub fn is_frozen(&self, now: Instant) -> bool {
        now >= self.lease_until && !cluster_fault("grants-without-lease")
    }

    /// When the lease ends; `None`: no lease is needed.
    pub fn lease_until(&self) -> Option<Instant> {
        (self.lease_until.0 != u64::MAX).then_some(self.lease_until)
    }

    /// The lease is tested at the top of every step. What was owed meanwhile is made up for when it
    /// is back.
    fn test_lease(&mut self, out: &mut Outbox) {
        let frozen = self.is_frozen(self.now);
        if frozen == self.frozen {
            return;
        }
        self.frozen = frozen;
        for index in 0..self.spaces.len() {
            let id = LockspaceId(index as u32);
            self.with_table(id, out, |table, cx| table.set_frozen(cx, frozen));
            self.finish_leaving(id, out);
        }
    }

    /// When [`Input::Tick`] is next needed, and why.
    pub fn deadline(&self) -> Option<(Instant, Reason)> {
        let clusters = || self.spaces.iter().flatten().map(|space| &space.table.cluster);
        if clusters().any(|cluster| !cluster.inbox.is_empty()) {
            return Some((self.now, Reason::Heard));
        }
        if self.clients.first_ending(None).is_some() || clusters().any(Cluster::has_work) {
            return Some((self.now, Reason::Work));
        }
        self.timers.next().filter(|_| !self.frozen)
    }

    /// Messages about many names that came and wait for their turn ([`Reason::Heard`]): a driver whose
    /// node is far behind slows the others down.
    pub fn unheard(&self) -> usize {
        self.spaces.iter().flatten().map(|space| space.table.cluster.inbox.len()).sum()
    }

    /// The lockspace of this name, if it exists here (also while joining or leaving).
    pub fn find_lockspace(&self, name: &[u8]) -> Option<LockspaceId> {
        self.by_name.get(name).copied()
    }

    /// A lockspace's facts.
    pub fn lockspace(&self, id: LockspaceId) -> Option<LockspaceInfo> {
        self.space(id).map(crate::inspect::lockspace)
    }

    /// All lockspaces, by name.
    pub fn lockspaces(&self) -> Vec<LockspaceInfo> {
        self.by_name.values().filter_map(|id| self.lockspace(*id)).collect()
    }

    /// Up to `most` lockspaces whose name follows `name`, by name.
    pub fn lockspaces_after(&self, name: &[u8], most: usize) -> Vec<LockspaceInfo> {
        let after = (Bound::Excluded(name), Bound::Unbounded);
        let ids = self.by_name.range::<[u8], _>(after).map(|(_, id)| *id);
        ids.take(most).filter_map(|id| self.lockspace(id)).collect()
    }

    /// A part of a lockspace's table: resources from position `from` (0 at first, then
    /// [`DumpPage::next`]) until `locks_max` locks are collected, at least one resource. A lock that
    /// is held all the time appears exactly once over all pages.
    pub fn dump(&self, id: LockspaceId, from: u64, locks_max: usize) -> DumpPage {
        self.space(id)
            .map(|space| crate::inspect::page(&space.table, from, locks_max))
            .unwrap_or_default()
    }

    /// What this node's directory knows of names that other nodes master: name and master, in the
    /// order of names. For tests and tools that compare nodes; all of it at once.
    pub fn directory(&self, id: LockspaceId) -> Vec<(Vec<u8>, NodeId)> {
        self.space(id).map(|space| crate::inspect::directory(&space.table)).unwrap_or_default()
    }

    /// One resource by name, if somebody uses it.
    pub fn resource(&self, id: LockspaceId, name: &[u8]) -> Option<ResourceInfo> {
        let table = &self.space(id)?.table;
        let index = table.find_resource(name)?;
        let resource = &table.resources[index];
        (!resource.is_unused()).then(|| crate::inspect::resource(table, resource))
    }

    /// Who has to be asked about a name; `None`: there is no such lockspace.
    pub fn whereabouts(&self, id: LockspaceId, name: &[u8]) -> Option<Whereabouts> {
        self.space(id).map(|space| crate::inspect::whereabouts(&space.table, name))
    }

    /// When the steps of a lockspace's installed view were over.
    pub fn marks(&self, id: LockspaceId) -> Option<&Marks> {
        self.space(id).map(|space| &space.table.cluster.marks)
    }

    /// Counts since the start.
    pub fn counters(&self) -> NodeCounters {
        NodeCounters { timers: self.timers.limits() as u64, ..self.counters }
    }

    /// The books of a lockspace: what it masters, what its directory says, what is under way. For
    /// tests: it walks everything.
    pub fn audit(&self, id: LockspaceId) -> Audit {
        self.space(id).map(|space| crate::audit::audit(&space.table)).unwrap_or_default()
    }

    /// Checks every invariant of every lockspace; panics with what is broken. For tests: it walks
    /// everything.
    pub fn check(&self) {
        for space in self.spaces.iter().flatten() {
            space.table.check();
        }
    }

    fn on_request(&mut self, client: ClientId, request: &Request<'_>, out: &mut Outbox) {
        if let Request::Open(open) = request {
            return self.open(client, open, out);
        }
        let space = match self.clients.get(client) {
            Some(record) if record.phase == Phase::Open => record.space,
            _ => return self.reply(client, Err(Errno::EBADF), out),
        };
        match request {
            Request::Close => self.end_handle(client, true, out),
            Request::Release { force } => self.release(client, *force, out),
            _ => self.on_call(client, space, request, out),
        }
    }

    /// A call on the lock table: the answer goes out first, then what the call does.
    fn on_call(
        &mut self,
        client: ClientId,
        space: LockspaceId,
        request: &Request<'_>,
        out: &mut Outbox,
    ) {
        if self.frozen {
            return self.reply(client, Err(Errno::EUNATCH), out);
        }
        if needs_all_ended(request) {
            self.end_all(space, out);
        }
        let locks_max = self.limits.locks_per_client;
        let node = self.member.node;
        let refused = self.with_table(space, out, |table, cx| {
            let accepted = match request {
                Request::Lock(call) => table.call_lock(cx, client, call, locks_max),
                Request::Convert(call) => table.call_convert(client, call),
                Request::Unlock(call) => table.call_unlock(client, call),
                Request::DeadlockCancel { lock, flags } => {
                    table.call_deadlock_cancel(client, *lock, *flags)
                }
                Request::Purge { node: of, pid } => table
                    .purge(cx, client, node, *of, *pid)
                    .map(|()| (LockId(0), crate::calls::Pending::Nothing)),
                Request::Open(_) | Request::Close | Request::Release { .. } => Err(Errno::EINVAL),
            };
            let result = accepted.map(|(id, pending)| {
                cx.out.push(Output::Reply { client, result: Ok(id) });
                table.perform(cx, pending);
            });
            result.err()
        });
        if let Some(errno) = refused.flatten() {
            self.reply(client, Err(errno), out);
        }
    }

    fn on_tick(&mut self, out: &mut Outbox) {
        // A time limit that ends now is reported when the lease is back.
        while let Some((space, timer)) =
            (!self.frozen).then(|| self.timers.take_due(self.now)).flatten()
        {
            self.with_table(space, out, |table, cx| match timer {
                Timer::Limit(lock) => table.limit_over(cx, lock),
                Timer::Idle(resource) => table.idle_over(cx, resource),
            });
        }
        self.end_more(out);
        for index in 0..self.spaces.len() {
            self.with_table(LockspaceId(index as u32), out, |table, cx| table.work(cx));
            self.finish_leaving(LockspaceId(index as u32), out);
        }
    }

    fn on_safe(&mut self, member: Member, out: &mut Outbox) {
        for index in 0..self.spaces.len() {
            self.with_table(LockspaceId(index as u32), out, |table, cx| table.on_safe(cx, member));
        }
    }

    fn on_peer(&mut self, from: NodeId, message: Message, out: &mut Outbox) {
        let of = |space: &&Space| {
            let cluster = &space.table.cluster;
            cluster.global == message.space && cluster.me.incarnation == message.to
        };
        let from = Member { node: from, incarnation: message.from };
        let Some(id) =
            self.spaces.iter().flatten().map(|space| &**space).find(of).map(|space| space.id)
        else {
            return;
        };
        self.with_table(id, out, |table, cx| table.on_message(cx, from, message));
        self.finish_leaving(id, out);
    }

    pub(crate) fn reply(
        &mut self,
        client: ClientId,
        result: Result<LockId, Errno>,
        out: &mut Outbox,
    ) {
        self.counters.refusals += u64::from(result.is_err());
        out.push(Output::Reply { client, result });
    }

    pub(crate) fn space(&self, id: LockspaceId) -> Option<&Space> {
        self.spaces.get(id.0 as usize)?.as_deref()
    }

    pub(crate) fn space_mut(&mut self, id: LockspaceId) -> Option<&mut Space> {
        self.spaces.get_mut(id.0 as usize)?.as_deref_mut()
    }

    /// Runs something on a lockspace's table with all that a step carries along.
    pub(crate) fn with_table<R>(
        &mut self,
        id: LockspaceId,
        out: &mut Outbox,
        run: impl FnOnce(&mut LockTable, &mut Context<'_>) -> R,
    ) -> Option<R> {
        let space = self.spaces.get_mut(id.0 as usize)?.as_deref_mut()?;
        let mut cx = Context {
            now: self.now,
            space: id,
            out,
            counters: &mut self.counters,
            timers: &mut self.timers,
            clients: &mut self.clients,
            answer: crate::traffic::Answer::None,
        };
        let result = run(&mut space.table, &mut cx);
        space.table.settle_loopback(&mut cx);
        space.table.cluster.mark(self.now);
        Some(result)
    }
}
