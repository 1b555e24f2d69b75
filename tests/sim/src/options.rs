//! What kind of run a seed stands for: runs differ in kind, not only in luck (swarm). Most faults are
//! off in most runs, so that what is on comes often and beside few others.

use crate::rng::Rng;

/// Milliseconds of the world, in its microseconds.
pub const MS: u64 = 1000;

/// How rough a run is; drawn from the seed.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Nodes.
    pub nodes: usize,
    /// Lockspaces.
    pub spaces: usize,
    /// Masters are the owners of their names' slots.
    pub nodir: bool,
    /// Nodes own different shares of the slots.
    pub weighted: bool,
    /// Clients per node.
    pub clients: usize,
    /// Names they use, per lockspace.
    pub names: usize,
    /// Rough phases; each is followed by a healed one.
    pub rounds: u64,
    /// Length of a rough phase.
    pub rough: u64,
    /// Longest pause of a client between two calls.
    pub pace: u64,
    /// Longest delay of a message.
    pub delay: u64,
    /// Longest time until a node goes on with work over many names.
    pub work_delay: u64,
    /// Locks of a client that ended which a node ends in one step.
    pub ended_at_once: u32,
    /// Time between two draws of faults; the percentages below are per draw.
    pub period: u64,
    /// Nodes that crash.
    pub crashes: u64,
    /// All nodes crash at once.
    pub blackouts: u64,
    /// Nodes cut off alive.
    pub cuts: u64,
    /// Pairs of which one direction is cut.
    pub one_way: u64,
    /// Nodes that stand still.
    pub pauses: u64,
    /// Healthy nodes that are excluded.
    pub excludes: u64,
    /// Clients that die.
    pub deaths: u64,
    /// Lockspaces that a node leaves and joins again.
    pub leaves: u64,
    /// Views with the same members and a new number.
    pub renewals: u64,
    /// Nodes whose numbers of the view come near their end, in percent per draw; no seed draws it.
    pub scarce: u64,
    /// Longest time until membership notices something.
    pub notice: u64,
    /// How late `safe` may come.
    pub safe_delay: u64,
    /// Members are let in although somebody excluded is feared.
    pub eager_joins: bool,
    /// Messages travel in sessions over connections, instead of by a wire without faults.
    pub sessions: bool,
    /// Messages are encoded and decoded.
    pub codec: bool,
    /// Frames lost, doubled, turned round, each per 1,000.
    pub wire: u64,
    /// Connections that break, in percent per draw.
    pub resets: u64,
    /// How far clocks run apart, per 1,000.
    pub drift: u64,
    /// Length of the lease, where there is one.
    pub lease: Option<u64>,
    /// Renewals of the lease that fail, in percent.
    pub lease_misses: u64,
    /// Clients that are slow, in percent, and how slow at most.
    pub slow: (u64, u64),
    /// Clients that give way when they are told that they block, in percent.
    pub polite: u64,
    /// Requests with a value block, in percent.
    pub values: u64,
    /// Locks that outlive their owners, in percent.
    pub persistent: u64,
    /// Clients that hold a weak lock with a value block all the time, per name.
    pub anchors: usize,
    /// Clients mostly write and read, instead of doing everything.
    pub writers: bool,
    /// Print every event.
    pub trace: bool,
}

impl Options {
    /// The kind of run that a seed stands for.
    pub fn of_seed(seed: u64, nodes: usize) -> Self {
        let mut rng = Rng::new(seed ^ 0xabcd);
        let mut options = Self { nodes, ..Self::default() };
        options.draw_load(&mut rng);
        options.draw_faults(&mut rng);
        options.draw_wire(&mut rng);
        // A source of its own: it came later, and older seeds are to mean what they meant.
        let share = *Rng::new(seed ^ 0x7a5d).pick(&[0, 0, 1, 8]);
        options.work_delay = options.delay * share / 4;
        options.ended_at_once = *Rng::new(seed ^ 0xe4d5).pick(&[128, 128, 1, 2]);
        if rng.chance(6) {
            options.be_sparse();
        }
        options
    }

    /// Many names, each used now and then: they are forgotten and taken again while views change.
    fn be_sparse(&mut self) {
        (self.clients, self.names, self.anchors) = (self.spaces, 25, 0);
        (self.rounds, self.rough) = (1, 150_000 * MS);
        (self.pace, self.delay, self.period) = (600 * MS, 2000 * MS, 3000 * MS);
        (self.notice, self.safe_delay) = (500 * MS, 100 * MS);
        (self.renewals, self.lease, self.slow, self.persistent) = (60, None, (0, 0), 0);
        self.nodir = false;
    }

    fn draw_load(&mut self, rng: &mut Rng) {
        self.spaces = if rng.chance(25) { 2 } else { 1 };
        self.nodir = rng.chance(20);
        self.weighted = rng.chance(20);
        self.clients = rng.range(1, 4) as usize * self.spaces;
        self.names = if rng.chance(40) { 1 } else { rng.range(2, 6) as usize };
        self.rounds = rng.range(1, 3);
        // Slow worlds: names are idle long enough to be forgotten, and messages late enough for views
        // to change meanwhile.
        let tempo = *rng.pick(&[1, 1, 1, 100]);
        self.rough = tempo * rng.range(400, 2000) * MS / self.rounds;
        self.pace = tempo * *rng.pick(&[2 * MS, 5 * MS, 20 * MS]);
        self.delay = tempo * *rng.pick(&[300, 2 * MS, 20 * MS]);
        self.period = tempo * *rng.pick(&[30 * MS, 100 * MS]);
        self.notice = *rng.pick(&[self.delay, self.period]);
        self.safe_delay = tempo * *rng.pick(&[1, 20 * MS, 400 * MS]);
        self.slow = *rng.pick(&[(0, 0), (0, 0), (30, tempo * 50 * MS)]);
        self.polite = *rng.pick(&[0, 50, 100]);
        self.values = *rng.pick(&[10, 50, 90]);
        self.persistent = *rng.pick(&[0, 0, 20]);
        self.anchors = *rng.pick(&[0, 0, 1, 2]);
        self.writers = rng.chance(40);
    }

    fn draw_faults(&mut self, rng: &mut Rng) {
        let often = |rng: &mut Rng, rates: &[u64]| *rng.pick(rates);
        self.crashes = often(rng, &[0, 3, 10, 25]);
        self.blackouts = often(rng, &[0, 0, 0, 2]);
        self.cuts = often(rng, &[0, 0, 5, 15]);
        self.one_way = often(rng, &[0, 0, 0, 10]);
        self.pauses = often(rng, &[0, 0, 5, 15]);
        self.excludes = often(rng, &[0, 0, 0, 5]);
        self.deaths = often(rng, &[0, 5, 20]);
        self.leaves = often(rng, &[0, 0, 5, 15]);
        self.renewals = often(rng, &[0, 0, 20, 60]);
        self.eager_joins = rng.chance(30);
    }

    fn draw_wire(&mut self, rng: &mut Rng) {
        self.drift = *rng.pick(&[0, 0, 10, 100]);
        self.sessions = rng.chance(15);
        self.codec = rng.chance(20);
        self.wire = *rng.pick(&[0, 2, 30]);
        self.resets = *rng.pick(&[0, 10, 50]);
        if rng.chance(15) {
            self.lease = Some(self.period * *rng.pick(&[1, 4]));
            self.lease_misses = *rng.pick(&[0, 30, 60]);
        }
    }
}
