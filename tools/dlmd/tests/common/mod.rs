//! A client made of `dlm-ipc` alone: it sees exactly what is on the wire, and can misbehave.
#![allow(dead_code, unreachable_pub, reason = "each test file uses a part")]

use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use dlm_ipc::ClientSide;
use dlm_ipc::control::{ControlMessage, ControlReply, ControlRequest};
use dlm_ipc::hello::{ClientMessage, DaemonMessage, HandleHello, Hello, Welcome};
use dlm_ipc::layout::{CallArgs, Notice, Operation, Reply, Submission};
use dlm_ipc::socket::Connection;
use dlm_net::testing::{DaemonProcess, HANG_GUARD};

pub const NOQUEUE: u32 = 0x1;
pub const CONVERT: u32 = 0x4;
pub const PERSISTENT: u32 = 0x80;
pub const NL: u8 = 0;
pub const PR: u8 = 3;
pub const EX: u8 = 5;

/// Starts the daemon of this build.
pub fn daemon(options: &[&str]) -> DaemonProcess {
    DaemonProcess::start_with(Path::new(env!("CARGO_BIN_EXE_dlmd")), options)
}

/// An open lockspace.
pub struct Client {
    pub connection: Connection,
    pub side: ClientSide,
    pub node: u32,
    pub global_id: u32,
    tag: u64,
}

/// A handle's first message.
pub fn hello(name: &str, create: bool) -> Hello {
    let (name, label) = (name.as_bytes().to_vec(), b"test".to_vec());
    Hello::Handle(HandleHello { create, mode: 0o600, flags: 0, name, label })
}

impl Client {
    /// Says hello; an errno if the daemon refuses.
    pub fn connect(socket: &Path, hello: &Hello) -> Result<Self, i32> {
        let connection = Connection::connect(socket).expect("the daemon serves");
        connection.send(&hello.encode().expect("a message")).expect("sent");
        let mut buffer = [0; 256];
        let received = connection.recv_with_fds(&mut buffer).expect("received");
        let received = received.expect("the daemon did not hang up");
        let welcome = Welcome::decode(received.message).expect("a welcome");
        if welcome.errno != 0 {
            return Err(welcome.errno);
        }
        let descriptors = received.descriptors.expect("a good welcome has descriptors");
        let side = ClientSide::open(descriptors).expect("good pages");
        Ok(Self::new(connection, side, &welcome))
    }

    /// A client of what a welcome brought.
    pub fn new(connection: Connection, side: ClientSide, welcome: &Welcome) -> Self {
        let (node, global_id) = (welcome.node, welcome.lockspace);
        Self { connection, side, node, global_id, tag: 0 }
    }

    /// Wakes the daemon whatever the page says.
    pub fn ring(&mut self) {
        self.side.submissions.ring_bell().expect("the bell works");
    }

    /// Submits without waiting; an error if the ring stays full or the daemon hung up.
    pub fn try_submit(&mut self, operation: &Operation<'_>) -> Result<(), ()> {
        let begin = Instant::now();
        let entry = Submission::new(operation, 0, false);
        while self.side.submissions.push(&entry).is_err() {
            let _ = self.side.submissions.flush();
            if self.side.page.lost().is_some() || begin.elapsed() > HANG_GUARD {
                return Err(());
            }
            std::thread::yield_now();
        }
        self.side.submissions.flush().map(drop).map_err(drop)
    }

    /// Creates, or creates once more, and opens.
    pub fn create(daemon: &DaemonProcess, name: &str) -> Self {
        Self::connect(daemon.socket(), &hello(name, true)).expect("created")
    }

    /// Opens what exists.
    pub fn open(daemon: &DaemonProcess, name: &str) -> Self {
        Self::connect(daemon.socket(), &hello(name, false)).expect("opened")
    }

    /// Submits without waiting; returns the tag.
    pub fn submit(&mut self, operation: &Operation<'_>, reply_wanted: bool) -> u64 {
        self.tag += 1;
        let entry = Submission::new(operation, self.tag, reply_wanted);
        self.side.submissions.push(&entry).expect("room");
        self.side.submissions.flush().expect("the bell works");
        self.tag
    }

