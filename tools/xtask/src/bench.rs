//! `cargo xtask bench`: the benchmark's quick mode. Its figures mean nothing; that it comes to its end does.

use std::time::Duration;

use crate::Ending;
use crate::job::Job;
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
    // A bar that was missed says that something else ran here, or that the product is slow; either
    // is for a full run to tell. A figure that is missing is a failure.
    let code = ended.status.and_then(|status| status.code());
    let complete = !ended.output.contains("could not be measured");
    let good = matches!(code, Some(0 | 1)) && complete && ended.leftovers.is_empty();
    tally.count("dlm_bench local --quick", good);
    if !good {
        let trouble = ended.trouble().unwrap_or_else(|| "a figure is missing".into());
        println!("not ok - dlm_bench local --quick: {trouble}");
    }
    tally.print();
    tally.verdict()
}
