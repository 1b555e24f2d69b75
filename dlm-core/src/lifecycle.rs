//! Lockspaces: created, joined, counted, opened, released (semantics.md section 9).
//!
//! ```text
//!            create            View              Release of the last creation
//!   (none) ────────► Joining ────────► Running ────────────────────────► Leaving ──► (none)
//! ```
//!
//! A lockspace that leaves waits for the handles still open on it; they go on working. Whoever creates
//! the same name meanwhile waits for the end and then starts anew.

use crate::clients::{Client, Phase};
use crate::lock::Queue;
use crate::lockspace::LockTable;
use crate::seeded::bug;
use crate::{
    Access, ClientId, Create, Errno, LOCKSPACE_NAME_BYTES_MAX, LockId, LockspaceId, LossReason,
    Member, Node, Open, Outbox, Output, SpaceFlags, View,
};

/// A lockspace on this node.
#[derive(Clone, Hash, Debug)]
pub(crate) struct Space {
    pub(crate) id: LockspaceId,
    pub(crate) name: Vec<u8>,
    pub(crate) flags: SpaceFlags,
    pub(crate) access: Access,
    pub(crate) stage: Stage,
    /// Creations not yet taken back.
    pub(crate) create_count: u32,
    /// Open handles.
    pub(crate) handles: u32,
    pub(crate) view: Option<View>,
    pub(crate) table: LockTable,
}

/// Where a lockspace is in its life.
#[derive(Clone, Hash, Debug)]
pub(crate) enum Stage {
    /// Waits for its first view; with whoever created it meanwhile, in order.
    Joining(Vec<Waiter>),
    /// In use.
    Running,
    /// Removed as soon as no handle is open.
    Leaving {
        /// Whose release made it leave.
        releasers: Vec<ClientId>,
        /// Who wants to create it again, in order.
        creators: Vec<Waiter>,
    },
}

/// A client whose creation waits.
#[derive(Clone, Copy, Hash, Debug)]
pub(crate) struct Waiter {
    client: ClientId,
    create: Create,
}

impl Node {
    pub(crate) fn open(&mut self, client: ClientId, open: &Open<'_>, out: &mut Outbox) {
        let record = Client {
            id: client,
            space: LockspaceId(u32::MAX),
            pid: open.pid,
            phase: Phase::Opening,
            locks: Queue::default(),
            lock_count: 0,
            muted: false,
        };
        if !self.clients.add(record) {
            return self.reply(client, Err(Errno::EBUSY), out);
        }
        let refused = match open.create {
            Some(create) => self.create(Waiter { client, create }, open.name, out),
            None => self.open_existing(client, open.name, out),
        };
        if let Err(errno) = refused {
            self.clients.remove(client);
            self.reply(client, Err(errno), out);
        }
    }

    fn open_existing(
        &mut self,
        client: ClientId,
        name: &[u8],
        out: &mut Outbox,
    ) -> Result<(), Errno> {
        let id = self.find_lockspace(name).ok_or(Errno::ENOENT)?;
        let running = self.space(id).is_some_and(|space| matches!(space.stage, Stage::Running));
        if !running {
            return Err(Errno::ENOENT);
        }
        self.bind(client, id, out);
        Ok(())
    }

    fn create(&mut self, waiter: Waiter, name: &[u8], out: &mut Outbox) -> Result<(), Errno> {
        let Create { flags, access } = waiter.create;
        let length = 1..=LOCKSPACE_NAME_BYTES_MAX;
        if !length.contains(&name.len()) || flags.has(SpaceFlags::SOFTIRQ) {
            return Err(Errno::EINVAL);
        }
        let Some(id) = self.find_lockspace(name) else {
            let id = self.add_space(name, flags, access)?;
            if let Some(client) = self.clients.get_mut(waiter.client) {
                client.space = id;
            }
            let member = self.space(id).map_or(self.member(), |space| space.table.cluster.me);
            out.push(Output::Join { lockspace: id, name: name.to_vec(), flags, member });
            if let Some(Stage::Joining(waiters)) = self.space_mut(id).map(|space| &mut space.stage)
            {
                // The first creation is the one that the count of 1 stands for.
                let flags = flags.without(SpaceFlags::NEWEXCL);
                waiters.push(Waiter { create: Create { flags, access }, ..waiter });
            }
            return Ok(());
        };
        if let Some(client) = self.clients.get_mut(waiter.client) {
            client.space = id;
        }
        let space = self.space_mut(id).ok_or(Errno::ENOENT)?;
        match &mut space.stage {
            Stage::Joining(waiters) => waiters.push(waiter),
            Stage::Leaving { creators, .. } => creators.push(waiter),
            Stage::Running if flags.has(SpaceFlags::NEWEXCL) && !bug("newexcl-ignored") => {
                return Err(Errno::EEXIST);
            }
            Stage::Running => {
                space.create_count += 1;
                self.bind(waiter.client, id, out);
            }
        }
        Ok(())
    }

