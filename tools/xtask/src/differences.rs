//! `tests/conformance/differences.txt`: where our answer is meant to differ from the kernel's.
//!
//! An entry names a scenario and the row of the table in semantics.md that explains it, and holds both texts.
//! The kernel's text must contain its half exactly once; with all of a scenario's entries applied, the
//! result has to be our whole answer. So an explained difference cannot hide another one.
//!
//! ```text
//! difference 1-name-binary D15
//!   why: one sentence
//! kernel
//! > lock b EX ab\x00 NOQUEUE
//!   ret=0 st=EINPROG lkid=+
//! ours
//! …
//! end
//! ```

/// One entry.
#[derive(Debug, PartialEq)]
pub(crate) struct Difference {
    /// Scenario without its suffix.
    pub(crate) scenario: String,
    /// `D15`, or the name of another rule in tests/conformance/README.md.
    pub(crate) rule: String,
    kernel: String,
    ours: String,
}

/// Reads the file's text. The error names the line.
pub(crate) fn parse(text: &str) -> Result<Vec<Difference>, String> {
    let mut lines = text.lines().enumerate();
    let mut entries = Vec::new();
    while let Some((number, line)) = lines.next() {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let words: Vec<&str> = line.split_whitespace().collect();
        let ["difference", scenario, rule] = words[..] else {
            return Err(format!("line {}: expected `difference SCENARIO RULE`", number + 1));
        };
        let why = block(&mut lines, "kernel")?;
        if !why.trim_start().starts_with("why: ") {
            return Err(format!("line {}: a difference needs a `why: ` line", number + 2));
        }
        let kernel = block(&mut lines, "ours")?;
        let ours = block(&mut lines, "end")?;
        let (scenario, rule) = (scenario.to_string(), rule.to_string());
        entries.push(Difference { scenario, rule, kernel, ours });
    }
    Ok(entries)
}

/// Lines up to the one that is `last`, each with its end of line.
fn block<'a>(
    lines: &mut impl Iterator<Item = (usize, &'a str)>,
    last: &str,
) -> Result<String, String> {
    let mut text = String::new();
    for (_, line) in lines {
        if line == last {
            return Ok(text);
        }
        text.push_str(line);
        text.push('\n');
    }
    Err(format!("the file ends where a line `{last}` is due"))
}

/// The kernel's `text` of `scenario` as we are to answer it. The error says which entry does not fit.
pub(crate) fn apply(entries: &[Difference], scenario: &str, text: &str) -> Result<String, String> {
    let mut result = text.to_string();
    for entry in entries.iter().filter(|entry| entry.scenario == scenario) {
        let places = result.matches(&entry.kernel).count();
        if entry.kernel.is_empty() || places != 1 {
            return Err(format!(
                "differences.txt: the kernel's half of {scenario} {} fits {places} places, not one",
                entry.rule
            ));
        }
        result = result.replacen(&entry.kernel, &entry.ours, 1);
    }
    Ok(result)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "# head\n\ndifference 1-a D15\n  why: names have a length\nkernel\n> x\n  no\n\
                        ours\n> x\n  yes\nend\n";

    #[test]
    fn an_entry_replaces_its_text() {
        let entries = parse(FILE).expect("a good file");
        assert_eq!(entries[0].rule, "D15");
        assert_eq!(apply(&entries, "1-a", "> w\n> x\n  no\n"), Ok("> w\n> x\n  yes\n".into()));
        assert_eq!(apply(&entries, "1-b", "> x\n  no\n"), Ok("> x\n  no\n".into()));
    }

    #[test]
    fn an_entry_that_fits_nowhere_or_twice_is_an_error() {
        let entries = parse(FILE).expect("a good file");
        assert!(apply(&entries, "1-a", "> y\n  no\n").is_err());
        assert!(apply(&entries, "1-a", "> x\n  no\n> x\n  no\n").is_err());
    }

    #[test]
    fn a_file_that_is_cut_off_or_has_no_reason_is_an_error() {
        assert!(parse("difference 1-a D15\n  why: x\nkernel\n> x\n").is_err());
        assert!(parse("difference 1-a D15\nkernel\nx\nours\ny\nend\n").is_err());
        assert!(parse("deviation 1-a D15\n").is_err());
    }
}
