//! Lockspaces whose masters are the owners of their names' slots, and weighted slots
//! (semantics.md 7.3; recovery.md section 5, nodir).

use dlm_core::{Layout, LockFlags, LockId, Mode, NodeId, SbFlags, Status};

use crate::several::Several;

const NAMES: usize = 100;

fn nodir() -> Layout {
    Layout { nodir: true, masters: Vec::new() }
}

fn name(number: usize) -> String {
    format!("name-{number}")
}

/// One writer with a value, one that converts, two that wait: of each name, spread over three nodes.
struct Load {
    holders: Vec<LockId>,
    converters: Vec<LockId>,
    waiters: Vec<[LockId; 2]>,
}

fn load(several: &mut Several) -> Load {
    let (mut holders, mut converters, mut waiters) = (Vec::new(), Vec::new(), Vec::new());
    for number in 0..NAMES {
        let name = name(number);
        holders.push(several.lock(number % 3, &name, Mode::PR, LockFlags::VALBLK));
        let converter = several.lock((number + 1) % 3, &name, Mode::NL, LockFlags(0));
        several.convert((number + 1) % 3, converter, Mode::EX, LockFlags(0), None);
        converters.push(converter);
        let first = several.lock((number + 2) % 3, &name, Mode::EX, LockFlags(0));
        waiters.push([first, several.lock(number % 3, &name, Mode::EX, LockFlags(0))]);
    }
    Load { holders, converters, waiters }
}

/// R23, and the first half of BL-004: every name moves to its slot's owner, nobody hears of it, the queues
/// stay in order.
#[test]
fn a_join_moves_names_and_nobody_hears_of_it_r23_bl_004() {
    let mut several = Several::new(4, &nodir());
    several.install(&[0, 1, 2], &[]);
    let load = load(&mut several);
    let before: Vec<_> = (0..NAMES).map(|n| several.master(n % 3, &name(n))).collect();
    let heard = |several: &Several| -> usize {
        several.all.iter().map(|one| one.casts.len() + one.basts.len()).sum()
    };
    let so_far = heard(&several);
    several.install(&[0, 1, 2, 3], &[]);
    assert_eq!(heard(&several), so_far, "a join is no news to clients");
    let after: Vec<_> = (0..NAMES).map(|n| several.master(n % 3, &name(n))).collect();
    let moved = (0..NAMES).filter(|n| before[*n] != after[*n]).count();
    assert!(moved > 5 && moved < 60, "{moved} names moved");
    let gone = |n: &usize| before[*n] != after[*n] && after[*n] != Some(NodeId(4));
    assert_eq!((0..NAMES).filter(gone).count(), 0, "old members took names from each other");
    everyone_has_the_same_master(&several, 4);
    the_queues_drain_in_order(&mut several, &load);
}

fn everyone_has_the_same_master(several: &Several, nodes: usize) {
    for number in 0..NAMES {
        let name = name(number);
        let all: Vec<_> = (0..nodes).filter_map(|n| several.master(n, &name)).collect();
        assert!(all.windows(2).all(|pair| pair[0] == pair[1]), "{name}: {all:?}");
    }
}

/// The holder lets go: the converter is granted; it lets go: the first waiter, then the second.
fn the_queues_drain_in_order(several: &mut Several, load: &Load) {
    for number in 0..NAMES {
        let granted = |several: &Several, index: usize, lock: LockId| {
            several.last_cast(index, lock).map(|cast| (cast.status, cast.granted))
        };
        let [holder, converter, waiter] = [number % 3, (number + 1) % 3, (number + 2) % 3];
        let [first, second] = load.waiters[number];
        let ex = Some((Status::Granted, Some(Mode::EX)));
        several.unlock(holder, load.holders[number], None);
        assert_eq!(granted(several, converter, load.converters[number]), ex);
        assert_eq!(granted(several, waiter, first), None);
        several.unlock(converter, load.converters[number], None);
        assert_eq!(granted(several, waiter, first), ex);
        assert_eq!(granted(several, holder, second), None);
        several.unlock(waiter, first, None);
        assert_eq!(granted(several, holder, second), ex);
        several.unlock(holder, second, None);
    }
}

/// The second half of BL-004: a node joins, one leaves, one is lost.
#[test]
fn names_survive_a_join_a_leave_and_a_loss_in_a_row_bl_004() {
    let mut several = Several::new(5, &nodir());
    several.install(&[0, 1, 2, 4], &[]);
    let load = load(&mut several);
    several.install(&[0, 1, 2, 3, 4], &[]);
    // Node 5 has no locks: it leaves, and what it mastered is rebuilt from the owners.
    several.kill(4);
    several.install(&[0, 1, 2, 3], &[]);
    several.kill(3);
    several.install(&[0, 1, 2], &[3]);
    several.safe(3);
    everyone_has_the_same_master(&several, 3);
    the_queues_drain_in_order(&mut several, &load);
}

