//! The conversations of a feeder with its daemons: ask each for its stays, tell it what is due, again
//! and again.
//!
//! No daemon can hold up the others: nothing waits for a socket, so a stopped daemon only leaves its own
//! line silent. A line that breaks is made anew; what was not told is told again, as everything follows
//! from reports.

use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use dlm_core::{Member, View};
use dlm_ipc::control::{
    CONTROL_BYTES_MAX, ControlMessage, ControlReply, ControlRequest, StaysRecord, wall_seconds,
};
use dlm_ipc::hello::{Hello, Welcome};
use dlm_ipc::socket::Connection;

use super::feeder::Feeder;

/// Pause between rounds of a [`Service`].
const PAUSE: Duration = Duration::from_millis(4);
/// The same while a daemon is being told something: what it reports next may ask for more.
const PAUSE_TELLING: Duration = Duration::from_micros(400);

/// A feeder with its lines.
pub struct Feed {
    feeder: Feeder,
    lines: Vec<Line>,
    buffer: Vec<u8>,
}

/// The conversation with one daemon.
struct Line {
    node: u32,
    socket: PathBuf,
    connection: Option<Connection>,
    due: Due,
    stays: StaysRecord,
    commands: VecDeque<ControlRequest>,
    /// Something was told after the last report.
    telling: bool,
    /// How long after an exclusion the node is harmless by its lease; zero: never.
    safe_after: Duration,
    /// Up to which life it is feared, and since when.
    feared: Option<(Member, Instant)>,
}

/// The answer that is due.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Due {
    Nothing,
    Welcome,
    Stays,
    Command,
}

impl Feed {
    /// A feeder of the daemons at these sockets.
    pub fn new(nodes: impl IntoIterator<Item = (u32, PathBuf)>) -> Self {
        let lines: Vec<Line> =
            nodes.into_iter().map(|(node, socket)| Line::new(node, socket)).collect();
        let feeder = Feeder::new(lines.iter().map(|line| line.node), wall_seconds());
        Self { feeder, lines, buffer: vec![0; CONTROL_BYTES_MAX] }
    }

    /// Moves every conversation as far as it goes without waiting.
    pub fn round(&mut self) {
        for line in &mut self.lines {
            line.advance(&mut self.feeder, &mut self.buffer);
            line.outlive(&mut self.feeder);
        }
    }

    /// The daemon of a node and all that acted for its clients are gone; the caller reaped them. To be
    /// said before a daemon is started again.
    pub fn gone(&mut self, node: u32) {
        for line in self.lines.iter_mut().filter(|line| line.node == node) {
            line.hang_up();
        }
        self.feeder.gone(node);
    }

    /// The others go on without this life of a node.
    pub fn exclude(&mut self, node: u32) {
        self.feeder.exclude(node);
    }

    /// Whether a daemon was told something and has not reported since: more may follow from that.
    fn is_telling(&self) -> bool {
        self.lines.iter().any(|line| line.telling)
    }

    /// Whether nothing is left to do ([`Feeder::is_settled`]).
    pub fn is_settled(&self) -> bool {
        self.feeder.is_settled()
    }

    /// The view last decided for a lockspace.
    pub fn view(&self, lockspace: &[u8]) -> Option<&View> {
        self.feeder.view(lockspace)
    }
}

impl Line {
    fn new(node: u32, socket: PathBuf) -> Self {
        let (stays, commands) = (StaysRecord::default(), VecDeque::new());
        let (safe_after, feared) = (Duration::ZERO, None);
        let (connection, due, telling) = (None, Due::Nothing, false);
        Self { node, socket, connection, due, stays, commands, telling, safe_after, feared }
    }

    /// A node that is excluded, and has a lease, is harmless when that has run out for certain. This
    /// clock stands still while the machine sleeps, and waits the longer for it.
    fn outlive(&mut self, feeder: &mut Feeder) {
        let Some(life) = feeder.feared_up_to(self.node) else {
            self.feared = None;
            return;
        };
        let since = match self.feared {
            Some((known, since)) if known == life => since,
            _ => Instant::now(),
        };
        self.feared = Some((life, since));
        if self.safe_after > Duration::ZERO && since.elapsed() >= self.safe_after {
            tracing::info!("node {}: its lease has run out for certain", self.node);
            feeder.found_harmless(life, life.incarnation);
        }
    }

    fn hang_up(&mut self) {
        self.connection = None;
        self.due = Due::Nothing;
        self.commands.clear();
        self.telling = false;
    }

