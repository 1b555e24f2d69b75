//! Beginnings and ends: of nodes, of clients, of stays in a lockspace.

use dlm_core::{
    Call, ClientId, Input, Layout, Limits, LockCall, LockFlags, LockId, LossReason, Member, Mode,
    Node, NodeId, Output, Request,
};

use crate::client::{Client, Habit, Held};
use crate::oracle::{Holder, Key};
use crate::world::{Event, Phase, World, name_of};

/// A client whose daemon is gone; it believes what it believed until it looks.
#[derive(Debug)]
pub(crate) struct Ghost {
    life: Member,
    client: Client,
    /// Its daemon's end is what ends its locks; what it could have written is lost with them.
    crashed: bool,
}

/// A lock that outlived its owner.
#[derive(Clone, Debug)]
pub(crate) struct Orphan {
    pub(crate) space: usize,
    name: usize,
    id: LockId,
    holder: Holder,
    pid: u32,
    /// Its mode, if that is certain.
    mode: Option<Mode>,
}

impl Orphan {
    fn key(&self) -> Key {
        (self.space, self.name)
    }
}

/// The name of a lockspace.
pub(crate) fn space_name(space: usize) -> String {
    format!("sim{space}")
}

impl World {
    /// A new life of a node: its daemon starts and its clients create their lockspaces.
    pub(crate) fn start(&mut self, node: usize) -> Result<(), String> {
        if self.hosts[node].alive {
            return Ok(());
        }
        let old = self.hosts[node].life;
        if old.incarnation != 0 {
            self.notice(old)?; // whoever sees the new life knows that the old one is over
        }
        self.begin_life(node)
    }

    fn begin_life(&mut self, node: usize) -> Result<(), String> {
        self.lives += 1;
        let life = Member::of_start(self.hosts[node].life.node, self.lives);
        let host = &mut self.hosts[node];
        for event in core::mem::take(&mut host.backlog) {
            self.at(self.now, event); // to be dropped where it names the old life
        }
        let host = &mut self.hosts[node];
        host.begin(life);
        host.node = Node::new(life);
        self.lay_out(node);
        self.forget_sessions(node);
        if let Some(lease) = self.options.lease {
            self.renew_lease(node, lease)?;
            let life = life.incarnation;
            self.later(lease / 4, Event::Renew { node, life });
        }
        for slot in 0..self.options.clients {
            let client = self.new_client(node, slot, 1);
            self.hosts[node].clients.push(client);
            self.create(node, slot)?;
            self.later(
                self.options.pace,
                Event::Act { node, life: life.incarnation, client: slot },
            );
        }
        Ok(())
    }

    /// What the configuration says; the same on all nodes.
    fn lay_out(&mut self, node: usize) {
        let locks_ended_at_once = self.options.ended_at_once;
        let limits = Limits { locks_ended_at_once, ..Limits::default() };
        self.hosts[node].node.set_limits(limits);
        let weights = 1..=self.options.nodes as u32;
        let masters = match self.options.weighted {
            true => weights.map(|node| (NodeId(node), node)).collect(),
            false => Vec::new(),
        };
        let layout = Layout { nodir: self.options.nodir, masters };
        for space in 0..self.options.spaces {
            let name = space_name(space);
            self.hosts[node].node.set_layout(name.as_bytes(), layout.clone());
        }
    }

    fn new_client(&mut self, node: usize, slot: usize, generation: u32) -> Client {
        self.client_lives += 1;
        let id = ClientId::new(slot as u32, generation);
        let space = slot % self.options.spaces;
        let pid = self.client_lives as u32 + 1000;
        let mut client = Client::new(id, self.client_lives, space, pid);
        if self.options.trace {
            println!("          node {} {id:?} is client {}", node + 1, client.life);
        }
        let (percent, slowest) = self.options.slow;
        client.slow = if self.rng.chance(percent) { slowest } else { 0 };
        client.polite = self.rng.chance(self.options.polite);
        client.habit = match () {
            () if slot / self.options.spaces == 0 && node < self.options.anchors => Habit::Anchor,
            () if self.options.writers && self.rng.chance(80) => Habit::Writer,
            () => Habit::Any,
        };
        client
    }

    fn create(&mut self, node: usize, slot: usize) -> Result<(), String> {
        let client = &self.hosts[node].clients[slot];
        let (id, pid, name) = (client.id, client.pid, space_name(client.space));
        self.step(node, Input::Client(id, Request::create(&name, pid))).map(drop)
    }

