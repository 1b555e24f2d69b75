//! The Debian packages that tests need, and installing them without starting a service.
//!
//! A package counts as there when the file or program that the tests use is there, however it came; so the
//! tests run on other systems too. Debian starts the services of what it installs: a temporary
//! `policy-rc.d` forbids that, since a lvmlockd or corosync that runs by itself would disturb machine and tests.

use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A package and one file that only it brings: a program's name, or an absolute path.
struct Package {
    name: &'static str,
    proof: &'static str,
}

const fn package(name: &'static str, proof: &'static str) -> Package {
    Package { name, proof }
}

/// All that any test needs.
const PACKAGES: &[Package] = &[
    package("gcc", "gcc"),
    package("g++", "g++"),
    package("libc6-dev", "/usr/include/errno.h"),
    package("pkg-config", "pkg-config"),
    package("python3", "python3"),
    package("iproute2", "ip"),
    package("nftables", "nft"),
    package("diffutils", "diff"),
    package("valgrind", "valgrind"),
    package("redis-server", "redis-server"),
    package("memcached", "memcached"),
    package("lvm2", "lvm"),
    package("lvm2-lockd", "lvmlockd"),
    package("mdadm", "mdadm"),
    package("ocfs2-tools", "fsck.ocfs2"),
    package("dlm-controld", "/usr/sbin/dlm_tool"),
    package("libdlm-dev", "/usr/lib/x86_64-linux-gnu/libdlm.so"),
    package("corosync", "corosync"),
    package("psmisc", "killall"),
    package("libfaketime", "/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1"),
    package("procps", "pgrep"),
];

/// Those of `names` that are not there.
pub(crate) fn missing(names: &[&'static str]) -> Vec<&'static str> {
    let wanted = PACKAGES.iter().filter(|package| names.contains(&package.name));
    let absent = wanted.filter(|package| find(package.proof).is_none());
    absent.map(|package| package.name).collect()
}

/// The names of all packages.
#[cfg(test)]
pub(crate) fn all() -> Vec<&'static str> {
    PACKAGES.iter().map(|package| package.name).collect()
}

/// A sentence for a test that is left out, or `None` when all `names` are there.
pub(crate) fn lack(names: &[&'static str]) -> Option<String> {
    let missing = missing(names);
    if missing.is_empty() { None } else { Some(format!("not installed: {}", missing.join(" "))) }
}

/// A program in the path or where Debian keeps those of the administrator; or a file.
pub(crate) fn find(program: &str) -> Option<PathBuf> {
    if program.starts_with('/') {
        return Some(PathBuf::from(program)).filter(|path| path.exists());
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let fixed = ["/usr/sbin", "/sbin", "/usr/bin", "/bin"].map(PathBuf::from);
    let folders = std::env::split_paths(&path).chain(fixed);
    folders.map(|folder| folder.join(program)).find(|path| path.is_file())
}

/// Whether we may do what only the administrator may.
pub(crate) fn is_root() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ids = status.lines().find_map(|line| line.strip_prefix("Uid:"));
    ids.and_then(|ids| ids.split_whitespace().nth(1)) == Some("0")
}

/// Installs `names`; what could not be installed is missing afterwards, and said.
pub(crate) fn install(names: &[&str], log: &Path) -> io::Result<()> {
    let _guard = NoServices::new()?;
    if !lists_are_there() && !apt(&["update"], log)? {
        println!("   apt-get update failed; see {}", log.display());
    }
    let mut words = vec!["install", "--yes", "--no-install-recommends"];
    words.extend(names);
    if apt(&words, log)? {
        return Ok(());
    }
    // Old lists name files that the mirror no longer has; and one unknown package stops all others.
    apt(&["update"], log)?;
    for name in names {
        if !apt(&["install", "--yes", "--no-install-recommends", name], log)? {
            println!("   could not install {name}; see {}", log.display());
        }
    }
    Ok(())
}

fn apt(words: &[&str], log: &Path) -> io::Result<bool> {
    let log = std::fs::OpenOptions::new().create(true).append(true).open(log)?;
    let status = Command::new("apt-get")
        .args(["--quiet", "-o", "DPkg::Lock::Timeout=300"])
        .args(words)
        .env("DEBIAN_FRONTEND", "noninteractive")
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .status()?;
    Ok(status.success())
}

fn lists_are_there() -> bool {
    let Ok(entries) = std::fs::read_dir("/var/lib/apt/lists") else { return false };
    entries.flatten().any(|entry| entry.file_name().to_string_lossy().contains("_Packages"))
}

/// While it lives, no package's installation starts a service.
struct NoServices {
    made: bool,
}

const POLICY: &str = "/usr/sbin/policy-rc.d";
const POLICY_TEXT: &str =
    "#!/bin/sh\n# of cargo xtask test: no service starts while it installs\nexit 101\n";

impl NoServices {
    fn new() -> io::Result<Self> {
        let there = std::fs::read_to_string(POLICY);
        // One of ours is from a run that was ended in the middle: take it over.
        let made = there.is_err() || there.is_ok_and(|text| text == POLICY_TEXT);
        if made {
            std::fs::write(POLICY, POLICY_TEXT)?;
            std::fs::set_permissions(POLICY, std::fs::Permissions::from_mode(0o755))?;
        }
        Ok(NoServices { made })
    }
}

impl Drop for NoServices {
    fn drop(&mut self) {
        if self.made
            && let Err(error) = std::fs::remove_file(POLICY)
        {
            eprintln!("{POLICY} stays behind and keeps services from starting: {error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_and_absent_ones_are_not() {
        assert!(find("sh").is_some());
        assert!(find("/proc/self/status").is_some());
        assert!(find("no-such-program-of-anybody").is_none());
    }

    #[test]
    fn every_package_is_named_once() {
        let mut names = all();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), PACKAGES.len());
    }
}
