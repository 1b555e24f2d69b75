//! Commands of the original that have nothing to act on here (libdlm-abi.md 4.1, 4.6).
//!
//! They print what the original prints when there is nothing, end with its code, and say on
//! standard error why, so that a script goes on and a person learns.

use dlm_ipc::control::ControlRequest;

use crate::context::{Code, Context, GOOD, NO, OLD_FAILURE, Outcome, Trouble};

/// Such a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NoMeaning {
    /// Its name.
    pub(crate) command: &'static str,
    /// What it prints.
    text: &'static str,
    code: Code,
    why: &'static str,
}

const RUN: &str = "dlmd runs no commands on other nodes";
const PLOCKS: &str = "dlmd keeps no POSIX locks";
const DEADLOCK: &str =
    "dlmd finds conversion deadlocks by itself; dlm_tool lock shows who waits for whom";
const UUID: &str = "run_uuid: \n";
const STATUS: &str = "check_status: \n";

/// All of them.
pub(crate) const ALL: [NoMeaning; 8] = [
    NoMeaning { command: "run", text: "run_uuid: \ncheck_status: \n", code: OLD_FAILURE, why: RUN },
    NoMeaning { command: "run_start", text: UUID, code: OLD_FAILURE, why: RUN },
    NoMeaning { command: "run_check", text: STATUS, code: OLD_FAILURE, why: RUN },
    NoMeaning { command: "run_cancel", text: STATUS, code: OLD_FAILURE, why: RUN },
    NoMeaning { command: "run_list", text: "\n", code: GOOD, why: RUN },
    NoMeaning { command: "plocks", text: "", code: GOOD, why: PLOCKS },
    NoMeaning { command: "log_plock", text: "\n", code: GOOD, why: PLOCKS },
    NoMeaning { command: "deadlock_check", text: "", code: GOOD, why: DEADLOCK },
];

/// Says so. With `--json` the code is that of "no".
pub(crate) fn run(cx: &mut Context<'_>, what: NoMeaning, json: bool) -> Outcome {
    if json {
        let message = format!("{} has no meaning here: {}", what.command, what.why);
        return cx.fail_truly(&Trouble::Refused { errno: libc::EOPNOTSUPP, message }, true);
    }
    cx.out.write_all(what.text.as_bytes())?;
    cx.say(format_args!("{} has no meaning here: {}", what.command, what.why))?;
    Ok(what.code)
}

/// `fence_ack NODE`: an administrator's word that a node is dead. Silent and good like the
/// original, but a refusal is said.
pub(crate) fn run_fence_ack(cx: &mut Context<'_>, node: &str, json: bool) -> Outcome {
    // The original reads a number as far as it goes.
    let digits = node.split(|c: char| !c.is_ascii_digit()).next().unwrap_or_default();
    let result = match digits.parse() {
        Ok(node) => cx.daemon.ask(&ControlRequest::FenceAck { node }),
        Err(_) => {
            let message = format!("fence_ack {node}: a node is named by its number");
            Err(Trouble::Refused { errno: libc::EINVAL, message })
        }
    };
    match result {
        Ok(_) if json => {
            writeln!(cx.out, "{{ \"state\": \"ok\" }}")?;
            Ok(GOOD)
        }
        Ok(_) => Ok(GOOD),
        Err(trouble) if json => cx.fail_truly(&trouble, true),
        Err(trouble @ Trouble::Silent(_)) => cx.fail_silent(&trouble),
        Err(Trouble::Absent(_)) => Ok(GOOD),
        Err(trouble) => {
            cx.say(&trouble)?;
            Ok(GOOD)
        }
    }
}

const _: () = assert!(NO == 1 && OLD_FAILURE == 255);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::SILENT;
    use crate::fixture::{self, Script, refused};
    use dlm_ipc::control::ControlReply;

    #[test]
    fn each_prints_what_the_original_prints_and_says_why() {
        let table = [
            ("run", "run_uuid: \ncheck_status: \n", 255),
            ("run_start", "run_uuid: \n", 255),
            ("run_check", "check_status: \n", 255),
            ("run_cancel", "check_status: \n", 255),
            ("run_list", "\n", 0),
            ("plocks", "", 0),
            ("log_plock", "\n", 0),
            ("deadlock_check", "", 0),
        ];
        for ((command, text, code), what) in table.into_iter().zip(ALL) {
            let ran = fixture::run(&mut Script::new([]), |cx| run(cx, what, false));
            assert_eq!((what.command, ran.out.as_str(), ran.code), (command, text, code));
            assert!(ran.err.starts_with(&format!("dlm_tool: {command} has no meaning here: ")));
            let ran = fixture::run(&mut Script::new([]), |cx| run(cx, what, true));
            assert_eq!((ran.json()["state"].as_str(), ran.code), (Some("refused"), NO));
        }
    }

    #[test]
    fn fence_ack_is_silent_unless_refused() {
        let ack = |script: &mut Script, node, json| {
            fixture::run(script, |cx| run_fence_ack(cx, node, json))
        };
        let mut script = Script::new([Ok(ControlReply::Done)]);
        let ran = ack(&mut script, "3x", false);
        assert_eq!((ran.out.as_str(), ran.err.as_str(), ran.code), ("", "", GOOD));
        assert_eq!(script.asked, [ControlRequest::FenceAck { node: 3 }]);
        let ran = ack(&mut Script::absent(), "3", false);
        assert_eq!((ran.out.as_str(), ran.err.as_str(), ran.code), ("", "", GOOD));
        let ran = ack(&mut Script::new([refused(libc::EOPNOTSUPP)]), "3", false);
        assert_eq!((ran.err.as_str(), ran.code), ("dlm_tool: refused with 95\n", GOOD));
        assert_eq!(ack(&mut Script::silent(), "3", false).code, SILENT);
        let ran = ack(&mut Script::new([]), "web", false);
        assert!(ran.err.contains("by its number"));
        let ran = ack(&mut Script::new([refused(libc::EOPNOTSUPP)]), "3", true);
        assert_eq!((ran.json()["state"].as_str(), ran.code), (Some("refused"), NO));
        let ran = ack(&mut Script::new([Ok(ControlReply::Done)]), "3", true);
        assert_eq!((ran.json()["state"].as_str(), ran.code), (Some("ok"), GOOD));
    }
}
