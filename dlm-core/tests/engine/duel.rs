//! Engine and model side by side: the same operations, the same answers, the same table.

use std::fmt::Write as _;

use dlm_core::{
    Call, ClientId, Convert, Errno, Input, LockCall, LockFlags, LockId, LockInfo, LockspaceId,
    Request, Unlock, Value,
};

use crate::driver::{Event, Happened, OWN_NODE, World};
use crate::invariants;
use crate::model::operate::Ask;
use crate::model::{self, Model, Told, flag};
use crate::notation::{parse_value, show_flags, show_value};
use crate::operation::{CLIENTS, End, NAMES, Operation, Wish, value_text};

const LOCKSPACE: &str = "duel";
const FIRST_PID: u32 = 1000;
const NANOS_PER_MS: u64 = 1_000_000;
/// Flag bits that sit in a lock's word for the record only and that the two may keep differently.
const UNCOMPARED: u32 = flag::CANCEL | flag::CONVERT | flag::FORCEUNLOCK;

/// Both sides, and what was done so far in the tables' notation.
pub(crate) struct Duel {
    pub(crate) world: World,
    pub(crate) lockspace: LockspaceId,
    pub(crate) model: Model,
    clients: Vec<ClientId>,
    /// Engine's id of each lock of the model, and its last owner.
    ids: Vec<LockId>,
    owners: Vec<usize>,
    pub(crate) transcript: String,
    /// Write the transcript.
    pub(crate) recording: bool,
    /// Look at the whole table after every operation.
    pub(crate) thorough: bool,
}

/// What one operation brought, told the model's way.
#[derive(Debug, PartialEq)]
struct Outcome {
    reply: Result<(), i32>,
    told: Vec<(usize, Told)>,
}

impl Duel {
    pub(crate) fn new() -> Self {
        let mut world = World::new();
        let clients = (0..CLIENTS).map(|n| world.open(LOCKSPACE, FIRST_PID + n as u32)).collect();
        let lockspace = world.node.find_lockspace(LOCKSPACE.as_bytes()).expect("just created");
        let model = Model { now_ms: world.now.0 / NANOS_PER_MS, ..Model::default() };
        let (ids, owners, transcript) = (Vec::new(), Vec::new(), String::new());
        Self {
            world,
            lockspace,
            model,
            clients,
            ids,
            owners,
            transcript,
            recording: true,
            thorough: true,
        }
    }

    /// Runs `operation` on both; the error tells what differed, behind the whole transcript.
    pub(crate) fn step(&mut self, operation: Operation) -> Result<(), String> {
        let (ours, theirs) = match operation {
            Operation::Lock { client, name, wish } => self.lock(client, name, wish),
            Operation::Adopt { client, name, wish } => self.adopt(client, name, wish)?,
            Operation::Convert { back, wish, value } => self.convert(back, wish, value),
            Operation::Unlock { back, flags, value } => self.unlock(back, flags, value),
            Operation::Stranger { client, back } => self.stranger(client, back),
            Operation::DeadlockCancel { back } => self.deadlock_cancel(back),
            Operation::End { client, how } => self.end(client, how),
            Operation::PurgeOrphans { by, of } => self.purge_orphans(by, of),
            Operation::Wait { ms } => self.wait(ms),
        };
        if self.recording {
            let _ = writeln!(self.transcript, " | {}", self.show(&ours));
        }
        if ours != theirs {
            return Err(format!("{}model: {}\n", self.transcript, self.show(&theirs)));
        }
        if self.thorough { self.compare_tables() } else { Ok(()) }
    }

    /// All locks are unlocked, oldest first; afterwards both sides start afresh.
    pub(crate) fn drain(&mut self) -> Result<(), String> {
        for back in (0..self.ids.len()).rev() {
            if self.model.place(self.ids.len() - 1 - back).is_some() {
                self.step(Operation::Unlock { back, flags: LockFlags(0), value: None })?;
            }
        }
        self.compare_tables()?;
        self.ids.clear();
        self.owners.clear();
        self.model.locks.clear();
        Ok(())
    }

