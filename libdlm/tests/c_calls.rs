//! What the two C libraries share, against a daemon that does what each test says: status blocks,
//! callbacks on their threads, and the moments in which several threads meet at one lock.

mod script;

use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

use dlm_client::c::{self, CCallback, Library, Lksb, LockCall};
use dlm_client::{ECANCEL, EINPROG, EUNLOCK, Handle, OpenArgs};
use dlm_ipc::layout::{LostReason, op};
use script::{Peer, Stage, blocking, completion, wait_for};

const LKF_CANCEL: u32 = 0x2;
const LKF_CONVERT: u32 = 0x4;
const LKF_ORPHAN: u32 = 0x4000;
const BOTH: [Library; 2] = [Library::Threads, Library::Plain];

/// A lock of a C program. Only its address is shared with the library, as in C.
#[repr(C)]
struct Lock {
    lksb: Lksb,
    asts: AtomicU32,
    basts: AtomicU32,
    /// The status that the last completion callback found.
    status: AtomicI32,
}

impl Lock {
    fn new() -> Box<Self> {
        let lksb = Lksb { status: 0, lkid: 0, flags: 0, lvbptr: null_mut() };
        let (asts, basts) = (AtomicU32::new(0), AtomicU32::new(0));
        Box::new(Self { lksb, asts, basts, status: AtomicI32::new(-1) })
    }

    fn arg(&self) -> *mut c_void {
        std::ptr::from_ref(self).cast_mut().cast()
    }

    fn lksb(&self) -> *mut Lksb {
        &raw const self.lksb as *mut Lksb
    }

    fn counts(&self) -> (u32, u32) {
        (self.asts.load(Ordering::Acquire), self.basts.load(Ordering::Acquire))
    }
}

unsafe extern "C" fn ast(arg: *mut c_void) {
    // SAFETY: the argument is a lock of the test, which outlives the handle's use of it.
    let lock = unsafe { &*arg.cast::<Lock>() };
    // SAFETY: as above; written by the library before the callback.
    let status = unsafe { (&raw const lock.lksb.status).read_volatile() };
    lock.status.store(status, Ordering::Release);
    lock.asts.fetch_add(1, Ordering::AcqRel);
}

unsafe extern "C" fn bast(arg: *mut c_void) {
    // SAFETY: as in `ast`.
    unsafe { &*arg.cast::<Lock>() }.basts.fetch_add(1, Ordering::AcqRel);
}

fn open(stage: Stage) -> (Arc<Handle>, Peer, Stage) {
    let (accepting, stage) = stage.accepting();
    let (socket, create) = (stage.socket(), Some((0o600, 0)));
    let args = OpenArgs { name: b"c", create, label: b"", socket: Some(&socket) };
    (Handle::open(&args).unwrap(), accepting.join().unwrap(), stage)
}

fn call(lock: &Lock, mode: u32, flags: u32, ast: Option<CCallback>) -> LockCall {
    LockCall {
        mode,
        lksb: lock.lksb(),
        flags,
        name: b"n".as_ptr().cast(),
        namelen: 1,
        ast,
        ast_arg: lock.arg(),
        bast: Some(bast),
        range: null_mut(),
        xid: 0,
        timeout_cs: 0,
        wait: None,
    }
}

fn lock(library: Library, handle: &Arc<Handle>, call: &LockCall) -> Result<i32, i32> {
    // SAFETY: the tests keep their locks until the handle is closed.
    unsafe { c::lock(library, || Ok(Arc::clone(handle)), call) }
}

fn unlock(library: Library, handle: &Arc<Handle>, lock: &Lock, flags: u32) -> Result<i32, i32> {
    let (id, handle) = (lock.lksb.lkid, Arc::clone(handle));
    // SAFETY: as above.
    unsafe { c::unlock(library, handle, id, flags, lock.lksb(), null_mut(), true) }
}

/// A lock lent to another thread of the test.
struct Hand(*const Lock);
// SAFETY: each test joins that thread before the lock goes.
unsafe impl Send for Hand {}

impl Hand {
    /// The lock.
    ///
    /// # Safety
    /// It is still there.
    unsafe fn look(&self) -> &Lock {
        // SAFETY: the caller's promise.
        unsafe { &*self.0 }
    }
}

