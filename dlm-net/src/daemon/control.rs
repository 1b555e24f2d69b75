//! Requests of operators and their tools (ipc.md section 4).
//!
//! One request is served per turn, with bounded work, so that a listing of a huge table is a row of
//! small delays to locks instead of a stop.

use std::collections::VecDeque;
use std::io;

use dlm_core::{ClientId, Errno, Input, LockspaceInfo, NodeId};
use dlm_ipc::control::{
    ConfigRecord, ControlMessage, ControlReply, ControlRequest, LockRecord, LogPage,
    ResourceRecord, SPACES_PER_ANSWER, SpaceRecord, TablePage,
};

use super::config::table::Key;
use super::reactor::{End, Reactor};
use crate::ipc::peer::{Control, Stage};

/// Locks collected for one page of a table.
const PAGE_LOCKS_MAX: usize = 200;
/// Bytes of one page of a table, counted as [`weight`] does; well below a message's ceiling.
const PAGE_WEIGHT_MAX: usize = 96 * 1024;
/// Bytes of one answer with lockspaces, counted as [`space_weight`] does.
const SPACES_WEIGHT_MAX: usize = 96 * 1024;
/// Marks a position in the rest of a page that did not fit an answer.
const REST: u64 = 1 << 63;

/// An answer, or an errno with a sentence that says what to do.
pub(super) type Answer = Result<ControlReply, (Errno, String)>;

pub(super) fn refusal(errno: Errno, message: impl Into<String>) -> (Errno, String) {
    (errno, message.into())
}

impl Reactor {
    /// Serves one request of one conversation.
    pub(super) fn serve_controls(&mut self) {
        let Some(id) = self.queues.controls.pop_front() else { return };
        if self.control_mut(id).is_some_and(|control| control.waits) {
            return; // it is taken up again with its answer
        }
        let mut buffer = std::mem::take(&mut self.buffer);
        let received = match self.peers.get(id) {
            Some(peer) => peer.connection.recv(&mut buffer).map(|message| message.map(<[u8]>::len)),
            None => Ok(Some(0)),
        };
        match received {
            Ok(Some(length)) if length > 0 => {
                self.queues.controls.push_back(id);
                self.serve_request(id, &buffer[..length]);
            }
            Ok(Some(_)) => {}
            Ok(None) => self.doom(id, End::Gone),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => self.doom(id, End::Fault),
        }
        self.buffer = buffer;
    }

    fn serve_request(&mut self, id: ClientId, message: &[u8]) {
        let request = match ControlRequest::from_bytes(message) {
            Ok(request) => request,
            Err(bad) => {
                self.tell_fault(id, "ended", &bad);
                return self.doom(id, End::Fault);
            }
        };
        let answer = match &request {
            ControlRequest::Locate { lockspace, name } => self.locate(id, lockspace, name),
            request => Some(self.answer(id, request)),
        };
        if let Some(answer) = answer {
            self.send_answer(id, answer);
        }
    }

    pub(super) fn send_answer(&mut self, id: ClientId, answer: Answer) {
        let answer = answer.unwrap_or_else(|(errno, message)| {
            self.counters.refused(errno.0);
            tracing::debug!(pid = self.pid(id), "control request refused: {message}");
            ControlReply::Refused { errno: errno.0, message }
        });
        match answer.to_bytes() {
            Ok(bytes) => self.send(id, &bytes),
            Err(error) => {
                tracing::error!("a control answer is too long: {error}");
                self.doom(id, End::Fault);
            }
        }
    }

