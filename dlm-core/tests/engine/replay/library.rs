//! One process of a scenario: lock status blocks, handles, and the C library's part of each call
//! (libdlm-abi.md 2.2 to 2.6).

use std::collections::{BTreeMap, VecDeque};

use dlm_core::{
    Access, Call, ClientId, Convert, Create, Errno, LockCall, LockFlags, LockId, Open, Request,
    SpaceFlags, Unlock, VALUE_BYTES, Value,
};

use crate::driver::{Event, Happened, World};
use crate::notation::{parse_flags, parse_mode, parse_number, parse_text, parse_value, show_text};

/// "Not ended yet" in sb_status.
const EINPROG: i32 = 0x10003;
const EINVAL: i32 = 22;
const NAME_BYTES_MAX: usize = 64;

/// A lock status block with its buffer, as the runner keeps it.
#[derive(Default)]
struct Locker {
    name: String,
    status: i32,
    id: u32,
    flags: u8,
    buffer: Value,
    has_buffer: bool,
    buffer_used: bool,
    quiet: bool,
    silent_completion: bool,
    /// A `_wait` call is inside; its completion is the call's return, not an event.
    waiting: bool,
}

pub(super) struct Process {
    pub(super) name: String,
    pub(super) pid: u32,
    pub(super) blocked: bool,
    /// What a blocked call printed when it returned.
    pub(super) late: Option<String>,
    /// Events not dispatched yet.
    pub(super) pending: VecDeque<Event>,
    /// Handles opened (true) and closed by the last command.
    pub(super) handle_changes: Vec<(ClientId, bool)>,
    sync: bool,
    lockers: Vec<Locker>,
    spaces: Vec<(String, ClientId)>,
    current: Option<ClientId>,
    /// The handle whose release has not been answered.
    releasing: Option<ClientId>,
    answers: BTreeMap<ClientId, Result<LockId, Errno>>,
}

/// A number as C's strtoul reads it.
pub(super) fn number(text: &str) -> u32 {
    parse_number(text).unwrap_or(0)
}

fn status_name(status: i32) -> String {
    match status {
        0 => "0".to_owned(),
        0x10001 => "ECANCEL".to_owned(),
        0x10002 => "EUNLOCK".to_owned(),
        EINPROG => "EINPROG".to_owned(),
        // The one errno that the engine answers and only purges of other nodes show.
        105 => "ENOBUFS".to_owned(),
        error => Errno(error).name().to_owned(),
    }
}

fn flags_name(flags: u8) -> String {
    let names = [(1, "DEMOTED"), (2, "VALNOTVALID"), (4, "ALTMODE")];
    let set: Vec<&str> =
        names.iter().filter(|(bit, _)| flags & bit != 0).map(|(_, name)| *name).collect();
    if set.is_empty() { "-".to_owned() } else { set.join("|") }
}

fn ret(result: Result<(), i32>) -> String {
    match result {
        Ok(()) => "ret=0".to_owned(),
        Err(error) => format!("ret=-1 errno={}", status_name(error)),
    }
}

/// Options of a lock command.
struct Options {
    flags: LockFlags,
    ast: bool,
    bast: bool,
    length: Option<usize>,
    id: Option<u32>,
}

impl Locker {
    fn value_text(&self) -> String {
        match self.buffer_used {
            true => format!(" lvb=\"{}\"", show_text(&self.buffer)),
            false => String::new(),
        }
    }

    fn seen(&self, kind: &str) -> String {
        let (status, flags) = (status_name(self.status), flags_name(self.flags));
        format!("{kind} {} st={status} fl={flags}{}", self.name, self.value_text())
    }

    fn block_text(&self) -> String {
        let id = if self.id == 0 { "0" } else { "+" };
        format!(" st={} lkid={id}", status_name(self.status))
    }
}

impl Process {
    pub(super) fn new(name: &str, pid: u32, sync: bool) -> Self {
        Self {
            name: name.to_owned(),
            pid,
            blocked: false,
            late: None,
            pending: VecDeque::new(),
            handle_changes: Vec::new(),
            sync,
            lockers: Vec::new(),
            spaces: Vec::new(),
            current: None,
            releasing: None,
            answers: BTreeMap::new(),
        }
    }

    pub(super) fn opened(&mut self, lockspace: &str, client: ClientId) {
        self.spaces.insert(0, (lockspace.to_owned(), client));
        self.current.get_or_insert(client);
    }

