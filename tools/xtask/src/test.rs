//! `cargo xtask test`: everything, from a fresh clone, in one command.
//!
//! It ends in `K skipped:` with a reason a line, and `N passed, M failed`. What could not run is said, never
//! counted as passed; a suite that ran nothing is a failure.

use std::time::{Duration, Instant};

use crate::job::{Ended, Job};
use crate::packages;
use crate::places::Places;
use crate::products;
use crate::suites::{Count, Run, SUITES, Suite};
use crate::tally::{self, Tally};
use crate::{Ending, job};

const BUILD_BUDGET: Duration = Duration::from_secs(20 * 60);
/// Lines of a failing suite's log that are shown.
const TAIL: usize = 60;
/// Characters of one such line.
const LINE_MAX: usize = 240;

struct Options {
    install: bool,
    only: Vec<String>,
    list: bool,
    /// What ran before, counted in the closing lines: `.ci/run` passes its gates.
    before: Tally,
}

/// Runs the command.
pub(crate) fn run(places: &Places, args: &[String]) -> Result<(), Ending> {
    let options = parse(args)?;
    let suites: Vec<&Suite> = SUITES.iter().filter(|suite| options.wants(suite.name)).collect();
    if options.list {
        for suite in &suites {
            let seconds = suite.budget.as_secs();
            println!("{:12} {seconds:>5} s  {}", suite.name, suite.about);
            println!("{:21} needs: {}", "", suite.packages.join(" "));
        }
        return Ok(());
    }
    std::fs::create_dir_all(places.logs())?;
    let started = Instant::now();
    prepare(places, &suites, options.install)?;
    let mut tally = options.before;
    if build(places, &suites, &mut tally)? {
        for suite in &suites {
            tally.add(play(places, suite)?);
        }
    }
    let took = started.elapsed().as_secs();
    println!("\n== all of it took {took} s; logs are in {}", places.logs().display());
    for failure in &tally.failures {
        println!("failed: {}", short(failure));
    }
    tally.print();
    tally.verdict()
}

impl Options {
    fn wants(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| only == name)
    }
}

fn parse(args: &[String]) -> Result<Options, Ending> {
    let mut options =
        Options { install: true, only: Vec::new(), list: false, before: Tally::default() };
    let mut args = args.iter().peekable();
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--no-install" => options.install = false,
            "--list" => options.list = true,
            "--only" => {
                while let Some(name) = args.next_if(|word| !word.starts_with('-')) {
                    options.only.push(name.clone());
                }
            }
            "--before-passed" => options.before.passed += 1,
            "--before-failed" | "--before-skipped" => {
                let Some(what) = args.next() else {
                    return Err(Ending::Usage(format!("{arg} needs a word on what it was")));
                };
                if arg == "--before-failed" {
                    options.before.fail(what.clone());
                } else {
                    options.before.skip(what.clone());
                }
            }
            other => return Err(Ending::Usage(format!("test has no option {other}"))),
        }
    }
    if let Some(stranger) = options.only.iter().find(|name| SUITES.iter().all(|s| s.name != **name))
    {
        let names: Vec<&str> = SUITES.iter().map(|suite| suite.name).collect();
        let why = format!("there is no suite {stranger}; there are: {}", names.join(" "));
        return Err(Ending::Usage(why));
    }
    Ok(options)
}

/// Names what the tests need, and gets what is missing if it may.
fn prepare(places: &Places, suites: &[&Suite], install: bool) -> Result<(), Ending> {
    let mut needed: Vec<&'static str> = suites.iter().flat_map(|s| s.packages).copied().collect();
    needed.sort_unstable();
    needed.dedup();
    println!("== the tests need these Debian packages: {}", needed.join(" "));
    let missing = packages::missing(&needed);
    if missing.is_empty() {
        println!("   all are there");
        return Ok(());
    }
    let list = missing.join(" ");
    if !install || !packages::is_root() {
        println!("   missing, so that tests that need them are skipped: {list}");
        println!("   to install them: apt-get install --no-install-recommends {list}");
        return Ok(());
    }
    println!("   installing, without starting services: {list}");
    let log = places.logs().join("apt.log");
    if let Err(error) = packages::install(&missing, &log) {
        println!("   apt-get does not run: {error}");
    }
    let still = packages::missing(&needed);
    if !still.is_empty() {
        println!("   still missing, see {}: {}", log.display(), still.join(" "));
    }
    Ok(())
}

/// Builds the product, and the tests if they are wanted; `false` when that failed.
fn build(places: &Places, suites: &[&Suite], tally: &mut Tally) -> Result<bool, Ending> {
    let mut builds = vec![("release", products::build_words())];
    if suites.iter().any(|suite| matches!(suite.run, Run::Cargo(_))) {
        builds.push(("tests", vec!["test", "--workspace", "--no-run"]));
    }
    for (name, words) in builds {
        println!("\n== build {name}: cargo {}", words.join(" "));
        let log = places.logs().join(format!("build-{name}.log"));
        let job = Job::new(places.cargo(), log, BUILD_BUDGET).args(&words).dir(&places.root);
        let ended = job.run()?;
        println!("   took {} s", ended.took.as_secs());
        if let Some(trouble) = ended.trouble() {
            println!("   {trouble}\n{}", ended.tail(TAIL));
            tally.fail(format!("build {name}: {trouble}"));
            return Ok(false);
        }
    }
    products::lay_out(places)?;
    Ok(true)
}

