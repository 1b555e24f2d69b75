//! A life that has to be made harmless, and who does it.
//!
//! The election needs no messages: everybody counts the same members, and learns in the same order
//! whose agents failed. An attempt is announced before it begins, so that who comes later, and would
//! be elected, does not begin a second one.

use std::collections::BTreeSet;

use super::event::Feared;

/// What this daemon itself does about a case.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Work {
    /// Nothing.
    #[default]
    None,
    /// All were told that it is about to begin; who was first is known when that comes back.
    Asked,
    /// Its agents run, under this number.
    Runs(u64),
    /// Its agents ended, well or not; the result is on its way to all, this daemon included.
    Told {
        /// Whether the victim is off.
        good: bool,
    },
}

/// A pending case.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Case {
    /// Who and why.
    pub feared: Feared,
    /// Whose agents failed in this round.
    pub tried: BTreeSet<u32>,
    /// Not before this time, nanoseconds: a new round after a failed one.
    pub not_before: u64,
    /// Rounds in which everybody failed.
    pub rounds: u32,
    /// Since when the node's daemon takes part again although it is feared, nanoseconds.
    pub back_since: Option<u64>,
    /// Whose attempt it is now: who told all first. Only the end of it, or of its daemon, lets
    /// another one begin.
    pub at_it: Option<u32>,
    /// What this daemon does about it.
    pub work: Work,
    /// Whose agents ran last; 0: nobody's.
    pub last_actor: u32,
}

impl Case {
    /// A case that has just come up.
    pub fn new(feared: Feared) -> Self {
        Self {
            feared,
            tried: BTreeSet::new(),
            not_before: 0,
            rounds: 0,
            back_since: None,
            at_it: None,
            work: Work::None,
            last_actor: 0,
        }
    }

    /// Who has to act: whoever is at it; else the lowest of `fit` (who take part and are not feared
    /// themselves) that was a witness and has not failed in this round. Where no witness is left,
    /// everybody counts. `None`: all failed.
    pub fn actor(&self, fit: &BTreeSet<u32>) -> Option<u32> {
        self.at_it.or_else(|| self.eligible(fit).find(|node| !self.tried.contains(node)))
    }

    /// Whether all who could act have failed in this round.
    pub fn is_exhausted(&self, fit: &BTreeSet<u32>) -> bool {
        self.eligible(fit).next().is_some() && self.actor(fit).is_none()
    }

    fn eligible<'a>(&'a self, fit: &'a BTreeSet<u32>) -> impl Iterator<Item = u32> + 'a {
        let (victim, witnesses) = (self.feared.victim.node, &self.feared.witnesses);
        let all = fit.is_disjoint(witnesses);
        let counts = move |node: &u32| *node != victim && (all || witnesses.contains(node));
        fit.iter().copied().filter(counts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fence::event::Reason;
    use crate::fence::message::Victim;

    fn case(witnesses: &[u32]) -> Case {
        Case::new(Feared {
            victim: Victim { node: 3, life: 9 },
            reason: Reason::NodeDown,
            fail_wall: 6,
            since: 5,
            witnesses: set(witnesses),
        })
    }

    fn set(nodes: &[u32]) -> BTreeSet<u32> {
        nodes.iter().copied().collect()
    }

    #[test]
    fn the_lowest_who_was_there_and_still_is_acts() {
        let case = case(&[2, 4, 5]);
        assert_eq!(case.actor(&set(&[1, 2, 4, 5])), Some(2), "1 came later");
        assert_eq!(case.actor(&set(&[1, 4, 5])), Some(4), "2 is gone");
        assert_eq!(case.actor(&set(&[1, 6])), Some(1), "nobody of then is left");
        assert_eq!(case.actor(&set(&[])), None);
        assert_eq!(case.actor(&set(&[3])), None, "nobody fences itself");
        assert!(!case.is_exhausted(&set(&[])), "nobody has tried");
    }

    #[test]
    fn whoever_is_at_it_goes_on_whoever_comes() {
        let mut case = case(&[2]);
        case.at_it = Some(5);
        assert_eq!(case.actor(&set(&[1, 2, 5])), Some(5));
        case.tried.insert(2);
        assert!(!case.is_exhausted(&set(&[1, 2, 5])), "it may still succeed");
    }

    #[test]
    fn the_next_one_acts_where_the_first_failed() {
        let mut case = case(&[1, 2]);
        let both = set(&[1, 2]);
        case.tried.insert(1);
        assert_eq!(case.actor(&both), Some(2));
        case.tried.insert(2);
        assert_eq!(case.actor(&both), None);
        assert!(case.is_exhausted(&both));
    }
}
