//! A connection's life outside its rings: let in, asked what it wants, opened, ended.

use dlm_core::{Access, ClientId, Create, Errno, Input, LockId, Open, Request, SpaceFlags, View};
use dlm_ipc::DaemonSide;
use dlm_ipc::hello::{
    ClientMessage, DaemonMessage, HandleHello, Hello, MESSAGE_BYTES_MAX, Welcome,
};
use dlm_ipc::layout::{Geometry, LostReason};
use dlm_ipc::socket::{Connection, Peer as Credentials};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use super::log::shown;
use super::reactor::{End, Kind, Reactor, token};
use super::serve::handle_mut;
use crate::ipc::admit::new_access;
use crate::ipc::listen::Knock;
use crate::ipc::peer::{Handle, Opening, Peer, Stage};

/// Newcomers let in per turn.
const GUESTS_PER_TURN: usize = 64;
/// Newcomers that have not said what they want; at twice as many the oldest give way.
const GREETINGS_MAX: usize = 1024;
/// Control conversations; an operator's tool needs one.
const CONTROLS_MAX: u32 = 256;

impl Reactor {
    /// Lets newcomers in.
    pub(super) fn serve_door(&mut self) {
        if self.queues.door_stuck {
            return;
        }
        for _ in 0..GUESTS_PER_TURN {
            if !self.queues.door {
                return;
            }
            match self.door.knock() {
                Knock::Guest(connection) => self.let_in(connection),
                Knock::TurnedAway => self.counters.turned_away += 1,
                Knock::Nobody => self.queues.door = false,
                Knock::Stuck => {
                    self.queues.door = false;
                    self.queues.door_stuck = true;
                }
            }
        }
    }

    fn let_in(&mut self, connection: Connection) {
        let who = match connection.peer() {
            Ok(who) => who,
            Err(error) => return tracing::warn!("a client without credentials: {error}"),
        };
        let fd = connection.as_raw_fd();
        let process = watch(&connection, &who);
        let id = self.peers.insert(Peer { connection, who, process, stage: Stage::Greeting });
        if let Err(error) = self.register(fd, token(id, Kind::Socket)) {
            tracing::warn!("cannot watch a client: {error}");
            return drop(self.peers.remove(id));
        }
        self.queues.greetings.push_back((self.greeting_deadline(), id));
        self.queues.sockets.push_back(id);
        self.crowd_out();
    }

    /// Drops the oldest silent newcomer where there are too many, so that others still get in.
    fn crowd_out(&mut self) {
        if self.queues.greetings.len() < 2 * GREETINGS_MAX {
            return;
        }
        let mut silent = std::mem::take(&mut self.queues.greetings);
        silent.retain(|(_, id)| self.is_greeting(*id));
        while silent.len() > GREETINGS_MAX
            && let Some((_, id)) = silent.pop_front()
        {
            self.counters.turned_away += 1;
            self.remove_peer(id);
        }
        self.queues.greetings = silent;
    }

    /// Whether a connection has not yet said what it wants.
    pub(super) fn is_greeting(&self, id: ClientId) -> bool {
        self.peers.get(id).is_some_and(|peer| matches!(peer.stage, Stage::Greeting))
    }

