//! `dlm-sim [--seeds N] [--nodes K] [--first SEED] [--threads T] [--scarce] [--stop] [--trace]`: runs seeds and
//! says which fail, how fast it went, and how much time passed in the worlds. With `--scarce` the numbers of
//! views end again and again. `cargo xtask sim` is its front door.

use std::io::{IsTerminal, Write};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use dlm_sim::{Sum, run_seed_caught};

const USAGE: &str = "usage: dlm-sim [--seeds N] [--nodes K] [--first SEED] [--threads T] \
                     [--scarce] [--stop] [--trace]";
/// Failures after which a run ends.
const FAILURES_MAX: u64 = 5;
/// Width of the progress bar.
const BAR: u64 = 30;

struct Args {
    seeds: u64,
    nodes: usize,
    first: u64,
    threads: u64,
    scarce: bool,
    trace: bool,
    failures_max: u64,
}

fn main() {
    let args = parse().unwrap_or_else(|| {
        eprintln!("{USAGE}");
        std::process::exit(2);
    });
    let start = Instant::now();
    let (next, failed) = (AtomicU64::new(0), AtomicU64::new(0));
    let sum = Mutex::new(Sum::default());
    // What a world panics with is in the report of its seed.
    std::panic::set_hook(Box::new(|_| {}));
    std::thread::scope(|scope| {
        for _ in 0..args.threads {
            scope.spawn(|| work(&args, &next, &failed, &sum));
        }
        scope.spawn(|| show(&args, &next, &failed, start));
    });
    let failed = failed.into_inner();
    let sum = sum.into_inner().unwrap_or_default();
    let seconds = start.elapsed().as_secs_f64();
    println!(
        "{} seeds of {} nodes, {failed} failed; {} grants, {} messages, {} views; {:.1} seeds/s, {:.2} \
         simulated hours/s",
        sum.seeds,
        args.nodes,
        sum.grants,
        sum.messages,
        sum.views,
        sum.seeds as f64 / seconds,
        sum.lasted as f64 / 3.6e9 / seconds,
    );
    std::process::exit(i32::from(failed > 0));
}

fn parse() -> Option<Args> {
    let threads = std::thread::available_parallelism().map_or(1, |count| count.get() as u64);
    let failures_max = FAILURES_MAX;
    let (scarce, trace) = (false, false);
    let mut args = Args { seeds: 100, nodes: 3, first: 1, threads, scarce, trace, failures_max };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut number = || words.next().and_then(|text| text.parse::<u64>().ok());
        match word.as_str() {
            "--seeds" => args.seeds = number()?,
            "--nodes" => args.nodes = number().filter(|nodes| (1..=32).contains(nodes))? as usize,
            "--first" => args.first = number()?,
            "--threads" => args.threads = number()?.max(1),
            "--scarce" => args.scarce = true,
            "--trace" => args.trace = true,
            "--stop" => args.failures_max = 1,
            _ => return None,
        }
    }
    if args.trace {
        args.threads = 1; // one world's events are enough to read
    }
    Some(args)
}

fn work(args: &Args, next: &AtomicU64, failed: &AtomicU64, sum: &Mutex<Sum>) {
    while failed.load(Ordering::Relaxed) < args.failures_max {
        let index = next.fetch_add(1, Ordering::Relaxed);
        if index >= args.seeds {
            return;
        }
        let seed = args.first.wrapping_add(index);
        match run_seed_caught(seed, args.nodes, args.scarce, args.trace) {
            Ok(one) => {
                if let Ok(mut sum) = sum.lock() {
                    sum.add(&one);
                }
            }
            Err(error) => {
                failed.fetch_add(1, Ordering::Relaxed);
                println!(
                    "seed {seed} of {} nodes: {error}\n  replay: {}",
                    args.nodes,
                    dlm_sim::replay(seed, args.nodes, args.scarce)
                );
            }
        }
    }
    // Nobody takes another one.
    next.fetch_max(args.seeds, Ordering::Relaxed);
}

/// A bar on a terminal, nothing elsewhere.
fn show(args: &Args, next: &AtomicU64, failed: &AtomicU64, start: Instant) {
    let mut terminal = std::io::stderr();
    if !terminal.is_terminal() || args.trace {
        return;
    }
    loop {
        let done = next.load(Ordering::Relaxed).min(args.seeds);
        let full = (done * BAR).checked_div(args.seeds).unwrap_or(BAR) as usize;
        let rate = done as f64 / start.elapsed().as_secs_f64().max(0.001);
        let bar = format!("{}{}", "#".repeat(full), ".".repeat(BAR as usize - full));
        let bad = failed.load(Ordering::Relaxed);
        // A terminal that cannot be written to shows nothing; the run goes on.
        let _ =
            write!(terminal, "\r[{bar}] {done}/{} {rate:.1} seeds/s, {bad} failed ", args.seeds);
        let _ = terminal.flush();
        if done >= args.seeds {
            let _ = write!(terminal, "\r\x1b[K");
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(200));
    }
}
