//! Who masters a name: the directory part of a member (recovery.md R4 to R10).
//!
//! Each slot has one owner in a view. An entry says who masters a name; entries of names mastered by
//! the slot's owner itself are not written down, the resource is the entry.

use std::collections::BTreeMap;
use std::ops::Bound;

use crate::away::Kind;
use crate::cluster::Job;
use crate::entries::Entries;
use crate::lockspace::{Context, LockTable};
use crate::message::Tagged;
use crate::nodir::BySlot;
use crate::seeded::cluster_fault;
use crate::slots::{SlotSet, Slots, slot_of};
use crate::{Member, Name, Token, View};

/// Questions asked again, and entries looked at, in one part of a job.
const QUESTIONS_PART: usize = 16;
const SWEEP_PART: u32 = 256;

/// The directory of the slots this node owns.
#[derive(Clone, Hash, Debug, Default)]
pub(crate) struct Directory {
    pub(crate) slots: Slots,
    /// Slots of this node that are not ready: it may not say «free» for their names yet.
    pub(crate) rebuilding: SlotSet,
    /// Masters other than this node.
    pub(crate) entries: Entries,
    /// Look-ups and claims that wait.
    pub(crate) deferred: BTreeMap<Name, Vec<Question>>,
    /// What only masters by slot need.
    pub(crate) nodir: Option<Box<BySlot>>,
}

/// Who masters a name.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Entry {
    pub(crate) master: Member,
    pub(crate) term: Token,
}

/// A question that waits for its answer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Question {
    asker: Member,
    claim: bool,
    refused: Option<(Member, Token)>,
}

/// The directory cannot answer at the moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct NotNow;

impl Directory {
    /// How many claims and how many look-ups wait.
    pub(crate) fn waiting(&self) -> (usize, usize) {
        let all = || self.deferred.values().flatten();
        let claims = all().filter(|question| question.claim).count();
        (claims, all().count() - claims)
    }

    /// Whether this slot may give free names.
    pub(crate) fn is_ready(&self, slot: u16) -> bool {
        !self.rebuilding.contains(slot)
    }
}

impl LockTable {
    /// The member that owns a name's slot.
    pub(crate) fn slot_owner(&self, name: &[u8]) -> Member {
        let index = self.cluster.directory.slots.owner(slot_of(name));
        self.cluster.view.members.get(index).copied().unwrap_or(self.cluster.me)
    }

    /// Whether this node may simply take a new name as its master: its own directory says it is free.
    #[inline]
    pub(crate) fn may_take(&self, name: &[u8]) -> bool {
        if self.cluster.alone() && self.cluster.directory.rebuilding.is_empty() {
            return self.cluster.directory.entries.is_empty();
        }
        let slot = slot_of(name);
        let directory = &self.cluster.directory;
        self.slot_owner(name) == self.cluster.me
            && directory.is_ready(slot)
            && !directory.entries.contains(name)
            && !directory.deferred.contains_key(name)
    }

    /// The member that a directory entry here names; `None` if the name is free.
    ///
    /// # Errors
    /// It cannot be told now: the slot is not ready, or the master is lost.
    pub(crate) fn directory_master(&self, name: &[u8]) -> Result<Option<Member>, NotNow> {
        let slot = slot_of(name);
        match self.cluster.directory.entries.get(name) {
            Some(entry) if self.cluster.is_member(entry.master) => Ok(Some(entry.master)),
            None if self.cluster.directory.is_ready(slot) => Ok(None),
            _ => Err(NotNow),
        }
    }

    pub(crate) fn on_lookup(
        &mut self,
        cx: &mut Context<'_>,
        asker: Member,
        name: &Name,
        refused: Option<(Member, Token)>,
    ) {
        self.ask_directory(cx, name, Question { asker, claim: false, refused });
    }

    pub(crate) fn on_claim(&mut self, cx: &mut Context<'_>, asker: Member, name: &Name) {
        self.ask_directory(cx, name, Question { asker, claim: true, refused: None });
    }

