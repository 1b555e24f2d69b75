//! Answers of the query socket in bytes (libdlm-abi.md 4.9; the layout of every structure is in
//! `tests/abi/libdlm-layout.txt`). Numbers are in host byte order, as both sides are on one machine.

use std::fmt::Display;

use dlm_ipc::control::{
    ChangeRecord, ConfigRecord, NodeRecord, SpaceNodeRecord, SpaceRecord, StatusRecord,
    wall_seconds,
};

const MAGIC: u32 = 0xD13C_D13C;
const VERSION: u32 = 0x0001_0001;
/// Room that a caller has for a text, DLMC_DUMP_SIZE, less its NUL.
const TEXT_BYTES_MAX: usize = 1024 * 1024 - 1;
const NAME_BYTES: usize = 64;
const ENOENT: i32 = -libc::ENOENT;
const E2BIG: i32 = -libc::E2BIG;

/// A request, and the head of most answers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Header {
    pub(super) command: u32,
    pub(super) option: u32,
    pub(super) data: i32,
    flags: i32,
    name: [u8; NAME_BYTES],
}

impl Header {
    pub(super) const BYTES: usize = 96;
    pub(super) const DUMP_DEBUG: u32 = 1;
    pub(super) const DUMP_PLOCKS: u32 = 2;
    pub(super) const LOCKSPACE_INFO: u32 = 3;
    pub(super) const NODE_INFO: u32 = 4;
    pub(super) const LOCKSPACES: u32 = 5;
    pub(super) const LOCKSPACE_NODES: u32 = 6;
    pub(super) const DUMP_LOG_PLOCK: u32 = 11;
    pub(super) const DUMP_STATUS: u32 = 13;
    pub(super) const DUMP_CONFIG: u32 = 14;
    pub(super) const DUMP_RUN: u32 = 17;

    /// Understands a request; `None`: it is none, or of another version.
    pub(super) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let word = |at: usize| -> Option<u32> {
            Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
        };
        let good = word(0)? == MAGIC && word(4)? >> 16 == VERSION >> 16;
        let name = bytes.get(32..32 + NAME_BYTES)?.try_into().ok()?;
        let (command, option) = (word(8)?, word(12)?);
        let (data, flags) = (word(20)? as i32, word(24)? as i32);
        good.then_some(Self { command, option, data, flags, name })
    }

    /// The lockspace that is asked for.
    fn lockspace(&self) -> &[u8] {
        let length = self.name.iter().position(|byte| *byte == 0).unwrap_or(NAME_BYTES);
        &self.name[..length]
    }

    /// The head of an answer with this result, followed by `body`.
    fn reply(&self, data: i32, body: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(Self::BYTES + body.len());
        let length = (Self::BYTES + body.len()) as u32;
        for word in [MAGIC, VERSION, self.command, 0, length, data as u32, 0, 0] {
            out.extend(word.to_ne_bytes());
        }
        out.extend(self.name);
        out.extend(body);
        out
    }
}

/// What an answer is made of.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Wanted {
    Text(String),
    Config(Vec<ConfigRecord>),
    Spaces(Vec<SpaceRecord>),
    Status(Box<StatusRecord>),
    /// The request is not one of this socket's.
    Nothing,
}

/// The answer to a request; empty: hang up.
pub(super) fn answer(header: &Header, wanted: &Wanted) -> Vec<u8> {
    match wanted {
        Wanted::Text(text) => header.reply(0, cut(text).as_bytes()),
        Wanted::Config(records) => header.reply(0, cut(&config(records)).as_bytes()),
        Wanted::Spaces(spaces) => about_spaces(header, spaces),
        Wanted::Status(record) => status(record, wall_seconds()),
        Wanted::Nothing => Vec::new(),
    }
}

/// The end of a text that is too long, from the start of a line.
fn cut(text: &str) -> &str {
    let Some(surplus) = text.len().checked_sub(TEXT_BYTES_MAX).filter(|surplus| *surplus > 0)
    else {
        return text;
    };
    let line = text.as_bytes()[surplus..].iter().position(|byte| *byte == b'\n');
    line.map_or("", |line| &text[surplus + line + 1..])
}

