//! Our own commands as clap sees them, and the old ones as help and completions show them.
//!
//! The old commands are parsed by [`crate::getopt`]; their declarations here only describe, and a
//! test holds both to the same options.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{Arg, ArgAction, Args, Command, CommandFactory, FromArgMatches, Parser, Subcommand};
use dlm_core::{Mode, RESOURCE_NAME_BYTES_MAX};

use crate::name::unescape;

/// Inspect and operate dlmd, the lock manager daemon.
#[derive(Debug, Parser)]
#[command(name = "dlm_tool", disable_version_flag = true)]
struct Cli {
    #[command(subcommand)]
    command: Own,
}

/// Where the daemon serves.
#[derive(Debug, Args)]
pub(crate) struct Place {
    /// Socket of dlmd [default: $DLM_SOCKET, else the user's or the machine's daemon]
    #[arg(long, value_name = "PATH")]
    pub(crate) socket: Option<PathBuf>,
}

/// A command of ours.
#[derive(Debug, Subcommand)]
pub(crate) enum Own {
    /// Show who holds a lock and who waits for it
    ///
    /// Each holder and waiter with node, pid, program, label, mode, age and place in its queue, and
    /// whether a holder in the way was told, and how long ago. Exit code: 0 somebody uses the name,
    /// 1 nobody does or there is no such lockspace, 3 the daemon does not answer.
    Lock(LockArgs),
    /// List locks whose owner is dead
    ///
    /// Persistent locks outlive their process until they are adopted or purged.
    Orphans(SpaceArgs),
    /// Remove locks whose owner is dead, and print how many
    Purge(PurgeArgs),
    /// Print the daemon's counters
    Counters(CountersArgs),
    /// End the daemon, unless lockspaces are in use
    Shutdown(ShutdownArgs),
    /// Run a command under a lock
    ///
    /// Creates or opens the lockspace, takes the lock, runs the command with the grant's token in
    /// $DLM_TOKEN, and releases the lock when the command ends. Exit code: the command's, or 128
    /// plus the signal that ended it; 1 the lock was not granted (the holder is named); 2 usage;
    /// 3 the daemon does not answer or the lock was lost (the command is ended by SIGTERM, after
    /// 5 s by SIGKILL); 126 and 127 the command cannot be run.
    Exec(ExecArgs),
    /// Show the members of a lockspace, or of all
    ///
    /// Each with its incarnation, and lost ones that are not yet known to be safe.
    Members(MembersArgs),
    /// Show what changes of members did, and how long each step took
    ///
    /// The daemon's history, oldest first: who joined, left or failed, when names were known, lost
    /// nodes safe, locks moved and everything in service again, and how many names waited for it.
    Recovery(RecoveryArgs),
    /// Say that a lost node is gone with all its clients
    ///
    /// A person's word where nobody else gives it: survivors give the node's locks away on it. With
    /// membership = external; to be said on each survivor.
    Safe(SafeArgs),
    /// Make the key of a cluster
    ///
    /// A file that only its owner can read; an existing one is never replaced.
    Keygen {
        /// Where to
        #[arg(default_value = dlm_net::secure::key::KEY_FILE)]
        file: PathBuf,
    },
    /// Decide views for the daemons of a cluster
    ///
    /// For clusters with membership = external. Reads from standard input, a line each, and answers
    /// each with a line: gone NODE (its daemon and clients were reaped), exclude NODE, settle `MS`,
    /// members LOCKSPACE. Ends with its input.
    Feed {
        /// Every node with its daemon's socket
        #[arg(required = true, value_name = "NODE=SOCKET", value_parser = crate::feed::place)]
        nodes: Vec<(u32, PathBuf)>,
    },
    /// Print shell completions
    Completions {
        /// Which shell
        shell: Shell,
    },
}

/// `lock`.
#[derive(Debug, Args)]
pub(crate) struct LockArgs {
    /// Lockspace
    pub(crate) lockspace: OsString,
    /// Lock name; \xHH is a byte, \\ a backslash
    #[arg(value_parser = lock_name())]
    pub(crate) name: LockName,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) place: Place,
}

/// `members`.
#[derive(Debug, Args)]
pub(crate) struct MembersArgs {
    /// Lockspace
    pub(crate) lockspace: Option<OsString>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) place: Place,
}

/// `recovery`.
#[derive(Debug, Args)]
pub(crate) struct RecoveryArgs {
    /// Lockspace
    pub(crate) lockspace: Option<OsString>,
    /// Only the last N changes
    #[arg(long, value_name = "N")]
    pub(crate) last: Option<usize>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) place: Place,
}

