//! `dlm-sim --seeds N --nodes K [--first S] [--trace] [--stop]`: runs seeds and reports the first that fails.

use std::time::Instant;

fn main() {
    let mut seeds = 100;
    let mut nodes = 3;
    let mut first = 1;
    let mut trace = false;
    let mut failures_max = 5;
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        let mut number = || args.next().and_then(|text| text.parse::<u64>().ok());
        match arg.as_str() {
            "--seeds" => seeds = number().unwrap_or(seeds),
            "--nodes" => nodes = number().unwrap_or(nodes),
            "--first" => first = number().unwrap_or(first),
            "--trace" => trace = true,
            "--stop" => failures_max = 1,
            _ => {
                eprintln!(
                    "usage: dlm-sim [--seeds N] [--nodes K] [--first SEED] [--trace] [--stop]"
                );
                std::process::exit(2);
            }
        }
    }
    let start = Instant::now();
    let mut failed = 0;
    let (mut messages, mut views, mut grants) = (0, 0, 0);
    for seed in first..first + seeds {
        let result = std::panic::catch_unwind(|| dlm_sim::run_seed(seed, nodes as usize, trace));
        match result {
            Ok(Ok(world)) => {
                messages += world.messages;
                views += world.views;
                grants += world.grants();
            }
            Ok(Err(error)) => {
                failed += 1;
                println!("seed {seed} of {nodes} nodes: {error}");
            }
            Err(_) => {
                failed += 1;
                println!("seed {seed} of {nodes} nodes: panic");
            }
        }
        if failed >= failures_max {
            break;
        }
    }
    let seconds = start.elapsed().as_secs_f64();
    println!(
        "{seeds} seeds, {failed} failed, {grants} grants, {messages} messages, {views} views, \
         {:.1} seeds/s",
        seeds as f64 / seconds
    );
    std::process::exit(i32::from(failed > 0));
}
