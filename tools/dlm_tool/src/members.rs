//! `members [LOCKSPACE]` and `safe NODE`: who takes part, and a person's word that a lost node is
//! harmless (membership.md).

use std::collections::BTreeSet;

use dlm_ipc::control::{ControlReply, ControlRequest, MemberRecord, StayRecord, StaysRecord};
use serde::Serialize;

use crate::context::{Context, GOOD, NO, Outcome, Trouble};

/// Lists the members of every lockspace, or of one.
pub(crate) fn run(cx: &mut Context<'_>, lockspace: Option<&[u8]>, json: bool) -> Outcome {
    let mut all = match stays(cx) {
        Ok(all) => all,
        Err(trouble) => return cx.fail_truly(&trouble, json),
    };
    if let Some(name) = lockspace {
        all.stays.retain(|stay| stay.lockspace == name);
    }
    let found = lockspace.is_none() || !all.stays.is_empty();
    if json {
        cx.json(&JsonMembers::new(&all, if found { "ok" } else { "not-found" }))?;
    } else {
        for stay in &all.stays {
            print(cx, all.node, stay)?;
        }
        for life in &all.remains {
            writeln!(
                cx.out,
                "incarnation {life} of this node is over; clients still have to close"
            )?;
        }
        if !found {
            writeln!(cx.err, "dlm_tool: there is no such lockspace on this node")?;
        }
    }
    Ok(if found { GOOD } else { NO })
}

fn print(cx: &mut Context<'_>, node: u32, stay: &StayRecord) -> std::io::Result<()> {
    let name = stay.lockspace.escape_ascii();
    if stay.view.id == 0 {
        return writeln!(cx.out, "{name} waits for its first view");
    }
    writeln!(cx.out, "{name} view {}", stay.view.id)?;
    for member in &stay.view.members {
        let own = if member.node == node { " (this node)" } else { "" };
        writeln!(cx.out, "  node {} incarnation {}{own}", member.node, member.incarnation)?;
    }
    for member in &stay.view.unsafe_members {
        let MemberRecord { node, incarnation } = member;
        writeln!(cx.out, "  node {node} incarnation {incarnation} lost, not known to be safe")?;
    }
    Ok(())
}

/// Says that a node is gone with all its clients, for every lost life of it that is waited for here.
pub(crate) fn run_safe(cx: &mut Context<'_>, node: u32, json: bool) -> Outcome {
    let told = stays(cx).and_then(|all| {
        let lost = all.stays.iter().flat_map(|stay| &stay.view.unsafe_members);
        let lost: BTreeSet<MemberRecord> =
            lost.filter(|member| member.node == node).copied().collect();
        for member in &lost {
            cx.ask(&ControlRequest::Safe { member: *member }, done)?;
        }
        Ok(lost.len())
    });
    match told {
        Err(trouble) => cx.fail_truly(&trouble, json),
        Ok(count) => {
            let state = if count > 0 { "ok" } else { "not-waited-for" };
            match (json, count) {
                (true, _) => cx.json(&JsonSafe { state, node, count })?,
                (false, 0) => writeln!(cx.err, "dlm_tool: nothing here waits for node {node}")?,
                (false, _) => writeln!(cx.out, "node {node} is safe")?,
            }
            Ok(if count > 0 { GOOD } else { NO })
        }
    }
}

fn done(reply: ControlReply) -> Option<()> {
    (reply == ControlReply::Done).then_some(())
}

/// Every stay of the node, over as many answers as it takes.
fn stays(cx: &mut Context<'_>) -> Result<StaysRecord, Trouble> {
    let mut all = StaysRecord::default();
    loop {
        let after = all.stays.last().map(|stay| stay.lockspace.clone()).unwrap_or_default();
        let page = cx.ask(&ControlRequest::Stays { after }, |reply| match reply {
            ControlReply::Stays(page) => Some(page),
            _ => None,
        })?;
        let mut stays = std::mem::take(&mut all.stays);
        let more = page.more && !page.stays.is_empty();
        stays.extend(page.stays.iter().cloned());
        all = StaysRecord { stays, ..page };
        if !more {
            return Ok(all);
        }
    }
}

#[derive(Serialize)]
struct JsonMembers {
    state: &'static str,
    node: u32,
    life: u64,
    remains: Vec<u64>,
    lockspaces: Vec<JsonStay>,
}