    /// Answers a question, or lets it wait.
    fn ask_directory(&mut self, cx: &mut Context<'_>, name: &Name, question: Question) {
        match self.directory_answer(cx, name, question) {
            Some(Entry { master, term }) => {
                let name = name.clone();
                let answer = match question.claim {
                    true => Tagged::ClaimReply { name, master, term },
                    false => Tagged::LookupReply { name, master, term },
                };
                self.say(cx, question.asker, answer);
            }
            None => {
                self.cluster.directory.deferred.entry(name.clone()).or_default().push(question);
            }
        }
    }

    fn directory_answer(
        &mut self,
        cx: &mut Context<'_>,
        name: &Name,
        question: Question,
    ) -> Option<Entry> {
        let slot = slot_of(name.as_bytes());
        let known = self.known_entry(name);
        if question.claim && !self.cluster.names_due.is_empty() && known.is_none() {
            return None; // claims are answered once all names are said (R7)
        }
        match known {
            Some(entry) if !self.cluster.is_member(entry.master) => {
                if !question.claim && !cluster_fault("lookup-takes-lost-name") {
                    return None; // a look-up never moves a lost master's name (R7)
                }
                self.give_free(cx, name, question.asker)
            }
            Some(entry) if question.refused == Some((entry.master, entry.term)) => None,
            Some(entry) => Some(entry),
            None if question.claim => self.give_free(cx, name, question.asker),
            None if self.cluster.directory.is_ready(slot)
                || cluster_fault("free-names-from-unready-slots") =>
            {
                self.give_free(cx, name, question.asker)
            }
            None => None,
        }
    }

    /// Gives a name that is free, if there is a number for it. If not, the question waits: it is asked again
    /// in the next view (R19).
    fn give_free(&mut self, cx: &mut Context<'_>, name: &Name, master: Member) -> Option<Entry> {
        (!self.lacks_numbers(cx, 1)).then(|| self.give_name(name, master))
    }

    /// The entry of a name: written down, or this node's own mastership.
    fn known_entry(&self, name: &Name) -> Option<Entry> {
        if let Some(entry) = self.cluster.directory.entries.get(name.as_bytes()) {
            // What nobody claimed of lost members is nobody's, and only not swept away yet (R7).
            let stale = self.cluster.is_settled() && !self.cluster.is_member(entry.master);
            if !stale {
                return Some(*entry);
            }
        }
        let resource = &self.resources[self.find_resource(name.as_bytes())?];
        let mine = match &resource.role {
            None => true,
            Some(role) => matches!(role.kind, Kind::Rebuilding(_) | Kind::Leaving),
        };
        mine.then_some(Entry { master: self.cluster.me, term: resource.term })
    }

    /// Makes a member the master of a name, under a number above all earlier ones (R18).
    fn give_name(&mut self, name: &Name, master: Member) -> Entry {
        let entry = Entry { master, term: self.next_term() };
        // Where this node itself is the master, the answer to itself takes the entry out again.
        self.cluster.directory.entries.insert(name, entry);
        entry
    }

    /// The master forgets a name: so does the directory, if it is still that mastership (R8).
    pub(crate) fn on_remove(
        &mut self,
        cx: &mut Context<'_>,
        from: Member,
        name: &Name,
        term: Token,
        last: Token,
    ) {
        self.saw_token(last);
        let entries = &mut self.cluster.directory.entries;
        let same = entries.get(name.as_bytes()) == Some(&Entry { master: from, term });
        if same || cluster_fault("any-remove-deletes") {
            entries.remove(name.as_bytes());
        }
        self.say(cx, from, Tagged::RemoveAck { name: name.clone(), term });
        self.reconsider(cx, name);
    }

    /// Names of slots that moved here.
    pub(crate) fn on_names(
        &mut self,
        cx: &mut Context<'_>,
        from: Member,
        names: Vec<(Name, Token, Token)>,
    ) {
        for (name, term, last) in names {
            self.saw_token(term);
            self.saw_token(last);
            let entry = Entry { master: from, term };
            let entries = &mut self.cluster.directory.entries;
            let newer = entries.get(name.as_bytes()).is_none_or(|old| old.term < term);
            if from != self.cluster.me && newer {
                entries.insert(&name, entry);
            }
            self.reconsider(cx, &name);
        }
    }

    pub(crate) fn on_names_done(&mut self, cx: &mut Context<'_>, from: Member) {
        let due = &mut self.cluster.names_due;
        if due.remove(&from) && due.is_empty() {
            self.reconsider_all();
            self.check_ready(cx);
        }
    }

