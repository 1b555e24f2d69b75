//! The timeline by arithmetic, the rules one by one, and a machine with clocks that drift and a
//! daemon that is stopped whenever it hurts most.

use proptest::prelude::*;

use super::*;

const SECOND: u64 = 1_000_000_000;
const T: Terms = Terms::DEFAULT;

/// A life with one tick that came back, sent at `t0`.
fn held(t0: u64) -> Lease {
    let mut lease = Lease::new(T, t0);
    lease.sent(t0);
    assert!(lease.returned(t0, true, t0 + 1));
    lease
}

#[test]
fn the_timeline_is_the_sum_of_its_terms() {
    // From the definitions, in milliseconds, by hand.
    let (lease, grace, watchdog, drift) = (4_000, 2_000, 10_000, 1);
    let safe = (lease + grace + watchdog) * (100 + drift) / 100;
    assert_eq!(safe, 16_160);
    let t0 = 77 * SECOND;
    let it = held(t0);
    let after = |at: u64| (at - t0) / 1_000_000;
    assert_eq!(after(it.until()), lease);
    assert_eq!(after(it.lost_at()), lease + grace / 2);
    assert_eq!(after(it.kill_at()), lease + grace);
    assert_eq!(after(T.safe_due(t0)), safe);
    // The last feeding is just before the kill; the machine is reset before anybody says Safe.
    let last_fed = it.kill_at() - 1;
    assert!(it.may_feed(last_fed) && !it.may_feed(it.kill_at()));
    assert!(last_fed + T.watchdog < T.safe_due(t0));
}

#[test]
fn drift_at_both_ends_is_covered_exactly() {
    // Clocks that run wrong by r = d / (2 + d), one slow and one fast, differ by 1 + d. In units
    // that make r whole: slow, true and fast seconds are 200, 201 and 202 long.
    assert_eq!(T.drift, 1);
    let (slow, fast) = (200, 202);
    let span = T.lease + T.grace + T.watchdog;
    // True time in 1/201 ns that a node with a slow clock, or a survivor with a fast one, needs.
    let acts = |node_rate: u128| span as u128 * 201 * 201 / node_rate;
    let waits = |rate: u128| T.safe_after() as u128 * 201 * 201 / rate;
    assert!(acts(slow) <= waits(fast), "the worst pair");
    assert!(acts(slow) + 201 > waits(fast), "and nothing is wasted");
    assert!(acts(fast) < waits(slow), "the best pair");
    assert!(acts(slow) > waits(203), "more drift than was allowed for");
    // Rounding is never to the node's disadvantage.
    let odd = Terms { lease: 333, grace: 7, watchdog: 0, ..T };
    assert_eq!(odd.safe_after(), 344, "340 * 1.01 = 343.4");
}

#[test]
fn without_a_watchdog_its_term_is_zero() {
    let terms = Terms { watchdog: 0, ..T };
    assert_eq!(terms.safe_after(), 6_060_000_000);
    assert!(terms.check().is_ok());
}

#[test]
fn standing_follows_the_last_tick_that_counts() {
    let mut lease = Lease::new(T, SECOND);
    assert_eq!((lease.standing(SECOND), lease.until()), (Standing::Waiting, 0));
    assert_eq!(lease.standing(900 * SECOND), Standing::Waiting, "nothing to lose");
    assert_eq!(lease.tick_due(), SECOND);
    lease.sent(SECOND);
    assert_eq!(lease.tick_due(), SECOND + TICK);
    assert!(!lease.returned(SECOND, false, 2 * SECOND), "not quorate");
    assert!(!lease.returned(SECOND - 1, true, 2 * SECOND), "of an earlier life");
    assert!(!lease.returned(3 * SECOND, true, 2 * SECOND), "of the future");
    assert!(lease.returned(SECOND, true, 2 * SECOND));
    assert!(!lease.returned(SECOND, true, 2 * SECOND), "known");
    assert_eq!(lease.until(), 5 * SECOND);
    let at = |nanos| lease.standing(nanos);
    assert_eq!(at(5 * SECOND - 1), Standing::Held);
    assert_eq!(at(5 * SECOND), Standing::Frozen);
    assert_eq!(at(6 * SECOND - 1), Standing::Frozen);
    assert_eq!(at(6 * SECOND), Standing::Over);
}

#[test]
fn a_frozen_life_comes_back_and_one_that_is_over_does_not() {
    let mut lease = held(0);
    lease.sent(3 * SECOND);
    let (mut frozen, mut over) = (lease.clone(), lease);
    assert!(frozen.returned(3 * SECOND, true, LEASE + SECOND - 1));
    assert!(frozen.is_held(LEASE + SECOND - 1));
    assert!(!over.returned(3 * SECOND, true, LEASE + SECOND), "clients may have been told");
    assert_eq!(over.standing(LEASE + SECOND), Standing::Over);
}

