//! From a command line to a serving daemon.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use dlm_core::{Member, NodeId};

use super::config::args::{self, Action, Arguments};
use super::config::places::{Places, Surroundings, resolve};
use super::config::table::{Effect, Key, list};
use super::config::{Settings, Source};
use super::leftover::Leftovers;
use super::links::Others;
use super::log::Log;
use super::lookalike::Lookalike;
use super::query::{Admission, Query};
use super::reactor::{Parts, Reactor};
use super::signal::Signals;
use super::state::State;
use super::{cluster, kernel, notify, stop};
use crate::fence::fences::Config;
use crate::ipc::listen::Door;
use crate::secure::Crypto;
use crate::sys;

/// Why the daemon does not run.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The command line makes no sense.
    #[error("{0}; see dlmd --help")]
    Usage(String),
    /// The configuration cannot be used.
    #[error("{0}")]
    Config(String),
    /// This machine, or this user on it, cannot run a daemon.
    #[error("{0}")]
    CannotRunHere(String),
    /// Something else went wrong.
    #[error("{0}")]
    Failed(String),
}

impl StartError {
    /// The exit code (architecture.md section 8).
    pub fn code(&self) -> u8 {
        match self {
            Self::Config(_) | Self::Failed(_) => 1,
            Self::Usage(_) => 2,
            Self::CannotRunHere(_) => 3,
        }
    }
}

/// Runs the daemon program with this command line, its name first.
pub fn run(command_line: impl IntoIterator<Item = OsString>) -> ExitCode {
    let result =
        args::parse(command_line).map_err(StartError::Usage).and_then(|arguments| match arguments
            .action
        {
            Action::Help => print(&args::help()),
            Action::Version => print(concat!("dlmd ", env!("CARGO_PKG_VERSION"), "\n")),
            Action::ListOptions => print(&list()),
            Action::CheckConfig => check_config(&arguments),
            Action::Serve => serve(&arguments),
        });
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "dlmd: {error}");
            ExitCode::from(error.code())
        }
    }
}

/// Prints a text; a reader that went away is no error.
fn print(text: &str) -> Result<(), StartError> {
    match io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(StartError::Failed(format!("cannot print: {error}")))
        }
        _ => Ok(()),
    }
}

fn load(arguments: &Arguments) -> Result<Settings, StartError> {
    let settings = Settings::load(arguments.config.as_deref(), &arguments.settings)
        .map_err(|error| StartError::Config(error.to_string()))?;
    for key in [Key::SocketGroup, Key::CreateGroup, Key::ControlGroup] {
        stop::group(&settings, key).map_err(StartError::Config)?;
    }
    Ok(settings)
}

fn check_config(arguments: &Arguments) -> Result<(), StartError> {
    let settings = load(arguments)?;
    let places = resolve(&settings, &Surroundings::of_process());
    let places = places.map_err(StartError::CannotRunHere)?;
    let own = Member::of_start(NodeId(settings.small(Key::NodeId)), 0);
    Others::configured(&settings, own, None).map_err(StartError::Config)?;
    super::lease::terms(&settings).map_err(StartError::Config)?;
    let file = settings.file_path().map_or("no file: defaults".into(), Path::to_string_lossy);
    let missing = missing_agents(&settings, &file);
    // Elsewhere nobody is fenced, and the file may be meant for another machine.
    let fences = settings.text(Key::Membership) == "corosync" && settings.flag(Key::EnableFencing);
    if fences && !missing.is_empty() {
        return Err(StartError::Config(missing.join("\n")));
    }
    let notes: String = missing.iter().map(|line| format!("note: {line}\n")).collect();
    print(&format!("{file}: good; the socket is {}\n{notes}", places.socket.display()))
}

/// Agents that the file names and that are not here, a line each.
fn missing_agents(settings: &Settings, file: &str) -> Vec<String> {
    let config = Config::of(settings);
    let named = config.missing_agents().into_iter().filter(|(line, _)| *line > 0);
    named.map(|(line, sentence)| format!("{file}:{line}: {sentence}")).collect()
}

