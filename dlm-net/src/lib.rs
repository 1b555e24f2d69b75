//! (see the crate description)
