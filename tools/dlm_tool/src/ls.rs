//! `ls [-n] [NAME]`: the lockspaces (libdlm-abi.md 4.3).

use std::io::{self, Write};

use dlm_ipc::control::{
    ChangeRecord, ControlReply, ControlRequest, SpaceNodeRecord, SpaceRecord, left,
};
use serde::Serialize;

use crate::context::{Context, Daemon, GOOD, NO, Outcome, Trouble, misunderstood};
use crate::name::{JsonName, escape};

/// What to list.
pub(crate) struct Ls {
    /// Only this lockspace.
    pub(crate) name: Option<Vec<u8>>,
    /// Per-node lines too.
    pub(crate) nodes: bool,
    /// As JSON.
    pub(crate) json: bool,
}

/// Lists lockspaces.
pub(crate) fn run(cx: &mut Context<'_>, ls: &Ls) -> Outcome {
    let spaces = match lockspaces(cx.daemon) {
        Ok(spaces) => spaces,
        Err(trouble) if ls.json => return cx.fail_truly(&trouble, true),
        Err(trouble @ Trouble::Silent(_)) => return cx.fail_silent(&trouble),
        Err(_) => return Ok(NO),
    };
    let wanted: Vec<&SpaceRecord> = spaces
        .iter()
        .filter(|space| ls.name.as_ref().is_none_or(|name| *name == space.name))
        .collect();
    if wanted.is_empty()
        && let Some(name) = &ls.name
    {
        return if ls.json { cx.fail_truly(&no_lockspace(name), true) } else { Ok(NO) };
    }
    if ls.json {
        let lockspaces = wanted.iter().map(|space| JsonSpace::new(space)).collect();
        cx.json(&Listing { state: "ok", lockspaces })?;
        return Ok(GOOD);
    }
    for (i, space) in wanted.iter().enumerate() {
        if i == 0 {
            writeln!(cx.out, "dlm lockspaces")?;
        }
        print(cx.out, space, ls.nodes)?;
    }
    Ok(GOOD)
}

/// All lockspaces of the daemon, however many answers that takes.
pub(crate) fn lockspaces(daemon: &mut dyn Daemon) -> Result<Vec<SpaceRecord>, Trouble> {
    let (mut all, mut request) = (Vec::new(), ControlRequest::Lockspaces);
    loop {
        let ControlReply::Lockspaces(page) = daemon.ask(&request)? else {
            return Err(misunderstood());
        };
        let Some(last) = page.last() else { return Ok(all) };
        request = ControlRequest::LockspacesAfter { name: last.name.clone() };
        all.extend(page);
    }
}

fn no_lockspace(name: &[u8]) -> Trouble {
    Trouble::Refused {
        errno: libc::ENOENT,
        message: format!("this node has no lockspace \"{}\"; dlm_tool ls lists them", escape(name)),
    }
}

const SAVE_PLOCK: u32 = 0x20;
const NEED_PLOCK: u32 = 0x10;
const FS_REGISTERED: u32 = 0x8;
const STOPPED: u32 = 0x4;
const LEAVING: u32 = 0x2;
const JOINING: u32 = 0x1;

/// The words of the flags in the order of the old listing.
const FLAG_WORDS: [(u32, &str); 6] = [
    (SAVE_PLOCK, "save_plock"),
    (NEED_PLOCK, "need_plock"),
    (FS_REGISTERED, "fs_reg"),
    (STOPPED, "kern_stop"),
    (LEAVING, "leave"),
    (JOINING, "join"),
];

/// The old flags of a lockspace's state: "stopped" is what a lockspace that grants nothing was
/// called.
fn flags(state: &str) -> u32 {
    match state {
        "joining" => STOPPED | JOINING,
        "leaving" => LEAVING,
        "recovering" | "frozen" => STOPPED,
        _ => 0,
    }
}