#[test]
fn clients_of_an_ended_life_are_killed_in_time_and_stop_the_feeding() {
    let mut lease = held(0);
    let over = lease.lost_at();
    lease.end_life(over);
    assert_eq!(lease.standing(over), Standing::Waiting);
    let kill_at = LEASE + GRACE;
    assert!(!lease.must_kill(kill_at - 1) && lease.may_feed(kill_at - 1));
    assert!(lease.must_kill(kill_at) && !lease.may_feed(kill_at));
    // A new lease does not make them harmless, and a second ended life does not put it off.
    lease.sent(over);
    assert!(lease.returned(over, true, over + 1) && lease.is_held(over + 1));
    assert!(!lease.may_feed(kill_at));
    lease.end_life(over + 2);
    assert!(lease.must_kill(kill_at) && !lease.may_feed(kill_at));
    lease.confirmed();
    assert!(!lease.must_kill(kill_at) && lease.may_feed(kill_at));
}

#[test]
fn a_daemon_that_slept_through_its_own_end_does_not_feed() {
    let lease = held(0);
    assert!(!lease.may_feed(LEASE + GRACE), "although it has not ended the life yet");
    assert!(Lease::new(T, 0).may_feed(u64::MAX), "who never had a lease has nobody to fear");
}

#[test]
fn deadlines_come_in_order() {
    let lease = held(0);
    let mut at = 1;
    let ends = [lease.until(), lease.lost_at(), lease.kill_at()];
    for end in ends {
        assert_eq!(lease.change_after(at), end);
        at = end;
    }
    assert_eq!(lease.change_after(at), u64::MAX);
    assert_eq!((lease.tick_due(), Lease::new(T, 5).tick_due()), (TICK, 5), "the first at once");
}

#[test]
fn terms_that_do_not_fit_say_what_to_change() {
    let told = |terms: Terms| terms.check().expect_err("refused");
    assert!(T.check().is_ok());
    assert!(told(Terms { lease: 3 * TICK, ..T }).contains("make the lease at least 4 ticks"));
    assert!(told(Terms { grace: TICK, ..T }).contains("make the grace at least 2 ticks"));
    assert!(told(Terms { watchdog: TICK, ..T }).starts_with("watchdog_timeout is 0.25 s"));
    assert!(told(Terms { tick: 0, ..T }).contains("lease_tick 0 s"));
}

#[test]
fn a_tick_counts_when_a_majority_heard_it() {
    let mut echoes = Echoes::default();
    let all = |_: u32| true;
    assert_eq!(echoes.quorum(1, all), None);
    echoes.hear(1, 50);
    assert_eq!((echoes.quorum(1, all), echoes.quorum(2, all)), (Some(50), None));
    echoes.hear(2, 30);
    echoes.hear(3, 40);
    assert_eq!((echoes.quorum(2, all), echoes.quorum(3, all)), (Some(40), Some(30)));
    echoes.hear(2, 20);
    assert_eq!(echoes.quorum(3, all), Some(30), "who heard a later one heard the earlier");
    assert_eq!(echoes.quorum(2, |node| node != 3), Some(30), "who is out does not count");
    assert_eq!(echoes.quorum(0, all), None);
}

/// Clock rates in parts per billion of true time.
#[derive(Clone, Copy, Debug)]
struct Rates {
    node: u64,
    survivor: u64,
}

const PER_TRUE: u128 = 1_000_000_000;

impl Rates {
    fn node_of_true(self, at: u64) -> u64 {
        (at as u128 * self.node as u128 / PER_TRUE) as u64
    }

    /// True time at which a node's clock shows this, rounded up.
    fn true_of_node(self, at: u64) -> u64 {
        (at as u128 * PER_TRUE).div_ceil(self.node as u128) as u64
    }

    /// True length of a wait of a survivor, rounded down.
    fn true_of_wait(self, span: u64) -> u64 {
        (span as u128 * PER_TRUE / self.survivor as u128) as u64
    }
}

/// Rates that differ by no more than `drift` percent.
fn rates(drift: u64) -> impl Strategy<Value = Rates> {
    let wrong = PER_TRUE as u64 * drift / (200 + drift);
    let rate = PER_TRUE as u64 - wrong..=PER_TRUE as u64 + wrong;
    // The ends are what matters.
    let ends = prop_oneof![Just(*rate.start()), Just(*rate.end()), rate];
    (ends.clone(), ends).prop_map(|(node, survivor)| Rates { node, survivor })
}

/// What a machine does that is going to be excluded.
#[derive(Clone, Debug)]
struct Story {
    /// When the others exclude it, in true time.
    excluded: u64,
    /// Pauses between the daemon's turns, on its own clock.
    turns: Vec<u64>,
    /// How much later than it was sent a tick comes back.
    travel: u64,
    /// Whether a client that was told confirms, and how much later.
    confirms: Option<u64>,
    /// Whether SIGKILL ends a client (one in a system call that hangs, it does not).
    killable: bool,
}

