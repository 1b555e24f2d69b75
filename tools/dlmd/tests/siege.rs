//! A siege: clients that misbehave in every way, many at a time, while an honest program made of the
//! ordinary client library takes its lock over and over; afterwards nothing of them is left.
//!
//! What each single fault is answered with is in `hostile.rs`, limits are in `limits.rs`.

mod common;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use common::{Client, Control, EX, NOQUEUE, daemon, hello, lock, unlock, wait_until};
use dlm_client::{Lockspace, Mode, Opening, Wanted};
use dlm_ipc::control::{ControlMessage, ControlRequest};
use dlm_ipc::hello::{ClientMessage, Hello, MESSAGE_BYTES_MAX, Welcome};
use dlm_ipc::layout::{Geometry, LINE_BYTES, Submission, WORDS_OFFSET};
use dlm_ipc::socket::Connection;
use dlm_net::testing::DaemonProcess;

const SPACE: &str = "siege";
/// What has to be back at its start when all is over.
const LEVELS: [&str; 8] = [
    "lockspaces",
    "locks",
    "resources",
    "orphans",
    "timers",
    "clients",
    "connections",
    "descriptors",
];

/// Lock turns of the honest handles, each of which takes one, after which they count as served.
const TURNS: u64 = 20;

/// Two handles of an honest program that take one lock by turns, all the time.
struct Honest {
    first: Lockspace,
    second: Lockspace,
    over: Arc<AtomicBool>,
    turns: Arc<AtomicU64>,
    threads: Vec<JoinHandle<()>>,
}

impl Honest {
    fn start(daemon: &DaemonProcess) -> Self {
        let open = |opening: Opening<'_>| opening.socket(daemon.socket()).open(SPACE);
        let first = open(Opening::create(0o600)).expect("created");
        let second = open(Opening::existing()).expect("opened");
        let (over, turns) = (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default());
        let inside = Arc::new(AtomicBool::new(false));
        let threads = [&first, &second].map(|space| {
            let (space, over, turns) = (space.clone(), Arc::clone(&over), Arc::clone(&turns));
            let inside = Arc::clone(&inside);
            thread::spawn(move || {
                while !over.load(SeqCst) {
                    let guard = space.lock(b"honest", Mode::EX, &Wanted::new()).expect("granted");
                    assert!(!inside.swap(true, SeqCst), "two at once");
                    assert!(inside.swap(false, SeqCst));
                    guard.unlock().expect("unlocked");
                    turns.fetch_add(1, SeqCst);
                    thread::sleep(Duration::from_micros(200));
                }
            })
        });
        Self { first, second, over, turns, threads: threads.into() }
    }

    /// Waits until the program was served again and again since now.
    fn is_served(&self) {
        let before = self.turns.load(SeqCst);
        wait_until("the honest program goes on", || {
            let failed = self.threads.iter().any(JoinHandle::is_finished);
            failed || self.turns.load(SeqCst) >= before + TURNS
        });
        assert!(!self.threads.iter().any(JoinHandle::is_finished), "an honest call failed");
    }

    /// Ends it once the others are gone.
    fn end(self, control: &Control) {
        self.over.store(true, SeqCst);
        for thread in self.threads {
            thread.join().expect("no honest call failed");
        }
        control.await_counter("clients", 2);
        self.second.close();
        self.first.release(false).expect("no lock of anybody is left");
    }
}

fn levels(control: &Control) -> BTreeMap<&'static str, u64> {
    LEVELS.map(|name| (name, control.counter(name))).into()
}

/// Lays siege to a daemon, and looks at what is left.
fn besieged(attack: impl FnOnce(&DaemonProcess, &Honest)) {
    let daemon = daemon(&["--log=error"]);
    let control = Control::connect(daemon.socket());
    let before = levels(&control);
    let honest = Honest::start(&daemon);
    honest.is_served();
    attack(&daemon, &honest);
    honest.is_served();
    honest.end(&control);
    let begin = std::time::Instant::now();
    while levels(&control) != before {
        let left = levels(&control);
        assert!(begin.elapsed() < Duration::from_secs(30), "left: {left:?}, before: {before:?}");
        thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(control.counter("lockspaces"), 0);
}

/// A generator of choices; the seed is in the message of a failing test.
struct Dice(u64);

impl Dice {
    fn roll(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, count: usize) -> usize {
        (self.roll() >> 33) as usize % count
    }

    fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.roll() as u8).collect()
    }
}

/// A handle whose pages and bells are bare descriptors.
struct Bare {
    connection: Connection,
    page: File,
    bell: OwnedFd,
    watches: [OwnedFd; 2],
}

