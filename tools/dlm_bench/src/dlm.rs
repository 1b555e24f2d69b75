//! dlmd through the Rust client: one lock at a time, and many at once.

use std::io;
use std::path::Path;

use dlm_client::{Guard, LockEvent, LockRef, Lockspace, Mode, Opening, Pipeline, Tagged, Wanted};

use crate::locker::{LOCKSPACE, Locker};

/// Requests pushed between two looks at what came of the earlier ones: half a submission ring, so
/// that the daemon has work while the next half is written.
const BURST: usize = 128;

/// Opens the benchmark's lockspace.
fn open(socket: &Path) -> io::Result<Lockspace> {
    Ok(Opening::create(0o600).socket(socket).open(LOCKSPACE)?)
}

/// One lock at a time; every answer is awaited, that of the unlock too.
pub(crate) struct Awaiting {
    space: Lockspace,
    held: Option<LockRef>,
}

impl Awaiting {
    /// Connects.
    pub(crate) fn open(socket: &Path) -> io::Result<Self> {
        Ok(Self { space: open(socket)?, held: None })
    }
}

impl Locker for Awaiting {
    fn lock(&mut self, name: &[u8]) -> io::Result<()> {
        self.held = Some(self.space.lock_wait(name, Mode::EX, &Wanted::new())?.lock);
        Ok(())
    }

    fn unlock(&mut self) -> io::Result<()> {
        let lock = self.held.take().ok_or_else(nothing_held)?;
        Ok(self.space.unlock_wait(lock, None)?)
    }
}

/// One lock at a time; nobody waits for the answer of an unlock.
pub(crate) struct Lazy {
    space: Lockspace,
    held: Option<Guard>,
}

impl Lazy {
    /// Connects.
    pub(crate) fn open(socket: &Path) -> io::Result<Self> {
        Ok(Self { space: open(socket)?, held: None })
    }
}

impl Locker for Lazy {
    fn lock(&mut self, name: &[u8]) -> io::Result<()> {
        self.held = Some(self.space.lock(name, Mode::EX, &Wanted::new())?);
        Ok(())
    }

    fn unlock(&mut self) -> io::Result<()> {
        self.held.take().map(drop).ok_or_else(nothing_held)
    }
}

fn nothing_held() -> io::Error {
    io::Error::other("nothing is held")
}

/// Many locks at a time.
pub(crate) struct Client {
    pipeline: Pipeline,
    mode: Mode,
    wanted: Wanted,
    events: Vec<Tagged>,
    asked: u64,
    granted: u64,
}

impl Client {
    /// Connects, for exclusive locks.
    pub(crate) fn open(socket: &Path) -> io::Result<Self> {
        Self::open_for(socket, Mode::EX as u8)
    }

    /// Connects, for locks of the mode of this number.
    pub(crate) fn open_for(socket: &Path, mode: u8) -> io::Result<Self> {
        let mode =
            Mode::from_number(mode).ok_or_else(|| io::Error::other("there is no such mode"))?;
        let (pipeline, wanted) = (open(socket)?.pipeline()?, Wanted::new());
        Ok(Self { pipeline, mode, wanted, events: Vec::new(), asked: 0, granted: 0 })
    }

    /// Takes one lock, awaits it, and keeps it.
    pub(crate) fn lock(&mut self, name: &[u8]) -> io::Result<()> {
        self.pipeline.space().lock_wait(name, self.mode, &self.wanted)?;
        Ok(())
    }

    /// Takes one exclusive lock, awaits it, and gives it back.
    pub(crate) fn pair(&self, name: &[u8]) -> io::Result<()> {
        let lock = self.pipeline.space().lock_wait(name, Mode::EX, &self.wanted)?.lock;
        Ok(self.pipeline.space().unlock_wait(lock, None)?)
    }

    /// Asks for one name `locks` times at once; `asked` is called when the daemon has seen all the
    /// requests. Then unlocks each lock when it is granted, until all are.
    pub(crate) fn drain(
        &mut self,
        name: &[u8; 13],
        locks: usize,
        asked: impl FnOnce(),
    ) -> io::Result<()> {
        let mut waiting = locks;
        self.ask_all(std::iter::repeat_n(*name, locks))?;
        asked();
        while waiting > 0 {
            self.pipeline.wait(&mut self.events, None)?;
            let mut events = std::mem::take(&mut self.events);
            for tagged in events.drain(..) {
                match completed(&tagged)? {
                    Some(lock) => self.pipeline.unlock(lock, None, tagged.key)?,
                    None => waiting -= 1,
                }
            }
            self.events = events;
        }
        Ok(())
    }

    /// Leaves the lockspace with everything, and takes its creation back.
    pub(crate) fn release(self) -> io::Result<()> {
        let space = self.pipeline.space().clone();
        drop(self.pipeline);
        Ok(space.release(true)?)
    }

    /// Asks for many locks; returns when the daemon has seen all requests, granted or not.
    pub(crate) fn ask_all(&mut self, names: impl Iterator<Item = [u8; 13]>) -> io::Result<()> {
        for name in names {
            self.ask(&name)?;
            if self.asked.is_multiple_of(BURST as u64) {
                self.pipeline.submit()?;
                self.pipeline.poll(&mut self.events)?;
                self.count_grants()?;
            }
        }
        self.pipeline.submit()?;
        // Requests of a handle are served in order: what is asked last is answered last.
        let last = self.pipeline.space().lock_wait(b"the last one", Mode::NL, &self.wanted)?.lock;
        Ok(self.pipeline.space().unlock_wait(last, None)?)
    }

    /// Waits until everything that was asked for is granted.
    pub(crate) fn await_all(&mut self) -> io::Result<()> {
        while self.granted < self.asked {
            self.pipeline.wait(&mut self.events, None)?;
            self.count_grants()?;
        }
        Ok(())
    }

    /// Keeps `in_flight` pairs in flight: takes what has happened, unlocks what was granted, asks
    /// for a fresh name where a pair is complete, and returns how many are.
    pub(crate) fn pairs(
        &mut self,
        in_flight: usize,
        mut name: impl FnMut() -> [u8; 13],
    ) -> io::Result<u64> {
        while self.asked < in_flight as u64 {
            self.ask(&name())?;
        }
        self.pipeline.wait(&mut self.events, None)?;
        let mut done = 0;
        let mut events = std::mem::take(&mut self.events);
        for tagged in events.drain(..) {
            match completed(&tagged)? {
                Some(lock) => self.pipeline.unlock(lock, None, tagged.key)?,
                None => {
                    done += 1;
                    self.pipeline.lock(&name(), Mode::EX, &self.wanted, tagged.key)?;
                }
            }
        }
        self.events = events;
        Ok(done)
    }

    fn ask(&mut self, name: &[u8]) -> io::Result<()> {
        self.asked += 1;
        Ok(self.pipeline.lock(name, self.mode, &self.wanted, self.asked)?)
    }

    fn count_grants(&mut self) -> io::Result<()> {
        for tagged in self.events.drain(..) {
            self.granted += u64::from(completed(&tagged)?.is_some());
        }
        Ok(())
    }
}

/// The lock that was granted; `None`: it was unlocked. Everything else is an error here.
fn completed(tagged: &Tagged) -> io::Result<Option<LockRef>> {
    match tagged.event {
        LockEvent::Completed(completion) => {
            let completion = completion.result()?;
            Ok(completion.granted.map(|_| completion.lock))
        }
        LockEvent::Refused { error, .. } => Err(error.into()),
        LockEvent::Blocking { .. } => Err(io::Error::other("a blocking call that nobody wanted")),
    }
}
