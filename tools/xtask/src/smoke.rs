//! `cargo xtask smoke`: programs of which only a clean run to the end is asked.

use std::path::Path;
use std::time::Duration;

use crate::Ending;
use crate::daemon::Daemon;
use crate::job::Job;
use crate::packages;
use crate::places::Places;
use crate::products;
use crate::scratch::Scratch;
use crate::tally::{self, Tally};

const VALGRIND_BUDGET: Duration = Duration::from_secs(120);
const BENCH_BUDGET: Duration = Duration::from_secs(150);

/// Runs the command.
pub(crate) fn run(places: &Places, args: &[String]) -> Result<(), Ending> {
    if let Some(stranger) = args.iter().find(|arg| !["valgrind", "bench"].contains(&arg.as_str())) {
        return Err(Ending::Usage(format!("there is no smoke run {stranger}")));
    }
    products::build(places)?;
    let wanted = |name: &str| args.is_empty() || args.iter().any(|arg| arg == name);
    let mut tally = Tally::default();
    if wanted("valgrind") {
        for library in ["dlm", "dlm_lt"] {
            valgrind(places, library, &mut tally)?;
        }
    }
    if wanted("bench") {
        bench(places, &mut tally)?;
    }
    tally.print();
    tally.verdict()
}

/// A C program through our library under valgrind: no bad access, nothing definitely lost.
fn valgrind(places: &Places, library: &str, tally: &mut Tally) -> Result<(), Ending> {
    let name = format!("valgrind lib{library}");
    if let Some(lack) = packages::lack(&["valgrind", "gcc", "libc6-dev"]) {
        tally.skip(format!("{name}: {lack}"));
        return Ok(());
    }
    let dir = Scratch::new("valgrind")?;
    let program = dir.path().join("program");
    products::cc(places, &[places.root.join("tests/clients/debian-dev.c")], library, &program)?;
    let daemon = Daemon::start(places, dir.path(), &[])?;
    let libraries = places.libraries().canonicalize()?;
    let log = places.logs().join(format!("valgrind-{library}.log"));
    let ended = Job::new("valgrind", log, VALGRIND_BUDGET)
        .args(["--error-exitcode=99", "--leak-check=full", "--errors-for-leak-kinds=definite"])
        .args([&program, &libraries])
        .envs([
            ("DLM_SOCKET", daemon.socket().into()),
            ("LD_LIBRARY_PATH", libraries.clone().into()),
        ])
        .run()?;
    let judged = tally::closing(&ended.output).is_some_and(|own| own.failed == 0 && own.passed > 0);
    say(&name, ended.good() && judged, ended.tail(40), tally);
    Ok(())
}

/// The benchmark's quick mode: its figures mean nothing here, that it comes to its end does.
fn bench(places: &Places, tally: &mut Tally) -> Result<(), Ending> {
    let dir = Scratch::new("bench")?;
    let ended = Job::new(places.release().join("dlm_bench"), bench_log(places), BENCH_BUDGET)
        .args(["local", "--quick"])
        .envs([("DLM_BIN_DIR", places.release().into()), ("TMPDIR", dir.path().into())])
        .run()?;
    say("dlm_bench local --quick", ended.good(), ended.tail(40), tally);
    Ok(())
}

fn bench_log(places: &Places) -> std::path::PathBuf {
    places.logs().join(Path::new("bench.log"))
}

fn say(name: &str, good: bool, tail: String, tally: &mut Tally) {
    tally.count(name, good);
    if good {
        println!("ok - {name}");
    } else {
        println!("not ok - {name}\n{tail}");
    }
}
