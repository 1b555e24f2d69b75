//! Runs the text tables of `tests/tables` against the engine (notation: `notation.rs`).
//!
//! After every step the whole table is checked (`invariants`), and after every case all clients
//! close, the orphans are purged, and nothing may be left.

use std::collections::BTreeMap;
use std::path::Path;

use dlm_core::{
    Call, ClientId, Convert, Input, LockCall, LockFlags, LockId, LockInfo, LockspaceId, Mode,
    Request, Unlock,
};

use crate::driver::{Event, Happened, World};
use crate::invariants;
use crate::notation::{
    Action, Case, Step, Words, parse_cases, parse_number, show_status, show_value,
};

/// The client of steps that name none.
const DEFAULT_CLIENT: &str = "p";
const FIRST_PID: u32 = 1000;
const LOCKSPACE: &str = "tables";

macro_rules! tables {
    ($($name:ident)*) => {
        /// The files that have a test below.
        const FILES: &[&str] = &[$(stringify!($name)),*];
        $(
            #[test]
            fn $name() {
                run_file(stringify!($name));
            }
        )*
    };
}

tables! { order deadlock cancel values orphans timeouts deviations faults }

#[test]
fn every_table_is_run() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/tables");
    for entry in std::fs::read_dir(&directory).expect("tests/tables is readable") {
        let name = entry.expect("a directory entry").file_name();
        let name = name.to_string_lossy();
        let stem = name.strip_suffix(".txt").expect("tables end in .txt");
        assert!(FILES.contains(&stem), "{name} is run by no test: add it to `tables!`");
    }
}

/// Each row of semantics.md 14.1 to 14.4 has its case, by id.
#[test]
fn every_row_of_the_specification_is_there() {
    let mut titles = String::new();
    for file in FILES {
        for case in parse_cases(file, &read(file)).expect("tables can be read") {
            titles.push_str(&format!(" {} ", case.title.replace(',', " ")));
        }
    }
    let rows = [(1..=25, "T"), (30..=47, "T"), (50..=59, "T"), (1..=18, "L")];
    for (numbers, letter) in rows {
        for number in numbers {
            let id = format!(" {letter}{number:02} ");
            assert!(titles.contains(&id), "no case for row{id}");
        }
    }
}

