//! How the cost of things grows: in messages, which are the same in every run.

use dlm_core::{LockFlags, Mode};

use crate::hands::Hands;

/// Names held by node 1, of which node 2 masters half.
fn held(nodes: u32, names: u32) -> Hands {
    let mut hands = Hands::new(nodes);
    for name in 0..names {
        let text = format!("name-{name}");
        if name % 2 == 0 {
            hands.lock(2, &text, Mode::NL);
        }
        hands.lock(1, &text, Mode::PR);
    }
    hands
}

/// Messages that something costs.
fn cost(hands: &mut Hands, what: impl FnOnce(&mut Hands)) -> u64 {
    let before = hands.bed.messages;
    what(hands);
    hands.settle();
    hands.bed.messages - before
}

/// BL-018: join, leave and death with twice as many names cost at most about twice as much.
#[test]
fn bl_018_changes_cost_no_more_than_the_names_they_move() {
    let costs = |names: u32| {
        let mut hands = held(3, names);
        let join = cost(&mut hands, |hands| hands.bed.join(4));
        let leave = cost(&mut hands, |hands| hands.leave(3));
        let death = cost(&mut hands, |hands| hands.gone(2));
        hands.agree("after all");
        [join, leave, death]
    };
    let (few, many) = (costs(500), costs(1000));
    for (few, many) in few.iter().zip(&many) {
        assert!(*many <= few * 9 / 4 + 20, "{few} messages for 500 names, {many} for 1,000");
    }
    assert!(many[0] < 100 && many[1] < 100, "names of others are listed in windows: {many:?}");
}

/// BL-021: leaving with many locks costs nothing per lock that nobody else knows of, and all are free elsewhere.
#[test]
fn bl_021_a_leave_by_force_with_many_locks() {
    let mut hands = Hands::new(3);
    for name in 0..1000 {
        hands.lock(2, &format!("name-{name}"), Mode::EX);
    }
    let spent = cost(&mut hands, |hands| hands.leave(2));
    assert!(spent < 3 * 1000, "{spent} messages for 1,000 locks");
    for name in [0, 500, 999] {
        hands.lock(name % 2 * 2 + 1, &format!("name-{name}"), Mode::EX);
    }
    hands.let_go("at the end");
}

/// BL-022, BL-084: names that were used once are forgotten everywhere, also by directories.
#[test]
fn bl_022_bl_084_names_used_once_are_forgotten_by_all() {
    let mut hands = Hands::new(3);
    for name in 0..2000 {
        let lock = hands.lock(name % 3 + 1, &format!("name-{name}"), Mode::EX);
        hands.unlock(lock);
    }
    hands.let_go("after 2,000 names");
}

/// BL-041: three of four leave at the same moment; it costs about as much as one of them, not a chain of hand-overs.
#[test]
fn bl_041_leaves_in_parallel_are_no_chain() {
    let spend = |leaving: &[u32]| {
        let mut hands = Hands::new(4);
        for name in 0..300 {
            let text = format!("name-{name}");
            hands.lock(name % 3 + 1, &text, Mode::NL);
            hands.lock(4, &text, Mode::PR);
        }
        let spent = cost(&mut hands, |hands| leaving.iter().for_each(|node| hands.leave(*node)));
        hands.agree("after the leaves");
        let host = &hands.bed.hosts[&4];
        let listed = host.node.dump(host.space.expect("it stays"), 0, usize::MAX);
        let left: usize = if leaving.len() == 3 { 300 } else { 0 };
        let mastered = listed.resources.iter().filter(|r| r.master.is_none()).count();
        assert!(mastered >= left && listed.resources.len() == 300, "{mastered} mastered");
        spent
    };
    let (one, three) = (spend(&[1]), spend(&[1, 2, 3]));
    assert!(three <= 4 * one, "{three} messages for three leaves, {one} for one");
}

/// BL-095: what a lock and an unlock cost does not grow with the number of nodes.
#[test]
fn bl_095_messages_per_lock_do_not_grow_with_the_nodes() {
    let spend = |nodes: u32| {
        let mut hands = Hands::new(nodes);
        hands.lock(2, "r", Mode::NL);
        hands.lock(1, "r", Mode::NL);
        cost(&mut hands, |hands| {
            for _ in 0..100 {
                let lock = hands.lock(1, "r", Mode::EX);
                hands.unlock(lock);
                hands.settle();
            }
        })
    };
    assert_eq!([2, 4, 8].map(spend), [400; 3], "a request, an unlock, and their answers");
}

/// BL-096: with many waiters on three nodes a hand-over costs one grant, and wakes one.
#[test]
fn bl_096_a_hand_over_grants_to_one() {
    let mut hands = Hands::new(3);
    hands.lock(3, "r", Mode::NL);
    let mut holder = hands.lock(1, "r", Mode::EX);
    for waiter in 0..200 {
        hands.ask(waiter % 2 + 1, "r", Mode::EX, LockFlags(0));
    }
    hands.settle();
    for _ in 0..100 {
        let ends = hands.ends;
        let spent = cost(&mut hands, |hands| hands.unlock(holder));
        // The unlock and its answer, the grant, and the notice to the new holder that others wait.
        assert_eq!((spent, hands.ends - ends), (4, 2));
        let next = hands.hands.iter().position(|hand| hand.granted == Some(Mode::EX));
        holder = next.expect("one of them holds it");
    }
    hands.let_go("at the end");
}
