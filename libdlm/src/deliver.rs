//! What a delivered event does to the program (libdlm-abi.md 2.1, "what a dispatched event does").

use std::sync::Arc;

use dlm_core::{Mode, SbFlags};

use crate::Error;
use crate::event::{Completion, LockEvent, LockRef, Value};
use crate::table::{Addresses, Lksb, Target};
use crate::wait::{Outcome, Waiter};

/// An event taken by a thread, with all that is needed to deliver it without any lock held.
pub(crate) struct Delivery {
    pub(crate) word: u64,
    pub(crate) lkid: u32,
    pub(crate) target: Target,
    pub(crate) what: What,
    /// The waiting calls that this completion ends.
    pub(crate) waiters: Vec<Arc<Waiter>>,
    /// The lock's runner before: this thread, if it delivers from inside a callback of the same
    /// lock.
    pub(crate) outer_runner: usize,
}

#[derive(Clone, Copy)]
pub(crate) enum What {
    Completion { status: i32, sb_flags: u8, granted: Option<u8>, value: Option<Value>, token: u64 },
    Blocking { mode: Mode },
    Refused { errno: i32 },
}

impl Delivery {
    /// Whether delivering runs code of the program.
    pub(crate) fn has_callback(&self) -> bool {
        self.target.has_callback(matches!(self.what, What::Blocking { .. }))
    }

    /// Writes the status block and calls the callback. No lock may be held.
    pub(crate) fn run(&self) {
        match &self.target {
            Target::Block(to) => self.run_block(to),
            Target::Function { function, .. } if self.has_callback() => {
                if let Some(event) = self.event() {
                    function(event);
                }
            }
            _ => {}
        }
        let What::Completion { status, sb_flags, .. } = self.what else { return };
        let told = match self.target {
            Target::Block(to) => to.lksb,
            _ => std::ptr::null_mut(),
        };
        // Calls that wait for the same lock with other status blocks end too.
        for other in self.waiters.iter().map(|waiter| waiter.lksb()).filter(|lksb| *lksb != told) {
            // SAFETY: its owner waits for this completion, inside a call that got this status
            // block.
            unsafe { write_lksb(other, status, self.lkid, sb_flags) };
        }
    }

    /// The event as a Rust program is told.
    pub(crate) fn event(&self) -> Option<LockEvent> {
        let lock = LockRef { id: self.lkid, word: self.word };
        Some(match self.what {
            What::Completion { status, sb_flags, granted, value, token } => {
                let granted = granted.and_then(Mode::from_number);
                let flags = SbFlags(sb_flags);
                LockEvent::Completed(Completion { lock, status, flags, granted, value, token })
            }
            What::Blocking { mode } => LockEvent::Blocking { lock, mode },
            What::Refused { errno } => {
                LockEvent::Refused { lock, error: Error::Refused(dlm_core::Errno(errno)) }
            }
        })
    }

    /// What a waiting call is told.
    pub(crate) fn completion(&self) -> Outcome {
        match self.event() {
            Some(LockEvent::Completed(completion)) => Outcome::Completed(completion),
            _ => Outcome::Nothing,
        }
    }

    fn run_block(&self, to: &Addresses) {
        let (callback, arg) = match self.what {
            What::Completion { status, sb_flags, value, .. } => {
                // SAFETY: the program keeps the block until the lock is gone (libdlm.h).
                unsafe {
                    write_value(to.lksb, value.as_ref());
                    write_lksb(to.lksb, status, self.lkid, sb_flags);
                }
                (to.ast, to.ast_arg)
            }
            What::Blocking { .. } => {
                // The original writes the block for blocking callbacks too, and from Linux 6.12 on
                // with status and flags 0, whatever the completion before said (libdlm-abi.md 2.1).
                // SAFETY: as above.
                unsafe { write_lksb(to.lksb, 0, self.lkid, 0) };
                (to.bast, to.bast_arg)
            }
            What::Refused { .. } => return,
        };
        if let Some(callback) = callback {
            // SAFETY: the program gave the callback to be called with this argument.
            unsafe { callback.call(arg) };
        }
    }
}

/// Writes the first 16 bytes of a status block: status, id, flags and the padding behind them. The
/// status comes last, for programs that watch it from another thread.
///
/// # Safety
/// `lksb` is null or points to a status block of the program.
pub(crate) unsafe fn write_lksb(lksb: *mut Lksb, status: i32, lkid: u32, flags: u8) {
    if lksb.is_null() {
        return;
    }
    // SAFETY: the caller's promise; 8 to 15 are flags and padding. Volatile and the fence because
    // programs look at these words while we write.
    unsafe {
        let mut bytes = [0u8; 8];
        bytes[0] = flags;
        lksb.cast::<[u8; 8]>().add(1).write_volatile(bytes);
        (&raw mut (*lksb).lkid).write_volatile(lkid);
        // SYNC POINT: release; pairs with whatever the program uses when it sees the status.
        std::sync::atomic::fence(std::sync::atomic::Ordering::Release);
        (&raw mut (*lksb).status).write_volatile(status);
    }
}

/// Copies a value block to where the status block says, if there is one and it says so.
///
/// # Safety
/// As [`write_lksb`]; its `sb_lvbptr` is null or points to 32 bytes.
unsafe fn write_value(lksb: *mut Lksb, value: Option<&Value>) {
    let Some(value) = value.filter(|_| !lksb.is_null()) else { return };
    // SAFETY: the caller's promise.
    unsafe {
        let to = (*lksb).lvbptr;
        if !to.is_null() {
            std::ptr::copy_nonoverlapping(value.as_ptr(), to.cast::<u8>(), value.len());
        }
    }
}
