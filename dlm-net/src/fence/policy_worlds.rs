//! The policies of a whole cluster under random failures, against what is true.
//!
//! The world keeps which lost lives can still do harm. Only an agent that succeeds, or a person, ends
//! that. The group below the policies is a queue that delivers everything to all in one order; the
//! backend beside them keeps the list of feared lives.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use proptest::prelude::*;

use super::event::{Clock, Feared, Input, Output, Reason, Rules};
use super::message::{Message, Victim};
use super::policy::Policy;
use super::policy_tests::{life, rules};

const SECOND: u64 = 1_000_000_000;
const NODES: u32 = 4;

/// What is delivered to all daemons that were there when it was sent, and still are.
#[derive(Clone, Debug)]
enum Delivery {
    Members(BTreeMap<u32, u64>, bool),
    Lost(Vec<Feared>),
    Message(u32, Message),
}

#[derive(Clone, Debug)]
enum Event {
    /// The daemon of a node is lost; its life may still do harm.
    Fail(u32),
    /// A node comes up again, clean if it is harmless and feared otherwise.
    Return(u32),
    /// Both at once: nobody sees the node without a daemon.
    Restart(u32),
    /// One of the running agents ends.
    AgentEnds(usize, bool),
    /// A person makes a node harmless and says so.
    Acknowledge(u32),
    /// Time passes, seconds.
    Pass(u64),
    /// Quorum is lost or found.
    Quorum(bool),
    /// Some deliveries happen.
    Deliver(usize),
}

struct World {
    daemons: BTreeMap<u32, Policy>,
    lives: BTreeMap<u32, u64>,
    lost: Vec<Feared>,
    harmful: BTreeSet<Victim>,
    agents: Vec<(u32, u64, Victim)>,
    bus: VecDeque<Delivery>,
    /// Deliveries so far, and how many there were for all when each daemon came.
    delivered: usize,
    since: BTreeMap<u32, usize>,
    quorate: bool,
    now: u64,
    rules: Rules,
    /// Whose attempts took place at the same time for the same victim, while both took part.
    twice: Vec<Victim>,
}

impl World {
    fn new(rules: Rules) -> Self {
        let mut world = Self {
            daemons: BTreeMap::new(),
            lives: BTreeMap::new(),
            lost: Vec::new(),
            harmful: BTreeSet::new(),
            agents: Vec::new(),
            bus: VecDeque::new(),
            delivered: 0,
            since: BTreeMap::new(),
            quorate: true,
            now: 1000 * SECOND,
            rules,
            twice: Vec::new(),
        };
        for node in 1..=NODES {
            world.lives.insert(node, 1);
            world.begin(node);
        }
        world.tell();
        world.deliver(usize::MAX);
        world.now += 100 * SECOND;
        world
    }

    fn members(&self) -> BTreeSet<u32> {
        self.daemons.keys().copied().collect()
    }

    /// Those who take part, with their lives.
    fn body(&self) -> BTreeMap<u32, u64> {
        self.daemons.keys().map(|node| (*node, self.lives[node])).collect()
    }

    /// A daemon begins; what is under way to the others does not reach it.
    fn begin(&mut self, node: u32) {
        self.daemons.insert(node, Policy::new(node, self.rules));
        self.since.insert(node, self.delivered + self.bus.len());
    }

    /// The backend's view of things goes to all.
    fn tell(&mut self) {
        self.bus.push_back(Delivery::Members(self.body(), self.quorate));
        self.bus.push_back(Delivery::Lost(self.lost.clone()));
    }

    fn take(&mut self, event: &Event) {
        match *event {
            Event::Fail(node) => {
                if self.fail(node) {
                    self.tell();
                }
            }
            Event::Return(node) => self.come_back(node),
            Event::Restart(node) => {
                if self.fail(node) {
                    self.come_back(node);
                }
            }
            Event::AgentEnds(which, good) => self.agent_ends(which, good),
            Event::Acknowledge(node) => self.acknowledge(node),
            Event::Pass(seconds) => {
                self.now += seconds * SECOND;
                self.step_all(&Input::Tick);
            }
            Event::Quorum(quorate) => {
                self.quorate = quorate;
                self.tell();
            }
            Event::Deliver(count) => self.deliver(count),
        }
    }

