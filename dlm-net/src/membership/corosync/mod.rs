//! `membership = corosync`: views agreed on by all daemons over corosync's process groups.
//!
//! Decisions are made in [`order`], without I/O; this module moves bytes and events between it,
//! corosync's libraries ([`sys`]), fencing and the loop. Nothing here waits: what corosync does not
//! take now is sent later, in the same order. A daemon that loses corosync loses its life in the same
//! turn of the loop, and joins again, as a new life, when corosync is back.

mod agree;
mod backend;
mod hindered;
mod message;
mod order;
mod renewal;
mod survey;
mod sys;
mod views;

#[cfg(test)]
mod tests;

pub(crate) use backend::Corosync;
pub(crate) use message::{Event, Left, Process, Ring};
pub(crate) use order::Rules;
pub(crate) use survey::Survey;