fn serve(arguments: &Arguments) -> Result<(), StartError> {
    let settings = load(arguments)?;
    let places = resolve(&settings, &Surroundings::of_process());
    let places = places.map_err(StartError::CannotRunHere)?;
    if !arguments.override_kernel_dlm
        && let Some(why) = kernel::active(&arguments.kernel)
    {
        return Err(StartError::CannotRunHere(why));
    }
    let failed = |what: &str, error: io::Error| StartError::Failed(format!("{what}: {error}"));
    let background = if arguments.daemonize {
        match Background::enter().map_err(|error| failed("cannot go to the background", error))? {
            Some(background) => Some(background),
            None => return Ok(()), // the parent of a daemon that serves
        }
    } else {
        None
    };
    let log = Log::new();
    log.install();
    let (reactor, _run_lock) = prepare(arguments, settings, places, &log)?;
    notify::ready();
    if let Some(background) = background {
        log.leave_standard_error();
        background.serving().map_err(|error| failed("cannot leave the terminal", error))?;
    }
    reactor.run().map_err(|error| failed("the loop failed", error))
}

/// Makes everything that a reactor needs; the file is the lock on the run directory.
fn prepare(
    arguments: &Arguments,
    mut settings: Settings,
    places: Places,
    log: &Log,
) -> Result<(Reactor, File), StartError> {
    if let Err(error) = sys::raise_descriptor_limit() {
        tracing::warn!("cannot raise the limit of open files: {error}");
    }
    // Whoever rings waits for the daemon: it should run before the one who rang goes to sleep,
    // which saves two switches, and not behind whatever else computes here. A daemon without
    // privileges does without.
    let _ = sys::take_precedence();
    make_directory(&places.run_dir)?;
    if let Some(parent) = places.socket.parent() {
        make_directory(parent)?;
    }
    if let Err(error) = make_directory(&places.state_dir) {
        tracing::warn!("{error}; numbers will not outlive a restart");
    }
    let run_lock = lock_run_dir(&places.run_dir)?;
    let survey = cluster::survey(&mut settings).map_err(StartError::CannotRunHere)?;
    let survey = survey.as_ref();
    let group = stop::group(&settings, Key::SocketGroup).map_err(StartError::Config)?;
    let door = Door::open(&places.socket, settings.octal(Key::SocketMode), group);
    let door = door.map_err(|error| match error.kind() {
        io::ErrorKind::AddrInUse => StartError::Failed(error.to_string()),
        _ => StartError::CannotRunHere(format!("{}: {error}", places.socket.display())),
    })?;
    let (leftovers, left) = Leftovers::begin(&places.run_dir);
    let node = NodeId(settings.small(Key::NodeId));
    let state = State::begin_now(&places.state_dir, wall());
    let own = Member::of_start(node, state.incarnation());
    let others = Others::configured(&settings, own, survey).map_err(StartError::Config)?;
    if others.as_ref().is_some_and(|others| matches!(others.config.crypto, Crypto::None)) {
        tracing::warn!(
            "crypto=none: whoever reaches this node's port can take and break any lock; use it on \
             closed networks only"
        );
    }
    tracing::info!(
        "dlmd {} node {} incarnation {} serves at {}",
        env!("CARGO_PKG_VERSION"),
        node.0,
        state.incarnation(),
        places.socket.display()
    );
    for name in &left {
        tracing::warn!(
            lockspace = name,
            "left by a daemon that crashed; its locks are gone and its clients were told. It can be \
             created again at once"
        );
    }
    say_what_has_no_effect(&settings);
    let cluster = settings.text(Key::ClusterName);
    let port = settings.number(Key::Port) as u16;
    let lookalike = Lookalike::create(&places.lookalike, node, cluster, port);
    let remnants = cluster::remnants(&places.run_dir, &left);
    let membership = cluster::backend(&settings, survey, state, remnants);
    let query = settings.flag(Key::AbstractSocket).then(|| {
        let admission = Admission {
            mode: settings.octal(Key::SocketMode),
            group,
            own_uid: sys::effective_uid(),
        };
        Query::open(admission).map_err(StartError::CannotRunHere)
    });
    let signals = Signals::take()
        .map_err(|error| StartError::Failed(format!("cannot take signals: {error}")))?;
    let parts = Parts {
        door,
        signals,
        membership: membership.map_err(StartError::Config)?,
        others,
        settings,
        log: log.clone(),
        lookalike,
        leftovers,
        query: query.transpose()?,
        until_stdin_closes: arguments.until_stdin_closes,
    };
    let mut reactor = Reactor::new(parts)
        .map_err(|error| StartError::Failed(format!("cannot set up the loop: {error}")))?;
    let remnants = cluster::remnants(&places.run_dir, &left);
    reactor.begin_lease(remnants).map_err(StartError::CannotRunHere)?;
    Ok((reactor, run_lock))
}

