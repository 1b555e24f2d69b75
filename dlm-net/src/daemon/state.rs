//! What a node must never forget: which incarnation it is and which view numbers it used.
//!
//! Both only grow, also over restarts and with the clock set back (recovery.md B1): a start takes
//! max(stored, wall-clock seconds) + 1. View numbers are reserved in blocks, so that creating a
//! lockspace does not wait for the disk; a crash loses at most the rest of a block.
//!
//! A file that cannot be read or written is not a reason to stay down (BL-059): the clock alone gives
//! numbers that were not used before, unless it was set back. The log says so.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use dlm_core::ViewId;

/// The file's name in the state directory.
const FILE_NAME: &str = "state";
/// View numbers reserved by one write.
const VIEWS_RESERVED: u64 = 1024;
/// Incarnations begin at the clock in this fraction: quick enough for any restart, and their numbers
/// last beyond the year 2100 (40 bits, see `JOINS_PER_LIFE`).
const PARTS_PER_SECOND: u64 = 256;
/// First line of the file.
const HEAD: &str = "dlm state 1";

/// Numbers of this start, and where they are kept.
#[derive(Debug)]
pub struct State {
    path: PathBuf,
    incarnation: u64,
    /// Last view number handed out.
    view: u64,
    /// Last view number that may be handed out without writing.
    reserved: u64,
}

/// What the file said.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Stored {
    incarnation: u64,
    view: u64,
}

impl State {
    /// Begins a new incarnation. `wall_seconds` is the wall clock, in seconds since 1970.
    pub fn begin(directory: &Path, wall_seconds: u64) -> Self {
        Self::begin_at(directory, wall_seconds, wall_seconds)
    }

    /// As [`State::begin`], at this time since 1970. Incarnations count from fractions of a second, so
    /// that a quick restart without the file is a new one too.
    pub fn begin_now(directory: &Path, wall: Duration) -> Self {
        let parts = wall.as_millis() as u64 * PARTS_PER_SECOND / 1000;
        Self::begin_at(directory, parts, wall.as_secs())
    }

    fn begin_at(directory: &Path, wall_parts: u64, wall_seconds: u64) -> Self {
        let path = directory.join(FILE_NAME);
        let stored = match load(&path) {
            Ok(stored) => stored,
            Err(trouble) => {
                tracing::warn!(
                    "{}: {trouble}; numbers start at the wall clock, which is safe unless it was \
                     set back since the last start",
                    path.display()
                );
                None
            }
        };
        let stored = stored.unwrap_or(Stored { incarnation: 0, view: 0 });
        let incarnation = stored.incarnation.max(wall_parts) + 1;
        let view = stored.view.max(wall_seconds);
        let mut state = Self { path, incarnation, view, reserved: view };
        state.reserve();
        state
    }

    /// The number of this start.
    pub fn incarnation(&self) -> u64 {
        self.incarnation
    }

    /// Begins another incarnation within this start.
    pub fn next_incarnation(&mut self) -> u64 {
        self.incarnation += 1;
        self.reserve();
        self.incarnation
    }

    /// A view number that was never used before.
    pub fn next_view(&mut self) -> ViewId {
        if self.view == self.reserved {
            self.reserve();
        }
        self.view += 1;
        ViewId(u32::try_from(self.view).expect("view numbers last beyond the year 2100"))
    }

    /// The last view number that was used, as far as this node knows.
    pub fn last_view(&self) -> ViewId {
        ViewId(u32::try_from(self.view).unwrap_or(u32::MAX))
    }

    /// Others used this view number: it is not used again, also after a restart.
    pub fn note_view(&mut self, view: ViewId) {
        self.view = self.view.max(u64::from(view.0));
        if self.view > self.reserved {
            self.reserve();
        }
    }

    fn reserve(&mut self) {
        self.reserved = self.view + VIEWS_RESERVED;
        let stored = Stored { incarnation: self.incarnation, view: self.reserved };
        if let Err(error) = store(&self.path, stored) {
            tracing::warn!(
                "cannot write {}: {error}; after a restart numbers start at the wall clock",
                self.path.display()
            );
        }
    }
}

