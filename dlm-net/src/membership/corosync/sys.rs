//! corosync's client libraries, loaded when they are needed: nothing of them is linked, so the daemon
//! starts where they are absent and says so.
//!
//! Invariant: callbacks run only inside a dispatch call, on the thread that made it, and only push to
//! that thread's queue; so nothing here is shared, and no pointer of a callback outlives it.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::os::fd::RawFd;
use std::ptr::null_mut;

use super::{Event, Left, Process, Ring};

/// A result of corosync.
type Code = c_int;
const OK: Code = 1;
const LIBRARY: Code = 2;
const TRY_AGAIN: Code = 6;
const ACCESS: Code = 11;
const NOT_EXIST: Code = 12;
const SECURITY: Code = 100;

const DISPATCH_ALL: c_int = 2;
const TYPE_AGREED: c_int = 2;
const MODEL_V1: c_int = 1;
const DELIVER_INITIAL_TOTEM_CONF: u32 = 1;
const TRACK_CHANGES: u32 = 2;
const TRACK_CURRENT: u32 = 1;
const NAME_MAX: usize = 128;
const REASON_NODE_DOWN: u32 = 3;
const REASON_NODE_UP: u32 = 4;

/// Why corosync cannot be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub(super) enum Trouble {
    /// No library.
    #[error("corosync is not installed ({0} is missing): apt install corosync")]
    Missing(&'static str),
    /// A library of another age.
    #[error("{0} has no {1}: corosync 3.1 or later is needed")]
    Old(&'static str, &'static str),
    /// Nobody answers.
    #[error("corosync does not run: start it (systemctl start corosync)")]
    Down,
    /// It refuses this user.
    #[error(
        "corosync refuses this user: name it in a file of /etc/corosync/uidgid.d \
         (uidgid {{ uid: <name> }}), or run as root"
    )]
    Refused,
    /// It is busy; ask again.
    #[error("corosync is busy with a change of its membership")]
    Busy,
    /// Something it does not have.
    #[error("corosync does not know {0}")]
    Unknown(&'static str),
    /// Anything else.
    #[error("corosync: {0} failed with error {1}")]
    Other(&'static str, i32),
}

fn check(what: &'static str, code: Code) -> Result<(), Trouble> {
    match code {
        OK => Ok(()),
        LIBRARY => Err(Trouble::Down),
        ACCESS | SECURITY => Err(Trouble::Refused),
        TRY_AGAIN => Err(Trouble::Busy),
        NOT_EXIST => Err(Trouble::Unknown(what)),
        other => Err(Trouble::Other(what, other)),
    }
}

/// A loaded library; it stays loaded.
#[derive(Clone, Copy)]
struct Library {
    name: &'static str,
    handle: *mut c_void,
}

impl Library {
    fn load(name: &'static str) -> Result<Self, Trouble> {
        let file = CString::new(name).map_err(|_| Trouble::Missing(name))?;
        // SAFETY: the name is a C string that lives for the call.
        let handle = unsafe { libc::dlopen(file.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if handle.is_null() { Err(Trouble::Missing(name)) } else { Ok(Self { name, handle }) }
    }

    fn symbol(self, name: &'static CStr) -> Result<*mut c_void, Trouble> {
        // SAFETY: the handle is of a loaded library, the name a C string.
        let found = unsafe { libc::dlsym(self.handle, name.as_ptr()) };
        let told = name.to_str().unwrap_or("a function");
        if found.is_null() { Err(Trouble::Old(self.name, told)) } else { Ok(found) }
    }
}

/// Looks a function up and gives it its type.
macro_rules! function {
    ($library:expr, $name:literal, fn($($arg:ty),*)) => {{
        let symbol = $library.symbol($name)?;
        // SAFETY: corosync's headers declare this function so; its ABI is fixed by the soname.
        unsafe {
            std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($arg),*) -> Code>(symbol)
        }
    }};
}

#[repr(C)]
struct Name {
    length: u32,
    value: [u8; NAME_MAX],
}

impl Name {
    fn new(text: &[u8]) -> Self {
        let mut value = [0; NAME_MAX];
        let length = text.len().min(NAME_MAX);
        value[..length].copy_from_slice(&text[..length]);
        Self { length: length as u32, value }
    }
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Address {
    node: u32,
    pid: u32,
    reason: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct RingId {
    node: u32,
    seq: u64,
}

impl From<RingId> for Ring {
    fn from(ring: RingId) -> Self {
        Self { node: ring.node, seq: ring.seq }
    }
}

type Deliver = extern "C" fn(u64, *const Name, u32, u32, *mut c_void, usize);
type Confchg = extern "C" fn(
    u64,
    *const Name,
    *const Address,
    usize,
    *const Address,
    usize,
    *const Address,
    usize,
);
type TotemConfchg = extern "C" fn(u64, RingId, u32, *const u32);
type QuorumNotify = extern "C" fn(u64, u32, RingId, u32, *const u32);
type NodelistNotify = extern "C" fn(u64, RingId, u32, *const u32, u32, *const u32, u32, *const u32);

#[repr(C)]
struct CpgModel {
    model: c_int,
    deliver: Option<Deliver>,
    confchg: Option<Confchg>,
    totem_confchg: Option<TotemConfchg>,
    flags: u32,
}

#[repr(C)]
struct QuorumModel {
    model: c_int,
    notify: Option<QuorumNotify>,
    nodelist: Option<NodelistNotify>,
}

thread_local! {
    /// What the callbacks of the dispatch call in progress said.
    static EVENTS: RefCell<VecDeque<Event>> = const { RefCell::new(VecDeque::new()) };
}

fn push(event: Event) {
    EVENTS.with(|events| events.borrow_mut().push_back(event));
}

fn take_events() -> VecDeque<Event> {
    EVENTS.with(|events| std::mem::take(&mut *events.borrow_mut()))
}

/// The elements of a C array; empty for a null pointer.
fn elements<T: Copy>(first: *const T, count: usize) -> Vec<T> {
    if first.is_null() {
        return Vec::new();
    }
    // SAFETY: corosync passes an array of `count` elements that lives for the callback.
    unsafe { std::slice::from_raw_parts(first, count) }.to_vec()
}

extern "C" fn on_deliver(
    _handle: u64,
    _group: *const Name,
    node: u32,
    pid: u32,
    message: *mut c_void,
    length: usize,
) {
    let bytes = elements(message.cast::<u8>(), length);
    push(Event::Message { from: Process { node, pid }, bytes });
}

extern "C" fn on_confchg(
    _handle: u64,
    _group: *const Name,
    members: *const Address,
    member_count: usize,
    left: *const Address,
    left_count: usize,
    joined: *const Address,
    joined_count: usize,
) {
    let process = |address: &Address| Process { node: address.node, pid: address.pid };
    let members = elements(members, member_count).iter().map(process).collect();
    let left = elements(left, left_count);
    let new_ring = left.iter().any(|address| address.reason == REASON_NODE_DOWN)
        || elements(joined, joined_count).iter().any(|address| address.reason == REASON_NODE_UP);
    let left = left.iter().map(|address| (process(address), Left::of(address.reason)));
    push(Event::Group { members, left: left.collect(), new_ring });
}

extern "C" fn on_totem_confchg(_handle: u64, ring: RingId, _count: u32, _members: *const u32) {
    push(Event::Ring(ring.into()));
}

extern "C" fn on_quorum(
    _handle: u64,
    quorate: u32,
    ring: RingId,
    _count: u32,
    _members: *const u32,
) {
    push(Event::Quorum { ring: ring.into(), quorate: quorate != 0 });
}

extern "C" fn on_nodelist(
    _handle: u64,
    _ring: RingId,
    _count: u32,
    _members: *const u32,
    _joined_count: u32,
    _joined: *const u32,
    _left_count: u32,
    _left: *const u32,
) {
    // The quorum notification of the same ring says what counts.
}

/// A connection that is dispatched.
struct Line {
    handle: u64,
    fd: RawFd,
    dispatch: unsafe extern "C" fn(u64, c_int) -> Code,
    finalize: unsafe extern "C" fn(u64) -> Code,
}

impl Line {
    /// Runs the callbacks that are due; what they said, in order.
    fn dispatch(&mut self, what: &'static str) -> Result<VecDeque<Event>, Trouble> {
        // SAFETY: the handle is open; callbacks only push to this thread's queue.
        let code = unsafe { (self.dispatch)(self.handle, DISPATCH_ALL) };
        let events = take_events();
        match check(what, code) {
            Err(Trouble::Busy) => Ok(events),
            result => result.map(|()| events),
        }
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        // SAFETY: the handle is open, and not used after this.
        unsafe { (self.finalize)(self.handle) };
    }
}

/// A member of a process group.
pub(super) struct Group {
    line: Line,
    leave: unsafe extern "C" fn(u64, *const Name) -> Code,
    mcast: unsafe extern "C" fn(u64, c_int, *const libc::iovec, u32) -> Code,
    name: Name,
}

impl Group {
    /// Connects and joins the group.
    pub(super) fn join(name: &str) -> Result<Self, Trouble> {
        let library = Library::load("libcpg.so.4")?;
        let initialize = function!(
            library,
            c"cpg_model_initialize",
            fn(*mut u64, c_int, *mut CpgModel, *mut c_void)
        );
        let fd_get = function!(library, c"cpg_fd_get", fn(u64, *mut c_int));
        let join = function!(library, c"cpg_join", fn(u64, *const Name));
        let leave = function!(library, c"cpg_leave", fn(u64, *const Name));
        let mcast =
            function!(library, c"cpg_mcast_joined", fn(u64, c_int, *const libc::iovec, u32));
        let dispatch = function!(library, c"cpg_dispatch", fn(u64, c_int));
        let finalize = function!(library, c"cpg_finalize", fn(u64));
        let mut model = CpgModel {
            model: MODEL_V1,
            deliver: Some(on_deliver),
            confchg: Some(on_confchg),
            totem_confchg: Some(on_totem_confchg),
            flags: DELIVER_INITIAL_TOTEM_CONF,
        };
        let mut handle = 0;
        // SAFETY: all pointers are to live values; the library copies the model.
        let code = unsafe { initialize(&raw mut handle, MODEL_V1, &raw mut model, null_mut()) };
        check("cpg_model_initialize", code)?;
        let mut line = Line { handle, fd: -1, dispatch, finalize };
        // SAFETY: the handle is open and `fd` lives for the call.
        check("cpg_fd_get", unsafe { fd_get(handle, &raw mut line.fd) })?;
        let group = Self { line, leave, mcast, name: Name::new(name.as_bytes()) };
        // SAFETY: the handle is open and the name lives for the call.
        check("cpg_join", unsafe { join(handle, &raw const group.name) })?;
        Ok(group)
    }

    /// The descriptor to watch.
    pub(super) fn fd(&self) -> RawFd {
        self.line.fd
    }

    /// What is new.
    pub(super) fn dispatch(&mut self) -> Result<VecDeque<Event>, Trouble> {
        self.line.dispatch("cpg_dispatch")
    }

    /// Sends a message to all members, this one included, in one order for all.
    pub(super) fn send(&self, bytes: &[u8]) -> Result<(), Trouble> {
        let part = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
        // SAFETY: the handle is open; the bytes are read only, and only during the call.
        let code = unsafe { (self.mcast)(self.line.handle, TYPE_AGREED, &raw const part, 1) };
        check("cpg_mcast_joined", code)
    }

    /// Leaves the group in good order.
    pub(super) fn leave(self) {
        // SAFETY: the handle is open and the name lives for the call.
        unsafe { (self.leave)(self.line.handle, &raw const self.name) };
    }
}

/// A listener to quorum.
pub(super) struct Quorum {
    line: Line,
}

impl Quorum {
    /// Connects and asks for every change, and for the present state.
    pub(super) fn follow() -> Result<Self, Trouble> {
        let library = Library::load("libquorum.so.5")?;
        let initialize = function!(
            library,
            c"quorum_model_initialize",
            fn(*mut u64, c_int, *mut QuorumModel, *mut u32, *mut c_void)
        );
        let fd_get = function!(library, c"quorum_fd_get", fn(u64, *mut c_int));
        let start = function!(library, c"quorum_trackstart", fn(u64, u32));
        let dispatch = function!(library, c"quorum_dispatch", fn(u64, c_int));
        let finalize = function!(library, c"quorum_finalize", fn(u64));
        let mut model =
            QuorumModel { model: MODEL_V1, notify: Some(on_quorum), nodelist: Some(on_nodelist) };
        let (mut handle, mut kind) = (0, 0);
        // SAFETY: all pointers are to live values; the library copies the model.
        let code = unsafe {
            initialize(&raw mut handle, MODEL_V1, &raw mut model, &raw mut kind, null_mut())
        };
        check("quorum_model_initialize", code)?;
        let mut line = Line { handle, fd: -1, dispatch, finalize };
        // SAFETY: the handle is open and `fd` lives for the call.
        check("quorum_fd_get", unsafe { fd_get(handle, &raw mut line.fd) })?;
        if kind == 0 {
            return Err(Trouble::Unknown(
                "quorum: set quorum.provider to corosync_votequorum in corosync.conf",
            ));
        }
        // SAFETY: the handle is open.
        check("quorum_trackstart", unsafe { start(handle, TRACK_CURRENT | TRACK_CHANGES) })?;
        Ok(Self { line })
    }

    /// The descriptor to watch.
    pub(super) fn fd(&self) -> RawFd {
        self.line.fd
    }

    /// What is new.
    pub(super) fn dispatch(&mut self) -> Result<VecDeque<Event>, Trouble> {
        self.line.dispatch("quorum_dispatch")
    }
}

/// corosync's configuration and state by key.
pub(super) struct Map {
    handle: u64,
    get_u32: unsafe extern "C" fn(u64, *const c_char, *mut u32) -> Code,
    get_u8: unsafe extern "C" fn(u64, *const c_char, *mut u8) -> Code,
    get_string: unsafe extern "C" fn(u64, *const c_char, *mut *mut c_char) -> Code,
    finalize: unsafe extern "C" fn(u64) -> Code,
}

impl Map {
    /// Connects.
    pub(super) fn open() -> Result<Self, Trouble> {
        let library = Library::load("libcmap.so.4")?;
        let initialize = function!(library, c"cmap_initialize", fn(*mut u64));
        let get_u32 = function!(library, c"cmap_get_uint32", fn(u64, *const c_char, *mut u32));
        let get_u8 = function!(library, c"cmap_get_uint8", fn(u64, *const c_char, *mut u8));
        let get_string =
            function!(library, c"cmap_get_string", fn(u64, *const c_char, *mut *mut c_char));
        let finalize = function!(library, c"cmap_finalize", fn(u64));
        let mut handle = 0;
        // SAFETY: the pointer is to a live value.
        check("cmap_initialize", unsafe { initialize(&raw mut handle) })?;
        Ok(Self { handle, get_u32, get_u8, get_string, finalize })
    }

    /// A number, of whichever of two widths the key has.
    pub(super) fn number(&self, key: &str) -> Option<u32> {
        let key = CString::new(key).ok()?;
        let (mut wide, mut narrow) = (0u32, 0u8);
        // SAFETY: the handle is open, key and room for the value live for the call.
        if unsafe { (self.get_u32)(self.handle, key.as_ptr(), &raw mut wide) } == OK {
            return Some(wide);
        }
        // SAFETY: as above.
        let code = unsafe { (self.get_u8)(self.handle, key.as_ptr(), &raw mut narrow) };
        (code == OK).then_some(u32::from(narrow))
    }

    /// A text.
    pub(super) fn text(&self, key: &str) -> Option<String> {
        let key = CString::new(key).ok()?;
        let mut found: *mut c_char = null_mut();
        // SAFETY: the handle is open, key and room for the pointer live for the call.
        let code = unsafe { (self.get_string)(self.handle, key.as_ptr(), &raw mut found) };
        if code != OK || found.is_null() {
            return None;
        }
        // SAFETY: on success it is a C string from malloc that is ours to free, once.
        unsafe {
            let text = CStr::from_ptr(found).to_string_lossy().into_owned();
            libc::free(found.cast());
            Some(text)
        }
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: the handle is open, and not used after this.
        unsafe { (self.finalize)(self.handle) };
    }
}

/// This node's number.
pub(super) fn own_node() -> Result<u32, Trouble> {
    let library = Library::load("libcfg.so.7")?;
    let initialize = function!(library, c"corosync_cfg_initialize", fn(*mut u64, *const c_void));
    let local_get = function!(library, c"corosync_cfg_local_get", fn(u64, *mut u32));
    let finalize = function!(library, c"corosync_cfg_finalize", fn(u64));
    let (mut handle, mut node) = (0, 0);
    // One callback, for shutdown requests, which nobody asks for here.
    let callbacks: [*const c_void; 1] = [null_mut()];
    // SAFETY: the pointers are to live values; the library copies the callbacks.
    check("corosync_cfg_initialize", unsafe {
        initialize(&raw mut handle, callbacks.as_ptr().cast())
    })?;
    // SAFETY: the handle is open and `node` lives for the call.
    let result = check("corosync_cfg_local_get", unsafe { local_get(handle, &raw mut node) });
    // SAFETY: the handle is open, and not used after this.
    unsafe { finalize(handle) };
    result.map(|()| node)
}
