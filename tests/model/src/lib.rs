//! Small clusters of the real engine in every order: a script says what clients ask for and what
//! membership decides, and all interleavings of messages, views, «safe» and calls are explored until
//! no new state is left.
//!
//! A simulator with seeds (`tests/sim`) finds what is likely in long runs of many names; this finds what
//! is possible in short ones of one name. Nothing here knows the protocol's state machine: a state is
//! the nodes themselves ([`dlm_core::Node`] can be copied and hashed), the messages between them, one
//! queue per ordered pair of members (recovery.md B5), and what clients believe.
//!
//! In every state: no two clients believe to hold what excludes each other (S1, S2 of membership.md),
//! every completion answers something that is open, once, and `Node::check` holds. In every state
//! without a next one: every program ran to its end, nothing is owed to anybody, and directory and masters
//! agree.

mod calls;
pub mod client;
pub mod lease;
pub mod model;
pub mod rest;
pub mod scenarios;
pub mod script;
pub mod sweep;
pub mod witness;
pub mod world;
