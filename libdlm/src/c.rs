//! What the two C libraries have in common: the meaning of each call, without its C signature.
//!
//! Checks, their order and the errnos are those of libdlm-abi.md section 2; so are the differences
//! between the libraries ([`Library`], section 2.5). Hidden from the documentation: Rust programs
//! use [`Lockspace`](crate::Lockspace).
//!
//! Two accidents of the original are not copied: ENOSYS from lockx, purge and deadlock cancel before
//! the process has opened anything (its version was unknown then), and errno -107 from an unlock of
//! the unopened lockspace `default`, which is ENOTCONN here.

use std::ffi::{c_int, c_void};
use std::sync::Arc;
use std::time::{Duration, Instant};

use dlm_core::{Errno, LockFlags};
use dlm_ipc::layout::{CallArgs, LostReason, NAME_BYTES_MAX, Operation};

use crate::event::Value;
use crate::handle::{Handle, OpenArgs};
use crate::ops::{Asking, Which};
use crate::process;
use crate::state::Serve;
use crate::table::{Addresses, Code, Target};
pub use crate::table::{CCallback, Lksb};
use crate::wait::{Outcome, WaitFor, Waiter};
use crate::{ECANCEL, EINPROG, EUNLOCK, Error};

/// `LKF_WAIT`: handled here, never sent.
const LKF_WAIT: u32 = 0x8000_0000;
/// `DLM_LSFL_TIMEWARN`: accepted, never sent.
const LSFL_TIMEWARN: u32 = 0x2;

const EINVAL: i32 = Errno::EINVAL.0;
const ENOTCONN: i32 = Errno::ENOTCONN.0;
const EBADF: i32 = Errno::EBADF.0;

/// Which of the two libraries is asking.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Library {
    /// libdlm: waiting calls return 0 and leave the outcome in `sb_status`.
    Threads,
    /// libdlm_lt: waiting calls dispatch, and return -1 with the status as errno.
    Plain,
}

/// A result as C sees it: what is good leaves this errno, what is bad is -1 with that errno.
pub type Answer = Result<i32, i32>;

/// Arguments of a lock call.
#[derive(Clone, Copy, Debug)]
pub struct LockCall {
    /// Requested mode; its low 8 bits count.
    pub mode: u32,
    /// Status block.
    pub lksb: *mut Lksb,
    /// `LKF_` flags.
    pub flags: u32,
    /// Name, not used by conversions.
    pub name: *const c_void,
    /// Its length in bytes.
    pub namelen: u32,
    /// Completion callback; not used by calls that wait.
    pub ast: Option<CCallback>,
    /// Argument of `ast`, and of `bast` in calls that do not wait.
    pub ast_arg: *mut c_void,
    /// Blocking callback.
    pub bast: Option<CCallback>,
    /// Has to be null.
    pub range: *mut c_void,
    /// Transaction id.
    pub xid: u64,
    /// Time limit in centiseconds, with `LKF_TIMEOUT`.
    pub timeout_cs: u64,
    /// Waits for the outcome; with a limit in milliseconds.
    pub wait: Option<Option<u32>>,
}

/// The handle of a C handle.
///
/// # Errors
/// EBADF: this process did not open it, or has closed it (D19). NULL: the errno that the call has
/// for it.
pub fn handle(ls: *mut c_void, null: i32) -> Result<Arc<Handle>, i32> {
    if ls.is_null() {
        return Err(null);
    }
    process::current().handle(ls as u64 >> 4).ok_or(EBADF)
}

/// The C handle of a handle: a number that no other handle of this process or its ancestors has.
pub fn handle_value(handle: &Handle) -> *mut c_void {
    (handle.number() << 4) as *mut c_void
}

/// `dlm_new_lockspace` and, without `create` (mode, flags), `dlm_open_lockspace`.
///
/// # Errors
/// ENOTCONN, EINVAL, ENOENT, EEXIST, EACCES, EPERM, EUNATCH and others.
pub fn open(name: &[u8], create: Option<(u32, u32)>) -> Result<Arc<Handle>, i32> {
    let create = create.map(|(mode, flags)| (mode, flags & !LSFL_TIMEWARN));
    Handle::open(&OpenArgs { name, create, ..OpenArgs::default() }).map_err(|error| error.errno())
}

