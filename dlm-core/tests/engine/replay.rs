//! The one-node conformance scenarios, played against the engine instead of a daemon and a C
//! library, and compared with what the kernel answered (tests/conformance/README.md: format,
//! comparison).
//!
//! `library.rs` does what the C library does with a call and with a callback: status block, value
//! buffer, and the checks it makes before the daemon is asked.

mod differences;
mod library;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use dlm_core::{ClientId, Input};

use crate::driver::{Happened, OWN_NODE, World};
use library::Process;

/// Scenarios that show nothing of the engine.
const OTHERS: &[(&str, &str)] = &[("1-version", "asks the library alone")];
const LOCKSPACE: &str = "scn";
const FIRST_PID: u32 = 5000;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/conformance")
}

#[test]
fn one_node_scenarios_answer_as_the_kernel_did() {
    let scenarios = folder().join("scenarios");
    let text = std::fs::read_to_string(folder().join("differences.txt")).expect("differences.txt");
    let explained = differences::parse(&text);
    let mut failures = Vec::new();
    let mut played = 0;
    for entry in std::fs::read_dir(&scenarios).expect("the scenarios") {
        let file = entry.expect("a directory entry").file_name();
        let file = file.to_string_lossy();
        let Some(name) = file.strip_suffix(".txt").filter(|name| name.starts_with("1-")) else {
            continue;
        };
        if OTHERS.iter().any(|(other, _)| *other == name) {
            continue;
        }
        played += 1;
        let script = std::fs::read_to_string(scenarios.join(&*file)).expect("a scenario");
        let kernel = std::fs::read_to_string(folder().join(format!("kernel/{name}.out")));
        let kernel = differences::strip(&kernel.expect("the kernel's answer"));
        let ours = play(&script);
        match differences::apply(&explained, name, &kernel) {
            Ok(wanted) if wanted == ours => {}
            Ok(wanted) => failures.push(format!("{name}\n{}", compare(&wanted, &ours))),
            Err(error) => failures.push(format!("{name}: {error}")),
        }
    }
    assert!(played >= 100, "only {played} scenarios were found in {}", scenarios.display());
    let count = failures.len();
    assert!(count == 0, "{count} of {played} scenarios differ\n{}", failures.join("\n"));
}

/// The lines of both, from the first that differs, with the command they belong to.
fn compare(wanted: &str, ours: &str) -> String {
    let (wanted, ours): (Vec<_>, Vec<_>) = (wanted.lines().collect(), ours.lines().collect());
    let mut text = String::new();
    let longest = wanted.len().max(ours.len());
    for n in 0..longest {
        let (kernel, own) = (wanted.get(n).unwrap_or(&""), ours.get(n).unwrap_or(&""));
        let mark = if kernel == own { ' ' } else { '*' };
        text += &format!("{mark} {kernel:<55}| {own}\n");
    }
    text
}

/// Plays a script; the text is what the runner prints.
pub(crate) fn play(script: &str) -> String {
    let mut stage = Stage::new();
    for raw in script.lines() {
        if raw.starts_with('#') {
            stage.print(raw);
            continue;
        }
        let shown = raw.split(" #").next().unwrap_or(raw);
        let words: Vec<&str> =
            raw.split_whitespace().take_while(|word| !word.starts_with('#')).collect();
        if words.is_empty() {
            continue;
        }
        stage.print(&format!("> {shown}"));
        stage.command(&words);
    }
    stage.print("> end");
    stage.settle();
    stage.text
}

/// The runner: processes, and which of them the next command is for.
struct Stage {
    world: World,
    processes: Vec<Process>,
    current: usize,
    /// Which process a locker belongs to.
    owners: BTreeMap<String, usize>,
    /// What each open handle belongs to.
    handles: BTreeMap<ClientId, usize>,
    hold: bool,
    text: String,
}

impl Stage {
    fn new() -> Self {
        let mut stage = Self {
            world: World::new(),
            processes: Vec::new(),
            current: 0,
            owners: BTreeMap::new(),
            handles: BTreeMap::new(),
            hold: false,
            text: String::new(),
        };
        stage.start_process("main", false);
        stage
    }

    fn print(&mut self, line: &str) {
        self.text += line;
        self.text.push('\n');
    }

    fn start_process(&mut self, name: &str, sync: bool) {
        let pid = FIRST_PID + self.processes.len() as u32;
        self.processes.push(Process::new(name, pid, sync));
        self.current = self.processes.len() - 1;
        let client = self.world.open(LOCKSPACE, pid);
        self.handles.insert(client, self.current);
        self.processes[self.current].opened(LOCKSPACE, client);
    }

