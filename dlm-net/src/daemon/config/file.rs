//! dlm.conf: `name=value` lines and the sections of libdlm-abi.md 5.4.
//!
//! A section is a run of lines ended by an empty line: a `device` with its `connect` and `unfence`
//! lines, a `lockspace` with its `master` lines. They configure fencing and the placement of masters
//! in a cluster; a daemon of one node checks and keeps them without using them, so that a mistake is
//! found by `--check-config` on the machine where the file is written.

use std::net::{IpAddr, SocketAddr};

use super::table::Key;
use super::value::{decimal, nearest};

/// Longest line, in bytes.
pub const LINE_BYTES_MAX: usize = 4096;
/// Most mistakes that are reported at once.
pub const MISTAKES_MAX: usize = 20;
/// Most devices that a node is connected to (5.4).
pub const NODE_DEVICES_MAX: usize = 4;
/// Largest node id of a `node` line (5.4).
const MARK_NODE_MAX: u64 = 127;

/// First words of lines that are not `name=value`.
const KEYWORDS: &[&str] =
    &["device", "connect", "unfence", "fence_all", "unfence_all", "lockspace", "master", "node"];

/// A mistake in the file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mistake {
    /// Line, from 1.
    pub line: usize,
    /// What is wrong and what is allowed.
    pub sentence: String,
}

/// What a file says.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct File {
    /// Keys with values in normal form, in the file's order.
    pub settings: Vec<(Key, String)>,
    /// Fence devices in the file's order.
    pub devices: Vec<Device>,
    /// `fence_all`: agent and arguments.
    pub fence_all: Option<Agent>,
    /// Whether `unfence_all` stands below `fence_all`.
    pub unfence_all: bool,
    /// Lockspaces with masters.
    pub lockspaces: Vec<Lockspace>,
    /// Nodes with socket marks.
    pub node_marks: Vec<(u32, u32)>,
    /// Nodes with addresses, and ports other than the key `port`.
    pub nodes: Vec<(u32, IpAddr, Option<u16>)>,
}

/// A program and its arguments.
#[derive(Clone, PartialEq, Debug)]
pub struct Agent {
    /// The program, looked up in PATH.
    pub program: String,
    /// `key=value` words.
    pub arguments: Vec<String>,
    /// Line of the file that names it, from 1; 0: none does.
    pub line: usize,
}

/// A fence device.
#[derive(Clone, PartialEq, Debug)]
pub struct Device {
    /// `name` or `name:suffix`; devices of one name before `:` act in parallel.
    pub name: String,
    /// What to run.
    pub agent: Agent,
    /// Node ids with the arguments of their connection.
    pub connections: Vec<(u32, Vec<String>)>,
    /// Whether the device must unfence its nodes at start.
    pub unfence: bool,
}

/// A `lockspace` section.
#[derive(Clone, PartialEq, Debug)]
pub struct Lockspace {
    /// Its name.
    pub name: String,
    /// Whether masters are chosen by hash.
    pub nodir: bool,
    /// Node ids with weights; others weigh 0 if any is given.
    pub masters: Vec<(u32, u32)>,
}

/// Parses a file's text; on mistakes tells the first [`MISTAKES_MAX`] of them.
pub fn parse(text: &str) -> Result<File, Vec<Mistake>> {
    let (mut file, mut mistakes) = (File::default(), Vec::new());
    let mut section = Section::None;
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() {
            section = Section::None;
        } else if !line.starts_with('#') {
            match parse_line(line, &mut file, &mut section) {
                Ok(()) => number_agents(&mut file, index + 1),
                Err(sentence) => mistakes.push(Mistake { line: index + 1, sentence }),
            }
        }
        if mistakes.len() == MISTAKES_MAX {
            break;
        }
    }
    if mistakes.is_empty() { Ok(file) } else { Err(mistakes) }
}

/// Agents that have no line are of this one.
fn number_agents(file: &mut File, line: usize) {
    let last = file.devices.last_mut().map(|device| &mut device.agent);
    for agent in last.into_iter().chain(&mut file.fence_all) {
        if agent.line == 0 {
            agent.line = line;
        }
    }
}

/// Which lines may follow.
#[derive(Clone, Copy, PartialEq)]
enum Section {
    None,
    Device,
    FenceAll,
    Lockspace,
}

