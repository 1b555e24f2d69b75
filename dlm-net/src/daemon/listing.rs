//! What the core knows, in the words of control answers.

use dlm_core::{LockInfo, LockState, LockspaceInfo, Mode, ResourceInfo, View};
use dlm_ipc::control::{
    ChangeRecord, LockRecord, NodeRecord, ResourceRecord, SpaceRecord, StatusRecord, ValueRecord,
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
        let change = info.view.as_ref().map(|view| self.change(view)).unwrap_or_default();
        let state = match (&info.view, info.leaving) {
            (None, _) => "joining",
            (_, true) => "leaving",
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
        }
    }

    /// The change that led to a view of this node alone: it joined.
    fn change(&self, view: &View) -> ChangeRecord {
        let members: Vec<u32> = view.members.iter().map(|member| member.node.0).collect();
        ChangeRecord {
            node: self.node.member().node.0,
            joined: 1,
            seq: 1,
            members,
            ..ChangeRecord::default()
        }
    }

    fn waits_for(&self, info: &LockspaceInfo) -> Vec<String> {
        if !info.leaving {
            return Vec::new();
        }
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
        let node = NodeRecord {
            node: own.node.0,
            member: true,
            address: "127.0.0.1".to_owned(),
            state: "member".to_owned(),
            added: seconds(self.started),
            ..NodeRecord::default()
        };
        let spaces = self.node.lockspaces();
        let waits = spaces.iter().flat_map(|info| {
            let name = info.name.escape_ascii().to_string();
            self.waits_for(info).into_iter().map(move |text| format!("{name}: {text}"))
        });
        StatusRecord {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            node: own.node.0,
            incarnation: own.incarnation,
            cluster: self.settings.text(Key::ClusterName).to_owned(),
            membership: self.membership.name().to_owned(),
            quorate: self.membership.quorate(),
            ring: (1, 1),
            now: seconds(self.now),
            uptime: seconds(self.now - self.started),
            pid: std::process::id(),
            nodes: vec![node],
            clients: self.counters.handles,
            waits_for: waits.take(WAITS_MAX).collect(),
        }
    }

    pub(super) fn resource_record(&self, info: &ResourceInfo) -> ResourceRecord {
        let all = info.granted.iter().chain(&info.converting).chain(&info.waiting);
        ResourceRecord {
            name: info.name.clone(),
            master: info.master.map_or(0, |node| node.0),
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
