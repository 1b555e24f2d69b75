//! Reports of all daemons, and views of lockspaces, which the coordinator decides from them with the
//! rules of [`Feeder`]. See [`Order`].

use std::collections::{BTreeMap, BTreeSet};

use dlm_core::{Member, NodeId};
use dlm_ipc::control::{ControlRequest, MemberRecord, StayRecord, StaysRecord};

use super::super::feeder::Feeder;
use super::message::{Lineage, Message, ReportPart, Tag};
use super::order::Order;

/// Bytes of stays in one part of a report, counted as [`weight`] does.
const PART_WEIGHT_MAX: usize = 64 * 1024;

/// What is known of everybody's stays.
#[derive(Debug)]
pub(super) struct Views {
    reports: BTreeMap<u32, Reported>,
    own: Option<StaysRecord>,
    sent: Option<StaysRecord>,
    feeder: Option<(Lineage, Feeder)>,
    /// Views and facts that were sent in this configuration.
    told_views: BTreeSet<u32>,
    told_safe: BTreeSet<MemberRecord>,
    /// Reports that the feeder has not seen.
    fresh: BTreeSet<u32>,
    /// Life of nodes, with its boot and lease, as far as known.
    traits: BTreeMap<u32, (u64, u128, u64)>,
    floor: u32,
}

#[derive(Debug, Default)]
struct Reported {
    record: StaysRecord,
    /// Whether it is whole, and of the present configuration.
    whole: bool,
}

impl Views {
    pub(super) fn new(floor: u32) -> Self {
        Self {
            reports: BTreeMap::new(),
            own: None,
            sent: None,
            feeder: None,
            told_views: BTreeSet::new(),
            told_safe: BTreeSet::new(),
            fresh: BTreeSet::new(),
            traits: BTreeMap::new(),
            floor,
        }
    }

    /// View numbers up to this one may have been used.
    pub(super) fn floor(&self) -> u32 {
        self.floor
    }

    pub(super) fn seen(&mut self, view: u32) {
        self.floor = self.floor.max(view);
    }

    pub(super) fn set_own(&mut self, report: StaysRecord) {
        self.own = Some(report);
    }

    /// All is said again.
    pub(super) fn own_anew(&mut self) {
        (self.own, self.sent) = (None, None);
    }

    /// Whether this daemon has nothing that anybody could fear.
    pub(super) fn own_is_idle(&self) -> bool {
        self.own.as_ref().is_none_or(|own| own.stays.is_empty() && own.remains.is_empty())
    }

    pub(super) fn new_configuration(&mut self) {
        self.reports.values_mut().for_each(|report| report.whole = false);
        self.sent = None;
        self.new_body();
    }

    pub(super) fn new_body(&mut self) {
        self.feeder = None;
        self.told_views.clear();
        self.told_safe.clear();
    }

    pub(super) fn forget(&mut self) {
        self.reports.clear();
        self.new_configuration();
    }

    pub(super) fn note_traits(&mut self, node: u32, life: u64, boot: u128, safe_after: u64) {
        self.traits.insert(node, (life, boot, safe_after));
    }

    /// The boot of its machine that a life belongs to, and after how long its lease makes it
    /// harmless; 0 unknown, and none.
    pub(super) fn traits_of(&self, node: u32, life: u64) -> (u128, u64) {
        let known = self.traits.get(&node).filter(|(known, ..)| *known == life);
        known.map_or((0, 0), |(_, boot, safe_after)| (*boot, *safe_after))
    }

    /// A daemon says something of itself.
    pub(super) fn on_part(&mut self, node: u32, part: ReportPart) {
        let known = self.reports.entry(node).or_default();
        if part.anew {
            known.record = StaysRecord::default();
        }
        let record = &mut known.record;
        (record.node, record.life, record.first_life) = (node, part.life, part.first_life);
        record.remains = part.remains;
        record.connected = part.connected;
        record.unreachable = part.unreachable;
        let changed = |name: &Vec<u8>| part.stays.iter().any(|stay| stay.lockspace == *name);
        record
            .stays
            .retain(|stay| !part.left.contains(&stay.lockspace) && !changed(&stay.lockspace));
        record.stays.extend(part.stays);
        known.whole = !part.more && (known.whole || part.anew || known.record.more);
        // Until the last part is here the record says so.
        known.record.more = part.more;
        let floor = known.record.stays.iter().map(|stay| stay.view.id).max();
        self.seen(floor.unwrap_or(0));
        if !part.more {
            self.fresh.insert(node);
        }
    }

    /// Whether a node's daemon says that it ended this life, and that all who lost it have closed.
    pub(super) fn says_ended(&self, node: u32, life: u64) -> bool {
        self.reports.get(&node).is_some_and(|known| {
            let record = &known.record;
            !record.more
                && (record.first_life..record.life).contains(&life)
                && !record.remains.contains(&life)
        })
    }