    /// The end of a life: nothing is told to anybody. Its clients may live a little longer.
    pub(crate) fn kill(&mut self, node: usize) {
        let host = &mut self.hosts[node];
        let (life, excluded) = (host.life, host.excluded);
        host.alive = false;
        host.paused = false;
        let clients = core::mem::take(&mut host.clients);
        let orphans = core::mem::take(&mut host.orphans);
        host.stays.iter_mut().for_each(|stay| *stay = None);
        for event in core::mem::take(&mut host.backlog) {
            self.at(self.now, event); // to a dead node: whoever counts it does
        }
        if self.rng.chance(60) {
            self.mute(life);
        }
        self.oracle.values.node_lost();
        for orphan in &orphans {
            self.oracle.gone(orphan.key(), orphan.holder);
        }
        let outlives = self.options.lease.is_none() && self.rng.chance(30);
        for client in clients {
            self.haunt(life, client, !excluded, outlives);
        }
        let notice = self.options.notice;
        self.later(notice, Event::Notice { life, sure: true });
        self.check_over(life);
        self.later(2 * self.options.period, Event::Start { node });
    }

    /// A client without a daemon.
    fn haunt(&mut self, life: Member, client: Client, crashed: bool, outlives: bool) {
        self.client_lives += 1;
        let ghost = self.client_lives;
        let slow = if outlives { client.slow + self.options.pace } else { 0 };
        self.ghosts.insert(ghost, Ghost { life, client, crashed });
        match slow {
            0 => self.ghost_gone(ghost),
            slow => self.later(slow, Event::Gone { ghost }),
        }
    }

    /// A client has heard that its lockspace is lost, or died with it.
    pub(crate) fn ghost_gone(&mut self, ghost: u64) {
        let Some(Ghost { life, client, crashed }) = self.ghosts.remove(&ghost) else { return };
        let lost = |held: &Held| crashed && held.flags.has(LockFlags::VALBLK);
        client.forget(&mut self.oracle, self.now, lost);
        self.check_over(life);
    }

    /// Whether nothing of a life is left: then it will be said to be safe.
    fn check_over(&mut self, life: Member) {
        let host = &self.hosts[life.node.0 as usize - 1];
        let lives = host.life == life && host.alive;
        if !lives && !self.ghosts.values().any(|ghost| ghost.life == life) {
            self.later(self.options.safe_delay + 1, Event::BecomeSafe { life });
        }
    }

