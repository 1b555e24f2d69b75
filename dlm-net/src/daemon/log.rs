//! The daemon's log: `tracing` events become lines on standard error, in the journal or in syslog,
//! and are kept in a ring of 1 MiB for `dlm_tool dump`.
//!
//! An event's field `lockspace` stands in front of the text, as in the original's log. Names come
//! from clients; whatever would end a line or steer a terminal is escaped.

use std::collections::VecDeque;
use std::fmt::{self, Write as _};
use std::io::{self, Write as _};
use std::os::unix::net::UnixDatagram;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::Interest;
use tracing::{Event, Level, Metadata, Subscriber};

/// Bytes of text that the ring keeps.
pub const RING_BYTES_MAX: usize = 1024 * 1024;
/// Longest line, in bytes; the rest is cut.
const LINE_BYTES_MAX: usize = 4096;
/// Longest lockspace name in a line, as in the original.
const LOCKSPACE_BYTES_MAX: usize = 32;
/// Most text of one page of lines; with lengths it stays well below a control message's ceiling.
const PAGE_BYTES_MAX: usize = 64 * 1024;

/// Where lines go beside the ring.
#[derive(Debug)]
enum Sink {
    /// Standard error, read by people.
    Terminal,
    /// Standard error, read by the journal: levels as `<n>` in front.
    Journal,
    /// The system log, once the daemon is in the background.
    Syslog(UnixDatagram),
    /// Nowhere.
    None,
}

/// The log, as the daemon holds it. Clones are the same log.
#[derive(Clone, Debug)]
pub struct Log(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    /// Least important level that is logged, as [`rank`].
    rank: AtomicU8,
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    ring: Ring,
    sink: Sink,
}

/// Numbered lines, the oldest of which give way to new ones.
#[derive(Debug, Default)]
struct Ring {
    lines: VecDeque<String>,
    bytes: usize,
    /// Number of the oldest line that is still there.
    first: u64,
}

/// A part of the ring.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Page {
    /// Number of the first line below.
    pub first: u64,
    /// Lines without newline.
    pub lines: Vec<String>,
    /// Where to go on, if there is more.
    pub next: Option<u64>,
}

impl Log {
    /// A log that writes to standard error, in the journal's form if that is what reads it.
    pub fn new() -> Self {
        let journal = std::env::var_os("JOURNAL_STREAM").is_some_and(|value| !value.is_empty());
        let sink = if journal { Sink::Journal } else { Sink::Terminal };
        let inner = Mutex::new(Inner { ring: Ring::default(), sink });
        Self(Arc::new(Shared { rank: AtomicU8::new(rank(&Level::INFO)), inner }))
    }

    /// Makes this log the receiver of the whole process's events; false if there is one already.
    pub fn install(&self) -> bool {
        tracing::subscriber::set_global_default(self.clone()).is_ok()
    }

    /// Sets the least important level that is logged; `level` is a word of the key `log`.
    pub fn set_level(&self, level: &str) {
        let level = level.parse().unwrap_or(Level::INFO);
        self.0.rank.store(rank(&level), Relaxed);
    }

    /// From now on lines go to the system log, if there is one, and no longer to standard error.
    pub fn leave_standard_error(&self) {
        let syslog = UnixDatagram::unbound().and_then(|socket| {
            socket.connect("/dev/log")?;
            socket.set_nonblocking(true)?;
            Ok(socket)
        });
        self.inner().sink = syslog.map_or(Sink::None, Sink::Syslog);
    }

    /// Lines with number `from` and higher, as many as fit a page.
    pub fn page(&self, from: u64) -> Page {
        self.inner().ring.page(from)
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self, level: &Level, lockspace: &str, text: &str) {
        let seconds = crate::sys::boot_nanos() / 1_000_000_000;
        let space = if lockspace.is_empty() { "" } else { " " };
        let line = format!("{seconds} {lockspace}{space}{text}");
        let mut inner = self.inner();
        inner.sink.write(level, lockspace, text, &line);
        inner.ring.push(line);
    }
}

impl Default for Log {
    fn default() -> Self {
        Self::new()
    }
}

impl Sink {
    /// A line that cannot be written is lost: logging must never stop the daemon.
    fn write(&self, level: &Level, lockspace: &str, text: &str, line: &str) {
        let space = if lockspace.is_empty() { "" } else { " " };
        let _ = match self {
            Self::Terminal => {
                let word = level.as_str().to_ascii_lowercase();
                io::stderr().write_all(format!("dlmd: {word}: {line}\n").as_bytes())
            }
            Self::Journal => {
                let line = format!("<{}>{lockspace}{space}{text}\n", severity(level));
                io::stderr().write_all(line.as_bytes())
            }
            Self::Syslog(socket) => {
                let priority = FACILITY_LOCAL4 * 8 + u32::from(severity(level));
                let pid = std::process::id();
                let line = format!("<{priority}>dlmd[{pid}]: {lockspace}{space}{text}");
                socket.send(line.as_bytes()).map(drop)
            }
            Self::None => Ok(()),
        };
    }
}

/// The original's syslog facility.
const FACILITY_LOCAL4: u32 = 20;

impl Ring {
    fn push(&mut self, line: String) {
        self.bytes += line.len() + 1;
        self.lines.push_back(line);
        while self.bytes > RING_BYTES_MAX {
            let oldest = self.lines.pop_front().expect("the bytes are those of lines");
            self.bytes -= oldest.len() + 1;
            self.first += 1;
        }
    }

