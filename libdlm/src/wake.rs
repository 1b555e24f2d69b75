//! Where threads of a client sleep, and how they are woken.
//!
//! | set | members | who waits there |
//! |---|---|---|
//! | reply watch | reply bell (edge), socket, kick (edge), lease timer | who waits for the answer to a call |
//! | event watch | event bell (edge), socket, kick, lease timer | one of all who wait for events |
//! | public set | event watch, `ready` | the program: what `dlm_get_fd` returns |
//!
//! The public set is level-triggered and nested, so it never reports a hang-up (trap 4 of
//! libdlm-abi.md): the end of the daemon is "readable", and dispatch tells it. `ready` is rung when
//! events wait in memory for a dispatch instead of in the ring.
//!
//! Why the kick is level-triggered in the event watch: a dispatching thread hears that set too, and
//! would swallow an edge meant for the sleeper.

use std::io;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use dlm_ipc::bell::BellWatch;
use dlm_ipc::socket::Connection;
use parking_lot::{Condvar, Mutex};

use crate::sys::{self, Bell, PollSet, Timer, Watch};

/// Cookies of what we add to the two watches; anything else is the daemon's bell.
const SOCKET: u64 = 101;
const KICK: u64 = 102;
const TIMER: u64 = 103;

/// What ended a sleep; nothing: the time was over, or a signal came.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Woken {
    /// The bell rang; heard now.
    pub(crate) bell: bool,
    /// The daemon said something on the socket, or is gone.
    pub(crate) socket: bool,
    /// The lease timer has expired: look at the lease, which sets it anew.
    pub(crate) timer: bool,
}

/// A handle's sleeping places.
pub(crate) struct Wake {
    pub(crate) socket: Connection,
    reply_watch: BellWatch,
    event_watch: BellWatch,
    kick: Bell,
    timer: OnceLock<Timer>,
    public: Mutex<Option<Public>>,
    /// Whoever closes the handle waits here, with the state's mutex, for deliveries in progress.
    pub(crate) quiet: Condvar,
    ended: AtomicBool,
}

struct Public {
    set: PollSet,
    ready: Bell,
    /// Whether `ready` is rung.
    announced: bool,
}

impl Wake {
    pub(crate) fn new(
        socket: Connection,
        reply_watch: BellWatch,
        event_watch: BellWatch,
    ) -> io::Result<Self> {
        let kick = Bell::new()?;
        for (watch, kick_as) in [(&reply_watch, Watch::Edge), (&event_watch, Watch::Level)] {
            sys::add_to(watch.as_fd(), socket.as_fd(), Watch::Level, SOCKET)?;
            sys::add_to(watch.as_fd(), kick.as_fd(), kick_as, KICK)?;
        }
        Ok(Self {
            socket,
            reply_watch,
            event_watch,
            kick,
            timer: OnceLock::new(),
            public: Mutex::new(None),
            quiet: Condvar::new(),
            ended: AtomicBool::new(false),
        })
    }

    /// Sleeps until an answer may have come.
    pub(crate) fn sleep_for_reply(&self, timeout: Option<Duration>) -> io::Result<Woken> {
        wait(&self.reply_watch, timeout)
    }

    /// Sleeps until an event may have come. For one thread at a time.
    pub(crate) fn sleep_for_event(&self, timeout: Option<Duration>) -> io::Result<Woken> {
        wait(&self.event_watch, timeout)
    }

    /// Wakes the thread in [`Wake::sleep_for_event`]; to be taken back by [`Wake::unkick`].
    pub(crate) fn kick(&self) {
        self.kick.ring();
    }

    /// The kick was noticed.
    pub(crate) fn unkick(&self) {
        self.kick.hear();
    }

    /// Hears the event bell without sleeping, so that the public set is quiet until the next ring.
    pub(crate) fn hear(&self) -> io::Result<Woken> {
        wait(&self.event_watch, Some(Duration::ZERO))
    }

    /// The program's descriptor; made when first asked for.
    pub(crate) fn descriptor(&self, cookie: u64) -> io::Result<RawFd> {
        let mut public = self.public.lock();
        if let Some(public) = &*public {
            return Ok(public.set.as_fd().as_raw_fd());
        }
        let (set, ready) = (PollSet::new()?, Bell::new()?);
        set.add(self.event_watch.as_fd(), Watch::Level, cookie)?;
        set.add(ready.as_fd(), Watch::Level, cookie)?;
        let fd = set.as_fd().as_raw_fd();
        *public = Some(Public { set, ready, announced: false });
        Ok(fd)
    }

    /// Closes the program's descriptor.
    pub(crate) fn close_descriptor(&self) {
        *self.public.lock() = None;
    }

    /// Makes the public set readable: events wait in memory.
    pub(crate) fn announce(&self) {
        if let Some(public) = &mut *self.public.lock()
            && !public.announced
        {
            public.announced = true;
            public.ready.ring();
        }
    }

    /// No events wait in memory any more.
    pub(crate) fn retract(&self) {
        if let Some(public) = &mut *self.public.lock()
            && public.announced
        {
            public.announced = false;
            public.ready.hear();
        }
    }

    /// Sets the lease timer.
    pub(crate) fn set_timer(&self, until_ns: u64) -> io::Result<()> {
        let timer = match self.timer.get() {
            Some(timer) => timer,
            None => {
                let timer = Timer::new()?;
                for watch in [&self.reply_watch, &self.event_watch] {
                    sys::add_to(watch.as_fd(), timer.as_fd(), Watch::Level, TIMER)?;
                }
                self.timer.get_or_init(|| timer)
            }
        };
        timer.set(until_ns)
    }

    /// The handle has ended: all sleepers are woken, once.
    pub(crate) fn end(&self) {
        // SYNC POINT: release; pairs with `has_ended`. The kick behind it wakes who looked before.
        self.ended.store(true, Ordering::Release);
        self.kick.ring();
    }

    /// Whether the handle has ended; the state knows why.
    pub(crate) fn has_ended(&self) -> bool {
        // SYNC POINT: acquire; pairs with `end`.
        self.ended.load(Ordering::Acquire)
    }
}

fn wait(watch: &BellWatch, timeout: Option<Duration>) -> io::Result<Woken> {
    let mut woken = Woken::default();
    sys::poll(watch.as_fd(), timeout, |cookie| match cookie {
        SOCKET => woken.socket = true,
        KICK => {}
        TIMER => woken.timer = true,
        _ => woken.bell = true,
    })?;
    Ok(woken)
}