/// The handle on the lockspace `default`, which is opened, or else created with mode 0600, if
/// `make`.
///
/// # Errors
/// ENOTCONN if it is not open and not to be made; else as [`open`].
pub fn default_handle(make: bool) -> Result<Arc<Handle>, i32> {
    let mut slot = process::current().default.lock();
    if let Some(handle) = &*slot {
        return Ok(Arc::clone(handle));
    }
    if !make {
        return Err(ENOTCONN);
    }
    let opened = open(b"default", None).or_else(|errno| match errno {
        ENOTCONN => Err(ENOTCONN),
        _ => open(b"default", Some((0o600, 0))),
    })?;
    *slot = Some(Arc::clone(&opened));
    Ok(opened)
}

/// Closes and forgets the handle on the lockspace `default`, if there is one.
pub fn forget_default() {
    let handle = process::current().default.lock().take();
    if let Some(handle) = handle {
        // Closed by the program itself already: it is gone, as wanted.
        let _ = handle.close();
    }
}

/// `dlm_dispatch`: the descriptor of any open handle of this process, or a duplicate of one.
///
/// # Errors
/// EBADF, or ENOTRECOVERABLE once the handle is lost.
pub fn dispatch(fd: c_int) -> Answer {
    let handle = process::current().handle_of_descriptor(fd).ok_or(EBADF)?;
    handle.dispatch().map(|()| 0).map_err(|error| error.errno())
}

/// All lock calls.
///
/// # Safety
/// Status block, name and value block are what the C interface says, and callbacks may be called
/// with their arguments until the lock is gone.
///
/// # Errors
/// See libdlm-abi.md 2.1 and 2.4.
pub unsafe fn lock(
    library: Library,
    handle: impl FnOnce() -> Result<Arc<Handle>, i32>,
    call: &LockCall,
) -> Answer {
    if !call.range.is_null() {
        return Err(libc::ENOSYS);
    }
    let handle = handle()?;
    let converts = call.flags & LockFlags::CONVERT.0 != 0;
    let long = call.namelen as usize > NAME_BYTES_MAX;
    let nameless = call.name.is_null() && call.namelen > 0;
    if call.lksb.is_null() || !converts && (long || nameless) {
        return Err(EINVAL);
    }
    // SAFETY: the caller's promise about the status block.
    let value = unsafe { value_of(call.lksb, call.flags) };
    if call.flags & LockFlags::VALBLK.0 != 0 && value.is_none() {
        return Err(EINVAL);
    }
    // SAFETY: the caller's promise about the status block.
    let lkid = unsafe {
        (*call.lksb).status = EINPROG;
        (*call.lksb).lkid
    };
    let waits = call.wait.is_some() || call.flags & LKF_WAIT != 0;
    if long || !waits && call.ast.is_none() {
        return Err(EINVAL);
    }
    let name = if converts || call.namelen == 0 {
        &[]
    } else {
        // SAFETY: the caller's promise about the name.
        unsafe { std::slice::from_raw_parts(call.name.cast::<u8>(), call.namelen as usize) }
    };
    let which = converts.then_some(Which::Id(lkid));
    lock_checked(library, &handle, call, name, which, value.as_ref(), waits)
}

fn lock_checked(
    library: Library,
    handle: &Handle,
    call: &LockCall,
    name: &[u8],
    convert: Option<Which>,
    value: Option<&Value>,
    waits: bool,
) -> Answer {
    let limit_ms = call.wait.flatten();
    let bast = Code::new(call.bast);
    let ast = if waits { None } else { Code::new(call.ast) };
    let arg = call.ast_arg;
    let target = Addresses { lksb: call.lksb, ast, ast_arg: arg, bast, bast_arg: arg };
    let mut args = CallArgs {
        mode: call.mode as u8,
        flags: call.flags & !LKF_WAIT,
        user: 0,
        xid: call.xid,
        timeout_cs: call.timeout_cs,
        wants_blocking: bast.is_some(),
    };
    if let Some(limit) = limit_ms {
        args.flags |= LockFlags::TIMEOUT.0;
        args.timeout_cs = u64::from(limit).div_ceil(10).max(1);
    }
    let waiter = waits.then(|| Waiter::new(serve(library, handle), WaitFor::Operation, call.lksb));
    let deadline = limit_ms.map(|limit| Instant::now() + Duration::from_millis(limit.into()));
    let asking = Asking { waiter: waiter.as_ref(), deadline };
    let target = Target::Block(target);
    let asked = match convert {
        Some(which) => handle.convert(which, args, value, |_| target, asking),
        None => handle.request(name, args, target, asking).map(|lock| lock.word),
    };
    let Some(waiter) = waiter else { return asked.map(|_| 0).map_err(|error| error.errno()) };
    if asked.is_ok() && convert.is_none() && args.flags & LockFlags::ORPHAN.0 != 0 {
        // An adoption has no completion.
        handle.state.lock().remove_waiter(waiter.word(), &waiter);
        return finish(library, call.lksb, &Ok(Outcome::Nothing), 0);
    }
    let waited = match asked {
        Ok(word) => handle.await_completion(word, &waiter, false, deadline),
        Err(Error::TimedOut) => handle.abandon(waiter.word(), &waiter),
        Err(error) => {
            handle.state.lock().hand_over();
            return Err(error.errno());
        }
    };
    match finish(library, call.lksb, &waited, 0) {
        // A time limit is told alike in both libraries.
        Ok(status) if status == Errno::ETIMEDOUT.0 && limit_ms.is_some() => Err(status),
        answer => answer,
    }
}

