//! `cargo xtask conformance`: the scenarios, through the C library, against the kernel's answers.
//!
//! Each scenario has daemons of its own, so that several run at once and none sees what another left behind.

mod many;

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::Duration;

use crate::Ending;
use crate::daemon::Daemon;
use crate::differences::{self, Difference};
use crate::job::Job;
use crate::packages;
use crate::places::Places;
use crate::products;
use crate::scratch::Scratch;
use crate::tally::Tally;

/// Silence, in ms, after which a step of a scenario is over; tried first.
const QUIET_FIRST_MS: u32 = 60;
/// The silence that the kernel was asked with; decides.
const QUIET_LAST_MS: u32 = 200;
/// Hang guard of one scenario.
const BUDGET: Duration = Duration::from_secs(120);

/// What the command line asks for.
struct Options {
    quiet_ms: u32,
    jobs: usize,
    names: Vec<String>,
    /// Over corosync, one scenario after the other.
    corosync: bool,
    /// There also those of one node, which take minutes.
    long: bool,
}

/// What one run needs.
struct Run<'a> {
    places: &'a Places,
    runner: PathBuf,
    answers: PathBuf,
    differences: Vec<Difference>,
    options: Options,
    engine: Option<many::Engine>,
}

/// Runs the command.
pub(crate) fn run(places: &Places, args: &[String]) -> Result<(), Ending> {
    let mut options = parse(args)?;
    if options.corosync {
        if !packages::is_root() {
            return Err(Ending::CannotRun("corosync needs root, for network namespaces".into()));
        }
        if let Some(lack) = packages::lack(&["corosync", "iproute2", "nftables"]) {
            return Err(Ending::CannotRun(lack));
        }
        // All daemons are of one cluster, and agreeing takes a moment longer than a feeder's word.
        options.jobs = 1;
        options.quiet_ms = options.quiet_ms.max(QUIET_LAST_MS);
    }
    products::build(places)?;
    let folder = places.root.join("tests/conformance");
    let text = std::fs::read_to_string(folder.join("differences.txt"))?;
    let differences = differences::parse(&text)
        .map_err(|why| Ending::CannotRun(format!("tests/conformance/differences.txt: {why}")))?;
    let mut scenarios = scenarios(&folder, &options.names)?;
    if options.corosync && options.names.is_empty() && !options.long {
        scenarios.retain(|name| nodes_of(name) > 1);
    }
    let answers = places.work().join("conformance");
    std::fs::create_dir_all(&answers)?;
    let runner = answers.join("scn");
    let sources = ["scn.c", "scn_worker.c", "scn_text.c"].map(|name| folder.join(name));
    products::cc(places, &sources, "dlm", &runner)?;

    let engine = match options.corosync {
        true => Some(many::Engine::start(places).map_err(Ending::CannotRun)?),
        false => None,
    };
    let run = Run { places, runner, answers, differences, options, engine };
    let queue = Mutex::new(VecDeque::from(scenarios.clone()));
    let tally = Mutex::new(Tally::default());
    std::thread::scope(|scope| {
        for _ in 0..run.options.jobs {
            scope.spawn(|| {
                while let Some(scenario) = next(&queue) {
                    let verdict = run.scenario(&scenario);
                    report(&scenario, verdict, &tally);
                }
            });
        }
    });
    let mut tally = tally.into_inner().unwrap_or_else(|poison| poison.into_inner());
    strangers(&run.differences, &folder, &mut tally);
    tally.print();
    tally.verdict()
}

