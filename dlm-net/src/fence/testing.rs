//! Where tests have their agents.

use std::ffi::OsString;

use crate::testing::TempDir;

/// A path that has a folder's agents, and what their scripts need.
pub(super) fn path_of(dir: &TempDir) -> OsString {
    let mut path = dir.path().as_os_str().to_owned();
    path.push(":/usr/bin:/bin");
    path
}
