//! Whole clusters of the real engine in one process: a seed decides who crashes when, which message
//! is late, who dies; oracles that see everything decide whether what the clients believe is true.
//!
//! What may go in: the world around [`dlm_core::Node`] and [`dlm_net::session`], its faults, its oracles.
//! What may not: any rule of the lock manager itself.
#![forbid(unsafe_code)]

mod act;
mod client;
mod faults;
mod heard;
mod lives;
mod membership;
mod net;
mod options;
mod oracle;
mod rest;
mod rng;
mod values;
mod world;

pub use options::{MS, Options};
pub use rng::Rng;
pub use world::World;

/// Runs one seed; the error says what is wrong. `scarce`: the numbers of views end again and again
/// (recovery.md R19).
pub fn run_seed(seed: u64, nodes: usize, scarce: bool, trace: bool) -> Result<World, String> {
    let scarce = if scarce { 20 } else { 0 };
    let options = Options { trace, scarce, ..Options::of_seed(seed, nodes) };
    let mut world = World::new(seed, options);
    world.run().map(|()| world)
}

/// As [`run_seed`]; a panic of the engine is an error like others.
pub fn run_seed_caught(seed: u64, nodes: usize, scarce: bool, trace: bool) -> Result<Sum, String> {
    let run = || run_seed(seed, nodes, scarce, trace).map(|world| Sum::of(&world));
    std::panic::catch_unwind(run).unwrap_or_else(|payload| {
        let text = payload.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| payload.downcast_ref::<&str>().copied());
        Err(format!("panic: {}", text.unwrap_or("without words")))
    })
}

/// The command that replays a seed.
pub fn replay(seed: u64, nodes: usize, scarce: bool) -> String {
    let scarce = if scarce { " --scarce" } else { "" };
    format!("cargo xtask sim --seeds 1 --first {seed} --nodes {nodes}{scarce} --trace")
}

/// What happened in worlds.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sum {
    /// Worlds.
    pub seeds: u64,
    /// Grants that clients saw.
    pub grants: u64,
    /// Messages between nodes.
    pub messages: u64,
    /// Views agreed.
    pub views: u64,
    /// Microseconds that passed in the worlds.
    pub lasted: u64,
}

impl Sum {
    fn of(world: &World) -> Self {
        Self {
            seeds: 1,
            grants: world.grants(),
            messages: world.messages,
            views: world.views,
            lasted: world.lasted(),
        }
    }

    /// Adds another's.
    pub fn add(&mut self, other: &Self) {
        self.seeds += other.seeds;
        self.grants += other.grants;
        self.messages += other.messages;
        self.views += other.views;
        self.lasted += other.lasted;
    }
}
