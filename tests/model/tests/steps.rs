//! Losses, joins and skipped views of recovery.md section 8, each in every order of its messages, views,
//! calls and losses.
//!
//! The bounds of each: three nodes, one name, one client per node with the few calls of its program, and the
//! losses named, in that order, at any moment; work over many names is done at once.

mod common;

use common::holds;
use dlm_model::scenarios::steps;

macro_rules! steps {
    ($($name:ident)*) => {
        $(
            #[test]
            fn $name() {
                holds(&steps::$name());
            }
        )*

        #[test]
        fn every_scenario_is_tested() {
            let here = [$(steps::$name().name),*];
            for scenario in steps::all() {
                assert!(here.contains(&scenario.name), "{} has no test", scenario.name);
            }
        }
    };
}

steps! {
    three_share
    master_lost
    master_lost_slowly
    join_at_each_step
    middle_view_skipped
    excluded_grants_locally
    second_safe_much_later
}
