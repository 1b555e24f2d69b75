//! A name as its master knows it, asked for from any node.
//!
//! The daemon asks whom it takes for the master, or the owner of the name's slot in the directory,
//! and follows the answers: a few steps, a few seconds, then it says what it has and why it is not
//! all. The conversation that asked waits meanwhile; nothing else does.

use std::collections::{BTreeMap, VecDeque};

use dlm_core::{ClientId, Errno, Member, ResourceInfo, Whereabouts};
use dlm_ipc::control::{ControlReply, LocatedRecord, ResourceRecord};

use super::control::{Answer, cut, refusal};
use super::reactor::Reactor;
use super::waits::ago;
use crate::ipc::peer::Stage;
use crate::peers::life_of;
use crate::wire::note::{self, Note, Told};

/// How long the answers of others are waited for; tools wait somewhat longer for ours.
const PATIENCE_NANOS: u64 = 2_500_000_000;
/// Daemons that are asked one after the other because of what the one before said.
const STEPS_MAX: u32 = 6;

/// Names that are being searched.
#[derive(Debug, Default)]
pub(super) struct Searches {
    open: BTreeMap<u64, Search>,
    last: u64,
}

/// A search for one conversation.
#[derive(Debug)]
struct Search {
    client: ClientId,
    lockspace: Vec<u8>,
    name: Vec<u8>,
    /// Who was asked last.
    asked: Member,
    /// What it is taken for, in words.
    role: &'static str,
    steps: u32,
    until: u64,
    /// Daemons to ask next, where this one has not opened the lockspace.
    others: VecDeque<Member>,
}

const MASTER: &str = "masters the name";
const DIRECTORY: &str = "knows who masters the name";
const MEMBER: &str = "may have the lockspace";

impl Searches {
    /// When the first patience ends.
    pub(super) fn deadline(&self) -> Option<u64> {
        self.open.values().map(|search| search.until).min()
    }
}

/// What a search comes to, or whom to ask next.
enum Next {
    Ask(Member, &'static str),
    Found(Option<ResourceRecord>, u64),
    Unsettled,
}

impl Reactor {
    /// Answers [`dlm_ipc::control::ControlRequest::Locate`]; `None`: the answer comes later.
    pub(super) fn locate(&mut self, id: ClientId, lockspace: &[u8], name: &[u8]) -> Option<Answer> {
        let elsewhere = self.existing(lockspace).is_err();
        let mut search = Search {
            client: id,
            lockspace: lockspace.to_vec(),
            name: name.to_vec(),
            asked: self.node.member(),
            role: MEMBER,
            steps: 0,
            until: self.now + PATIENCE_NANOS,
            others: VecDeque::new(),
        };
        if !elsewhere {
            return match self.readable(id, lockspace) {
                Err(refused) => Some(Err(refused)),
                Ok(_) => {
                    let next = self.whereabouts(&search);
                    self.advance(search, next)
                }
            };
        }
        // Who may see its locks is not known here; an administrator may.
        let states = self.links.as_ref().map(|links| links.states()).unwrap_or_default();
        search.others = states.iter().filter(|s| s.up).filter_map(|s| s.member).collect();
        match (self.administrator(id, "asking other nodes"), search.others.pop_front()) {
            (Ok(()), Some(first)) => self.advance(search, Next::Ask(first, MEMBER)),
            _ => self.existing(lockspace).err().map(Err),
        }
    }

    /// What this node knows.
    fn whereabouts(&self, search: &Search) -> Next {
        let Some(id) = self.node.find_lockspace(&search.lockspace) else { return Next::Unsettled };
        if self.node.lockspace(id).is_none_or(|info| info.view.is_none()) {
            return Next::Unsettled;
        }
        match self.node.whereabouts(id, &search.name) {
            Some(Whereabouts::Here(info)) if is_used(&info) => {
                let (record, omitted) = cut(self.resource_record(&info));
                Next::Found(Some(record), omitted)
            }
            Some(Whereabouts::Here(_)) => Next::Found(None, 0),
            Some(Whereabouts::Nowhere) => Next::Found(None, 0),
            Some(Whereabouts::Master(member)) => Next::Ask(member, MASTER),
            Some(Whereabouts::Directory(member)) => Next::Ask(member, DIRECTORY),
            Some(Whereabouts::Unsettled) | None => Next::Unsettled,
        }
    }

