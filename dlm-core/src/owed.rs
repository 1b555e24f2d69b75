//! What a node owes while it is without its lease (recovery.md R20).
//!
//! It takes part in recovery, so that the others do not wait for it, but it grants and completes nothing:
//! lock traffic is kept in order, and so is the answer that would make it a master; names that are
//! rebuilt stay frozen; a queue that something was set free for is noted. All of it is made up for when the
//! lease is back, or dropped with a view that this node is not in.

use std::collections::{BTreeSet, VecDeque};

use crate::cluster::Job;
use crate::lockspace::{Context, LockTable};
use crate::message::{Body, Tagged};
use crate::seeded::cluster_fault;
use crate::{Member, Outbox, Output};

/// What is owed.
#[derive(Clone, Hash, Debug, Default)]
pub(crate) struct Owed {
    /// The lease is over.
    pub(crate) frozen: bool,
    /// Messages whose handling could grant or complete something, in order.
    messages: VecDeque<(Member, Body)>,
    /// Names whose queues were not looked at.
    pub(crate) passes: BTreeSet<u32>,
    /// What clients are to hear: also the end of an unlock by recovery is not delivered before.
    outputs: Vec<Output>,
}

impl Owed {
    /// Gives a message back if it can be handled now, else keeps it.
    pub(crate) fn admit(&mut self, from: Member, body: Body) -> Option<Body> {
        let waits = matches!(body, Body::Traffic(_) | Body::Tagged(_, Tagged::LookupReply { .. }));
        if !self.frozen || !waits {
            return Some(body);
        }
        self.messages.push_back((from, body));
        None
    }

    /// Has a client told something, now or when the lease is back.
    pub(crate) fn tell(&mut self, out: &mut Outbox, output: Output) {
        match self.frozen && !cluster_fault("ends-told-without-lease") {
            true => self.outputs.push(output),
            false => out.push(output),
        }
    }

    /// Whether a job can run now.
    pub(crate) fn may_run(&self, job: &Job) -> bool {
        !self.frozen || !matches!(job, Job::Finish { .. } | Job::Settle { .. })
    }
}

impl LockTable {
    /// The lease is over, or back.
    pub(crate) fn set_frozen(&mut self, cx: &mut Context<'_>, frozen: bool) {
        self.cluster.owed.frozen = frozen;
        if frozen {
            return;
        }
        for output in core::mem::take(&mut self.cluster.owed.outputs) {
            let client = match &output {
                Output::Complete { client, .. } | Output::Blocking { client, .. } => *client,
                _ => continue,
            };
            if cx.clients.hears(client) {
                cx.out.push(output);
            }
        }
        for resource in core::mem::take(&mut self.cluster.owed.passes) {
            // Who is being rebuilt gets its pass at the end of that.
            if self.resources.get(resource).is_some_and(|r| r.role.is_none()) {
                self.pass(cx, resource);
                self.tidy_resource(cx, resource);
            }
        }
        for (from, body) in core::mem::take(&mut self.cluster.owed.messages) {
            self.take_owed(cx, from, body);
        }
    }

    /// What came in an older view, or from a member that is lost by now, is void (R1, R2).
    fn take_owed(&mut self, cx: &mut Context<'_>, from: Member, body: Body) {
        let current = match &body {
            Body::Tagged(view, _) => *view == self.cluster.view.id,
            Body::Traffic(_) => true,
        };
        if current && self.cluster.is_member(from) {
            self.on_body(cx, from, body);
        }
    }
}
