//! The backend: [`Order`] with its lines to corosync, fencing and the loop.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::ops::Range;
use std::time::Duration;

use dlm_core::{Instant, LockspaceId, Member, NodeId, View};
use dlm_ipc::control::{ChangeRecord, DaemonFencing, StaysRecord, wall_seconds};
use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};

use super::message::{Event, LostRecord, Process};
use super::order::{Act, Order, Rules, Setup};
use super::survey::Survey;
use super::sys::{Group, Quorum, Trouble};
use crate::daemon::config::Settings;
use crate::daemon::config::table::Key;
use crate::daemon::state::State;
use crate::membership::{ClusterNode, Fencing, FencingNews, Hindrance, Lost, Membership, News};

/// Name of the process group.
const GROUP: &str = "dlm:dlmd";
/// Between two attempts to reach corosync, and to send what it did not take.
const DIAL_PAUSE: Duration = Duration::from_secs(1);
const SEND_PAUSE: Duration = Duration::from_millis(10);

/// Whether clients of an earlier process on this machine are gone.
pub(crate) type Clean = Box<dyn FnMut() -> bool>;

/// The backend.
pub(crate) struct Corosync {
    own: Member,
    first: Member,
    state: State,
    order: Order,
    fencing: Box<dyn Fencing>,
    lines: Option<Lines>,
    /// Why there are none.
    trouble: Option<(Trouble, Instant)>,
    dial_at: Instant,
    registry: Option<Registry>,
    tokens: Range<usize>,
    /// Messages that corosync has not taken yet, in order.
    unsent: VecDeque<Vec<u8>>,
    spaces: BTreeMap<Vec<u8>, Space>,
    safe: BTreeSet<Member>,
    news: VecDeque<News>,
    clean: Clean,
    is_clean: bool,
    now: Instant,
    times: BTreeMap<u32, Times>,
}

/// The connections to corosync.
struct Lines {
    group: Group,
    quorum: Quorum,
    ready: bool,
}

/// A lockspace that is open here.
#[derive(Debug)]
struct Space {
    id: LockspaceId,
    member: Member,
    wants_view: bool,
}

/// When something became of a node, seconds.
#[derive(Clone, Copy, Default)]
struct Times {
    added: u64,
    removed: u64,
    failed: u64,
    left: u32,
}

impl Corosync {
    /// A backend for this node of the surveyed cluster, which is not joined before it is opened.
    /// `safe_after`: after how many nanoseconds a lease makes an excluded node harmless; 0: never.
    /// `clean` tells whether no client of an earlier process on this machine can act any more.
    pub(crate) fn new(
        survey: &Survey,
        rules: Rules,
        state: State,
        safe_after: u64,
        fencing: Box<dyn Fencing>,
        mut clean: Clean,
    ) -> Self {
        let own = Member::of_start(NodeId(survey.own), state.incarnation());
        let is_clean = clean();
        let setup = Setup {
            own: Process { node: survey.own, pid: std::process::id() },
            life: own.incarnation,
            nodes: survey.nodes.iter().map(|found| found.node).collect(),
            rules,
            clean: is_clean,
            boot: boot(),
            view_floor: state.last_view().0,
            safe_after,
        };
        let now = Instant(crate::sys::boot_nanos());
        Self {
            own,
            first: own,
            state,
            order: Order::new(setup, now, wall_seconds()),
            fencing,
            lines: None,
            trouble: None,
            dial_at: now,
            registry: None,
            tokens: 0..0,
            unsent: VecDeque::new(),
            spaces: BTreeMap::new(),
            safe: BTreeSet::new(),
            news: VecDeque::new(),
            clean,
            is_clean,
            now,
            times: BTreeMap::new(),
        }
    }

