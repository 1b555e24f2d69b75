//! The test of the simulator: each seeded fault of the cluster rules, made active in turn, must make a
//! seed fail.
//!
//! The faults are compiled in by one extra build of the simulator (the wrapper of dlm-core's own
//! mutants) and picked by `DLM_SEEDED_BUG`.
//!
//! ```text
//! DLM_MUTANT=moves-before-safe cargo test -p dlm-sim --test mutants -- --nocapture   # one of them
//! ```

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Clusters tried until one fails: nodes and seeds.
const WORLDS: &[(u64, u64)] = &[(3, 250), (2, 200), (4, 200), (5, 60)];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn listed() -> Vec<(String, String)> {
    let text = std::fs::read_to_string(root().join("dlm-core/tests/mutations-cluster.txt"));
    let text = text.expect("the list of cluster faults");
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let entries = lines.map(|line| line.split_once(' ').expect("a name and what it breaks"));
    entries.map(|(name, breaks)| (name.to_owned(), breaks.to_owned())).collect()
}

#[test]
fn every_cluster_fault_is_noticed() {
    let program = build();
    assert!(passes(&program, "", 3, 20), "without an active fault every seed passes");
    let only = std::env::var("DLM_MUTANT").ok();
    let mut unnoticed = Vec::new();
    for (name, breaks) in listed() {
        if only.as_ref().is_some_and(|only| *only != name) {
            continue;
        }
        match WORLDS.iter().find(|(nodes, seeds)| !passes(&program, &name, *nodes, *seeds)) {
            Some((nodes, _)) => println!("{name}: noticed with {nodes} nodes"),
            None => unnoticed.push(format!("{name}: {breaks}")),
        }
    }
    assert!(unnoticed.is_empty(), "no seed notices\n  {}", unnoticed.join("\n  "));
}

fn build() -> PathBuf {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["build", "--package", "dlm-sim", "--bin", "dlm-sim", "--message-format", "json"])
        .current_dir(root())
        .env("RUSTC_WORKSPACE_WRAPPER", root().join("dlm-core/tests/mutants/with-bugs.sh"))
        .stdin(Stdio::null())
        .output()
        .expect("cargo can be started");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let messages = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut programs = messages.split("\"executable\":\"").skip(1);
    let path = programs.find_map(|rest| rest.split('"').next()).expect("the program's path");
    // The next build without faults takes the same place.
    let copy = std::env::temp_dir().join(format!("dlm-sim-mutants-{}", std::process::id()));
    std::fs::copy(path, &copy).expect("the program can be copied");
    copy
}

/// Whether all these seeds pass while this fault is active.
fn passes(program: &Path, fault: &str, nodes: u64, seeds: u64) -> bool {
    let status = Command::new(program)
        .args(["--seeds", &seeds.to_string(), "--nodes", &nodes.to_string(), "--stop"])
        .env("DLM_SEEDED_BUG", fault)
        .env("RUST_BACKTRACE", "0")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .expect("the simulator can be started");
    status.success()
}
