//! A lockspace's part in the cluster: the view, who is lost, what is still due.

use std::collections::{BTreeSet, VecDeque};

use crate::directory::Directory;
use crate::inbox::Inbox;
use crate::index_set::IndexSet;
use crate::lock::Queue;
use crate::lockspace::{Context, LockTable};
use crate::message::{Body, Message, Tagged, Traffic};
use crate::owed::Owed;
use crate::seeded::cluster_fault;
use crate::{Due, Layout, Marks, Member, Name, Output, View, ViewId};

/// What a lockspace knows about its members.
#[derive(Clone, Hash, Debug)]
pub(crate) struct Cluster {
    pub(crate) me: Member,
    /// Number of the lockspace in messages.
    pub(crate) global: u32,
    /// The installed view.
    pub(crate) view: View,
    /// Members that are known to be harmless (B3); remembered for ever.
    pub(crate) safe: BTreeSet<Member>,
    /// Members that were in a view of this lockspace and are lost.
    pub(crate) departed: BTreeSet<Member>,
    /// Members whose locks are, or were, on names mastered here.
    pub(crate) peers: Vec<Peer>,
    pub(crate) directory: Directory,
    /// How masters are found; the same for all members.
    pub(crate) layout: Layout,
    /// Members of this view that have another layout.
    pub(crate) strangers: BTreeSet<Member>,
    /// Messages for a view not installed yet, in order of arrival (R2).
    held: VecDeque<(Member, Message)>,
    /// Messages of this view that wait for their turn.
    pub(crate) inbox: Inbox,
    /// Messages to oneself, handled when the present step is through.
    loopback: VecDeque<Body>,
    /// Whose `NamesDone` of this view is due.
    pub(crate) names_due: BTreeSet<Member>,
    /// Whose `LocksDone` of this view is due.
    pub(crate) locks_due: BTreeSet<Member>,
    /// Names claimed in this view and not answered yet.
    pub(crate) claims_open: usize,
    /// All names were looked at for locks that must move.
    pub(crate) moved_all: bool,
    /// Names were rebuilt since the last thaw.
    pub(crate) rebuilt: bool,
    /// Who sent records since the last thaw.
    pub(crate) record_owners: BTreeSet<Member>,
    /// Own `LocksDone` of this view is said.
    pub(crate) locks_done_said: bool,
    /// Names about which the directory was asked, or told, and has not answered.
    pub(crate) asking: IndexSet,
    /// Work cut into bounded parts.
    pub(crate) jobs: VecDeque<Job>,
    /// Next places behind and before all others (recovery.md 6.1).
    place_last: i64,
    place_first: i64,
    /// Locks of this node on names mastered elsewhere or by nobody.
    pub(crate) away_locks: usize,
    /// A number for records by arrival.
    pub(crate) arrivals: u32,
    /// When the steps of the installed view were over, for listings.
    pub(crate) marks: Marks,
    /// What is owed while the node is without its lease.
    pub(crate) owed: Owed,
}

/// A member with locks on names mastered here.
#[derive(Clone, Hash, Debug)]
pub(crate) struct Peer {
    pub(crate) member: Member,
    /// Copies of its locks.
    pub(crate) locks: Queue,
}

/// Work over many names, done a part at a time so that nobody else waits for it.
#[derive(Clone, Hash, Debug)]
pub(crate) enum Job {
    /// Say which names of these slots are mastered here, from this resource on.
    Names { to: Member, slots: Vec<(u16, u16)>, from: u32 },
    /// Drop the locks of a lost member that is safe now (R11).
    Drop { of: Member },
    /// Move locks whose master is lost (R13), from this resource on.
    Move { from: u32 },
    /// Settle own locks with a new master that took them into service, from this resource on.
    Settle { master: Member, round: ViewId, from: u32 },
    /// Take rebuilt names into service (section 6), from this resource on.
    Finish { round: ViewId, from: u32 },
    /// Ask the directory's waiting questions again, behind this name.
    Reconsider { after: Option<Name> },
    /// Take entries of lost members away that nobody claimed (R7), from this place on.
    Sweep { from: u32 },
}

