//! Where things are: every path is derived from the workspace's own folder, so a clone works anywhere.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The folders that the commands work in.
#[derive(Clone)]
pub(crate) struct Places {
    /// The workspace.
    pub(crate) root: PathBuf,
    /// cargo's target folder.
    pub(crate) target: PathBuf,
}

impl Places {
    /// Asks the environment that cargo sets, else what cargo said at compile time.
    pub(crate) fn find() -> Self {
        let manifest = std::env::var_os("CARGO_MANIFEST_DIR")
            .unwrap_or_else(|| OsString::from(env!("CARGO_MANIFEST_DIR")));
        let crate_dir = PathBuf::from(manifest);
        let root = crate_dir.ancestors().nth(2).unwrap_or(Path::new(".")).to_path_buf();
        let target = match std::env::var_os("CARGO_TARGET_DIR") {
            Some(dir) => root.join(dir),
            None => root.join("target"),
        };
        Places { root, target }
    }

    /// Programs and raw shared objects of the release build.
    pub(crate) fn release(&self) -> PathBuf {
        self.target.join("release")
    }

    /// Everything this tool makes.
    pub(crate) fn work(&self) -> PathBuf {
        self.target.join("xtask")
    }

    /// Our libraries under the names that programs load: `$DLM_LIB_DIR` of the tests.
    pub(crate) fn libraries(&self) -> PathBuf {
        self.work().join("lib")
    }

    /// The public C headers.
    pub(crate) fn include(&self) -> PathBuf {
        self.root.join("include")
    }

    /// Files of the product that are not code.
    pub(crate) fn dist(&self) -> PathBuf {
        self.root.join("tools/dist")
    }

    /// What the suites printed.
    pub(crate) fn logs(&self) -> PathBuf {
        self.work().join("logs")
    }

    /// The cargo that runs us, or the one in the path.
    pub(crate) fn cargo(&self) -> OsString {
        std::env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"))
    }
}
