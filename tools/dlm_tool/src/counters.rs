//! `counters`: numbers for monitoring, as text, JSON or in Prometheus' text format.

use std::io::{self, Write};

use dlm_ipc::control::{ControlReply, ControlRequest};

use crate::context::{Context, GOOD, Outcome};

/// How to print them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// `name value` lines.
    Text,
    /// One document.
    Json,
    /// Prometheus' exposition format.
    Prometheus,
}

/// Prints the daemon's counters.
pub(crate) fn run(cx: &mut Context<'_>, form: Form) -> Outcome {
    let answer = cx.ask(&ControlRequest::Counters, |reply| match reply {
        ControlReply::Counters(counters) => Some(counters),
        _ => None,
    });
    let counters = match answer {
        Ok(counters) => counters,
        Err(trouble) => return cx.fail_truly(&trouble, form == Form::Json),
    };
    match form {
        Form::Text => {
            for (name, value) in &counters {
                writeln!(cx.out, "{name} {value}")?;
            }
        }
        Form::Json => {
            let numbers: serde_json::Map<_, _> =
                counters.into_iter().map(|(name, value)| (name, value.into())).collect();
            cx.json(&serde_json::json!({ "state": "ok", "counters": numbers }))?;
        }
        Form::Prometheus => print_prometheus(cx.out, &counters)?,
    }
    Ok(GOOD)
}

/// The daemon does not say which of its numbers only grow, so they have no type: a wrong one would
/// make a server compute rates of levels.
fn print_prometheus(out: &mut dyn Write, counters: &[(String, u64)]) -> io::Result<()> {
    for (name, value) in counters {
        let metric: String =
            name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
        writeln!(out, "# TYPE dlm_{metric} untyped\ndlm_{metric} {value}")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::SILENT;
    use crate::fixture::{self, Ran, Script};

    fn show(form: Form) -> Ran {
        let counters = vec![("grants".to_owned(), 12), ("queue.waits-now".to_owned(), 3)];
        let mut script = Script::new([Ok(ControlReply::Counters(counters))]);
        fixture::run(&mut script, |cx| run(cx, form))
    }

    #[test]
    fn three_forms() {
        assert_eq!(show(Form::Text).out, "grants 12\nqueue.waits-now 3\n");
        let json = show(Form::Json).json();
        assert_eq!(
            (json["state"].as_str(), json["counters"]["grants"].as_u64()),
            (Some("ok"), Some(12))
        );
        assert_eq!(
            show(Form::Prometheus).out,
            "# TYPE dlm_grants untyped\ndlm_grants 12\n\
             # TYPE dlm_queue_waits_now untyped\ndlm_queue_waits_now 3\n"
        );
    }

    #[test]
    fn without_a_daemon_the_truth() {
        let ran = fixture::run(&mut Script::absent(), |cx| run(cx, Form::Prometheus));
        assert_eq!((ran.out.as_str(), ran.code), ("", SILENT));
        let ran = fixture::run(&mut Script::absent(), |cx| run(cx, Form::Json));
        assert_eq!((ran.json()["state"].as_str(), ran.code), (Some("daemon-absent"), SILENT));
    }
}
