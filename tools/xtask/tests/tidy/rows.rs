//! Each row of the specification (D, T, L, R of semantics.md, BL of bug-log.md) is named by a test, or
//! `tests/untested-rows.txt` says why not. A test names a row in its own name or in its text: `T01`, `t01_…`,
//! `BL-007`, `bl_007_…`. The scenes of `cargo xtask cluster` and its like are tests, too.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::OnceLock;

use super::tree::{self, Source, sources};

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
        let mut rows = BTreeSet::new();
        for page in ["dlm-core/doc/semantics.md", "dlm-core/doc/bug-log.md"] {
            let text = std::fs::read_to_string(tree::root().join(page)).expect(page);
            rows.extend(text.lines().filter_map(row).map(str::to_owned));
        }
        assert!(rows.len() >= 220, "there are {} rows", rows.len());
        rows
    })
}

/// The row that a line of a table begins with.
fn row(line: &str) -> Option<&str> {
    let id = line.strip_prefix("| ")?.split(' ').next()?;
    let digits = id.strip_prefix("BL-").or_else(|| id.strip_prefix(['D', 'T', 'L', 'R']))?;
    (!digits.is_empty() && digits.bytes().all(|c| c.is_ascii_digit())).then_some(id)
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
    let scenes = ["tools/xtask/src/cluster/", "tools/xtask/src/corosync"];
    let folder = file.path.starts_with("tests/")
        || file.path.contains("/tests/")
        || scenes.iter().any(|start| file.path.starts_with(start));
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
