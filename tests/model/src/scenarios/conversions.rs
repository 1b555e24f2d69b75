//! Operations that the lost master may have done (recovery.md section 6), lost before and after.

use dlm_core::{LockFlags, Mode};

use crate::script::{Fault, Scenario, convert, convert_with, lock, lock_with, unlock, unlock_with};
use crate::witness::Witness;
use crate::world::World;

const BYTES: LockFlags = LockFlags::VALBLK;

/// What a lock of a node read last: the first byte, and whether it was marked as perhaps old.
fn read(world: &World, node: u32, lock: u8) -> Option<(u8, bool)> {
    world.host(node).client.last(lock)?.read
}

/// The reader at node 2 got the bytes that node 1 wrote, or was told that they may be others.
fn reads_seven(world: &World) -> Result<(), String> {
    match read(world, 2, 0) {
        Some((7, false) | (_, true)) => Ok(()),
        other => Err(format!("node 2 read {other:?}, and 7 was written")),
    }
}

/// The reader at node 2 got the bytes that were written, unmarked: nobody was lost.
pub(super) fn reads_seven_unmarked(world: &World) -> Result<(), String> {
    match read(world, 2, 0) {
        Some((7, false)) => Ok(()),
        other => Err(format!("node 2 read {other:?}, and 7 was written")),
    }
}

/// A conversion begins to use the value block while its master is lost: its lock vouches for nothing
/// that it never read.
pub fn conversion_begins_to_read() -> Scenario {
    Scenario::new("conversion begins to read")
        .directory(&[(&[1, 2, 3], 2), (&[1, 2], 2)])
        .given(3, &[lock(0, Mode::NL)])
        .given(2, &[lock_with(0, Mode::EX, BYTES), convert_with(0, Mode::PR, BYTES, 7)])
        .given(1, &[lock(0, Mode::PR)])
        .given(2, &[convert_with(0, Mode::PR, BYTES, 0)])
        .program(1, &[convert_with(0, Mode::PR, BYTES, 0)])
        .faults(&[Fault::Lose(3)])
        .sees(&[Witness::Record])
        .ends(|world| match read(world, 1, 0) {
            Some((7, false) | (_, true)) => Ok(()),
            other => Err(format!("node 1 read {other:?}, and 7 was written")),
        })
}

/// EX→NL with bytes: the reader gets them, whether the master did it or not (6.2, D14).
pub fn down_conversion_with_bytes() -> Scenario {
    Scenario::new("EX to NL with bytes")
        .directory(&[(&[1, 2, 3], 2), (&[1, 2], 2)])
        .given(3, &[lock(0, Mode::NL)])
        .given(2, &[lock_with(0, Mode::NL, BYTES)])
        .given(1, &[lock_with(0, Mode::EX, BYTES)])
        .program(1, &[convert_with(0, Mode::NL, BYTES, 7), unlock(0)])
        .program(2, &[convert_with(0, Mode::PR, BYTES, 0)])
        .faults(&[Fault::Lose(3)])
        .sees(&[Witness::Record])
        .ends(reads_seven)
}

/// An unlock with bytes, while another lock keeps the name (6.2).
pub fn unlock_with_bytes() -> Scenario {
    Scenario::new("unlock with bytes")
        .directory(&[(&[1, 2, 3], 2), (&[1, 2], 2)])
        .given(3, &[lock(0, Mode::NL)])
        .given(2, &[lock_with(0, Mode::NL, BYTES)])
        .given(1, &[lock_with(0, Mode::EX, BYTES)])
        .program(1, &[unlock_with(0, BYTES, 7)])
        .program(2, &[convert_with(0, Mode::PR, BYTES, 0)])
        .faults(&[Fault::Lose(3)])
        .sees(&[Witness::Record])
        .ends(reads_seven)
}

