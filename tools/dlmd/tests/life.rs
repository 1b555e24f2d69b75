//! The program's life: command line, exit codes, start, second start, background, signals, end.

mod common;

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use common::{Client, Control, EX, Holder, daemon, hello, process_state, signal, wait_until};
use dlm_ipc::control::{ControlReply, ControlRequest};
use dlm_ipc::hello::DaemonMessage;
use dlm_ipc::layout::LostReason;
use dlm_net::testing::{DaemonProcess, TempDir};

const DLMD: &str = env!("CARGO_BIN_EXE_dlmd");

/// Runs the program to its end.
fn run(options: &[&str]) -> Output {
    let mut command = Command::new(DLMD);
    command.args(options).stdin(Stdio::null()).env_remove("DLM_SOCKET");
    command.output().expect("the program runs")
}

fn told(output: &Output) -> (Option<i32>, String) {
    let text = [&output.stdout[..], &output.stderr[..]].concat();
    (output.status.code(), String::from_utf8_lossy(&text).into_owned())
}

#[test]
fn help_version_and_the_table_of_keys_are_printed() {
    let (code, text) = told(&run(&["--help"]));
    assert_eq!(code, Some(0));
    assert!(text.contains("--override-kernel-dlm") && text.contains("--client_locks_max"));
    let (code, text) = told(&run(&["--version"]));
    assert_eq!((code, text.as_str()), (Some(0), concat!("dlmd ", env!("CARGO_PKG_VERSION"), "\n")));
    let (code, text) = told(&run(&["--list-options"]));
    assert_eq!(code, Some(0));
    assert!(text.contains("clients_max\t16384\truntime\t"), "{text}");
}

#[test]
fn a_bad_command_line_is_usage() {
    let (code, text) = told(&run(&["--sokcet", "/x"]));
    assert_eq!(code, Some(2));
    let want = "dlmd: unknown option --sokcet; the nearest is --socket; see dlmd --help\n";
    assert_eq!(text, want);
}

#[test]
fn check_config_judges_a_file_with_lines() {
    let dir = TempDir::new("check");
    let path = dir.path().join("dlm.conf");
    let file = path.to_str().expect("plain");
    let check = |text: &str| {
        std::fs::write(&path, text).expect("writable");
        told(&run(&["--check-config", "--config", file, "--socket", "/tmp/x/dlmd.sock"]))
    };
    let (code, text) = check("cluster_name=web\n\nlockspace a nodir=1\nmaster a node=1\n");
    assert_eq!((code, text), (Some(0), format!("{file}: good; the socket is /tmp/x/dlmd.sock\n")));
    let (code, text) = check("cluster_name=web\nclietns_max=3\nport=0\n");
    assert_eq!(code, Some(1));
    let want = format!(
        "dlmd: {file}:2: unknown key 'clietns_max'; the nearest is 'clients_max'\n\
         {file}:3: port: '0' is not a number from 1 to 65535\n"
    );
    assert_eq!(text, want);
    let (code, text) = check("create_group=no-such-group-here\n");
    assert_eq!(code, Some(1));
    assert!(text.contains("there is no group 'no-such-group-here'"), "{text}");
    let (code, text) = told(&run(&["--check-config", "--config", "/nonexistent/dlm.conf"]));
    assert_eq!(code, Some(1));
    assert!(text.contains("cannot read /nonexistent/dlm.conf"), "{text}");
}

#[test]
fn a_kernel_dlm_is_refused_with_a_sentence_unless_overridden() {
    let dir = TempDir::new("kernel");
    let misc = dir.path().join("misc");
    std::fs::write(&misc, " 61 dlm-control\n").expect("writable");
    let socket = dir.path().join("dlmd.sock");
    let (misc, socket) = (misc.to_str().expect("plain"), socket.to_str().expect("plain"));
    let (code, text) = told(&run(&["--socket", socket, "--proc-misc", misc]));
    assert_eq!(code, Some(3));
    assert!(text.contains("a kernel DLM is active") && text.contains("do not see"), "{text}");
    let daemon = daemon(&["--proc-misc", misc]); // it is started with the override
    assert!(daemon.socket().exists());
}

#[test]
fn a_place_that_cannot_be_made_is_no_place_to_run() {
    let (code, text) = told(&run(&["--override-kernel-dlm", "--socket", "/proc/none/dlmd.sock"]));
    assert_eq!(code, Some(3));
    assert!(text.contains("cannot make /proc/none"), "{text}");
}