fn flag_words(flags: u32) -> String {
    let words: Vec<&str> =
        FLAG_WORDS.iter().filter(|(bit, _)| flags & bit != 0).map(|(_, word)| *word).collect();
    words.join(",")
}

fn print(out: &mut dyn Write, space: &SpaceRecord, nodes: bool) -> io::Result<()> {
    let flags = flags(&space.state);
    writeln!(out, "name          {}", escape(&space.name))?;
    writeln!(out, "id            0x{:08x}", space.global_id)?;
    writeln!(out, "flags         0x{flags:08x} {}", flag_words(flags))?;
    print_change(out, "change", &space.change)?;
    let members = match space.next_change {
        Some(_) => &space.change.members,
        None => &space.members,
    };
    writeln!(out, "members       {}", node_list(members))?;
    if let Some(next) = &space.next_change {
        print_change(out, "new change", next)?;
        let status = if next.status.is_empty() { "wait unknown" } else { &next.status };
        writeln!(out, "new status    {status}")?;
        writeln!(out, "new members   {}", node_list(&next.members))?;
    }
    if nodes {
        writeln!(out, "all nodes")?;
        for node in &space.nodes {
            writeln!(out, "{}", node_line(node))?;
        }
    }
    writeln!(out)
}

fn print_change(out: &mut dyn Write, label: &str, change: &ChangeRecord) -> io::Result<()> {
    writeln!(
        out,
        "{label:<14}member {} joined {} remove {} failed {} seq {},{}",
        change.members.len(),
        change.joined,
        change.removed,
        change.failed,
        change.seq,
        change.seq
    )
}

fn node_list(nodes: &[u32]) -> String {
    nodes.iter().map(|node| format!("{node} ")).collect()
}

/// One line per member and per node that was one.
fn node_line(node: &SpaceNodeRecord) -> String {
    let check = if node.feared { format!("fence {}", node.failed) } else { "none".to_owned() };
    format!(
        "nodeid {} member {} failed {} start {} seq_add {} seq_rem {} check {check}",
        node.node,
        u32::from(node.member),
        node.left,
        u32::from(node.started),
        node.added_seq,
        node.removed_seq
    )
}

/// What a node is to a lockspace, in words.
fn node_state(node: &SpaceNodeRecord) -> &'static str {
    match (node.member, node.feared, node.left) {
        (true, true, _) => "member again, its earlier life not known to be safe",
        (true, ..) => "member",
        (_, true, _) => "lost, not known to be safe",
        (_, _, left::LEAVE) => "left",
        (_, _, 0) => "not a member",
        _ => "lost, known to be safe",
    }
}

#[derive(Serialize)]
struct Listing<'a> {
    state: &'static str,
    lockspaces: Vec<JsonSpace<'a>>,
}

#[derive(Serialize)]
struct JsonSpace<'a> {
    #[serde(flatten)]
    name: JsonName,
    state: &'a str,
    waits_for: &'a [String],
    id: u32,
    flags: u32,
    view: u64,
    members: &'a [u32],
    change: JsonChange<'a>,
    new_change: Option<JsonChange<'a>>,
    nodes: Vec<JsonNode>,
    uid: u32,
    gid: u32,
    mode: String,
    create_flags: u32,
    create_count: u32,
    handles: u32,
    locks: u64,
    resources: u64,
    orphans: u64,
}

impl<'a> JsonSpace<'a> {
    fn new(space: &'a SpaceRecord) -> Self {
        Self {
            name: JsonName::new(&space.name),
            state: &space.state,
            waits_for: &space.waits_for,
            id: space.global_id,
            flags: flags(&space.state),
            view: space.view,
            members: &space.members,
            change: JsonChange::new(&space.change),
            new_change: space.next_change.as_ref().map(JsonChange::new),
            nodes: space.nodes.iter().map(JsonNode::new).collect(),
            uid: space.uid,
            gid: space.gid,
            mode: format!("{:04o}", space.mode),
            create_flags: space.flags,
            create_count: space.create_count,
            handles: space.handles,
            locks: space.locks,
            resources: space.resources,
            orphans: space.orphans,
        }
    }
}

