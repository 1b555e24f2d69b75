//! Lockspaces whose masters go by slot (recovery.md section 5), in every order of messages, views and
//! calls.
//!
//! The bounds of each: three nodes, one name, one client per node with the few calls of its program, and the
//! losses named, in that order, at any moment; work over many names is done at once.

#[macro_use]
mod common;

scenarios! { nodir:
    nodir_join_under_load
    nodir_master_lost
    nodir_value_moves
}
