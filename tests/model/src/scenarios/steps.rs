//! Losses, joins and skipped views at each step.

use dlm_core::Mode;

use crate::script::{Fault, Scenario, convert, lock, unlock};
use crate::witness::Witness;

/// Three nodes share a name; nothing befalls them.
pub fn three_share() -> Scenario {
    Scenario::new("three share")
        .directory(&[(&[1, 2, 3], 1)])
        .program(1, &[lock(0, Mode::EX), unlock(0)])
        .program(2, &[lock(0, Mode::PR), unlock(0)])
        .program(3, &[lock(0, Mode::PR), unlock(0)])
}

/// A master is lost at each step of what others ask of it.
pub fn master_lost() -> Scenario {
    Scenario::new("master lost")
        .directory(&[(&[1, 2, 3], 1), (&[1, 2], 1)])
        .given(3, &[lock(0, Mode::PR)])
        .program(1, &[lock(0, Mode::PR), unlock(0)])
        .program(2, &[lock(0, Mode::EX), unlock(0)])
        .faults(&[Fault::Lose(3)])
        .sees(&[Witness::Record])
}

/// The same, work over many names cut at every place.
pub fn master_lost_slowly() -> Scenario {
    Scenario::new("master lost, work in parts")
        .directory(&[(&[1, 2, 3], 1), (&[1, 2], 1)])
        .given(3, &[lock(0, Mode::NL)])
        .given(2, &[lock(0, Mode::PR)])
        .program(1, &[lock(0, Mode::EX)])
        .program(2, &[unlock(0)])
        .faults(&[Fault::Lose(3)])
        .slow()
        .sees(&[Witness::Record])
}

/// A node joins at each step of a hand-over.
pub fn join_at_each_step() -> Scenario {
    Scenario::new("join at each step")
        .directory(&[(&[1, 2], 2), (&[1, 2, 3], 3)])
        .first(&[1, 2])
        .program(1, &[lock(0, Mode::EX), unlock(0)])
        .program(2, &[lock(0, Mode::PR), unlock(0)])
        .faults(&[Fault::Join(3)])
        .sees(&[Witness::LookupWaits])
}

/// Three views, and nodes that skip the middle one (B2).
pub fn middle_view_skipped() -> Scenario {
    Scenario::new("middle view skipped")
        .directory(&[(&[1, 2, 3], 3), (&[1, 2], 1)])
        .given(3, &[lock(0, Mode::NL)])
        .given(2, &[lock(0, Mode::PR)])
        .program(1, &[lock(0, Mode::EX), unlock(0)])
        .program(2, &[unlock(0)])
        .faults(&[Fault::Lose(3), Fault::Renumber])
        .skipping()
        .sees(&[Witness::SkippedView, Witness::Record])
}

/// A node is excluded, lives, and grants locally until its end: nobody else is granted before (S2).
pub fn excluded_grants_locally() -> Scenario {
    Scenario::new("excluded node grants locally")
        .directory(&[(&[1, 2, 3], 2), (&[1, 2], 2)])
        .given(3, &[lock(0, Mode::NL)])
        .given(1, &[lock(0, Mode::NL)])
        .program(1, &[convert(0, Mode::PR), unlock(0)])
        .program(3, &[convert(0, Mode::EX), convert(0, Mode::NL), convert(0, Mode::EX)])
        .faults(&[Fault::Exclude(3), Fault::End(3)])
        .sees(&[Witness::FromLost])
}

/// Two nodes are lost, and one of them is known to be safe much later: all other work is done by then.
pub fn second_safe_much_later() -> Scenario {
    Scenario::new("second safe much later")
        .directory(&[(&[1, 2, 3], 1), (&[1, 2], 1), (&[1], 1)])
        .given(2, &[lock(0, Mode::PR)])
        .given(3, &[lock(0, Mode::PR)])
        .given(1, &[lock(0, Mode::PR)])
        .program(1, &[convert(0, Mode::EX), unlock(0)])
        .program(2, &[convert(0, Mode::NL), convert(0, Mode::PR)])
        .faults(&[Fault::Lose(3), Fault::Exclude(2), Fault::End(2)])
        .sees(&[Witness::SafeAfterView])
}

/// All of them.
pub fn all() -> Vec<Scenario> {
    vec![
        three_share(),
        master_lost(),
        master_lost_slowly(),
        join_at_each_step(),
        middle_view_skipped(),
        excluded_grants_locally(),
        second_safe_much_later(),
    ]
}
