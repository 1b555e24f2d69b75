//! Faults drawn from a seed, one upon the other (BL-074): deaths, pauses, exclusions, cuts, loss, resets.
//!
//! What is drawn depends on the seed alone; what comes of it also on the machine. In the end all is healed. A value
//! block lives as long as somebody has a lock on its name: nothing takes the locks of a host away unless another
//! host is known to have some.

use std::collections::BTreeMap;

use super::field::Field;
use super::scenes::wait;

/// What a host is.
#[derive(Clone, Copy, PartialEq)]
enum State {
    Up,
    /// Up, after its programs lost their locks at a moment that only they know.
    Shaken,
    Paused,
    Down,
    /// Down, and nobody was told.
    Missing,
}

/// A pseudo-random sequence.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u32) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as u32 % bound
    }
}

type Hosts = BTreeMap<u32, State>;

/// Draws faults for a while, then heals all.
pub(super) fn play(field: &mut Field) -> Result<(), String> {
    let mut dice = Dice(field.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let count = field.count();
    let mut hosts: Hosts = (1..=count).map(|node| (node, State::Up)).collect();
    let mut told = Vec::new();
    for _ in 0..field.rounds(14) {
        let node = dice.below(count) + 1;
        let what = draw(field, &mut dice, &mut hosts, node);
        told.push(what.map_err(|why| format!("{}: {why}", told.join(", ")))?);
        wait(u64::from(dice.below(160)));
    }
    heal(field, &mut hosts)
        .and_then(|()| field.settle())
        .and_then(|()| field.progress("healed"))
        .map_err(|why| format!("{}: {why}", told.join(", ")))
}

/// One thing happens to a host, or to its wires.
fn draw(
    field: &mut Field,
    dice: &mut Dice,
    hosts: &mut Hosts,
    node: u32,
) -> Result<String, String> {
    let spared = hosts.iter().any(|(other, state)| *other != node && *state == State::Up);
    let name = format!("n{node}");
    let what = match (hosts[&node], dice.below(8)) {
        (State::Up | State::Shaken, 0 | 1) if spared => {
            field.power_off(node)?;
            hosts.insert(node, State::Missing);
            "dies"
        }
        (State::Up | State::Shaken, 2) if spared => {
            field.signal(node, "STOP")?;
            hosts.insert(node, State::Paused);
            "stands still"
        }
        (State::Up | State::Shaken, 3) if spared => {
            field.say(&format!("exclude {node}"))?;
            hosts.insert(node, State::Shaken);
            "is excluded"
        }
        (State::Up | State::Shaken, 4) => {
            field.wires(&["isolate", &name])?;
            wait(u64::from(dice.below(600)));
            field.wires(&["heal"])?;
            "was cut off"
        }
        (State::Up | State::Shaken, 5) => {
            // Not of two hosts at once: what is lost would add up to more than TCP can do with.
            field.wires(&["heal"])?;
            field.wires(&["loss", &name, "20"])?;
            "loses frames"
        }
        (State::Up | State::Shaken, 6) if spared => {
            field.leave(node)?;
            field.start_workers(node)?;
            hosts.insert(node, State::Shaken);
            "leaves"
        }
        (State::Up | State::Shaken, _) => {
            field.wires(&["reset", &name])?;
            "is reset"
        }
        (State::Paused, 0 | 1) => {
            field.say(&format!("exclude {node}"))?;
            "is excluded"
        }
        (State::Paused, _) => {
            field.signal(node, "CONT")?;
            hosts.insert(node, State::Shaken);
            "goes on"
        }
        (State::Missing, 0 | 1) => {
            field.say(&format!("exclude {node}"))?;
            "is excluded"
        }
        (State::Missing, _) => {
            field.say(&format!("gone {node}"))?;
            hosts.insert(node, State::Down);
            "is known to be gone"
        }
        (State::Down, _) => {
            field.power_on(node)?;
            hosts.insert(node, State::Shaken);
            "comes back"
        }
    };
    steady(field, hosts)?;
    Ok(format!("{name} {what}"))
}

/// When everybody is told of everything and everybody's programs get on, all have locks again.
fn steady(field: &mut Field, hosts: &mut Hosts) -> Result<(), String> {
    if hosts.values().all(|state| matches!(state, State::Up | State::Shaken))
        && hosts.values().filter(|state| **state == State::Up).count() < 2
    {
        field.settle()?;
        field.progress("all together")?;
        hosts.values_mut().for_each(|state| *state = State::Up);
    }
    Ok(())
}

/// Everybody is up, whole and told.
fn heal(field: &mut Field, hosts: &mut Hosts) -> Result<(), String> {
    field.wires(&["heal"])?;
    for (node, state) in hosts {
        if *state == State::Paused {
            field.signal(*node, "CONT")?;
        }
        if *state == State::Missing {
            field.say(&format!("gone {node}"))?;
        }
        if matches!(state, State::Missing | State::Down) {
            field.power_on(*node)?;
        }
        *state = State::Up;
    }
    Ok(())
}