/// An unlock with bytes of an older life of the name: the master did it, the name died, and lives
/// again (6.4).
pub fn unlock_with_bytes_of_an_older_life() -> Scenario {
    Scenario::new("unlock with bytes of an older life")
        .directory(&[(&[1, 2, 3], 3), (&[1, 2], 2)])
        .given(3, &[lock(0, Mode::NL)])
        .given(1, &[lock_with(0, Mode::EX, BYTES)])
        .given(3, &[unlock(0)])
        .program(1, &[unlock_with(0, BYTES, 7)])
        .program(2, &[lock_with(0, Mode::EX, BYTES), convert_with(0, Mode::PR, BYTES, 9)])
        .faults(&[Fault::Lose(3)])
        .sees(&[Witness::Record])
}

/// PR→CW: another CW may have been granted because of it (6.3).
pub fn pr_to_cw() -> Scenario {
    Scenario::new("PR to CW")
        .directory(&[(&[1, 2, 3], 2), (&[1, 2], 2)])
        .given(3, &[lock(0, Mode::NL)])
        .given(1, &[lock(0, Mode::PR)])
        .given(2, &[lock(0, Mode::NL)])
        .program(1, &[convert(0, Mode::CW), unlock(0)])
        .program(2, &[convert(0, Mode::CW), unlock(0)])
        .faults(&[Fault::Lose(3)])
        .sees(&[Witness::Record])
}

/// CW→EX with ALTPR: the master may have granted PR, and another PR because of it (6.3, D6).
pub fn cw_to_ex_or_pr() -> Scenario {
    Scenario::new("CW to EX, else PR")
        .directory(&[(&[1, 2, 3], 2), (&[1, 2], 2)])
        .given(3, &[lock(0, Mode::CR)])
        .given(1, &[lock(0, Mode::CW)])
        .given(2, &[lock(0, Mode::NL)])
        .program(1, &[convert_with(0, Mode::EX, LockFlags::ALTPR, 0), unlock(0)])
        .program(2, &[convert(0, Mode::PR), unlock(0)])
        .faults(&[Fault::Lose(3)])
        .sees(&[Witness::Record])
}

/// PR→EX with CONVDEADLK: the master may have demoted it, and granted another because of it (6.3).
pub fn pr_to_ex_demoted() -> Scenario {
    Scenario::new("PR to EX, demoted")
        .directory(&[(&[1, 2, 3], 2), (&[1, 2], 2)])
        .given(3, &[lock(0, Mode::NL)])
        .given(1, &[lock(0, Mode::PR)])
        .given(2, &[lock(0, Mode::PR)])
        .program(1, &[convert_with(0, Mode::EX, LockFlags::CONVDEADLK, 0), unlock(0)])
        .program(2, &[convert(0, Mode::EX), unlock(0)])
        .faults(&[Fault::Lose(3)])
        .sees(&[Witness::Record])
}

/// A conversion that is cancelled and unlocked by force while its master is lost (8.4).
pub fn conversion_with_overlaps() -> Scenario {
    Scenario::new("conversion with overlaps")
        .directory(&[(&[1, 2, 3], 2), (&[1, 2], 2)])
        .given(3, &[lock(0, Mode::NL)])
        .given(1, &[lock(0, Mode::PR)])
        .given(2, &[lock(0, Mode::PR)])
        .program(
            1,
            &[
                convert(0, Mode::EX),
                crate::script::cancel(0),
                unlock_with(0, LockFlags::FORCEUNLOCK, 0).anytime(),
            ],
        )
        .faults(&[Fault::Lose(3)])
        .sees(&[Witness::Record])
}

/// All of them.
pub fn all() -> Vec<Scenario> {
    vec![
        down_conversion_with_bytes(),
        unlock_with_bytes(),
        unlock_with_bytes_of_an_older_life(),
        pr_to_cw(),
        cw_to_ex_or_pr(),
        pr_to_ex_demoted(),
        conversion_with_overlaps(),
        conversion_begins_to_read(),
    ]
}
