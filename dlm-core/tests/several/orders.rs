//! Rules that only one order of messages shows, each with the order that it is there for.

use dlm_core::{Input, Instant, LockFlags, LockspaceId, Mode, NodeId};

use crate::hands::Hands;

const NOTHING: LockFlags = LockFlags(0);
/// A name that nobody uses is forgotten after this time, and who its master is as well.
const IDLE_MS: u64 = 10_000;

/// A name that one node masters, with an NL lock there, and another one is the directory of.
pub(crate) fn name_at(hands: &mut Hands, master: u32, directory: u32) -> (String, usize) {
    for number in 0..1000 {
        let name = format!("name-{number}");
        let hand = hands.lock(master, &name, Mode::NL);
        let host = &hands.bed.hosts[&directory];
        let entries = host.node.directory(host.space.expect("it is a member"));
        if entries.contains(&(name.as_bytes().to_vec(), NodeId(master))) {
            return (name, hand);
        }
        hands.unlock(hand);
        hands.settle();
    }
    panic!("node {directory} is the directory of no name");
}

/// A name that `master` masters and nobody uses any more, `owner` last; `owner` stands still.
fn left_idle(hands: &mut Hands, master: u32, directory: u32, owner: u32) -> String {
    let (name, held) = name_at(hands, master, directory);
    let before = hands.lock(owner, &name, Mode::NL);
    hands.unlock(before);
    hands.settle();
    hands.unlock(held);
    hands.bed.still.insert(owner);
    name
}

/// A name that `master` has given back; `owner` stands still and takes it for the master.
pub(crate) fn given_back(hands: &mut Hands, master: u32, directory: u32, owner: u32) -> String {
    let name = left_idle(hands, master, directory, owner);
    hands.bed.wait_ms(IDLE_MS);
    name
}

/// A name that `master` was leaving when `owner` asked for EX, and has taken again; `owner` stands still and has not
/// heard that it was refused.
pub(crate) fn refused_by_who_takes_it_again(
    hands: &mut Hands,
    master: u32,
    directory: u32,
    owner: u32,
) -> (String, usize) {
    let name = left_idle(hands, master, directory, owner);
    hands.bed.shut(master, directory, true);
    hands.bed.wait_ms(IDLE_MS); // it is leaving the name
    let refused = hands.ask(owner, &name, Mode::EX, NOTHING);
    hands.settle();
    hands.bed.shut(master, directory, false);
    hands.settle(); // it has left it, and takes it again
    hands.lock(master, &name, Mode::NL);
    (name, refused)
}

/// R9, R10: a request under way to who is not the master any more is this node's own to serve when the directory
/// gives it the name. What its owner has called it back with meanwhile is not forgotten.
#[test]
fn what_was_noted_of_a_request_under_way_when_its_name_comes_here() {
    for flags in [LockFlags::CANCEL, LockFlags::FORCEUNLOCK] {
        let mut hands = Hands::new(3);
        let name = given_back(&mut hands, 3, 2, 1); // node 1 still takes node 3 for the master
        let first = hands.ask(1, &name, Mode::EX, NOTHING);
        hands.settle();
        hands.bed.shut(3, 2, true);
        let other = hands.ask(3, &name, Mode::EX, NOTHING); // now it looks it up, and does not refuse
        let second = hands.ask(1, &name, Mode::EX, NOTHING);
        hands.settle();
        hands.give_up(second, flags).expect("it is under way");
        hands.bed.go_on(1);
        hands.settle();
        assert_eq!(hands.hands[first].granted, Some(Mode::EX), "node 1 is the master");
        assert!(!hands.hands[second].exists(), "{:?}", hands.hands[second]);
        hands.bed.shut(3, 2, false);
        hands.settle();
        hands.unlock(first);
        hands.settle();
        assert_eq!(hands.hands[other].granted, Some(Mode::EX));
        hands.let_go("at the end");
    }
}