/// All unlock calls, cancels included.
///
/// # Safety
/// As [`lock`].
///
/// # Errors
/// See libdlm-abi.md 2.1 and 2.4.
pub unsafe fn unlock(
    library: Library,
    handle: Arc<Handle>,
    lkid: u32,
    flags: u32,
    lksb: *mut Lksb,
    ast_arg: *mut c_void,
    wait: bool,
) -> Answer {
    if lkid == 0 || lksb.is_null() {
        return Err(EINVAL);
    }
    // SAFETY: the caller's promise about the status block.
    let value = unsafe {
        (*lksb).status = EINPROG;
        value_of(lksb, flags)
    };
    let waits = wait || flags & LKF_WAIT != 0;
    let flags = LockFlags(flags & !LKF_WAIT);
    let cancels = flags.has(LockFlags::CANCEL);
    let wait_for = if cancels { WaitFor::Operation } else { WaitFor::Unlock };
    let waiter = waits.then(|| Waiter::new(serve(library, &handle), wait_for, lksb));
    let asking = Asking { waiter: waiter.as_ref(), deadline: None };
    let target = |before: &Target| Target::Block(unlock_addresses(before, lksb, ast_arg));
    let asked = handle.unlock(Which::Id(lkid), flags, value.as_ref(), target, asking);
    let Some(waiter) = waiter else { return asked.map(|_| 0).map_err(|error| error.errno()) };
    match asked {
        Ok(word) => {
            let waited = handle.await_completion(word, &waiter, cancels, None);
            finish(library, lksb, &waited, if cancels { ECANCEL } else { EUNLOCK })
        }
        Err(error) => {
            handle.state.lock().hand_over();
            Err(error.errno())
        }
    }
}

/// The completion address is kept, the argument only replaced by one that is not NULL (2.1).
fn unlock_addresses(before: &Target, lksb: *mut Lksb, ast_arg: *mut c_void) -> Addresses {
    let Target::Block(before) = before else {
        let nothing = std::ptr::null_mut();
        return Addresses { lksb, ast: None, ast_arg, bast: None, bast_arg: nothing };
    };
    let ast_arg = if ast_arg.is_null() { before.ast_arg } else { ast_arg };
    Addresses { lksb, ast_arg, ..*before }
}

/// `dlm_ls_deadlock_cancel`.
///
/// # Errors
/// EINVAL for lkid 0, ENOENT, EPERM and others.
pub fn deadlock_cancel(handle: &Handle, lkid: u32, flags: u32) -> Answer {
    if lkid == 0 {
        return Err(EINVAL);
    }
    let operation = Operation::DeadlockCancel { lkid, flags };
    handle.plain_call(&operation).map(|()| 0).map_err(|error| error.errno())
}

/// `dlm_ls_purge`.
///
/// # Errors
/// The daemon's refusal.
pub fn purge(handle: &Handle, node: c_int, pid: c_int) -> Answer {
    handle.purge(node as u32, pid as u32).map(|()| 0).map_err(|error| error.errno())
}