    pub(super) fn id_of(&self, locker: &str) -> u32 {
        self.lockers.iter().find(|known| known.name == locker).map_or(0, |known| known.id)
    }

    pub(super) fn set_id(&mut self, locker: &str, id: u32) {
        let at = self.locker(locker);
        self.lockers[at].id = id;
    }

    /// The process dies: its handles.
    pub(super) fn end(&mut self) -> Vec<ClientId> {
        self.pending.clear();
        std::mem::take(&mut self.spaces).into_iter().map(|(_, client)| client).collect()
    }

    /// A reply came; it may be the one that a blocked call waits for.
    pub(super) fn answered(&mut self, client: ClientId, result: Result<LockId, Errno>) {
        if self.releasing == Some(client) {
            self.releasing = None;
            self.late = Some("ret=0".to_owned());
            self.blocked = false;
        } else {
            self.answers.insert(client, result);
        }
    }

    /// Runs the callbacks that are due, in order; the lines are what they print.
    pub(super) fn dispatch(&mut self) -> Vec<String> {
        let mut lines = Vec::new();
        while let Some(event) = self.pending.pop_front() {
            lines.extend(self.callback(event));
        }
        lines
    }

    fn callback(&mut self, event: Event) -> Option<String> {
        match event {
            Event::Cast(_, done) => {
                let locker = &mut self.lockers[done.user as usize];
                locker.status = done.status.number();
                locker.flags = done.sb_flags.0;
                if let (Some(value), true) = (done.value, locker.has_buffer) {
                    locker.buffer = value;
                }
                let shown = !std::mem::take(&mut locker.waiting) && !locker.silent_completion;
                shown.then(|| locker.seen("cast"))
            }
            Event::Bast(_, told) => {
                let locker = &mut self.lockers[told.user as usize];
                // A blocking callback brings a status block of its own, with nothing in it.
                (locker.status, locker.flags) = (0, 0);
                Some(locker.seen("bast"))
            }
        }
    }

    fn locker(&mut self, name: &str) -> usize {
        if let Some(at) = self.lockers.iter().position(|known| known.name == name) {
            return at;
        }
        let name = name.to_owned();
        self.lockers.push(Locker { name, has_buffer: true, ..Locker::default() });
        self.lockers.len() - 1
    }

    fn client(&self) -> ClientId {
        self.current.expect("a lockspace is in use")
    }

    fn space(&self, name: &str) -> Option<ClientId> {
        self.spaces.iter().find(|(known, _)| known == name).map(|(_, client)| *client)
    }

    /// One command of the runner's worker: what happened, and what it prints before any event.
    pub(super) fn command(
        &mut self,
        world: &mut World,
        words: &[String],
    ) -> (Happened, Vec<String>) {
        let nothing = Happened::default();
        let word = |n: usize| words.get(n).map_or("", String::as_str);
        match word(0) {
            "use" => {
                self.current = self.space(word(1));
                (nothing, Vec::new())
            }
            "ls_close" | "ls_release" => self.leave(world, word(0), word(1), word(2)),
            "ls_create" | "ls_new" | "ls_open" => self.enter(world, word(0), word(1), word(2)),
            "setlvb" => {
                let at = self.locker(word(1));
                self.lockers[at].buffer = parse_value(word(2));
                self.lockers[at].buffer_used = true;
                (nothing, Vec::new())
            }
            "showlvb" => {
                let at = self.locker(word(1));
                (nothing, vec![format!("lvb=\"{}\"", show_text(&self.lockers[at].buffer))])
            }
            "show" => {
                let at = self.locker(word(1));
                let locker = &self.lockers[at];
                let (status, flags) = (status_name(locker.status), flags_name(locker.flags));
                (nothing, vec![format!("st={status} fl={flags}")])
            }
            _ => self.lock_command(world, words),
        }
    }

    pub(super) fn purge(&mut self, world: &mut World, node: u32, pid: u32) -> (Happened, String) {
        let client = self.client();
        let mut happened = world.ask(client, Request::Purge { node, pid });
        let result = happened.reply(client);
        happened.replies.clear();
        (happened, ret(result.map(|_| ()).map_err(|error| error.0)))
    }

