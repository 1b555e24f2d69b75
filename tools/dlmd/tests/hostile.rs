//! Clients that break the rules: each ends alone, and others are served.

mod common;

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use common::{Client, Control, EX, daemon, hello, lock, wait_until};
use dlm_ipc::ClientSide;
use dlm_ipc::hello::{DaemonMessage, Hello, Welcome};
use dlm_ipc::layout::{LostReason, Submission};
use dlm_ipc::socket::Connection;
use dlm_net::testing::DaemonProcess;

/// Offsets of control words (ipc.md section 2).
const SUBMISSION_TAIL: u64 = 128 + 64;
const EVENT_HEAD: u64 = 128 + 6 * 64;

/// An open handle together with its page as a file, to scribble on.
fn scribbler(daemon: &DaemonProcess) -> (Client, File) {
    let connection = Connection::connect(daemon.socket()).expect("connected");
    connection.send(&hello("web", true).encode().expect("a message")).expect("sent");
    let mut buffer = [0; 256];
    let received = connection.recv_with_fds(&mut buffer).expect("received").expect("an answer");
    let welcome = Welcome::decode(received.message).expect("a welcome");
    let descriptors = received.descriptors.expect("descriptors");
    let page = File::from(descriptors[0].try_clone().expect("a descriptor is left"));
    let side = ClientSide::open(descriptors).expect("good pages");
    let client = Client::new(connection, side, &welcome);
    (client, page)
}

fn write_word(page: &File, offset: u64, value: u32) {
    page.write_all_at(&value.to_ne_bytes(), offset).expect("the page is writable");
}

/// The client was told why, and hung up on.
fn is_ended(client: &Client) {
    assert_eq!(client.hear(), Some(DaemonMessage::Lost(LostReason::Protocol)));
    assert_eq!(client.hear(), None);
    assert_eq!(client.side.page.lost(), Some(LostReason::Protocol));
}

/// Runs a daemon with an honest client beside what `misbehave` does.
fn alone(misbehave: impl FnOnce(&DaemonProcess)) {
    let daemon = daemon(&[]);
    let mut honest = Client::create(&daemon, "web");
    let held = honest.lock(b"honest", EX, 0);
    misbehave(&daemon);
    honest.unlock(held);
    let held = honest.lock(b"again", EX, 0);
    honest.unlock(held);
    let control = Control::connect(daemon.socket());
    control.await_counter("clients", 1);
    control.await_counter("locks", 0); // where there were many, they end in parts
}

#[test]
fn a_tail_out_of_range_ends_that_client() {
    alone(|daemon| {
        for tail in [257, u32::MAX, 1 << 31] {
            let (mut client, page) = scribbler(daemon);
            write_word(&page, SUBMISSION_TAIL, tail);
            client.ring();
            is_ended(&client);
        }
    });
}

#[test]
fn a_head_out_of_range_ends_that_client_and_frees_its_locks() {
    alone(|daemon| {
        for head in [2000, u32::MAX - 5] {
            let (mut client, page) = scribbler(daemon);
            client.lock(b"x", EX, 0);
            write_word(&page, EVENT_HEAD, head);
            // The daemon looks at the head when its own view of the ring is full.
            for _ in 0..1100 {
                if client.try_submit(&lock(b"y", 3, 0)).is_err() {
                    break;
                }
            }
            is_ended(&client);
        }
    });
}

#[test]
fn unknown_operations_and_long_names_end_that_client() {
    alone(|daemon| {
        let good = Submission::new(&lock(b"x", EX, 0), 1, true);
        let bad = [
            Submission { op: 0, ..good },
            Submission { op: 6, ..good },
            Submission { op: 255, ..good },
            Submission { name_len: 65, ..good },
            Submission { name_len: 255, ..good },
        ];
        for entry in bad {
            let (mut client, _page) = scribbler(daemon);
            client.side.submissions.push(&entry).expect("room");
            client.side.submissions.flush().expect("the bell works");
            is_ended(&client);
        }
    });
}

#[test]
fn random_pages_harm_only_their_owner() {
    alone(|daemon| {
        let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
        for _ in 0..60 {
            let (mut client, page) = scribbler(daemon);
            let mut bytes = vec![0; 40 * 1024];
            for chunk in bytes.chunks_mut(8) {
                seed ^= seed << 13;
                seed ^= seed >> 7;
                seed ^= seed << 17;
                chunk.copy_from_slice(&seed.to_ne_bytes());
            }
            page.write_all_at(&bytes[4096..], 4096).expect("writable");
            let words = if seed.is_multiple_of(2) { &bytes[128..1024] } else { &[][..] };
            page.write_all_at(words, 128).expect("writable");
            write_word(&page, SUBMISSION_TAIL, (seed % 300) as u32);
            client.ring();
            let _ = client.side.event_watch.wait(Some(Duration::from_millis(1)));
        }
    });
}