#[test]
fn what_the_lost_held_is_granted_by_recovery_alone_bl_005() {
    let mut several = Several::new(3, &nodir());
    several.install(&[0, 1, 2], &[]);
    let mut waiters = Vec::new();
    for number in 0..50 {
        several.lock(2, &name(number), Mode::EX, LockFlags(0));
        waiters.push([0, 1].map(|n| several.lock(n, &name(number), Mode::PR, LockFlags(0))));
    }
    several.kill(2);
    several.install(&[0, 1], &[2]);
    let granted = |several: &Several| {
        let all = waiters.iter().flat_map(|locks| [0, 1].map(|n| (n, locks[n])));
        all.filter(|(n, lock)| several.last_cast(*n, *lock).is_some()).count()
    };
    assert_eq!(granted(&several), 0, "the lost node may still act");
    several.safe(2);
    assert_eq!(granted(&several), 100);
}

#[test]
fn a_value_block_goes_with_its_name_and_a_lost_writer_is_seen() {
    let mut several = Several::new(4, &nodir());
    several.install(&[0, 1, 2], &[]);
    let (written, vb) = ([7; 32], LockFlags::VALBLK);
    let mut keepers = Vec::new();
    for number in 0..NAMES {
        // A keeper that knows no value block: only the master has the bytes.
        keepers.push(several.lock(0, &name(number), Mode::NL, LockFlags(0)));
        let writer = several.lock(1, &name(number), Mode::EX, vb);
        several.unlock(1, writer, Some(written));
    }
    several.install(&[0, 1, 2, 3], &[]);
    for number in 0..NAMES {
        let reader = several.lock(2, &name(number), Mode::PR, vb);
        let cast = several.last_cast(2, reader).expect("granted at once");
        assert_eq!((cast.value, cast.sb_flags), (Some(written), SbFlags(0)), "{}", name(number));
        several.unlock(2, reader, None);
    }
    // Node 2 writes again and is lost with the words it had not stored.
    for number in 0..NAMES {
        several.lock(1, &name(number), Mode::EX, vb);
    }
    several.kill(1);
    several.install(&[0, 2, 3], &[1]);
    several.safe(1);
    for number in 0..NAMES {
        let reader = several.lock(2, &name(number), Mode::PR, vb);
        let cast = several.last_cast(2, reader).expect("granted after the loss");
        let marked = cast.sb_flags.has(SbFlags::VALNOTVALID);
        // The master was lost with its only copy (R10), or a survivor has it and knows of the writer.
        let gone = cast.value == Some([0; 32]);
        assert!(gone || (marked && cast.value == Some(written)), "{}: {cast:?}", name(number));
    }
}

#[test]
fn an_owner_that_saw_a_view_its_master_skipped_gets_along_with_it() {
    let mut several = Several::new(3, &nodir());
    several.install(&[0, 1], &[]);
    let locks: Vec<_> =
        (0..NAMES).map(|n| several.lock(0, &name(n), Mode::EX, LockFlags(0))).collect();
    // Node 3 comes and goes; node 2 hears of neither. Node 1 may have moved its locks meanwhile.
    several.decide(&[0, 1, 2], &[]);
    several.tell(0);
    several.tell(2);
    several.settle();
    for lock in &locks {
        // Complete at once, also where nobody can be told.
        several.convert(0, *lock, Mode::PR, LockFlags(0), None);
        assert_eq!(several.last_cast(0, *lock).and_then(|cast| cast.granted), Some(Mode::PR));
    }
    several.kill(2);
    several.install(&[0, 1], &[2]);
    several.safe(2);
    while !several.view_wanted.is_empty() {
        several.install(&[0, 1], &[]);
    }
    everyone_has_the_same_master(&several, 2);
    for (number, lock) in locks.into_iter().enumerate() {
        let reader = several.lock(1, &name(number), Mode::PR, LockFlags(0));
        assert!(several.last_cast(1, reader).is_some(), "{} is only read", name(number));
        several.unlock(1, reader, None);
        let other = several.lock(1, &name(number), Mode::EX, LockFlags(0));
        assert_eq!(several.last_cast(1, other), None, "{} is held", name(number));
        several.unlock(0, lock, None);
        assert!(several.last_cast(1, other).is_some(), "{} was let go", name(number));
    }
}

#[test]
fn an_unlock_that_finds_its_name_given_up_is_not_lost() {
    let mut several = Several::new(3, &nodir());
    several.install(&[0, 1], &[]);
    let writers: Vec<_> =
        (0..NAMES).map(|n| several.lock(0, &name(n), Mode::EX, LockFlags::VALBLK)).collect();
    let keepers = (0..NAMES).map(|n| several.lock(1, &name(n), Mode::NL, LockFlags(0)));
    assert_eq!(keepers.count(), NAMES);
    several.hold = true;
    for lock in &writers {
        several.unlock(0, *lock, Some([5; 32]));
    }
    // The masters are in the next view before the unlocks arrive, and their owner is not.
    several.decide(&[0, 1, 2], &[]);
    several.tell(1);
    several.tell(2);
    several.hold = false;
    several.settle();
    several.tell(0);
    several.settle();
    for (number, lock) in writers.into_iter().enumerate() {
        assert_eq!(several.last_cast(0, lock).map(|cast| cast.status), Some(Status::Unlocked));
        let reader = several.lock(1, &name(number), Mode::PR, LockFlags::VALBLK);
        let cast = several.last_cast(1, reader).expect("nobody holds it");
        assert_eq!((cast.value, cast.sb_flags), (Some([5; 32]), SbFlags(0)), "{}", name(number));
    }
}

