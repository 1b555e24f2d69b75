//! The policy of one daemon, rule by rule.

use std::collections::{BTreeMap, BTreeSet};

use super::event::{Clock, Feared, Input, Note, Output, Reason, Rules};
use super::message::{CaseNote, Message, Outcome, Victim};
use super::policy::{COMEBACK_PATIENCE, Policy, ROUND_PAUSE};

const SECOND: u64 = 1_000_000_000;

pub(super) fn rules() -> Rules {
    Rules { fencing: true, concurrent: false, repeat: true, post_join_delay: 30 * SECOND }
}

pub(super) fn life(node: u32, number: u64) -> Victim {
    Victim { node, life: number << 24 }
}

/// A daemon under test, with a clock that the test moves and a backend that fears whom it is told to.
struct Daemon {
    policy: Policy,
    own: u32,
    now: u64,
    lost: Vec<Feared>,
    members: BTreeSet<u32>,
    /// Lives of those that began anew; everybody else is in the first.
    lives: BTreeMap<u32, u64>,
}

impl Daemon {
    /// Node `own` of `members`, quorate, long after the last of them came.
    fn settled(own: u32, members: &[u32], rules: Rules) -> Self {
        let policy = Policy::new(own, rules);
        let members = members.iter().copied().collect();
        let (now, lost, lives) = (1000 * SECOND, Vec::new(), BTreeMap::new());
        let mut daemon = Self { policy, own, now, lost, members, lives };
        daemon.tell_members(true);
        assert_eq!(daemon.orders(), [Output::Send(Message::Attempts(vec![]))]);
        daemon.now += 100 * SECOND;
        daemon.step(Input::Tick);
        assert_eq!(daemon.orders(), []);
        daemon
    }

    fn clock(&self) -> Clock {
        Clock { mono: self.now, wall: 1_700_000_000 + self.now / SECOND }
    }

    fn step(&mut self, input: Input) {
        self.policy.step(self.clock(), input);
    }

    fn tell_members(&mut self, may_fence: bool) {
        let life = |node| self.lives.get(node).copied().unwrap_or(1);
        let members = self.members.iter().map(|node| (*node, life(node))).collect();
        self.step(Input::Members { members, may_fence });
    }

    /// The node's first life goes down.
    fn fail(&mut self, node: u32) {
        self.lose(life(node, 1));
    }

    fn lose(&mut self, victim: Victim) {
        self.members.remove(&victim.node);
        self.tell_members(true);
        let (reason, since) = (Reason::NodeDown, self.now);
        let witnesses = self.members.clone();
        let fail_wall = self.clock().wall;
        self.lost.push(Feared { victim, reason, fail_wall, since, witnesses });
        self.step(Input::Lost(self.lost.clone()));
    }

    fn fear_no_more(&mut self, victim: Victim) {
        // All lives of the node up to this one, as a backend does.
        let covers = |other: Victim| other.node == victim.node && other.life <= victim.life;
        self.lost.retain(|feared| !covers(feared.victim));
        self.step(Input::Lost(self.lost.clone()));
    }

    /// What came out; the group and the backend do with it what they do.
    fn orders(&mut self) -> Vec<Output> {
        let mut all = Vec::new();
        while let Some(output) = self.policy.next_output() {
            match &output {
                Output::Send(message) => {
                    let (from, message) = (self.own, message.clone());
                    self.step(Input::Message { from, message });
                }
                Output::Harmless(victim) => self.fear_no_more(*victim),
                _ => {}
            }
            all.push(output);
        }
        all
    }

    fn runs(&mut self) -> Vec<(u64, Victim)> {
        let run = |output| match output {
            Output::Run { run, victim, .. } => Some((run, victim)),
            _ => None,
        };
        self.orders().into_iter().filter_map(run).collect()
    }

    fn harmless(&mut self) -> Vec<Victim> {
        let harmless = |output| match output {
            Output::Harmless(victim) => Some(victim),
            _ => None,
        };
        self.orders().into_iter().filter_map(harmless).collect()
    }

    fn result(&mut self, from: u32, victim: Victim, outcome: Outcome) {
        let message = Message::Result { victim, outcome, wall: 0 };
        self.step(Input::Message { from, message });
    }

    fn end(&mut self, run: u64, good: bool) {
        self.step(Input::Ended { run, good });
    }

