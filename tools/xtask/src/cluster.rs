//! `cargo xtask cluster`: real daemons on hosts in network namespaces, and what happens to hosts.
//!
//! Each scenario lets workers on every host lock and check (tests/cluster/hammer.c), does something to hosts or
//! wires, and heals it. After each one the same checks are made (`checks`): every worker gets on, no two holders
//! met and no value block was wrong, the tables of all nodes agree while nobody moves, and nothing is left when
//! the workers have gone.

mod checks;
mod field;
mod listing;
mod mix;
mod scenes;

use std::time::Instant;

use crate::Ending;
use crate::packages;
use crate::places::Places;
use crate::products;
use crate::tally::Tally;
use field::Field;

/// What the command line asks for.
struct Options {
    /// Larger sizes.
    long: bool,
    /// For scenarios that draw what they do.
    seed: u64,
    /// How often all is played.
    times: u32,
    names: Vec<String>,
}

/// Runs the command.
pub(crate) fn run(places: &Places, args: &[String]) -> Result<(), Ending> {
    let options = parse(args)?;
    let scenes = scenes::named(&options.names).map_err(Ending::Usage)?;
    if !packages::is_root() {
        return Err(Ending::CannotRun("cluster needs root, for network namespaces".into()));
    }
    if let Some(lack) = packages::lack(&["iproute2", "nftables", "python3", "gcc"]) {
        return Err(Ending::CannotRun(lack));
    }
    products::build(places)?;
    let mut tally = Tally::default();
    for round in 0..options.times {
        play_all(places, &options, &scenes, round, &mut tally)?;
    }
    tally.print();
    tally.verdict()
}

/// Plays scenarios that need as many hosts on the same hosts, one after the other.
fn play_all(
    places: &Places,
    options: &Options,
    scenes: &[&scenes::Scene],
    round: u32,
    tally: &mut Tally,
) -> Result<(), Ending> {
    let mut field: Option<Field> = None;
    for (index, scene) in scenes.iter().enumerate() {
        let mut on = match field.take() {
            Some(field) if field.count() == scene.hosts => field,
            other => {
                drop(other);
                Field::new(places, scene.hosts, options.long)?
            }
        };
        on.set_seed(options.seed + u64::from(round) * 1000);
        let begin = Instant::now();
        let verdict = on.play(scene);
        let last = scenes.get(index + 1).is_none_or(|next| next.hosts != scene.hosts);
        let verdict = match verdict {
            // Names that nobody uses are forgotten after a while; it is enough to see that once.
            Ok(grants) if last => on.forgotten().map(|()| grants),
            other => other,
        };
        tally.count(scene.name, verdict.is_ok());
        let (name, hosts, took) = (scene.name, scene.hosts, begin.elapsed().as_millis());
        match verdict {
            Ok(grants) => {
                println!("ok - {name} ({hosts} hosts, {grants} grants, {took} ms)");
                field = Some(on);
            }
            Err(why) => {
                println!("not ok - {name} ({hosts} hosts, seed {}, {took} ms)", options.seed);
                for line in format!("{why}\n{}", on.logs()).lines() {
                    println!("#  {line}");
                }
            }
        }
    }
    Ok(())
}

fn parse(args: &[String]) -> Result<Options, Ending> {
    let mut options = Options { long: false, seed: 1, times: 1, names: Vec::new() };
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        let mut number = || {
            let word = args.next().and_then(|word| word.parse::<u32>().ok());
            word.ok_or_else(|| Ending::Usage(format!("{arg} needs a number")))
        };
        match arg.as_str() {
            "--long" => options.long = true,
            "--seed" => options.seed = number()?.into(),
            "--times" => options.times = number()?,
            name => options.names.push(name.to_owned()),
        }
    }
    Ok(options)
}
