//! `lockdebug [-s] [-v] [-w] LOCKSPACE`: resources with their queues (libdlm-abi.md 4.8).
//!
//! Byte for byte the original's layout, trailing blanks included. Names are `str` when every byte
//! is printable ASCII and `hex` otherwise, so they can be read back by their length.

use std::io::{self, Write};

use dlm_ipc::control::{LockRecord, ResourceRecord, ValueRecord};

use crate::context::{Context, GOOD, Outcome};
use crate::lock_json::dump_resources_json;
use crate::lockdump::{fail_as_file, is_master_copy, mode_word};
use crate::name::{hex, is_plain};
use crate::table::Table;

/// What to dump.
pub(crate) struct Lockdebug {
    /// The lockspace.
    pub(crate) lockspace: Vec<u8>,
    /// A summary at the end.
    pub(crate) summary: bool,
    /// Times, flags, pid.
    pub(crate) verbose: bool,
    /// Each lock and value block on one line.
    pub(crate) wide: bool,
    /// As JSON.
    pub(crate) json: bool,
}

/// Dumps the resources of a lockspace. `now_ns` is the monotonic clock, for `-v`.
pub(crate) fn run(cx: &mut Context<'_>, dump: &Lockdebug, now_ns: u64) -> Outcome {
    if dump.json {
        return dump_resources_json(cx, &dump.lockspace);
    }
    let mut summary = Summary::default();
    let mut table = Table::new(&mut *cx.daemon, &dump.lockspace);
    loop {
        match table.next() {
            Ok(Some(resource)) => {
                summary.count(&resource);
                print(cx.out, &resource, dump, now_ns)?;
            }
            Ok(None) => break,
            Err(trouble) => return fail_as_file(cx, &dump.lockspace, "", &trouble),
        }
    }
    writeln!(cx.out)?;
    if dump.summary {
        summary.print(cx.out)?;
    }
    Ok(GOOD)
}

fn print(
    out: &mut dyn Write,
    resource: &ResourceRecord,
    dump: &Lockdebug,
    now_ns: u64,
) -> io::Result<()> {
    let name = &resource.name;
    if is_plain(name) {
        writeln!(out, "\nResource len {:2}  \"{}\"", name.len(), String::from_utf8_lossy(name))?;
    } else {
        writeln!(out, "\nResource len {:2} hex {}", name.len(), hex(name, " "))?;
    }
    let master = match resource.master {
        0 if resource.unsettled => "Lookup".into(),
        0 => "Master".into(),
        node => format!("Master:{node}"),
    };
    writeln!(out, "{master:<16} ")?;
    if let Some(value) = &resource.value {
        print_value(out, value, dump.wide)?;
    }
    let mut section = 0;
    for lock in &resource.locks {
        if lock.state != section {
            section = lock.state;
            writeln!(out, "{}", section_word(section))?;
        }
        print_lock(out, resource, lock, dump, now_ns)?;
    }
    if resource.locks.is_empty() {
        writeln!(out, "no locks")?;
    }
    Ok(())
}

/// Waiting, granted, converting in the numbers of [`LockRecord::state`].
pub(crate) const WAITING: u8 = 1;
/// See [`WAITING`].
pub(crate) const GRANTED: u8 = 2;
/// See [`WAITING`].
pub(crate) const CONVERTING: u8 = 3;

fn section_word(state: u8) -> &'static str {
    match state {
        WAITING => "Waiting",
        CONVERTING => "Convert",
        _ => "Granted",
    }
}

fn print_value(out: &mut dyn Write, value: &ValueRecord, wide: bool) -> io::Result<()> {
    writeln!(out, "LVB len {} seq {}", value.bytes.len(), value.seq)?;
    let per_line = if wide { value.bytes.len().max(1) } else { 16 };
    let lines: Vec<String> = value.bytes.chunks(per_line).map(|line| hex(line, " ")).collect();
    writeln!(out, "{}", lines.join(" \n"))
}