#[test]
fn waiting_calls_say_it_in_their_own_way() {
    for library in BOTH {
        let (handle, mut peer, _stage) = open(Stage::new("ways"));
        let daemon = std::thread::spawn(move || {
            let refused = peer.next();
            peer.tell(&completion(&refused, 1, libc::EAGAIN, None));
            peer.reply(&refused, 0, 1);
            peer.grant(2);
            peer.unlock();
            peer.close();
        });
        let a = Lock::new();
        let waits = LockCall { wait: Some(None), ..call(&a, 5, 0, None) };
        let refused = lock(library, &handle, &waits);
        let failed = if library == Library::Plain { Err(libc::EAGAIN) } else { Ok(libc::EAGAIN) };
        assert_eq!((refused, a.lksb.status), (failed, libc::EAGAIN), "{library:?}");
        assert_eq!(lock(library, &handle, &waits), Ok(0));
        assert_eq!((a.lksb.status, a.lksb.lkid), (0, 2));
        assert_eq!(unlock(library, &handle, &a, 0), Ok(EUNLOCK));
        assert_eq!(a.lksb.status, EUNLOCK);
        assert_eq!(a.counts(), (0, 0), "waiting calls have no completion callback");
        handle.close().unwrap();
        daemon.join().unwrap();
    }
}

#[test]
fn a_waiting_unlock_runs_the_requests_own_callback_before_it_returns() {
    for library in BOTH {
        let (handle, mut peer, _stage) = open(Stage::new("own"));
        let daemon = std::thread::spawn(move || {
            peer.grant(1);
            peer.unlock();
            peer.close();
        });
        let a = Lock::new();
        assert_eq!(lock(library, &handle, &call(&a, 4, 0, Some(ast))), Ok(0));
        // Not dispatched: the grant's completion comes first, then that of the unlock.
        assert_eq!(unlock(library, &handle, &a, 0), Ok(EUNLOCK), "{library:?}");
        assert_eq!(a.counts().0, 2);
        assert_eq!(a.status.load(Ordering::Acquire), EUNLOCK);
        handle.close().unwrap();
        daemon.join().unwrap();
    }
}

#[test]
fn addresses_that_are_none_are_never_called() {
    // SAFETY: never called, which is what is tested.
    let one: CCallback = unsafe { std::mem::transmute(1usize) };
    let (handle, mut peer, _stage) = open(Stage::new("one"));
    let daemon = std::thread::spawn(move || {
        let adopted = peer.next();
        peer.reply(&adopted, 0, 9);
        assert!(adopted.hints & dlm_ipc::layout::hint::BLOCKING == 0, "no callback to call");
        peer.tell(&blocking(&adopted, 9, 5));
        peer.unlock();
        peer.close();
    });
    let a = Lock::new();
    let adopt = LockCall { bast: Some(one), ..call(&a, 3, LKF_ORPHAN, Some(one)) };
    assert_eq!(lock(Library::Plain, &handle, &adopt), Ok(0));
    assert_eq!((a.lksb.status, a.lksb.lkid), (EINPROG, 9), "an adoption has no completion");
    handle.dispatch().unwrap();
    assert_eq!(a.lksb.status, EINPROG);
    assert_eq!(unlock(Library::Plain, &handle, &a, 0), Ok(EUNLOCK));
    handle.close().unwrap();
    daemon.join().unwrap();
}

#[test]
fn a_refused_waiting_call_leaves_the_pending_operation_its_status_block() {
    let (handle, mut peer, _stage) = open(Stage::new("refused"));
    let daemon = std::thread::spawn(move || {
        let pending = peer.next();
        peer.reply(&pending, 0, 1);
        let refused = peer.next();
        assert_eq!(refused.op, op::CONVERT);
        peer.reply(&refused, libc::EBUSY, 0);
        // The daemon has replaced the lock's word although it refused.
        peer.tell(&completion(&refused, 1, 0, Some(5)));
        peer
    });
    let a = Lock::new();
    assert_eq!(lock(Library::Threads, &handle, &call(&a, 5, 0, Some(ast))), Ok(0));
    {
        let mut gone = Lock::new();
        gone.lksb.lkid = 1;
        let convert = LockCall { wait: Some(None), ..call(&gone, 3, LKF_CONVERT, None) };
        assert_eq!(lock(Library::Threads, &handle, &convert), Err(libc::EBUSY));
        assert_eq!(gone.lksb.status, EINPROG, "a refused call leaves it so");
    }
    let peer = daemon.join().unwrap();
    handle.dispatch().unwrap();
    assert_eq!((a.counts().0, a.lksb.status), (1, 0));
    drop(peer);
}

