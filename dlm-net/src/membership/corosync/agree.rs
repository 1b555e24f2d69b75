//! Comparing histories, deciding who takes part, and who is feared. See [`Order`].

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Duration;

use dlm_core::Instant;
use dlm_ipc::control::MemberRecord;

use super::message::{Hello, Left, Lineage, LostRecord, Message, Process};
use super::order::{Act, Order, Who};

impl Order {
    pub(super) fn on_hello(&mut self, from: Process, hello: Hello) {
        // Who somebody is counts in any configuration; what follows from it, in the present one.
        let who = Who {
            process: from,
            life: hello.life,
            first_life: hello.first_life,
            clean: hello.clean,
            boot: hello.boot,
            safe_after: hello.safe_after,
        };
        if self.group.contains(&from) {
            self.who.insert(from.node, who);
        }
        for (node, life) in &hello.harmless {
            let known = self.harmless.entry(*node).or_insert(0);
            *known = (*known).max(*life);
        }
        self.cleared.extend(&hello.cleared);
        self.views.seen(hello.view_floor);
        if Some(hello.tag) == self.tag {
            self.hellos.insert(from, hello);
        }
    }

    /// Whether everybody in the group who talks has introduced himself.
    fn all_heard(&self) -> bool {
        let heard =
            |process: &Process| self.hellos.contains_key(process) || self.is_silent(*process);
        self.hellos.contains_key(&self.setup.own) && self.group.iter().all(heard)
    }

    /// Takes the latest history that anybody in the group knows.
    pub(super) fn compare(&mut self) {
        if !self.all_heard() {
            return;
        }
        self.agreed = self.ring;
        let rank = |lineage: &Lineage| (lineage.epoch, Reverse(lineage.decider));
        let best = self.hellos.values().max_by_key(|hello| rank(&hello.lineage));
        let Some(best) = best.filter(|best| rank(&best.lineage) >= rank(&self.lineage)) else {
            return;
        };
        let (lineage, body) = (best.lineage, best.body.clone());
        let holders = self.hellos.values().filter(|hello| hello.lineage == lineage);
        let lost: Vec<LostRecord> = holders.flat_map(|hello| hello.lost.clone()).collect();
        if lineage != self.lineage {
            // What another history feared counts for nothing in this one.
            self.lost.clear();
            (self.lineage, self.body) = (lineage, body);
            self.acts.extend([Act::Members, Act::Lost]);
        }
        self.fear(lost);
        if !self.takes_part() {
            self.end_life("the cluster went on without this node");
        }
    }

    /// These lives are feared from now on, unless they are known to be harmless.
    fn fear(&mut self, lost: Vec<LostRecord>) {
        for record in lost {
            // Whoever the facts about processes make harmless is noted as such by `prune`.
            if !self.is_marked(record.life.node, record.life.incarnation) {
                self.lost.push((record, self.now));
                self.acts.push_back(Act::Lost);
            }
        }
    }

    /// Whether a life was done without: it cannot take part, or take part again.
    pub(super) fn is_marked(&self, node: u32, life: u64) -> bool {
        let out = |record: &LostRecord| record.life == MemberRecord { node, incarnation: life };
        self.lost.iter().any(|(record, _)| out(record))
            || self.cleared.contains(&(node, life))
            || self.harmless.get(&node).is_some_and(|bound| life <= *bound)
    }

    /// B3: whether a life can do no harm any more.
    fn is_harmless(&self, record: &LostRecord) -> bool {
        let MemberRecord { node, incarnation: life } = record.life;
        let bound = self.harmless.get(&node).is_some_and(|bound| life <= *bound);
        if bound || self.cleared.contains(&(node, life)) {
            return true;
        }
        let Some(who) = self.who.get(&node) else { return false };
        let other_boot = record.boot != 0 && record.boot != who.boot;
        if life < who.first_life {
            // The process says that nothing of an earlier one is left, or the machine was off.
            return who.clean || other_boot;
        }
        life < who.life && self.views.says_ended(node, life)
    }

    /// Forgets whom nobody has to fear any more.
    pub(super) fn prune(&mut self) {
        let before = self.lost.len();
        let mut kept = Vec::with_capacity(before);
        for (record, since) in std::mem::take(&mut self.lost) {
            if !self.is_harmless(&record) {
                kept.push((record, since));
                continue;
            }
            let MemberRecord { node, incarnation } = record.life;
            self.cleared.insert((node, incarnation));
            let clean = self.who.get(&node).filter(|who| who.clean && incarnation < who.first_life);
            if let Some(who) = clean {
                // Nothing of any earlier process is left.
                let bound = self.harmless.entry(node).or_insert(0);
                *bound = (*bound).max(who.first_life - 1);
            }
            self.log(format!("node {node} incarnation {incarnation} is harmless"));
        }
        self.lost = kept;
        if self.lost.len() != before {
            self.acts.push_back(Act::Lost);
        }
    }

    /// The node that decides: the lowest of those that take part and talk; where none does, the
    /// lowest that wants to.
    fn coordinator(&self) -> Option<u32> {
        let talks = |(process, hello): &(&Process, &Hello)| {
            !self.is_silent(**process) && self.body.get(&process.node) == Some(&hello.life)
        };
        let members = self.hellos.iter().filter(talks).map(|(process, _)| process.node);
        members.min().or_else(|| self.wanted().keys().next().copied())
    }

    pub(super) fn is_coordinator(&self) -> bool {
        !self.over && self.all_heard() && self.coordinator() == Some(self.setup.own.node)
    }

