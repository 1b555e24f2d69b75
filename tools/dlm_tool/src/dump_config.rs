//! `dump_config`: every key, its value and where it came from (libdlm-abi.md 4.5).

use dlm_ipc::control::{ConfigRecord, ControlReply, ControlRequest};
use serde::Serialize;

use crate::context::{Context, GOOD, Outcome, Trouble};
use crate::name::printable;

/// Prints the configuration: `name=value (source)` lines, then an empty one.
pub(crate) fn run(cx: &mut Context<'_>, json: bool) -> Outcome {
    let options = match configuration(cx) {
        Ok(options) => options,
        Err(trouble) if json => return cx.fail_truly(&trouble, true),
        Err(trouble @ Trouble::Silent(_)) => return cx.fail_silent(&trouble),
        Err(trouble) => {
            if let Trouble::Refused { .. } = trouble {
                cx.say(&trouble)?;
            }
            writeln!(cx.out)?;
            return Ok(GOOD);
        }
    };
    if json {
        let options = options.iter().map(JsonOption::new).collect();
        cx.json(&Options { state: "ok", options })?;
        return Ok(GOOD);
    }
    for option in options.iter().filter(|option| !is_command_line_only(&option.key)) {
        let source = match option.source.as_str() {
            "" => String::new(),
            source => format!(" ({source})"),
        };
        writeln!(cx.out, "{}={}{source}", option.key, printable(&option.value))?;
    }
    // The original lists these two options that are none; readers of its output know them.
    writeln!(cx.out, "help=-1\nversion=-1\n")?;
    Ok(GOOD)
}

fn is_command_line_only(key: &str) -> bool {
    matches!(key, "help" | "version")
}

fn configuration(cx: &mut Context<'_>) -> Result<Vec<ConfigRecord>, Trouble> {
    cx.ask(&ControlRequest::Config, |reply| match reply {
        ControlReply::Config(options) => Some(options),
        _ => None,
    })
}

#[derive(Serialize)]
struct Options<'a> {
    state: &'static str,
    options: Vec<JsonOption<'a>>,
}

#[derive(Serialize)]
struct JsonOption<'a> {
    name: &'a str,
    value: &'a str,
    source: &'a str,
}

impl<'a> JsonOption<'a> {
    fn new(option: &'a ConfigRecord) -> Self {
        let source = if option.source.is_empty() { "default" } else { &option.source };
        Self { name: &option.key, value: &option.value, source }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::SILENT;
    use crate::fixture::{self, Script};

    fn recorded() -> Script {
        let lines = include_str!("../tests/data/dump_config.txt").lines();
        let options = lines.filter_map(|line| line.split_once('=')).map(|(key, rest)| {
            let (value, source) = rest.split_once(" (").unwrap_or((rest, ""));
            ConfigRecord {
                key: key.to_owned(),
                value: value.to_owned(),
                source: source.trim_end_matches(')').to_owned(),
            }
        });
        Script::new([Ok(ControlReply::Config(options.collect()))])
    }

    #[test]
    fn the_listing_is_the_recorded_one() {
        let ran = fixture::run(&mut recorded(), |cx| run(cx, false));
        assert_eq!(ran.out, include_str!("../tests/data/dump_config.txt"));
        assert_eq!(ran.code, GOOD);
    }

    #[test]
    fn without_a_daemon_one_empty_line() {
        let ran = fixture::run(&mut Script::absent(), |cx| run(cx, false));
        assert_eq!((ran.out.as_str(), ran.err.as_str(), ran.code), ("\n", "", GOOD));
        assert_eq!(fixture::run(&mut Script::silent(), |cx| run(cx, false)).code, SILENT);
    }

    #[test]
    fn json_names_the_source() {
        let json = fixture::run(&mut recorded(), |cx| run(cx, true)).json();
        assert_eq!(json["options"][2]["name"], "log_debug");
        assert_eq!(json["options"][2]["source"], "cli option");
        assert_eq!(json["options"][0]["source"], "default");
    }
}
