//! One-at-a-time locks of several services behind one trait, so that all are measured by the same
//! code.
//!
//! A lock of a peer is what its own documentation recommends: a key that is set only if absent,
//! with a time limit, and taken back only by its owner. Each client speaks just enough of its
//! protocol.

mod c_library;
mod memcached;
mod redis;
mod sys;

use std::io;

pub(crate) use redis::RedisQueue;

use crate::dlm::{Awaiting, Lazy};
use crate::job::Backend;

/// The lockspace that all measurements use.
pub(crate) const LOCKSPACE: &str = "bench";

/// Something that takes and gives back exclusive locks, one at a time.
pub(crate) trait Locker {
    /// Takes the lock `name`, waiting for it where the system can wait.
    fn lock(&mut self, name: &[u8]) -> io::Result<()>;
    /// Gives it back.
    fn unlock(&mut self) -> io::Result<()>;
}

/// Connects to a service.
pub(crate) fn open(backend: &Backend) -> io::Result<Box<dyn Locker>> {
    Ok(match backend {
        Backend::Dlm { socket, lazy: false } => Box::new(Awaiting::open(socket)?),
        Backend::Dlm { socket, lazy: true } => Box::new(Lazy::open(socket)?),
        Backend::DlmC { library, .. } => Box::new(c_library::CLocker::open(library)?),
        Backend::Redis { socket } => Box::new(redis::Redis::open(socket)?),
        Backend::RedisQueue { socket } => Box::new(redis::RedisQueue::open(socket)?),
        Backend::Memcached { socket } => Box::new(memcached::Memcached::open(socket)?),
    })
}
