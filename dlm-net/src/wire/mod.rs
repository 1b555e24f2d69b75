//! How peers' messages look in bytes (wire.md): frames by hand, bodies by bincode behind one file.

pub mod body;
pub(crate) mod envelope;
pub mod frame;
pub mod limits;
pub mod note;
#[cfg(test)]
mod vectors;
