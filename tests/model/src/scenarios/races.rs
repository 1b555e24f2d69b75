//! The rows of recovery.md section 7.

use dlm_core::{LockFlags, Mode};

use crate::script::{Fault, Scenario, Step, cancel, convert, lock, lock_with, unlock, unlock_with};
use crate::witness::Witness;

/// A lock that excludes everybody, and its end.
fn in_and_out() -> [Step; 2] {
    [lock(0, Mode::EX), unlock(0)]
}

/// The directory moves from node 3 to node 1; node 3 lives, masters the name and holds it. Nobody is
/// given the name before it is over with node 3 (R6, R7).
pub fn moved_slot_of_an_excluded_master() -> Scenario {
    Scenario::new("moved slot, excluded master lives")
        .directory(&[(&[1, 2, 3], 3), (&[1, 2], 1)])
        .given(3, &[lock(0, Mode::EX)])
        .program(1, &in_and_out())
        .program(3, &[unlock(0), lock(1, Mode::PR)])
        .faults(&[Fault::Exclude(3), Fault::End(3)])
        .sees(&[Witness::LookupWaits, Witness::FromLost])
}

/// A joiner owns the slot of a name that an excluded node still holds. It learns of that from the
/// view alone (B1, R6).
pub fn joiner_does_not_know_the_older_loss() -> Scenario {
    Scenario::new("joiner and older loss")
        .directory(&[(&[1, 2], 2), (&[1], 1), (&[1, 3], 3)])
        .first(&[1, 2])
        .given(2, &[lock(0, Mode::EX)])
        .program(1, &in_and_out())
        .program(3, &in_and_out())
        .faults(&[Fault::Exclude(2), Fault::Join(3), Fault::End(2)])
        .sees(&[Witness::LookupWaits])
}

/// The directory moves to node 1, and a second view comes before node 2 has said its names: the slot
/// looks unchanged between the two, and is not (R4).
pub fn second_view_before_names() -> Scenario {
    Scenario::new("second view before names")
        .directory(&[(&[1, 2, 3], 3), (&[1, 2], 1)])
        .given(2, &[lock(0, Mode::EX)])
        .program(1, &in_and_out())
        .program(2, &[unlock(0)])
        .faults(&[Fault::Lose(3), Fault::Renumber])
        .sees(&[Witness::OlderView, Witness::LaterView, Witness::Names])
}

/// Some have seen the barrier of one view and some not when the next one comes: locks settle on what
/// the new master says, not on their own barrier (R15 to R17).
pub fn second_view_at_the_barrier() -> Scenario {
    Scenario::new("second view at the barrier")
        .directory(&[(&[1, 2, 3], 1), (&[1, 2], 1)])
        .given(3, &[lock(0, Mode::NL)])
        .given(1, &[lock(0, Mode::PR)])
        .given(2, &[lock(0, Mode::PR)])
        .program(1, &[unlock(0)])
        .program(2, &[convert(0, Mode::EX)])
        .faults(&[Fault::Lose(3), Fault::Renumber])
        .sees(&[Witness::OlderView, Witness::LateThaw, Witness::Record])
}

/// The master is lost, then the new master, at any step of the first recovery (R17).
pub fn new_master_lost() -> Scenario {
    Scenario::new("new master lost")
        .directory(&[(&[1, 2, 3], 2), (&[1, 2], 2)])
        .given(3, &[lock(0, Mode::NL)])
        .given(1, &[lock(0, Mode::PR)])
        .given(2, &[lock(0, Mode::PR)])
        .program(1, &[convert(0, Mode::EX), unlock(0)])
        .faults(&[Fault::Lose(3), Fault::Lose(2)])
        .sees(&[Witness::Record])
}

/// The same, with the new master excluded and alive.
pub fn new_master_excluded() -> Scenario {
    Scenario::new("new master excluded")
        .directory(&[(&[1, 2, 3], 2), (&[1, 2], 2)])
        .given(3, &[lock(0, Mode::NL)])
        .given(1, &[lock(0, Mode::PR)])
        .given(2, &[lock(0, Mode::PR)])
        .program(1, &[convert(0, Mode::EX), unlock(0)])
        .program(2, &[unlock(0)])
        .faults(&[Fault::Lose(3), Fault::Exclude(2), Fault::End(2)])
        .sees(&[Witness::Record, Witness::FromLost])
}

/// The owner of the slot is lost while names are looked up there (R4).
pub fn slot_owner_lost() -> Scenario {
    Scenario::new("slot owner lost")
        .directory(&[(&[1, 2, 3], 3), (&[1, 2], 1)])
        .program(1, &[lock(0, Mode::PR), unlock(0)])
        .program(2, &in_and_out())
        .faults(&[Fault::Lose(3)])
        .sees(&[Witness::LookupWaits])
}