impl Cluster {
    pub(crate) fn new(me: Member, global: u32, layout: Layout) -> Self {
        let nodir = layout.nodir.then(Box::default);
        let directory = Directory { nodir, ..Directory::default() };
        let view = View { id: ViewId(0), members: vec![me], unsafe_members: Vec::new() };
        Self {
            me,
            global,
            view,
            safe: BTreeSet::new(),
            departed: BTreeSet::new(),
            peers: Vec::new(),
            directory,
            layout,
            strangers: BTreeSet::new(),
            held: VecDeque::new(),
            inbox: Inbox::default(),
            loopback: VecDeque::new(),
            names_due: BTreeSet::new(),
            locks_due: BTreeSet::new(),
            claims_open: 0,
            moved_all: false,
            rebuilt: false,
            record_owners: BTreeSet::new(),
            locks_done_said: true,
            asking: IndexSet::default(),
            jobs: VecDeque::new(),
            place_last: 0,
            place_first: 0,
            away_locks: 0,
            arrivals: 0,
            marks: Marks::default(),
            owed: Owed::default(),
        }
    }

    /// Whether a part of the work that is due can be done now.
    pub(crate) fn has_work(&self) -> bool {
        !self.inbox.is_empty() || self.jobs.iter().any(|job| self.owed.may_run(job))
    }

    /// Whether this node is the only member.
    #[inline]
    pub(crate) fn alone(&self) -> bool {
        self.view.members.len() <= 1
    }

    /// Whether everything that the installed view made due is done by all.
    pub(crate) fn is_settled(&self) -> bool {
        self.names_due.is_empty() && self.locks_due.is_empty()
    }

    /// Whether a member is in the installed view.
    pub(crate) fn is_member(&self, member: Member) -> bool {
        self.view.members.contains(&member)
    }

    /// Whether everybody excluded so far is known to be harmless.
    pub(crate) fn all_safe(&self) -> bool {
        let safe = |member| self.safe.contains(member) || cluster_fault("moves-before-safe");
        self.view.unsafe_members.iter().all(safe)
    }

    /// What recovery waits for.
    pub(crate) fn due(&self) -> Due {
        let feared = |member: &&Member| !self.safe.contains(*member);
        Due {
            safe: self.view.unsafe_members.iter().filter(feared).copied().collect(),
            names: self.names_due.iter().copied().collect(),
            locks: self.locks_due.iter().copied().collect(),
            thaws: self.marks.thaws_due.keys().copied().filter(|m| self.is_member(*m)).collect(),
            layout: self.strangers.iter().copied().collect(),
        }
    }

    /// The record of a member with locks here, made if absent.
    pub(crate) fn peer(&mut self, member: Member) -> u16 {
        if let Some(index) = self.peers.iter().position(|peer| peer.member == member) {
            return index as u16;
        }
        let gone = |peer: &Peer| peer.locks.is_empty() && !self.view.members.contains(&peer.member);
        let peer = Peer { member, locks: Queue::default() };
        match self.peers.iter().position(gone) {
            Some(index) => {
                self.peers[index] = peer;
                index as u16
            }
            None => {
                self.peers.push(peer);
                (self.peers.len() - 1) as u16
            }
        }
    }

    /// A place in a queue for a lock put at its tail, or head.
    pub(crate) fn next_place(&mut self, head: bool) -> i64 {
        if head {
            self.place_first -= 1;
            return self.place_first;
        }
        self.place_last += 1;
        self.place_last
    }

    /// New places go on from the extremes of rebuilt ones.
    pub(crate) fn saw_place(&mut self, place: i64) {
        self.place_last = self.place_last.max(place);
        self.place_first = self.place_first.min(place);
    }

    /// Keeps a message until its view is installed.
    pub(crate) fn hold(&mut self, from: Member, message: Message) {
        self.held.push_back((from, message));
    }

    /// Whether messages for a view not installed yet are kept.
    pub(crate) fn holds_messages(&self) -> bool {
        !self.held.is_empty()
    }

    /// Everything kept, in order, to be looked at anew.
    pub(crate) fn take_held(&mut self) -> VecDeque<(Member, Message)> {
        core::mem::take(&mut self.held)
    }
}

/// Whether a message is for now, for later, or for nobody (R1, R2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fate {
    Take,
    Hold,
    Drop,
}

impl Cluster {
    /// Whether a message shows that its sender was a member of a view that this node skipped, and is
    /// lost by now: of who left without being feared nothing else tells.
    fn was_in_an_older_view(&self, from: Member, body: &Body) -> bool {
        let old = matches!(body, Body::Tagged(view, _) if *view < self.view.id);
        old && !self.is_member(from) && !cluster_fault("left-members-awaited")
    }