fn say_what_has_no_effect(settings: &Settings) {
    let peers = [Key::Port, Key::Mark, Key::Crypto, Key::Authkey, Key::Protocol];
    let lease = [
        Key::Lease,
        Key::LeaseTick,
        Key::LeaseGrace,
        Key::LeaseDrift,
        Key::Watchdog,
        Key::WatchdogTimeout,
    ];
    let idle = |key: &&Key| {
        let cluster = match settings.text(Key::Membership) {
            "single" => false,
            "external" => peers.contains(key) || lease.contains(key),
            _ => true,
        };
        let acts = match key.spec().effect {
            Effect::Acts => true,
            Effect::Cluster => cluster,
            Effect::Nothing => false,
        };
        !acts && settings.value(**key).1 != Source::Default
    };
    let names: Vec<_> = Key::ALL.iter().filter(idle).map(|key| key.spec().name).collect();
    if !names.is_empty() {
        tracing::info!("accepted without effect: {}", names.join(", "));
    }
}

fn make_directory(path: &Path) -> Result<(), StartError> {
    std::fs::DirBuilder::new().recursive(true).mode(0o755).create(path).map_err(|error| {
        StartError::CannotRunHere(format!(
            "cannot make {}: {error}; choose another place with --socket, --run_dir or --state_dir",
            path.display()
        ))
    })
}

/// Two daemons in one run directory would overwrite each other's files.
fn lock_run_dir(run_dir: &Path) -> Result<File, StartError> {
    let path = run_dir.join("dlmd.pid");
    let mut open = OpenOptions::new();
    open.read(true).write(true).create(true).truncate(false).mode(0o644);
    let locked = open.open(&path).and_then(|file| Ok((sys::lock_file(&file)?, file)));
    let (free, mut file) = locked
        .map_err(|error| StartError::CannotRunHere(format!("{}: {error}", path.display())))?;
    if !free {
        let mut pid = String::new();
        let _ = file.read_to_string(&mut pid);
        return Err(StartError::Failed(format!(
            "another dlmd (pid {}) runs in {}; stop it, or choose another place with --socket",
            pid.trim(),
            run_dir.display()
        )));
    }
    // Only for people; the lock is what counts.
    let _ = file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id()));
    Ok(file)
}

fn wall() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// A daemon that goes to the background tells the process that started it how it went.
struct Background {
    report: io::PipeWriter,
}

impl Background {
    /// Splits off the daemon: `Some` in it; `None` in the parent, once the daemon serves. If it does
    /// not come to that, the parent ends with the daemon's code.
    fn enter() -> io::Result<Option<Self>> {
        let (mut answer, report) = io::pipe()?;
        if sys::fork_child()? {
            drop(answer);
            sys::new_session()?;
            return Ok(Some(Self { report }));
        }
        drop(report);
        let mut byte = [0];
        match answer.read(&mut byte) {
            Ok(1) => Ok(None),
            // It has said why on standard error.
            _ => sys::exit_now(sys::wait_for_child().unwrap_or(1)),
        }
    }

    /// Lets the parent go and leaves the terminal.
    fn serving(mut self) -> io::Result<()> {
        std::env::set_current_dir("/")?;
        let null = File::options().read(true).write(true).open("/dev/null")?;
        sys::replace_standard_files(&null)?;
        self.report.write_all(&[0])
    }
}
