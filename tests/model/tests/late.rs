//! Scenarios in which messages about many names wait for any time where they arrive, while lock traffic and
//! look-ups go past them (recovery.md section 9, "Two lanes"); each in every order.
//!
//! `dlm-model --late` explores all scenarios so, the largest of them up to a bound of steps; here are those
//! that are small enough for every run.

#[macro_use]
mod common;

scenarios! { late:
    races::moved_slot_of_an_excluded_master
    races::joiner_does_not_know_the_older_loss
    races::new_master_lost
    races::slot_owner_lost
    races::join_and_loss_in_one_view
    races::lookup_overtakes_a_claim
    races::same_id_back
    races::lookup_in_one_view_request_in_the_next
    races::remove_and_rebuild
    races::request_overtakes_the_new_masters_reply
    races::request_in_flight_to_a_lost_master
    races::orphans
    races::one_pair_cut_until_excluded
    races::leave_by_force_as_master
    steps::master_lost
    steps::excluded_grants_locally
}
