//! Handles that end, orphans, adoption, purge: semantics.md 6.4 and 6.5.

use super::{EAGAIN, ECANCEL, ENOENT, IV, Model, flag};

impl Model {
    fn owned(&self, client: usize) -> Vec<usize> {
        let all = 0..self.locks.len();
        let mut owned: Vec<usize> =
            all.filter(|lock| self.locks[*lock].client == Some(client)).collect();
        owned.sort_by_key(|lock| self.locks[*lock].age);
        owned
    }

    /// All orphans, the longest orphaned first.
    fn orphans(&self) -> Vec<usize> {
        let all = 0..self.locks.len();
        let mut orphans: Vec<usize> = all
            .filter(|lock| self.locks[*lock].client.is_none() && self.place(*lock).is_some())
            .collect();
        orphans.sort_by_key(|lock| self.locks[*lock].age);
        orphans
    }

    /// Force-unlock with IVVALBLK, silently.
    fn drop_lock(&mut self, lock: usize) {
        let resource = self.place(lock).expect("it is there");
        self.locks[lock].flags |= flag::IVVALBLK | flag::FORCEUNLOCK;
        self.remove(lock, resource, 0);
    }

    /// 6.4: the handle is closed or its process gone. Oldest first; waiting ones never stay (D8).
    pub(crate) fn end_client(&mut self, client: usize) {
        self.closing = Some(client);
        for lock in self.owned(client) {
            let resource = self.place(lock).expect("an owned lock is somewhere");
            if self.locks[lock].flags & flag::PERSISTENT == 0 || self.locks[lock].gr == IV {
                self.drop_lock(lock);
                continue;
            }
            if self.resources[resource].converting.contains(&lock) {
                self.stop_waiting(lock, resource, ECANCEL);
            }
            self.locks[lock].client = None;
            self.locks[lock].age = self.next_age();
        }
        self.closing = None;
    }

    /// Everything this handle owns (its own pid at its own node).
    pub(crate) fn purge_own(&mut self, client: usize) {
        self.closing = Some(client);
        for lock in self.owned(client) {
            self.drop_lock(lock);
        }
        self.closing = None;
    }

    /// Orphans of one owner, or of all with pid 0.
    pub(crate) fn purge_orphans(&mut self, pid: u32) {
        for lock in self.orphans() {
            if pid == 0 || self.locks[lock].pid == pid {
                self.drop_lock(lock);
            }
        }
    }

    /// Which orphans a request with ORPHAN may take, or its error.
    pub(crate) fn adoptable(&self, name: &[u8], mode: i8) -> Result<Vec<usize>, i32> {
        let orphans = self.orphans().into_iter();
        let named = orphans.filter(|lock| {
            self.place(*lock).is_some_and(|resource| self.resources[resource].name == name)
        });
        let named: Vec<usize> = named.collect();
        let fit = named.iter().copied().filter(|lock| self.locks[*lock].gr == mode);
        let fit: Vec<usize> = fit.collect();
        match (fit.is_empty(), named.is_empty()) {
            (false, _) => Ok(fit),
            (true, false) => Err(EAGAIN),
            (true, true) => Err(ENOENT),
        }
    }

    /// Adoption of one of [`Self::adoptable`]: flags and pid are the call's; no cast.
    pub(crate) fn adopt(
        &mut self,
        lock: usize,
        client: usize,
        pid: u32,
        flags: u32,
        wants_basts: bool,
    ) {
        let age = self.next_age();
        let own = &mut self.locks[lock];
        own.client = Some(client);
        own.pid = pid;
        own.flags = flags;
        own.wants_basts = wants_basts;
        own.age = age;
    }
}