    /// Everybody leaves, orphans are purged, and nothing may be left on either side.
    pub(crate) fn finish(&mut self) -> Result<(), String> {
        for client in 0..CLIENTS {
            self.step(Operation::End { client, how: End::Close })?;
        }
        self.step(Operation::PurgeOrphans { by: None, of: None })?;
        let info = self.world.node.lockspace(self.lockspace).expect("it is still open");
        let timers = self.world.node.counters().timers;
        match (info.locks, info.resources, info.orphans, timers) {
            (0, 0, 0, 0) => Ok(()),
            left => Err(format!("{}locks, names, orphans, timers: {left:?}", self.transcript)),
        }
    }

    /// The names and queues of both.
    pub(crate) fn compare_tables(&self) -> Result<(), String> {
        invariants::check(&self.world.node, self.lockspace);
        let mut engine: Vec<String> = invariants::table(&self.world.node, self.lockspace)
            .iter()
            .map(|place| {
                let queues = [&place.granted, &place.converting, &place.waiting];
                let queues = queues.map(|queue| self.engine_queue(queue));
                let value = place.value.map(|(value, seq, valid)| (value, seq, !valid));
                table_line(&place.name, queues, value)
            })
            .collect();
        let used = self.model.resources.iter().filter(|place| place.idle_since_ms.is_none());
        let mut model: Vec<String> = used
            .map(|place| {
                let queues = [&place.granted, &place.converting, &place.waiting];
                let queues = queues.map(|queue| self.model_queue(queue));
                let value = place.value.map(|value| (value, place.seq, place.marked));
                table_line(&place.name, queues, value)
            })
            .collect();
        engine.sort();
        model.sort();
        let timers = self.world.node.counters().timers;
        let limits = self.model.locks.iter().filter(|lock| lock.limit.is_some()).count() as u64;
        if engine == model && timers == limits {
            return Ok(());
        }
        let (engine, model) = (engine.join("\n  "), model.join("\n  "));
        Err(format!(
            "{}tables differ\nengine ({timers} timers)\n  {engine}\n\
             model ({limits} timers)\n  {model}\n",
            self.transcript
        ))
    }

    fn engine_queue(&self, queue: &[LockInfo]) -> String {
        let mut text = String::new();
        for lock in queue {
            let name = self.ids.iter().rposition(|id| *id == lock.id).map_or("?".into(), letter);
            let mode = |mode: Option<dlm_core::Mode>| mode.map_or(-1, |mode| mode as i8);
            let owner = lock.client.and_then(|id| self.clients.iter().position(|c| *c == id));
            let flags = LockFlags(lock.flags.0 & !UNCOMPARED);
            let (gr, rq, pid) = (mode(lock.granted), mode(lock.requested), lock.pid);
            text += &lock_text(&name, gr, rq, owner, pid, flags, lock.value_seq);
        }
        text
    }

    fn model_queue(&self, queue: &[usize]) -> String {
        let mut text = String::new();
        for n in queue {
            let lock = &self.model.locks[*n];
            let granted = self.model.resources.iter().any(|place| place.granted.contains(n));
            let rq = if granted { model::IV } else { lock.rq };
            let flags = LockFlags(lock.flags & !UNCOMPARED);
            text += &lock_text(&letter(*n), lock.gr, rq, lock.client, lock.pid, flags, lock.seq);
        }
        text
    }

    // What follows makes one operation on both sides. Each returns (engine's, model's) outcome.

    fn lock(&mut self, client: usize, name: usize, wish: Wish) -> (Outcome, Outcome) {
        let on = if name == 0 { String::new() } else { format!(" on {}", NAMES[name]) };
        let new = letter(self.ids.len());
        self.note(|| format!("p{client}: {new} {}{on}{}", wish.text(), wish.options()));
        let reply = self.model.lock(client, pid(client), NAMES[name].as_bytes(), ask(wish));
        let theirs = self.model_outcome(reply.map(|_| ()));
        let call = call(wish, self.ids.len());
        let request = LockCall { call, name: NAMES[name].as_bytes() };
        let happened = self.world.ask(self.clients[client], Request::Lock(request));
        if reply.is_ok() {
            let id = happened.reply(self.clients[client]).unwrap_or(LockId(0));
            self.ids.push(id);
            self.owners.push(client);
        }
        (self.engine_outcome(&happened), theirs)
    }

