//! `exec`: the lock, the command, its code, its signals, and its end when the lock is lost.

mod common;

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, ChildStdout, Stdio};

use common::{collect, command, daemon, end_of, eventually, line, signal, tool};
use dlm_client::{Mode, Opening, Wanted};
use dlm_net::testing::{DaemonProcess, TempDir};

/// `exec web a` with more words.
fn exec(daemon: &DaemonProcess, words: &[&str]) -> common::Ran {
    tool(daemon.socket(), &[&["exec", "web", "a"], words].concat())
}

/// Starts `exec web a -- sh -c SCRIPT`.
fn start(socket: &Path, script: &str) -> Child {
    let mut command = command(socket, &["exec", "web", "a", "--", "sh", "-c", script]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts")
}

/// Reads the next line that the command prints.
fn read_line(stdout: &mut BufReader<ChildStdout>) -> String {
    let mut line = String::new();
    stdout.read_line(&mut line).expect("readable");
    line.trim_end().to_owned()
}

fn stdout(child: &mut Child) -> BufReader<ChildStdout> {
    BufReader::new(child.stdout.take().expect("piped"))
}

fn errors(child: &mut Child) -> String {
    let mut text = String::new();
    child.stderr.take().expect("piped").read_to_string(&mut text).expect("text");
    text
}

/// Whether a process runs (a zombie does not).
fn runs(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

#[test]
fn the_code_is_the_commands() {
    let daemon = daemon();
    for (script, code) in [("exit 0", 0), ("exit 7", 7), ("exit 255", 255), ("exit 3", 3)] {
        assert_eq!(exec(&daemon, &["--", "sh", "-c", script]).parts(), ("", "", code), "{script}");
    }
    for (script, code) in [("kill -TERM $$", 143), ("kill -KILL $$", 137), ("kill -INT $$", 130)] {
        assert_eq!(exec(&daemon, &["--", "sh", "-c", script]).code, code, "{script}");
    }
    let ran = exec(&daemon, &["--", "/nonexistent/program"]);
    assert_eq!(ran.code, 127);
    assert!(ran.err.contains("cannot run /nonexistent/program"), "{}", ran.err);
    assert_eq!(exec(&daemon, &["--", "/etc/passwd"]).code, 126);
    assert_eq!(exec(&daemon, &["--try", "--", "true"]).code, 0, "the lock was let go every time");
    assert_eq!(line(daemon.socket(), "ls").out, "", "and nothing is left behind");
}

#[test]
fn arguments_and_streams_pass_as_they_are() {
    let daemon = daemon();
    let words = ["--", "printf", "[%s]", "a b", "", "$HOME", "--try", "-m", "*", "x\ny"];
    assert_eq!(exec(&daemon, &words).parts(), ("[a b][][$HOME][--try][-m][*][x\ny]", "", 0));
    let mut command = command(daemon.socket(), &["exec", "web", "a", "--", "cat"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("starts");
    std::io::Write::write_all(&mut child.stdin.take().expect("piped"), b"through").expect("sent");
    assert_eq!(collect(child).out, "through");
}

#[test]
fn the_token_only_grows_also_when_the_lockspace_is_made_anew() {
    let daemon = daemon();
    let mut last = 0_u64;
    for _ in 0..4 {
        let out = exec(&daemon, &["--", "sh", "-c", "echo $DLM_TOKEN"]).out;
        let token: u64 = out.trim().parse().expect("a number");
        assert!(token > last, "{token} after {last}");
        last = token;
    }
}

#[test]
fn the_lock_is_held_while_the_command_runs_in_the_mode_asked_for() {
    let daemon = daemon();
    let script = ["exec", "web", "a", "--", "sh", "-c", "echo on; read line"];
    let mut command = command(daemon.socket(), &script);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("starts");
    assert_eq!(read_line(&mut stdout(&mut child)), "on");
    let json = line(daemon.socket(), "lock web a --json").json();
    assert_eq!(json["granted"][0]["granted"], "EX");
    assert_eq!(json["granted"][0]["pid"], child.id());
    assert_eq!(json["granted"][0]["program"], "dlm_tool");
    assert_eq!(json["granted"][0]["label"], "dlm_tool exec");
    drop(child.stdin.take());
    assert_eq!(end_of(&mut child), 1, "read found the end of its input");
    let shared = ["--mode", "pr", "--", "sh", "-c"];
    let nested = format!("{} exec web a --mode PR --try -- echo both", common::TOOL);
    let ran = exec(&daemon, &[&shared[..], &[&nested]].concat());
    assert_eq!(ran.parts(), ("both\n", "", 0), "two readers");
    let nested = format!("{} exec web a --mode PW --try -- echo both", common::TOOL);
    let ran = exec(&daemon, &[&shared[..], &[&nested]].concat());
    assert_eq!((ran.out.as_str(), ran.code), ("", 1), "no writer beside a reader: {}", ran.err);
}

#[test]
fn bl_058_a_lock_that_is_held_is_refused_with_its_holder() {
    let daemon = daemon();
    let space = Opening::create(0o600).label("the holder").socket(daemon.socket());
    let space = space.open("web").expect("it opens");
    let guard = space.lock(b"a", Mode::EX, &Wanted::new()).expect("granted");
    let pid = std::process::id();
    for (words, why) in [
        (&["--try", "--", "echo", "ran"][..], "lock \"a\" is held\n"),
        (&["--timeout", "50ms", "--", "echo", "ran"], "lock \"a\" was not granted within"),
    ] {
        let ran = exec(&daemon, words);
        assert_eq!((ran.out.as_str(), ran.code), ("", 1));
        assert!(ran.err.contains(why), "{}", ran.err);
        assert!(ran.err.contains(&format!("held by node 1 pid {pid} (")), "{}", ran.err);
        assert!(ran.err.contains("\"the holder\" has EX for "), "{}", ran.err);
    }
    let json = line(daemon.socket(), "lock web a --json").json();
    assert_eq!(json["waiting"].as_array().map(Vec::len), Some(0), "nothing waits any more");
    let child = start(daemon.socket(), "echo ran");
    eventually("it waits", || {
        let json = line(daemon.socket(), "lock web a --json").json();
        json["waiting"].as_array().is_some_and(|waiting| waiting.len() == 1)
    });
    guard.unlock().expect("unlocked");
    assert_eq!(collect(child).parts(), ("ran\n", "", 0), "granted in the end");
}

#[test]
fn no_two_commands_run_at_a_time() {
    let daemon = daemon();
    let dir = TempDir::new("exec");
    let busy = dir.path().join("busy");
    let script =
        format!("mkdir {0} || exit 9; sleep 0.02; rmdir {0}; echo $DLM_TOKEN", busy.display());
    let children: Vec<Child> = (0..12).map(|_| start(daemon.socket(), &script)).collect();
    let mut tokens = Vec::new();
    for child in children {
        let ran = collect(child);
        assert_eq!((ran.err.as_str(), ran.code), ("", 0), "{ran:?}");
        tokens.push(ran.out);
    }
    tokens.sort();
    tokens.dedup();
    assert_eq!(tokens.len(), 12, "each grant has its own number");
}

#[test]
fn signals_are_passed_on() {
    let daemon = daemon();
    let script = "trap 'echo got $0' USR1; trap 'echo term; exit 5' TERM; echo on; \
                  while :; do sleep 0.05; done";
    let mut child = start(daemon.socket(), script);
    let mut out = stdout(&mut child);
    assert_eq!(read_line(&mut out), "on");
    signal(child.id(), "USR1");
    assert_eq!(read_line(&mut out), "got sh");
    signal(child.id(), "TERM");
    assert_eq!(read_line(&mut out), "term");
    assert_eq!(end_of(&mut child), 5);
    let mut child = start(daemon.socket(), "echo on; exec sleep 60");
    assert_eq!(read_line(&mut stdout(&mut child)), "on");
    signal(child.id(), "INT");
    assert_eq!(end_of(&mut child), 130, "a command without a handler dies of it");
}

#[test]
fn the_command_starts_with_usual_signals() {
    let daemon = daemon();
    let masks = "grep -E '^Sig(Blk|Ign)' /proc/self/status";
    // Those above 31 are the C library's own.
    let standard = |text: &str| -> Vec<u64> {
        let masks = text.lines().filter_map(|line| line.split_whitespace().nth(1));
        masks.map(|mask| u64::from_str_radix(mask, 16).expect("a mask") & 0x7fff_ffff).collect()
    };
    let plain = std::process::Command::new("sh").args(["-c", masks]).output().expect("sh").stdout;
    let ran = exec(&daemon, &["--", "sh", "-c", masks]);
    let plain = standard(&String::from_utf8(plain).expect("text"));
    assert_eq!((standard(&ran.out), plain.len()), (plain, 2));
}

#[test]
fn waiting_ends_by_a_signal_and_withdraws_the_request() {
    let daemon = daemon();
    let space = Opening::create(0o600).socket(daemon.socket()).open("web").expect("it opens");
    let _guard = space.lock(b"a", Mode::EX, &Wanted::new()).expect("granted");
    let mut child = start(daemon.socket(), "echo ran");
    let waiting = || {
        let json = line(daemon.socket(), "lock web a --json").json();
        json["waiting"].as_array().map_or(0, Vec::len)
    };
    eventually("it waits", || waiting() == 1);
    signal(child.id(), "TERM");
    assert_eq!(end_of(&mut child), 143);
    assert_eq!(waiting(), 0);
    assert_eq!(read_line(&mut stdout(&mut child)), "", "the command never ran");
    let record = line(daemon.socket(), "ls --json").json()["lockspaces"][0].clone();
    assert_eq!(record["create_count"], 1, "its creation was taken back");
}

#[test]
fn waiting_ends_when_the_daemon_ends_or_stops() {
    for end in ["KILL", "STOP"] {
        let daemon = daemon();
        let space = Opening::create(0o600).socket(daemon.socket()).open("web").expect("it opens");
        let _guard = space.lock(b"a", Mode::EX, &Wanted::new()).expect("granted");
        let mut child = start(daemon.socket(), "echo ran");
        eventually("it waits", || line(daemon.socket(), "lock web a").out.contains("waiting: 1"));
        signal(daemon.pid(), end);
        assert_eq!(end_of(&mut child), 3, "{end}");
        assert!(errors(&mut child).contains("the lock was not granted"), "{end}");
        assert_eq!(read_line(&mut stdout(&mut child)), "", "the command never ran");
        if end == "STOP" {
            signal(daemon.pid(), "CONT"); // our own handle ends with its answer
        }
    }
}

#[test]
fn a_lost_lock_ends_the_command_and_what_it_started() {
    let mut daemon = daemon();
    let script = "trap 'echo told; exit 0' TERM; sleep 60 & echo $!; wait; sleep 60 & wait";
    let mut child = start(daemon.socket(), script);
    let mut out = stdout(&mut child);
    let sleeper = read_line(&mut out);
    assert!(runs(&sleeper), "{sleeper}");
    daemon.kill();
    assert_eq!(read_line(&mut out), "told", "SIGTERM comes first");
    assert_eq!(end_of(&mut child), 3);
    assert!(!runs(&sleeper), "nothing is left");
    let said = errors(&mut child);
    assert!(said.contains("lock \"a\" was lost: dlmd ended"), "{said}");
}

#[test]
fn a_forced_shutdown_is_a_loss_and_a_deaf_command_is_killed() {
    let daemon = daemon();
    let script = "trap '' TERM; echo $$; while :; do sleep 0.1; done";
    let mut child = start(daemon.socket(), script);
    let pid = read_line(&mut stdout(&mut child));
    assert_eq!(line(daemon.socket(), "shutdown").code, 1, "the lockspace is in use");
    assert_eq!(line(daemon.socket(), "shutdown --force").code, 0);
    assert_eq!(end_of(&mut child), 3);
    assert!(!runs(&pid), "SIGKILL after the grace time");
    assert!(errors(&mut child).contains("dlmd was told to end"));
}

#[test]
fn a_killed_tool_takes_its_command_along() {
    let daemon = daemon();
    let mut child = start(daemon.socket(), "echo $$; exec sleep 60");
    let pid = read_line(&mut stdout(&mut child));
    assert!(runs(&pid));
    signal(child.id(), "KILL");
    assert_eq!(end_of(&mut child), -9);
    eventually("the command is dead", || !runs(&pid));
    let ran = exec(&daemon, &["--timeout", "60", "--", "echo", "free"]);
    assert_eq!(ran.parts(), ("free\n", "", 0), "and the lock is free");
}

#[test]
fn a_lockspace_of_others_stays() {
    let daemon = daemon();
    assert_eq!(line(daemon.socket(), "join web").code, 0);
    assert_eq!(exec(&daemon, &["--", "true"]).code, 0);
    let record = || line(daemon.socket(), "ls --json").json()["lockspaces"][0].clone();
    assert_eq!(record()["create_count"], 1);
    line(daemon.socket(), "leave web");
    // Opened, not created, by somebody who holds no lock when the command ends.
    let mut child = start(daemon.socket(), "echo on; sleep 0.2");
    assert_eq!(read_line(&mut stdout(&mut child)), "on");
    let guest = Opening::existing().socket(daemon.socket()).open("web").expect("it opens");
    assert_eq!(end_of(&mut child), 0);
    assert_eq!(record()["state"], "running");
    assert!(guest.try_lock(b"b", Mode::EX).expect("it works on").is_some());
}
