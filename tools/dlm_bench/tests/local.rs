//! The program as its user meets it: units without a daemon, JSON, exit codes. No figure is judged
//! here beyond being a positive finite number: how fast this machine is today is no matter of
//! correctness.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

fn bench(arguments: &[&str]) -> Output {
    let program = env!("CARGO_BIN_EXE_dlm_bench");
    Command::new(program).args(arguments).output().expect("the program was built for this test")
}

/// The figures of a `--json` run, after checking that every line is an object with all fields.
fn figures(output: &Output) -> Vec<Value> {
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    let figures: Vec<Value> =
        text.lines().map(|line| serde_json::from_str(line).expect(line)).collect();
    for figure in &figures {
        for key in
            ["figure", "what", "value", "scale", "ratios", "must", "target", "moonshot", "note"]
        {
            assert!(figure.get(key).is_some(), "{key} in {figure}");
        }
    }
    figures
}

fn assert_units(names: &[&str]) {
    let output = bench(&["local", "--quick", "--json", "--only", &names.join(",")]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let figures = figures(&output);
    let seen: Vec<_> = figures.iter().map(|figure| figure["figure"].as_str().unwrap()).collect();
    assert_eq!(seen, names);
    for figure in &figures {
        let value = figure["value"].as_f64().expect("a number");
        assert!(value.is_finite() && value > 0.0, "{figure}");
    }
}

#[test]
fn units_of_messages_are_positive_numbers() {
    assert_units(&["U1", "U2", "U3", "U4", "U7", "U7s"]);
}

#[test]
fn units_of_processes_and_memory_are_positive_numbers() {
    assert_units(&["U5", "U5s", "U6", "U8", "U9"]);
}

#[test]
fn the_text_form_names_value_and_spread_and_tells_progress_apart() {
    let output = bench(&["local", "--quick", "--only", "u1"]);
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        text.starts_with("U1 ") && text.contains(" ns") && text.contains("2 readings"),
        "{text}"
    );
    assert!(String::from_utf8(output.stderr).unwrap().contains("unit U1"));
}

#[test]
fn an_unknown_figure_is_a_usage_error_that_lists_what_there_is() {
    let output = bench(&["local", "--only", "G3"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8(output.stderr).unwrap().contains("G18"));
}

#[test]
fn a_daemon_that_is_not_there_means_cannot_run_here() {
    let output = bench(&["local", "--quick", "--only", "G2", "--dlmd", "/nonexistent/dlmd"]);
    assert_eq!(output.status.code(), Some(3));
    assert!(output.stdout.is_empty());
    assert!(String::from_utf8(output.stderr).unwrap().contains("/nonexistent/dlmd"));
}

#[test]
fn a_daemon_that_does_not_start_misses_the_must() {
    let only = ["local", "--quick", "--json", "--only", "G17", "--dlmd", "/bin/false"];
    let output = bench(&only);
    assert_eq!(output.status.code(), Some(1));
    let figures = figures(&output);
    assert_eq!(figures.len(), 1);
    assert!(figures[0]["value"].is_null());
    assert_eq!(figures[0]["must"]["verdict"], "missed");
    assert!(figures[0]["note"].as_str().unwrap().contains("ended at once"));
}

/// A daemon to measure, or a printed reason why there is none.
fn daemon() -> Option<PathBuf> {
    let beside = Path::new(env!("CARGO_BIN_EXE_dlm_bench")).parent().map(Path::to_owned);
    let places = std::env::var_os("DLM_BIN_DIR").map(PathBuf::from).into_iter().chain(beside);
    let found = places.map(|place| place.join("dlmd")).find(|path| path.is_file());
    if found.is_none() {
        eprintln!("skipped: dlmd is neither in $DLM_BIN_DIR nor built beside dlm_bench");
    }
    found
}

#[test]
fn goals_of_a_real_daemon_are_measured_and_judged() {
    let Some(dlmd) = daemon() else { return };
    let dlmd = dlmd.to_str().expect("a path of the build is UTF-8");
    let only = ["local", "--quick", "--json", "--only", "G17,pipeline", "--dlmd", dlmd];
    let output = bench(&only);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(matches!(output.status.code(), Some(0 | 1)), "{stderr}");
    let figures = figures(&output);
    let judged = |figure: &&Value| !figure["must"].is_null();
    let judged: Vec<_> = figures.iter().filter(judged).map(|figure| &figure["figure"]).collect();
    assert_eq!(judged, ["G17", "pipeline"], "{stderr}");
    for figure in &figures {
        let value = figure["value"].as_f64();
        assert!(value.is_some_and(|value| value.is_finite() && value >= 0.0), "{figure}");
    }
}
