//! Locks and resources as JSON, streamed.
//!
//! A listing is written while its pages come, so its `state`, `total` and an `error` stand at its
//! end, and it is a valid document even if the daemon breaks off in the middle.

use std::io::{self, Write};

use dlm_ipc::control::{LockRecord, ResourceRecord, ValueRecord};
use serde::Serialize;

use crate::context::{Code, Context, Fail, GOOD, Outcome, Trouble};
use crate::lockdebug::{CONVERTING, WAITING};
use crate::lockdump::mode_word;
use crate::name::{JsonName, hex};
use crate::status::daemon_status;
use crate::table::Table;

/// A lock.
#[derive(Serialize)]
pub(crate) struct JsonLock<'a> {
    id: u32,
    id_hex: String,
    state: &'static str,
    granted: Option<&'static str>,
    requested: Option<&'static str>,
    /// 1 for the head of the converting or waiting queue.
    queue_place: Option<usize>,
    node: u32,
    remote_id: u32,
    pid: u32,
    program: &'a str,
    label: &'a str,
    orphan: bool,
    age_us: u64,
    told: Option<&'static str>,
    told_age_us: Option<u64>,
    flags: u32,
    /// Text, like `token`: readers that keep numbers as floating point would round them.
    xid: String,
    value_seq: u32,
    token: String,
}

impl<'a> JsonLock<'a> {
    /// The lock at `index` of its resource; `own` is this node's id.
    pub(crate) fn new(resource: &'a ResourceRecord, index: usize, own: u32) -> Self {
        let lock = &resource.locks[index];
        Self {
            id: lock.id,
            id_hex: format!("{:08x}", lock.id),
            state: state_word(lock),
            granted: mode(lock.granted),
            requested: mode(lock.requested),
            queue_place: queue_place(resource, index),
            node: node_id(lock.node, own),
            remote_id: lock.remote_id,
            pid: lock.pid,
            program: &lock.program,
            label: &lock.label,
            orphan: lock.orphan,
            age_us: lock.age_us,
            told: mode(lock.told),
            told_age_us: (lock.told >= 0).then_some(lock.told_age_us),
            flags: lock.flags,
            xid: lock.xid.to_string(),
            value_seq: lock.value_seq,
            token: lock.token.to_string(),
        }
    }
}

/// A record's node, where 0 stands for this one.
pub(crate) fn node_id(node: u32, own: u32) -> u32 {
    if node == 0 { own } else { node }
}

/// A lock's state in one word.
pub(crate) fn state_word(lock: &LockRecord) -> &'static str {
    match lock.state {
        WAITING => "waiting",
        CONVERTING => "converting",
        _ => "granted",
    }
}

/// 1 for the head of the converting or waiting queue; `None` for a granted lock.
pub(crate) fn queue_place(resource: &ResourceRecord, index: usize) -> Option<usize> {
    let state = resource.locks[index].state;
    let ahead = resource.locks[..index].iter().filter(|lock| lock.state == state).count();
    matches!(state, WAITING | CONVERTING).then_some(ahead + 1)
}

fn mode(mode: i8) -> Option<&'static str> {
    (mode >= 0).then(|| mode_word(mode))
}

/// A value block.
#[derive(Serialize)]
pub(crate) struct JsonValue {
    hex: String,
    seq: u32,
    valid: bool,
}

impl JsonValue {
    /// The JSON form of a value block.
    pub(crate) fn new(value: &ValueRecord) -> Self {
        Self { hex: hex(&value.bytes, ""), seq: value.seq, valid: value.valid }
    }
}

/// A lock of a flat list, with its resource's name and master.
#[derive(Serialize)]
struct FlatLock<'a> {
    #[serde(flatten)]
    name: JsonName,
    master: u32,
    #[serde(flatten)]
    lock: JsonLock<'a>,
}

