//! Operations in flight to a lost master (recovery.md section 6), lost before and after it acted, each in
//! every order of its messages, views, calls and losses.
//!
//! The bounds of each: three nodes, one name, one client per node with the few calls of its program, and the
//! losses named, in that order, at any moment; work over many names is done at once.

#[macro_use]
mod common;

scenarios! { conversions:
    conversion_begins_to_read
    down_conversion_with_bytes
    unlock_with_bytes
    unlock_with_bytes_of_an_older_life
    pr_to_cw
    cw_to_ex_or_pr
    pr_to_ex_demoted
    conversion_with_overlaps
}
