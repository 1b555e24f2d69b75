//! `lockdump [-M] LOCKSPACE`: one line per lock (libdlm-abi.md 4.7).
//!
//! Names are escaped as everywhere ([`crate::name`]); the original cut them at a NUL. A lockspace
//! that is not there is reported in the original's words, a missing debugfs file, since scripts
//! know them.

use std::io::{self, Write};

use dlm_ipc::control::{LockRecord, ResourceRecord};

use crate::context::{Context, GOOD, Outcome, Trouble, errno_text};
use crate::lock_json::dump_json;
use crate::name::escape;
use crate::table::Table;

/// What to dump.
pub(crate) struct Lockdump {
    /// The lockspace.
    pub(crate) lockspace: Vec<u8>,
    /// Locks held here for other nodes too.
    pub(crate) master_copies: bool,
    /// As JSON.
    pub(crate) json: bool,
}

/// Dumps the locks of a lockspace.
pub(crate) fn run(cx: &mut Context<'_>, dump: &Lockdump) -> Outcome {
    if dump.json {
        return dump_json(cx, &dump.lockspace, |resource, lock| {
            dump.master_copies || !is_master_copy(resource, lock)
        });
    }
    let mut table = Table::new(&mut *cx.daemon, &dump.lockspace);
    loop {
        match table.next() {
            Ok(None) => return Ok(GOOD),
            Ok(Some(resource)) => print(cx.out, &resource, dump.master_copies)?,
            Err(trouble) => return fail_as_file(cx, &dump.lockspace, "_locks", &trouble),
        }
    }
}

/// The end of an old command that used to read a file of debugfs.
pub(crate) fn fail_as_file(
    cx: &mut Context<'_>,
    lockspace: &[u8],
    suffix: &str,
    trouble: &Trouble,
) -> Outcome {
    let errno = match trouble {
        Trouble::Silent(_) | Trouble::Unknown(_) => return cx.fail_silent(trouble),
        Trouble::Absent(_) => libc::ENOENT,
        Trouble::Refused { errno, .. } => *errno,
    };
    let (name, why) = (escape(lockspace), errno_text(errno));
    writeln!(cx.err, "can't open /sys/kernel/debug/dlm/{name}{suffix}: {why}")?;
    Ok(GOOD)
}

/// Whether this node masters the lock of another node.
pub(crate) fn is_master_copy(resource: &ResourceRecord, lock: &LockRecord) -> bool {
    resource.master == 0 && lock.node != 0
}

fn print(out: &mut dyn Write, resource: &ResourceRecord, master_copies: bool) -> io::Result<()> {
    let name = escape(&resource.name);
    for lock in &resource.locks {
        let master_copy = is_master_copy(resource, lock);
        if master_copy && !master_copies {
            continue;
        }
        let (place, node) =
            if master_copy { ("MSTCPY", lock.node) } else { ("master", resource.master) };
        writeln!(
            out,
            "id {:08x} gr {} rq {} pid {} {place} {node} \"{name}\"",
            lock.id,
            mode_word(lock.granted),
            mode_word(lock.requested),
            lock.pid
        )?;
    }
    Ok(())
}

/// The word of a mode number; `IV` for none.
pub(crate) fn mode_word(mode: i8) -> &'static str {
    match u8::try_from(mode) {
        Err(_) => "IV",
        Ok(number) => dlm_core::Mode::from_number(number).map_or("??", dlm_core::Mode::name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::SILENT;
    use crate::fixture::{self, Ran, Script, demo_pages, refused};

    fn dump(script: &mut Script, master_copies: bool) -> Ran {
        let lockspace = b"demo".to_vec();
        fixture::run(script, |cx| run(cx, &Lockdump { lockspace, master_copies, json: false }))
    }

    #[test]
    fn lines_are_the_recorded_ones() {
        let ran = dump(&mut Script::new(demo_pages()), false);
        assert_eq!(ran.out, include_str!("../tests/data/lockdump.txt"));
        assert_eq!((ran.err.as_str(), ran.code), ("", GOOD));
    }

    #[test]
    fn master_copies_are_shown_on_request() {
        let out = dump(&mut Script::new(demo_pages()), true).out;
        assert!(out.contains("id 00000009 gr IV rq CR pid 176 MSTCPY 2 \"excl\"\n"), "{out}");
        assert_eq!(out.lines().count(), 10);
    }

    #[test]
    fn a_missing_lockspace_is_a_missing_file_and_no_failure() {
        let sentence = |why: &str| format!("can't open /sys/kernel/debug/dlm/demo_locks: {why}\n");
        for (mut script, why) in [
            (Script::new([refused(libc::ENOENT)]), "No such file or directory"),
            (Script::absent(), "No such file or directory"),
            (Script::new([refused(libc::EACCES)]), "Permission denied"),
        ] {
            let ran = dump(&mut script, false);
            assert_eq!((ran.out.as_str(), ran.err, ran.code), ("", sentence(why), GOOD));
        }
        assert_eq!(dump(&mut Script::silent(), false).code, SILENT);
    }

    #[test]
    fn mode_words() {
        let words: Vec<&str> = (-1..7).map(mode_word).collect();
        assert_eq!(words, ["IV", "NL", "CR", "CW", "PR", "PW", "EX", "??"]);
    }
}