/// The internal flag words of the original that have a meaning here.
const USER_LOCK: u32 = 1;
const ORPHAN: u32 = 2;
const MASTER_COPY: u32 = 0x1_0000;

fn print_lock(
    out: &mut dyn Write,
    resource: &ResourceRecord,
    lock: &LockRecord,
    dump: &Lockdebug,
    now_ns: u64,
) -> io::Result<()> {
    let granted = match (lock.state, mode_word(lock.granted)) {
        (WAITING, _) => "--",
        (_, "IV" | "??") => "XX",
        (_, word) => word,
    };
    let requested = match lock.state {
        GRANTED => String::new(),
        _ => format!("({})", mode_word(lock.requested)),
    };
    let place = if is_master_copy(resource, lock) {
        format!("Remote: {:3} {:08x}", lock.node, lock.remote_id)
    } else if resource.master != 0 {
        format!("Master: {:3} {:08x}", resource.master, lock.remote_id)
    } else {
        String::new()
    };
    write!(out, "{:08x} {granted} {requested:4} {place:20}          ", lock.id)?;
    if !dump.verbose {
        return writeln!(out);
    }
    if !dump.wide {
        writeln!(out)?;
    }
    let mut flags = USER_LOCK;
    flags |= if lock.orphan { ORPHAN } else { 0 };
    flags |= if is_master_copy(resource, lock) { MASTER_COPY } else { 0 };
    let (told, told_ns) = match lock.told {
        ..0 => (0, 0),
        told => (told, ago(now_ns, lock.told_age_us)),
    };
    writeln!(
        out,
        "time {:016} flags {:08x} {flags:08x} bast {told} {told_ns} pid {}",
        ago(now_ns, lock.age_us),
        lock.flags,
        lock.pid
    )
}

/// The clock reading of something that is this old, to the microsecond that the daemon reports.
fn ago(now_ns: u64, age_us: u64) -> u64 {
    let us = (now_ns / 1000).saturating_sub(age_us);
    us * 1000
}

/// The counts of `-s`.
#[derive(Default)]
struct Summary {
    resources: [u64; 4],
    locks: [u64; 7],
}

impl Summary {
    fn count(&mut self, resource: &ResourceRecord) {
        let here = resource.master == 0;
        let [master, remote, with_value, no_locks] = &mut self.resources;
        *(if here { master } else { remote }) += 1;
        *with_value += u64::from(resource.value.is_some());
        *no_locks += u64::from(resource.locks.is_empty());
        let [total, granted, converting, waiting, local, master_copy, process_copy] =
            &mut self.locks;
        for lock in &resource.locks {
            *total += 1;
            *(match lock.state {
                WAITING => &mut *waiting,
                CONVERTING => &mut *converting,
                _ => &mut *granted,
            }) += 1;
            *(match (here, lock.node) {
                (true, 0) => &mut *local,
                (true, _) => &mut *master_copy,
                (false, _) => &mut *process_copy,
            }) += 1;
        }
    }

