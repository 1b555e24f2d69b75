//! Decides views and facts of safety for daemons with `membership = external`.
//!
//! One feeder is the authority for all its daemons. It knows two things that no daemon knows: which
//! lives are gone with everything that acted for them ([`Feeder::gone`]: whoever reaped the processes
//! knows), and which are to be done without ([`Feeder::exclude`]). The rest it asks for: a daemon's
//! report says which lockspaces it wants to be in, and what it has installed.
//!
//! Everything follows from the latest reports, so a command that got lost, and a feeder that starts
//! anew, repair themselves: what a report lacks is sent again. The rules of recovery.md section 1:
//!
//! - B1: numbers come from one sequence that begins above the clock and above every number reported;
//!   joins wait while somebody excluded is not known to be harmless.
//! - B2: a view is decided once and sent as it was decided.
//! - B3: a life that begins does not make the one before harmless. Harmless is who is gone, and a life
//!   that its own daemon ended, once the clients that lost it have closed their handles. A stay that
//!   its daemon does not list any more was left, and is harmless by that.
//! - B4: what counts as installed is the number in the report.

use std::collections::{BTreeMap, BTreeSet};

use dlm_core::{JOINS_PER_LIFE, Member, NodeId, View, ViewId};
use dlm_ipc::control::{ControlRequest, MemberRecord, StayRecord, StaysRecord, ViewRecord};

/// The authority over views.
#[derive(Debug)]
pub struct Feeder {
    nodes: BTreeMap<u32, Known>,
    spaces: BTreeMap<Vec<u8>, Space>,
    /// Last view number used.
    last_view: u32,
    /// Numbers of this feeder, where several may decide one after another: those that leave this rest
    /// when divided by this many.
    rest: (u32, u32),
    /// Single lives that are harmless, and up to which life each node's are.
    harmless: BTreeSet<Member>,
    harmless_up_to: BTreeMap<u32, u64>,
    /// Nobody is let into a lockspace.
    closed: bool,
}

/// What is known about a node.
#[derive(Debug, Default)]
struct Known {
    report: Option<StaysRecord>,
    /// Lives below this are gone.
    gone_below: u64,
    /// Lives below this are excluded, or were.
    excluded_below: u64,
}

/// A lockspace.
#[derive(Debug)]
struct Space {
    view: View,
}

impl Feeder {
    /// A feeder of these nodes. `wall_seconds` is the wall clock, in seconds since 1970.
    pub fn new(nodes: impl IntoIterator<Item = u32>, wall_seconds: u64) -> Self {
        Self {
            nodes: nodes.into_iter().map(|node| (node, Known::default())).collect(),
            spaces: BTreeMap::new(),
            last_view: u32::try_from(wall_seconds).unwrap_or(u32::MAX / 2),
            rest: (0, 1),
            harmless: BTreeSet::new(),
            harmless_up_to: BTreeMap::new(),
            closed: false,
        }
    }

    /// Only numbers that leave `rest` when divided by `among` are used: nobody else of so many uses
    /// them, so that what two decided who did not know of each other never has one number.
    pub fn number_among(&mut self, rest: u32, among: u32) {
        self.rest = (rest % among.max(1), among.max(1));
    }

    fn next_number(&self) -> u32 {
        let (rest, among) = self.rest;
        let next = self.last_view + 1;
        next + (rest + among - next % among) % among
    }

    /// This life is harmless, somebody found out, and all lives of the node up to `bound`.
    pub fn found_harmless(&mut self, life: Member, bound: u64) {
        let known = self.harmless_up_to.entry(life.node.0).or_insert(0);
        let news = self.harmless.insert(life) | (*known < bound);
        *known = bound.max(*known);
        if news {
            self.decide();
        }
    }

    /// Whether joins wait, since somebody is feared of whom it is not known where he was.
    pub fn close_doors(&mut self, closed: bool) {
        if std::mem::replace(&mut self.closed, closed) != closed {
            self.decide();
        }
    }

    /// Takes a node's whole report, and decides.
    pub fn report(&mut self, report: StaysRecord) {
        for stay in &report.stays {
            self.last_view = self.last_view.max(stay.view.id);
        }
        let known = self.nodes.get_mut(&report.node);
        if let Some(known) = known.filter(|known| report.life >= known.gone_below) {
            known.report = Some(report);
        }
        self.decide();
    }

