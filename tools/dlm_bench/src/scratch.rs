//! A directory of this run's own, removed when dropped.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// The directory. Its path is short enough for a unix socket below it.
pub(crate) struct Scratch {
    path: PathBuf,
}

impl Scratch {
    /// Makes a fresh directory that only this user may enter.
    pub(crate) fn new() -> io::Result<Self> {
        Self::below(&std::env::temp_dir())
    }

    /// The same in memory, as `/run` is in life, where there is such a place.
    pub(crate) fn in_memory() -> io::Result<Self> {
        Self::below(Path::new("/dev/shm")).or_else(|_| Self::new())
    }

    fn below(parent: &Path) -> io::Result<Self> {
        use std::os::unix::fs::DirBuilderExt as _;
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("dlm_bench.{}.{number}", std::process::id());
        let path = parent.join(name);
        fs::DirBuilder::new().mode(0o700).create(&path)?;
        Ok(Self { path })
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // A leftover in the temporary directory is a blemish, not a failure.
        let _ = fs::remove_dir_all(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scratch_directory_is_gone_with_its_owner() {
        let scratch = Scratch::new().unwrap();
        let path = scratch.path().to_owned();
        fs::write(path.join("file"), "x").unwrap();
        assert!(path.is_dir());
        drop(scratch);
        assert!(!path.exists());
    }
}
