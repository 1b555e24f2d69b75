//! The lease in every order: a node with a client that holds a lock and never gives it up by itself, and
//! the others, who exclude the node at any moment and grant the lock when it is safe.
//!
//! The real lease decides ([`dlm_net::membership::lease`]); this adds discrete time, two clocks of which
//! the others' may run faster, ticks that travel for any time, a daemon that stands still for any time, a
//! client that cannot be killed, and a watchdog that always works. What is left out: a machine that
//! stands still with its watchdog (a virtual machine paused by its host outlives any lease).

use dlm_net::membership::lease::{Lease, Standing, Terms};
use stateright::{Checker, HasDiscoveries, Model, Property};

/// A scenario of the lease.
#[derive(Clone, Copy, Debug)]
pub struct Timeline {
    /// The node's terms.
    pub terms: Terms,
    /// Percent by which the others' clock may really run faster.
    pub drift: u64,
    /// What the others wait for after they excluded the node.
    pub wait: u64,
    /// Whether the machine has a watchdog.
    pub watchdog: bool,
    /// When the exploration ends, on the node's clock.
    pub horizon: u64,
}

/// What an exploration found.
#[derive(Debug)]
pub struct Found {
    /// Different states.
    pub states: usize,
    /// The way to two holders.
    pub two_holders: Option<Vec<Happening>>,
    /// The others were granted the lock on some way.
    pub granted: bool,
}

impl Timeline {
    /// Terms in which a tick takes one step of time.
    pub const fn new() -> Self {
        let terms = Terms { tick: 1, lease: 4, grace: 2, watchdog: 4, drift: 25 };
        Self { terms, drift: 25, wait: terms.safe_after(), watchdog: true, horizon: 16 }
    }

    /// Explores it all.
    pub fn explore(self) -> Found {
        let checker =
            self.checker().threads(1).finish_when(HasDiscoveries::AnyFailures).spawn_dfs().join();
        Found {
            states: checker.unique_state_count(),
            two_holders: checker.discovery("one holder").map(|way| way.into_actions()),
            granted: checker.discovery("the others get on").is_some(),
        }
    }
}

impl Default for Timeline {
    fn default() -> Self {
        Self::new()
    }
}

/// One thing that happens next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Happening {
    /// Time passes; the daemon runs in it, or stands still.
    Time {
        /// It runs.
        runs: bool,
    },
    /// The others' clock runs ahead.
    Drift,
    /// The others hear the tick under way.
    Heard,
    /// The node hears that they did.
    Returned,
    /// The node's client is granted the lock.
    Grant,
    /// The others exclude the node.
    Exclude,
    /// The others are granted the lock.
    Safe,
    /// Killing the client takes effect.
    Killed,
}

/// A state.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Moment {
    /// The node's clock.
    now: u64,
    lease: Lease,
    /// The tick that was sent, the one the others heard, the one that was known to be heard.
    sent: Option<u64>,
    heard: Option<u64>,
    returned: Option<u64>,
    /// When the watchdog was fed.
    fed: u64,
    /// The client believes to hold the lock.
    holds: bool,
    /// The daemon has sent it SIGKILL.
    killing: bool,
    /// The node's life, or its machine's, is over.
    over: bool,
    /// When the others excluded it, on the node's clock, and how long they waited since, on theirs.
    excluded: Option<u64>,
    waited: u64,
    others_hold: bool,
}

impl Moment {
    /// What the daemon does whenever it runs.
    fn run(&mut self, watchdog: bool) {
        if !self.over && self.now >= self.lease.tick_due() {
            self.lease.sent(self.now);
            self.sent = Some(self.now);
        }
        if !self.over && self.lease.standing(self.now) == Standing::Over {
            self.lease.end_life(self.now);
            self.over = true;
        }
        if !self.holds {
            self.lease.confirmed();
        }
        self.killing |= self.lease.must_kill(self.now);
        if watchdog && self.lease.may_feed(self.now) {
            self.fed = self.now;
        }
    }
}

impl Model for Timeline {
    type State = Moment;
    type Action = Happening;

    fn init_states(&self) -> Vec<Moment> {
        let mut first = Moment {
            now: 0,
            lease: Lease::new(self.terms, 0),
            sent: None,
            heard: None,
            returned: None,
            fed: 0,
            holds: false,
            killing: false,
            over: false,
            excluded: None,
            waited: 0,
            others_hold: false,
        };
        first.run(self.watchdog);
        vec![first]
    }

    fn actions(&self, at: &Moment, actions: &mut Vec<Happening>) {
        if at.now < self.horizon {
            actions.push(Happening::Time { runs: true });
            actions.push(Happening::Time { runs: false });
        }
        let since = at.excluded.map_or(0, |since| at.now - since);
        if (at.waited + 1) * 100 <= since * (100 + self.drift) {
            actions.push(Happening::Drift);
        }
        if at.sent > at.heard && at.excluded.is_none() {
            actions.push(Happening::Heard);
        }
        if at.heard > at.returned {
            actions.push(Happening::Returned);
        }
        if !at.holds && !at.over && !at.others_hold && at.lease.is_held(at.now) {
            actions.push(Happening::Grant);
        }
        if at.excluded.is_none() {
            actions.push(Happening::Exclude);
        }
        if at.excluded.is_some() && at.waited >= self.wait && !at.others_hold {
            actions.push(Happening::Safe);
        }
        if at.killing && at.holds {
            actions.push(Happening::Killed);
        }
    }

    fn next_state(&self, at: &Moment, action: Happening) -> Option<Moment> {
        let mut next = at.clone();
        match action {
            Happening::Time { runs } => {
                next.now += 1;
                next.waited = next.waited.max(next.excluded.map_or(0, |since| next.now - since));
                if self.watchdog && next.now >= next.fed + self.terms.watchdog {
                    (next.over, next.holds) = (true, false); // the machine is reset
                } else if runs {
                    next.run(self.watchdog);
                }
            }
            Happening::Drift => next.waited += 1,
            Happening::Heard => next.heard = next.sent,
            Happening::Returned => {
                next.returned = next.heard;
                let t0 = next.heard.unwrap_or(0);
                next.lease.returned(t0, true, next.now);
            }
            Happening::Grant => next.holds = true,
            Happening::Exclude => next.excluded = Some(next.now),
            Happening::Safe => next.others_hold = true,
            Happening::Killed => next.holds = false,
        }
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("one holder", |_, at: &Moment| !(at.holds && at.others_hold)),
            Property::sometimes("the others get on", |_, at: &Moment| at.others_hold),
        ]
    }
}
