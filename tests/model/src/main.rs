//! `dlm-model`: explores scenarios by name.

use std::time::Duration;

fn main() {
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    let mut failed = false;
    for scenario in dlm_model::scenarios::all() {
        if !wanted.is_empty() && !wanted.iter().any(|name| name == scenario.name) {
            continue;
        }
        let start = std::time::Instant::now();
        let report = dlm_model::model::explore(&scenario, 1, Duration::from_secs(600));
        println!(
            "{}: {} states, {} steps, {} ends, depth {}, {:.1} s",
            report.name,
            report.states,
            report.steps,
            report.ends,
            report.depth,
            start.elapsed().as_secs_f64()
        );
        failed |= report.fault.is_some();
        if let Some(fault) = report.fault {
            println!("{fault}");
        }
    }
    std::process::exit(i32::from(failed));
}