fn story() -> impl Strategy<Value = Story> {
    let short = 1..TICK;
    let pause = prop_oneof![8 => short, 1 => TICK..30 * SECOND];
    let turns = proptest::collection::vec(pause, 10..300);
    let confirms = proptest::option::of(0..3 * SECOND);
    let excluded = SECOND..40 * SECOND;
    (excluded, turns, 0..SECOND, confirms, any::<bool>()).prop_map(
        |(excluded, turns, travel, confirms, killable)| Story {
            excluded,
            turns,
            travel,
            confirms,
            killable,
        },
    )
}

/// A machine: a daemon, one client, a watchdog.
struct Machine {
    lease: Lease,
    last_fed: u64,
    /// When the client was told by its library, or by the daemon.
    told: Option<u64>,
    /// When it could act for the last time.
    gone: Option<u64>,
}

impl Machine {
    /// Lets the story happen; the last moment at which the client could act, on the node's clock.
    fn last_act(story: &Story, rates: Rates, terms: Terms) -> Option<u64> {
        let begin = SECOND;
        let mut it =
            Self { lease: Lease::new(terms, begin), last_fed: begin, told: None, gone: None };
        let excluded = rates.node_of_true(story.excluded);
        let (mut now, mut travelling) = (begin, Vec::new());
        let mut had = false;
        for pause in &story.turns {
            // What comes back was sent before the exclusion: the others agree on the order.
            let home = |t0: &u64| t0 + story.travel <= now;
            for t0 in travelling.iter().copied().filter(home) {
                had |= it.lease.returned(t0, true, now);
            }
            travelling.retain(|t0| !home(t0));
            it.turn(now, story);
            if it.lease.tick_due() <= now {
                it.lease.sent(now);
                travelling.extend((now <= excluded).then_some(now));
            }
            let next = now + pause;
            it.library(next, story);
            let reset = it.last_fed + terms.watchdog;
            if reset <= next {
                return had.then(|| it.gone.unwrap_or(reset).min(reset));
            }
            now = next;
        }
        // The daemon is stopped for good.
        it.library(u64::MAX, story);
        had.then(|| it.gone.unwrap_or(u64::MAX).min(it.last_fed + terms.watchdog))
    }

    /// A turn of the daemon.
    fn turn(&mut self, now: u64, story: &Story) {
        if self.lease.standing(now) == Standing::Over {
            self.tell(now, story);
            self.lease.end_life(now);
        }
        if self.lease.must_kill(now) && story.killable {
            self.gone = self.gone.min(Some(now)).or(Some(now));
        }
        if self.gone.is_some_and(|gone| gone <= now) {
            self.lease.confirmed();
        }
        if self.lease.may_feed(now) {
            self.last_fed = now;
        }
    }

    /// The client's own clock, while the daemon does nothing until `until`.
    fn library(&mut self, until: u64, story: &Story) {
        if self.lease.until() != 0 && self.lease.lost_at() <= until {
            self.tell(self.lease.lost_at(), story);
        }
    }

    fn tell(&mut self, at: u64, story: &Story) {
        if self.told.is_none() {
            self.told = Some(at);
            self.gone = story.confirms.map(|later| at + later);
        }
    }
}

/// A survivor's wait, to be compared with the real one.
fn is_safe(story: &Story, rates: Rates, wait: u64) -> bool {
    let safe = story.excluded + rates.true_of_wait(wait);
    Machine::last_act(story, rates, T).is_none_or(|last| rates.true_of_node(last) <= safe + 1)
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 2000,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn nobody_acts_when_the_others_go_on(story in story(), rates in rates(DRIFT)) {
        prop_assert!(is_safe(&story, rates, T.safe_after()));
    }
}

#[test]
fn each_term_of_the_wait_is_needed() {
    // The daemon is stopped at the last moment at which it may feed; nobody confirms, nobody can
    // be killed. The exclusion comes right after a tick.
    let excluded = 2 * SECOND;
    let turn = TICK / 4;
    let count = (excluded + T.lease + T.grace) / turn;
    let turns = vec![turn; count as usize];
    let story = Story { excluded, turns, travel: 0, confirms: None, killable: false };
    let equal = Rates { node: PER_TRUE as u64, survivor: PER_TRUE as u64 };
    assert!(is_safe(&story, equal, T.safe_after()));
    for term in [T.lease, T.grace, T.watchdog] {
        assert!(!is_safe(&story, equal, T.safe_after() - term), "without a term of {term} ns");
    }
    let apart = Rates { node: equal.node - 4_975_124, survivor: equal.survivor + 4_975_124 };
    assert!(is_safe(&story, apart, T.safe_after()));
    let excluded = apart.true_of_node(SECOND + 4 * TICK);
    let story = Story { excluded, ..story };
    assert!(is_safe(&story, apart, T.safe_after()));
    let no_drift = Terms { drift: 0, ..T };
    assert!(!is_safe(&story, apart, no_drift.safe_after()), "without the drift");
}
