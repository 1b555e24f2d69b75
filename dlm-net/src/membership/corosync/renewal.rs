//! Ticks, and what they prove: the lease is renewed by those that the others heard.
//!
//! A tick that comes back to its sender proves nothing ([`Echoes`]): a node that was paused may
//! find the token in its mailbox, speak, and hear itself, after the others formed a ring without
//! it. So ticks name what their sender heard of others, and one counts when a majority of the
//! configured nodes has heard it, or, of fewer that take part, all. A node that is alone and
//! quorate (`two_node`, or by a quorum device) has only itself to hear: there a power fence agent
//! has to stand behind it.

use std::collections::BTreeMap;

use dlm_core::Instant;

use super::message::Process;
use super::order::{Act, Order};
use crate::membership::lease::Echoes;

/// What is known of ticks.
#[derive(Debug, Default)]
pub(super) struct Ticks {
    /// The last ones of others, by their own clocks.
    heard: BTreeMap<Process, u64>,
    /// Who heard ours.
    echoes: Echoes,
    /// The last one of ours that counted.
    counted: u64,
}

impl Ticks {
    /// What to say in the next tick.
    pub(super) fn heard(&self) -> Vec<(Process, u64)> {
        self.heard.iter().map(|(process, at)| (*process, *at)).collect()
    }

    /// Only these processes are in the group.
    pub(super) fn retain(&mut self, is_there: impl Fn(&Process) -> bool) {
        self.heard.retain(|process, _| is_there(process));
    }
}

impl Order {
    /// Our own tick came back.
    pub(super) fn hear_own_tick(&mut self, at: Instant) {
        self.ticks.echoes.hear(self.setup.own.node, at.0);
        self.renew_lease();
    }

    /// A tick of another daemon.
    pub(super) fn hear_tick(&mut self, from: Process, at: u64, heard: &[(Process, u64)]) {
        self.ticks.heard.insert(from, at);
        if let Some((_, at)) = heard.iter().find(|(process, _)| *process == self.setup.own) {
            self.ticks.echoes.hear(from.node, *at);
            self.renew_lease();
        }
    }

    fn renew_lease(&mut self) {
        if !(self.may_act() && self.is_agreed() && self.takes_part()) {
            return;
        }
        let majority = self.setup.nodes.len() / 2 + 1;
        let needed = majority.min(self.body.len());
        let at = self.ticks.echoes.quorum(needed, |node| self.body.contains_key(&node));
        if let Some(at) = at.filter(|at| *at > self.ticks.counted) {
            self.ticks.counted = at;
            self.acts.push_back(Act::Lease(Instant(at)));
        }
    }
}