fn play(places: &Places, suite: &Suite) -> Result<Tally, Ending> {
    let (program, kind, words) = match suite.run {
        Run::Cargo(words) => (places.cargo(), "cargo", words),
        Run::Script(words) => ("bash".into(), "bash", words),
        // By the kernel's name for it: the file itself may have been built anew meanwhile.
        Run::Xtask(words) => ("/proc/self/exe".into(), "cargo xtask", words),
    };
    let (name, budget, command) = (suite.name, suite.budget.as_secs(), words.join(" "));
    println!("\n== {name} (at most {budget} s): {kind} {command}");
    let ended = Job::new(program, places.logs().join(format!("{}.log", suite.name)), suite.budget)
        .args(words)
        .envs(products::environment(places))
        .dir(&places.root)
        .run()?;
    let tally = judge(suite, &ended);
    if tally.failed > 0 {
        println!("{}", excerpt(suite, &ended));
    }
    println!(
        "   {}: {} passed, {} failed, {} skipped in {} s",
        suite.name,
        tally.passed,
        tally.failed,
        tally.skipped.len(),
        ended.took.as_secs()
    );
    Ok(tally)
}

fn judge(suite: &Suite, ended: &job::Ended) -> Tally {
    let mut tally = match suite.count {
        Count::Libtest => tally::libtest(&ended.output),
        Count::Closing => tally::closing(&ended.output).unwrap_or_default(),
        Count::Whole => Tally { passed: u64::from(ended.good()), ..Tally::default() },
    };
    const CANNOT_RUN: i32 = 3;
    if ended.status.is_some_and(|status| status.code() == Some(CANNOT_RUN))
        && let Some(lack) = packages::lack(suite.packages)
    {
        tally.skip(format!("suite {}: {lack}", suite.name));
        return tally;
    }
    let trouble = ended.trouble();
    let own_words = ended.status.is_some_and(|status| !status.success()) && tally.failed > 0;
    if let Some(trouble) = trouble
        && !(own_words && ended.leftovers.is_empty())
    {
        tally.fail(trouble);
    }
    if tally.passed + tally.failed == 0 && tally.skipped.is_empty() {
        tally.fail("it ran nothing".into());
    }
    for failure in &mut tally.failures {
        *failure = format!("{}: {failure}", suite.name);
    }
    tally
}

/// What a reader needs first: which tests failed and what they printed; else the end of the log.
fn excerpt(suite: &Suite, ended: &Ended) -> String {
    let bad = |line: &&str| {
        line.ends_with(" ... FAILED") || line.starts_with("not ok") || line.starts_with("error")
    };
    let mut lines: Vec<&str> = ended.output.lines().filter(bad).take(TAIL).collect();
    let printed = match suite.count {
        Count::Libtest => tally::failing_output(&ended.output, TAIL / 2),
        Count::Closing | Count::Whole => String::new(),
    };
    let tail = ended.tail(TAIL);
    lines.extend(if printed.is_empty() { tail.lines() } else { printed.lines() });
    lines.iter().map(|line| short(line)).collect::<Vec<_>>().join("\n")
}

/// A line as it fits a screen; the log has all of it.
fn short(line: &str) -> &str {
    let end = line.char_indices().nth(LINE_MAX).map_or(line.len(), |(at, _)| at);
    &line[..end]
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;
    use std::process::ExitStatus;

    fn ended(code: i32, output: &str) -> Ended {
        Ended {
            status: Some(ExitStatus::from_raw(code << 8)),
            took: Duration::ZERO,
            leftovers: Vec::new(),
            output: output.into(),
        }
    }

    fn suite(name: &str) -> &'static Suite {
        SUITES.iter().find(|suite| suite.name == name).expect("a suite of this name")
    }

    #[test]
    fn a_good_run_counts_as_it_says() {
        let tally = judge(suite("conformance"), &ended(0, "0 skipped:\n104 passed, 0 failed\n"));
        assert_eq!((tally.passed, tally.failed), (104, 0));
    }

    #[test]
    fn a_run_that_says_good_but_ends_badly_fails() {
        let tally = judge(suite("conformance"), &ended(1, "104 passed, 0 failed\n"));
        assert_eq!(tally.failed, 1);
    }

    #[test]
    fn a_run_that_counts_its_failures_is_not_counted_twice() {
        let tally = judge(suite("conformance"), &ended(1, "not ok - a\n3 passed, 1 failed\n"));
        assert_eq!((tally.passed, tally.failed), (3, 1));
        assert_eq!(tally.failures, ["conformance: a"]);
    }

    #[test]
    fn a_run_of_nothing_fails() {
        assert_eq!(judge(suite("cargo"), &ended(0, "")).failed, 1);
        assert_eq!(judge(suite("clients"), &ended(0, "hello\n")).failed, 1);
    }

    #[test]
    fn a_run_that_only_skips_neither_passes_nor_fails() {
        let tally =
            judge(suite("fuzz"), &ended(0, "1 skipped:\n    no fuzzer\n0 passed, 0 failed\n"));
        assert_eq!((tally.passed, tally.failed, tally.skipped.len()), (0, 0, 1));
    }

    #[test]
    fn what_was_left_behind_is_a_failure_of_its_own() {
        let mut ended = ended(0, "5 passed, 0 failed\n");
        ended.leftovers.push("77 dlmd".into());
        let tally = judge(suite("clients"), &ended);
        assert_eq!((tally.passed, tally.failed), (5, 1));
    }

    #[test]
    fn options_are_read() {
        let words = |text: &str| text.split_whitespace().map(str::to_string).collect::<Vec<_>>();
        let Ok(options) = parse(&words("--only cargo demo --no-install --before-passed")) else {
            panic!("good options are refused")
        };
        assert_eq!(options.only, ["cargo", "demo"]);
        assert!(!options.install);
        assert_eq!(options.before.passed, 1);
        assert!(parse(&words("--only nothing")).is_err());
        assert!(parse(&words("--fast")).is_err());
    }
}
