//! The membership of the simulation: it knows who is dead, decides views, and tells each node late
//! (recovery.md B1 to B5).

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use dlm_core::{Input, Instant, LockspaceId, Member, View, ViewId};

use crate::lives::space_name;
use crate::world::{Event, Stay, World};

/// Grace between the end of a lease and the death of who has not given up, as a part of the lease.
const GRACE: u64 = 2;

/// What is agreed.
#[derive(Debug)]
pub(crate) struct Membership {
    pub(crate) spaces: Vec<Space>,
    /// Stays that are harmless.
    safe: BTreeSet<Member>,
    /// Lives that are out.
    excluded: BTreeSet<Member>,
    /// Stays of each life, with their lockspaces.
    stays: BTreeMap<Member, Vec<Member>>,
    /// Lockspaces that want a new number.
    pub(crate) renew: BTreeSet<usize>,
    last_view: u32,
}

/// A lockspace.
#[derive(Debug)]
pub(crate) struct Space {
    pub(crate) view: Rc<View>,
    /// Excluded, and not yet known by everybody to be harmless.
    lost: BTreeSet<Member>,
    joining: BTreeSet<Member>,
}

impl Membership {
    pub(crate) fn new(spaces: usize) -> Self {
        let none = || Space {
            view: Rc::new(View { id: ViewId(0), members: Vec::new(), unsafe_members: Vec::new() }),
            lost: BTreeSet::new(),
            joining: BTreeSet::new(),
        };
        Self {
            spaces: (0..spaces).map(|_| none()).collect(),
            safe: BTreeSet::new(),
            excluded: BTreeSet::new(),
            stays: BTreeMap::new(),
            renew: BTreeSet::new(),
            last_view: 100,
        }
    }
}

fn node_of(member: Member) -> usize {
    member.node.0 as usize - 1
}

impl World {
    pub(crate) fn membership_event(&mut self, event: Event) -> Result<(), String> {
        match event {
            Event::TellView { node, space, view, .. } => self.tell_view(node, space, &view),
            Event::TellSafe { node, member, .. } => self.tell_safe(node, member),
            Event::TellExcluded { node, life } => {
                if self.hosts[node].cut {
                    self.later(self.options.period, Event::TellExcluded { node, life });
                    return Ok(());
                }
                self.exclude_host(node)
            }
            Event::Renew { node, life } => self.renew(node, life),
            Event::LeaseOver { node, life, until } => self.lease_over(node, life, until),
            Event::LeaseSafe { life } => self.lease_safe(life),
            Event::Notice { life, sure } => {
                let host = &self.hosts[node_of(life)];
                let lives = host.alive && host.life == life;
                if lives && !sure && !host.cut && !host.paused {
                    return Ok(());
                }
                self.notice(life)
            }
            Event::Decide { space } => {
                self.decide(space);
                Ok(())
            }
            Event::BecomeSafe { life } => {
                self.become_safe(life);
                Ok(())
            }
            Event::Mend { node } => {
                self.mend(node);
                Ok(())
            }
            Event::Wake { node, life } => self.wake(node, life),
            Event::Heal { from, to } => {
                self.heal(from, to);
                Ok(())
            }
            other => Err(format!("nobody handles {other:?}")),
        }
    }

    /// A node created a lockspace and wants in.
    pub(crate) fn join(&mut self, node: usize, id: LockspaceId, name: &[u8], member: Member) {
        let space = self.space_of(name);
        self.hosts[node].stays[space] =
            Some(Stay { member, id, view: None, safe: BTreeSet::new() });
        self.membership.spaces[space].joining.insert(member);
        self.membership.stays.entry(member.life()).or_default().push(member);
        self.later(self.options.notice, Event::Decide { space });
    }

    /// A lockspace is gone from a node.
    pub(crate) fn left(&mut self, node: usize, name: &[u8]) {
        let space = self.space_of(name);
        if let Some(stay) = self.hosts[node].stays[space].take() {
            self.membership.spaces[space].joining.remove(&stay.member);
        }
        self.later(self.options.notice, Event::Decide { space });
    }

    fn space_of(&self, name: &[u8]) -> usize {
        let same = |space: &usize| space_name(*space).as_bytes() == name;
        (0..self.options.spaces).find(same).expect("clients create these only")
    }

