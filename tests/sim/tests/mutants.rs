//! The test of the simulator: each seeded fault of the cluster rules, made active in turn, must make a
//! seed fail.
//!
//! The faults are compiled in by one extra build of the simulator (the wrapper of dlm-core's own
//! mutants) and picked by `DLM_SEEDED_BUG`.
//!
//! ```text
//! DLM_MUTANT=moves-before-safe cargo test -p dlm-sim --test mutants -- --nocapture   # one of them
//! ```

#[path = "../../../dlm-core/tests/mutants/seeded.rs"]
mod seeded;

use std::process::Stdio;

use seeded::{Faulty, all_are_noticed, listed};

/// Clusters tried until one fails: nodes and seeds.
const WORLDS: &[(u64, u64)] = &[(3, 250), (2, 200), (4, 200), (5, 60)];

#[test]
fn every_cluster_fault_is_noticed() {
    let program = Faulty::build(&["build", "--package", "dlm-sim", "--bin", "dlm-sim"]);
    assert!(passes(&program, "", 3, 20), "without an active fault every seed passes");
    all_are_noticed(&listed("mutations-cluster.txt"), |name, _| {
        let world = WORLDS.iter().find(|(nodes, seeds)| !passes(&program, name, *nodes, *seeds));
        world.map(|(nodes, _)| format!("clusters of {nodes} nodes"))
    });
}

/// Whether all these seeds pass while this fault is active.
fn passes(program: &Faulty, fault: &str, nodes: u64, seeds: u64) -> bool {
    let status = program
        .with(fault)
        .args(["--seeds", &seeds.to_string(), "--nodes", &nodes.to_string(), "--stop"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .expect("the simulator can be started");
    status.success()
}
