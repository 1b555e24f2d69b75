//! What this daemon makes of the group: who takes part, who was lost, and what it may do. No I/O.
//!
//! The lives that take part are the **body**; each change of it is an **epoch**, decided by the
//! coordinator (the lowest node of the body that talks) in a quorate ring, and valid where it is
//! delivered in the configuration for which it was decided. In every new configuration each daemon says
//! which epoch it knows ([`Hello`]); the latest one counts. So continuity is compared by what a node
//! *acknowledged* (B4): whoever is not in the body of the latest epoch, and once took part, was done
//! without: its life is over. A stall, a burst of changes or a merge of parts of which none decided
//! anything costs nobody its life; a node that the others went on without loses it, also where no
//! callback ever told it so.
//!
//! Everybody keeps the same facts: who is feared ([`LostRecord`]) and who is known to be harmless.
//! Grants need [`Act::Standing`]: rings of group and quorum agree, the ring is quorate, history was
//! compared in it, and this node's own clock has no gap since its last tick came back.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use dlm_core::{Instant, Member, NodeId, View};
use dlm_ipc::control::{MemberRecord, StaysRecord};

use super::hindered::Hindered;
use super::message::{Event, Hello, Left, Lineage, LostRecord, Message, Process, Ring, Tag};
use super::renewal::Ticks;
use super::views::Views;

/// Time between two ticks of a daemon.
pub(crate) const TICK: Duration = Duration::from_millis(250);
/// A daemon is silent when this many of our own ticks came back since it was last heard: what holds
/// up the group holds up both.
const SILENT_TICKS: u64 = 16;
/// A pause of our own from which on others may have gone on without us.
const GAP: Duration = Duration::from_millis(SILENT_TICKS * 250);

/// How long the engine may deliver nothing, as it does while it forms a ring, before nothing is granted.
const STALL: Duration = Duration::from_millis(2 * SILENT_TICKS * 250);
/// What hinders for so long is logged; each change of the ring hinders for a moment.
const NOTEWORTHY: Duration = Duration::from_millis(750);

/// What the configuration says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Rules {
    /// Nothing is decided or granted without quorum.
    pub(crate) quorum_lockspace: bool,
    /// Nobody is fenced without quorum.
    pub(crate) quorum_fencing: bool,
    /// Configured nodes that nobody has seen are feared.
    pub(crate) startup_fencing: bool,
}

/// What a daemon brings with it.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    pub(crate) own: Process,
    pub(crate) life: u64,
    /// All configured nodes.
    pub(crate) nodes: BTreeSet<u32>,
    pub(crate) rules: Rules,
    /// Whether no client of an earlier process on this machine can act any more.
    pub(crate) clean: bool,
    /// Which boot of the machine this is.
    pub(crate) boot: u128,
    /// View numbers up to this one may have been used.
    pub(crate) view_floor: u32,
    /// After how many nanoseconds a lease makes a node harmless that was excluded; 0: there is none.
    pub(crate) safe_after: u64,
}

/// What is to be done.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Act {
    /// Send to all.
    Send(Message),
    /// Install, if this node is in it.
    View { lockspace: Vec<u8>, view: View },
    /// A member of a view is harmless.
    Safe(Member),
    /// This life is over; [`Order::begin_life`] goes on.
    LifeOver(&'static str),
    /// Whether this node may grant.
    Standing(bool),
    /// The cluster had this node at this time.
    Lease(Instant),
    /// For fencing.
    Fence { from: u32, bytes: Vec<u8> },
    /// Who takes part, or whether fencing is allowed, has changed.
    Members,
    /// Who is feared has changed.
    Lost,
    /// The history of membership, for the log.
    Log(String),
}

/// A daemon as it last introduced itself.
#[derive(Clone, Debug)]
pub(super) struct Who {
    pub(super) process: Process,
    pub(super) life: u64,
    pub(super) first_life: u64,
    pub(super) clean: bool,
    pub(super) boot: u128,
    pub(super) safe_after: u64,
}

