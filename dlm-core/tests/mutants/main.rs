//! The tests of the tests: each seeded fault of `tests/mutations.txt`, made active in turn, must
//! make a test of `tests/engine` fail, and each of `tests/mutations-orders.txt` the test of
//! `tests/several` that it names. Those of `tests/mutations-cluster.txt` are the simulator's.
//!
//! The faults are compiled in by one extra build of this package (`with-bugs.sh`, `src/seeded.rs`)
//! and picked by `DLM_SEEDED_BUG`, so a run costs that build and about a second for each fault.
//!
//! ```text
//! DLM_MUTANT=pw-to-ex-writes cargo test -p dlm-core --test mutants -- --nocapture   # one of them
//! ```

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

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

fn package() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Names and what they break.
fn listed(list: &str) -> Vec<(String, String)> {
    let text = std::fs::read_to_string(package().join("tests").join(list)).expect(list);
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let entries = lines.map(|line| line.split_once(' ').expect("a name and what it breaks"));
    entries.map(|(name, breaks)| (name.to_owned(), breaks.trim().to_owned())).collect()
}

#[test]
fn the_lists_and_the_engine_name_the_same_faults() {
    for (call, lists) in [
        ("bug(\"", &["mutations.txt"][..]),
        ("cluster_fault(\"", &["mutations-cluster.txt", "mutations-orders.txt"]),
    ] {
        let mut seeded = BTreeSet::new();
        for entry in std::fs::read_dir(package().join("src")).expect("src") {
            let text = std::fs::read_to_string(entry.expect("an entry").path()).expect("a source");
            for piece in text.split(call).skip(1) {
                let name = piece.split('"').next().expect("split gives one").to_owned();
                assert!(seeded.insert(name.clone()), "{name} is seeded twice");
            }
        }
        let names = lists.iter().flat_map(|list| listed(list)).map(|(name, _)| name);
        assert_eq!(seeded, names.collect::<BTreeSet<String>>());
        assert!(seeded.len() >= 15);
    }
}

#[test]
fn every_seeded_fault_is_noticed() {
    let engine = build("engine");
    assert!(passes(&engine, STAGES[0], ""), "without an active fault the tests pass");
    let only = std::env::var("DLM_MUTANT").ok();
    let mut unnoticed = Vec::new();
    for (name, breaks) in listed("mutations.txt") {
        if only.as_ref().is_some_and(|only| *only != name) {
            continue;
        }
        match STAGES.iter().find(|stage| !passes(&engine, stage, &name)) {
            Some(stage) => println!("{name}: noticed by {}", stage.join(" or ")),
            None => unnoticed.push(format!("{name}: {breaks}")),
        }
    }
    assert!(unnoticed.is_empty(), "no test notices\n  {}", unnoticed.join("\n  "));
}

#[test]
fn every_fault_of_a_rare_order_is_noticed_by_its_test() {
    let several = build("several");
    let only = std::env::var("DLM_MUTANT").ok();
    let mut wrong = Vec::new();
    for (name, rest) in listed("mutations-orders.txt") {
        if only.as_ref().is_some_and(|only| *only != name) {
            continue;
        }
        let (test, breaks) = rest.split_once(' ').expect("a test and what it is there for");
        assert!(passes(&several, &["--exact", test], ""), "without an active fault {test} passes");
        match passes(&several, &["--exact", test], &name) {
            false => println!("{name}: noticed by {test}"),
            true => wrong.push(format!("{test} does not notice {name}: {breaks}")),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n  "));
}

/// Builds a test program with the faults compiled in; where it is.
fn build(test: &str) -> PathBuf {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["test", "--package", "dlm-core", "--test", test, "--no-run"])
        .args(["--message-format", "json"])
        .current_dir(package())
        .env("RUSTC_WORKSPACE_WRAPPER", package().join("tests/mutants/with-bugs.sh"))
        .stdin(Stdio::null())
        .output()
        .expect("cargo can be started");
    let messages = String::from_utf8_lossy(&output.stdout);
    let programs = messages.split("\"executable\":\"").skip(1);
    let programs = programs.filter_map(|rest| rest.split('"').next());
    let program = programs.filter(|path| path.contains(&format!("/{test}-"))).last();
    match program.filter(|_| output.status.success()) {
        Some(path) => PathBuf::from(path),
        None => panic!(
            "{test} cannot be built with the seeded faults: {}",
            String::from_utf8_lossy(&output.stderr)
        ),
    }
}

/// Whether all tests of a stage pass while this fault is active.
fn passes(program: &Path, stage: &[&str], bug: &str) -> bool {
    let child = Command::new(program)
        .args(stage)
        .current_dir(package())
        .env("DLM_SEEDED_BUG", bug)
        .env("RUST_BACKTRACE", "0")
        .stdin(Stdio::null())
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
