//! One page set: a sealed memory file, mapped whole by both sides (ipc.md section 2).
//!
//! Invariant: every access goes through `word`, `long` or `cells` below, which check the
//! bounds and hand out *atomics* only. So there is no moment at which a scribbling peer makes a
//! reference of ours lie, and the seals keep the file under the mapping.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU32, AtomicU64};

use memmap2::{MmapOptions, MmapRaw};

use crate::layout::{
    Geometry, Header, LEASE_OFFSET, LINE_BYTES, LostReason, NOTICE_OFFSET, RINGS_OFFSET, RingKind,
    WORD_LINES, WORDS_OFFSET,
};
use crate::rule::Words;
use crate::{LAYOUT_VERSION, MAGIC, sys};

/// Lease word of a page set whose locks need no lease.
pub const NO_LEASE: u64 = u64::MAX;

/// A mapped page set. Shared by the rings on it through an `Arc`.
#[derive(Debug)]
pub struct Page {
    map: MmapRaw,
    geometry: Geometry,
    node: u32,
}

/// Why a received page set is refused.
#[derive(Debug, thiserror::Error)]
pub enum PageError {
    /// A system call failed.
    #[error("the pages cannot be mapped: {0}")]
    Io(#[from] io::Error),
    /// The file may change its size under the mapping.
    #[error("the pages are not sealed; the process behind the socket is no dlmd")]
    NotSealed,
    /// The file is not as long as its header says.
    #[error("{found} bytes of pages, not {expected}; dlmd and library must be of one version")]
    Size {
        /// Bytes of the file.
        found: u64,
        /// Bytes it should have.
        expected: u64,
    },
    /// Another magic number or version.
    #[error("pages of version {version} ({magic:#x}); dlmd and library must be of one version")]
    Version {
        /// Magic found.
        magic: u32,
        /// Version found.
        version: u32,
    },
    /// Ring sizes that cannot be.
    #[error("the pages have impossible ring sizes; dlmd and this library must be of one version")]
    Geometry,
}

impl Page {
    /// Makes and maps a page set, and returns the memory file for the client.
    ///
    /// # Errors
    /// `InvalidInput` for impossible ring sizes; else the system has no memory or descriptor left.
    pub fn create(geometry: Geometry, node: u32) -> io::Result<(Self, OwnedFd)> {
        Self::create_named(geometry, node, c"dlm-rings")
    }

    /// As [`Page::create`]; the memory file bears this name in listings of who maps it.
    ///
    /// # Errors
    /// As [`Page::create`].
    pub fn create_named(geometry: Geometry, node: u32, name: &CStr) -> io::Result<(Self, OwnedFd)> {
        if !geometry.is_valid() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let file = sys::sealed_memfd(name, geometry.bytes())?;
        let map = MmapOptions::new().len(geometry.bytes()).map_raw(&file)?;
        let page = Self { map, geometry, node };
        let Geometry { submissions, replies, events } = geometry;
        let version = u32::from(LAYOUT_VERSION);
        for (i, value) in [MAGIC, version, submissions, replies, events, node].iter().enumerate() {
            // SYNC POINT: relaxed; the client maps the page after a message that orders everything.
            page.word(i * 4).store(*value, Relaxed);
        }
        page.set_lease_until(NO_LEASE);
        Ok((page, file))
    }

    /// Maps a received page set after checking seals, size, magic number, version and ring sizes.
    ///
    /// # Errors
    /// One of the checks failed, or the file cannot be mapped.
    pub fn open(file: &OwnedFd) -> Result<Self, PageError> {
        if !sys::size_is_sealed(file.as_fd()).unwrap_or(false) {
            return Err(PageError::NotSealed);
        }
        let found = sys::file_bytes(file.as_fd())?;
        let largest = Geometry::DEFAULT.bytes() as u64 * 256;
        let expected = RINGS_OFFSET as u64;
        let len = usize::try_from(found).ok().filter(|_| (expected..=largest).contains(&found));
        let len = len.ok_or(PageError::Size { found, expected })?;
        let map = MmapOptions::new().len(len).map_raw(file)?;
        let mut page = Self { map, geometry: Geometry::DEFAULT, node: 0 };
        let header = page.header();
        if header.magic != MAGIC || header.version != u32::from(LAYOUT_VERSION) {
            return Err(PageError::Version { magic: header.magic, version: header.version });
        }
        let Header { submissions, replies, events, .. } = header;
        let geometry = Geometry { submissions, replies, events };
        if !geometry.is_valid() {
            return Err(PageError::Geometry);
        }
        if geometry.bytes() != len {
            return Err(PageError::Size { found, expected: geometry.bytes() as u64 });
        }
        (page.geometry, page.node) = (geometry, header.node);
        Ok(page)
    }

