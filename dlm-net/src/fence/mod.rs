//! Fencing: making lost nodes harmless before anybody is given what they held (membership.md 2,
//! libdlm-abi.md 5.4, 5.5).
//!
//! What may go in: who is fenced, by whom, with which agents, and the running of these. What may
//! not: who is a member (that is the membership backend's), and what follows from a node being safe
//! (that is the core's).
//!
//! | module | what |
//! |---|---|
//! | [`policy`] | who, by whom, when: a state machine without I/O |
//! | [`event`], [`case`] | its language; a pending life |
//! | [`message`] | what daemons tell each other, in bytes |
//! | [`plan`] | which agents, as dlm.conf says |
//! | [`agent`] | one run of one agent; `attempt`: all of a node's, until one way has worked |
//! | [`fences`] | all of it in the daemon's loop, and in words |
//! | [`probe`] | agents that are run while the daemon starts |

pub mod agent;
mod attempt;
pub mod case;
pub mod event;
pub mod fences;
#[cfg(test)]
mod fences_tests;
pub mod message;
pub mod plan;
pub mod policy;
#[cfg(test)]
mod policy_tests;
#[cfg(test)]
mod policy_worlds;
pub mod probe;
mod sys;
#[cfg(test)]
mod testing;