fn read(stem: &str) -> String {
    let path = format!("{}/tests/tables/{stem}.txt", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn run_file(stem: &str) {
    let cases = parse_cases(&format!("{stem}.txt"), &read(stem)).unwrap_or_else(|e| panic!("{e}"));
    assert!(!cases.is_empty(), "{stem}.txt has no case");
    let failures: Vec<String> = cases.iter().filter_map(|case| run_case(case).err()).collect();
    let (failed, all) = (failures.len(), cases.len());
    assert!(failures.is_empty(), "{failed} of {all} cases failed\n\n{}", failures.join("\n"));
}

/// Runs one case; the error is its transcript, with the wrong step marked.
fn run_case(case: &Case) -> Result<(), String> {
    let mut table = Table::new();
    let mut transcript = format!("{} ({})\n", case.title, case.place);
    for step in &case.steps {
        let got = table.run(step).map_err(|e| format!("{transcript}  line {}: {e}", step.line))?;
        match differs(step, &got) {
            None => transcript += &format!("    {:<36}| {}\n", step.text, got.join(" ")),
            Some(wanted) => {
                transcript += &format!("  * {:<36}| wanted {wanted}\n", step.text);
                transcript += &format!("    line {:<31}| got    {}\n", step.line, got.join(" "));
                return Err(transcript);
            }
        }
    }
    table.finish().map_err(|error| format!("{transcript}  at the end: {error}\n"))
}

/// What was wanted, where it is not what came.
fn differs(step: &Step, got: &[String]) -> Option<String> {
    let Some(expect) = &step.expect else {
        let wanted = match &step.action {
            Action::Lock(lock, _) | Action::Convert(lock, _) => format!("c({lock},0)"),
            Action::Unlock(lock, words) if !words.flags.has(LockFlags::CANCEL) => {
                format!("c({lock},EUNLOCK)")
            }
            _ => "-".to_owned(),
        };
        let plain = |result: &String| {
            let result = without_mode(result);
            result.split_once(",lvb=").map_or(result.clone(), |(start, _)| format!("{start})"))
        };
        let obvious = matches!(got, [one] if plain(one) == wanted);
        return (!obvious).then_some(wanted);
    };
    let same = expect.len() == got.len()
        && expect.iter().zip(got).all(|(expect, got)| match expect.contains(",m=") {
            true => expect == got,
            false => *expect == without_mode(got),
        });
    (!same).then(|| expect.join(" "))
}

/// A result without its `m=` part, which results are compared with only where they ask for it.
fn without_mode(result: &str) -> String {
    match result.split_once(",m=") {
        Some((start, end)) => format!("{start}{}", &end[2..]),
        None => result.to_owned(),
    }
}

struct Locker {
    name: String,
    owner: ClientId,
    id: LockId,
}

struct Table {
    world: World,
    lockspace: LockspaceId,
    clients: BTreeMap<String, ClientId>,
    /// Every lock ever asked for; the place is its `user` word.
    lockers: Vec<Locker>,
}

impl Table {
    fn new() -> Self {
        let mut world = World::new();
        // The opener of the lockspace stays in the background.
        world.open(LOCKSPACE, 1);
        let lockspace = world.node.find_lockspace(LOCKSPACE.as_bytes()).expect("just created");
        Self { world, lockspace, clients: BTreeMap::new(), lockers: Vec::new() }
    }

    fn client(&mut self, name: &str) -> ClientId {
        if let Some(client) = self.clients.get(name) {
            return *client;
        }
        let client = self.world.open(LOCKSPACE, pid_of(name));
        self.clients.insert(name.to_owned(), client);
        client
    }

    /// The client of a step: the one it names, else the owner of its lock, else the default.
    fn client_of(&mut self, step: &Step, lock: Option<&str>) -> ClientId {
        let owner = lock.and_then(|lock| self.locker(lock)).map(|locker| locker.owner);
        match (&step.client, owner) {
            (Some(name), _) => self.client(name),
            (None, Some(owner)) => owner,
            (None, None) => self.client(DEFAULT_CLIENT),
        }
    }

    fn locker(&self, name: &str) -> Option<&Locker> {
        self.lockers.iter().rev().find(|locker| locker.name == name)
    }

    /// The id a step means: the one it gives, else the last id of its lock.
    fn id_of(&self, lock: &str, words: &Words) -> LockId {
        let own = || self.locker(lock).map_or(LockId(0), |locker| locker.id);
        words.id.map_or_else(own, LockId)
    }

    fn run(&mut self, step: &Step) -> Result<Vec<String>, String> {
        let happened = match &step.action {
            Action::Lock(lock, words) => self.lock(step, lock, words),
            Action::Convert(lock, words) => {
                let client = self.client_of(step, Some(lock));
                let id = self.id_of(lock, words);
                let user = self.lockers.iter().rposition(|locker| locker.name == *lock);
                let call = call_of(words, user.unwrap_or(usize::MAX));
                let request = Convert { call, lock: id, value: words.value.as_ref() };
                self.world.ask(client, Request::Convert(request))
            }
            Action::Unlock(lock, words) => {
                let client = self.client_of(step, Some(lock));
                let id = self.id_of(lock, words);
                let (flags, value) = (words.flags, words.value.as_ref());
                let request = Unlock { lock: id, flags, user: None, value };
                self.world.ask(client, Request::Unlock(request))
            }
            Action::DeadlockCancel(lock, words) => {
                let client = self.client_of(step, Some(lock));
                let lock = self.id_of(lock, words);
                self.world.ask(client, Request::DeadlockCancel { lock, flags: words.flags })
            }
            Action::Purge { node, pid } => {
                let client = self.client_of(step, None);
                let (node, pid) = (*node, self.pid(step, pid)?);
                self.world.ask(client, Request::Purge { node, pid })
            }
            Action::AdminPurge { pid } => {
                let pid = self.pid(step, pid)?;
                self.world.feed(Input::PurgeOrphans(self.lockspace, pid))
            }
            Action::Open | Action::Close | Action::Die => self.handle(step),
            Action::Wait { ms } => self.world.wait_ms(*ms),
            Action::Show { what, name } => return self.show(what, name),
        };
        invariants::check(&self.world.node, self.lockspace);
        invariants::check_pages(&self.world.node, self.lockspace);
        Ok(self.render(&happened))
    }

    fn lock(&mut self, step: &Step, name: &str, words: &Words) -> Happened {
        let client = self.client_of(step, None);
        let call = call_of(words, self.lockers.len());
        let request = LockCall { call, name: &words.name };
        let mut happened = self.world.ask(client, Request::Lock(request));
        if let Ok(id) = happened.reply(client) {
            self.lockers.push(Locker { name: name.to_owned(), owner: client, id });
            if !words.flags.has(LockFlags::ORPHAN) {
                happened.replies.clear(); // only an adoption's id is a result of its own
            }
        }
        happened
    }

    fn handle(&mut self, step: &Step) -> Happened {
        let name = step.client.as_deref().unwrap_or(DEFAULT_CLIENT);
        let client = self.client(name);
        let happened = match step.action {
            Action::Open => return Happened::default(),
            Action::Close => self.world.ask(client, Request::Close),
            _ => self.world.feed(Input::ClientGone(client)),
        };
        self.world.forget_client(client);
        self.clients.remove(name);
        happened
    }

    fn pid(&self, step: &Step, word: &str) -> Result<u32, String> {
        let own = step.client.as_deref().unwrap_or(DEFAULT_CLIENT);
        let named = if word == "self" { own } else { word };
        Ok(parse_number(word).unwrap_or_else(|| pid_of(named)))
    }

    fn render(&self, happened: &Happened) -> Vec<String> {
        let mut results = Vec::new();
        for (_, result) in &happened.replies {
            match result {
                Err(error) => results.push(format!("ret {}", error.name())),
                Ok(LockId(0)) => {}
                Ok(id) => results.push(format!("id({})", self.first_owner(*id))),
            }
        }
        for event in &happened.events {
            results.push(match event {
                Event::Cast(client, done) => {
                    let mut text = self.name_of(*client, done.user, done.lock);
                    text = format!("c({text},{}", show_status(done.status));
                    if done.sb_flags.0 != 0 {
                        text += &format!(",s={}", done.sb_flags.0);
                    }
                    text += &format!(",m={}", done.granted.map_or("--", |mode| mode.name()));
                    if let Some(value) = &done.value {
                        text += &format!(",lvb={}", show_value(value));
                    }
                    text + ")"
                }
                Event::Bast(client, told) => {
                    let lock = self.name_of(*client, told.user, told.lock);
                    format!("b({lock},{})", told.mode.name())
                }
            });
        }
        let words = results.iter().flat_map(|result| result.split(' ')).map(str::to_owned);
        let words: Vec<String> = words.collect();
        if words.is_empty() { vec!["-".to_owned()] } else { words }
    }

    /// The lock an event is for; what does not fit together is shown.
    fn name_of(&self, client: ClientId, user: u64, id: LockId) -> String {
        match usize::try_from(user).ok().and_then(|user| self.lockers.get(user)) {
            Some(locker) if locker.id == id && locker.owner == client => locker.name.clone(),
            Some(locker) => format!("{}?{id:?}@{client:?}", locker.name),
            None => format!("user{user}?{id:?}@{client:?}"),
        }
    }

    fn first_owner(&self, id: LockId) -> &str {
        self.lockers.iter().find(|locker| locker.id == id).map_or("?", |locker| &locker.name)
    }

    fn show(&self, what: &str, name: &[u8]) -> Result<Vec<String>, String> {
        let info = self.world.node.lockspace(self.lockspace).ok_or("no lockspace")?;
        let resource = self.world.node.resource(self.lockspace, name);
        let text = match what {
            "queues" => resource.map_or("- / - / -".to_owned(), |resource| {
                let queues = [&resource.granted, &resource.converting, &resource.waiting];
                queues.map(|queue| self.show_queue(queue)).join(" / ")
            }),
            "value" => match resource.and_then(|resource| resource.value) {
                Some((value, seq, valid)) => {
                    let valid = if valid { "valid" } else { "invalid" };
                    format!("{} seq={seq} {valid}", show_value(&value))
                }
                None => "none".to_owned(),
            },
            "locks" => info.locks.to_string(),
            "names" => info.resources.to_string(),
            "orphans" => info.orphans.to_string(),
            _ => self.world.node.counters().timers.to_string(),
        };
        Ok(text.split_whitespace().map(str::to_owned).collect())
    }

    fn show_queue(&self, queue: &[LockInfo]) -> String {
        let mode = |mode: Option<Mode>| mode.map_or("--", |mode| mode.name());
        let locks = queue.iter().map(|lock| {
            let name = self.lockers.iter().rev().find(|locker| locker.id == lock.id);
            let name = name.map_or("?", |locker| &locker.name);
            match lock.requested {
                Some(to) => {
                    let from = lock.granted.map_or("", |mode| mode.name());
                    format!("{name}:{from}->{}", to.name())
                }
                None => format!("{name}:{}", mode(lock.granted)),
            }
        });
        let locks: Vec<String> = locks.collect();
        if locks.is_empty() { "-".to_owned() } else { locks.join(" ") }
    }

    /// Everybody closes, nothing may be left.
    fn finish(mut self) -> Result<(), String> {
        for (_, client) in std::mem::take(&mut self.clients) {
            let happened = self.world.ask(client, Request::Close);
            if happened.reply_to(client) != Some(Ok(LockId(0))) {
                return Err(format!("close of {client:?} got {happened:?}"));
            }
            invariants::check(&self.world.node, self.lockspace);
        }
        self.world.feed(Input::PurgeOrphans(self.lockspace, 0));
        let info = self.world.node.lockspace(self.lockspace).ok_or("no lockspace")?;
        let left = (info.locks, info.resources, info.orphans, info.handles);
        let timers = self.world.node.counters().timers;
        match (left, timers) {
            ((0, 0, 0, 1), 0) => Ok(()),
            _ => Err(format!("locks, names, orphans, handles left: {left:?}; timers: {timers}")),
        }
    }
}

/// Each client of a table is a process of its own.
fn pid_of(client: &str) -> u32 {
    let number = client.trim_start_matches(DEFAULT_CLIENT).parse::<u32>();
    FIRST_PID + number.unwrap_or(0)
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
