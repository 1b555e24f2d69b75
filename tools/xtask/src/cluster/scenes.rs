//! What happens to hosts and wires.

use std::time::Duration;

use super::Field;

/// Something that happens while workers work.
pub(super) type Scene = fn(&mut Field) -> Result<(), String>;

const ALL: [(&str, Scene); 11] = [
    ("calm", calm),
    ("kill-restart", kill_restart),
    ("two-kills", two_kills),
    ("kill-while-joining", kill_while_joining),
    ("pause", pause),
    ("exclude-paused", exclude_paused),
    ("loss", loss),
    ("delay", delay),
    ("resets", resets),
    ("short-cut", short_cut),
    ("one-way-cut", one_way_cut),
];

/// The scenes of these names, or all.
pub(super) fn named(names: &[String]) -> Result<Vec<(&'static str, Scene)>, String> {
    if let Some(stranger) = names.iter().find(|name| ALL.iter().all(|(known, _)| known != name)) {
        let known: Vec<&str> = ALL.iter().map(|(name, _)| *name).collect();
        return Err(format!("there is no scenario {stranger}; there are: {}", known.join(" ")));
    }
    let wanted = |(name, _): &&(&'static str, Scene)| {
        names.is_empty() || names.iter().any(|wanted| wanted == name)
    };
    Ok(ALL.iter().filter(wanted).copied().collect())
}

fn wait(ms: u64) {
    std::thread::sleep(Duration::from_millis(ms));
}

fn calm(_: &mut Field) -> Result<(), String> {
    wait(500);
    Ok(())
}

/// kill -9, first unknown to the others; then known; then back under the same number.
fn kill_restart(field: &mut Field) -> Result<(), String> {
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
    Ok(())
}

/// A second node dies while the first death is being dealt with.
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

/// A node dies 20 to 200 ms after another one began to come back.
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

/// A daemon stands still for a while: nobody is excluded, nothing is lost.
fn pause(field: &mut Field) -> Result<(), String> {
    for node in [1, 2, 3] {
        field.signal(node, "STOP")?;
        wait(400);
        field.signal(node, "CONT")?;
        field.progress("after a pause")?;
    }
    Ok(())
}

/// A daemon stands still and is excluded: what it held stays held until its clients know.
fn exclude_paused(field: &mut Field) -> Result<(), String> {
    field.signal(2, "STOP")?;
    wait(100);
    field.say("exclude 2")?;
    wait(700);
    field.signal(2, "CONT")?;
    field.settle()?;
    field.progress("after an exclusion")
}

fn loss(field: &mut Field) -> Result<(), String> {
    field.wires(&["loss", "n2", "20"])?;
    wait(2500);
    field.wires(&["heal"])
}

fn delay(field: &mut Field) -> Result<(), String> {
    field.wires(&["delay", "n2", "20", "15"])?;
    let all = field.workers_of(&[1, 2, 3]);
    let slow = field.progress_of(&all, "with a slow wire");
    wait(500);
    field.wires(&["heal"])?;
    slow
}

/// Connections are reset again and again: sessions go on (BL-015).
fn resets(field: &mut Field) -> Result<(), String> {
    for _ in 0..6 {
        field.wires(&["reset", "n2"])?;
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

/// Node 1 no longer hears node 3, until one of the two is excluded.
fn one_way_cut(field: &mut Field) -> Result<(), String> {
    field.wires(&["cut", "n3", "n1"])?;
    let others = field.workers_of(&[1, 2]);
    wait(14_000);
    let went_on = field.progress_of(&others, "without node 3");
    field.wires(&["heal"])?;
    went_on?;
    if !field.nodes.logs().contains("the cluster went on without this node") {
        return Err("nobody was excluded".to_owned());
    }
    field.settle()?;
    field.progress("after a one-way cut")
}
