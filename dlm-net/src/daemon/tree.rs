//! Keeps the look-alike tree in step with views.
//!
//! Files may be slow, and nobody's locks wait for them: what a view changes in the tree is written when a
//! turn has nothing else to do, or has waited for long enough. Only what a program may look for as soon as it
//! has joined is there before it hears that it has.

use std::time::Duration;

use dlm_core::{LockspaceId, LockspaceInfo, View};

use super::reactor::Reactor;

/// Longest time that the tree is behind.
const LATE: Duration = Duration::from_millis(200);

/// Lockspaces whose members in the tree are not those of their views.
#[derive(Debug, Default)]
pub(super) struct Behind {
    spaces: Vec<LockspaceId>,
    /// Since when, nanoseconds.
    since: u64,
}

impl Behind {
    /// Whether there is any.
    pub(super) fn is_empty(&self) -> bool {
        self.spaces.is_empty()
    }
}

impl Reactor {
    /// A lockspace, which was as `info` says, gets this view.
    pub(super) fn show_view(&mut self, info: &LockspaceInfo, view: &View) {
        if info.view.is_none() {
            return self.lookalike.joined(&info.name, nodes(view));
        }
        if self.behind.spaces.is_empty() {
            self.behind.since = self.now;
        }
        if !self.behind.spaces.contains(&info.id) {
            self.behind.spaces.push(info.id);
        }
    }

    /// Brings the tree up to date, if this turn has the time.
    pub(super) fn keep_tree(&mut self) {
        if self.behind.is_empty() {
            return;
        }
        let late = self.now >= self.behind.since + LATE.as_nanos() as u64;
        if (self.has_due_work() || !self.queues.active.is_empty()) && !late {
            return;
        }
        for id in std::mem::take(&mut self.behind.spaces) {
            // Whoever has left it meanwhile is not in it.
            let Some(info) = self.node.lockspace(id) else { continue };
            if let Some(view) = info.view.filter(|_| !info.leaving) {
                self.lookalike.joined(&info.name, nodes(&view));
            }
        }
    }
}

fn nodes(view: &View) -> impl Iterator<Item = dlm_core::NodeId> {
    view.members.iter().map(|member| member.node)
}
