//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::goals::{CLUSTER_GROUPS, CLUSTER_UNITS, GROUPS, Group};
use crate::run::Run;
use crate::units::Unit;

/// Benchmarks of the lock manager, in units of the machine's own limits.
///
/// Exit codes: 0 every «must» met, 1 one missed, 2 usage, 3 cannot run here.
#[derive(Parser, Debug)]
#[command(name = "dlm_bench", version)]
pub(crate) struct Options {
    /// What to measure.
    #[command(subcommand)]
    pub command: Command,
}

/// What to measure.
#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    /// One daemon on this machine: the units U1 to U9 and the goals that one daemon can show.
    Local(Local),
    /// Several daemons on this machine: what remote locks, hand-overs, recovery, joins and leaves cost.
    Cluster(Cluster),
    /// A process of a running measurement; not for people.
    #[command(hide = true)]
    Worker {
        /// The job.
        job: String,
    },
}

/// Options of `local`.
#[derive(Args, Debug)]
pub(crate) struct Local {
    /// A tenth of the time, the locks and the victim's memory: for a look, not for the record.
    #[arg(long)]
    pub quick: bool,
    /// Print one JSON object per figure, each on a line.
    #[arg(long)]
    pub json: bool,
    /// Measure only these units and goals, with the units that the goals name.
    #[arg(long, value_delimiter = ',', value_name = "G2,U3,…", value_parser = parse_local)]
    pub only: Vec<String>,
    /// The daemon to measure [default: dlmd beside this program, else in PATH].
    #[arg(long, value_name = "PATH")]
    pub dlmd: Option<PathBuf>,
    /// The C library to measure [default: libdlm_lt.so.3 or libdlm_lt.so beside this program].
    #[arg(long, value_name = "PATH")]
    pub libdlm: Option<PathBuf>,
}

/// Options of `cluster`.
#[derive(Args, Debug)]
pub(crate) struct Cluster {
    /// Hundreds of locks instead of hundreds of thousands, some 20 seconds: for a look, not for the
    /// record. Only counts of messages are judged, no times.
    #[arg(long)]
    pub quick: bool,
    /// Print one JSON object per figure, each on a line.
    #[arg(long)]
    pub json: bool,
    /// Sizes of the tables of locks beside which nodes die, come and leave
    /// [default: 10000,100000,1000000; a hundredth of it with --quick].
    #[arg(long, value_delimiter = ',', value_name = "N,…")]
    pub locks: Vec<usize>,
    /// Measure only these goals, with the units that they name, or only these units.
    #[arg(long, value_delimiter = ',', value_name = "G12,…", value_parser = parse_cluster)]
    pub only: Vec<String>,
    /// The daemon to measure [default: dlmd beside this program, else in PATH].
    #[arg(long, value_name = "PATH")]
    pub dlmd: Option<PathBuf>,
}

impl Local {
    /// The run it asks for.
    pub(crate) fn run(self) -> Run {
        let Self { quick, json, only, dlmd, libdlm } = self;
        let (sizes, groups, units) = (Vec::new(), &GROUPS, &Unit::ALL);
        Run { quick, json, sizes, only, dlmd, libdlm, groups, units }
    }
}

impl Cluster {
    /// The run it asks for.
    pub(crate) fn run(self) -> Run {
        let Self { quick, json, locks, only, dlmd } = self;
        let sizes = match (locks.as_slice(), quick) {
            ([], true) => vec![100, 1_000, 10_000],
            ([], false) => vec![10_000, 100_000, 1_000_000],
            (told, _) => told.to_vec(),
        };
        let (groups, units) = (&CLUSTER_GROUPS, &CLUSTER_UNITS);
        Run { quick, json, sizes, only, dlmd, libdlm: None, groups, units }
    }
}

/// Every id that `--only` knows.
fn ids(groups: &[Group], units: &[Unit]) -> Vec<&'static str> {
    let goals = groups.iter().flat_map(|group| group.ids.iter().copied());
    units.iter().map(|unit| unit.name()).chain(goals).collect()
}

/// The id as it is spelled here, or what there is.
fn parse_id(text: &str, ids: &[&'static str]) -> Result<String, String> {
    let known = ids.iter().find(|id| id.eq_ignore_ascii_case(text));
    known.map(|id| (*id).to_owned()).ok_or_else(|| format!("there are: {}", ids.join(", ")))
}

fn parse_local(text: &str) -> Result<String, String> {
    parse_id(text, &ids(&GROUPS, &Unit::ALL))
}

fn parse_cluster(text: &str) -> Result<String, String> {
    parse_id(text, &ids(&CLUSTER_GROUPS, &CLUSTER_UNITS))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn the_command_line_is_sound() {
        Options::command().debug_assert();
    }

    #[test]
    fn ids_are_found_in_any_case_and_others_refused() {
        assert_eq!(parse_local("g17"), Ok("G17".to_owned()));
        assert_eq!(parse_local("U5S"), Ok("U5s".to_owned()));
        assert!(parse_local("G3").unwrap_err().contains("G2"));
        assert_eq!(parse_cluster("g14"), Ok("G14".to_owned()));
        assert!(parse_cluster("G2").unwrap_err().contains("G12"));
    }

    #[test]
    fn every_goal_of_one_daemon_has_an_id() {
        for id in ["G2", "G4", "G6", "G7", "G8", "G9", "G10", "G11", "G17", "G18", "U1", "U9"] {
            assert!(ids(&GROUPS, &Unit::ALL).contains(&id), "{id}");
        }
    }

    #[test]
    fn every_goal_of_a_cluster_has_an_id() {
        for id in ["G7", "G12", "G13", "G14", "G16", "G17", "messages", "recovery", "U2", "U4"] {
            assert!(ids(&CLUSTER_GROUPS, &CLUSTER_UNITS).contains(&id), "{id}");
        }
    }
}