    /// Submits and waits for the answer.
    pub fn call(&mut self, operation: &Operation<'_>) -> Result<u32, i32> {
        let tag = self.submit(operation, true);
        let reply = self.reply();
        assert_eq!(reply.tag, tag, "answers come in order");
        if reply.result == 0 { Ok(reply.lkid) } else { Err(reply.result) }
    }

    /// The next answer.
    pub fn reply(&mut self) -> Reply {
        let begin = Instant::now();
        loop {
            if let Some(reply) = self.side.replies.pop().expect("a good ring") {
                return reply;
            }
            if self.side.replies.prepare_sleep() {
                let _ = self.side.reply_watch.wait(Some(Duration::from_secs(1)));
                self.side.replies.awake();
            }
            assert!(begin.elapsed() < HANG_GUARD, "no answer");
        }
    }

    /// The next event, within some time.
    pub fn event_within(&mut self, span: Duration) -> Option<Notice> {
        let begin = Instant::now();
        loop {
            if let Some(event) = self.side.events.pop().expect("a good ring") {
                return Some(event.notice().expect("a known event"));
            }
            if self.side.events.prepare_sleep() {
                let _ = self.side.event_watch.wait(Some(span.saturating_sub(begin.elapsed())));
                self.side.events.awake();
            }
            if begin.elapsed() >= span {
                return None;
            }
        }
    }

    /// The next event.
    pub fn event(&mut self) -> Notice {
        self.event_within(HANG_GUARD).expect("an event")
    }

    /// The next event is the end of an operation with this status on this lock.
    pub fn completes(&mut self, lock: u32, want: i32) {
        match self.event() {
            Notice::Completion { lkid, status, .. } => assert_eq!((lkid, status), (lock, want)),
            other => panic!("{other:?} instead of a completion"),
        }
    }

    /// Takes a lock and waits until it is granted.
    pub fn lock(&mut self, name: &[u8], mode: u8, flags: u32) -> u32 {
        let lock = self.call(&lock(name, mode, flags)).expect("accepted");
        self.completes(lock, 0);
        lock
    }

    /// Unlocks and waits until it is done; blocking callbacks on the way are dropped.
    pub fn unlock(&mut self, lock: u32) {
        self.call(&unlock(lock)).expect("accepted");
        loop {
            match self.event() {
                Notice::Blocking { .. } => {}
                Notice::Completion { lkid, status, .. } => {
                    return assert_eq!((lkid, status), (lock, 0x10002));
                }
                other => panic!("{other:?}"),
            }
        }
    }

    /// Says something on the socket and waits for the answer.
    pub fn say(&self, message: &ClientMessage) -> DaemonMessage {
        self.connection.send(&message.encode().expect("a message")).expect("sent");
        self.hear().expect("the daemon answers")
    }

    /// The next message on the socket; `None` if the daemon hung up.
    pub fn hear(&self) -> Option<DaemonMessage> {
        let mut buffer = [0; 256];
        let message = self.connection.recv(&mut buffer).expect("received")?;
        Some(DaemonMessage::decode(message).expect("a message"))
    }

    /// Closes in good order.
    pub fn close(self) {
        assert_eq!(self.say(&ClientMessage::Close), DaemonMessage::Done { errno: 0 });
    }

    /// Releases in good order; the errno.
    pub fn release(self, force: bool) -> i32 {
        match self.say(&ClientMessage::Release { force }) {
            DaemonMessage::Done { errno } => errno,
            other => panic!("{other:?}"),
        }
    }
}

/// A lock request.
pub fn lock(name: &[u8], mode: u8, flags: u32) -> Operation<'_> {
    let call = CallArgs { mode, flags, wants_blocking: true, ..CallArgs::default() };
    Operation::Lock { call, name }
}

/// An unlock.
pub fn unlock(lkid: u32) -> Operation<'static> {
    Operation::Unlock { lkid, flags: 0, user: None, value: None }
}

