//! What must be true of a lockspace's table after every step, whatever was asked before.

use std::collections::BTreeSet;

use dlm_core::{LockInfo, LockState, LockspaceId, Mode, Node, ResourceInfo};

/// Locks per page when the table is read a second time in small pieces.
const SMALL_PAGE_LOCKS: usize = 2;

/// The whole table, in one page.
pub(crate) fn table(node: &Node, lockspace: LockspaceId) -> Vec<ResourceInfo> {
    let page = node.dump(lockspace, 0, usize::MAX);
    assert_eq!(page.next, None, "a page without bound is the last");
    page.resources
}

/// All locks of a resource with the queue in which each stands.
fn queued(resource: &ResourceInfo) -> impl Iterator<Item = (LockState, &LockInfo)> {
    let granted = resource.granted.iter().map(|lock| (LockState::Granted, lock));
    let converting = resource.converting.iter().map(|lock| (LockState::Converting, lock));
    let waiting = resource.waiting.iter().map(|lock| (LockState::Waiting, lock));
    granted.chain(converting).chain(waiting)
}

/// Panics where the table contradicts itself or the rules of exclusion.
#[track_caller]
pub(crate) fn check(node: &Node, lockspace: LockspaceId) {
    let table = table(node, lockspace);
    let mut ids = BTreeSet::new();
    let (mut locks, mut orphans) = (0, 0);
    for resource in &table {
        check_exclusion(resource);
        for (queue, lock) in queued(resource) {
            assert!(ids.insert(lock.id), "{:?} is listed twice", lock.id);
            assert_ne!(lock.id.0, 0, "0 is not a lock id");
            check_lock(queue, lock);
            locks += 1;
            orphans += u64::from(lock.client.is_none());
        }
        assert!(queued(resource).next().is_some(), "{:?} has no lock", resource.name);
        let alone = node.resource(lockspace, &resource.name);
        assert_eq!(alone.as_ref(), Some(resource), "one resource and the whole table differ");
    }
    let info = node.lockspace(lockspace).expect("the lockspace exists");
    assert_eq!(info.locks, locks, "count of locks");
    assert_eq!(info.resources, table.len() as u64, "count of names");
    assert_eq!(info.orphans, orphans, "count of orphans");
}

/// The table read in small pages is the same table.
#[track_caller]
pub(crate) fn check_pages(node: &Node, lockspace: LockspaceId) {
    let (mut pieces, mut from) = (Vec::new(), Some(0));
    while let Some(position) = from {
        let page = node.dump(lockspace, position, SMALL_PAGE_LOCKS);
        assert!(page.next.is_none() || !page.resources.is_empty(), "an empty page is the last");
        assert!(page.next.is_none_or(|next| next > position), "pages move on");
        pieces.extend(page.resources);
        from = page.next;
    }
    assert_eq!(pieces, table(node, lockspace), "pages together are the whole");
}

fn check_exclusion(resource: &ResourceInfo) {
    let modes: Vec<Mode> = queued(resource).filter_map(|(_, lock)| lock.granted).collect();
    for (n, one) in modes.iter().enumerate() {
        for other in &modes[n + 1..] {
            assert!(one.compatible(*other), "{one:?} and {other:?} together: {resource:#?}");
        }
    }
}

fn check_lock(queue: LockState, lock: &LockInfo) {
    assert_eq!(lock.state, queue, "state and queue of {:?}", lock.id);
    assert_eq!(lock.granted.is_some(), queue != LockState::Waiting, "granted mode of {lock:?}");
    assert_eq!(lock.requested.is_some(), queue != LockState::Granted, "requested of {lock:?}");
    assert!(lock.client.is_some() || queue == LockState::Granted, "orphans are idle: {lock:?}");
}
