//! What listings say about lockspaces and locks that are really there.

mod common;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use common::{Ran, command, daemon, eventually, finish, line, tool};
use dlm_client::{LockFlags, Lockspace, Mode, Opening, Wanted};
use dlm_net::testing::DaemonProcess;

fn open(daemon: &DaemonProcess, name: &str) -> Lockspace {
    Opening::create(0o600).label("a label").socket(daemon.socket()).open(name).expect("it opens")
}

fn blocking() -> Wanted {
    Wanted::new().events(|_| ())
}

/// The text with every lock id (8 hexadecimal digits and a blank at a line's beginning) replaced.
fn without_ids(text: &str) -> String {
    let line = |line: &str| match line.split_at_checked(9) {
        Some((id, rest)) if id.bytes().take(8).all(|b| b.is_ascii_hexdigit()) => {
            assert!(id.ends_with(' '), "{line}");
            format!("######## {rest}\n")
        }
        _ => format!("{line}\n"),
    };
    text.lines().map(line).collect()
}

#[test]
fn join_ls_and_leave_are_those_of_the_original() {
    let daemon = daemon();
    let socket = daemon.socket();
    assert_eq!(
        line(socket, "join demo2").parts(),
        ("Joining lockspace \"demo2\" permission 600 \ndone\n", "", 0)
    );
    let recorded = include_str!("data/ls-two.txt");
    let first = recorded.split_inclusive("\n\n").next().expect("a block");
    assert_eq!(line(socket, "ls").parts(), (first, "", 0));
    let nodes = "all nodes\nnodeid 1 member 1 failed 0 start 1 seq_add 1 seq_rem 0 check none\n\n";
    let with_nodes = format!("{}{nodes}", first.trim_end_matches('\n').to_owned() + "\n");
    assert_eq!(line(socket, "ls -n demo2").parts(), (with_nodes.as_str(), "", 0));

    let exclusive = line(socket, "-e 1 join demo2");
    assert_eq!(
        (exclusive.err.as_str(), exclusive.code),
        ("dlm_new_lockspace demo2 error 17\n", 255)
    );
    assert_eq!(line(socket, "join demo2").code, 0, "a second creation counts");
    let left = ("Leaving lockspace \"demo2\"\ndone\n", "", 0);
    assert_eq!(line(socket, "leave demo2").parts(), left);
    assert_eq!(line(socket, "ls demo2").code, 0, "one creation is left");
    assert_eq!(line(socket, "leave demo2").parts(), left);
    assert_eq!(line(socket, "ls demo2").parts(), ("", "", 1));
    assert_eq!(line(socket, "joinleave -m 644 x").out.lines().count(), 4);
    assert_eq!(line(socket, "ls").out, "");
    let json = line(socket, "join demo2 -m 640 --json").json();
    assert_eq!((json["state"].as_str(), json["result"].as_str()), (Some("ok"), Some("joined")));
    let space = line(socket, "ls --json").json()["lockspaces"][0].clone();
    assert_eq!((space["mode"].as_str(), space["state"].as_str()), (Some("0640"), Some("running")));
}

#[test]
fn a_lockspace_that_others_have_open_goes_later_and_leave_does_not_hang() {
    let daemon = daemon();
    let space = open(&daemon, "web");
    let ran = line(daemon.socket(), "leave web --json");
    assert_eq!(ran.code, 1);
    let pid = std::process::id().to_string();
    assert!(ran.err.contains(&pid), "it names who has it open: {}", ran.err);
    space.close();
    eventually("the lockspace is gone", || line(daemon.socket(), "ls web").code == 1);
}

