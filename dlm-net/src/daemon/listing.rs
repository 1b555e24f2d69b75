//! What the core knows, in the words of control answers.

use dlm_core::{
    JOINS_PER_LIFE, LockInfo, LockState, LockspaceInfo, Member, Mode, NodeId, ResourceInfo,
};
use dlm_ipc::control::{
    ChangeRecord, LockRecord, NodeFencing, NodeRecord, ResourceRecord, SpaceRecord, StatusRecord,
    ValueRecord,
};

use super::config::table::Key;
use super::reactor::Reactor;
use crate::ipc::peer::Stage;
use crate::membership::ClusterNode;

/// What an owner that is gone, or on another node, is shown as.
const NOBODY: (&str, &str) = ("", "");

impl Reactor {
    pub(super) fn space_record(&self, info: &LockspaceInfo) -> SpaceRecord {
        let over = info.marks.thawed.is_some();
        let hindrance = self.membership.hindrance(info.id);
        let (change, mut next_change) = self.changes.of_space(info.id, over);
        if let Some(next) = &mut next_change {
            next.status = match (info.due.safe.is_empty(), owing(info)) {
                (false, _) => "wait fencing".to_owned(),
                (true, count) => format!("wait messages {count}"),
            };
        }
        if let Some(hindrance) = &hindrance {
            let seq = next_change.as_ref().map_or(change.seq + 1, |next| next.seq);
            next_change = Some(ChangeRecord { seq, ..hindrance.change.clone() });
        }
        let state = match (&info.view, info.leaving) {
            (None, _) => "joining",
            (_, true) => "leaving",
            _ if !self.standing => "frozen",
            _ if !over || hindrance.is_some() => "recovering",
            _ => "running",
        };
        let mut nodes = self.changes.nodes_of(info.id);
        for node in &mut nodes {
            let of = |members: &[Member]| members.iter().any(|m| m.node.0 == node.node);
            node.feared = of(&info.due.safe);
            node.started = node.member && !(of(&info.due.names) || of(&info.due.locks));
        }
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
            members: info.view.as_ref().map_or(Vec::new(), |view| {
                view.members.iter().map(|member| member.node.0).collect()
            }),
            change,
            next_change,
            locks: info.locks,
            resources: info.resources,
            orphans: info.orphans,
            nodes,
        }
    }

    pub(super) fn status_record(&self) -> StatusRecord {
        let own = self.node.member();
        let seconds = |nanos: u64| nanos / 1_000_000_000;
        let spaces = self.node.lockspaces();
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
            waits_for: self.all_waits(&spaces),
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
            let record = NodeRecord {
                node,
                member: member || node == own.node.0,
                address,
                state: state.to_owned(),
                added: times.added,
                removed: times.removed,
                failed: times.failed,
                fenced: times.safe,
                left: times.left,
                fencing: NodeFencing::default(),
            };
            match self.membership.cluster_node(NodeId(node)) {
                Some(below) => seen_below(record, below),
                None => record,
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
            unsettled: info.unsettled,
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
            node: info.remote.filter(|_| info.copy).map_or(0, |(node, _)| node.0),
            remote_id: info.remote.map_or(0, |(_, id)| id.0),
            pid: info.pid,
            program: program.to_owned(),
            label: label.to_owned(),
            orphan: info.orphan,
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

/// Members that something is due from.
fn owing(info: &LockspaceInfo) -> usize {
    let members = info.view.as_ref().map_or(&[][..], |view| &view.members);
    let due = &info.due;
    let owes =
        |member: &&Member| [&due.names, &due.locks, &due.thaws].iter().any(|d| d.contains(member));
    members.iter().filter(owes).count()
}

/// What the cluster below knows goes before what lockspaces saw.
fn seen_below(record: NodeRecord, below: ClusterNode) -> NodeRecord {
    NodeRecord {
        member: below.member,
        state: if below.state.is_empty() { record.state } else { below.state },
        left: below.left,
        added: below.added,
        removed: below.removed,
        failed: below.failed,
        fenced: below.fenced,
        fencing: below.fencing,
        ..record
    }
}
