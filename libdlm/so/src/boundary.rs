//! Between C and Rust: errno, handles, names; and no panic goes out.
//!
//! A panic inside the library is a fault of ours that must not unwind into C: the call fails with
//! ENOTRECOVERABLE. Successful calls leave errno as it was, except where the original left the
//! status in it (waiting calls of libdlm_lt, release).

use std::ffi::{CStr, c_char, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use dlm_client::Handle;
use dlm_client::c::{self, Answer};

/// 0, or -1 with errno; errno stays on success.
pub(crate) fn answer(call: impl FnOnce() -> Answer) -> c_int {
    let before = errno();
    let (result, after) = match guarded(call) {
        Ok(_) => (0, before),
        Err(errno) => (-1, errno),
    };
    set_errno(after);
    result
}

/// 0 or -1, with errno in both cases.
pub(crate) fn answer_with_errno(call: impl FnOnce() -> Answer) -> c_int {
    let (result, after) = match guarded(call) {
        Ok(status) => (0, status),
        Err(errno) => (-1, errno),
    };
    set_errno(after);
    result
}

/// A handle, or NULL with errno.
pub(crate) fn answer_handle(call: impl FnOnce() -> Result<Arc<Handle>, i32>) -> *mut c_void {
    let before = errno();
    let (result, after) = match guarded(call) {
        Ok(handle) => (c::handle_value(&handle), before),
        Err(errno) => (std::ptr::null_mut(), errno),
    };
    set_errno(after);
    result
}

/// A number of its own, or -1 with errno.
pub(crate) fn answer_number(call: impl FnOnce() -> Result<c_int, i32>) -> c_int {
    let before = errno();
    let (result, after) = match guarded(call) {
        Ok(number) => (number, before),
        Err(errno) => (-1, errno),
    };
    set_errno(after);
    result
}

fn guarded<T>(call: impl FnOnce() -> Result<T, i32>) -> Result<T, i32> {
    // What a panic leaves behind is behind locks that do not poison, and consistent between calls.
    catch_unwind(AssertUnwindSafe(call)).unwrap_or(Err(libc::ENOTRECOVERABLE))
}

/// The bytes of a C string.
///
/// # Safety
/// `text` is null or a C string.
///
/// # Errors
/// EINVAL for null.
pub(crate) unsafe fn bytes<'a>(text: *const c_char) -> Result<&'a [u8], i32> {
    if text.is_null() {
        return Err(libc::EINVAL);
    }
    // SAFETY: the caller's promise.
    Ok(unsafe { CStr::from_ptr(text) }.to_bytes())
}

/// Writes through a pointer that may be null.
///
/// # Safety
/// `to` is null or points to a place for `value`.
pub(crate) unsafe fn put<T>(to: *mut T, value: T) {
    if !to.is_null() {
        // SAFETY: the caller's promise.
        unsafe { to.write(value) };
    }
}

pub(crate) fn errno() -> i32 {
    // SAFETY: the address is this thread's own, always valid.
    unsafe { *libc::__errno_location() }
}

pub(crate) fn set_errno(value: i32) {
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = value };
}