/// A callback that says that it runs, and goes on when it is told to.
struct Slow {
    started: Sender<()>,
    go_on: Receiver<()>,
    lock: *const Lock,
}

unsafe extern "C" fn slowly(arg: *mut c_void) {
    // SAFETY: the argument is the test's, which outlives the handle's use of it.
    let slow = unsafe { &*arg.cast::<Slow>() };
    slow.started.send(()).unwrap();
    slow.go_on.recv().unwrap();
    // SAFETY: as above.
    unsafe { ast(slow.lock.cast_mut().cast()) };
}

#[test]
fn one_locks_events_come_one_at_a_time() {
    for library in BOTH {
        let (handle, mut peer, _stage) = open(Stage::new("order"));
        let daemon = std::thread::spawn(move || {
            peer.grant(1);
            peer.unlock();
            peer.close();
        });
        let ((started, has_started), (go, go_on), a) = (channel(), channel(), Lock::new());
        let slow = Slow { started, go_on, lock: &raw const *a };
        let arg = (&raw const slow).cast_mut().cast();
        let request = LockCall { ast_arg: arg, bast: None, ..call(&a, 5, 0, Some(slowly)) };
        assert_eq!(lock(library, &handle, &request), Ok(0));
        let dispatching = Arc::clone(&handle);
        let dispatching = std::thread::spawn(move || dispatching.dispatch());
        has_started.recv().unwrap();
        let waiting = (Arc::clone(&handle), Hand(&raw const *a));
        let waiting = std::thread::spawn(move || {
            let (handle, lock) = waiting;
            // SAFETY: the test joins this thread before the lock goes.
            unlock(library, &handle, unsafe { lock.look() }, 0)
        });
        // The unlock is done, but the lock's earlier callback still runs on the other thread.
        std::thread::sleep(std::time::Duration::from_millis(20));
        assert_eq!(a.counts().0, 0);
        assert!(!waiting.is_finished(), "{library:?}");
        go.send(()).unwrap();
        // That of the unlock, wherever it runs.
        has_started.recv().unwrap();
        assert_eq!(a.counts().0, 1);
        go.send(()).unwrap();
        assert_eq!(waiting.join().unwrap(), Ok(EUNLOCK));
        assert_eq!(dispatching.join().unwrap(), Ok(()));
        assert_eq!(a.counts().0, 2);
        handle.close().unwrap();
        daemon.join().unwrap();
    }
}

/// A callback that cancels, and waits for it, although nothing is pending.
struct Cancelling {
    library: Library,
    handle: Arc<Handle>,
    lock: *const Lock,
    answer: AtomicI32,
}

unsafe extern "C" fn cancels(arg: *mut c_void) {
    // SAFETY: the argument is the test's, which outlives the handle's use of it.
    let it = unsafe { &*arg.cast::<Cancelling>() };
    // SAFETY: as above.
    let answer = unlock(it.library, &it.handle, unsafe { &*it.lock }, LKF_CANCEL);
    it.answer.store(answer.unwrap_or_else(|errno| -errno), Ordering::Release);
}

#[test]
fn a_cancel_that_finds_nothing_returns_also_inside_the_locks_callback() {
    for library in BOTH {
        let (handle, mut peer, _stage) = open(Stage::new("cancel"));
        let daemon = std::thread::spawn(move || {
            peer.grant(1);
            for _ in 0..2 {
                let cancel = peer.next();
                assert_eq!((cancel.op, cancel.flags), (op::UNLOCK, LKF_CANCEL));
                peer.reply(&cancel, 0, 0);
            }
            peer
        });
        let a = Lock::new();
        let (inner, answer) = (Arc::clone(&handle), AtomicI32::new(-1));
        let it = Cancelling { library, handle: inner, lock: &raw const *a, answer };
        let arg = (&raw const it).cast_mut().cast();
        let request = LockCall { ast_arg: arg, bast: None, ..call(&a, 5, 0, Some(cancels)) };
        assert_eq!(lock(library, &handle, &request), Ok(0));
        handle.dispatch().unwrap();
        assert_eq!(it.answer.load(Ordering::Acquire), 0, "{library:?}");
        assert_eq!(unlock(library, &handle, &a, LKF_CANCEL), Ok(0));
        drop(daemon.join().unwrap());
    }
}

