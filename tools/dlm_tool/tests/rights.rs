//! What a stranger may ask, and what he is told. Only root can become somebody else: as another
//! user these tests say that they were skipped.

mod common;

use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use common::{Ran, TOOL, daemon, finish, line};
use dlm_net::testing::DaemonProcess;

/// User and group "nobody" of every Linux.
const NOBODY: u32 = 65_534;

/// A copy of the tool where everybody may run it.
fn public_tool(daemon: &DaemonProcess) -> PathBuf {
    let path = daemon.dir().join("dlm_tool");
    std::fs::copy(TOOL, &path).expect("copied");
    path
}

/// Runs the tool as nobody; `None` if we may not.
fn as_nobody(daemon: &DaemonProcess, words: &str) -> Option<Ran> {
    let mut command = Command::new(daemon.dir().join("dlm_tool"));
    command.args(words.split_whitespace()).env("DLM_SOCKET", daemon.socket());
    command.stdin(Stdio::null()).current_dir("/").uid(NOBODY).gid(NOBODY);
    let mut probe = Command::new("true");
    match probe.uid(NOBODY).gid(NOBODY).status() {
        Ok(_) => Some(finish(command)),
        Err(why) => {
            println!("SKIPPED: this user may not become another one ({why})");
            None
        }
    }
}

#[test]
fn a_stranger_sees_lockspaces_and_not_their_locks() {
    let daemon = daemon();
    public_tool(&daemon);
    assert_eq!(line(daemon.socket(), "join secret").code, 0);
    let Some(ran) = as_nobody(&daemon, "ls") else { return };
    assert!(ran.out.contains("name          secret\n"), "{ran:?}");
    let ask = |words: &str| as_nobody(&daemon, words).expect("we may");
    assert_eq!(ask("status").code, 0);
    assert_eq!(ask("counters").code, 0);
    let denied = "can't open /sys/kernel/debug/dlm/secret_locks: Permission denied\n";
    assert_eq!(ask("lockdump secret").parts(), ("", denied, 0));
    for words in ["lockdump secret", "lock secret a", "orphans secret", "purge secret", "shutdown"]
    {
        let ran = ask(&format!("{words} --json"));
        assert_eq!((ran.json()["state"].as_str(), ran.code), (Some("refused"), 1), "{words}");
    }
    let ran = ask("set_config log=debug");
    assert_eq!((ran.out.as_str(), ran.code), ("set_config done\n", 0));
    assert!(ran.err.contains("root"), "{}", ran.err);
    assert!(line(daemon.socket(), "dump_config").out.contains("\nlog=info\n"));
}

#[test]
fn a_stranger_runs_commands_under_locks_of_a_public_lockspace_only() {
    let daemon = daemon();
    public_tool(&daemon);
    assert_eq!(line(daemon.socket(), "join -m 666 public").code, 0);
    assert_eq!(line(daemon.socket(), "join secret").code, 0);
    let Some(ran) = as_nobody(&daemon, "exec public a -- echo ran") else { return };
    assert_eq!(ran.parts(), ("ran\n", "", 0));
    let ask = |words: &str| as_nobody(&daemon, words).expect("we may");
    let ran = ask("exec new a -- echo ran");
    assert_eq!((ran.out.as_str(), ran.code), ("", 1));
    assert!(ran.err.contains("you may not create lockspaces"), "{}", ran.err);
    let ran = ask("exec secret a -- echo ran");
    assert_eq!((ran.out.as_str(), ran.code), ("", 1));
    assert!(ran.err.contains("Permission denied"), "{}", ran.err);
    let ran = ask("join new");
    assert_eq!((ran.err.as_str(), ran.code), ("dlm_new_lockspace new error 1\n", 255));
    let left = line(daemon.socket(), "ls --json").json();
    assert_eq!(left["lockspaces"].as_array().map(Vec::len), Some(2));
}