    /// Goes on with a search; the answer, if this is its end.
    fn advance(&mut self, mut search: Search, next: Next) -> Option<Answer> {
        let (member, role) = match next {
            Next::Found(resource, omitted) => {
                let (whole, trouble) = (true, String::new());
                let found = LocatedRecord { resource, whole, omitted, trouble };
                return Some(Ok(ControlReply::Located(found)));
            }
            Next::Ask(member, role) if search.steps < STEPS_MAX => (member, role),
            _ => {
                let why = "nobody serves the name at the moment: it goes from one master to another; \
                           ask again, or see what dlm_tool status says is waited for";
                return Some(self.partly(&search, why.to_owned()));
            }
        };
        (search.asked, search.role) = (member, role);
        search.steps += 1;
        if let Some(since) = self.cut_off(member) {
            let node = member.node.0;
            let why = format!(
                "node {node}, which {role}, cannot be talked to (last heard {since} ago); see \
                 dlm_tool status"
            );
            return Some(self.partly(&search, why));
        }
        self.searches.last += 1;
        let ticket = self.searches.last;
        let (lockspace, name) = (search.lockspace.clone(), search.name.clone());
        self.say_note(life_of(member), &Note::Ask { ticket, lockspace, name });
        if let Some(Stage::Control(control)) =
            self.peers.get_mut(search.client).map(|p| &mut p.stage)
        {
            control.waits = true;
        }
        self.searches.open.insert(ticket, search);
        None
    }

    /// Since when a node cannot be talked to, if so.
    fn cut_off(&self, member: Member) -> Option<String> {
        let state = self.links.as_ref().and_then(|links| links.state(member.node))?;
        (!state.up).then(|| ago(self.now, state.heard.0))
    }

    /// The end of a search that did not reach the master: what this node has itself.
    fn partly(&self, search: &Search, trouble: String) -> Answer {
        let id = self.node.find_lockspace(&search.lockspace);
        let own = id.and_then(|id| self.node.resource(id, &search.name)).filter(is_used);
        let (resource, omitted) = match own.map(|info| cut(self.resource_record(&info))) {
            Some((record, omitted)) => (Some(record), omitted),
            None => (None, 0),
        };
        Ok(ControlReply::Located(LocatedRecord { resource, whole: false, omitted, trouble }))
    }

    /// Another daemon says something.
    pub(super) fn on_note(&mut self, from: Member, bytes: &[u8]) {
        match Note::from_bytes(bytes) {
            Some(Note::Ask { ticket, lockspace, name }) => {
                let answer = self.tell(&lockspace, &name);
                self.say_note(from, &Note::Told { ticket, answer });
            }
            Some(Note::Told { ticket, answer }) => self.on_told(from, ticket, answer),
            None => tracing::debug!("node {} said something unknown", from.node.0),
        }
    }

    fn say_note(&mut self, to: Member, note: &Note) {
        let Some(links) = &mut self.links else { return };
        let sent = note.to_bytes().map(|bytes| links.send_note(to, &bytes));
        if !matches!(sent, Some(Ok(()))) {
            // Whoever waits for it is told when its patience ends.
            tracing::debug!("a note to node {} was not sent: {sent:?}", to.node.0);
        }
    }

    /// What this node tells another one about a name.
    fn tell(&self, lockspace: &[u8], name: &[u8]) -> Told {
        let Some(id) = self.node.find_lockspace(lockspace) else { return Told::NoLockspace };
        if self.node.lockspace(id).is_none_or(|info| info.view.is_none()) {
            return Told::NoLockspace;
        }
        match self.node.whereabouts(id, name) {
            Some(Whereabouts::Here(info)) if is_used(&info) => {
                let (mut resource, omitted) = cut(self.resource_record(&info));
                let own = self.node.member().node.0;
                renumber(&mut resource, 0, own);
                Told::Here { resource, omitted }
            }
            Some(Whereabouts::Nowhere | Whereabouts::Here(_)) => Told::Nowhere,
            Some(Whereabouts::Master(member)) => Told::Master(note::record(member)),
            Some(Whereabouts::Directory(member)) => Told::Directory(note::record(member)),
            Some(Whereabouts::Unsettled) | None => Told::Unsettled,
        }
    }

