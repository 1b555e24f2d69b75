//! `orphans LOCKSPACE` and `purge LOCKSPACE [--pid P]`: locks that outlived their owners (BL-013).

use dlm_ipc::control::{ControlReply, ControlRequest};
use serde::Serialize;

use crate::context::{Context, GOOD, Outcome};
use crate::lock::age;
use crate::lock_json::dump_json;
use crate::lockdump::mode_word;
use crate::name::escape;
use crate::table::Table;

/// Lists the orphans of a lockspace: each with its dead owner's pid.
pub(crate) fn run(cx: &mut Context<'_>, lockspace: &[u8], json: bool) -> Outcome {
    if json {
        return dump_json(cx, lockspace, |_, lock| lock.orphan);
    }
    let mut total = 0_u64;
    let mut table = Table::new(&mut *cx.daemon, lockspace);
    loop {
        let resource = match table.next() {
            Ok(Some(resource)) => resource,
            Ok(None) => break,
            Err(trouble) => return cx.fail_truly(&trouble, false),
        };
        for lock in resource.locks.iter().filter(|lock| lock.orphan) {
            total += 1;
            let (pid, mode, id) = (lock.pid, mode_word(lock.granted), lock.id);
            let (since, name) = (age(lock.age_us), escape(&resource.name));
            writeln!(cx.out, "orphan of pid {pid} {mode} for {since} lock {id:08x} \"{name}\"")?;
        }
    }
    writeln!(cx.out, "total {total}")?;
    Ok(GOOD)
}

/// Removes the orphans of a lockspace, of one dead owner or of all (`pid` 0).
pub(crate) fn run_purge(cx: &mut Context<'_>, lockspace: &[u8], pid: u32, json: bool) -> Outcome {
    let request = ControlRequest::Purge { lockspace: lockspace.to_vec(), pid };
    let answer = cx.ask(&request, |reply| match reply {
        ControlReply::Purged(count) => Some(count),
        _ => None,
    });
    match answer {
        Ok(purged) if json => cx.json(&Purged { state: "ok", purged })?,
        Ok(1) => writeln!(cx.out, "1 orphan purged")?,
        Ok(purged) => writeln!(cx.out, "{purged} orphans purged")?,
        Err(trouble) => return cx.fail_truly(&trouble, json),
    }
    Ok(GOOD)
}

#[derive(Serialize)]
struct Purged {
    state: &'static str,
    purged: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::{NO, SILENT};
    use crate::fixture::{self, Script, demo_pages, refused, status};

    #[test]
    fn orphans_are_listed_with_their_dead_owner() {
        let ran = fixture::run(&mut Script::new(demo_pages()), |cx| run(cx, b"demo", false));
        assert_eq!(
            (ran.out.as_str(), ran.code),
            ("orphan of pid 195 EX for 5 s lock 0000000a \"orphaned\"\ntotal 1\n", GOOD)
        );
        let answers = [Ok(ControlReply::Status(status(&[1])))].into_iter().chain(demo_pages());
        let ran = fixture::run(&mut Script::new(answers), |cx| run(cx, b"demo", true));
        assert_eq!(ran.json()["total"], 1);
        assert_eq!(ran.json()["locks"][0]["pid"], 195);
        let ran =
            fixture::run(&mut Script::new([refused(libc::ENOENT)]), |cx| run(cx, b"x", false));
        assert_eq!((ran.out.as_str(), ran.code), ("", NO));
    }

    #[test]
    fn purge_says_how_many() {
        let purge = |answer, json| {
            let mut script = Script::new([answer]);
            let ran = fixture::run(&mut script, |cx| run_purge(cx, b"demo", 195, json));
            let asked = ControlRequest::Purge { lockspace: b"demo".to_vec(), pid: 195 };
            assert_eq!(script.asked, [asked]);
            ran
        };
        let purged = |count| Ok(ControlReply::Purged(count));
        assert_eq!(purge(purged(20), false).out, "20 orphans purged\n");
        assert_eq!(purge(purged(1), false).out, "1 orphan purged\n");
        assert_eq!(purge(purged(0), false).out, "0 orphans purged\n");
        assert_eq!(purge(purged(20), true).json()["purged"], 20);
        let ran = purge(refused(libc::EPERM), true);
        assert_eq!((ran.json()["state"].as_str(), ran.code), (Some("refused"), NO));
        let ran = fixture::run(&mut Script::silent(), |cx| run_purge(cx, b"demo", 0, false));
        assert_eq!((ran.out.as_str(), ran.code), ("", SILENT));
    }
}
