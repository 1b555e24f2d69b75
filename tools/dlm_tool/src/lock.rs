//! `lock LOCKSPACE NAME`: who holds it and who waits, told or not (BL-058, BL-112).

use std::io::{self, Write};

use dlm_core::Mode;
use dlm_ipc::control::{LocatedRecord, LockRecord, ResourceRecord};
use serde::Serialize;

use crate::context::{Context, GOOD, Outcome, Trouble};
use crate::locate::locate;
use crate::lock_json::{JsonLock, JsonValue, node_id};
use crate::lockdebug::{CONVERTING, GRANTED, WAITING};
use crate::lockdump::mode_word;
use crate::name::{JsonName, escape, hex, printable};
use crate::status::daemon_status;

/// Which lock.
pub(crate) struct Lock {
    /// The lockspace.
    pub(crate) lockspace: Vec<u8>,
    /// The lock's name.
    pub(crate) name: Vec<u8>,
    /// As JSON.
    pub(crate) json: bool,
}

/// Shows one lock name.
pub(crate) fn run(cx: &mut Context<'_>, lock: &Lock) -> Outcome {
    let found = daemon_status(cx)
        .and_then(|status| Ok((status.node, locate(cx, &lock.lockspace, &lock.name)?)));
    let (own, found) = match found {
        Ok(found) => found,
        Err(trouble) => return cx.fail_truly(&trouble, lock.json),
    };
    let Some(resource) = &found.resource else {
        return cx.fail_truly(&nothing(lock, &found), lock.json);
    };
    let warnings = self_blocking(resource, own);
    if lock.json {
        cx.json(&Shown::new(&lock.lockspace, resource, &found, own, &warnings))?;
    } else {
        print(cx.out, &lock.lockspace, resource, own)?;
        if found.omitted > 0 {
            writeln!(cx.out, "{} more locks, which do not fit an answer", found.omitted)?;
        }
        for warning in &warnings {
            writeln!(cx.out, "warning: {}", warning.sentence)?;
        }
    }
    if !found.whole {
        cx.say(format_args!("only what this node has itself is shown: {}", found.trouble))?;
    }
    Ok(GOOD)
}

/// Why there is nothing to show: nobody uses the name, or it cannot be told who does.
fn nothing(lock: &Lock, found: &LocatedRecord) -> Trouble {
    if !found.whole {
        return Trouble::Unknown(format!(
            "it cannot be told who uses \"{}\": {}",
            escape(&lock.name),
            found.trouble
        ));
    }
    Trouble::Refused {
        errno: libc::ENOENT,
        message: format!(
            "nobody holds or waits for \"{}\" in lockspace {}",
            escape(&lock.name),
            escape(&lock.lockspace)
        ),
    }
}

fn print(
    out: &mut dyn Write,
    lockspace: &[u8],
    resource: &ResourceRecord,
    own: u32,
) -> io::Result<()> {
    let (name, len) = (escape(&resource.name), resource.name.len());
    let master = node_id(resource.master, own);
    let lockspace = escape(lockspace);
    let by = match (resource.unsettled, resource.master) {
        (true, 0) => "without a master at the moment".to_owned(),
        (true, _) => format!("its master, node {master}, is lost"),
        _ => format!("mastered by node {master}"),
    };
    writeln!(out, "lockspace {lockspace}, name \"{name}\" ({len} bytes), {by}")?;
    if let Some(value) = &resource.value {
        let validity = if value.valid { "valid" } else { "not valid" };
        writeln!(out, "value block {} sequence {} {validity}", hex(&value.bytes, ""), value.seq)?;
    }
    for (state, title) in [(GRANTED, "granted"), (CONVERTING, "converting"), (WAITING, "waiting")] {
        let locks: Vec<&LockRecord> =
            resource.locks.iter().filter(|lock| lock.state == state).collect();
        if locks.is_empty() {
            continue;
        }
        writeln!(out, "{title}: {}", locks.len())?;
        for (i, lock) in locks.into_iter().enumerate() {
            let place = if state == GRANTED { String::new() } else { format!("{}. ", i + 1) };
            writeln!(out, "  {place}{}", describe(lock, own))?;
            if let Some(notice) = notice(resource, lock) {
                writeln!(out, "     {notice}")?;
            }
        }
    }
    Ok(())
}

