//! When the steps of the installed view were over, and what it cost, for listings (recovery.md
//! section 5). Nothing is decided by it, so it is no part of a node's digest.

use core::hash::{Hash, Hasher};
use std::collections::BTreeMap;

use crate::cluster::{Cluster, Job};
use crate::{Instant, Member};

/// The steps of one view as one member saw them. A moment is absent while its step is not over.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Marks {
    /// When the view was installed.
    pub installed: Instant,
    /// Everybody had said which names they master in slots that moved here; at once if none did.
    pub names_done: Option<Instant>,
    /// Every excluded member was known to be harmless.
    pub all_safe: Option<Instant>,
    /// Everybody had said that their locks are moved.
    pub locks_done: Option<Instant>,
    /// Names rebuilt here were in service again, own locks settled, locks of the lost dropped.
    pub thawed: Option<Instant>,
    /// Names of this node that had to wait: their master was lost, or was being asked for.
    pub names_waited: u64,
    /// Names that this node rebuilt.
    pub names_rebuilt: u64,
    /// Own locks that moved to a new master, this node included.
    pub locks_moved: u64,
    /// Locks of lost members that were dropped here.
    pub locks_dropped: u64,
    /// New masters that did not thaw yet, and how many own locks each was sent.
    pub thaws_due: BTreeMap<Member, u64>,
}

/// What only listings show.
impl Hash for Marks {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

impl Marks {
    /// A view is installed.
    pub(crate) fn begin(now: Instant) -> Self {
        Self { installed: now, ..Self::default() }
    }

    /// A new master does not know a lock that it was sent: it thaws it never.
    pub(crate) fn thaw_refused(&mut self, master: Member) {
        if let Some(sent) = self.thaws_due.get_mut(&master) {
            *sent -= 1;
        }
        self.thaws_due.retain(|_, sent| *sent > 0);
    }
}

impl Cluster {
    /// Looks which steps are over by `now`.
    pub(crate) fn mark(&mut self, now: Instant) {
        if self.marks.thawed.is_some() {
            return;
        }
        let safe = self.all_safe();
        let works = self.jobs.iter().any(|job| !matches!(job, Job::Names { .. }));
        let marks = &mut self.marks;
        if self.names_due.is_empty() {
            marks.names_done.get_or_insert(now);
        }
        if safe {
            marks.all_safe.get_or_insert(now);
        }
        if self.locks_due.is_empty() {
            marks.locks_done.get_or_insert(now);
        }
        let thaws = marks.thaws_due.keys().any(|member| self.view.members.contains(member));
        let said = marks.names_done.is_some() && marks.locks_done.is_some();
        if said && safe && !works && !thaws {
            marks.thawed = Some(now);
        }
    }
}
