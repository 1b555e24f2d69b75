//! Locking (libdlm-abi.md 2.4).

use std::ffi::{c_int, c_uint, c_void};
use std::sync::Arc;

use dlm_client::Handle;
use dlm_client::c::{self, Answer, Library, Lksb, LockCall};

use crate::LIBRARY;
use crate::boundary::{answer, answer_with_errno};

const ENOTCONN: i32 = libc::ENOTCONN;
const LKF_WAIT: u32 = 0x8000_0000;

/// Asks for a lock, or converts one.
///
/// # Safety
/// As `<libdlm.h>` says: name, status block and value block are valid, the latter two until the
/// lock is gone; the callbacks may be called until then.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlm_ls_lock(
    ls: *mut c_void,
    mode: u32,
    lksb: *mut Lksb,
    flags: u32,
    name: *const c_void,
    namelen: c_uint,
    _parent: u32,
    astaddr: Option<unsafe extern "C" fn(*mut c_void)>,
    astarg: *mut c_void,
    bastaddr: Option<unsafe extern "C" fn(*mut c_void)>,
    range: *mut c_void,
) -> c_int {
    let call = LockCall {
        ast: astaddr,
        ast_arg: astarg,
        bast: bastaddr,
        range,
        ..call(mode, lksb, flags, name, namelen)
    };
    // SAFETY: the caller's promise.
    unsafe { lock(&call, || c::handle(ls, libc::EINVAL)) }
}

/// As [`dlm_ls_lock`], in the lockspace `default`.
///
/// # Safety
/// As [`dlm_ls_lock`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlm_lock(
    mode: u32,
    lksb: *mut Lksb,
    flags: u32,
    name: *const c_void,
    namelen: c_uint,
    _parent: u32,
    astaddr: Option<unsafe extern "C" fn(*mut c_void)>,
    astarg: *mut c_void,
    bastaddr: Option<unsafe extern "C" fn(*mut c_void)>,
    range: *mut c_void,
) -> c_int {
    let call = LockCall {
        ast: astaddr,
        ast_arg: astarg,
        bast: bastaddr,
        range,
        ..call(mode, lksb, flags, name, namelen)
    };
    // SAFETY: the caller's promise.
    unsafe { lock(&call, || c::default_handle(true)) }
}

/// As [`dlm_ls_lock`], with transaction id and time limit (D12), or to adopt an orphan.
///
/// # Safety
/// As [`dlm_ls_lock`]; `xid` and `timeout` are null or point to numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlm_ls_lockx(
    ls: *mut c_void,
    mode: u32,
    lksb: *mut Lksb,
    flags: u32,
    name: *const c_void,
    namelen: c_uint,
    _parent: u32,
    astaddr: Option<unsafe extern "C" fn(*mut c_void)>,
    astarg: *mut c_void,
    bastaddr: Option<unsafe extern "C" fn(*mut c_void)>,
    xid: *mut u64,
    timeout: *mut u64,
) -> c_int {
    // SAFETY: the caller's promise.
    let (xid, timeout_cs) = unsafe { (number(xid), number(timeout)) };
    let call = LockCall {
        ast: astaddr,
        ast_arg: astarg,
        bast: bastaddr,
        xid,
        timeout_cs,
        ..call(mode, lksb, flags, name, namelen)
    };
    // SAFETY: the caller's promise.
    unsafe { lock(&call, || c::handle(ls, libc::EINVAL)) }
}

/// Takes or converts a lock and waits for the outcome.
///
/// # Safety
/// As [`dlm_ls_lock`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlm_ls_lock_wait(
    ls: *mut c_void,
    mode: u32,
    lksb: *mut Lksb,
    flags: u32,
    name: *const c_void,
    namelen: c_uint,
    _parent: u32,
    bastarg: *mut c_void,
    bastaddr: Option<unsafe extern "C" fn(*mut c_void)>,
    range: *mut c_void,
) -> c_int {
    let call = LockCall {
        ast_arg: bastarg,
        bast: bastaddr,
        range,
        wait: Some(None),
        ..call(mode, lksb, flags, name, namelen)
    };
    // SAFETY: the caller's promise.
    unsafe { lock(&call, || c::handle(ls, libc::EINVAL)) }
}

/// As [`dlm_ls_lock_wait`], in the lockspace `default`.
///
/// # Safety
/// As [`dlm_ls_lock`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlm_lock_wait(
    mode: u32,
    lksb: *mut Lksb,
    flags: u32,
    name: *const c_void,
    namelen: c_uint,
    _parent: u32,
    bastarg: *mut c_void,
    bastaddr: Option<unsafe extern "C" fn(*mut c_void)>,
    range: *mut c_void,
) -> c_int {
    let call = LockCall {
        ast_arg: bastarg,
        bast: bastaddr,
        range,
        wait: Some(None),
        ..call(mode, lksb, flags, name, namelen)
    };
    // SAFETY: the caller's promise.
    unsafe { lock(&call, || c::default_handle(true)) }
}

