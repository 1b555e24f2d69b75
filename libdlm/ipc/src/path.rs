//! Where dlmd serves: one rule for library, tools and daemon (architecture.md section 8).
//!
//! | first that applies | path |
//! |---|---|
//! | an explicit argument | that |
//! | `$DLM_SOCKET` is set and not empty | that |
//! | `$XDG_RUNTIME_DIR/dlm/dlmd.sock` exists and the caller is not root | that |
//! | else | [`SYSTEM_SOCKET`] |
//!
//! A program with more rights than its caller (set-user-id) does not look at the environment.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::sys;

/// The machine's daemon.
pub const SYSTEM_SOCKET: &str = "/run/dlm/dlmd.sock";
/// The variable that names another socket.
pub const SOCKET_VARIABLE: &str = "DLM_SOCKET";
/// Below `$XDG_RUNTIME_DIR`: a user's own daemon.
const USER_SOCKET: &str = "dlm/dlmd.sock";

/// Where a client connects.
pub fn socket_path(explicit: Option<&Path>) -> PathBuf {
    choose(explicit, &Surroundings::of_process(), Path::exists)
}

/// Where a daemon serves: the same, but a user's daemon makes the socket that a client looks for.
pub fn daemon_socket_path(explicit: Option<&Path>) -> PathBuf {
    choose(explicit, &Surroundings::of_process(), |_| true)
}

struct Surroundings {
    variable: Option<OsString>,
    runtime_dir: Option<OsString>,
    root: bool,
}

impl Surroundings {
    fn of_process() -> Self {
        let read = |name| {
            let trusted = !sys::is_privileged_beyond_caller();
            env::var_os(name).filter(|value| trusted && !value.is_empty())
        };
        let (variable, runtime_dir) = (read(SOCKET_VARIABLE), read("XDG_RUNTIME_DIR"));
        Self { variable, runtime_dir, root: sys::is_root() }
    }
}

fn choose(explicit: Option<&Path>, around: &Surroundings, usable: fn(&Path) -> bool) -> PathBuf {
    if let Some(path) = explicit {
        return path.to_owned();
    }
    if let Some(path) = &around.variable {
        return path.into();
    }
    let own = around.runtime_dir.as_ref().filter(|_| !around.root);
    let own = own.map(|directory| Path::new(directory).join(USER_SOCKET));
    own.filter(|path| usable(path)).unwrap_or_else(|| SYSTEM_SOCKET.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn around(variable: Option<&str>, runtime_dir: Option<&str>, root: bool) -> Surroundings {
        Surroundings {
            variable: variable.map(Into::into),
            runtime_dir: runtime_dir.map(Into::into),
            root,
        }
    }

    #[test]
    fn the_first_rule_that_applies_wins() {
        let own = "/run/user/7/dlm/dlmd.sock";
        let yes = |_: &Path| true;
        let no = |_: &Path| false;
        let all = around(Some("/v"), Some("/run/user/7"), false);
        assert_eq!(choose(Some(Path::new("/e")), &all, yes), Path::new("/e"));
        assert_eq!(choose(None, &all, yes), Path::new("/v"));
        let user = around(None, Some("/run/user/7"), false);
        assert_eq!(choose(None, &user, yes), Path::new(own));
        assert_eq!(choose(None, &user, no), Path::new(SYSTEM_SOCKET));
        let root = around(None, Some("/run/user/7"), true);
        assert_eq!(choose(None, &root, yes), Path::new(SYSTEM_SOCKET));
        assert_eq!(choose(None, &around(None, None, false), yes), Path::new(SYSTEM_SOCKET));
    }

    #[test]
    fn an_explicit_path_needs_no_surroundings() {
        assert_eq!(socket_path(Some(Path::new("/e"))), Path::new("/e"));
        assert_eq!(daemon_socket_path(Some(Path::new("/e"))), Path::new("/e"));
    }
}
