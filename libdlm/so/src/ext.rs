//! Our additions, `<dlm_ext.h>`.

use std::ffi::{c_char, c_int, c_uint, c_void};

use dlm_client::c::{self, Lksb, LockCall, Status};

use crate::boundary::{answer, bytes, put};
use crate::locks::{call, lock};

/// `DLMX_NO_TIMEOUT`.
const NO_TIMEOUT: u32 = u32::MAX;

/// The token of a lock's last grant.
///
/// # Safety
/// `token` is null or points to a place for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlmx_token(ls: *mut c_void, lkid: u32, token: *mut u64) -> c_int {
    answer(|| {
        let handle = c::handle(ls, libc::EINVAL)?;
        if lkid == 0 || token.is_null() {
            return Err(libc::EINVAL);
        }
        let (status, known) = c::status(&handle, lkid);
        known?;
        if status.token == 0 {
            return Err(libc::ENOENT);
        }
        // SAFETY: the caller's promise.
        unsafe { put(token, status.token) };
        Ok(0)
    })
}

/// What this process knows of a handle and a lock.
///
/// # Safety
/// `status` is null or points to a place for a status.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlmx_status(ls: *mut c_void, lkid: u32, status: *mut Status) -> c_int {
    answer(|| {
        let handle = c::handle(ls, libc::EINVAL)?;
        if status.is_null() {
            return Err(libc::EINVAL);
        }
        let (found, known) = c::status(&handle, lkid);
        // SAFETY: the caller's promise.
        unsafe { put(status, found) };
        known
    })
}

/// Has a callback called when the handle is lost.
///
/// # Safety
/// `callback` may be called with `arg` until it is taken back or the handle is closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlmx_set_loss_callback(
    ls: *mut c_void,
    callback: Option<unsafe extern "C" fn(*mut c_void, u32)>,
    arg: *mut c_void,
) -> c_int {
    answer(|| {
        c::set_loss_callback(&*c::handle(ls, libc::EINVAL)?, callback, arg);
        Ok(0)
    })
}

/// Takes or converts a lock and waits for the outcome, for a limited time.
///
/// # Safety
/// As `dlm_ls_lock_wait`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlmx_ls_lock_wait_timeout(
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
    timeout_ms: u32,
) -> c_int {
    let limit = (timeout_ms != NO_TIMEOUT).then_some(timeout_ms);
    let call = LockCall {
        ast_arg: bastarg,
        bast: bastaddr,
        range,
        wait: Some(limit),
        ..call(mode, lksb, flags, name, namelen)
    };
    // SAFETY: the caller's promise.
    unsafe { lock(&call, || c::handle(ls, libc::EINVAL)) }
}

/// Gives listings a text for the handle's locks.
///
/// # Safety
/// `text` is a C string or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlmx_set_label(ls: *mut c_void, text: *const c_char) -> c_int {
    answer(|| {
        let handle = c::handle(ls, libc::EINVAL)?;
        // SAFETY: the caller's promise.
        let label = unsafe { bytes(text)? };
        handle.set_label(label).map(|()| 0).map_err(|error| error.errno())
    })
}
