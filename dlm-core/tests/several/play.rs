//! Runs the text tables of `tests/several/tables` (notation: `engine/notation.rs`) on several nodes.
//!
//! A client is named by its node and a letter: `n2:` or `n2b:`. Beside the steps of one node there are:
//!
//! | step | |
//! |---|---|
//! | `nodes N` | how many there are; first in a case, else 3 |
//! | `nodes N by slot` | the same, with masters by slot (nodir) |
//! | `still n3`, `on n3` | it takes nothing any more, or again |
//! | `shut n1>n2`, `open n1>n2` | nothing travels in this direction, or again |
//! | `dies n3` | it ends with its clients; nobody is told |
//! | `exclude n3`, `safe n3` | membership goes on without it; it is known to be harmless |
//! | `gone n3` | all three |
//! | `reset n3` | it hears that it was excluded |
//! | `join n3` | it comes, perhaps again |
//! | `leave n3` | its clients go and it removes the lockspace, by force |
//! | `master`, `queues`, `value` | of a name, as its master lists it |
//! | `own A` | modes of a lock as its owner lists it |
//! | `left n3` | locks, names and directory entries listed on a node |
//!
//! Where all is quiet after a step, the tables of all nodes must agree; at the end everybody closes, and nothing
//! may be left.

use std::collections::BTreeMap;
use std::path::Path;

use dlm_core::{
    Call, ClientId, Convert, Input, Layout, LockCall, LockFlags, LockId, LockInfo, Mode, Output,
    Request, ResourceInfo, Unlock,
};

use crate::agree;
use crate::bed::{Bed, Heard};
use crate::notation::{
    Action, Step, Words, parse_number, parse_step, parse_text, show_status, show_value,
};

/// After this time a name that nobody uses is forgotten by its master and the directory.
pub(crate) const IDLE_MS: u64 = 20_000;

macro_rules! tables {
    ($($name:ident)*) => {
        /// The files that have a test below.
        const FILES: &[&str] = &[$(stringify!($name)),*];
        $(
            #[test]
            fn $name() {
                play_file(stringify!($name));
            }
        )*
    };
}

tables! { rows faults deviations slots }

#[test]
fn every_table_is_played() {
    for entry in std::fs::read_dir(folder()).expect("the tables are readable") {
        let name = entry.expect("a directory entry").file_name();
        let name = name.to_string_lossy();
        let stem = name.strip_suffix(".txt").expect("tables end in .txt");
        assert!(FILES.contains(&stem), "{name} is played by no test: add it to `tables!`");
    }
}

fn folder() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/several/tables")
}

fn play_file(stem: &str) {
    let text = std::fs::read_to_string(folder().join(format!("{stem}.txt"))).expect(stem);
    let mut failures = Vec::new();
    let mut cases = 0;
    for (title, lines) in cases_of(&text) {
        cases += 1;
        if let Err(why) = play_case(&lines) {
            failures.push(format!("{stem}.txt: {title}\n{why}"));
        }
    }
    assert!(cases > 0, "{stem}.txt has no case");
    assert!(failures.is_empty(), "{} failed\n\n{}", failures.len(), failures.join("\n"));
}

/// Titles with their lines and numbers of lines.
fn cases_of(text: &str) -> Vec<(&str, Vec<(usize, &str)>)> {
    let mut cases: Vec<(&str, Vec<(usize, &str)>)> = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.split(" # ").next().unwrap_or("").trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        match (line.strip_prefix("== "), cases.last_mut()) {
            (Some(title), _) => cases.push((title, Vec::new())),
            (None, Some((_, lines))) => lines.push((number, line)),
            (None, None) => panic!("line {number}: a step before any case"),
        }
    }
    cases
}

