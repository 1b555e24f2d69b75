//! Whole clusters under fixed seeds and a few fresh ones. A failing seed is printed with the command
//! that replays it.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Fresh worlds stop after this time, on whatever machine.
const FRESH_SECONDS: u64 = 10;

fn check(seed: u64, nodes: usize) {
    check_as(seed, nodes, false);
}

fn check_scarce(seed: u64, nodes: usize) {
    check_as(seed, nodes, true);
}

fn check_as(seed: u64, nodes: usize, scarce: bool) {
    if let Err(error) = dlm_sim::run_seed(seed, nodes, scarce, false) {
        let replay = dlm_sim::replay(seed, nodes, scarce);
        panic!("seed {seed} of {nodes} nodes: {error}\nreplay: {replay}");
    }
}

fn run(first: u64, seeds: u64, nodes: usize) {
    (first..first + seeds).for_each(|seed| check(seed, nodes));
}

#[test]
fn one_node_keeps_its_promises() {
    run(1, 40, 1);
}

#[test]
fn two_nodes_keep_their_promises() {
    run(1, 200, 2);
}

#[test]
fn three_nodes_keep_their_promises() {
    run(1, 250, 3);
}

#[test]
fn five_nodes_keep_their_promises() {
    run(1, 60, 5);
}

#[test]
fn worlds_whose_numbers_end_keep_their_promises() {
    for (seeds, nodes) in [(20, 1), (60, 2), (80, 3), (30, 4)] {
        (1..=seeds).for_each(|seed| check_scarce(seed, nodes));
    }
}

#[test]
fn fresh_seeds_keep_their_promises() {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("the clock is past 1970");
    let first = now.as_nanos() as u64 >> 10;
    println!("fresh seeds from {first}, of 2 to 5 nodes");
    let start = Instant::now();
    for index in 0..40 {
        if start.elapsed().as_secs() >= FRESH_SECONDS {
            break;
        }
        check(first + index, 2 + index as usize % 4);
    }
}

/// Seeds that fail with a fault that was found by them, by what was wrong.
mod once_failed {
    use super::{check, check_scarce};

    #[test]
    fn an_unlock_wrote_what_a_late_reply_had_brought() {
        check(162, 2);
    }

    #[test]
    fn a_limit_that_came_too_late_named_the_next_cancel_and_ends_were_told_without_a_lease() {
        check(2, 3);
    }

    #[test]
    fn messages_of_members_of_skipped_views_were_kept() {
        check(32, 4);
    }

    #[test]
    fn an_older_rounds_work_finished_names_of_a_newer_view() {
        check(162, 4);
    }

    #[test]
    fn a_mark_that_a_survivor_had_seen_was_forgotten() {
        check(91_139, 3);
    }

    #[test]
    fn an_orphan_under_way_was_adopted() {
        check(234, 3);
    }

    #[test]
    fn records_of_two_with_operations_in_flight_excluded_each_other() {
        check_scarce(1974, 3);
    }

    #[test]
    fn an_unlock_of_a_request_under_way_was_forgotten_when_its_name_came_here() {
        check_scarce(3309, 3);
    }

    #[test]
    fn a_cancelled_call_without_a_number_was_asked_anew() {
        check_scarce(267, 2);
    }
}
