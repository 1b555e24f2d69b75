//! What the core knows, in the words of control answers.

use dlm_core::{JOINS_PER_LIFE, LockInfo, LockState, LockspaceInfo, Member, Mode, ResourceInfo};
use dlm_ipc::control::{
    LockRecord, NodeFencing, NodeRecord, ResourceRecord, SpaceRecord, StatusRecord, ValueRecord,
};

use super::config::table::Key;
use super::reactor::Reactor;
use crate::ipc::peer::{Peer, Stage};

/// Users of a leaving lockspace that are named.
const USERS_MAX: usize = 4;
/// Sentences about what is waited for in a status.
const WAITS_MAX: usize = 100;

/// What an owner that is gone, or on another node, is shown as.
const NOBODY: (&str, &str) = ("", "");

impl Reactor {
    pub(super) fn space_record(&self, info: &LockspaceInfo) -> SpaceRecord {
        let change = self.changes.of_space(info.id);
        let state = match (&info.view, info.leaving) {
            (None, _) => "joining",
            (_, true) => "leaving",
            _ if !info.due.is_empty() => "recovering",
            _ => "running",
        };
        SpaceRecord {
            name: info.name.clone(),
            global_id: info.global_id,
            flags: info.flags.0,
            uid: info.access.uid,
            gid: info.access.gid,
            mode: info.access.mode,
            create_count: info.create_count,
            handles: info.handles,
            state: state.to_owned(),
            waits_for: self.waits_for(info),
            view: info.view.as_ref().map_or(0, |view| u64::from(view.id.0)),
            members: change.members.clone(),
            change,
            next_change: None,
            locks: info.locks,
            resources: info.resources,
            orphans: info.orphans,
            nodes: Vec::new(),
        }
    }