/// Unlocks, or cancels.
///
/// # Safety
/// The status block is valid until the lock is gone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlm_ls_unlock(
    ls: *mut c_void,
    lkid: u32,
    flags: u32,
    lksb: *mut Lksb,
    astarg: *mut c_void,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { unlock(|| c::handle(ls, ENOTCONN), lkid, flags, lksb, astarg, false) }
}

/// As [`dlm_ls_unlock`], in the lockspace `default`, which it does not open.
///
/// # Safety
/// As [`dlm_ls_unlock`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlm_unlock(
    lkid: u32,
    flags: u32,
    lksb: *mut Lksb,
    astarg: *mut c_void,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { unlock(|| c::default_handle(false), lkid, flags, lksb, astarg, false) }
}

/// Unlocks, or cancels, and waits for the outcome.
///
/// # Safety
/// As [`dlm_ls_unlock`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlm_ls_unlock_wait(
    ls: *mut c_void,
    lkid: u32,
    flags: u32,
    lksb: *mut Lksb,
) -> c_int {
    let nothing = std::ptr::null_mut();
    // SAFETY: the caller's promise.
    unsafe { unlock(|| c::handle(ls, ENOTCONN), lkid, flags, lksb, nothing, true) }
}

/// As [`dlm_ls_unlock_wait`], in the lockspace `default`, which it does not open.
///
/// # Safety
/// As [`dlm_ls_unlock`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlm_unlock_wait(lkid: u32, flags: u32, lksb: *mut Lksb) -> c_int {
    let nothing = std::ptr::null_mut();
    // SAFETY: the caller's promise.
    unsafe { unlock(|| c::default_handle(false), lkid, flags, lksb, nothing, true) }
}

/// Cancels; the completion says EDEADLK.
///
/// # Safety
/// None needed: a handle is looked up.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlm_ls_deadlock_cancel(ls: *mut c_void, lkid: u32, flags: u32) -> c_int {
    answer(|| c::deadlock_cancel(&*c::handle(ls, ENOTCONN)?, lkid, flags))
}

/// Removes orphans.
///
/// # Safety
/// None needed: a handle is looked up.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlm_ls_purge(ls: *mut c_void, nodeid: c_int, pid: c_int) -> c_int {
    answer(|| c::purge(&*c::handle(ls, ENOTCONN)?, nodeid, pid))
}

/// What all lock calls have.
pub(crate) fn call(
    mode: u32,
    lksb: *mut Lksb,
    flags: u32,
    name: *const c_void,
    namelen: c_uint,
) -> LockCall {
    let nothing = std::ptr::null_mut();
    LockCall {
        mode,
        lksb,
        flags,
        name,
        namelen,
        ast: None,
        ast_arg: nothing,
        bast: None,
        range: nothing,
        xid: 0,
        timeout_cs: 0,
        wait: None,
    }
}

/// Any lock call.
///
/// # Safety
/// As [`dlm_ls_lock`].
pub(crate) unsafe fn lock(
    call: &LockCall,
    handle: impl FnOnce() -> Result<Arc<Handle>, i32>,
) -> c_int {
    let waits = call.wait.is_some() || call.flags & LKF_WAIT != 0;
    // SAFETY: the caller's promise.
    answered(waits, || unsafe { c::lock(LIBRARY, handle, call) })
}

unsafe fn unlock(
    handle: impl FnOnce() -> Result<Arc<Handle>, i32>,
    lkid: u32,
    flags: u32,
    lksb: *mut Lksb,
    astarg: *mut c_void,
    wait: bool,
) -> c_int {
    let waits = wait || flags & LKF_WAIT != 0;
    // SAFETY: the caller's promise.
    let call = || unsafe { c::unlock(LIBRARY, handle()?, lkid, flags, lksb, astarg, wait) };
    answered(waits, call)
}

/// Waiting calls of libdlm_lt leave the status in errno, also when it is good (2.5).
fn answered(waits: bool, call: impl FnOnce() -> Answer) -> c_int {
    if waits && LIBRARY == Library::Plain { answer_with_errno(call) } else { answer(call) }
}

unsafe fn number(from: *const u64) -> u64 {
    // SAFETY: the caller's promise: null or a number.
    if from.is_null() { 0 } else { unsafe { from.read() } }
}