/// The stored numbers; `None` where there is no file yet.
fn load(path: &Path) -> Result<Option<Stored>, String> {
    match fs::read(path) {
        Ok(bytes) => parse(&bytes).map(Some).ok_or_else(|| "the file is damaged".to_owned()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(format!("cannot be read ({error})")),
    }
}

/// Replaces the file whole or not at all: a crash leaves the old one or the new one.
fn store(path: &Path, stored: Stored) -> io::Result<()> {
    let temporary = path.with_extension("new");
    let mut file = File::create(&temporary)?;
    file.write_all(text(stored).as_bytes())?;
    file.sync_all()?;
    fs::rename(&temporary, path)?;
    let directory = path.parent().unwrap_or(Path::new("/"));
    File::open(directory)?.sync_all()
}

fn text(stored: Stored) -> String {
    let body = format!("{HEAD}\nincarnation {}\nview {}\n", stored.incarnation, stored.view);
    format!("{body}check {:016x}\n", check(body.as_bytes()))
}

fn parse(bytes: &[u8]) -> Option<Stored> {
    let whole = std::str::from_utf8(bytes).ok()?;
    let mut lines = whole.lines().skip(1);
    let mut number = |name: &str| lines.next()?.strip_prefix(name)?.trim_start().parse().ok();
    let stored = Stored { incarnation: number("incarnation")?, view: number("view")? };
    // One more may be added to either, and views must stay in their 32 bits.
    let sane = stored.incarnation < u64::MAX / 2 && stored.view < u64::from(u32::MAX) / 4 * 3;
    (sane && text(stored) == whole).then_some(stored)
}

/// FNV-1a over the text: it finds torn and edited files, it does not protect against an attacker.
fn check(bytes: &[u8]) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, step)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TempDir;

    #[test]
    fn numbers_only_grow_over_restarts_and_with_the_clock_set_back() {
        let dir = TempDir::new("state");
        let mut first = State::begin(dir.path(), 1_000);
        assert_eq!(
            (first.incarnation(), first.next_view(), first.next_view()),
            (1_001, ViewId(1_001), ViewId(1_002))
        );
        let mut second = State::begin(dir.path(), 500);
        assert_eq!(second.incarnation(), 1_002);
        let view = second.next_view();
        assert!(view > ViewId(1_002), "{view:?}");
        let mut third = State::begin(dir.path(), 1_000_000);
        assert_eq!((third.incarnation(), third.next_view()), (1_000_001, ViewId(1_000_001)));
    }

    #[test]
    fn a_used_up_block_is_followed_by_a_written_one() {
        let dir = TempDir::new("state-block");
        let mut state = State::begin(dir.path(), 10);
        let last = (0..2 * VIEWS_RESERVED + 5).map(|_| state.next_view()).last();
        assert_eq!(last, Some(ViewId(10 + 2 * VIEWS_RESERVED as u32 + 5)));
        let mut next = State::begin(dir.path(), 0);
        assert!(Some(next.next_view()) > last);
    }

    #[test]
    fn damaged_files_fall_back_to_the_clock_and_are_repaired() {
        let good = text(Stored { incarnation: 77, view: 88 });
        let damaged: [Vec<u8>; 7] = [
            Vec::new(),
            b"\0\xff\xfe".to_vec(),
            good.as_bytes()[..good.len() - 9].to_vec(),
            good.replace("view 88", "view 89").into_bytes(),
            good.replace("77", "-1").into_bytes(),
            text(Stored { incarnation: 1, view: u64::MAX }).into_bytes(),
            vec![b'x'; 100_000],
        ];
        for bytes in damaged {
            let dir = TempDir::new("state-damaged");
            fs::write(dir.path().join(FILE_NAME), &bytes).expect("writable");
            let mut state = State::begin(dir.path(), 2_000);
            assert_eq!((state.incarnation(), state.next_view()), (2_001, ViewId(2_001)));
            let again = State::begin(dir.path(), 0);
            assert_eq!(again.incarnation(), 2_002, "the file was written anew");
        }
        assert_eq!(parse(good.as_bytes()), Some(Stored { incarnation: 77, view: 88 }));
    }

    #[test]
    fn a_quick_restart_without_memory_is_another_incarnation() {
        let nowhere = Path::new("/nonexistent/dlm");
        let at = |millis| State::begin_now(nowhere, Duration::from_millis(millis));
        let (one, other) = (at(1_796_000_000_000), at(1_796_000_000_010));
        assert!(other.incarnation() > one.incarnation());
        assert_eq!(one.last_view(), ViewId(1_796_000_000));
        // The year 2100.
        assert!(at(4_102_444_800_000).incarnation() < 1 << 40);
    }

    #[test]
    fn numbers_that_others_used_are_not_used_again() {
        let dir = TempDir::new("state-note");
        let mut first = State::begin(dir.path(), 10);
        first.note_view(ViewId(5));
        assert_eq!(first.last_view(), ViewId(10));
        first.note_view(ViewId(90_000));
        assert_eq!((first.last_view(), first.next_view()), (ViewId(90_000), ViewId(90_001)));
        assert!(State::begin(dir.path(), 10).last_view() >= ViewId(90_001));
    }

    #[test]
    fn a_missing_directory_costs_only_the_memory_of_restarts() {
        let mut state = State::begin(Path::new("/nonexistent/dlm"), 3_000);
        assert_eq!((state.incarnation(), state.next_view()), (3_001, ViewId(3_001)));
    }
}
