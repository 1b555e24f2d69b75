//! Which cluster this daemon is of, before it serves: corosync is asked, where membership is its.

use std::collections::BTreeSet;
use std::path::Path;

use dlm_core::NodeId;

use super::config::Settings;
use super::config::table::Key;
use super::leftover::Remnants;
use super::state::State;
use crate::membership::corosync::{Corosync, Rules, Survey};
use crate::membership::{ByHand, External, Fencing, Membership, Single};

/// What corosync says of the cluster; `None` where membership is not corosync's. Settings that the
/// configuration leaves open follow it.
///
/// # Errors
/// A sentence about what is missing.
pub(super) fn survey(settings: &mut Settings) -> Result<Option<Survey>, String> {
    if settings.text(Key::Membership) != "corosync" {
        return Ok(None);
    }
    let survey = Survey::make()?;
    settings.adopt(Key::NodeId, &survey.own.to_string())?;
    if !survey.cluster.is_empty() {
        settings.adopt(Key::ClusterName, &survey.cluster)?;
    }
    if settings.small(Key::NodeId) != survey.own {
        return Err(format!(
            "nodeid is {} and corosync says that this node is {}; take the nodeid line out of \
             dlm.conf",
            settings.number(Key::NodeId),
            survey.own
        ));
    }
    Ok(Some(survey))
}

/// The backend of the configuration.
///
/// # Errors
/// A sentence: this cluster cannot be served safely.
pub(super) fn backend(
    settings: &Settings,
    survey: Option<&Survey>,
    state: State,
    remnants: Remnants,
) -> Result<Box<dyn Membership>, String> {
    let node = NodeId(settings.small(Key::NodeId));
    let Some(survey) = survey else {
        return Ok(match settings.text(Key::Membership) {
            "single" => Box::new(Single::new(node, state)),
            _ => Box::new(External::new(node, state)),
        });
    };
    let fencing = fencing(settings, survey);
    let powerless: BTreeSet<u32> = survey
        .nodes
        .iter()
        .map(|found| found.node)
        .filter(|other| *other != survey.own && !fencing.has_power_over(NodeId(*other)))
        .collect();
    if survey.two_node && !powerless.is_empty() {
        return Err(
            "corosync.conf says two_node: 1, with which both halves of a split go on, and dlm.conf \
             names no fence agent for the other node; add a device that can switch it off, or a third \
             node or quorum device and take two_node out"
                .to_owned(),
        );
    }
    let rules = Rules {
        quorum_lockspace: settings.flag(Key::EnableQuorumLockspace),
        quorum_fencing: settings.flag(Key::EnableQuorumFencing),
        startup_fencing: settings.flag(Key::EnableFencing)
            && settings.flag(Key::EnableStartupFencing),
    };
    let clean = Box::new(move || remnants.are_gone());
    Ok(Box::new(Corosync::new(survey, rules, state, fencing, clean)))
}

/// Who makes lost nodes harmless.
fn fencing(_settings: &Settings, _survey: &Survey) -> Box<dyn Fencing> {
    Box::new(ByHand::default())
}

/// Addresses of all nodes: those of the configuration, else corosync's.
pub(super) fn addresses(settings: &Settings, survey: Option<&Survey>) -> Vec<super::links::Place> {
    let written = &settings.sections().nodes;
    let found = survey.map_or(&[][..], |survey| &survey.nodes);
    let found = found.iter().map(|found| (found.node, found.address, None));
    let unwritten = found.filter(|(node, ..)| !written.iter().any(|(other, ..)| other == node));
    written.iter().copied().chain(unwritten).collect()
}

/// Whether there is a run directory of an earlier daemon whose clients may still act.
pub(super) fn remnants(run_dir: &Path, left: &[String]) -> Remnants {
    Remnants::new(run_dir, !left.is_empty())
}