    fn waits_for(&self, info: &LockspaceInfo) -> Vec<String> {
        let mut told = Vec::new();
        if info.view.is_none() {
            told.push("membership to let this node in".to_owned());
        }
        let numbers = |members: &[Member]| {
            members.iter().map(|member| member.node.0.to_string()).collect::<Vec<_>>().join(" ")
        };
        for member in &info.due.safe {
            let node = member.node.0;
            told.push(format!(
                "node {node} to be known as safe (fenced, or gone with its clients: dlm_tool safe \
                 {node}); until then what it held or mastered is not given away"
            ));
        }
        if !info.due.names.is_empty() {
            told.push(format!("names mastered on nodes {}", numbers(&info.due.names)));
        }
        if !info.due.locks.is_empty() {
            told.push(format!("locks of nodes {} to be moved", numbers(&info.due.locks)));
        }
        if !info.leaving {
            return told;
        }
        let mut users = self.handles_on(info);
        told.extend(users.by_ref().take(USERS_MAX).map(|(peer, handle)| {
            let (pid, program) = (peer.who.pid, &handle.program);
            format!("pid {pid} ({program}) to close its handle, as the lockspace is released")
        }));
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
    ) -> impl Iterator<Item = (&'a Peer, &'a crate::ipc::peer::Handle)> + use<'a> {
        let lockspace = info.id;
        self.peers.iter().filter_map(move |(_, peer)| match &peer.stage {
            Stage::Handle(handle) if handle.lockspace == lockspace => Some((peer, &**handle)),
            _ => None,
        })
    }

    pub(super) fn status_record(&self) -> StatusRecord {
        let own = self.node.member();
        let seconds = |nanos: u64| nanos / 1_000_000_000;
        let spaces = self.node.lockspaces();
        let waits = spaces.iter().flat_map(|info| {
            let name = info.name.escape_ascii().to_string();
            self.waits_for(info).into_iter().map(move |text| format!("{name}: {text}"))
        });
        let waits = waits.chain(self.remains_in_words());
        StatusRecord {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            node: own.node.0,
            incarnation: own.incarnation / JOINS_PER_LIFE,
            cluster: self.settings.text(Key::ClusterName).to_owned(),
            membership: self.membership.name().to_owned(),
            quorate: self.membership.quorate(),
            ring: self.membership.rings(),
            now: seconds(self.now),
            uptime: seconds(self.now - self.started),
            pid: std::process::id(),
            nodes: self.node_records(),
            clients: self.counters.handles,
            waits_for: waits.take(WAITS_MAX).collect(),
            fencing: self.membership.fencing(),
        }
    }

    /// This node and all configured ones, by number.
    fn node_records(&self) -> Vec<NodeRecord> {
        let own = self.node.member();
        let spaces = self.node.lockspaces();
        let record = |node: u32, address: String, state: &str| {
            let times = self.changes.of_node(node);
            let views = spaces.iter().filter_map(|info| info.view.as_ref());
            let member = views.flat_map(|view| &view.members).any(|member| member.node.0 == node);
            let feared = spaces.iter().flat_map(|info| &info.due.safe).any(|m| m.node.0 == node);
            let state = if feared { "lost, not known to be safe" } else { state };
            NodeRecord {
                node,
                member: member || node == own.node.0,
                address,
                state: state.to_owned(),
                added: times.added,
                removed: times.removed,
                failed: times.failed,
                fenced: times.safe,
                left: 0,
                fencing: NodeFencing::default(),
            }
        };
        let Some(links) = &self.links else {
            let mut alone = record(own.node.0, "127.0.0.1".to_owned(), "member");
            alone.added = self.started / 1_000_000_000;
            return vec![alone];
        };
        let address = links.local_address().ip().to_string();
        let mut all = vec![record(own.node.0, address, "this node")];
        all.extend(links.states().iter().map(|peer| {
            let unreachable = self.unreachable.contains(&peer.node);
            let state = match (peer.up, unreachable, peer.connections) {
                (true, ..) => "connected",
                (false, true, _) => "unreachable",
                (false, false, 0) => "never heard of",
                (false, false, _) => "not connected",
            };
            record(peer.node.0, peer.address.ip().to_string(), state)
        }));
        all.sort_by_key(|node| node.node);
        all
    }

    pub(super) fn resource_record(&self, info: &ResourceInfo) -> ResourceRecord {
        let all = info.granted.iter().chain(&info.converting).chain(&info.waiting);
        ResourceRecord {
            name: info.name.clone(),
            master: info.master.map_or(0, |node| node.0),
            unsettled: false,
            value: info.value.as_ref().map(|(bytes, seq, valid)| ValueRecord {
                bytes: bytes.to_vec(),
                seq: *seq,
                valid: *valid,
            }),
            locks: all.map(|lock| self.lock_record(lock)).collect(),
        }
    }

    fn lock_record(&self, info: &LockInfo) -> LockRecord {
        let number = |mode: Option<Mode>| mode.map_or(-1, |mode| mode as i8);
        let age_us = |at: dlm_core::Instant| self.now.saturating_sub(at.0) / 1000;
        let owner = info.client.and_then(|id| self.peers.get(id));
        let (program, label) = match owner.map(|peer| &peer.stage) {
            Some(Stage::Handle(handle)) => (handle.program.as_str(), handle.label.as_str()),
            _ => NOBODY,
        };
        LockRecord {
            id: info.id.0,
            node: info.remote.map_or(0, |(node, _)| node.0),
            remote_id: info.remote.map_or(0, |(_, id)| id.0),
            pid: info.pid,
            program: program.to_owned(),
            label: label.to_owned(),
            orphan: info.client.is_none() && info.remote.is_none(),
            xid: info.xid,
            flags: info.flags.0,
            state: match info.state {
                LockState::Waiting => 1,
                LockState::Granted => 2,
                LockState::Converting => 3,
            },
            granted: number(info.granted),
            requested: number(info.requested),
            told: number(info.told.map(|(mode, _)| mode)),
            told_age_us: info.told.map_or(0, |(_, at)| age_us(at)),
            age_us: age_us(info.since),
            value_seq: info.value_seq,
            token: info.token.0,
        }
    }
}
