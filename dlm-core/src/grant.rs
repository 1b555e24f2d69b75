//! May this lock be granted? Pure rules over what the queues say (semantics.md 1.5, 1.6, 3.1).
//!
//! The rules of 3.1 are tried in their published order and the first that answers wins; the numbers
//! in the comments are theirs.

use crate::seeded::bug;
use crate::{LockFlags, Mode};

/// On which occasion a lock is looked at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum When {
    /// During its own call; it is on no converting or waiting queue.
    Now,
    /// In a pass over the queues.
    Later,
    /// In the pass over a name that was rebuilt.
    Recovery,
}

/// What the rules need to know of a lock and its resource.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Standing {
    /// Granted mode: a conversion if there is one.
    pub(crate) granted: Option<Mode>,
    /// Flags of the call.
    pub(crate) flags: LockFlags,
    /// Nothing is on the converting queue.
    pub(crate) converting_empty: bool,
    /// Nothing is on the waiting queue.
    pub(crate) waiting_empty: bool,
    /// The lock is the first on the queue it is on.
    pub(crate) first: bool,
}

/// The answer for a lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    /// Grant the requested mode.
    Grant,
    /// Grant this mode instead (ALTPR, ALTCW).
    Alternative(Mode),
    /// A conversion deadlock, not to be resolved by demotion.
    Deadlock,
    /// A conversion deadlock that demotion to NL resolves.
    Demote,
    /// Not now.
    No,
}

/// Decides. `conflict` says whether a granted mode of another lock forbids a mode; `deadlock` whether
/// the lock's conversion would be part of a conversion deadlock.
pub(crate) fn decide(
    standing: &Standing,
    requested: Mode,
    when: When,
    conflict: impl Fn(Mode) -> bool,
    deadlock: impl FnOnce() -> bool,
) -> Verdict {
    if grantable(standing, requested, when, &conflict) {
        return Verdict::Grant;
    }
    let noqueue = standing.flags.has(LockFlags::NOQUEUE) && !bug("noqueue-tested-for-deadlock");
    let tested = standing.granted.is_some() && !noqueue;
    if tested && deadlock() && !bug("deadlock-unnoticed") {
        return match standing.flags.has(LockFlags::CONVDEADLK) && !bug("convdeadlk-not-demoted") {
            true => Verdict::Demote,
            false => Verdict::Deadlock,
        };
    }
    match alternative(standing.flags, requested) {
        Some(mode) if grantable(standing, mode, when, &conflict) => Verdict::Alternative(mode),
        _ => Verdict::No,
    }
}

/// The table of 3.1.
pub(crate) fn grantable(
    standing: &Standing,
    requested: Mode,
    when: When,
    conflict: impl Fn(Mode) -> bool,
) -> bool {
    let Standing { granted, flags, converting_empty, waiting_empty, first } = *standing;
    let conversion = granted.is_some();
    if flags.has(LockFlags::EXPEDITE) && !bug("expedite-waits") {
        return true; // 1
    }
    if conflict(requested) {
        return false; // 2, 3
    }
    if when == When::Recovery && conversion {
        return true; // 4
    }
    if when == When::Now && conversion {
        return !flags.has(LockFlags::QUECVT) || converting_empty || bug("quecvt-in-place"); // 5, 6
    }
    if flags.has(LockFlags::NOORDER) && !bug("noorder-ignored") {
        return true; // 7
    }
    let converting_empty = converting_empty || bug("requests-pass-converters");
    let waiting_empty = waiting_empty || bug("requests-pass-waiters");
    match (when, conversion) {
        (When::Now, _) => converting_empty && waiting_empty, // 9
        (_, true) => first || bug("conversions-unordered"),  // 8
        (_, false) => converting_empty && first,             // 10
    }
}

/// The one alternative mode that is tried, if any (1.5).
pub(crate) fn alternative(flags: LockFlags, requested: Mode) -> Option<Mode> {
    let altcw = flags.has(LockFlags::ALTCW) && bug("altcw-first");
    if flags.has(LockFlags::ALTPR) && requested != Mode::PR && !altcw {
        return Some(Mode::PR);
    }
    (flags.has(LockFlags::ALTCW) && requested != Mode::CW).then_some(Mode::CW)
}

/// Granted and requested modes of converting locks as a set of pairs.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Pairs([[u32; 6]; 6]);

impl Pairs {
    /// Counts a converting lock in.
    pub(crate) fn add(&mut self, granted: Mode, requested: Mode) {
        self.0[granted as usize][requested as usize] += 1;
    }

    /// Counts a converting lock out.
    pub(crate) fn remove(&mut self, granted: Mode, requested: Mode) {
        self.0[granted as usize][requested as usize] -= 1;
    }

    fn any(&self, pair: impl Fn(Mode, Mode) -> bool) -> bool {
        Mode::ALL.iter().any(|granted| {
            let row = &self.0[*granted as usize];
            Mode::ALL.iter().any(|rq| row[*rq as usize] > 0 && pair(*granted, *rq))
        })
    }
}

/// The conversion-deadlock test of 1.6 for a lock with these modes: `ahead` are the requested modes of
/// conversions before it (all queued ones for a newcomer), `behind` the conversions after it.
///
/// Whoever is ahead and needs what this lock holds can never be granted before it; whoever is behind
/// matters only if each needs what the other holds.
pub(crate) fn conversion_deadlock(
    granted: Mode,
    requested: Mode,
    ahead: u8,
    behind: &Pairs,
) -> bool {
    if ahead & !granted.compatible_set() != 0 && !bug("deadlock-ahead-unseen") {
        return true;
    }
    behind.any(|other_granted, other_requested| {
        !bug("deadlock-behind-unseen")
            && !granted.compatible(other_requested)
            && !other_granted.compatible(requested)
    })
}
