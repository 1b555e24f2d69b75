//! `recovery [LOCKSPACE]`: what changes of members did, and how long each step took
//! (recovery.md section 5).

use std::io::{self, Write};

use dlm_ipc::control::{ControlReply, ControlRequest, RecoveryRecord, StepUs};
use serde::Serialize;

use crate::context::{Context, GOOD, NO, Outcome, Trouble};
use crate::lock::age;
use crate::name::{JsonName, escape};

/// Prints the history, or the `last` changes of it, oldest first.
pub(crate) fn run(
    cx: &mut Context<'_>,
    lockspace: Option<&[u8]>,
    last: Option<usize>,
    json: bool,
) -> Outcome {
    let mut changes = match history(cx, lockspace.unwrap_or_default()) {
        Ok(changes) => changes,
        Err(trouble) => return cx.fail_truly(&trouble, json),
    };
    changes.drain(..changes.len().saturating_sub(last.unwrap_or(usize::MAX)));
    let found = lockspace.is_none() || !changes.is_empty();
    if json {
        let state = if found { "ok" } else { "not-found" };
        let changes = changes.iter().map(JsonChange::new).collect();
        cx.json(&JsonHistory { state, changes })?;
    } else {
        for change in &changes {
            print(cx.out, change)?;
        }
        if !found {
            cx.say("the daemon remembers no change of such a lockspace")?;
        }
    }
    Ok(if found { GOOD } else { NO })
}

/// The whole history, however many answers that takes.
fn history(cx: &mut Context<'_>, lockspace: &[u8]) -> Result<Vec<RecoveryRecord>, Trouble> {
    let (mut all, mut from) = (Vec::new(), 0);
    loop {
        let request = ControlRequest::Recovery { lockspace: lockspace.to_vec(), from };
        let page = cx.ask(&request, |reply| match reply {
            ControlReply::Recovery(page) => Some(page),
            _ => None,
        })?;
        all.extend(page.changes);
        match page.next {
            // A position that does not move would never end.
            Some(next) if next > from => from = next,
            _ => return Ok(all),
        }
    }
}

fn print(out: &mut dyn Write, change: &RecoveryRecord) -> io::Result<()> {
    let name = escape(&change.lockspace);
    writeln!(
        out,
        "{name} change {} at {} ({} ago), view {}: {}; members {}",
        change.seq,
        utc(change.at_us / 1_000_000),
        age(change.age_us),
        change.view,
        what(change),
        numbers(&change.members)
    )?;
    let words = [
        ("names known", change.names_done),
        ("lost nodes safe", change.all_safe),
        ("locks moved", change.locks_done),
        ("all in service", change.thawed),
    ];
    let lost =
        change.safe.iter().map(|(node, when)| format!("node {node} {}", after(change, *when)));
    let lost: Vec<String> = lost.collect();
    for (step, took) in words {
        let detail = match step {
            "lost nodes safe" if !lost.is_empty() => format!(" ({})", lost.join(", ")),
            _ => String::new(),
        };
        writeln!(out, "  {step:<16}{}{detail}", after(change, took))?;
    }
    writeln!(
        out,
        "  {} names waited, {} rebuilt here, {} own locks moved, {} locks of lost nodes dropped",
        change.names_waited, change.names_rebuilt, change.locks_moved, change.locks_dropped
    )
}

/// Who came and who went.
fn what(change: &RecoveryRecord) -> String {
    let groups = [("failed", &change.failed), ("left", &change.left), ("joined", &change.joined)];
    let told: Vec<String> = groups
        .into_iter()
        .filter(|(_, nodes)| !nodes.is_empty())
        .map(|(verb, nodes)| format!("{} {verb}", numbers(nodes)))
        .collect();
    match told.is_empty() {
        true => "a new number for the same members".to_owned(),
        false => format!("node {}", told.join(", ")),
    }
}

fn numbers(nodes: &[u32]) -> String {
    nodes.iter().map(u32::to_string).collect::<Vec<_>>().join(" ")
}

/// When a step was over.
fn after(change: &RecoveryRecord, took: StepUs) -> String {
    match took {
        Some(us @ 0..10_000) => format!("after {}.{:03} ms", us / 1000, us % 1000),
        Some(us) => format!("after {}.{:03} s", us / 1_000_000, us / 1000 % 1000),
        None if change.superseded => "not before the next change".to_owned(),
        None => format!("not yet, for {}", age(change.age_us)),
    }
}