fn play_case(lines: &[(usize, &str)]) -> Result<(), String> {
    let mut lines = lines.iter().copied().peekable();
    let first = lines.peek().and_then(|(_, line)| line.strip_prefix("nodes "));
    let (count, layout) = match first.map(|text| text.strip_suffix(" by slot").ok_or(text)) {
        Some(Ok(count)) => (count, Layout { nodir: true, masters: Vec::new() }),
        Some(Err(count)) => (count, Layout::default()),
        None => ("3", Layout::default()),
    };
    if first.is_some() {
        lines.next();
    }
    let mut play = Play::new(count.parse().expect("a number"), layout);
    let mut transcript = String::new();
    for (number, line) in lines {
        let (left, right) = line.split_once('|').map_or((line, None), |(l, r)| (l, Some(r)));
        let texts: Vec<&str> = left.split(';').map(str::trim).collect();
        let results: Vec<Option<&str>> = match right {
            Some(right) => right.split(';').map(|part| Some(part.trim())).collect(),
            None => vec![None; texts.len()],
        };
        if texts.len() != results.len() {
            return Err(format!("line {number}: {} steps, {} results", texts.len(), results.len()));
        }
        for (text, wanted) in texts.into_iter().zip(results) {
            let got = play.step(number, text);
            let got = got.map_err(|why| format!("{transcript}  line {number}: {text}: {why}"))?;
            let wanted = wanted.filter(|wanted| !wanted.is_empty());
            let wanted = wanted.map_or_else(|| play.obvious(text, &got), str::to_owned);
            let told = got.join(" ");
            if !same(&wanted, &got) {
                return Err(format!(
                    "{transcript}  * line {number}: {text:<30}| wanted {wanted}\n    got {told}\n"
                ));
            }
            transcript += &format!("    {text:<36}| {told}\n");
            if let Some(why) = play.bed.is_quiet().then(|| agree::disagreement(&play.bed)).flatten()
            {
                return Err(format!("{transcript}  tables differ: {why}\n"));
            }
        }
    }
    play.finish().map_err(|why| format!("{transcript}  at the end: {why}\n"))
}

/// Results may be given without their values and in any order where they begin with `~`.
fn same(wanted: &str, got: &[String]) -> bool {
    let mut wanted: Vec<&str> = wanted.split_whitespace().collect();
    let mut got: Vec<&str> = got.iter().map(String::as_str).collect();
    if wanted.first() == Some(&"~") {
        wanted.remove(0);
        wanted.sort_unstable();
        got.sort_unstable();
    }
    wanted == got
}

struct Locker {
    name: String,
    node: u32,
    owner: ClientId,
    id: LockId,
}

struct Play {
    bed: Bed,
    clients: BTreeMap<String, (u32, ClientId)>,
    /// Every lock ever asked for; the place is its `user` word.
    lockers: Vec<Locker>,
}

impl Play {
    fn new(count: u32, layout: Layout) -> Self {
        let bed = Bed::with_layout(count, layout);
        Self { bed, clients: BTreeMap::new(), lockers: Vec::new() }
    }

    /// Makes a step; what came of it.
    fn step(&mut self, number: usize, text: &str) -> Result<Vec<String>, String> {
        let (head, rest) = text.split_once(' ').unwrap_or((text, ""));
        match head {
            "still" => drop(self.bed.still.insert(node_of(rest)?)),
            "on" => self.bed.go_on(node_of(rest)?),
            "shut" | "open" => {
                let (from, to) = rest.split_once('>').ok_or("a direction is n1>n2")?;
                self.bed.shut(node_of(from)?, node_of(to)?, head == "shut");
            }
            "dies" => self.die(node_of(rest)?),
            "exclude" => self.bed.exclude(node_of(rest)?),
            "safe" => self.bed.make_safe(node_of(rest)?),
            "gone" => {
                let node = node_of(rest)?;
                self.die(node);
                self.bed.exclude(node);
                self.bed.make_safe(node);
            }
            "reset" => {
                let node = node_of(rest)?;
                self.bed.reset(node);
                self.clients.retain(|_, (at, _)| *at != node);
            }
            "join" => self.bed.join(node_of(rest)?),
            "leave" => self.leave(node_of(rest)?),
            "wait" => self.bed.wait_ms(rest.parse().map_err(|_| "wait N")?),
            "master" | "queues" | "value" => return self.show(head, rest),
            "own" => return self.own(rest),
            "left" => return self.left(node_of(rest)?),
            _ => return self.act(&parse_step(number, text, None)?),
        }
        self.bed.settle();
        Ok(self.render(&[]))
    }

