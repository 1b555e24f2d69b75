//! A lockspace as an auditor sees it: what it masters, what its directory says, and what it still owes
//! to anybody. Simulators and model checkers compare it over all nodes once nothing is on its way.

use crate::away::{Kind, Role};
use crate::lock::Owner;
use crate::lockspace::LockTable;
use crate::resource::Resource;
use crate::{Member, Token};

/// The books of one lockspace on one node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Audit {
    /// What is under way, a sentence each; empty at rest.
    pub owed: Vec<String>,
    /// Names this node is the master of, idle ones included.
    pub masters: Vec<Mastered>,
    /// What its directory says of names that others master: name, master, number of the mastership.
    pub entries: Vec<(Vec<u8>, Member, Token)>,
}

/// A name and its master's view of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Mastered {
    /// The name.
    pub name: Vec<u8>,
    /// Number of the mastership.
    pub term: Token,
    /// The member whose directory has the name.
    pub directory: Member,
}

pub(crate) fn audit(table: &LockTable) -> Audit {
    let cluster = &table.cluster;
    let entries = cluster.directory.entries.iter();
    let mut audit = Audit {
        owed: Vec::new(),
        masters: Vec::new(),
        entries: entries.map(|(name, e)| (name.as_bytes().to_vec(), e.master, e.term)).collect(),
    };
    let owed = &mut audit.owed;
    let mut note = |owes: bool, what: &str| owes.then(|| owed.push(what.to_owned()));
    note(!cluster.due().is_empty(), "recovery is not over");
    note(!cluster.locks_done_said, "it has not said that its locks are moved");
    note(cluster.holds_messages(), "messages are held");
    note(!cluster.jobs.is_empty(), "work is left");
    note(!cluster.inbox.is_empty(), "messages wait for their turn");
    note(!cluster.directory.rebuilding.is_empty(), "slots are not ready");
    note(cluster.owed.is_due(), "it owes what it could not grant");
    let (claims, lookups) = cluster.directory.waiting();
    note(lookups > 0, "look-ups wait");
    note(claims > 0, "claims wait");
    note(cluster.claims_open > 0, "claims are not answered");
    note(cluster.rebuilt || !cluster.record_owners.is_empty(), "records were not thawed");
    for index in 1..table.resources.end() {
        let Some(resource) = table.resources.get(index) else { continue };
        match resource.role.as_deref() {
            None => audit.masters.push(Mastered {
                name: resource.name.as_bytes().to_vec(),
                term: resource.term,
                directory: table.slot_owner(resource.name.as_bytes()),
            }),
            Some(role) => audit_role(&mut audit.owed, resource, role),
        }
        if resource.pinned {
            audit.owed.push(format!("{:?} is pinned", resource.name));
        }
    }
    for index in 1..table.locks.end() {
        let Some(lock) = table.locks.get(index) else { continue };
        if lock.owner == Owner::Nobody {
            audit.owed.push(format!("{:?} is nobody's and still there", lock.id));
        }
        if lock.away().is_some_and(|away| away.is_busy() || away.moving.is_some()) {
            audit.owed.push(format!("{:?} waits for its master", lock.id));
        }
    }
    audit
}

fn audit_role(owed: &mut Vec<String>, resource: &Resource, role: &Role) {
    let name = &resource.name;
    match role.kind {
        Kind::Remote { .. } if role.claimed => owed.push(format!("{name:?} is claimed again")),
        Kind::Remote { .. } => {}
        Kind::Lookup { .. } => owed.push(format!("{name:?} is looked up")),
        Kind::Claiming => owed.push(format!("{name:?} is claimed")),
        Kind::Rebuilding(_) => owed.push(format!("{name:?} is being rebuilt")),
        Kind::Leaving => owed.push(format!("{name:?} is being forgotten")),
    }
    if !role.parked.is_empty() {
        owed.push(format!("traffic for {name:?} is parked"));
    }
}
