//! `join`, `leave` and `joinleave` (libdlm-abi.md 4.2), with the library's own calls.

use std::io;

use serde::Serialize;

use crate::context::{Context, GOOD, OLD_FAILURE, Outcome, Trouble, errno_text};
use crate::name::{JsonName, escape};

/// DLM_LSFL_FS.
const FLAG_FS: u32 = 0x4;
/// DLM_LSFL_NEWEXCL.
const FLAG_EXCLUSIVE: u32 = 0x8;

/// Creating and removing lockspaces as the C library does.
pub(crate) trait Spaces {
    /// Creates a lockspace and closes the handle; the lockspace stays.
    fn create(&mut self, name: &[u8], mode: u32, flags: u32) -> Result<(), Trouble>;
    /// Opens a lockspace and releases it by force. The inner result is the release's, which the
    /// original does not look at.
    fn remove(&mut self, name: &[u8]) -> Result<Result<(), Trouble>, Trouble>;
}

/// What to join or leave.
pub(crate) struct Join {
    /// The lockspace.
    pub(crate) name: Vec<u8>,
    /// Permission bits.
    pub(crate) mode: u32,
    /// Fail if it exists.
    pub(crate) exclusive: bool,
    /// For a cluster file system.
    pub(crate) fs: bool,
    /// As JSON.
    pub(crate) json: bool,
}

/// `join`.
pub(crate) fn run_join(cx: &mut Context<'_>, spaces: &mut dyn Spaces, join: &Join) -> Outcome {
    match join_once(cx, spaces, join) {
        Ok(Ok(())) => finish(cx, join, "joined"),
        Ok(Err(trouble)) => fail_join(cx, join, &trouble),
        Err(error) => Err(error.into()),
    }
}

/// `leave`.
pub(crate) fn run_leave(cx: &mut Context<'_>, spaces: &mut dyn Spaces, leave: &Join) -> Outcome {
    let name = escape(&leave.name);
    if !leave.json {
        writeln!(cx.out, "Leaving lockspace \"{name}\"")?;
        cx.out.flush()?;
    }
    match spaces.remove(&leave.name) {
        Ok(Err(trouble)) if leave.json => return cx.fail_truly(&trouble, true),
        Ok(Err(trouble @ Trouble::Silent(_))) => return cx.fail_silent(&trouble),
        Ok(_) => {}
        Err(trouble) if leave.json => return cx.fail_truly(&trouble, true),
        Err(trouble @ Trouble::Silent(_)) => return cx.fail_silent(&trouble),
        Err(trouble) => {
            let errno = errno(&trouble);
            writeln!(cx.err, "dlm_open_lockspace {name} error (nil) {errno}")?;
            return Ok(OLD_FAILURE);
        }
    }
    if !leave.json {
        writeln!(cx.out, "done")?;
    }
    finish(cx, leave, "left")
}

/// `joinleave`.
pub(crate) fn run_joinleave(cx: &mut Context<'_>, spaces: &mut dyn Spaces, join: &Join) -> Outcome {
    match join_once(cx, spaces, join)? {
        Ok(()) => run_leave(cx, spaces, join),
        Err(trouble) => fail_join(cx, join, &trouble),
    }
}

fn join_once(
    cx: &mut Context<'_>,
    spaces: &mut dyn Spaces,
    join: &Join,
) -> io::Result<Result<(), Trouble>> {
    let exclusive = if join.exclusive { FLAG_EXCLUSIVE } else { 0 };
    let flags = exclusive | if join.fs { FLAG_FS } else { 0 };
    if !join.json {
        let mut text = String::new();
        if flags != 0 {
            text += "flags ";
            text += if join.exclusive { "NEWEXCL " } else { "" };
            text += if join.fs { "FS " } else { "" };
        }
        let (name, mode) = (escape(&join.name), join.mode);
        writeln!(cx.out, "Joining lockspace \"{name}\" permission {mode:o} {text}")?;
        cx.out.flush()?;
    }
    let result = spaces.create(&join.name, join.mode, flags);
    if result.is_ok() && !join.json {
        writeln!(cx.out, "done")?;
    }
    Ok(result)
}

fn fail_join(cx: &mut Context<'_>, join: &Join, trouble: &Trouble) -> Outcome {
    match trouble {
        _ if join.json => cx.fail_truly(trouble, true),
        Trouble::Silent(_) => cx.fail_silent(trouble),
        _ => {
            let (name, errno) = (escape(&join.name), errno(trouble));
            writeln!(cx.err, "dlm_new_lockspace {name} error {errno}")?;
            Ok(OLD_FAILURE)
        }
    }
}

/// The errno that the C library gives a program in this situation (semantics.md D18).
fn errno(trouble: &Trouble) -> i32 {
    match trouble {
        Trouble::Absent(_) => libc::ENOTCONN,
        Trouble::Silent(_) | Trouble::Unknown(_) => libc::ENOTRECOVERABLE,
        Trouble::Refused { errno, .. } => *errno,
    }
}

/// A refusal of the library, with a sentence for people.
pub(crate) fn refusal(call: &str, name: &[u8], errno: i32) -> Trouble {
    let message = format!("{call} lockspace \"{}\": {}", escape(name), errno_text(errno));
    Trouble::Refused { errno, message }
}

fn finish(cx: &mut Context<'_>, join: &Join, result: &'static str) -> Outcome {
    if join.json {
        cx.json(&Joined { state: "ok", result, name: JsonName::new(&join.name) })?;
    }
    Ok(GOOD)
}