    fn adopt(
        &mut self,
        client: usize,
        name: usize,
        wish: Wish,
    ) -> Result<(Outcome, Outcome), String> {
        let wish = Wish { flags: wish.flags | LockFlags::ORPHAN, ..wish };
        self.note(|| format!("p{client}: ? {} on {}{}", wish.text(), NAMES[name], wish.options()));
        let fit = self.model.adoptable(NAMES[name].as_bytes(), wish.mode as i8);
        // The page does not say which of several: follow the engine if its choice is among them.
        let request = LockCall { call: call(wish, usize::MAX), name: NAMES[name].as_bytes() };
        let happened = self.world.ask(self.clients[client], Request::Lock(request));
        let id = happened.reply(self.clients[client]).ok();
        let choice = id.and_then(|id| self.ids.iter().rposition(|known| *known == id));
        let chosen = |fit: Vec<usize>| choice.filter(|lock| fit.contains(lock));
        let reply = fit.map(|fit| {
            if let Some(lock) = chosen(fit) {
                self.model.adopt(lock, client, pid(client), wish.flags.0, !wish.nobast);
                self.owners[lock] = client;
            }
        });
        let theirs = self.model_outcome(reply);
        Ok((self.engine_outcome(&happened), theirs))
    }

    fn convert(&mut self, back: usize, wish: Wish, value: Option<u8>) -> (Outcome, Outcome) {
        let Some(lock) = self.pick(back) else { return self.nothing() };
        let client = self.owner(lock);
        let text = value.map_or(String::new(), |value| format!(" \"{}\"", value_text(value)));
        let value = value.map(|value| parse_value(&value_text(value)));
        self.note(|| {
            format!("p{client}: {}->{}{text}{}", letter(lock), wish.text(), wish.options())
        });
        let reply = self.model.convert(client, lock, ask(wish), value);
        let theirs = self.model_outcome(reply);
        let call = call(wish, lock);
        let request = Convert { call, lock: self.ids[lock], value: value.as_ref() };
        let happened = self.world.ask(self.clients[client], Request::Convert(request));
        (self.engine_outcome(&happened), theirs)
    }

    fn unlock(&mut self, back: usize, flags: LockFlags, value: Option<u8>) -> (Outcome, Outcome) {
        let Some(lock) = self.pick(back) else { return self.nothing() };
        let client = self.owner(lock);
        let text = value.map_or(String::new(), |value| format!(" \"{}\"", value_text(value)));
        self.note(|| format!("p{client}: {}!{}{text}", letter(lock), show_flags(flags)));
        let value = value.map(|value| parse_value(&value_text(value)));
        let reply = self.model.unlock(client, lock, flags.0, value);
        let theirs = self.model_outcome(reply);
        let happened = self.ask_unlock(client, lock, flags, value.as_ref());
        (self.engine_outcome(&happened), theirs)
    }

    fn ask_unlock(
        &mut self,
        client: usize,
        lock: usize,
        flags: LockFlags,
        value: Option<&Value>,
    ) -> Happened {
        let request = Unlock { lock: self.ids[lock], flags, user: None, value };
        self.world.ask(self.clients[client], Request::Unlock(request))
    }

    fn stranger(&mut self, client: usize, back: usize) -> (Outcome, Outcome) {
        let Some(lock) = self.pick(back) else { return self.nothing() };
        if self.owner(lock) == client && self.model.locks[lock].client.is_some() {
            return self.nothing();
        }
        self.note(|| format!("p{client}: {}!", letter(lock)));
        let reply = self.model.unlock(client, lock, 0, None);
        let theirs = self.model_outcome(reply);
        let happened = self.ask_unlock(client, lock, LockFlags(0), None);
        (self.engine_outcome(&happened), theirs)
    }

    fn deadlock_cancel(&mut self, back: usize) -> (Outcome, Outcome) {
        let Some(lock) = self.pick(back) else { return self.nothing() };
        let client = self.owner(lock);
        self.note(|| format!("p{client}: deadlk {}", letter(lock)));
        let reply = self.model.deadlock_cancel(client, lock);
        let theirs = self.model_outcome(reply);
        let request = Request::DeadlockCancel { lock: self.ids[lock], flags: LockFlags(0) };
        let happened = self.world.ask(self.clients[client], request);
        (self.engine_outcome(&happened), theirs)
    }

