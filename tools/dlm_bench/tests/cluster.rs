//! `dlm_bench cluster --quick` on real daemons: every figure is there, and the counts of messages are what
//! they must be on any machine. No time is judged here.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

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
fn a_quick_run_has_all_figures_and_flat_counts_of_messages() {
    let Some(dlmd) = daemon() else { return };
    let output = Command::new(env!("CARGO_BIN_EXE_dlm_bench"))
        .args(["cluster", "--quick", "--json", "--locks", "100,2000", "--dlmd"])
        .arg(dlmd)
        .output()
        .expect("the program was built for this test");
    let stderr = String::from_utf8_lossy(&output.stderr);
    let text = String::from_utf8(output.stdout).expect("JSON is UTF-8");
    let figures: Vec<Value> =
        text.lines().map(|line| serde_json::from_str(line).expect(line)).collect();
    let named = |figure: &Value| figure["figure"].as_str().unwrap_or_default().to_owned();
    for figure in &figures {
        let value = figure["value"].as_f64();
        assert!(value.is_some_and(|v| v.is_finite() && v >= 0.0), "{figure}\n{stderr}");
        let counted = named(figure).starts_with("messages/");
        assert_eq!(!figure["must"].is_null(), counted, "only counts are judged: {figure}");
        if counted {
            assert_eq!(figure["must"]["verdict"], "met", "{figure}");
        }
    }
    let seen: Vec<String> = figures.iter().map(named).collect();
    let mut wanted = vec!["G12", "G12/awaited", "G12/here", "G13/2", "G13/8", "G7/2", "G7/8"];
    wanted.extend(["G14", "G16", "G17", "G17/wake", "U2", "U4", "recovery/double"]);
    wanted.extend(["join/double", "leave/double", "recovery/100", "recovery/2k"]);
    for part in wanted {
        assert!(seen.iter().any(|id| id == part), "{part} is not among {seen:?}");
    }
    for nodes in [2, 4, 8] {
        for what in ["pair", "fresh", "grant", "wake"] {
            let id = format!("messages/{what}/{nodes}");
            assert!(seen.contains(&id), "{id} is not among {seen:?}");
        }
    }
    for change in ["unaffected/100", "unaffected/2k", "join/100", "leave/2k"] {
        for place in ["here", "elsewhere"] {
            let id = format!("{change}/{place}");
            assert!(seen.contains(&id), "{id} is not among {seen:?}");
        }
    }
    assert!(output.status.success(), "{stderr}");
}