/// The state machine.
#[derive(Debug)]
pub(crate) struct Order {
    pub(super) setup: Setup,
    pub(super) first: u64,
    pub(super) now: Instant,
    pub(super) wall: u64,
    pub(super) ring: Option<Ring>,
    pub(super) quorum: Option<(Ring, bool)>,
    pub(super) group: BTreeSet<Process>,
    pub(super) tag: Option<Tag>,
    /// The ring in which history was compared.
    pub(super) agreed: Option<Ring>,
    /// Of this configuration.
    pub(super) hellos: BTreeMap<Process, Hello>,
    pub(super) who: BTreeMap<u32, Who>,
    pub(super) lineage: Lineage,
    pub(super) body: BTreeMap<u32, u64>,
    /// Whether this life took part.
    pub(super) took_part: bool,
    /// Whether it is over, and the next one not begun.
    pub(super) over: bool,
    pub(super) lost: Vec<(LostRecord, Instant)>,
    pub(super) harmless: BTreeMap<u32, u64>,
    /// Single lives that are harmless.
    pub(super) cleared: BTreeSet<(u32, u64)>,
    /// Lives of which was said that their lease is over.
    pub(super) expired: BTreeSet<(u32, u64)>,
    pub(super) left: BTreeMap<u32, Left>,
    pub(super) goodbyes: BTreeSet<(u32, u64)>,
    /// What was proposed last, so that it is proposed once.
    pub(super) proposed: Option<(Tag, Lineage)>,
    /// Lives that have to go since they cannot talk to the others (B5).
    pub(super) banned: BTreeSet<(u32, u64)>,
    pub(super) views: Views,
    own_ticks: u64,
    /// When one of them came back last.
    came_back: Instant,
    /// When one was sent that has not come back.
    tick_out: Option<Instant>,
    heard: BTreeMap<Process, u64>,
    pub(super) ticks: Ticks,
    next_tick: Instant,
    turned: Instant,
    /// Our clock had a gap; our tick of this time has to come back first.
    gap: Option<Instant>,
    standing: bool,
    /// Since when what hinders is as it is, and whether that was logged.
    pub(super) hindered: Option<(Hindered, Instant)>,
    logged: Option<Hindered>,
    pub(super) acts: VecDeque<Act>,
}

impl Order {
    /// A daemon that has not joined yet.
    pub(crate) fn new(setup: Setup, now: Instant, wall: u64) -> Self {
        let first = setup.life;
        let views = Views::new(setup.view_floor);
        Self {
            setup,
            first,
            now,
            wall,
            ring: None,
            quorum: None,
            group: BTreeSet::new(),
            tag: None,
            agreed: None,
            hellos: BTreeMap::new(),
            who: BTreeMap::new(),
            lineage: Lineage::default(),
            body: BTreeMap::new(),
            took_part: false,
            over: false,
            lost: Vec::new(),
            harmless: BTreeMap::new(),
            cleared: BTreeSet::new(),
            expired: BTreeSet::new(),
            left: BTreeMap::new(),
            goodbyes: BTreeSet::new(),
            proposed: None,
            banned: BTreeSet::new(),
            views,
            own_ticks: 0,
            came_back: now,
            tick_out: None,
            heard: BTreeMap::new(),
            ticks: Ticks::default(),
            next_tick: now,
            turned: now,
            gap: None,
            standing: true,
            hindered: None,
            logged: None,
            acts: VecDeque::new(),
        }
    }

    /// The next thing to do.
    pub(crate) fn next(&mut self) -> Option<Act> {
        self.acts.pop_front()
    }

    /// Whether this node is in the group.
    pub(crate) fn is_joined(&self) -> bool {
        self.group.contains(&self.setup.own)
    }

