//! The tests of the tests that only rare orders of messages need: each seeded fault of
//! `tests/mutations-orders.txt`, made active, must make the test of `tests/several` fail that it names.
//!
//! The other faults of the cluster rules, `tests/mutations-cluster.txt`, are noticed by whole clusters under
//! seeds (tests/sim).

#[path = "../mutants/seeded.rs"]
mod seeded;
#[path = "../mutants/sources.rs"]
mod sources;

use std::collections::BTreeSet;
use std::process::Stdio;

use seeded::{Faulty, all_are_noticed, core, listed};
use sources::named_in;

const LIST: &str = "mutations-orders.txt";

#[test]
fn the_lists_and_the_engine_name_the_same_faults() {
    let both = ["mutations-cluster.txt", LIST].into_iter().flat_map(listed);
    assert_eq!(named_in("cluster_fault"), both.map(|(name, _)| name).collect::<BTreeSet<String>>());
}

#[test]
fn every_fault_of_a_rare_order_is_noticed_by_its_test() {
    let several =
        Faulty::build(&["test", "--package", "dlm-core", "--test", "several", "--no-run"]);
    all_are_noticed(&listed(LIST), |name, beside| {
        let (test, _) = beside.split_once(' ').expect("a test, and what it is there for");
        assert!(passes(&several, test, ""), "without an active fault {test} passes");
        (!passes(&several, test, name)).then(|| test.to_owned())
    });
}

/// Whether a test passes while this fault is active.
fn passes(several: &Faulty, test: &str, fault: &str) -> bool {
    let mut command = several.with(fault);
    command.args(["--exact", test]).current_dir(core());
    let status = command.stdout(Stdio::null()).stderr(Stdio::null()).status();
    status.expect("the tests can be started").success()
}
