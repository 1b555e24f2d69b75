//! `cargo xtask fuzz`: every fuzz target for a few seconds, to see that none is broken by now.
//!
//! No sanitizer: the decoders are safe Rust, a panic or a runaway allocation is what is looked for; so the stable
//! compiler is enough. Long runs are by hand: `cargo fuzz run --fuzz-dir tests/fuzz -s none TARGET`.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::Ending;
use crate::job::Job;
use crate::places::Places;
use crate::tally::Tally;

const SECONDS: u32 = 5;
/// What building one target may take beyond its run.
const BUILD_BUDGET: Duration = Duration::from_secs(400);

/// Runs the command.
pub(crate) fn run(places: &Places, args: &[String]) -> Result<(), Ending> {
    let seconds = match args {
        [] => SECONDS,
        [word] => word
            .parse()
            .map_err(|_| Ending::Usage(format!("fuzz takes a number of seconds, not {word}")))?,
        _ => return Err(Ending::Usage("fuzz takes a number of seconds".into())),
    };
    let folder = places.root.join("tests/fuzz");
    let targets = targets(&folder)?;
    let mut tally = Tally::default();
    if let Some(reason) = obstacle(places) {
        for target in targets {
            tally.skip(format!("fuzz target {target}: {reason}"));
        }
        tally.print();
        return Ok(());
    }
    for target in targets {
        std::fs::create_dir_all(folder.join("corpus").join(&target))?;
        let ended = Job::new(places.cargo(), places.logs().join(format!("fuzz-{target}.log")), {
            BUILD_BUDGET + Duration::from_secs(seconds.into())
        })
        .args(["fuzz", "run", "--fuzz-dir", "tests/fuzz", "--sanitizer", "none", &target])
        // New inputs go to the first folder; the second is kept with the sources.
        .args([&format!("tests/fuzz/corpus/{target}"), &format!("tests/fuzz/seeds/{target}"), "--"])
        .args([&format!("-max_total_time={seconds}"), "-rss_limit_mb=2048", "-timeout=10"])
        .dir(&places.root)
        .run()?;
        tally.count(&format!("fuzz target {target}"), ended.good());
        match ended.trouble() {
            None => println!("ok - {target} ({})", executions(&ended.output)),
            Some(trouble) => {
                println!("not ok - fuzz target {target}: {trouble}\n{}", ended.tail(30));
            }
        }
    }
    tally.print();
    tally.verdict()
}

/// The targets' names: each is one file.
fn targets(folder: &Path) -> Result<Vec<String>, Ending> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder.join("fuzz_targets"))? {
        let file = entry?.file_name().to_string_lossy().into_owned();
        names.extend(file.strip_suffix(".rs").map(str::to_string));
    }
    names.sort();
    if names.is_empty() {
        return Err(Ending::CannotRun("tests/fuzz/fuzz_targets holds no target".into()));
    }
    Ok(names)
}

fn obstacle(places: &Places) -> Option<String> {
    let mut command = Command::new(places.cargo());
    command.args(["fuzz", "--version"]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    if command.status().is_ok_and(|status| status.success()) {
        return None;
    }
    Some("cargo-fuzz is not installed (cargo install cargo-fuzz --locked)".into())
}

/// The fuzzer's closing word on how many inputs it tried.
fn executions(output: &str) -> &str {
    output.lines().rev().find(|line| line.starts_with("Done ")).unwrap_or("done")
}