    fn die(&mut self, node: u32) {
        self.bed.die(node);
        self.clients.retain(|_, (at, _)| *at != node);
    }

    /// Everybody on a node closes, the last one by releasing.
    fn leave(&mut self, node: u32) {
        let clients: Vec<ClientId> =
            self.clients.values().filter(|(at, _)| *at == node).map(|(_, c)| *c).collect();
        self.clients.retain(|_, (at, _)| *at != node);
        let count = clients.len() as u32 + 1;
        for client in clients.into_iter().chain([ClientId::new(0, 1)]) {
            self.bed.step(node, Input::Client(client, Request::Release { force: true }));
        }
        assert!(count > 0);
    }

    fn client(&mut self, name: &str) -> Result<(u32, ClientId), String> {
        if let Some(known) = self.clients.get(name) {
            return Ok(*known);
        }
        let node = node_of(&name[..name.len().min(2)])?;
        let letter = name.as_bytes().get(2).copied().unwrap_or(b'a');
        let client = self.bed.client(node, 1000 + u32::from(letter - b'a'));
        self.bed.take_heard();
        self.clients.insert(name.to_owned(), (node, client));
        Ok((node, client))
    }

    fn locker(&self, name: &str) -> Option<&Locker> {
        self.lockers.iter().rev().find(|locker| locker.name == name)
    }

    /// The client of a step: the one it names, else the owner of its lock.
    fn client_of(&mut self, step: &Step, lock: Option<&str>) -> Result<(u32, ClientId), String> {
        if let Some(name) = &step.client {
            return self.client(&name.clone());
        }
        let owner = lock.and_then(|lock| self.locker(lock));
        owner.map(|locker| (locker.node, locker.owner)).ok_or_else(|| "which client?".to_owned())
    }

    fn id_of(&self, lock: &str, words: &Words) -> LockId {
        let own = || self.locker(lock).map_or(LockId(0), |locker| locker.id);
        words.id.map_or_else(own, LockId)
    }

    fn act(&mut self, step: &Step) -> Result<Vec<String>, String> {
        let (node, client, request) = match &step.action {
            Action::Lock(name, words) => {
                let (node, owner) = self.client_of(step, None)?;
                let call = call_of(words, self.lockers.len());
                let id = LockId(u32::MAX);
                self.lockers.push(Locker { name: name.clone(), node, owner, id });
                let call = LockCall { call, name: &words.name };
                (node, owner, Request::Lock(call))
            }
            Action::Convert(lock, words) => {
                let (node, client) = self.client_of(step, Some(lock))?;
                let id = self.id_of(lock, words);
                let user = self.lockers.iter().rposition(|locker| locker.name == *lock);
                let call = call_of(words, user.unwrap_or(usize::MAX));
                let request = Convert { call, lock: id, value: words.value.as_ref() };
                (node, client, Request::Convert(request))
            }
            Action::Unlock(lock, words) => {
                let (node, client) = self.client_of(step, Some(lock))?;
                let (lock, flags) = (self.id_of(lock, words), words.flags);
                let request = Unlock { lock, flags, user: None, value: words.value.as_ref() };
                (node, client, Request::Unlock(request))
            }
            Action::DeadlockCancel(lock, words) => {
                let (node, client) = self.client_of(step, Some(lock))?;
                let lock = self.id_of(lock, words);
                (node, client, Request::DeadlockCancel { lock, flags: words.flags })
            }
            Action::Purge { node: of, pid } => {
                let (node, client) = self.client_of(step, None)?;
                let pid = parse_number(pid).ok_or("a number of a process")?;
                (node, client, Request::Purge { node: *of, pid })
            }
            Action::Close | Action::Die => return self.end_client(step),
            other => return Err(format!("{other:?} is not for several nodes")),
        };
        self.bed.step(node, Input::Client(client, request));
        let new = matches!(step.action, Action::Lock(..));
        Ok(self.finish_call(client, new))
    }

