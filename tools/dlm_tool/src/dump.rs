//! `dump`: the daemon's own log, as far back as it remembers (libdlm-abi.md 4.5).

use dlm_ipc::control::{ControlReply, ControlRequest, LogPage};
use serde::Serialize;

use crate::context::{Context, Fail, GOOD, Outcome, Trouble};
use crate::name::printable;

/// Prints the log: lines, then an empty one.
pub(crate) fn run(cx: &mut Context<'_>, json: bool) -> Outcome {
    let mut lines = Vec::new();
    let result = each_page(cx, |cx, page| {
        if json {
            lines
                .extend((page.first..).zip(page.lines).map(|(number, text)| Line { number, text }));
        } else {
            for line in &page.lines {
                writeln!(cx.out, "{}", printable(line))?;
            }
        }
        Ok(())
    });
    match result {
        Ok(()) if json => cx.json(&Log { state: "ok", lines })?,
        Ok(()) => writeln!(cx.out)?,
        Err(Fail::Daemon(trouble)) if json => return cx.fail_truly(&trouble, true),
        Err(Fail::Daemon(trouble @ Trouble::Silent(_))) => return cx.fail_silent(&trouble),
        Err(Fail::Daemon(trouble)) => {
            if let Trouble::Refused { .. } = trouble {
                cx.say(&trouble)?;
            }
            writeln!(cx.out)?;
        }
        Err(fail) => return Err(fail),
    }
    Ok(GOOD)
}

/// Hands each page of the log to `each`. Lines written meanwhile are shown if they come before
/// the end that the first answer did not yet know; a log that grows faster than it is read ends
/// anyway, since the ring has an end.
fn each_page(
    cx: &mut Context<'_>,
    mut each: impl FnMut(&mut Context<'_>, LogPage) -> Result<(), Fail>,
) -> Result<(), Fail> {
    let mut from = 0;
    loop {
        let page = cx.ask(&ControlRequest::Log { from }, |reply| match reply {
            ControlReply::Log(page) => Some(page),
            _ => None,
        })?;
        let next = page.next.filter(|next| *next > from);
        each(cx, page)?;
        match next {
            Some(next) => from = next,
            None => return Ok(()),
        }
    }
}

#[derive(Serialize)]
struct Log {
    state: &'static str,
    lines: Vec<Line>,
}

#[derive(Serialize)]
struct Line {
    number: u64,
    text: String,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::{NO, SILENT};
    use crate::fixture::{self, Script, refused};

    fn pages() -> Script {
        let page = |first, lines: &[&str], next| {
            let lines = lines.iter().map(|line| (*line).to_owned()).collect();
            Ok(ControlReply::Log(LogPage { first, lines, next }))
        };
        Script::new([
            page(40, &["12 dlmd 0.1.0 started", "13 web create"], Some(42)),
            page(42, &["14 web odd\u{1b}[2J name \"x\""], None),
        ])
    }

    #[test]
    fn lines_and_an_empty_line() {
        let ran = fixture::run(&mut pages(), |cx| run(cx, false));
        let expected = "12 dlmd 0.1.0 started\n13 web create\n14 web odd\\x1b[2J name \"x\"\n\n";
        assert_eq!((ran.out.as_str(), ran.err.as_str(), ran.code), (expected, "", GOOD));
    }

    #[test]
    fn without_a_daemon_one_empty_line() {
        let ran = fixture::run(&mut Script::absent(), |cx| run(cx, false));
        assert_eq!((ran.out.as_str(), ran.err.as_str(), ran.code), ("\n", "", GOOD));
        let ran = fixture::run(&mut Script::silent(), |cx| run(cx, false));
        assert_eq!((ran.out.as_str(), ran.code), ("", SILENT));
        let ran = fixture::run(&mut Script::new([refused(libc::EPERM)]), |cx| run(cx, false));
        assert_eq!((ran.out.as_str(), ran.code), ("\n", GOOD));
        assert!(ran.err.contains("refused"));
    }

    #[test]
    fn json_numbers_the_lines() {
        let json = fixture::run(&mut pages(), |cx| run(cx, true)).json();
        assert_eq!(json["state"], "ok");
        assert_eq!(json["lines"][2]["number"], 42);
        assert_eq!(json["lines"][2]["text"], "14 web odd\u{1b}[2J name \"x\"");
        let ran = fixture::run(&mut Script::new([refused(libc::EPERM)]), |cx| run(cx, true));
        assert_eq!((ran.json()["state"].as_str(), ran.code), (Some("refused"), NO));
    }
}