    /// Sleeps until the policy's own deadline.
    fn wait(&mut self) {
        let deadline = self.policy.deadline().expect("something is due");
        assert!(deadline > self.now, "a deadline in the past would make the loop spin");
        self.now = deadline;
        self.step(Input::Tick);
    }
}

#[test]
fn the_lowest_witness_fences_and_only_its_agents_success_counts() {
    let mut one = Daemon::settled(1, &[1, 2, 3], rules());
    one.fail(3);
    let [(run, victim)] = one.runs()[..] else { panic!("one attempt") };
    assert_eq!(victim, life(3, 1));
    one.end(run + 1, true);
    assert_eq!(one.harmless(), [], "no such attempt");
    one.end(run, true);
    assert_eq!(one.harmless(), [victim]);
    assert_eq!(one.policy.cases().count(), 0);
    let done = one.policy.done(3).expect("it is over");
    assert_eq!((done.actor, done.wall), (1, one.clock().wall));

    let mut two = Daemon::settled(2, &[1, 2, 3], rules());
    two.fail(3);
    assert_eq!((two.runs(), two.policy.deadline()), (vec![], None), "node 1 acts");
    two.result(1, victim, Outcome::Fenced);
    assert_eq!(two.harmless(), [], "the actor's backend tells all");
    two.fear_no_more(victim);
    assert_eq!(two.policy.done(3).map(|done| done.actor), Some(1));
}

#[test]
fn the_next_witness_acts_when_the_agents_of_the_first_fail() {
    let mut two = Daemon::settled(2, &[1, 2, 3], rules());
    two.fail(3);
    two.result(1, life(3, 1), Outcome::Failed);
    let [(run, _)] = two.runs()[..] else { panic!("node 2 acts") };
    two.end(run, true);
    assert_eq!(two.harmless(), [life(3, 1)]);
}

#[test]
fn the_next_witness_acts_when_the_first_is_lost_too() {
    let mut two = Daemon::settled(2, &[1, 2, 3], rules());
    two.fail(3);
    assert_eq!(two.runs(), []);
    two.fail(1);
    let mut fenced = Vec::new();
    for _ in 0..2 {
        let [(run, victim)] = two.runs()[..] else { panic!("one at a time") };
        two.end(run, true);
        fenced.push(victim.node);
    }
    assert_eq!(two.harmless().len(), 1);
    fenced.sort_unstable();
    assert_eq!(fenced, [1, 3]);
    assert_eq!(two.policy.cases().count(), 0);
}

#[test]
fn of_two_lives_of_a_node_the_later_one_is_fenced() {
    let mut one = Daemon::settled(1, &[1, 3], Rules { fencing: false, ..rules() });
    one.fail(3);
    one.lose(life(3, 2));
    one.policy.set_rules(rules());
    one.step(Input::Tick);
    let [(run, victim)] = one.runs()[..] else { panic!("one attempt") };
    assert_eq!(victim, life(3, 2));
    one.end(run, true);
    assert_eq!(one.runs(), []);
}

#[test]
fn several_at_once_only_where_the_configuration_says_so() {
    let mut one = Daemon::settled(1, &[1, 2, 3], Rules { concurrent: true, ..rules() });
    one.fail(2);
    one.fail(3);
    assert_eq!(one.runs().len(), 2);
    let mut one = Daemon::settled(1, &[1, 2, 3], rules());
    one.fail(2);
    one.fail(3);
    assert_eq!(one.runs().len(), 1);
    assert_eq!(one.policy.deadline(), None, "the end of the first wakes the second");
}

#[test]
fn when_all_failed_it_starts_over_after_a_pause_or_gives_up() {
    let mut one = Daemon::settled(1, &[1, 3], rules());
    one.fail(3);
    for (round, pause) in [1, 2, 4, 8, 12, 12].into_iter().enumerate() {
        let [(run, victim)] = one.runs()[..] else { panic!("round {round}") };
        one.end(run, false);
        let orders = one.orders();
        assert!(orders.contains(&Output::Note(Note::AgentsFailed(victim, 1))), "{orders:?}");
        assert!(orders.contains(&Output::Note(Note::NewRound(victim))), "{orders:?}");
        assert_eq!(one.policy.deadline(), Some(one.now + pause * ROUND_PAUSE));
        one.wait();
    }
    let mut one = Daemon::settled(1, &[1, 3], Rules { repeat: false, ..rules() });
    one.fail(3);
    let [(run, victim)] = one.runs()[..] else { panic!("an attempt") };
    one.end(run, false);
    assert!(one.orders().contains(&Output::Note(Note::GivenUp(victim))));
    assert_eq!(one.policy.deadline(), None);
    one.now += 1000 * SECOND;
    one.step(Input::Tick);
    assert_eq!(one.runs(), []);
    one.policy.set_rules(rules());
    one.step(Input::Tick);
    assert_eq!(one.runs().len(), 1, "the key may change at run time");
}

