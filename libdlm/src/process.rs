//! What belongs to one process: its handles, and the handle on the lockspace `default`.
//!
//! A handle belongs to the process that opened it (D19). A forked child must find *nothing* here:
//! it shares the parent's pages and descriptors, and touching them would corrupt the parent; even a
//! mutex may have been held at the moment of the fork. So the pointer to all this lives in a page
//! that the kernel zeroes in a forked child. A child's first call sees null and starts afresh, with
//! no handles; checking that costs a load, not a system call. Numbers of handles are never used
//! twice, also not by the child, so that a handle of the parent is unknown there: EBADF.

use std::collections::HashMap;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};

use parking_lot::{Mutex, RwLock};

use crate::handle::Handle;
use crate::sys;

/// Everything process-wide. Lives for ever, one per process.
pub(crate) struct Process {
    /// Whose it is; looked at only where the fork mark is not to be had.
    pid: u32,
    /// The forking process's own, never looked into; kept so that memory checkers find it referred
    /// to.
    _ancestor: usize,
    handles: RwLock<HashMap<u64, Arc<Handle>>>,
    descriptors: RwLock<HashMap<RawFd, u64>>,
    /// The handle on the lockspace `default`; held while it is being opened, so that first calls of
    /// many threads open it once.
    pub(crate) default: Mutex<Option<Arc<Handle>>>,
}

/// Number of the next handle. A child goes on counting where its parent was at the fork.
static NEXT: AtomicU64 = AtomicU64::new(1);

/// The page with the pointer to the current [`Process`]; null until first used.
static PAGE: AtomicPtr<AtomicUsize> = AtomicPtr::new(std::ptr::null_mut());

/// The newest [`Process`], in memory that a fork copies: only for `_ancestor`.
static NEWEST: AtomicUsize = AtomicUsize::new(0);

/// Stands in for the page on kernels that cannot zero one at a fork.
static NO_PAGE: AtomicUsize = AtomicUsize::new(0);

/// This process's own.
pub(crate) fn current() -> &'static Process {
    let word = word();
    loop {
        // SYNC POINT: acquire; pairs with the exchange below, whose process is complete by then.
        let found = word.load(Ordering::Acquire);
        if let Some(process) = known(word, found) {
            return process;
        }
        let ancestor = NEWEST.load(Ordering::Relaxed);
        let fresh = Box::into_raw(Box::new(Process::new(ancestor)));
        // SYNC POINT: release; pairs with the load above. Who loses takes the winner's.
        if word
            .compare_exchange(found, fresh as usize, Ordering::AcqRel, Ordering::Acquire)
            .is_err()
        {
            // SAFETY: made above, and seen by nobody else since the exchange failed.
            drop(unsafe { Box::from_raw(fresh) });
        } else {
            NEWEST.store(fresh as usize, Ordering::Relaxed);
        }
    }
}

fn known(word: &AtomicUsize, found: usize) -> Option<&'static Process> {
    // SAFETY: the word is 0 or comes from `Box::into_raw` in `current`, and is never freed.
    let process = unsafe { (found as *const Process).as_ref() }?;
    // Without the page a child still sees the parent's pointer: compare the process id instead.
    let foreign = std::ptr::eq(word, &raw const NO_PAGE) && process.pid != sys::this_process();
    (!foreign).then_some(process)
}

fn word() -> &'static AtomicUsize {
    // SYNC POINT: acquire; pairs with the exchange below.
    let page = PAGE.load(Ordering::Acquire);
    // SAFETY: null, or a reference that lives for ever.
    if let Some(word) = unsafe { page.as_ref() } {
        return word;
    }
    let made = std::ptr::from_ref(sys::fork_mark().unwrap_or(&NO_PAGE)).cast_mut();
    // SYNC POINT: release; pairs with the load above. A loser's page stays unused.
    let won = PAGE.compare_exchange(page, made, Ordering::AcqRel, Ordering::Acquire);
    // SAFETY: both are references that live for ever.
    unsafe { &*won.map_or_else(|winner| winner, |_| made) }
}

impl Process {
    fn new(ancestor: usize) -> Self {
        Self {
            pid: sys::this_process(),
            _ancestor: ancestor,
            handles: RwLock::default(),
            descriptors: RwLock::default(),
            default: Mutex::default(),
        }
    }

    /// A number for a handle about to be made.
    pub(crate) fn next_number() -> u64 {
        // SYNC POINT: relaxed; only uniqueness counts.
        NEXT.fetch_add(1, Ordering::Relaxed)
    }

    /// Makes a handle known under its number.
    pub(crate) fn register(&self, handle: &Arc<Handle>) {
        self.handles.write().insert(handle.number(), Arc::clone(handle));
    }

    /// Forgets a handle; `None`: it was unknown, or another thread was faster.
    pub(crate) fn forget(&self, number: u64) -> Option<Arc<Handle>> {
        self.descriptors.write().retain(|_, of| *of != number);
        self.handles.write().remove(&number)
    }

    /// The handle of a number, if this process opened it and has not closed it.
    pub(crate) fn handle(&self, number: u64) -> Option<Arc<Handle>> {
        self.handles.read().get(&number).cloned()
    }

    /// Notes which handle a descriptor given to the program belongs to.
    pub(crate) fn register_descriptor(&self, fd: RawFd, number: u64) {
        self.descriptors.write().insert(fd, number);
    }

    /// The handle a descriptor, or a duplicate of one, belongs to.
    pub(crate) fn handle_of_descriptor(&self, fd: RawFd) -> Option<Arc<Handle>> {
        let number = self.descriptors.read().get(&fd).copied();
        if let Some(number) = number {
            return self.handle(number);
        }
        sys::cookies_of(fd)?.into_iter().find_map(|cookie| self.handle(cookie))
    }
}