/// Seconds since 1970 as a date and time in UTC.
fn utc(seconds: u64) -> String {
    // Days are counted from the first of March of the year 0, so that a leap day ends its year.
    let days = seconds / 86_400 + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let of_year = day - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let (month, later) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    let (year, second) = (era * 400 + year + later, seconds % 86_400);
    let (hour, minute) = (second / 3600, second / 60 % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{:02}Z", second % 60)
}

#[derive(Serialize)]
struct JsonHistory {
    state: &'static str,
    changes: Vec<JsonChange>,
}

#[derive(Serialize)]
struct JsonChange {
    number: u64,
    #[serde(flatten)]
    name: JsonName,
    seq: u64,
    view: u32,
    at: String,
    at_us: u64,
    age_us: u64,
    members: Vec<u32>,
    joined: Vec<u32>,
    left: Vec<u32>,
    failed: Vec<u32>,
    safe: Vec<JsonSafe>,
    names_done_us: StepUs,
    all_safe_us: StepUs,
    locks_done_us: StepUs,
    in_service_us: StepUs,
    superseded: bool,
    names_waited: u64,
    names_rebuilt: u64,
    locks_moved: u64,
    locks_dropped: u64,
}

#[derive(Serialize)]
struct JsonSafe {
    node: u32,
    after_us: StepUs,
}

impl JsonChange {
    fn new(change: &RecoveryRecord) -> Self {
        let safe = |(node, after_us): &(u32, StepUs)| JsonSafe { node: *node, after_us: *after_us };
        Self {
            number: change.number,
            name: JsonName::new(&change.lockspace),
            seq: change.seq,
            view: change.view,
            at: utc(change.at_us / 1_000_000),
            at_us: change.at_us,
            age_us: change.age_us,
            members: change.members.clone(),
            joined: change.joined.clone(),
            left: change.left.clone(),
            failed: change.failed.clone(),
            safe: change.safe.iter().map(safe).collect(),
            names_done_us: change.names_done,
            all_safe_us: change.all_safe,
            locks_done_us: change.locks_done,
            in_service_us: change.thawed,
            superseded: change.superseded,
            names_waited: change.names_waited,
            names_rebuilt: change.names_rebuilt,
            locks_moved: change.locks_moved,
            locks_dropped: change.locks_dropped,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::SILENT;
    use crate::fixture::{self, Ran, Script};
    use dlm_ipc::control::RecoveryPage;

    fn joined() -> RecoveryRecord {
        RecoveryRecord {
            number: 7,
            lockspace: b"web".to_vec(),
            seq: 2,
            view: 41,
            at_us: 1_700_000_000_000_000,
            age_us: 150_000_000,
            members: vec![1, 2, 3],
            joined: vec![2, 3],
            names_done: Some(412),
            all_safe: Some(0),
            locks_done: Some(1_530),
            thawed: Some(1_600),
            ..RecoveryRecord::default()
        }
    }

    fn failed() -> RecoveryRecord {
        RecoveryRecord {
            number: 8,
            seq: 3,
            view: 42,
            age_us: 9_000_000,
            members: vec![1, 2],
            joined: vec![],
            failed: vec![3],
            safe: vec![(3, Some(1_203_000)), (4, None)],
            names_done: Some(900),
            all_safe: None,
            locks_done: None,
            thawed: None,
            names_waited: 12,
            names_rebuilt: 7,
            locks_moved: 20,
            locks_dropped: 1,
            ..joined()
        }
    }

    fn show(pages: Vec<RecoveryPage>, name: Option<&str>, json: bool) -> Ran {
        let pages = pages.into_iter().map(|page| Ok(ControlReply::Recovery(page)));
        fixture::run(&mut Script::new(pages), |cx| run(cx, name.map(str::as_bytes), None, json))
    }

    fn pages() -> Vec<RecoveryPage> {
        vec![
            RecoveryPage { changes: vec![joined()], next: Some(8) },
            RecoveryPage { changes: vec![failed()], next: None },
        ]
    }

    #[test]
    fn steps_and_costs_are_told() {
        let ran = show(pages(), None, false);
        assert_eq!((ran.err.as_str(), ran.code), ("", GOOD));
        assert_eq!(ran.out, include_str!("../tests/data/recovery.txt"));
        let mut script =
            Script::new(pages().into_iter().map(|page| Ok(ControlReply::Recovery(page))));
        let ran = fixture::run(&mut script, |cx| run(cx, None, Some(1), true));
        assert_eq!(ran.json()["changes"][0]["number"], 8);
        let overtaken = RecoveryRecord { superseded: true, ..failed() };
        let page = RecoveryPage { changes: vec![overtaken], next: None };
        let out = show(vec![page], Some("web"), false).out;
        assert!(out.contains("all in service  not before the next change\n"), "{out}");
    }

    #[test]
    fn json_has_the_same() {
        let ran = show(pages(), None, true);
        let (json, code) = (ran.json(), ran.code);
        assert_eq!((json["state"].as_str(), code), (Some("ok"), GOOD));
        let second = &json["changes"][1];
        assert_eq!((second["name"].as_str(), second["number"].as_u64()), (Some("web"), Some(8)));
        assert_eq!((second["safe"][0]["after_us"].as_u64()), Some(1_203_000));
        assert!(second["in_service_us"].is_null() && second["safe"][1]["after_us"].is_null());
        assert_eq!(second["at"], "2023-11-14T22:13:20Z");
    }

    #[test]
    fn nothing_remembered_is_no_and_no_daemon_is_said() {
        let none = || vec![RecoveryPage::default()];
        let ran = show(none(), Some("web"), true);
        assert_eq!((ran.json()["state"].as_str(), ran.code), (Some("not-found"), NO));
        assert_eq!(
            show(none(), None, false),
            Ran { out: String::new(), err: String::new(), code: 0 }
        );
        let ran = fixture::run(&mut Script::absent(), |cx| run(cx, None, None, false));
        assert_eq!((ran.out.as_str(), ran.code), ("", SILENT));
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_709_251_200, "2024-03-01T00:00:00Z"),
            (4_102_444_799, "2099-12-31T23:59:59Z"),
        ] {
            assert_eq!(utc(seconds), text);
        }
    }
}
