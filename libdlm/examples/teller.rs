//! A client that does what its standard input says, a line at a time, and tells on standard output:
//! for tests that need clients of their own processes, and for trying things out.
//!
//! `teller SOCKET LOCKSPACE` creates the lockspace if need be and says `open`. Then
//!
//! | line | answer |
//! |---|---|
//! | `lock NAME` | `granted NAME` once it has it in EX, or why not |
//! | `try NAME` | `granted NAME`, `busy NAME`, or why not |
//! | `open` | opens the lockspace anew: `open`, or why not |
//! | `close` | `closed` |
//!
//! When the handle is lost it says `lost REASON`, whatever it is doing. It ends with its input, and
//! closes nothing then but by ending.

use std::io::{BufRead, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use dlm_client::{Error, Lockspace, Mode, Opening, Wanted};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [socket, lockspace] = &arguments[..] else {
        eprintln!("usage: teller SOCKET LOCKSPACE");
        return ExitCode::from(2);
    };
    let socket = PathBuf::from(socket);
    let mut space = None;
    let mut act = |line: &str| match line.split_once(' ') {
        None if line == "open" => match open(&socket, lockspace) {
            Ok(opened) => {
                space = Some(opened);
                "open".to_owned()
            }
            Err(error) => format!("{error:?}"),
        },
        None if line == "close" => {
            if let Some(space) = space.take() {
                space.close();
            }
            "closed".to_owned()
        }
        Some((what, name)) => match &space {
            Some(space) => lock(space, what, name),
            None => "not open".to_owned(),
        },
        None => format!("what is {line}?"),
    };
    tell(&act("open"));
    for line in std::io::stdin().lock().lines() {
        let Ok(line) = line else { break };
        tell(&act(&line));
    }
    // Not even a handle is closed.
    std::process::exit(0)
}

fn open(socket: &std::path::Path, lockspace: &str) -> Result<Lockspace, Error> {
    let space = Opening::create(0o600).socket(socket).open(lockspace)?;
    space.on_loss(|reason| tell(&format!("lost {reason:?}")));
    space.spawn_dispatcher()?;
    Ok(space)
}

fn lock(space: &Lockspace, what: &str, name: &str) -> String {
    let kept = match what {
        "lock" => space.lock(name.as_bytes(), Mode::EX, &Wanted::new()).map(Some),
        _ => space.try_lock(name.as_bytes(), Mode::EX),
    };
    match kept {
        Ok(Some(guard)) => {
            guard.keep();
            format!("granted {name}")
        }
        Ok(None) => format!("busy {name}"),
        Err(error) => format!("{error:?}"),
    }
}

/// Nobody listens any more: nothing is left to do.
fn tell(line: &str) {
    if writeln!(std::io::stdout(), "{line}").is_err() {
        std::process::exit(0);
    }
}
