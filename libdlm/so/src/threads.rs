//! The helper thread, and the two calls that do everything (libdlm-abi.md 2.4, 2.6).

use std::ffi::{c_char, c_int, c_void};
use std::ptr::null_mut;
use std::sync::Arc;

use dlm_client::c::{self, Answer, Lksb, LockCall};
use dlm_client::{Error, Handle};

use crate::LIBRARY;
use crate::boundary::{answer, answer_number, answer_with_errno, bytes, put};
use crate::locks::call;

/// `LKF_CONVERT`: the only flag with which `*lockid` is read.
const LKF_CONVERT: u32 = 0x4;

/// Starts the helper thread of the lockspace `default`, which is opened if need be.
///
/// # Safety
/// Callbacks given with requests may be called on that thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlm_pthread_init() -> c_int {
    answer(|| {
        let handle = c::default_handle(true)?;
        handle.start_helper().map(|()| 0).map_err(|error| {
            if error.errno() != libc::EEXIST {
                c::forget_default();
            }
            error.errno()
        })
    })
}

/// Starts the helper thread of a handle. That no thread can be made is the positive error number.
///
/// # Safety
/// As [`dlm_pthread_init`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlm_ls_pthread_init(ls: *mut c_void) -> c_int {
    answer_number(|| match c::handle(ls, libc::EINVAL)?.start_helper() {
        Ok(()) => Ok(0),
        Err(Error::System(errno)) if errno != libc::EEXIST => Ok(errno),
        Err(error) => Err(error.errno()),
    })
}

/// Closes the lockspace `default`, if it is open.
///
/// # Safety
/// None needed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlm_pthread_cleanup() -> c_int {
    answer(|| {
        c::forget_default();
        Ok(0)
    })
}

/// Takes or converts a lock in the lockspace `default`, and waits for it.
///
/// # Safety
/// `resource` is a C string or null; `lockid` is null or points to a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lock_resource(
    resource: *const c_char,
    mode: c_int,
    flags: c_int,
    lockid: *mut c_int,
) -> c_int {
    // SAFETY: the caller's promise.
    answer(|| unsafe { lock_named(resource, mode as u32, flags as u32, lockid) })
}

/// Unlocks what [`lock_resource`] locked, and waits for it.
///
/// # Safety
/// None needed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unlock_resource(lockid: c_int) -> c_int {
    answer_with_errno(|| {
        let handle = c::default_handle(false)?;
        let mut lksb = Lksb { status: 0, lkid: lockid as u32, flags: 0, lvbptr: null_mut() };
        // SAFETY: the status block outlives the call; the lock is gone after it, or unknown to us.
        unsafe { c::unlock(LIBRARY, handle, lockid as u32, 0, &raw mut lksb, null_mut(), true)? };
        match lksb.status {
            dlm_client::EUNLOCK => Ok(lksb.status),
            status => Err(status),
        }
    })
}

unsafe fn lock_named(resource: *const c_char, mode: u32, flags: u32, lockid: *mut c_int) -> Answer {
    let handle = default_with_helper()?;
    if lockid.is_null() {
        return Err(libc::EINVAL);
    }
    let converts = flags & LKF_CONVERT != 0;
    // SAFETY: the caller's promise.
    let (name, before) = unsafe { (bytes(resource)?, lockid.read()) };
    let lkid = if converts { before as u32 } else { 0 };
    let mut lksb = Lksb { status: 0, lkid, flags: 0, lvbptr: null_mut() };
    let (start, len) = (name.as_ptr().cast::<c_void>(), name.len() as u32);
    let request = LockCall { wait: Some(None), ..call(mode, &raw mut lksb, flags, start, len) };
    // SAFETY: the status block outlives the call, and is forgotten below.
    let asked = unsafe { c::lock(LIBRARY, || Ok(Arc::clone(&handle)), &request) };
    c::forget_block(&handle, lksb.lkid);
    if asked.is_ok() || lksb.status != dlm_client::EINPROG {
        // SAFETY: the caller's promise.
        unsafe { put(lockid, lksb.lkid as c_int) };
    }
    asked?;
    if lksb.status == 0 { Ok(0) } else { Err(lksb.status) }
}

fn default_with_helper() -> Result<Arc<Handle>, i32> {
    let handle = c::default_handle(true)?;
    match handle.start_helper() {
        Ok(()) => Ok(handle),
        Err(error) if error.errno() == libc::EEXIST => Ok(handle),
        Err(error) => Err(error.errno()),
    }
}
