//! What must be true when nothing more can happen.

use dlm_core::{Audit, Member};

use crate::script::{Scenario, When};
use crate::world::World;

/// A sentence about what is wrong with a state that has no next one.
pub fn check(scenario: &Scenario, world: &World) -> Result<(), String> {
    let ids = 1..=world.hosts.len() as u32;
    let latest = world.views.last().expect("there is a first view");
    if world.fault < scenario.faults.len() {
        return Err(format!("{:?} never comes", scenario.faults[world.fault]));
    }
    let mut books: Vec<(Member, Audit)> = Vec::new();
    for id in ids {
        let host = world.host(id);
        check_client(scenario, world, id)?;
        let Some(stay) = host.stay.filter(|stay| host.up && latest.members.contains(stay)) else {
            continue;
        };
        if host.view != latest.id.0 {
            return Err(format!("node {id} has not installed view {}", latest.id.0));
        }
        let audit = host.space.map(|space| host.node.audit(space)).unwrap_or_default();
        if let Some(owed) = audit.owed.first() {
            return Err(format!("node {id} is not at rest: {owed}"));
        }
        books.push((stay, audit));
    }
    check_books(&books)?;
    (scenario.end)(world)
}

/// Programs are through, and operations that are open wait for somebody who holds.
fn check_client(scenario: &Scenario, world: &World, id: u32) -> Result<(), String> {
    let host = world.host(id);
    if !host.up {
        return Ok(());
    }
    if let Some((_, step)) = world.next_step(scenario, id)
        && step.when != When::Told
    {
        return Err(format!("node {id} never comes to {step:?}: {:?}", host.client.locks));
    }
    for held in host.client.locks.iter().filter(|held| held.is_busy()) {
        let wanted = held.pending.filter(|_| !held.unlocking);
        let mut others = world.hosts.iter().flat_map(|slot| &slot.1.client.locks);
        let explained = wanted.is_some_and(|mode| {
            others.any(|of| of != held && of.believed().is_some_and(|has| !has.compatible(mode)))
        });
        if !explained {
            return Err(format!("node {id}: nothing explains why {held:?} waits"));
        }
    }
    Ok(())
}

/// Every name has one master, and its directory says which (R5 to R9).
fn check_books(books: &[(Member, Audit)]) -> Result<(), String> {
    for (member, audit) in books {
        for mastered in &audit.masters {
            let same = |(_, other): &&(Member, Audit)| {
                other.masters.iter().any(|of| of.name == mastered.name)
            };
            let masters: Vec<_> = books.iter().filter(same).map(|(of, _)| of.node.0).collect();
            if masters.len() > 1 {
                return Err(format!("nodes {masters:?} all master {:?}", mastered.name));
            }
            let directory = books.iter().find(|(of, _)| *of == mastered.directory);
            let Some((owner, directory)) = directory else {
                return Err(format!("{mastered:?} has its directory at no member"));
            };
            let entry = (mastered.name.clone(), *member, mastered.term);
            if owner != member && !directory.entries.contains(&entry) {
                return Err(format!(
                    "{member:?} masters {mastered:?}, and its directory says {:?}",
                    directory.entries
                ));
            }
        }
        for (name, master, term) in &audit.entries {
            let known = books.iter().find(|(of, _)| of == master).is_some_and(|(_, of)| {
                of.masters.iter().any(|m| m.name == *name && m.term == *term)
            });
            if !known {
                return Err(format!("the directory of {member:?} names {master:?} as master"));
            }
        }
    }
    Ok(())
}