    fn leave(
        &mut self,
        world: &mut World,
        command: &str,
        name: &str,
        force: &str,
    ) -> (Happened, Vec<String>) {
        let name = String::from_utf8(parse_text(name)).expect("lockspace names are text here");
        let Some(client) = self.space(&name) else {
            return (Happened::default(), vec!["no handle".to_owned()]);
        };
        let request = match command {
            "ls_close" => Request::Close,
            _ => Request::Release { force: number(force) != 0 },
        };
        let mut happened = world.ask(client, request);
        self.spaces.retain(|(_, known)| *known != client);
        self.handle_changes.push((client, false));
        if self.current == Some(client) {
            self.current = self.spaces.first().map(|(_, client)| *client);
        }
        // The library returns 0 whatever the removal's result is.
        if happened.reply_to(client).is_some() {
            happened.replies.retain(|(to, _)| *to != client);
            return (happened, vec!["ret=0".to_owned()]);
        }
        self.releasing = Some(client);
        self.blocked = true;
        (happened, vec!["(blocked)".to_owned()])
    }

    fn enter(
        &mut self,
        world: &mut World,
        command: &str,
        name: &str,
        flags: &str,
    ) -> (Happened, Vec<String>) {
        let name = parse_text(name);
        if name.len() > NAME_BYTES_MAX {
            return (Happened::default(), vec!["handle=0 errno=EINVAL".to_owned()]);
        }
        let create = (command != "ls_open").then(|| Create {
            flags: SpaceFlags(number(flags)).without(SpaceFlags::TIMEWARN),
            access: Access { mode: 0o600, ..Access::default() },
        });
        let client = world.new_client();
        let open = Open { name: &name, pid: self.pid, create };
        let mut happened = world.ask(client, Request::Open(open));
        let result = happened.reply(client);
        happened.replies.clear();
        match result {
            Ok(_) => {
                self.opened(&String::from_utf8_lossy(&name), client);
                self.handle_changes.push((client, true));
                (happened, vec!["handle=+".to_owned()])
            }
            Err(error) => {
                world.forget_client(client);
                (happened, vec![format!("handle=0 errno={}", status_name(error.0))])
            }
        }
    }

    fn lock_command(&mut self, world: &mut World, words: &[String]) -> (Happened, Vec<String>) {
        let command = words[0].trim_end_matches('w');
        let wait = words[0].ends_with('w');
        let at = self.locker(&words[1]);
        let (mode, name, rest) = match command {
            "lock" => (words[2].as_str(), words[3].as_str(), &words[4..]),
            "convert" => (words[2].as_str(), "-", &words[3..]),
            _ => ("0", "-", &words[2..]),
        };
        let mode = parse_mode(mode).expect("a mode");
        let mut name = parse_text(name);
        let options = self.options(at, rest);
        if let Some(length) = options.length {
            name.resize(length, 0);
        }
        let (happened, result) = match command {
            "lock" if !options.flags.has(LockFlags::CONVERT) => {
                self.lock(world, at, mode, &name, &options)
            }
            "lock" | "convert" => self.convert(world, at, mode, &options),
            "deadlk" => {
                let (happened, result) = self.deadlock_cancel(world, at, &options);
                return (happened, vec![ret(result)]);
            }
            _ => self.unlock(world, at, command == "cancel", &options),
        };
        if !wait {
            let line = ret(result) + &self.lockers[at].block_text();
            return (happened, vec![line]);
        }
        let happened = self.wait_call(at, result.is_ok(), happened);
        let locker = &self.lockers[at];
        let (status, flags) = (status_name(locker.status), flags_name(locker.flags));
        let line = format!("{} st={status} fl={flags}{}", ret(result), locker.value_text());
        (happened, vec![line])
    }

    /// A `_wait` call: the helper thread runs every callback; the call's own completion prints
    /// nothing.
    fn wait_call(&mut self, at: usize, accepted: bool, mut happened: Happened) -> Happened {
        assert!(self.sync, "only processes with a helper thread wait here");
        self.lockers[at].waiting = accepted;
        let own = |event: &Event| match event {
            Event::Cast(_, done) => done.user == at as u64,
            Event::Bast(..) => false,
        };
        if let Some(place) = happened.events.iter().position(own) {
            let event = happened.events.remove(place);
            self.callback(event);
        }
        happened
    }