    fn find_process(&self, name: &str) -> Option<usize> {
        self.processes.iter().position(|process| process.name == name)
    }

    fn command(&mut self, words: &[&str]) {
        match words[0] {
            "proc" => match self.find_process(words[1]) {
                Some(process) => self.current = process,
                None => self.start_process(words[1], words.get(2) == Some(&"sync")),
            },
            "hold" => self.hold = true,
            "flush" => {
                self.hold = false;
                self.settle();
            }
            "quiet" => {}
            "sleep" => {
                let happened = self.world.wait_ms(words[1].parse().expect("milliseconds"));
                self.deliver(happened);
                self.settle();
            }
            "exit" | "kill" => {
                let process = self.find_process(words[1]).expect("a process of that name");
                self.end_process(process);
                self.settle();
            }
            "sameid" => {
                let id = |locker: &str| {
                    let process = *self.owners.get(locker).expect("a locker of that name");
                    self.processes[process].id_of(locker)
                };
                let same = if id(words[1]) == id(words[2]) { "same" } else { "different" };
                self.print(&format!("  {same}"));
            }
            "purge" => {
                self.purge(words[1], words[2]);
                self.settle();
            }
            "setid" => {
                let process = self.owner_of(words[1]);
                let id = match self.owners.get(words[2]) {
                    Some(other) => self.processes[*other].id_of(words[2]),
                    None => library::number(words[2]),
                };
                self.processes[process].set_id(words[1], id);
            }
            _ => {
                let process = match words[0].starts_with("ls_") || words[0] == "use" {
                    true => self.current,
                    false => self.owner_of(words[1]),
                };
                self.process_command(process, words);
                if !self.hold {
                    self.settle();
                }
            }
        }
    }

    fn owner_of(&mut self, locker: &str) -> usize {
        *self.owners.entry(locker.to_owned()).or_insert(self.current)
    }

    fn process_command(&mut self, at: usize, words: &[&str]) {
        let process = &mut self.processes[at];
        if process.blocked {
            let name = process.name.clone();
            return self.print(&format!("  proc {name} is blocked"));
        }
        let words: Vec<String> = words.iter().map(|word| word.replace("@ls", LOCKSPACE)).collect();
        let (happened, lines) = process.command(&mut self.world, &words);
        for line in lines {
            self.print(&format!("  {line}"));
        }
        for (client, open) in std::mem::take(&mut self.processes[at].handle_changes) {
            match open {
                true => self.handles.insert(client, at),
                false => self.handles.remove(&client),
            };
        }
        self.deliver(happened);
    }

    fn purge(&mut self, node: &str, whom: &str) {
        let node =
            if node == "self" { OWN_NODE } else { node.parse::<i32>().expect("node") as u32 };
        let pid = match (self.find_process(whom), whom) {
            (Some(process), _) => self.processes[process].pid,
            (None, "self") => self.processes[self.current].pid,
            (None, number) => library::number(number),
        };
        let process = &mut self.processes[self.current];
        let (happened, line) = process.purge(&mut self.world, node, pid);
        self.print(&format!("  {line}"));
        self.deliver(happened);
    }

    fn end_process(&mut self, at: usize) {
        for client in self.processes[at].end() {
            self.handles.remove(&client);
            let happened = self.world.feed(Input::ClientGone(client));
            self.world.forget_client(client);
            self.deliver(happened);
        }
    }

    /// Puts each event into the queue of its process, and wakes calls that waited.
    fn deliver(&mut self, happened: Happened) {
        for event in happened.events {
            let client = match &event {
                crate::driver::Event::Cast(client, _) => *client,
                crate::driver::Event::Bast(client, _) => *client,
            };
            let process = *self.handles.get(&client).expect("an event for an open handle");
            self.processes[process].pending.push_back(event);
        }
        for (client, result) in happened.replies {
            for process in &mut self.processes {
                process.answered(client, result);
            }
        }
    }

    /// Dispatches in all processes; then calls that blocked and have returned.
    fn settle(&mut self) {
        for at in 0..self.processes.len() {
            if !self.processes[at].blocked {
                for line in self.processes[at].dispatch() {
                    self.print(&format!("  {line}"));
                }
            }
        }
        for at in 0..self.processes.len() {
            if let Some(line) = self.processes[at].late.take() {
                let name = self.processes[at].name.clone();
                self.print(&format!("  ({name} returned) {line}"));
            }
        }
    }
}
