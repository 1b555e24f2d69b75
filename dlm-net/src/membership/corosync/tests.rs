//! Worlds of daemons over a simulated group: rings that fall apart and merge, messages in one order,
//! daemons that stand still, die and come back.

mod leases;
mod stories;
mod worlds;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use dlm_core::{Instant, JOINS_PER_LIFE, Member, NodeId, View};
use dlm_ipc::control::{MemberRecord, StayRecord, StaysRecord, ViewRecord};

use super::message::{Event, Left, Message, Process, Ring};
use super::order::{Act, Order, Rules, Setup};
use crate::membership::feeder::record;

const SPACE: &[u8] = b"a";

/// A daemon with its machine.
struct Node {
    order: Order,
    process: Process,
    life: u64,
    joins: u64,
    /// The stay in the lockspace, and its view.
    stay: Option<(u64, ViewRecord)>,
    safe: BTreeSet<Member>,
    remains: BTreeSet<u64>,
    standing: bool,
    leases: u64,
    lives_over: u32,
    up: bool,
    /// The daemon stands still.
    paused: bool,
    /// What the machine's engine has for the daemon.
    inbox: VecDeque<Event>,
    quorum: VecDeque<Event>,
    /// What the daemon gave to the engine.
    outbox: VecDeque<Message>,
}

/// All of it.
struct World {
    nodes: BTreeMap<u32, Node>,
    /// Which nodes hear each other.
    parts: Vec<BTreeSet<u32>>,
    seq: u64,
    now: u64,
    random: u64,
    rules: Rules,
    /// Lives of dead processes whose clients still act.
    ghosts: BTreeSet<(u32, u64)>,
    /// Views by number, as first installed.
    views: BTreeMap<u32, View>,
    pids: u32,
    /// What daemons log is printed.
    told: bool,
}

const RULES: Rules = Rules { quorum_lockspace: true, quorum_fencing: true, startup_fencing: true };

impl World {
    fn new(count: u32, seed: u64) -> Self {
        Self::with_rules(count, seed, RULES)
    }