    fn on_told(&mut self, from: Member, ticket: u64, answer: Told) {
        let asked = self.searches.open.get(&ticket).map(|search| life_of(search.asked));
        if asked != Some(life_of(from)) {
            return; // its patience had ended
        }
        let Some(mut search) = self.searches.open.remove(&ticket) else { return };
        let own = self.node.member();
        let ask = |record, role| {
            let member = note::member(record);
            if member.node == own.node { None } else { Some(Next::Ask(member, role)) }
        };
        let next = match answer {
            Told::Here { mut resource, omitted } => {
                renumber(&mut resource, own.node.0, 0);
                self.name_owners(&search, &mut resource);
                Some(Next::Found(Some(resource), omitted))
            }
            Told::Master(record) => ask(record, MASTER),
            Told::Directory(record) => ask(record, DIRECTORY),
            Told::Nowhere => Some(Next::Found(None, 0)),
            Told::Unsettled => Some(Next::Unsettled),
            Told::NoLockspace => {
                let Some(next) = search.others.pop_front() else {
                    let sentence = format!(
                        "no node that can be talked to has a lockspace {}",
                        search.lockspace.escape_ascii()
                    );
                    let answer = Err(refusal(Errno::ENOENT, sentence));
                    return self.answer_later(search.client, answer);
                };
                search.steps = 0;
                Some(Next::Ask(next, MEMBER))
            }
        };
        let next = next.unwrap_or_else(|| self.whereabouts(&search));
        let client = search.client;
        if let Some(answer) = self.advance(search, next) {
            self.answer_later(client, answer);
        }
    }

    /// Programs and labels of own processes are known here only.
    fn name_owners(&self, search: &Search, resource: &mut ResourceRecord) {
        let id = self.node.find_lockspace(&search.lockspace);
        let Some(info) = id.and_then(|id| self.node.resource(id, &search.name)) else { return };
        let here = self.resource_record(&info);
        for lock in resource.locks.iter_mut().filter(|lock| lock.node == 0) {
            if let Some(own) = here.locks.iter().find(|own| own.id == lock.remote_id) {
                lock.program.clone_from(&own.program);
                lock.label.clone_from(&own.label);
                lock.orphan = own.orphan;
            }
        }
    }

    /// Ends searches whose patience is over.
    pub(super) fn expire_searches(&mut self) {
        if self.searches.deadline().is_none_or(|at| at > self.now) {
            return;
        }
        let over =
            |(ticket, search): (&u64, &Search)| (search.until <= self.now).then_some(*ticket);
        let over: Vec<u64> = self.searches.open.iter().filter_map(over).collect();
        for ticket in over {
            let Some(search) = self.searches.open.remove(&ticket) else { continue };
            let why = format!(
                "node {}, which {}, did not answer within {} ms; see dlm_tool status",
                search.asked.node.0,
                search.role,
                PATIENCE_NANOS / 1_000_000
            );
            let answer = self.partly(&search, why);
            self.answer_later(search.client, answer);
        }
    }

    /// Answers a conversation that waits, and listens to it again.
    fn answer_later(&mut self, id: ClientId, answer: Answer) {
        match self.peers.get_mut(id).map(|peer| &mut peer.stage) {
            Some(Stage::Control(control)) if control.waits => control.waits = false,
            _ => return,
        }
        self.send_answer(id, answer);
        self.queues.controls.push_back(id);
    }
}

/// Whether somebody has a lock; names without one are remembered for a while.
fn is_used(info: &ResourceInfo) -> bool {
    !(info.granted.is_empty() && info.converting.is_empty() && info.waiting.is_empty())
}

/// Writes another number for a node; 0 is the node that the record is for.
fn renumber(resource: &mut ResourceRecord, from: u32, to: u32) {
    let change = |node: &mut u32| {
        if *node == from {
            *node = to;
        }
    };
    change(&mut resource.master);
    resource.locks.iter_mut().for_each(|lock| change(&mut lock.node));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_nodes_are_those_of_the_reader() {
        let mut record = ResourceRecord {
            name: b"r".to_vec(),
            master: 0,
            unsettled: false,
            value: None,
            locks: Vec::new(),
        };
        renumber(&mut record, 0, 2);
        assert_eq!(record.master, 2);
        renumber(&mut record, 1, 0);
        assert_eq!(record.master, 2);
        renumber(&mut record, 2, 0);
        assert_eq!(record.master, 0);
    }
}
