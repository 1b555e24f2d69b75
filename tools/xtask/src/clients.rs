//! `cargo xtask clients`: unmodified Debian programs against our libraries; see tests/clients/README.md.

use std::ffi::OsString;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::Ending;
use crate::daemon::Daemon;
use crate::job::{Ended, Job};
use crate::nodes::{Hosts, Nodes};
use crate::packages;
use crate::places::Places;
use crate::products;
use crate::scratch::Scratch;
use crate::tally::{self, Tally};

/// One script, with a daemon of its own.
struct Client {
    name: &'static str,
    script: &'static str,
    /// Runs inside corosync-ns.sh.
    corosync: bool,
    /// Runs on a cluster of two daemons.
    pair: bool,
    /// Its programs get the mounts of our drop-in for lvmlockd.
    unit: bool,
    /// Starts the daemon itself, in namespaces of its own.
    own: bool,
    /// Needs mount namespaces and loop devices.
    root: bool,
    packages: &'static [&'static str],
    budget: Duration,
}

const CLIENTS: &[Client] = &[
    Client {
        name: "debian-dev",
        script: "debian-dev.sh",
        corosync: false,
        pair: false,
        unit: false,
        own: false,
        root: false,
        packages: &["gcc", "libc6-dev", "libdlm-dev"],
        budget: Duration::from_secs(150),
    },
    Client {
        name: "dlm-tool",
        script: "dlm-tool.sh",
        corosync: false,
        pair: false,
        unit: false,
        own: false,
        root: false,
        packages: &["dlm-controld"],
        budget: Duration::from_secs(120),
    },
    Client {
        name: "dlm-tool-query",
        script: "debian-dlm-tool.sh",
        corosync: false,
        pair: false,
        unit: false,
        own: true,
        root: true,
        packages: &["dlm-controld"],
        budget: Duration::from_secs(60),
    },
    Client {
        name: "ocf",
        script: "ocf-agents.sh",
        corosync: false,
        pair: false,
        unit: false,
        own: true,
        root: true,
        packages: &["lvm2-lockd", "psmisc", "procps"],
        budget: Duration::from_secs(90),
    },
    Client {
        name: "mdadm",
        script: "mdadm-cluster.sh",
        corosync: true,
        pair: false,
        unit: false,
        own: false,
        root: true,
        packages: &["mdadm", "corosync", "python3", "iproute2"],
        budget: Duration::from_secs(150),
    },
    Client {
        name: "ocfs2",
        script: "ocfs2-tools.sh",
        corosync: true,
        pair: false,
        unit: false,
        own: false,
        root: true,
        packages: &["ocfs2-tools", "corosync", "python3", "iproute2", "gcc", "libc6-dev"],
        budget: Duration::from_secs(240),
    },
    Client {
        name: "lvm",
        script: "lvm-one-node.sh",
        corosync: false,
        pair: false,
        unit: false,
        own: false,
        root: true,
        packages: &["lvm2", "lvm2-lockd", "python3", "gcc", "libc6-dev"],
        budget: Duration::from_secs(240),
    },
    Client {
        name: "lvm-unit",
        script: "lvm-one-node.sh",
        corosync: false,
        pair: false,
        unit: true,
        own: false,
        root: true,
        packages: &["lvm2", "lvm2-lockd", "python3", "gcc", "libc6-dev"],
        budget: Duration::from_secs(240),
    },
    Client {
        name: "lvm-two-nodes",
        script: "lvm-two-nodes.sh",
        corosync: false,
        pair: true,
        unit: false,
        own: false,
        root: true,
        packages: &["lvm2", "lvm2-lockd", "gcc", "libc6-dev"],
        budget: Duration::from_secs(300),
    },
];

/// Runs the command.
pub(crate) fn run(places: &Places, args: &[String]) -> Result<(), Ending> {
    let (times, names) = parse(args)?;
    products::build(places)?;
    let mut tally = Tally::default();
    for client in CLIENTS {
        if !names.is_empty() && !names.contains(&client.name) {
            continue;
        }
        if let Some(reason) = obstacle(client) {
            tally.skip(format!("client {}: {reason}", client.name));
            continue;
        }
        let mut good = 0;
        for run in 1..=times {
            let one = match client {
                client if client.pair => play_pair(places, client)?,
                client if client.own => play_alone(places, client)?,
                client => play(places, client)?,
            };
            good += u32::from(one.failed == 0);
            if times > 1 {
                let (name, passed, failed) = (client.name, one.passed, one.failed);
                println!("-- {name}: run {run} of {times}: {passed} passed, {failed} failed");
            }
            tally.add(one);
        }
        if times > 1 {
            println!("-- {}: {good} of {times} runs were whole", client.name);
        }
    }
    tally.print();
    tally.verdict()
}

/// How often, and which ones; none: all.
fn parse(args: &[String]) -> Result<(u32, Vec<&str>), Ending> {
    let (mut times, mut names) = (1, Vec::new());
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        if arg == "--times" {
            let number = args.next().and_then(|word| word.parse().ok()).filter(|times| *times > 0);
            times = number.ok_or_else(|| Ending::Usage("--times needs a number".into()))?;
        } else if CLIENTS.iter().any(|client| client.name == arg) {
            names.push(arg.as_str());
        } else {
            let known: Vec<&str> = CLIENTS.iter().map(|client| client.name).collect();
            let why = format!("there is no client {arg}; there are: {}", known.join(" "));
            return Err(Ending::Usage(why));
        }
    }
    Ok((times, names))
}

