//! `keygen [FILE]` and `feed NODE=SOCKET...`: what a cluster's supervisor needs.
//!
//! `feed` is the authority of a cluster with `membership = external` (membership.md). What becomes of
//! nodes it is told on standard input, a line each, by whoever starts and reaps them; every line is
//! answered by one, and the end of the input ends it.

use std::io::{self, BufRead, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use dlm_net::membership::feed::{Feed, Service};
use dlm_net::secure::key::keygen;

use crate::context::{GOOD, NO, Outcome};

/// Longest wait of `settle` and `members` where none is given.
const WAIT_MS: u64 = 30_000;

/// Makes the cluster's key.
pub(crate) fn run_keygen(out: &mut dyn Write, err: &mut dyn Write, file: &Path) -> Outcome {
    match keygen(file) {
        Ok(()) => {
            writeln!(
                out,
                "{}: copy it to all nodes, readable by the daemon alone",
                file.display()
            )?;
            Ok(GOOD)
        }
        Err(error) => {
            writeln!(err, "dlm_tool: {error}")?;
            Ok(NO)
        }
    }
}

/// A node and its daemon's socket, as `NODE=SOCKET`.
pub(crate) fn place(text: &str) -> Result<(u32, PathBuf), String> {
    let (node, path) = text.split_once('=').ok_or("NODE=SOCKET, as in 1=/run/dlm/dlmd.sock")?;
    let node = node.parse().map_err(|_| format!("{node} is no node number"))?;
    Ok((node, path.into()))
}

/// Feeds until the input ends.
pub(crate) fn run_feed(
    out: &mut dyn Write,
    input: &mut dyn BufRead,
    nodes: Vec<(u32, PathBuf)>,
) -> Outcome {
    let service = Service::start(Feed::new(nodes))?;
    let mut line = String::new();
    while input.read_line(&mut line)? > 0 {
        let words: Vec<&str> = line.split_whitespace().collect();
        obey(&service, &words, out)?;
        out.flush()?;
        line.clear();
    }
    Ok(GOOD)
}

fn obey(service: &Service, words: &[&str], out: &mut dyn Write) -> io::Result<()> {
    let node = words.get(1).and_then(|word| word.parse().ok());
    match (words.first().copied(), node) {
        (Some("gone"), Some(node)) => service.with(|feed| feed.gone(node)),
        (Some("exclude"), Some(node)) => service.with(|feed| feed.exclude(node)),
        (Some("settle"), limit) => {
            let settled = || service.with(|feed| feed.is_settled());
            return match wait(limit.unwrap_or(WAIT_MS as u32), settled) {
                true => writeln!(out, "settled"),
                false => writeln!(out, "not settled"),
            };
        }
        (Some("members"), _) if words.len() == 2 => {
            let members = service.with(|feed| {
                let view = feed.view(words[1].as_bytes());
                let members = view.map_or(&[][..], |view| &view.members);
                members.iter().map(|member| member.node.0.to_string()).collect::<Vec<_>>()
            });
            return writeln!(out, "members {}", members.join(" "));
        }
        _ => {
            return writeln!(
                out,
                "unknown: use gone NODE, exclude NODE, settle [MS] or members LOCKSPACE"
            );
        }
    }
    writeln!(out, "done")
}

fn wait(limit_ms: u32, so: impl Fn() -> bool) -> bool {
    let begin = Instant::now();
    loop {
        if so() {
            return true;
        }
        if begin.elapsed() >= Duration::from_millis(limit_ms.into()) {
            return false;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_have_a_number_and_a_path() {
        assert_eq!(place("2=/a=b"), Ok((2, "/a=b".into())));
        assert!(place("/a").is_err() && place("x=/a").is_err());
    }

    #[test]
    fn every_line_is_answered() {
        let mut input = &b"members web\ngone 1\nexclude 2\nsettle 1\nsing\n"[..];
        let mut out = Vec::new();
        let nodes = vec![(1, "/nonexistent/1".into()), (2, "/nonexistent/2".into())];
        assert!(matches!(run_feed(&mut out, &mut input, nodes), Ok(GOOD)));
        let text = String::from_utf8(out).expect("text");
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[..4], ["members ", "done", "done", "not settled"]);
        assert!(lines[4].starts_with("unknown: use gone NODE"));
    }

    #[test]
    fn a_key_is_made_once() {
        let dir = dlm_net::testing::TempDir::new("keygen");
        let file = dir.path().join("authkey");
        let make = || {
            let (mut out, mut err) = (Vec::new(), Vec::new());
            let code = run_keygen(&mut out, &mut err, &file).expect("written");
            (code, String::from_utf8(err).expect("text"))
        };
        assert_eq!(make(), (GOOD, String::new()));
        let (code, why) = make();
        assert_eq!(code, NO);
        assert!(why.starts_with("dlm_tool: "), "{why}");
    }
}