#[derive(Serialize)]
struct JsonStay {
    name: String,
    incarnation: u64,
    view: u32,
    members: Vec<JsonMember>,
    lost: Vec<JsonMember>,
}

#[derive(Serialize)]
struct JsonMember {
    node: u32,
    incarnation: u64,
}

#[derive(Serialize)]
struct JsonSafe {
    state: &'static str,
    node: u32,
    count: usize,
}

impl JsonMembers {
    fn new(all: &StaysRecord, state: &'static str) -> Self {
        let members = |records: &[MemberRecord]| {
            let of = |record: &MemberRecord| {
                let MemberRecord { node, incarnation } = *record;
                JsonMember { node, incarnation }
            };
            records.iter().map(of).collect()
        };
        let stay = |stay: &StayRecord| JsonStay {
            name: stay.lockspace.escape_ascii().to_string(),
            incarnation: stay.incarnation,
            view: stay.view.id,
            members: members(&stay.view.members),
            lost: members(&stay.view.unsafe_members),
        };
        let lockspaces = all.stays.iter().map(stay).collect();
        Self { state, node: all.node, life: all.life, remains: all.remains.clone(), lockspaces }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{self, Script, refused};
    use dlm_ipc::control::ViewRecord;

    fn stay(name: &str, lost: &[u32]) -> StayRecord {
        let record = |node: &u32| MemberRecord { node: *node, incarnation: 70 + u64::from(*node) };
        let view = ViewRecord {
            id: 9,
            members: [1, 2].iter().map(record).collect(),
            unsafe_members: lost.iter().map(record).collect(),
        };
        StayRecord { lockspace: name.into(), incarnation: 71, view, wants_view: false }
    }

    fn page(stays: Vec<StayRecord>, more: bool) -> Result<ControlReply, Trouble> {
        Ok(ControlReply::Stays(StaysRecord {
            node: 1,
            life: 70,
            stays,
            more,
            ..StaysRecord::default()
        }))
    }

    #[test]
    fn members_are_listed_over_all_answers() {
        let two = || [page(vec![stay("a", &[])], true), page(vec![stay("b", &[3])], false)];
        let mut script = Script::new(two());
        let ran = fixture::run(&mut script, |cx| run(cx, None, false));
        let want = "a view 9\n  node 1 incarnation 71 (this node)\n  node 2 incarnation 72\n\
                    b view 9\n  node 1 incarnation 71 (this node)\n  node 2 incarnation 72\n  \
                    node 3 incarnation 73 lost, not known to be safe\n";
        assert_eq!((ran.out.as_str(), ran.code), (want, GOOD));
        assert_eq!(script.asked[1], ControlRequest::Stays { after: b"a".to_vec() });
        let ran = fixture::run(&mut Script::new(two()), |cx| run(cx, Some(b"b"), true));
        assert_eq!(ran.json()["lockspaces"][0]["lost"][0]["node"], 3);
        let ran = fixture::run(&mut Script::new(two()), |cx| run(cx, Some(b"c"), false));
        assert_eq!((ran.out.as_str(), ran.code), ("", NO));
        let joining = StayRecord { view: ViewRecord::default(), ..stay("j", &[]) };
        let mut script = Script::new([page(vec![joining], false)]);
        assert_eq!(
            fixture::run(&mut script, |cx| run(cx, None, false)).out,
            "j waits for its first view\n"
        );
    }

    #[test]
    fn safe_is_said_once_for_each_lost_member_of_the_node() {
        let lost = || page(vec![stay("a", &[3]), stay("b", &[3, 4])], false);
        let mut script = Script::new([lost(), Ok(ControlReply::Done)]);
        let ran = fixture::run(&mut script, |cx| run_safe(cx, 3, false));
        assert_eq!((ran.out.as_str(), ran.code), ("node 3 is safe\n", GOOD));
        let member = MemberRecord { node: 3, incarnation: 73 };
        assert_eq!(script.asked[1..], [ControlRequest::Safe { member }]);
        let ran = fixture::run(&mut Script::new([lost()]), |cx| run_safe(cx, 5, false));
        assert_eq!((ran.code, ran.out.as_str()), (NO, ""));
        let mut script = Script::new([lost(), refused(libc::EOPNOTSUPP)]);
        assert_eq!(fixture::run(&mut script, |cx| run_safe(cx, 3, false)).code, NO);
    }
}