    /// What to do with a message. `lost` says that its sender was a member once and is not any more.
    pub(crate) fn fate(&self, from: Member, body: &Body, lost: bool) -> Fate {
        if lost {
            let heard = cluster_fault("lost-members-heard");
            return if heard { Fate::Take } else { Fate::Drop };
        }
        if !self.is_member(from) {
            return Fate::Hold;
        }
        match body {
            Body::Tagged(view, _) if *view < self.view.id && !cluster_fault("old-views-heard") => {
                Fate::Drop
            }
            Body::Tagged(view, _)
                if *view > self.view.id && cluster_fault("later-views-dropped") =>
            {
                Fate::Drop
            }
            Body::Tagged(view, _) if *view > self.view.id => Fate::Hold,
            Body::Traffic(Traffic::Request { view, .. })
                if self.layout.nodir && *view > self.view.id =>
            {
                Fate::Hold
            }
            _ => Fate::Take,
        }
    }
}

impl LockTable {
    /// Says something of this view to a member, oneself included.
    pub(crate) fn say(&mut self, cx: &mut Context<'_>, to: Member, tagged: Tagged) {
        let body = Body::Tagged(self.cluster.view.id, tagged);
        self.send(cx, to, body);
    }

    /// Sends lock traffic.
    pub(crate) fn send_traffic(&mut self, cx: &mut Context<'_>, to: Member, traffic: Traffic) {
        self.send(cx, to, Body::Traffic(traffic));
    }

    /// Says something of this view to all members, oneself included.
    pub(crate) fn say_to_all(&mut self, cx: &mut Context<'_>, tagged: &Tagged) {
        for member in self.cluster.view.members.clone() {
            self.say(cx, member, tagged.clone());
        }
    }

    fn send(&mut self, cx: &mut Context<'_>, to: Member, body: Body) {
        if to == self.cluster.me {
            self.cluster.loopback.push_back(body);
        } else {
            let (from, to_stay) = (self.cluster.me.incarnation, to.incarnation);
            let message = Message { space: self.cluster.global, from, to: to_stay, body };
            cx.out.push(Output::Send { to, message });
        }
    }

    /// Handles what this node said to itself, until nothing is left.
    pub(crate) fn settle_loopback(&mut self, cx: &mut Context<'_>) {
        while let Some(body) = self.cluster.loopback.pop_front() {
            let me = self.cluster.me;
            let current = match &body {
                Body::Tagged(view, _) => *view == self.cluster.view.id,
                Body::Traffic(_) => true,
            };
            if current {
                self.on_body(cx, me, body);
            }
        }
    }

    /// A message from another member.
    pub(crate) fn on_message(&mut self, cx: &mut Context<'_>, from: Member, message: Message) {
        if self.cluster.was_in_an_older_view(from, &message.body) {
            self.cluster.departed.insert(from);
        }
        let lost = self.cluster.departed.contains(&from);
        match self.cluster.fate(from, &message.body, lost) {
            Fate::Take => {
                if let Some(body) = self.cluster.inbox.keep(from, message.body) {
                    self.on_body(cx, from, body);
                }
            }
            Fate::Hold => self.cluster.hold(from, message),
            Fate::Drop => {}
        }
    }

    pub(crate) fn on_body(&mut self, cx: &mut Context<'_>, from: Member, body: Body) {
        let Some(body) = self.cluster.owed.admit(from, body) else { return };
        match body {
            Body::Tagged(_, tagged) => self.on_tagged(cx, from, tagged),
            Body::Traffic(traffic) => self.on_traffic(cx, from, traffic),
        }
    }

    fn on_tagged(&mut self, cx: &mut Context<'_>, from: Member, tagged: Tagged) {
        match tagged {
            Tagged::Lookup { name, refused } => self.on_lookup(cx, from, &name, refused),
            Tagged::LookupReply { name, master, term } => {
                self.on_lookup_reply(cx, &name, master, term);
            }
            Tagged::Remove { name, term, last } => self.on_remove(cx, from, &name, term, last),
            Tagged::RemoveAck { name, term } => self.on_remove_ack(cx, &name, term),
            Tagged::NeedNames { slots } if self.cluster.layout.nodir => {
                self.on_need_locks(cx, from, slots);
            }
            Tagged::NeedNames { slots } => {
                // Before other work: nobody's claims are answered until all names are said.
                self.cluster.jobs.push_front(Job::Names { to: from, slots, from: 1 });
            }
            Tagged::Names { names } => self.on_names(cx, from, names),
            Tagged::NamesDone => self.on_names_done(cx, from),
            Tagged::Claim { name } => self.on_claim(cx, from, &name),
            Tagged::ClaimReply { name, master, term } => {
                self.on_claim_reply(cx, &name, master, term);
            }
            Tagged::Record(record) => self.on_record(cx, from, *record),
            Tagged::LocksDone { layout } => self.on_locks_done(cx, from, layout),
            Tagged::Value(ceded) => self.on_ceded(*ceded),
        }
    }
}