    fn answer(&mut self, id: ClientId, request: &ControlRequest) -> Answer {
        match request {
            ControlRequest::Lockspaces => Ok(self.spaces_after(b"")),
            ControlRequest::LockspacesAfter { name } => Ok(self.spaces_after(name)),
            ControlRequest::Status => Ok(ControlReply::Status(self.status_record())),
            ControlRequest::Table { lockspace, from } => self.table(id, lockspace, *from),
            ControlRequest::Resource { lockspace, name } => self.resource(id, lockspace, name),
            ControlRequest::Log { from } => {
                let page = self.log.page(*from);
                let (first, lines, next) = (page.first, page.lines, page.next);
                Ok(ControlReply::Log(LogPage { first, lines, next }))
            }
            ControlRequest::Config => Ok(ControlReply::Config(self.config_records())),
            ControlRequest::SetConfig { key, value } => self.set_config(id, key, value),
            ControlRequest::ReloadConfig => {
                self.administrator(id, "reload_config")?;
                let reloaded = self.reload_config();
                reloaded.map_err(|sentence| refusal(Errno::EINVAL, sentence))?;
                Ok(ControlReply::Done)
            }
            ControlRequest::Purge { lockspace, pid } => self.purge(id, lockspace, *pid),
            ControlRequest::Shutdown { force } => self.shutdown(id, *force),
            ControlRequest::Counters => Ok(ControlReply::Counters(self.counter_values())),
            ControlRequest::FenceAck { node } => {
                self.administrator(id, "fence_ack")?;
                if let Some(taken) = self.membership.fence_acknowledged(NodeId(*node)) {
                    let refused = |sentence| refusal(Errno::EINVAL, sentence);
                    return taken.map(|()| ControlReply::Done).map_err(refused);
                }
                let sentence = match self.membership.name() {
                    "single" => {
                        format!(
                            "node {node} needs no fencing: membership is single, this node alone"
                        )
                    }
                    name => format!("membership is {name}: say dlm_tool safe {node} instead"),
                };
                Err(refusal(Errno(libc::EOPNOTSUPP), sentence))
            }
            ControlRequest::Stays { after } => self.stays(id, after),
            ControlRequest::View { lockspace, view } => self.feed_view(id, lockspace, view),
            ControlRequest::Safe { member } => self.feed_safe(id, *member),
            ControlRequest::Exclude { life } => self.feed_exclude(id, *life),
            ControlRequest::Tick { life, at } => self.feed_tick(id, *life, *at),
            ControlRequest::Recovery { lockspace, from } => self.recovery(lockspace, *from),
            ControlRequest::Locate { .. } => {
                Err(refusal(Errno::EINVAL, "this request has its answer later"))
            }
        }
    }

    fn spaces_after(&self, name: &[u8]) -> ControlReply {
        let (mut records, mut room) = (Vec::new(), SPACES_WEIGHT_MAX);
        for info in self.node.lockspaces_after(name, SPACES_PER_ANSWER) {
            let record = self.space_record(&info);
            let weight = space_weight(&record);
            if weight > room && !records.is_empty() {
                break;
            }
            room = room.saturating_sub(weight);
            records.push(record);
        }
        ControlReply::Lockspaces(records)
    }

    pub(super) fn administrator(&self, id: ClientId, what: &str) -> Result<(), (Errno, String)> {
        let peer = self.peers.get(id).ok_or_else(|| refusal(Errno::EBADF, "the caller is gone"))?;
        if self.policy.rights.may_control(&peer.who) {
            return Ok(());
        }
        Err(refusal(
            Errno::EPERM,
            format!("{what} is for root, the daemon's user and control_group; ask one of them"),
        ))
    }

    /// A lockspace whose locks the caller may see: who may open it may.
    pub(super) fn readable(
        &self,
        id: ClientId,
        name: &[u8],
    ) -> Result<LockspaceInfo, (Errno, String)> {
        let info = self.existing(name)?;
        let peer = self.peers.get(id).ok_or_else(|| refusal(Errno::EBADF, "the caller is gone"))?;
        let rights = &self.policy.rights;
        if rights.may_open(&peer.who, info.access) || rights.may_control(&peer.who) {
            return Ok(info);
        }
        Err(refusal(
            Errno::EACCES,
            format!(
                "locks of {} are shown to those who may open it (mode {:o}, owner {}, group {})",
                name.escape_ascii(),
                info.access.mode,
                info.access.uid,
                info.access.gid
            ),
        ))
    }

    pub(super) fn existing(&self, name: &[u8]) -> Result<LockspaceInfo, (Errno, String)> {
        let found = self.node.find_lockspace(name).and_then(|id| self.node.lockspace(id));
        found.ok_or_else(|| {
            let sentence = format!("there is no lockspace {} on this node", name.escape_ascii());
            refusal(Errno::ENOENT, sentence)
        })
    }

