//! Texts and exit codes of every command without a daemon, with one that is stopped, and with one
//! that serves (libdlm-abi.md 4.1; BL-052, BL-054).

mod common;

use std::path::Path;
use std::time::{Duration, Instant};

use common::{Ran, daemon, line, signal, tool};
use dlm_net::testing::TempDir;

/// The limit that users were promised. It is no measurement: commands give up after 4.5 s.
const PROMISE: Duration = Duration::from_secs(5);

/// Command, output, error output and code where nobody serves.
const ABSENT: &[(&str, &str, &str, i32)] = &[
    ("ls", "", "", 1),
    ("ls -n web", "", "", 1),
    ("status", "cannot connect to dlm_controld\n", "", 0),
    ("status -v", "cannot connect to dlm_controld\n", "", 0),
    ("dump", "\n", "", 0),
    ("dump_config", "\n", "", 0),
    ("reload_config", "reload_config failed\n", "", 0),
    ("set_config log=info", "set_config failed\n", "", 0),
    ("fence_ack 2", "", "", 0),
    (
        "lockdump web",
        "",
        "can't open /sys/kernel/debug/dlm/web_locks: No such file or directory\n",
        0,
    ),
    (
        "lockdebug -s web",
        "",
        "can't open /sys/kernel/debug/dlm/web: No such file or directory\n",
        0,
    ),
    (
        "join web",
        "Joining lockspace \"web\" permission 600 \n",
        "dlm_new_lockspace web error 107\n",
        255,
    ),
    ("leave web", "Leaving lockspace \"web\"\n", "dlm_open_lockspace web error (nil) 107\n", 255),
    (
        "joinleave -e 1 web",
        "Joining lockspace \"web\" permission 600 flags NEWEXCL \n",
        "dlm_new_lockspace web error 107\n",
        255,
    ),
];

/// Commands without meaning: output and code, with and without a daemon.
const NO_MEANING: &[(&str, &str, i32)] = &[
    ("log_plock", "\n", 0),
    ("run_list", "\n", 0),
    ("plocks web", "", 0),
    ("deadlock_check web", "", 0),
    ("run lvs", "run_uuid: \ncheck_status: \n", 255),
    ("run_start lvs", "run_uuid: \n", 255),
    ("run_check uuid", "check_status: \n", 255),
    ("run_cancel uuid", "check_status: \n", 255),
];

/// Commands that tell the truth.
const TRUE: &[&str] = &[
    "ls --json",
    "ls web --json",
    "status --json",
    "dump --json",
    "dump_config --json",
    "reload_config --json",
    "set_config log=info --json",
    "fence_ack 2 --json",
    "lockdump web --json",
    "lockdebug web --json",
    "join web --json",
    "leave web --json",
    "joinleave web --json",
    "lock web a --json",
    "orphans web --json",
    "purge web --json",
    "counters --json",
    "shutdown --json",
];

fn no_meaning(socket: &Path) {
    for (words, out, code) in NO_MEANING {
        let ran = line(socket, words);
        assert_eq!((ran.out.as_str(), ran.code), (*out, *code), "{words}");
        assert!(ran.err.contains("has no meaning here"), "{words}: {}", ran.err);
    }
}

#[test]
fn without_a_daemon_old_commands_follow_the_table_and_others_say_3() {
    let dir = TempDir::new("absent");
    let socket = dir.path().join("dlmd.sock");
    for (words, out, err, code) in ABSENT {
        assert_eq!(line(&socket, words).parts(), (*out, *err, *code), "{words}");
    }
    no_meaning(&socket);
    for words in TRUE {
        let ran = line(&socket, words);
        assert_eq!(ran.json()["state"], "daemon-absent", "{words}");
        assert_eq!(ran.code, 3, "{words}");
        assert!(ran.err.contains(&socket.display().to_string()), "{words}: {}", ran.err);
    }
    for words in ["lock web a", "orphans web", "purge web", "counters", "shutdown"] {
        let ran = line(&socket, words);
        assert_eq!((ran.out.as_str(), ran.code), ("", 3), "{words}");
    }
    let ran = line(&socket, "exec web a -- echo ran");
    assert_eq!((ran.out.as_str(), ran.code), ("", 3), "{}", ran.err);
}

#[test]
fn a_socket_that_nobody_serves_any_more_is_an_absent_daemon() {
    let mut daemon = daemon();
    daemon.kill();
    assert!(daemon.socket().exists(), "a crash leaves the file");
    assert_eq!(line(daemon.socket(), "ls").parts(), ("", "", 1));
    assert_eq!(line(daemon.socket(), "ls --json").json()["state"], "daemon-absent");
    let ran = line(daemon.socket(), "leave web");
    assert_eq!(ran.err, "dlm_open_lockspace web error (nil) 107\n");
}

