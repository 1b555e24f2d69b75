//! Many rounds of short fights, with messages in every order.

use dlm_core::{LockFlags, Mode, Status};

use crate::hands::{Dice, Hands};

/// BL-033: names vanish and come back all the time; no valid call is refused, and nothing is left.
#[test]
fn bl_033_names_are_forgotten_and_used_again_at_the_same_time() {
    for seed in 1..12 {
        let mut dice = Dice(seed * 0x9e37_79b9);
        let mut hands = Hands::new(3);
        for _ in 0..400 {
            let node = dice.below(3) as u32 + 1;
            let name = format!("name-{}", dice.below(5));
            let mine = hands
                .hands
                .iter()
                .position(|h| h.node == node && h.granted.is_some() && !h.pending);
            match (mine, dice.below(4)) {
                (Some(hand), 0 | 1) => hands.unlock(hand),
                (Some(hand), 2) => {
                    hands.convert(hand, [Mode::NL, Mode::EX][dice.below(2)], LockFlags::NOQUEUE);
                }
                _ => {
                    hands.ask(node, &name, [Mode::NL, Mode::EX][dice.below(2)], LockFlags(0));
                }
            }
            hands.bed.run(dice.below(6));
            hands.hear();
            if dice.below(40) == 0 {
                hands.bed.wait_ms(11_000); // names that nobody uses are forgotten now
                hands.hear();
            }
        }
        hands.let_go(&format!("seed {seed}"));
    }
}

/// BL-035: the sender of a broadcast goes down to CW and the receivers ask for PR: it always ends.
#[test]
fn bl_035_broadcasts_by_the_good_pattern_all_end() {
    let mut hands = Hands::new(3);
    let receivers = [hands.lock(2, "message", Mode::NL), hands.lock(3, "message", Mode::NL)];
    let sender = hands.lock(1, "message", Mode::NL);
    for _ in 0..1000 {
        hands.convert(sender, Mode::EX, LockFlags(0));
        hands.settle();
        hands.convert(sender, Mode::CW, LockFlags(0));
        hands.settle();
        receivers.iter().for_each(|hand| hands.convert(*hand, Mode::PR, LockFlags(0)));
        hands.settle();
        assert!(hands.hands[sender].told, "the sender hears that they wait");
        hands.convert(sender, Mode::NL, LockFlags(0));
        hands.settle();
        for hand in receivers {
            assert_eq!(hands.hands[hand].granted, Some(Mode::PR));
            hands.convert(hand, Mode::NL, LockFlags(0));
        }
        hands.settle();
        hands.hands[sender].told = false;
    }
    hands.let_go("after 1,000 broadcasts");
}

/// BL-037, BL-072: a cancel at every moment of a request and of a conversion, with the lock free and held: the
/// answer is one and true.
#[test]
fn bl_037_bl_072_a_cancel_at_every_moment_is_answered_truly() {
    for conversion in [false, true] {
        for held in [false, true] {
            for (before, after) in (0..8).flat_map(|a| (0..8).map(move |b| (a, b))) {
                let mut hands = Hands::new(3);
                let master = hands.lock(1, "r", Mode::NL);
                let mine = conversion.then(|| hands.lock(2, "r", Mode::NL));
                let holder = held.then(|| hands.lock(3, "r", Mode::EX));
                let mine = match mine {
                    Some(hand) => {
                        hands.convert(hand, Mode::EX, LockFlags(0));
                        hand
                    }
                    None => hands.ask(2, "r", Mode::EX, LockFlags(0)),
                };
                hands.bed.run(before);
                if let Some(holder) = holder {
                    hands.hear();
                    hands.unlock(holder);
                }
                hands.bed.run(after);
                hands.hear();
                let _ = hands.give_up(mine, LockFlags::CANCEL);
                hands.settle();
                let has = hands.hands[mine].granted == Some(Mode::EX);
                let truth = match hands.hands[mine].last {
                    Some(Status::Granted) => has,
                    Some(Status::Cancelled) => !has,
                    other => panic!("{other:?}"),
                };
                assert!(truth && !hands.hands[mine].pending, "{:?}", hands.hands[mine]);
                let other = hands.ask(3, "r", Mode::PR, LockFlags::NOQUEUE);
                hands.settle();
                assert_eq!(hands.hands[other].granted.is_none(), has, "as others see it");
                hands.unlock(master);
                hands.let_go("at the end");
            }
        }
    }
}

