//! What has to come of one event each (membership.md 3).

use super::*;

/// Three nodes that all have the lockspace open.
fn trio() -> World {
    let mut world = World::new(3, 5);
    world.rounds(40);
    for node in 1..=3 {
        world.join(node);
    }
    world.rounds(60);
    assert_eq!(world.is_quiet(), Ok(()));
    assert_eq!(world.node(1).stay.as_ref().map(|(_, view)| view.members.len()), Some(3));
    world
}

fn lives_over(world: &World) -> Vec<u32> {
    world.nodes.values().map(|node| node.lives_over).collect()
}

fn view(world: &World, node: u32) -> ViewRecord {
    world.node(node).stay.clone().expect("it is in").1
}

#[test]
fn three_nodes_found_a_cluster_and_keep_their_leases() {
    let mut world = trio();
    let before: Vec<u64> = world.nodes.values().map(|node| node.leases).collect();
    world.rounds(40);
    let after: Vec<u64> = world.nodes.values().map(|node| node.leases).collect();
    assert!(before.iter().zip(&after).all(|(before, after)| after > before));
    assert_eq!(lives_over(&world), [0, 0, 0]);
}

#[test]
fn a_new_ring_of_the_same_members_is_no_recovery() {
    let mut world = trio();
    let before = view(&world, 1);
    for _ in 0..3 {
        world.heal();
        world.rounds(20);
    }
    assert_eq!(world.is_quiet(), Ok(()));
    assert_eq!((view(&world, 1), lives_over(&world)), (before, vec![0, 0, 0]));
}

#[test]
fn who_is_cut_off_is_feared_and_loses_its_life_when_the_parts_meet() {
    let mut world = trio();
    world.isolate(3);
    world.rounds(40);
    assert!(!world.node(3).standing && world.node(1).standing);
    assert_eq!((view(&world, 1).members.len(), view(&world, 1).unsafe_members.len()), (2, 1));
    assert_eq!(view(&world, 3).members.len(), 3, "it was never told");
    world.heal();
    world.rounds(60);
    assert_eq!(lives_over(&world), [0, 0, 1]);
    assert_eq!(view(&world, 1).unsafe_members.len(), 1, "its clients have not closed");
    world.close_clients(3);
    world.rounds(60);
    world.join(3);
    world.rounds(60);
    assert_eq!(world.is_quiet(), Ok(()));
    assert_eq!(view(&world, 3).members.len(), 3);
}

#[test]
fn a_node_that_stood_still_sees_all_in_one_burst_and_never_a_lack_of_quorum() {
    let mut world = trio();
    world.node_mut(3).paused = true;
    world.split(vec![[1, 2].into(), [3].into()], Some(3));
    world.rounds(40);
    assert_eq!(view(&world, 1).unsafe_members.len(), 1);
    world.heal();
    world.node_mut(3).paused = false;
    world.rounds(80);
    assert_eq!(lives_over(&world), [0, 0, 1]);
    world.close_clients(3);
    world.rounds(60);
    assert_eq!(world.is_quiet(), Ok(()));
}

#[test]
fn a_stall_that_nobody_acted_on_costs_nobody_its_life() {
    // A ring falls apart and merges before anybody decided anything.
    let mut world = trio();
    world.isolate(2);
    world.heal();
    world.rounds(60);
    assert_eq!((world.is_quiet(), lives_over(&world)), (Ok(()), vec![0, 0, 0]));
    // Three parts, none of them quorate (BL-049).
    world.split(vec![[1].into(), [2].into(), [3].into()], None);
    world.rounds(60);
    assert!(world.nodes.values().all(|node| !node.standing));
    world.heal();
    world.rounds(60);
    assert_eq!((world.is_quiet(), lives_over(&world)), (Ok(()), vec![0, 0, 0]));
    // A daemon stands still for a second.
    world.node_mut(2).paused = true;
    world.rounds(20);
    world.node_mut(2).paused = false;
    world.rounds(60);
    assert_eq!((world.is_quiet(), lives_over(&world)), (Ok(()), vec![0, 0, 0]));
}

#[test]
fn two_halves_that_met_again_agree_and_the_one_without_quorum_decided_nothing() {
    // BL-048
    let mut world = World::new(4, 3);
    world.rounds(40);
    (1..=4).for_each(|node| world.join(node));
    world.rounds(60);
    let before = view(&world, 1);
    world.split(vec![[1, 2].into(), [3, 4].into()], None);
    world.rounds(60);
    assert!(world.nodes.values().all(|node| !node.standing));
    world.heal();
    world.rounds(60);
    assert_eq!((world.is_quiet(), lives_over(&world)), (Ok(()), vec![0; 4]));
    assert_eq!(view(&world, 4), before);
}

#[test]
fn a_silent_daemon_is_voted_out_also_while_its_node_is_there() {
    let mut world = trio();
    world.node_mut(1).paused = true;
    world.rounds(140);
    assert_eq!(view(&world, 2).members.len(), 2);
    assert_eq!(view(&world, 2).unsafe_members.len(), 1);
    world.node_mut(1).paused = false;
    world.take(1, 0);
    assert!(!world.node(1).standing, "its clock has a gap, so it grants nothing");
    world.rounds(80);
    assert_eq!(lives_over(&world), [1, 0, 0]);
    world.close_clients(1);
    world.rounds(60);
    assert_eq!(world.is_quiet(), Ok(()));
}

