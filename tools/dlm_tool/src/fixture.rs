//! Literal records and a scripted daemon for the tests of the formats.

use std::collections::VecDeque;

use dlm_ipc::control::{
    ChangeRecord, ControlReply, ControlRequest, DaemonFencing, LockRecord, NodeRecord,
    ResourceRecord, SpaceNodeRecord, SpaceRecord, StatusRecord, TablePage, ValueRecord,
};

use crate::context::{Code, Context, Daemon, Fail, Outcome, Trouble};

/// A daemon that gives prepared answers and remembers the questions.
pub(crate) struct Script {
    answers: VecDeque<Result<ControlReply, Trouble>>,
    /// What was asked, in order.
    pub(crate) asked: Vec<ControlRequest>,
}

impl Script {
    pub(crate) fn new(answers: impl IntoIterator<Item = Result<ControlReply, Trouble>>) -> Self {
        Self { answers: answers.into_iter().collect(), asked: Vec::new() }
    }

    /// Nobody listens.
    pub(crate) fn absent() -> Self {
        Self::new(std::iter::repeat_n(Err(Trouble::Absent("no daemon at /nowhere".to_owned())), 8))
    }

    /// Somebody listens and is silent.
    pub(crate) fn silent() -> Self {
        Self::new(std::iter::repeat_n(Err(Trouble::Silent("no answer for 4.5 s".to_owned())), 8))
    }
}

impl Daemon for Script {
    fn ask(&mut self, request: &ControlRequest) -> Result<ControlReply, Trouble> {
        self.asked.push(request.clone());
        match (self.answers.pop_front(), request) {
            (Some(answer), _) => answer,
            // The end of every listing of lockspaces.
            (None, ControlRequest::LockspacesAfter { .. }) => Ok(ControlReply::Lockspaces(vec![])),
            (None, _) => panic!("not expected: {request:?}"),
        }
    }
}

/// A refusal.
pub(crate) fn refused(errno: i32) -> Result<ControlReply, Trouble> {
    Err(Trouble::Refused { errno, message: format!("refused with {errno}") })
}

/// What a command wrote and how it ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Ran {
    pub(crate) out: String,
    pub(crate) err: String,
    pub(crate) code: Code,
}

impl Ran {
    /// The output as JSON.
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.out).unwrap_or_else(|e| panic!("{e} in {}", self.out))
    }
}

