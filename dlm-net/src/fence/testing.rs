//! Agents for tests.

use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use crate::testing::TempDir;

/// A shell script that can be run as an agent.
pub(super) fn script(dir: &TempDir, name: &str, body: &str) -> PathBuf {
    let path = dir.path().join(name);
    // Written under another name: nobody may run a file that is open for writing, and a child that
    // another test's thread is just forking has it open.
    let fresh = path.with_extension("new");
    let copy = std::process::Command::new("sh")
        .args(["-c", "printf '#!/bin/sh\\n%s\\n' \"$1\" >\"$2\"", "sh", body])
        .arg(&fresh)
        .status();
    assert!(copy.expect("sh can be run").success());
    let mode = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(&fresh, mode).expect("ours");
    std::fs::rename(&fresh, &path).expect("ours");
    path
}

/// A path that has a folder's agents, and what their scripts need.
pub(super) fn path_of(dir: &TempDir) -> OsString {
    let mut path = dir.path().as_os_str().to_owned();
    path.push(":/usr/bin:/bin");
    path
}
