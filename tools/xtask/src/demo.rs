//! `cargo demo`: one node, two programs, a lock. It ends by itself, and is good only if everything was seen.

use std::io::{self, BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use crate::daemon::Daemon;
use crate::places::Places;
use crate::scratch::Scratch;
use crate::{Ending, leftover, products};

/// Hang guard of a single wait.
const GUARD: Duration = Duration::from_secs(15);
/// How far the two programs count.
const LAST: usize = 10;

/// Runs the command.
pub(crate) fn run(places: &Places, args: &[String]) -> Result<(), Ending> {
    if let Some(arg) = args.first() {
        return Err(Ending::Usage(format!("demo takes no {arg}")));
    }
    say("building the daemon, the C library and two C programs (demo/turns.c, demo/door.c)");
    products::build(places)?;
    let dir = Scratch::new("demo")?;
    for program in ["turns", "door"] {
        let source = places.root.join(format!("tools/xtask/demo/{program}.c"));
        products::cc(places, &[source], "dlm", &dir.path().join(program))?;
    }
    let stage =
        Stage { places, dir: dir.path().to_path_buf(), socket: dir.path().join("dlmd.sock") };
    match stage.play() {
        Ok(()) => {
            say("seen: exclusion, a value passed round, a blocking callback, a death survived");
            Ok(())
        }
        Err(error) => {
            eprintln!("the demo did not go as it should: {error}");
            Err(Ending::Failed)
        }
    }
}

fn say(words: &str) {
    println!("\n== {words}");
}

struct Stage<'a> {
    places: &'a Places,
    dir: PathBuf,
    socket: PathBuf,
}

impl Stage<'_> {
    fn play(&self) -> io::Result<()> {
        say("starting dlmd on a socket of its own; no root and no kernel module needed");
        let mut daemon = Daemon::start(self.places, &self.dir, &[])?;
        println!("   dlmd serves on {}", self.socket.display());
        self.turns()?;
        self.door()?;
        say("dlmd is asked to stop; anna never left the lockspace, so it takes a second word");
        match daemon.stop()? {
            Some(status) => println!("   dlmd ended: {status}"),
            None => return Err(io::Error::other("dlmd did not stop")),
        }
        Ok(())
    }

    /// Two processes pass a number in the value block.
    fn turns(&self) -> io::Result<()> {
        say(
            "anna and ben both want the lock \"number\" exclusively; its value block carries a number.",
        );
        println!("   Who has the lock adds one, and lets go when the blocking callback says so.");
        let last = LAST.to_string();
        let mut anna = self.start("turns", "anna", &[&last])?;
        let mut ben = self.start("turns", "ben", &[&last])?;
        let mut made = anna.until("stops")?;
        let anna_made = made.len();
        made.extend(ben.until("stops")?);
        anna.end()?;
        ben.end()?;
        let mut numbers: Vec<usize> = made.iter().filter_map(|line| number_of(line)).collect();
        let by_anna = made[..anna_made].iter().filter(|line| number_of(line).is_some()).count();
        numbers.sort_unstable();
        if numbers != (1..=LAST).collect::<Vec<_>>() {
            return Err(io::Error::other(format!(
                "numbers made: {numbers:?}, not 1 to {LAST} once"
            )));
        }
        if by_anna == 0 || by_anna == LAST {
            return Err(io::Error::other("only one of the two ever had the lock"));
        }
        println!("   each number from 1 to {LAST} was made once: no update was lost");
        Ok(())
    }

    /// A holder is killed; the waiter gets the lock, and learns that the value may be old.
    fn door(&self) -> io::Result<()> {
        say("anna takes the lock \"door\" and keeps it; ben asks for it and waits");
        let mut anna = self.start("door", "anna", &[])?;
        anna.until("wrote")?;
        let mut ben = self.start("door", "ben", &[])?;
        ben.until("asks")?;
        anna.until("is told")?;
        say("who holds and who waits, as dlm_tool shows it");
        self.tool(&["ls"], &["demo"])?;
        let (holder, waiter) = (anna.child.id().to_string(), ben.child.id().to_string());
        self.tool(&["lock", "demo", "door"], &[&holder, &waiter])?;
        say("anna is killed (kill -9): she can give nothing back");
        anna.child.kill()?;
        anna.child.wait()?;
        let seen = ben.until("has the door")?;
        let line = seen.last().map(String::as_str).unwrap_or_default();
        if !line.contains("last used by anna") || !line.contains("NOT VALID") {
            return Err(io::Error::other("ben was not told that the value's writer had died"));
        }
        println!(
            "   the lock went to ben, with the last value stored and a warning that it may be old"
        );
        ben.until("wrote")?;
        ben.hang_up();
        ben.until("gives the door back")?;
        ben.end()
    }

    fn start(&self, program: &str, name: &str, words: &[&str]) -> io::Result<Party> {
        let mut child = Command::new(self.dir.join(program))
            .arg(name)
            .args(words)
            .env("DLM_SOCKET", &self.socket)
            .env("LD_LIBRARY_PATH", self.places.libraries())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let output = child.stdout.take().ok_or_else(|| io::Error::other("no output"))?;
        let (sender, lines) = channel();
        let who = name.to_string();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                println!("   {who}: {line}");
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Ok(Party { name: name.into(), child, lines })
    }

    /// Shows what dlm_tool says; every one of `words` must be in it.
    fn tool(&self, args: &[&str], words: &[&str]) -> io::Result<()> {
        println!("   $ dlm_tool {}", args.join(" "));
        let output = Command::new(self.places.release().join("dlm_tool"))
            .args(args)
            .env("DLM_SOCKET", &self.socket)
            .stdin(Stdio::null())
            .output()?;
        let text = String::from_utf8_lossy(&output.stdout);
        for line in text.lines() {
            println!("   {line}");
        }
        let missing = words.iter().find(|word| !text.contains(**word));
        if let (true, None) = (output.status.success(), missing) {
            return Ok(());
        }
        let errors = String::from_utf8_lossy(&output.stderr);
        let why = format!(
            "dlm_tool {}: {}, {missing:?} missing. {errors}",
            args.join(" "),
            output.status
        );
        Err(io::Error::other(why))
    }
}

/// The number in `makes it N`.
fn number_of(line: &str) -> Option<usize> {
    line.strip_prefix("makes it ")?.parse().ok()
}

/// A running program whose lines we read.
struct Party {
    name: String,
    child: Child,
    lines: Receiver<String>,
}

impl Party {
    /// Reads lines up to the first that contains `words`, and returns them all.
    fn until(&mut self, words: &str) -> io::Result<Vec<String>> {
        let mut seen = Vec::new();
        loop {
            let Ok(line) = self.lines.recv_timeout(GUARD) else {
                return Err(io::Error::other(format!("{} never said {words:?}", self.name)));
            };
            let found = line.contains(words);
            seen.push(line);
            if found {
                return Ok(seen);
            }
        }
    }

    /// Ends its standard input.
    fn hang_up(&mut self) {
        self.child.stdin = None;
    }

    /// Waits until it has ended, well.
    fn end(&mut self) -> io::Result<()> {
        let status = self.child.wait()?;
        if status.success() {
            return Ok(());
        }
        Err(io::Error::other(format!("{} ended with {status}", self.name)))
    }
}

impl Drop for Party {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            // Only after something went wrong; what matters is that it is not left behind.
            let _ = leftover::signal("KILL", self.child.id());
            let _ = self.child.wait();
        }
    }
}