    /// Slots are ready when all names and all moved locks of this view were said (R6): then entries
    /// of lost members that nobody claimed are nobody's (R7).
    pub(crate) fn check_ready(&mut self, cx: &mut Context<'_>) {
        let cluster = &mut self.cluster;
        if !cluster.names_due.is_empty() || !cluster.locks_due.is_empty() {
            return;
        }
        cluster.directory.rebuilding.clear();
        if cluster.directory.nodir.is_some() {
            self.thaw(cx);
            self.forget_ceded(cx);
        }
        self.reconsider_all();
        if self.cluster.directory.entries.takes_room() {
            self.cluster.jobs.push_back(Job::Sweep { from: 1 });
        }
    }

    /// Asks all waiting questions again, a part at a time; they go before other work, as others wait for
    /// the answers.
    fn reconsider_all(&mut self) {
        let jobs = &mut self.cluster.jobs;
        jobs.retain(|job| !matches!(job, Job::Reconsider { .. }));
        if !self.cluster.directory.deferred.is_empty() {
            jobs.push_front(Job::Reconsider { after: None });
        }
    }

    /// Asks some of the waiting questions again.
    pub(crate) fn job_reconsider(
        &mut self,
        cx: &mut Context<'_>,
        after: Option<Name>,
    ) -> Option<Job> {
        let begin = after.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
        let waiting = self.cluster.directory.deferred.range::<Name, _>((begin, Bound::Unbounded));
        let names: Vec<Name> = waiting.map(|(name, _)| name.clone()).take(QUESTIONS_PART).collect();
        for name in &names {
            self.reconsider(cx, name);
        }
        names.last().map(|last| Job::Reconsider { after: Some(last.clone()) })
    }

    /// Takes entries of lost members away that nobody claimed, and those of slots given up.
    pub(crate) fn job_sweep(&mut self, from: u32) -> Option<Job> {
        let members = &self.cluster.view.members;
        let keep = |entry: &Entry| members.contains(&entry.master);
        let next = self.cluster.directory.entries.sweep(from, SWEEP_PART, keep);
        next.map(|from| Job::Sweep { from })
    }

    /// Asks the waiting questions about a name again, in their order.
    pub(crate) fn reconsider(&mut self, cx: &mut Context<'_>, name: &Name) {
        for question in self.cluster.directory.deferred.remove(name.as_bytes()).unwrap_or_default()
        {
            self.ask_directory(cx, name, question);
        }
    }

    /// Takes over the slots of a new view: what may be kept is kept, the rest asks (R4).
    pub(crate) fn install_slots(&mut self, view: &View, first: bool) -> Vec<(u16, u16)> {
        let members = &view.members;
        // Nobody else is, or was, anywhere: every name is free.
        let beginning = first && members.len() == 1 && view.unsafe_members.is_empty();
        let me = self.cluster.me;
        let old_members = core::mem::take(&mut self.cluster.view.members);
        let old = core::mem::take(&mut self.cluster.directory.slots);
        self.cluster.directory.slots = old.next(&old_members, members, &self.cluster.layout);
        let index_in = |all: &[Member]| all.iter().position(|member| *member == me);
        let (index_before, index_now) = (index_in(&old_members), index_in(members));
        let directory = &mut self.cluster.directory;
        let has = directory.slots.of(index_now);
        let had = if first { SlotSet::default() } else { old.of(index_before) };
        let mut kept = has.and(&had);
        if !cluster_fault("unready-slots-kept") {
            kept = kept.without(&directory.rebuilding);
        }
        if let Some(nodir) = &directory.nodir {
            kept = kept.without(&nodir.spoiled);
        }
        let new = if beginning { SlotSet::default() } else { has.without(&kept) };
        directory.rebuilding = directory.rebuilding.and(&kept).or(&new);
        directory.entries.keep_slots(|slot| kept.contains(slot));
        // Whoever asked asks again in the new view.
        directory.deferred.clear();
        if let Some(nodir) = &mut directory.nodir {
            let lost = old_members.iter().any(|member| !members.contains(member));
            nodir.begin(view.id, &kept, &had, lost);
        }
        new.ranges()
    }
}
