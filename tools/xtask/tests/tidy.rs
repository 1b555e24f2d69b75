//! Rules of the tree that no compiler checks.

#[path = "tidy/rows.rs"]
mod rows;
#[path = "tidy/tree.rs"]
mod tree;

use tree::{Source, sources, top_level};

/// Files are to be at most 600 lines long; the last twenty are grace.
const LINES_MAX: usize = 620;

/// What the top level may hold besides dotfiles and cargo's target folder.
const TOP_LEVEL: &[&str] = &[
    "Cargo.toml",
    "Cargo.lock",
    "dlm-core",
    "dlm-net",
    "libdlm",
    "include",
    "tools",
    "tests",
    "README.md",
    "LICENSE",
    "target",
];

/// Fails with one line for each finding.
fn none(what: &str, findings: Vec<String>) {
    assert!(findings.is_empty(), "{what}:\n  {}", findings.join("\n  "));
}

#[test]
fn files_are_short() {
    let long = |file: &Source| {
        let lines = file.text.lines().count();
        (lines > LINES_MAX).then(|| format!("{} has {lines} lines", file.path))
    };
    let code = |file: &&Source| file.is(&["rs", "c", "h", "sh", "py"]);
    none("one idea per file", sources().iter().filter(code).filter_map(long).collect());
}

#[test]
fn unsafe_stays_where_it_belongs() {
    let mut findings = Vec::new();
    for file in sources().iter().filter(|file| file.is(&["rs"])) {
        if file.path.starts_with("libdlm/") || file.path.ends_with("/sys.rs") {
            continue;
        }
        for (number, line) in file.text.lines().enumerate() {
            let code = line.split("//").next().unwrap_or("");
            if words(code).any(|word| word == concat!("un", "safe")) {
                findings.push(format!("{}:{}", file.path, number + 1));
            }
        }
    }
    none("only libdlm/ and files named sys.rs may do without the compiler's proof", findings);
}

#[test]
fn the_top_level_is_as_fixed() {
    let stranger = |name: &String| !name.starts_with('.') && !TOP_LEVEL.contains(&name.as_str());
    none("the layout does not name these", top_level().into_iter().filter(stranger).collect());
}

#[test]
fn nothing_is_left_open() {
    // Put together here, so that this file does not find itself.
    let marks =
        [["TO", "DO"], ["FIX", "ME"], ["XX", "X"], ["TB", "D"]].map(|halves| halves.concat());
    let macros = [["todo", "!("], ["unimplemented", "!("], ["#[", "ignore"]].map(|h| h.concat());
    let mut findings = Vec::new();
    for file in sources().iter().filter(|file| file.is(&["rs", "c", "h", "sh", "py", "toml"])) {
        for (number, line) in file.text.lines().enumerate() {
            let marked = words(line).any(|word| marks.iter().any(|mark| word == mark));
            if marked || macros.iter().any(|name| line.contains(name)) {
                findings.push(format!("{}:{}: {}", file.path, number + 1, line.trim()));
            }
        }
    }
    none("what is not done yet is not in the tree", findings);
}

#[test]
fn the_readme_shows_its_two_commands() {
    let readme = std::fs::read_to_string(tree::root().join("README.md")).expect("README.md");
    for command in ["cargo demo", "cargo xtask test"] {
        assert!(readme.contains(command), "README.md does not show {command}");
    }
}

#[test]
fn every_row_of_the_specification_has_a_test_or_a_reason() {
    none(
        "rows that no test names and tests/untested-rows.txt does not explain",
        rows::unexplained(),
    );
}

#[test]
fn reasons_are_only_given_where_there_is_no_test() {
    none("rows of tests/untested-rows.txt that are unknown or that a test names", rows::stale());
}

/// The words of a line: letters, digits and underscores together.
fn words(line: &str) -> impl Iterator<Item = &str> {
    line.split(|c: char| !(c.is_alphanumeric() || c == '_')).filter(|word| !word.is_empty())
}