    fn print(&self, out: &mut dyn Write) -> io::Result<()> {
        let [master, remote, with_value, no_locks] = self.resources;
        let [total, granted, converting, waiting, local, master_copy, process_copy] = self.locks;
        writeln!(out, "\nrsb")?;
        let rows = [
            ("active", master + remote),
            ("master", master),
            ("remote master", remote),
            ("lookup master", 0),
            ("with lvb", with_value),
            ("with no locks", no_locks),
            ("nodeid error", 0),
            ("inactive", 0),
        ];
        for (label, count) in rows {
            writeln!(out, "  {label:<14}{count}")?;
        }
        writeln!(out, "\nlkb")?;
        let rows = [
            ("total", total),
            ("granted", granted),
            ("convert", converting),
            ("waiting", waiting),
            ("local copy", local),
            ("master copy", master_copy),
            ("process copy", process_copy),
            ("rsb lookup", 0),
            ("wait message", 0),
            ("expect reply", 0),
        ];
        for (label, count) in rows {
            writeln!(out, "  {label:<14}{count}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{
        self, DEMO_NOW_NS, Ran, Script, converting, demo_pages, granted, refused, resource, waiting,
    };
    use dlm_ipc::control::{ControlReply, TablePage};

    fn dump(script: &mut Script, letters: &str) -> Ran {
        let dump = Lockdebug {
            lockspace: b"demo".to_vec(),
            summary: letters.contains('s'),
            verbose: letters.contains('v'),
            wide: letters.contains('w'),
            json: false,
        };
        fixture::run(script, |cx| run(cx, &dump, DEMO_NOW_NS))
    }

    fn page(resources: Vec<ResourceRecord>) -> Script {
        Script::new([Ok(ControlReply::Table(TablePage { resources, next: None }))])
    }

    #[test]
    fn listings_are_the_recorded_ones() {
        let plain = dump(&mut Script::new(demo_pages()), "");
        assert_eq!(plain.out, include_str!("../tests/data/lockdebug.txt"));
        assert_eq!((plain.err.as_str(), plain.code), ("", GOOD));
        let all = dump(&mut Script::new(demo_pages()), "swv");
        assert_eq!(all.out, include_str!("../tests/data/lockdebug-swv.txt"));
    }

    #[test]
    fn odd_resources_have_the_originals_layout() {
        let script = || {
            page(vec![
                resource(b"", &[granted(1, 0)]),
                resource(b"a\"b", &[]),
                ResourceRecord {
                    value: Some(ValueRecord {
                        bytes: [&[1, 1, 0, 0, 4][..], &[0; 27]].concat(),
                        seq: u32::MAX,
                        valid: false,
                    }),
                    ..resource(
                        b"a b",
                        &[granted(0x2a, 5), converting(0x2c, 3, 5), {
                            LockRecord { node: 2, remote_id: 0x17, ..waiting(0x2b, 3) }
                        }],
                    )
                },
                ResourceRecord {
                    master: 3,
                    ..resource(
                        b"abc",
                        &[
                            LockRecord { remote_id: 0x44, ..converting(0x3a, 3, 5) },
                            LockRecord { remote_id: 0x45, ..waiting(0x3b, 5) },
                        ],
                    )
                },
            ])
        };
        assert_eq!(dump(&mut script(), "s").out, include_str!("../tests/data/lockdebug-odd.txt"));
        let verbose = dump(&mut script(), "v").out;
        assert!(
            verbose.contains(
                "0000002c PR (EX)                               \n\
                 time 0000028402549000 flags 00000000 00000001 bast 0 0 pid 174\n"
            ),
            "{verbose}"
        );
    }

    #[test]
    fn an_empty_lockspace_is_one_empty_line() {
        assert_eq!(dump(&mut page(vec![]), "vw").out, "\n");
        let between = ResourceRecord { unsettled: true, ..resource(b"x", &[waiting(1, 5)]) };
        let out = dump(&mut page(vec![between]), "").out;
        assert!(out.contains("\nLookup           \nWaiting\n"), "{out}");
    }

    #[test]
    fn a_missing_lockspace_is_a_missing_file_and_no_failure() {
        for mut script in [Script::new([refused(libc::ENOENT)]), Script::absent()] {
            let ran = dump(&mut script, "s");
            assert_eq!(
                (ran.out.as_str(), ran.err.as_str(), ran.code),
                ("", "can't open /sys/kernel/debug/dlm/demo: No such file or directory\n", GOOD)
            );
        }
    }

    #[test]
    fn an_age_older_than_the_clock_is_the_clocks_beginning() {
        assert_eq!(ago(5_000, 9), 0);
        assert_eq!(ago(5_999, 2), 3_000);
    }
}