fn config(records: &[ConfigRecord]) -> String {
    let line = |record: &ConfigRecord| match record.source.as_str() {
        "" => format!("{}={}\n", record.key, record.value),
        source => format!("{}={} ({source})\n", record.key, record.value),
    };
    // The original's table ends in these two.
    records.iter().map(line).collect::<String>() + "help=-1\nversion=-1\n"
}

fn about_spaces(header: &Header, spaces: &[SpaceRecord]) -> Vec<u8> {
    if header.command == Header::LOCKSPACES {
        let body: Vec<u8> = spaces.iter().flat_map(lockspace).collect();
        return header.reply(spaces.len() as i32, &body);
    }
    let space = spaces.iter().find(|space| space.name == header.lockspace());
    match (header.command, space) {
        (Header::DUMP_PLOCKS, space) => header.reply(space.map_or(ENOENT, |_| 0), &[]),
        (Header::LOCKSPACE_INFO, Some(space)) => header.reply(0, &lockspace(space)),
        (Header::LOCKSPACE_INFO, None) => header.reply(ENOENT, &[0; LOCKSPACE_BYTES]),
        (Header::NODE_INFO, space) => {
            let of = |space: &SpaceRecord| {
                space.nodes.iter().find(|node| node.node as i32 == header.data).map(node)
            };
            match space.and_then(of) {
                Some(body) => header.reply(0, &body),
                None => header.reply(ENOENT, &[0; NODE_BYTES]),
            }
        }
        (Header::LOCKSPACE_NODES, Some(space)) => {
            let nodes = nodes_of(space, header.option);
            let room = usize::try_from(header.data).unwrap_or(0);
            let body: Vec<u8> = nodes.iter().take(room).flat_map(node).collect();
            let count = if nodes.len() > room { E2BIG } else { nodes.len() as i32 };
            header.reply(count, &body)
        }
        _ => header.reply(ENOENT, &[]),
    }
}

/// All nodes, members, or those of the change in progress (DLMC_NODES_ALL, _MEMBERS, _NEXT).
fn nodes_of(space: &SpaceRecord, kind: u32) -> Vec<SpaceNodeRecord> {
    let known = |id: &u32| {
        let found = space.nodes.iter().find(|node| node.node == *id).cloned();
        found.unwrap_or(SpaceNodeRecord { node: *id, member: true, ..SpaceNodeRecord::default() })
    };
    let mut nodes: Vec<_> = match kind {
        1 => space.nodes.clone(),
        2 if space.next_change.is_some() => space.change.members.iter().map(known).collect(),
        2 => space.members.iter().map(known).collect(),
        3 => {
            let next = space.next_change.iter().flat_map(|change| &change.members);
            next.map(known).collect()
        }
        _ => Vec::new(),
    };
    nodes.sort_by_key(|node| node.node);
    nodes
}

const LOCKSPACE_BYTES: usize = 140;
const NODE_BYTES: usize = 40;

/// `struct dlmc_lockspace`.
fn lockspace(space: &SpaceRecord) -> [u8; LOCKSPACE_BYTES] {
    const STOPPED: u32 = 0x4;
    const LEAVING: u32 = 0x2;
    const JOINING: u32 = 0x1;
    let flags = match space.state.as_str() {
        "joining" => STOPPED | JOINING,
        "leaving" => LEAVING,
        "recovering" | "frozen" => STOPPED,
        _ => 0,
    };
    let mut out = [0; LOCKSPACE_BYTES];
    out[..32].copy_from_slice(&change(&space.change));
    if let Some(next) = &space.next_change {
        out[32..64].copy_from_slice(&change(next));
    }
    out[64..68].copy_from_slice(&flags.to_ne_bytes());
    out[68..72].copy_from_slice(&space.global_id.to_ne_bytes());
    let length = space.name.len().min(NAME_BYTES);
    out[72..72 + length].copy_from_slice(&space.name[..length]);
    out
}

/// `struct dlmc_change`.
fn change(change: &ChangeRecord) -> [u8; 32] {
    let (waits, messages) = match change.status.split_once(' ') {
        Some(("wait", "ringid")) => (1, 0),
        Some(("wait", "quorum")) => (2, 0),
        Some(("wait", "fencing")) => (3, 0),
        Some(("wait", messages)) => {
            let count = messages.strip_prefix("messages ").and_then(|count| count.parse().ok());
            (0, count.unwrap_or(0))
        }
        _ => (0, 0),
    };
    let (count, seq) = (change.members.len() as u32, change.seq as u32);
    let words = [count, change.joined, change.removed, change.failed, waits, messages, seq, seq];
    let mut out = [0; 32];
    for (place, word) in out.chunks_exact_mut(4).zip(words) {
        place.copy_from_slice(&word.to_ne_bytes());
    }
    out
}