    /// Ring sizes, as agreed when the page set was made; never read from the page again.
    pub fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// The daemon's node id.
    pub fn node(&self) -> u32 {
        self.node
    }

    /// Until when completions may be believed: nanoseconds of CLOCK_BOOTTIME, or [`NO_LEASE`].
    pub fn lease_until(&self) -> u64 {
        // SYNC POINT: acquire; pairs with the release in `set_lease_until`.
        self.long(LEASE_OFFSET).load(Acquire)
    }

    /// Daemon: sets the lease.
    pub fn set_lease_until(&self, nanos: u64) {
        // SYNC POINT: release; pairs with the acquire in `lease_until`.
        self.long(LEASE_OFFSET).store(nanos, Release);
    }

    /// When everything is lost unless the lease was renewed before, on the same clock; or
    /// [`NO_LEASE`].
    pub fn lost_at(&self) -> u64 {
        // SYNC POINT: acquire; pairs with the release in `set_lease_notice`. The word changes only
        // before the client maps the page.
        self.lease_until().saturating_add(self.long(NOTICE_OFFSET).load(Acquire))
    }

    /// Daemon, before the client has the page: how long after the end of its lease a node may still
    /// come back.
    pub fn set_lease_notice(&self, nanos: u64) {
        // SYNC POINT: release; pairs with the acquire in `lost_at`.
        self.long(NOTICE_OFFSET).store(nanos, Release);
    }

    /// Why the lockspace was lost; `None`: it was not.
    pub fn lost(&self) -> Option<LostReason> {
        // SYNC POINT: acquire; pairs with the release in `set_lost`.
        LostReason::from_number(self.word(LEASE_OFFSET + 8).load(Acquire))
    }

    /// Daemon: says that the lockspace is lost. Ring the event bell afterwards.
    pub fn set_lost(&self, reason: LostReason) {
        // SYNC POINT: release; pairs with the acquire in `lost`.
        self.word(LEASE_OFFSET + 8).store(reason as u32, Release);
    }

    /// The control words of a ring.
    #[inline]
    pub(crate) fn words(&self, ring: RingKind) -> Words<'_, AtomicU32> {
        let line = |number: usize| self.word(WORDS_OFFSET + number * LINE_BYTES);
        let first = ring as usize * 3;
        const { assert!(WORD_LINES == 12) };
        Words {
            head: line(first),
            tail: line(first + 1),
            sleeping: line(first + 2),
            room: line(9 + ring as usize),
        }
    }

    fn header(&self) -> Header {
        // SYNC POINT: relaxed; the page was filled before the message that brought it.
        let field = |i: usize| self.word(i * 4).load(Relaxed);
        Header {
            magic: field(0),
            version: field(1),
            submissions: field(2),
            replies: field(3),
            events: field(4),
            node: field(5),
        }
    }

    /// The 32-bit word at a byte offset.
    #[inline]
    pub(crate) fn word(&self, offset: usize) -> &AtomicU32 {
        assert!(
            offset.is_multiple_of(4) && offset < RINGS_OFFSET && RINGS_OFFSET <= self.map.len()
        );
        // SAFETY: in bounds and aligned (checked above; a mapping starts at a page). The mapping
        // lives as long as `self`, its file cannot shrink, and only atomics are ever made of it.
        unsafe { &*self.map.as_ptr().add(offset).cast::<AtomicU32>() }
    }

    /// `count` 64-bit words from a byte offset on.
    #[inline]
    pub(crate) fn cells(&self, offset: usize, count: usize) -> &[AtomicU64] {
        let end = offset.checked_add(count * 8);
        assert!(offset.is_multiple_of(8) && end.is_some_and(|end| end <= self.map.len()));
        // SAFETY: as in `word`.
        unsafe {
            std::slice::from_raw_parts(self.map.as_ptr().add(offset).cast::<AtomicU64>(), count)
        }
    }

    fn long(&self, offset: usize) -> &AtomicU64 {
        &self.cells(offset, 1)[0]
    }
}

#[cfg(test)]
mod tests;
