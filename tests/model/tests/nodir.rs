//! Lockspaces whose masters go by slot (recovery.md section 5), in every order of messages, views and
//! calls.
//!
//! The bounds of each: three nodes, one name, one client per node with the few calls of its program, and the
//! losses named, in that order, at any moment; work over many names is done at once.

mod common;

use common::holds;
use dlm_model::scenarios::nodir;

macro_rules! nodir {
    ($($name:ident)*) => {
        $(
            #[test]
            fn $name() {
                holds(&nodir::$name());
            }
        )*

        #[test]
        fn every_scenario_is_tested() {
            let here = [$(nodir::$name().name),*];
            for scenario in nodir::all() {
                assert!(here.contains(&scenario.name), "{} has no test", scenario.name);
            }
        }
    };
}

nodir! {
    nodir_join_under_load
    nodir_master_lost
    nodir_value_moves
}