impl Bare {
    fn open(daemon: &DaemonProcess) -> Self {
        let connection = Connection::connect(daemon.socket()).expect("connected");
        let hello = hello(SPACE, false).encode().expect("a message");
        connection.send(&hello).expect("sent");
        let mut buffer = [0; 256];
        let received = connection.recv_with_fds(&mut buffer).expect("received");
        let descriptors = received.and_then(|received| received.descriptors);
        let [page, bell, reply, event] = descriptors.expect("opened");
        Self { connection, page: page.into(), bell, watches: [reply, event] }
    }

    fn write(&self, offset: usize, bytes: &[u8]) {
        self.page.write_all_at(bytes, offset as u64).expect("the page is writable");
    }

    /// Adds to the bell's counter.
    fn ring(&self, count: u64) -> std::io::Result<()> {
        let bell = File::from(self.bell.try_clone()?);
        (&bell).write_all(&count.to_ne_bytes())
    }

    /// Submits entries as an honest client would, beginning with entry number `tail`.
    fn submit(&self, tail: u32, entries: &[Submission]) {
        for (index, entry) in entries.iter().enumerate() {
            let slot = (tail as usize + index) % Geometry::DEFAULT.submissions as usize;
            self.write(4096 + slot * 128, &bytes_of(entry));
        }
        let tail = tail + entries.len() as u32;
        self.write(WORDS_OFFSET + LINE_BYTES, &tail.to_ne_bytes());
    }

    /// Whether the daemon has ended the connection.
    fn is_over(&self) -> bool {
        self.connection.set_nonblocking(true).expect("a socket");
        let mut buffer = [0; 256];
        loop {
            match self.connection.recv(&mut buffer) {
                Ok(Some(_)) => {}
                Ok(None) => return true,
                Err(_) => return false,
            }
        }
    }
}

/// An entry's bytes as the page table of ipc.md has them.
fn bytes_of(entry: &Submission) -> [u8; 128] {
    let mut bytes = [0; 128];
    bytes[..4].copy_from_slice(&[entry.op, entry.mode, entry.name_len, entry.hints]);
    bytes[4..8].copy_from_slice(&entry.flags.to_ne_bytes());
    bytes[8..12].copy_from_slice(&entry.lkid.to_ne_bytes());
    bytes[16..24].copy_from_slice(&entry.user.to_ne_bytes());
    bytes[40..48].copy_from_slice(&entry.tag.to_ne_bytes());
    bytes[64..].copy_from_slice(&entry.payload);
    bytes
}

#[test]
fn random_pages_of_many_clients() {
    besieged(|daemon, honest| {
        let ended = thread::scope(|scope| {
            let scribblers: Vec<_> = (1..=4)
                .map(|seed| {
                    scope.spawn(move || (0..50).map(|_| scribble(daemon, seed)).sum::<u32>())
                })
                .collect();
            scribblers.into_iter().map(|thread| thread.join().expect("no panic")).sum::<u32>()
        });
        println!("200 clients scribbled; {ended} were ended by the daemon while they did");
        assert!(ended > 0, "nothing impossible was ever written");
        honest.is_served();
    });
}

/// One client that writes anything anywhere while the daemon works; 1 if that ended it.
fn scribble(daemon: &DaemonProcess, seed: u64) -> u32 {
    static COUNT: AtomicU64 = AtomicU64::new(1);
    let mut dice = Dice(seed << 32 | COUNT.fetch_add(1, SeqCst));
    let client = Bare::open(daemon);
    for _ in 0..60 {
        match dice.below(6) {
            0 => {
                let bytes = dice.roll().to_ne_bytes();
                client.write(WORDS_OFFSET + dice.below(12) * LINE_BYTES, &bytes[..4]);
            }
            1 => {
                let near = dice.below(600) as u32;
                client.write(WORDS_OFFSET + dice.below(12) * LINE_BYTES, &near.to_ne_bytes());
            }
            2 => {
                let offset = dice.below(Geometry::DEFAULT.bytes() - 512);
                client.write(offset, &dice.bytes(512));
            }
            3 => {
                let name = [dice.below(4) as u8];
                let entry = Submission::new(&lock(&name, dice.below(7) as u8, NOQUEUE), 1, true);
                client.submit(dice.below(300) as u32, &[entry; 3]);
            }
            4 => client.write(4096, &dice.bytes(128 * 256)),
            _ => thread::yield_now(),
        }
        client.ring(1).expect("the bell works");
    }
    u32::from(client.is_over())
}

