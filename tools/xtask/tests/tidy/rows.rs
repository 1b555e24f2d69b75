//! Each row of the specification that one node can show is named by a test, or
//! `tests/untested-rows.txt` says why not. A test names a row in its own name or in its text: `T01`, `t01_…`,
//! `BL-007`, `bl_007_…`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::OnceLock;

use super::tree::{self, Source, sources};

/// Faults of the bug log that one node can show.
const BUGS: &[u16] = &[
    7, 9, 11, 12, 13, 19, 20, 23, 26, 31, 34, 37, 39, 40, 42, 52, 53, 54, 55, 56, 57, 58, 59, 67,
    68, 70, 73, 74, 75, 76, 83, 84, 87, 88, 89, 90, 96, 97, 98, 99, 100, 101, 102, 105, 106, 107,
    108, 110, 112, 113, 114, 115, 116, 119, 120, 122, 124, 125, 126,
];

const REASONS: &str = "tests/untested-rows.txt";

/// Rows with neither a test nor a reason.
pub(crate) fn unexplained() -> Vec<String> {
    let reasons = reasons();
    let named = named();
    let open = |row: &String| !named.contains(row) && !reasons.contains_key(row);
    rows().iter().filter(|row| open(row)).cloned().collect()
}

/// Reasons for rows that do not exist, or that have a test by now, or that say nothing.
pub(crate) fn stale() -> Vec<String> {
    let named = named();
    let mut findings = Vec::new();
    for (row, reason) in reasons() {
        if !rows().contains(&row) {
            findings.push(format!("{row} is not a row"));
        } else if named.contains(&row) {
            findings.push(format!("{row} is named by a test"));
        } else if reason.split_whitespace().count() < 3 {
            findings.push(format!("{row} has no reason"));
        }
    }
    findings
}

/// The rows themselves, from the pages.
fn rows() -> &'static BTreeSet<String> {
    static ROWS: OnceLock<BTreeSet<String>> = OnceLock::new();
    ROWS.get_or_init(|| {
        let page = std::fs::read_to_string(tree::root().join("dlm-core/doc/semantics.md"));
        let mut rows = BTreeSet::new();
        for line in page.expect("semantics.md").lines() {
            let id = line.strip_prefix("| ").and_then(|rest| rest.split(' ').next()).unwrap_or("");
            let (letter, digits) =
                id.split_at(usize::from(id.is_char_boundary(1) && !id.is_empty()));
            let digits_only = !digits.is_empty() && digits.chars().all(|c| c.is_ascii_digit());
            if digits_only && ["D", "T", "L"].contains(&letter) {
                rows.insert(id.to_string());
            }
        }
        assert!(rows.len() >= 90, "semantics.md has {} rows", rows.len());
        rows.extend(BUGS.iter().map(|number| format!("BL-{number:03}")));
        rows
    })
}

fn reasons() -> BTreeMap<String, String> {
    let text = std::fs::read_to_string(tree::root().join(REASONS)).expect(REASONS);
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines
        .map(|line| line.split_once(' ').unwrap_or((line, "")))
        .map(|(row, reason)| (row.to_string(), reason.to_string()))
        .collect()
}

/// Rows that tests name.
fn named() -> BTreeSet<String> {
    let mut named = BTreeSet::new();
    for file in sources() {
        let text = tested_part(file);
        if !text.is_empty() {
            named.extend(ids(text).filter(|id| rows().contains(id)));
        }
    }
    named
}

/// The part of a file that is test.
fn tested_part(file: &Source) -> &str {
    let suffix = file.is(&["rs", "c", "h", "sh", "py", "txt"]);
    if !suffix || file.path == REASONS || file.path.starts_with("tools/xtask/tests/tidy") {
        return "";
    }
    let folder = file.path.starts_with("tests/") || file.path.contains("/tests/");
    if folder || file.path.ends_with("/tests.rs") {
        return &file.text;
    }
    match file.text.find("#[cfg(test)]") {
        Some(at) if file.is(&["rs"]) => &file.text[at..],
        _ => "",
    }
}

/// Words that look like a row: `T01` and `D12` as they stand, and in lower case at the start of a name.
fn ids(text: &str) -> impl Iterator<Item = String> + '_ {
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '-' || c == '_'));
    words.flat_map(|word| {
        let mut found = Vec::new();
        let upper = word.to_ascii_uppercase().replace("BL_", "BL-");
        let lead = |text: &str| -> String {
            text.chars().take_while(char::is_ascii_alphanumeric).collect()
        };
        let is_name = word.contains('_') || word.chars().next().is_some_and(char::is_uppercase);
        for (at, _) in upper.match_indices("BL-") {
            found.push(upper[at..].chars().take(6).collect());
        }
        if is_name {
            for part in upper.split(['_', '-']) {
                found.push(lead(part));
            }
        }
        found
    })
}