/// `struct dlmc_node`.
fn node(node: &SpaceNodeRecord) -> [u8; NODE_BYTES] {
    const MEMBER: u32 = 1;
    const START: u32 = 2;
    const NEED_FENCING: u32 = 8;
    let flag = |bit: u32, set: bool| if set { bit } else { 0 };
    let flags =
        flag(MEMBER, node.member) | flag(START, node.started) | flag(NEED_FENCING, node.feared);
    let (added, removed) = (node.added_seq as u32, node.removed_seq as u32);
    let mut out = [0; NODE_BYTES];
    let words = [node.node, flags, added, removed, node.left];
    for (place, word) in out.chunks_exact_mut(4).zip(words) {
        place.copy_from_slice(&word.to_ne_bytes());
    }
    out[32..].copy_from_slice(&node.failed.to_ne_bytes());
    out
}

/// A row of `struct dlmc_state`, each followed by its text.
fn status(record: &StatusRecord, wall_now: u64) -> Vec<u8> {
    let mut out = Vec::new();
    state(&mut out, 1, record.node, &record.keys());
    let nodes = record.sorted();
    for node in &nodes {
        state(&mut out, 2, node.node, &node.keys(record.now, wall_now));
    }
    for id in &record.fencing.startup {
        let absent = NodeRecord { node: *id, ..NodeRecord::default() };
        let known = nodes.iter().find(|node| node.node == *id).map_or(&absent, |node| node);
        state(&mut out, 3, *id, &known.keys(record.now, wall_now));
    }
    out
}

