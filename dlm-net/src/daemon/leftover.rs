//! Which lockspaces exist, kept in the run directory for the next daemon.
//!
//! After a crash nothing of a lockspace is left: its locks died with the daemon's memory, and its
//! clients were told. The next daemon says which ones there were (BL-055); nobody has to remove
//! anything.

use std::collections::BTreeSet;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::lookalike::file_name;

/// The list's file name in the run directory.
const FILE_NAME: &str = "lockspaces";

/// The list.
#[derive(Debug)]
pub(crate) struct Leftovers {
    path: PathBuf,
    names: BTreeSet<Vec<u8>>,
}

impl Leftovers {
    /// Begins an empty list and returns the names that a crashed daemon left in the old one, with
    /// odd bytes as `%xx`.
    pub(crate) fn begin(run_dir: &Path) -> (Self, Vec<String>) {
        let path = run_dir.join(FILE_NAME);
        let old = std::fs::read(&path).unwrap_or_default();
        let old = String::from_utf8_lossy(&old).lines().map(str::to_owned).collect();
        let list = Self { path, names: BTreeSet::new() };
        list.write();
        (list, old)
    }

    /// A lockspace was created.
    pub(crate) fn add(&mut self, name: &[u8]) {
        self.names.insert(name.to_vec());
        self.write();
    }

    /// A lockspace was removed.
    pub(crate) fn remove(&mut self, name: &[u8]) {
        self.names.remove(name);
        self.write();
    }

    /// The daemon ends in good order.
    pub(crate) fn end(&mut self) {
        self.names.clear();
        self.write();
    }

    fn write(&self) {
        let result = if self.names.is_empty() {
            match std::fs::remove_file(&self.path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
                _ => Ok(()),
            }
        } else {
            let line = |name: &Vec<u8>| [file_name(name).as_bytes(), b"\n"].concat();
            std::fs::write(&self.path, self.names.iter().flat_map(line).collect::<Vec<_>>())
        };
        if let Err(error) = result {
            tracing::debug!("cannot write {}: {error}", self.path.display());
        }
    }
}

/// Clients of a daemon that crashed on this machine: they hold what they were granted until they look.
#[derive(Debug)]
pub(crate) struct Remnants {
    feared: bool,
}

impl Remnants {
    /// Those of the daemon before in this run directory, if it `crashed` with lockspaces.
    pub(crate) fn new(_run_dir: &Path, crashed: bool) -> Self {
        Self { feared: crashed }
    }

    /// Whether no process is left that has an open handle of that daemon.
    pub(crate) fn are_gone(&self) -> bool {
        !self.feared
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TempDir;

    #[test]
    fn the_next_daemon_learns_what_a_crash_left_and_nothing_after_a_good_end() {
        let dir = TempDir::new("leftover");
        let (mut first, old) = Leftovers::begin(dir.path());
        assert!(old.is_empty());
        first.add(b"web");
        first.add(b"a/b\n");
        first.add(b"gone");
        first.remove(b"gone");
        drop(first);
        let (mut second, old) = Leftovers::begin(dir.path());
        assert_eq!(old, ["a%2fb%0a", "web"]);
        second.add(b"x");
        second.end();
        assert!(Leftovers::begin(dir.path()).1.is_empty());
        std::fs::write(dir.path().join(FILE_NAME), b"\xff\xfe\n").expect("writable");
        assert_eq!(Leftovers::begin(dir.path()).1.len(), 1, "odd bytes are survived");
    }
}