    fn fail(&mut self, node: u32) -> bool {
        // The last one is not lost: who would be there to see it?
        if self.daemons.len() < 2 || self.daemons.remove(&node).is_none() {
            return false;
        }
        self.agents.retain(|(by, ..)| *by != node);
        let victim = life(node, self.lives[&node]);
        self.harmful.insert(victim);
        let witnesses = self.members();
        let (reason, fail_wall, since) = (Reason::NodeDown, 0, self.now);
        self.lost.push(Feared { victim, reason, fail_wall, since, witnesses });
        true
    }

    fn come_back(&mut self, node: u32) {
        if self.daemons.contains_key(&node) {
            return;
        }
        *self.lives.get_mut(&node).expect("all have one") += 1;
        if !self.harmful.iter().any(|victim| victim.node == node) {
            self.lost.retain(|feared| feared.victim.node != node);
        }
        self.begin(node);
        self.tell();
    }

    fn agent_ends(&mut self, which: usize, good: bool) {
        if self.agents.is_empty() {
            return;
        }
        let (by, run, victim) = self.agents.remove(which % self.agents.len());
        if good {
            self.switch_off(victim.node);
        }
        self.step(by, Input::Ended { run, good });
    }

    /// The machine is off: all that was lost of it is harmless, and a daemon on it is lost.
    fn switch_off(&mut self, node: u32) {
        if self.fail(node) {
            self.tell();
        }
        self.harmful.retain(|victim| victim.node != node);
    }

    /// Nodes that came back with a past have done away with it.
    fn become_clean(&mut self) {
        for node in self.members() {
            self.harmful.retain(|victim| victim.node != node);
            self.lost.retain(|feared| feared.victim.node != node);
        }
    }

    fn acknowledge(&mut self, node: u32) {
        if self.daemons.contains_key(&node) {
            return;
        }
        let Some(by) = self.daemons.keys().next().copied() else { return };
        self.switch_off(node);
        let clock = self.clock();
        self.daemons.get_mut(&by).expect("it is there").acknowledge(clock, node);
        self.collect(by);
    }

    fn deliver(&mut self, count: usize) {
        for _ in 0..count {
            let Some(delivery) = self.bus.pop_front() else { return };
            let input = match delivery {
                Delivery::Members(members, may_fence) => Input::Members { members, may_fence },
                Delivery::Lost(lost) => Input::Lost(lost),
                Delivery::Message(from, message) => Input::Message { from, message },
            };
            for node in self.members() {
                if self.since[&node] <= self.delivered {
                    self.step(node, input.clone());
                }
            }
            self.delivered += 1;
        }
    }

    fn clock(&self) -> Clock {
        Clock { mono: self.now, wall: self.now / SECOND }
    }

    fn step_all(&mut self, input: &Input) {
        for node in self.members() {
            self.step(node, input.clone());
        }
    }

    fn step(&mut self, node: u32, input: Input) {
        let clock = self.clock();
        let Some(daemon) = self.daemons.get_mut(&node) else { return };
        daemon.step(clock, input);
        self.collect(node);
    }

    fn collect(&mut self, node: u32) {
        while let Some(output) = self.daemons.get_mut(&node).and_then(Policy::next_output) {
            match output {
                Output::Run { run, victim, .. } => {
                    if self.agents.iter().any(|(_, _, other)| *other == victim) {
                        self.twice.push(victim);
                    }
                    self.agents.push((node, run, victim));
                }
                Output::Stop { run } => {
                    self.agents.retain(|(by, number, _)| (*by, *number) != (node, run));
                }
                Output::Send(message) => self.bus.push_back(Delivery::Message(node, message)),
                Output::Harmless(victim) => self.on_harmless(victim),
                Output::Note(_) => {}
            }
        }
    }