    /// A life is out: the others go on without it.
    pub(crate) fn notice(&mut self, life: Member) -> Result<(), String> {
        if !self.membership.excluded.insert(life) {
            return Ok(());
        }
        let node = node_of(life);
        let host = &mut self.hosts[node];
        if host.alive && host.life == life {
            host.excluded = true;
            self.oracle.values.node_lost();
            for client in &host.clients {
                client.unanchor(&mut self.oracle);
            }
            let told = Event::TellExcluded { node, life: life.incarnation };
            self.later(2 * self.options.notice, told);
        }
        if let Some(lease) = self.options.lease {
            // The slowest clock of all, twice over.
            let span = (lease + lease / GRACE) * 1000 / (1000 - self.options.drift);
            let at = self.hosts[node].renewed + span + 2;
            self.at(at.max(self.now + 1), Event::LeaseSafe { life });
        }
        for space in 0..self.options.spaces {
            self.decide(space);
        }
        Ok(())
    }

    /// Whether a member of the last view is to stay in the next.
    fn stays(&self, space: usize, member: Member) -> bool {
        let host = &self.hosts[node_of(member)];
        let known = host.stays[space].as_ref().map(|stay| stay.member);
        let lives = host.alive && host.life == member.life();
        !self.membership.excluded.contains(&member.life()) && (!lives || known == Some(member))
    }

    /// Decides the next view of a lockspace, if there is news.
    pub(crate) fn decide(&mut self, space: usize) {
        let old = self.membership.spaces[space].view.clone();
        let mut lost: BTreeSet<Member> = self.membership.spaces[space]
            .lost
            .iter()
            .copied()
            .filter(|member| !self.is_known_harmless(space, *member))
            .collect();
        let excluded = |member: &Member| self.membership.excluded.contains(&member.life());
        lost.extend(old.members.iter().filter(|member| excluded(member)));
        let stay = old.members.iter().copied().filter(|member| self.stays(space, *member));
        let mut members: Vec<Member> = stay.collect();
        let mut news = members != old.members;
        for joiner in self.membership.spaces[space].joining.clone() {
            if self.may_join(space, joiner, &members, &lost) {
                members.push(joiner);
                news = true;
            }
        }
        news |= self.membership.renew.remove(&space);
        self.membership.spaces[space].lost = lost.clone();
        if !news || members.is_empty() {
            if news {
                let none = View { id: old.id, members, unsafe_members: Vec::new() };
                self.membership.spaces[space].view = Rc::new(none);
            }
            return;
        }
        members.sort();
        self.membership.last_view += 1;
        self.views += 1;
        let id = ViewId(self.membership.last_view);
        let unsafe_members = lost.into_iter().collect();
        let view = Rc::new(View { id, members, unsafe_members });
        for member in &view.members {
            self.membership.spaces[space].joining.remove(member);
            let (node, life) = (node_of(*member), member.life().incarnation);
            let view = view.clone();
            let longest = self.options.notice + self.options.delay;
            self.later(longest, Event::TellView { node, life, space, view });
        }
        self.membership.spaces[space].view = view;
    }

    fn may_join(
        &self,
        space: usize,
        joiner: Member,
        members: &[Member],
        lost: &BTreeSet<Member>,
    ) -> bool {
        let host = &self.hosts[node_of(joiner)];
        let there = host.alive && !host.cut && host.life == joiner.life() && !host.excluded;
        let stay = host.stays[space].as_ref().is_some_and(|stay| stay.member == joiner);
        let same_node = |member: &&Member| member.node == joiner.node;
        // B3: not before everything of the node that came earlier is harmless.
        let earlier = self.membership.stays.iter().filter(|(life, _)| life.node == joiner.node);
        let feared = earlier
            .filter(|(life, _)| **life < joiner.life())
            .any(|(_, stays)| stays.iter().any(|stay| !self.membership.safe.contains(stay)));
        let quiet = self.options.eager_joins || lost.is_empty();
        there && stay && quiet && !feared && !members.iter().any(|m| same_node(&m))
    }