#[test]
fn nobody_is_fenced_without_quorum() {
    let mut one = Daemon::settled(1, &[1, 2, 3], rules());
    one.tell_members(false);
    one.lost.push(Feared {
        victim: life(3, 1),
        reason: Reason::NodeDown,
        fail_wall: 0,
        since: one.now,
        witnesses: [1].into(),
    });
    one.members = [1].into();
    one.tell_members(false);
    one.step(Input::Lost(one.lost.clone()));
    assert_eq!((one.runs(), one.policy.deadline()), (vec![], None));
    one.tell_members(true);
    assert_eq!(one.runs().len(), 1);
}

#[test]
fn a_node_that_was_added_is_given_time_by_post_join_delay() {
    let mut one = Daemon::settled(1, &[1, 3], rules());
    one.members.insert(2);
    one.tell_members(true);
    let added = one.now;
    one.now += SECOND;
    one.fail(3);
    assert_eq!(one.runs(), []);
    assert_eq!(one.policy.deadline(), Some(added + 30 * SECOND));
    one.wait();
    assert_eq!(one.runs().len(), 1);
    one.members.insert(4);
    one.tell_members(true);
    let stopped = |order: &Output| matches!(order, Output::Stop { .. });
    assert!(!one.orders().iter().any(stopped), "what runs goes on");
}

#[test]
fn without_fencing_only_a_person_ends_a_case() {
    let mut one = Daemon::settled(1, &[1, 3], Rules { fencing: false, ..rules() });
    one.fail(3);
    assert_eq!((one.runs(), one.policy.deadline()), (vec![], None), "never by itself");
    assert!(!one.policy.acknowledge(one.clock(), 2), "nobody fears node 2");
    assert!(one.policy.acknowledge(one.clock(), 3));
    assert_eq!(one.harmless(), [life(3, 1)]);
    assert_eq!(one.policy.cases().count(), 0);
    assert_eq!(one.policy.done(3).map(|done| done.actor), Some(1));
    assert!(!one.policy.acknowledge(one.clock(), 3), "it is over");
}

#[test]
fn who_is_feared_no_more_is_not_fenced_any_longer() {
    let mut one = Daemon::settled(1, &[1, 2, 3], rules());
    one.fail(3);
    let [(run, victim)] = one.runs()[..] else { panic!("an attempt") };
    one.fear_no_more(victim);
    let orders = one.orders();
    assert_eq!(orders, [Output::Stop { run }, Output::Note(Note::Over(victim))]);
    one.end(run, true);
    assert_eq!(one.orders(), [], "what the stopped attempt says counts for nothing");
}

#[test]
fn a_feared_node_that_takes_part_again_is_given_time_and_has_no_say() {
    let mut two = Daemon::settled(2, &[1, 2, 3], rules());
    two.lose(life(1, 1));
    let [(run, _)] = two.runs()[..] else { panic!("an attempt") };
    two.end(run, false);
    two.members.insert(1);
    two.tell_members(true);
    assert_eq!(two.runs(), []);
    let case = two.policy.case_of(1).expect("still feared");
    assert_eq!(two.policy.actor(case), Some(3), "not 1 itself");
    two.result(3, life(1, 1), Outcome::Failed);
    two.orders();
    assert_eq!(two.policy.deadline(), Some(two.now + COMEBACK_PATIENCE));
    two.wait();
    assert_eq!(two.runs().len(), 1, "it did not become clean");
}

#[test]
fn an_attempt_for_one_life_says_nothing_about_a_later_one() {
    let mut one = Daemon::settled(1, &[1, 2, 3], Rules { post_join_delay: 0, ..rules() });
    one.fail(3);
    let [(first, _)] = one.runs()[..] else { panic!("an attempt") };
    one.lose(life(3, 2));
    assert_eq!(one.runs(), [], "one at a time");
    one.end(first, true);
    let orders = one.orders();
    assert!(orders.contains(&Output::Harmless(life(3, 1))), "{orders:?}");
    let second = orders.iter().find_map(|order| match order {
        Output::Run { run, victim, .. } if *victim == life(3, 2) => Some(*run),
        _ => None,
    });
    one.end(second.expect("its own attempt"), true);
    assert_eq!(one.harmless(), [life(3, 2)]);
}