/// BL-066, BL-068: waiters on three nodes whose limits all pass leave an empty queue.
#[test]
fn bl_068_limits_of_waiters_on_all_nodes_pass() {
    let mut hands = Hands::new(3);
    let holder = hands.lock(1, "r", Mode::EX);
    let waiters: Vec<usize> =
        (0..50).map(|n| hands.ask(n % 3 + 1, "r", Mode::EX, LockFlags::TIMEOUT)).collect();
    hands.bed.wait_ms(100);
    hands.hear();
    for hand in waiters {
        assert_eq!(hands.hands[hand].last, Some(Status::TimedOut));
    }
    hands.unlock(holder);
    hands.lock(3, "r", Mode::EX);
    hands.let_go("after the limits");
}

/// BL-078, BL-087: hand-overs between two nodes with the master on a third, while the clock stands still: no step
/// waits for a timer.
#[test]
fn bl_078_bl_087_hand_overs_need_no_timer() {
    let mut hands = Hands::new(3);
    hands.lock(3, "r", Mode::NL);
    let mut holder = hands.lock(1, "r", Mode::EX);
    for round in 0..5000u32 {
        let next = hands.ask(round % 2 + 1, "r", Mode::EX, LockFlags(0));
        hands.settle();
        assert!(std::mem::take(&mut hands.hands[holder].told), "the holder is told");
        hands.unlock(holder);
        hands.settle();
        assert_eq!(hands.hands[next].granted, Some(Mode::EX), "round {round}");
        holder = next;
    }
    hands.let_go("after 5,000 hand-overs");
}

/// BL-090: a client unlocks and ends at once, with the master on another node.
#[test]
fn bl_090_an_unlock_on_its_way_and_the_end_of_its_client() {
    for moment in 0..6 {
        let mut hands = Hands::new(2);
        hands.lock(1, "r", Mode::NL);
        let client = hands.bed.client(2, 77);
        let held = hands.lock(2, "r", Mode::EX);
        hands.unlock(held);
        hands.bed.run(moment);
        hands.hear();
        hands.bed.step(2, dlm_core::Input::ClientGone(client));
        hands.settle();
        hands.lock(1, "r", Mode::EX);
        hands.let_go("at the end");
    }
}

/// BL-115: two nodes ask for a new name at the same moment: one has it at once, the other one after it.
#[test]
fn bl_115_two_ask_for_a_new_name_at_once() {
    for round in 1..400u64 {
        let mut dice = Dice(round * 0x9e37_79b9);
        let mut hands = Hands::new(3);
        let name = format!("new-{round}");
        let two = [
            hands.ask(1 + (round % 3) as u32, &name, Mode::EX, LockFlags(0)),
            hands.ask(1 + ((round + 1) % 3) as u32, &name, Mode::EX, LockFlags(0)),
        ];
        hands.settle_by(&mut dice);
        let has = two.map(|hand| hands.hands[hand].granted.is_some());
        assert!(has[0] != has[1], "exactly one: {has:?}");
        hands.let_go(&format!("round {round}"));
    }
}

/// BL-034: three clients on three nodes give an EX lock away as soon as they were asked to: each gets its share.
#[test]
fn bl_034_a_lock_that_is_given_away_on_notice_serves_everybody() {
    let mut hands = Hands::new(3);
    let mut used = [0u32; 3];
    let mut wants: Vec<usize> =
        (1..=3).map(|n| hands.ask(n, "r", Mode::EX, LockFlags(0))).collect();
    for _ in 0..1000 {
        hands.settle();
        let at = wants.iter().position(|hand| hands.hands[*hand].granted.is_some());
        let at = at.expect("one holds it");
        assert!(hands.hands[wants[at]].told, "two others wait");
        used[at] += 1;
        hands.unlock(wants[at]);
        wants[at] = hands.ask(at as u32 + 1, "r", Mode::EX, LockFlags(0));
    }
    assert!(used.iter().all(|count| *count >= 200), "{used:?}");
    hands.let_go("at the end");
}