/// One member dies and another joins in one view.
pub fn join_and_loss_in_one_view() -> Scenario {
    Scenario::new("join and loss")
        .directory(&[(&[1, 2], 2), (&[1, 3], 3)])
        .first(&[1, 2])
        .given(2, &[lock(1, Mode::NL)])
        .given(1, &[lock(1, Mode::PR)])
        .program(1, &[convert(1, Mode::EX), unlock(1)])
        .program(3, &in_and_out())
        .faults(&[Fault::Swap { lost: 2, joined: 3 }])
        .sees(&[Witness::LookupWaits, Witness::FromUnknown])
}

/// Node 1 has no lock and looks a lost name up before node 2, which holds it, claims it (R7).
pub fn lookup_overtakes_a_claim() -> Scenario {
    Scenario::new("look-up overtakes a claim")
        .directory(&[(&[1, 2, 3], 1), (&[1, 2], 1)])
        .given(3, &[lock(0, Mode::NL)])
        .given(2, &[lock(0, Mode::EX)])
        .program(1, &in_and_out())
        .program(2, &[unlock(0)])
        .faults(&[Fault::Lose(3)])
        .sees(&[Witness::LookupWaits])
}

/// The lost master alone knew that a second excluded node, which lives, holds the name (R12).
pub fn second_excluded_holder() -> Scenario {
    Scenario::new("second excluded node holds")
        .directory(&[(&[1, 2, 3], 1), (&[1, 2], 1), (&[1], 1)])
        .given(3, &[lock(0, Mode::NL)])
        .given(2, &[lock(0, Mode::EX)])
        .given(1, &[lock(1, Mode::NL)])
        .program(1, &[convert(1, Mode::EX), unlock(1)])
        .program(2, &[unlock(0)])
        .faults(&[Fault::Lose(3), Fault::Exclude(2), Fault::End(2)])
        .sees(&[Witness::SafeAfterView])
}

/// A record is sent again in a second view and meets a master that serves already (R14).
pub fn late_record() -> Scenario {
    Scenario::new("late record")
        .directory(&[(&[1, 2, 3], 1), (&[1, 2], 1)])
        .given(3, &[lock(0, Mode::NL)])
        .given(1, &[lock(0, Mode::NL)])
        .given(2, &[lock(0, Mode::PR)])
        .program(1, &[convert(0, Mode::EX)])
        .program(2, &[unlock(0)])
        .faults(&[Fault::Lose(3), Fault::Renumber])
        .sees(&[Witness::RecordForServing])
}

/// An excluded master lives and goes on granting; its grants arrive late (R1, R3).
pub fn late_grant() -> Scenario {
    Scenario::new("late grant")
        .directory(&[(&[1, 2, 3], 3), (&[1, 2], 2)])
        .given(3, &[lock(0, Mode::EX)])
        .program(1, &[lock(0, Mode::EX), unlock(0)])
        .program(2, &[lock(0, Mode::PR), unlock(0)])
        .program(3, &[unlock(0)])
        .faults(&[Fault::Exclude(3), Fault::End(3)])
        .sees(&[Witness::LateGrant])
}

/// The same id is back at once, as another member (B3, R1), and asks for what its old life held.
pub fn same_id_back() -> Scenario {
    Scenario::new("same id back")
        .directory(&[(&[1, 3], 3), (&[1], 1)])
        .first(&[1, 3])
        .given(3, &[lock(0, Mode::NL)])
        .given(1, &[lock(0, Mode::PR)])
        .program(1, &[convert(0, Mode::EX), unlock(0)])
        .again(&[lock(0, Mode::PR), unlock(0)])
        .faults(&[Fault::Lose(3), Fault::Join(3)])
        .sees(&[Witness::FromUnknown])
}

/// A look-up is answered in one view, and the request it leads to arrives in the next (R10).
pub fn lookup_in_one_view_request_in_the_next() -> Scenario {
    Scenario::new("look-up and request in two views")
        .directory(&[(&[1, 2, 3], 1), (&[1, 2], 1)])
        .given(3, &[lock(0, Mode::NL)])
        .program(3, &[unlock(0)])
        .program(2, &in_and_out())
        .faults(&[Fault::Renumber])
        .sees(&[Witness::OlderView, Witness::LaterView])
}

/// The same, and the next view has lost the master (R10).
pub fn lookup_in_one_view_master_lost_in_the_next() -> Scenario {
    Scenario::new("look-up, and master lost")
        .directory(&[(&[1, 2, 3], 1), (&[1, 2], 1)])
        .given(3, &[lock(0, Mode::NL)])
        .program(2, &in_and_out())
        .program(1, &[lock(0, Mode::PR), unlock(0)])
        .faults(&[Fault::Lose(3)])
        .sees(&[Witness::OlderView, Witness::LaterView])
}

