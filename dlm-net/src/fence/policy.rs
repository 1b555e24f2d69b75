//! Who fences whom, and when: a state machine without I/O (libdlm-abi.md 5.5, membership.md 2).
//!
//! It is told what the daemons' group delivers, in the group's order, and the clock. It answers with
//! orders: run agents, stop them, tell all, and the one fact that everything else waits for: a life
//! is harmless. Who is feared at all, start-up fencing included, is the membership backend's to say,
//! and it takes the fear back when a node comes back clean or its lease has run out.
//!
//! **Invariant.** A life is called harmless only if an attempt that *began after it was feared here*
//! ended well, or a person said so. An attempt names the life that it is for; what it says about
//! another life counts for nothing. So no exit code from before a failure is ever used.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::case::{Case, Work};
use super::event::{Clock, Feared, Input, Note, Output, Rules};
use super::message::{CaseNote, Message, Outcome, Victim};

/// How long the second round waits after one in which everybody's agents failed, nanoseconds; each
/// further one waits twice as long, up to [`ROUND_PAUSE_MAX`]. An agent that is missing fails at
/// once, and need not be looked for a thousand times a second.
pub const ROUND_PAUSE: u64 = 5_000_000_000;
/// Longest wait for a new round, nanoseconds.
pub const ROUND_PAUSE_MAX: u64 = 60_000_000_000;

/// How long a feared node whose daemon takes part again may take to become clean before its machine
/// is fenced, nanoseconds: longer than clients are given to confirm that they lost their locks.
pub const COMEBACK_PATIENCE: u64 = 30_000_000_000;

/// The last node that was made harmless under a number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Done {
    /// Whose agents, or whose operator, did it.
    pub actor: u32,
    /// When, wall-clock seconds.
    pub wall: u64,
    /// When this daemon heard it, nanoseconds of its clock.
    pub mono: u64,
    /// When it had failed, wall-clock seconds; 0: this daemon did not fear it.
    pub fail_wall: u64,
}

/// The state machine of one daemon.
#[derive(Clone, Debug)]
pub struct Policy {
    own: u32,
    rules: Rules,
    members: BTreeMap<u32, u64>,
    may_fence: bool,
    last_added: u64,
    cases: BTreeMap<Victim, Case>,
    done: BTreeMap<u32, Done>,
    runs: u64,
    outbox: VecDeque<Output>,
}

impl Policy {
    /// The machine of node `own`.
    pub fn new(own: u32, rules: Rules) -> Self {
        Self {
            own,
            rules,
            members: BTreeMap::new(),
            may_fence: false,
            last_added: 0,
            cases: BTreeMap::new(),
            done: BTreeMap::new(),
            runs: 0,
            outbox: VecDeque::new(),
        }
    }

    /// New rules; follow with [`Input::Tick`].
    pub fn set_rules(&mut self, rules: Rules) {
        self.rules = rules;
    }

    /// The next order, oldest first.
    pub fn next_output(&mut self) -> Option<Output> {
        self.outbox.pop_front()
    }

    /// Takes an event.
    pub fn step(&mut self, clock: Clock, input: Input) {
        match input {
            Input::Members { members, may_fence } => self.on_members(clock, members, may_fence),
            Input::Lost(lost) => self.on_lost(clock, lost),
            Input::Message { from, message: Message::Result { victim, outcome, wall } } => {
                self.on_result(clock, from, victim, outcome, wall);
            }
            Input::Message { message: Message::Cases(notes), .. } => self.on_notes(notes),
            Input::Message { from, message: Message::Attempts(victims) } => {
                self.on_attempts(from, &victims);
            }
            Input::Ended { run, good } => self.on_ended(clock, run, good),
            Input::Tick => {}
        }
        self.begin_rounds();
        self.act(clock);
    }

    /// A person says that a node is off: whatever is feared of it is harmless. False: nothing is.
    pub fn acknowledge(&mut self, clock: Clock, node: u32) -> bool {
        let feared: Vec<Victim> =
            self.cases.keys().copied().filter(|victim| victim.node == node).collect();
        for victim in &feared {
            self.tell(clock, *victim, Outcome::Acknowledged);
            self.outbox.push_back(Output::Harmless(*victim));
        }
        !feared.is_empty()
    }

    /// When something is due that no event announces, nanoseconds.
    pub fn deadline(&self) -> Option<u64> {
        // Asked in every turn of the loop, and nearly always there is nothing.
        if self.cases.is_empty() {
            return None;
        }
        // Those that wait for another attempt to end are woken by its end.
        let waits_for_slot = !self.rules.concurrent && self.is_busy();
        if !self.may_act() || waits_for_slot {
            return None;
        }
        let fit = self.fit();
        let mine = self.cases.values().filter(|case| self.is_mine(case, &fit));
        mine.map(|case| self.due(case)).min()
    }

    /// All cases, by node and life.
    pub fn cases(&self) -> impl Iterator<Item = &Case> {
        self.cases.values()
    }

    /// The newest case of a node.
    pub fn case_of(&self, node: u32) -> Option<&Case> {
        self.cases.values().rev().find(|case| case.feared.victim.node == node)
    }

