//! `status [-v]`: the daemon, the cluster and its nodes (libdlm-abi.md 4.4).

use std::io::{self, Write};
use std::time::{SystemTime, UNIX_EPOCH};

use dlm_ipc::control::{ControlReply, ControlRequest, NodeRecord, StatusRecord};
use serde::Serialize;

use crate::context::{Context, GOOD, NO, Outcome, Trouble};

/// How to show it.
#[derive(Clone, Copy)]
pub(crate) struct Status {
    /// Every key.
    pub(crate) verbose: bool,
    /// As JSON.
    pub(crate) json: bool,
}

/// Shows the status.
pub(crate) fn run(cx: &mut Context<'_>, show: Status) -> Outcome {
    let status = match daemon_status(cx) {
        Ok(status) => status,
        Err(trouble) if show.json => return cx.fail_truly(&trouble, true),
        Err(trouble @ Trouble::Silent(_)) => return cx.fail_silent(&trouble),
        Err(_) => {
            writeln!(cx.out, "cannot connect to dlm_controld")?;
            return Ok(GOOD);
        }
    };
    if show.json {
        let state = state_word(&status);
        cx.json(&JsonStatus::new(&status, state))?;
        return Ok(if state == RUNNING { GOOD } else { NO });
    }
    if show.verbose {
        print_keys(cx.out, &status)?;
    } else {
        print(cx.out, &status, wall_seconds())?;
    }
    Ok(GOOD)
}

/// The daemon's status.
pub(crate) fn daemon_status(cx: &mut Context<'_>) -> Result<StatusRecord, Trouble> {
    cx.ask(&ControlRequest::Status, |reply| match reply {
        ControlReply::Status(status) => Some(status),
        _ => None,
    })
}

fn wall_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
}

const RUNNING: &str = "running";

/// One word for the whole: what a monitor acts on.
fn state_word(status: &StatusRecord) -> &'static str {
    if !status.quorate {
        "no-quorum"
    } else if status.waits_for.is_empty() {
        RUNNING
    } else {
        "waiting"
    }
}

fn sorted(status: &StatusRecord) -> Vec<&NodeRecord> {
    let mut nodes: Vec<&NodeRecord> = status.nodes.iter().collect();
    nodes.sort_by_key(|node| node.node);
    nodes
}

/// Whether a node failed and nobody said yet that it is safe.
fn needs_fencing(node: &NodeRecord) -> bool {
    !node.member && node.failed > node.fenced
}

/// Wall-clock seconds of a reading of the daemon's monotonic clock; 0 stays "never".
fn wall_time(status: &StatusRecord, monotonic: u64, wall_now: u64) -> u64 {
    if monotonic == 0 { 0 } else { wall_now.saturating_sub(status.now.saturating_sub(monotonic)) }
}

fn print(out: &mut dyn Write, status: &StatusRecord, wall_now: u64) -> io::Result<()> {
    let (cluster, daemon) = status.ring;
    let quorate = u32::from(status.quorate);
    writeln!(out, "cluster nodeid {} quorate {quorate} ring seq {cluster} {daemon}", status.node)?;
    writeln!(out, "daemon now {} fence_pid 0 ", status.now)?;
    let nodes = sorted(status);
    for node in nodes.iter().filter(|node| needs_fencing(node)) {
        let fail = wall_time(status, node.failed, wall_now);
        let id = node.node;
        writeln!(out, "fence {id} nodedown delay actor 0 fail {fail} fence 0 now {wall_now}")?;
    }
    for node in nodes {
        writeln!(
            out,
            "node {} {} add {} rem {} fail {} fence {} at 0 {}",
            node.node,
            if node.member { 'M' } else { 'X' },
            node.added,
            node.removed,
            node.failed,
            node.fenced,
            wall_time(status, node.fenced, wall_now)
        )?;
    }
    Ok(())
}

fn print_keys(out: &mut dyn Write, status: &StatusRecord) -> io::Result<()> {
    let wall_now = wall_seconds();
    let members = status.nodes.iter().filter(|node| node.member).count() as u64;
    let (cluster, daemon) = status.ring;
    writeln!(out, "our_nodeid {}", status.node)?;
    let keys = [
        ("member_count", members),
        ("joined_count", members.min(1)),
        ("remove_count", status.nodes.len() as u64 - members),
        ("daemon_ringid", daemon),
        ("cluster_ringid", cluster),
        ("quorate", u64::from(status.quorate)),
        ("fence_pid", 0),
        ("fence_in_progress_unknown", 0),
        ("zombie_count", 0),
        ("monotime", status.now),
        ("stateful_merge_wait", 0),
    ];
    for (key, value) in keys {
        writeln!(out, "    {key}={value}")?;
    }
    writeln!(out, "    ")?;
    for node in sorted(status) {
        writeln!(out, "nodeid {}", node.node)?;
        for (key, value) in node_keys(status, node, wall_now) {
            writeln!(out, "    {key}={value}")?;
        }
        writeln!(out, "    ")?;
    }
    Ok(())
}