    /// The last moment at which a client without a lease may act.
    pub(crate) fn end_ghosts(&mut self, life: Member) {
        let of_life = self.ghosts.iter().filter(|(_, ghost)| ghost.life == life);
        for ghost in of_life.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.ghost_gone(ghost);
        }
    }

    /// A node hears that the cluster went on without it: everything is lost, a new life begins.
    pub(crate) fn exclude_host(&mut self, node: usize) -> Result<(), String> {
        let life = self.hosts[node].life;
        let open: Vec<_> = self.hosts[node].node.lockspaces().iter().map(|s| s.id).collect();
        let mut told = Vec::new();
        for id in open {
            for output in self.step(node, Input::Reset(id, LossReason::Excluded))? {
                if let Output::Lost { client, .. } = output {
                    told.push(client);
                }
            }
        }
        let host = &mut self.hosts[node];
        let clients = core::mem::take(&mut host.clients);
        let orphans = core::mem::take(&mut host.orphans);
        for orphan in &orphans {
            self.oracle.gone(orphan.key(), orphan.holder);
        }
        for client in clients {
            if client.open && !told.contains(&client.id) {
                return Err(format!("loss: nobody told {client:?} that its lockspace is lost"));
            }
            let outlives = !client.locks.is_empty();
            self.haunt(life, client, false, outlives);
        }
        self.begin_life(node)?;
        self.check_over(life);
        Ok(())
    }

    /// The end of a client's process, and its next life.
    pub(crate) fn restart_client(&mut self, node: usize, slot: usize) -> Result<(), String> {
        let old = self.hosts[node].clients[slot].clone();
        self.bury(node, &old);
        let fresh = self.new_client(node, slot, old.id.generation + 1);
        self.hosts[node].clients[slot] = fresh;
        self.step(node, Input::ClientGone(old.id))?;
        self.create(node, slot)
    }

    /// A client is dead, or its handle closed: what it held is gone, or nobody's.
    fn bury(&mut self, node: usize, client: &Client) {
        let excluded = self.hosts[node].excluded;
        let persists = |held: &Held| {
            held.flags.has(LockFlags::PERSISTENT) && held.granted.is_some() && !held.unlocking
        };
        let (kept, lost): (Vec<_>, Vec<_>) = client.locks.iter().cloned().partition(persists);
        let dying = Client { locks: lost, ..client.clone() };
        dying.forget(&mut self.oracle, self.now, |_| !excluded);
        for held in kept {
            self.oracle.values.moves(client.name(&held), client.holder(&held));
            let mode = held.granted.filter(|_| held.rests() && client.inbox.is_empty());
            self.hosts[node].orphans.push(Orphan {
                space: client.space,
                name: held.name,
                id: held.id,
                holder: client.holder(&held),
                pid: client.pid,
                mode,
            });
        }
    }

    /// A client takes an orphan over, or has it removed.
    pub(crate) fn take_orphan(&mut self, node: usize, client: usize) -> Result<(), String> {
        let space = self.hosts[node].clients[client].space;
        let of_space = self.hosts[node].orphans.iter().filter(|orphan| orphan.space == space);
        let Some(orphan) = of_space.cloned().next_back() else { return Ok(()) };
        if self.rng.chance(30) {
            return self.purge_of(node, client, orphan.pid);
        }
        let mode = orphan.mode.unwrap_or(*self.rng.pick(&Mode::ALL));
        let state = &mut self.hosts[node].clients[client];
        state.next += 1;
        let (id, user) = (state.id, state.next);
        let flags = LockFlags::ORPHAN.with(LockFlags::PERSISTENT);
        let call = Call { mode: mode as u8, flags, user, wants_blocking: true, ..Call::default() };
        let bytes = name_of(orphan.name);
        let request = Request::Lock(LockCall { call, name: &bytes });
        let Ok(lock) = self.call(node, id, request)? else { return Ok(()) };
        let now = self.now;
        let mut held = Held::new(user, orphan.name, mode, flags, now);
        (held.id, held.granted, held.pending) = (lock, Some(mode), None);
        held.told = u8::MAX; // its owner was told, or nobody
        held.buffer = None;
        let orphans = &mut self.hosts[node].orphans;
        if let Some(place) = orphans.iter().position(|o| o.id == lock && o.space == space) {
            let taken = orphans.remove(place);
            self.oracle.gone(taken.key(), taken.holder);
        }
        let state = &mut self.hosts[node].clients[client];
        let (name, holder) = (state.name(&held), state.holder(&held));
        state.locks.push(held);
        self.oracle.believes(name, holder, Some(mode))
    }

    /// Removes all orphans of a client's lockspace here.
    pub(crate) fn purge(&mut self, node: usize, client: usize) -> Result<(), String> {
        let space = self.hosts[node].clients[client].space;
        let stay = self.hosts[node].stays[space].as_ref();
        let orphans = stay
            .and_then(|stay| self.hosts[node].node.lockspace(stay.id))
            .is_some_and(|info| info.orphans > 0);
        if orphans { self.purge_of(node, client, 0) } else { Ok(()) }
    }

    fn purge_of(&mut self, node: usize, client: usize, pid: u32) -> Result<(), String> {
        let (id, space) = {
            let state = &self.hosts[node].clients[client];
            (state.id, state.space)
        };
        self.drop_orphans(node, |orphan| orphan.space == space && (pid == 0 || orphan.pid == pid));
        match self.call(node, id, Request::Purge { node: 0, pid })? {
            Ok(_) => Ok(()),
            Err(errno) => Err(format!("a purge answered {errno:?}")),
        }
    }

    pub(crate) fn orphan_gone(&mut self, orphan: &Orphan) {
        self.oracle.gone(orphan.key(), orphan.holder);
    }

    fn drop_orphans(&mut self, node: usize, which: impl Fn(&Orphan) -> bool) {
        for orphan in self.hosts[node].orphans.iter().filter(|orphan| which(orphan)) {
            self.oracle.gone(orphan.key(), orphan.holder);
        }
        self.hosts[node].orphans.retain(|orphan| !which(orphan));
    }

    /// A node leaves a lockspace: all its handles close, all creations are taken back. Its clients
    /// create it again later, some of them before it is gone.
    pub(crate) fn leave(&mut self, node: usize, space: usize) -> Result<(), String> {
        let of_space = |client: &&Client| client.space == space;
        let clients: Vec<Client> =
            self.hosts[node].clients.iter().filter(of_space).cloned().collect();
        let Some(stay) = self.hosts[node].stays[space].clone() else { return Ok(()) };
        if clients.is_empty() || clients.iter().any(|client| !client.open) {
            return Ok(());
        }
        for client in &clients {
            self.bury(node, client);
            let slot = client.id.slot as usize;
            let fresh = self.new_client(node, slot, client.id.generation + 1);
            self.hosts[node].clients[slot] = fresh;
            // Where its locks end in parts the answer comes later; the releases below wait for that.
            self.step(node, Input::Client(client.id, Request::Close))?;
        }
        // The creations of clients that died are still counted.
        let info = self.hosts[node].node.lockspace(stay.id);
        let count = info.map_or(0, |info| info.create_count);
        self.drop_orphans(node, |orphan| orphan.space == space);
        let name = space_name(space);
        for _ in 0..count {
            self.client_lives += 1;
            let slot = (self.options.clients + space) as u32;
            let id = ClientId::new(slot, self.client_lives as u32);
            self.call(node, id, Request::open(&name, 1))?.map_err(|e| format!("open: {e:?}"))?;
            self.step(node, Input::Client(id, Request::Release { force: true }))?;
        }
        let life = self.hosts[node].life.incarnation;
        for client in clients {
            let client = client.id.slot as usize;
            let pause = if self.phase == Phase::Rough { self.options.period } else { 1 };
            self.later(pause, Event::Reopen { node, life, client });
        }
        Ok(())
    }

    /// A client creates its lockspace again.
    pub(crate) fn reopen(&mut self, node: usize, client: usize) -> Result<(), String> {
        self.create(node, client)
    }
}
