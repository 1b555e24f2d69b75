//! Whole clusters of the real engine in one process: a seed decides who crashes when, which message
//! is late, who dies; oracles that see everything decide whether what the clients believe is true.
//!
//! What may go in: the world around [`dlm_core::Node`], its faults, its oracles. What may not: any
//! rule of the lock manager itself.
#![forbid(unsafe_code)]

mod client;
mod oracle;
mod rng;
mod world;

pub use oracle::Oracle;
pub use rng::Rng;
pub use world::{MS, Options, World};

/// Runs one seed; the error says what is wrong.
pub fn run_seed(seed: u64, nodes: usize, trace: bool) -> Result<World, String> {
    let options = Options { trace, ..Options::of_seed(seed, nodes) };
    let mut world = World::new(seed, options);
    world.run().map(|()| world)
}