#[test]
fn lockdebug_and_lockdump_show_the_recorded_situation() {
    let daemon = daemon();
    let space = open(&daemon, "demo");
    let holder = space.lock(b"local", Mode::PR, &blocking()).expect("granted");
    let other = space.lock(b"local", Mode::PR, &Wanted::new()).expect("granted");
    space.convert(other.lock(), Mode::EX, &Wanted::new()).expect("asked");
    space.request(b"local", Mode::CW, &Wanted::new()).expect("asked");
    let value = *b"binary\x01\x02\xff\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";
    let writer = space.lock(b"excl", Mode::EX, &Wanted::new().value(value)).expect("granted");
    space.convert_wait(writer.lock(), Mode::PW, &Wanted::new().value(value)).expect("converted");

    let debug = without_ids(&line(daemon.socket(), "lockdebug demo").out);
    let blocks = debug.split("\n\n").map(|block| block.trim_matches('\n'));
    let blocks: BTreeSet<&str> = blocks.filter(|block| !block.is_empty()).collect();
    let local = "Resource len  5  \"local\"\nMaster           \nGranted\n\
                 ######## PR                                    \nConvert\n\
                 ######## PR (EX)                               \nWaiting\n\
                 ######## -- (CW)                               ";
    let excl = "Resource len  4  \"excl\"\nMaster           \nLVB len 32 seq 1\n\
                62 69 6e 61 72 79 01 02 ff 00 00 00 00 00 00 00 \n\
                00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00\nGranted\n\
                ######## PW                                    ";
    assert_eq!(blocks, BTreeSet::from([local, excl]), "{debug}");

    let pid = std::process::id();
    let dump = line(daemon.socket(), "lockdump demo").out;
    let lines: BTreeSet<&str> =
        dump.lines().filter_map(|line| line.split_once(" gr ")).map(|l| l.1).collect();
    let expected: Vec<String> =
        [("PR rq IV", "local"), ("PR rq EX", "local"), ("IV rq CW", "local"), ("PW rq IV", "excl")]
            .iter()
            .map(|(modes, name)| format!("{modes} pid {pid} master 0 \"{name}\""))
            .collect();
    assert_eq!(lines, expected.iter().map(String::as_str).collect());

    let verbose = line(daemon.socket(), "lockdebug -v -w -s demo").out;
    let told = " flags 00000000 00000001 bast 5 ";
    assert!(verbose.contains(told) && verbose.contains(&format!(" pid {pid}\n")), "{verbose}");
    assert!(
        verbose.contains("  total         4\n  granted       2\n  convert       1\n"),
        "{verbose}"
    );
    drop(holder);
}

#[test]
fn bl_058_lock_names_holders_and_the_queue_in_order() {
    let daemon = daemon();
    let space = open(&daemon, "web");
    let holder = space.lock(b"orders", Mode::EX, &blocking()).expect("granted");
    let other = open(&daemon, "web");
    for mode in [Mode::PR, Mode::CR, Mode::EX] {
        other.request(b"orders", mode, &Wanted::new()).expect("asked");
    }
    let pid = std::process::id();
    let program = std::fs::read_to_string("/proc/self/comm").expect("a name");
    let who = format!("node 1 pid {pid} ({}) \"a label\" ", program.trim_end());
    let ran = line(daemon.socket(), "lock web orders");
    let lines: Vec<&str> = ran.out.lines().collect();
    assert_eq!(lines[0], "lockspace web, name \"orders\" (6 bytes), mastered by node 1");
    assert_eq!(lines[1], "granted: 1");
    assert!(lines[2].starts_with(&format!("  {who}has EX for ")), "{}", lines[2]);
    assert!(lines[2].ends_with(&format!(" token {}", holder.token())), "{}", lines[2]);
    assert!(lines[3].starts_with("     blocking notice sent "), "{}", lines[3]);
    assert!(lines[3].ends_with(" is wanted), no release"), "{}", lines[3]);
    assert_eq!(lines[4], "waiting: 3");
    for (place, mode) in [(1, "PR"), (2, "CR"), (3, "EX")] {
        let start = format!("  {place}. {who}wants {mode} for ");
        assert!(lines[4 + place].starts_with(&start), "{}", lines[4 + place]);
    }
    assert!(lines[8].starts_with(&format!("warning: pid {pid} blocks itself: ")), "{}", lines[8]);
    assert_eq!(ran.code, 0);

    let json = line(daemon.socket(), "lock web orders --json").json();
    assert_eq!(json["granted"][0]["pid"], pid);
    assert_eq!(json["granted"][0]["label"], "a label");
    assert_eq!(json["granted"][0]["token"], holder.token().to_string());
    assert!(json["granted"][0]["told_age_us"].is_u64());
    let modes: Vec<_> = (0..3).map(|i| json["waiting"][i]["requested"].clone()).collect();
    assert_eq!(modes, ["PR", "CR", "EX"]);
    assert_eq!(json["self_blocking"].as_array().map(Vec::len), Some(3));

    let free = line(daemon.socket(), "lock web nobody");
    assert_eq!((free.out.as_str(), free.code), ("", 1));
}

