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

/// A test of each of a module's scenarios, and one that none is missing; or of some scenarios in which messages
/// about many names are handled late.
macro_rules! scenarios {
    (late: $($module:ident::$name:ident)*) => {
        $(
            #[test]
            fn $name() {
                common::holds(&dlm_model::scenarios::$module::$name().hearing_late());
            }
        )*
    };
    ($module:ident: $($name:ident)*) => {
        $(
            #[test]
            fn $name() {
                common::holds(&dlm_model::scenarios::$module::$name());
            }
        )*

        #[test]
        fn every_scenario_is_tested() {
            let here = [$(dlm_model::scenarios::$module::$name().name),*];
            for scenario in dlm_model::scenarios::$module::all() {
                assert!(here.contains(&scenario.name), "{} has no test", scenario.name);
            }
        }
    };
}