/// A lock and its owner in one line.
pub(crate) fn describe(lock: &LockRecord, own: u32) -> String {
    let mode = match lock.state {
        WAITING => format!("wants {}", mode_word(lock.requested)),
        CONVERTING => {
            format!("has {} wants {}", mode_word(lock.granted), mode_word(lock.requested))
        }
        _ => format!("has {}", mode_word(lock.granted)),
    };
    let mut text = format!("node {} pid {}", node_id(lock.node, own), lock.pid);
    if !lock.program.is_empty() {
        text += &format!(" ({})", printable(&lock.program));
    }
    if !lock.label.is_empty() {
        text += &format!(" \"{}\"", printable(&lock.label));
    }
    if lock.orphan {
        text += " orphan (its owner is dead)";
    }
    text += &format!(" {mode} for {} lock {:08x}", age(lock.age_us), lock.id);
    if lock.state != WAITING {
        text += &format!(" token {}", lock.token);
    }
    text
}

/// What the holder was told about those it blocks; `None` if it blocks nobody and was told nothing.
fn notice(resource: &ResourceRecord, lock: &LockRecord) -> Option<String> {
    let blocks = resource.locks.iter().any(|other| other.id != lock.id && blocked_by(other, lock));
    match (mode(lock.told), blocks) {
        (Some(told), true) => Some(format!(
            "blocking notice sent {} ago ({} is wanted), no release",
            age(lock.told_age_us),
            told.name()
        )),
        (Some(told), false) => Some(format!(
            "blocking notice sent {} ago ({} was wanted)",
            age(lock.told_age_us),
            told.name()
        )),
        (None, true) => Some("blocks others, no blocking notice sent".to_owned()),
        (None, false) => None,
    }
}

fn mode(number: i8) -> Option<Mode> {
    u8::try_from(number).ok().and_then(Mode::from_number)
}

/// Whether what `waiter` wants cannot be while `holder` has what it has.
fn blocked_by(waiter: &LockRecord, holder: &LockRecord) -> bool {
    match (mode(waiter.requested), mode(holder.granted)) {
        (Some(wanted), Some(held)) => waiter.id != holder.id && !wanted.compatible(held),
        _ => false,
    }
}

/// A duration in the two units that matter.
pub(crate) fn age(us: u64) -> String {
    let s = us / 1_000_000;
    match s {
        0..120 => format!("{s} s"),
        120..7_200 => format!("{} min {} s", s / 60, s % 60),
        7_200..172_800 => format!("{} h {} min", s / 3600, s / 60 % 60),
        _ => format!("{} d {} h", s / 86_400, s / 3600 % 24),
    }
}

/// A process that waits for itself.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct SelfBlocking {
    node: u32,
    pid: u32,
    held_lock: u32,
    waiting_lock: u32,
    sentence: String,
}

