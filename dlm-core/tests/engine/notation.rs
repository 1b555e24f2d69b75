//! The notation of semantics.md section 14, one step a line.
//!
//! ```text
//! == T21 a failed try tells nobody unless asked to
//! A EX; B PR[NQ]         | ; c(B,EAGAIN)
//! p2: C PR[NQ+NQB]       | c(C,EAGAIN) b(A,PR)
//! queues                 | A:EX / - / -
//! ```
//!
//! A step is `[CLIENT:] WHAT [OPTIONS]`; steps of one line are separated by `;`, and so are their
//! results behind `|`. A line without `|` means the obvious: the request is granted at once
//! (`c(A,0)`), the unlock done (`c(A,EUNLOCK)`), nothing else said.
//!
//! | what | |
//! |---|---|
//! | `A EX[F+F]` | new request; with ORPHAN an adoption, whose result is `id(B)`, B's old lock id |
//! | `A->EX[F]`, `A![F]`, `A~[F]`, `deadlk A[F]` | convert, unlock, cancel, deadlock cancel |
//! | `open`, `close`, `die` | the client's handle; clients open by themselves at first use |
//! | `purge NODE PID`, `admin-purge PID` | PID: a number, a client's name, or `self` |
//! | `wait N` | N milliseconds go by |
//! | `queues`, `value` | granted / converting / waiting; value block, number, validity |
//! | `locks`, `names`, `orphans`, `timers` | how many there are |
//!
//! Options: `on NAME` (`r` if left out), `"text"` (value block), `nobast`, `limit=CS`, `xid=N`,
//! `id=N` (this lock id instead of the lock's own). Text: `\xHH`, `c*N` for N times c, `-` for
//! nothing.

use dlm_core::{LockFlags, Mode, Status, VALUE_BYTES, Value};

/// A named sequence of steps.
pub(crate) struct Case {
    pub(crate) title: String,
    pub(crate) place: String,
    pub(crate) steps: Vec<Step>,
}

/// One step with what it is to bring; `None`: the obvious.
pub(crate) struct Step {
    pub(crate) line: usize,
    pub(crate) text: String,
    pub(crate) client: Option<String>,
    pub(crate) action: Action,
    pub(crate) expect: Option<Vec<String>>,
}

#[derive(Clone, Debug)]
pub(crate) enum Action {
    Lock(String, Words),
    Convert(String, Words),
    Unlock(String, Words),
    DeadlockCancel(String, Words),
    Open,
    Close,
    Die,
    Purge { node: u32, pid: String },
    AdminPurge { pid: String },
    Wait { ms: u64 },
    Show { what: String, name: Vec<u8> },
}

/// Mode, flags and options of a lock step.
#[derive(Clone, Debug, Default)]
pub(crate) struct Words {
    pub(crate) mode: u8,
    pub(crate) flags: LockFlags,
    pub(crate) name: Vec<u8>,
    pub(crate) value: Option<Value>,
    pub(crate) nobast: bool,
    pub(crate) limit_cs: u64,
    pub(crate) xid: u64,
    pub(crate) id: Option<u32>,
}

/// Short names of the tables and full names of the scenarios.
const FLAGS: [(&str, LockFlags); 25] = [
    ("NQ", LockFlags::NOQUEUE),
    ("NQB", LockFlags::NOQUEUEBAST),
    ("VB", LockFlags::VALBLK),
    ("IV", LockFlags::IVVALBLK),
    ("CD", LockFlags::CONVDEADLK),
    ("FORCE", LockFlags::FORCEUNLOCK),
    ("NOQUEUE", LockFlags::NOQUEUE),
    ("CANCEL", LockFlags::CANCEL),
    ("CONVERT", LockFlags::CONVERT),
    ("VALBLK", LockFlags::VALBLK),
    ("QUECVT", LockFlags::QUECVT),
    ("IVVALBLK", LockFlags::IVVALBLK),
    ("CONVDEADLK", LockFlags::CONVDEADLK),
    ("PERSISTENT", LockFlags::PERSISTENT),
    ("NODLCKWT", LockFlags::NODLCKWT),
    ("NODLCKBLK", LockFlags::NODLCKBLK),
    ("EXPEDITE", LockFlags::EXPEDITE),
    ("NOQUEUEBAST", LockFlags::NOQUEUEBAST),
    ("HEADQUE", LockFlags::HEADQUE),
    ("NOORDER", LockFlags::NOORDER),
    ("ORPHAN", LockFlags::ORPHAN),
    ("ALTPR", LockFlags::ALTPR),
    ("ALTCW", LockFlags::ALTCW),
    ("FORCEUNLOCK", LockFlags::FORCEUNLOCK),
    ("TIMEOUT", LockFlags::TIMEOUT),
];

