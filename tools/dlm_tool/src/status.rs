//! `status [-v]`: the daemon, the cluster and its nodes (libdlm-abi.md 4.4).

use std::io::{self, Write};

use dlm_ipc::control::{ControlReply, ControlRequest, NodeRecord, StatusRecord, wall_seconds};
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
        print_keys(cx.out, &status, wall_seconds())?;
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

fn print(out: &mut dyn Write, status: &StatusRecord, wall_now: u64) -> io::Result<()> {
    let (cluster, daemon) = status.ring;
    let quorate = u32::from(status.quorate);
    writeln!(out, "cluster nodeid {} quorate {quorate} ring seq {cluster} {daemon}", status.node)?;
    let unknown = if status.fencing.in_progress_unknown { "fence_init" } else { "" };
    writeln!(out, "daemon now {} fence_pid {} {unknown}", status.now, status.fencing.pid)?;
    let nodes = status.sorted();
    for id in &status.fencing.startup {
        match nodes.iter().find(|node| node.node == *id) {
            Some(node) => writeln!(out, "startup {}", node_line(status, node, wall_now))?,
            None => writeln!(out, "startup node {id}")?,
        }
    }
    let unchecked = |node: &NodeRecord| status.fencing.startup.contains(&node.node);
    for node in nodes.iter().filter(|node| node.needs_fencing() && !unchecked(node)) {
        writeln!(out, "{}", fence_line(status, node, wall_now))?;
    }
    for node in &nodes {
        writeln!(out, "{}", node_line(status, node, wall_now))?;
    }
    print_words(out, status, &nodes)
}

fn fence_line(status: &StatusRecord, node: &NodeRecord, wall_now: u64) -> String {
    let fencing = &node.fencing;
    let at_work = match fencing.pid {
        0 => "delay".to_owned(),
        pid => format!("pid {pid}"),
    };
    let waits = if fencing.result_wait { " result_wait" } else { "" };
    let killed = if fencing.killed { " killed" } else { "" };
    let (failed, fenced) = node.walls(status.now, wall_now);
    format!(
        "fence {} {} {at_work} actor {} fail {failed} fence {fenced} now {wall_now}{waits}{killed}",
        node.node,
        node.reason_word(),
        fencing.actor_last,
    )
}

fn node_line(status: &StatusRecord, node: &NodeRecord, wall_now: u64) -> String {
    format!(
        "node {} {} add {} rem {} fail {} fence {} at {} {}",
        node.node,
        if node.member { 'M' } else { 'X' },
        node.added,
        node.removed,
        node.failed,
        node.fenced_since(),
        node.fencing.actor_done,
        node.walls(status.now, wall_now).1
    )
}

/// What the original does not say: behind its lines, so that who reads those is not disturbed, and
/// not at all where there is nothing to say.
fn print_words(
    out: &mut dyn Write,
    status: &StatusRecord,
    nodes: &[&NodeRecord],
) -> io::Result<()> {
    if status.membership != "single" {
        for node in nodes {
            writeln!(out, "state {} {}, {}", node.node, node.state, node.address)?;
        }
    }
    for text in &status.waits_for {
        writeln!(out, "waits {text}")?;
    }
    Ok(())
}

fn print_keys(out: &mut dyn Write, status: &StatusRecord, wall_now: u64) -> io::Result<()> {
    writeln!(out, "our_nodeid {}", status.node)?;
    for (key, value) in status.keys() {
        writeln!(out, "    {key}={value}")?;
    }
    writeln!(out, "    ")?;
    for node in status.sorted() {
        writeln!(out, "nodeid {}", node.node)?;
        for (key, value) in node.keys(status.now, wall_now) {
            writeln!(out, "    {key}={value}")?;
        }
        writeln!(out, "    ")?;
    }
    Ok(())
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
    fencing: JsonFencing<'a>,
    nodes: Vec<JsonNode<'a>>,
}

