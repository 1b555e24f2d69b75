//! The races of recovery.md section 7, each in every order of its messages, views, calls and losses.
//!
//! The bounds of each: three nodes, one name, one client per node with the few calls of its program, and the
//! losses named, in that order, at any moment; work over many names is done at once.

#[macro_use]
mod common;

scenarios! { races:
    moved_slot_of_an_excluded_master
    joiner_does_not_know_the_older_loss
    second_view_before_names
    second_view_at_the_barrier
    new_master_lost
    new_master_excluded
    slot_owner_lost
    join_and_loss_in_one_view
    lookup_overtakes_a_claim
    second_excluded_holder
    late_record
    late_grant
    same_id_back
    lookup_in_one_view_request_in_the_next
    lookup_in_one_view_master_lost_in_the_next
    joiner_meets_the_older_view
    unwanted_lookup
    unwanted_lookup_and_directory_lost
    remove_and_lookup
    remove_lost_by_a_view
    remove_and_rebuild
    request_overtakes_the_new_masters_reply
    request_in_flight_to_a_lost_master
    orphans
    safe_early_and_late
    no_lease_at_the_barrier
    one_pair_cut_for_ever
    one_pair_cut_until_excluded
    leave_by_force_as_master
}
