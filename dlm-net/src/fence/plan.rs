//! Which agents make a node harmless, as dlm.conf says (libdlm-abi.md 5.4).
//!
//! The devices of a node are ways that are tried in the file's order. Devices that follow each other
//! and have one name before the colon belong together (two power supplies): all of them must
//! succeed, one after the other. A file without any fencing means `fence_all dlm_stonith`.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::daemon::config::file::{Agent, Device, File};

/// The agent of a configuration that names none.
pub const DEFAULT_AGENT: &str = "dlm_stonith";
/// Where agents are looked for in a daemon that was started without `PATH`.
pub const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// One run of an agent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Call {
    /// The device's name, or the agent's where there is no device.
    pub device: String,
    /// The program.
    pub program: String,
    /// Its standard input without what belongs to the occasion: a `key=value` a line.
    pub arguments: Vec<String>,
}

impl Call {
    /// The standard input to fence with: the victim, and when it failed.
    pub fn fencing_input(&self, node: u32, fail_wall: u64) -> String {
        let mut lines = self.arguments.clone();
        if !lines.iter().any(|line| line.starts_with("node=")) {
            lines.push(format!("node={node}"));
        }
        lines.push(format!("fail_time={fail_wall}"));
        text(&lines)
    }

    /// The standard input for another `action`, as `on` to unfence.
    pub fn action_input(&self, node: u32, action: &str) -> String {
        let mut lines = self.arguments.clone();
        lines.retain(|line| !line.starts_with("action="));
        if !lines.iter().any(|line| line.starts_with("node=")) {
            lines.push(format!("node={node}"));
        }
        lines.push(format!("action={action}"));
        text(&lines)
    }
}

fn text(lines: &[String]) -> String {
    lines.iter().map(|line| format!("{line}\n")).collect()
}

/// What a configuration says about fencing.
#[derive(Clone, PartialEq, Debug)]
pub struct Plans {
    devices: Vec<Device>,
    all: Option<Agent>,
    unfence_all: bool,
    /// Whether nothing was written and the default counts.
    pub is_default: bool,
}

impl Plans {
    /// The plans of a file.
    pub fn of(file: &File) -> Self {
        let is_default = file.devices.is_empty() && file.fence_all.is_none();
        let default =
            || Agent { program: DEFAULT_AGENT.to_owned(), arguments: Vec::new(), line: 0 };
        Self {
            devices: file.devices.clone(),
            all: file.fence_all.clone().or_else(|| is_default.then(default)),
            unfence_all: file.unfence_all,
            is_default,
        }
    }

    /// Ways to fence a node, in the order in which they are tried; all calls of a way must succeed.
    /// Empty: there is none.
    pub fn ways(&self, node: u32) -> Vec<Vec<Call>> {
        if let Some(agent) = &self.all {
            return vec![vec![call_of_agent(agent)]];
        }
        let mut ways: Vec<(&str, Vec<Call>)> = Vec::new();
        for (device, call) in self.connected(node) {
            let base = base(&device.name);
            match ways.last_mut() {
                Some((last, calls)) if *last == base => calls.push(call),
                _ => ways.push((base, vec![call])),
            }
        }
        ways.into_iter().map(|(_, calls)| calls).collect()
    }

    /// What has to succeed before this node may take part: `action=on` at its devices.
    pub fn unfencing(&self, node: u32) -> Vec<Call> {
        if let Some(agent) = &self.all {
            return if self.unfence_all { vec![call_of_agent(agent)] } else { Vec::new() };
        }
        let devices = self.connected(node).filter(|(device, _)| device.unfence);
        devices.map(|(_, call)| call).collect()
    }

    /// Every program that is named, or meant by default, with the first line that names it (0: none
    /// does), by line.
    pub fn programs(&self) -> Vec<(usize, &str)> {
        let devices = self.devices.iter().map(|device| &device.agent);
        let mut seen = BTreeSet::new();
        let all = devices.chain(&self.all).map(|agent| (agent.line, agent.program.as_str()));
        all.filter(|(_, program)| seen.insert(*program)).collect()
    }

    /// The devices of a node with what they are told.
    fn connected(&self, node: u32) -> impl Iterator<Item = (&Device, Call)> {
        self.devices.iter().filter_map(move |device| {
            let (_, own) = device.connections.iter().find(|(other, _)| *other == node)?;
            let arguments = device.agent.arguments.iter().chain(own).cloned().collect();
            let (name, program) = (device.name.clone(), device.agent.program.clone());
            Some((device, Call { device: name, program, arguments }))
        })
    }
}

/// A device's name before the colon.
fn base(name: &str) -> &str {
    name.split(':').next().unwrap_or(name)
}

fn call_of_agent(agent: &Agent) -> Call {
    let (program, arguments) = (agent.program.clone(), agent.arguments.clone());
    Call { device: program.clone(), program, arguments }
}