/// Finds waiters that wait for a lock of their own process: directly, or because somebody ahead of
/// them in the queue does. Such a wait ends only if the process itself gives up the lock it holds.
fn self_blocking(resource: &ResourceRecord, own: u32) -> Vec<SelfBlocking> {
    let locks = &resource.locks;
    let mut found = Vec::new();
    for (i, waiter) in locks.iter().enumerate().filter(|(_, lock)| lock.state != GRANTED) {
        let mut own_locks = locks.iter().filter(|other| {
            !other.orphan && other.pid == waiter.pid && other.node == waiter.node && other.pid != 0
        });
        let ahead = || locks[..i].iter().filter(|lock| lock.state != GRANTED);
        let blocker = own_locks.find_map(|held| {
            if blocked_by(waiter, held) {
                return Some((held, None));
            }
            let between = ahead().find(|other| other.pid != waiter.pid && blocked_by(other, held));
            between.filter(|_| waiter.state == WAITING).map(|other| (held, Some(other)))
        });
        let Some((held, between)) = blocker else { continue };
        let (pid, has, wants) = (waiter.pid, mode_word(held.granted), mode_word(waiter.requested));
        let way = match between {
            None => "waits".to_owned(),
            Some(other) => format!("waits behind pid {}, which waits", other.pid),
        };
        found.push(SelfBlocking {
            node: node_id(waiter.node, own),
            pid,
            held_lock: held.id,
            waiting_lock: waiter.id,
            sentence: format!(
                "pid {pid} blocks itself: it wants {wants} (lock {:08x}) and {way} for the {has} \
                 that it holds itself (lock {:08x})",
                waiter.id, held.id
            ),
        });
    }
    found
}

#[derive(Serialize)]
struct Shown<'a> {
    state: &'static str,
    lockspace: String,
    lockspace_hex: String,
    #[serde(flatten)]
    name: JsonName,
    master: u32,
    unsettled: bool,
    whole: bool,
    omitted: u64,
    trouble: &'a str,
    value: Option<JsonValue>,
    granted: Vec<ShownLock<'a>>,
    converting: Vec<ShownLock<'a>>,
    waiting: Vec<ShownLock<'a>>,
    self_blocking: &'a [SelfBlocking],
}

#[derive(Serialize)]
struct ShownLock<'a> {
    #[serde(flatten)]
    lock: JsonLock<'a>,
    /// Whether it has what another one waits for.
    blocks_others: bool,
}

