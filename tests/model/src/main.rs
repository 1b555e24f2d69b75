//! `dlm-model [NAME…] [--steps N] [--threads N] [--sweep N] [--late] [--list]`: explores scenarios whose
//! name contains one of these words, or every Nth of the sweep; without either, all scenarios. With `--late`,
//! messages about many names are handled at any later moment.

use std::process::ExitCode;
use std::time::Instant;

use dlm_model::model::explore;
use dlm_model::script::Scenario;
use dlm_model::{scenarios, sweep};

const USAGE: &str =
    "usage: dlm-model [NAME...] [--steps N] [--threads N] [--sweep N] [--late] [--list]";

/// What was asked for.
struct Wanted {
    names: Vec<String>,
    /// Most steps of a scenario.
    steps: usize,
    threads: usize,
    /// Every so manieth of the sweep.
    sweep: Option<usize>,
    late: bool,
    list: bool,
}

fn wanted() -> Option<Wanted> {
    let mut wanted = Wanted {
        names: Vec::new(),
        steps: 50_000_000,
        threads: 2,
        sweep: None,
        late: false,
        list: false,
    };
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        let mut number = || args.next()?.parse::<usize>().ok().filter(|number| *number > 0);
        match arg.as_str() {
            "--steps" => wanted.steps = number()?,
            "--threads" => wanted.threads = number()?,
            "--sweep" => wanted.sweep = Some(number()?),
            "--late" => wanted.late = true,
            "--list" => wanted.list = true,
            name if name.starts_with('-') => return None,
            name => wanted.names.push(name.to_owned()),
        }
    }
    Some(wanted)
}

/// Explores a scenario, prints what there is to say, and tells whether all promises were kept.
fn run(label: &str, mut scenario: Scenario, wanted: &Wanted) -> bool {
    scenario.late_hearing |= wanted.late;
    let start = Instant::now();
    let report = explore(&scenario, wanted.threads, wanted.steps);
    let seconds = start.elapsed().as_secs_f64();
    let rest = match (report.exhausted, report.unseen.is_empty()) {
        (false, _) => ", not exhausted".to_owned(),
        (true, true) => String::new(),
        (true, false) => format!(", never seen: {:?}", report.unseen),
    };
    println!(
        "{label}: {} states, {} steps, {} ends, at most {} steps deep, {seconds:.1} s{rest}",
        report.states, report.steps, report.ends, report.depth
    );
    if let Some(fault) = &report.fault {
        println!("{fault}");
    }
    report.fault.is_none()
}

fn main() -> ExitCode {
    let Some(wanted) = wanted() else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    let of = |name: &str| wanted.names.iter().any(|word| name.contains(word.as_str()));
    let all = scenarios::all();
    let chosen = all.iter().filter(|s| wanted.names.is_empty() || of(s.name));
    let mut good = true;
    if wanted.list {
        chosen.for_each(|scenario| println!("{}", scenario.name));
    } else if let Some(every) = wanted.sweep {
        for number in (0..sweep::count()).step_by(every) {
            good &= run(&format!("sweep {number}"), sweep::scenario(number), &wanted);
        }
    } else {
        for scenario in chosen {
            good &= run(scenario.name, scenario.clone(), &wanted);
        }
    }
    if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
