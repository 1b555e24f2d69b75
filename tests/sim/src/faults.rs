//! Faults, drawn while the world is rough and undone when it is to heal.

use dlm_core::message::{Body, Message, Tagged};
use dlm_core::{Input, Name, Token};

use crate::world::{Event, Phase, World};

/// Numbers that are left at most where they are scarce.
const NUMBERS_LEFT: u64 = 12;

impl World {
    /// One draw of faults.
    pub(crate) fn faults(&mut self) -> Result<(), String> {
        self.at(self.now + self.options.period, Event::Faults);
        if self.phase == Phase::Rough {
            self.faults_of_nodes()?;
            self.faults_of_wires();
            self.faults_of_clients()?;
            self.faults_of_numbers()?;
        } else {
            self.undo()?;
        }
        for space in 0..self.options.spaces {
            let renews = self.phase == Phase::Rough && self.rng.chance(self.options.renewals);
            self.membership.renew.extend(renews.then_some(space));
            self.decide(space);
        }
        Ok(())
    }

    fn fine(&self, node: usize) -> bool {
        let host = &self.hosts[node];
        host.alive && !host.cut && !host.paused && !host.excluded
    }

    fn faults_of_nodes(&mut self) -> Result<(), String> {
        let period = self.options.period;
        let blackout = self.rng.chance(self.options.blackouts);
        for node in 0..self.hosts.len() {
            let fine = (0..self.hosts.len()).filter(|node| self.fine(*node)).count();
            if !self.hosts[node].alive {
                continue;
            }
            if blackout || (fine > 1 && self.rng.chance(self.options.crashes)) {
                self.kill(node);
                continue;
            }
            if fine <= 1 || !self.fine(node) {
                continue;
            }
            let (member, life) = (self.hosts[node].life, self.hosts[node].life.incarnation);
            if self.rng.chance(self.options.cuts) {
                self.cut_off(node);
                self.later(8 * period, Event::Mend { node });
                self.later(self.options.notice, Event::Notice { life: member, sure: false });
            } else if self.rng.chance(self.options.pauses) {
                self.hosts[node].paused = true;
                self.later(6 * period, Event::Wake { node, life });
                self.later(2 * period, Event::Notice { life: member, sure: false });
            } else if self.rng.chance(self.options.excludes) {
                self.later(self.options.notice, Event::Notice { life: member, sure: true });
            } else if self.rng.chance(self.options.leaves) {
                let space = self.rng.below(self.options.spaces as u64) as usize;
                self.leave(node, space)?;
            }
        }
        Ok(())
    }

    fn faults_of_wires(&mut self) {
        let nodes = self.hosts.len();
        if nodes < 2 {
            return;
        }
        let node = self.rng.below(nodes as u64) as usize;
        let with = (node + 1 + self.rng.below(nodes as u64 - 1) as usize) % nodes;
        if self.options.sessions && self.rng.chance(self.options.resets) {
            self.reset_connection(node, with);
        }
        if self.rng.chance(self.options.one_way) && self.fine(node) && self.fine(with) {
            self.net.cut.insert((node, with));
            if self.rng.chance(50) {
                self.later(3 * self.options.period, Event::Heal { from: node, to: with });
                return;
            }
            // For too long: one of the two has to go (B5).
            let out = if self.rng.chance(50) { node } else { with };
            let life = self.hosts[out].life;
            let out_at = self.now + 4 * self.options.period;
            self.at(out_at, Event::Notice { life, sure: true });
            self.at(out_at + self.options.period, Event::Heal { from: node, to: with });
        }
    }

    fn faults_of_clients(&mut self) -> Result<(), String> {
        for node in 0..self.hosts.len() {
            let host = &self.hosts[node];
            if host.alive && !host.paused && self.rng.chance(self.options.deaths) {
                let client = self.rng.below(self.options.clients as u64) as usize;
                if self.hosts[node].clients[client].open {
                    self.restart_client(node, client)?;
                }
            }
        }
        Ok(())
    }

    /// A node hears of a name whose master had nearly all numbers of the view (recovery.md R19).
    fn faults_of_numbers(&mut self) -> Result<(), String> {
        if self.options.scarce == 0 {
            return Ok(());
        }
        for node in 0..self.hosts.len() {
            for space in 0..self.options.spaces {
                let host = &self.hosts[node];
                let stay = host.stays[space].as_ref().filter(|_| host.alive && !host.paused);
                let Some((member, id, Some(view))) =
                    stay.map(|stay| (stay.member, stay.id, stay.view.clone()))
                else {
                    continue;
                };
                if !self.rng.chance(self.options.scarce) {
                    continue;
                }
                let Some(info) = self.hosts[node].node.lockspace(id) else { continue };
                let low = u64::from(u32::MAX) - self.rng.below(NUMBERS_LEFT);
                let last = Token((u64::from(view.id.0) << 32) | low);
                let name = Name::new(b"of another").expect("short");
                let body = Body::Tagged(view.id, Tagged::Remove { name, term: Token(1), last });
                let (from, to) = (member.incarnation, member.incarnation);
                let message = Message { space: info.global_id, from, to, body };
                self.step(node, Input::Peer(member.node, message))?;
            }
        }
        Ok(())
    }

    /// All faults are over.
    fn undo(&mut self) -> Result<(), String> {
        for node in 0..self.hosts.len() {
            if self.hosts[node].paused {
                self.wake(node, self.hosts[node].life.incarnation)?;
            }
            if self.hosts[node].cut {
                self.mend(node);
            }
        }
        for (from, to) in self.net.cut.clone() {
            self.heal(from, to);
        }
        Ok(())
    }

    fn cut_off(&mut self, node: usize) {
        self.hosts[node].cut = true;
        for other in (0..self.hosts.len()).filter(|other| *other != node) {
            self.net.cut.insert((node, other));
            self.net.cut.insert((other, node));
        }
    }

    /// A cut node is back.
    pub(crate) fn mend(&mut self, node: usize) {
        if !core::mem::take(&mut self.hosts[node].cut) {
            return;
        }
        for other in (0..self.hosts.len()).filter(|other| *other != node) {
            if !self.hosts[other].cut {
                self.heal(node, other);
                self.heal(other, node);
            }
        }
    }

    /// A node goes on, in the world as it knew it.
    pub(crate) fn wake(&mut self, node: usize, life: u64) -> Result<(), String> {
        let host = &mut self.hosts[node];
        if !host.alive || host.life.incarnation != life || !core::mem::take(&mut host.paused) {
            return Ok(());
        }
        for event in core::mem::take(&mut host.backlog) {
            self.handle(event)?;
        }
        Ok(())
    }
}
