//! Answers that come late, about what another node has decided meanwhile.

use dlm_core::{Input, Instant, Layout, LockFlags, Mode, SbFlags, Status};

use crate::bed::Bed;
use crate::hands::Hands;
use crate::orders::{given_back, name_at, refused_by_who_takes_it_again};

const NOTHING: LockFlags = LockFlags(0);
const IDLE_MS: u64 = 10_000;

/// Section 6, rule 3: a conversion was done by the lost master, which its owner does not know, and was cancelled
/// by it. The new master decides: others were granted because of it.
#[test]
fn a_cancel_of_a_conversion_that_the_lost_master_had_done() {
    let mut hands = Hands::new(4);
    let (name, _) = name_at(&mut hands, 3, 4);
    let converts = hands.lock(2, &name, Mode::CW);
    hands.bed.shut(3, 2, true);
    hands.convert(converts, Mode::PR, NOTHING);
    hands.settle();
    let reader = hands.lock(1, &name, Mode::PR);
    hands.give_up(converts, LockFlags::CANCEL).expect("it is under way");
    hands.settle();
    hands.bed.still.insert(2); // node 1 claims first
    hands.gone(3);
    hands.settle();
    hands.bed.go_on(2);
    hands.settle();
    hands.bed.shut(3, 2, false);
    hands.agree("after the recovery");
    assert_eq!(hands.hands[reader].granted, Some(Mode::PR));
    assert_eq!(hands.hands[converts].granted, Some(Mode::PR), "CW would exclude the reader");
    assert_eq!(hands.hands[converts].last, Some(Status::Granted), "the cancel came too late");
    hands.let_go("at the end");
}

/// The same where nobody was granted because of it: it is cancelled.
#[test]
fn a_cancel_of_a_conversion_that_the_lost_master_had_queued() {
    let mut hands = Hands::new(4);
    let (name, _) = name_at(&mut hands, 3, 4);
    let reader = hands.lock(1, &name, Mode::PR);
    let converts = hands.lock(2, &name, Mode::PR);
    hands.bed.shut(3, 2, true);
    hands.convert(converts, Mode::EX, NOTHING);
    hands.settle();
    hands.give_up(converts, LockFlags::CANCEL).expect("it is under way");
    hands.bed.still.insert(2);
    hands.gone(3);
    hands.settle();
    hands.bed.go_on(2);
    hands.settle();
    hands.bed.shut(3, 2, false);
    hands.agree("after the recovery");
    assert_eq!(hands.hands[converts].granted, Some(Mode::PR));
    assert_eq!(hands.hands[converts].last, Some(Status::Cancelled));
    assert_eq!(hands.hands[reader].granted, Some(Mode::PR));
    hands.let_go("at the end");
}

/// Section 6, rule 3: a conversion that the lost master had demoted waits at the new one. Its owner does not know
/// that and sends it again: it is told, and can cancel it and go on.
#[test]
fn a_demoted_conversion_that_is_sent_again_and_cancelled() {
    let mut hands = Hands::new(4);
    let (name, _) = name_at(&mut hands, 3, 4);
    let first = hands.lock(1, &name, Mode::PR);
    let demoted = hands.lock(2, &name, Mode::PR);
    hands.convert(first, Mode::EX, NOTHING);
    hands.settle();
    hands.bed.shut(3, 2, true);
    hands.convert(demoted, Mode::EX, LockFlags::CONVDEADLK);
    hands.settle();
    assert_eq!(hands.hands[first].granted, Some(Mode::EX), "it was demoted for this one");
    hands.bed.still.insert(2);
    hands.gone(3);
    hands.settle();
    hands.bed.go_on(2);
    hands.settle();
    hands.bed.shut(3, 2, false);
    assert!(hands.hands[demoted].pending);
    hands.give_up(demoted, LockFlags::CANCEL).expect("it waits");
    hands.settle();
    assert_eq!(hands.hands[demoted].last, Some(Status::Cancelled));
    hands.convert(demoted, Mode::NL, NOTHING);
    hands.settle();
    hands.agree("after the cancel");
    hands.let_go("at the end");
}