#[test]
fn bells_and_pages_that_were_tampered_with() {
    besieged(|daemon, honest| {
        let clients: Vec<_> = (0..8).map(|_| Bare::open(daemon)).collect();
        for client in &clients {
            // What the daemon would hang in, if it read this bell or wrote to what the client has.
            for fd in client.watches.iter().chain([&client.bell]) {
                let fd = UnixStream::from(fd.try_clone().expect("a descriptor"));
                fd.set_nonblocking(false).expect("any descriptor can be made blocking");
            }
            client.ring(u64::MAX - 1).expect("one write fills the bell");
            let entry = |name: u8| Submission::new(&lock(&[name], EX, NOQUEUE), 1, true);
            let entries: Vec<_> = (0..200).map(|name| entry(name % 3)).collect();
            client.submit(0, &entries);
            // Always asleep: the daemon has to ring with every flush.
            for ring in 1..3 {
                client.write(WORDS_OFFSET + (ring * 3 + 2) * LINE_BYTES, &1u32.to_ne_bytes());
            }
        }
        honest.is_served();
        // Emptied, so that we do not hang ourselves.
        for client in &clients[..2] {
            let bell = File::from(client.bell.try_clone().expect("a descriptor"));
            (&bell).read_exact(&mut [0; 8]).expect("it is full");
        }
        punch(&clients[0]);
        // A bell rung without pause.
        for _ in 0..100_000 {
            clients[1].ring(1).expect("there is room for a hundred thousand");
        }
        honest.is_served();
        assert!(!clients[1].is_over(), "ringing is no offence");
    });
}

/// Takes the memory away under the daemon's mapping, as far as the seals allow.
fn punch(client: &Bare) {
    assert!(client.page.set_len(4096).is_err(), "the seals hold");
    let own = format!("/proc/{}/fd/{}", std::process::id(), {
        use std::os::fd::AsRawFd;
        client.page.as_raw_fd()
    });
    for _ in 0..20 {
        let bytes = Geometry::DEFAULT.bytes().to_string();
        let arguments = ["--punch-hole", "--offset", "0", "--length", &bytes, &own];
        let done = std::process::Command::new("fallocate").args(arguments).status();
        if !done.is_ok_and(|status| status.success()) {
            println!("skipped: no fallocate program, or the kernel refuses holes in sealed memory");
            return;
        }
        client.ring(1).expect("the bell works");
    }
}

#[test]
fn connections_closed_in_the_middle_of_everything() {
    besieged(|daemon, honest| {
        for round in 0..400 {
            close_in_the_middle(daemon, round % 10);
        }
        honest.is_served();
    });
}

fn close_in_the_middle(daemon: &DaemonProcess, way: u32) {
    let connect = || Connection::connect(daemon.socket()).expect("connected");
    let open = hello(SPACE, false).encode().expect("a message");
    match way {
        // In the middle of the handshake.
        0 => drop(connect()),
        1 => connect().send(&open).expect("sent"),
        2 => connect().send(&open[..9]).expect("sent"),
        3 => connect().send(&Hello::Control.encode().expect("a message")).expect("sent"),
        // In the middle of a request, with and without the bell.
        4 | 5 => {
            let client = Bare::open(daemon);
            let name = lock(b"held", EX, 0);
            client.submit(0, &[Submission::new(&name, 1, true); 200]);
            if way == 5 {
                client.ring(1).expect("the bell works");
            }
        }
        // With a request that waits, and one that is being withdrawn.
        6 => {
            let mut client = Client::open(daemon, SPACE);
            let waiting = client.call(&lock(b"honest", EX, 0)).expect("accepted");
            client.submit(&unlock(waiting), true);
        }
        // With an entry half written.
        7 => {
            let client = Bare::open(daemon);
            client.write(4096, &bytes_of(&Submission::new(&lock(b"x", EX, 0), 1, true))[..50]);
            client.write(WORDS_OFFSET + LINE_BYTES, &1u32.to_ne_bytes());
            client.ring(1).expect("the bell works");
        }
        // While the daemon takes leave of it.
        8 => {
            let mut client = Client::open(daemon, SPACE);
            client.submit(&lock(b"held", EX, 0), true);
            let close = ClientMessage::Close.encode().expect("a message");
            client.connection.send(&close).expect("sent");
        }
        // With an answer on its way.
        _ => {
            let control = connect();
            control.send(&Hello::Control.encode().expect("a message")).expect("sent");
            let table = ControlRequest::Table { lockspace: SPACE.into(), from: 0 };
            control.recv(&mut [0; 256]).expect("welcome");
            for _ in 0..20 {
                control.send(&table.to_bytes().expect("a message")).expect("sent");
            }
        }
    }
}