/// `safe`.
#[derive(Debug, Args)]
pub(crate) struct SafeArgs {
    /// The node's number
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) node: u32,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) place: Place,
}

/// `orphans`.
#[derive(Debug, Args)]
pub(crate) struct SpaceArgs {
    /// Lockspace
    pub(crate) lockspace: OsString,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) place: Place,
}

/// `purge`.
#[derive(Debug, Args)]
pub(crate) struct PurgeArgs {
    /// Only locks of this dead process [default: of all]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) pid: Option<u32>,
    #[command(flatten)]
    pub(crate) space: SpaceArgs,
}

/// `counters`.
#[derive(Debug, Args)]
pub(crate) struct CountersArgs {
    /// Print in Prometheus' text format
    #[arg(long, conflicts_with = "json")]
    pub(crate) prometheus: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) place: Place,
}

/// `shutdown`.
#[derive(Debug, Args)]
pub(crate) struct ShutdownArgs {
    /// Although lockspaces are in use: their users lose their locks
    #[arg(long)]
    pub(crate) force: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) place: Place,
}

/// `exec`.
#[derive(Debug, Args)]
pub(crate) struct ExecArgs {
    /// Lockspace; created if it is not there
    pub(crate) lockspace: OsString,
    /// Lock name; \xHH is a byte, \\ a backslash
    #[arg(value_parser = lock_name())]
    pub(crate) name: LockName,
    /// Lock mode: CR, CW, PR (shared), PW or EX (exclusive)
    #[arg(long, default_value = "EX", value_parser = mode)]
    pub(crate) mode: Mode,
    /// Do not wait if the lock is held
    #[arg(long = "try", conflicts_with = "timeout")]
    pub(crate) attempt: bool,
    /// Wait so long for the lock: seconds, or with ms, s, m or h behind [default: for ever]
    #[arg(long, value_name = "T", value_parser = duration)]
    pub(crate) timeout: Option<Duration>,
    #[command(flatten)]
    pub(crate) place: Place,
    /// Command and its arguments, behind --
    #[arg(last = true, required = true)]
    pub(crate) command: Vec<OsString>,
}

/// Shells with completions.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub(crate) enum Shell {
    /// bash
    Bash,
    /// zsh
    Zsh,
    /// fish
    Fish,
}

/// A lock's name in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LockName(pub(crate) Vec<u8>);

fn lock_name() -> impl TypedValueParser<Value = LockName> {
    OsStringValueParser::new().try_map(|text| {
        let name = unescape(text.as_bytes())?;
        match name.len() {
            0..=RESOURCE_NAME_BYTES_MAX => Ok(LockName(name)),
            len => Err(format!("{len} bytes; a lock name has at most {RESOURCE_NAME_BYTES_MAX}")),
        }
    })
}

fn mode(text: &str) -> Result<Mode, String> {
    let found = Mode::ALL.into_iter().find(|mode| mode.name().eq_ignore_ascii_case(text));
    found.ok_or_else(|| "one of NL, CR, CW, PR, PW, EX".to_owned())
}

/// A duration of at least 10 ms (the unit of the interface's time limits) and at most a year.
fn duration(text: &str) -> Result<Duration, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit_s = match &text[digits.len()..] {
        "ms" => 0.001,
        "" | "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        unit => return Err(format!("{unit} is no unit; use ms, s, m or h")),
    };
    let number: f64 =
        digits.parse().map_err(|_| "a number such as 5, 0.5, 200ms or 2m".to_owned())?;
    let seconds = number * unit_s;
    if (0.01..=31_536_000.0).contains(&seconds) {
        Ok(Duration::from_secs_f64(seconds))
    } else {
        Err("from 10ms to 8760h; to wait not at all, use --try".to_owned())
    }
}

/// Words that are commands of ours.
pub(crate) const NAMES: [&str; 13] = [
    "lock",
    "orphans",
    "purge",
    "counters",
    "shutdown",
    "exec",
    "members",
    "recovery",
    "safe",
    "keygen",
    "feed",
    "completions",
    "help",
];

/// Understands one of our commands; the error also carries help texts.
pub(crate) fn parse(words: Vec<OsString>) -> Result<Own, clap::Error> {
    let words = std::iter::once(OsString::from("dlm_tool")).chain(words);
    let matches = whole().try_get_matches_from(words)?;
    Cli::from_arg_matches(&matches).map(|cli| cli.command)
}

