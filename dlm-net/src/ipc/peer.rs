//! One connection: a newcomer, a lockspace handle with its rings, or a control conversation.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;

use dlm_core::{Completion, Errno, LockspaceId};
use dlm_ipc::hello::HandleHello;
use dlm_ipc::layout::{Event, LostReason, Notice, Reply, Submission};
use dlm_ipc::ring::{Corrupt, Producer, PushError};
use dlm_ipc::socket::{Connection, Peer as Credentials};
use dlm_ipc::{DaemonSide, layout};

/// How often a client that takes entries while they are pushed is followed within one turn.
const FLUSHES_MAX: usize = 4;

/// One connection.
pub struct Peer {
    /// Its socket.
    pub connection: Connection,
    /// Who connected.
    pub who: Credentials,
    /// The process that connected, until the connection is a handle: `None` where it cannot be seen
    /// from here, an errno where it has ended or there is no descriptor left.
    pub process: Result<Option<OwnedFd>, Errno>,
    /// What it is.
    pub stage: Stage,
}

/// What a connection is, by what it waits for.
pub enum Stage {
    /// It has not said what it wants.
    Greeting,
    /// The core was asked to open a lockspace; pages are ready.
    Opening(Box<Opening>),
    /// A lockspace is open.
    Handle(Box<Handle>),
    /// The core was asked to end the handle; the answer is due.
    Closing,
    /// Its lockspace is lost; the client has not closed its handle yet, so it may not know.
    Lost(Box<Lost>),
    /// A control conversation.
    Control(Box<Control>),
}

/// A handle whose lockspace is lost.
pub struct Lost {
    /// What the client still looks at.
    pub handle: Handle,
    /// The life of this node that was lost.
    pub life: u64,
    /// Whether its process was killed for not closing it in time.
    pub killed: bool,
}

/// A handle in the making.
pub struct Opening {
    /// What was asked for.
    pub hello: HandleHello,
    /// The daemon's end of its pages, and the client's descriptors.
    pub side: (DaemonSide, dlm_ipc::Descriptors),
    /// Readable when the opener's process is gone; `None` where the kernel cannot tell.
    pub process: Option<OwnedFd>,
}

/// A control conversation.
#[derive(Default)]
pub struct Control {
    /// The rest of a table's page that did not fit an answer, and where the table goes on.
    pub rest: VecDeque<dlm_ipc::control::ResourceRecord>,
    /// Where the table goes on behind `rest`.
    pub rest_next: Option<u64>,
    /// Name of the present `rest`, so that an old one cannot be asked for.
    pub rest_number: u64,
    /// Its request waits for other daemons; the next one is not taken before the answer.
    pub waits: bool,
}

/// An open lockspace of a client.
pub struct Handle {
    /// The lockspace.
    pub lockspace: LockspaceId,
    /// The opener's program, as the kernel knew it then.
    pub program: String,
    /// The application's label.
    pub label: String,
    /// Readable when the opener's process is gone.
    pub process: Option<OwnedFd>,
    /// The rings.
    pub side: DaemonSide,
    /// Requests whose answer is due, oldest first; empty while the core answers at once.
    pub due: VecDeque<Ticket>,
    /// Events that found no room.
    events: VecDeque<Event>,
    /// Answers that found no room.
    replies: VecDeque<Reply>,
    /// How many of `events` are refusals: these are not bounded by the client's locks.
    refusals: usize,
    /// Whether the loop serves its submissions in the next turn.
    pub active: bool,
    /// Whether something was pushed that is not yet visible.
    pub dirty: bool,
}

/// What an answer needs to know of its request.
#[derive(Clone, Copy, Debug)]
pub struct Ticket {
    /// The submission's tag.
    pub tag: u64,
    /// The submission's word for the lock.
    pub user: u64,
    /// The lock named by the submission.
    pub lkid: u32,
    /// Whether a success is answered.
    pub reply_wanted: bool,
}

impl From<&Submission> for Ticket {
    fn from(entry: &Submission) -> Self {
        let reply_wanted = entry.reply_wanted();
        Self { tag: entry.tag, user: entry.user, lkid: entry.lkid, reply_wanted }
    }
}

impl Handle {
    /// A handle whose core side is open.
    pub fn new(
        lockspace: LockspaceId,
        program: String,
        label: &[u8],
        side: DaemonSide,
        process: Option<OwnedFd>,
    ) -> Self {
        Self {
            lockspace,
            program,
            label: String::from_utf8_lossy(label).into_owned(),
            process,
            side,
            due: VecDeque::new(),
            events: VecDeque::new(),
            replies: VecDeque::new(),
            refusals: 0,
            active: false,
            dirty: false,
        }
    }