    /// Whether a lost member is harmless and everybody in the view knows it.
    fn is_known_harmless(&self, space: usize, member: Member) -> bool {
        let view = &self.membership.spaces[space].view;
        self.membership.safe.contains(&member)
            && view.members.iter().all(|of| {
                let stay = self.hosts[node_of(*of)].stays[space].as_ref();
                stay.is_some_and(|stay| {
                    stay.member == *of
                        && stay.view.as_ref().is_some_and(|installed| installed.id == view.id)
                        && stay.safe.contains(&member)
                })
            })
    }

    fn tell_view(&mut self, node: usize, space: usize, view: &Rc<View>) -> Result<(), String> {
        // Often the latest one is told and those between are skipped.
        let latest = self.membership.spaces[space].view.clone();
        let Some(stay) = &mut self.hosts[node].stays[space] else { return Ok(()) };
        let skip = self.rng.chance(50) && latest.members.contains(&stay.member);
        let view = if skip { latest } else { view.clone() };
        let old = stay.view.as_ref().map_or(ViewId(0), |old| old.id);
        if old >= view.id || !view.members.contains(&stay.member) {
            return Ok(());
        }
        stay.view = Some(view.clone());
        let id = stay.id;
        self.step(node, Input::View(id, (*view).clone()))?;
        let life = self.hosts[node].life.incarnation;
        for member in &view.unsafe_members {
            if self.membership.safe.contains(member) {
                let member = *member;
                self.later(self.options.notice, Event::TellSafe { node, life, member });
            }
        }
        Ok(())
    }

    fn become_safe(&mut self, life: Member) {
        let stays = self.membership.stays.get(&life).cloned().unwrap_or_default();
        for member in stays {
            if !self.membership.safe.insert(member) {
                continue;
            }
            for node in 0..self.hosts.len() {
                if self.hosts[node].alive {
                    let life = self.hosts[node].life.incarnation;
                    self.later(self.options.notice * 2, Event::TellSafe { node, life, member });
                }
            }
        }
    }

    fn tell_safe(&mut self, node: usize, member: Member) -> Result<(), String> {
        for stay in self.hosts[node].stays.iter_mut().flatten() {
            stay.safe.insert(member);
        }
        self.step(node, Input::Safe(member))?;
        Ok(())
    }

    /// The node's lease is renewed, unless that fails.
    fn renew(&mut self, node: usize, life: u64) -> Result<(), String> {
        let lease = self.options.lease.expect("renewals come with leases");
        self.later(lease / 2, Event::Renew { node, life });
        let host = &self.hosts[node];
        let misses = if self.phase_is_rough() { self.options.lease_misses } else { 0 };
        if host.cut || host.excluded || self.rng.chance(misses) {
            return Ok(());
        }
        self.renew_lease(node, lease)
    }

    pub(crate) fn renew_lease(&mut self, node: usize, lease: u64) -> Result<(), String> {
        let until = self.clock(node).0 + lease * 1000;
        let now = self.now;
        let host = &mut self.hosts[node];
        (host.lease_until, host.renewed) = (until, now);
        let life = host.life.incarnation;
        let over = self.world_time(node, Instant(until + lease * 1000 / GRACE));
        self.at(over, Event::LeaseOver { node, life, until });
        self.step(node, Input::LeaseUntil(Instant(until))).map(drop)
    }

    /// The time in which clients of a node without a lease must have given up is over.
    fn lease_over(&mut self, node: usize, life: u64, until: u64) -> Result<(), String> {
        let host = &self.hosts[node];
        if !host.alive || host.life.incarnation != life || host.lease_until != until {
            return Ok(());
        }
        if host.paused {
            self.kill(node); // the watchdog
            return Ok(());
        }
        for client in 0..self.hosts[node].clients.len() {
            self.restart_client(node, client)?;
        }
        Ok(())
    }

    /// Whatever an excluded life does by now, it grants nothing and its clients are gone.
    fn lease_safe(&mut self, life: Member) -> Result<(), String> {
        self.end_ghosts(life);
        let host = &self.hosts[node_of(life)];
        if host.alive && host.life == life {
            if let Some(client) = host.clients.iter().find(|client| !client.is_idle()) {
                return Err(format!("simulator: a client outlived its lease: {client:?}"));
            }
            let orphans = core::mem::take(&mut self.hosts[node_of(life)].orphans);
            for orphan in &orphans {
                self.orphan_gone(orphan);
            }
        }
        self.become_safe(life);
        Ok(())
    }
}
