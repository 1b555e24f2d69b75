//! The daemon's side of `membership = external`: what a feeder asks and says (membership.md), and
//! the end of a life.

use dlm_core::{ClientId, Errno, LockspaceInfo, LossReason, Member, NodeId};
use dlm_ipc::control::{ControlReply, MemberRecord, StayRecord, StaysRecord, ViewRecord};
use dlm_ipc::hello::{ClientMessage, DaemonMessage};
use dlm_ipc::layout::LostReason;
use std::os::fd::AsRawFd;

use super::control::{Answer, refusal};
use super::reactor::{End, Reactor};
use crate::ipc::peer::{Lost, Stage};
use crate::membership::{External, Membership, feeder};

/// Bytes of stays in one answer, counted as [`stay_weight`] does; below a message's ceiling.
const STAYS_WEIGHT_MAX: usize = 96 * 1024;

impl Reactor {
    /// Answers [`dlm_ipc::control::ControlRequest::Stays`].
    pub(super) fn stays(&mut self, id: ClientId, after: &[u8]) -> Answer {
        self.administrator(id, "stays")?;
        let mut record = self.own_report();
        (record.tick, record.safe_after) = self.tick_for_feeder();
        let mut room = STAYS_WEIGHT_MAX;
        let spaces = self.node.lockspaces_after(after, STAYS_WEIGHT_MAX / STAY_WEIGHT);
        for info in spaces {
            let stay = self.stay_record(&info);
            let weight = stay_weight(&stay);
            if weight > room && !record.stays.is_empty() {
                record.more = true;
                break;
            }
            room = room.saturating_sub(weight);
            record.stays.push(stay);
        }
        let last = record.stays.last().map(|stay| stay.lockspace.clone());
        if let Some(last) = last {
            record.more = !self.node.lockspaces_after(&last, 1).is_empty();
        }
        Ok(ControlReply::Stays(record))
    }

    /// What a feeder has to know of this daemon, but for its stays.
    pub(super) fn own_report(&self) -> StaysRecord {
        let own = self.node.member();
        StaysRecord {
            node: own.node.0,
            life: own.incarnation,
            first_life: self.membership.first().incarnation,
            remains: self.remains.keys().copied().collect(),
            connected: self.connected(),
            unreachable: self.unreachable.iter().map(|node| node.0).collect(),
            ..StaysRecord::default()
        }
    }

    pub(super) fn stay_record(&self, info: &LockspaceInfo) -> StayRecord {
        let mut view = info.view.as_ref().map_or_else(ViewRecord::default, feeder::record);
        view.unsafe_members.retain(|record| !self.membership.is_safe(member(*record)));
        StayRecord {
            lockspace: info.name.clone(),
            incarnation: info.member.incarnation,
            view,
            wants_view: self.membership.wants_view(info.id),
        }
    }

    /// A feeder's view of a lockspace.
    pub(super) fn feed_view(
        &mut self,
        id: ClientId,
        lockspace: &[u8],
        record: &ViewRecord,
    ) -> Answer {
        self.feedable(id, "view")?;
        let info = self.existing(lockspace)?;
        let view = feeder::view(record);
        if !view.members.contains(&info.member) || !view.members.is_sorted() {
            let sentence = format!(
                "view {} does not list this node as incarnation {}, in ascending order; exclude the \
                 node's life if it is to be out",
                record.id, info.member.incarnation
            );
            return Err(refusal(Errno::EINVAL, sentence));
        }
        if info.view.as_ref().is_some_and(|old| old.id >= view.id) {
            return Ok(ControlReply::Done);
        }
        self.feedable(id, "view")?.fed(info.id);
        self.install(info.id, view);
        self.carry_out();
        Ok(ControlReply::Done)
    }

    /// A feeder's, or a person's, word that a member is harmless.
    pub(super) fn feed_safe(&mut self, id: ClientId, record: MemberRecord) -> Answer {
        let member = member(record);
        if member.node == self.node.member().node {
            return Err(refusal(Errno::EINVAL, "a node cannot be told that itself is harmless"));
        }
        let external = self.feedable(id, "safe")?;
        if !external.is_safe(member) {
            external.add_safe(member);
            self.make_safe(member);
            self.carry_out();
        }
        Ok(ControlReply::Done)
    }

    /// The cluster went on without this life: everything of it is lost, and the next one begins.
    pub(super) fn feed_exclude(&mut self, id: ClientId, life: u64) -> Answer {
        self.feedable(id, "exclude")?;
        let own = self.node.member();
        if life > own.incarnation {
            let sentence =
                format!("life {life} is not one of this node; it is {}", own.incarnation);
            return Err(refusal(Errno::EINVAL, sentence));
        }
        if life == own.incarnation {
            let ended = self.end_life("the cluster went on without this node");
            self.carry_out();
            ended.map_err(|sentence| refusal(Errno::EINVAL, sentence))?;
        }
        Ok(ControlReply::Done)
    }

