//! The daemon: start, loop, requests of operators, and its files.

pub mod config;
mod control;
mod counters;
mod greet;
mod kernel;
mod leftover;
mod listing;
pub mod log;
pub mod lookalike;
mod notify;
mod reactor;
mod serve;
mod signal;
pub mod start;
pub mod state;
mod stop;
