//! What must be so when nothing happens any more: each name has one master and the directory names it, both
//! sides know the same of each lock, nobody waits without a reason, and whoever is the reason was told.

use std::collections::BTreeMap;

use dlm_core::{LockFlags, LockInfo, LockState, Mode, Node, Reason, ResourceInfo};

use crate::client::{Client, Held};
use crate::world::{Host, Stay, World, name_of};

impl World {
    /// Whether all faults are over and all nodes know what there is to know.
    pub(crate) fn is_settled(&self) -> bool {
        let hosts = self.hosts.iter().enumerate().all(|(node, host)| {
            let fine = host.alive && !host.cut && !host.paused && !host.excluded;
            let clients = |client: &Client| client.open && client.inbox.is_empty();
            fine && !self.is_frozen(node)
                && host.clients.iter().all(clients)
                && (0..self.options.spaces).all(|space| self.has_settled(host, space))
        });
        // Who asked for a view gets one: for its numbers, or to give a slot up.
        hosts && self.membership.renew.is_empty() && self.ghosts.is_empty() && self.net_is_quiet()
    }

    fn has_settled(&self, host: &Host, space: usize) -> bool {
        let view = &self.membership.spaces[space].view;
        let Some(stay) = &host.stays[space] else { return false };
        let Some(info) = host.node.lockspace(stay.id) else { return false };
        let works =
            |node: &Node| matches!(node.deadline(), Some((_, Reason::Heard | Reason::Work)));
        stay.view.as_ref().is_some_and(|installed| installed.id == view.id)
            && view.members.len() == self.hosts.len()
            && view.members.contains(&stay.member)
            && info.due.is_empty()
            && !info.leaving
            && !works(&host.node)
    }

    /// Whether nothing is left of anything.
    pub(crate) fn is_empty(&self) -> bool {
        let empty = |host: &Host| {
            host.clients.iter().all(Client::is_idle)
                && host.node.lockspaces().iter().all(|space| {
                    space.locks == 0 && space.directory == 0 && {
                        let audit = host.node.audit(space.id);
                        audit.masters.is_empty() && audit.owed.is_empty()
                    }
                })
        };
        self.is_settled() && self.hosts.iter().all(empty) && self.oracle.nothing_held()
    }

    /// Checks a settled world.
    pub(crate) fn check_rest(&self) -> Result<(), String> {
        for space in 0..self.options.spaces {
            self.check_directory(space)?;
            for host in &self.hosts {
                let stay = host.stays[space].as_ref().expect("a settled host has its stays");
                let audit = host.node.audit(stay.id);
                // Who masters a name is remembered for a while.
                let mut owed = audit.owed.iter().filter(|owed| !owed.ends_with("without a lock"));
                if let Some(owed) = owed.next() {
                    return Err(format!("rest: {:?} owes: {owed}", stay.member));
                }
                self.check_clients(host, stay, space)?;
            }
            for name in 0..self.options.names {
                self.check_name(space, name)?;
            }
        }
        Ok(())
    }

    fn stays_in(&self, space: usize) -> impl Iterator<Item = (&Host, &Stay)> {
        self.hosts.iter().filter_map(move |host| Some((host, host.stays[space].as_ref()?)))
    }

    /// Directory = masters.
    fn check_directory(&self, space: usize) -> Result<(), String> {
        let mut masters = BTreeMap::new();
        let mut entries = BTreeMap::new();
        for (host, stay) in self.stays_in(space) {
            let audit = host.node.audit(stay.id);
            for mastered in audit.masters {
                let own = mastered.directory == stay.member;
                let place = (mastered.name, mastered.directory);
                let term = (!own).then_some(mastered.term);
                if let Some(other) = masters.insert(place.clone(), (stay.member, term)) {
                    return Err(format!("rest: {place:?} has two masters, {other:?} and {stay:?}"));
                }
            }
            for (name, master, term) in audit.entries {
                entries.insert((name, stay.member), (master, Some(term)));
            }
        }
        masters.retain(|_, (_, term)| term.is_some());
        if masters == entries {
            return Ok(());
        }
        Err(format!("rest: the masters are {masters:?}, the directory says {entries:?}"))
    }

    /// What clients know is what their node knows.
    fn check_clients(&self, host: &Host, stay: &Stay, space: usize) -> Result<(), String> {
        for client in host.clients.iter().filter(|client| client.space == space) {
            for held in &client.locks {
                let resource = host.node.resource(stay.id, &name_of(held.name));
                let lock = resource.as_ref().and_then(|resource| find(resource, held));
                let pending = held.pending.is_some() && !held.unlocking;
                let fits = lock.is_some_and(|lock| {
                    let demoted = pending && held.flags.has(LockFlags::CONVDEADLK);
                    let mode =
                        lock.granted == held.granted || (demoted && lock.granted == Some(Mode::NL));
                    mode && (lock.state != LockState::Granted) == pending
                });
                if !fits || held.unlocking || held.cancelling && held.pending.is_some() {
                    return Err(format!("rest: {held:?} of {:?} is {lock:?}", client.id));
                }
            }
        }
        Ok(())
    }

