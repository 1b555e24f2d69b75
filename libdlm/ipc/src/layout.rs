//! The bytes of a page set (ipc.md section 2): offsets, entries, and their plain meaning.
//!
//! Entries consist of integers and byte arrays only, without padding, so every bit pattern is a
//! valid value: an entry is first copied out of the shared page, and the *copy* is judged.

use core::mem::{offset_of, size_of};
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

mod event;
mod submission;

pub use event::{BadEvent, Event, LostReason, Notice, Reply};
pub use submission::{BadSubmission, CallArgs, Operation, Submission, hint, op};

/// Bytes of a value block (semantics.md section 0).
pub const VALUE_BYTES: usize = 32;
/// Longest resource or lockspace name, in bytes.
pub const NAME_BYTES_MAX: usize = 64;
/// Bytes of the page header, and of each other block that lies on a cache line of its own.
pub const LINE_BYTES: usize = 64;
/// Where the lease and loss words are.
pub const LEASE_OFFSET: usize = 64;
/// Where it is said how long after the lease all is lost.
pub const NOTICE_OFFSET: usize = LEASE_OFFSET + 16;
/// Where the control words start, one per line.
pub const WORDS_OFFSET: usize = 128;
/// Where the rings start.
pub const RINGS_OFFSET: usize = 4096;
/// Most entries of a ring.
pub const RING_ENTRIES_MAX: u32 = 1 << 16;

/// Control words, by line behind [`WORDS_OFFSET`]: head, tail, sleeping of each ring, then `room`
/// of each.
pub(crate) const WORD_LINES: usize = 12;

const _: () = assert!(WORDS_OFFSET + WORD_LINES * LINE_BYTES <= RINGS_OFFSET);

/// The three rings, in page order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RingKind {
    /// Client to daemon.
    Submission = 0,
    /// Daemon to client: answers.
    Reply = 1,
    /// Daemon to client: completions and blocking callbacks.
    Event = 2,
}

/// How many entries the three rings have. Each a power of two, 2 to [`RING_ENTRIES_MAX`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Geometry {
    /// Submission entries.
    pub submissions: u32,
    /// Reply entries.
    pub replies: u32,
    /// Event entries.
    pub events: u32,
}

impl Geometry {
    /// What the daemon offers.
    pub const DEFAULT: Self = Self { submissions: 256, replies: 256, events: 1024 };

    /// Whether all three numbers are possible ones.
    pub const fn is_valid(&self) -> bool {
        const fn possible(entries: u32) -> bool {
            entries.is_power_of_two() && entries >= 2 && entries <= RING_ENTRIES_MAX
        }
        possible(self.submissions) && possible(self.replies) && possible(self.events)
    }

    /// Entries of a ring.
    pub const fn entries(&self, ring: RingKind) -> u32 {
        match ring {
            RingKind::Submission => self.submissions,
            RingKind::Reply => self.replies,
            RingKind::Event => self.events,
        }
    }

    /// Where a ring's entries start, in bytes.
    pub const fn offset(&self, ring: RingKind) -> usize {
        let replies = RINGS_OFFSET + self.submissions as usize * size_of::<Submission>();
        let events = replies + self.replies as usize * size_of::<Reply>();
        match ring {
            RingKind::Submission => RINGS_OFFSET,
            RingKind::Reply => replies,
            RingKind::Event => events,
        }
    }

    /// Size of the whole page set, in bytes.
    pub const fn bytes(&self) -> usize {
        self.offset(RingKind::Event) + self.events as usize * size_of::<Event>()
    }
}

const _: () = assert!(Geometry::DEFAULT.is_valid() && Geometry::DEFAULT.bytes() == 106_496);

/// The first line of a page set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct Header {
    /// [`MAGIC`](crate::MAGIC).
    pub magic: u32,
    /// [`LAYOUT_VERSION`](crate::LAYOUT_VERSION).
    pub version: u32,
    /// Submission entries.
    pub submissions: u32,
    /// Reply entries.
    pub replies: u32,
    /// Event entries.
    pub events: u32,
    /// The daemon's node id.
    pub node: u32,
}

const _: () = assert!(size_of::<Header>() == 24 && size_of::<Header>() <= LINE_BYTES);
const _: () = assert!(offset_of!(Header, submissions) == 8 && offset_of!(Header, node) == 20);

mod sealed {
    use super::{AtomicU64, Relaxed, size_of};

    /// An entry as whole 64-bit words, which is how it crosses the page: word-wise atomic copies
    /// are defined behaviour even while a hostile peer scribbles.
    pub trait Cells: Copy {
        /// Copies the entry out of the page.
        fn load(cells: &[AtomicU64]) -> Self;
        /// Copies the entry into the page.
        fn store(&self, cells: &[AtomicU64]);
    }

    macro_rules! cells {
        ($($entry:ty, $words:ident;)*) => { $(
            type $words = [u64; size_of::<$entry>() / 8];

            impl Cells for $entry {
                #[inline]
                fn load(cells: &[AtomicU64]) -> Self {
                    let mut words = $words::default();
                    for (word, cell) in words.iter_mut().zip(cells) {
                        // SYNC POINT: relaxed; ordered by the ring's tail (`published`).
                        *word = cell.load(Relaxed);
                    }
                    // SAFETY: same size; the entry consists of integers without padding, so that
                    // every bit pattern is a value of it.
                    unsafe { core::mem::transmute(words) }
                }

                #[inline]
                fn store(&self, cells: &[AtomicU64]) {
                    // SAFETY: same size; the entry has no padding: all its bytes are initialized.
                    let words = unsafe { core::mem::transmute::<Self, $words>(*self) };
                    for (word, cell) in words.iter().zip(cells) {
                        // SYNC POINT: relaxed; ordered by the ring's tail (`publish`).
                        cell.store(*word, Relaxed);
                    }
                }
            }
        )* };
    }

    cells! {
        super::Submission, SubmissionWords;
        super::Reply, ReplyWords;
        super::Event, EventWords;
    }
}

pub(crate) use sealed::Cells;

/// What a ring may consist of: the three entries of this module.
pub trait Entry: sealed::Cells {
    /// Which ring.
    const RING: RingKind;
}

impl Entry for Submission {
    const RING: RingKind = RingKind::Submission;
}

impl Entry for Reply {
    const RING: RingKind = RingKind::Reply;
}

impl Entry for Event {
    const RING: RingKind = RingKind::Event;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_are_those_of_the_page_table() {
        let g = Geometry::DEFAULT;
        assert_eq!(g.offset(RingKind::Submission), 4096);
        assert_eq!(g.offset(RingKind::Reply), 4096 + 128 * 256);
        assert_eq!(g.offset(RingKind::Event), 4096 + 128 * 256 + 16 * 256);
        assert_eq!(g.bytes(), 4096 + 128 * 256 + 16 * 256 + 64 * 1024);
    }

    #[test]
    fn impossible_geometries_are_refused() {
        let good = Geometry::DEFAULT;
        assert!(good.is_valid());
        for bad in [0, 1, 3, 255, RING_ENTRIES_MAX * 2, u32::MAX] {
            assert!(!Geometry { submissions: bad, ..good }.is_valid(), "{bad}");
            assert!(!Geometry { replies: bad, ..good }.is_valid(), "{bad}");
            assert!(!Geometry { events: bad, ..good }.is_valid(), "{bad}");
        }
        let largest = Geometry {
            submissions: RING_ENTRIES_MAX,
            replies: RING_ENTRIES_MAX,
            events: RING_ENTRIES_MAX,
        };
        assert!(largest.is_valid() && largest.bytes() < 1 << 24);
    }
}