/// A joiner's messages reach members that do not have its view yet (R2).
pub fn joiner_meets_the_older_view() -> Scenario {
    Scenario::new("joiner and older view")
        .directory(&[(&[1, 2], 1), (&[1, 2, 3], 3)])
        .first(&[1, 2])
        .given(1, &[lock(0, Mode::NL)])
        .program(1, &[convert(0, Mode::EX), unlock(0)])
        .program(3, &[lock(0, Mode::PR), unlock(0)])
        .faults(&[Fault::Join(3)])
        .sees(&[Witness::FromUnknown, Witness::Names])
}

/// The reply «you are the master» is dropped by a new view, and nobody wants the name any more: the
/// question is asked again until it is finished (R9).
pub fn unwanted_lookup() -> Scenario {
    let force = unlock_with(0, LockFlags::FORCEUNLOCK, 0).anytime();
    Scenario::new("unwanted look-up")
        .directory(&[(&[1, 2, 3], 3), (&[1, 2], 2)])
        .program(1, &[lock(0, Mode::EX), cancel(0), force])
        .program(2, &[lock(0, Mode::PR), unlock(0)])
        .faults(&[Fault::Renumber])
        .sees(&[Witness::OlderView])
}

/// The same where the directory is lost.
pub fn unwanted_lookup_and_directory_lost() -> Scenario {
    let force = unlock_with(0, LockFlags::FORCEUNLOCK, 0).anytime();
    Scenario::new("unwanted look-up, directory lost")
        .directory(&[(&[1, 2, 3], 3), (&[1, 2], 2)])
        .program(1, &[lock(0, Mode::EX), force])
        .program(2, &[lock(0, Mode::PR), unlock(0)])
        .faults(&[Fault::Lose(3)])
        .sees(&[Witness::LookupWaits])
}

/// A name is forgotten while others look it up, and views come between (R8, R10).
pub fn remove_and_lookup() -> Scenario {
    Scenario::new("remove and look-up")
        .directory(&[(&[1, 2, 3], 2), (&[1, 2], 2)])
        .first(&[1, 2])
        .program(1, &in_and_out())
        .program(2, &[lock(0, Mode::PR), unlock(0)])
        .faults(&[Fault::Renumber])
        .timed()
        .sees(&[Witness::Remove, Witness::RequestRefused, Witness::OlderView])
}

/// A removal that a view drops, with the directory moving to another node (R8).
pub fn remove_lost_by_a_view() -> Scenario {
    Scenario::new("remove lost by a view")
        .directory(&[(&[1, 2, 3], 3), (&[1, 2], 2)])
        .given(1, &[lock(0, Mode::EX), unlock(0)])
        .program(1, &[lock(1, Mode::PR), unlock(1)])
        .program(2, &in_and_out())
        .faults(&[Fault::Lose(3)])
        .timed()
        .sees(&[Witness::Remove])
}

/// A name is forgotten by its master and rebuilt elsewhere (R8).
pub fn remove_and_rebuild() -> Scenario {
    Scenario::new("remove and rebuild")
        .directory(&[(&[1, 2, 3], 2), (&[1, 2], 2)])
        .given(3, &[lock(0, Mode::NL)])
        .program(3, &[unlock(0)])
        .program(1, &[lock(0, Mode::PR), unlock(0)])
        .faults(&[Fault::Lose(3)])
        .timed()
        .sees(&[Witness::Remove, Witness::LookupWaits])
}

/// A request overtakes the answer that makes its receiver the master: it is parked (R10).
pub fn request_overtakes_the_new_masters_reply() -> Scenario {
    Scenario::new("request overtakes the master's reply")
        .directory(&[(&[1, 2, 3], 3)])
        .program(1, &in_and_out())
        .program(2, &in_and_out())
        .sees(&[Witness::RequestParked])
}

/// A request in flight to a lost master: no record speaks of it, it is looked up again (R13).
pub fn request_in_flight_to_a_lost_master() -> Scenario {
    Scenario::new("request in flight to a lost master")
        .directory(&[(&[1, 2, 3], 2), (&[1, 2], 2)])
        .given(3, &[lock(0, Mode::EX)])
        .program(1, &in_and_out())
        .program(2, &in_and_out())
        .faults(&[Fault::Lose(3)])
        .sees(&[Witness::LookupWaits])
}

