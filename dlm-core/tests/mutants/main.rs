//! The tests of the tests: each seeded fault of `tests/mutations.txt`, made active in turn, must
//! make a test of `tests/engine` fail.
//!
//! The faults are compiled in by one extra build of this package (`with-bugs.sh`, `src/seeded.rs`)
//! and picked by `DLM_SEEDED_BUG`, so a run costs that build and about a second for each fault.
//!
//! ```text
//! DLM_MUTANT=pw-to-ex-writes cargo test -p dlm-core --test mutants -- --nocapture   # one of them
//! ```

mod seeded;
mod sources;

use std::collections::BTreeSet;
use std::process::{Child, ExitStatus, Stdio};
use std::time::Duration;

use seeded::{Faulty, all_are_noticed, core, listed};
use sources::named_in;

const LIST: &str = "mutations.txt";

/// Tests that are tried in this order until one fails: quick ones first.
const STAGES: &[&[&str]] = &[
    &["tables::", "spaces::", "limits::", "many_locks", "nodir::", "lease::"],
    &["replay::", "laws::"],
    &["random::"],
    &["exhaustive::", "ids::"],
];
/// A fault may make the engine run in circles; that counts as noticed.
const STAGE_POLLS_MAX: u32 = 1200;
const POLL: Duration = Duration::from_millis(100);

#[test]
fn the_list_and_the_engine_name_the_same_faults() {
    let listed: BTreeSet<String> = listed(LIST).into_iter().map(|(name, _)| name).collect();
    assert_eq!(named_in("bug"), listed);
    assert!(listed.len() >= 15);
}

#[test]
fn every_seeded_fault_is_noticed() {
    let engine = Faulty::build(&["test", "--package", "dlm-core", "--test", "engine", "--no-run"]);
    assert!(passes(&engine, STAGES[0], ""), "without an active fault the tests pass");
    all_are_noticed(&listed(LIST), |name, _| {
        let stage = STAGES.iter().find(|stage| !passes(&engine, stage, name));
        stage.map(|stage| stage.join(" or "))
    });
}

/// Whether all tests of a stage pass while this fault is active.
fn passes(engine: &Faulty, stage: &[&str], bug: &str) -> bool {
    let child = engine
        .with(bug)
        .args(stage)
        .current_dir(core())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("the engine's tests can be started");
    ended(child).is_some_and(|status| status.success())
}

/// How the child ended; `None` where it had to be killed.
fn ended(mut child: Child) -> Option<ExitStatus> {
    for _ in 0..STAGE_POLLS_MAX {
        if let Some(status) = child.try_wait().expect("the child can be waited for") {
            return Some(status);
        }
        std::thread::sleep(POLL);
    }
    child.kill().expect("the child can be killed");
    child.wait().expect("the child can be waited for");
    None
}
