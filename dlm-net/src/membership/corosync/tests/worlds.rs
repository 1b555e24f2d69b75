//! Random worlds: whatever happens, nobody is said to be harmless who is not, and in the end all is
//! well again.

use super::*;

fn something(world: &mut World, count: u32) {
    let node = 1 + world.below(u64::from(count)) as u32;
    match world.below(14) {
        0 | 1 => world.join(node),
        2 => world.leave(node),
        3 => world.close_clients(node),
        4 => world.isolate(node),
        5 | 6 => world.heal(),
        7 => {
            let (mut one, mut other) = (BTreeSet::new(), BTreeSet::new());
            for node in 1..=count {
                if world.below(2) == 0 {
                    one.insert(node)
                } else {
                    other.insert(node)
                };
            }
            let parts = [one, other].into_iter().filter(|part| !part.is_empty()).collect();
            world.split(parts, Some(node));
        }
        8 => world.node_mut(node).paused = true,
        9 => (1..=count).for_each(|node| world.node_mut(node).paused = false),
        10 => {
            let clients_act = world.below(2) == 0;
            world.kill(node, clients_act);
        }
        11 | 12 => start(world, node),
        _ => {
            if !world.node(node).up && world.node(node).order.feared().next().is_none() {
                world.fence(node);
            }
        }
    }
}

fn start(world: &mut World, node: u32) {
    if !world.node(node).up {
        let start = world.node(node).life / JOINS_PER_LIFE + 1 + world.below(3);
        let clean = !world.ghosts.iter().any(|(ghost, _)| *ghost == node);
        world.boot(node, start, clean);
    }
}

fn check(count: u32, seed: u64) {
    if let Err(why) = play(count, seed, false) {
        // Once more, with what everybody had to say.
        let _ = play(count, seed, true);
        panic!("seed {seed} of {count} nodes: {why}");
    }
}

fn play(count: u32, seed: u64, told: bool) -> Result<(), String> {
    let mut world = World::new(count, seed);
    world.told = told;
    for _ in 0..60 {
        let pause = world.below(12) as u32;
        world.rounds(pause);
        something(&mut world, count);
    }
    // Everything comes back, all clients close, whoever is dead is started.
    world.ghosts.clear();
    for node in 1..=count {
        world.node_mut(node).paused = false;
        start(&mut world, node);
    }
    world.heal();
    for _ in 0..8 {
        world.rounds(40);
        for node in 1..=count {
            world.close_clients(node);
            world.node_mut(node).order.cleaned();
            world.obey(node);
        }
    }
    (1..=count).for_each(|node| world.join(node));
    world.rounds(160);
    world.is_quiet()?;
    let members = world.node(1).stay.as_ref().map(|(_, view)| view.members.len());
    if members == Some(count as usize) { Ok(()) } else { Err("not all are in".to_owned()) }
}

#[test]
fn three_nodes() {
    (0..100).for_each(|seed| check(3, seed));
}

#[test]
fn four_and_five_nodes() {
    (0..20).for_each(|seed| check(4, seed));
    (0..15).for_each(|seed| check(5, seed));
}
