//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::goals::GROUPS;
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
    #[arg(long, value_delimiter = ',', value_name = "G2,U3,…", value_parser = parse_id)]
    pub only: Vec<String>,
    /// The daemon to measure [default: dlmd beside this program, else in PATH].
    #[arg(long, value_name = "PATH")]
    pub dlmd: Option<PathBuf>,
    /// The C library to measure [default: libdlm_lt.so.3 or libdlm_lt.so beside this program].
    #[arg(long, value_name = "PATH")]
    pub libdlm: Option<PathBuf>,
}

/// Every id that `--only` knows.
pub(crate) fn ids() -> Vec<&'static str> {
    let goals = GROUPS.iter().flat_map(|group| group.ids.iter().copied());
    Unit::ALL.iter().map(|unit| unit.name()).chain(goals).collect()
}

/// The id as it is spelled here, or what there is.
fn parse_id(text: &str) -> Result<String, String> {
    let known = ids().into_iter().find(|id| id.eq_ignore_ascii_case(text));
    known.map(str::to_owned).ok_or_else(|| format!("there are: {}", ids().join(", ")))
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
        assert_eq!(parse_id("g17"), Ok("G17".to_owned()));
        assert_eq!(parse_id("U5S"), Ok("U5s".to_owned()));
        assert!(parse_id("G3").unwrap_err().contains("G2"));
    }

    #[test]
    fn every_goal_of_one_daemon_has_an_id() {
        for id in ["G2", "G4", "G6", "G7", "G8", "G9", "G10", "G11", "G17", "G18", "U1", "U9"] {
            assert!(ids().contains(&id), "{id}");
        }
    }
}