/// Names that are easily taken for each other, and odd ones (BL-106).
fn odd_names() -> Vec<Vec<u8>> {
    let mut names: Vec<Vec<u8>> = [
        &b"a"[..],
        b"ab",
        b"a/b",
        b"a-b",
        b"a\0b",
        b"a\0c",
        b"\0",
        b"\0\0",
        b"\xff\xfe\x80",
        b"a\nb",
        b"say \"hi\"",
        b"it's",
        b"-rf",
        b"--json",
        br"a\b",
        br"a\x62",
        b"a b",
        b" ",
        b"%s%n",
        b"$(id)",
        b"\x1b[2J",
        b"\xc3\x28",
        b"<&>",
        b"{}",
        b"",
    ]
    .iter()
    .map(|name| name.to_vec())
    .collect();
    names.push("Übergröße".as_bytes().to_vec());
    names.push("\u{202e}abc".as_bytes().to_vec());
    names.push(vec![0xff; 64]);
    names.extend([1, 63, 64].map(|len| vec![b'n'; len]));
    names
}

fn unhex(text: &str) -> Vec<u8> {
    let digits: Vec<char> = text.chars().filter(|c| !c.is_whitespace()).collect();
    digits
        .chunks(2)
        .map(|pair| u8::from_str_radix(&pair.iter().collect::<String>(), 16).expect("hexadecimal"))
        .collect()
}

/// The bytes that an escaped name stands for.
fn read_back(text: &str) -> Vec<u8> {
    let mut parts = text.split("\\x");
    let mut name = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        name.extend(unhex(&part[..2]));
        name.extend(&part.as_bytes()[2..]);
    }
    name
}

#[test]
fn bl_106_names_are_bytes_everywhere() {
    let daemon = daemon();
    let space = open(&daemon, "web");
    let names = odd_names();
    let exclusive = Wanted::new().flags(LockFlags::NOQUEUE);
    let guards: Vec<_> = names
        .iter()
        .map(|name| space.lock(name, Mode::EX, &exclusive).expect("different names never conflict"))
        .collect();
    let expected: BTreeSet<Vec<u8>> = names.iter().cloned().collect();
    assert_eq!(expected.len(), names.len());

    let dump = line(daemon.socket(), "lockdump web").out;
    assert_eq!(dump.lines().count(), names.len(), "a line per lock");
    let quoted = dump.lines().map(|line| {
        let start = line.find('"').expect("a quoted name");
        read_back(line[start + 1..].strip_suffix('"').expect("the end of the line"))
    });
    assert_eq!(quoted.collect::<BTreeSet<_>>(), expected);

    let debug = line(daemon.socket(), "lockdebug web").out;
    let resources = debug.lines().filter_map(|line| line.strip_prefix("Resource len "));
    let plain_or_hex = resources.map(|rest| {
        let len: usize = rest[..2].trim().parse().expect("a length");
        match rest[2..].strip_prefix(" hex ") {
            Some(hex) => unhex(hex),
            None => rest[2..].strip_prefix("  \"").expect("a quote").as_bytes()[..len].to_vec(),
        }
    });
    assert_eq!(plain_or_hex.collect::<BTreeSet<_>>(), expected);

    let json = line(daemon.socket(), "lockdump web --json").json();
    let locks = json["locks"].as_array().expect("a list");
    let hex = locks.iter().map(|lock| unhex(lock["name_hex"].as_str().expect("hex")));
    assert_eq!(hex.collect::<BTreeSet<_>>(), expected);
    for lock in locks {
        let bytes = unhex(lock["name_hex"].as_str().expect("hex"));
        let name = lock["name"].as_str().expect("a name");
        match std::str::from_utf8(&bytes) {
            Ok(text) => assert_eq!((name, &lock["name_escaped"]), (text, &false.into())),
            Err(_) => {
                assert_eq!((read_back(name), &lock["name_escaped"]), (bytes, &true.into()));
            }
        }
    }

    for (name, guard) in names.iter().zip(&guards) {
        let text: String = name.iter().map(|byte| format!("\\x{byte:02x}")).collect();
        let found = tool(daemon.socket(), &["lock", "web", text.as_str(), "--json"]).json();
        assert_eq!(found["granted"][0]["id"], guard.lock().id, "{text}");
    }
    let utf8 = tool(daemon.socket(), &["lock", "web", "Übergröße"]);
    assert!(utf8.out.contains("name \"Übergröße\" (12 bytes)"), "{}", utf8.out);
}

