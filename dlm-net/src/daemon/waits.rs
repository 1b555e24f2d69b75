//! What is waited for, in words: for whom, since when, and what would end it.

use dlm_core::{Instant, LockspaceInfo, Member, NodeId};

use super::reactor::Reactor;
use crate::ipc::peer::{Handle, Peer, Stage};

/// Users of a leaving lockspace that are named.
const USERS_MAX: usize = 4;
/// Sentences about what is waited for in a status.
const WAITS_MAX: usize = 100;

impl Reactor {
    /// What a lockspace waits for.
    pub(super) fn waits_for(&self, info: &LockspaceInfo) -> Vec<String> {
        let mut told = Vec::new();
        if let Some(hindrance) = self.membership.hindrance(info.id) {
            told.extend(hindrance.words);
        } else if info.view.is_none() {
            told.push(self.first_view(info));
        }
        told.extend(info.due.safe.iter().map(|member| self.safety(*member)));
        if info.due.safe.is_empty() {
            told.extend(self.messages(info));
        }
        if info.leaving {
            told.extend(self.users_in_words(info));
        }
        told
    }

    /// What the whole daemon waits for, lockspaces by name first.
    pub(super) fn all_waits(&self, spaces: &[LockspaceInfo]) -> Vec<String> {
        let of_spaces = spaces.iter().flat_map(|info| {
            let name = info.name.escape_ascii().to_string();
            self.waits_for(info).into_iter().map(move |text| format!("{name}: {text}"))
        });
        let others = self.membership.waits_for().into_iter().chain(self.lease_in_words());
        let others = others.chain(self.silent_nodes());
        of_spaces.chain(others).chain(self.remains_in_words()).take(WAITS_MAX).collect()
    }

    fn first_view(&self, info: &LockspaceInfo) -> String {
        let since = ago(self.now, self.changes.asked(info.id));
        let end = match self.membership.name() {
            "external" => {
                "whoever feeds views (dlm_tool feed, the cluster's supervisor) lets it in once no \
                 lost node is feared there and all members can talk to this one"
            }
            _ => "it comes as soon as the cluster has agreed",
        };
        format!("membership to let this node in, since {since}: {end}")
    }

    fn safety(&self, member: Member) -> String {
        let node = member.node.0;
        let failed = self.changes.of_node(node).failed;
        let since = ago(self.now, failed * NANOS);
        let end = match self.membership.name() {
            "external" => format!(
                "whoever reaps its processes says so, or a person who has made sure: dlm_tool safe \
                 {node}"
            ),
            _ => format!(
                "fencing succeeds, or a person who has made sure says dlm_tool fence_ack {node}"
            ),
        };
        format!(
            "node {node} to be known as safe, lost since {since}; until then what it held or \
             mastered is not given away: {end}"
        )
    }

    /// Who owes messages of the installed view.
    fn messages(&self, info: &LockspaceInfo) -> Vec<String> {
        let since = ago(self.now, info.marks.installed.0);
        let (due, own) = (&info.due, info.member);
        let mut told = Vec::new();
        let view = info.view.as_ref().map_or(&[][..], |view| &view.members);
        for member in view {
            let names = due.names.contains(member).then_some("which names it masters");
            let locks = due.locks.contains(member).then_some("that its locks are moved");
            let thaws = due.thaws.contains(member).then_some("that names it took over are served");
            let owed: Vec<&str> = [names, locks, thaws].into_iter().flatten().collect();
            if owed.is_empty() {
                continue;
            }
            told.push(if *member == own {
                format!("this node to move its own locks, since {since}: it is at work")
            } else {
                let node = member.node.0;
                let owed = owed.join(" and ");
                let end = self.why_silent(*member);
                format!("messages from node {node} ({owed}), since {since}: {end}")
            });
        }
        if told.is_empty() && info.view.is_some() && info.marks.thawed.is_none() {
            told.push(format!("this node to go through its names, since {since}: it is at work"));
        }
        told
    }

    /// What ends the wait for a message.
    fn why_silent(&self, member: Member) -> String {
        let links = self.links.as_ref();
        let state = links.and_then(|links| links.state(member.node));
        match state {
            Some(state) if !state.up => format!(
                "it was last heard {} ago; it answers, or membership excludes it",
                ago(self.now, state.heard.0)
            ),
            _ => "it is connected and at work".to_owned(),
        }
    }

    /// Whether the cluster below goes on without a node: nobody waits for it to speak.
    pub(super) fn is_left_out(&self, node: NodeId) -> bool {
        self.membership.cluster_node(node).is_some_and(|below| !below.member)
    }

    /// Nodes that membership has to decide about (B5).
    fn silent_nodes(&self) -> Vec<String> {
        let Some(links) = &self.links else { return Vec::new() };
        let awaited = self.unreachable.iter().filter(|node| !self.is_left_out(**node));
        let silent = awaited.filter_map(|node| links.state(*node));
        silent
            .map(|state| {
                format!(
                    "node {} to answer, last heard {} ago: it comes back, or membership excludes \
                     it or this node",
                    state.node.0,
                    ago(self.now, state.heard.0)
                )
            })
            .collect()
    }

    fn users_in_words(&self, info: &LockspaceInfo) -> Vec<String> {
        let mut users = self.handles_on(info);
        let named = users.by_ref().take(USERS_MAX).map(|(peer, handle)| {
            let (pid, program) = (peer.who.pid, &handle.program);
            format!("pid {pid} ({program}) to close its handle, as the lockspace is released")
        });
        let mut told: Vec<String> = named.collect();
        match users.count() {
            0 => {}
            more => told.push(format!("{more} more handles")),
        }
        told
    }

    /// Open handles on a lockspace.
    pub(super) fn handles_on<'a>(
        &'a self,
        info: &LockspaceInfo,
    ) -> impl Iterator<Item = (&'a Peer, &'a Handle)> + use<'a> {
        let lockspace = info.id;
        self.peers.iter().filter_map(move |(_, peer)| match &peer.stage {
            Stage::Handle(handle) if handle.lockspace == lockspace => Some((peer, &**handle)),
            _ => None,
        })
    }
}

const NANOS: u64 = 1_000_000_000;

/// How long ago a moment of the daemon's clock was.
pub(super) fn ago(now: u64, then: u64) -> String {
    let seconds = Instant(now).since(Instant(then)).as_secs();
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        _ => format!("{} h {} min", seconds / 3600, seconds / 60 % 60),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn spans_are_readable() {
        let of = |seconds: u64| super::ago(seconds * super::NANOS, 0);
        assert_eq!([of(3), of(125), of(9000)], ["3 s", "2 min", "2 h 30 min"]);
        assert_eq!(super::ago(5, 9), "0 s");
    }
}
