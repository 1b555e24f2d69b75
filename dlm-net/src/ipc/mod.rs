//! Clients of this machine: accepting them, judging them, and serving their rings (ipc.md).

pub mod admit;
pub mod listen;
pub mod peer;
pub mod table;
