//! `shutdown [--force]`: ends the daemon, unless lockspaces are in use.

use dlm_ipc::control::ControlRequest;

use crate::context::{Context, GOOD, Outcome};

/// Asks the daemon to end. Its refusal says who still uses it.
pub(crate) fn run(cx: &mut Context<'_>, force: bool, json: bool) -> Outcome {
    match cx.daemon.ask(&ControlRequest::Shutdown { force }) {
        Ok(_) if json => writeln!(cx.out, "{{ \"state\": \"ok\" }}")?,
        Ok(_) => writeln!(cx.out, "dlmd ends")?,
        Err(trouble) => return cx.fail_truly(&trouble, json),
    }
    Ok(GOOD)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::NO;
    use crate::fixture::{self, Script, refused};
    use dlm_ipc::control::ControlReply;

    #[test]
    fn it_ends_or_says_why_not() {
        let mut script = Script::new([Ok(ControlReply::Done)]);
        let ran = fixture::run(&mut script, |cx| run(cx, true, false));
        assert_eq!((ran.out.as_str(), ran.code), ("dlmd ends\n", GOOD));
        assert_eq!(script.asked, [ControlRequest::Shutdown { force: true }]);
        let ran =
            fixture::run(&mut Script::new([refused(libc::EBUSY)]), |cx| run(cx, false, false));
        assert_eq!((ran.err.as_str(), ran.code), ("dlm_tool: refused with 16\n", NO));
        let ran = fixture::run(&mut Script::new([refused(libc::EBUSY)]), |cx| run(cx, false, true));
        assert_eq!((ran.json()["state"].as_str(), ran.code), (Some("refused"), NO));
    }
}
