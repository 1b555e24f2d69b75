//! Locks of processes that are killed or stopped (BL-013, BL-112).
//!
//! The other process is this test program once more: called with `HOLDER` in its environment, the
//! test [`holder`] takes locks as told there and waits.

mod common;

use std::io::{BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};

use common::{daemon, end_of, eventually, line, signal};
use dlm_client::{LockFlags, Lockspace, Mode, Opening, Wanted};
use dlm_net::testing::DaemonProcess;

const ROLE: &str = "HOLDER";

fn open(socket: PathBuf) -> Lockspace {
    Opening::create(0o600).socket(&socket).open("web").expect("it opens")
}

/// Not a test of its own: what the other process does.
#[test]
fn holder() {
    let Some(role) = std::env::var_os(ROLE) else { return };
    let role = role.into_string().expect("text");
    let (count, prefix) = role.split_once(' ').expect("a count and a prefix");
    let space = open(std::env::var_os("DLM_SOCKET").expect("a socket").into());
    let persistent = LockFlags::PERSISTENT;
    let wanted = Wanted::new().flags(persistent).events(|_| ());
    for n in 0..count.parse::<u32>().expect("a number") {
        let name = format!("{prefix}{n}");
        space.lock(name.as_bytes(), Mode::EX, &wanted).expect("granted").keep();
    }
    println!("HOLDS");
    std::io::stdout().flush().expect("written");
    // Until the end of the test that started us.
    let _ = std::io::stdin().read(&mut [0]);
}

/// The other process, and its output, which must stay open.
struct Holder(Child, BufReader<ChildStdout>);

/// Starts a process that holds `count` persistent EX locks named `prefix` and a number.
fn start_holder(daemon: &DaemonProcess, count: u32, prefix: &str) -> Holder {
    let mut child = Command::new(std::env::current_exe().expect("our path"))
        .args(["--exact", "holder", "--nocapture", "--test-threads=1"])
        .env(ROLE, format!("{count} {prefix}"))
        .env("DLM_SOCKET", daemon.socket())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut stdout = BufReader::new(child.stdout.take().expect("piped"));
    let mut line = String::new();
    while !line.trim_end().ends_with("HOLDS") {
        line.clear();
        assert_ne!(stdout.read_line(&mut line).expect("text"), 0, "it ended without its locks");
    }
    Holder(child, stdout)
}

fn kill(Holder(mut child, _stdout): Holder) -> u32 {
    child.kill().expect("killed");
    assert_eq!(end_of(&mut child), -9);
    child.id()
}

#[test]
fn bl_013_orphans_are_listed_with_their_dead_owner_and_purged() {
    let daemon = daemon();
    let space = open(daemon.socket().to_owned());
    let dead = kill(start_holder(&daemon, 20, "disk"));
    let other = kill(start_holder(&daemon, 3, "tape"));
    eventually("23 orphans", || {
        line(daemon.socket(), "ls --json").json()["lockspaces"][0]["orphans"] == 23
    });
    let listed = line(daemon.socket(), "orphans web").out;
    let of_dead = format!("orphan of pid {dead} EX for ");
    assert_eq!(listed.lines().filter(|line| line.starts_with(&of_dead)).count(), 20, "{listed}");
    assert!(listed.ends_with("\ntotal 23\n"), "{listed}");
    let json = line(daemon.socket(), "orphans web --json").json();
    assert_eq!(json["total"], 23);
    assert_eq!(json["locks"].as_array().map(Vec::len), Some(23));
    let shown = line(daemon.socket(), "lock web disk7").out;
    assert!(shown.contains(&format!("pid {dead} orphan (its owner is dead) has EX")), "{shown}");

    assert!(space.try_lock(b"disk7", Mode::EX).expect("asked").is_none(), "an orphan blocks");
    let purged = line(daemon.socket(), &format!("purge web --pid {dead}"));
    assert_eq!(purged.parts(), ("20 orphans purged\n", "", 0));
    for n in 0..20 {
        let name = format!("disk{n}");
        assert!(
            space.try_lock(name.as_bytes(), Mode::EX).expect("asked").is_some(),
            "{name} is free"
        );
    }
    assert!(space.try_lock(b"tape0", Mode::EX).expect("asked").is_none(), "others are untouched");
    let rest = line(daemon.socket(), "orphans web").out;
    assert_eq!(rest.matches(&format!("orphan of pid {other} EX")).count(), 3, "{rest}");
    assert_eq!(line(daemon.socket(), "purge web --json").json()["purged"], 3);
    assert_eq!(line(daemon.socket(), "orphans web").out, "total 0\n");
    assert_eq!(line(daemon.socket(), "purge web").out, "0 orphans purged\n");
}

#[test]
fn bl_112_a_stopped_holder_was_told_and_the_tool_says_so() {
    let daemon = daemon();
    let Holder(mut child, _stdout) = start_holder(&daemon, 1, "file");
    signal(child.id(), "STOP");
    let ran = line(daemon.socket(), "exec web file0 --timeout 50ms -- true");
    assert_eq!(ran.code, 1, "the limit works: {}", ran.err);
    assert!(ran.err.contains(&format!("held by node 1 pid {}", child.id())), "{}", ran.err);

    let space = open(daemon.socket().to_owned());
    let asked = space.request(b"file0", Mode::PR, &Wanted::new()).expect("asked");
    let shown = line(daemon.socket(), "lock web file0").out;
    let notice = shown.lines().find_map(|line| line.trim().strip_prefix("blocking notice sent "));
    assert!(notice.is_some_and(|n| n.ends_with(" s ago (EX is wanted), no release")), "{shown}");
    assert!(space.try_lock(b"other", Mode::EX).expect("others go on").is_some());
    space.cancel(asked).expect("cancelled");

    signal(child.id(), "CONT");
    drop(child.stdin.take());
    assert_eq!(end_of(&mut child), 0, "it goes on and ends");
}