/// A resource with its locks.
#[derive(Serialize)]
struct JsonResource<'a> {
    #[serde(flatten)]
    name: JsonName,
    master: u32,
    value: Option<JsonValue>,
    locks: Vec<JsonLock<'a>>,
}

/// `{"lockspace":…, "locks":[…], "total":n, "state":"ok"}`: the locks that `wanted` keeps, flat.
pub(crate) fn dump_json(
    cx: &mut Context<'_>,
    lockspace: &[u8],
    wanted: impl Fn(&ResourceRecord, &LockRecord) -> bool,
) -> Outcome {
    stream(cx, lockspace, "locks", |list, resource, own| {
        let indices = 0..resource.locks.len();
        for index in indices.filter(|index| wanted(resource, &resource.locks[*index])) {
            list.item(&FlatLock {
                name: JsonName::new(&resource.name),
                master: node_id(resource.master, own),
                lock: JsonLock::new(resource, index, own),
            })?;
        }
        Ok(())
    })
}

/// `{"lockspace":…, "resources":[…], "total":n, "state":"ok"}`: whole resources.
pub(crate) fn dump_resources_json(cx: &mut Context<'_>, lockspace: &[u8]) -> Outcome {
    stream(cx, lockspace, "resources", |list, resource, own| {
        let locks = (0..resource.locks.len()).map(|index| JsonLock::new(resource, index, own));
        list.item(&JsonResource {
            name: JsonName::new(&resource.name),
            master: node_id(resource.master, own),
            value: resource.value.as_ref().map(JsonValue::new),
            locks: locks.collect(),
        })
    })
}

/// Writes one list from the pages of a table.
fn stream(
    cx: &mut Context<'_>,
    lockspace: &[u8],
    key: &str,
    mut each: impl FnMut(&mut List<'_>, &ResourceRecord, u32) -> Result<(), Fail>,
) -> Outcome {
    let own = match daemon_status(cx) {
        Ok(status) => status.node,
        Err(trouble) => return cx.fail_truly(&trouble, true),
    };
    let mut table = Table::new(&mut *cx.daemon, lockspace);
    let mut next = table.next();
    if let Err(trouble) = next {
        return cx.fail_truly(&trouble, true);
    }
    let name = JsonName::new(lockspace);
    write!(cx.out, "{{\n\"lockspace\": {},\n", serde_json::to_string(&name.name)?)?;
    write!(cx.out, "\"lockspace_hex\": \"{}\",\n\"{key}\": [", name.name_hex)?;
    let mut list = List { out: &mut *cx.out, items: 0 };
    let end = loop {
        match next {
            Ok(Some(resource)) => each(&mut list, &resource, own)?,
            Ok(None) => break None,
            Err(trouble) => break Some(trouble),
        }
        next = table.next();
    };
    let items = list.items;
    finish(cx, items, end)
}

fn finish(cx: &mut Context<'_>, items: u64, end: Option<Trouble>) -> Outcome {
    write!(cx.out, "\n],\n\"total\": {items},\n")?;
    let code: Code = match &end {
        None => {
            writeln!(cx.out, "\"state\": \"ok\"\n}}")?;
            GOOD
        }
        Some(trouble) => {
            let error = serde_json::to_string(&trouble.to_string())?;
            writeln!(cx.out, "\"state\": \"incomplete\",\n\"error\": {error}\n}}")?;
            cx.say(format_args!("the listing is incomplete: {trouble}"))?;
            trouble.code()
        }
    };
    Ok(code)
}

/// The items of a list, one a line.
struct List<'a> {
    out: &'a mut dyn Write,
    items: u64,
}