    /// When a node was made harmless last, and by whom.
    pub fn done(&self, node: u32) -> Option<Done> {
        self.done.get(&node).copied()
    }

    /// Who has to act on a case now; `None`: nobody, since all failed or nobody is fit.
    pub fn actor(&self, case: &Case) -> Option<u32> {
        case.actor(&self.fit())
    }

    /// Whether agents may be run at all now.
    pub fn may_act(&self) -> bool {
        self.rules.fencing && self.may_fence
    }

    /// The rules.
    pub fn rules(&self) -> Rules {
        self.rules
    }

    /// From when on agents may be run for a case, nanoseconds.
    pub fn due(&self, case: &Case) -> u64 {
        let patience = case.back_since.map_or(0, |since| since + COMEBACK_PATIENCE);
        case.not_before.max(patience).max(self.delayed_until())
    }

    /// Until when nobody is fenced because a node was added, nanoseconds.
    pub fn delayed_until(&self) -> u64 {
        self.last_added.saturating_add(self.rules.post_join_delay)
    }

    fn on_members(&mut self, clock: Clock, members: BTreeMap<u32, u64>, may_fence: bool) {
        let before = std::mem::replace(&mut self.members, members);
        self.may_fence = may_fence;
        let members = &self.members;
        let stays = |node: &u32| {
            let same = |life| before.get(node).is_none_or(|past| past == life);
            members.get(node).is_some_and(same)
        };
        for case in self.cases.values_mut() {
            // Who comes back later is not the witness any more, and has begun nothing.
            case.feared.witnesses.retain(stays);
            case.at_it = case.at_it.filter(stays);
            let back = members.contains_key(&case.feared.victim.node);
            case.back_since = back.then(|| case.back_since.unwrap_or(clock.mono));
        }
        let grown = members.iter().any(|(node, life)| before.get(node) != Some(life));
        if !stays(&self.own) {
            self.drop_work();
        }
        if grown {
            self.last_added = clock.mono;
            self.tell_cases();
            if !self.cases.is_empty() || !before.contains_key(&self.own) {
                self.tell_attempts();
            }
        }
    }

    /// This daemon is done without, or begins anew: others do what it was at, and what it told may
    /// never arrive.
    fn drop_work(&mut self) {
        for case in self.cases.values_mut() {
            if let Work::Runs(run) = std::mem::take(&mut case.work) {
                self.outbox.push_back(Output::Stop { run });
            }
        }
    }

    /// Tells all what this daemon is at; who has just begun is at nothing, and says so.
    fn tell_attempts(&mut self) {
        let mine = |case: &&Case| match case.work {
            Work::None => case.at_it == Some(self.own),
            Work::Asked | Work::Runs(_) => true,
            Work::Told { good } => good,
        };
        let mine = self.cases.values().filter(mine).map(|case| case.feared.victim).collect();
        self.outbox.push_back(Output::Send(Message::Attempts(mine)));
    }

    /// Somebody is about to begin, or goes on, and with nothing else: whoever said so first is at it.
    fn on_attempts(&mut self, from: u32, victims: &[Victim]) {
        let takes_part = self.members.contains_key(&from);
        for (victim, case) in &mut self.cases {
            if !victims.contains(victim) {
                case.at_it = case.at_it.filter(|at_it| *at_it != from);
                continue;
            }
            if takes_part && case.at_it.is_none() {
                case.at_it = Some(from);
            }
            if from == self.own && case.work == Work::Asked {
                case.work = Work::None;
            }
        }
    }

    fn tell_cases(&mut self) {
        if self.cases.is_empty() {
            return;
        }
        // Its own failure is ahead of this, and known to all by then.
        let failed = |case: &Case| case.work == Work::Told { good: false };
        let note = |case: &Case| CaseNote {
            victim: case.feared.victim,
            witnesses: case.feared.witnesses.clone(),
            tried: case.tried.iter().copied().chain(failed(case).then_some(self.own)).collect(),
        };
        let notes = self.cases.values().map(note).collect();
        self.outbox.push_back(Output::Send(Message::Cases(notes)));
    }

    fn on_lost(&mut self, clock: Clock, lost: Vec<Feared>) {
        let now: BTreeSet<Victim> = lost.iter().map(|feared| feared.victim).collect();
        let over: Vec<Victim> =
            self.cases.keys().copied().filter(|victim| !now.contains(victim)).collect();
        for victim in over {
            self.end_case(victim);
        }
        for feared in lost {
            let victim = feared.victim;
            if self.cases.contains_key(&victim) {
                continue;
            }
            self.outbox.push_back(Output::Note(Note::Pending(victim, feared.reason)));
            let mut case = Case::new(feared);
            case.back_since = self.members.contains_key(&victim.node).then_some(clock.mono);
            self.cases.insert(victim, case);
        }
    }

    fn end_case(&mut self, victim: Victim) {
        let Some(case) = self.cases.remove(&victim) else { return };
        if let Work::Runs(run) = case.work {
            self.outbox.push_back(Output::Stop { run });
        }
        self.outbox.push_back(Output::Note(Note::Over(victim)));
    }

