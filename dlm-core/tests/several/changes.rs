//! Membership changes at every moment of another one, and many in a row.

use dlm_core::{Errno, LockFlags, LockInfo, Mode, Status};

use crate::hands::{Dice, Hands};

/// Names with a master on each node, each with a holder, a converter and waiters on all nodes.
fn contended(nodes: u32, names: u32) -> Hands {
    let mut hands = Hands::new(nodes);
    for name in 0..names {
        let text = format!("name-{name}");
        let node = |add: u32| (name + add) % nodes + 1;
        hands.lock(node(0), &text, Mode::NL);
        hands.lock(node(1), &text, Mode::PR);
        let converter = hands.lock(node(2), &text, Mode::PR);
        hands.convert(converter, Mode::EX, LockFlags(0));
        hands.settle();
        for add in [1, 0, 2] {
            hands.ask(node(add), &text, [Mode::EX, Mode::CR, Mode::PW][add as usize], LockFlags(0));
            hands.settle();
        }
    }
    hands
}

/// BL-002, BL-003, BL-030, BL-063: a change at every moment of the recovery from another one. Whoever may have been
/// coordinating it, the lowest number included, dies, leaves, or comes back.
#[test]
fn bl_002_bl_003_bl_063_a_second_change_at_every_moment_of_a_recovery() {
    type Change = (&'static str, fn(&mut Hands));
    let changes: [Change; 4] = [
        ("the lowest dies", |hands| hands.gone(1)),
        ("another leaves", |hands| hands.leave(2)),
        ("the lost one comes back", |hands| hands.bed.join(4)),
        ("another dies and both come back", |hands| {
            hands.gone(3);
            hands.bed.join(4);
            hands.bed.run(3);
            hands.bed.join(3);
        }),
    ];
    for (what, change) in changes {
        for moment in 0..80 {
            let when = format!("{what} {moment} steps after a death");
            let mut hands = contended(4, 5);
            hands.gone(4);
            hands.bed.run(moment);
            change(&mut hands);
            hands.settle();
            hands.agree(&when);
            hands.let_go(&when);
        }
    }
}

/// BL-003: a node that comes and goes without pause under load: half of its ends are deaths.
#[test]
fn bl_003_a_node_flaps_under_load() {
    let mut dice = Dice(0x5eed);
    for round in 0..40 {
        let mut hands = contended(3, 4);
        for flap in 0..10 {
            match flap % 2 {
                0 => hands.gone(3),
                _ => hands.leave(3),
            }
            hands.bed.run(dice.below(40));
            if flap % 2 == 1 {
                hands.settle(); // a leave ends when the node has nothing to do any more
                hands.bed.die(3);
            }
            hands.bed.join(3);
            hands.bed.run(dice.below(40));
            hands.hear();
            hands.ask(3, "name-1", Mode::PR, LockFlags(0));
        }
        hands.settle();
        hands.let_go(&format!("round {round}"));
    }
}

/// BL-004: a join, a leave and a death keep every mode, every converter ahead of the waiters, and the order of
/// waiters.
#[test]
fn bl_004_changes_in_a_row_keep_modes_and_order() {
    let names = 60;
    let mut hands = contended(3, names);
    let before = queues(&hands, names);
    hands.bed.join(4);
    hands.settle();
    hands.agree("after a join");
    assert_eq!(queues(&hands, names), before, "a join changes nothing");
    hands.leave(2);
    hands.settle();
    hands.agree("after a leave");
    hands.gone(3);
    hands.settle();
    hands.agree("after a death");
    for (name, (after, before)) in queues(&hands, names).iter().zip(&before).enumerate() {
        let kept: Vec<&String> = before[1..].iter().filter(|lock| after.contains(lock)).collect();
        let order: Vec<&String> = after[1..].iter().filter(|lock| kept.contains(lock)).collect();
        assert_eq!(order, kept, "name-{name}: the converters and waiters that are still there");
    }
    hands.let_go("at the end");
}

/// The queues of each name at its master: granted locks sorted, converters and waiters in order. A lock is named
/// by its owner's node and id, and its modes.
fn queues(hands: &Hands, names: u32) -> Vec<Vec<String>> {
    let of = |name: u32| {
        let text = format!("name-{name}");
        let mut found = None;
        for (node, host) in hands.bed.hosts.iter().filter(|(_, host)| host.alive) {
            let Some(space) = host.space else { continue };
            let resource = host.node.resource(space, text.as_bytes());
            let Some(resource) = resource.filter(|r| r.master.is_none()) else { continue };
            assert!(found.is_none(), "{text} has two masters");
            let show = |lock: &LockInfo| {
                let (owner, id) = lock.remote.map_or((*node, lock.id), |(n, id)| (n.0, id));
                format!("{owner}:{id:?} {:?}->{:?}", lock.granted, lock.requested)
            };
            let mut granted: Vec<String> = resource.granted.iter().map(show).collect();
            granted.sort();
            let mut all = vec![granted.join(",")];
            all.extend(resource.converting.iter().chain(&resource.waiting).map(show));
            found = Some(all);
        }
        found.unwrap_or_default()
    };
    (0..names).map(of).collect()
}

/// BL-091: an unlock works at every moment of every kind of change.
#[test]
fn bl_091_an_unlock_at_every_moment_of_a_change() {
    let changes: [fn(&mut Hands); 3] =
        [|hands| hands.bed.join(4), |hands| hands.leave(3), |hands| hands.gone(3)];
    for change in changes {
        for moment in 0..40 {
            let mut hands = Hands::new(3);
            let held: Vec<usize> = (0..6)
                .map(|name| {
                    let text = format!("name-{name}");
                    hands.lock(name % 3 + 1, &text, Mode::NL);
                    hands.lock(name % 2 + 1, &text, Mode::EX)
                })
                .collect();
            change(&mut hands);
            hands.bed.run(moment);
            hands.hear();
            held.iter().for_each(|hand| hands.unlock(*hand));
            hands.settle();
            assert!(held.iter().all(|hand| !hands.hands[*hand].exists()), "all ended");
            hands.let_go(&format!("an unlock {moment} steps after a change"));
        }
    }
}

/// R11: the locks of a lost member are dropped and nobody else's, also where the last of them ended before
/// that was done: an unlock in flight, while a name was rebuilt that others wait for.
#[test]
fn r11_whose_locks_ended_before_they_were_dropped_takes_no_others_along() {
    for moment in 0..60 {
        for waiters in 1..3 {
            let mut hands = Hands::new(4);
            hands.lock(1, "r", Mode::NL);
            let writer = hands.ask(4, "r", Mode::EX, LockFlags::VALBLK);
            hands.settle();
            hands.lock(3, "r", Mode::NL);
            hands.bed.still.insert(1);
            hands.unlock(writer);
            hands.gone(1);
            for _ in 0..waiters {
                hands.ask(2, "r", Mode::EX, LockFlags(0));
            }
            hands.bed.run(moment);
            hands.gone(4);
            hands.settle();
            let when = format!("a loss {moment} steps after another one");
            hands.agree(&when);
            hands.let_go(&when);
        }
    }
}

/// BL-121: a node crashes again and again with locks; no entry of it stays.
#[test]
fn bl_121_a_crash_loop_leaves_nothing() {
    let mut hands = Hands::new(3);
    for round in 0..50 {
        for name in 0..20 {
            hands.lock(2, &format!("name-{name}"), Mode::PR);
        }
        hands.gone(2);
        hands.settle();
        hands.bed.join(2);
        hands.settle();
        hands.agree(&format!("round {round}"));
    }
    for name in 0..20 {
        hands.lock(name % 3 + 1, &format!("name-{name}"), Mode::EX);
    }
    hands.let_go("at the end");
}

/// BL-117: members that come at the same moment, in every order of what each is told first.
#[test]
fn bl_117_all_come_at_the_same_moment() {
    for seed in 1..60 {
        let mut dice = Dice(seed * 0x9e37_79b9);
        let mut hands = Hands::new(1);
        for node in [2, 3, 4] {
            hands.bed.join(node);
            hands.bed.run(dice.below(3));
        }
        for node in 1..=4 {
            hands.ask(node, "first", Mode::EX, LockFlags(0));
        }
        hands.settle_by(&mut dice);
        hands.let_go(&format!("seed {seed}"));
    }
}

/// BL-071: locks of a node are unlocked and converted in the moment of its exclusion.
#[test]
fn bl_071_calls_at_every_moment_of_an_exclusion() {
    for moment in 0..40 {
        let mut hands = contended(3, 3);
        let held = hands.lock(3, "other", Mode::EX);
        let mine = hands.lock(3, "mine", Mode::NL);
        hands.bed.run(moment);
        hands.unlock(held);
        hands.convert(mine, Mode::EX, LockFlags(0));
        hands.bed.exclude(3);
        hands.bed.run(moment);
        hands.dies(3);
        hands.bed.make_safe(3);
        hands.settle();
        hands.bed.join(3);
        hands.let_go(&format!("moment {moment}"));
    }
}

/// More names than one part of any work takes, with calls in the midst of it and messages in every order: what
/// comes to a name between its record and its service is neither lost nor done twice (R15, BL-001, BL-016).
#[test]
fn bl_001_bl_016_calls_between_the_parts_of_a_recovery() {
    for seed in 1..=12 {
        let mut dice = Dice(seed * 0x9e37_79b9_7f4a);
        let mut hands = Hands::new(4);
        let names = 180;
        for name in 0..names {
            let text = format!("name-{name}");
            hands.ask(name % 4 + 1, &text, Mode::NL, LockFlags(0));
            hands.settle();
            hands.ask((name + 1) % 4 + 1, &text, Mode::PR, LockFlags(0));
            hands.ask((name + 2) % 4 + 1, &text, Mode::EX, LockFlags(0));
        }
        hands.settle();
        for change in 0..4 {
            match change {
                0 => hands.gone(4),
                1 => hands.leave(3),
                2 => hands.bed.join(4),
                _ => hands.gone(2),
            }
            for _ in 0..150 {
                hands.bed.run_by(dice.below(4), |bound| dice.below(bound));
                hands.hear();
                let at = dice.below(hands.hands.len());
                let hand = hands.hands[at].clone();
                let answer = match (hand.granted, hand.pending, dice.below(3)) {
                    (Some(_), false, 0) => hands.give_up(at, LockFlags(0)),
                    (Some(Mode::NL), false, 1) => hands.try_convert(at, Mode::PR, LockFlags(0)),
                    (Some(_), false, _) => hands.try_convert(at, Mode::NL, LockFlags(0)),
                    (_, true, 0) => hands.give_up(at, LockFlags::CANCEL),
                    _ => continue,
                };
                let busy = [Errno::EBUSY, Errno::EINVAL]; // a cancel or unlock is under way
                assert!(answer.is_ok() || answer.is_err_and(|errno| busy.contains(&errno)));
            }
            if change == 1 {
                hands.settle_by(&mut dice);
            }
        }
        hands.settle_by(&mut dice);
        hands.let_go(&format!("seed {seed}"));
    }
}

/// R18: the number of a grant stays with the lock, also where its name gets a new master that did not give
/// it, whatever comes next.
#[test]
fn r18_a_lock_keeps_the_number_of_its_grant_under_a_new_master() {
    let mut hands = Hands::new(3);
    hands.lock(3, "r", Mode::NL);
    let first = hands.lock(2, "r", Mode::CR);
    let (mine, other) = (hands.lock(1, "r", Mode::PR), hands.lock(2, "r", Mode::CR));
    hands.gone(3);
    hands.settle();
    // Refused, and so nothing that is a grant; one of the two is mastered elsewhere.
    for hand in [mine, first, other] {
        hands.convert(hand, Mode::EX, LockFlags::NOQUEUE);
        hands.settle();
        assert_eq!(hands.hands[hand].last, Some(Status::Again));
    }
    hands.let_go("after the loss of a master");
}