    fn options(&mut self, at: usize, words: &[String]) -> Options {
        let mut all =
            Options { flags: LockFlags(0), ast: true, bast: true, length: None, id: None };
        let locker = &mut self.lockers[at];
        for word in words {
            match word.split_once('=') {
                Some(("lvb", text)) => {
                    locker.buffer = parse_value(text);
                    locker.buffer_used = true;
                }
                Some(("len", text)) => all.length = Some(number(text) as usize),
                Some(("lkid", text)) => all.id = Some(number(text)),
                Some(("parent", _)) => {} // ignored, as by the kernel
                Some(_) => panic!("{word} is no option"),
                None if word == "nolvb" => locker.has_buffer = false,
                None if word == "nobast" => all.bast = false,
                None if word == "noast" => all.ast = false,
                None => all.flags = all.flags | parse_flags(word, '|').expect("flags"),
            }
        }
        if all.flags.has(LockFlags::VALBLK) && locker.has_buffer {
            locker.buffer_used = true;
        }
        all
    }

    fn call(&mut self, at: usize, mode: u8, options: &Options) -> Call {
        let locker = &mut self.lockers[at];
        locker.quiet = !options.bast;
        locker.silent_completion = !options.ast;
        let wants_blocking = options.bast;
        Call { mode, flags: options.flags, user: at as u64, wants_blocking, ..Call::default() }
    }

    fn lock(
        &mut self,
        world: &mut World,
        at: usize,
        mode: u8,
        name: &[u8],
        options: &Options,
    ) -> (Happened, Result<(), i32>) {
        let no_buffer = options.flags.has(LockFlags::VALBLK) && !self.lockers[at].has_buffer;
        if name.len() > NAME_BYTES_MAX || no_buffer {
            return (Happened::default(), Err(EINVAL));
        }
        let call = self.call(at, mode, options);
        let client = self.client();
        let mut happened = world.ask(client, Request::Lock(LockCall { call, name }));
        let result = happened.reply(client);
        happened.replies.clear();
        self.lockers[at].status = EINPROG;
        if let Ok(id) = result {
            self.lockers[at].id = id.0;
        }
        (happened, result.map(|_| ()).map_err(|error| error.0))
    }

    fn convert(
        &mut self,
        world: &mut World,
        at: usize,
        mode: u8,
        options: &Options,
    ) -> (Happened, Result<(), i32>) {
        let id = options.id.unwrap_or(self.lockers[at].id);
        self.lockers[at].id = id;
        let valblk = options.flags.has(LockFlags::VALBLK);
        if valblk && !self.lockers[at].has_buffer {
            return (Happened::default(), Err(EINVAL));
        }
        let call = self.call(at, mode, options);
        let value = valblk.then_some(self.lockers[at].buffer);
        let request = Convert { call, lock: LockId(id), value: value.as_ref() };
        let client = self.client();
        let happened = world.ask(client, Request::Convert(request));
        self.submitted(at, client, happened)
    }

    fn unlock(
        &mut self,
        world: &mut World,
        at: usize,
        cancel: bool,
        options: &Options,
    ) -> (Happened, Result<(), i32>) {
        let id = options.id.unwrap_or(self.lockers[at].id);
        if id == 0 {
            return (Happened::default(), Err(EINVAL));
        }
        let cancel = if cancel { LockFlags::CANCEL } else { LockFlags(0) };
        let flags = options.flags | cancel;
        let locker = &self.lockers[at];
        let value: Option<[u8; VALUE_BYTES]> =
            (flags.has(LockFlags::VALBLK) && locker.has_buffer).then_some(locker.buffer);
        let lock = LockId(id);
        let request = Unlock { lock, flags, user: Some(at as u64), value: value.as_ref() };
        let client = self.client();
        let happened = world.ask(client, Request::Unlock(request));
        self.submitted(at, client, happened)
    }

    fn deadlock_cancel(
        &mut self,
        world: &mut World,
        at: usize,
        options: &Options,
    ) -> (Happened, Result<(), i32>) {
        let id = options.id.unwrap_or(self.lockers[at].id);
        if id == 0 {
            return (Happened::default(), Err(EINVAL));
        }
        let client = self.client();
        let request = Request::DeadlockCancel { lock: LockId(id), flags: options.flags };
        let mut happened = world.ask(client, request);
        let result = happened.reply(client);
        happened.replies.clear();
        (happened, result.map(|_| ()).map_err(|error| error.0))
    }

    fn submitted(
        &mut self,
        at: usize,
        client: ClientId,
        mut happened: Happened,
    ) -> (Happened, Result<(), i32>) {
        let result = happened.reply(client);
        happened.replies.clear();
        self.lockers[at].status = EINPROG;
        (happened, result.map(|_| ()).map_err(|error| error.0))
    }
}
