//! What must be true between steps. A lock manager in doubt must not grant: a broken invariant stops
//! the process.

use crate::away::Kind;
use crate::lock::{Chain, Owner, Queue};
use crate::lockspace::LockTable;
use crate::resource::Resource;
use crate::slab::NIL;
use crate::{LockState, Mode};

impl LockTable {
    /// The cheap half, after every grant: the modes held on a resource exclude each other nowhere.
    #[inline]
    pub(crate) fn check_exclusion(&self, resource: u32) {
        let held = &self.resources[resource];
        let set = held.held_set();
        for mode in Mode::ALL {
            let count = held.held(mode);
            let others = set & !(1 << mode as u8);
            let excluded = others & !mode.compatible_set() != 0;
            let doubled = count > 1 && !mode.compatible(mode);
            if count > 0 && (excluded || doubled) {
                self.broken_exclusion(resource);
            }
        }
    }

    #[cold]
    fn broken_exclusion(&self, resource: u32) -> ! {
        let resource = &self.resources[resource];
        let queues = crate::inspect::resource(self, resource);
        panic!("incompatible modes are granted on {:?}: {queues:?}", resource.name);
    }

    /// Everything, by walking everything.
    pub(crate) fn check(&self) {
        let mut seen = 0;
        for index in 1..self.resources.end() {
            let Some(resource) = self.resources.get(index) else { continue };
            let found = self.find_resource(resource.name.as_bytes());
            assert_eq!(found, Some(index), "{:?} is not found by its name", resource.name);
            seen += self.check_resource(index, resource);
        }
        assert_eq!(seen, self.locks.len(), "a lock is on no queue, or on two");
        let orphans = self.walk(self.orphans, Chain::Owner);
        assert_eq!(orphans.len() as u64, self.orphan_count, "orphans are counted wrong");
        assert!(orphans.iter().all(|index| self.locks[*index].owner == Owner::Orphan));
    }

    fn check_resource(&self, index: u32, resource: &Resource) -> usize {
        let name = &resource.name;
        let mut held = [0; 6];
        let mut total = 0;
        let (mut converting, mut waiting) = ([0; 6], [0; 6]);
        total += self.check_role(index, resource);
        let queues = [
            (resource.granted, LockState::Granted),
            (Queue::from_heads(resource.first_converting()), LockState::Converting),
            (Queue::from_heads(resource.first_waiting()), LockState::Waiting),
        ];
        for (queue, state) in queues {
            for at in self.walk(queue, Chain::Resource) {
                let lock = &self.locks[at];
                total += 1;
                assert_eq!(lock.resource, index, "{name:?}: a stranger's lock {:?}", lock.id);
                assert_eq!(lock.state, state, "{name:?}: {:?} is on another queue", lock.id);
                if let Some(mode) = lock.granted {
                    held[mode as usize] += 1;
                }
                match (state, lock.requested) {
                    (LockState::Granted, _) => assert!(lock.granted.is_some(), "{name:?}"),
                    (LockState::Converting, Some(mode)) => converting[mode as usize] += 1,
                    (LockState::Waiting, Some(mode)) => waiting[mode as usize] += 1,
                    (_, None) => panic!("{name:?}: {:?} waits for nothing", lock.id),
                }
            }
        }
        let counted = Mode::ALL.map(|mode| resource.held(mode));
        assert_eq!(held, counted, "{name:?}: held modes are counted wrong");
        if let Some(contention) = &resource.contention {
            assert_eq!(converting, contention.converting_modes, "{name:?}: converting modes");
            assert_eq!(waiting, contention.waiting_modes, "{name:?}: waiting modes");
        }
        self.check_exclusion(index);
        total
    }

    /// Own locks of a name that is not served here, and records collected for one being rebuilt.
    fn check_role(&self, index: u32, resource: &Resource) -> usize {
        let Some(role) = &resource.role else { return 0 };
        assert!(resource.granted.is_empty(), "{:?} is not served, yet has queues", resource.name);
        let own = self.walk(role.own, Chain::Resource);
        for at in &own {
            let lock = &self.locks[*at];
            assert_eq!(lock.resource, index, "{:?}: a stranger's lock", resource.name);
            assert!(lock.away().is_some(), "{:?}: {:?} is not away", resource.name, lock.id);
        }
        let Kind::Rebuilding(records) = &role.kind else { return own.len() };
        let copies = records
            .iter()
            .filter(|record| matches!(self.locks[record.lock].owner, Owner::Remote { .. }));
        own.len() + copies.count()
    }

    fn walk(&self, queue: Queue, chain: Chain) -> Vec<u32> {
        let mut all: Vec<u32> = Vec::new();
        let mut at = queue.head;
        while at != NIL {
            assert!(all.len() <= self.locks.len(), "a queue runs in a circle");
            all.push(at);
            at = self.locks[at].next(chain);
        }
        all
    }
}