    fn end(&mut self, client: usize, how: End) -> (Outcome, Outcome) {
        let id = self.clients[client];
        let mut happened = match how {
            End::PurgeOwn => {
                self.note(|| format!("p{client}: purge 0 self"));
                self.model.purge_own(client);
                let request = Request::Purge { node: OWN_NODE, pid: pid(client) };
                self.world.ask(id, request)
            }
            End::Close | End::Die => {
                self.note(|| format!("p{client}: {how:?}").to_lowercase());
                self.model.end_client(client);
                match how {
                    End::Close => self.world.ask(id, Request::Close),
                    _ => self.world.feed(Input::ClientGone(id)),
                }
            }
        };
        if matches!(how, End::Die) {
            assert!(happened.replies.is_empty(), "a dead client is answered nothing");
            happened.replies.push((id, Ok(LockId(0))));
        }
        let theirs = self.model_outcome(Ok(()));
        let ours = self.engine_outcome(&happened);
        if !matches!(how, End::PurgeOwn) {
            self.world.forget_client(id);
            self.clients[client] = self.world.open(LOCKSPACE, pid(client));
        }
        (ours, theirs)
    }

    fn purge_orphans(&mut self, by: Option<usize>, of: Option<usize>) -> (Outcome, Outcome) {
        let of = of.filter(|of| by != Some(*of));
        let pid = of.map_or(0, pid);
        let whom = of.map_or("0".to_owned(), |of| format!("p{of}"));
        self.model.purge_orphans(pid);
        let theirs = self.model_outcome(Ok(()));
        let happened = match by {
            Some(by) => {
                self.note(|| format!("p{by}: purge 0 {whom}"));
                self.world.ask(self.clients[by], Request::Purge { node: 0, pid })
            }
            None => {
                self.note(|| format!("admin-purge {whom}"));
                self.world.feed(Input::PurgeOrphans(self.lockspace, pid))
            }
        };
        (self.engine_outcome(&happened), theirs)
    }

    fn wait(&mut self, ms: u64) -> (Outcome, Outcome) {
        self.note(|| format!("wait {ms}"));
        self.model.wait_until(self.model.now_ms + ms);
        let theirs = self.model_outcome(Ok(()));
        let happened = self.world.wait_ms(ms);
        (self.engine_outcome(&happened), theirs)
    }

    /// The lock `back` places from the newest.
    fn pick(&self, back: usize) -> Option<usize> {
        self.ids.len().checked_sub(1 + back % self.ids.len().max(1))
    }

    /// The client that operates a lock: its owner, else anybody.
    fn owner(&self, lock: usize) -> usize {
        self.model.locks[lock].client.unwrap_or(0)
    }

    fn nothing(&self) -> (Outcome, Outcome) {
        (Outcome { reply: Ok(()), told: Vec::new() }, Outcome { reply: Ok(()), told: Vec::new() })
    }

    fn note(&mut self, step: impl FnOnce() -> String) {
        if self.recording {
            let _ = write!(self.transcript, "{:<40}", step());
        }
    }

    fn model_outcome(&mut self, reply: Result<(), i32>) -> Outcome {
        let told = std::mem::take(&mut self.model.told);
        // A lock's owner is looked up on the engine's side; the model never tells a stranger.
        Outcome { reply, told: told.into_iter().map(|told| (0, told)).collect() }
    }

    fn engine_outcome(&self, happened: &Happened) -> Outcome {
        assert!(happened.replies.len() <= 1, "more than one reply: {happened:?}");
        let reply = match happened.replies.first() {
            Some((_, Err(Errno(error)))) => Err(*error),
            _ => Ok(()),
        };
        let told = happened.events.iter().map(|event| match event {
            Event::Cast(client, done) => {
                let lock = self.model_lock(done.user, done.lock);
                let granted = done.granted.map_or(model::IV, |mode| mode as i8);
                let (status, sb_flags) = (done.status.number(), done.sb_flags.0);
                let told = Told::Cast { lock, status, sb_flags, granted, value: done.value };
                (self.misdirected(*client, lock), told)
            }
            Event::Bast(client, told) => {
                let lock = self.model_lock(told.user, told.lock);
                (self.misdirected(*client, lock), Told::Bast { lock, mode: told.mode as i8 })
            }
        });
        Outcome { reply, told: told.collect() }
    }

