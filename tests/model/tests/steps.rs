//! Losses, joins and skipped views of recovery.md section 8, each in every order of its messages, views,
//! calls and losses.
//!
//! The bounds of each: three nodes, one name, one client per node with the few calls of its program, and the
//! losses named, in that order, at any moment; work over many names is done at once.

#[macro_use]
mod common;

scenarios! { steps:
    three_share
    master_lost
    master_lost_slowly
    join_at_each_step
    middle_view_skipped
    excluded_grants_locally
    second_safe_much_later
}