/// `struct dlmx_status` of `<dlm_ext.h>`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Status {
    /// Why the handle was lost; 0: it works.
    pub loss: u32,
    /// This node.
    pub nodeid: u32,
    /// Granted mode, or -1.
    pub mode: i32,
    /// The last completion's status; EINPROG: none yet.
    pub status: i32,
    /// Its flags.
    pub flags: u32,
    /// Operations in progress.
    pub pending: u32,
    /// Token of the last grant.
    pub token: u64,
    /// Events received and not dispatched.
    pub events: u64,
    /// 0.
    pub spare: [u64; 3],
}

/// `dlmx_status`: what is known in memory. The second part is the answer: ENOENT for an unknown
/// lock.
pub fn status(handle: &Handle, lkid: u32) -> (Status, Answer) {
    let loss = handle.lost().map_or(0, |reason| reason as u32);
    let state = handle.state.lock();
    let events = state.undelivered();
    let mut status = Status { loss, nodeid: handle.node(), mode: -1, events, ..Status::default() };
    if lkid == 0 {
        return (status, Ok(0));
    }
    let Some(number) = state.table.find(lkid) else { return (status, Err(Errno::ENOENT.0)) };
    let slot = state.table.peek(number);
    status.mode = slot.mode.map_or(-1, i32::from);
    (status.status, status.flags) = (slot.status, slot.sb_flags.into());
    (status.pending, status.token) = (slot.pending.max(0) as u32, slot.token);
    (status, Ok(0))
}

/// `dlmx_set_loss_callback`.
pub fn set_loss_callback(handle: &Handle, callback: Option<LossCallback>, arg: *mut c_void) {
    struct Promised(LossCallback, *mut c_void);
    // SAFETY: the program gave both to be used on whichever thread dispatches.
    unsafe impl Send for Promised {}
    // SAFETY: as above.
    unsafe impl Sync for Promised {}
    impl Promised {
        fn call(&self, reason: LostReason) {
            // SAFETY: the program gave the callback to be called with this argument.
            unsafe { (self.0)(self.1, reason as u32) }
        }
    }
    let promised = callback.map(|callback| Promised(callback, arg));
    handle.set_loss_callback(promised.map(|promised| {
        let told: crate::state::LossCallback = Arc::new(move |reason| promised.call(reason));
        told
    }));
}

/// The callback of `dlmx_set_loss_callback`; its second argument is an `enum dlmx_loss_reason`.
pub type LossCallback = unsafe extern "C" fn(*mut c_void, u32);

/// Events of a lock go nowhere from now on: its status block was on a stack.
pub fn forget_block(handle: &Handle, lkid: u32) {
    let mut state = handle.state.lock();
    if let Some(number) = state.table.find(lkid) {
        state.table.retarget(number, Target::Nobody);
    }
}

/// Which events a waiting call may deliver (2.5): inside a callback all, since nobody else may be
/// there to do it.
fn serve(library: Library, handle: &Handle) -> Serve {
    let nested = library == Library::Threads && handle.state.lock().in_callback();
    if library == Library::Plain || nested { Serve::All } else { Serve::Waited }
}

/// The end of a waiting call. `good`: the status, beside 0, that is what was asked for.
fn finish(library: Library, lksb: *mut Lksb, waited: &Result<Outcome, Error>, good: i32) -> Answer {
    let status = match waited {
        Ok(Outcome::Completed(completion)) => completion.status,
        Ok(Outcome::Nothing) => {
            set_status(lksb, 0);
            0
        }
        Err(error) => {
            set_status(lksb, error.errno());
            return Err(error.errno());
        }
    };
    let is_good = library == Library::Threads || status == 0 || status == good;
    if is_good { Ok(status) } else { Err(status) }
}

fn set_status(lksb: *mut Lksb, status: i32) {
    // SAFETY: the status block of the call that is returning.
    unsafe { (&raw mut (*lksb).status).write_volatile(status) };
}

/// The caller's 32 bytes, if the flags say that they count and there are any.
///
/// # Safety
/// `lksb` points to a status block, its `lvbptr` is null or points to 32 bytes.
unsafe fn value_of(lksb: *const Lksb, flags: u32) -> Option<Value> {
    if flags & LockFlags::VALBLK.0 == 0 {
        return None;
    }
    // SAFETY: the caller's promise.
    unsafe {
        let bytes = (*lksb).lvbptr;
        (!bytes.is_null()).then(|| bytes.cast::<Value>().read_unaligned())
    }
}

const _: () = assert!(ECANCEL == 0x10001 && EUNLOCK == 0x10002 && EINPROG == 0x10003);