    fn page(&self, from: u64) -> Page {
        let first = from.max(self.first);
        let skip = usize::try_from(first - self.first).unwrap_or(usize::MAX);
        let mut page = Page { first, ..Page::default() };
        let mut bytes = 0;
        for line in self.lines.iter().skip(skip) {
            bytes += line.len() + 1;
            if bytes > PAGE_BYTES_MAX {
                page.next = Some(first + page.lines.len() as u64);
                break;
            }
            page.lines.push(line.clone());
        }
        page
    }
}

impl Subscriber for Log {
    fn register_callsite(&self, _metadata: &'static Metadata<'static>) -> Interest {
        Interest::sometimes() // the level may change at any time
    }

    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        rank(metadata.level()) <= self.0.rank.load(Relaxed)
    }

    fn event(&self, event: &Event<'_>) {
        let mut text = Text::default();
        event.record(&mut text);
        let mut lockspace = escape(&text.lockspace);
        cut(&mut lockspace, LOCKSPACE_BYTES_MAX);
        let mut message = escape(&(text.message + &text.fields));
        cut(&mut message, LINE_BYTES_MAX);
        self.write(event.metadata().level(), &lockspace, &message);
    }

    // Spans are not used: the daemon is one loop, and each line stands for itself.
    fn new_span(&self, _span: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _span: &Id, _values: &Record<'_>) {}
    fn record_follows_from(&self, _span: &Id, _follows: &Id) {}
    fn enter(&self, _span: &Id) {}
    fn exit(&self, _span: &Id) {}
}

/// An event's fields, sorted out.
#[derive(Default)]
struct Text {
    lockspace: String,
    message: String,
    fields: String,
}

impl Visit for Text {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.record_debug(field, &format_args!("{value}"));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let written = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            "lockspace" => write!(self.lockspace, "{value:?}"),
            name => write!(self.fields, " {name}={value:?}"),
        };
        written.expect("a string takes everything");
    }
}

/// Bytes of a name, for a line.
pub fn shown(name: &[u8]) -> String {
    String::from_utf8_lossy(name).into_owned()
}

fn escape(text: &str) -> String {
    let plain = |c: char| !c.is_control();
    if text.chars().all(plain) {
        return text.to_owned();
    }
    let mut escaped = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if plain(c) { escaped.push(c) } else { escaped.extend(c.escape_default()) }
    }
    escaped
}

fn cut(text: &mut String, bytes_max: usize) {
    if text.len() > bytes_max {
        let end = (0..=bytes_max).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
        text.truncate(end);
    }
}

/// 0 for errors, up to 4 for traces.
fn rank(level: &Level) -> u8 {
    match *level {
        Level::ERROR => 0,
        Level::WARN => 1,
        Level::INFO => 2,
        Level::DEBUG => 3,
        Level::TRACE => 4,
    }
}

/// The system log's number of a level.
fn severity(level: &Level) -> u8 {
    match *level {
        Level::ERROR => 3,
        Level::WARN => 4,
        Level::INFO => 6,
        Level::DEBUG | Level::TRACE => 7,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn silent() -> Log {
        let log = Log::new();
        log.inner().sink = Sink::None;
        log
    }

    fn lines(log: &Log) -> Vec<String> {
        let without_time = |line: String| line.split_once(' ').expect("a time").1.to_owned();
        log.page(0).lines.into_iter().map(without_time).collect()
    }

    #[test]
    fn events_become_lines_with_the_lockspace_in_front() {
        let log = silent();
        tracing::subscriber::with_default(log.clone(), || {
            tracing::info!("started");
            tracing::warn!(lockspace = "web", pid = 7, "in {}", "use");
            tracing::info!(lockspace = %"n".repeat(64), "long name");
            tracing::debug!("not logged");
            tracing::error!("a\nb\x1b[1m");
            log.set_level("debug");
            tracing::debug!("logged");
            log.set_level("error");
            tracing::warn!("not logged");
        });
        let long = format!("{} long name", "n".repeat(32));
        let want = ["started", "web in use pid=7", &long, "a\\nb\\u{1b}[1m", "logged"];
        assert_eq!(lines(&log), want);
        let seconds = log.page(0).lines[0].split(' ').next().map(str::parse::<u64>);
        assert!(matches!(seconds, Some(Ok(_))), "lines begin with seconds: {seconds:?}");
    }

    #[test]
    fn the_ring_keeps_the_newest_mebibyte_and_is_read_page_by_page() {
        let mut ring = Ring::default();
        for number in 0..40_000 {
            ring.push(format!("{number:099}"));
        }
        assert!(ring.bytes <= RING_BYTES_MAX && ring.bytes > RING_BYTES_MAX - 100);
        let (mut from, mut next) = (0, ring.first);
        let mut pages = 0;
        loop {
            let page = ring.page(from);
            assert_eq!(page.first, next);
            for line in &page.lines {
                assert_eq!(line.parse(), Ok(next));
                next += 1;
            }
            pages += 1;
            match page.next {
                Some(place) => from = place,
                None => break,
            }
        }
        assert_eq!((next, pages), (40_000, 17));
        assert_eq!(ring.page(40_000), Page { first: 40_000, ..Page::default() });
        assert_eq!(ring.page(u64::MAX).lines, Vec::<String>::new());
    }

    #[test]
    fn cutting_respects_characters() {
        let mut text = "aé".repeat(3);
        cut(&mut text, 5);
        assert_eq!(text, "aéa");
    }

    #[test]
    fn lines_longer_than_the_limit_are_cut() {
        let log = silent();
        tracing::subscriber::with_default(log.clone(), || tracing::info!("{}", "x".repeat(9000)));
        assert_eq!(lines(&log)[0].len(), LINE_BYTES_MAX);
    }
}