fn parse_line(line: &str, file: &mut File, section: &mut Section) -> Result<(), String> {
    if line.len() > LINE_BYTES_MAX {
        return Err(format!("the line is longer than {LINE_BYTES_MAX} bytes"));
    }
    let mut words = line.split_whitespace();
    let first = words.next().unwrap_or("");
    let words: Vec<&str> = words.collect();
    match first {
        "device" => device(&words, file, section),
        "connect" => connect(&words, file, *section),
        "unfence" => unfence(&words, file, *section),
        "fence_all" => fence_all(&words, file, section),
        "unfence_all" => unfence_all(&words, file, *section),
        "lockspace" => lockspace(&words, file, section),
        "master" => master(&words, file, *section),
        "node" => node(&words, file),
        _ => setting(line, file),
    }
}

fn setting(line: &str, file: &mut File) -> Result<(), String> {
    let Some((name, value)) = line.split_once('=') else {
        let word = line.split_whitespace().next().unwrap_or(line);
        let near = nearest(word, KEYWORDS.iter().copied());
        return Err(format!(
            "neither name=value nor a known keyword; the keyword nearest to '{word}' is '{near}'"
        ));
    };
    let (name, value) = (name.trim_end(), value.trim_start());
    let Some(key) = Key::find(name).filter(|key| key.spec().name == name) else {
        return Err(format!("unknown key '{name}'; the nearest is '{}'", Key::nearest(name)));
    };
    let value = key.spec().kind.check(value).map_err(|sentence| format!("{name}: {sentence}"))?;
    if file.settings.iter().any(|(other, _)| *other == key) {
        return Err(format!("{name} is given twice; keep one line"));
    }
    file.settings.push((key, value));
    Ok(())
}

fn device(words: &[&str], file: &mut File, section: &mut Section) -> Result<(), String> {
    if file.fence_all.is_some() {
        return Err("device and fence_all exclude each other; take one of them out".to_owned());
    }
    let [name, program, arguments @ ..] = words else {
        return Err("device takes a name, an agent and its key=value words, as in: device pdu:a \
                    fence_apc ipaddr=10.0.0.9"
            .to_owned());
    };
    if file.devices.iter().any(|device| device.name == *name) {
        return Err(format!(
            "device {name} is given twice; devices that act together have a suffix each, as in \
             {name}:1 and {name}:2"
        ));
    }
    let agent = agent(program, arguments)?;
    let name = (*name).to_owned();
    file.devices.push(Device { name, agent, connections: Vec::new(), unfence: false });
    *section = Section::Device;
    Ok(())
}

fn connect(words: &[&str], file: &mut File, section: Section) -> Result<(), String> {
    let [name, arguments @ ..] = words else {
        return Err(
            "connect takes a device's name, node=<id> and key=value words, as in: connect \
                    pdu:a node=2 port=7"
                .to_owned(),
        );
    };
    let node = arguments.iter().find_map(|word| word.strip_prefix("node="));
    let node = node_of(node).map_err(|sentence| {
        // What stands in the wrong place is told before what is missing in it.
        device_above(name, file, section).map_or_else(|misplaced| misplaced, |_| sentence)
    })?;
    let connected = |device: &&Device| device.connections.iter().any(|(other, _)| *other == node);
    let count = file.devices.iter().filter(connected).count();
    let device = device_above(name, file, section)?;
    if device.connections.iter().any(|(other, _)| *other == node) {
        return Err(format!("node {node} is connected to {name} twice; keep one line"));
    }
    if count == NODE_DEVICES_MAX {
        return Err(format!(
            "node {node} has {NODE_DEVICES_MAX} devices above, the most that are tried; take one of \
             its connect lines out"
        ));
    }
    device.connections.push((node, pairs(arguments)?));
    Ok(())
}

fn unfence(words: &[&str], file: &mut File, section: Section) -> Result<(), String> {
    let [name] = words else {
        return Err("unfence takes the name of the device above, and nothing else".to_owned());
    };
    let device = device_above(name, file, section)?;
    if std::mem::replace(&mut device.unfence, true) {
        return Err(format!("unfence {name} is given twice; keep one line"));
    }
    Ok(())
}