    /// Every life of a node that was heard of so far is gone, with its clients: the caller reaped the
    /// processes. Say it before the node's daemon is started again.
    pub fn gone(&mut self, node: u32) {
        let end = self.last_life(node) + JOINS_PER_LIFE;
        if let Some(known) = self.nodes.get_mut(&node) {
            known.gone_below = end;
            known.report = None;
        }
        self.decide();
    }

    /// The others go on without the present life of a node.
    pub fn exclude(&mut self, node: u32) {
        let end = self.last_life(node) + JOINS_PER_LIFE;
        if let Some(known) = self.nodes.get_mut(&node) {
            known.excluded_below = end;
        }
        self.decide();
    }

    /// What a node has to be told after its last report.
    pub fn commands(&self, node: u32) -> Vec<ControlRequest> {
        let Some(known) = self.nodes.get(&node) else { return Vec::new() };
        let Some(report) = &known.report else { return Vec::new() };
        if report.life < known.excluded_below {
            return vec![ControlRequest::Exclude { life: report.life }];
        }
        let (life, at) = (report.life, report.tick);
        let tick = (at != 0).then_some(ControlRequest::Tick { life, at });
        let stays = report.stays.iter().flat_map(|stay| self.commands_for(node, stay));
        tick.into_iter().chain(stays).collect()
    }

    fn commands_for(&self, node: u32, stay: &StayRecord) -> Vec<ControlRequest> {
        let mut commands = Vec::new();
        let harmless = stay.view.unsafe_members.iter().filter(|m| self.is_harmless(member(m)));
        commands.extend(harmless.map(|member| ControlRequest::Safe { member: *member }));
        let Some(space) = self.spaces.get(&stay.lockspace) else { return commands };
        let own = Member { node: NodeId(node), incarnation: stay.incarnation };
        if space.view.members.contains(&own) && space.view.id.0 > stay.view.id {
            let (lockspace, view) = (stay.lockspace.clone(), record(&space.view));
            commands.insert(0, ControlRequest::View { lockspace, view });
        }
        commands
    }

    /// Whether nothing is left to do: all that want in are in, all have the latest view, and nobody
    /// excluded is feared.
    pub fn is_settled(&self) -> bool {
        let fine = |known: &Known| match &known.report {
            None => known.gone_below > 0,
            Some(report) => {
                report.life >= known.excluded_below
                    && report.stays.iter().all(|stay| {
                        let current = self.spaces.get(&stay.lockspace);
                        current.is_some_and(|space| {
                            space.view.id.0 == stay.view.id && stay.view.unsafe_members.is_empty()
                        })
                    })
            }
        };
        self.nodes.values().all(fine)
            && self.spaces.values().all(|space| {
                space.view.unsafe_members.iter().all(|member| self.is_harmless(*member))
            })
    }

    /// Up to which life a node is excluded, while that life is not known to be harmless.
    pub fn feared_up_to(&self, node: u32) -> Option<Member> {
        let life = self.nodes.get(&node)?.excluded_below.checked_sub(1)?;
        let life = Member { node: NodeId(node), incarnation: life };
        (!self.is_harmless(life)).then_some(life)
    }

    /// The view that was last decided for a lockspace.
    pub fn view(&self, lockspace: &[u8]) -> Option<&View> {
        self.spaces.get(lockspace).map(|space| &space.view)
    }

    fn last_life(&self, node: u32) -> u64 {
        let views = self.spaces.values().map(|space| &space.view);
        let members = views.flat_map(|view| view.members.iter().chain(&view.unsafe_members));
        let seen = members.filter(|member| member.node.0 == node).map(|member| member.life());
        let seen = seen.map(|life| life.incarnation).max().unwrap_or(0);
        let told = self.nodes.get(&node).and_then(|known| known.report.as_ref());
        seen.max(told.map_or(0, |report| report.life))
    }

