//! The scenarios.

use dlm_core::Mode;

use crate::script::{Fault, Scenario, lock, unlock};

/// All of them.
pub fn all() -> Vec<Scenario> {
    vec![
        Scenario::new("three-share")
            .directory(&[(&[1, 2, 3], 1)])
            .program(1, &[lock(0, Mode::EX), unlock(0)])
            .program(2, &[lock(0, Mode::PR), unlock(0)])
            .program(3, &[lock(0, Mode::PR), unlock(0)]),
        Scenario::new("master-lost")
            .directory(&[(&[1, 2, 3], 1), (&[1, 2], 1)])
            .given(3, &[lock(0, Mode::PR)])
            .program(1, &[lock(0, Mode::PR), unlock(0)])
            .program(2, &[lock(0, Mode::EX), unlock(0)])
            .faults(&[Fault::Lose(3)]),
    ]
}
