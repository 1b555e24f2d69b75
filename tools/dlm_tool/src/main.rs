//! `dlm_tool`: inspect and operate dlmd.
//!
//! What may go in: the command line, formats, and running a command under a lock. What may not:
//! decisions about locks; everything shown comes from the daemon.
//!
//! Two families of commands share one front ([`cli`]): those of the original, with its grammar
//! ([`getopt`]), texts and exit codes to the byte (libdlm-abi.md section 4), and ours ([`own`]).
//! `--json` and ours end with true codes: 0 good, 1 no, 2 usage, 3 the daemon does not answer.

mod cli;
mod context;
mod counters;
mod daemon;
mod dump;
mod dump_config;
mod exec;
mod feed;
#[cfg(test)]
mod fixture;
mod getopt;
mod join;
mod locate;
mod lock;
mod lock_json;
mod lockdebug;
mod lockdump;
mod ls;
mod members;
mod name;
mod no_meaning;
mod orphans;
mod own;
mod recovery;
mod set_config;
mod shutdown;
mod spaces;
mod status;
mod sys;
mod table;

fn main() -> std::process::ExitCode {
    cli::run(std::env::args_os()).into()
}