    fn advance(&mut self, feeder: &mut Feeder, buffer: &mut [u8]) {
        if self.connection.is_none() {
            // Nobody there is no news: whoever knows what became of the daemon says so.
            let Ok(connection) = dial(&self.socket) else { return };
            self.connection = Some(connection);
            self.due = Due::Welcome;
        }
        if self.due == Due::Nothing {
            self.ask_for_stays(b"");
        }
        while self.due != Due::Nothing {
            match self.hear(buffer) {
                Ok(Some(length)) => {
                    if self.take(feeder, &buffer[..length]).is_none() {
                        return self.hang_up();
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Ok(None) | Err(_) => return self.hang_up(),
            }
        }
    }

    fn hear(&self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        let Some(connection) = &self.connection else { return Ok(None) };
        connection.recv(buffer).map(|message| message.map(<[u8]>::len))
    }

    /// Takes what was due; `None` if it is not that.
    fn take(&mut self, feeder: &mut Feeder, message: &[u8]) -> Option<()> {
        if self.due == Due::Welcome {
            let welcome = Welcome::decode(message).ok().filter(|welcome| welcome.errno == 0)?;
            if welcome.node != self.node {
                tracing::error!(
                    "{} is node {}, not {}",
                    self.socket.display(),
                    welcome.node,
                    self.node
                );
                return None;
            }
            self.due = Due::Nothing;
            self.ask_for_stays(b"");
            return Some(());
        }
        match ControlReply::from_bytes(message).ok()? {
            ControlReply::Stays(page) => self.take_stays(feeder, page),
            // A view of a lockspace that was left meanwhile, for one.
            ControlReply::Refused { message, .. } => {
                tracing::debug!("node {}: {message}", self.node)
            }
            ControlReply::Done => {}
            _ => return None,
        }
        if self.due == Due::Command {
            self.command();
        }
        Some(())
    }

    fn take_stays(&mut self, feeder: &mut Feeder, page: StaysRecord) {
        let mut stays = std::mem::take(&mut self.stays.stays);
        stays.extend(page.stays.iter().cloned());
        let more = page.more;
        self.stays = StaysRecord { stays, ..page };
        if let Some(last) = self.stays.stays.last().filter(|_| more).map(|s| s.lockspace.clone()) {
            return self.ask_for_stays(&last);
        }
        self.safe_after = Duration::from_nanos(self.stays.safe_after);
        feeder.report(std::mem::take(&mut self.stays));
        self.commands = feeder.commands(self.node).into();
        self.telling = !self.commands.is_empty();
        self.due = Due::Command;
    }

    fn ask_for_stays(&mut self, after: &[u8]) {
        if after.is_empty() {
            self.stays = StaysRecord::default();
        }
        self.due = Due::Stays;
        self.say(&ControlRequest::Stays { after: after.to_vec() });
    }

    fn command(&mut self) {
        self.due = Due::Nothing;
        if let Some(command) = self.commands.pop_front() {
            self.due = Due::Command;
            self.say(&command);
        }
    }

    /// A message that cannot be sent ends the line when the answer is looked for.
    fn say(&self, request: &ControlRequest) {
        let Some(connection) = &self.connection else { return };
        match request.to_bytes() {
            Ok(bytes) => drop(connection.send(&bytes)),
            Err(error) => tracing::error!("node {}: {error}", self.node),
        }
    }
}

fn dial(socket: &Path) -> io::Result<Connection> {
    let connection = Connection::connect(socket)?;
    connection.set_nonblocking(true)?;
    let hello = Hello::Control.encode().map_err(|_| io::ErrorKind::InvalidData)?;
    connection.send(&hello)?;
    Ok(connection)
}

/// A feed with a thread that keeps it going.
pub struct Service {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// What the thread and its owner have in common.
struct Shared {
    feed: Mutex<Feed>,
    /// Somebody did something with the feed.
    news: Condvar,
    ends: AtomicBool,
}

impl Service {
    /// Starts feeding.
    ///
    /// # Errors
    /// The system has no thread left.
    pub fn start(feed: Feed) -> io::Result<Self> {
        let (news, ends) = (Condvar::new(), AtomicBool::new(false));
        let shared = Arc::new(Shared { feed: Mutex::new(feed), news, ends });
        let inner = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("feed".to_owned()).spawn(move || {
            let mut feed = inner.lock();
            while !inner.ends.load(Ordering::Relaxed) {
                feed.round();
                // What is done with the feed meanwhile is told at once.
                let pause = if feed.is_telling() { PAUSE_TELLING } else { PAUSE };
                let slept = inner.news.wait_timeout(feed, pause);
                feed = slept.unwrap_or_else(PoisonError::into_inner).0;
            }
        })?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Does something with the feed between two rounds; the next one begins at once.
    pub fn with<R>(&self, act: impl FnOnce(&mut Feed) -> R) -> R {
        let result = act(&mut self.shared.lock());
        self.shared.news.notify_one();
        result
    }

    /// Looks at the feed between two rounds.
    pub fn look<R>(&self, at: impl FnOnce(&Feed) -> R) -> R {
        at(&self.shared.lock())
    }
}

impl Shared {
    fn lock(&self) -> std::sync::MutexGuard<'_, Feed> {
        self.feed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.shared.ends.store(true, Ordering::Relaxed);
        self.shared.news.notify_one();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
