//! The interface that linkers and compilers see, of both libraries, against the recorded original
//! (`tests/abi/`): symbols, sonames, struct layout, numbers, prototypes.

mod compile;
mod prototypes;
mod symbols;

use std::path::{Path, PathBuf};
use std::process::Command;

/// The top of the tree.
fn top() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the tree is there")
}

/// A file of the tree as text.
fn text(path: &str) -> String {
    std::fs::read_to_string(top().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// A shared library, built in the profile of the running test if it is not up to date.
fn library(package: &str) -> PathBuf {
    let test = std::env::current_exe().expect("the running test has a path");
    let profile = test.parent().and_then(Path::parent).expect("target/<profile>/deps/<test>");
    let release = profile.file_name().is_some_and(|name| name == "release");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut build = Command::new(cargo);
    build.args(["build", "--quiet", "--package", package]).args(release.then_some("--release"));
    assert!(build.current_dir(top()).status().expect("cargo can be run").success(), "{package}");
    profile.join(format!("{package}.so"))
}

/// Whether a program can be run; if not, says that its test is skipped.
fn have(program: &str, test: &str) -> bool {
    let found = Command::new(program).arg("--version").output().is_ok();
    if !found {
        println!("skipped: {test}: {program} is not installed");
    }
    found
}

/// What a program prints.
fn output(program: &str, arguments: &[&str]) -> String {
    let done = Command::new(program).args(arguments).output().expect("it can be run");
    assert!(done.status.success(), "{program}: {}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8_lossy(&done.stdout).into_owned()
}