    fn on_harmless(&mut self, victim: Victim) {
        let covers = |other: &Victim| other.node == victim.node && other.life <= victim.life;
        let wrong: Vec<_> = self.harmful.iter().filter(|other| covers(other)).collect();
        assert!(wrong.is_empty(), "{victim:?} was called harmless, but {wrong:?}");
        self.lost.retain(|feared| !covers(&feared.victim));
        self.bus.push_back(Delivery::Lost(self.lost.clone()));
    }
}

fn event() -> impl Strategy<Value = Event> {
    let node = 1..=NODES;
    prop_oneof![
        3 => node.clone().prop_map(Event::Fail),
        2 => node.clone().prop_map(Event::Return),
        1 => node.clone().prop_map(Event::Restart),
        3 => (0..4usize, any::<bool>()).prop_map(|(which, good)| Event::AgentEnds(which, good)),
        1 => node.prop_map(Event::Acknowledge),
        3 => (0..40u64).prop_map(Event::Pass),
        1 => any::<bool>().prop_map(Event::Quorum),
        6 => (1..8usize).prop_map(Event::Deliver),
    ]
}

/// With every delivery made before the next event: lives that two daemons fenced at once.
fn twice(events: &[Event], concurrent: bool) -> Vec<Victim> {
    let mut world = World::new(Rules { concurrent, ..rules() });
    for event in events {
        world.take(event);
        world.deliver(usize::MAX);
    }
    world.twice
}

/// Who is still feared, and whose agents still run, after events in a cluster that then is quorate,
/// whose agents work, and in which time passes.
fn left_over(events: &[Event], concurrent: bool) -> (Vec<Feared>, usize) {
    let mut world = World::new(Rules { concurrent, ..rules() });
    for event in events {
        world.take(event);
    }
    world.become_clean();
    world.take(&Event::Quorum(true));
    for _ in 0..60 {
        world.deliver(usize::MAX);
        world.take(&Event::Pass(61));
        world.take(&Event::AgentEnds(0, true));
        world.deliver(usize::MAX);
    }
    (world.lost, world.agents.len())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, ..ProptestConfig::default() })]

    /// Nobody is called harmless who is not; and in the end everybody who was lost is made harmless.
    #[test]
    fn only_the_harmless_are_called_so_and_in_the_end_all_are(
        events in proptest::collection::vec(event(), 1..60),
        concurrent in any::<bool>(),
    ) {
        prop_assert_eq!(left_over(&events, concurrent), (vec![], 0));
    }

    /// While nothing is under way in the group, no two daemons fence one life at once.
    #[test]
    fn one_daemon_at_a_time_fences_a_life(
        events in proptest::collection::vec(event(), 1..60),
        concurrent in any::<bool>(),
    ) {
        prop_assert_eq!(twice(&events, concurrent), vec![]);
    }
}

/// No witness is left, and a newcomer with a lower number than whoever is at it is elected.
#[test]
fn a_lower_newcomer_does_not_fence_beside_whoever_is_at_it() {
    use Event::{Acknowledge, AgentEnds, Fail, Pass, Return};
    let events = [
        Fail(2),
        Fail(4),
        Fail(1),
        Return(1),
        Fail(3),
        Acknowledge(4),
        Return(4),
        Fail(1),
        Pass(30),
        AgentEnds(0, true),
        Return(1),
        Pass(30),
    ];
    assert_eq!(twice(&events, false), []);
}

/// A failure arrives between a daemon's coming and what it is told: for one a round is over, for the
/// other it is not.
#[test]
fn a_newcomer_and_the_others_elect_the_same() {
    use Event::{AgentEnds, Deliver, Fail, Restart, Return};
    let events = [
        Fail(2),
        Deliver(1),
        Fail(4),
        Deliver(5),
        AgentEnds(1, true),
        Fail(3),
        Return(3),
        Deliver(2),
        Deliver(3),
        Return(4),
        AgentEnds(0, false),
        Restart(1),
    ];
    assert_eq!(left_over(&events, true), (vec![], 0));
}
