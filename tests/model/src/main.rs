//! `dlm-model`: explores scenarios by name.

use std::time::Instant;

use dlm_model::model::explore;
use dlm_model::script::Scenario;

fn run(label: &str, scenario: &Scenario, limit: usize) -> bool {
    let start = Instant::now();
    let report = explore(scenario, 1, limit);
    println!(
        "{label}: {} states, {} steps, {} ends, depth {}, {:.1} s{}",
        report.states,
        report.steps,
        report.ends,
        report.depth,
        start.elapsed().as_secs_f64(),
        match (report.exhausted, report.unseen.is_empty()) {
            (false, _) => ", not exhausted".to_owned(),
            (true, true) => String::new(),
            (true, false) => format!(", not seen: {:?}", report.unseen),
        }
    );
    if let Some(fault) = &report.fault {
        println!("{fault}");
    }
    report.fault.is_none()
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let mut failed = 0;
    if args.first().is_some_and(|arg| arg == "--sweep") {
        let from: usize = args[1].parse().expect("a number");
        let step: usize = args[2].parse().expect("a number");
        let seconds: u64 = args[3].parse().expect("a number");
        let start = Instant::now();
        let mut number = from;
        while number < dlm_model::sweep::count() && start.elapsed().as_secs() < seconds && failed < 3 {
            let scenario = dlm_model::sweep::scenario(number);
            failed += u32::from(!run(&number.to_string(), &scenario, 1_000_000));
            number += step;
        }
    } else {
        for scenario in dlm_model::scenarios::all() {
            if args.is_empty() || args.iter().any(|name| scenario.name.contains(name.as_str())) {
                failed += u32::from(!run(scenario.name, &scenario, 3_000_000));
            }
        }
    }
    std::process::exit(i32::from(failed > 0));
}
