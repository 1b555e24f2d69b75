//! The test of the model: seeded faults of the cluster rules, each made active in turn, must be found
//! in the scenario that is about that rule.
//!
//! The faults are compiled in by one extra build (the wrapper of dlm-core's own mutants) and picked by
//! `DLM_SEEDED_BUG`.
//!
//! ```text
//! DLM_MUTANT=moves-before-safe cargo test -p dlm-model --test mutants -- --nocapture   # one of them
//! ```

#[path = "../../../dlm-core/tests/mutants/seeded.rs"]
mod seeded;

use seeded::{Faulty, all_are_noticed, listed};

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

#[test]
fn faults_are_found_where_their_rule_is_tested() {
    let listed = listed("mutations-cluster.txt");
    for (fault, _) in FAULTS {
        assert!(listed.iter().any(|(name, _)| name == fault), "{fault} is no fault of the list");
    }
    let program = Faulty::build(&["build", "--package", "dlm-model", "--bin", "dlm-model"]);
    all_are_noticed(FAULTS, |fault, scenario| finding(&program, fault, scenario));
}

/// What the scenario finds wrong while this fault is active.
fn finding(program: &Faulty, fault: &str, scenario: &str) -> Option<String> {
    let output = program
        .with(fault)
        .args([scenario, "--steps", "300000"])
        .output()
        .expect("the model can be started");
    let text = String::from_utf8_lossy(&output.stdout);
    (output.status.code() == Some(1)).then(|| text.lines().last().unwrap_or_default().to_owned())
}
