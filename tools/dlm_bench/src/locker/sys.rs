//! The C library, loaded while running: what a C program would call, and nothing else.
//!
//! Prototypes, the layout of the status block and the return rules are those of libdlm-abi.md 1.3,
//! 2.4, 2.5.

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::ptr::null_mut;

/// The C library's exclusive mode.
const LKM_EXMODE: u32 = 5;

/// Status of a lock that was unlocked.
const EUNLOCK: c_int = 0x10002;

/// `struct dlm_lksb`.
#[repr(C)]
struct Lksb {
    status: c_int,
    lkid: u32,
    flags: c_char,
    lvb: *mut c_char,
}

type Callback = Option<unsafe extern "C" fn(*mut c_void)>;
type Create = unsafe extern "C" fn(*const c_char, libc::mode_t) -> *mut c_void;
type Close = unsafe extern "C" fn(*mut c_void) -> c_int;
type LockWait = unsafe extern "C" fn(
    *mut c_void,
    u32,
    *mut Lksb,
    u32,
    *const c_void,
    c_uint,
    u32,
    *mut c_void,
    Callback,
    *mut c_void,
) -> c_int;
type UnlockWait = unsafe extern "C" fn(*mut c_void, u32, u32, *mut Lksb) -> c_int;

/// A lockspace handle of the C library, with one lock at a time.
pub(crate) struct CHandle {
    lock_wait: LockWait,
    unlock_wait: UnlockWait,
    close: Close,
    handle: *mut c_void,
    /// Boxed: the library keeps its address while a request is pending.
    lksb: Box<Lksb>,
}

impl CHandle {
    /// Loads `library` and creates or opens `lockspace`.
    pub(crate) fn open(library: &Path, lockspace: &CStr) -> io::Result<Self> {
        let path = CString::new(library.as_os_str().as_bytes())?;
        // SAFETY: a NUL-terminated path; the library's constructors are those of our own library.
        let loaded = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW) };
        if loaded.is_null() {
            let message = format!("cannot load {}: {}", library.display(), dl_error());
            return Err(io::Error::other(message));
        }
        // SAFETY: the types are the prototypes of these symbols, libdlm-abi.md 2.2 and 2.4, and a
        // pointer to a function has the size of the pointer that dlsym returns.
        let (create, close, lock_wait, unlock_wait) = unsafe {
            (
                std::mem::transmute::<*mut c_void, Create>(symbol(
                    loaded,
                    c"dlm_create_lockspace",
                )?),
                std::mem::transmute::<*mut c_void, Close>(symbol(loaded, c"dlm_close_lockspace")?),
                std::mem::transmute::<*mut c_void, LockWait>(symbol(loaded, c"dlm_ls_lock_wait")?),
                std::mem::transmute::<*mut c_void, UnlockWait>(symbol(
                    loaded,
                    c"dlm_ls_unlock_wait",
                )?),
            )
        };
        // SAFETY: the name is NUL-terminated.
        let handle = unsafe { create(lockspace.as_ptr(), 0o600) };
        if handle.is_null() {
            return Err(io::Error::last_os_error());
        }
        let lksb = Box::new(Lksb { status: 0, lkid: 0, flags: 0, lvb: null_mut() });
        Ok(Self { lock_wait, unlock_wait, close, handle, lksb })
    }

    /// `dlm_ls_lock_wait` in EX.
    pub(crate) fn lock(&mut self, name: &[u8]) -> io::Result<()> {
        let length = name.len() as c_uint;
        // SAFETY: the handle is open, the status block lives in its box until the call returns, and
        // the name has `length` bytes.
        let result = unsafe {
            (self.lock_wait)(
                self.handle,
                LKM_EXMODE,
                &mut *self.lksb,
                0,
                name.as_ptr().cast(),
                length,
                0,
                null_mut(),
                None,
                null_mut(),
            )
        };
        self.check(result, 0)
    }

    /// `dlm_ls_unlock_wait`.
    pub(crate) fn unlock(&mut self) -> io::Result<()> {
        let lkid = self.lksb.lkid;
        // SAFETY: as in `lock`.
        let result = unsafe { (self.unlock_wait)(self.handle, lkid, 0, &mut *self.lksb) };
        self.check(result, EUNLOCK)
    }

    fn check(&self, result: c_int, wanted: c_int) -> io::Result<()> {
        if result != 0 {
            return Err(io::Error::last_os_error());
        }
        match self.lksb.status {
            status if status == wanted => Ok(()),
            status => Err(io::Error::other(format!("a lock call ended with status {status:#x}"))),
        }
    }
}

impl Drop for CHandle {
    fn drop(&mut self) {
        // SAFETY: the handle is open and used by nobody after this.
        unsafe { (self.close)(self.handle) };
    }
}

/// The address of `name` in a loaded library; never null.
fn symbol(library: *mut c_void, name: &CStr) -> io::Result<*mut c_void> {
    // SAFETY: a handle that dlopen returned, and a NUL-terminated name.
    let address = unsafe { libc::dlsym(library, name.as_ptr()) };
    if address.is_null() { Err(io::Error::other(dl_error())) } else { Ok(address) }
}

/// The last error of dlopen or dlsym.
fn dl_error() -> String {
    // SAFETY: dlerror returns null or a NUL-terminated string that lives until the next such call.
    unsafe {
        let text = libc::dlerror();
        if text.is_null() {
            return "no reason given".to_owned();
        }
        CStr::from_ptr(text).to_string_lossy().into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_block_is_that_of_the_header() {
        assert_eq!(size_of::<Lksb>(), 24);
        assert_eq!(std::mem::offset_of!(Lksb, lkid), 4);
        assert_eq!(std::mem::offset_of!(Lksb, flags), 8);
        assert_eq!(std::mem::offset_of!(Lksb, lvb), 16);
    }

    #[test]
    fn a_missing_library_is_an_error_that_names_it() {
        let error = CHandle::open(Path::new("/nonexistent/lib.so"), c"x").err().unwrap();
        assert!(error.to_string().contains("/nonexistent/lib.so"));
    }

    #[test]
    fn a_library_without_our_calls_is_refused() {
        let error = CHandle::open(Path::new("libm.so.6"), c"x").err().unwrap();
        assert!(error.to_string().contains("dlm_create_lockspace"));
    }
}