    /// Takes the reply of a call, lets all travel, and shows the rest.
    fn finish_call(&mut self, client: ClientId, new: bool) -> Vec<String> {
        let mut heard = self.bed.take_heard();
        let reply = heard.iter().position(
            |heard| matches!(heard.output, Output::Reply { client: of, .. } if of == client),
        );
        let mut results = Vec::new();
        if let Some(at) = reply
            && let Output::Reply { result, .. } = heard.remove(at).output
        {
            match result {
                Err(errno) => results.push(format!("ret {}", errno.name())),
                Ok(id) if new => {
                    if let Some(locker) = self.lockers.last_mut() {
                        locker.id = id;
                    }
                }
                Ok(_) => {}
            }
            if new && result.is_err() {
                self.lockers.pop();
            }
        }
        self.bed.settle();
        heard.extend(self.bed.take_heard());
        results.extend(heard.iter().filter_map(|heard| self.word(heard)));
        spread(&results)
    }

    fn end_client(&mut self, step: &Step) -> Result<Vec<String>, String> {
        let (node, client) = self.client_of(step, None)?;
        match step.action {
            Action::Close => self.bed.step(node, Input::Client(client, Request::Close)),
            _ => self.bed.step(node, Input::ClientGone(client)),
        }
        self.clients.retain(|_, known| *known != (node, client));
        self.bed.settle();
        Ok(self.render(&[client]))
    }

    /// What was heard, without the replies to these.
    fn render(&mut self, ended: &[ClientId]) -> Vec<String> {
        let mut words = Vec::new();
        for heard in self.bed.take_heard() {
            match heard.output {
                Output::Reply { client, .. } if ended.contains(&client) => {}
                _ => words.extend(self.word(&heard)),
            }
        }
        spread(&words)
    }

    fn word(&self, heard: &Heard) -> Option<String> {
        Some(match &heard.output {
            Output::Complete { client, completion: done } => {
                let name = self.name_of(heard.node, *client, done.user, done.lock);
                let mut text = format!("c({name},{}", show_status(done.status));
                if done.sb_flags.0 != 0 {
                    text += &format!(",s={}", done.sb_flags.0);
                }
                if let Some(value) = &done.value {
                    text += &format!(",lvb={}", show_value(value));
                }
                text + ")"
            }
            Output::Blocking { client, blocking: told } => {
                let name = self.name_of(heard.node, *client, told.user, told.lock);
                format!("b({name},{})", told.mode.name())
            }
            Output::Lost { .. } => format!("lost(n{})", heard.node),
            _ => return None,
        })
    }

    fn name_of(&self, node: u32, client: ClientId, user: u64, id: LockId) -> String {
        match usize::try_from(user).ok().and_then(|user| self.lockers.get(user)) {
            Some(locker) if (locker.id, locker.owner, locker.node) == (id, client, node) => {
                locker.name.clone()
            }
            Some(locker) => format!("{}?{id:?}@{client:?}", locker.name),
            None => format!("user{user}?{id:?}@{client:?}"),
        }
    }

    /// What a step without results stands for: it is granted, or done, at once; values are not looked at.
    fn obvious(&self, text: &str, got: &[String]) -> String {
        let Ok(step) = parse_step(0, text, None) else { return "-".to_owned() };
        let (lock, status) = match &step.action {
            Action::Lock(lock, _) | Action::Convert(lock, _) => (lock, "0"),
            Action::Unlock(lock, words) if !words.flags.has(LockFlags::CANCEL) => (lock, "EUNLOCK"),
            _ => return "-".to_owned(),
        };
        let plain = format!("c({lock},{status})");
        match got {
            [one]
                if one
                    .split_once(",lvb=")
                    .is_some_and(|(start, _)| format!("{start})") == plain) =>
            {
                one.clone()
            }
            _ => plain,
        }
    }

    /// The resource as its master lists it.
    fn at_master(&self, name: &[u8]) -> Option<(u32, ResourceInfo)> {
        self.bed.up().into_iter().find_map(|node| {
            let host = &self.bed.hosts[&node];
            let resource = host.node.resource(host.space?, name)?;
            resource.master.is_none().then_some((node, resource))
        })
    }

