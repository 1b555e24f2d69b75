//! What an operator sees: bounded pages of the lock table, without stopping anything.

use crate::away::Kind;
use crate::lifecycle::{Space, Stage};
use crate::lock::{Chain, Lock, Owner, Queue};
use crate::lockspace::LockTable;
use crate::resource::Resource;
use crate::{
    Access, ClientId, Instant, LockFlags, LockId, LockspaceId, Marks, Member, Mode, NodeId,
    SpaceFlags, Token, Value, View,
};

/// A lockspace on this node.
#[derive(Clone, Debug, PartialEq)]
pub struct LockspaceInfo {
    /// Its index here.
    pub id: LockspaceId,
    /// Its name.
    pub name: Vec<u8>,
    /// Who this node is in it.
    pub member: Member,
    /// The cluster-wide number derived from the name (libdlm-abi.md 4.3).
    pub global_id: u32,
    /// Creation flags.
    pub flags: SpaceFlags,
    /// Owner, group, mode.
    pub access: Access,
    /// How often it was created and not yet released.
    pub create_count: u32,
    /// Open handles.
    pub handles: u32,
    /// The installed view; `None` while joining.
    pub view: Option<View>,
    /// Whether it is being removed and only waits for its last handles.
    pub leaving: bool,
    /// Members of the installed view, or of earlier ones, that something is due from.
    pub due: Due,
    /// When the steps of the installed view were over.
    pub marks: Marks,
    /// Locks of any state.
    pub locks: u64,
    /// Names in memory.
    pub resources: u64,
    /// Names mastered elsewhere of which this node's directory knows the master.
    pub directory: u64,
    /// Locks whose owner is dead and that wait for adoption or purge.
    pub orphans: u64,
}

/// What the recovery of a lockspace waits for; all empty: it is over.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Due {
    /// Excluded members not known to be harmless (B3).
    pub safe: Vec<Member>,
    /// Members that have yet to say which names they master in slots that moved here (R5).
    pub names: Vec<Member>,
    /// Members that have yet to say that their locks are moved (R13).
    pub locks: Vec<Member>,
    /// New masters of own locks that have yet to take them into service (R15).
    pub thaws: Vec<Member>,
    /// Members whose layout of the lockspace ([`crate::Layout`]) is not this node's: nothing goes on before
    /// their configuration is the same and they have joined again.
    pub layout: Vec<Member>,
}

impl Due {
    /// Whether nothing is due.
    pub fn is_empty(&self) -> bool {
        self.safe.is_empty()
            && self.names.is_empty()
            && self.locks.is_empty()
            && self.thaws.is_empty()
    }
}

/// Where a lock stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockState {
    /// Waiting for its first grant.
    Waiting,
    /// Granted.
    Granted,
    /// Granted, and converting.
    Converting,
}

/// A lock as listings show it.
#[derive(Clone, Debug, PartialEq)]
pub struct LockInfo {
    /// Its id.
    pub id: LockId,
    /// The handle that owns it; `None` for an orphan.
    pub client: Option<ClientId>,
    /// Where the owner is another node: that node and the id there. Of an own lock the master and
    /// the id there, if that is another node and known.
    pub remote: Option<(NodeId, LockId)>,
    /// Whether it is the copy of another node's lock.
    pub copy: bool,
    /// Whether its owner is dead and it waits for adoption or purge.
    pub orphan: bool,
    /// Process id of its (perhaps dead) owner.
    pub pid: u32,
    /// Transaction id.
    pub xid: u64,
    /// Sticky flags.
    pub flags: LockFlags,
    /// Where it stands.
    pub state: LockState,
    /// Granted mode.
    pub granted: Option<Mode>,
    /// Requested mode, while something is pending.
    pub requested: Option<Mode>,
    /// Strongest mode its holder was told about, and when.
    pub told: Option<(Mode, Instant)>,
    /// When it entered its queue.
    pub since: Instant,
    /// Value-block sequence number it saw last.
    pub value_seq: u32,
    /// Number of its last grant.
    pub token: Token,
}

