//! (see the crate description)
fn main() {}
