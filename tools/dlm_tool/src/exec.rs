//! `exec LOCKSPACE NAME [--mode M] [--try | --timeout T] -- COMMAND…`: a command under a lock.
//!
//! The promise: the command runs only while the lock is held. It starts after the grant, the lock
//! is released after its end, and when the lock is lost before that, the command and what it
//! started is ended. If this process is killed, the kernel kills the command with it.
//!
//! Three threads, the lock's, the signals' and the child's, report to one loop; nothing is polled.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use dlm_core::Mode;
use dlm_ipc::control::ResourceRecord;

use crate::context::{Code, Context, NO, Outcome, SILENT, Trouble};
use crate::daemon::PATIENCE;
use crate::locate::locate;
use crate::lock::describe;
use crate::lockdebug::GRANTED;
use crate::name::escape;
use crate::own::{ExecArgs, bytes};
use crate::spaces::{Opened, check_daemon, take_lock};
use crate::status::daemon_status;
use crate::sys::{self, Signal, Signals};

/// The shell's codes for a command that cannot be run, and for one that is not there.
const CANNOT_RUN: Code = 126;
const NOT_FOUND: Code = 127;

/// How long a command has to end by itself after the lock is lost.
const GRACE: Duration = Duration::from_secs(5);
/// How often what is left of a command is looked for then.
const LOOK_AGAIN: Duration = Duration::from_millis(20);
/// How often a waiting `exec` makes sure that the daemon still answers.
const HEARTBEAT: Duration = Duration::from_secs(1);
/// Most holders that are named; the rest is counted.
const HOLDERS_NAMED_MAX: usize = 10;

/// What happened.
pub(crate) enum Event {
    /// The lockspace is open.
    Opened(Opened),
    /// The lock is ours; its grant's number.
    Granted(u64),
    /// It is not, and we no longer wait.
    NotGranted(NotGranted),
    /// The handle is lost, and the lock with it: why.
    Lost(String),
    /// A signal arrived.
    Signal(Signal),
    /// The command ended.
    Ended,
}