fn parse(args: &[String]) -> Result<Options, Ending> {
    let cores = std::thread::available_parallelism().map_or(2, usize::from);
    let mut options = Options {
        quiet_ms: QUIET_FIRST_MS,
        jobs: (cores * 3).min(12),
        names: Vec::new(),
        corosync: false,
        long: false,
    };
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        let mut number = || {
            let word = args.next().and_then(|word| word.parse::<u32>().ok()).filter(|n| *n > 0);
            word.ok_or_else(|| Ending::Usage(format!("{arg} needs a number above 0")))
        };
        match arg.as_str() {
            "-q" => options.quiet_ms = number()?,
            "--long" => options.long = true,
            "--membership" => {
                options.corosync = match args.next().map(String::as_str) {
                    Some("corosync") => true,
                    Some("external") => false,
                    _ => return Err(Ending::Usage("--membership is corosync or external".into())),
                };
            }
            "--jobs" => options.jobs = number()? as usize,
            word if word.starts_with('-') => {
                return Err(Ending::Usage(format!("conformance has no option {word}")));
            }
            name => options.names.push(name.to_string()),
        }
    }
    Ok(options)
}

/// The scenarios, or those named.
fn scenarios(folder: &Path, names: &[String]) -> Result<Vec<String>, Ending> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder.join("scenarios"))? {
        let file = entry?.file_name().to_string_lossy().into_owned();
        if let Some(name) = file.strip_suffix(".txt")
            && nodes_of(name) > 0
            && (names.is_empty() || names.iter().any(|wanted| wanted == name))
        {
            found.push(name.to_string());
        }
    }
    if let Some(stranger) = names.iter().find(|name| !found.contains(name)) {
        return Err(Ending::Usage(format!("there is no scenario {stranger}")));
    }
    if found.is_empty() {
        return Err(Ending::CannotRun("tests/conformance/scenarios holds no scenario".into()));
    }
    found.sort();
    Ok(found)
}

/// How many nodes a scenario needs, by its name; 0 if that does not say.
fn nodes_of(name: &str) -> u32 {
    name.split_once('-').and_then(|(nodes, _)| nodes.parse().ok()).unwrap_or(0)
}

fn next(queue: &Mutex<VecDeque<String>>) -> Option<String> {
    queue.lock().unwrap_or_else(|poison| poison.into_inner()).pop_front()
}

fn report(scenario: &str, verdict: Result<(), String>, tally: &Mutex<Tally>) {
    let mut tally = tally.lock().unwrap_or_else(|poison| poison.into_inner());
    tally.count(scenario, verdict.is_ok());
    match verdict {
        Ok(()) => println!("ok - {scenario}"),
        Err(why) => {
            println!("not ok - {scenario}");
            for line in why.lines() {
                println!("#  {line}");
            }
        }
    }
}

/// An entry for a scenario that does not exist excuses nothing and is a mistake.
fn strangers(entries: &[Difference], folder: &Path, tally: &mut Tally) {
    for entry in entries {
        if !folder.join("scenarios").join(format!("{}.txt", entry.scenario)).exists() {
            println!("not ok - differences.txt names {}, which does not exist", entry.scenario);
            tally.fail(entry.scenario.clone());
        }
    }
}

