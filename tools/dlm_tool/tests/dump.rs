//! Dumps of large and of changing tables (BL-019, BL-020).

mod common;

use std::collections::{HashMap, HashSet};
use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use common::{Ran, command, daemon, end_of, line};
use dlm_client::{LockEvent, Lockspace, Mode, Opening, Wanted};
use dlm_net::testing::DaemonProcess;

/// As many as sites were seen to have in one lockspace (BL-019); without optimisation, where
/// reading the listings back takes longest, a tenth of that unless `DLM_TEST_FULL=1`.
fn locks() -> u64 {
    let full = std::env::var_os("DLM_TEST_FULL").is_some_and(|value| value == "1");
    if full || !cfg!(debug_assertions) { 200_000 } else { 20_000 }
}

/// Requests on their way at a time.
const BURST: u64 = 512;

fn open(daemon: &DaemonProcess, name: &str) -> Lockspace {
    Opening::create(0o600).socket(daemon.socket()).open(name).expect("it opens")
}

/// Takes a lock on each of `count` names.
fn fill(space: &Lockspace, count: u64, mode: Mode, name: impl Fn(u64) -> Vec<u8>) {
    let mut pipeline = space.pipeline().expect("one pipeline");
    let mut events = Vec::new();
    let (mut asked, mut granted) = (0, 0);
    while granted < count {
        while asked < count && asked - granted < BURST {
            pipeline.lock(&name(asked), mode, &Wanted::new(), asked).expect("asked");
            asked += 1;
        }
        pipeline.wait(&mut events, None).expect("answered");
        for tagged in events.drain(..) {
            match tagged.event {
                LockEvent::Completed(completion) if completion.status == 0 => granted += 1,
                other => panic!("{other:?}"),
            }
        }
    }
}

/// The name of a line of lockdump.
fn name_of(line: &str) -> &str {
    let start = line.find('"').unwrap_or_else(|| panic!("no name: {line}"));
    line[start + 1..].strip_suffix('"').unwrap_or_else(|| panic!("cut off: {line}"))
}

/// Runs the tool; again if the daemon did not get a processor for seconds, as on a machine where
/// all tests run at once. A daemon that hangs fails the third time too.
fn patiently(daemon: &DaemonProcess, words: &str) -> Ran {
    for attempt in 1..3 {
        let ran = line(daemon.socket(), words);
        if !(ran.code == 3 && ran.err.contains("does not answer")) {
            return ran;
        }
        println!("attempt {attempt}: {}", ran.err);
    }
    line(daemon.socket(), words)
}

#[test]
fn bl_019_a_large_table_is_dumped_whole_in_every_form() {
    let daemon = daemon();
    let space = open(&daemon, "big");
    let count = locks();
    fill(&space, count, Mode::PR, |n| format!("resource-{n:06}").into_bytes());

    let dump = patiently(&daemon, "lockdump big");
    assert_eq!((dump.err.as_str(), dump.code), ("", 0));
    let names: HashSet<&str> = dump.out.lines().map(name_of).collect();
    assert_eq!(names.len() as u64, count, "every name");
    assert_eq!(dump.out.lines().count() as u64, count, "each once");

    let debug = patiently(&daemon, "lockdebug -s big").out;
    assert!(debug.contains(&format!("\n  active        {count}\n")));
    assert!(debug.contains(&format!("\n  total         {count}\n  granted       {count}\n")));
    assert_eq!(
        debug
            .lines()
            .filter(|line| line.ends_with(" PR                                    "))
            .count() as u64,
        count
    );

    let json = patiently(&daemon, "lockdump big --json").json();
    assert_eq!((json["state"].as_str(), json["total"].as_u64()), (Some("ok"), Some(count)));
    assert_eq!(json["locks"].as_array().map(|locks| locks.len() as u64), Some(count));
    assert_eq!(patiently(&daemon, "ls big --json").json()["lockspaces"][0]["locks"], count);
}

