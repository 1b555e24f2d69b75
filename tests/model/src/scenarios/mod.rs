//! The scenarios of recovery.md: each race of section 7, and each item of section 8, in every order.
//!
//! Nodes 1 and 2 mostly live, node 3 is what befalls them. A program ends by unlocking what it holds, so that
//! every request must be granted in the end.

use crate::script::Scenario;

pub mod conversions;
pub mod nodir;
pub mod races;
pub mod steps;

/// All of them.
pub fn all() -> Vec<Scenario> {
    [races::all(), steps::all(), conversions::all(), nodir::all()].concat()
}
