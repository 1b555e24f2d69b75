//! Who makes lost nodes harmless, for a backend that does not know by itself (membership.md 2).
//!
//! The backend tells who takes part and who was lost; the implementation says, sooner or later, that
//! a lost life is harmless. It is one state machine per daemon; all of them see the same calls about
//! members, losses and messages in the same order, as the group below delivers them, so that they may
//! decide without asking each other. The backend carries their messages.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::Range;

use dlm_core::{Instant, Member, NodeId};
use dlm_ipc::control::{DaemonFencing, NodeFencing};
use mio::{Registry, Token};

use crate::daemon::config::Settings;

/// A life that the cluster lost and that may still do harm.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Lost {
    /// The life; incarnation 0: whatever the node did before it was ever seen.
    pub life: Member,
    /// Why, as `dlm_ipc::control::left` numbers it; 0: it was never seen (start-up fencing).
    pub why: u32,
    /// When, in wall-clock seconds of the daemon that decided it.
    pub wall: u64,
    /// When it was lost, by this daemon's clock; for a daemon that came later, when it heard of it.
    pub since: Instant,
    /// Daemons that took part then, without it.
    pub witnesses: BTreeSet<u32>,
}

/// What fencing says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FencingNews {
    /// To be delivered to all daemons, this one included, in one order.
    Send(Vec<u8>),
    /// This life of the node, and all before it, is harmless. True everywhere; the backend tells the
    /// others and remembers it.
    Harmless(Member),
}

/// Who makes lost nodes harmless.
pub trait Fencing {
    /// As [`super::Membership::open`], for descriptors of agents.
    ///
    /// # Errors
    /// A descriptor cannot be watched.
    fn open(&mut self, _registry: &Registry, _tokens: Range<usize>) -> io::Result<()> {
        Ok(())
    }

    /// A descriptor that it watches has something.
    fn ready(&mut self, _token: Token) {}

    /// Does what is due.
    fn on_time(&mut self, _now: Instant) {}

    /// When [`Fencing::on_time`] has to be called at the latest.
    fn deadline(&self) -> Option<Instant> {
        None
    }

    /// Whether there is a way to switch this node off, so that the cluster may be one in which both
    /// halves of a split are quorate (`two_node`).
    fn has_power_over(&self, _node: NodeId) -> bool {
        false
    }

    /// The configuration may have changed.
    fn configure(&mut self, _settings: &Settings) {}

    /// When a node was made harmless last, seconds of the daemon's clock; 0: never.
    fn fenced_at(&self, _node: NodeId) -> u64 {
        0
    }

    /// The daemons that take part now, by node and life, this one included, and whether it may fence:
    /// ring numbers agree and, where the configuration asks for it, the cluster is quorate.
    fn on_members(&mut self, _members: &BTreeMap<u32, u64>, _may_fence: bool, _now: Instant) {}

    /// All lives that are feared now. Who is not in it any more is harmless, whoever found that out:
    /// fencing, a person, the node itself that came back clean.
    fn on_lost(&mut self, lost: &[Lost], now: Instant);

    /// A message of this daemon's or another one's fencing.
    fn on_message(&mut self, _from: NodeId, _message: &[u8], _now: Instant) {}

    /// A person's word that a node is dead: sent to all in the form of [`FencingNews::Harmless`].
    ///
    /// # Errors
    /// A sentence: nobody fears that node.
    fn acknowledge(&mut self, node: NodeId, now: Instant) -> Result<(), String>;

    /// What is new since the last call, oldest first.
    fn next(&mut self) -> Option<FencingNews>;

    /// What is done about a feared node and what would end the wait, in words.
    fn words(&self, lost: &Lost) -> String;

    /// Fencing of a node, for listings.
    fn of_node(&self, _node: NodeId) -> NodeFencing {
        NodeFencing::default()
    }

    /// Fencing as a whole, for listings.
    fn as_whole(&self) -> DaemonFencing {
        DaemonFencing::default()
    }
}
