//! The tests of the lock engine, all through its public interface.
//!
//! One binary, because one link is cheaper than nine and because the seeded-mutation run
//! (`tests/mutants`) repeats it once per mutation.
//!
//! | module | what it shows |
//! |---|---|
//! | `tables` | the rows of semantics.md section 14 and our deviations, as text files (`tests/tables`) |
//! | `replay` | the one-node conformance scenarios against the recorded answers of the kernel |
//! | `random`, `exhaustive` | engine and naive model (`tests/model`) answer alike |
//! | `laws` | what must hold after any sequence: exclusion, one end per operation, no leak |
//! | `nodir` | masters by slot, on several nodes |
//! | `lease`, `last_number` | what a node without its lease, or without a number for a grant, owes |
//! | `second_loss` | a lock moved twice |
//! | `spaces`, `limits`, `ids`, `listing` | lockspace life cycle, ceilings, lock ids, listings |

#[path = "../model/mod.rs"]
mod model;

mod driver;
mod duel;
mod ending;
mod exhaustive;
mod ids;
mod invariants;
mod last_number;
mod laws;
mod lease;
mod limits;
mod listing;
mod nodir;
mod notation;
mod operation;
mod random;
mod replay;
mod second_loss;
mod several;
mod spaces;
mod tables;