/// Reads the flags of `text`, separated by `separator`.
pub(crate) fn parse_flags(text: &str, separator: char) -> Result<LockFlags, String> {
    let mut flags = LockFlags(0);
    for word in text.split(separator).filter(|word| !matches!(*word, "" | "-")) {
        let known = FLAGS.iter().find(|(name, _)| *name == word).map(|(_, flag)| *flag);
        let flag = known.or_else(|| parse_number(word).map(LockFlags));
        flags = flags | flag.ok_or_else(|| format!("no flag is called {word}"))?;
    }
    Ok(flags)
}

/// The flags in the tables' notation, with brackets; nothing for none.
pub(crate) fn show_flags(flags: LockFlags) -> String {
    let mut rest = flags;
    let mut words = Vec::new();
    for (name, flag) in FLAGS {
        if rest.has(flag) {
            words.push(name.to_owned());
            rest = rest.without(flag);
        }
    }
    if rest.0 != 0 {
        words.push(format!("{:#x}", rest.0));
    }
    if words.is_empty() { String::new() } else { format!("[{}]", words.join("+")) }
}

/// A mode by name, or a number as a caller might write it.
pub(crate) fn parse_mode(text: &str) -> Option<u8> {
    let named = Mode::ALL.iter().find(|mode| mode.name() == text).map(|mode| *mode as u8);
    named.or_else(|| text.parse::<i64>().ok().map(|number| number as u8))
}

/// A decimal or hexadecimal number.
pub(crate) fn parse_number(text: &str) -> Option<u32> {
    match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

/// The bytes of a text: `\xHH`, `c*N` for N times c, `-` for nothing.
pub(crate) fn parse_text(text: &str) -> Vec<u8> {
    if text == "-" {
        return Vec::new();
    }
    let bytes = text.as_bytes();
    if let [byte, b'*', ..] = bytes
        && let Ok(times) = text[2..].parse()
    {
        return vec![*byte; times];
    }
    let mut out = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let hex = bytes[at..].starts_with(b"\\x").then(|| text.get(at + 2..at + 4)).flatten();
        match hex.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(byte) => (out.push(byte), at += 4).1,
            None => (out.push(bytes[at]), at += 1).1,
        }
    }
    out
}

/// A value block that starts with this text.
pub(crate) fn parse_value(text: &str) -> Value {
    let bytes = parse_text(text);
    let mut value = [0; VALUE_BYTES];
    let len = bytes.len().min(VALUE_BYTES);
    value[..len].copy_from_slice(&bytes[..len]);
    value
}

/// The text of bytes without the zeros at their end; readable again by `parse_text`.
pub(crate) fn show_text(bytes: &[u8]) -> String {
    let len = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    let mut text = String::new();
    for byte in &bytes[..len] {
        match byte {
            b'!'..=b'~' if *byte != b'\\' => text.push(char::from(*byte)),
            _ => text.push_str(&format!("\\x{byte:02x}")),
        }
    }
    text
}

/// A value block as results show it.
pub(crate) fn show_value(value: &Value) -> String {
    if value.iter().all(|byte| *byte == 0) { "zeros".to_owned() } else { show_text(value) }
}

/// A completion's status as results show it.
pub(crate) fn show_status(status: Status) -> &'static str {
    match status {
        Status::Granted => "0",
        Status::Again => "EAGAIN",
        Status::Deadlock => "EDEADLK",
        Status::TimedOut => "ETIMEDOUT",
        Status::Cancelled => "ECANCEL",
        Status::Unlocked => "EUNLOCK",
    }
}

/// All cases of a file.
pub(crate) fn parse_cases(file: &str, text: &str) -> Result<Vec<Case>, String> {
    let mut cases: Vec<Case> = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let place = format!("{file}:{}", number + 1);
        let line = line.split(" # ").next().unwrap_or("").trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if let Some(title) = line.strip_prefix("== ") {
            cases.push(Case { title: title.to_owned(), place, steps: Vec::new() });
            continue;
        }
        let case = cases.last_mut().ok_or_else(|| format!("{place}: a step before any case"))?;
        let steps = parse_line(number + 1, line).map_err(|error| format!("{place}: {error}"))?;
        case.steps.extend(steps);
    }
    Ok(cases)
}

fn parse_line(number: usize, line: &str) -> Result<Vec<Step>, String> {
    let (left, right) = match line.split_once('|') {
        Some((left, right)) => (left, Some(right)),
        None => (line, None),
    };
    let texts: Vec<&str> = left.split(';').map(str::trim).collect();
    let results: Vec<Option<&str>> = match right {
        Some(right) => right.split(';').map(str::trim).map(Some).collect(),
        None => vec![None; texts.len()],
    };
    if texts.len() != results.len() {
        return Err(format!("{} steps but {} results", texts.len(), results.len()));
    }
    let pairs = texts.into_iter().zip(results);
    pairs.map(|(text, result)| parse_step(number, text, result)).collect()
}