/// The help of an old command, as `--help` prints it.
pub(crate) fn help_of(command: &'static str) -> clap::Error {
    let words = ["dlm_tool", command, "--help"];
    match whole().try_get_matches_from(words) {
        Err(help) => help,
        Ok(_) => unreachable!("--help always ends the parse"),
    }
}

/// Everything that help and completions know.
pub(crate) fn whole() -> Command {
    let old = OLD.iter().filter(|old| !old.hidden).map(OldCommand::describe);
    Cli::command().subcommands(old)
}

/// An old command.
pub(crate) struct OldCommand {
    /// Its name.
    pub(crate) name: &'static str,
    about: &'static str,
    /// What it needs at least, and the original's complaint if that is missing.
    pub(crate) operand: Option<(&'static str, &'static str)>,
    /// Letters it looks at.
    letters: &'static str,
    /// Not in help or completions: it has no meaning here.
    pub(crate) hidden: bool,
}

const SPACE: Option<(&str, &str)> = Some(("LOCKSPACE", "lockspace name required"));
const COMMAND: Option<(&str, &str)> = Some(("COMMAND", "command required"));
const SETTINGS: Option<(&str, &str)> = Some(("KEY=VALUE", "command required"));
const UUID: Option<(&str, &str)> = Some(("UUID", "uuid required"));
const NODE: Option<(&str, &str)> = Some(("NODE", "nodeid required"));

/// The commands of the original.
pub(crate) const OLD: [OldCommand; 20] = [
    old("ls", "List lockspaces", None, "n"),
    old("status", "Show the daemon, the cluster and its nodes", None, "v"),
    old("lockdump", "Print every lock of a lockspace on one line", SPACE, "M"),
    old("lockdebug", "Print the resources of a lockspace with their queues", SPACE, "svw"),
    old("dump", "Print the daemon's log, as far back as it remembers", None, ""),
    old("dump_config", "Print every configuration key and its value", None, ""),
    old("reload_config", "Make the daemon read its configuration file again", None, ""),
    old("set_config", "Change configuration keys of the running daemon", SETTINGS, ""),
    old("join", "Create a lockspace, or raise its creation count", SPACE, "mef"),
    old("leave", "Take one creation of a lockspace back", SPACE, ""),
    old("joinleave", "Join a lockspace and leave it", SPACE, "mef"),
    old("fence_ack", "Confirm that a failed node is dead", NODE, ""),
    hidden("plocks", SPACE),
    hidden("log_plock", None),
    hidden("deadlock_check", SPACE),
    hidden("run", COMMAND),
    hidden("run_start", COMMAND),
    hidden("run_check", UUID),
    hidden("run_cancel", UUID),
    hidden("run_list", None),
];

const fn old(
    name: &'static str,
    about: &'static str,
    operand: Option<(&'static str, &'static str)>,
    letters: &'static str,
) -> OldCommand {
    OldCommand { name, about, operand, letters, hidden: false }
}

const fn hidden(name: &'static str, operand: Option<(&'static str, &'static str)>) -> OldCommand {
    OldCommand { name, about: "Has no meaning here", operand, letters: "", hidden: true }
}

/// Options of the old commands: letter, name of the value, help.
const LETTERS: [(&str, Option<&str>, &str); 8] = [
    ("n", None, "Show a line per node"),
    ("v", None, "Show more"),
    ("M", None, "Show locks held here for other nodes too"),
    ("s", None, "Print a summary at the end"),
    ("w", None, "Print wide lines"),
    ("m", Some("MODE"), "Permission bits of a new lockspace, octal [default: 600]"),
    ("e", Some("0|1"), "Fail if the lockspace exists"),
    ("f", Some("0|1"), "The lockspace is for a cluster file system"),
];

impl OldCommand {
    fn describe(&self) -> Command {
        let mut command = Command::new(self.name).about(self.about);
        for (letter, value, help) in LETTERS.iter().filter(|(l, ..)| self.letters.contains(*l)) {
            let arg = Arg::new(*letter).short(letter.chars().next()).help(*help);
            command = command.arg(match value {
                Some(value) => arg.value_name(*value),
                None => arg.action(ArgAction::SetTrue),
            });
        }
        let operand = match self.operand {
            Some((operand, _)) => Some(Arg::new(operand).required(true)),
            None if self.name == "ls" => Some(Arg::new("LOCKSPACE")),
            None => None,
        };
        let json = Arg::new("json").long("json").action(ArgAction::SetTrue);
        let socket = Arg::new("socket").long("socket").value_name("PATH");
        command
            .args(operand)
            .arg(json.help("Print JSON, and end with a true exit code"))
            .arg(socket.help("Socket of dlmd"))
    }
}