#[test]
fn a_second_daemon_is_refused_and_the_first_one_serves_on() {
    let first = daemon(&[]);
    let mut client = Client::create(&first, "web");
    let socket = first.socket().to_str().expect("plain");
    let (code, text) = told(&run(&["--override-kernel-dlm", "--socket", socket]));
    assert_eq!(code, Some(1));
    let want = format!("another dlmd (pid {}) runs in", first.pid());
    assert!(text.contains(&want), "{text}");
    let elsewhere = TempDir::new("second");
    let run_dir = elsewhere.path().to_str().expect("plain");
    let options = ["--override-kernel-dlm", "--socket", socket, "--run_dir", run_dir];
    let (code, text) = told(&run(&options));
    assert_eq!(code, Some(1));
    assert!(text.contains("another dlmd serves at"), "{text}");
    client.lock(b"x", EX, 0);
}

/// BL-055, BL-059.
#[test]
fn what_a_killed_daemon_left_needs_no_hand() {
    let mut first = daemon(&["--nodeid=3"]);
    let _client = Client::create(&first, "web");
    let _other = Client::create(&first, "a/b");
    let tree = first.dir().join("config/dlm/cluster/spaces");
    assert!(tree.join("web/nodes/3/nodeid").exists() && tree.join("a%2fb").exists());
    first.kill();
    assert!(first.socket().exists(), "the crash left the socket");
    let dir = first.into_dir();
    std::fs::write(dir.path().join("state"), b"\0garbage").expect("writable");
    let second = DaemonProcess::start_in(dir, Path::new(DLMD), &["--nodeid=3"]);
    let log = second.log();
    assert!(log.contains("web left by a daemon that crashed"), "{log}");
    assert!(log.contains("a%2fb left by a daemon that crashed"), "{log}");
    assert!(log.contains("state: the file is damaged"), "{log}");
    let tree = second.dir().join("config/dlm/cluster");
    assert!(!tree.join("spaces/web").exists());
    let mut client = Client::create(&second, "web");
    client.lock(b"x", EX, 0);
    let name = std::fs::read_to_string(tree.join("cluster_name")).expect("readable");
    assert_eq!(name, "dlm\n");
    assert!(tree.join("spaces/web/nodes/3/weight").exists());
}

#[test]
fn incarnations_and_views_grow_over_restarts() {
    let numbers = |daemon: &DaemonProcess| {
        let control = Control::connect(daemon.socket());
        let _client = Client::create(daemon, "web");
        let ControlReply::Status(status) = control.ask(&ControlRequest::Status) else {
            panic!("a status")
        };
        let ControlReply::Lockspaces(spaces) = control.ask(&ControlRequest::Lockspaces) else {
            panic!("a listing")
        };
        (status.incarnation, spaces[0].view)
    };
    let first = daemon(&[]);
    let before = numbers(&first);
    let second = DaemonProcess::start_in(first.into_dir(), Path::new(DLMD), &[]);
    let after = numbers(&second);
    assert!(after.0 > before.0 && after.1 > before.1, "{before:?} {after:?}");
}

#[test]
fn the_end_is_refused_while_lockspaces_are_in_use_and_says_who_uses_them() {
    let mut daemon = daemon(&[]);
    let holder = Holder::holding(&daemon, "web", &["x"]);
    signal(daemon.pid(), "TERM");
    wait_until("the refusal is logged", || daemon.log().contains("not ending"));
    let want = format!("lockspace web is open in pid {} (hold)", holder.pid());
    assert!(daemon.log().contains(&want), "{}", daemon.log());
    assert_eq!(daemon.ended(), None);
    let client = Client::open(&daemon, "web");
    signal(daemon.pid(), "INT");
    assert_eq!(daemon.wait().code(), Some(0), "{}", daemon.log());
    assert_eq!(client.side.page.lost(), Some(LostReason::Shutdown));
    assert_eq!(client.hear(), Some(DaemonMessage::Lost(LostReason::Shutdown)));
    assert_eq!(client.hear(), None);
    assert!(!daemon.socket().exists());
    // The folder stays for those who have it mounted; nothing is in it.
    let tree = std::fs::read_dir(daemon.dir().join("config/dlm/cluster")).expect("a folder");
    assert_eq!(tree.count(), 0);
    assert!(!daemon.dir().join("lockspaces").exists());
}

#[test]
fn a_lockspace_without_handles_is_in_use_until_it_is_released() {
    let mut daemon = daemon(&[]);
    Client::create(&daemon, "web").close();
    signal(daemon.pid(), "TERM");
    wait_until("the refusal is logged", || {
        daemon.log().contains("lockspace web was created 1 times without release")
    });
    assert_eq!(Client::open(&daemon, "web").release(false), 0);
    signal(daemon.pid(), "TERM");
    assert_eq!(daemon.wait().code(), Some(0));
}

