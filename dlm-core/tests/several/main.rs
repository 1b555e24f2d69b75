//! The engine on several nodes, step by step: the rows of semantics.md 14.5 and what went wrong in other lock
//! managers (bug-log.md), where two or three nodes and the order of a few messages can show it.
//!
//! | module | what it is |
//! |---|---|
//! | `bed` | nodes, links and membership under the test's hand |
//! | `agree` | the table check over all nodes, and what may not be left over |
//! | `play` | runs the text tables in `tables/` |
//! | `hands` | clients by number, for the modules below |
//! | `changes` | membership changes at every moment of another one, and in a row |
//! | `races` | many rounds, and messages in every order |
//! | `orders` | rules that one order of messages is there for |
//! | `scale` | how the cost of things grows |

#[path = "../engine/notation.rs"]
#[allow(dead_code, reason = "a part of the notation is used here")]
mod notation;

mod agree;
mod bed;
mod changes;
mod hands;
mod late;
mod orders;
mod play;
mod races;
mod scale;