    fn table(&mut self, id: ClientId, lockspace: &[u8], from: u64) -> Answer {
        let info = self.readable(id, lockspace)?;
        let (records, next) = if from & REST == 0 {
            let page = self.node.dump(info.id, from, PAGE_LOCKS_MAX);
            let records = page.resources.iter().map(|info| self.resource_record(info)).collect();
            (records, page.next)
        } else {
            let rest = self.control_mut(id).filter(|control| control.rest_number == from);
            let rest = rest.ok_or_else(|| {
                refusal(Errno::EINVAL, "no listing waits at this position; start again at 0")
            })?;
            (std::mem::take(&mut rest.rest), rest.rest_next)
        };
        let (resources, rest) = fit(records);
        let next = if rest.is_empty() { next } else { Some(self.keep_rest(id, rest, next)) };
        Ok(ControlReply::Table(TablePage { resources, next }))
    }

    fn keep_rest(
        &mut self,
        id: ClientId,
        rest: VecDeque<ResourceRecord>,
        next: Option<u64>,
    ) -> u64 {
        let Some(control) = self.control_mut(id) else { return 0 };
        control.rest_number = (control.rest_number + 1) | REST;
        (control.rest, control.rest_next) = (rest, next);
        control.rest_number
    }

    fn control_mut(&mut self, id: ClientId) -> Option<&mut Control> {
        match &mut self.peers.get_mut(id)?.stage {
            Stage::Control(control) => Some(control),
            _ => None,
        }
    }

    fn resource(&self, id: ClientId, lockspace: &[u8], name: &[u8]) -> Answer {
        let info = self.readable(id, lockspace)?;
        let found = self.node.resource(info.id, name);
        let record = found.map(|info| self.resource_record(&info));
        if record.as_ref().is_some_and(|record| weight(record) > PAGE_WEIGHT_MAX) {
            let sentence = "the name has more locks than one answer holds; list the lockspace";
            return Err(refusal(Errno(libc::E2BIG), sentence));
        }
        Ok(ControlReply::Resource(record))
    }

    pub(super) fn config_records(&self) -> Vec<ConfigRecord> {
        let record = |key: &Key| {
            let (value, source) = self.settings.value(*key);
            ConfigRecord {
                key: key.spec().name.to_owned(),
                value: value.to_owned(),
                source: source.words().to_owned(),
            }
        };
        Key::ALL.iter().map(record).collect()
    }

    fn set_config(&mut self, id: ClientId, key: &str, value: &str) -> Answer {
        self.administrator(id, "set_config")?;
        let before = self.settings.clone();
        self.settings
            .change(key, value)
            .map_err(|error| refusal(Errno::EINVAL, error.to_string()))?;
        if let Err(sentence) = self.apply_settings() {
            self.settings = before;
            return Err(refusal(Errno::EINVAL, sentence));
        }
        tracing::info!("set_config {key}={value}");
        Ok(ControlReply::Done)
    }

    fn purge(&mut self, id: ClientId, lockspace: &[u8], pid: u32) -> Answer {
        self.administrator(id, "purge")?;
        let before = self.existing(lockspace)?;
        self.step(Input::PurgeOrphans(before.id, pid));
        let after = self.node.lockspace(before.id).map_or(0, |info| info.orphans);
        let removed = before.orphans.saturating_sub(after);
        tracing::info!(lockspace = super::log::shown(lockspace), pid, "{removed} orphans purged");
        Ok(ControlReply::Purged(removed))
    }

    fn shutdown(&mut self, id: ClientId, force: bool) -> Answer {
        self.administrator(id, "shutdown")?;
        let users = self.users();
        if force || users.is_empty() {
            self.stop.end("an administrator asked for it");
            return Ok(ControlReply::Done);
        }
        let sentence = format!("{}; end these, or use --force", users.join("; "));
        Err(refusal(Errno::EBUSY, sentence))
    }