#[derive(Serialize)]
struct JsonChange<'a> {
    node: u32,
    joined: u32,
    removed: u32,
    failed: u32,
    seq: u64,
    members: &'a [u32],
    status: &'a str,
}

impl<'a> JsonChange<'a> {
    fn new(change: &'a ChangeRecord) -> Self {
        Self {
            node: change.node,
            joined: change.joined,
            removed: change.removed,
            failed: change.failed,
            seq: change.seq,
            members: &change.members,
            status: &change.status,
        }
    }
}

#[derive(Serialize)]
struct JsonNode {
    node: u32,
    state: &'static str,
    member: bool,
    started: bool,
    left_reason: u32,
    seq_add: u64,
    seq_rem: u64,
    feared: bool,
    failed_s: u64,
}

impl JsonNode {
    fn new(node: &SpaceNodeRecord) -> Self {
        Self {
            node: node.node,
            state: node_state(node),
            member: node.member,
            started: node.started,
            left_reason: node.left,
            seq_add: node.added_seq,
            seq_rem: node.removed_seq,
            feared: node.feared,
            failed_s: node.failed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::SILENT;
    use crate::fixture::{self, Ran, Script, space, spaces};

    fn ls(script: &mut Script, name: Option<&str>, nodes: bool, json: bool) -> Ran {
        let name = name.map(|name| name.as_bytes().to_vec());
        fixture::run(script, |cx| run(cx, &Ls { name, nodes, json }))
    }

    fn demo() -> Script {
        Script::new([spaces(vec![space(b"demo", 0xa84c_f245, &[1, 2])])])
    }

    #[test]
    fn listings_are_the_recorded_ones() {
        let plain = ls(&mut demo(), None, false, false);
        assert_eq!((plain.out.as_str(), plain.code), (include_str!("../tests/data/ls.txt"), GOOD));
        let one = ls(&mut demo(), Some("demo"), false, false);
        assert_eq!(one.out, include_str!("../tests/data/ls.txt"));
        let mut two = Script::new([spaces(vec![
            space(b"demo2", 0x396c_4211, &[1]),
            space(b"demo", 0xa84c_f245, &[1, 2]),
        ])]);
        let two = ls(&mut two, None, false, false);
        assert_eq!(two.out, include_str!("../tests/data/ls-two.txt"));
    }

    #[test]
    fn node_lines_are_the_recorded_ones() {
        let mut record = space(b"demo", 0xa84c_f245, &[1, 2]);
        record.nodes[0].added_seq = 1;
        let out = ls(&mut Script::new([spaces(vec![record])]), None, true, false).out;
        assert_eq!(out, include_str!("../tests/data/ls-n.txt"));
    }

    #[test]
    fn a_change_in_progress_has_its_lines() {
        let mut record = space(b"web", 0x5a17_c0de, &[1, 2, 3]);
        record.state = "recovering".to_owned();
        record.members = vec![1, 2];
        record.change.seq = 7;
        for node in &mut record.nodes {
            node.added_seq = 7;
            node.started = false;
        }
        let feared =
            SpaceNodeRecord { node: 3, added_seq: 7, removed_seq: 8, ..Default::default() };
        record.nodes[2] =
            SpaceNodeRecord { left: left::NODE_DOWN, feared: true, failed: 90_210, ..feared };
        record.next_change = Some(ChangeRecord {
            node: 3,
            joined: 0,
            removed: 1,
            failed: 1,
            seq: 8,
            members: vec![1, 2],
            status: "wait fencing".to_owned(),
        });
        let out = ls(&mut Script::new([spaces(vec![record.clone()])]), None, true, false).out;
        assert_eq!(out, include_str!("../tests/data/ls-change.txt"));
        let json = ls(&mut Script::new([spaces(vec![record])]), None, true, true).json();
        let lost = &json["lockspaces"][0]["nodes"][2];
        assert_eq!((lost["seq_rem"].as_u64(), lost["feared"].as_bool()), (Some(8), Some(true)));
        assert_eq!(lost["state"], "lost, not known to be safe");
    }

    #[test]
    fn a_joining_lockspace_says_so() {
        let mut record = space(b"web", 1, &[]);
        record.state = "joining".to_owned();
        record.change = ChangeRecord::default();
        let out = ls(&mut Script::new([spaces(vec![record])]), None, false, false).out;
        assert!(out.contains("flags         0x00000005 kern_stop,join\n"), "{out}");
        assert!(out.contains("change        member 0 joined 0 remove 0 failed 0 seq 0,0\n"));
        assert!(out.contains("members       \n"));
    }

    #[test]
    fn flag_words_have_their_order() {
        assert_eq!(flag_words(0x3f), "save_plock,need_plock,fs_reg,kern_stop,leave,join");
        assert_eq!(flag_words(flags("running")), "");
        assert_eq!(flag_words(flags("leaving")), "leave");
        assert_eq!(flag_words(flags("frozen")), "kern_stop");
    }

    #[test]
    fn many_lockspaces_come_in_several_answers() {
        let page = |range: std::ops::Range<usize>| {
            spaces(range.map(|n| space(format!("{n:04}").as_bytes(), 1, &[1])).collect())
        };
        let mut script = Script::new([page(0..100), page(100..130)]);
        let ran = ls(&mut script, None, false, true);
        assert_eq!(ran.json()["lockspaces"].as_array().map(Vec::len), Some(130));
        let after = |name: &str| ControlRequest::LockspacesAfter { name: name.into() };
        assert_eq!(script.asked[1..], [after("0099"), after("0129")], "an empty page is the end");
    }

    #[test]
    fn codes_of_the_plain_form() {
        let nothing = |code| Ran { out: String::new(), err: String::new(), code };
        assert_eq!(ls(&mut Script::absent(), None, false, false), nothing(1));
        assert_eq!(ls(&mut demo(), Some("nosuch"), true, false), nothing(1));
        assert_eq!(ls(&mut Script::new([spaces(vec![])]), None, true, false), nothing(0));
        let silent = ls(&mut Script::silent(), None, false, false);
        assert_eq!((silent.out.as_str(), silent.code), ("", SILENT));
        assert!(silent.err.contains("no answer"));
    }

    #[test]
    fn json_tells_the_truth() {
        let mut record = space(b"odd\xff", 0xa84c_f245, &[1, 2]);
        record.state = "frozen".to_owned();
        record.waits_for = vec!["quorum".to_owned()];
        let ran = ls(&mut Script::new([spaces(vec![record])]), None, false, true);
        let json = ran.json();
        assert_eq!((json["state"].as_str(), ran.code), (Some("ok"), GOOD));
        let first = &json["lockspaces"][0];
        assert_eq!(first["state"], "frozen");
        assert_eq!(first["name"], r"odd\xff");
        assert_eq!(first["name_hex"], "6f6464ff");
        assert_eq!(first["name_escaped"], true);
        assert_eq!(first["waits_for"][0], "quorum");
        assert_eq!(first["id"], 0xa84c_f245_u32);
        assert_eq!(first["mode"], "0600");
        assert_eq!(first["members"], serde_json::json!([1, 2]));

        for (script, name, state, code) in [
            (&mut Script::absent(), None, "daemon-absent", 3),
            (&mut Script::silent(), None, "daemon-silent", 3),
            (&mut demo(), Some("nosuch"), "not-found", 1),
        ] {
            let ran = ls(script, name, false, true);
            assert_eq!((ran.json()["state"].as_str(), ran.code), (Some(state), code));
        }
        let none = ls(&mut Script::new([spaces(vec![])]), None, false, true);
        assert_eq!((none.json()["lockspaces"].clone(), none.code), (serde_json::json!([]), GOOD));
    }
}