    /// The model's lock of an event; adopted locks have no user word of their own here.
    fn model_lock(&self, user: u64, id: LockId) -> usize {
        let lock = self.ids.iter().rposition(|known| *known == id).unwrap_or(usize::MAX);
        let expected = user == lock as u64 || user == usize::MAX as u64;
        if expected { lock } else { usize::MAX }
    }

    /// 0 where the event went to the lock's owner; else which client it went to, plus 1.
    fn misdirected(&self, client: ClientId, lock: usize) -> usize {
        let to = self.clients.iter().position(|known| *known == client).unwrap_or(CLIENTS);
        if self.owners.get(lock) == Some(&to) { 0 } else { to + 1 }
    }

    fn show(&self, outcome: &Outcome) -> String {
        let mut words = Vec::new();
        if let Err(error) = outcome.reply {
            words.push(format!("ret {}", Errno(error).name()));
        }
        for (misdirected, told) in &outcome.told {
            let wrong = if *misdirected > 0 { "!wrong-client" } else { "" };
            words.push(show_told(told) + wrong);
        }
        if words.is_empty() { "-".to_owned() } else { words.join(" ") }
    }
}

fn show_told(told: &Told) -> String {
    match told {
        Told::Cast { lock, status, sb_flags, granted, value } => {
            let status = match *status {
                0 => "0",
                model::ECANCEL => "ECANCEL",
                model::EUNLOCK => "EUNLOCK",
                error => Errno(error).name(),
            };
            let flags = if *sb_flags > 0 { format!(",s={sb_flags}") } else { String::new() };
            let value = value.map_or(String::new(), |value| format!(",lvb={}", show_value(&value)));
            format!("c({},{status}{flags},m={}{value})", letter(*lock), mode_name(*granted))
        }
        Told::Bast { lock, mode } => format!("b({},{})", letter(*lock), mode_name(*mode)),
    }
}

fn mode_name(mode: i8) -> &'static str {
    let mode = u8::try_from(mode).ok().and_then(dlm_core::Mode::from_number);
    mode.map_or("--", |mode| mode.name())
}

/// A, B … Z, A1, B1 …
fn letter(lock: usize) -> String {
    if lock == usize::MAX {
        return "?".to_owned();
    }
    let letter = char::from(b'A' + (lock % 26) as u8);
    if lock < 26 { letter.to_string() } else { format!("{letter}{}", lock / 26) }
}

fn lock_text(
    name: &str,
    gr: i8,
    rq: i8,
    owner: Option<usize>,
    pid: u32,
    flags: LockFlags,
    seq: u32,
) -> String {
    let owner = owner.map_or("orphan".to_owned(), |owner| format!("p{owner}"));
    let (gr, rq) = (mode_name(gr), mode_name(rq));
    format!(" {name}:{gr}->{rq}{}({owner},{pid},seq={seq})", show_flags(flags))
}

fn table_line(name: &[u8], queues: [String; 3], value: Option<(Value, u32, bool)>) -> String {
    let value = value.map_or("no value".to_owned(), |(value, seq, marked)| {
        format!("{} seq={seq}{}", show_value(&value), if marked { " invalid" } else { "" })
    });
    format!("{} [{value}]:{} ", String::from_utf8_lossy(name), queues.join(" /"))
}

fn pid(client: usize) -> u32 {
    FIRST_PID + client as u32
}

fn ask(wish: Wish) -> Ask {
    Ask {
        mode: wish.mode,
        flags: wish.flags.0,
        wants_basts: !wish.nobast,
        limit_cs: wish.limit_cs.into(),
    }
}

fn call(wish: Wish, user: usize) -> Call {
    Call {
        mode: wish.mode,
        flags: wish.flags,
        user: user as u64,
        xid: 0,
        timeout_cs: wish.limit_cs.into(),
        wants_blocking: !wish.nobast,
    }
}