    /// B3: whether a member can do no harm any more.
    fn is_harmless(&self, member: Member) -> bool {
        let life = member.life().incarnation;
        let bound = self.harmless_up_to.get(&member.node.0).copied();
        if self.harmless.contains(&member.life()) || bound.is_some_and(|bound| life <= bound) {
            return true;
        }
        let Some(known) = self.nodes.get(&member.node.0) else { return false };
        if life < known.gone_below {
            return true;
        }
        // Its daemon ended it, and all its clients have confirmed that.
        known.report.as_ref().is_some_and(|report| {
            (report.first_life..report.life).contains(&life) && !report.remains.contains(&life)
        })
    }

    fn decide(&mut self) {
        let heard = |known: &Known| {
            known.report.is_some() || known.gone_below > 0 || known.excluded_below > 0
        };
        if !self.nodes.values().all(heard) {
            // Who was not heard may have a later view than all others.
            return;
        }
        self.adopt();
        self.settle_quarrels();
        let names: BTreeSet<Vec<u8>> = self
            .stays()
            .map(|(_, stay)| stay.lockspace.clone())
            .chain(self.spaces.keys().cloned())
            .collect();
        for name in names {
            self.decide_space(&name);
        }
    }

    /// All stays reported, with their nodes' reports.
    fn stays(&self) -> impl Iterator<Item = (&StaysRecord, &StayRecord)> {
        let reports = self.nodes.values().filter_map(|known| known.report.as_ref());
        reports.flat_map(|report| report.stays.iter().map(move |stay| (report, stay)))
    }

    /// B5: of a pair that cannot talk, one must go: whom most complain about, of equals the higher.
    fn settle_quarrels(&mut self) {
        let mut complaints: BTreeMap<u32, u32> = BTreeMap::new();
        for (node, known) in &self.nodes {
            let Some(report) = &known.report else { continue };
            for other in report.unreachable.iter().filter(|other| self.shares(*node, **other)) {
                *complaints.entry(*other).or_default() += 1;
                *complaints.entry(*node).or_default() += 1;
            }
        }
        let worst = complaints.iter().max_by_key(|(node, count)| (**count, **node));
        if let Some((node, _)) = worst {
            let end = self.last_life(*node) + JOINS_PER_LIFE;
            if let Some(known) = self.nodes.get_mut(node) {
                known.excluded_below = end;
            }
        }
    }

    /// Whether two nodes are members of one lockspace, so that they have to talk.
    fn shares(&self, one: u32, other: u32) -> bool {
        let has = |view: &View, node: u32| view.members.iter().any(|member| member.node.0 == node);
        self.spaces.values().any(|space| has(&space.view, one) && has(&space.view, other))
    }

    /// What an earlier feeder decided: the latest view that anybody has installed.
    fn adopt(&mut self) {
        let latest: Vec<(Vec<u8>, View)> = self
            .stays()
            .filter(|(_, stay)| stay.view.id > 0)
            .map(|(_, stay)| (stay.lockspace.clone(), view(&stay.view)))
            .collect();
        for (name, view) in latest {
            let known = self.spaces.get(&name).map_or(ViewId(0), |space| space.view.id);
            if view.id > known {
                self.spaces.insert(name, Space { view });
            }
        }
        // Who has installed a view and is not in the latest one was excluded.
        let outside: Vec<(u32, u64)> = self
            .stays()
            .filter(|(report, stay)| {
                let own = Member { node: NodeId(report.node), incarnation: stay.incarnation };
                let space = self.spaces.get(&stay.lockspace);
                stay.view.id > 0 && space.is_none_or(|space| !space.view.members.contains(&own))
            })
            .map(|(report, _)| (report.node, report.life + JOINS_PER_LIFE))
            .collect();
        for (node, end) in outside {
            let known = self.nodes.entry(node).or_default();
            known.excluded_below = known.excluded_below.max(end);
        }
    }

