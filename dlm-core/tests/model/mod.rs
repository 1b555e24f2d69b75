//! The rules of semantics.md sections 1 to 6 for one lockspace on one node, told as naively as
//! possible: plain vectors, full scans, numbers instead of types. Written from that page alone, so
//! that an error of the engine is not repeated here; when the two disagree the page decides.
//!
//! A lock is named by its place in `locks`, a mode is its number with -1 for none.

pub(crate) mod client;
pub(crate) mod grant;
pub(crate) mod operate;

/// Mode numbers of 1.1.
pub(crate) const IV: i8 = -1;
pub(crate) const NL: i8 = 0;
pub(crate) const CW: i8 = 2;
pub(crate) const PR: i8 = 3;
pub(crate) const PW: i8 = 4;
pub(crate) const EX: i8 = 5;

/// Flag values of 2.1.
pub(crate) mod flag {
    pub(crate) const NOQUEUE: u32 = 0x1;
    pub(crate) const CANCEL: u32 = 0x2;
    pub(crate) const CONVERT: u32 = 0x4;
    pub(crate) const VALBLK: u32 = 0x8;
    pub(crate) const QUECVT: u32 = 0x10;
    pub(crate) const IVVALBLK: u32 = 0x20;
    pub(crate) const CONVDEADLK: u32 = 0x40;
    pub(crate) const PERSISTENT: u32 = 0x80;
    pub(crate) const NODLCKWT: u32 = 0x100;
    pub(crate) const EXPEDITE: u32 = 0x400;
    pub(crate) const NOQUEUEBAST: u32 = 0x800;
    pub(crate) const HEADQUE: u32 = 0x1000;
    pub(crate) const NOORDER: u32 = 0x2000;
    pub(crate) const ALTPR: u32 = 0x8000;
    pub(crate) const ALTCW: u32 = 0x1_0000;
    pub(crate) const FORCEUNLOCK: u32 = 0x2_0000;
    pub(crate) const TIMEOUT: u32 = 0x4_0000;
}

/// Status-block flags of 2.2.
pub(crate) const DEMOTED: u8 = 1;
pub(crate) const VALNOTVALID: u8 = 2;
pub(crate) const ALTMODE: u8 = 4;

/// Errors of calls, and statuses of completions, by their Linux numbers.
pub(crate) const EPERM: i32 = 1;
pub(crate) const ENOENT: i32 = 2;
pub(crate) const EAGAIN: i32 = 11;
pub(crate) const EBUSY: i32 = 16;
pub(crate) const EINVAL: i32 = 22;
pub(crate) const EDEADLK: i32 = 35;
pub(crate) const ETIMEDOUT: i32 = 110;
pub(crate) const ECANCEL: i32 = 0x10001;
pub(crate) const EUNLOCK: i32 = 0x10002;

pub(crate) type Value = [u8; 32];

/// What a lock's owner is told.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Told {
    Cast { lock: usize, status: i32, sb_flags: u8, granted: i8, value: Option<Value> },
    Bast { lock: usize, mode: i8 },
}