/// R10: a request is parked by who looks the name up itself. Its owner becomes the master meanwhile, serves it and
/// forgets the name; when the other is given the name after that, it has a lock that nobody wants.
#[test]
fn a_request_that_was_parked_longer_than_it_was_wanted() {
    let mut hands = Hands::new(3);
    let name = given_back(&mut hands, 3, 2, 1); // node 1 still takes node 3 for the master
    let first = hands.ask(1, &name, Mode::EX, NOTHING);
    hands.settle();
    hands.bed.shut(3, 2, true);
    let other = hands.ask(3, &name, Mode::PR, NOTHING); // now it looks it up, and does not refuse
    let second = hands.ask(1, &name, Mode::EX, NOTHING);
    hands.settle();
    hands.bed.go_on(1);
    hands.settle();
    for hand in [first, second] {
        assert_eq!(hands.hands[hand].granted, Some(Mode::EX), "node 1 is the master");
        hands.unlock(hand);
        hands.settle();
    }
    hands.bed.wait_ms(IDLE_MS); // it forgets the name
    hands.bed.shut(3, 2, false);
    hands.settle();
    assert_eq!(hands.hands[other].granted, Some(Mode::PR), "node 3 is the master");
    hands.agree("after the parked request");
    hands.let_go("at the end");
}

/// Whether a node masters a name.
fn masters(hands: &Hands, node: u32, name: &str) -> bool {
    let host = &hands.bed.hosts[&node];
    let known = host.node.resource(host.space.expect("it is a member"), name.as_bytes());
    known.is_some_and(|known| known.master.is_none())
}

/// Three nodes of a lockspace without directory, and locks in EX on a name, of these nodes one after the other.
/// Node 3 mastered the name, is gone, and now node 1 does.
fn by_slot(owners: &[u32]) -> (Hands, String, usize) {
    for number in 0..100 {
        let layout = Layout { nodir: true, masters: Vec::new() };
        let mut hands = Hands::on(Bed::with_layout(3, layout));
        let name = format!("name-{number}");
        let asks = owners.iter().map(|node| hands.ask(*node, &name, Mode::EX, NOTHING));
        let first = asks.min().expect("somebody holds it");
        hands.settle();
        if !masters(&hands, 3, &name) {
            continue;
        }
        // Without its lease node 2 takes part in all of it, but makes nothing of the thaw yet.
        hands.bed.step(2, Input::LeaseUntil(Instant(0)));
        hands.gone(3);
        hands.settle();
        if masters(&hands, 1, &name) {
            return (hands, name, first);
        }
    }
    panic!("no name has node 3 and then node 1 as its master");
}

/// R16, nodir: a slot goes to another master and comes back while an owner is without its lease, and so has not yet
/// made anything of the thaw from before. What it has been asked for since is thawed by the next one.
#[test]
fn nodir_a_thaw_from_before_the_slot_went_away_and_came_back() {
    for moment in 0..30 {
        let (mut hands, name, held) = by_slot(&[2]);
        // Node 3 comes, gets the slot, and is gone again before it has asked for anything.
        for to in [1, 2] {
            hands.bed.shut(3, to, true);
        }
        hands.bed.join(3);
        hands.settle();
        hands.gone(3);
        hands.bed.run(moment);
        hands.bed.shut(1, 2, true);
        hands.settle();
        hands.bed.step(2, Input::LeaseUntil(Instant(u64::MAX)));
        hands.settle();
        hands.unlock(held);
        hands.settle();
        for (from, to) in [(1, 2), (3, 1), (3, 2)] {
            hands.bed.shut(from, to, false);
        }
        hands.settle();
        assert_eq!(hands.hands[held].last, Some(Status::Unlocked), "moment {moment}");
        hands.agree(&format!("when all was heard, moment {moment}"));
        hands.lock(1, &name, Mode::EX);
        hands.let_go("at the end");
    }
}

