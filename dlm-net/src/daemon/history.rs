//! The history of changes: noted when a step is over, answered page by page.

use std::time::{SystemTime, UNIX_EPOCH};

use dlm_core::{LockspaceId, View};
use dlm_ipc::control::{ControlReply, RecoveryPage, RecoveryRecord};

use super::changes::{Before, Clocks};
use super::control::Answer;
use super::log::shown;
use super::reactor::Reactor;

/// Bytes of one page, counted as [`weight`] does; below a message's ceiling.
const PAGE_WEIGHT_MAX: usize = 96 * 1024;

impl Reactor {
    /// A lockspace goes to a new view.
    pub(super) fn note_view(&mut self, lockspace: LockspaceId, view: &View) {
        let Some(info) = self.node.lockspace(lockspace) else { return };
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let wall_us = u64::try_from(wall.as_micros()).unwrap_or(u64::MAX);
        let before = Before {
            id: lockspace,
            name: &info.name,
            own: info.member,
            view: info.view.as_ref(),
            marks: &info.marks,
        };
        self.changes.on_view(&before, view, Clocks { now: self.now, wall_us });
    }

    /// Looks which changes are over; the log says what they took.
    pub(super) fn follow_changes(&mut self) {
        if !self.changes.is_open() {
            return;
        }
        let node = &self.node;
        for over in self.changes.follow(|id| node.marks(id)) {
            if self.links.is_some() {
                tracing::info!(lockspace = shown(&over.lockspace), "{}", in_words(&over));
            }
        }
    }

    /// Answers [`dlm_ipc::control::ControlRequest::Recovery`].
    pub(super) fn recovery(&self, lockspace: &[u8], from: u64) -> Answer {
        let node = &self.node;
        let all = self.changes.history(from, self.now, |id| node.marks(id));
        let wanted = all.filter(|record| lockspace.is_empty() || record.lockspace == lockspace);
        let mut page = RecoveryPage::default();
        let mut room = PAGE_WEIGHT_MAX;
        for record in wanted {
            match room.checked_sub(weight(&record)) {
                Some(rest) => room = rest,
                None => {
                    page.next = Some(record.number);
                    break;
                }
            }
            page.changes.push(record);
        }
        Ok(ControlReply::Recovery(page))
    }
}

/// An upper bound of a record's bytes in a message.
fn weight(record: &RecoveryRecord) -> usize {
    let numbers =
        record.members.len() + record.joined.len() + record.left.len() + record.failed.len();
    256 + record.lockspace.len() + 5 * numbers + 15 * record.safe.len()
}

fn in_words(over: &RecoveryRecord) -> String {
    let ms = |step: Option<u64>| step.map_or(0, |us| us.div_ceil(1000));
    format!(
        "view {}: all in service after {} ms (names known {} ms, lost nodes safe {} ms, locks moved \
         {} ms); {} names waited, {} rebuilt here, {} own locks moved, {} locks of lost nodes dropped",
        over.view,
        ms(over.thawed),
        ms(over.names_done),
        ms(over.all_safe),
        ms(over.locks_done),
        over.names_waited,
        over.names_rebuilt,
        over.locks_moved,
        over.locks_dropped
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use dlm_ipc::control::ControlMessage;

    #[test]
    fn a_record_of_the_largest_cluster_has_its_weight() {
        let all: Vec<u32> = (0..128).map(|node| u32::MAX - node).collect();
        let record = RecoveryRecord {
            number: u64::MAX,
            lockspace: vec![0xff; 64],
            view: u32::MAX,
            seq: u64::MAX,
            at_us: u64::MAX,
            age_us: u64::MAX,
            members: all.clone(),
            joined: all.clone(),
            left: all.clone(),
            failed: all.clone(),
            safe: all.iter().map(|node| (*node, Some(u64::MAX))).collect(),
            names_done: Some(u64::MAX),
            all_safe: Some(u64::MAX),
            locks_done: Some(u64::MAX),
            thawed: Some(u64::MAX),
            superseded: true,
            names_waited: u64::MAX,
            names_rebuilt: u64::MAX,
            locks_moved: u64::MAX,
            locks_dropped: u64::MAX,
        };
        let want = weight(&record);
        let page = RecoveryPage { changes: vec![record], next: Some(u64::MAX) };
        let bytes = ControlReply::Recovery(page).to_bytes().expect("it fits").len();
        assert!(bytes <= want && want < PAGE_WEIGHT_MAX, "{bytes} bytes, weight {want}");
    }
}