impl Run<'_> {
    /// Plays one scenario; the error says what was wrong, with the difference.
    fn scenario(&self, name: &str) -> Result<(), String> {
        let kernel = self.places.root.join(format!("tests/conformance/kernel/{name}.out"));
        let golden = read(&kernel)?;
        let expected = differences::apply(&self.differences, name, &strip(&golden))?;
        let second = read(&kernel.with_extension("out.alt")).map(|text| strip(&text));
        let mut ours = self.play(name, self.options.quiet_ms)?;
        let many = nodes_of(name) > 1;
        let equal =
            |one: &str, other: &str| one == other || many && many::same_per_lock(one, other);
        let right = |ours: &String| {
            equal(ours, &expected) || second.as_ref().is_ok_and(|second| equal(ours, second))
        };
        if !right(&ours) && self.options.quiet_ms < QUIET_LAST_MS {
            ours = self.play(name, QUIET_LAST_MS)?;
        }
        if right(&ours) {
            return Ok(());
        }
        self.show(name, &expected)
    }

    /// Our answer, stripped; also kept in a file.
    fn play(&self, name: &str, quiet_ms: u32) -> Result<String, String> {
        if nodes_of(name) > 1 || self.engine.is_some() {
            return self.play_many(name, quiet_ms);
        }
        let dir = Scratch::new("scn").map_err(crate::text)?;
        let mut daemon = Daemon::start(self.places, dir.path(), &[]).map_err(crate::text)?;
        let scenario = self.places.root.join(format!("tests/conformance/scenarios/{name}.txt"));
        let job = Job::new(&self.runner, self.answers.join(format!("{name}.raw")), BUDGET)
            .quiet()
            .args(["-q", &quiet_ms.to_string()])
            .arg(&scenario)
            .dir(&self.answers)
            .envs([
                ("DLM_SOCKET", daemon.socket().into()),
                ("LD_LIBRARY_PATH", self.places.libraries().into()),
            ]);
        let ended = job.run().map_err(crate::text)?;
        if let Some(trouble) = ended.trouble() {
            return Err(format!("the runner {trouble}:\n{}", ended.tail(12)));
        }
        if let Some(status) = daemon.ended().map_err(crate::text)? {
            return Err(format!("dlmd ended with {status}:\n{}", daemon.log()));
        }
        self.keep(name, &ended.output)
    }

    /// As [`Run::play`], on several nodes.
    fn play_many(&self, name: &str, quiet_ms: u32) -> Result<String, String> {
        let (ended, logs) = many::play(&many::Scenario {
            places: self.places,
            runner: &self.runner,
            file: self.places.root.join(format!("tests/conformance/scenarios/{name}.txt")),
            nodes: nodes_of(name),
            quiet_ms,
            log: self.answers.join(format!("{name}.raw")),
            budget: BUDGET,
            engine: self.engine.as_ref(),
        })?;
        if let Some(trouble) = ended.trouble() {
            return Err(format!("the runner {trouble}:\n{}\n{logs}", ended.tail(12)));
        }
        self.keep(name, &ended.output)
    }

    fn keep(&self, name: &str, output: &str) -> Result<String, String> {
        let ours = strip(output);
        std::fs::write(self.answers.join(format!("{name}.out")), &ours).map_err(crate::text)?;
        Ok(ours)
    }

    /// The error text: expected against ours.
    fn show(&self, name: &str, expected: &str) -> Result<(), String> {
        let wanted = self.answers.join(format!("{name}.expected"));
        let ours = self.answers.join(format!("{name}.out"));
        std::fs::write(&wanted, expected).map_err(crate::text)?;
        let output = Command::new("diff")
            .args(["-u", "--label", "expected", "--label", "ours"])
            .args([&wanted, &ours])
            .stdin(Stdio::null())
            .output();
        match output {
            Ok(output) => Err(String::from_utf8_lossy(&output.stdout).into_owned()),
            Err(error) => Err(format!("differs, and diff does not run: {error}")),
        }
    }
}

fn read(path: &Path) -> Result<String, String> {
    let bytes = std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Without the two things that only the kernel's result record shows.
fn strip(text: &str) -> String {
    let mut result = String::new();
    for line in text.lines() {
        let line = match line.rfind(" mode=") {
            Some(at) if line[at + 6..].chars().all(|c| c.is_ascii_uppercase()) => &line[..at],
            _ => line,
        };
        result.push_str(&line.replacen(" lvbcopied", "", 1));
        result.push('\n');
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_kernel_alone_shows_is_stripped() {
        let text =
            "  bast a st=0 fl=- mode=EX\n  cast b st=0 fl=- lvb=\"x\" lvbcopied\n> x mode=1\n";
        assert_eq!(strip(text), "  bast a st=0 fl=-\n  cast b st=0 fl=- lvb=\"x\"\n> x mode=1\n");
    }

    #[test]
    fn the_kernel_answered_every_scenario() {
        let folder = Places::find().root.join("tests/conformance");
        let Ok(names) = scenarios(&folder, &[]) else { panic!("no scenarios") };
        assert!(names.len() > 100);
        for name in names {
            assert!(folder.join(format!("kernel/{name}.out")).exists(), "{name}");
        }
    }
}