/// The bytes of a word of the command line.
pub(crate) fn bytes(word: OsString) -> Vec<u8> {
    word.into_vec()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::getopt::{Scanned, scan};

    fn own(line: &str) -> Result<Own, String> {
        parse(line.split(' ').map(OsString::from).collect()).map_err(|error| error.to_string())
    }

    #[test]
    fn the_declarations_are_sound() {
        whole().debug_assert();
        let known: Vec<String> =
            Cli::command().get_subcommands().map(|c| c.get_name().to_owned()).collect();
        assert_eq!(known, NAMES[..12], "every command of ours is a word that scan knows");
    }

    #[test]
    fn help_of_an_old_command_has_the_options_that_its_parser_knows() {
        for command in OLD.iter().filter(|old| !old.hidden) {
            let help = help_of(command.name).to_string();
            for (letter, value, _) in LETTERS {
                let shown = help.contains(&format!("\n  -{letter}"));
                assert_eq!(shown, command.letters.contains(letter), "{} -{letter}", command.name);
                let option = OsString::from(format!("-{letter}"));
                let args = [option, value.unwrap_or("x").into(), command.name.into()];
                let scanned = scan(&args, &[command.name], &[]);
                assert!(matches!(scanned, Scanned::Old { command: Some(_), .. }), "{scanned:?}");
            }
            assert!(help.contains(command.about) && help.contains("--json"), "{help}");
        }
    }

    #[test]
    fn exec_reads_its_options_and_leaves_the_commands_alone() {
        let Ok(Own::Exec(exec)) = own("exec web a\\x00b --mode pr --timeout 1.5 -- sh -c --try x")
        else {
            panic!("exec")
        };
        assert_eq!((exec.lockspace.to_str(), exec.name.0.as_slice()), (Some("web"), &b"a\0b"[..]));
        assert_eq!((exec.mode, exec.attempt), (Mode::PR, false));
        assert_eq!(exec.timeout, Some(Duration::from_millis(1500)));
        assert_eq!(exec.command, ["sh", "-c", "--try", "x"]);
        for bad in [
            "exec web a",
            "exec web a true",
            "exec web -- true",
            "exec web a --try --timeout 1 -- true",
            "exec web a --mode XX -- true",
            "exec web a --timeout 0 -- true",
            "exec web a --timeout soon -- true",
            "exec web a --timeout 1d -- true",
            "exec web a\\q -- true",
            &format!("exec web {} -- true", "x".repeat(65)),
        ] {
            assert!(own(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn durations_have_units() {
        let ms = |text| duration(text).map(|d| d.as_millis());
        for (text, expected) in [
            ("5", 5000),
            ("0.5", 500),
            ("200ms", 200),
            ("3s", 3000),
            ("2m", 120_000),
            ("1h", 3_600_000),
        ] {
            assert_eq!(ms(text), Ok(expected), "{text}");
        }
        for bad in ["", "s", "-1", "0", "1ms", "nan", "inf", "1e9", "9000h", "5 s"] {
            assert!(duration(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn names_of_every_length_up_to_the_limit() {
        let name = |len| own(&format!("lock web {}", "x".repeat(len)));
        assert!(name(1).is_ok() && name(63).is_ok() && name(64).is_ok());
        for len in [65, 255, 4096] {
            let sentence = name(len).expect_err("too long");
            assert!(sentence.contains(&format!("{len} bytes; a lock name has at most 64")));
        }
        let empty = parse(["lock", "web", ""].map(OsString::from).into());
        assert!(
            matches!(empty, Ok(Own::Lock(LockArgs { name: LockName(name), .. })) if name.is_empty())
        );
    }

    #[test]
    fn every_command_of_ours_has_help() {
        for name in &NAMES[..7] {
            let help = own(&format!("{name} --help")).expect_err("help");
            assert!(help.contains("Usage: dlm_tool"), "{help}");
            assert_eq!(own(&format!("help {name}")).expect_err("help"), help);
        }
        assert!(own("purge web --pid 0").is_err());
        assert!(own("counters --json --prometheus").is_err());
        assert!(matches!(own("purge web --pid 7"), Ok(Own::Purge(PurgeArgs { pid: Some(7), .. }))));
    }
}