/// Why a script cannot run here.
fn obstacle(client: &Client) -> Option<String> {
    if let Some(lack) = packages::lack(client.packages) {
        return Some(lack);
    }
    if !client.root {
        return None;
    }
    if !packages::is_root() {
        return Some("needs root, for mount namespaces and loop devices".into());
    }
    if !succeeds("unshare", &["-m", "-n", "true"]) {
        return Some("this machine lets root make no mount and network namespaces".into());
    }
    if !succeeds("losetup", &["-f"]) {
        return Some("this machine has no loop devices".into());
    }
    None
}

fn succeeds(program: &str, words: &[&str]) -> bool {
    let mut command = Command::new(program);
    command.args(words).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

fn play(places: &Places, client: &Client) -> Result<Tally, Ending> {
    println!("-- {}", client.name);
    let dir = Scratch::new("client")?;
    let mut daemon = Daemon::start(places, dir.path(), &["--cluster_name", "demo"])?;
    let folder = places.root.join("tests/clients");
    let script = folder.join(client.script);
    let log = places.logs().join(format!("client-{}.log", client.name));
    let job = if client.corosync {
        Job::new(folder.join("corosync-ns.sh"), log, client.budget)
            .args(["-c", "demo", "--"])
            .arg(script)
    } else {
        Job::new(script, log, client.budget)
    };
    let mut library = OsString::from("DLM_SOCKET=");
    library.push(daemon.socket());
    let dropin = places.dist().join("lvmlockd.service.d/dlmd.conf");
    let unit = if client.unit { dropin } else { Default::default() };
    let ended = job
        .envs([
            ("LIBDIR", places.libraries().into()),
            ("LIBENV", library),
            ("HOLDER", folder.join("hold.py").into()),
            ("LOOKALIKE", daemon.lookalike().into()),
            ("UNIT", unit.into()),
        ])
        .dir(dir.path())
        .run()?;
    let mut tally = judge(client, &ended);
    if let Some(status) = daemon.ended()? {
        println!("not ok - {}: dlmd ended with {status}:\n{}", client.name, daemon.log());
        tally.fail(format!("client {}: dlmd ended", client.name));
    }
    println!("-- {}: {} s", client.name, ended.took.as_secs());
    Ok(tally)
}

/// Runs a script that starts the daemon itself.
fn play_alone(places: &Places, client: &Client) -> Result<Tally, Ending> {
    println!("-- {}", client.name);
    let dir = Scratch::new("client")?;
    let script = places.root.join("tests/clients").join(client.script);
    let log = places.logs().join(format!("client-{}.log", client.name));
    let ended = Job::new(script, log, client.budget)
        .envs([
            ("LIBDIR", OsString::from(places.libraries())),
            ("BINDIR", OsString::from(places.release())),
        ])
        .dir(dir.path())
        .run()?;
    if let Some(reason) = ended.output.lines().find_map(|line| line.strip_prefix("SKIPPED: ")) {
        let mut tally = Tally::default();
        tally.skip(format!("client {}: {reason}", client.name));
        return Ok(tally);
    }
    let tally = judge(client, &ended);
    println!("-- {}: {} s", client.name, ended.took.as_secs());
    Ok(tally)
}

/// Runs a script on two daemons.
fn play_pair(places: &Places, client: &Client) -> Result<Tally, Ending> {
    println!("-- {}", client.name);
    let dir = Scratch::new("pair")?;
    let mut nodes = Nodes::start(places, dir.path(), 2, Hosts::Loopback, "cluster_name=demo")?;
    let script = places.root.join("tests/clients").join(client.script);
    let log = places.logs().join(format!("client-{}.log", client.name));
    let mut envs =
        vec![("LIBDIR", places.libraries().into()), ("SPACES_HOOK", OsString::from("0"))];
    for (node, env, tree) in [(1, "NODE1_ENV", "LOOKALIKE1"), (2, "NODE2_ENV", "LOOKALIKE2")] {
        let mut socket = OsString::from("DLM_SOCKET=");
        socket.push(nodes.socket(node));
        envs.push((env, socket));
        envs.push((tree, nodes.daemon(node)?.lookalike().into()));
    }
    let ended = Job::new(script, log, client.budget).envs(envs).dir(dir.path()).run()?;
    let mut tally = judge(client, &ended);
    for node in 1..=2 {
        if let Some(status) = nodes.daemon(node)?.ended()? {
            println!("not ok - {}: dlmd ended with {status}:\n{}", client.name, nodes.logs());
            tally.fail(format!("client {}: dlmd ended", client.name));
        }
    }
    println!("-- {}: {} s", client.name, ended.took.as_secs());
    Ok(tally)
}

/// What a script found.
fn judge(client: &Client, ended: &Ended) -> Tally {
    println!("{}", ended.output.trim_end());
    let mut tally = tally::closing(&ended.output).unwrap_or_default();
    if let Some(trouble) = ended.trouble()
        && (tally.failed == 0 || ended.status.is_none())
    {
        println!("not ok - {}: {trouble}", client.name);
        tally.fail(format!("client {}: {trouble}", client.name));
    } else if tally.passed + tally.failed == 0 {
        println!("not ok - {}: it checked nothing", client.name);
        tally.fail(format!("client {}: it checked nothing", client.name));
    }
    tally
}
