//! From a command line to an exit code: one front for the old grammar and ours.

use std::ffi::{OsStr, OsString};
use std::io::{self, BufWriter, Write};
use std::path::Path;

use dlm_ipc::path::socket_path;

use crate::context::{Code, Context, Fail, GOOD, NO, Outcome, PIPE, USAGE};
use crate::daemon::Socket;
use crate::getopt::{Options, Scanned, scan};
use crate::join::{Join, run_join, run_joinleave, run_leave};
use crate::lockdebug::Lockdebug;
use crate::lockdump::Lockdump;
use crate::own::{OLD, OldCommand, Own, Place, Shell, bytes, help_of, parse, whole};
use crate::spaces::ClientSpaces;
use crate::{
    counters, dump, dump_config, exec, feed, lock, lockdebug, lockdump, ls, members, no_meaning,
    orphans, own, recovery, set_config, shutdown, status, sys,
};

/// Runs the command of this process and returns its exit code.
pub(crate) fn run(mut args: impl Iterator<Item = OsString>) -> Code {
    let program = args.next().unwrap_or_else(|| "dlm_tool".into());
    let args: Vec<OsString> = args.collect();
    let mut out = BufWriter::with_capacity(64 * 1024, io::stdout().lock());
    let mut err = io::stderr();
    let result = dispatch(&program, &args, &mut out, &mut err);
    match result.and_then(|code| Ok(out.flush().map(|()| code)?)) {
        Ok(code) => code,
        Err(Fail::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => PIPE,
        Err(Fail::Output(error)) => {
            let _ = writeln!(err, "dlm_tool: the output cannot be written: {error}");
            NO
        }
        Err(Fail::Daemon(trouble)) => {
            let _ = writeln!(err, "dlm_tool: {trouble}");
            trouble.code()
        }
    }
}

fn dispatch(
    program: &OsStr,
    args: &[OsString],
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> Outcome {
    let program = program.display();
    match scan(args, &OLD.each_ref().map(|old| old.name), &own::NAMES) {
        Scanned::Help => {
            usage(out)?;
            Ok(GOOD)
        }
        Scanned::Version => {
            let (release, built) = (env!("CARGO_PKG_VERSION"), env!("DLM_TOOL_BUILT"));
            writeln!(out, "{program} {release} (built {built})")?;
            writeln!(out, "Copyright the dlmd authors, MIT licence")?;
            Ok(GOOD)
        }
        Scanned::BadOption(sentence) => {
            writeln!(err, "{program}: {sentence}\nPlease use '-h' for usage.")?;
            Ok(NO)
        }
        Scanned::Old { command, help: true, .. } => {
            match OLD.iter().find(|old| Some(old.name) == command && !old.hidden) {
                Some(old) => return show(&help_of(old.name), out, err),
                None => usage(out)?,
            }
            Ok(GOOD)
        }
        Scanned::Old { command: None, .. } => {
            usage(out)?;
            Ok(NO)
        }
        Scanned::Old { command: Some(name), operands, options, .. } => {
            let mut daemon = Socket::new(socket_path(options.socket.as_deref().map(Path::new)));
            let mut spaces = ClientSpaces::new(daemon.path().to_owned());
            let mut cx = Context { out, err, daemon: &mut daemon };
            match OLD.iter().find(|old| old.name == name) {
                Some(old) => run_old(&mut cx, &mut spaces, old, &operands, &options),
                None => Ok(NO),
            }
        }
        Scanned::Own { words } => match parse(words) {
            Ok(own) => run_own(own, out, err),
            Err(error) => show(&error, out, err),
        },
    }
}

/// Prints what clap has to say: help, or a complaint.
fn show(said: &clap::Error, out: &mut dyn Write, err: &mut dyn Write) -> Outcome {
    let text = said.render();
    if said.use_stderr() {
        write!(err, "{text}")?;
        Ok(USAGE)
    } else {
        write!(out, "{text}")?;
        Ok(GOOD)
    }
}

fn run_old(
    cx: &mut Context<'_>,
    spaces: &mut ClientSpaces,
    old: &OldCommand,
    operands: &[Vec<u8>],
    options: &Options,
) -> Outcome {
    let json = options.json;
    if let (Some((_, complaint)), []) = (old.operand, operands) {
        writeln!(cx.err, "{complaint}")?;
        return Ok(if json { USAGE } else { NO });
    }
    let name = operands.first().cloned();
    let operand = name.clone().unwrap_or_default();
    let text = || String::from_utf8_lossy(&operands.join(&b' ')).into_owned();
    let join = || Join {
        name: operand.clone(),
        mode: options.mode,
        exclusive: options.exclusive,
        fs: options.fs,
        json,
    };
    match old.name {
        "ls" => ls::run(cx, &ls::Ls { name, nodes: options.nodes, json }),
        "status" => status::run(cx, status::Status { verbose: options.verbose, json }),
        "lockdump" => {
            let master_copies = options.master_copies;
            lockdump::run(cx, &Lockdump { lockspace: operand, master_copies, json })
        }
        "lockdebug" => {
            let Options { summary, verbose, wide, .. } = *options;
            let dump = Lockdebug { lockspace: operand, summary, verbose, wide, json };
            lockdebug::run(cx, &dump, sys::monotonic_ns())
        }
        "dump" => dump::run(cx, json),
        "dump_config" => dump_config::run(cx, json),
        "reload_config" => set_config::run_reload(cx, json),
        "set_config" => set_config::run_set(cx, &text(), json),
        "join" => run_join(cx, spaces, &join()),
        "leave" => run_leave(cx, spaces, &join()),
        "joinleave" => run_joinleave(cx, spaces, &join()),
        "fence_ack" => no_meaning::run_fence_ack(cx, &text(), json),
        other => match no_meaning::ALL.iter().find(|what| what.command == other) {
            Some(what) => no_meaning::run(cx, *what, json),
            None => Ok(NO),
        },
    }
}

fn run_own(own: Own, out: &mut dyn Write, err: &mut dyn Write) -> Outcome {
    let place = match &own {
        Own::Lock(args) => &args.place,
        Own::Orphans(args) => &args.place,
        Own::Purge(args) => &args.space.place,
        Own::Counters(args) => &args.place,
        Own::Shutdown(args) => &args.place,
        Own::Exec(args) => &args.place,
        Own::Members(args) => &args.place,
        Own::Recovery(args) => &args.place,
        Own::Safe(args) => &args.place,
        Own::Keygen { .. } | Own::Feed { .. } | Own::Completions { .. } => &Place { socket: None },
    };
    let mut daemon = Socket::new(socket_path(place.socket.as_deref()));
    let path = daemon.path().to_owned();
    let mut cx = Context { out, err, daemon: &mut daemon };
    match own {
        Own::Lock(args) => {
            let (lockspace, name) = (bytes(args.lockspace), args.name.0);
            lock::run(&mut cx, &lock::Lock { lockspace, name, json: args.json })
        }
        Own::Orphans(args) => orphans::run(&mut cx, &bytes(args.lockspace), args.json),
        Own::Purge(args) => {
            let (lockspace, json) = (bytes(args.space.lockspace), args.space.json);
            orphans::run_purge(&mut cx, &lockspace, args.pid.unwrap_or(0), json)
        }
        Own::Counters(args) => counters::run(
            &mut cx,
            match (args.prometheus, args.json) {
                (true, _) => counters::Form::Prometheus,
                (_, true) => counters::Form::Json,
                _ => counters::Form::Text,
            },
        ),
        Own::Shutdown(args) => shutdown::run(&mut cx, args.force, args.json),
        Own::Exec(args) => exec::run(&mut cx, &path, args),
        Own::Members(args) => {
            let lockspace = args.lockspace.map(bytes);
            members::run(&mut cx, lockspace.as_deref(), args.json)
        }
        Own::Recovery(args) => {
            let lockspace = args.lockspace.map(bytes);
            recovery::run(&mut cx, lockspace.as_deref(), args.last, args.json)
        }
        Own::Safe(args) => members::run_safe(&mut cx, args.node, args.json),
        Own::Keygen { file } => feed::run_keygen(cx.out, cx.err, &file),
        Own::Feed { nodes } => feed::run_feed(cx.out, &mut io::stdin().lock(), nodes),
        Own::Completions { shell } => {
            completions(shell, cx.out)?;
            Ok(GOOD)
        }
    }
}

fn completions(shell: Shell, out: &mut dyn Write) -> io::Result<()> {
    use clap_complete::{Shell as Known, generate};
    let known = match shell {
        Shell::Bash => Known::Bash,
        Shell::Zsh => Known::Zsh,
        Shell::Fish => Known::Fish,
    };
    // `generate` wants to own its writer and panics if that fails: a vector does not.
    let mut text = Vec::new();
    generate(known, &mut whole(), "dlm_tool", &mut text);
    out.write_all(&text)
}

fn usage(out: &mut dyn Write) -> io::Result<()> {
    out.write_all(USAGE_TEXT.as_bytes())
}

const USAGE_TEXT: &str = "\
Usage:

dlm_tool [command] [options] [name]

Commands:
ls, status, dump, fence_ack
dump_config, reload_config, set_config
log_plock, plocks
join, leave, joinleave, lockdump, lockdebug
run, run_start, run_check, run_cancel, run_list
lock, orphans, purge, counters, shutdown, exec, completions
members, recovery, safe, keygen, feed

Options:
  -n               List each node's state in ls
  -e 0|1           Refuse an existing lockspace in join, default 0
  -f 0|1           Lockspace of a cluster file system in join, default 0
  -m <mode>        Permission bits of a lockspace in join (octal), default 0600
  -M               Include locks held for other nodes in lockdump
  -s               Append a summary to lockdebug
  -v               More detail in lockdebug and status
  -w               Wide lines in lockdebug
  -i <sec>         Accepted, without effect
  --json           Print JSON, and end with a true exit code
  --socket <path>  Socket of dlmd, default $DLM_SOCKET or /run/dlm/dlmd.sock
  -h               Print this text; dlm_tool <command> --help tells more
  -V               Print version and build date

";

#[cfg(test)]
mod tests {
    use super::*;

    fn line(words: &[&str]) -> (String, String, Code) {
        let args: Vec<OsString> = words.iter().map(OsString::from).collect();
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let code = match dispatch(OsStr::new("/sbin/dlm_tool"), &args, &mut out, &mut err) {
            Ok(code) => code,
            Err(fail) => panic!("{fail:?}"),
        };
        let text = |bytes| String::from_utf8(bytes).expect("text");
        (text(out), text(err), code)
    }

    #[test]
    fn usage_version_and_bad_options() {
        let usage = USAGE_TEXT.to_owned();
        assert_eq!(line(&[]), (usage.clone(), String::new(), 1));
        assert_eq!(line(&["nosuch"]), (usage.clone(), String::new(), 1));
        assert_eq!(line(&["-h"]), (usage.clone(), String::new(), 0));
        assert_eq!(line(&["--help"]), (usage, String::new(), 0));
        let (out, _, code) = line(&["-V"]);
        let first = out.lines().next().expect("a line");
        assert!(first.starts_with("/sbin/dlm_tool 0.") && first.contains(" (built "), "{first}");
        assert_eq!((out.lines().count(), code), (2, 0));
        assert_eq!(
            line(&["ls", "-x"]),
            (
                String::new(),
                "/sbin/dlm_tool: invalid option -- 'x'\nPlease use '-h' for usage.\n".to_owned(),
                1
            )
        );
        for command in OLD.iter().map(|old| old.name) {
            assert!(command == "deadlock_check" || USAGE_TEXT.contains(command), "{command}");
        }
    }

    #[test]
    fn missing_operands_have_the_originals_words() {
        for (command, complaint) in [
            ("join", "lockspace name required\n"),
            ("leave", "lockspace name required\n"),
            ("joinleave", "lockspace name required\n"),
            ("lockdump", "lockspace name required\n"),
            ("lockdebug", "lockspace name required\n"),
            ("plocks", "lockspace name required\n"),
            ("deadlock_check", "lockspace name required\n"),
            ("fence_ack", "nodeid required\n"),
            ("run", "command required\n"),
            ("run_start", "command required\n"),
            ("set_config", "command required\n"),
            ("run_check", "uuid required\n"),
            ("run_cancel", "uuid required\n"),
        ] {
            assert_eq!(line(&[command]), (String::new(), complaint.to_owned(), 1), "{command}");
            assert_eq!(line(&[command, "--json"]).2, 2, "{command}");
        }
    }

    #[test]
    fn help_per_command_and_usage_of_ours() {
        for command in OLD.iter().map(|old| old.name).chain(own::NAMES) {
            let words = if command == "help" { vec!["help"] } else { vec![command, "--help"] };
            let (out, err, code) = line(&words);
            assert!(out.contains("Usage") && err.is_empty() && code == 0, "{out}{err}{code}");
        }
        let (out, err, code) = line(&["lock", "web"]);
        assert!(out.is_empty() && err.contains("NAME") && code == 2, "{err}");
    }

    #[test]
    fn completions_name_every_command() {
        for shell in ["bash", "zsh", "fish"] {
            let (out, _, code) = line(&["completions", shell]);
            assert_eq!(code, 0);
            for command in whole().get_subcommands() {
                assert!(out.contains(command.get_name()), "{shell}: {}", command.get_name());
            }
        }
        assert_eq!(line(&["completions", "csh"]).2, 2);
    }
}