#[test]
fn a_name_with_more_locks_than_a_page_holds_is_shown_whole_and_in_order() {
    const WAITING: u64 = 3_000;
    let daemon = daemon();
    let space = open(&daemon, "web");
    let _holder = space.lock(b"hot", Mode::EX, &Wanted::new()).expect("granted");
    let queue: Vec<u32> = (0..WAITING)
        .map(|_| space.request(b"hot", Mode::PR, &Wanted::new()).expect("asked").id)
        .collect();
    let json = line(daemon.socket(), "lock web hot --json").json();
    let shown = json["waiting"].as_array().expect("a list");
    let ids: Vec<u32> =
        shown.iter().filter_map(|lock| lock["id"].as_u64()).map(|id| id as u32).collect();
    assert_eq!(ids, queue);
    assert_eq!(shown[2_999]["queue_place"], 3_000);
    let dump = line(daemon.socket(), "lockdump web").out;
    assert_eq!(dump.lines().count() as u64, WAITING + 1);
    let debug = line(daemon.socket(), "lockdebug web").out;
    assert_eq!(debug.matches("Resource len").count(), 1, "one resource, not one per page");
    assert_eq!(debug.matches("\nWaiting\n").count(), 1);
}

#[test]
fn bl_019_a_closed_pipe_harms_only_the_tool() {
    let daemon = daemon();
    let space = open(&daemon, "web");
    fill(&space, 20_000, Mode::CR, |n| n.to_string().into_bytes());
    for words in [&["lockdump", "web"][..], &["lockdump", "web", "--json"], &["lockdebug", "web"]] {
        let mut command = command(daemon.socket(), words);
        let mut child =
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("starts");
        let mut first = String::new();
        let mut reader = BufReader::new(child.stdout.take().expect("piped"));
        reader.read_line(&mut first).expect("a line");
        drop(reader);
        assert_eq!(end_of(&mut child), 141, "{words:?}");
        let errors = std::io::read_to_string(child.stderr.take().expect("piped")).expect("text");
        assert_eq!(errors, "", "{words:?}");
    }
    assert_eq!(line(daemon.socket(), "status").code, 0);
    assert!(space.try_lock(b"after", Mode::EX).expect("alive").is_some());
}

#[test]
fn bl_020_fixed_locks_are_in_every_dump_once_while_others_come_and_go() {
    const FIXED: u64 = 1_000;
    const CLIENTS: u64 = 8;
    const DUMPS: usize = 20;
    let daemon = daemon();
    let space = open(&daemon, "web");
    fill(&space, FIXED, Mode::PR, |n| format!("fixed-{n}").into_bytes());
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        for client in 0..CLIENTS {
            let (stop, daemon) = (&stop, &daemon);
            scope.spawn(move || {
                let own = open(daemon, "web");
                let mut round = 0_u64;
                while !stop.load(Ordering::Relaxed) {
                    let name = |n| format!("moving-{client}-{round}-{n}").into_bytes();
                    let guards: Vec<_> = (0..50)
                        .map(|n| own.lock(&name(n), Mode::EX, &Wanted::new()).expect("granted"))
                        .collect();
                    guards.into_iter().for_each(|guard| guard.unlock().expect("unlocked"));
                    round += 1;
                }
            });
        }
        for dump in 0..DUMPS {
            let ran = patiently(&daemon, "lockdump web");
            let mut seen: HashMap<&str, u32> = HashMap::new();
            for line in ran.out.lines() {
                assert!(line.starts_with("id ") && line.contains(" gr "), "{line}");
                *seen.entry(name_of(line)).or_default() += 1;
            }
            for n in 0..FIXED {
                let times = seen.get(format!("fixed-{n}").as_str()).copied();
                assert_eq!(times, Some(1), "fixed-{n} in dump {dump}");
            }
            let json = patiently(&daemon, "lockdebug web --json").json();
            let fixed = json["resources"].as_array().expect("a list").iter();
            let fixed =
                fixed.filter(|r| r["name"].as_str().is_some_and(|n| n.starts_with("fixed-")));
            assert_eq!((json["state"].as_str(), fixed.count() as u64), (Some("ok"), FIXED));
        }
        stop.store(true, Ordering::Relaxed);
    });
}