impl List<'_> {
    fn item(&mut self, item: &impl Serialize) -> Result<(), Fail> {
        let comma = if self.items == 0 { "\n" } else { ",\n" };
        self.out.write_all(comma.as_bytes()).map_err(Fail::Output)?;
        serde_json::to_writer(&mut *self.out, item).map_err(io::Error::from)?;
        self.items += 1;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::{NO, SILENT};
    use crate::fixture::{self, Ran, Script, demo_pages, refused, status};
    use dlm_ipc::control::ControlReply;

    fn script(pages: Vec<Result<ControlReply, Trouble>>) -> Script {
        Script::new(std::iter::once(Ok(ControlReply::Status(status(&[1])))).chain(pages))
    }

    fn flat(script: &mut Script) -> Ran {
        fixture::run(script, |cx| dump_json(cx, b"demo", |_, _| true))
    }

    #[test]
    fn a_flat_list_has_every_lock_and_its_place() {
        let ran = flat(&mut script(demo_pages()));
        let json = ran.json();
        assert_eq!((json["state"].as_str(), ran.code), (Some("ok"), GOOD));
        assert_eq!((json["lockspace"].as_str(), json["total"].as_u64()), (Some("demo"), Some(10)));
        let locks = json["locks"].as_array().expect("a list");
        assert_eq!(locks.len(), 10);
        let by_id = |id: u64| locks.iter().find(|lock| lock["id"] == id).expect("listed");
        assert_eq!(by_id(2)["state"], "converting");
        assert_eq!(
            (by_id(2)["granted"].clone(), by_id(2)["requested"].clone()),
            ("PR".into(), "EX".into())
        );
        assert_eq!(by_id(2)["queue_place"], 1);
        assert_eq!(by_id(9)["queue_place"], 2);
        assert_eq!((by_id(9)["node"].as_u64(), by_id(6)["node"].as_u64()), (Some(2), Some(1)));
        assert_eq!((by_id(1)["master"].as_u64(), by_id(8)["master"].as_u64()), (Some(2), Some(1)));
        assert!(by_id(8)["queue_place"].is_null() && by_id(8)["told"].is_null());
        assert_eq!(by_id(5)["told"], "PR");
        assert!(by_id(5)["told_age_us"].is_u64());
        assert_eq!(by_id(10)["orphan"], true);
        assert_eq!(by_id(7)["name"], "name-with\0nul");
        assert_eq!(by_id(7)["name_hex"], "6e616d652d77697468006e756c");
        assert_eq!(
            (by_id(3)["token"].as_str(), by_id(3)["xid"].as_str()),
            (Some("4294967297"), Some("0"))
        );
    }

    #[test]
    fn resources_carry_their_value() {
        let ran = fixture::run(&mut script(demo_pages()), |cx| dump_resources_json(cx, b"demo"));
        let json = ran.json();
        assert_eq!(json["total"], 6);
        let excl = &json["resources"][2];
        assert_eq!(excl["name"], "excl");
        assert!(excl["value"]["hex"].as_str().expect("hex").starts_with("62696e6172790102ff00"));
        assert_eq!(excl["value"]["valid"], true);
        assert_eq!(excl["locks"].as_array().map(Vec::len), Some(3));
        assert!(json["resources"][0]["value"].is_null());
    }

    #[test]
    fn a_dump_that_breaks_off_is_valid_and_says_incomplete() {
        let mut pages = demo_pages();
        pages[1] = Err(Trouble::Silent("gone".to_owned()));
        let ran = flat(&mut script(pages));
        let json = ran.json();
        assert_eq!((json["state"].as_str(), ran.code), (Some("incomplete"), SILENT));
        assert_eq!(json["error"], "gone");
        assert_eq!(json["total"].as_u64(), json["locks"].as_array().map(|l| l.len() as u64));
        assert!(ran.err.contains("incomplete"));
    }

    #[test]
    fn an_empty_list_and_a_refusal_are_documents_too() {
        let empty = Ok(ControlReply::Table(dlm_ipc::control::TablePage::default()));
        let ran = flat(&mut script(vec![empty]));
        assert_eq!((ran.json()["total"].as_u64(), ran.code), (Some(0), GOOD));
        let ran = flat(&mut script(vec![refused(libc::ENOENT)]));
        assert_eq!((ran.json()["state"].as_str(), ran.code), (Some("not-found"), NO));
    }
}