    /// Whether something of a life may hold locks, as far as anybody knows.
    pub(super) fn may_hold(&self, node: u32, life: u64) -> bool {
        self.reports.get(&node).is_none_or(|known| {
            let record = &known.record;
            record.more
                || record.life != life
                || !record.stays.is_empty()
                || !record.remains.is_empty()
        })
    }
}

impl Order {
    /// Tells the others what changed of this daemon's report.
    pub(super) fn say_report(&mut self, tag: Tag) {
        let Some(own) = self.views.own.clone() else { return };
        if own.life != self.setup.life || self.views.sent.as_ref() == Some(&own) {
            return;
        }
        for part in parts(tag, self.views.sent.as_ref(), &own) {
            self.send(Message::Report(part));
        }
        self.views.sent = Some(own);
    }

    /// The coordinator decides views.
    pub(super) fn decide(&mut self, tag: Tag) {
        let mut feeder = match self.views.feeder.take() {
            Some((lineage, feeder)) if lineage == self.lineage => feeder,
            _ => self.new_feeder(),
        };
        for (node, life) in &self.cleared {
            let member = Member { node: NodeId(*node), incarnation: *life };
            let bound = self.harmless.get(node).copied();
            feeder.found_harmless(member, bound.unwrap_or(0));
        }
        feeder.close_doors(!self.lost.is_empty());
        for node in std::mem::take(&mut self.views.fresh) {
            let report = self.views.reports.get(&node).filter(|report| report.whole);
            if let Some(report) = report
                && self.body.get(&node) == Some(&report.record.life)
            {
                feeder.report(report.record.clone());
            }
        }
        self.tell(tag, &feeder);
        self.views.feeder = Some((self.lineage, feeder));
    }

    fn new_feeder(&mut self) -> Feeder {
        self.views.new_body();
        let floor = u64::from(self.views.floor).max(self.wall);
        self.views.fresh = self.body.keys().copied().collect();
        let mut feeder = Feeder::new(self.body.keys().copied(), floor);
        // Another one may have decided views of which nobody here heard.
        let (nodes, own) = (&self.setup.nodes, self.setup.own.node);
        let rank = nodes.iter().filter(|node| **node < own).count();
        feeder.number_among(rank as u32, (nodes.len() as u32).next_power_of_two());
        feeder
    }

    fn tell(&mut self, tag: Tag, feeder: &Feeder) {
        for (node, life) in self.body.clone() {
            for command in feeder.commands(node) {
                self.tell_once(tag, (node, life), command);
            }
        }
    }

    /// What a node has to be told, all are told, once in a configuration.
    fn tell_once(&mut self, tag: Tag, life: (u32, u64), command: ControlRequest) {
        let message = match command {
            ControlRequest::View { lockspace, view } => {
                let lineage = self.lineage;
                let news = self.views.told_views.insert(view.id);
                news.then_some(Message::View { tag, lineage, lockspace, view })
            }
            ControlRequest::Safe { member } => {
                let news = self.views.told_safe.insert(member);
                news.then_some(Message::Safe { member })
            }
            ControlRequest::Exclude { .. } if self.banned.insert(life) => {
                let node = life.0;
                self.log(format!("node {node} cannot talk to the others and is done without"));
                None
            }
            _ => None,
        };
        if let Some(message) = message {
            self.send(message);
        }
    }
}

/// What has to be said after `before` so that others know `now`.
fn parts(tag: Tag, before: Option<&StaysRecord>, now: &StaysRecord) -> Vec<ReportPart> {
    let before_stays = before.map_or(&[][..], |before| &before.stays);
    let is_new = |stay: &&StayRecord| !before_stays.contains(stay);
    let is_left =
        |stay: &&StayRecord| !now.stays.iter().any(|other| other.lockspace == stay.lockspace);
    let mut part = ReportPart {
        tag,
        anew: before.is_none(),
        more: false,
        life: now.life,
        first_life: now.first_life,
        remains: now.remains.clone(),
        connected: now.connected.clone(),
        unreachable: now.unreachable.clone(),
        stays: Vec::new(),
        left: before_stays.iter().filter(is_left).map(|stay| stay.lockspace.clone()).collect(),
    };
    let (mut all, mut filled) = (Vec::new(), 0);
    for stay in now.stays.iter().filter(is_new) {
        if filled > 0 && filled + weight(stay) > PART_WEIGHT_MAX {
            all.push(ReportPart { more: true, ..part.clone() });
            (part.anew, part.stays, part.left, filled) = (false, Vec::new(), Vec::new(), 0);
        }
        filled += weight(stay);
        part.stays.push(stay.clone());
    }
    all.push(part);
    all
}

/// An upper bound of a stay's bytes in a message.
fn weight(stay: &StayRecord) -> usize {
    128 + 14 * (stay.view.members.len() + stay.view.unsafe_members.len())
}
