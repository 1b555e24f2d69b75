//! Whose ticks renew whose lease.

use super::*;

fn leases(world: &World) -> Vec<u64> {
    world.nodes.values().map(|node| node.leases).collect()
}

#[test]
fn who_hears_only_itself_gets_no_lease() {
    let mut world = World::new(3, 11);
    world.rounds(60);
    world.node_mut(2).paused = true;
    world.node_mut(3).paused = true;
    // What was under way arrives.
    world.rounds(20);
    let before = leases(&world);
    world.rounds(20);
    assert_eq!(leases(&world), before, "its own ticks came back all the time");
    assert!(world.node(1).standing, "and the ring is quorate as ever");
    world.node_mut(2).paused = false;
    world.rounds(20);
    assert!(leases(&world)[0] > before[0], "two of three are a majority");
}

#[test]
fn of_fewer_nodes_that_take_part_all_have_to_hear() {
    let mut world = World::new(1, 3);
    world.rounds(60);
    let before = leases(&world);
    world.rounds(20);
    assert!(leases(&world)[0] > before[0], "one node is all");
}