#[derive(Serialize)]
struct Joined {
    state: &'static str,
    result: &'static str,
    #[serde(flatten)]
    name: JsonName,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::{NO, SILENT};
    use crate::fixture::{self, Ran, Script};

    /// Remembers the calls; fails as told.
    #[derive(Default)]
    struct Fake {
        calls: Vec<String>,
        create: Option<Trouble>,
        open: Option<Trouble>,
        release: Option<Trouble>,
    }

    impl Spaces for Fake {
        fn create(&mut self, name: &[u8], mode: u32, flags: u32) -> Result<(), Trouble> {
            self.calls.push(format!("create {} {mode:o} {flags:x}", escape(name)));
            self.create.clone().map_or(Ok(()), Err)
        }

        fn remove(&mut self, name: &[u8]) -> Result<Result<(), Trouble>, Trouble> {
            self.calls.push(format!("remove {}", escape(name)));
            let release = self.release.clone().map_or(Ok(()), Err);
            self.open.clone().map_or(Ok(release), Err)
        }
    }

    type Command = fn(&mut Context<'_>, &mut dyn Spaces, &Join) -> Outcome;

    fn call(fake: &mut Fake, command: Command, join: &Join) -> Ran {
        fixture::run(&mut Script::new([]), |cx| command(cx, fake, join))
    }

    fn plain() -> Join {
        Join { name: b"demo2".to_vec(), mode: 0o600, exclusive: false, fs: false, json: false }
    }

    #[test]
    fn texts_are_the_recorded_ones() {
        let mut fake = Fake::default();
        let both = call(&mut fake, run_joinleave, &plain());
        assert_eq!(both.out, include_str!("../tests/data/joinleave.txt"));
        assert_eq!((both.err.as_str(), both.code), ("", GOOD));
        assert_eq!(fake.calls, ["create demo2 600 0", "remove demo2"]);
        let join = call(&mut fake, run_join, &plain()).out;
        let leave = call(&mut fake, run_leave, &plain()).out;
        assert_eq!(join + &leave, both.out);
    }

    #[test]
    fn flags_are_named_and_passed() {
        let mut fake = Fake::default();
        let join = Join { exclusive: true, fs: true, mode: 0o644, ..plain() };
        let out = call(&mut fake, run_join, &join).out;
        assert_eq!(out, "Joining lockspace \"demo2\" permission 644 flags NEWEXCL FS \ndone\n");
        assert_eq!(fake.calls, ["create demo2 644 c"]);
    }

    #[test]
    fn failures_have_the_originals_words_and_code() {
        let exists = refusal("create", b"demo2", libc::EEXIST);
        let mut fake = Fake { create: Some(exists), ..Fake::default() };
        for command in [run_join as Command, run_joinleave] {
            let ran = call(&mut fake, command, &plain());
            assert_eq!(ran.out, "Joining lockspace \"demo2\" permission 600 \n");
            assert_eq!((ran.err.as_str(), ran.code), ("dlm_new_lockspace demo2 error 17\n", 255));
        }
        let absent = || Some(Trouble::Absent("no daemon".to_owned()));
        let mut fake = Fake { create: absent(), open: absent(), ..Fake::default() };
        let ran = call(&mut fake, run_join, &plain());
        assert_eq!((ran.err.as_str(), ran.code), ("dlm_new_lockspace demo2 error 107\n", 255));
        let ran = call(&mut fake, run_leave, &plain());
        assert_eq!(ran.out, "Leaving lockspace \"demo2\"\n");
        assert_eq!(
            (ran.err.as_str(), ran.code),
            ("dlm_open_lockspace demo2 error (nil) 107\n", 255)
        );
    }

    #[test]
    fn leave_says_done_even_if_the_release_is_refused() {
        let busy = refusal("release", b"demo2", libc::EBUSY);
        let mut fake = Fake { release: Some(busy), ..Fake::default() };
        let ran = call(&mut fake, run_leave, &plain());
        assert_eq!((ran.out.as_str(), ran.code), ("Leaving lockspace \"demo2\"\ndone\n", GOOD));
        let ran = call(&mut fake, run_leave, &Join { json: true, ..plain() });
        assert_eq!((ran.json()["state"].as_str(), ran.code), (Some("refused"), NO));
    }

    #[test]
    fn a_silent_daemon_is_said_in_every_form() {
        let silent = || Some(Trouble::Silent("no answer".to_owned()));
        let mut fake = Fake { create: silent(), open: silent(), ..Fake::default() };
        for command in [run_join as Command, run_leave, run_joinleave] {
            let ran = call(&mut fake, command, &plain());
            assert_eq!((ran.err.as_str(), ran.code), ("dlm_tool: no answer\n", SILENT));
        }
    }

    #[test]
    fn json_is_one_document() {
        let json = || Join { json: true, ..plain() };
        let mut fake = Fake::default();
        for (command, result) in
            [(run_join as Command, "joined"), (run_leave, "left"), (run_joinleave, "left")]
        {
            let ran = call(&mut fake, command, &json());
            assert_eq!((ran.json()["result"].as_str(), ran.code), (Some(result), GOOD));
            assert_eq!(ran.json()["name"], "demo2");
        }
        let absent = Some(Trouble::Absent("no daemon".to_owned()));
        let ran = call(&mut Fake { create: absent, ..Fake::default() }, run_join, &json());
        assert_eq!((ran.json()["state"].as_str(), ran.code), (Some("daemon-absent"), SILENT));
    }
}