/// The device of the section, which must bear this name.
fn device_above<'a>(
    name: &str,
    file: &'a mut File,
    section: Section,
) -> Result<&'a mut Device, String> {
    let above = if section == Section::Device { file.devices.last_mut() } else { None };
    above.filter(|device| device.name == name).ok_or_else(|| {
        format!("this line must stand right below the line of device {name}, without empty line")
    })
}

fn fence_all(words: &[&str], file: &mut File, section: &mut Section) -> Result<(), String> {
    if !file.devices.is_empty() {
        return Err("fence_all and device exclude each other; take one of them out".to_owned());
    }
    if file.fence_all.is_some() {
        return Err("fence_all is given twice; keep one line".to_owned());
    }
    let [program, arguments @ ..] = words else {
        return Err(
            "fence_all takes an agent and its key=value words, as in: fence_all fence_sbd \
                    devices=/dev/sdx"
                .to_owned(),
        );
    };
    file.fence_all = Some(agent(program, arguments)?);
    *section = Section::FenceAll;
    Ok(())
}

fn unfence_all(words: &[&str], file: &mut File, section: Section) -> Result<(), String> {
    if section != Section::FenceAll || !words.is_empty() {
        return Err("unfence_all stands alone on the line below fence_all".to_owned());
    }
    file.unfence_all = true;
    Ok(())
}

fn lockspace(words: &[&str], file: &mut File, section: &mut Section) -> Result<(), String> {
    let (name, nodir) = match words {
        [name] => (*name, false),
        [name, "nodir=0"] => (*name, false),
        [name, "nodir=1"] => (*name, true),
        _ => return Err("lockspace takes a name and nodir=1".to_owned()),
    };
    if name.len() > dlm_core::LOCKSPACE_NAME_BYTES_MAX {
        return Err(format!("lockspace names have up to {} bytes", 64));
    }
    if file.lockspaces.iter().any(|space| space.name == name) {
        return Err(format!("lockspace {name} is given twice"));
    }
    file.lockspaces.push(Lockspace { name: name.to_owned(), nodir, masters: Vec::new() });
    *section = Section::Lockspace;
    Ok(())
}

fn master(words: &[&str], file: &mut File, section: Section) -> Result<(), String> {
    let [name, rest @ ..] = words else {
        return Err("master takes a lockspace's name, node=<id> and weight=<n>".to_owned());
    };
    let above = if section == Section::Lockspace { file.lockspaces.last_mut() } else { None };
    let space = above
        .filter(|space| space.name == *name)
        .ok_or_else(|| format!("this line must stand right below the line of lockspace {name}"))?;
    let node = node_of(rest.first().and_then(|word| word.strip_prefix("node=")))?;
    let weight = match rest.get(1).map(|word| word.strip_prefix("weight=")) {
        None => 1,
        Some(text) => small(text, u64::from(u32::MAX))
            .ok_or_else(|| "weight is a number, as in weight=2".to_owned())?,
    };
    if rest.len() > 2 {
        return Err("master takes nothing after weight=<n>".to_owned());
    }
    space.masters.push((node, weight));
    Ok(())
}

/// `node id=<n> mark=<n>` of the original, and `node id=<n> addr=<ip>[:port]`, also on one line.
fn node(words: &[&str], file: &mut File) -> Result<(), String> {
    let usage = || {
        format!(
            "node takes id=<1 to {MARK_NODE_MAX}> and mark=<number>, addr=<ip>[:port] or both; an IPv6 \
             address with a port stands in brackets"
        )
    };
    let [id, rest @ ..] = words else {
        return Err(usage());
    };
    let id = small(id.strip_prefix("id="), MARK_NODE_MAX).filter(|id| *id > 0);
    let id = id.filter(|_| !rest.is_empty()).ok_or_else(usage)?;
    for word in rest {
        let address = word.strip_prefix("addr=").and_then(address);
        let mark = small(word.strip_prefix("mark="), u64::from(u32::MAX));
        match (address, mark) {
            (_, Some(mark)) => file.node_marks.push((id, mark)),
            (Some((ip, port)), _) => {
                if file.nodes.iter().any(|(other, ..)| *other == id) {
                    return Err(format!("node {id} has two addresses; keep one"));
                }
                file.nodes.push((id, ip, port));
            }
            _ => return Err(usage()),
        }
    }
    Ok(())
}

