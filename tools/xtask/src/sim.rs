//! `cargo xtask sim`: whole clusters of the engine under seeds (tests/sim), at full speed.
//!
//! The program itself parses its words, shows the progress and says how a failing seed is replayed.

use std::process::Command;

use crate::Ending;
use crate::places::Places;

/// Runs the command.
pub(crate) fn run(places: &Places, args: &[String]) -> Result<(), Ending> {
    let status = Command::new(places.cargo())
        .args(["run", "--quiet", "--release", "--package", "dlm-sim", "--"])
        .args(args)
        .current_dir(&places.root)
        .status()?;
    match status.code() {
        Some(0) => Ok(()),
        Some(2) => {
            let words = "sim takes --seeds N, --nodes K, --first S, --scarce, --stop, --trace";
            Err(Ending::Usage(words.into()))
        }
        _ => Err(Ending::Failed),
    }
}