#[derive(Serialize)]
struct JsonFencing<'a> {
    pid: u32,
    in_progress_unknown: bool,
    startup: &'a [u32],
    zombies: u32,
    merge_wait: bool,
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
            fencing: JsonFencing {
                pid: status.fencing.pid,
                in_progress_unknown: status.fencing.in_progress_unknown,
                startup: &status.fencing.startup,
                zombies: status.fencing.zombies,
                merge_wait: status.fencing.merge_wait,
            },
            nodes: status.sorted().into_iter().map(JsonNode::new).collect(),
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
    left_reason: &'static str,
    killed: bool,
    fence_delayed: bool,
    fence_pid: u32,
    fence_result_wait: bool,
    fence_actor_last: u32,
    fence_actor_done: u32,
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
            needs_fencing: node.needs_fencing(),
            left_reason: node.reason_word(),
            killed: node.fencing.killed,
            fence_delayed: node.fencing.delayed,
            fence_pid: node.fencing.pid,
            fence_result_wait: node.fencing.result_wait,
            fence_actor_last: node.fencing.actor_last,
            fence_actor_done: node.fencing.actor_done,
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
    use dlm_ipc::control::left;
    use dlm_ipc::control::{DaemonFencing, NodeFencing};

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

    /// The invented sample of libdlm-abi.md 4.4.
    #[test]
    fn fencing_has_the_originals_lines_and_waits_stand_behind_them() {
        let mut record = status(&[1, 3, 4]);
        record.now = 5120;
        record.ring = (44, 44);
        record.membership = "corosync".to_owned();
        record.fencing = DaemonFencing { pid: 812, startup: vec![9], ..DaemonFencing::default() };
        record.nodes[0].added = 40;
        let lost = |node, left, fencing| NodeRecord {
            node,
            left,
            fencing,
            added: 60,
            removed: 900,
            failed: 900,
            address: "10.0.0.3".to_owned(),
            state: "lost".to_owned(),
            ..NodeRecord::default()
        };
        let agent = NodeFencing {
            needed: true,
            killed: true,
            pid: 812,
            result_wait: true,
            actor_last: 1,
            ..NodeFencing::default()
        };
        let delayed = NodeFencing { needed: true, actor_last: 1, ..NodeFencing::default() };
        record.nodes[1] = lost(3, left::NODE_DOWN, agent);
        record.nodes[2] = lost(4, left::PROCESS_DOWN, delayed);
        record.waits_for = vec!["web: node 3 to be known as safe".to_owned()];
        let mut out = Vec::new();
        print(&mut out, &record, 1_700_004_220).expect("written");
        let text = String::from_utf8(out).expect("text");
        let want = "cluster nodeid 1 quorate 1 ring seq 44 44\n\
             daemon now 5120 fence_pid 812 \n\
             startup node 9\n\
             fence 3 nodedown pid 812 actor 1 fail 1700000000 fence 0 now 1700004220 \
             result_wait killed\n\
             fence 4 procdown delay actor 1 fail 1700000000 fence 0 now 1700004220\n\
             node 1 M add 40 rem 0 fail 0 fence 0 at 0 0\n\
             node 3 X add 60 rem 900 fail 900 fence 0 at 0 0\n\
             node 4 X add 60 rem 900 fail 900 fence 0 at 0 0\n";
        assert!(text.starts_with(want), "{text}");
        let words = "state 3 lost, 10.0.0.3\nstate 4 lost, 10.0.0.3\n\
                     waits web: node 3 to be known as safe\n";
        assert!(text.ends_with(words), "{text}");
        let keys = show(record, true, false).out;
        assert!(
            keys.contains("    fence_actor_last=1\n") && keys.contains("    killed=1\n"),
            "{keys}"
        );
    }

    #[test]
    fn nodes_that_nobody_has_seen_are_startup_and_who_left_in_order_is_not_fenced() {
        let mut record = status(&[1, 3, 4, 5]);
        let feared = NodeFencing { needed: true, actor_last: 1, ..NodeFencing::default() };
        let node = |node, left, fencing| NodeRecord {
            node,
            left,
            fencing,
            failed: 20,
            ..NodeRecord::default()
        };
        record.nodes[1] = node(3, 0, feared.clone());
        record.nodes[2] = node(4, 0, feared);
        // It was feared until it joined clean, and left later.
        record.nodes[3] = node(5, left::LEAVE, NodeFencing::default());
        record.fencing.startup = vec![4];
        let mut out = Vec::new();
        print(&mut out, &record, 1_700_000_000).expect("written");
        let text = String::from_utf8(out).expect("text");
        let lines = |word: &str| text.lines().filter(|line| line.starts_with(word)).count();
        assert!(text.contains("\nstartup node 4 X "), "{text}");
        assert!(text.contains("\nfence 3 startup delay actor 1 "), "{text}");
        assert_eq!((lines("startup"), lines("fence")), (1, 1), "{text}");
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
