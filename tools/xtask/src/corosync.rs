//! `cargo xtask corosync`: three daemons over a real corosync, and what happens to hosts, wires and
//! processes (membership.md section 3).
//!
//! Each scene lets workers on every host lock and check (tests/cluster/hammer.c), does something, and
//! demands three things: that no two holders met and no value block was wrong, that every worker got on
//! afterwards, and that nothing stays behind in the tables.

mod fencing;
mod hosts;
mod scenes;

use std::time::Instant;

use crate::Ending;
use crate::packages;
use crate::places::Places;
use crate::products;
use crate::tally::Tally;
use hosts::Hosts;

/// Runs the command.
pub(crate) fn run(places: &Places, args: &[String]) -> Result<(), Ending> {
    let long = args.iter().any(|word| word == "--long");
    let names: Vec<String> = args.iter().filter(|word| *word != "--long").cloned().collect();
    let scenes = scenes::named(&names, long).map_err(Ending::Usage)?;
    if !packages::is_root() {
        return Err(Ending::CannotRun("corosync needs root, for network namespaces".into()));
    }
    if let Some(lack) = packages::lack(&["corosync", "iproute2", "nftables", "gcc"]) {
        return Err(Ending::CannotRun(lack));
    }
    products::build(places)?;
    let mut tally = Tally::default();
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