    /// A feeder heard the report of this moment, and had not excluded this life when it did.
    pub(super) fn feed_tick(&mut self, id: ClientId, life: u64, at: u64) -> Answer {
        self.feedable(id, "tick")?;
        if life == self.node.member().incarnation {
            self.lease_returned(at);
            self.carry_out();
        }
        Ok(ControlReply::Done)
    }

    /// The backend, for who may feed it.
    fn feedable(&mut self, id: ClientId, what: &str) -> Result<&mut External, (Errno, String)> {
        self.administrator(id, what)?;
        let name = self.membership.name();
        self.membership.external().ok_or_else(|| {
            let sentence =
                format!("membership is {name}: views are decided there, and {what} is not taken");
            refusal(Errno(libc::EOPNOTSUPP), sentence)
        })
    }

    /// A client's lockspace is lost. It is told, and stays known until it closes its handle: only then
    /// can it do no harm any more.
    pub(super) fn lose(&mut self, id: ClientId, reason: LossReason) {
        let reason = match reason {
            LossReason::Excluded if self.lease_is_over() => LostReason::LeaseEnded,
            LossReason::Excluded => LostReason::NodeLost,
            LossReason::Daemon => LostReason::Shutdown,
            LossReason::Released => LostReason::Removed,
        };
        let (life, late) = (self.node.member().incarnation, self.is_frozen());
        let Some(peer) = self.peers.get_mut(id) else { return };
        if matches!(peer.stage, Stage::Opening(_)) {
            self.counters.handles -= 1;
            return self.refuse_open(id, Errno::ENOTRECOVERABLE);
        }
        let mut handle = match std::mem::replace(&mut peer.stage, Stage::Closing) {
            Stage::Handle(handle) => *handle,
            other => return peer.stage = other,
        };
        // What was completed before the loss still counts, unless it comes after the lease.
        let _ = (!late).then(|| handle.flush());
        handle.lose(reason);
        // Who does not read it sees the word in the page.
        let _ = peer.connection.send(&DaemonMessage::Lost(reason).encode());
        let bell = handle.side.submission_bell.as_raw_fd();
        peer.stage = Stage::Lost(Box::new(Lost { handle, life, killed: false }));
        self.deregister(bell);
        *self.remains.entry(life).or_default() += 1;
    }

    /// A client that lost its lockspace says something: only that it ends is of interest.
    pub(super) fn on_message_of_lost(&mut self, id: ClientId, message: &[u8]) {
        let (errno, ends) = match ClientMessage::decode(message) {
            Ok(ClientMessage::Close) => (0, true),
            Ok(ClientMessage::Release { .. }) => (Errno::ENOTRECOVERABLE.0, true),
            Ok(ClientMessage::Label(_)) => (Errno::ENOTRECOVERABLE.0, false),
            Err(_) => (Errno::EINVAL.0, true),
        };
        self.send(id, &DaemonMessage::Done { errno }.encode());
        if ends {
            self.doom(id, End::Gone);
        }
    }

    /// A client that lost its lockspace has closed its handle.
    pub(super) fn lost_one_ended(&mut self, life: u64) {
        if let Some(count) = self.remains.get_mut(&life) {
            *count -= 1;
            if *count == 0 {
                self.remains.remove(&life);
                tracing::info!("incarnation {life} is harmless: all its clients closed");
                self.queues.report = true;
            }
        }
    }

    /// What the end of earlier lives waits for, in words.
    pub(super) fn remains_in_words(&self) -> Vec<String> {
        let lost = self.peers.iter().filter_map(|(_, peer)| match &peer.stage {
            Stage::Lost(lost) => Some((peer.who.pid, lost)),
            _ => None,
        });
        lost.map(|(pid, lost)| {
            format!(
                "pid {pid} ({}) to close its handle, which was lost when this node was excluded; \
                 until then the others wait{}",
                lost.handle.program,
                self.patience_in_words()
            )
        })
        .collect()
    }
}

/// Most bytes that a stay's own fields take in a message.
const STAY_WEIGHT: usize = 128;
/// Most bytes that a member takes in a message.
const MEMBER_WEIGHT: usize = 14;

fn stay_weight(stay: &StayRecord) -> usize {
    let members = stay.view.members.len() + stay.view.unsafe_members.len();
    STAY_WEIGHT + members * MEMBER_WEIGHT
}

fn member(record: MemberRecord) -> Member {
    Member { node: NodeId(record.node), incarnation: record.incarnation }
}