#[test]
fn a_cancel_by_another_thread_ends_both_waits() {
    for library in BOTH {
        let (handle, mut peer, _stage) = open(Stage::new("both"));
        let daemon = std::thread::spawn(move || {
            let waits = peer.next();
            peer.reply(&waits, 0, 1);
            let cancel = peer.next();
            peer.reply(&cancel, 0, 0);
            peer.tell(&completion(&cancel, 1, ECANCEL, None));
            peer.close();
        });
        let (a, mut b) = (Lock::new(), Lock::new());
        let waiting = (Arc::clone(&handle), Hand(&raw const *a));
        let waiting = std::thread::spawn(move || {
            let (handle, it) = waiting;
            // SAFETY: the test joins this thread before the lock goes.
            let waits = LockCall { wait: Some(None), ..call(unsafe { it.look() }, 5, 0, None) };
            lock(library, &handle, &waits)
        });
        // SAFETY: written by the library while the other thread waits.
        let id = || unsafe { (&raw const a.lksb.lkid).read_volatile() };
        b.lksb.lkid = wait_for("the id of a waiting request", || Some(id()).filter(|id| *id != 0));
        assert_eq!(unlock(library, &handle, &b, LKF_CANCEL), Ok(ECANCEL), "{library:?}");
        let cancelled = if library == Library::Plain { Err(ECANCEL) } else { Ok(ECANCEL) };
        assert_eq!(waiting.join().unwrap(), cancelled);
        assert_eq!((a.lksb.status, b.lksb.status), (ECANCEL, ECANCEL));
        handle.close().unwrap();
        daemon.join().unwrap();
    }
}

#[test]
fn descriptors_are_known_also_as_duplicates() {
    let (handle, mut peer, _stage) = open(Stage::new("dup"));
    let daemon = std::thread::spawn(move || {
        peer.grant(1);
        peer
    });
    let fd = handle.descriptor().unwrap();
    let a = Lock::new();
    assert_eq!(lock(Library::Plain, &handle, &call(&a, 5, 0, Some(ast))), Ok(0));
    // SAFETY: plain system call.
    let copy = unsafe { libc::dup(fd) };
    assert_eq!(c::dispatch(copy), Ok(0));
    assert_eq!(a.counts().0, 1);
    assert_eq!(c::dispatch(fd), Ok(0));
    drop(daemon.join().unwrap());
    let lost = Err(libc::ENOTRECOVERABLE);
    wait_for("the loss", || (c::dispatch(copy) == lost).then_some(()));
    handle.close().unwrap();
    assert_eq!(c::dispatch(copy), Err(libc::EBADF), "the duplicate of a closed handle's");
    assert_eq!(c::dispatch(0), Err(libc::EBADF));
    assert_eq!(c::dispatch(-1), Err(libc::EBADF));
    // SAFETY: our own descriptor.
    unsafe { libc::close(copy) };
}

#[test]
fn a_loss_is_told_to_whoever_waits_in_the_plain_library() {
    static REASON: AtomicU32 = AtomicU32::new(0);
    unsafe extern "C" fn lost(_: *mut c_void, reason: u32) {
        REASON.store(reason, Ordering::Release);
    }
    let (handle, mut peer, _stage) = open(Stage::new("told"));
    c::set_loss_callback(&handle, Some(lost), null_mut());
    let daemon = std::thread::spawn(move || {
        for id in 1..=2 {
            let request = peer.next();
            peer.reply(&request, 0, id);
        }
        peer.lose(LostReason::Shutdown);
    });
    let (a, b) = (Lock::new(), Lock::new());
    assert_eq!(lock(Library::Plain, &handle, &call(&a, 5, 0, Some(ast))), Ok(0));
    let waits = LockCall { wait: Some(None), ..call(&b, 5, 0, None) };
    assert_eq!(lock(Library::Plain, &handle, &waits), Err(libc::ENOTRECOVERABLE));
    assert_eq!(b.lksb.status, libc::ENOTRECOVERABLE);
    assert_eq!((a.counts().0, a.lksb.status), (1, libc::ENOTRECOVERABLE));
    assert_eq!(REASON.load(Ordering::Acquire), LostReason::Shutdown as u32);
    daemon.join().unwrap();
    let (status, answer) = c::status(&handle, 0);
    assert_eq!((status.loss, status.nodeid, answer), (LostReason::Shutdown as u32, 7, Ok(0)));
    handle.close().unwrap();
}
