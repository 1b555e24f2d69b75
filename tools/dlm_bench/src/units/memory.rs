//! U9: one step of a walk in which every address comes from the memory read before.

use std::hint::black_box;
use std::io;

use super::{Bench, Reading};
use crate::measure::mean_of_batches;
use crate::sys;

/// Steps between two looks at the clock.
const BATCH: u64 = 1000;

/// A cache line that holds the number of the next one.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Line(u32);

pub(super) fn measure(bench: Bench) -> io::Result<Reading> {
    sys::bind(Some(bench.core))?;
    let lines = walk(if bench.plan.quick { 22 } else { 23 });
    let mut at = 0;
    let step = mean_of_batches(bench.plan.unit_time(), BATCH, || {
        for _ in 0..BATCH {
            at = lines[at as usize].0;
        }
    });
    black_box(at);
    Ok(Reading::of(step))
}

/// A walk over all of 2^`bits` lines (256 or 512 MiB) in which consecutive steps are far apart.
///
/// A congruential generator with an odd addend and a factor of 1 modulo 4 has the full period, so
/// the chain is one circle; it can be written line after line instead of by random access.
fn walk(bits: u32) -> Vec<Line> {
    let mask = (1u32 << bits) - 1;
    let next = |line: u32| line.wrapping_mul(1_664_525).wrapping_add(1_013_904_223) & mask;
    (0..=mask).map(|line| Line(next(line))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_walk_is_one_circle() {
        let lines = walk(12);
        let (mut at, mut steps) = (0, 0);
        loop {
            at = lines[at as usize].0;
            steps += 1;
            if at == 0 {
                break;
            }
        }
        assert_eq!(steps, lines.len());
    }
}
