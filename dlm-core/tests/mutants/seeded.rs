//! Programs with the seeded faults of the engine (`src/seeded.rs`) compiled in, and what every test of
//! tests does with them: also those of whole clusters (tests/sim, tests/model).

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The folder of dlm-core.
pub(crate) fn core() -> PathBuf {
    let above = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().map(|dir| dir.join("dlm-core"));
    above.into_iter().find(|dir| dir.exists()).expect("dlm-core is in the workspace")
}

/// The faults of a list of `tests`: names, and what they break.
pub(crate) fn listed(list: &str) -> Vec<(String, String)> {
    let text = std::fs::read_to_string(core().join("tests").join(list)).expect("the list");
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let entries = lines.map(|line| line.split_once(' ').expect("a name and what it breaks"));
    entries.map(|(name, breaks)| (name.to_owned(), breaks.trim().to_owned())).collect()
}

/// Every one of these faults, or the one of `DLM_MUTANT`, is noticed; `noticed` is given a fault and what
/// stands beside it, and tells by what.
pub(crate) fn all_are_noticed(
    faults: &[(impl AsRef<str>, impl AsRef<str>)],
    noticed: impl Fn(&str, &str) -> Option<String>,
) {
    let only = std::env::var("DLM_MUTANT").ok();
    let mut unnoticed = Vec::new();
    for (name, beside) in faults.iter().map(|(name, beside)| (name.as_ref(), beside.as_ref())) {
        if only.as_ref().is_some_and(|only| only != name) {
            continue;
        }
        match noticed(name, beside) {
            Some(by) => println!("{name}: noticed by {by}"),
            None => unnoticed.push(format!("{name}: {beside}")),
        }
    }
    assert!(unnoticed.is_empty(), "nothing notices\n  {}", unnoticed.join("\n  "));
}

/// A program with all faults in it; dropping it removes it.
pub(crate) struct Faulty(PathBuf);

impl Faulty {
    /// Builds it with these words for cargo.
    pub(crate) fn build(words: &[&str]) -> Self {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let output = Command::new(cargo)
            .args(words)
            .args(["--message-format", "json"])
            .current_dir(core())
            .env("RUSTC_WORKSPACE_WRAPPER", core().join("tests/mutants/with-bugs.sh"))
            .stdin(Stdio::null())
            .output()
            .expect("cargo can be started");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let messages = String::from_utf8_lossy(&output.stdout).into_owned();
        let mut programs = messages.split("\"executable\":\"").skip(1);
        let path = programs.find_map(|rest| rest.split('"').next()).expect("the program's path");
        // The next build without faults takes the same place.
        let copy = std::env::temp_dir().join(format!("dlm-mutants-{}", std::process::id()));
        std::fs::copy(path, &copy).expect("the program can be copied");
        Self(copy)
    }

    /// The program with this fault active; "": none.
    pub(crate) fn with(&self, fault: &str) -> Command {
        let mut command = Command::new(&self.0);
        command.env("DLM_SEEDED_BUG", fault).env("RUST_BACKTRACE", "0").stdin(Stdio::null());
        command
    }
}

impl Drop for Faulty {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}