    fn add_space(
        &mut self,
        name: &[u8],
        flags: SpaceFlags,
        access: Access,
    ) -> Result<LockspaceId, Errno> {
        let full = self.by_name.len() >= self.limits.lockspaces as usize;
        if full || self.joins == crate::JOINS_PER_LIFE {
            return Err(Errno::ENOMEM);
        }
        let life = self.member();
        let member = Member { incarnation: life.incarnation + self.joins, ..life };
        self.joins += 1;
        let free = self.spaces.iter().position(Option::is_none).unwrap_or(self.spaces.len());
        if free == self.spaces.len() {
            self.spaces.push(None);
        }
        let id = LockspaceId(free as u32);
        let mut layout = self.layouts.get(name).cloned().unwrap_or_default();
        layout.nodir |= flags.has(SpaceFlags::NODIR);
        let nodir = if layout.nodir { SpaceFlags::NODIR } else { SpaceFlags(0) };
        let mut table = LockTable::new(member, crate::inspect::global_id(name), layout);
        table.cluster.owed.frozen = self.frozen;
        self.spaces[free] = Some(Box::new(Space {
            id,
            name: name.to_vec(),
            flags: flags.without(SpaceFlags::NEWEXCL).without(SpaceFlags::TIMEWARN).with(nodir),
            access,
            stage: Stage::Joining(Vec::new()),
            create_count: 0,
            handles: 0,
            view: None,
            table,
        }));
        self.by_name.insert(name.to_vec(), id);
        Ok(id)
    }

    /// Gives a client its open handle.
    fn bind(&mut self, client: ClientId, id: LockspaceId, out: &mut Outbox) {
        if let Some(record) = self.clients.get_mut(client) {
            record.space = id;
            record.phase = Phase::Open;
            if let Some(space) = self.space_mut(id) {
                space.handles += 1;
            }
        }
        self.reply(client, Ok(LockId(0)), out);
    }

    /// A view was installed. The first one ends the join.
    pub(crate) fn install_view(&mut self, id: LockspaceId, view: View, out: &mut Outbox) {
        let Some(space) = self.space_mut(id) else { return };
        if space.view.as_ref().is_some_and(|old| old.id >= view.id) {
            return; // views may be skipped, never reordered (recovery.md B2)
        }
        let first = space.view.replace(view.clone()).is_none();
        self.with_table(id, out, |table, cx| table.install(cx, view, first));
        let Some(space) = self.space_mut(id) else { return };
        let Stage::Joining(waiters) = &mut space.stage else {
            // The view may have brought the last thing that a leave waited for.
            return self.finish_leaving(id, out);
        };
        let waiters = core::mem::take(waiters);
        space.stage = Stage::Running;
        // The node is joined even if its first creator died meanwhile: a creation is only ever taken
        // back by a release.
        space.create_count = 1;
        let mut first = true;
        for waiter in waiters {
            let alive = self.clients.get(waiter.client).is_some();
            if core::mem::take(&mut first) {
                if alive {
                    self.bind(waiter.client, id, out);
                }
                continue;
            }
            let name = self.space(id).map(|space| space.name.clone()).unwrap_or_default();
            if alive {
                self.retry_create(waiter, &name, out);
            }
        }
    }

    fn retry_create(&mut self, waiter: Waiter, name: &[u8], out: &mut Outbox) {
        if let Err(errno) = self.create(waiter, name, out) {
            self.clients.remove(waiter.client);
            self.reply(waiter.client, Err(errno), out);
        }
    }

    /// Ends a handle: locks go or become orphans, nothing more is delivered (6.4). Where there are very
    /// many, the others of this node do not wait for it: a part goes now, and one in each
    /// [`crate::Reason::Work`]. `answer`: whoever closed it is told when all are gone.
    pub(crate) fn end_handle(&mut self, client: ClientId, answer: bool, out: &mut Outbox) {
        if self.clients.retire(client, answer) {
            return self.go_on_ending(client, self.limits.locks_ended_at_once, out);
        }
        let Some(record) = self.clients.get_mut(client) else { return };
        if let Phase::Ending { answer } = &mut record.phase {
            *answer = false;
            return;
        }
        let id = record.space;
        self.clients.remove(client);
        self.finish_leaving(id, out);
    }

