//! `dlm_bench`: what locking costs here, in units of what the machine itself costs.
//!
//! Absolute figures mean little on a shared machine. So every goal is divided by physical limits
//! that are measured in the same run, just before and just after it and on the same cores, and by
//! peers (redis, memcached) started in the same run. See `performance.md` for the units, the goals
//! and the traps.
//!
//! In here: measuring and reporting. Not in here: anything that a lock manager does.
//!
//! Exit codes: 0 every «must» met, 1 one missed, 2 usage, 3 cannot run here.

mod cli;
mod crew;
mod daemon;
mod dlm;
mod goals;
mod job;
mod locker;
mod measure;
mod nodes;
mod peers;
mod progress;
mod report;
mod run;
mod scratch;
mod sys;
mod units;
mod work;

use std::io;
use std::process::ExitCode;

use clap::Parser as _;

use cli::{Command, Options};
use progress::progress;

fn main() -> ExitCode {
    let outcome = match Options::parse().command {
        Command::Local(options) => run::run(&options.run()),
        Command::Cluster(options) => run::run(&options.run()),
        Command::Worker { job } => worker(&job).map(|()| run::Outcome::Met),
    };
    match outcome {
        Ok(run::Outcome::Met) => ExitCode::SUCCESS,
        Ok(run::Outcome::Missed) => ExitCode::from(1),
        Err(error) => {
            progress(format_args!("{error}"));
            ExitCode::from(3)
        }
    }
}

/// The life of a worker process.
fn worker(job: &str) -> io::Result<()> {
    let board = crew::Board::inherited()?;
    let done = match serde_json::from_str(job)? {
        job::Job::Unit(job) => units::work(&job, &board),
        job::Job::Lock(job) => work::work(&job, &board),
    };
    if done.is_err() {
        board.fail();
    }
    done
}