/// Why there is no lock.
pub(crate) enum NotGranted {
    /// Others hold it (or held it for the whole time limit).
    Held(&'static str),
    /// The daemon or the library says no, or nothing.
    Trouble(Trouble),
}

/// A lock to take.
#[derive(Clone)]
pub(crate) struct Request {
    /// The lockspace, created if need be.
    pub(crate) lockspace: Vec<u8>,
    /// The name.
    pub(crate) name: Vec<u8>,
    /// The mode.
    pub(crate) mode: Mode,
    /// How long to wait.
    pub(crate) patience: Patience,
}

/// How long to wait for a lock.
#[derive(Clone, Copy)]
pub(crate) enum Patience {
    /// Not at all.
    Try,
    /// So long.
    Limit(Duration),
    /// For ever.
    Forever,
}

/// Runs the command.
pub(crate) fn run(cx: &mut Context<'_>, socket: &Path, args: ExecArgs) -> Outcome {
    // First of all, so that every thread started from here on has them blocked.
    let signals = Signals::block()?;
    // A daemon that is absent or silent is told apart here, before anything can wait for it.
    if let Err(trouble) = check_daemon(socket) {
        return cx.fail_truly(&trouble, false);
    }
    let patience = match (args.attempt, args.timeout) {
        (true, _) => Patience::Try,
        (_, Some(limit)) => Patience::Limit(limit),
        _ => Patience::Forever,
    };
    let lockspace = bytes(args.lockspace);
    let request = Request { lockspace, name: args.name.0, mode: args.mode, patience };
    let mut command = Command::new(&args.command[0]);
    command.args(&args.command[1..]);
    signals.prepare(&mut command);

    let (events, happened) = channel();
    watch_signals(signals, events.clone());
    take_lock(socket, request.clone(), events.clone());
    let mut opened = None;
    let code = match await_grant(cx, socket, &request, &happened, &mut opened)? {
        Ok(token) => {
            command.env("DLM_TOKEN", token.to_string());
            run_command(cx, &mut command, &request, events, &happened)?
        }
        Err(code) => code,
    };
    if let Some(opened) = opened {
        give_back(cx, opened, code)?;
    }
    Ok(code)
}

fn watch_signals(signals: Signals, events: Sender<Event>) {
    thread::spawn(move || {
        while let Ok(signal) = signals.next() {
            if events.send(Event::Signal(signal)).is_err() {
                return;
            }
        }
    });
}

/// Waits for the lock; the inner error is an exit code.
fn await_grant(
    cx: &mut Context<'_>,
    socket: &Path,
    request: &Request,
    happened: &Receiver<Event>,
    opened: &mut Option<Opened>,
) -> io::Result<Result<u64, Code>> {
    loop {
        match happened.recv_timeout(HEARTBEAT) {
            Ok(Event::Opened(space)) => *opened = Some(space),
            Ok(Event::Granted(token)) => return Ok(Ok(token)),
            Ok(Event::NotGranted(NotGranted::Held(why))) => {
                say_held(cx, request, why)?;
                return Ok(Err(NO));
            }
            Ok(Event::NotGranted(NotGranted::Trouble(trouble))) => {
                cx.say(&trouble)?;
                return Ok(Err(trouble.code()));
            }
            Ok(Event::Lost(why)) => {
                cx.say(format_args!("the lock was not granted: {why}"))?;
                return Ok(Err(SILENT));
            }
            // The request is withdrawn with the handle.
            Ok(Event::Signal(signal)) => return Ok(Err(signal_code(signal.number))),
            Ok(Event::Ended) => {}
            Err(_) => {
                if let Err(trouble) = check_daemon(socket) {
                    cx.say(format_args!("{trouble}; the lock was not granted"))?;
                    return Ok(Err(trouble.code()));
                }
            }
        }
    }
}

/// Says who holds the lock that we did not get.
fn say_held(cx: &mut Context<'_>, request: &Request, why: &str) -> io::Result<()> {
    let name = escape(&request.name);
    cx.say(format_args!("lock \"{name}\" {why}"))?;
    let Ok(own) = daemon_status(cx).map(|status| status.node) else { return Ok(()) };
    let found = locate(cx, &request.lockspace, &request.name);
    if let Some(resource) = found.ok().and_then(|found| found.resource) {
        for holder in holders(&resource, request.mode, own) {
            cx.say(holder)?;
        }
    }
    Ok(())
}

/// A line for each lock that stands in the way of `mode`.
fn holders(resource: &ResourceRecord, mode: Mode, own: u32) -> Vec<String> {
    let in_the_way = |granted: i8| {
        let held = u8::try_from(granted).ok().and_then(Mode::from_number);
        held.is_some_and(|held| !held.compatible(mode))
    };
    let blocking: Vec<_> = resource.locks.iter().filter(|lock| in_the_way(lock.granted)).collect();
    let mut lines: Vec<String> = blocking
        .iter()
        .take(HOLDERS_NAMED_MAX)
        .map(|lock| format!("held by {}", describe(lock, own)))
        .collect();
    if blocking.len() > HOLDERS_NAMED_MAX {
        lines.push(format!("and by {} more", blocking.len() - HOLDERS_NAMED_MAX));
    }
    if lines.is_empty() {
        let waiting = resource.locks.iter().filter(|lock| lock.state != GRANTED).count();
        lines.push(format!("others wait for it: {waiting}"));
    }
    lines
}

/// Starts the command and stays with it.
fn run_command(
    cx: &mut Context<'_>,
    command: &mut Command,
    request: &Request,
    events: Sender<Event>,
    happened: &Receiver<Event>,
) -> io::Result<Code> {
    let child = match command.spawn() {
        Ok(child) => child,
        Err(error) => return cannot_run(cx, command.get_program(), &error),
    };
    let pid = child.id();
    thread::spawn(move || {
        sys::wait_for_end(pid);
        let _ = events.send(Event::Ended);
    });
    attend(cx, child, request, happened)
}

fn cannot_run(cx: &mut Context<'_>, program: &OsStr, error: &io::Error) -> io::Result<Code> {
    cx.say(format_args!("cannot run {}: {error}", program.display()))?;
    Ok(if error.kind() == io::ErrorKind::NotFound { NOT_FOUND } else { CANNOT_RUN })
}

/// Stays with the command until it ends or the lock is lost.
fn attend(
    cx: &mut Context<'_>,
    mut child: Child,
    request: &Request,
    happened: &Receiver<Event>,
) -> io::Result<Code> {
    let name = escape(&request.name);
    loop {
        match happened.recv() {
            Ok(Event::Signal(signal)) => {
                if signal.from_process {
                    sys::send(child.id(), signal.number);
                }
            }
            Ok(Event::Ended) => {
                let status = child.wait()?;
                // A loss that was reported before counts: the command may have worked without the
                // lock.
                let lost = happened.try_iter().find_map(|event| match event {
                    Event::Lost(why) => Some(why),
                    _ => None,
                });
                let Some(why) = lost else { return Ok(exit_code(status)) };
                cx.say(format_args!("lock \"{name}\" was lost while the command ran: {why}"))?;
                return Ok(SILENT);
            }
            Ok(Event::Lost(why)) => {
                cx.say(format_args!("lock \"{name}\" was lost: {why}; the command is ended"))?;
                end_command(happened);
                return Ok(SILENT);
            }
            Ok(Event::Opened(_) | Event::Granted(_) | Event::NotGranted(_)) => {}
            Err(_) => unreachable!("the child's thread reports before it goes"),
        }
    }
}

/// Ends the command and everything below it: SIGTERM, after the grace time SIGKILL.
fn end_command(happened: &Receiver<Event>) {
    sys::adopt_orphans();
    let start = Instant::now();
    let mut told = BTreeSet::new();
    while sys::reap() {
        let late = start.elapsed() >= GRACE;
        for pid in sys::descendants() {
            if late {
                sys::send(pid, libc::SIGKILL);
            } else if told.insert(pid) {
                sys::send(pid, libc::SIGTERM);
                // A stopped process hears SIGTERM only when it goes on.
                sys::send(pid, libc::SIGCONT);
            }
        }
        // The command's end wakes us; that of its children we look for.
        let _ = happened.recv_timeout(LOOK_AGAIN);
    }
}

/// Releases the lock, but does not wait for ever: our end releases it too.
fn give_back(cx: &mut Context<'_>, opened: Opened, code: Code) -> io::Result<()> {
    let (done, finished) = channel();
    thread::spawn(move || {
        let _ = done.send(opened.give_back());
    });
    match finished.recv_timeout(PATIENCE) {
        // A loss was told before.
        Ok(Err(trouble)) if code != SILENT => cx.say(format_args!("releasing the lock: {trouble}")),
        Ok(_) => Ok(()),
        Err(_) => cx.say("dlmd did not confirm the release; the lock goes with this process"),
    }
}

fn exit_code(status: ExitStatus) -> Code {
    match (status.code(), status.signal()) {
        (Some(code), _) => u8::try_from(code & 0xff).unwrap_or(NO),
        (None, Some(signal)) => signal_code(signal),
        (None, None) => NO,
    }
}

fn signal_code(signal: i32) -> Code {
    u8::try_from(128 + signal).unwrap_or(u8::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{granted, resource as make, waiting};

    #[test]
    fn codes_are_the_commands_own_or_its_signals() {
        let table =
            [(0, 0), (7 << 8, 7), (255 << 8, 255), (libc::SIGTERM, 143), (libc::SIGKILL, 137)];
        for (raw, code) in table {
            assert_eq!(exit_code(ExitStatus::from_raw(raw)), code);
        }
    }

    #[test]
    fn those_in_the_way_are_named() {
        let busy = make(b"x", &[granted(1, 3), granted(2, 1), waiting(3, 5)]);
        let lines = holders(&busy, Mode::EX, 1);
        assert_eq!(lines.len(), 2);
        assert!(lines[0].starts_with("held by node 1 pid 174 (app) has PR for 5 s lock 00000001"));
        assert_eq!(holders(&busy, Mode::CW, 1).len(), 1, "CR is not in the way of CW");
        assert_eq!(holders(&busy, Mode::CR, 1), ["others wait for it: 1"]);
        let many: Vec<_> = (1..=13).map(|id| granted(id, 3)).collect();
        let lines = holders(&make(b"x", &many), Mode::EX, 1);
        assert_eq!((lines.len(), lines[10].as_str()), (11, "and by 3 more"));
    }
}