#[test]
fn a_stopped_daemon_holds_up_no_command() {
    let daemon = daemon();
    assert_eq!(line(daemon.socket(), "join web").code, 0);
    signal(daemon.pid(), "STOP");
    let meaningful = ABSENT.iter().map(|row| row.0).chain(TRUE.iter().copied());
    let own = ["lock web a", "counters --prometheus", "shutdown --force", "exec web a -- echo ran"];
    let commands: Vec<&str> = meaningful.chain(own).collect();
    let results: Vec<(&str, Ran, Duration)> = std::thread::scope(|scope| {
        let runs: Vec<_> = commands
            .iter()
            .map(|words| {
                let socket = daemon.socket();
                scope.spawn(move || {
                    let begin = Instant::now();
                    (*words, line(socket, words), begin.elapsed())
                })
            })
            .collect();
        runs.into_iter().map(|run| run.join().expect("it ran")).collect()
    });
    signal(daemon.pid(), "CONT");
    for (words, ran, took) in results {
        assert_eq!(ran.code, 3, "{words}: {ran:?}");
        assert!(ran.err.contains("does not answer within 4.5 s"), "{words}: {}", ran.err);
        // Three dozen processes start at once here; the promise is for one.
        assert!(took < PROMISE * 3, "{words} took {took:?}");
        if words.contains("--json") {
            assert_eq!(ran.json()["state"], "daemon-silent", "{words}");
        }
        assert!(!ran.out.contains("ran"), "{words}: no command without a lock");
    }
}

#[test]
fn a_serving_daemon_and_names_that_are_not_there() {
    let daemon = daemon();
    let socket = daemon.socket();
    assert_eq!(line(socket, "ls").parts(), ("", "", 0), "no lockspaces");
    assert_eq!(line(socket, "ls web").parts(), ("", "", 1));
    let missing = "can't open /sys/kernel/debug/dlm/web_locks: No such file or directory\n";
    assert_eq!(line(socket, "lockdump web").parts(), ("", missing, 0));
    assert_eq!(
        line(socket, "leave web").parts(),
        ("Leaving lockspace \"web\"\n", "dlm_open_lockspace web error (nil) 2\n", 255)
    );
    for words in
        ["ls web", "lockdump web", "lockdebug web", "lock web a", "orphans web", "purge web"]
    {
        let ran = line(socket, &format!("{words} --json"));
        assert_eq!((ran.json()["state"].as_str(), ran.code), (Some("not-found"), 1), "{words}");
        assert!(ran.err.contains("web"), "{words}: {}", ran.err);
    }
    no_meaning(socket);
    let ran = line(socket, "fence_ack 2");
    assert_eq!((ran.out.as_str(), ran.code), ("", 0));
    assert!(ran.err.contains("needs no fencing"), "{}", ran.err);
    assert_eq!(line(socket, "fence_ack 2 --json").code, 1);
    let status = line(socket, "status --json");
    assert_eq!((status.json()["state"].as_str(), status.code), (Some("running"), 0));
}

#[test]
fn settings_change_at_run_time_and_refusals_are_told() {
    let daemon = daemon();
    let socket = daemon.socket();
    assert_eq!(
        line(socket, "set_config log=warn clients_max=99").parts(),
        ("set_config done\n", "", 0)
    );
    let dump = line(socket, "dump_config").out;
    assert!(dump.contains("\nlog=warn (set_config)\n"), "{dump}");
    assert!(dump.contains("\nclients_max=99 (set_config)\n"), "{dump}");
    assert!(dump.ends_with("help=-1\nversion=-1\n\n"), "{dump}");
    line(socket, "set_config log=restore");
    assert!(line(socket, "dump_config").out.contains("\nlog=info\n"));
    line(socket, "set_config restore_all");
    assert!(!line(socket, "dump_config").out.contains("set_config"));
    let ran = line(socket, "set_config clietns_max=1 nodeid=5");
    assert_eq!((ran.out.as_str(), ran.code), ("set_config done\n", 0));
    assert!(ran.err.contains("clients_max") && ran.err.contains("nodeid"), "{}", ran.err);
    let ran = line(socket, "set_config clietns_max=1 --json");
    assert_eq!((ran.json()["refusals"][0]["key"].as_str(), ran.code), (Some("clietns_max"), 1));
    assert_eq!(line(socket, "reload_config").parts(), ("reload_config done\n", "", 0));
}

#[test]
fn shutdown_is_refused_while_a_lockspace_exists_and_forced_on_demand() {
    let mut daemon = daemon();
    assert_eq!(line(daemon.socket(), "join web").code, 0);
    let ran = line(daemon.socket(), "shutdown");
    assert_eq!((ran.out.as_str(), ran.code), ("", 1));
    assert!(ran.err.contains("web") && ran.err.contains("--force"), "{}", ran.err);
    let ran = line(daemon.socket(), "shutdown --json");
    assert_eq!((ran.json()["state"].as_str(), ran.code), (Some("refused"), 1));
    assert_eq!(line(daemon.socket(), "shutdown --force").parts(), ("dlmd ends\n", "", 0));
    assert!(daemon.wait().success());
}

#[test]
fn a_daemons_socket_can_be_named() {
    let daemon = daemon();
    let nowhere = Path::new("/nonexistent/dlmd.sock");
    let path = daemon.socket().to_str().expect("UTF-8");
    for words in [["--socket", path, "status"], ["status", "--socket", path]] {
        assert!(tool(nowhere, &words).out.starts_with("cluster nodeid 1 quorate 1 ring seq "));
    }
    assert_eq!(tool(nowhere, &["counters", "--socket", path]).code, 0);
    assert_eq!(tool(nowhere, &["counters"]).code, 3);
}