/// Where a program is, if it can be run: as written where it has a slash, else on this path.
pub fn find_program(program: &str, path: &OsStr) -> Option<PathBuf> {
    let runs = |file: &Path| {
        let mode = std::fs::metadata(file).map(|meta| (meta.is_file(), meta.permissions().mode()));
        mode.is_ok_and(|(file, mode)| file && mode & 0o111 != 0)
    };
    if program.contains('/') {
        return Some(PathBuf::from(program)).filter(|file| runs(file));
    }
    std::env::split_paths(path).map(|folder| folder.join(program)).find(|file| runs(file))
}

/// The path on which agents are looked for.
pub fn agent_path() -> std::ffi::OsString {
    std::env::var_os("PATH").filter(|path| !path.is_empty()).unwrap_or_else(|| DEFAULT_PATH.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::daemon::config::file::parse;
    use crate::testing::TempDir;

    fn plans(text: &str) -> Plans {
        Plans::of(&parse(text).expect("a good file"))
    }

    fn names(ways: &[Vec<Call>]) -> Vec<Vec<&str>> {
        ways.iter().map(|way| way.iter().map(|call| call.device.as_str()).collect()).collect()
    }

    const FILE: &str = "device ipmi fence_ipmi user=a\nconnect ipmi node=2 ip=10.0.0.2\n\n\
        device pdu:a fence_pdu ip=a\nconnect pdu:a node=2 port=7\nconnect pdu:a node=3 port=8\n\n\
        device pdu:b fence_pdu ip=b action=off\nconnect pdu:b node=2 port=7\nunfence pdu:b\n\n\
        device last fence_last\nconnect last node=2\n";

    #[test]
    fn devices_are_tried_in_order_and_those_of_one_name_belong_together() {
        let plans = plans(FILE);
        let want = [vec!["ipmi"], vec!["pdu:a", "pdu:b"], vec!["last"]];
        assert_eq!(names(&plans.ways(2)), want);
        assert_eq!(names(&plans.ways(3)), [["pdu:a"]]);
        assert!(plans.ways(4).is_empty());
        assert_eq!(plans.programs(), [(1, "fence_ipmi"), (4, "fence_pdu"), (12, "fence_last")]);
        let apart = super::tests::plans(
            "device a:1 x\nconnect a:1 node=1\n\ndevice b y\nconnect b node=1\n\n\
             device a:2 x\nconnect a:2 node=1\n",
        );
        assert_eq!(names(&apart.ways(1)), [["a:1"], ["b"], ["a:2"]], "only consecutive ones");
    }

    #[test]
    fn agents_are_told_device_connection_node_and_time() {
        let plans = plans(FILE);
        let input = plans.ways(2)[0][0].fencing_input(2, 1_700_000_000);
        assert_eq!(input, "user=a\nnode=2\nip=10.0.0.2\nfail_time=1700000000\n");
        let all = super::tests::plans("fence_all fence_x key=v\nunfence_all\n");
        let [way] = &all.ways(9)[..] else { panic!("one way") };
        assert_eq!(way[0].fencing_input(9, 5), "key=v\nnode=9\nfail_time=5\n");
        assert_eq!(all.unfencing(9)[0].action_input(9, "on"), "key=v\nnode=9\naction=on\n");
        let [on] = &plans.unfencing(2)[..] else { panic!("one device unfences") };
        assert_eq!(on.action_input(2, "on"), "ip=b\nnode=2\nport=7\naction=on\n");
        assert!(plans.unfencing(3).is_empty());
    }

    #[test]
    fn nothing_written_means_asking_pacemaker() {
        let plans = plans("log=warn\n");
        assert!(plans.is_default && plans.unfencing(1).is_empty());
        assert_eq!(names(&plans.ways(1)), [["dlm_stonith"]]);
        assert!(!super::tests::plans("fence_all a\n").is_default);
    }

    #[test]
    fn programs_are_found_on_the_path_or_as_written() {
        let dir = TempDir::new("agents");
        let place = |name: &str, mode| {
            let path = dir.path().join(name);
            std::fs::write(&path, "#!/bin/sh\n").expect("writable");
            let mode = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(&path, mode).expect("ours");
            path
        };
        let (good, plain) = (place("fence_good", 0o755), place("fence_plain", 0o644));
        let path = dir.path().as_os_str();
        assert_eq!(find_program("fence_good", path), Some(good.clone()));
        assert_eq!(find_program("fence_plain", path), None, "not executable");
        assert_eq!(find_program("fence_none", path), None);
        let written = good.to_str().expect("plain");
        assert_eq!(find_program(written, OsStr::new("")), Some(good.clone()));
        assert_eq!(find_program(plain.to_str().expect("plain"), path), None);
    }
}