    /// Whoever knows better, all take over what they hear, in the order in which all hear it: what a
    /// newcomer and the others make of the next events must be the same, or everybody waits for
    /// another one. A failure that this forgets costs one more attempt.
    fn on_notes(&mut self, notes: Vec<CaseNote>) {
        for CaseNote { victim, mut witnesses, tried } in notes {
            let Some(case) = self.cases.get_mut(&victim) else { continue };
            witnesses.retain(|node| self.members.contains_key(node));
            (case.feared.witnesses, case.tried) = (witnesses, tried);
        }
    }

    fn on_result(&mut self, clock: Clock, from: u32, victim: Victim, outcome: Outcome, wall: u64) {
        let note = match outcome {
            Outcome::Failed => return self.on_failure(clock, from, victim),
            Outcome::Fenced => Note::Fenced(victim, from),
            Outcome::Acknowledged => Note::Acknowledged(victim, from),
        };
        self.outbox.push_back(Output::Note(note));
        let fail_wall = self.cases.get(&victim).map_or(0, |case| case.feared.fail_wall);
        self.done.insert(victim.node, Done { actor: from, wall, mono: clock.mono, fail_wall });
    }

    fn on_failure(&mut self, clock: Clock, from: u32, victim: Victim) {
        let fit = self.fit();
        let Some(case) = self.cases.get_mut(&victim) else { return };
        case.tried.insert(from);
        case.last_actor = from;
        case.at_it = case.at_it.filter(|at_it| *at_it != from);
        if from == self.own {
            case.work = Work::None;
        }
        self.outbox.push_back(Output::Note(Note::AgentsFailed(victim, from)));
        if case.is_exhausted(&fit) {
            let note = if self.rules.repeat { Note::NewRound } else { Note::GivenUp };
            self.outbox.push_back(Output::Note(note(victim)));
            let pause = (ROUND_PAUSE << case.rounds.min(8)).min(ROUND_PAUSE_MAX);
            case.rounds += 1;
            case.not_before = clock.mono + pause;
        }
    }

    fn on_ended(&mut self, clock: Clock, run: u64, good: bool) {
        let case = self.cases.values_mut().find(|case| case.work == Work::Runs(run));
        let Some(case) = case else { return };
        case.work = Work::Told { good };
        let victim = case.feared.victim;
        self.tell(clock, victim, if good { Outcome::Fenced } else { Outcome::Failed });
        if good {
            self.outbox.push_back(Output::Harmless(victim));
        }
    }

    fn tell(&mut self, clock: Clock, victim: Victim, outcome: Outcome) {
        let message = Message::Result { victim, outcome, wall: clock.wall };
        self.outbox.push_back(Output::Send(message));
    }

    /// Where everybody failed it is everybody's turn again.
    fn begin_rounds(&mut self) {
        let fit = self.fit();
        for case in self.cases.values_mut() {
            if self.rules.repeat && case.is_exhausted(&fit) {
                case.tried.clear();
            }
        }
    }

    /// Starts what this daemon has to do: first all are told, then the agents run.
    fn act(&mut self, clock: Clock) {
        if !self.may_act() {
            return;
        }
        let fit = self.fit();
        let due = |case: &&Case| self.is_mine(case, &fit) && self.due(case) <= clock.mono;
        let due: Vec<Victim> =
            self.cases.values().filter(due).map(|case| case.feared.victim).collect();
        let mut asked = false;
        for victim in due {
            if self.is_busy() && !self.rules.concurrent {
                break;
            }
            let Some(case) = self.cases.get_mut(&victim) else { continue };
            if case.at_it != Some(self.own) {
                case.work = Work::Asked;
                asked = true;
                continue;
            }
            self.runs += 1;
            (case.work, case.last_actor) = (Work::Runs(self.runs), self.own);
            let (run, fail_wall) = (self.runs, case.feared.fail_wall);
            self.outbox.push_back(Output::Run { run, victim, fail_wall });
        }
        if asked {
            self.tell_attempts();
        }
    }

    /// Whether this daemon has to begin an attempt. Where a later life of the node is feared too, the
    /// attempt for that one makes both harmless.
    fn is_mine(&self, case: &Case, fit: &BTreeSet<u32>) -> bool {
        let victim = case.feared.victim;
        let newest = self.case_of(victim.node).is_some_and(|last| last.feared.victim == victim);
        newest && case.work == Work::None && case.actor(fit) == Some(self.own)
    }

    fn is_busy(&self) -> bool {
        self.cases.values().any(|case| matches!(case.work, Work::Asked | Work::Runs(_)))
    }

    /// Daemons that may act: those that take part and are not feared themselves; where there are none
    /// of these, all, so that a cluster of nodes that came back does not wait for ever.
    fn fit(&self) -> BTreeSet<u32> {
        let feared: BTreeSet<u32> = self.cases.keys().map(|victim| victim.node).collect();
        let members = || self.members.keys().copied();
        let fit: BTreeSet<u32> = members().filter(|node| !feared.contains(node)).collect();
        if fit.is_empty() { members().collect() } else { fit }
    }
}