/// Runs a command against a script.
pub(crate) fn run(
    daemon: &mut dyn Daemon,
    command: impl FnOnce(&mut Context<'_>) -> Outcome,
) -> Ran {
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let code = match command(&mut Context { out: &mut out, err: &mut err, daemon }) {
        Ok(code) => code,
        Err(Fail::Daemon(trouble)) => panic!("unhandled: {trouble}"),
        Err(Fail::Output(error)) => panic!("{error}"),
    };
    let text = |bytes| String::from_utf8(bytes).expect("text forms are UTF-8");
    Ran { out: text(out), err: text(err), code }
}

/// A granted PR lock of pid 174.
pub(crate) fn lock(id: u32) -> LockRecord {
    LockRecord {
        id,
        node: 0,
        remote_id: 0,
        pid: 174,
        program: "app".to_owned(),
        label: String::new(),
        orphan: false,
        xid: 0,
        flags: 0,
        state: 2,
        granted: 3,
        requested: -1,
        told: -1,
        told_age_us: 0,
        age_us: 5_000_000,
        value_seq: 0,
        token: 0x1_0000_0001,
    }
}

/// A granted lock.
pub(crate) fn granted(id: u32, mode: i8) -> LockRecord {
    LockRecord { granted: mode, ..lock(id) }
}

/// A converting lock.
pub(crate) fn converting(id: u32, from: i8, to: i8) -> LockRecord {
    LockRecord { state: 3, granted: from, requested: to, ..lock(id) }
}

/// A waiting lock.
pub(crate) fn waiting(id: u32, mode: i8) -> LockRecord {
    LockRecord { state: 1, granted: -1, requested: mode, ..lock(id) }
}

/// A resource mastered here.
pub(crate) fn resource(name: &[u8], locks: &[LockRecord]) -> ResourceRecord {
    ResourceRecord {
        name: name.to_vec(),
        master: 0,
        unsettled: false,
        value: None,
        locks: locks.to_vec(),
    }
}

/// The six resources and ten locks of the recorded listings in `tests/data`.
///
/// Ages are chosen so that, at the clock reading [`DEMO_NOW_NS`], they give the recorded times.
pub(crate) fn demo() -> Vec<ResourceRecord> {
    let at = |record: LockRecord, time_ns: u64, told: i8, told_ns: u64, flags: u32| LockRecord {
        age_us: (DEMO_NOW_NS - time_ns) / 1000,
        told,
        told_age_us: if told < 0 { 0 } else { (DEMO_NOW_NS - told_ns) / 1000 },
        flags,
        ..record
    };
    let mut bytes = vec![0x62, 0x69, 0x6e, 0x61, 0x72, 0x79, 1, 2, 0xff];
    bytes.resize(32, 0);
    let remote = LockRecord { node: 2, remote_id: 3, pid: 176, ..waiting(9, 1) };
    let orphan = LockRecord { pid: 195, orphan: true, program: String::new(), ..granted(10, 5) };
    vec![
        resource(&[b'x'; 64], &[at(granted(8, 1), 27_178_342_000, -1, 0, 0)]),
        resource(
            b"local",
            &[
                at(granted(3, 3), 26_170_423_000, 5, 26_311_597_000, 0),
                at(converting(2, 3, 5), 26_309_598_000, -1, 0, 4),
                at(waiting(4, 2), 26_448_472_000, -1, 0, 0),
            ],
        ),
        ResourceRecord {
            value: Some(ValueRecord { bytes, seq: 1, valid: true }),
            ..resource(
                b"excl",
                &[
                    at(granted(5, 4), 26_807_307_000, 3, 26_936_095_000, 0xc),
                    at(waiting(6, 3), 26_923_613_000, -1, 0, 0),
                    at(remote, 27_306_417_000, -1, 0, 0),
                ],
            )
        },
        resource(b"name-with\0nul", &[at(granted(7, 0), 27_051_324_000, -1, 0, 0)]),
        resource(b"orphaned", &[at(orphan, 27_545_620_000, -1, 0, 0x80)]),
        ResourceRecord {
            master: 2,
            ..resource(
                b"remote-mastered",
                &[at(
                    LockRecord { remote_id: 2, ..granted(1, 3) },
                    25_926_227_000,
                    2,
                    27_419_075_000,
                    8,
                )],
            )
        },
    ]
}

/// The clock at which the listings were recorded, ns.
pub(crate) const DEMO_NOW_NS: u64 = 33_402_549_000;

/// [`demo`] in two pages.
pub(crate) fn demo_pages() -> Vec<Result<ControlReply, Trouble>> {
    let mut first = demo();
    let second = first.split_off(3);
    [(first, Some(3)), (second, None)]
        .map(|(resources, next)| Ok(ControlReply::Table(TablePage { resources, next })))
        .into()
}

/// A lockspace as the recorded `ls` shows it.
pub(crate) fn space(name: &[u8], global_id: u32, members: &[u32]) -> SpaceRecord {
    SpaceRecord {
        name: name.to_vec(),
        global_id,
        flags: 0,
        uid: 0,
        gid: 0,
        mode: 0o600,
        create_count: 1,
        handles: 0,
        state: "running".to_owned(),
        waits_for: Vec::new(),
        view: 1,
        members: members.to_vec(),
        nodes: members
            .iter()
            .map(|node| SpaceNodeRecord {
                node: *node,
                member: true,
                started: true,
                added_seq: members.len() as u64,
                ..SpaceNodeRecord::default()
            })
            .collect(),
        change: ChangeRecord {
            node: 1,
            joined: 1,
            removed: 0,
            failed: 0,
            seq: members.len() as u64,
            members: members.to_vec(),
            status: String::new(),
        },
        next_change: None,
        locks: 10,
        resources: 6,
        orphans: 1,
    }
}

/// The lockspaces answer.
pub(crate) fn spaces(spaces: Vec<SpaceRecord>) -> Result<ControlReply, Trouble> {
    Ok(ControlReply::Lockspaces(spaces))
}

/// The daemon of the recorded `status`, with the given nodes.
pub(crate) fn status(nodes: &[u32]) -> StatusRecord {
    StatusRecord {
        version: "0.1.0".to_owned(),
        node: 1,
        incarnation: 7,
        cluster: "oracle".to_owned(),
        membership: "single".to_owned(),
        quorate: true,
        ring: (9, 9),
        now: 28,
        uptime: 5,
        pid: 4711,
        nodes: nodes
            .iter()
            .map(|node| NodeRecord {
                node: *node,
                member: true,
                added: 23,
                ..NodeRecord::default()
            })
            .collect(),
        clients: 0,
        waits_for: Vec::new(),
        fencing: DaemonFencing::default(),
    }
}

/// A directory for a test's socket, removed with it.
pub(crate) struct Dir(std::path::PathBuf);

impl Dir {
    /// A new one.
    pub(crate) fn new() -> Self {
        use std::sync::atomic::{AtomicU32, Ordering};
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("dlm_tool-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path).expect("a directory");
        Self(path)
    }

    /// A path in it.
    pub(crate) fn join(&self, name: &str) -> std::path::PathBuf {
        self.0.join(name)
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
