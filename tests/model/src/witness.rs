//! What a scenario is about must really happen in it: witnesses are noted over the whole exploration.

use std::cell::Cell;

use dlm_core::message::{Body, Message, Tagged, Traffic};
use dlm_core::{Member, View};

use crate::world::World;

/// Something that happened on some way through a scenario.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Witness {
    /// A message of a view that its receiver has not installed (R2).
    LaterView,
    /// A message of a view that its receiver has left behind (R2).
    OlderView,
    /// A message from a member that the receiver's view does not have, and had (R1).
    FromLost,
    /// A message from a member that the receiver's view does not have yet (R2).
    FromUnknown,
    /// Lock traffic from a lost member that would have granted something (R1, R3).
    LateGrant,
    /// A look-up that is not answered at once (R6, R7).
    LookupWaits,
    /// A claim that is not answered at once (R7).
    ClaimWaits,
    /// A record for a name that its receiver serves (R14).
    RecordForServing,
    /// A thaw of an older round than the receiver's view (R16).
    LateThaw,
    /// A request at a node that does not master the name (R10).
    RequestRefused,
    /// A request at a node that does not know yet whether it masters the name (R10).
    RequestParked,
    /// A removal that names another mastership than the directory has (R8).
    StaleRemove,
    /// A removal.
    Remove,
    /// «Safe» before the view that excludes the member (B3).
    SafeBeforeView,
    /// «Safe» after that view.
    SafeAfterView,
    /// A view that skips another (B2).
    SkippedView,
    /// Records moved to a new master.
    Record,
    /// A slot's new owner was told names (R5).
    Names,
    /// A new master took a name into service and says so (R15).
    Thaw,
}

thread_local! {
    /// What was seen on this thread, as a bit set.
    static SEEN: Cell<u64> = const { Cell::new(0) };
}

/// Takes what was seen on this thread since the last time.
pub fn take() -> u64 {
    SEEN.take()
}

impl Witness {
    /// Whether it is in a set of [`take`].
    pub fn is_in(self, seen: u64) -> bool {
        seen & (1 << self as u8) != 0
    }

    /// Whether states show it, not steps.
    pub fn is_a_state(self) -> bool {
        matches!(self, Self::LookupWaits | Self::ClaimWaits | Self::RequestParked)
    }

    fn note(self) {
        SEEN.set(SEEN.get() | (1 << self as u8));
    }
}

/// A message is about to be delivered.
pub(crate) fn delivery(world: &World, from: u32, to: u32, message: &Message) {
    let host = world.host(to);
    let view = world.views.iter().find(|view| view.id.0 == host.view);
    let sender = Member { node: dlm_core::NodeId(from), incarnation: message.from };
    let known = view.is_some_and(|view| view.members.contains(&sender));
    let was_lost = world.lost.iter().any(|(lost, _)| *lost == sender);
    if !known && was_lost {
        Witness::FromLost.note();
        if let Body::Traffic(Traffic::Grant { .. } | Traffic::Reply { .. }) = message.body {
            Witness::LateGrant.note();
        }
        return;
    }
    if !known {
        return Witness::FromUnknown.note();
    }
    match &message.body {
        Body::Tagged(view, _) if view.0 > host.view => Witness::LaterView.note(),
        Body::Tagged(view, _) if view.0 < host.view => Witness::OlderView.note(),
        Body::Tagged(_, tagged) => tagged_delivery(world, to, sender, tagged),
        Body::Traffic(traffic) => traffic_delivery(world, to, traffic),
    }
}

fn tagged_delivery(world: &World, to: u32, sender: Member, tagged: &Tagged) {
    let host = world.host(to);
    let audit = || host.space.map(|space| host.node.audit(space)).unwrap_or_default();
    match tagged {
        Tagged::Record(_) => {
            Witness::Record.note();
            if !audit().masters.is_empty() {
                Witness::RecordForServing.note();
            }
        }
        Tagged::Remove { term, .. } => {
            Witness::Remove.note();
            let same = |(_, master, of): &(Vec<u8>, Member, _)| *master == sender && of == term;
            if !audit().entries.iter().any(same) {
                Witness::StaleRemove.note();
            }
        }
        Tagged::Names { .. } => Witness::Names.note(),
        _ => {}
    }
}

fn traffic_delivery(world: &World, to: u32, traffic: &Traffic) {
    let host = world.host(to);
    match traffic {
        Traffic::Thawed { round } => {
            Witness::Thaw.note();
            if round.0 < host.view {
                Witness::LateThaw.note();
            }
        }
        Traffic::NotMaster { .. } => Witness::RequestRefused.note(),
        _ => {}
    }
}

/// What is in a node.
pub(crate) fn state(world: &World, id: u32) {
    let host = world.host(id);
    let Some(space) = host.space else { return };
    for owed in host.node.audit(space).owed {
        if owed.contains("look-ups") {
            Witness::LookupWaits.note();
        }
        if owed.contains("claims wait") {
            Witness::ClaimWaits.note();
        }
        if owed.contains("parked") {
            Witness::RequestParked.note();
        }
    }
}

/// A view is about to be installed.
pub(crate) fn install(world: &World, id: u32, view: &View) {
    let host = world.host(id);
    let skipped = world.views.iter().any(|of| of.id.0 > host.view && of.id < view.id);
    if skipped && host.view != 0 {
        Witness::SkippedView.note();
    }
}

/// A node is about to be told that a member is safe.
pub(crate) fn safe(world: &World, id: u32, member: Member) {
    let host = world.host(id);
    let view = world.views.iter().find(|view| view.id.0 == host.view);
    match view.is_some_and(|view| view.members.contains(&member)) {
        true => Witness::SafeBeforeView.note(),
        false => Witness::SafeAfterView.note(),
    }
}
