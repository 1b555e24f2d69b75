//! Granting: semantics.md section 3, and the value block at grant (1.4).

use super::{
    ALTMODE, CW, DEMOTED, EX, IV, Model, NL, PR, VALNOTVALID, compatible, flag, value_letter,
};

/// When a grant is tried.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum When {
    /// During the lock's own call.
    Now,
    /// In a pass.
    Later,
}

/// What came of a try (3.1 and the alternatives behind it).
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Try {
    Yes,
    No,
    Deadlock,
    Demoted,
}

impl Model {
    /// 3.1, rule by rule (rule 4 belongs to recovery).
    pub(crate) fn grantable(&self, lock: usize, resource: usize, when: When) -> bool {
        let (own, place) = (&self.locks[lock], &self.resources[resource]);
        let has = |flag: u32| own.flags & flag != 0;
        let conv = own.gr != IV;
        let conflict = |queue: &[usize]| {
            let others = queue.iter().filter(|other| **other != lock);
            others.into_iter().any(|other| !compatible(self.locks[*other].gr, own.rq))
        };
        if has(flag::EXPEDITE) {
            return true;
        }
        if conflict(&place.granted) || conflict(&place.converting) {
            return false;
        }
        if when == When::Now && conv {
            return !has(flag::QUECVT) || place.converting.is_empty();
        }
        if has(flag::NOORDER) {
            return true;
        }
        match (when, conv) {
            (_, true) => place.converting.first() == Some(&lock),
            (When::Now, false) => place.converting.is_empty() && place.waiting.is_empty(),
            (When::Later, false) => {
                place.converting.is_empty() && place.waiting.first() == Some(&lock)
            }
        }
    }

    /// 1.6.
    fn deadlocked(&self, lock: usize, resource: usize) -> bool {
        let blocks = |x: usize, y: usize| !compatible(self.locks[x].gr, self.locks[y].rq);
        let mut behind = false;
        for other in &self.resources[resource].converting {
            if *other == lock {
                behind = true;
            } else if blocks(lock, *other) && (!behind || blocks(*other, lock)) {
                return true;
            }
        }
        false
    }

    /// 3.1 with what follows a no: the deadlock test, else the alternative mode (1.5).
    pub(crate) fn try_grant(&mut self, lock: usize, resource: usize, when: When) -> Try {
        if self.grantable(lock, resource, when) {
            return Try::Yes;
        }
        let (flags, rq, gr) = (self.locks[lock].flags, self.locks[lock].rq, self.locks[lock].gr);
        if gr != IV && flags & flag::NOQUEUE == 0 && self.deadlocked(lock, resource) {
            if flags & flag::CONVDEADLK == 0 {
                return Try::Deadlock;
            }
            self.locks[lock].gr = NL;
            self.locks[lock].sb_flags |= DEMOTED;
            return Try::Demoted;
        }
        let alternative = match () {
            () if flags & flag::ALTPR != 0 && rq != PR => PR,
            () if flags & flag::ALTCW != 0 && rq != CW => CW,
            () => return Try::No,
        };
        self.locks[lock].rq = alternative;
        if self.grantable(lock, resource, when) {
            self.locks[lock].sb_flags |= ALTMODE;
            return Try::Yes;
        }
        self.locks[lock].rq = rq;
        Try::No
    }

    /// Grants: value block, mode, queue, bast memory, cast 0.
    pub(crate) fn grant(&mut self, lock: usize, resource: usize) {
        self.move_value(lock, resource);
        let own = &mut self.locks[lock];
        let keeps_place = own.gr == own.rq && self.resources[resource].granted.contains(&lock);
        own.gr = own.rq;
        own.rq = IV;
        own.memory = NL;
        own.limit = None;
        if !keeps_place {
            self.take_out(lock, resource);
            self.put_granted(lock, resource);
        }
        self.cast(lock, 0);
    }

    /// 1.4, at grant.
    fn move_value(&mut self, lock: usize, resource: usize) {
        let (own, place) = (&mut self.locks[lock], &mut self.resources[resource]);
        let valblk = own.flags & flag::VALBLK != 0;
        match value_letter(own.gr, own.rq) {
            b'R' => {
                if let (Some(buffer), true, Some(value)) = (&mut own.buffer, valblk, place.value) {
                    *buffer = value;
                    own.seq = place.seq;
                    own.sb_flags |= if place.marked { VALNOTVALID } else { 0 };
                }
            }
            b'W' if own.flags & flag::IVVALBLK != 0 => place.marked = true,
            b'W' => {
                if let (Some(buffer), true) = (own.buffer, valblk) {
                    place.value = Some(buffer);
                    place.seq += 1;
                    own.seq = place.seq;
                    place.marked = false;
                }
            }
            _ => own.sb_flags |= if place.marked { VALNOTVALID } else { 0 },
        }
    }

    /// 3.4 A: the converting queue; the strongest blocked mode, and whether CW was among them.
    pub(crate) fn pass_converting(&mut self, resource: usize) -> (i8, bool) {
        let (mut cw, mut restarts_by_demotion) = (false, 0);
        loop {
            let (mut high, mut granted, mut demoted) = (IV, false, false);
            for lock in self.resources[resource].converting.clone() {
                match self.try_grant(lock, resource, When::Later) {
                    Try::Yes => {
                        self.grant(lock, resource);
                        granted = true;
                    }
                    Try::Demoted => demoted = true,
                    Try::Deadlock => {
                        let own = &mut self.locks[lock];
                        if own.flags & flag::NODLCKWT != 0 && own.memory < own.rq {
                            own.memory = own.rq;
                            let mode = own.rq;
                            self.bast(lock, mode);
                        }
                    }
                    Try::No => {
                        high = high.max(self.locks[lock].rq);
                        cw |= self.locks[lock].rq == CW;
                    }
                }
            }
            if granted {
                continue;
            }
            if !demoted || restarts_by_demotion == 1 {
                return (high, cw);
            }
            restarts_by_demotion += 1;
        }
    }

    /// 3.4.
    pub(crate) fn pass(&mut self, resource: usize) {
        let (mut high, mut cw) = self.pass_converting(resource);
        for lock in self.resources[resource].waiting.clone() {
            if self.try_grant(lock, resource, When::Later) == Try::Yes {
                self.grant(lock, resource);
            } else {
                high = high.max(self.locks[lock].rq);
                cw |= self.locks[lock].rq == CW;
            }
        }
        if high == IV {
            return;
        }
        for holder in self.resources[resource].granted.clone() {
            let (gr, memory) = (self.locks[holder].gr, self.locks[holder].memory);
            let due = match gr == PR && cw {
                true => memory < EX,
                false => memory < high && !compatible(gr, high),
            };
            if due {
                self.locks[holder].memory = high;
                self.bast(holder, if cw && high == PR && gr == PR { CW } else { high });
            }
        }
    }

    /// 3.5, request rule: tells the holders of `queue` that `asker` wants `mode`.
    pub(crate) fn tell(&mut self, queue: &[usize], asker: usize, mode: i8) {
        for holder in queue.iter().copied().filter(|holder| *holder != asker) {
            let (gr, memory) = (self.locks[holder].gr, self.locks[holder].memory);
            let middle = (gr == PR && mode == CW) || (gr == CW && mode == PR);
            let due = match middle {
                true => memory < EX,
                false => memory < mode && !compatible(gr, mode),
            };
            if due {
                self.locks[holder].memory = mode;
                self.bast(holder, mode);
            }
        }
    }
}