    /// Ends locks of a client that ended.
    fn go_on_ending(&mut self, client: ClientId, most: u32, out: &mut Outbox) {
        let Some(&Client { space: id, phase, .. }) = self.clients.get(client) else { return };
        let ended =
            self.with_table(id, out, |table, cx| table.end_locks_of(cx, client, true, most));
        if ended == Some(false) {
            return;
        }
        if let Some(space) = self.space_mut(id) {
            space.handles -= 1;
        }
        self.clients.remove(client);
        self.finish_leaving(id, out);
        if phase == (Phase::Ending { answer: true }) {
            self.reply(client, Ok(LockId(0)), out);
        }
    }

    /// The next part of what clients left behind that ended.
    pub(crate) fn end_more(&mut self, out: &mut Outbox) {
        if let Some(client) = self.clients.first_ending(None) {
            self.go_on_ending(client, self.limits.locks_ended_at_once, out);
        }
    }

    /// All that clients of a lockspace left behind that ended: something depends on it.
    pub(crate) fn end_all(&mut self, id: LockspaceId, out: &mut Outbox) {
        while let Some(client) = self.clients.first_ending(Some(id)) {
            self.go_on_ending(client, u32::MAX, out);
        }
    }

    /// [`crate::Request::Release`]: ends the handle, then takes one creation back.
    pub(crate) fn release(&mut self, client: ClientId, force: bool, out: &mut Outbox) {
        let Some(record) = self.clients.get(client) else { return };
        let (id, pid) = (record.space, record.pid);
        self.end_handle(client, false, out);
        self.end_all(id, out);
        let Some(space) = self.space_mut(id) else {
            return self.reply(client, Err(Errno::ENOENT), out);
        };
        match &mut space.stage {
            Stage::Running if space.create_count > 1 => {
                space.create_count -= 1;
                self.reply(client, Ok(LockId(0)), out);
            }
            Stage::Running
                if !force && space.table.locks.len() > 0 && !bug("release-never-busy") =>
            {
                self.reply(client, Err(Errno::EBUSY), out);
            }
            Stage::Running => {
                space.create_count = 0;
                space.stage = Stage::Leaving { releasers: vec![client], creators: Vec::new() };
                self.clients.add(Client {
                    id: client,
                    space: id,
                    pid,
                    phase: Phase::Releasing,
                    locks: Queue::default(),
                    lock_count: 0,
                    muted: true,
                });
                self.finish_leaving(id, out);
            }
            _ => self.reply(client, Err(Errno::ENOENT), out),
        }
    }

    /// Removes a leaving lockspace once no handle is open, answers who waits for that, and starts
    /// anew for whoever created it meanwhile.
    pub(crate) fn finish_leaving(&mut self, id: LockspaceId, out: &mut Outbox) {
        let leaving = self.space(id).is_some_and(|space| {
            (space.handles == 0 || bug("release-ends-others"))
                && matches!(space.stage, Stage::Leaving { .. })
        });
        if !leaving {
            return;
        }
        // What other members master for this node must be given back first.
        self.with_table(id, out, |table, cx| table.purge_orphans(cx, 0));
        if self.space(id).is_some_and(|space| space.table.cluster.away_locks > 0) {
            return;
        }
        let Some(space) = self.spaces[id.0 as usize].take() else { return };
        self.by_name.remove(&space.name);
        self.timers.forget(id);
        let Stage::Leaving { releasers, creators } = space.stage else { return };
        out.push(Output::Leave { lockspace: id, name: space.name.clone() });
        for client in releasers {
            if self.clients.get(client).is_some() {
                self.clients.remove(client);
                self.reply(client, Ok(LockId(0)), out);
            }
        }
        for waiter in creators {
            if self.clients.get(waiter.client).is_some() {
                self.retry_create(waiter, &space.name, out);
            }
        }
    }

    /// Everything in a lockspace is lost (membership.md, Continuity): its clients are told.
    pub(crate) fn reset(&mut self, id: LockspaceId, reason: LossReason, out: &mut Outbox) {
        let Some(space) = self.spaces.get_mut(id.0 as usize).and_then(Option::take) else { return };
        self.by_name.remove(&space.name);
        self.timers.forget(id);
        for client in self.clients.of_space(id) {
            let phase = self.clients.get(client).map(|client| client.phase);
            self.clients.remove(client);
            match phase {
                Some(Phase::Open) => out.push(Output::Lost { client, reason }),
                None | Some(Phase::Ending { answer: false }) => {}
                Some(Phase::Ending { answer: true }) => self.reply(client, Ok(LockId(0)), out),
                Some(Phase::Opening | Phase::Releasing) => {
                    self.reply(client, Err(Errno::ENOTRECOVERABLE), out);
                }
            }
        }
        out.push(Output::Leave { lockspace: id, name: space.name });
    }
}