/// A request that was sent before its slot went away and came back is sent anew by its owner, and served once.
#[test]
fn a_request_from_before_its_slot_came_is_void() {
    for owner_sees_all in [false, true] {
        let mut several = Several::new(3, &nodir());
        several.install(&[0, 1], &[]);
        several.hold = true;
        let locks: Vec<_> =
            (0..NAMES).map(|n| several.lock(0, &name(n), Mode::EX, LockFlags(0))).collect();
        several.decide(&[0, 1, 2], &[]);
        several.tell(1);
        if owner_sees_all {
            several.tell(0);
        }
        several.kill(2); // it comes, and goes before anything reaches it
        several.decide(&[0, 1], &[]);
        [0, 1].iter().for_each(|index| several.tell(*index));
        several.hold = false;
        several.settle();
        for (number, lock) in locks.into_iter().enumerate() {
            let cast = several.last_cast(0, lock).map(|cast| cast.status);
            assert_eq!(cast, Some(Status::Granted), "{}", name(number));
            several.unlock(0, lock, None);
            let next = several.lock(1, &name(number), Mode::EX, LockFlags::NOQUEUE);
            let cast = several.last_cast(1, next).map(|cast| cast.status);
            assert_eq!(cast, Some(Status::Granted), "{}: nobody holds it", name(number));
        }
    }
}

#[test]
fn bytes_given_up_long_ago_are_not_taken_for_the_last_ones() {
    let mut several = Several::new(3, &nodir());
    several.install(&[0, 1], &[]);
    let store = |several: &mut Several, number: usize, bytes: u8| {
        let writer = several.lock(1, &name(number), Mode::EX, LockFlags::VALBLK);
        several.unlock(1, writer, Some([bytes; 32]));
    };
    for number in 0..NAMES {
        several.lock(0, &name(number), Mode::NL, LockFlags(0)); // keeps the name
        store(&mut several, number, 1);
    }
    // Node 1 gives names to node 3 and never hears that all is over; node 3 serves them and is lost.
    several.hears_no_end = Some(0);
    several.install(&[0, 1, 2], &[]);
    let moved: Vec<_> =
        (0..NAMES).filter(|n| several.master(0, &name(*n)) == Some(NodeId(3))).collect();
    assert!(!moved.is_empty());
    for number in &moved {
        store(&mut several, *number, 2);
    }
    several.hears_no_end = None;
    several.kill(2);
    several.install(&[0, 1], &[2]);
    several.safe(2);
    for number in moved {
        let reader = several.lock(1, &name(number), Mode::PR, LockFlags::VALBLK);
        let cast = several.last_cast(1, reader).expect("nobody holds it");
        let old = cast.value == Some([1; 32]) && !cast.sb_flags.has(SbFlags::VALNOTVALID);
        assert!(!old, "{}: the first bytes, unmarked", name(number));
    }
}

#[test]
fn weights_are_shares_of_the_names() {
    let masters = vec![(NodeId(1), 1), (NodeId(2), 3)];
    let mut several = Several::new(3, &Layout { nodir: true, masters });
    several.install(&[0, 1, 2], &[]);
    let mut shares = [0; 3];
    for number in 0..NAMES {
        several.lock(2, &name(number), Mode::EX, LockFlags(0));
        let master = several.master(2, &name(number)).expect("it is locked");
        shares[master.0 as usize - 1] += 1;
    }
    assert_eq!(shares[2], 0, "node 3 is no master: {shares:?}");
    assert!(shares[1] > shares[0], "node 2 has thrice the weight: {shares:?}");
}

#[test]
fn a_member_with_another_layout_is_named_and_grants_nothing_of_ours() {
    let mut several = Several::new(2, &nodir());
    let stranger = several.add(Layout::default());
    several.install(&[0, 1, stranger], &[]);
    let lockspaces = several.all[0].node.lockspaces();
    assert_eq!(lockspaces[0].due.layout, [several.all[stranger].member]);
    for number in 0..10 {
        let ours = several.lock(0, &name(number), Mode::EX, LockFlags(0));
        let theirs = several.lock(stranger, &name(number), Mode::EX, LockFlags(0));
        let granted = [several.last_cast(0, ours), several.last_cast(stranger, theirs)];
        assert_eq!(granted, [None, None]);
    }
    // It goes, and all is well.
    several.kill(stranger);
    several.install(&[0, 1], &[stranger]);
    several.safe(stranger);
    assert!(several.all[0].node.lockspaces()[0].due.is_empty());
    assert_eq!(several.all[0].casts.len(), 10);
}