#[derive(Clone, Debug)]
pub(crate) struct Lock {
    /// Owning handle; `None`: an orphan, or gone.
    pub(crate) client: Option<usize>,
    pub(crate) pid: u32,
    pub(crate) gr: i8,
    /// Requested mode. Stays behind after a NOQUEUE conversion that failed (3.5, quirk).
    pub(crate) rq: i8,
    /// Sticky flags, 4.1.
    pub(crate) flags: u32,
    pub(crate) sb_flags: u8,
    /// The lock's own value block, from the first VALBLK on.
    pub(crate) buffer: Option<Value>,
    pub(crate) seq: u32,
    /// Bast memory, 3.5.
    pub(crate) memory: i8,
    pub(crate) wants_basts: bool,
    /// Granted mode at the last cast, and the last callback if that was a bast (5.2).
    pub(crate) last_cast: i8,
    pub(crate) last_bast: i8,
    /// Left by a deadlock cancel (4.4).
    pub(crate) deadlock_mark: bool,
    /// End of the time limit, in milliseconds.
    pub(crate) limit: Option<u64>,
    /// Position among its owner's locks, or among the orphans: older first.
    pub(crate) age: u64,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Resource {
    pub(crate) name: Vec<u8>,
    pub(crate) granted: Vec<usize>,
    pub(crate) converting: Vec<usize>,
    pub(crate) waiting: Vec<usize>,
    pub(crate) value: Option<Value>,
    pub(crate) seq: u32,
    /// VALNOTVALID.
    pub(crate) marked: bool,
    /// When the last lock went. The mark and `seq` outlive it for a while (1.4); we keep them only
    /// where there is a mark, since nobody can see the number of an unmarked one.
    pub(crate) idle_since_ms: Option<u64>,
}

impl Resource {
    fn queues(&mut self) -> [&mut Vec<usize>; 3] {
        [&mut self.granted, &mut self.converting, &mut self.waiting]
    }
}

/// One lockspace.
#[derive(Debug, Default)]
pub(crate) struct Model {
    pub(crate) locks: Vec<Lock>,
    /// Names that have locks, and marked ones that had them a moment ago.
    pub(crate) resources: Vec<Resource>,
    pub(crate) told: Vec<Told>,
    pub(crate) now_ms: u64,
    pub(crate) clock: u64,
    /// Handles that are being closed hear nothing any more.
    pub(crate) closing: Option<usize>,
}

/// 1.1.
pub(crate) fn compatible(a: i8, b: i8) -> bool {
    const ROWS: [&[u8; 6]; 6] = [b"111111", b"111110", b"111000", b"110100", b"110000", b"100000"];
    a < 0 || b < 0 || ROWS[a as usize][b as usize] == b'1'
}

/// 1.3.
pub(crate) fn quecvt_legal(from: i8, to: i8) -> bool {
    const ROWS: [&[u8; 6]; 6] = [b"-yyyyy", b"--yyyy", b"---yyy", b"--y-yy", b"-----y", b"------"];
    ROWS[from as usize][to as usize] == b'y'
}

/// 1.4: what a grant does with the value block; `from` IV is a new request.
pub(crate) fn value_letter(from: i8, to: i8) -> u8 {
    const ROWS: [&[u8; 6]; 6] = [b"RRRRRR", b"-RRRRR", b"--RRRR", b"---RRR", b"WWWWWR", b"WWWWWW"];
    if from == IV { b'R' } else { ROWS[from as usize][to as usize] }
}

impl Model {
    /// Which resource the lock is on; `None` for a lock that is gone.
    pub(crate) fn place(&self, lock: usize) -> Option<usize> {
        self.resources.iter().position(|resource| {
            [&resource.granted, &resource.converting, &resource.waiting]
                .iter()
                .any(|queue| queue.contains(&lock))
        })
    }

    /// Takes the lock out of whatever queue it is in.
    pub(crate) fn take_out(&mut self, lock: usize, resource: usize) {
        for queue in self.resources[resource].queues() {
            queue.retain(|other| *other != lock);
        }
    }

    /// Puts the lock on the granted queue: before the first lock whose requested mode is lower,
    /// which is the head unless an older failed conversion left its mode behind (3.5).
    pub(crate) fn put_granted(&mut self, lock: usize, resource: usize) {
        let mode = self.locks[lock].gr;
        let granted = &self.resources[resource].granted;
        let before = granted.iter().position(|other| self.locks[*other].rq < mode);
        let at = before.unwrap_or(granted.len());
        self.resources[resource].granted.insert(at, lock);
    }

    /// A time stamp no other call got.
    pub(crate) fn next_age(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    fn deaf(&self, lock: usize) -> bool {
        self.locks[lock].client.is_none() || self.locks[lock].client == self.closing
    }

    /// Queues a completion (5.2, 6.3).
    pub(crate) fn cast(&mut self, lock: usize, status: i32) {
        let deaf = self.deaf(lock);
        let record = &mut self.locks[lock];
        let letter = value_letter(record.last_cast, record.gr.max(NL));
        let value = record.buffer.filter(|_| status == 0 && letter != b'W');
        record.last_cast = record.gr;
        record.last_bast = IV;
        let (granted, sb_flags) = (record.gr, record.sb_flags);
        if !deaf {
            self.told.push(Told::Cast { lock, status, sb_flags, granted, value });
        }
    }

    /// Queues a blocking callback unless a filter of 5.2 drops it.
    pub(crate) fn bast(&mut self, lock: usize, mode: i8) {
        if self.deaf(lock) {
            return;
        }
        let record = &mut self.locks[lock];
        let stale = compatible(mode, record.last_cast);
        let last = record.last_bast;
        let redundant = last == mode || (last > mode && last > PR);
        if stale || redundant {
            return;
        }
        record.last_bast = mode;
        if record.wants_basts {
            self.told.push(Told::Bast { lock, mode });
        }
    }
}
