//! Which cluster this daemon is of, before it serves: corosync is asked, where membership is its.

use std::path::Path;

use dlm_core::NodeId;

use super::config::Settings;
use super::config::table::Key;
use super::lease;
use super::leftover::Remnants;
use super::state::State;
use crate::fence::{fences, probe};
use crate::membership::corosync::{Corosync, Rules, Survey};
use crate::membership::{External, Fencing, Membership, Single};

/// How long a device may take to answer whether it works, nanoseconds.
const PROBE_LIMIT: u64 = 60_000_000_000;

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
    mut remnants: Remnants,
) -> Result<Box<dyn Membership>, String> {
    let node = NodeId(settings.small(Key::NodeId));
    let Some(survey) = survey else {
        return Ok(match settings.text(Key::Membership) {
            "single" => Box::new(Single::new(node, state)),
            _ => Box::new(External::new(node, state)),
        });
    };
    let fencing = fencing(settings, survey)?;
    let rules = Rules::of(settings);
    let terms = lease::terms(settings)?;
    if let Some(terms) = &terms {
        survey.check_lease(terms.lease, terms.tick)?;
    }
    let safe_after = terms.map_or(0, |terms| terms.safe_after());
    let clean = Box::new(move || remnants.are_gone());
    Ok(Box::new(Corosync::new(survey, rules, state, safe_after, fencing, clean)))
}

/// Who makes lost nodes harmless. This node is unfenced first, where the configuration asks for it.
///
/// # Errors
/// A sentence: the node may not take part, or the cluster could split into two that both go on.
fn fencing(settings: &Settings, survey: &Survey) -> Result<Box<dyn Fencing>, String> {
    let config = fences::Config::of(settings);
    let (plans, path) = (&config.plans, &config.path);
    if survey.two_node {
        let others = survey.nodes.iter().map(|found| found.node);
        for other in others.filter(|node| *node != survey.own) {
            let power = match config.rules.fencing {
                true => probe::power_over(plans, other, path, config.limit.min(PROBE_LIMIT)),
                false => Err("no fence agent is configured and enabled".to_owned()),
            };
            power.map_err(|trouble| {
                format!(
                    "corosync.conf says two_node: 1, with which both halves of a split go on, so each \
                     node must be able to switch the other off, and {trouble}; make that work, or \
                     add a third node or a quorum device and take two_node out"
                )
            })?;
        }
    }
    let leased = settings.nanos(Key::Lease).is_some();
    if !config.rules.fencing && !leased {
        tracing::warn!(
            "no fence agent is run: what a lost node held is not given away before somebody makes \
             sure that it is off and says dlm_tool fence_ack NODE"
        );
    } else if config.rules.fencing {
        probe::unfence(plans, survey.own, path, config.limit)?;
        for (_, trouble) in config.missing_agents() {
            tracing::error!("{trouble}: it cannot fence anybody");
        }
    }
    Ok(Box::new(fences::Fences::new(NodeId(survey.own), config)))
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