    /// Counts for monitoring, in a fixed order; where there are other nodes, messages sent to them by
    /// kind; refusals by errno come last.
    fn counter_values(&self) -> Vec<(String, u64)> {
        let core = self.node.counters();
        let spaces = self.node.lockspaces();
        let sum = |of: fn(&LockspaceInfo) -> u64| spaces.iter().map(of).sum::<u64>();
        let own = [
            ("steps", core.steps),
            ("operations", core.operations),
            ("refusals", core.refusals),
            ("grants", core.grants),
            ("waits", core.waits),
            ("blocking", core.blocking),
            ("timers", core.timers),
            ("lockspaces", spaces.len() as u64),
            ("locks", sum(|info| info.locks)),
            ("resources", sum(|info| info.resources)),
            ("directory_entries", sum(|info| info.directory)),
            ("orphans", sum(|info| info.orphans)),
            ("clients", u64::from(self.counters.handles)),
            ("connections", self.peers.len() as u64),
            ("turned_away", self.counters.turned_away),
            ("faults", self.counters.faults),
            ("descriptors", open_descriptors()),
            ("rss_kib", resident_kib()),
            ("turns", self.counters.turns),
            ("slowest_turn_us", self.counters.slowest_turn / 1000),
            ("uptime_s", (self.now - self.started) / 1_000_000_000),
        ];
        let named = own.into_iter().map(|(name, value)| (name.to_owned(), value));
        let messages = self.counters.messages().filter(|_| self.links.is_some());
        let named = named.chain(messages.map(|(name, value)| (name.to_owned(), value)));
        let refusals = self.counters.refusals().map(|(errno, count)| {
            let name = match Errno(errno).name() {
                "E?" => format!("refused_{errno}"),
                name => format!("refused_{name}"),
            };
            (name, count)
        });
        named.chain(refusals).collect()
    }
}

/// A record of which as many locks are left as an answer holds, and how many that leaves out.
pub(super) fn cut(mut record: ResourceRecord) -> (ResourceRecord, u64) {
    let fitting = fitting_locks(&record.locks);
    let omitted = record.locks.len() - fitting;
    record.locks.truncate(fitting);
    (record, omitted as u64)
}

/// How many locks of one record fit an answer that has nothing else.
fn fitting_locks(locks: &[LockRecord]) -> usize {
    let mut left = PAGE_WEIGHT_MAX - RECORD_WEIGHT;
    let fits = |lock: &&LockRecord| match left.checked_sub(lock_weight(lock)) {
        Some(rest) => {
            left = rest;
            true
        }
        None => false,
    };
    locks.iter().take_while(fits).count()
}

/// As many records as an answer holds, at least a part of the first, and the rest. A record that is
/// too long by itself is cut between locks: both parts bear its name, so that no lock is lost or
/// listed twice.
fn fit(mut records: VecDeque<ResourceRecord>) -> (Vec<ResourceRecord>, VecDeque<ResourceRecord>) {
    let mut fitting = Vec::new();
    let mut room = PAGE_WEIGHT_MAX;
    while let Some(mut record) = records.pop_front() {
        if weight(&record) <= room {
            room -= weight(&record);
            fitting.push(record);
            continue;
        }
        if fitting.is_empty() {
            let rest = record.locks.split_off(fitting_locks(&record.locks));
            records.push_front(ResourceRecord { locks: rest, ..record.clone() });
            fitting.push(record);
        } else {
            records.push_front(record);
        }
        break;
    }
    (fitting, records)
}

/// An upper bound of a lockspace's bytes in a message.
fn space_weight(space: &SpaceRecord) -> usize {
    let changes = space.change.members.len()
        + space.next_change.as_ref().map_or(0, |change| change.members.len() + 16);
    let words: usize = space.waits_for.iter().map(|text| text.len() + 5).sum();
    256 + space.name.len() + words + 5 * (space.members.len() + changes) + 44 * space.nodes.len()
}

/// Most bytes that a record's own fields take in a message.
const RECORD_WEIGHT: usize = 160;
/// Most bytes that a lock's numbers take in a message.
const LOCK_WEIGHT: usize = 128;

/// An upper bound of a record's bytes in a message.
fn weight(record: &ResourceRecord) -> usize {
    RECORD_WEIGHT + record.locks.iter().map(lock_weight).sum::<usize>()
}

fn lock_weight(lock: &LockRecord) -> usize {
    LOCK_WEIGHT + lock.program.len() + lock.label.len()
}

fn open_descriptors() -> u64 {
    // The listing itself is one.
    std::fs::read_dir("/proc/self/fd").map_or(0, |all| all.count().saturating_sub(1) as u64)
}

fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}