/// A resource as listings show it: locks in queue order.
#[derive(Clone, Debug, PartialEq)]
pub struct ResourceInfo {
    /// Its name.
    pub name: Vec<u8>,
    /// Its master; `None`: this node.
    pub master: Option<NodeId>,
    /// Whether nobody serves it at the moment: its master is being looked up, or a new one collects
    /// what owners know.
    pub unsettled: bool,
    /// Whose directory it is in.
    pub directory: NodeId,
    /// Value block with sequence number and whether it is valid, if one is stored.
    pub value: Option<(Value, u32, bool)>,
    /// Granted queue, newest grant first.
    pub granted: Vec<LockInfo>,
    /// Converting queue, head first.
    pub converting: Vec<LockInfo>,
    /// Waiting queue, head first.
    pub waiting: Vec<LockInfo>,
}

/// Where a name's locks are known, as far as this node can tell.
#[derive(Clone, Debug, PartialEq)]
pub enum Whereabouts {
    /// Here: this node masters it.
    Here(ResourceInfo),
    /// At that member, which masters it.
    Master(Member),
    /// That member's directory knows the master.
    Directory(Member),
    /// Nowhere: nobody uses it.
    Nowhere,
    /// Nobody serves it at the moment: it is between two masters.
    Unsettled,
}

/// A bounded part of a lockspace's table.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DumpPage {
    /// Resources, each whole.
    pub resources: Vec<ResourceInfo>,
    /// Where to go on; `None` at the end.
    pub next: Option<u64>,
}

/// Counts since the start, for operators and benchmarks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeCounters {
    /// Steps made.
    pub steps: u64,
    /// New requests, conversions, unlocks and cancels that were accepted.
    pub operations: u64,
    /// Calls refused with an errno.
    pub refusals: u64,
    /// Grants, conversions included.
    pub grants: u64,
    /// Operations that had to queue.
    pub waits: u64,
    /// Blocking callbacks handed out.
    pub blocking: u64,
    /// Armed time limits at this moment.
    pub timers: u64,
}

pub(crate) fn lockspace(space: &Space) -> LockspaceInfo {
    LockspaceInfo {
        id: space.id,
        name: space.name.clone(),
        member: space.table.cluster.me,
        global_id: global_id(&space.name),
        flags: space.flags,
        access: space.access,
        create_count: space.create_count,
        handles: space.handles,
        view: space.view.clone(),
        leaving: matches!(space.stage, Stage::Leaving { .. }),
        due: space.table.cluster.due(),
        marks: space.table.cluster.marks.clone(),
        locks: space.table.locks.len() as u64,
        resources: space.table.resources_used() as u64,
        directory: space.table.cluster.directory.entries.len() as u64,
        orphans: space.table.orphan_count,
    }
}

pub(crate) fn page(table: &LockTable, from: u64, locks_max: usize) -> DumpPage {
    let mut page = DumpPage::default();
    let mut locks = 0;
    let start = u32::try_from(from).unwrap_or(u32::MAX).max(1);
    for index in start..table.resources.end() {
        let Some(used) = table.resources.get(index).filter(|resource| !resource.is_unused()) else {
            continue;
        };
        if locks >= locks_max && !page.resources.is_empty() {
            page.next = Some(u64::from(index));
            break;
        }
        let info = resource(table, used);
        locks += info.granted.len() + info.converting.len() + info.waiting.len();
        page.resources.push(info);
    }
    page
}

/// Names mastered elsewhere, with the master that this node's directory knows.
pub(crate) fn directory(table: &LockTable) -> Vec<(Vec<u8>, NodeId)> {
    let entries = table.cluster.directory.entries.iter();
    let mut all: Vec<_> =
        entries.map(|(name, entry)| (name.as_bytes().to_vec(), entry.master.node)).collect();
    all.sort_unstable();
    all
}

