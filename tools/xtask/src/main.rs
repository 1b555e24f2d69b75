//! The developer's front door: `cargo xtask COMMAND` and `cargo demo`.
//!
//! What it is for: building what the tests need, running every test of the project within a time budget, and
//! putting the product into place. What may go in: code about files, programs and processes of the
//! build machine. What may not: anything of the product itself; an xtask command talks to dlmd only the way a
//! user's program does, so it needs no crate of the workspace and no crate at all.
//!
//! Exit codes: 0 good, 1 failed, 2 usage, 3 cannot run here.

mod bench;
mod clients;
mod cluster;
mod conformance;
mod corosync;
mod daemon;
mod demo;
mod differences;
mod fuzz;
mod install;
mod job;
mod leftover;
mod nodes;
mod packages;
mod places;
mod products;
mod scratch;
mod sim;
mod suites;
mod tally;
mod test;
mod wires;
mod workers;

use std::process::ExitCode;

use places::Places;

const USAGE: &str = "\
usage: cargo xtask COMMAND [options]

  test [--no-install] [--only SUITE]... [--list]
                      every test of the project; installs missing Debian packages when run as root
  conformance [-q MS] [--jobs N] [--membership external|corosync [--long]] [NAME]...
                      the scenarios against the kernel's recorded answers
  clients [--times N] [NAME]...
                      unmodified Debian programs against our libraries (needs root)
  cluster [--long] [--seed N] [--times N] [NAME]...
                      daemons on hosts in network namespaces, and what happens to hosts (needs root)
  corosync [--long] [NAME]...
                      the same over a real corosync, with what happens to it (needs root)
  sim [--seeds N] [--nodes K] [--first S] [--scarce] [--stop] [--trace]
                      whole clusters of the engine under seeds, at full speed
  fuzz [SECONDS]      every fuzz target for a few seconds
  bench               the benchmark's quick mode: does it still run
  install [--destdir DIR] [--prefix DIR]
                      libraries, headers, pkg-config files, programs, manual pages, completions
  demo                three nodes, C programs, a node killed and back: also `cargo demo`

exit codes: 0 good, 1 failed, 2 usage, 3 cannot run here
";

/// How a command ended when it did not end well.
pub(crate) enum Ending {
    /// It ran and something was wrong; everything has been said.
    Failed,
    /// The command line makes no sense.
    Usage(String),
    /// Something this machine lacks.
    CannotRun(String),
}

impl From<std::io::Error> for Ending {
    fn from(error: std::io::Error) -> Self {
        Ending::CannotRun(error.to_string())
    }
}

/// An error in words.
fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match dispatch(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(Ending::Failed) => ExitCode::from(1),
        Err(Ending::Usage(why)) => {
            eprintln!("{why}\n\n{USAGE}");
            ExitCode::from(2)
        }
        Err(Ending::CannotRun(why)) => {
            eprintln!("{why}");
            ExitCode::from(3)
        }
    }
}

fn dispatch(args: &[String]) -> Result<(), Ending> {
    let places = Places::find();
    let (command, rest) = match args.split_first() {
        Some((command, rest)) => (command.as_str(), rest),
        None => return Err(Ending::Usage("which command?".into())),
    };
    match command {
        "test" => test::run(&places, rest),
        "conformance" => conformance::run(&places, rest),
        "cluster" => cluster::run(&places, rest),
        "corosync" => corosync::run(&places, rest),
        "clients" => clients::run(&places, rest),
        "sim" => sim::run(&places, rest),
        "fuzz" => fuzz::run(&places, rest),
        "bench" => bench::run(&places, rest),
        "install" => install::run(&places, rest),
        "demo" => demo::run(&places, rest),
        "help" | "--help" | "-h" => {
            print!("{USAGE}");
            Ok(())
        }
        other => Err(Ending::Usage(format!("there is no command {other:?}"))),
    }
}
