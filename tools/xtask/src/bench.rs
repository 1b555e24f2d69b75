//! `cargo xtask bench`: the benchmark's quick mode. Its figures mean nothing; that it comes to its end does.

use std::time::Duration;

use crate::Ending;
use crate::job::{Ended, Job};
use crate::places::Places;
use crate::products;
use crate::scratch::Scratch;
use crate::tally::Tally;

const BUDGET: Duration = Duration::from_secs(150);

/// Runs the command.
pub(crate) fn run(places: &Places, args: &[String]) -> Result<(), Ending> {
    if let Some(arg) = args.first() {
        return Err(Ending::Usage(format!(
            "bench takes no {arg}; for figures run dlm_bench itself"
        )));
    }
    products::build(places)?;
    let dir = Scratch::new("bench")?;
    let log = places.logs().join("dlm_bench.log");
    let ended = Job::new(places.release().join("dlm_bench"), log, BUDGET)
        .args(["local", "--quick"])
        .envs([("TMPDIR", dir.path().into())])
        .run()?;
    print!("{}", ended.output);
    let mut tally = Tally::default();
    let ran = came_to_its_end(&ended);
    tally.count("dlm_bench local --quick", ran);
    if !ran {
        let trouble = ended.trouble().unwrap_or_else(|| "a figure is missing".into());
        println!("not ok - dlm_bench local --quick: {trouble}");
    }
    tally.print();
    tally.verdict()
}

/// A bar that was missed says that something else ran here, or that the product is slow; either is for
/// a full run to tell. A figure that is missing, or a run that was cut off, is a failure.
fn came_to_its_end(ended: &Ended) -> bool {
    let code = ended.status.and_then(|status| status.code());
    let judged = ended.output.lines().any(|line| line.ends_with("figures miss their «must»"));
    let complete = !ended.output.contains("could not be measured");
    let ended_well = code == Some(0) || (code == Some(1) && judged);
    complete && ended_well && ended.leftovers.is_empty()
}