/// `<ip>`, `<ip>:<port>` or `[<ip>]:<port>`.
fn address(text: &str) -> Option<(IpAddr, Option<u16>)> {
    if let Ok(ip) = text.parse::<IpAddr>() {
        return Some((ip, None));
    }
    let both: SocketAddr = text.parse().ok()?;
    (both.port() > 0).then(|| (both.ip(), Some(both.port())))
}

fn agent(program: &str, arguments: &[&str]) -> Result<Agent, String> {
    Ok(Agent { program: program.to_owned(), arguments: pairs(arguments)?, line: 0 })
}

fn pairs(words: &[&str]) -> Result<Vec<String>, String> {
    match words.iter().find(|word| !word.contains('=')) {
        Some(word) => Err(format!("'{word}' is not a key=value word")),
        None => Ok(words.iter().map(|word| (*word).to_owned()).collect()),
    }
}

fn node_of(text: Option<&str>) -> Result<u32, String> {
    let node = small(text, i32::MAX as u64).filter(|node| *node > 0);
    node.ok_or_else(|| "a node is missing: node=<number from 1>".to_owned())
}

fn small(text: Option<&str>, max: u64) -> Option<u32> {
    let number = decimal(text?).filter(|number| *number <= max)?;
    u32::try_from(number).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::daemon::config::table::KEYS;

    #[test]
    fn every_key_can_be_set_to_its_default_and_refuses_nonsense() {
        for key in Key::ALL {
            let spec = key.spec();
            let file = parse(&format!("{} = {}\n", spec.name, spec.default)).expect(spec.name);
            assert_eq!(file.settings, [(*key, spec.default.to_owned())]);
            let mistakes = parse(&format!("\n{}=\u{7} /\t\n", spec.name)).expect_err(spec.name);
            assert_eq!(mistakes[0].line, 2);
            assert!(mistakes[0].sentence.starts_with(spec.name), "{}", mistakes[0].sentence);
            assert!(mistakes[0].sentence.contains(" is not "), "{}", mistakes[0].sentence);
        }
        assert!(KEYS.len() > 40);
    }

    #[test]
    fn unknown_names_are_refused_with_line_and_nearest_name() {
        let cases = [
            ("clietns_max=3", "unknown key 'clietns_max'; the nearest is 'clients_max'"),
            ("CLUSTER_NAME=a", "unknown key 'CLUSTER_NAME'; the nearest is 'cluster_name'"),
            (
                "client-locks-max=3",
                "unknown key 'client-locks-max'; the nearest is 'client_locks_max'",
            ),
            (
                "devise x y",
                "neither name=value nor a known keyword; the keyword nearest to 'devise' is 'device'",
            ),
        ];
        for (line, sentence) in cases {
            let text = format!("# a comment\n\n{line}\nport=1\n");
            let sentence = sentence.to_owned();
            assert_eq!(parse(&text), Err(vec![Mistake { line: 3, sentence }]));
        }
    }

    #[test]
    fn all_mistakes_are_told_up_to_a_bound() {
        let mistakes = parse("a=1\nport=1\nport=2\nport=x\n").expect_err("three mistakes");
        assert_eq!(mistakes.iter().map(|m| m.line).collect::<Vec<_>>(), [1, 3, 4]);
        let many = parse(&"a=1\n".repeat(1000)).expect_err("many mistakes");
        assert_eq!(many.len(), MISTAKES_MAX);
        let long = parse(&format!("cluster_name={}", "x".repeat(5000))).expect_err("long line");
        assert!(long[0].sentence.contains("longer than 4096 bytes"));
    }

    #[test]
    fn sections_are_parsed_and_kept() {
        let text = "device ipmi:1 fence_ipmi user=a pw=b\nconnect ipmi:1 node=2 ip=10.0.0.2\n\
            # between\nconnect ipmi:1 node=3\nunfence ipmi:1\n\ndevice pdu fence_pdu\n\n\
            lockspace web nodir=1\nmaster web node=1\nmaster web node=2 weight=5\n\nnode id=7 mark=9\n";
        let file = parse(text).expect("good file");
        let [ipmi, pdu] = &file.devices[..] else { panic!("two devices") };
        assert_eq!(ipmi.agent.arguments, ["user=a", "pw=b"]);
        assert_eq!(ipmi.connections[0], (2, vec!["node=2".into(), "ip=10.0.0.2".into()]));
        assert_eq!(ipmi.connections[1].0, 3);
        assert!(ipmi.unfence && !pdu.unfence);
        assert_eq!((ipmi.agent.line, pdu.agent.line), (1, 7));
        assert_eq!(file.lockspaces[0].masters, [(1, 1), (2, 5)]);
        assert!(file.lockspaces[0].nodir);
        assert_eq!(file.node_marks, [(7, 9)]);
        let text = "node id=1 addr=10.0.0.1\nnode id=2 addr=[fe80::1]:99 mark=3\n";
        let file = parse(text).expect("good");
        let (one, two) = ("10.0.0.1".parse().expect("ip"), "fe80::1".parse().expect("ip"));
        assert_eq!(file.nodes, [(1, one, None), (2, two, Some(99))]);
        assert_eq!(file.node_marks, [(2, 3)]);
        let all = parse("fence_all dlm_stonith\nunfence_all\n").expect("good file");
        assert_eq!(all.fence_all.map(|agent| agent.program).as_deref(), Some("dlm_stonith"));
        assert!(all.unfence_all);
    }

    #[test]
    fn a_node_has_at_most_four_devices() {
        let device =
            |n: usize| format!("device d:{n} x\nconnect d:{n} node=1\nconnect d:{n} node=2\n\n");
        let four: String = (1..=4).map(device).collect();
        assert_eq!(parse(&four).expect("good").devices.len(), 4);
        let mistakes = parse(&format!("{four}device e x\nconnect e node=3\nconnect e node=2\n"));
        let sentence = "node 2 has 4 devices above, the most that are tried; take one of its connect \
            lines out";
        assert_eq!(mistakes, Err(vec![Mistake { line: 19, sentence: sentence.to_owned() }]));
    }

    #[test]
    fn misplaced_or_broken_section_lines_are_refused() {
        let cases = [
            ("device a", "device takes"),
            ("device a b c", "'c' is not a key=value word"),
            ("device a b\n\nconnect a node=1", "must stand right below the line of device a"),
            ("device a b\nconnect c node=1", "must stand right below the line of device c"),
            ("device a b\nconnect a", "a node is missing"),
            ("device a b\nconnect a node=0", "a node is missing"),
            ("device a b\nconnect a node=1\nconnect a node=1", "connected to a twice"),
            ("connect a", "must stand right below the line of device a"),
            ("connect", "connect takes a device's name"),
            ("device a b\nunfence a\nunfence a", "unfence a is given twice"),
            ("device a b\nunfence a b", "unfence takes"),
            ("device a b\nconnect a node=1 c", "'c' is not a key=value word"),
            ("fence_all", "fence_all takes"),
            ("fence_all c\nfence_all d", "fence_all is given twice"),
            ("fence_all c\n\nunfence_all", "on the line below fence_all"),
            ("device a b\ndevice a b", "device a is given twice"),
            ("device a b\nfence_all c", "exclude each other"),
            ("fence_all c\ndevice a b", "exclude each other"),
            ("unfence_all", "on the line below fence_all"),
            ("unfence", "unfence takes"),
            ("lockspace a nodir=2", "lockspace takes"),
            ("lockspace a\nlockspace a", "given twice"),
            ("master a node=1", "right below the line of lockspace a"),
            ("lockspace a\nmaster a node=1 weight=x", "weight is a number"),
            ("lockspace a\nmaster a node=1 weight=1 x=1", "nothing after"),
            ("node id=128 mark=1", "node takes id=<1 to 127>"),
            ("node id=1", "node takes id=<1 to 127>"),
            ("node id=1 addr=x", "node takes id=<1 to 127>"),
            ("node id=1 addr=1.2.3.4 addr=1.2.3.5", "node 1 has two addresses; keep one"),
        ];
        for (text, want) in cases {
            let mistakes = parse(text).expect_err(text);
            assert!(mistakes[0].sentence.contains(want), "{text}: {}", mistakes[0].sentence);
            assert_eq!(mistakes[0].line, text.lines().count(), "{text}");
        }
    }
}
