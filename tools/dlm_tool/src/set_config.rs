//! `reload_config` and `set_config KEY=VALUE…` (libdlm-abi.md 4.6).
//!
//! The original sends and forgets, so its `done` says nothing about success. The plain forms keep
//! that word and code, with the daemon's refusal on standard error; with `--json` the code is true.

use dlm_ipc::control::ControlRequest;
use serde::Serialize;
use std::fmt;

use crate::context::{Context, GOOD, NO, Outcome, Trouble};

/// Reads the configuration file again.
pub(crate) fn run_reload(cx: &mut Context<'_>, json: bool) -> Outcome {
    let result = cx.daemon.ask(&ControlRequest::ReloadConfig).map(|_| Vec::new());
    finish(cx, "reload_config", result, json)
}

/// Changes keys at run time. `words` are the words of the command line: `key=value`, `key=restore`,
/// `restore_all`, several in one word or not.
pub(crate) fn run_set(cx: &mut Context<'_>, words: &str, json: bool) -> Outcome {
    let result = set_all(cx, words);
    finish(cx, "set_config", result, json)
}

/// Sends every pair, also behind a refused one, and returns the refusals. A word without value goes
/// too: `restore_all` is one, and for others the daemon knows what to say.
fn set_all(cx: &mut Context<'_>, words: &str) -> Result<Vec<Refusal>, Trouble> {
    let mut refusals = Vec::new();
    let words: Vec<&str> = words.split_ascii_whitespace().collect();
    for word in if words.is_empty() { vec![""] } else { words } {
        let (key, value) = word.split_once('=').unwrap_or((word, ""));
        set(cx, key, value, &mut refusals)?;
    }
    Ok(refusals)
}

fn set(
    cx: &mut Context<'_>,
    key: &str,
    value: &str,
    refusals: &mut Vec<Refusal>,
) -> Result<(), Trouble> {
    let request = ControlRequest::SetConfig { key: key.to_owned(), value: value.to_owned() };
    match cx.daemon.ask(&request) {
        Ok(_) => Ok(()),
        Err(Trouble::Refused { message, .. }) => {
            refusals.push(Refusal { key: key.to_owned(), error: message });
            Ok(())
        }
        Err(trouble) => Err(trouble),
    }
}

fn finish(
    cx: &mut Context<'_>,
    command: &str,
    result: Result<Vec<Refusal>, Trouble>,
    json: bool,
) -> Outcome {
    let refusals = match result {
        Ok(refusals) => refusals,
        Err(trouble) if json => return cx.fail_truly(&trouble, true),
        Err(trouble @ (Trouble::Silent(_) | Trouble::Unknown(_))) => {
            return cx.fail_silent(&trouble);
        }
        Err(Trouble::Absent(_)) => {
            writeln!(cx.out, "{command} failed")?;
            return Ok(GOOD);
        }
        Err(trouble @ Trouble::Refused { .. }) => {
            cx.say(&trouble)?;
            writeln!(cx.out, "{command} done")?;
            return Ok(GOOD);
        }
    };
    for refusal in &refusals {
        cx.say(refusal)?;
    }
    if json {
        let state = if refusals.is_empty() { "ok" } else { "refused" };
        let code = if refusals.is_empty() { GOOD } else { NO };
        cx.json(&Changed { state, refusals })?;
        return Ok(code);
    }
    writeln!(cx.out, "{command} done")?;
    Ok(GOOD)
}

#[derive(Serialize)]
struct Changed {
    state: &'static str,
    refusals: Vec<Refusal>,
}

#[derive(Debug, Serialize)]
struct Refusal {
    key: String,
    error: String,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.key, self.error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::SILENT;
    use crate::fixture::{self, Script, refused};
    use dlm_ipc::control::ControlReply;

    fn done() -> Result<ControlReply, Trouble> {
        Ok(ControlReply::Done)
    }

    fn asked(key: &str, value: &str) -> ControlRequest {
        ControlRequest::SetConfig { key: key.to_owned(), value: value.to_owned() }
    }

    #[test]
    fn every_pair_is_sent_and_done_is_said() {
        let mut script = Script::new([done(), done(), done(), done()]);
        let words = "a=1 b=x=y c=restore restore_all";
        let ran = fixture::run(&mut script, |cx| run_set(cx, words, false));
        assert_eq!((ran.out.as_str(), ran.err.as_str(), ran.code), ("set_config done\n", "", GOOD));
        let pairs = [("a", "1"), ("b", "x=y"), ("c", "restore"), ("restore_all", "")];
        assert_eq!(script.asked, pairs.map(|(key, value)| asked(key, value)));
    }

    #[test]
    fn a_refusal_is_done_in_the_plain_form_and_told_beside_it() {
        let mut script = Script::new([refused(libc::EINVAL), done(), refused(libc::EINVAL)]);
        let ran = fixture::run(&mut script, |cx| run_set(cx, "bad=1 good=2 word", false));
        assert_eq!((ran.out.as_str(), ran.code), ("set_config done\n", GOOD));
        assert!(ran.err.contains("bad: refused with 22"), "{}", ran.err);
        assert!(ran.err.contains("word: refused with 22"), "{}", ran.err);
        assert_eq!(script.asked.len(), 3);
        let mut script = Script::new([refused(libc::EINVAL)]);
        let ran = fixture::run(&mut script, |cx| run_reload(cx, false));
        assert_eq!((ran.out.as_str(), ran.code), ("reload_config done\n", GOOD));
        assert!(ran.err.contains("refused"));
    }

    #[test]
    fn without_a_daemon_failed_is_said() {
        let ran = fixture::run(&mut Script::absent(), |cx| run_reload(cx, false));
        assert_eq!(
            (ran.out.as_str(), ran.err.as_str(), ran.code),
            ("reload_config failed\n", "", GOOD)
        );
        let ran = fixture::run(&mut Script::absent(), |cx| run_set(cx, "a=b", false));
        assert_eq!((ran.out.as_str(), ran.code), ("set_config failed\n", GOOD));
        assert_eq!(
            fixture::run(&mut Script::silent(), |cx| run_set(cx, "a=b", false)).code,
            SILENT
        );
    }

    #[test]
    fn json_tells_the_truth() {
        let ran = fixture::run(&mut Script::new([done()]), |cx| run_reload(cx, true));
        assert_eq!((ran.json()["state"].as_str(), ran.code), (Some("ok"), GOOD));
        let mut script = Script::new([refused(libc::EINVAL)]);
        let ran = fixture::run(&mut script, |cx| run_set(cx, "a=b", true));
        assert_eq!((ran.json()["state"].as_str(), ran.code), (Some("refused"), NO));
        assert_eq!(ran.json()["refusals"][0]["key"], "a");
        let ran = fixture::run(&mut Script::absent(), |cx| run_set(cx, "a=b", true));
        assert_eq!((ran.json()["state"].as_str(), ran.code), (Some("daemon-absent"), SILENT));
    }
}