    /// Who has to take part: everybody who talks, and either did so before or is new.
    fn wanted(&self) -> BTreeMap<u32, u64> {
        let mut wanted = BTreeMap::new();
        for (process, hello) in &self.hellos {
            let (node, life) = (process.node, hello.life);
            let member = self.body.get(&node) == Some(&life);
            let fresh = hello.fresh && !self.is_marked(node, life);
            let out = self.is_silent(*process)
                || !self.group.contains(process)
                || self.banned.contains(&(node, life))
                || self.goodbyes.contains(&(node, life));
            if !out && (member || (fresh && !wanted.contains_key(&node))) {
                wanted.insert(node, life);
            }
        }
        wanted
    }

    /// Whether those who take part are those who have to.
    pub(super) fn is_settled(&self) -> bool {
        self.wanted() == self.body
    }

    /// The coordinator changes who takes part.
    pub(super) fn propose(&mut self) {
        let Some(tag) = self.tag else { return };
        if !self.is_coordinator() || !self.may_act() || self.proposed == Some((tag, self.lineage)) {
            return;
        }
        let members = self.wanted();
        if members == self.body {
            return;
        }
        self.proposed = Some((tag, self.lineage));
        let (lost, idle) = self.lost_by(&members);
        let (after, decider) = (self.lineage, (self.setup.own.node, self.setup.life));
        self.send(Message::Body { tag, after, decider, members, lost, idle });
    }

    /// Who is feared when these take part, and who is out and held nothing.
    fn lost_by(&self, members: &BTreeMap<u32, u64>) -> (Vec<LostRecord>, BTreeMap<u32, u64>) {
        let record = |node: u32, life: u64, why: u32, (boot, safe_after)| LostRecord {
            life: MemberRecord { node, incarnation: life },
            why,
            wall: self.wall,
            boot,
            witnesses: members.keys().copied().collect(),
            safe_after,
        };
        let mut lost: Vec<LostRecord> = self.feared().map(|(record, _)| record.clone()).collect();
        let mut idle = BTreeMap::new();
        for (node, life) in &self.body {
            if members.get(node) == Some(life) {
                continue;
            }
            if self.goodbyes.contains(&(*node, *life)) || !self.views.may_hold(*node, *life) {
                idle.insert(*node, *life);
            } else {
                let why = self.left.get(node).copied().unwrap_or(Left::ProcessDown);
                let traits = self.views.traits_of(*node, *life);
                lost.push(record(*node, *life, why.number(), traits));
            }
        }
        if self.lineage.epoch == 0 && self.setup.rules.startup_fencing {
            let unseen = self.setup.nodes.iter().filter(|node| !members.contains_key(node));
            let traits = (0, self.setup.safe_after);
            lost.extend(unseen.map(|node| record(*node, 0, 0, traits)));
        }
        // Clients of an earlier process, of which nobody else may know.
        for (process, hello) in &self.hellos {
            let joins =
                members.contains_key(&process.node) && !self.body.contains_key(&process.node);
            if joins && !hello.clean {
                let why = Left::ProcessDown.number();
                let traits = (hello.boot, hello.safe_after);
                lost.push(record(process.node, hello.first_life - 1, why, traits));
            }
        }
        (lost, idle)
    }

    /// The coordinator's word on who takes part.
    pub(super) fn on_body(&mut self, members: BTreeMap<u32, u64>, lost: Vec<LostRecord>) {
        let names = |nodes: &mut dyn Iterator<Item = &u32>| {
            nodes.map(u32::to_string).collect::<Vec<_>>().join(" ")
        };
        let mut line =
            format!("epoch {}: nodes {} take part", self.lineage.epoch, names(&mut members.keys()));
        if !lost.is_empty() {
            let nodes = names(&mut lost.iter().map(|record| &record.life.node));
            line += &format!("; lost and not known to be harmless: {nodes}");
        }
        self.log(line);
        for node in members.keys() {
            self.left.remove(node);
        }
        for (node, who) in &self.who {
            self.views.note_traits(*node, who.life, who.boot, who.safe_after);
        }
        self.body = members;
        self.views.new_body();
        self.lost.retain(|(record, _)| lost.iter().any(|other| other.life == record.life));
        self.fear(lost);
        self.acts.extend([Act::Members, Act::Lost]);
        if self.takes_part() {
            self.took_part = true;
        } else {
            self.end_life("the cluster went on without this node");
        }
    }

    /// Those whose lease made them harmless, though nobody saw it (membership.md, lease): what they
    /// held their machine has ended by now.
    pub(super) fn expire(&mut self) {
        if !(self.is_coordinator() && self.may_act()) {
            return;
        }
        let over = self.lost.iter().filter(|lost| self.lease_ends(lost) <= Some(self.now));
        let over: Vec<_> = over.filter(|lost| self.lease_ends(lost).is_some()).cloned().collect();
        for (LostRecord { life: MemberRecord { node, incarnation: life }, .. }, _) in over {
            if self.expired.insert((node, life)) {
                self.log(format!(
                    "node {node} incarnation {life}: its lease and all after it is over"
                ));
                self.send(Message::Harmless { node, life });
            }
        }
    }

    /// When a feared life is harmless by its lease; `None`: it had none, or its machine is up and what
    /// enforces the lease may have been taken over by the next daemon there.
    pub(super) fn lease_ends(&self, (record, since): &(LostRecord, Instant)) -> Option<Instant> {
        let MemberRecord { node, incarnation: life } = record.life;
        let taken_over = self.who.get(&node).is_some_and(|who| life < who.first_life && !who.clean);
        (record.safe_after > 0 && !taken_over)
            .then(|| since.after(Duration::from_nanos(record.safe_after)))
    }

    /// All who are feared.
    pub(crate) fn feared(&self) -> impl Iterator<Item = &(LostRecord, Instant)> {
        self.lost.iter()
    }
}