    /// Connects to corosync and joins the group.
    fn dial(&mut self) {
        let Some(registry) = &self.registry else { return };
        self.dial_at = self.now.after(DIAL_PAUSE);
        let joined = Quorum::follow().and_then(|quorum| Ok((Group::join(GROUP)?, quorum)));
        let (group, quorum) = match joined {
            Ok(lines) => lines,
            Err(trouble) => return self.note_trouble(trouble),
        };
        let fds = [(group.fd(), self.tokens.start), (quorum.fd(), self.tokens.start + 1)];
        for (fd, token) in fds {
            let watched = registry.register(&mut SourceFd(&fd), Token(token), Interest::READABLE);
            if let Err(error) = watched {
                return tracing::error!("corosync cannot be watched: {error}");
            }
        }
        if self.trouble.take().is_some() {
            tracing::info!("corosync is back");
        }
        self.lines = Some(Lines { group, quorum, ready: true });
    }

    fn note_trouble(&mut self, trouble: Trouble) {
        if self.trouble.is_none_or(|(known, _)| known != trouble) {
            tracing::error!("{trouble}; lockspaces wait for it");
            let since = self.trouble.map_or(self.now, |(_, since)| since);
            self.trouble = Some((trouble, since));
        }
    }

    /// Takes what corosync says.
    fn dispatch(&mut self) {
        let Some(lines) = &mut self.lines else { return };
        if !std::mem::take(&mut lines.ready) {
            return;
        }
        let heard = lines.quorum.dispatch().and_then(|mut events| {
            events.extend(lines.group.dispatch()?);
            Ok(events)
        });
        match heard {
            Ok(events) => {
                for event in events {
                    if !matches!(event, Event::Message { .. }) {
                        tracing::debug!("corosync: {event:?}");
                    }
                    self.order.event(event);
                }
            }
            Err(trouble) => self.hang_up(trouble),
        }
    }

    fn hang_up(&mut self, trouble: Trouble) {
        if let (Some(lines), Some(registry)) = (self.lines.take(), &self.registry) {
            for fd in [lines.group.fd(), lines.quorum.fd()] {
                // It was registered with success; nothing else can fail.
                let _ = registry.deregister(&mut SourceFd(&fd));
            }
        }
        self.unsent.clear();
        self.note_trouble(trouble);
        self.dial_at = self.now;
        self.order.closed();
    }

    /// Does what the state machine says, and lets fencing hear of it.
    fn carry_out(&mut self) {
        loop {
            while let Some(act) = self.order.next() {
                self.perform(act);
            }
            let Some(news) = self.fencing.next() else { break };
            match news {
                FencingNews::Send(bytes) => self.order.send_fence(bytes),
                FencingNews::Harmless(life) => self.order.found_harmless(life),
            }
        }
        self.flush();
    }

    fn perform(&mut self, act: Act) {
        match act {
            Act::Send(message) => self.unsent.push_back(message.to_bytes()),
            Act::View { lockspace, view } => self.install(&lockspace, view),
            Act::Safe(member) => {
                if self.safe.insert(member) {
                    self.news.push_back(News::Safe(member));
                }
            }
            Act::LifeOver(why) => self.news.push_back(News::LifeOver(why.to_owned())),
            Act::Standing(good) => self.news.push_back(News::Standing(good)),
            Act::Lease(at) => self.news.push_back(News::Lease(at)),
            Act::Fence { from, bytes } => {
                self.fencing.on_message(NodeId(from), &bytes, self.now);
            }
            Act::Members => {
                self.note_members(&self.order.members());
                self.fencing.on_members(self.order.body(), self.order.may_fence(), self.now);
            }
            Act::Lost => {
                let lost: Vec<Lost> = self.order.feared().map(lost).collect();
                for feared in &lost {
                    let times = self.times.entry(feared.life.node.0).or_default();
                    times.failed = feared.since.0 / 1_000_000_000;
                    times.left = feared.why;
                }
                self.fencing.on_lost(&lost, self.now);
            }
            Act::Log(line) => tracing::info!("{line}"),
        }
    }

    fn note_members(&mut self, members: &BTreeSet<u32>) {
        let seconds = self.now.0 / 1_000_000_000;
        for node in members {
            let times = self.times.entry(*node).or_default();
            if times.added <= times.removed {
                times.added = seconds.max(1);
                times.left = 0;
            }
        }
        for (node, times) in &mut self.times {
            if !members.contains(node) && times.added > times.removed {
                times.removed = seconds.max(times.added);
                times.left = times.left.max(dlm_ipc::control::left::LEAVE);
            }
        }
    }