    /// Answers a request: `Ok` with a lock id, or an errno.
    ///
    /// # Errors
    /// The client broke its ring.
    #[inline]
    pub fn answer(&mut self, ticket: Ticket, result: Result<u32, i32>) -> Result<(), Corrupt> {
        match result {
            Ok(_) if !ticket.reply_wanted => Ok(()),
            Ok(lkid) => self.reply(Reply { result: 0, lkid, tag: ticket.tag }),
            Err(errno) if ticket.reply_wanted => {
                self.reply(Reply { result: errno, lkid: 0, tag: ticket.tag })
            }
            Err(errno) => {
                let Ticket { tag, user, lkid, .. } = ticket;
                let event = Event::new(&Notice::Refused { lkid, user, tag, errno });
                let before = self.events.len();
                self.event(event)?;
                self.refusals += self.events.len() - before;
                Ok(())
            }
        }
    }

    /// Tells the end of an operation.
    ///
    /// # Errors
    /// The client broke its ring.
    #[inline]
    pub fn complete(&mut self, completion: &Completion) -> Result<(), Corrupt> {
        self.event(Event::new(&Notice::Completion {
            lkid: completion.lock.0,
            user: completion.user,
            status: completion.status.number(),
            sb_flags: completion.sb_flags.0,
            granted: completion.granted.map(|mode| mode as u8),
            value: completion.value,
            token: completion.token.0,
        }))
    }

    /// Tells that a lock blocks somebody.
    ///
    /// # Errors
    /// The client broke its ring.
    #[inline]
    pub fn blocking(&mut self, blocking: &dlm_core::Blocking) -> Result<(), Corrupt> {
        let (lkid, user, mode) = (blocking.lock.0, blocking.user, blocking.mode as u8);
        self.event(Event::new(&Notice::Blocking { lkid, user, mode }))
    }

    /// Events that wait for room.
    #[inline]
    pub fn events_waiting(&self) -> usize {
        self.events.len()
    }

    /// Whether submissions must wait: answers or refusals of earlier ones found no room, and the
    /// client does not take them.
    #[inline]
    pub fn is_held_back(&self, refusals_max: usize) -> bool {
        !self.replies.is_empty() || self.refusals > refusals_max
    }

    /// Moves what found no room, as far as there is room now.
    ///
    /// # Errors
    /// The client broke its ring.
    pub fn unload(&mut self) -> Result<(), Corrupt> {
        if !self.replies.is_empty() {
            self.dirty = true;
            drain(&mut self.replies, &mut self.side.replies)?;
        }
        if !self.events.is_empty() {
            self.dirty = true;
            drain(&mut self.events, &mut self.side.events)?;
            if self.events.is_empty() {
                self.refusals = 0;
                self.events.shrink_to(layout::Geometry::DEFAULT.events as usize);
            }
        }
        Ok(())
    }

    /// Makes everything visible and rings where the client sleeps. Where something still waits for
    /// room, the client will ring when it made some; false: it makes room right now, serve it again.
    ///
    /// # Errors
    /// The client broke its ring.
    pub fn flush(&mut self) -> Result<bool, Corrupt> {
        for _ in 0..FLUSHES_MAX {
            self.dirty = false;
            // A bell fails only if its descriptor was closed under us; then the hang-up follows.
            // Events first: what a call brought about can be dispatched as soon as the call has
            // returned, as with the kernel's device.
            let _ = self.side.events.flush();
            let _ = self.side.replies.flush();
            let replies = self.replies.is_empty() || self.side.replies.prepare_wait_for_room();
            let events = self.events.is_empty() || self.side.events.prepare_wait_for_room();
            if replies && events {
                return Ok(true);
            }
            self.unload()?;
        }
        Ok(false)
    }

    /// Until when the client may believe what it is told (ipc.md section 2).
    pub fn set_lease_until(&self, until: u64) {
        self.side.page.set_lease_until(until);
    }

    /// The lockspace is lost to this client.
    pub fn lose(&self, reason: LostReason) {
        self.side.page.set_lost(reason);
        let _ = self.side.replies.ring_bell();
        let _ = self.side.events.ring_bell();
    }

    #[inline]
    fn reply(&mut self, reply: Reply) -> Result<(), Corrupt> {
        self.dirty = true;
        push(&mut self.replies, &mut self.side.replies, reply)
    }

    #[inline]
    fn event(&mut self, event: Event) -> Result<(), Corrupt> {
        self.dirty = true;
        push(&mut self.events, &mut self.side.events, event)
    }
}

/// Pushes behind what waits.
#[inline]
fn push<T: layout::Entry>(
    waiting: &mut VecDeque<T>,
    ring: &mut Producer<T>,
    entry: T,
) -> Result<(), Corrupt> {
    if waiting.is_empty() {
        match ring.push(&entry) {
            Ok(()) => return Ok(()),
            Err(PushError::Corrupt(corrupt)) => return Err(corrupt),
            Err(PushError::Full) => {}
        }
    }
    waiting.push_back(entry);
    Ok(())
}

fn drain<T: layout::Entry>(
    waiting: &mut VecDeque<T>,
    ring: &mut Producer<T>,
) -> Result<(), Corrupt> {
    while let Some(entry) = waiting.front() {
        match ring.push(entry) {
            Ok(()) => drop(waiting.pop_front()),
            Err(PushError::Full) => break,
            Err(PushError::Corrupt(corrupt)) => return Err(corrupt),
        }
    }
    Ok(())
}