#[test]
fn an_idle_daemon_ends_at_the_first_signal() {
    for name in ["TERM", "INT"] {
        let mut daemon = daemon(&[]);
        signal(daemon.pid(), name);
        assert_eq!(daemon.wait().code(), Some(0), "{name}");
        assert!(!daemon.socket().exists());
    }
}

#[test]
fn shutdown_by_request_obeys_the_same_rule() {
    let mut daemon = daemon(&[]);
    let _client = Client::create(&daemon, "web");
    let control = Control::connect(daemon.socket());
    match control.ask(&ControlRequest::Shutdown { force: false }) {
        ControlReply::Refused { errno: libc::EBUSY, message } => {
            assert!(message.contains("lockspace web is open in pid"), "{message}");
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(control.ask(&ControlRequest::Shutdown { force: true }), ControlReply::Done);
    assert_eq!(daemon.wait().code(), Some(0));
}

#[test]
fn standard_input_ends_a_daemon_that_was_told_so() {
    let dir = TempDir::new("stdin");
    let socket = dir.path().join("dlmd.sock");
    let mut child = Command::new(DLMD)
        .args(["--override-kernel-dlm", "--until-stdin-closes", "--socket"])
        .arg(&socket)
        .stdin(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("the program runs");
    wait_until("it serves", || dlm_ipc::socket::Connection::connect(&socket).is_ok());
    let _client = Client::connect(&socket, &hello("web", true));
    drop(child.stdin.take());
    assert_eq!(child.wait().expect("ours").code(), Some(0));
}

#[test]
fn the_journal_gets_levels_in_front() {
    let dir = TempDir::new("journal");
    let mut child = Command::new(DLMD)
        .args(["--override-kernel-dlm", "--until-stdin-closes", "--socket"])
        .arg(dir.path().join("dlmd.sock"))
        .env("JOURNAL_STREAM", "8:1")
        .env_remove("NOTIFY_SOCKET")
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program runs");
    wait_until("it serves", || dir.path().join("dlmd.sock").exists());
    drop(child.stdin.take());
    let output = child.wait_with_output().expect("ours");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.starts_with("<6>dlmd ") && text.ends_with("<6>ended\n"), "{text}");
}

#[test]
fn the_variable_names_the_socket_and_the_option_beats_it() {
    let check = |options: &[&str]| {
        let mut command = Command::new(DLMD);
        command.args(["--check-config", "--config", "/dev/null"]).args(options);
        told(&command.env("DLM_SOCKET", "/v/dlmd.sock").output().expect("the program runs"))
    };
    let good = |path: &str| (Some(0), format!("/dev/null: good; the socket is {path}\n"));
    assert_eq!(check(&[]), good("/v/dlmd.sock"));
    assert_eq!(check(&["--socket=/o/dlmd.sock"]), good("/o/dlmd.sock"));
}

/// Starts a daemon that goes to the background, and returns how the start went.
fn daemonize(name: &str, dir: &Path, options: &[&str]) -> Output {
    let mut command = Command::new(DLMD);
    command.arg0(name).arg("--override-kernel-dlm").arg("--socket").arg(dir.join("dlmd.sock"));
    command.args(options).stdin(Stdio::null());
    command.output().expect("the program runs")
}

/// Ends a daemon in the background.
fn end(dir: &Path) {
    let control = Control::connect(&dir.join("dlmd.sock"));
    assert_eq!(control.ask(&ControlRequest::Shutdown { force: true }), ControlReply::Done);
    wait_until("it ends", || !dir.join("dlmd.sock").exists());
}

/// BL-053.
#[test]
fn daemonize_returns_once_it_serves_and_leaves_the_session() {
    let dir = TempDir::new("background");
    let output = daemonize("dlmd", dir.path(), &["--daemonize"]);
    assert_eq!(told(&output).0, Some(0), "{output:?}");
    // No waiting: it serves when the command returns. Reading all of its output did not hang, so
    // the daemon has let go of it.
    Client::connect(&dir.path().join("dlmd.sock"), &hello("web", true)).expect("it serves");
    let pid = std::fs::read_to_string(dir.path().join("dlmd.pid")).expect("a pid file");
    let pid: u32 = pid.trim().parse().expect("a number");
    assert!("SR".contains(process_state(pid)));
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("it runs");
    let session = stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(3));
    assert_eq!(session, Some(pid.to_string().as_str()), "it leads its own session");
    end(dir.path());
}

#[test]
fn daemonize_reports_a_failed_start() {
    let dir = TempDir::new("background-fails");
    let first = daemonize("dlmd", dir.path(), &["--daemonize"]);
    assert_eq!(told(&first).0, Some(0), "{first:?}");
    let (code, text) = told(&daemonize("dlmd", dir.path(), &["--daemonize"]));
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("another dlmd"), "{text}");
    end(dir.path());
}

