//! The lease: how long a node may act on its own word, and when the others may go on without it
//! (membership.md section 2).
//!
//! A node sends ticks. A tick counts once it came back in the agreed order while the cluster is
//! quorate, and then it counts from the moment *before it was sent*: whoever excludes the node
//! later does so after that moment. From the last such moment all ends follow:
//!
//! ```text
//!  T          a tick is sent that comes back
//!  T + LEASE  the node is frozen: nothing is granted, completed or delivered. A tick may yet come
//!  + NOTICE   too late: the life is over. Clients are told, by their own clock too (half of GRACE)
//!  + GRACE    clients that have not confirmed are killed; from now on the watchdog is fed only if
//!             all of them are provably gone
//!  + WD       the watchdog has reset the machine
//! ```
//!
//! Invariant: nothing of an ended life acts after `T + LEASE + GRACE + WD` of its own clock, and
//! the others say `Safe` no earlier than that span, times (1 + drift), after they excluded it.
//!
//! No clock is read here and nothing is sent: times are nanoseconds of CLOCK_BOOTTIME (MONOTONIC
//! stands still while a machine sleeps) and come as arguments. So tests and models drive this very
//! code.

use std::collections::BTreeMap;

/// Nanoseconds in a millisecond.
const MILLI: u64 = 1_000_000;

/// Time between two ticks.
pub const TICK: u64 = 250 * MILLI;
/// How long a tick that came back lets a node grant.
pub const LEASE: u64 = 4_000 * MILLI;
/// From the end of the lease until clients are killed.
pub const GRACE: u64 = 2_000 * MILLI;
/// The time after which a watchdog that is not fed resets the machine.
pub const WATCHDOG: u64 = 10_000 * MILLI;
/// How much faster one node's clock may run than another's, in percent.
pub const DRIFT: u64 = 1;
/// A lease is at least so many ticks: one that is late must not end it.
const TICKS_MIN: u64 = 4;

/// The spans of a lease, in nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Terms {
    /// Between two ticks.
    pub tick: u64,
    /// From the sending of a tick until the node is frozen.
    pub lease: u64,
    /// From there until clients that have not confirmed are killed.
    pub grace: u64,
    /// From the last feeding of the watchdog until the machine is reset; 0: there is no watchdog,
    /// and nothing is promised about a node whose daemon cannot kill its clients.
    pub watchdog: u64,
    /// Percent by which one clock may run faster than another.
    pub drift: u64,
}

impl Terms {
    /// The defaults.
    pub const DEFAULT: Self =
        Self { tick: TICK, lease: LEASE, grace: GRACE, watchdog: WATCHDOG, drift: DRIFT };

    /// Checks that the spans fit each other.
    ///
    /// # Errors
    /// A sentence that says what to change.
    pub fn check(&self) -> Result<(), String> {
        let seconds = |nanos: u64| format!("{} s", nanos as f64 / 1e9);
        if self.tick == 0 || self.lease < TICKS_MIN * self.tick {
            return Err(format!(
                "lease is {} and lease_tick {}; make the lease at least {TICKS_MIN} ticks",
                seconds(self.lease),
                seconds(self.tick)
            ));
        }
        if self.grace < 2 * self.tick {
            return Err(format!(
                "lease_grace is {} and lease_tick {}; make the grace at least 2 ticks, or clients \
                 are killed before they were told",
                seconds(self.grace),
                seconds(self.tick)
            ));
        }
        if self.watchdog != 0 && self.watchdog < TICKS_MIN * self.tick {
            return Err(format!(
                "watchdog_timeout is {} and lease_tick {}; make it at least {TICKS_MIN} ticks, or \
                 a healthy machine is reset",
                seconds(self.watchdog),
                seconds(self.tick)
            ));
        }
        Ok(())
    }

    /// From the end of the lease until clients are told that all is lost: half of the grace.
    /// Before it a frozen node may come back, after it clients have the rest of the grace to
    /// confirm.
    pub const fn notice(&self) -> u64 {
        self.grace / 2
    }

    /// How long after an exclusion the excluded node is harmless, on the clock of whoever waits:
    /// (LEASE + GRACE + WD) * (1 + drift), rounded up.
    pub const fn safe_after(&self) -> u64 {
        let span = self.lease.saturating_add(self.grace).saturating_add(self.watchdog);
        span.saturating_add((span as u128 * self.drift as u128).div_ceil(100) as u64)
    }

    /// When a node is harmless that was excluded at `excluded_at`.
    pub const fn safe_due(&self, excluded_at: u64) -> u64 {
        excluded_at.saturating_add(self.safe_after())
    }
}

/// What a node may do at a moment.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Standing {
    /// No tick of this life has come back yet: it may not grant, and nobody has anything to lose.
    Waiting,
    /// It may grant, complete and deliver.
    Held,
    /// It may not; a tick that comes back lets it go on.
    Frozen,
    /// Its clients have been told, or have read it off their own clock: no tick brings this life
    /// back.
    Over,
}

/// A life that is over while some of its clients have not confirmed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Feared {
    kill_at: u64,
}

/// The lease of a node: one life after the other.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Lease {
    terms: Terms,
    /// When this life began: earlier ticks are none of its own.
    born: u64,
    /// When the last tick was sent.
    sent: Option<u64>,
    /// When the last tick was sent that came back.
    from: Option<u64>,
    /// Ended lives with clients that are not known to be gone, as one: the earliest.
    feared: Option<Feared>,
}