pub(crate) fn parse_step(line: usize, text: &str, result: Option<&str>) -> Result<Step, String> {
    let (client, what) = match text.split_once(": ") {
        Some((client, what)) => (Some(client.to_owned()), what),
        None => (None, text),
    };
    let action = parse_action(what.trim()).map_err(|error| format!("\"{text}\": {error}"))?;
    let expect = result.filter(|result| !result.is_empty());
    let expect = expect.map(|result| result.split_whitespace().map(str::to_owned).collect());
    Ok(Step { line, text: text.to_owned(), client, action, expect })
}

fn parse_action(text: &str) -> Result<Action, String> {
    let mut words = text.split_whitespace();
    let head = words.next().ok_or("an empty step")?;
    let mut next = |what: &str| words.next().ok_or_else(|| format!("{what} is missing"));
    let number = |word: &str| parse_number(word).ok_or_else(|| format!("{word} is no number"));
    Ok(match head {
        "open" => Action::Open,
        "close" => Action::Close,
        "die" => Action::Die,
        "purge" => Action::Purge { node: number(next("node")?)?, pid: next("pid")?.to_owned() },
        "admin-purge" => Action::AdminPurge { pid: next("pid")?.to_owned() },
        "wait" => Action::Wait { ms: number(next("time")?)?.into() },
        "queues" | "value" | "locks" | "names" | "orphans" | "timers" => {
            let mut options = Words { name: b"r".to_vec(), ..Words::default() };
            parse_options(&mut options, words)?;
            Action::Show { what: head.to_owned(), name: options.name }
        }
        "deadlk" => {
            let (lock, flags) = split_flags(next("lock")?)?;
            Action::DeadlockCancel(lock.to_owned(), Words { flags, ..Words::default() })
        }
        _ => parse_lock_action(head, words)?,
    })
}

fn parse_lock_action<'a>(
    head: &str,
    mut words: impl Iterator<Item = &'a str>,
) -> Result<Action, String> {
    let mut all = Words { name: b"r".to_vec(), ..Words::default() };
    let no_mode = |text: &str| format!("{text} is no mode");
    let (body, flags) = split_flags(head)?;
    all.flags = flags;
    if let Some((lock, mode)) = body.split_once("->") {
        all.mode = parse_mode(mode).ok_or_else(|| no_mode(mode))?;
        parse_options(&mut all, words)?;
        return Ok(Action::Convert(lock.to_owned(), all));
    }
    if let Some(lock) = body.strip_suffix('!') {
        parse_options(&mut all, words)?;
        return Ok(Action::Unlock(lock.to_owned(), all));
    }
    if let Some(lock) = body.strip_suffix('~') {
        all.flags = all.flags | LockFlags::CANCEL;
        parse_options(&mut all, words)?;
        return Ok(Action::Unlock(lock.to_owned(), all));
    }
    let (mode, flags) = split_flags(words.next().ok_or("the mode is missing")?)?;
    all.mode = parse_mode(mode).ok_or_else(|| no_mode(mode))?;
    all.flags = flags;
    parse_options(&mut all, words)?;
    Ok(Action::Lock(body.to_owned(), all))
}

fn split_flags(word: &str) -> Result<(&str, LockFlags), String> {
    match word.split_once('[') {
        Some((body, flags)) => Ok((body, parse_flags(flags.trim_end_matches(']'), '+')?)),
        None => Ok((word, LockFlags(0))),
    }
}

fn parse_options<'a>(
    all: &mut Words,
    mut words: impl Iterator<Item = &'a str>,
) -> Result<(), String> {
    while let Some(word) = words.next() {
        let bad = || format!("{word} is no option");
        if word == "on" {
            all.name = parse_text(words.next().ok_or("the name is missing")?);
        } else if word == "nobast" {
            all.nobast = true;
        } else if let Some(text) = word.strip_prefix('"') {
            all.value = Some(parse_value(text.strip_suffix('"').ok_or_else(bad)?));
        } else if let Some((key, value)) = word.split_once('=') {
            let value = parse_number(value).ok_or_else(bad)?;
            match key {
                "limit" => all.limit_cs = value.into(),
                "xid" => all.xid = value.into(),
                "id" => all.id = Some(value),
                _ => return Err(bad()),
            }
        } else {
            return Err(bad());
        }
    }
    Ok(())
}
