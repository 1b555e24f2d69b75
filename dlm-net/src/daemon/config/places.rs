//! Where the daemon puts its socket and its files, from the settings and the surroundings.
//!
//! A daemon that was given its own socket keeps everything beside it, so that several daemons of one
//! user never meet in the same directory by accident.

use std::path::{Path, PathBuf};

use super::table::Key;
use super::{Settings, Source};

/// The socket's file name in the run directory.
pub const SOCKET_NAME: &str = "dlmd.sock";
/// The variable that names the socket.
pub const SOCKET_VARIABLE: &str = "DLM_SOCKET";

/// Paths of one daemon.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Places {
    /// The socket.
    pub socket: PathBuf,
    /// Run-time files; the lock files, the list of lockspaces.
    pub run_dir: PathBuf,
    /// What outlives a restart.
    pub state_dir: PathBuf,
    /// The look-alike of `/sys/kernel/config/dlm/cluster`.
    pub lookalike: PathBuf,
}

/// What the environment says.
#[derive(Clone, Default, Debug)]
pub struct Surroundings {
    /// Whether the daemon runs as root.
    pub root: bool,
    /// `$DLM_SOCKET`.
    pub socket: Option<PathBuf>,
    /// `$XDG_RUNTIME_DIR`.
    pub runtime_dir: Option<PathBuf>,
    /// `$XDG_STATE_HOME`.
    pub state_home: Option<PathBuf>,
    /// `$HOME`.
    pub home: Option<PathBuf>,
}

impl Surroundings {
    /// Those of this process.
    pub fn of_process() -> Self {
        let path = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(Into::into);
        Self {
            root: crate::sys::effective_uid() == 0,
            socket: path(SOCKET_VARIABLE),
            runtime_dir: path("XDG_RUNTIME_DIR"),
            state_home: path("XDG_STATE_HOME"),
            home: path("HOME"),
        }
    }
}

/// Decides all paths; a sentence where none can be found.
pub fn resolve(settings: &Settings, around: &Surroundings) -> Result<Places, String> {
    let given = |key| Some(settings.text(key)).filter(|text| !text.is_empty()).map(PathBuf::from);
    let own_socket = match settings.value(Key::Socket) {
        (_, Source::CommandLine | Source::Changed) => given(Key::Socket),
        _ => around.socket.clone(),
    };
    let beside = own_socket.as_deref().map(|path| path.parent().unwrap_or(Path::new("/")).into());
    let run_dir =
        given(Key::RunDir)
            .or_else(|| beside.clone())
            .or_else(|| usual_run_dir(around))
            .ok_or("no place for run-time files: set $XDG_RUNTIME_DIR or give --socket PATH")?;
    let state_dir = given(Key::StateDir)
        .or(beside)
        .or_else(|| usual_state_dir(around))
        .ok_or("no place for state: set $HOME or give --state_dir PATH")?;
    let socket = own_socket.or_else(|| given(Key::Socket));
    let places = Places {
        socket: socket.unwrap_or_else(|| run_dir.join(SOCKET_NAME)),
        lookalike: given(Key::LookalikeDir).unwrap_or_else(|| run_dir.join("config/dlm/cluster")),
        run_dir,
        state_dir,
    };
    if places.socket.is_relative() {
        return Err(format!("${SOCKET_VARIABLE} must be an absolute path"));
    }
    Ok(places)
}

fn usual_run_dir(around: &Surroundings) -> Option<PathBuf> {
    if around.root {
        Some("/run/dlm".into())
    } else {
        Some(around.runtime_dir.as_ref()?.join("dlm"))
    }
}

fn usual_state_dir(around: &Surroundings) -> Option<PathBuf> {
    if around.root {
        return Some("/var/lib/dlm".into());
    }
    let home = || around.home.as_ref().map(|home| home.join(".local/state"));
    Some(around.state_home.clone().or_else(home)?.join("dlm"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(command_line: &[(Key, &str)]) -> Settings {
        let line: Vec<_> = command_line.iter().map(|(k, v)| (*k, (*v).to_owned())).collect();
        let mut settings = Settings::default();
        for (key, value) in line {
            settings.layers[key as usize].command_line = Some(value);
        }
        settings
    }

    fn told(settings: &Settings, around: &Surroundings) -> [String; 4] {
        let places = resolve(settings, around).expect("places");
        [places.socket, places.run_dir, places.state_dir, places.lookalike]
            .map(|path| path.display().to_string())
    }

    #[test]
    fn root_and_users_have_their_usual_places() {
        let root = Surroundings { root: true, ..Default::default() };
        let want =
            ["/run/dlm/dlmd.sock", "/run/dlm", "/var/lib/dlm", "/run/dlm/config/dlm/cluster"];
        assert_eq!(told(&settings(&[]), &root), want);
        let user = Surroundings {
            runtime_dir: Some("/run/user/7".into()),
            home: Some("/home/u".into()),
            ..Default::default()
        };
        let want = [
            "/run/user/7/dlm/dlmd.sock",
            "/run/user/7/dlm",
            "/home/u/.local/state/dlm",
            "/run/user/7/dlm/config/dlm/cluster",
        ];
        assert_eq!(told(&settings(&[]), &user), want);
        let error = resolve(&settings(&[]), &Surroundings::default()).expect_err("no place");
        assert!(error.contains("$XDG_RUNTIME_DIR"), "{error}");
    }

    #[test]
    fn an_own_socket_keeps_everything_beside_it() {
        let around =
            Surroundings { root: true, socket: Some("/e/d.sock".into()), ..Default::default() };
        let want = ["/e/d.sock", "/e", "/e", "/e/config/dlm/cluster"];
        assert_eq!(told(&settings(&[]), &around), want);
        let line = settings(&[(Key::Socket, "/l/d.sock"), (Key::StateDir, "/s")]);
        assert_eq!(told(&line, &around), ["/l/d.sock", "/l", "/s", "/l/config/dlm/cluster"]);
        let line = settings(&[(Key::RunDir, "/r"), (Key::LookalikeDir, "/k")]);
        assert_eq!(told(&line, &around), ["/e/d.sock", "/r", "/e", "/k"]);
    }

    #[test]
    fn a_socket_in_the_file_moves_only_the_socket() {
        let mut settings = Settings::default();
        settings.layers[Key::Socket as usize].file = Some("/f/d.sock".into());
        let root = Surroundings { root: true, ..Default::default() };
        assert_eq!(told(&settings, &root)[..2], ["/f/d.sock", "/run/dlm"]);
    }
}
