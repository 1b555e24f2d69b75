//! What all tests of scenarios do.

use dlm_model::model::explore;
use dlm_model::script::Scenario;

/// Most steps of one scenario: a guard against one that grows without anybody noticing.
const STEPS_MAX: usize = 1_500_000;

/// Every order of a scenario keeps all promises, none is left out, and what it is about happens.
pub(crate) fn holds(scenario: &Scenario) {
    let report = explore(scenario, 1, STEPS_MAX);
    println!(
        "{}: {} states, {} steps, {} ends, at most {} steps deep",
        report.name, report.states, report.steps, report.ends, report.depth
    );
    if let Some(fault) = report.fault {
        panic!("{fault}");
    }
    assert!(report.exhausted, "{}: more than {STEPS_MAX} steps", report.name);
    assert!(report.unseen.is_empty(), "{}: never seen: {:?}", report.name, report.unseen);
    assert!(report.ends > 0, "{}: it has no end", report.name);
}