pub(crate) fn resource(table: &LockTable, resource: &Resource) -> ResourceInfo {
    let list = |queue: Queue| {
        queue
            .iter(&table.locks, Chain::Resource)
            .map(|index| lock(table, &table.locks[index]))
            .collect()
    };
    let mut info = ResourceInfo {
        name: resource.name.as_bytes().to_vec(),
        master: None,
        unsettled: false,
        directory: table.slot_owner(resource.name.as_bytes()).node,
        value: resource.value.as_ref().map(|v| (**v, resource.value_seq, !resource.invalid)),
        granted: list(resource.granted),
        converting: list(Queue::from_heads(resource.first_converting())),
        waiting: list(Queue::from_heads(resource.first_waiting())),
    };
    if let Some(role) = &resource.role {
        match role.kind {
            Kind::Remote { master, .. } => {
                info.master = Some(master.node);
                info.unsettled = !table.cluster.is_member(master);
            }
            Kind::Leaving => {}
            _ => info.unsettled = true,
        }
        for index in role.own.iter(&table.locks, Chain::Resource) {
            let own = lock(table, &table.locks[index]);
            match own.state {
                LockState::Granted => info.granted.push(own),
                LockState::Converting => info.converting.push(own),
                LockState::Waiting => info.waiting.push(own),
            }
        }
    }
    info
}

/// Who is to be asked about a name.
pub(crate) fn whereabouts(table: &LockTable, name: &[u8]) -> Whereabouts {
    if let Some(index) = table.find_resource(name) {
        let resource_here = &table.resources[index];
        match resource_here.role.as_ref().map(|role| &role.kind) {
            None if resource_here.is_unused() => return Whereabouts::Nowhere,
            None => return Whereabouts::Here(resource(table, resource_here)),
            Some(Kind::Remote { master, .. }) if table.cluster.is_member(*master) => {
                return Whereabouts::Master(*master);
            }
            Some(Kind::Lookup { .. }) => {}
            Some(_) => return Whereabouts::Unsettled,
        }
    }
    let owner = table.slot_owner(name);
    if owner != table.cluster.me {
        return Whereabouts::Directory(owner);
    }
    match table.directory_master(name) {
        Ok(Some(master)) => Whereabouts::Master(master),
        Ok(None) => Whereabouts::Nowhere,
        Err(_) => Whereabouts::Unsettled,
    }
}

fn lock(table: &LockTable, lock: &Lock) -> LockInfo {
    let rare = lock.rare.as_deref();
    let away = rare.and_then(|rare| rare.away.as_ref());
    let pending = lock.state != LockState::Granted;
    let mut remote = None;
    if let Owner::Remote { peer, id } = lock.owner {
        let member = table.cluster.peers[usize::from(peer)].member;
        remote = Some((member.node, id));
    } else if let Some(away) = away {
        remote = away.master.map(|master| (master.node, away.master_id));
    }
    LockInfo {
        id: lock.id,
        client: match lock.owner {
            Owner::Client(client) => Some(client),
            _ => None,
        },
        remote,
        copy: matches!(lock.owner, Owner::Remote { .. }),
        orphan: matches!(lock.owner, Owner::Orphan),
        pid: lock.pid,
        xid: rare.map_or(0, |rare| rare.xid),
        flags: lock.flags,
        state: lock.state,
        granted: lock.granted,
        requested: lock.requested.filter(|_| pending),
        told: (lock.told != Mode::NL)
            .then(|| (lock.told, rare.map_or(lock.since.into(), |rare| rare.told_at))),
        since: lock.since.into(),
        value_seq: lock.value_seq(),
        token: lock.token,
    }
}

/// The cluster-wide number of a lockspace: the inverted CRC-32 of `dlm:ls:<name>` and its NUL
/// (libdlm-abi.md 4.3).
pub(crate) fn global_id(name: &[u8]) -> u32 {
    let mut crc = u32::MAX;
    for byte in b"dlm:ls:".iter().chain(name).chain(&[0]) {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = (crc >> 1) ^ (0xedb8_8320 & (crc & 1).wrapping_neg());
        }
    }
    !crc
}

#[cfg(test)]
mod tests {
    #[test]
    fn global_ids_are_those_that_tools_show() {
        // libdlm-abi.md 4.3; the numbers of two lockspaces as listed by the original tool.
        assert_eq!(super::global_id(b"demo"), 0xa84c_f245);
        assert_eq!(super::global_id(b"demo2"), 0x396c_4211);
    }
}
