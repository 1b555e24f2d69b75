//! The manual pages name what there is.

mod common;

use std::path::{Path, PathBuf};

use common::{daemon, line, tool};

fn page(name: &str) -> String {
    let path: PathBuf = [env!("CARGO_MANIFEST_DIR"), "../dist/man", name].iter().collect();
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    text.replace("\\-", "-")
}

#[test]
fn every_command_and_option_of_the_tool_has_its_place() {
    let page = page("dlm_tool.8");
    let completions = tool(Path::new("/nonexistent"), &["completions", "fish"]).out;
    let (mut commands, mut options) = (0, 0);
    for line in completions.lines().filter(|line| line.starts_with("complete ")) {
        let words: Vec<&str> = line.split(' ').collect();
        let after = |flag: &str| {
            let place = words.iter().position(|word| *word == flag)?;
            words.get(place + 1).map(|word| word.trim_matches('"'))
        };
        // Values of an option come in quotes that hold blanks.
        if let Some(command) =
            after("-a").filter(|word| word.chars().all(|c| c.is_ascii_lowercase() || c == '_'))
        {
            assert!(page.contains(command), "{command} is not in dlm_tool(8)");
            commands += 1;
        }
        if let Some(option) = after("-l") {
            assert!(page.contains(&format!("--{option}")), "--{option} is not in dlm_tool(8)");
            options += 1;
        }
    }
    assert!(commands >= 18 && options >= 18, "{commands} commands, {options} options found");
}

#[test]
fn every_key_of_the_daemon_has_its_place() {
    let daemon = daemon();
    let page = page("dlm.conf.5");
    let json = line(daemon.socket(), "dump_config --json").json();
    let options = json["options"].as_array().expect("a list");
    assert!(options.len() > 40);
    for option in options {
        let key = option["name"].as_str().expect("a name");
        let named = page.lines().any(|line| {
            let words: Vec<&str> = line.split([' ', ',']).collect();
            words.len() > 1 && words[0].starts_with(".B") && words[1] == key
        });
        assert!(named, "{key} has no entry in dlm.conf(5)");
        let (value, source) = (option["value"].as_str(), option["source"].as_str());
        let shown = value.filter(|value| !value.is_empty() && source == Some("default"));
        // Keys without effect are listed without their defaults.
        let entry = page.lines().find(|line| line.starts_with(&format!(".BR {key} \" [")));
        if let (Some(value), Some(entry)) = (shown, entry) {
            assert!(entry.contains(&format!("[{value}]")), "default of {key}: {entry}");
        }
    }
}

#[test]
fn the_original_name_of_the_daemon_leads_to_its_page() {
    assert_eq!(page("dlm_controld.8"), ".so man8/dlmd.8\n");
}