impl<'a> Shown<'a> {
    fn new(
        lockspace: &[u8],
        resource: &'a ResourceRecord,
        found: &'a LocatedRecord,
        own: u32,
        warnings: &'a [SelfBlocking],
    ) -> Self {
        let space = JsonName::new(lockspace);
        let locks = |state| {
            let all = resource.locks.iter().enumerate();
            all.filter(|(_, lock)| lock.state == state)
                .map(|(index, lock)| ShownLock {
                    lock: JsonLock::new(resource, index, own),
                    blocks_others: resource.locks.iter().any(|other| blocked_by(other, lock)),
                })
                .collect()
        };
        Self {
            state: "in-use",
            lockspace: space.name,
            lockspace_hex: space.name_hex,
            name: JsonName::new(&resource.name),
            master: node_id(resource.master, own),
            unsettled: resource.unsettled,
            whole: found.whole,
            omitted: found.omitted,
            trouble: &found.trouble,
            value: resource.value.as_ref().map(JsonValue::new),
            granted: locks(GRANTED),
            converting: locks(CONVERTING),
            waiting: locks(WAITING),
            self_blocking: warnings,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::{NO, SILENT};
    use crate::fixture::{
        self, Ran, Script, converting, demo, granted, refused, resource as make, status, waiting,
    };
    use dlm_ipc::control::{ControlReply, TablePage};

    fn show(answers: Vec<Result<ControlReply, Trouble>>, json: bool) -> Ran {
        let answers = std::iter::once(Ok(ControlReply::Status(status(&[1])))).chain(answers);
        let lock = Lock { lockspace: b"demo".to_vec(), name: b"excl".to_vec(), json };
        fixture::run(&mut Script::new(answers), |cx| run(cx, &lock))
    }

    fn busy() -> ResourceRecord {
        let holder = LockRecord {
            pid: 2210,
            program: "backup".to_owned(),
            label: "nightly\u{1b}".to_owned(),
            told: 5,
            told_age_us: 12_900_000,
            age_us: 740_000_000,
            ..granted(0x2a, 4)
        };
        let quiet = LockRecord { pid: 7, program: String::new(), ..granted(0x2b, 0) };
        let turn = LockRecord { pid: 8, age_us: 3_000_000, ..converting(0x2c, 1, 5) };
        let other = LockRecord { node: 2, pid: 515, ..waiting(0x2d, 5) };
        ResourceRecord {
            value: demo()[2].value.clone(),
            ..make(b"excl", &[holder, quiet, turn, other])
        }
    }

    fn located(resource: Option<ResourceRecord>, omitted: u64) -> Result<ControlReply, Trouble> {
        let (whole, trouble) = (true, String::new());
        Ok(ControlReply::Located(LocatedRecord { resource, whole, omitted, trouble }))
    }

    fn found(resource: ResourceRecord) -> Vec<Result<ControlReply, Trouble>> {
        vec![located(Some(resource), 0)]
    }

    #[test]
    fn what_the_master_did_not_say_is_not_claimed() {
        let partly = |resource| {
            let (whole, omitted, trouble) = (false, 0, "node 3 is gone".to_owned());
            let part = LocatedRecord { resource, whole, omitted, trouble };
            vec![Ok(ControlReply::Located(part))]
        };
        let own = ResourceRecord { master: 3, unsettled: true, ..make(b"excl", &[granted(1, 5)]) };
        let ran = show(partly(Some(own.clone())), false);
        assert!(ran.out.contains("its master, node 3, is lost\n") && ran.code == GOOD, "{ran:?}");
        let only = "dlm_tool: only what this node has itself is shown: node 3 is gone\n";
        assert_eq!(ran.err, only);
        assert_eq!(show(partly(Some(own)), true).json()["whole"], false);
        let ran = show(partly(None), true);
        assert_eq!((ran.json()["state"].as_str(), ran.code), (Some("unknown"), SILENT));
        assert!(ran.err.contains("cannot be told who uses \"excl\": node 3 is gone"), "{ran:?}");
        let ran = show(vec![located(Some(ResourceRecord { master: 2, ..busy() }), 7)], false);
        assert!(ran.out.contains("7 more locks"), "{ran:?}");
    }

    #[test]
    fn holders_and_waiters_are_named() {
        let ran = show(found(busy()), false);
        assert_eq!(ran.out, include_str!("../tests/data/lock.txt"));
        assert_eq!((ran.err.as_str(), ran.code), ("", GOOD));
    }

    #[test]
    fn json_has_the_same() {
        let ran = show(found(busy()), true);
        let json = ran.json();
        assert_eq!((json["state"].as_str(), ran.code), (Some("in-use"), GOOD));
        assert_eq!(
            (json["lockspace"].as_str(), json["name"].as_str()),
            (Some("demo"), Some("excl"))
        );
        assert_eq!(json["granted"][0]["pid"], 2210);
        assert_eq!(json["granted"][0]["program"], "backup");
        assert_eq!(json["granted"][0]["told"], "EX");
        assert_eq!(json["granted"][0]["told_age_us"], 12_900_000);
        assert_eq!(json["granted"][0]["blocks_others"], true);
        assert_eq!(json["granted"][1]["blocks_others"], false);
        assert_eq!(json["converting"][0]["queue_place"], 1);
        assert_eq!(json["waiting"][0]["node"], 2);
        assert_eq!(json["waiting"][0]["queue_place"], 1);
        assert_eq!(json["value"]["seq"], 1);
    }

    #[test]
    fn a_free_name_and_an_unknown_lockspace_are_no() {
        let ran = show(vec![located(None, 0)], false);
        assert_eq!((ran.out.as_str(), ran.code), ("", NO));
        assert_eq!(ran.err, "dlm_tool: nobody holds or waits for \"excl\" in lockspace demo\n");
        let ran = show(vec![refused(libc::ENOENT)], true);
        assert_eq!((ran.json()["state"].as_str(), ran.code), (Some("not-found"), NO));
        let lock = Lock { lockspace: b"demo".to_vec(), name: vec![], json: true };
        let ran = fixture::run(&mut Script::absent(), |cx| run(cx, &lock));
        assert_eq!((ran.json()["state"].as_str(), ran.code), (Some("daemon-absent"), SILENT));
    }

    #[test]
    fn queues_too_long_for_one_answer_are_found_in_the_table() {
        let page = |resources, next| Ok(ControlReply::Table(TablePage { resources, next }));
        let answers = vec![
            located(Some(make(b"excl", &[granted(1, 5)])), 1),
            page(vec![make(b"a", &[]), make(b"excl", &[granted(1, 5)])], Some(2)),
            page(vec![make(b"excl", &[waiting(2, 5)])], None),
        ];
        let out = show(answers, false).out;
        assert!(out.contains("granted: 1\n") && out.contains("waiting: 1\n"), "{out}");
    }

    #[test]
    fn a_holder_that_was_told_and_blocks_nobody_any_more_is_not_accused() {
        let told = LockRecord { told: 5, told_age_us: 1_000_000, ..granted(1, 3) };
        let alone = make(b"x", std::slice::from_ref(&told));
        assert_eq!(
            notice(&alone, &told).as_deref(),
            Some("blocking notice sent 1 s ago (EX was wanted)")
        );
        let plain = granted(1, 3);
        assert_eq!(notice(&make(b"x", std::slice::from_ref(&plain)), &plain), None);
        let pair = make(b"x", &[plain.clone(), waiting(2, 5)]);
        let text = notice(&pair, &plain);
        assert_eq!(text.as_deref(), Some("blocks others, no blocking notice sent"));
    }

    #[test]
    fn a_process_that_waits_for_itself_is_told_aloud() {
        let direct = make(b"excl", &[granted(1, 5), waiting(2, 3)]);
        let out = show(found(direct.clone()), false).out;
        let warning = "warning: pid 174 blocks itself: it wants PR (lock 00000002) and waits for \
                       the EX that it holds itself (lock 00000001)\n";
        assert!(out.ends_with(warning), "{out}");
        let json = show(found(direct), true).json();
        assert_eq!(json["self_blocking"][0]["pid"], 174);
        assert_eq!(json["self_blocking"][0]["held_lock"], 1);

        let stranger = LockRecord { pid: 9, ..waiting(2, 5) };
        let behind = make(b"x", &[granted(1, 3), stranger.clone(), waiting(3, 3)]);
        let found = self_blocking(&behind, 1);
        assert_eq!(found.len(), 1);
        assert!(
            found[0].sentence.contains("waits behind pid 9, which waits for the PR"),
            "{found:?}"
        );
    }

    #[test]
    fn strangers_orphans_and_compatible_locks_are_no_self_blocking() {
        let stranger = |lock: LockRecord| LockRecord { pid: 9, ..lock };
        let elsewhere = LockRecord { node: 2, ..granted(1, 5) };
        let orphan = LockRecord { orphan: true, ..granted(1, 5) };
        for locks in [
            vec![stranger(granted(1, 5)), waiting(2, 5)],
            vec![elsewhere, waiting(2, 5)],
            vec![orphan, waiting(2, 5)],
            vec![granted(1, 1), stranger(granted(3, 4)), waiting(2, 3)],
            vec![converting(1, 3, 5), stranger(granted(2, 3))],
        ] {
            assert_eq!(self_blocking(&make(b"x", &locks), 1), [], "{locks:?}");
        }
    }

    #[test]
    fn ages_are_readable() {
        let table = [
            (0, "0 s"),
            (999_999, "0 s"),
            (119_000_000, "119 s"),
            (120_000_000, "2 min 0 s"),
            (7_200_000_000, "2 h 0 min"),
            (200_000_000_000, "2 d 7 h"),
        ];
        for (us, text) in table {
            assert_eq!(age(us), text);
        }
    }
}