    fn show(&self, what: &str, rest: &str) -> Result<Vec<String>, String> {
        let name = rest.strip_prefix("on ").unwrap_or("r");
        let found = self.at_master(&parse_text(name));
        let text = match (what, found) {
            ("master", Some((node, _))) => format!("n{node}"),
            ("queues", Some((master, resource))) => {
                let queues = [&resource.granted, &resource.converting, &resource.waiting];
                queues.map(|queue| self.show_queue(master, queue)).join(" / ")
            }
            ("value", Some((_, ResourceInfo { value: Some((value, _, valid)), .. }))) => {
                format!("{}{}", show_value(&value), if valid { "" } else { " invalid" })
            }
            _ => "none".to_owned(),
        };
        Ok(text.split_whitespace().map(str::to_owned).collect())
    }

    fn show_queue(&self, master: u32, queue: &[LockInfo]) -> String {
        let locks: Vec<String> = queue.iter().map(|lock| self.show_lock(master, lock)).collect();
        if locks.is_empty() { "-".to_owned() } else { locks.join(" ") }
    }

    fn show_lock(&self, master: u32, lock: &LockInfo) -> String {
        let of = |locker: &&Locker| match lock.remote {
            Some((node, id)) => (locker.node, locker.id) == (node.0, id),
            None => (locker.node, locker.id) == (master, lock.id),
        };
        let name = self.lockers.iter().rev().find(of).map_or("?", |locker| &locker.name);
        format!("{name}:{}", modes(lock))
    }

    fn own(&self, name: &str) -> Result<Vec<String>, String> {
        let locker = self.locker(name).ok_or("no such lock")?;
        let host = &self.bed.hosts[&locker.node];
        let space = host.space.ok_or("no lockspace")?;
        let page = host.node.dump(space, 0, usize::MAX);
        let all = page.resources.iter().flat_map(|resource| {
            resource.granted.iter().chain(&resource.converting).chain(&resource.waiting)
        });
        let mut all = all.filter(|lock| lock.id == locker.id);
        Ok(vec![all.next().map_or("none".to_owned(), modes)])
    }

    fn left(&self, node: u32) -> Result<Vec<String>, String> {
        let host = &self.bed.hosts[&node];
        let info = host.space.and_then(|space| host.node.lockspace(space));
        let info = info.ok_or("no lockspace")?;
        Ok([info.locks, info.resources, info.directory].map(|count| count.to_string()).to_vec())
    }

    /// Everybody closes, orphans are purged, and nothing may be left.
    fn finish(mut self) -> Result<(), String> {
        for node in self.bed.still.clone() {
            self.bed.go_on(node);
        }
        self.bed.settle();
        for (node, client) in std::mem::take(&mut self.clients).into_values() {
            if self.bed.hosts[&node].alive {
                self.bed.step(node, Input::Client(client, Request::Close));
                self.bed.settle();
            }
        }
        for node in self.bed.up() {
            if let Some(space) = self.bed.hosts[&node].space {
                self.bed.step(node, Input::PurgeOrphans(space, 0));
            }
        }
        self.bed.wait_ms(IDLE_MS);
        match agree::disagreement(&self.bed).or_else(|| agree::left_over(&self.bed)) {
            None => Ok(()),
            Some(why) => Err(why),
        }
    }
}

fn modes(lock: &LockInfo) -> String {
    let mode = |mode: Option<Mode>| mode.map_or("", |mode| mode.name());
    match lock.requested {
        Some(to) => format!("{}->{}", mode(lock.granted), to.name()),
        None => mode(lock.granted).to_owned(),
    }
}

fn spread(results: &[String]) -> Vec<String> {
    let words: Vec<String> =
        results.iter().flat_map(|result| result.split(' ')).map(str::to_owned).collect();
    if words.is_empty() { vec!["-".to_owned()] } else { words }
}

fn node_of(text: &str) -> Result<u32, String> {
    let number = text.trim().strip_prefix('n').and_then(|number| number.parse().ok());
    number.ok_or_else(|| format!("{text} is no node"))
}

fn call_of(words: &Words, user: usize) -> Call {
    Call {
        mode: words.mode,
        flags: words.flags,
        user: user as u64,
        xid: words.xid,
        timeout_cs: words.limit_cs,
        wants_blocking: !words.nobast,
    }
}
