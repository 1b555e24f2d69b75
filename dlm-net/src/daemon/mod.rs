//! The daemon: start, loop, requests of operators, and its files.

mod alarm;
mod changes;
mod cluster;
pub mod config;
mod control;
mod counters;
mod external;
mod greet;
mod history;
mod kernel;
mod lease;
mod leftover;
mod links;
mod listing;
mod locate;
pub mod log;
pub mod lookalike;
mod news;
mod notify;
mod pace;
mod reactor;
mod serve;
mod signal;
pub mod start;
pub mod state;
mod stop;
mod waits;