#[test]
fn garbage_at_every_moment() {
    besieged(|daemon, honest| {
        let mut dice = Dice(7);
        for _ in 0..300 {
            let (length, garbage) = (dice.below(400), dice.bytes(400));
            let garbage = &garbage[..length];
            match dice.below(4) {
                0 => {
                    // What is no message at all may get no answer but the hang-up.
                    let message = (1..=MESSAGE_BYTES_MAX).contains(&length);
                    let answer = first_message(daemon, garbage);
                    let refused = answer == Some(libc::EPROTO);
                    assert!(refused || (answer.is_none() && !message), "{length}: {answer:?}");
                }
                1 => {
                    // A good beginning.
                    let mut message = hello(SPACE, false).encode().expect("a message");
                    let at = 4 + dice.below(message.len() - 4);
                    message.truncate(at);
                    message.extend(garbage);
                    assert_ne!(first_message(daemon, &message), Some(0), "{message:?}");
                }
                2 => {
                    // Descriptors that nobody asked for.
                    let client = Bare::open(daemon);
                    let smuggled = [
                        client.page.as_fd(),
                        client.bell.as_fd(),
                        client.watches[0].as_fd(),
                        client.connection.as_fd(),
                    ];
                    let connection = Connection::connect(daemon.socket()).expect("connected");
                    let control = Hello::Control.encode().expect("a message");
                    connection.send_with_fds(&control, &smuggled).expect("sent");
                    let _ = client.connection.send_with_fds(garbage, &smuggled);
                }
                _ => {
                    let control = Connection::connect(daemon.socket()).expect("connected");
                    control.send(&Hello::Control.encode().expect("a message")).expect("sent");
                    control.recv(&mut [0; 256]).expect("received").expect("a welcome");
                    control.send(garbage).expect("sent");
                    // A tool that asks well gets its answer; this one may get one too, by chance.
                    let _ = control.recv(&mut [0; 1 << 17]);
                }
            }
        }
        honest.is_served();
    });
}

/// What the daemon answers to a first message: an errno, or only a hang-up.
fn first_message(daemon: &DaemonProcess, message: &[u8]) -> Option<i32> {
    let connection = Connection::connect(daemon.socket()).expect("connected");
    connection.send(message).expect("sent");
    let mut buffer = [0; 256];
    let answer = connection.recv(&mut buffer).expect("received")?;
    Some(Welcome::decode(answer).expect("a welcome").errno)
}

/// How many descriptors this process may have open, after asking for all that are allowed.
fn descriptors_allowed() -> usize {
    let pid = std::process::id().to_string();
    let limits = std::fs::read_to_string("/proc/self/limits").expect("/proc is there");
    let line = limits.lines().find(|line| line.starts_with("Max open files"));
    let mut numbers = line.expect("a limit of open files").split_whitespace().skip(3);
    let (soft, hard) = (numbers.next().expect("soft"), numbers.next().expect("hard"));
    let raise = format!("--nofile={hard}:{hard}");
    let raised = std::process::Command::new("prlimit").args(["--pid", &pid, &raise]).status();
    let now = if raised.is_ok_and(|status| status.success()) { hard } else { soft };
    now.parse().unwrap_or(1 << 20)
}

/// Descriptors that this process needs beside the crowd, its other tests included.
const RESERVE: usize = 600;

#[test]
fn ten_thousand_connections() {
    let allowed = descriptors_allowed();
    let crowd = 10_000.min(allowed.saturating_sub(RESERVE));
    besieged(|daemon, honest| {
        let silent: Vec<_> = (0..crowd)
            .map(|_| Connection::connect(daemon.socket()).expect("the queue moves"))
            .collect();
        honest.is_served();
        println!("{} silent connections at once, of {allowed} descriptors", silent.len());
        let control = Control::connect(daemon.socket());
        assert!(control.counter("connections") <= 2_100, "the oldest had to give way");
        drop(silent);
        // As many handles as there are descriptors for: four here and five in the daemon each.
        let mut handles = Vec::new();
        let errno = loop {
            if handles.len() >= crowd || handles.len() * 4 + RESERVE > allowed {
                break 0;
            }
            match Client::connect(daemon.socket(), &hello(SPACE, false)) {
                Ok(mut client) => {
                    client.submit(&lock(b"crowd", EX, NOQUEUE), false);
                    handles.push(client);
                }
                Err(errno) => break errno,
            }
        };
        println!("{} handles at once, then errno {errno}", handles.len());
        assert!([0, libc::EMFILE, libc::ENOMEM].contains(&errno), "{errno}");
        honest.is_served();
        assert_eq!(control.counter("lockspaces"), 1, "who is in is served");
    });
}

#[test]
fn control_conversations_at_their_limit() {
    besieged(|daemon, honest| {
        let control = Hello::Control.encode().expect("a message");
        // One is the test's own.
        let open: Vec<_> = (1..256).map(|_| Control::connect(daemon.socket())).collect();
        assert_eq!(first_message(daemon, &control), Some(libc::ENOMEM));
        honest.is_served();
        drop(open);
        wait_until("there is room again", || first_message(daemon, &control) == Some(0));
    });
}