/// A control conversation.
pub struct Control(Connection);

impl Control {
    pub fn connect(socket: &Path) -> Self {
        let connection = Connection::connect(socket).expect("the daemon serves");
        connection.send(&Hello::Control.encode().expect("a message")).expect("sent");
        let mut buffer = [0; 256];
        let message = connection.recv(&mut buffer).expect("received").expect("an answer");
        assert_eq!(Welcome::decode(message).expect("a welcome").errno, 0);
        Self(connection)
    }

    pub fn ask(&self, request: &ControlRequest) -> ControlReply {
        self.0.send(&request.to_bytes().expect("short")).expect("sent");
        let mut buffer = vec![0; dlm_ipc::control::CONTROL_BYTES_MAX];
        let message = self.0.recv(&mut buffer).expect("received").expect("an answer");
        ControlReply::from_bytes(message).expect("a good answer")
    }

    /// A counter's value; 0 where it is not listed.
    pub fn counter(&self, name: &str) -> u64 {
        match self.ask(&ControlRequest::Counters) {
            ControlReply::Counters(all) => {
                all.iter().find(|(other, _)| other == name).map_or(0, |(_, value)| *value)
            }
            other => panic!("{other:?}"),
        }
    }

    /// Waits until a counter has a value.
    pub fn await_counter(&self, name: &str, want: u64) {
        wait_until(&format!("{name} = {want}"), || self.counter(name) == want);
    }
}

/// Waits until something is so.
pub fn wait_until(what: &str, mut so: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !so() {
        assert!(begin.elapsed() < HANG_GUARD, "never: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A client in a process of its own (`examples/hold.rs`), killed at the end.
pub struct Holder {
    child: std::process::Child,
}

impl Holder {
    /// Its command line, to be started in a special way.
    pub fn command() -> std::process::Command {
        static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
        let program = PROGRAM.get_or_init(|| dlm_net::testing::example("dlmd", "hold"));
        let mut command = std::process::Command::new(program);
        command.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
        command
    }

    /// Starts it; returns at once.
    pub fn start(daemon: &DaemonProcess, lockspace: &str, names: &[&str]) -> Self {
        let mut command = Self::command();
        command.arg(daemon.socket()).arg(lockspace).args(names);
        Self { child: command.spawn().expect("examples are built with the tests") }
    }

    /// Starts it and waits until it holds all its locks.
    pub fn holding(daemon: &DaemonProcess, lockspace: &str, names: &[&str]) -> Self {
        Self::start(daemon, lockspace, names).when_holding()
    }

    /// As [`Holder::holding`], with a child process that shares its connection.
    pub fn lending(daemon: &DaemonProcess, lockspace: &str, names: &[&str]) -> Self {
        let mut command = Self::command();
        command.arg("--lend").arg(daemon.socket()).arg(lockspace).args(names);
        Self { child: command.spawn().expect("examples are built with the tests") }.when_holding()
    }

    /// Waits until it holds all its locks.
    pub fn when_holding(self) -> Self {
        let mut holder = self;
        let mut word = [0; 5];
        let output = holder.child.stdout.as_mut().expect("piped");
        std::io::Read::read_exact(output, &mut word).expect("it holds its locks");
        assert_eq!(&word, b"held\n");
        holder
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Kills it like a crash would.
    pub fn kill(&mut self) {
        self.child.kill().expect("ours");
        self.child.wait().expect("ours");
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Sends a signal by its name.
pub fn signal(pid: u32, name: &str) {
    let pid = pid.to_string();
    let status = std::process::Command::new("kill").args(["-s", name, &pid]).status();
    assert!(status.expect("kill(1) is there").success(), "kill -s {name} {pid}");
}

/// The state letter of a process, as in /proc.
pub fn process_state(pid: u32) -> char {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("it runs");
    let after = stat.rsplit(')').next().expect("a name in parentheses");
    after.trim_start().chars().next().expect("a letter")
}
