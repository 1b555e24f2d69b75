//! Lockspaces, descriptors, versions (libdlm-abi.md 2.2, 2.3, 2.6, 2.7).

use std::ffi::{c_char, c_int, c_void};
use std::sync::Arc;

use dlm_client::c::{self, Answer};
use dlm_client::{Error, Handle};

use crate::boundary::errno;
use crate::boundary::{answer, answer_handle, answer_number, answer_with_errno, bytes, put};

/// The version that programs compare with (libdlm-abi.md 2.7).
const VERSION: [u32; 3] = [6, 0, 2];
/// Longest lockspace name, `DLM_LOCKSPACE_LEN`.
const NAME_BYTES_MAX: usize = 64;
/// Permission bits of a lockspace created with mode 0: as the device node was made.
const MODE_UNSAID: u32 = 0o600;

/// Creates a lockspace, or raises its creation count.
///
/// # Safety
/// `name` is a C string or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlm_create_lockspace(
    name: *const c_char,
    mode: libc::mode_t,
) -> *mut c_void {
    // SAFETY: the caller's promise.
    answer_handle(|| unsafe { create(name, mode, 0) })
}

/// Creates a lockspace with flags.
///
/// # Safety
/// `name` is a C string or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlm_new_lockspace(
    name: *const c_char,
    mode: libc::mode_t,
    flags: u32,
) -> *mut c_void {
    // SAFETY: the caller's promise.
    answer_handle(|| unsafe { create(name, mode, flags) })
}

/// Opens a lockspace that exists.
///
/// # Safety
/// `name` is a C string or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlm_open_lockspace(name: *const c_char) -> *mut c_void {
    // SAFETY: the caller's promise.
    answer_handle(|| c::open(unsafe { lockspace_name(name)? }, None))
}

/// Closes a handle.
///
/// # Safety
/// None needed: a handle is looked up.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlm_close_lockspace(ls: *mut c_void) -> c_int {
    answer(|| close(&*c::handle(ls, libc::EINVAL)?))
}

/// Closes a handle and takes back one creation. A refusal is 0 with errno.
///
/// # Safety
/// None needed: a handle is looked up, the name is not used.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlm_release_lockspace(
    _name: *const c_char,
    ls: *mut c_void,
    force: c_int,
) -> c_int {
    let before = errno();
    answer_with_errno(|| match c::handle(ls, libc::EINVAL)?.release(force != 0) {
        Ok(()) => Ok(before),
        Err(Error::Refused(refusal)) => Ok(refusal.0),
        Err(error) => Err(error.errno()),
    })
}

/// The descriptor of a handle.
///
/// # Safety
/// None needed: a handle is looked up.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlm_ls_get_fd(ls: *mut c_void) -> c_int {
    answer_number(|| descriptor(&*c::handle(ls, libc::EINVAL)?))
}

/// The descriptor of the lockspace `default`, which is opened if need be.
///
/// # Safety
/// None needed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlm_get_fd() -> c_int {
    answer_number(|| descriptor(&*c::default_handle(true)?))
}

/// Delivers everything that is there.
///
/// # Safety
/// Callbacks and status blocks are what the program promised with its requests.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlm_dispatch(fd: c_int) -> c_int {
    answer(|| c::dispatch(fd))
}

/// The version of the lock service; -1 and nothing written if none answers.
///
/// # Safety
/// Each pointer is null or points to a place for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlm_kernel_version(
    maj: *mut u32,
    min: *mut u32,
    patch: *mut u32,
) -> c_int {
    answer(|| {
        dlm_client::probe().map_err(|error| error.errno())?;
        // SAFETY: the caller's promise.
        unsafe { put_version(maj, min, patch) };
        Ok(0)
    })
}

/// The version of this library.
///
/// # Safety
/// Each pointer is null or points to a place for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlm_library_version(maj: *mut u32, min: *mut u32, patch: *mut u32) {
    // SAFETY: the caller's promise.
    unsafe { put_version(maj, min, patch) };
}

unsafe fn create(name: *const c_char, mode: libc::mode_t, flags: u32) -> Result<Arc<Handle>, i32> {
    let mode = if mode == 0 { MODE_UNSAID } else { mode };
    // SAFETY: the caller's promise.
    c::open(unsafe { lockspace_name(name)? }, Some((mode, flags)))
}

unsafe fn lockspace_name<'a>(name: *const c_char) -> Result<&'a [u8], i32> {
    // SAFETY: the caller's promise.
    let name = unsafe { bytes(name)? };
    if name.len() > NAME_BYTES_MAX { Err(libc::EINVAL) } else { Ok(name) }
}

fn close(handle: &Handle) -> Answer {
    handle.close().map(|()| 0).map_err(|error| error.errno())
}

fn descriptor(handle: &Handle) -> Result<c_int, i32> {
    handle.descriptor().map_err(|error| error.errno())
}

unsafe fn put_version(maj: *mut u32, min: *mut u32, patch: *mut u32) {
    for (to, number) in [maj, min, patch].into_iter().zip(VERSION) {
        // SAFETY: the caller's promise.
        unsafe { put(to, number) };
    }
}