/// R14, R15: a node claimed a name, its answer was lost with the view, and it has a look-up under way as well
/// (it was refused by a master that took the name again, R10). The look-up's answer says that it is the master by
/// that claim: others claimed as well, and it serves when their records are there.
#[test]
fn a_look_up_that_is_answered_with_an_earlier_claim() {
    let mut hands = Hands::new(4);
    let (name, refused) = refused_by_who_takes_it_again(&mut hands, 2, 3, 1);
    let held = hands.ask(1, &name, Mode::CR, NOTHING);
    let reader = hands.lock(4, &name, Mode::PR);
    hands.bed.shut(1, 3, true);
    hands.bed.go_on(1);
    hands.settle(); // it heard of the refusal, and then of the grant
    assert_eq!(hands.hands[held].granted, Some(Mode::CR));
    assert!(hands.hands[refused].pending);
    // Its claim is the first one, and not answered.
    for (from, to) in [(4, 3), (3, 1), (4, 1)] {
        hands.bed.shut(from, to, true);
    }
    hands.gone(2);
    hands.settle();
    hands.bed.shut(1, 3, false);
    hands.settle();
    hands.bed.change();
    hands.bed.shut(3, 1, false);
    hands.settle(); // the look-up's answer comes before it claims anew
    assert!(hands.hands[refused].pending, "others hold it");
    for (from, to) in [(4, 3), (4, 1)] {
        hands.bed.shut(from, to, false);
    }
    hands.settle();
    hands.agree("after the claims");
    assert!(hands.hands[refused].pending, "node 4 reads");
    assert!(hands.hands[reader].told);
    hands.let_go("at the end");
}

/// R8: a Remove is sent again in a new view, since its answer may be lost. The name may be another's by then.
#[test]
fn a_remove_that_is_sent_again_when_the_name_has_another_master() {
    let mut hands = Hands::new(4);
    let (name, master) = name_at(&mut hands, 1, 3);
    hands.unlock(master);
    hands.bed.shut(3, 1, true);
    hands.bed.wait_ms(IDLE_MS);
    let next = hands.lock(2, &name, Mode::EX);
    hands.bed.change();
    hands.settle();
    let tried = hands.ask(4, &name, Mode::EX, LockFlags::NOQUEUE);
    hands.settle();
    assert!(!hands.hands[tried].exists(), "node 2 holds it");
    hands.bed.shut(3, 1, false);
    hands.settle();
    hands.agree("when all is heard");
    assert_eq!(hands.hands[next].granted, Some(Mode::EX));
    hands.let_go("at the end");
}

/// R15: a master without its lease owes the end of one recovery when the next one begins. Names of the next one wait
/// for the records of all, also when the lease is back.
#[test]
fn names_of_a_newer_recovery_are_not_finished_with_those_of_an_older_one() {
    let mut hands = Hands::new(4);
    let (older, _) = name_at(&mut hands, 4, 1);
    let (newer, _) = name_at(&mut hands, 3, 1);
    let kept = hands.lock(1, &older, Mode::NL);
    let waits = hands.ask(4, &older, Mode::EX, NOTHING);
    let holds = hands.lock(2, &newer, Mode::EX);
    let wants = hands.ask(1, &newer, Mode::EX, NOTHING);
    hands.settle();
    hands.bed.step(1, Input::LeaseUntil(Instant(0)));
    hands.gone(4);
    hands.settle();
    hands.bed.still.insert(2);
    hands.gone(3);
    hands.settle();
    hands.bed.step(1, Input::LeaseUntil(Instant(u64::MAX)));
    hands.settle();
    let audit = hands.bed.hosts[&1].node.audit(LockspaceId(0));
    assert!(audit.owed.iter().any(|owed| owed.contains(&newer)), "{:?}", audit.owed);
    assert!(hands.hands[wants].pending, "node 2 has not said what it holds");
    hands.bed.go_on(2);
    hands.settle();
    hands.agree("after both recoveries");
    assert_eq!(hands.hands[holds].granted, Some(Mode::EX));
    assert!(hands.hands[wants].pending && hands.hands[kept].granted.is_some());
    assert!(!hands.hands[waits].exists(), "it is lost with its node");
    hands.let_go("at the end");
}