impl Lease {
    /// A life that begins at `now`, without a lease.
    pub const fn new(terms: Terms, now: u64) -> Self {
        Self { terms, born: now, sent: None, from: None, feared: None }
    }

    /// The spans.
    pub const fn terms(&self) -> &Terms {
        &self.terms
    }

    /// When the next tick is due.
    pub fn tick_due(&self) -> u64 {
        self.sent.map_or(self.born, |sent| sent.saturating_add(self.terms.tick))
    }

    /// A tick goes out. `t0` was read *before* it was sent, and travels with it.
    pub fn sent(&mut self, t0: u64) {
        self.sent = self.sent.max(Some(t0));
    }

    /// A tick of this node came back in agreed order ([`Echoes::quorum`]); `quorate`: the cluster
    /// was then. Whether the lease is longer by that. What comes too late, or from an earlier
    /// life, changes nothing.
    pub fn returned(&mut self, t0: u64, quorate: bool, now: u64) -> bool {
        let own = t0 >= self.born && t0 <= now;
        let later = self.from.is_none_or(|from| t0 > from);
        if !quorate || !own || !later || self.standing(now) == Standing::Over {
            return false;
        }
        self.from = Some(t0);
        true
    }

    /// Until when this life may grant; 0: it never could yet.
    pub fn until(&self) -> u64 {
        self.from.map_or(0, |from| from.saturating_add(self.terms.lease))
    }

    /// When clients are told that all is lost, unless the lease is renewed before.
    pub fn lost_at(&self) -> u64 {
        self.after_lease(self.terms.notice())
    }

    /// When clients that have not confirmed are killed, unless the lease is renewed before it is
    /// lost.
    pub fn kill_at(&self) -> u64 {
        self.after_lease(self.terms.grace)
    }

    fn after_lease(&self, span: u64) -> u64 {
        self.from.map_or(u64::MAX, |_| self.until().saturating_add(span))
    }

    /// What this life may do.
    pub fn standing(&self, now: u64) -> Standing {
        match self.from {
            None => Standing::Waiting,
            Some(_) if now < self.until() => Standing::Held,
            Some(_) if now < self.lost_at() => Standing::Frozen,
            Some(_) => Standing::Over,
        }
    }

    /// Whether this life may grant, complete and deliver at `now`.
    pub fn is_held(&self, now: u64) -> bool {
        self.standing(now) == Standing::Held
    }

    /// This life ends, because it is [`Standing::Over`] or the cluster went on without it, and the
    /// next one begins. Its clients are feared until [`Lease::confirmed`], and killed when they
    /// would have been anyhow; a life that never had a lease has nothing to fear.
    pub fn end_life(&mut self, now: u64) {
        if self.from.is_some() {
            let kill_at = self.feared.map_or(u64::MAX, |old| old.kill_at).min(self.kill_at());
            self.feared = Some(Feared { kill_at });
        }
        (self.born, self.sent, self.from) = (now, None, None);
    }

    /// All clients of ended lives are provably gone, or have confirmed.
    pub fn confirmed(&mut self) {
        self.feared = None;
    }

    /// When clients of ended lives are killed; `None`: there are none.
    pub fn feared_until(&self) -> Option<u64> {
        self.feared.map(|feared| feared.kill_at)
    }

    /// Whether clients of ended lives have to be killed now.
    pub fn must_kill(&self, now: u64) -> bool {
        self.feared.is_some_and(|feared| now >= feared.kill_at)
    }

    /// Whether the watchdog may be fed at `now`: not once somebody should be gone who may act.
    pub fn may_feed(&self, now: u64) -> bool {
        let own = self.from.is_none() || now < self.kill_at();
        own && !self.must_kill(now)
    }

    /// When something changes by itself after `now`: the lease ends, clients have to be told or
    /// killed; `u64::MAX`: nothing will.
    pub fn change_after(&self, now: u64) -> u64 {
        let feared = self.feared.map_or(u64::MAX, |feared| feared.kill_at);
        let ends = [self.until(), self.lost_at(), self.kill_at(), feared];
        ends.into_iter().filter(|at| *at > now).min().unwrap_or(u64::MAX)
    }
}

/// Which of this node's ticks the others have heard.
///
/// That a tick comes back to its sender proves little: after a pause a node may find the right to
/// speak in its mailbox, speak, and hear itself, while the others have long gone on. So each
/// node's ticks say what it heard of the others', and a tick has come back when a majority has
/// heard it. Whoever excludes the sender holds a majority too, and one of those who heard the tick
/// is in it.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Echoes {
    heard: BTreeMap<u32, u64>,
}

impl Echoes {
    /// Node `by` has heard the tick that was sent at `t0`, and all before.
    pub fn hear(&mut self, by: u32, t0: u64) {
        let last = self.heard.entry(by).or_default();
        *last = t0.max(*last);
    }

    /// The last tick that at least `majority` of the nodes that `count` have heard, the sender
    /// included.
    pub fn quorum(&self, majority: usize, count: impl Fn(u32) -> bool) -> Option<u64> {
        let counted = self.heard.iter().filter(|(node, _)| count(**node));
        let mut heard: Vec<u64> = counted.map(|(_, at)| *at).collect();
        heard.sort_unstable_by(|a, b| b.cmp(a));
        heard.get(majority.checked_sub(1)?).copied()
    }
}

#[cfg(test)]
#[path = "lease_tests.rs"]
mod tests;