    fn decide_space(&mut self, name: &[u8]) {
        let none = View { id: ViewId(0), members: Vec::new(), unsafe_members: Vec::new() };
        let old = self.spaces.get(name).map_or(none, |space| space.view.clone());
        let mut unsafe_members = BTreeSet::new();
        let mut members = BTreeSet::new();
        for member in &old.members {
            match self.standing(*member, name) {
                Standing::Stays => drop(members.insert(*member)),
                Standing::Left => {}
                Standing::Lost => drop(unsafe_members.insert(*member)),
            }
        }
        let feared = |member: &&Member| !self.is_known_harmless(**member, name, &old, &members);
        unsafe_members.extend(old.unsafe_members.iter().filter(feared));
        let mut news = members.len() != old.members.len();
        if unsafe_members.is_empty() && !self.closed {
            for joiner in self.joiners(name) {
                let talks = members.iter().all(|member| self.can_talk(joiner, *member));
                news |= talks && members.insert(joiner);
            }
        }
        news |= self.stays().any(|(report, stay)| {
            let own = Member { node: NodeId(report.node), incarnation: stay.incarnation };
            stay.lockspace == name
                && stay.wants_view
                && stay.view.id == old.id.0
                && members.contains(&own)
        });
        if members.is_empty() && unsafe_members.is_empty() {
            self.spaces.remove(name);
        } else if news {
            self.last_view = self.next_number();
            let (members, unsafe_members) =
                (members.into_iter().collect(), unsafe_members.into_iter().collect());
            let view = View { id: ViewId(self.last_view), members, unsafe_members };
            self.spaces.insert(name.to_vec(), Space { view });
        }
    }

    /// Whether a member that `old` excludes is harmless and all the members know it, so that the next
    /// view need not name it: whoever skips a view learns of the members it lost from the next one.
    fn is_known_harmless(
        &self,
        member: Member,
        name: &[u8],
        old: &View,
        members: &BTreeSet<Member>,
    ) -> bool {
        let record = MemberRecord { node: member.node.0, incarnation: member.incarnation };
        let knows = |other: &Member| {
            self.stays().any(|(report, stay)| {
                let own = Member { node: NodeId(report.node), incarnation: stay.incarnation };
                own == *other
                    && stay.lockspace == name
                    && stay.view.id == old.id.0
                    && !stay.view.unsafe_members.contains(&record)
            })
        };
        self.is_harmless(member) && members.iter().all(knows)
    }

    /// Whether two members' daemons can talk to each other, as both of them say.
    fn can_talk(&self, one: Member, other: Member) -> bool {
        let says = |from: Member, to: Member| {
            let report = self.nodes.get(&from.node.0).and_then(|known| known.report.as_ref());
            report.is_some_and(|report| report.connected.contains(&to.node.0))
        };
        one == other || says(one, other) && says(other, one)
    }

    /// What has become of a member.
    fn standing(&self, member: Member, name: &[u8]) -> Standing {
        let Some(known) = self.nodes.get(&member.node.0) else { return Standing::Lost };
        let life = member.life().incarnation;
        let Some(report) = &known.report else { return Standing::Lost };
        if life < known.excluded_below || report.life != life {
            return Standing::Lost;
        }
        let stays =
            |stay: &StayRecord| stay.lockspace == name && stay.incarnation == member.incarnation;
        if report.stays.iter().any(stays) { Standing::Stays } else { Standing::Left }
    }

    /// Who waits to be let in.
    fn joiners(&self, name: &[u8]) -> Vec<Member> {
        self.stays()
            .filter(|(report, stay)| {
                let excluded = self.nodes.get(&report.node).map_or(0, |known| known.excluded_below);
                stay.lockspace == name && stay.view.id == 0 && report.life >= excluded
            })
            .map(|(report, stay)| Member {
                node: NodeId(report.node),
                incarnation: stay.incarnation,
            })
            .collect()
    }
}

/// What has become of a member of the last view.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Standing {
    /// It is as it was.
    Stays,
    /// It left: nothing of it is anywhere.
    Left,
    /// It is out: its locks are given up once it is harmless.
    Lost,
}

fn member(record: &MemberRecord) -> Member {
    Member { node: NodeId(record.node), incarnation: record.incarnation }
}

/// A view in the core's words.
pub fn view(record: &ViewRecord) -> View {
    View {
        id: ViewId(record.id),
        members: record.members.iter().map(member).collect(),
        unsafe_members: record.unsafe_members.iter().map(member).collect(),
    }
}

/// A view in the words of control messages.
pub fn record(view: &View) -> ViewRecord {
    let of =
        |member: &Member| MemberRecord { node: member.node.0, incarnation: member.incarnation };
    ViewRecord {
        id: view.id.0,
        members: view.members.iter().map(of).collect(),
        unsafe_members: view.unsafe_members.iter().map(of).collect(),
    }
}

#[cfg(test)]
#[path = "feeder_tests.rs"]
mod tests;
