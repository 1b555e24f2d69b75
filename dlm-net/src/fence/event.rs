//! What the policy of fencing is told, and what it orders.

use std::collections::{BTreeMap, BTreeSet};

use super::message::{Message, Victim};

/// What the configuration says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rules {
    /// `enable_fencing`: agents are run at all. Without, only a person or a lease ends a case.
    pub fencing: bool,
    /// `enable_concurrent_fencing`: several victims at once.
    pub concurrent: bool,
    /// `repeat_failed_fencing`.
    pub repeat: bool,
    /// `post_join_delay`, nanoseconds.
    pub post_join_delay: u64,
}

/// The clocks at an event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Clock {
    /// Nanoseconds that only grow (CLOCK_BOOTTIME).
    pub mono: u64,
    /// Wall-clock seconds; shown and given to agents, nothing is decided by them.
    pub wall: u64,
}

/// Why a node has to be fenced.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reason {
    /// It is configured and nobody has seen it since the cluster started.
    Startup,
    /// The node is gone.
    NodeDown,
    /// Its daemon is gone, or was silent for too long; the node is there.
    ProcDown,
}

impl Reason {
    /// The word of a status line (libdlm-abi.md 4.4).
    pub const fn word(self) -> &'static str {
        match self {
            Self::Startup => "startup",
            Self::NodeDown => "nodedown",
            Self::ProcDown => "procdown",
        }
    }
}

/// A life that the cluster lost and fears.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Feared {
    /// Which.
    pub victim: Victim,
    /// Why.
    pub reason: Reason,
    /// When it failed, wall-clock seconds of the daemon that decided it.
    pub fail_wall: u64,
    /// When it failed, or when this daemon heard of it: nanoseconds of this daemon's clock.
    pub since: u64,
    /// Who took part then, without it.
    pub witnesses: BTreeSet<u32>,
}

/// What happened. All but [`Input::Ended`] and [`Input::Tick`] come to all daemons in one order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Input {
    /// Who takes part, and whether the cluster may fence (it is quorate, or need not be).
    Members {
        /// Node ids with the lives that take part, this one included. A restarted daemon is another
        /// one, also where nobody saw its node without a daemon.
        members: BTreeMap<u32, u64>,
        /// Whether agents may be run.
        may_fence: bool,
    },
    /// All that is feared now. Who is not in it any more is harmless, whoever found that out.
    Lost(Vec<Feared>),
    /// A message, also one's own.
    Message {
        /// Who said it.
        from: u32,
        /// What.
        message: Message,
    },
    /// The agents of an attempt ended.
    Ended {
        /// Which attempt.
        run: u64,
        /// Whether the victim is off.
        good: bool,
    },
    /// Time passed.
    Tick,
}

/// What to do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Output {
    /// Run the agents for this victim.
    Run {
        /// Number of the attempt.
        run: u64,
        /// Whom.
        victim: Victim,
        /// When it failed, wall-clock seconds.
        fail_wall: u64,
    },
    /// End the agents of this attempt; what it says no longer counts.
    Stop {
        /// Number of the attempt.
        run: u64,
    },
    /// Tell all, this daemon included.
    Send(Message),
    /// This life of a node and all before it are harmless. A fact: it holds everywhere and for good.
    Harmless(Victim),
    /// Something that an operator wants to read.
    Note(Note),
}

/// Something that an operator wants to read, once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Note {
    /// A case came up.
    Pending(Victim, Reason),
    /// A case is over.
    Over(Victim),
    /// This node's agents switched it off.
    Fenced(Victim, u32),
    /// Somebody at this node said that it is off.
    Acknowledged(Victim, u32),
    /// This node's agents failed.
    AgentsFailed(Victim, u32),
    /// Everybody's agents failed; a new round begins.
    NewRound(Victim),
    /// Everybody's agents failed, and nobody tries again.
    GivenUp(Victim),
}
