//! `cargo xtask corosync`: three daemons over a real corosync, and what happens to hosts, wires and
//! processes (membership.md section 3).
//!
//! Each scene lets workers on every host lock and check (tests/cluster/hammer.c), does something, and
//! demands three things: that no two holders met and no value block was wrong, that every worker got on
//! afterwards, and that nothing stays behind in the tables.

mod fencing;
mod figures;
mod hosts;
mod leases;
mod refusals;
mod scenes;

use std::time::{Duration, Instant};

use crate::Ending;
use crate::job::Job;
use crate::packages;
use crate::places::Places;
use crate::products;
use crate::tally::{self, Tally};
use hosts::Hosts;

/// Scripts of tests/cluster that bring up hosts of their own: the README's cluster of three machines,
/// as it is written there; two nodes that are quorate each for itself.
const SCRIPTS: &[&str] = &["three-machines", "two-nodes"];
/// Hang guard for a script.
const SCRIPT_BUDGET: Duration = Duration::from_secs(150);

/// Runs the command.
pub(crate) fn run(places: &Places, args: &[String]) -> Result<(), Ending> {
    let long = args.iter().any(|word| word == "--long");
    let words = args.iter().filter(|word| *word != "--long").cloned();
    let (mut scripts, names): (Vec<String>, Vec<String>) =
        words.partition(|word| SCRIPTS.contains(&word.as_str()));
    let scenes = match names.is_empty() && !scripts.is_empty() && !long {
        true => Vec::new(),
        false => scenes::named(&names, long).map_err(Ending::Usage)?,
    };
    if names.is_empty() && scripts.is_empty() {
        scripts = SCRIPTS.iter().map(|name| (*name).to_owned()).collect();
    }
    if !packages::is_root() {
        return Err(Ending::CannotRun("corosync needs root, for network namespaces".into()));
    }
    if let Some(lack) = packages::lack(&["corosync", "iproute2", "nftables", "gcc"]) {
        return Err(Ending::CannotRun(lack));
    }
    products::build(places)?;
    let mut tally = Tally::default();
    for script in &scripts {
        tally.add(play_script(places, script)?);
    }
    if scenes.is_empty() {
        tally.print();
        return tally.verdict();
    }
    let mut hosts = Hosts::new(places)?;
    for scene in scenes {
        let begin = Instant::now();
        let verdict = hosts.play(scene);
        let took = begin.elapsed().as_millis();
        match verdict {
            Ok(Some(why)) => {
                println!("SKIPPED: {}: {why}", scene.name);
                tally.skip(format!("{}: {why}", scene.name));
            }
            Ok(None) => {
                tally.count(scene.name, true);
                println!("ok - {} ({} grants, {took} ms)", scene.name, hosts.grants());
            }
            Err(why) => {
                tally.count(scene.name, false);
                println!("not ok - {} ({took} ms)", scene.name);
                for line in format!("{why}\n{}", hosts.logs()).lines() {
                    println!("#  {line}");
                }
                drop(hosts);
                hosts = Hosts::new(places)?;
            }
        }
    }
    tally.print();
    tally.verdict()
}

/// Runs a script of tests/cluster.
fn play_script(places: &Places, name: &str) -> Result<Tally, Ending> {
    let script = places.root.join(format!("tests/cluster/{name}.sh"));
    let log = places.logs().join(format!("{name}.log"));
    let ended = Job::new(script, log, SCRIPT_BUDGET)
        .arg(places.root.join("README.md"))
        .envs([("BIN", places.release().into()), ("LIBDIR", places.libraries().into())])
        .run()?;
    println!("{}", ended.output.trim_end());
    let mut tally = tally::closing(&ended.output).unwrap_or_default();
    if let Some(trouble) = ended.trouble().filter(|_| tally.failed == 0) {
        println!("not ok - {name}: {trouble}");
        tally.fail(format!("{name}: {trouble}"));
    }
    Ok(tally)
}
