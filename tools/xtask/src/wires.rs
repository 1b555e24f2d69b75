//! Hosts that are network namespaces, as tests/cluster/netns-cluster.sh makes them.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::nodes::Hosts;
use crate::places::Places;
use crate::text;

/// The hosts n1, n2 and so on; dropping them ends what runs there and removes them.
pub(crate) struct Wires {
    script: PathBuf,
    prefix: String,
    net: &'static str,
    links: u32,
    dir: PathBuf,
}

impl Wires {
    /// Makes `count` hosts, each on so many links. Their names begin with `name`, their addresses
    /// with `net`; their own files are in `dir`, which the script makes.
    pub(crate) fn up(
        places: &Places,
        name: &str,
        net: &'static str,
        count: u32,
        links: u32,
        dir: PathBuf,
    ) -> Result<Self, String> {
        let script = places.root.join("tests/cluster/netns-cluster.sh");
        let prefix = format!("{name}{}", std::process::id() % 10_000);
        let wires = Self { script, prefix, net, links, dir };
        wires.run(&["up", &count.to_string()])?;
        Ok(wires)
    }

    /// Does something to wires or hosts; the script itself says what it cannot do.
    pub(crate) fn run(&self, words: &[&str]) -> Result<(), String> {
        let script = self.script();
        // What goes on as a process of a host must not keep an output of ours.
        let status = Command::new(&script[0])
            .args(&script[1..])
            .args(words)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .status()
            .map_err(text)?;
        if status.success() {
            return Ok(());
        }
        Err(format!("netns-cluster.sh {}: {status}", words.join(" ")))
    }

    /// The command line of the script, without its words.
    fn script(&self) -> Vec<String> {
        vec![
            "env".to_owned(),
            format!("NC_PREFIX={}", self.prefix),
            format!("NC_NET={}", self.net),
            format!("NC_LINKS={}", self.links),
            format!("NC_DIR={}", self.dir.display()),
            self.script.display().to_string(),
        ]
    }

    /// The beginning of a command line that runs something on a host, whose name follows.
    pub(crate) fn exec(&self) -> Vec<String> {
        self.script().into_iter().chain(["exec".to_owned()]).collect()
    }

    /// The hosts for daemons that are told who is there.
    pub(crate) fn told(&self) -> Hosts {
        Hosts::Namespaces { prefix: self.prefix.clone(), net: self.net.to_owned() }
    }

    /// Starts corosync on all hosts.
    pub(crate) fn start_corosync(&self) -> Result<(), String> {
        // With a shorter token healthy hosts fall apart on two busy cores.
        self.run(&["corosync-up", "token: 1000"])
    }

    /// The hosts for daemons that are members of that corosync.
    pub(crate) fn members(&self) -> Hosts {
        let words = self.exec();
        Hosts::Corosync { prefix: self.prefix.clone(), net: self.net.to_owned(), words }
    }

    /// The network namespace of a host.
    pub(crate) fn namespace(&self, node: u32) -> String {
        format!("{}-n{node}", self.prefix)
    }

    /// Where the hosts' own files are.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }
}

impl Drop for Wires {
    fn drop(&mut self) {
        if let Err(error) = self.run(&["down"]) {
            eprintln!("{error}");
        }
    }
}
