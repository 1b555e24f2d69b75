//! Lockspaces whose masters go by slot (recovery.md section 5, nodir).

use dlm_core::{LockFlags, Mode};

use crate::script::{Fault, Scenario, convert, convert_with, lock, lock_with, unlock};
use crate::witness::Witness;

const BYTES: LockFlags = LockFlags::VALBLK;

/// A node joins and takes a name over whose old master goes on granting until it hears of it: its late
/// grants are shut out, no request is served twice (R3, tagged requests).
pub fn nodir_join_under_load() -> Scenario {
    Scenario::new("nodir join under load")
        .nodir()
        .directory(&[(&[1, 2], 1), (&[1, 2, 3], 3)])
        .first(&[1, 2])
        .given(1, &[lock(0, Mode::PR)])
        .program(1, &[unlock(0)])
        .program(2, &[lock(0, Mode::EX), unlock(0)])
        .faults(&[Fault::Join(3)])
        .sees(&[Witness::FromUnknown, Witness::Record])
}

/// The master by slot is lost: the next one is known without a claim.
pub fn nodir_master_lost() -> Scenario {
    Scenario::new("nodir master lost")
        .nodir()
        .directory(&[(&[1, 2, 3], 3), (&[1, 2], 2)])
        .given(1, &[lock(0, Mode::PR)])
        .program(1, &[convert(0, Mode::EX), unlock(0)])
        .program(2, &[lock(0, Mode::PR), unlock(0)])
        .faults(&[Fault::Lose(3)])
        .sees(&[Witness::Record])
}

/// The value block goes with the name to its new master.
pub fn nodir_value_moves() -> Scenario {
    Scenario::new("nodir value moves")
        .nodir()
        .directory(&[(&[1, 2], 1), (&[1, 2, 3], 3)])
        .first(&[1, 2])
        .given(1, &[lock_with(1, Mode::NL, BYTES)])
        .given(2, &[lock_with(0, Mode::EX, BYTES), convert_with(0, Mode::NL, BYTES, 7)])
        .program(2, &[convert_with(0, Mode::PR, BYTES, 0)])
        .faults(&[Fault::Join(3)])
        .ends(super::conversions::reads_seven_unmarked)
}

/// All of them.
pub fn all() -> Vec<Scenario> {
    vec![nodir_join_under_load(), nodir_master_lost(), nodir_value_moves()]
}