    fn with_rules(count: u32, seed: u64, rules: Rules) -> Self {
        let mut world = Self {
            nodes: BTreeMap::new(),
            parts: vec![(1..=count).collect()],
            seq: 4,
            now: 1_000_000_000_000,
            random: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
            rules,
            ghosts: BTreeSet::new(),
            views: BTreeMap::new(),
            pids: 100,
            told: false,
        };
        for node in 1..=count {
            world.boot(node, 7, true);
        }
        world
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 11) % bound
    }

    fn node(&self, node: u32) -> &Node {
        &self.nodes[&node]
    }

    fn node_mut(&mut self, node: u32) -> &mut Node {
        self.nodes.get_mut(&node).expect("a node of this world")
    }

    fn part_of(&self, node: u32) -> BTreeSet<u32> {
        let part = self.parts.iter().find(|part| part.contains(&node));
        part.cloned().unwrap_or_default()
    }

    fn ring_of(&self, part: &BTreeSet<u32>) -> Ring {
        Ring { node: *part.first().expect("not empty"), seq: self.seq }
    }

    fn quorate(&self, part: &BTreeSet<u32>) -> bool {
        part.len() * 2 > self.nodes.len().max(1)
    }

    fn processes(&self, part: &BTreeSet<u32>) -> Vec<Process> {
        let up = part.iter().filter_map(|node| self.nodes.get(node)).filter(|node| node.up);
        up.map(|node| node.process).collect()
    }

    /// A daemon starts on a node and joins the group.
    fn boot(&mut self, node: u32, start: u64, clean: bool) {
        self.pids += 1;
        let life = Member::of_start(NodeId(node), start).incarnation;
        let count = self.nodes.len().max(self.parts.iter().map(BTreeSet::len).sum()) as u32;
        // The state file remembers.
        let view_floor = self.nodes.get(&node).map_or(0, |before| before.order.views.floor());
        let setup = Setup {
            own: Process { node, pid: self.pids },
            life,
            nodes: (1..=count).collect(),
            rules: self.rules,
            clean,
            boot: 1,
            view_floor,
            safe_after: 0,
        };
        let fresh = Node {
            order: Order::new(setup.clone(), Instant(self.now), 1000),
            process: setup.own,
            life,
            joins: 0,
            stay: None,
            safe: BTreeSet::new(),
            remains: BTreeSet::new(),
            standing: true,
            leases: 0,
            lives_over: 0,
            up: true,
            paused: false,
            inbox: VecDeque::new(),
            quorum: VecDeque::new(),
            outbox: VecDeque::new(),
        };
        self.nodes.insert(node, fresh);
        let part = self.part_of(node);
        let (ring, members) = (self.ring_of(&part), self.processes(&part));
        for other in &part {
            let group = Event::Group { members: members.clone(), left: vec![], new_ring: false };
            self.tell(*other, group);
        }
        self.tell(node, Event::Ring(ring));
        let quorate = self.quorate(&part);
        self.node_mut(node).quorum.push_back(Event::Quorum { ring, quorate });
    }

    /// The daemon of a node is killed; its clients act on, or are gone too.
    fn kill(&mut self, node: u32, clients_act: bool) {
        let known = self.node_mut(node);
        if !std::mem::replace(&mut known.up, false) {
            return;
        }
        let (process, life, stays) = (known.process, known.life, known.stay.take().is_some());
        let remains = std::mem::take(&mut known.remains);
        known.inbox.clear();
        known.outbox.clear();
        known.quorum.clear();
        if clients_act {
            self.ghosts.extend(remains.into_iter().map(|life| (node, life)));
            if stays {
                self.ghosts.insert((node, life));
            }
        }
        let part = self.part_of(node);
        let members = self.processes(&part);
        for other in part {
            let left = vec![(process, Left::ProcessDown)];
            let group = Event::Group { members: members.clone(), left, new_ring: false };
            self.tell(other, group);
        }
    }

    fn tell(&mut self, node: u32, event: Event) {
        if let Some(known) = self.nodes.get_mut(&node).filter(|known| known.up) {
            known.inbox.push_back(event);
        }
    }

    /// The nodes fall into these parts. `late` never hears of quorum in its own ring.
    fn split(&mut self, parts: Vec<BTreeSet<u32>>, late: Option<u32>) {
        // Whoever has the token may deliver to itself what nobody else will hear.
        let nodes: Vec<u32> = self.nodes.keys().copied().collect();
        let lonely = nodes[self.below(nodes.len() as u64) as usize];
        if let Some(message) = self.node_mut(lonely).outbox.pop_front() {
            let from = self.node(lonely).process;
            self.tell(lonely, Event::Message { from, bytes: message.to_bytes() });
        }
        self.seq += 4;
        let before = std::mem::replace(&mut self.parts, parts);
        for part in self.parts.clone() {
            let (ring, quorate) = (self.ring_of(&part), self.quorate(&part));
            let members = self.processes(&part);
            for node in part {
                let old =
                    before.iter().find(|old| old.contains(&node)).cloned().unwrap_or_default();
                let gone: Vec<_> = self
                    .processes(&old)
                    .into_iter()
                    .filter(|process| !members.contains(process))
                    .map(|process| (process, Left::NodeDown))
                    .collect();
                let stay: Vec<Process> =
                    members.iter().copied().filter(|process| old.contains(&process.node)).collect();
                let came = stay.len() < members.len();
                if !gone.is_empty() {
                    self.tell(node, Event::Group { members: stay, left: gone, new_ring: true });
                }
                if came {
                    let members = members.clone();
                    self.tell(node, Event::Group { members, left: vec![], new_ring: true });
                }
                self.tell(node, Event::Ring(ring));
                if late != Some(node) && self.node(node).up {
                    self.node_mut(node).quorum.push_back(Event::Quorum { ring, quorate });
                }
            }
        }
    }

    fn heal(&mut self) {
        let all = self.nodes.keys().copied().collect();
        self.split(vec![all], None);
    }

    fn isolate(&mut self, node: u32) {
        let rest = self.nodes.keys().copied().filter(|other| *other != node).collect();
        self.split(vec![rest, [node].into()], None);
    }

    fn join(&mut self, node: u32) {
        let known = self.node_mut(node);
        if known.up && known.stay.is_none() {
            let stay = known.life + known.joins;
            known.joins += 1;
            known.stay = Some((stay, ViewRecord::default()));
            self.report(node);
        }
    }

    fn leave(&mut self, node: u32) {
        if self.node_mut(node).stay.take().is_some() {
            self.report(node);
        }
    }

    fn close_clients(&mut self, node: u32) {
        if !std::mem::take(&mut self.node_mut(node).remains).is_empty() {
            self.report(node);
        }
    }

    fn report(&mut self, node: u32) {
        let others = self.nodes.keys().copied().collect();
        let known = self.node_mut(node);
        let stays = known.stay.iter().map(|(incarnation, view)| {
            let mut view = view.clone();
            view.unsafe_members.retain(|m| !known.safe.contains(&super::order::member_of(*m)));
            StayRecord {
                lockspace: SPACE.to_vec(),
                incarnation: *incarnation,
                view,
                wants_view: false,
            }
        });
        let report = StaysRecord {
            node,
            life: known.life,
            first_life: known.order.first,
            remains: known.remains.iter().copied().collect(),
            connected: others,
            stays: stays.collect(),
            ..StaysRecord::default()
        };
        known.order.report(report);
        self.obey(node);
    }

    /// A person's word that a node is off: it is.
    fn fence(&mut self, node: u32) {
        self.kill(node, false);
        self.ghosts.retain(|(ghost, _)| *ghost != node);
        let witness = self.nodes.values().find(|known| known.up && known.standing);
        let Some(witness) = witness.map(|known| known.process.node) else { return };
        let feared: Vec<Member> = self
            .node(witness)
            .order
            .feared()
            .map(|(record, _)| super::order::member_of(record.life))
            .filter(|life| life.node.0 == node)
            .collect();
        for life in feared {
            self.node_mut(witness).order.found_harmless(life);
        }
        self.obey(witness);
    }

    /// One message of one node is delivered to its part.
    fn deliver(&mut self, node: u32) {
        let known = self.node_mut(node);
        let (from, Some(message)) = (known.process, known.outbox.pop_front()) else { return };
        let bytes = message.to_bytes();
        assert_eq!(Message::from_bytes(&bytes), Some(message));
        for other in self.part_of(node) {
            self.tell(other, Event::Message { from, bytes: bytes.clone() });
        }
    }

    /// A daemon takes some of what its engine has for it.
    fn take(&mut self, node: u32, most: u64) {
        let now = Instant(self.now);
        let known = self.node_mut(node);
        if !known.up || known.paused {
            return;
        }
        known.order.on_time(now, 1000);
        self.obey(node);
        for _ in 0..most {
            let known = self.node_mut(node);
            let Some(event) = known.inbox.pop_front() else { break };
            known.order.event(event);
            self.obey(node);
        }
        if self.below(2) == 0
            && let Some(event) = self.node_mut(node).quorum.pop_front()
        {
            self.node_mut(node).order.event(event);
            self.obey(node);
        }
    }

    /// Does what the state machine of a node says, as the loop of a daemon does.
    fn obey(&mut self, node: u32) {
        while let Some(act) = self.node_mut(node).order.next() {
            match act {
                Act::Send(message) => self.node_mut(node).outbox.push_back(message),
                Act::View { lockspace, view } => self.install(node, &lockspace, view),
                Act::Safe(member) => {
                    self.must_be_harmless(member, "Safe");
                    self.node_mut(node).safe.insert(member);
                    self.report(node);
                }
                Act::LifeOver(_) => self.end_life(node),
                Act::Standing(good) => self.node_mut(node).standing = good,
                Act::Lease(at) => {
                    assert!(at.0 <= self.now);
                    self.node_mut(node).leases += 1;
                }
                Act::Log(line) if self.told => {
                    println!("{} ms, node {node}: {line}", self.now / 1_000_000);
                }
                Act::Fence { .. } | Act::Members | Act::Lost | Act::Log(_) => {}
            }
        }
    }

    fn end_life(&mut self, node: u32) {
        let known = self.node_mut(node);
        if known.stay.take().is_some() {
            known.remains.insert(known.life);
        }
        known.life += JOINS_PER_LIFE;
        known.joins = 0;
        known.lives_over += 1;
        let life = known.life;
        known.order.begin_life(life);
        self.report(node);
    }

    fn install(&mut self, node: u32, lockspace: &[u8], view: View) {
        assert_eq!(lockspace, SPACE);
        let known = self.node(node);
        let Some((stay, old)) = known.stay.clone() else { return };
        let own = Member { node: NodeId(node), incarnation: stay };
        if !view.members.contains(&own) || view.id.0 <= old.id {
            return;
        }
        assert!(view.members.is_sorted());
        // B2: what has one number is one view.
        let first = self.views.entry(view.id.0).or_insert_with(|| view.clone());
        assert_eq!(*first, view);
        // Who is not named any more left, or is harmless (B1, B3).
        let known: BTreeSet<MemberRecord> =
            record(&view).members.into_iter().chain(record(&view).unsafe_members).collect();
        for gone in old.members.iter().filter(|member| !known.contains(member)) {
            self.must_be_harmless(super::order::member_of(*gone), "dropped from a view");
        }
        // B3: nobody is let in before the life before is harmless.
        for member in &view.members {
            for ghost in self.ghosts.iter().filter(|ghost| ghost.0 == member.node.0) {
                assert!(
                    member.life().incarnation <= ghost.1,
                    "{member:?} comes before {ghost:?} is gone"
                );
            }
        }
        self.node_mut(node).stay = Some((own.incarnation, record(&view)));
        self.report(node);
    }

    /// What is said to be harmless is.
    fn must_be_harmless(&self, member: Member, when: &str) {
        let (node, life) = (member.node.0, member.life().incarnation);
        let known = self.node(node);
        let stays = known.stay.as_ref().is_some_and(|(stay, _)| *stay == member.incarnation);
        assert!(!(known.up && stays), "{member:?} is here, {when}");
        assert!(!(known.up && known.remains.contains(&life)), "{member:?} has clients, {when}");
        assert!(
            !self.ghosts.contains(&(node, life)),
            "{member:?} has clients of a dead one, {when}"
        );
    }

    /// Time goes on for all.
    fn round(&mut self) {
        self.now += 50_000_000;
        let nodes: Vec<u32> = self.nodes.keys().copied().collect();
        for node in nodes {
            for _ in 0..self.below(6) {
                self.deliver(node);
            }
            let most = self.below(12);
            self.take(node, most);
        }
    }

    fn rounds(&mut self, count: u32) {
        for _ in 0..count {
            self.round();
        }
    }

    /// Whether everybody who is up has the same view of the lockspace, with all stays, and fears nobody.
    fn is_quiet(&self) -> Result<(), String> {
        let up: Vec<&Node> = self.nodes.values().filter(|node| node.up).collect();
        let stays = up.iter().filter_map(|node| node.stay.as_ref());
        let views: BTreeSet<u32> = stays.clone().map(|(_, view)| view.id).collect();
        let members = stays.clone().count();
        for node in &up {
            let (number, order) = (node.process.node, &node.order);
            if !node.standing {
                return Err(format!("{number} may not grant: {:?}", order.hindered));
            }
            if let Some(feared) = order.feared().next() {
                let who = order.who.get(&feared.0.life.node);
                return Err(format!("{number} fears {feared:?}, of whom it knows {who:?}"));
            }
        }
        if views.len() > 1 || stays.clone().any(|(_, view)| view.members.len() != members) {
            let all: Vec<_> =
                up.iter().map(|node| (node.process.node, node.stay.clone())).collect();
            return Err(format!("views differ: {all:?}"));
        }
        Ok(())
    }
}