/// An orphan is a lock of its node: it moves to a new master like others, and goes with its node.
pub fn orphans() -> Scenario {
    let die = Step { lock: 0, op: crate::script::Op::Die, when: crate::script::When::Anytime };
    Scenario::new("orphans")
        .directory(&[(&[1, 2, 3], 2), (&[1, 2], 2)])
        .given(3, &[lock(0, Mode::NL)])
        .given(1, &[lock_with(0, Mode::PR, LockFlags::PERSISTENT)])
        .program(1, &[die])
        .program(2, &[lock(0, Mode::EX), unlock(0)])
        .faults(&[Fault::Lose(3), Fault::Lose(1)])
        .sees(&[Witness::Record])
}

/// «Safe» comes before the view, after it, and at different times at different nodes (B3, R11, R13).
pub fn safe_early_and_late() -> Scenario {
    Scenario::new("safe early and late")
        .directory(&[(&[1, 2, 3], 1), (&[1, 2], 1)])
        .given(1, &[lock(0, Mode::NL)])
        .given(3, &[lock(0, Mode::EX)])
        .program(1, &[convert(0, Mode::PR), unlock(0)])
        .program(2, &in_and_out())
        .program(3, &[unlock(0)])
        .faults(&[Fault::Exclude(3), Fault::End(3)])
        .sees(&[Witness::SafeBeforeView, Witness::SafeAfterView])
}

/// A node is without its lease at the barrier: it takes part, grants nothing, and makes up for it (R20).
pub fn no_lease_at_the_barrier() -> Scenario {
    Scenario::new("no lease at the barrier")
        .directory(&[(&[1, 2, 3], 1), (&[1, 2], 1)])
        .given(3, &[lock(0, Mode::NL)])
        .given(1, &[lock(0, Mode::PR)])
        .given(2, &[lock(0, Mode::NL)])
        .program(1, &[unlock(0)])
        .program(2, &[convert(0, Mode::EX), unlock(0)])
        .faults(&[Fault::Freeze(1), Fault::Lose(3), Fault::Renew(1)])
        .sees(&[Witness::Record])
}

/// Two members cannot talk: what does not need that pair goes on (B5).
pub fn one_pair_cut_for_ever() -> Scenario {
    Scenario::new("one pair cut for ever")
        .directory(&[(&[1, 2, 3], 3)])
        .given(3, &[lock(1, Mode::NL)])
        .program(1, &in_and_out())
        .program(2, &[lock(0, Mode::PR), unlock(0)])
        .program(3, &[convert(1, Mode::EX), convert(1, Mode::NL)])
        .faults(&[Fault::Cut(1, 2)])
}

/// Two members cannot talk until membership excludes one of them (B5).
pub fn one_pair_cut_until_excluded() -> Scenario {
    Scenario::new("one pair cut until excluded")
        .directory(&[(&[1, 2, 3], 3), (&[1, 3], 3)])
        .given(2, &[lock(1, Mode::NL)])
        .program(1, &in_and_out())
        .program(3, &[lock(0, Mode::PR), unlock(0)])
        .faults(&[Fault::Cut(1, 2), Fault::Exclude(2), Fault::End(2)])
}

/// The master leaves by force while others wait for it.
pub fn leave_by_force_as_master() -> Scenario {
    let release = Step {
        lock: 0,
        op: crate::script::Op::Release { force: true },
        when: crate::script::When::Anytime,
    };
    Scenario::new("leave by force as master")
        .directory(&[(&[1, 2, 3], 3), (&[1, 2], 1)])
        .given(3, &[lock(0, Mode::EX)])
        .given(1, &[lock(1, Mode::NL)])
        .program(3, &[release])
        .program(1, &[convert(1, Mode::PR), unlock(1)])
        .program(2, &in_and_out())
        .faults(&[Fault::Left(3)])
        .sees(&[Witness::Record])
}

/// All of them.
pub fn all() -> Vec<Scenario> {
    vec![
        moved_slot_of_an_excluded_master(),
        joiner_does_not_know_the_older_loss(),
        second_view_before_names(),
        second_view_at_the_barrier(),
        new_master_lost(),
        new_master_excluded(),
        slot_owner_lost(),
        join_and_loss_in_one_view(),
        lookup_overtakes_a_claim(),
        second_excluded_holder(),
        late_record(),
        late_grant(),
        same_id_back(),
        lookup_in_one_view_request_in_the_next(),
        lookup_in_one_view_master_lost_in_the_next(),
        joiner_meets_the_older_view(),
        unwanted_lookup(),
        unwanted_lookup_and_directory_lost(),
        remove_and_lookup(),
        remove_lost_by_a_view(),
        remove_and_rebuild(),
        request_overtakes_the_new_masters_reply(),
        request_in_flight_to_a_lost_master(),
        orphans(),
        safe_early_and_late(),
        no_lease_at_the_barrier(),
        one_pair_cut_for_ever(),
        one_pair_cut_until_excluded(),
        leave_by_force_as_master(),
    ]
}
