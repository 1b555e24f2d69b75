//! Whole clusters under fixed seeds and a few fresh ones. A failing seed is printed with the command
//! that replays it.

use std::time::{SystemTime, UNIX_EPOCH};

fn run(first: u64, seeds: u64, nodes: usize) {
    for seed in first..first + seeds {
        if let Err(error) = dlm_sim::run_seed(seed, nodes, false) {
            panic!(
                "{error}\nreplay: cargo run --release -p dlm-sim -- --seeds 1 --first {seed} \
                 --nodes {nodes} --trace"
            );
        }
    }
}

#[test]
fn one_node_keeps_its_promises() {
    run(1, 30, 1);
}

#[test]
fn two_nodes_keep_their_promises() {
    run(1, 60, 2);
}

#[test]
fn three_nodes_keep_their_promises() {
    run(1, 60, 3);
}

#[test]
fn five_nodes_keep_their_promises() {
    run(1, 30, 5);
}

#[test]
fn fresh_seeds_keep_their_promises() {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("the clock is past 1970");
    let seed = now.as_nanos() as u64 >> 10;
    run(seed, 10, 2);
    run(seed, 10, 4);
}
