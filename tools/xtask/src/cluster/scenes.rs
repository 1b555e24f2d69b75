//! What happens to hosts and wires, while workers work. Each scene names the faults of bug-log.md that it shows
//! with real daemons.

use std::time::{Duration, Instant};

use super::field::Field;
use super::mix;
use crate::workers::SPACE;

/// Something that happens, on so many hosts.
pub(super) struct Scene {
    pub(super) name: &'static str,
    pub(super) hosts: u32,
    /// What the workers do, and how many there are on a host.
    pub(super) workers: (&'static str, u32),
    pub(super) play: fn(&mut Field) -> Result<(), String>,
}

const VALUES: (&str, u32) = ("values", 2);

const fn on(hosts: u32, name: &'static str, play: fn(&mut Field) -> Result<(), String>) -> Scene {
    Scene { name, hosts, workers: VALUES, play }
}

const fn with(workers: (&'static str, u32), scene: Scene) -> Scene {
    Scene { workers, ..scene }
}

/// By the number of hosts: they are made once for each.
const ALL: [Scene; 26] = [
    on(2, "pair-restart", pair_restart),
    on(2, "pair-cut", pair_cut),
    on(2, "pair-mix", mix::play),
    on(3, "calm", calm),
    with(("bare", 2), on(3, "churn", churn)),
    on(3, "kill-restart", kill_restart),
    on(3, "two-kills", two_kills),
    on(3, "kill-while-joining", kill_while_joining),
    on(3, "flap", flap),
    on(3, "leave", leave),
    on(3, "leave-cut", leave_cut),
    with(("cycle", 1), on(3, "join-leave", join_leave)),
    with(("try", 2), on(3, "try-crash", try_crash)),
    on(3, "pause", pause),
    on(3, "exclude-paused", exclude_paused),
    on(3, "loss", loss),
    on(3, "heavy-loss", heavy_loss),
    on(3, "delay", delay),
    on(3, "resets", resets),
    on(3, "short-cut", short_cut),
    on(3, "short-cuts", short_cuts),
    on(3, "one-way-cut", one_way_cut),
    on(3, "mix", mix::play),
    on(4, "three-leave", three_leave),
    on(5, "two-deaths-of-five", two_deaths_of_five),
    on(5, "mix-of-five", mix::play),
];

/// The scenes of these names, or all.
pub(super) fn named(names: &[String]) -> Result<Vec<&'static Scene>, String> {
    let known = |name: &String| ALL.iter().any(|scene| scene.name == name);
    if let Some(stranger) = names.iter().find(|name| !known(name)) {
        let known: Vec<&str> = ALL.iter().map(|scene| scene.name).collect();
        return Err(format!("there is no scenario {stranger}; there are: {}", known.join(" ")));
    }
    let wanted = |scene: &&Scene| names.is_empty() || names.iter().any(|name| name == scene.name);
    Ok(ALL.iter().filter(wanted).collect())
}

pub(super) fn wait(ms: u64) {
    std::thread::sleep(Duration::from_millis(ms));
}

fn calm(_: &mut Field) -> Result<(), String> {
    wait(500);
    Ok(())
}

/// BL-033: names vanish and come back all the time.
fn churn(field: &mut Field) -> Result<(), String> {
    wait(u64::from(field.rounds(2000)));
    Ok(())
}

/// kill -9, first unknown to the others; then known; then back under the same number (BL-059, BL-121).
fn kill_restart(field: &mut Field) -> Result<(), String> {
    for _ in 0..field.rounds(1) {
        for node in [2, 1, 3] {
            field.power_off(node)?;
            wait(30);
            field.say(&format!("exclude {node}"))?;
            wait(30);
            field.say(&format!("gone {node}"))?;
            field.progress("after a kill")?;
            field.power_on(node)?;
            field.progress("after the restart")?;
        }
    }
    Ok(())
}

/// One of two dies, and nobody is left to ask.
fn pair_restart(field: &mut Field) -> Result<(), String> {
    for round in 0..field.rounds(3) {
        let node = round % 2 + 1;
        field.power_off(node)?;
        field.say(&format!("gone {node}"))?;
        field.progress("alone")?;
        field.power_on(node)?;
        field.progress("together again")?;
    }
    Ok(())
}

/// Two that do not hear each other for a while.
fn pair_cut(field: &mut Field) -> Result<(), String> {
    for ms in [100, 1500] {
        field.wires(&["isolate", "n1"])?;
        wait(ms);
        field.wires(&["heal"])?;
        field.progress("after a cut")?;
    }
    Ok(())
}

/// BL-002: a second node dies while the first death is being dealt with.
fn two_kills(field: &mut Field) -> Result<(), String> {
    for pause in [0, 20, 60, 200] {
        field.power_off(2)?;
        field.say("gone 2")?;
        wait(pause);
        field.power_off(3)?;
        field.say("gone 3")?;
        field.progress("alone")?;
        field.power_on(2)?;
        field.power_on(3)?;
        field.progress("together again")?;
    }
    Ok(())
}

/// BL-002: a node dies 20 to 200 ms after another one began to come back.
fn kill_while_joining(field: &mut Field) -> Result<(), String> {
    for pause in [0, 20, 60, 200] {
        field.power_off(2)?;
        field.say("gone 2")?;
        field.power_on(2)?;
        wait(pause);
        field.power_off(3)?;
        field.say("gone 3")?;
        field.progress("without node 3")?;
        field.power_on(3)?;
        field.progress("together again")?;
    }
    Ok(())
}

/// BL-003: one node comes and goes without pause, half of the times by a crash and half by leaving.
fn flap(field: &mut Field) -> Result<(), String> {
    for round in 0..field.rounds(10) {
        if round % 2 == 0 {
            field.power_off(3)?;
            field.say("gone 3")?;
            wait(u64::from(round) * 3);
            field.power_on(3)?;
        } else {
            field.leave(3)?;
            field.start_workers(3)?;
        }
        wait(u64::from(round) * 7);
    }
    let others = field.workers.of(&[1, 2]);
    field.progress_of(&others, "beside a node that comes and goes")
}

/// BL-016: a node leaves while the others ask it for names that it masters.
fn leave(field: &mut Field) -> Result<(), String> {
    for round in 0..field.rounds(6) {
        let node = round % 3 + 1;
        field.leave(node)?;
        field.progress("without the one that left")?;
        field.start_workers(node)?;
        field.progress("together again")?;
    }
    Ok(())
}

/// BL-062: a node leaves while nobody can hear it, and comes back without a restart of anything.
fn leave_cut(field: &mut Field) -> Result<(), String> {
    field.wires(&["isolate", "n2"])?;
    field.leave(2)?;
    let others = field.workers.of(&[1, 3]);
    let went_on = field.progress_of(&others, "without the one that left");
    field.wires(&["heal"])?;
    went_on?;
    field.start_workers(2)?;
    field.progress("together again")
}

/// BL-014: everybody creates and releases the same lockspace, 100 times and without pause.
fn join_leave(field: &mut Field) -> Result<(), String> {
    let due = u64::from(field.rounds(100));
    let end = Instant::now() + Duration::from_secs(if field.long { 300 } else { 40 });
    while field
        .workers
        .of(&[1, 2, 3])
        .iter()
        .any(|number| field.workers.board.grants(*number) < due)
    {
        if Instant::now() > end {
            return Err(format!("a lockspace was not created and released {due} times"));
        }
        wait(10);
    }
    Ok(())
}

/// BL-082: NOQUEUE calls while a daemon dies of a signal: each comes back soon after the others know.
fn try_crash(field: &mut Field) -> Result<(), String> {
    for (node, signal) in [(3, "SEGV"), (1, "ABRT"), (2, "KILL")] {
        field.power_off_with(node, signal)?;
        wait(50);
        field.say(&format!("gone {node}"))?;
        field.progress("after a crash")?;
        field.power_on(node)?;
        field.progress("after the restart")?;
    }
    match field.workers.board.longest_try() {
        0..5000 => Ok(()),
        long => Err(format!("a NOQUEUE call took {long} ms")),
    }
}

/// BL-047: a daemon stands still for a while: nobody is excluded, nothing is lost.
fn pause(field: &mut Field) -> Result<(), String> {
    for node in [1, 2, 3] {
        field.signal(node, "STOP")?;
        wait(400);
        field.signal(node, "CONT")?;
        field.progress("after a pause")?;
    }
    Ok(())
}

/// A daemon stands still and is excluded: what it held stays held until its clients know (BL-066, BL-074).
fn exclude_paused(field: &mut Field) -> Result<(), String> {
    field.signal(2, "STOP")?;
    wait(100);
    field.say("exclude 2")?;
    wait(700);
    field.signal(2, "CONT")?;
    field.settle()?;
    field.progress("after an exclusion")
}

/// BL-081: frames are lost, and others wait for what they carried.
fn loss(field: &mut Field) -> Result<(), String> {
    for percent in ["5", "20"] {
        field.wires(&["loss", "n2", percent])?;
        wait(u64::from(field.rounds(1200)));
        field.wires(&["heal"])?;
        field.progress("after the loss")?;
    }
    Ok(())
}

fn heavy_loss(field: &mut Field) -> Result<(), String> {
    for node in ["n1", "n3"] {
        field.wires(&["loss", node, "15"])?;
    }
    field.wires(&["loss", "n2", "30"])?;
    wait(u64::from(field.rounds(2500)));
    field.wires(&["heal"])
}

/// Frames come late, and overtake one another.
fn delay(field: &mut Field) -> Result<(), String> {
    field.wires(&["delay", "n2", "20", "15"])?;
    let all = field.workers.of(&[1, 2, 3]);
    let slow = field.progress_of(&all, "with a slow wire");
    wait(u64::from(field.rounds(500)));
    field.wires(&["heal"])?;
    slow
}

/// BL-015: connections are reset again and again: sessions go on.
fn resets(field: &mut Field) -> Result<(), String> {
    for round in 0..field.rounds(8) {
        field.wires(&["reset", ["n2", "n3"][round as usize % 2]])?;
        wait(300);
    }
    field.progress("after resets")
}

/// A host is cut off, but not for long enough that somebody has to go.
fn short_cut(field: &mut Field) -> Result<(), String> {
    field.wires(&["isolate", "n3"])?;
    wait(3500);
    field.wires(&["heal"])?;
    field.progress("after a cut")
}

/// BL-038, BL-073: after each of many short cuts holders hear again of who wants their locks.
fn short_cuts(field: &mut Field) -> Result<(), String> {
    for round in 0..field.rounds(8) {
        let node = format!("n{}", round % 3 + 1);
        field.wires(&["isolate", &node])?;
        wait(40 * u64::from(round % 8));
        field.wires(&["heal"])?;
        field.progress("after a cut")?;
    }
    Ok(())
}

/// Node 1 no longer hears node 3, until one of the two is excluded.
fn one_way_cut(field: &mut Field) -> Result<(), String> {
    let before = exclusions(field);
    field.wires(&["cut", "n3", "n1"])?;
    let end = Instant::now() + Duration::from_secs(30);
    while exclusions(field) == before && Instant::now() < end {
        wait(50);
    }
    let others = field.workers.of(&[1, 2]);
    let went_on = field.progress_of(&others, "without node 3");
    field.wires(&["heal"])?;
    went_on?;
    if exclusions(field) == before {
        return Err("nobody was excluded".to_owned());
    }
    field.settle()?;
    field.progress("after a one-way cut")
}

fn exclusions(field: &Field) -> usize {
    field.nodes.logs().matches("the cluster went on without this node").count()
}

/// BL-041: three of four leave at the same moment, and come back.
fn three_leave(field: &mut Field) -> Result<(), String> {
    for _ in 0..field.rounds(2) {
        for node in [1, 2, 3] {
            field.leave(node)?;
        }
        let last = field.workers.of(&[4]);
        field.progress_of(&last, "alone")?;
        let listed = field.tool(4, &["ls"])?;
        let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
        if !listed.contains(SPACE) {
            return Err(format!("node 4 has no lockspace any more: {listed}"));
        }
        for node in [1, 2, 3] {
            field.start_workers(node)?;
        }
        field.progress("together again")?;
    }
    Ok(())
}

/// BL-002, BL-063: of five the two lowest die one shortly after the other.
fn two_deaths_of_five(field: &mut Field) -> Result<(), String> {
    for pause in [0, 20, 200] {
        field.power_off(1)?;
        field.say("gone 1")?;
        wait(pause);
        field.power_off(2)?;
        field.say("gone 2")?;
        field.progress("without two")?;
        field.power_on(1)?;
        wait(pause);
        field.power_on(2)?;
        field.progress("together again")?;
    }
    Ok(())
}