    fn install(&mut self, lockspace: &[u8], view: View) {
        self.state.note_view(view.id);
        let Some(space) = self.spaces.get_mut(lockspace) else { return };
        if view.members.contains(&space.member) {
            space.wants_view = false;
            self.news.push_back(News::View(space.id, view));
        }
    }

    /// Sends as much as corosync takes.
    fn flush(&mut self) {
        let Some(lines) = &self.lines else { return self.unsent.clear() };
        while let Some(bytes) = self.unsent.front() {
            match lines.group.send(bytes) {
                Ok(()) => drop(self.unsent.pop_front()),
                Err(Trouble::Busy) => return,
                Err(trouble) => return self.hang_up_later(trouble),
            }
        }
    }

    /// The next dispatch finds the line broken.
    fn hang_up_later(&mut self, trouble: Trouble) {
        tracing::error!("a message cannot be sent: {trouble}");
        self.unsent.clear();
        if let Some(lines) = &mut self.lines {
            lines.ready = true;
        }
    }

    fn seconds(&self, since: Instant) -> u64 {
        self.now.0.saturating_sub(since.0) / 1_000_000_000
    }
}

fn lost((record, since): &(LostRecord, Instant)) -> Lost {
    Lost {
        life: super::order::member_of(record.life),
        why: record.why,
        wall: record.wall,
        since: *since,
        witnesses: record.witnesses.clone(),
    }
}

impl Membership for Corosync {
    fn own(&self) -> Member {
        self.own
    }

