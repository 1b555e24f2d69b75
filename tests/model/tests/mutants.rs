//! The test of the model: seeded faults of the cluster rules, each made active in turn, must be found
//! in the scenario that is about that rule.
//!
//! The faults are compiled in by one extra build (the wrapper of dlm-core's own mutants) and picked by
//! `DLM_SEEDED_BUG`.
//!
//! ```text
//! DLM_MUTANT=moves-before-safe cargo test -p dlm-model --test mutants -- --nocapture   # one of them
//! ```

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A fault of `dlm-core/tests/mutations-cluster.txt`, and the scenario that finds it.
const FAULTS: &[(&str, &str)] = &[
    ("later-views-dropped", "moved slot, excluded master lives"), // R2
    ("old-views-heard", "second view before names"),              // R2
    ("unready-slots-kept", "second view before names"),           // R4
    ("lookup-takes-lost-name", "look-up overtakes a claim"),      // R7
    ("free-names-from-unready-slots", "moved slot, excluded master lives"), // R7
    ("lost-locks-dropped-at-view", "second excluded node holds"), // R11
    ("moves-before-safe", "moved slot, excluded master lives"),   // R12
    ("lost-requests-forgotten", "request in flight to a lost master"), // R13
    ("thaw-at-first-done", "new master lost"),                    // R15
    ("tokens-start-again", "moved slot, excluded master lives"),  // R18
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[test]
fn faults_are_found_where_their_rule_is_tested() {
    let listed = std::fs::read_to_string(root().join("dlm-core/tests/mutations-cluster.txt"));
    let listed = listed.expect("the list of cluster faults");
    let program = build();
    let only = std::env::var("DLM_MUTANT").ok();
    let mut unnoticed = Vec::new();
    for (fault, scenario) in FAULTS {
        let known = listed.lines().any(|line| line.split(' ').next() == Some(fault));
        assert!(known, "{fault} is no fault of the list");
        if only.as_ref().is_some_and(|only| only != fault) {
            continue;
        }
        match finding(&program, fault, scenario) {
            Some(found) => println!("{fault}: {found}"),
            None => unnoticed.push(*fault),
        }
    }
    std::fs::remove_file(&program).expect("the copy of the program can be removed");
    assert!(unnoticed.is_empty(), "not found: {}", unnoticed.join(", "));
}

/// Builds the program with all faults in it, none active.
fn build() -> PathBuf {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["build", "--package", "dlm-model", "--bin", "dlm-model"])
        .args(["--message-format", "json"])
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
    let copy = std::env::temp_dir().join(format!("dlm-model-mutants-{}", std::process::id()));
    std::fs::copy(path, &copy).expect("the program can be copied");
    copy
}

/// What the scenario finds wrong while this fault is active.
fn finding(program: &Path, fault: &str, scenario: &str) -> Option<String> {
    let output = Command::new(program)
        .args([scenario, "--steps", "300000"])
        .env("DLM_SEEDED_BUG", fault)
        .stdin(Stdio::null())
        .output()
        .expect("the model can be started");
    let text = String::from_utf8_lossy(&output.stdout);
    (output.status.code() == Some(1)).then(|| text.lines().last().unwrap_or_default().to_owned())
}