fn node_keys(
    status: &StatusRecord,
    node: &NodeRecord,
    wall_now: u64,
) -> [(&'static str, String); 16] {
    let reason = match (node.member, node.failed, node.removed) {
        (true, ..) | (_, 0, 0) => "unknown",
        (_, 0, _) => "leave",
        _ => "nodedown",
    };
    let wall = |monotonic| wall_time(status, monotonic, wall_now).to_string();
    let zero = || "0".to_owned();
    [
        ("member", u32::from(node.member).to_string()),
        ("killed", zero()),
        ("left_reason", reason.to_owned()),
        ("need_fencing", u32::from(needs_fencing(node)).to_string()),
        ("delay_fencing", zero()),
        ("fence_pid", zero()),
        ("fence_pid_wait", zero()),
        ("fence_result_wait", zero()),
        ("fence_actor_last", zero()),
        ("fence_actor_done", zero()),
        ("add_time", node.added.to_string()),
        ("rem_time", node.removed.to_string()),
        ("fail_walltime", wall(node.failed)),
        ("fail_monotime", node.failed.to_string()),
        ("fence_walltime", wall(node.fenced)),
        ("fence_monotime", node.fenced.to_string()),
    ]
}

#[derive(Serialize)]
struct JsonStatus<'a> {
    state: &'static str,
    waits_for: &'a [String],
    version: &'a str,
    cluster: &'a str,
    membership: &'a str,
    node: u32,
    incarnation: u64,
    quorate: bool,
    cluster_ring: u64,
    daemon_ring: u64,
    now_s: u64,
    uptime_s: u64,
    pid: u32,
    clients: u32,
    nodes: Vec<JsonNode<'a>>,
}

impl<'a> JsonStatus<'a> {
    fn new(status: &'a StatusRecord, state: &'static str) -> Self {
        Self {
            state,
            waits_for: &status.waits_for,
            version: &status.version,
            cluster: &status.cluster,
            membership: &status.membership,
            node: status.node,
            incarnation: status.incarnation,
            quorate: status.quorate,
            cluster_ring: status.ring.0,
            daemon_ring: status.ring.1,
            now_s: status.now,
            uptime_s: status.uptime,
            pid: status.pid,
            clients: status.clients,
            nodes: sorted(status).into_iter().map(JsonNode::new).collect(),
        }
    }
}

#[derive(Serialize)]
struct JsonNode<'a> {
    node: u32,
    state: &'a str,
    member: bool,
    address: &'a str,
    needs_fencing: bool,
    added_s: u64,
    removed_s: u64,
    failed_s: u64,
    fenced_s: u64,
}

impl<'a> JsonNode<'a> {
    fn new(node: &'a NodeRecord) -> Self {
        Self {
            node: node.node,
            state: &node.state,
            member: node.member,
            address: &node.address,
            needs_fencing: needs_fencing(node),
            added_s: node.added,
            removed_s: node.removed,
            failed_s: node.failed,
            fenced_s: node.fenced,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::SILENT;
    use crate::fixture::{self, Ran, Script, status};

    fn show(record: StatusRecord, verbose: bool, json: bool) -> Ran {
        let mut script = Script::new([Ok(ControlReply::Status(record))]);
        fixture::run(&mut script, |cx| run(cx, Status { verbose, json }))
    }

    #[test]
    fn both_text_forms_are_the_recorded_ones() {
        let plain = show(status(&[2, 1]), false, false);
        assert_eq!(plain.out, include_str!("../tests/data/status.txt"));
        let keys = show(status(&[2, 1]), true, false);
        assert_eq!(keys.out, include_str!("../tests/data/status-v.txt"));
        assert_eq!((plain.code, keys.code), (GOOD, GOOD));
    }

    #[test]
    fn a_failed_node_has_its_fence_line_and_letter() {
        let mut record = status(&[1, 3]);
        record.now = 1000;
        record.nodes[1] =
            NodeRecord { node: 3, added: 60, removed: 900, failed: 900, ..NodeRecord::default() };
        let mut out = Vec::new();
        print(&mut out, &record, 1_700_000_100).expect("written");
        assert_eq!(
            String::from_utf8(out).expect("text"),
            "cluster nodeid 1 quorate 1 ring seq 9 9\n\
             daemon now 1000 fence_pid 0 \n\
             fence 3 nodedown delay actor 0 fail 1700000000 fence 0 now 1700000100\n\
             node 1 M add 23 rem 0 fail 0 fence 0 at 0 0\n\
             node 3 X add 60 rem 900 fail 900 fence 0 at 0 0\n"
        );
        let keys = show(record, true, false).out;
        assert!(keys.contains("    left_reason=nodedown\n    need_fencing=1\n"), "{keys}");
    }

    #[test]
    fn the_plain_form_never_fails_but_on_silence() {
        let plain = Status { verbose: false, json: false };
        let ran = fixture::run(&mut Script::absent(), |cx| run(cx, plain));
        assert_eq!((ran.out.as_str(), ran.code), ("cannot connect to dlm_controld\n", GOOD));
        let ran = fixture::run(&mut Script::silent(), |cx| run(cx, plain));
        assert_eq!((ran.out.as_str(), ran.code), ("", SILENT));
    }

    #[test]
    fn json_has_a_state_and_a_code_for_each_situation() {
        let mut no_quorum = status(&[1]);
        no_quorum.quorate = false;
        let mut waiting = status(&[1, 2]);
        waiting.waits_for = vec!["node 2 is not fenced".to_owned()];
        for (record, state, code) in [
            (status(&[1]), "running", GOOD),
            (no_quorum, "no-quorum", NO),
            (waiting, "waiting", NO),
        ] {
            let ran = show(record, false, true);
            assert_eq!((ran.json()["state"].as_str(), ran.code), (Some(state), code));
        }
        for (mut script, state) in
            [(Script::absent(), "daemon-absent"), (Script::silent(), "daemon-silent")]
        {
            let json = Status { verbose: false, json: true };
            let ran = fixture::run(&mut script, |cx| run(cx, json));
            assert_eq!((ran.json()["state"].as_str(), ran.code), (Some(state), SILENT));
        }
    }
}
