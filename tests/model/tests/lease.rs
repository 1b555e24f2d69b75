//! The real lease in every order of ticks, pauses, drift and exclusion, in discrete time: a tick takes one
//! step, the lease four, the grace two, the watchdog four, and the others' clock may run 25 percent
//! faster; 16 steps of the node's clock (membership.md, Lease; S2; recovery.md R20).

use dlm_model::lease::Timeline;

#[test]
fn a_lease_and_a_watchdog_leave_one_holder() {
    let found = Timeline::new().explore();
    println!("{} states", found.states);
    assert_eq!(found.two_holders, None);
    assert!(found.granted, "the others never get the lock: nothing is shown");
}

#[test]
fn without_the_survivors_wait_there_are_two_holders() {
    let found = Timeline { wait: 0, ..Timeline::new() }.explore();
    println!("{:?}", found.two_holders);
    assert!(found.two_holders.is_some());
}

#[test]
fn a_wait_that_forgets_the_drift_is_too_short() {
    let mut timeline = Timeline::new();
    timeline.wait = timeline.terms.lease + timeline.terms.grace + timeline.terms.watchdog;
    assert!(timeline.explore().two_holders.is_some());
}

#[test]
fn without_a_watchdog_a_daemon_that_stands_still_leaves_two_holders() {
    let found = Timeline { watchdog: false, ..Timeline::new() }.explore();
    assert!(found.two_holders.is_some());
}