#[test]
fn under_the_originals_name_it_daemonizes() {
    let dir = TempDir::new("original");
    let output = daemonize("/usr/sbin/dlm_controld", dir.path(), &["-K", "-q0"]);
    assert_eq!(told(&output).0, Some(0), "{output:?}");
    let control = Control::connect(&dir.path().join("dlmd.sock"));
    let ControlReply::Config(all) = control.ask(&ControlRequest::Config) else { panic!("a list") };
    let value = |key: &str| {
        let record = all.iter().find(|record| record.key == key).expect("listed");
        format!("{}={} ({})", record.key, record.value, record.source)
    };
    assert_eq!(value("log_debug"), "log_debug=1 (cli option)");
    assert_eq!(value("enable_quorum_fencing"), "enable_quorum_fencing=0 (cli option)");
    assert_eq!(value("enable_fencing"), "enable_fencing=1 ()");
    end(dir.path());
}

/// A program that runs the daemon as nobody, in a directory that nobody owns.
fn as_nobody(dir: &TempDir) -> Option<std::path::PathBuf> {
    let probe = ["--reuid=65534", "--regid=65534", "--clear-groups", DLMD, "--version"];
    let good = Command::new("setpriv").args(probe).output().is_ok_and(|o| o.status.success());
    if !good || std::os::unix::fs::chown(dir.path(), Some(65534), Some(65534)).is_err() {
        return None;
    }
    let command = "exec setpriv --reuid=65534 --regid=65534 --clear-groups";
    Some(dir.script("dlmd-as-nobody", &format!("{command} '{DLMD}' \"$@\"")))
}

#[test]
fn it_needs_no_privilege() {
    let dir = TempDir::new("nobody");
    let Some(program) = as_nobody(&dir) else {
        println!("skipped: this user cannot start a process of another user");
        return;
    };
    std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o777)).expect("ours");
    let mut daemon = DaemonProcess::start_in(dir, &program, &[]);
    let status = std::fs::read_to_string(format!("/proc/{}/status", daemon.pid()));
    assert!(status.expect("it runs").contains("Uid:\t65534\t65534"));
    let mut client = Client::create(&daemon, "web"); // root passes
    let held = client.lock(b"x", EX, 0);
    client.unlock(held);
    assert_eq!(client.release(false), 0);
    assert!(daemon.dir().join("state").exists());
    signal(daemon.pid(), "TERM");
    assert_eq!(daemon.wait().code(), Some(0), "{}", daemon.log());
}

#[test]
fn the_sockets_mode_is_the_configured_one() {
    let daemon = daemon(&["--socket_mode=0640"]);
    let mode = std::fs::metadata(daemon.socket()).expect("there").permissions().mode();
    assert_eq!(mode & 0o777, 0o640);
}

#[test]
fn hang_up_reads_the_configuration_again() {
    let dir = TempDir::new("reload");
    let path = dir.path().join("dlm.conf");
    std::fs::write(&path, "clients_max=5\n").expect("writable");
    let daemon = daemon(&["--config", path.to_str().expect("plain")]);
    std::fs::write(&path, "clients_max=6\nport=5\n").expect("writable");
    signal(daemon.pid(), "HUP");
    wait_until("it is read", || daemon.log().contains("new values of port count after a restart"));
    let control = Control::connect(daemon.socket());
    let ControlReply::Config(all) = control.ask(&ControlRequest::Config) else { panic!("a list") };
    let value = |key: &str| all.iter().find(|r| r.key == key).map(|r| r.value.clone());
    assert_eq!(value("clients_max").as_deref(), Some("6"));
    assert_eq!(value("port").as_deref(), Some("21064"));
    std::fs::write(&path, "clients_max=x\n").expect("writable");
    match control.ask(&ControlRequest::ReloadConfig) {
        ControlReply::Refused { message, .. } => {
            assert!(message.contains(":1: clients_max: 'x' is not a number"), "{message}");
        }
        other => panic!("{other:?}"),
    }
}