    fn name(&self) -> &'static str {
        "corosync"
    }

    fn quorate(&self) -> bool {
        self.order.is_quorate()
    }

    fn join(&mut self, lockspace: LockspaceId, name: &[u8], member: Member) {
        let space = Space { id: lockspace, member, wants_view: false };
        self.spaces.insert(name.to_vec(), space);
    }

    fn renew(&mut self, lockspace: LockspaceId, _member: Member) {
        if let Some(space) = self.spaces.values_mut().find(|space| space.id == lockspace) {
            space.wants_view = true;
        }
    }

    fn leave(&mut self, _lockspace: LockspaceId, name: &[u8]) {
        self.spaces.remove(name);
    }

    fn next(&mut self) -> Option<News> {
        self.news.pop_front()
    }

    fn open(&mut self, registry: &Registry, tokens: Range<usize>, now: Instant) -> io::Result<()> {
        self.registry = Some(registry.try_clone()?);
        self.tokens = tokens.start..tokens.start + 2;
        self.fencing.open(registry, tokens.start + 2..tokens.end)?;
        self.now = now;
        Ok(())
    }

    fn ready(&mut self, token: Token) {
        match &mut self.lines {
            Some(lines) if self.tokens.contains(&token.0) => lines.ready = true,
            _ => self.fencing.ready(token),
        }
    }

    fn on_time(&mut self, now: Instant) {
        self.now = now;
        self.order.on_time(now, wall_seconds());
        if self.lines.is_none() && now >= self.dial_at {
            self.dial();
        }
        self.dispatch();
        if !self.is_clean && self.order.is_joined() && (self.clean)() {
            self.is_clean = true;
            self.order.cleaned();
        }
        self.fencing.on_time(now);
        self.carry_out();
    }

    fn deadline(&self) -> Option<Instant> {
        let dial = self.lines.is_none().then_some(self.dial_at);
        let send = (!self.unsent.is_empty()).then(|| self.now.after(SEND_PAUSE));
        let all = [self.order.deadline(), self.fencing.deadline(), dial, send];
        all.into_iter().flatten().min()
    }

    fn wants_reports(&self) -> bool {
        true
    }

    fn report(&mut self, report: StaysRecord, now: Instant) {
        self.now = now;
        self.order.report(report);
        self.carry_out();
    }

    fn first(&self) -> Member {
        self.first
    }

    fn begin_life(&mut self) -> Member {
        self.spaces.clear();
        // Views of the life before are void.
        self.news.retain(|news| !matches!(news, News::View(..)));
        self.own = Member::of_start(self.own.node, self.state.next_incarnation());
        self.order.begin_life(self.own.incarnation);
        self.carry_out();
        self.own
    }

    fn is_safe(&self, member: Member) -> bool {
        self.safe.contains(&member)
    }

    fn wants_view(&self, lockspace: LockspaceId) -> bool {
        self.spaces.values().any(|space| space.id == lockspace && space.wants_view)
    }

    fn close(&mut self) {
        if let Some(goodbye) = self.order.close() {
            self.unsent.push_back(goodbye.to_bytes());
            self.flush();
        }
        if let Some(lines) = self.lines.take() {
            lines.group.leave();
        }
    }

    fn hindrance(&self, lockspace: LockspaceId) -> Option<Hindrance> {
        let space = self.spaces.iter().find(|(_, space)| space.id == lockspace);
        space?;
        let words = self.waits_for();
        if words.is_empty() {
            return None;
        }
        let status = match &self.order.hindered {
            Some((what, _)) => what.status(),
            None => "wait fencing".to_owned(),
        };
        let feared = self.order.feared().next();
        let change = ChangeRecord {
            node: feared.map_or(self.own.node.0, |(record, _)| record.life.node),
            removed: self.order.feared().count() as u32,
            failed: self.order.feared().count() as u32,
            members: self.order.members().into_iter().collect(),
            status,
            ..ChangeRecord::default()
        };
        Some(Hindrance { change, words })
    }

    fn waits_for(&self) -> Vec<String> {
        let mut words = Vec::new();
        if let Some((trouble, since)) = &self.trouble {
            words.push(format!("{trouble} (for {} s)", self.seconds(*since)));
        } else if let Some((what, since)) = &self.order.hindered {
            words.push(format!("{} (for {} s)", what.words(), self.seconds(*since)));
        }
        for feared in self.order.feared() {
            let told = lost(feared);
            let mut text = format!(
                "wait fencing: node {} {} {} s ago; {}",
                told.life.node.0,
                if told.why == 0 { "was not seen since the start" } else { "was lost" },
                self.seconds(told.since),
                self.fencing.words(&told)
            );
            if let Some(end) = self.order.lease_ends(feared) {
                let seconds = end.0.saturating_sub(self.now.0).div_ceil(1_000_000_000);
                text += &format!(", or wait: its lease makes it harmless in {seconds} s");
            }
            words.push(text);
        }
        words
    }

    fn rings(&self) -> (u64, u64) {
        self.order.ring_numbers()
    }

    fn cluster_node(&self, node: NodeId) -> Option<ClusterNode> {
        let times = self.times.get(&node.0).copied().unwrap_or_default();
        Some(ClusterNode {
            member: self.order.members().contains(&node.0),
            state: String::new(),
            left: times.left,
            added: times.added,
            removed: times.removed,
            failed: times.failed,
            fenced: self.fencing.fenced_at(node),
            fencing: self.fencing.of_node(node),
        })
    }

    fn configure(&mut self, settings: &Settings) {
        self.order.set_rules(Rules::of(settings));
        self.fencing.configure(settings);
        self.carry_out();
    }

    fn fencing(&self) -> DaemonFencing {
        // Who does not take part yet was not told whom the others fear.
        let in_progress_unknown = !self.order.takes_part();
        DaemonFencing { in_progress_unknown, ..self.fencing.as_whole() }
    }

    fn fence_acknowledged(&mut self, node: NodeId) -> Option<Result<(), String>> {
        let result = self.fencing.acknowledge(node, self.now);
        self.carry_out();
        Some(result)
    }
}

impl Rules {
    /// As the configuration says.
    pub(crate) fn of(settings: &Settings) -> Self {
        Self {
            quorum_lockspace: settings.flag(Key::EnableQuorumLockspace),
            quorum_fencing: settings.flag(Key::EnableQuorumFencing),
            startup_fencing: settings.flag(Key::EnableFencing)
                && settings.flag(Key::EnableStartupFencing),
        }
    }
}

/// Which boot of this machine this is.
fn boot() -> u128 {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    u128::from_str_radix(&text.trim().replace('-', ""), 16).unwrap_or(0)
}