    /// Takes one message from a connection's socket; comes back for more in the next turn.
    pub(super) fn serve_socket(&mut self, id: ClientId) {
        let Some(peer) = self.peers.get(id) else { return };
        if matches!(peer.stage, Stage::Control(_)) {
            return self.queues.controls.push_back(id);
        }
        let mut buffer = [0; MESSAGE_BYTES_MAX];
        match peer.connection.recv(&mut buffer) {
            Ok(Some(message)) => {
                self.queues.sockets.push_back(id);
                self.on_message(id, message);
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Ok(None) => self.doom(id, End::Gone),
            Err(error) => self.on_bad_message(id, &error),
        }
    }

    fn on_message(&mut self, id: ClientId, message: &[u8]) {
        let Some(peer) = self.peers.get(id) else { return };
        match &peer.stage {
            Stage::Greeting => self.on_hello(id, message),
            Stage::Handle(_) => match ClientMessage::decode(message) {
                Ok(message) => self.on_client_message(id, message),
                Err(bad) => self.on_bad_message(id, &bad),
            },
            Stage::Lost(_) => self.on_message_of_lost(id, message),
            Stage::Opening(_) | Stage::Closing => self.on_bad_message(id, &"it has to wait first"),
            Stage::Control(_) => {}
        }
    }

    fn on_bad_message(&mut self, id: ClientId, why: &dyn std::fmt::Display) {
        self.tell_fault(id, "ended", why);
        self.doom(id, End::Fault);
    }

    fn on_hello(&mut self, id: ClientId, message: &[u8]) {
        let errno = match Hello::decode(message) {
            Ok(Hello::Control) => return self.begin_control(id),
            Ok(Hello::Handle(hello)) => match self.begin_open(id, hello) {
                Ok(()) => return,
                Err(errno) => errno,
            },
            Err(bad) => {
                self.tell_fault(id, "refused", &bad);
                Errno(bad.errno())
            }
        };
        self.refuse_open(id, errno);
    }

    fn begin_control(&mut self, id: ClientId) {
        if self.counters.controls >= CONTROLS_MAX {
            return self.refuse_open(id, Errno::ENOMEM);
        }
        self.counters.controls += 1;
        let node = self.node.member().node.0;
        let Some(peer) = self.peers.get_mut(id) else { return };
        (peer.process, peer.stage) = (Ok(None), Stage::Control(Box::default()));
        self.send(id, &Welcome::without_pages(0, node).encode());
    }

    /// Judges the wish for a lockspace, makes the pages, and asks the core.
    fn begin_open(&mut self, id: ClientId, hello: HandleHello) -> Result<(), Errno> {
        let who = self.peers.get(id).ok_or(Errno::EBADF)?.who.clone();
        self.may_open(&who, &hello)?;
        if self.counters.handles as usize >= self.policy.clients_max {
            self.tell_fault(id, "refused", &"clients_max is reached");
            return Err(Errno::ENOMEM);
        }
        let node = self.node.member().node.0;
        let name = self.leftovers.rings();
        let side = DaemonSide::create_named(Geometry::DEFAULT, node, name).map_err(|error| {
            self.tell_fault(id, "refused", &format_args!("no pages ({error})"));
            Errno(error.raw_os_error().unwrap_or(libc::ENOMEM))
        })?;
        let process = self.peers.get_mut(id).ok_or(Errno::EBADF)?;
        let process = std::mem::replace(&mut process.process, Ok(None))?;
        let access = new_access(&who, hello.mode);
        let (name, flags) = (hello.name.clone(), SpaceFlags(hello.flags));
        let create = hello.create.then_some(Create { flags, access });
        let peer = self.peers.get_mut(id).ok_or(Errno::EBADF)?;
        peer.stage = Stage::Opening(Box::new(Opening { hello, side, process }));
        self.counters.handles += 1;
        let open = Open { name: &name, pid: who.pid, create };
        self.step(Input::Client(id, Request::Open(open)));
        Ok(())
    }

    fn may_open(&self, who: &Credentials, hello: &HandleHello) -> Result<(), Errno> {
        let existing = self.access_of(&hello.name);
        self.policy.rights.open(who, hello.create, existing).inspect_err(|errno| {
            let hint = match *errno {
                Errno::EPERM => "may not create lockspaces; see the keys create and create_group",
                Errno::EACCES => "is not admitted by the lockspace's owner, group and mode",
                _ => "asked for a lockspace that does not exist",
            };
            tracing::debug!(
                lockspace = shown(&hello.name),
                pid = who.pid,
                "user {} {hint}",
                who.uid
            );
        })
    }

    /// Owner, group and mode of a lockspace.
    pub(super) fn access_of(&self, name: &[u8]) -> Option<Access> {
        self.node.lockspace(self.node.find_lockspace(name)?).map(|info| info.access)
    }

    /// The core's answer to an opening or an end.
    pub(super) fn on_slow_reply(&mut self, id: ClientId, result: Result<LockId, Errno>) {
        let Some(peer) = self.peers.get_mut(id) else { return };
        match &peer.stage {
            Stage::Opening(_) => match result {
                // A handle that is frozen from its first moment on would be lost soon.
                Ok(_) if self.awaits_lease() => self.queues.opened.push(id),
                Ok(_) => self.finish_open(id),
                Err(errno) => {
                    self.counters.handles -= 1;
                    self.refuse_open(id, errno);
                }
            },
            Stage::Closing => {
                let errno = result.map_or_else(|errno| errno.0, |_| 0);
                self.counters.handles -= 1;
                self.send(id, &DaemonMessage::Done { errno }.encode());
                self.remove_peer(id);
            }
            _ => tracing::error!("the core answered a request that was not made"),
        }
    }

    pub(super) fn refuse_open(&mut self, id: ClientId, errno: Errno) {
        self.counters.refused(errno.0);
        let node = self.node.member().node.0;
        self.send(id, &Welcome::without_pages(errno.0, node).encode());
        self.remove_peer(id);
    }

    pub(super) fn finish_open(&mut self, id: ClientId) {
        let (until, notice) = self.page_lease();
        let Some(peer) = self.peers.get_mut(id) else { return };
        let Stage::Opening(opening) = std::mem::replace(&mut peer.stage, Stage::Closing) else {
            return;
        };
        let Opening { hello, side: (mut side, descriptors), process } = *opening;
        // Armed before the client can submit.
        side.submissions.prepare_sleep();
        side.page.set_lease_notice(notice);
        side.page.set_lease_until(until);
        let bell = side.submission_bell.as_raw_fd();
        let pidfd = process.as_ref().map(AsRawFd::as_raw_fd);
        let who = peer.who.clone();
        let Some(lockspace) = self.node.find_lockspace(&hello.name) else { return };
        let Some(info) = self.node.lockspace(lockspace) else { return };
        let handle = Handle::new(lockspace, program(who.pid), &hello.label, side, process);
        let Some(peer) = self.peers.get_mut(id) else { return };
        peer.stage = Stage::Handle(Box::new(handle));
        if !self.policy.rights.may_open(&who, info.access) {
            // The name was removed and created again by somebody else while this client waited.
            return self.take_back(id, Errno::EACCES, hello.create);
        }
        let watched = self.register(bell, token(id, Kind::Bell)).and_then(|()| match pidfd {
            Some(fd) => self.register(fd, token(id, Kind::Process)),
            None => Ok(()),
        });
        if let Err(error) = watched {
            tracing::warn!(pid = who.pid, "handle refused: cannot be watched ({error})");
            return self.take_back(id, Errno::ENOMEM, hello.create);
        }
        let node = self.node.member().node.0;
        let geometry = Geometry::DEFAULT;
        let welcome = Welcome { errno: 0, node, lockspace: info.global_id, geometry };
        let Some(peer) = self.peers.get(id) else { return };
        let sent = peer.connection.send_with_fds(&welcome.encode(), &descriptors.as_fds());
        match sent {
            Ok(()) => tracing::debug!(
                lockspace = shown(&hello.name),
                pid = who.pid,
                "opened by {}",
                program(who.pid)
            ),
            Err(_) => self.doom(id, End::Gone),
        }
    }

    /// Ends a handle that was opened and cannot be given to the client, and takes its creation back.
    fn take_back(&mut self, id: ClientId, errno: Errno, created: bool) {
        let node = self.node.member().node.0;
        self.send(id, &Welcome::without_pages(errno.0, node).encode());
        if created {
            self.begin_end(id, Request::Release { force: false });
        } else {
            self.doom(id, End::Gone);
        }
    }

    fn on_client_message(&mut self, id: ClientId, message: ClientMessage) {
        match message {
            ClientMessage::Label(label) => {
                let Some(handle) = handle_mut(&mut self.peers, id) else { return };
                handle.label = String::from_utf8_lossy(&label).into_owned();
                self.send(id, &DaemonMessage::Done { errno: 0 }.encode());
            }
            ClientMessage::Close => self.begin_end(id, Request::Close),
            ClientMessage::Release { force } => match self.may_release(id, force) {
                Ok(()) => self.begin_end(id, Request::Release { force }),
                Err(errno) => {
                    // The handle is gone either way.
                    self.counters.refused(errno.0);
                    self.send(id, &DaemonMessage::Done { errno: errno.0 }.encode());
                    self.doom(id, End::Gone);
                }
            },
        }
    }

    fn may_release(&self, id: ClientId, force: bool) -> Result<(), Errno> {
        let peer = self.peers.get(id).ok_or(Errno::EBADF)?;
        let Stage::Handle(handle) = &peer.stage else { return Err(Errno::EBADF) };
        let info = self.node.lockspace(handle.lockspace).ok_or(Errno::ENOENT)?;
        self.policy.rights.release(&peer.who, force, info.access)
    }

    fn begin_end(&mut self, id: ClientId, request: Request<'_>) {
        self.serve_rest(id);
        let Some(peer) = self.peers.get_mut(id) else { return };
        if let Stage::Handle(handle) = std::mem::replace(&mut peer.stage, Stage::Closing) {
            self.deregister(handle.side.submission_bell.as_raw_fd());
        }
        self.step(Input::Client(id, request));
    }

    /// Ends a connection whatever it is, in this turn.
    pub(super) fn end_peer(&mut self, id: ClientId, end: End) {
        if end == End::Gone {
            self.serve_rest(id);
        }
        let Some(peer) = self.peers.get(id) else { return };
        let known = !matches!(peer.stage, Stage::Greeting | Stage::Control(_));
        if let Stage::Handle(handle) = &peer.stage
            && end != End::Gone
        {
            handle.lose(LostReason::Protocol);
            // It may not read this either.
            let _ = peer.connection.send(&DaemonMessage::Lost(LostReason::Protocol).encode());
        }
        self.remove_peer(id);
        if known {
            self.counters.handles -= 1;
            self.step(Input::ClientGone(id));
        }
    }

    /// Closes a connection's descriptors.
    pub(super) fn remove_peer(&mut self, id: ClientId) {
        let Some(peer) = self.peers.remove(id) else { return };
        match &peer.stage {
            // The client holds the bell too, so that closing it here would not end the watch.
            Stage::Handle(handle) => self.deregister(handle.side.submission_bell.as_raw_fd()),
            Stage::Control(_) => self.counters.controls -= 1,
            Stage::Lost(lost) => self.lost_one_ended(lost.life),
            _ => {}
        }
        if std::mem::take(&mut self.queues.door_stuck) {
            self.queues.door = true;
        }
    }

    /// Sends a message that needs no room to speak of; who does not read those is ended.
    pub(super) fn send(&mut self, id: ClientId, message: &[u8]) {
        let Some(peer) = self.peers.get(id) else { return };
        match peer.connection.send(message) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.tell_fault(id, "ended", &"it does not read its answers");
                self.doom(id, End::Deaf);
            }
            Err(_) => self.doom(id, End::Gone),
        }
    }

    pub(super) fn on_join(&mut self, lockspace: dlm_core::LockspaceId, name: &[u8]) {
        self.changes.on_join(lockspace, self.now);
        tracing::info!(lockspace = shown(name), "created");
        self.leftovers.add(name);
    }

    pub(super) fn on_view(&mut self, lockspace: dlm_core::LockspaceId, view: &View) {
        let Some(info) = self.node.lockspace(lockspace) else { return };
        self.note_view(lockspace, view);
        self.show_view(&info, view);
    }

    pub(super) fn on_leave(&mut self, lockspace: dlm_core::LockspaceId, name: &[u8]) {
        self.changes.on_leave(lockspace);
        tracing::info!(lockspace = shown(name), "removed");
        self.lookalike.left(name);
        self.leftovers.remove(name);
    }
}

/// A descriptor for the opener's end; `None` where its process cannot be seen from here, and the
/// socket has to do.
fn watch(connection: &Connection, who: &Credentials) -> Result<Option<OwnedFd>, Errno> {
    if who.pid == 0 {
        return Ok(None);
    }
    match connection.peer_process() {
        Ok(fd) => Ok(Some(fd)),
        Err(error) => match error.raw_os_error() {
            Some(libc::ENOSYS | libc::EINVAL | libc::EPERM) => Ok(None),
            errno => Err(Errno(errno.unwrap_or(libc::ENOMEM))),
        },
    }
}

/// A process's program, as the kernel knows it.
fn program(pid: u32) -> String {
    let comm = std::fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
    String::from_utf8_lossy(comm.strip_suffix(b"\n").unwrap_or(&comm)).into_owned()
}