/// R16, nodir: the same with a grant from before, of a lock whose client has died since.
#[test]
fn nodir_a_grant_from_before_the_slot_went_away_and_came_back() {
    let (mut hands, name, holder) = by_slot(&[1, 2]);
    hands.unlock(holder);
    hands.settle(); // node 1 grants the next, node 2 hears it when it has its lease
    for to in [1, 2] {
        hands.bed.shut(3, to, true);
    }
    hands.bed.join(3);
    hands.settle();
    hands.client_dies(2);
    hands.gone(3);
    hands.settle();
    hands.bed.step(2, Input::LeaseUntil(Instant(u64::MAX)));
    for to in [1, 2] {
        hands.bed.shut(3, to, false);
    }
    hands.settle();
    hands.agree("when all was heard");
    hands.lock(1, &name, Mode::EX);
    hands.let_go("at the end");
}

/// R13, R16: a request is under way to a node that is not the master any more, when that node is lost. Who the master
/// is was heard for another request meanwhile.
#[test]
fn a_request_under_way_to_a_lost_node_that_was_not_the_master() {
    let mut hands = Hands::new(4);
    let name = given_back(&mut hands, 3, 2, 1); // node 1 still takes node 3 for the master
    let two = [(); 2].map(|()| hands.ask(1, &name, Mode::PR, NOTHING));
    hands.settle(); // both are refused
    hands.lock(4, &name, Mode::PR);
    hands.bed.go_on(1);
    while hands.bed.under_way(3, 1) > 1 {
        hands.bed.run(1); // up to the first refusal
    }
    hands.bed.shut(3, 1, true);
    hands.settle();
    assert_eq!(two.map(|hand| hands.hands[hand].granted), [Some(Mode::PR), None]);
    hands.gone(3);
    hands.settle();
    hands.bed.shut(3, 1, false);
    assert_eq!(hands.hands[two[1]].granted, Some(Mode::PR), "node 4 is the master");
    hands.agree("after the loss");
    hands.let_go("at the end");
}

/// 4.3: a conversion that was demoted tells so when it is granted, by whichever master.
#[test]
fn a_demotion_is_told_although_its_master_is_lost() {
    for cancelled in [false, true] {
        let mut hands = Hands::new(4);
        let (name, _) = name_at(&mut hands, 3, 4);
        let first = hands.lock(1, &name, Mode::PR);
        let demoted = hands.lock(2, &name, Mode::PR);
        hands.convert(first, Mode::EX, NOTHING);
        hands.settle();
        hands.convert(demoted, Mode::EX, LockFlags::CONVDEADLK);
        hands.settle();
        assert_eq!(hands.hands[first].granted, Some(Mode::EX));
        hands.gone(3);
        hands.settle();
        if cancelled {
            // It is granted before the cancel arrives.
            hands.bed.shut(2, 1, true);
            hands.bed.shut(1, 2, true);
            hands.give_up(demoted, LockFlags::CANCEL).expect("it waits");
        }
        hands.unlock(first);
        hands.settle();
        for (from, to) in [(1, 2), (2, 1)] {
            hands.bed.shut(from, to, false);
        }
        hands.settle();
        let hand = &hands.hands[demoted];
        assert_eq!((hand.granted, hand.last), (Some(Mode::EX), Some(Status::Granted)));
        assert!(hand.flags.has(SbFlags::DEMOTED), "cancelled: {cancelled}: {hand:?}");
        hands.let_go("at the end");
    }
}

/// R9, R14, two lanes: a node looks a name up, as it was refused, and claims it, as it holds a lock there. The
/// claim's answer waits to be taken in and the look-up's does not: it says the same, and nothing begins by it.
#[test]
fn a_look_up_that_is_answered_past_the_answer_to_a_claim() {
    let mut hands = Hands::new(4);
    let (name, refused) = refused_by_who_takes_it_again(&mut hands, 2, 1, 3);
    let held = hands.ask(3, &name, Mode::PR, NOTHING);
    hands.settle();
    hands.bed.shut(3, 1, true);
    hands.bed.go_on(3);
    hands.settle(); // it heard of the refusal, and then of the grant
    assert_eq!(hands.hands[held].granted, Some(Mode::PR));
    assert!(hands.hands[refused].pending);
    hands.gone(2);
    hands.settle();
    hands.bed.shut(3, 1, false);
    hands.settle();
    assert_eq!(hands.hands[held].granted, Some(Mode::PR));
    hands.agree("after the claim");
    hands.let_go("at the end");
}
