//! Which lockspaces exist, kept in the run directory for the next daemon.
//!
//! After a crash nothing of a lockspace is left: its locks died with the daemon's memory, and its
//! clients were told. The next daemon says which ones there were (BL-055); nobody has to remove
//! anything.

use std::collections::BTreeSet;
use std::ffi::{CStr, CString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use super::lookalike::file_name;

/// The list's file name in the run directory.
const FILE_NAME: &str = "lockspaces";
/// The note that clients of an earlier daemon are feared.
const NOTE_NAME: &str = "clients-feared";

/// The list.
#[derive(Debug)]
pub(crate) struct Leftovers {
    path: PathBuf,
    names: BTreeSet<Vec<u8>>,
    rings: CString,
}

impl Leftovers {
    /// Begins an empty list and returns the names that a crashed daemon left in the old one, with
    /// odd bytes as `%xx`.
    pub(crate) fn begin(run_dir: &Path) -> (Self, Vec<String>) {
        let path = run_dir.join(FILE_NAME);
        let old = std::fs::read(&path).unwrap_or_default();
        let old: Vec<_> = String::from_utf8_lossy(&old).lines().map(str::to_owned).collect();
        let note = run_dir.join(NOTE_NAME);
        if !old.is_empty()
            && let Err(error) = std::fs::write(&note, "")
        {
            tracing::warn!("cannot write {}: {error}", note.display());
        }
        let list = Self { path, names: BTreeSet::new(), rings: rings_name(run_dir) };
        list.write();
        (list, old)
    }

    /// The name of the memory files of this run directory's daemons, by which their clients are found.
    pub(crate) fn rings(&self) -> &CStr {
        &self.rings
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

/// A name that no other run directory's daemon gives its memory files, and no other start of this
/// directory's either: who has files of this daemon open is not a client of the one before.
fn rings_name(run_dir: &Path) -> CString {
    static START: OnceLock<u64> = OnceLock::new();
    let start = START.get_or_init(crate::sys::boot_nanos);
    CString::new(format!("{}{start:x}", rings_prefix(run_dir))).unwrap_or_default()
}

/// What all names of a run directory begin with.
fn rings_prefix(run_dir: &Path) -> String {
    let path = run_dir.canonicalize().unwrap_or_else(|_| run_dir.to_owned());
    // FNV-1a; two directories of one machine must differ, nothing more.
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    let hash = path.as_os_str().as_bytes().iter().fold(0xcbf2_9ce4_8422_2325, step);
    format!("dlm-rings-{hash:016x}-")
}

/// Clients of a daemon that crashed on this machine: they hold what they were granted until they
/// look. They are found by what they have mapped; where not all processes can be seen, nothing is
/// said about them.
#[derive(Debug)]
pub(crate) struct Remnants {
    /// What the names of all daemons of this directory begin with in a list of maps.
    mark: String,
    /// How it goes on for those of this daemon.
    own: String,
    /// Is there as long as clients of an earlier daemon are feared: the next daemon may crash before
    /// they are gone, and leave no lockspace of its own.
    note: PathBuf,
    feared: bool,
    look_at: Instant,
}

/// Between two looks.
const LOOK_PAUSE: Duration = Duration::from_millis(200);
/// Inode of the process namespace in which all processes are seen.
const ALL_PROCESSES: &str = "pid:[4026531836]";

impl Remnants {
    /// Those of the daemons before in this run directory, if the last one `crashed` with lockspaces, or
    /// did not live to see the clients of one before it gone.
    pub(crate) fn new(run_dir: &Path, crashed: bool) -> Self {
        let prefix = rings_prefix(run_dir);
        let name = rings_name(run_dir).into_string().unwrap_or_default();
        let own = format!("{} ", name.strip_prefix(&prefix).unwrap_or(&name));
        let note = run_dir.join(NOTE_NAME);
        let feared = crashed || note.exists();
        Self { mark: format!("/memfd:{prefix}"), own, note, feared, look_at: Instant::now() }
    }

    /// Whether no process is left that has a handle of those daemons. Looks now and then.
    pub(crate) fn are_gone(&mut self) -> bool {
        if self.feared && Instant::now() >= self.look_at {
            self.look_at = Instant::now() + LOOK_PAUSE;
            self.feared = !self.nobody_maps().unwrap_or(false);
            if !self.feared {
                // One that stays is found to be needless by the next daemon.
                let _ = std::fs::remove_file(&self.note);
            }
        }
        !self.feared
    }

    /// An error: not all processes can be looked at.
    fn nobody_maps(&self) -> io::Result<bool> {
        if std::fs::read_link("/proc/self/ns/pid")?.as_os_str() != ALL_PROCESSES {
            return Ok(false);
        }
        for entry in std::fs::read_dir("/proc")? {
            let name = entry?.file_name();
            let Some(pid) = name.to_str().and_then(|name| name.parse::<u32>().ok()) else {
                continue;
            };
            // Init takes no locks, and in a sandbox it cannot be looked at.
            if pid == std::process::id() || pid == 1 {
                continue;
            }
            match std::fs::read(format!("/proc/{pid}/maps")) {
                Ok(maps) if self.is_in(&maps) => return Ok(false),
                Ok(_) => {}
                // It ended meanwhile.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// Whether a list of maps has one of an earlier daemon of this directory.
    fn is_in(&self, maps: &[u8]) -> bool {
        let (mark, own) = (self.mark.as_bytes(), self.own.as_bytes());
        let mut places = maps.windows(mark.len()).enumerate().filter(|(_, text)| *text == mark);
        places.any(|(at, _)| !maps[at + mark.len()..].starts_with(own))
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

    #[test]
    fn clients_of_a_crashed_daemon_are_found_by_what_they_map() {
        let dir = TempDir::new("remnants");
        assert!(Remnants::new(dir.path(), false).are_gone());
        let name = rings_name(dir.path());
        assert_ne!(name, rings_name(Path::new("/run/dlm")));
        let mut remnants = Remnants::new(dir.path(), true);
        let all_seen = std::fs::read_link("/proc/self/ns/pid")
            .is_ok_and(|link| link.as_os_str() == ALL_PROCESSES);
        match remnants.nobody_maps() {
            // Own maps do not count, and nobody else has any of this directory.
            Ok(gone) => assert_eq!((gone, remnants.are_gone()), (all_seen, all_seen)),
            Err(error) => println!("SKIPPED: not all processes can be seen here ({error})"),
        }
        let line = |name: &str| format!("7f00-7f10 rw-s 00 00:01 2 /memfd:{name} (deleted)\n");
        let (own, other) = (name.into_string().expect("plain"), line("dlm-rings-0-1"));
        let before = line(&format!("{}1f", rings_prefix(dir.path())));
        let cases = [
            (other.clone(), false),
            (line(&own), false),
            (before.clone(), true),
            (format!("{other}{}{before}", line(&own)), true),
            // The numbers of an earlier one may begin like those of this one.
            (line(&format!("{own}0")), true),
        ];
        for (maps, found) in cases {
            assert_eq!(remnants.is_in(maps.as_bytes()), found, "{maps}");
        }
    }

    #[test]
    fn a_daemon_that_crashes_before_old_clients_are_gone_leaves_the_fear_to_the_next() {
        let dir = TempDir::new("remnants");
        assert!(!Remnants::new(dir.path(), false).feared);
        assert!(Remnants::new(dir.path(), true).feared);
        Leftovers::begin(dir.path()).0.add(b"web");
        assert_eq!(Leftovers::begin(dir.path()).1, ["web"]);
        assert!(Leftovers::begin(dir.path()).1.is_empty(), "the second one crashed with none");
        let mut next = Remnants::new(dir.path(), false);
        assert!(next.feared, "nobody saw them gone");
        if next.are_gone() {
            assert!(!Remnants::new(dir.path(), false).feared);
        }
    }
}