    /// When [`Order::on_time`] is due.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.is_joined().then_some(self.next_tick)
    }

    /// The clock; to be called in every turn, before anything else.
    pub(crate) fn on_time(&mut self, now: Instant, wall: u64) {
        let paused = now.0.saturating_sub(self.turned.0);
        (self.now, self.wall, self.turned) = (now, wall, now);
        if paused >= GAP.as_nanos() as u64 && self.is_joined() {
            self.gap = Some(now);
            self.log(format!(
                "this daemon stood still for {} ms; it grants nothing until the others are heard",
                paused / 1_000_000
            ));
        }
        if !self.is_joined() {
            self.came_back = now;
        }
        if self.is_joined() && now >= self.next_tick {
            self.next_tick = now.after(TICK);
            self.expire();
            // One at a time: what the engine holds up must not come back all at once, as if the others
            // had been silent.
            if self.tick_out.is_none_or(|sent| now >= sent.after(STALL)) {
                self.tick_out = Some(now);
                self.send(Message::Tick { at: now.0, heard: self.ticks.heard() });
            }
        }
        self.evaluate();
    }

    /// The group's, or quorum's, word.
    pub(crate) fn event(&mut self, event: Event) {
        match event {
            Event::Ring(ring) => {
                self.ring = Some(ring);
                self.retag();
            }
            Event::Group { members, left, new_ring } => {
                self.group = members.into_iter().collect();
                if new_ring {
                    self.ring = None;
                }
                for (process, why) in left {
                    self.left.insert(process.node, why);
                    self.who.retain(|_, who| who.process != process);
                }
                self.retag();
            }
            Event::Quorum { ring, quorate } => self.quorum = Some((ring, quorate)),
            Event::Message { from, bytes } => {
                self.heard.insert(from, self.own_ticks);
                if let Some(message) = Message::from_bytes(&bytes) {
                    self.on_message(from, message);
                }
            }
        }
        self.evaluate();
    }

    /// The engine below is lost: nothing is known any more, and the others go on without us.
    pub(crate) fn closed(&mut self) {
        (self.ring, self.quorum, self.tag, self.agreed) = (None, None, None, None);
        self.group.clear();
        self.hellos.clear();
        self.heard.clear();
        self.tick_out = None;
        self.views.forget();
        self.end_life("corosync is lost");
        self.evaluate();
    }

    /// The next life of this node.
    pub(crate) fn begin_life(&mut self, life: u64) {
        self.setup.life = life;
        (self.over, self.took_part) = (false, false);
        self.views.own_anew();
        self.introduce();
        self.evaluate();
    }

    /// The configuration may have changed.
    pub(crate) fn set_rules(&mut self, rules: Rules) {
        if rules != self.setup.rules {
            self.setup.rules = rules;
            self.evaluate();
            self.acts.push_back(Act::Members);
        }
    }

    /// No client of an earlier process on this machine can act any more.
    pub(crate) fn cleaned(&mut self) {
        if !std::mem::replace(&mut self.setup.clean, true) {
            self.introduce();
        }
    }

    /// What this daemon has to say of itself.
    pub(crate) fn report(&mut self, report: StaysRecord) {
        self.views.set_own(report);
        self.evaluate();
    }

    /// A fact that fencing, the lease's wait, or a person found out.
    pub(crate) fn found_harmless(&mut self, life: Member) {
        self.send(Message::Harmless { node: life.node.0, life: life.incarnation });
    }

    /// A message of fencing.
    pub(crate) fn send_fence(&mut self, bytes: Vec<u8>) {
        self.send(Message::Fence(bytes));
    }

    /// This daemon ends, in good order if it has nothing left.
    pub(crate) fn close(&mut self) -> Option<Message> {
        self.views.own_is_idle().then_some(Message::Goodbye { life: self.setup.life })
    }

    fn on_message(&mut self, from: Process, message: Message) {
        match message {
            Message::Hello(hello) => self.on_hello(from, hello),
            Message::Report(part) => {
                if Some(part.tag) == self.tag {
                    self.views.on_part(from.node, part);
                }
            }
            Message::Body { tag, after, decider, members, lost, idle } => {
                // Who has not caught up yet learns all from it.
                let follows = after == self.lineage || after.epoch + 1 > self.lineage.epoch;
                if Some(tag) == self.tag && follows {
                    self.lineage = Lineage { epoch: after.epoch + 1, decider };
                    self.cleared.extend(idle);
                    self.on_body(members, lost);
                }
            }
            Message::View { tag, lineage, lockspace, view } => {
                self.views.seen(view.id);
                if Some(tag) == self.tag && lineage == self.lineage && self.takes_part() {
                    let view = super::super::feeder::view(&view);
                    self.acts.push_back(Act::View { lockspace, view });
                }
            }
            Message::Safe { member } => self.acts.push_back(Act::Safe(member_of(member))),
            Message::Harmless { node, life } => {
                let known = self.harmless.entry(node).or_insert(0);
                *known = (*known).max(life);
                self.cleared.insert((node, life));
            }
            Message::Tick { at, .. } if from == self.setup.own => self.on_own_tick(Instant(at)),
            Message::Tick { at, heard } => self.hear_tick(from, at, &heard),
            Message::Fence(bytes) => self.acts.push_back(Act::Fence { from: from.node, bytes }),
            Message::Goodbye { life } => {
                self.goodbyes.insert((from.node, life));
            }
        }
    }

    fn on_own_tick(&mut self, at: Instant) {
        self.own_ticks += 1;
        self.came_back = self.now;
        self.tick_out = self.tick_out.filter(|sent| *sent > at);
        if self.gap.is_some_and(|gap| at >= gap) {
            self.gap = None;
        }
        self.hear_own_tick(at);
    }

    /// The configuration may be another one.
    fn retag(&mut self) {
        let tag = self.ring.map(|ring| Tag::of(ring, &self.group));
        if tag == self.tag {
            return;
        }
        self.tag = tag;
        self.hellos.clear();
        self.banned.clear();
        self.views.new_configuration();
        let (group, ticks) = (&self.group, self.own_ticks);
        self.heard.retain(|process, _| group.contains(process));
        self.ticks.retain(|process| group.contains(process));
        for process in group {
            self.heard.entry(*process).or_insert(ticks);
        }
        self.introduce();
    }

    /// Says who this daemon is, in the present configuration.
    fn introduce(&mut self) {
        let Some(tag) = self.tag.filter(|_| self.is_joined() && !self.over) else { return };
        let hello = Hello {
            tag,
            life: self.setup.life,
            first_life: self.first,
            clean: self.setup.clean,
            boot: self.setup.boot,
            safe_after: self.setup.safe_after,
            fresh: !self.took_part,
            lineage: self.lineage,
            body: self.body.clone(),
            lost: self.lost.iter().map(|(record, _)| record.clone()).collect(),
            harmless: self.harmless.clone(),
            cleared: self.cleared.clone(),
            view_floor: self.views.floor(),
        };
        self.send(Message::Hello(hello));
    }

    /// Draws the conclusions from what is known.
    fn evaluate(&mut self) {
        self.compare();
        self.prune();
        self.propose();
        let (acts_as, tag) = (self.is_coordinator() && self.may_act(), self.tag);
        if let Some(tag) = tag.filter(|_| self.is_joined() && !self.over) {
            self.say_report(tag);
            if acts_as && self.is_settled() {
                self.decide(tag);
            }
        }
        self.judge_standing();
    }

    fn judge_standing(&mut self) {
        let hindered = self.hindrance();
        if self.hindered.as_ref().map(|(what, _)| what) != hindered.as_ref() {
            if hindered.is_none() && self.logged.take().is_some() {
                self.log("rings agree, the cluster is quorate, this node takes part".to_owned());
            }
            let since = match (&self.hindered, &hindered) {
                (Some((Hindered::Hello(_), since)), Some(Hindered::Hello(_))) => *since,
                _ => self.now,
            };
            self.hindered = hindered.map(|what| (what, since));
            self.acts.push_back(Act::Members);
        }
        if let Some((what, since)) = &self.hindered
            && self.now >= since.after(NOTEWORTHY)
            && self.logged.as_ref() != Some(what)
        {
            self.logged = Some(what.clone());
            let words = what.words();
            self.log(words);
        }
        let good = self.hindered.is_none();
        if std::mem::replace(&mut self.standing, good) != good {
            self.acts.push_back(Act::Standing(good));
        }
    }

    fn hindrance(&self) -> Option<Hindered> {
        if !self.rings_agree() {
            Some(Hindered::RingId)
        } else if !self.may_act() {
            Some(Hindered::Quorum)
        } else if !self.is_agreed() {
            Some(Hindered::Hello(self.unheard()))
        } else if !self.takes_part() || self.gap.is_some() {
            Some(Hindered::Admission)
        } else if self.now >= self.came_back.after(STALL) {
            Some(Hindered::Stalled)
        } else {
            None
        }
    }

    /// Whether group and quorum speak of the same ring.
    pub(crate) fn rings_agree(&self) -> bool {
        let quorum = self.quorum.map(|(ring, _)| ring);
        self.is_joined() && self.ring.is_some() && self.ring == quorum
    }

    /// Whether the ring that the group is in is quorate.
    pub(crate) fn is_quorate(&self) -> bool {
        self.rings_agree() && self.quorum.is_some_and(|(_, quorate)| quorate)
    }

    /// Whether something may be decided here.
    pub(super) fn may_act(&self) -> bool {
        self.rings_agree() && (self.is_quorate() || !self.setup.rules.quorum_lockspace)
    }

    /// Ring numbers: quorum's, and the one that the group is in.
    pub(crate) fn ring_numbers(&self) -> (u64, u64) {
        let quorum = self.quorum.map_or(0, |(ring, _)| ring.seq);
        (quorum, self.ring.map_or(0, |ring| ring.seq))
    }

    /// Whether somebody may be fenced.
    pub(crate) fn may_fence(&self) -> bool {
        self.rings_agree()
            && self.is_agreed()
            && (self.is_quorate() || !self.setup.rules.quorum_fencing)
    }

    pub(super) fn is_agreed(&self) -> bool {
        self.agreed.is_some() && self.agreed == self.ring
    }

    /// Whether this life is in the body.
    pub(crate) fn takes_part(&self) -> bool {
        !self.over && self.body.get(&self.setup.own.node) == Some(&self.setup.life)
    }

    /// The lives that take part, by node.
    pub(crate) fn body(&self) -> &BTreeMap<u32, u64> {
        &self.body
    }

    /// Daemons that take part.
    pub(crate) fn members(&self) -> BTreeSet<u32> {
        self.body.keys().copied().collect()
    }

    /// Whether a process was not heard for too long.
    pub(super) fn is_silent(&self, process: Process) -> bool {
        let heard = self.heard.get(&process).copied().unwrap_or(0);
        process != self.setup.own && self.own_ticks.saturating_sub(heard) >= SILENT_TICKS
    }

    /// Nodes in the group that have not introduced themselves.
    fn unheard(&self) -> Vec<u32> {
        let unheard = self.group.iter().filter(|process| !self.hellos.contains_key(process));
        unheard.map(|process| process.node).collect()
    }

    /// Everything of this life is lost, if it took part, or if others believe that it did.
    pub(super) fn end_life(&mut self, why: &'static str) {
        let marked = self.took_part || self.is_marked(self.setup.own.node, self.setup.life);
        if marked && !std::mem::replace(&mut self.over, true) {
            self.acts.push_back(Act::LifeOver(why));
        }
    }

    pub(super) fn send(&mut self, message: Message) {
        if self.is_joined() {
            self.acts.push_back(Act::Send(message));
        }
    }

    pub(super) fn log(&mut self, line: String) {
        self.acts.push_back(Act::Log(line));
    }
}

pub(super) fn member_of(record: MemberRecord) -> Member {
    Member { node: NodeId(record.node), incarnation: record.incarnation }
}