#[test]
fn a_killed_daemon_is_feared_while_its_clients_act_also_when_it_is_back() {
    // BL-045
    let mut world = trio();
    world.kill(2, true);
    world.rounds(10);
    world.boot(2, 8, false);
    world.join(2);
    world.rounds(60);
    assert_eq!(view(&world, 1).unsafe_members.len(), 1);
    assert_eq!(view(&world, 2).id, 0, "B3");
    world.ghosts.clear();
    world.node_mut(2).order.cleaned();
    world.obey(2);
    world.rounds(60);
    assert_eq!((world.is_quiet(), lives_over(&world)), (Ok(()), vec![0, 0, 0]));
    assert_eq!(view(&world, 2).members.len(), 3);
}

#[test]
fn a_person_can_say_that_a_node_is_off() {
    let mut world = trio();
    world.kill(3, true);
    world.rounds(40);
    assert_eq!(view(&world, 1).unsafe_members.len(), 1);
    world.fence(3);
    world.rounds(40);
    assert_eq!((world.is_quiet(), view(&world, 1).members.len()), (Ok(()), 2));
    // The fact outlives its messenger, and whoever comes later hears of it.
    world.boot(3, 8, true);
    world.rounds(40);
    world.kill(1, false);
    world.rounds(20);
    world.fence(1);
    world.join(3);
    world.rounds(60);
    assert_eq!((world.is_quiet(), view(&world, 3).members.len()), (Ok(()), 2));
}

#[test]
fn all_daemons_killed_at_once_come_back_by_themselves() {
    // BL-094
    let mut world = trio();
    for node in 1..=3 {
        world.kill(node, false);
    }
    for node in 1..=3 {
        world.boot(node, 9, true);
        world.join(node);
    }
    world.rounds(80);
    assert_eq!(world.is_quiet(), Ok(()));
    assert_eq!(view(&world, 3).members.len(), 3);
    // With clients of before that still act, nobody is let in.
    for node in 1..=3 {
        world.kill(node, node == 2);
    }
    for node in 1..=3 {
        world.boot(node, 11, node != 2);
        world.join(node);
    }
    world.rounds(80);
    assert_eq!(view(&world, 1).id, 0);
    world.ghosts.clear();
    world.node_mut(2).order.cleaned();
    world.obey(2);
    world.rounds(80);
    assert_eq!(world.is_quiet(), Ok(()));
}

#[test]
fn a_joiner_that_stands_still_holds_nobody_up_for_long() {
    // BL-050
    let mut world = World::new(3, 9);
    world.kill(3, false);
    world.rounds(60);
    world.fence(3);
    world.rounds(20);
    world.boot(3, 9, true);
    world.node_mut(3).paused = true;
    world.join(1);
    world.join(2);
    world.rounds(140);
    assert_eq!((view(&world, 1).members.len(), view(&world, 2).members.len()), (2, 2));
    assert!(world.node(1).standing && world.node(2).standing);
    world.node_mut(3).paused = false;
    world.rounds(80);
    world.join(3);
    world.rounds(60);
    assert_eq!((world.is_quiet(), lives_over(&world)), (Ok(()), vec![0, 0, 0]));
}

#[test]
fn nodes_that_nobody_has_seen_keep_the_others_out_until_somebody_knows_better() {
    // BL-118
    let mut world = World::new(3, 9);
    world.kill(3, false);
    world.join(1);
    world.join(2);
    world.rounds(80);
    let fears: Vec<u32> = world.node(1).order.feared().map(|(lost, _)| lost.life.node).collect();
    if fears.is_empty() {
        // The third one was seen before it went away, with nothing open.
        assert_eq!(view(&world, 1).members.len(), 2);
    } else {
        assert_eq!((fears, view(&world, 1).id), (vec![3], 0));
        world.fence(3);
        world.rounds(60);
        assert_eq!(view(&world, 1).members.len(), 2);
    }
    let rules = Rules { startup_fencing: false, ..RULES };
    let mut world = World::with_rules(3, 9, rules);
    world.kill(3, false);
    world.join(1);
    world.join(2);
    world.rounds(80);
    assert_eq!(view(&world, 1).members.len(), 2);
}

#[test]
fn a_lost_engine_ends_the_life_at_once() {
    let mut world = trio();
    world.node_mut(2).order.closed();
    let life = world.node(2).life;
    world.obey(2);
    assert!(!world.node(2).standing && world.node(2).life > life);
}

#[test]
fn who_left_in_good_order_is_not_feared() {
    let mut world = trio();
    world.leave(3);
    world.rounds(40);
    let goodbye = world.node_mut(3).order.close().expect("it has nothing left");
    world.node_mut(3).outbox.push_back(goodbye);
    world.rounds(10);
    world.kill(3, false);
    world.rounds(40);
    assert_eq!((world.is_quiet(), view(&world, 1).members.len()), (Ok(()), 2));
    assert_eq!(world.node_mut(1).order.close(), None, "it has a lockspace");
}

#[test]
fn where_there_is_a_lease_time_makes_the_lost_harmless() {
    let mut world = World::new(3, 5);
    world.nodes.values_mut().for_each(|node| node.order.setup.safe_after = 8_000_000_000);
    world.rounds(40);
    (1..=3).for_each(|node| world.join(node));
    world.rounds(60);
    world.kill(3, true);
    world.rounds(100);
    assert_eq!(view(&world, 1).unsafe_members.len(), 1, "5 s are not enough");
    // What the machine itself does by then.
    world.ghosts.clear();
    world.rounds(100);
    assert_eq!((world.is_quiet(), view(&world, 1).members.len()), (Ok(()), 2));
}

#[test]
fn an_engine_that_delivers_nothing_for_long_ends_granting() {
    let mut world = trio();
    for _ in 0..200 {
        world.now += 50_000_000;
        let now = Instant(world.now);
        world.node_mut(2).order.on_time(now, 1000);
        world.obey(2);
    }
    assert!(!world.node(2).standing);
    world.rounds(40);
    assert_eq!((world.node(2).standing, lives_over(&world)), (true, vec![0, 0, 0]));
}
