//! The table check: what all nodes list must be one table.
//!
//! Every lock of a node on a name mastered elsewhere has its copy at the master, with the same modes and in the
//! same queue, and the reverse; all who use a name agree on its master; and directories say of a name what its
//! master says.

use std::collections::BTreeMap;

use dlm_core::{LockFlags, LockInfo, LockState, ResourceInfo};

use crate::bed::Bed;

type Key = (u32, u32);

/// A lock as one of its two sides lists it: its name, modes and queue. That a conversion was demoted its
/// owner hears only when it ends.
fn sides(name: &[u8], lock: &LockInfo) -> String {
    let may_be_demoted =
        lock.state == LockState::Converting && lock.flags.has(LockFlags::CONVDEADLK);
    let (granted, requested) = (lock.granted.filter(|_| !may_be_demoted), lock.requested);
    format!("{} {granted:?} {requested:?} {:?}", name.escape_ascii(), lock.state)
}

fn locks(resource: &ResourceInfo) -> impl Iterator<Item = &LockInfo> {
    resource.granted.iter().chain(&resource.converting).chain(&resource.waiting)
}

/// What is wrong, if anything.
pub(crate) fn disagreement(bed: &Bed) -> Option<String> {
    let mut masters: BTreeMap<Vec<u8>, u32> = BTreeMap::new();
    let mut directories: BTreeMap<Vec<u8>, u32> = BTreeMap::new();
    // By owner and id there.
    let (mut own, mut copies): (BTreeMap<Key, String>, BTreeMap<Key, String>) = Default::default();
    for node in bed.up() {
        for resource in listed(bed, node) {
            if resource.master.is_some() && locks(&resource).next().is_none() {
                continue; // it is only remembered whose it was
            }
            let name = resource.name.escape_ascii().to_string();
            let master = resource.master.map_or(node, |master| master.0);
            if *masters.entry(resource.name.clone()).or_insert(master) != master {
                return Some(format!("{name}: node {node} takes {master} for its master"));
            }
            if *directories.entry(resource.name.clone()).or_insert(resource.directory.0)
                != resource.directory.0
            {
                return Some(format!("{name}: node {node} asks another directory"));
            }
            for lock in locks(&resource) {
                let text = sides(&resource.name, lock);
                let doubled = match (resource.master, lock.remote) {
                    (Some(_), Some(_)) => own.insert((node, lock.id.0), text).is_some(),
                    (None, Some((owner, id))) => copies.insert((owner.0, id.0), text).is_some(),
                    _ => false,
                };
                if doubled {
                    return Some(format!("{name}: a lock is listed twice on node {node}"));
                }
            }
        }
    }
    if own != copies {
        return Some(format!("owners list {own:?}\nbut masters list {copies:?}"));
    }
    directories_err(bed, &masters, &directories)
}

/// Every name that another node masters has its entry. An entry of a name that nobody uses is one that its
/// master has not forgotten yet; `left_over` sees to it that it does.
fn directories_err(
    bed: &Bed,
    masters: &BTreeMap<Vec<u8>, u32>,
    directories: &BTreeMap<Vec<u8>, u32>,
) -> Option<String> {
    for node in bed.up() {
        let said = entries(bed, node);
        for (name, master) in masters {
            let shown = name.escape_ascii();
            let due = *master != node && directories.get(name) == Some(&node);
            match said.get(name) {
                None if due => return Some(format!("{shown}: node {node} has no entry")),
                Some(other) if other != master || !due => {
                    return Some(format!("{shown}: node {node} says that {other} is its master"));
                }
                _ => {}
            }
        }
    }
    None
}

fn entries(bed: &Bed, node: u32) -> BTreeMap<Vec<u8>, u32> {
    let host = &bed.hosts[&node];
    let Some(space) = host.space else { return BTreeMap::new() };
    host.node.directory(space).into_iter().map(|(name, master)| (name, master.0)).collect()
}

fn listed(bed: &Bed, node: u32) -> Vec<ResourceInfo> {
    let host = &bed.hosts[&node];
    let Some(space) = host.space else { return Vec::new() };
    let (mut all, mut from) = (Vec::new(), 0);
    loop {
        let page = host.node.dump(space, from, 1000);
        all.extend(page.resources);
        match page.next {
            Some(next) => from = next,
            None => return all,
        }
    }
}

/// Locks, names, directory entries and time limits that are left on any node.
pub(crate) fn left_over(bed: &Bed) -> Option<String> {
    for node in bed.up() {
        let host = &bed.hosts[&node];
        let Some(info) = host.space.and_then(|space| host.node.lockspace(space)) else { continue };
        let timers = host.node.counters().timers;
        let left = (info.locks, info.resources, info.directory, info.orphans, timers);
        if left != (0, 0, 0, 0, 0) {
            let names = listed(bed, node);
            return Some(format!(
                "node {node}: locks, names, entries, orphans, time limits {left:?}: {names:?}"
            ));
        }
        if !info.due.is_empty() {
            return Some(format!("node {node} still waits for {:?}", info.due));
        }
    }
    None
}