    /// Both sides of each lock, and its reason to wait.
    fn check_name(&self, space: usize, name: usize) -> Result<(), String> {
        let bytes = name_of(name);
        let known: Vec<(&Host, ResourceInfo)> = self
            .stays_in(space)
            .filter_map(|(host, stay)| Some((host, host.node.resource(stay.id, &bytes)?)))
            .collect();
        let Some((master, table)) = known.iter().find(|(_, info)| info.master.is_none()) else {
            return match known.first() {
                None => Ok(()),
                Some((_, info)) => Err(format!("rest: {info:?} has locks and no master")),
            };
        };
        for (host, info) in known.iter().filter(|(_, info)| info.master.is_some()) {
            if info.master != Some(master.life.node) {
                return Err(format!("rest: {:?} takes {:?} for a master", host.life, info.master));
            }
            for own in all(info) {
                let of = Some((host.life.node, own.id));
                let copy = all(table).find(|lock| lock.copy && lock.remote == of);
                let fits = copy.is_some_and(|copy| {
                    // A demotion is told with the grant.
                    let demoted = copy.granted == Some(Mode::NL)
                        && own.state == LockState::Converting
                        && own.flags.has(LockFlags::CONVDEADLK);
                    (demoted || copy.granted == own.granted)
                        && copy.state == own.state
                        && copy.requested == own.requested
                        && own.remote == Some((master.life.node, copy.id))
                });
                if !fits {
                    return Err(format!("rest: {own:?} of {:?} is {copy:?}", host.life));
                }
            }
        }
        let copies = all(table).filter(|lock| lock.copy).count();
        let owned = known.iter().filter(|(_, info)| info.master.is_some());
        let owned: usize = owned.map(|(_, info)| all(info).count()).sum();
        if copies != owned {
            return Err(format!("rest: {copies} copies of {owned} locks: {table:?}"));
        }
        self.check_waits(space, name, table)
    }

    /// Nobody waits who could be granted, and those in the way were told.
    fn check_waits(&self, space: usize, name: usize, table: &ResourceInfo) -> Result<(), String> {
        let holders = || table.granted.iter().chain(&table.converting);
        let blocked = |lock: &LockInfo, mode: Mode| {
            let other = |holder: &&LockInfo| !core::ptr::eq(*holder, lock);
            holders().filter(other).any(|h| h.granted.is_some_and(|held| !held.compatible(mode)))
        };
        // Who goes to the head of a queue is looked at with the next pass only (3.2).
        let first = table.converting.first().or(table.waiting.first());
        if let Some(lock) = first.filter(|lock| !lock.flags.has(LockFlags::HEADQUE)) {
            let mode = lock.requested.ok_or("rest: a waiting lock asks for nothing")?;
            if !blocked(lock, mode) {
                return Err(format!("lost wake-up: {lock:?} waits for nobody: {table:?}"));
            }
        }
        // Conversions that wait for each other count as no reason to tell anybody (3.4).
        if !table.converting.is_empty() {
            return Ok(());
        }
        for waiter in &table.waiting {
            let Some(mode) = waiter.requested else { continue };
            let in_the_way = |held: &Held| {
                held.rests() && held.granted.is_some_and(|granted| !granted.compatible(mode))
            };
            for client in self.hosts.iter().flat_map(|host| &host.clients) {
                let locks = client.locks.iter().filter(|_| client.space == space);
                let mut holders = locks.filter(|held| held.name == name && in_the_way(held));
                if let Some(held) = holders.find(|held| !was_told(held)) {
                    return Err(format!(
                        "blocking: {waiter:?} waits for {held:?} of {:?}, who was not told: {table:?}",
                        client.id
                    ));
                }
            }
        }
        Ok(())
    }

    /// What is not as it should be, for a report.
    pub(crate) fn unrest(&self) -> String {
        let mut text = format!("at {}, {} ghosts", self.now, self.ghosts.len());
        if !self.net_is_quiet() {
            text += ", messages are under way";
        }
        for host in &self.hosts {
            text += &format!(
                "\n  {:?} alive {} cut {} paused {} excluded {}",
                host.life, host.alive, host.cut, host.paused, host.excluded
            );
            for (space, stay) in host.stays.iter().enumerate() {
                let Some(stay) = stay else { continue };
                let view = &self.membership.spaces[space].view;
                text += &format!(
                    "\n    space {space}: {:?} installed {:?} of {:?} {:?}",
                    stay.member,
                    stay.view.as_ref().map(|view| view.id),
                    view.id,
                    view.members
                );
                if let Some(info) = host.node.lockspace(stay.id) {
                    text += &format!(" due {:?} locks {}", info.due, info.locks);
                    text += &format!("\n      {:?}", host.node.audit(stay.id));
                    text += &format!("\n      {:?}", host.node.dump(stay.id, 0, 100).resources);
                }
            }
            for client in host.clients.iter().filter(|client| !client.is_idle() || !client.open) {
                text += &format!("\n    {client:?}");
            }
        }
        text
    }
}

fn all(info: &ResourceInfo) -> impl Iterator<Item = &LockInfo> {
    info.granted.iter().chain(&info.converting).chain(&info.waiting)
}

fn find<'a>(resource: &'a ResourceInfo, held: &Held) -> Option<&'a LockInfo> {
    all(resource).find(|lock| lock.id == held.id && !lock.copy)
}

/// Whether a holder was told of a mode that its own excludes, or nobody had to tell it.
fn was_told(held: &Held) -> bool {
    let granted = held.granted.expect("asked of holders only");
    let told = |mode: &Mode| held.told & (1 << *mode as u8) != 0 && !granted.compatible(*mode);
    let unordered = held.unordered || held.flags.has(LockFlags::NOORDER);
    unordered || Mode::ALL.iter().any(told)
}