fn state(out: &mut Vec<u8>, kind: u32, node: u32, keys: &[(&str, impl Display)]) {
    let mut text: String = keys.iter().map(|(key, value)| format!("{key}={value} ")).collect();
    text.push('\0');
    for word in [kind, 0, node, 0, 0, text.len() as u32, 0] {
        out.extend(word.to_ne_bytes());
    }
    out.extend(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use dlm_ipc::control::left;

    fn request(command: u32, option: u32, data: i32, name: &[u8]) -> Header {
        let mut bytes = Vec::new();
        for word in [MAGIC, VERSION, command, option, 96, data as u32, 0, 0] {
            bytes.extend(word.to_ne_bytes());
        }
        bytes.extend(name);
        bytes.resize(Header::BYTES, 0);
        Header::from_bytes(&bytes).expect("a request")
    }

    fn word(bytes: &[u8], at: usize) -> u32 {
        u32::from_ne_bytes(bytes[at..at + 4].try_into().expect("four"))
    }

    fn change_record(members: &[u32], seq: u64, status: &str) -> ChangeRecord {
        ChangeRecord {
            node: 1,
            joined: 1,
            seq,
            members: members.to_vec(),
            status: status.to_owned(),
            ..ChangeRecord::default()
        }
    }

    fn space(name: &str) -> SpaceRecord {
        let node = |node, member, left| SpaceNodeRecord {
            node,
            member,
            left,
            started: member,
            feared: !member,
            added_seq: 2,
            failed: if member { 0 } else { 77 },
            ..SpaceNodeRecord::default()
        };
        SpaceRecord {
            name: name.as_bytes().to_vec(),
            global_id: 0x5a17_c0de,
            flags: 0,
            uid: 0,
            gid: 0,
            mode: 0o600,
            create_count: 1,
            handles: 1,
            state: "recovering".to_owned(),
            waits_for: Vec::new(),
            view: 9,
            members: vec![1, 2],
            change: change_record(&[1, 2, 3], 7, ""),
            next_change: Some(change_record(&[1, 2], 8, "wait fencing")),
            locks: 0,
            resources: 0,
            orphans: 0,
            nodes: vec![node(1, true, 0), node(2, true, 0), node(3, false, left::NODE_DOWN)],
        }
    }

    #[test]
    fn what_is_no_request_of_this_version_is_not_answered() {
        let mut good = Vec::new();
        for word in [MAGIC, 0x0001_0007, 5, 0, 96, 0, 0, 0] {
            good.extend(word.to_ne_bytes());
        }
        good.resize(Header::BYTES, b'x');
        assert!(Header::from_bytes(&good).is_some_and(|header| header.lockspace() == [b'x'; 64]));
        assert_eq!(Header::from_bytes(&good[..95]), None);
        for at in [0, 6] {
            let mut bad = good.clone();
            bad[at] ^= 1;
            assert_eq!(Header::from_bytes(&bad), None, "byte {at}");
        }
        assert!(answer(&request(7, 0, 0, b"web"), &Wanted::Nothing).is_empty());
    }

    #[test]
    fn lockspaces_have_the_layout_of_the_originals_header() {
        let spaces = Wanted::Spaces(vec![space("web"), space("db")]);
        let all = answer(&request(Header::LOCKSPACES, 0, 0, b""), &spaces);
        assert_eq!((all.len(), word(&all, 16), word(&all, 20)), (96 + 280, 96 + 280, 2));
        let web = &all[96..236];
        assert_eq!([word(web, 0), word(web, 24), word(web, 28)], [3, 7, 7]);
        assert_eq!([word(web, 32), word(web, 48), word(web, 56)], [2, 3, 8]);
        assert_eq!([word(web, 64), word(web, 68)], [4, 0x5a17_c0de]);
        assert_eq!(&web[72..76], b"web\0");
        let one = answer(&request(Header::LOCKSPACE_INFO, 0, 0, b"web"), &spaces);
        assert_eq!((&one[96..], word(&one, 20)), (web, 0));
        let none = answer(&request(Header::LOCKSPACE_INFO, 0, 0, b"we"), &spaces);
        assert_eq!((none.len(), word(&none, 20) as i32), (96 + 140, -2));
        let plocks = answer(&request(Header::DUMP_PLOCKS, 0, 0, b"none"), &spaces);
        assert_eq!(word(&plocks, 20) as i32, -2);
    }

    #[test]
    fn nodes_are_listed_by_kind_and_bounded() {
        let spaces = Wanted::Spaces(vec![space("web")]);
        let nodes = |kind, max| {
            let reply = answer(&request(Header::LOCKSPACE_NODES, kind, max, b"web"), &spaces);
            let ids = reply[96..].chunks_exact(40).map(|node| word(node, 0)).collect::<Vec<_>>();
            (word(&reply, 20) as i32, ids)
        };
        assert_eq!(nodes(1, 100), (3, vec![1, 2, 3]));
        assert_eq!(nodes(2, 100), (3, vec![1, 2, 3]), "of the completed change");
        assert_eq!(nodes(3, 100), (2, vec![1, 2]));
        assert_eq!(nodes(1, 2), (-libc::E2BIG, vec![1, 2]));
        let one = answer(&request(Header::NODE_INFO, 0, 3, b"web"), &spaces);
        assert_eq!([4, 8, 16, 32].map(|at| word(&one[96..], at)), [8, 2, 3, 77]);
        let none = answer(&request(Header::NODE_INFO, 0, 4, b"web"), &spaces);
        assert_eq!((none.len(), word(&none, 20) as i32), (136, -2));
    }

    #[test]
    fn texts_are_cut_to_the_callers_room_at_a_line() {
        let line = "0123456789abcde\n";
        let long = line.repeat(70_000);
        let reply = answer(&request(Header::DUMP_DEBUG, 0, 0, b""), &Wanted::Text(long));
        let text = &reply[96..];
        assert!(text.len() <= TEXT_BYTES_MAX && text.len() > TEXT_BYTES_MAX - 32);
        assert!(text.starts_with(line.as_bytes()) && text.ends_with(line.as_bytes()));
        let record = |key: &str, source: &str| ConfigRecord {
            key: key.to_owned(),
            value: "1".to_owned(),
            source: source.to_owned(),
        };
        let records = vec![record("a", ""), record("b", "dlm.conf")];
        let reply = answer(&request(Header::DUMP_CONFIG, 0, 0, b""), &Wanted::Config(records));
        assert_eq!(&reply[96..], b"a=1\nb=1 (dlm.conf)\nhelp=-1\nversion=-1\n");
    }
}
