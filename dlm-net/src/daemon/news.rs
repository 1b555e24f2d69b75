//! What membership says, and what it is told (membership/mod.rs).

use std::ops::Range;

use dlm_core::{Input, Instant, LockspaceId, LossReason, Member, Node, View};

use super::log::shown;
use super::reactor::Reactor;
use crate::membership::News;

/// Tokens of the backend's descriptors, between the daemon's own and those of the transport.
pub(super) const TOKENS: Range<usize> = 16..64;

impl Reactor {
    /// Lets the backend do what is due, and does what it says.
    pub(super) fn serve_membership(&mut self) {
        self.membership.on_time(Instant(self.now));
        self.take_news();
        self.carry_out();
    }

    /// Takes all news; what the core says to them is not carried out yet.
    pub(super) fn take_news(&mut self) {
        while let Some(news) = self.membership.next() {
            match news {
                News::View(lockspace, view) => self.install(lockspace, view),
                News::Safe(member) => self.make_safe(member),
                News::LifeOver(why) => {
                    if let Err(sentence) = self.end_life(&why) {
                        tracing::error!("settings of the next life: {sentence}");
                    }
                }
                News::Standing(good) => {
                    self.standing = good;
                    self.set_permit();
                }
                News::Lease(at) => self.lease_returned(at.0),
            }
        }
    }

    /// Installs a view of a lockspace.
    pub(super) fn install(&mut self, lockspace: LockspaceId, view: View) {
        let Some(info) = self.node.lockspace(lockspace) else { return };
        let of = |members: &[Member]| {
            members.iter().map(|member| member.node.0.to_string()).collect::<Vec<_>>().join(" ")
        };
        if self.links.is_some() {
            tracing::info!(
                lockspace = shown(&info.name),
                "view {}: members {}{}",
                view.id.0,
                of(&view.members),
                match view.unsafe_members.as_slice() {
                    [] => String::new(),
                    lost => format!("; waiting until lost nodes are safe: {}", of(lost)),
                }
            );
        }
        self.exclude_links(&view.unsafe_members);
        self.on_view(lockspace, &view);
        self.node.step(Instant(self.now), Input::View(lockspace, view), &mut self.outbox);
        self.queues.report = true;
    }

    /// A member is harmless from now on.
    pub(super) fn make_safe(&mut self, member: Member) {
        tracing::info!("node {} incarnation {} is safe", member.node.0, member.incarnation);
        self.changes.on_safe(member, self.now);
        self.node.step(Instant(self.now), Input::Safe(member), &mut self.outbox);
        self.queues.report = true;
    }

    /// Everything of this life is lost, and the next one begins.
    ///
    /// # Errors
    /// A setting that cannot be applied to the new life.
    pub(super) fn end_life(&mut self, why: &str) -> Result<(), String> {
        tracing::error!("{why}; its lockspaces are lost and their users are told");
        for info in self.node.lockspaces() {
            self.step(Input::Reset(info.id, LossReason::Excluded));
        }
        self.end_lease();
        let next = self.membership.begin_life();
        self.node = Node::new(next);
        self.renew_links(next);
        self.set_permit();
        self.queues.report = true;
        tracing::info!("a new life begins: incarnation {}", next.incarnation);
        self.apply_settings()
    }

    /// Tells the core until when it may grant: not at all while the cluster does not let it.
    pub(super) fn set_permit(&mut self) {
        let input = Input::LeaseUntil(Instant(self.permit()));
        self.node.step(Instant(self.now), input, &mut self.outbox);
    }

    /// Tells the backend what changed of this daemon.
    pub(super) fn report(&mut self) {
        if !std::mem::take(&mut self.queues.report) || !self.membership.wants_reports() {
            return;
        }
        let mut record = self.own_report();
        let spaces = self.node.lockspaces();
        record.stays = spaces.iter().map(|info| self.stay_record(info)).collect();
        self.membership.report(record, Instant(self.now));
    }
}