#[test]
fn bl_105_long_names_work_up_to_the_limit_and_are_refused_beyond() {
    let daemon = daemon();
    let socket = daemon.socket();
    for len in [1, 63, 64] {
        let name = "s".repeat(len);
        assert_eq!(tool(socket, &["join", &name]).code, 0, "{len}");
        let json = tool(socket, &["ls", &name, "--json"]).json();
        assert_eq!(json["lockspaces"][0]["name"].as_str(), Some(name.as_str()));
        assert_eq!(tool(socket, &["leave", &name]).code, 0, "{len}");
    }
    for len in [0, 65, 255] {
        let name = "s".repeat(len);
        let ran = tool(socket, &["join", &name]);
        let error = format!("dlm_new_lockspace {name} error 22\n");
        assert_eq!((ran.err, ran.code), (error, 255), "{len}");
        assert_eq!(tool(socket, &["leave", &name]).code, 255, "{len}");
    }
    for len in [65, 255, 4096] {
        let name = "n".repeat(len);
        for words in [vec!["lock", "web", &name], vec!["exec", "web", &name, "--", "true"]] {
            let ran = tool(socket, &words);
            assert_eq!((ran.out.as_str(), ran.code), ("", 2), "{len}");
            assert!(ran.err.contains("at most 64"), "{}", ran.err);
        }
    }
}

#[test]
fn a_lockspace_name_of_any_bytes_is_listed_and_left() {
    let daemon = daemon();
    let run = |words: [OsString; 2]| -> Ran { finish(command(daemon.socket(), &words)) };
    let exec = |name: OsString| {
        let words = ["exec".into(), name, "a".into(), "--".into(), "echo".into(), "ran".into()];
        finish(command(daemon.socket(), &words))
    };
    let name = OsString::from_vec(b"odd\xff\n\"".to_vec());
    assert_eq!(run(["join".into(), name.clone()]).code, 0);
    let ls = line(daemon.socket(), "ls").out;
    assert!(ls.contains("name          odd\\xff\\x0a\\x22\n"), "{ls}");
    let json = line(daemon.socket(), "ls --json").json();
    assert_eq!(json["lockspaces"][0]["name_hex"], "6f6464ff0a22");
    assert_eq!(run(["lockdump".into(), name.clone()]).parts(), ("", "", 0));
    assert_eq!(exec(name.clone()).parts(), ("ran\n", "", 0));
    assert_eq!(run(["leave".into(), name]).code, 0);
    assert_eq!(line(daemon.socket(), "ls").out, "");
}

#[test]
fn more_lockspaces_than_one_answer_holds_are_all_listed() {
    let daemon = daemon();
    let open: Vec<_> = (0..300).map(|n| open(&daemon, &format!("space-{n:03}"))).collect();
    let ls = line(daemon.socket(), "ls").out;
    assert_eq!(ls.matches("\nname          space-").count(), open.len());
    assert_eq!(line(daemon.socket(), "ls space-299").code, 0);
    let json = line(daemon.socket(), "ls --json").json();
    assert_eq!(json["lockspaces"].as_array().map(Vec::len), Some(open.len()));
}

#[test]
fn counters_count() {
    let daemon = daemon();
    let space = open(&daemon, "web");
    let _guard = space.lock(b"a", Mode::PR, &Wanted::new()).expect("granted");
    let json = line(daemon.socket(), "counters --json").json();
    assert_eq!((json["state"].as_str(), json["counters"]["locks"].as_u64()), (Some("ok"), Some(1)));
    assert!(line(daemon.socket(), "counters").out.contains("\nlockspaces 1\n"));
    let metrics = line(daemon.socket(), "counters --prometheus").out;
    assert!(metrics.contains("# TYPE dlm_locks untyped\ndlm_locks 1\n"), "{metrics}");
}