#[test]
fn bad_first_messages_are_refused_with_an_errno() {
    alone(|daemon| {
        let good = hello("web", true).encode().expect("a message");
        let mut version = good.clone();
        version[4] = 99;
        let mut magic = good.clone();
        magic[0] ^= 1;
        let mut kind = good.clone();
        kind[6] = 9;
        let mut name = good.clone();
        name[20] = 0;
        let cases: [(&[u8], i32); 7] = [
            (&version, libc::EPROTO),
            (&magic, libc::EPROTO),
            (&kind, libc::EPROTO),
            (&good[..10], libc::EPROTO),
            (&good[..good.len() - 1], libc::EPROTO),
            (&name, libc::EPROTO),
            (&[0xff; 152], libc::EPROTO),
        ];
        for (message, errno) in cases {
            let connection = Connection::connect(daemon.socket()).expect("connected");
            connection.send(message).expect("sent");
            let mut buffer = [0; 256];
            let answer = connection.recv(&mut buffer).expect("received").expect("an answer");
            assert_eq!(Welcome::decode(answer).expect("a welcome").errno, errno, "{message:?}");
            assert_eq!(connection.recv(&mut buffer).expect("hung up"), None);
        }
        let long = Connection::connect(daemon.socket()).expect("connected");
        long.send(&[7; 100_000]).expect("sent");
        assert!(!matches!(long.recv(&mut [0; 256]), Ok(Some([]))), "it ends");
    });
}

#[test]
fn messages_at_the_wrong_time_end_the_connection() {
    alone(|daemon| {
        let (client, _page) = scribbler(daemon);
        client.connection.send(b"\x63\x00what").expect("sent");
        is_ended(&client);
        let connection = Connection::connect(daemon.socket()).expect("connected");
        connection.send(&Hello::Control.encode().expect("a message")).expect("sent");
        let mut buffer = [0; 256];
        connection.recv(&mut buffer).expect("received").expect("a welcome");
        connection.send(&[0xff; 3000]).expect("sent");
        assert_eq!(connection.recv(&mut buffer).expect("hung up"), None);
    });
}

#[test]
fn silent_connections_do_not_keep_others_out() {
    let daemon = daemon(&[]);
    let limit = ["--pid", &std::process::id().to_string(), "--nofile=20000:"].map(str::to_owned);
    let raised = std::process::Command::new("prlimit").args(limit).status();
    if !raised.is_ok_and(|status| status.success()) {
        println!("skipped: this user may not open 3,000 descriptors");
        return;
    }
    let connect = |_| Connection::connect(daemon.socket()).expect("the queue moves");
    let silent: Vec<_> = (0..3000).map(connect).collect();
    let mut client = Client::create(&daemon, "web");
    client.lock(b"x", EX, 0);
    let control = Control::connect(daemon.socket());
    wait_until("the oldest are dropped", || control.counter("turned_away") >= 900);
    assert!(control.counter("connections") < 2100);
    let mut buffer = [0; 256];
    assert_eq!(silent[0].recv(&mut buffer).expect("hung up"), None);
}

/// Starts a daemon that may open only some descriptors.
fn daemon_with_descriptors(count: u32) -> DaemonProcess {
    let dir = dlm_net::testing::TempDir::new("descriptors");
    let body = format!("ulimit -n {count}\nexec '{}' \"$@\"", env!("CARGO_BIN_EXE_dlmd"));
    DaemonProcess::start(&dir.script("dlmd", &body))
}

#[test]
fn without_descriptors_newcomers_are_refused_and_others_served() {
    let daemon = daemon_with_descriptors(64);
    let mut first = Client::create(&daemon, "web");
    let mut guests = Vec::new();
    let errno = loop {
        match Client::connect(daemon.socket(), &hello("web", false)) {
            Ok(guest) => guests.push(guest),
            Err(errno) => break errno,
        }
        assert!(guests.len() < 64, "64 descriptors are not enough for 64 handles");
    };
    assert_eq!(errno, libc::EMFILE);
    let silent: Vec<_> =
        (0..100).map(|_| Connection::connect(daemon.socket()).expect("queued")).collect();
    let held = first.lock(b"x", EX, 0);
    first.unlock(held);
    drop((silent, guests));
    wait_until("descriptors are back", || {
        Client::connect(daemon.socket(), &hello("web", false)).is_ok()
    });
    let told = daemon.log().matches("cannot accept clients").count();
    assert!(told <= 2, "said once, not per client: {told}");
}
