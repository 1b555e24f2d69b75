//! Where the demo plays: three daemons, their supervisor, and what was seen.

use std::io;
use std::path::PathBuf;
use std::process::Output;
use std::time::Instant;

use super::party::{GUARD, Party};
use crate::nodes::{Hosts, Nodes};
use crate::places::Places;

/// Tells the spectator what comes.
pub(super) fn say(words: &str) {
    println!("\n== {words}");
}

/// Three nodes. Its owner is their supervisor: it starts and reaps every process, so what it says
/// to the feeder of views about a node's death is true.
pub(super) struct Stage<'a> {
    places: &'a Places,
    /// Where the C programs are.
    programs: PathBuf,
    nodes: Nodes,
    seen: Vec<String>,
}

impl<'a> Stage<'a> {
    /// Starts the daemons, with everything in `dir`.
    pub(super) fn set(places: &'a Places, dir: PathBuf) -> io::Result<Stage<'a>> {
        say(
            "Three nodes on this machine: no root, no kernel module; a loopback address for each dlmd",
        );
        let nodes =
            Nodes::start(places, &dir.join("nodes"), 3, Hosts::Loopback, "cluster_name=demo")?;
        for node in 1..=nodes.count() {
            let socket = nodes.socket(node);
            println!(
                "   node {node}: dlmd at {}, programs use {}",
                nodes.address(node),
                socket.display()
            );
        }
        println!("   What they say to each other is encrypted with a key made for this run.");
        println!("   The demo is their supervisor: it tells who is in (membership = external).");
        Ok(Stage { places, programs: dir, nodes, seen: Vec::new() })
    }

    /// Starts a C program on a node.
    pub(super) fn start(
        &self,
        program: &str,
        words: &[&str],
        name: &str,
        node: u32,
    ) -> io::Result<Party> {
        let (socket, libraries) = (self.nodes.socket(node), self.places.libraries());
        // Actors are to be heard; of the others we tell what they did.
        let (aloud, program) = (program == "actor", self.programs.join(program));
        Party::start(&program, words, name, &socket, &libraries, aloud)
    }

    /// Something that must be so, and is told when it is.
    pub(super) fn check(&mut self, is_so: bool, claim: &str) -> io::Result<()> {
        if !is_so {
            return Err(io::Error::other(format!("this is not so: {claim}")));
        }
        println!("   seen: {claim}");
        self.seen.push(claim.to_owned());
        Ok(())
    }

    /// What was seen.
    pub(super) fn seen(&self) -> &[String] {
        &self.seen
    }

    /// What the daemons logged.
    pub(super) fn logs(&self) -> String {
        self.nodes.logs()
    }

    /// Kills a node's daemon and reaps it; its clients are the caller's to kill.
    pub(super) fn crash(&mut self, node: u32) {
        self.nodes.crash(node);
    }

    /// Starts a node's daemon again.
    pub(super) fn restart(&mut self, node: u32) -> io::Result<()> {
        self.nodes.restart(node)
    }

    /// Tells the feeder of views something.
    pub(super) fn supervise(&mut self, line: &str) -> io::Result<()> {
        println!("   supervisor: {line}");
        match self.nodes.say(line)?.as_str() {
            "done" => Ok(()),
            other => Err(io::Error::other(format!("the feeder answered {other:?} to {line:?}"))),
        }
    }

    /// Ends the daemons in good order.
    pub(super) fn stop(&mut self) -> io::Result<()> {
        say("The daemons are asked to stop");
        for node in 1..=self.nodes.count() {
            match self.nodes.daemon(node)?.stop()? {
                Some(status) if status.success() => println!("   node {node}: dlmd ended well"),
                other => return Err(io::Error::other(format!("dlmd of node {node}: {other:?}"))),
            }
        }
        Ok(())
    }

    /// Shows what dlm_tool says on a node; every one of `words` must be in it.
    pub(super) fn tool(&self, node: u32, args: &[&str], words: &[&str]) -> io::Result<()> {
        let output = self.nodes.tool(node, args)?;
        show(node, args, &output);
        match lacking(&output, words) {
            None => Ok(()),
            Some(why) => Err(io::Error::other(format!("dlm_tool {}: {why}", args.join(" ")))),
        }
    }

    /// Whether all of `words` are in what dlm_tool says on a node; nothing is shown.
    pub(super) fn says(&self, node: u32, args: &[&str], words: &[&str]) -> io::Result<bool> {
        Ok(lacking(&self.nodes.tool(node, args)?, words).is_none())
    }

    /// As [`Stage::tool`], as soon as it is so.
    pub(super) fn tool_until(&self, node: u32, args: &[&str], words: &[&str]) -> io::Result<()> {
        let end = Instant::now() + GUARD;
        while Instant::now() < end && lacking(&self.nodes.tool(node, args)?, words).is_some() {
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        self.tool(node, args, words)
    }

    /// A dlm_tool command that must say no, and name `holder`.
    pub(super) fn refused(&self, node: u32, args: &[&str], holder: &str) -> io::Result<()> {
        let output = self.nodes.tool(node, args)?;
        show(node, args, &output);
        let named = String::from_utf8_lossy(&output.stderr).contains(holder);
        if output.status.code() == Some(1) && named {
            return Ok(());
        }
        let why = format!("dlm_tool {}: it was to refuse, and to name {holder}", args.join(" "));
        Err(io::Error::other(why))
    }
}

fn show(node: u32, args: &[&str], output: &Output) {
    println!("   node {node} $ dlm_tool {}", args.join(" "));
    for text in [&output.stdout, &output.stderr] {
        for line in String::from_utf8_lossy(text).lines() {
            println!("     {line}");
        }
    }
}

/// What is wrong with an answer.
fn lacking(output: &Output, words: &[&str]) -> Option<String> {
    if !output.status.success() {
        return Some(format!("it ended with {}", output.status));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let missing = words.iter().find(|word| !text.contains(**word));
    missing.map(|word| format!("{word:?} is missing"))
}