#[test]
fn a_newcomer_is_told_whose_agents_failed() {
    let mut one = Daemon::settled(1, &[1, 2, 3], rules());
    one.fail(3);
    let [(run, victim)] = one.runs()[..] else { panic!("an attempt") };
    one.end(run, false);
    one.orders();
    one.members.insert(4);
    one.tell_members(true);
    let note = CaseNote { victim, witnesses: [1, 2].into(), tried: [1].into() };
    let told = Message::Cases(vec![note]);
    let at_nothing = Message::Attempts(vec![]);
    assert_eq!(one.orders(), [told.clone(), at_nothing].map(Output::Send));
    let mut four = Daemon::settled(4, &[1, 2, 4], rules());
    four.lost = one.lost.clone();
    four.step(Input::Lost(four.lost.clone()));
    four.step(Input::Message { from: 1, message: told });
    let case = four.policy.case_of(3).expect("feared");
    assert_eq!(four.policy.actor(case), Some(2));
}

#[test]
fn a_newcomer_leaves_it_to_whom_is_at_it() {
    let mut two = Daemon::settled(2, &[2, 3], rules());
    two.fail(3);
    let [(run, victim)] = two.runs()[..] else { panic!("an attempt") };
    two.members.insert(1);
    two.tell_members(true);
    let at_it = Message::Attempts(vec![victim]);
    assert!(two.orders().contains(&Output::Send(at_it.clone())), "it goes on, and says so");

    // Node 1 was a witness in an earlier life, and would be elected.
    let mut one = Daemon::settled(1, &[1, 2], rules());
    one.lost = two.lost.clone();
    one.lost[0].witnesses.insert(1);
    one.tell_members(false);
    one.step(Input::Lost(one.lost.clone()));
    one.step(Input::Message { from: 2, message: at_it });
    one.tell_members(true);
    assert_eq!((one.runs(), one.policy.deadline()), (vec![], None));
    one.result(2, victim, Outcome::Failed);
    assert_eq!(one.runs().len(), 1, "now it is its turn");
    two.end(run, true);
    assert_eq!(two.harmless(), [victim]);
}

#[test]
fn of_two_who_ask_the_first_begins() {
    let mut one = Daemon::settled(1, &[1, 2, 3], rules());
    one.members.remove(&3);
    one.tell_members(true);
    let (victim, since) = (life(3, 1), one.now);
    let (reason, fail_wall, witnesses) = (Reason::NodeDown, 0, [1, 2].into());
    one.lost.push(Feared { victim, reason, fail_wall, since, witnesses });
    one.step(Input::Lost(one.lost.clone()));
    one.step(Input::Message { from: 2, message: Message::Attempts(vec![victim]) });
    assert_eq!(one.runs(), [], "its own message comes after that of node 2");
    one.members.remove(&2);
    one.tell_members(true);
    assert_eq!(one.runs().len(), 1, "nobody is at it any more");
}

#[test]
fn a_daemon_that_was_restarted_in_one_change_is_another_one() {
    let mut two = Daemon::settled(2, &[1, 2, 3], rules());
    two.fail(3);
    two.step(Input::Message { from: 1, message: Message::Attempts(vec![life(3, 1)]) });
    assert_eq!((two.runs(), two.policy.deadline()), (vec![], None), "node 1 is at it");
    two.lives.insert(1, 2);
    two.tell_members(true);
    assert_eq!(two.policy.deadline(), Some(two.now + 30 * SECOND), "post_join_delay");
    two.wait();
    assert_eq!(two.runs().len(), 1, "what node 1 was at ended with it, and it is no witness");
}

#[test]
fn who_is_done_without_stops_its_agents() {
    let mut two = Daemon::settled(2, &[1, 2, 3], rules());
    two.fail(1);
    let [(run, victim)] = two.runs()[..] else { panic!("an attempt") };
    two.members.remove(&2);
    two.tell_members(true);
    assert_eq!(two.orders(), [Output::Stop { run }], "node 3 is elected now");
    two.end(run, true);
    assert_eq!(two.orders(), [], "{victim:?} is not harmless by what was stopped");
}
