//! Counting: what a suite's output says about passed, failed and skipped tests.

/// What ran.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Tally {
    /// Tests that ran and were right.
    pub(crate) passed: u64,
    /// Tests that ran and were not.
    pub(crate) failed: u64,
    /// One reason for each test that could not run here.
    pub(crate) skipped: Vec<String>,
    /// Names of what failed, as far as known.
    pub(crate) failures: Vec<String>,
}

impl Tally {
    /// Adds another suite's counts.
    pub(crate) fn add(&mut self, other: Tally) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped.extend(other.skipped);
        self.failures.extend(other.failures);
    }

    /// Counts one test.
    pub(crate) fn count(&mut self, name: &str, good: bool) {
        if good {
            self.passed += 1;
        } else {
            self.fail(name.to_string());
        }
    }

    /// Counts one failure.
    pub(crate) fn fail(&mut self, what: String) {
        self.failed += 1;
        self.failures.push(what);
    }

    /// Counts one test that could not run.
    pub(crate) fn skip(&mut self, reason: impl Into<String>) {
        self.skipped.push(reason.into());
    }

    /// Prints the closing lines that every command of ours ends with.
    pub(crate) fn print(&self) {
        println!("{} skipped:", self.skipped.len());
        for reason in &self.skipped {
            println!("    {reason}");
        }
        println!("{} passed, {} failed", self.passed, self.failed);
    }

    /// `Ok` when nothing failed.
    pub(crate) fn verdict(&self) -> Result<(), crate::Ending> {
        if self.failed == 0 { Ok(()) } else { Err(crate::Ending::Failed) }
    }
}

/// Reads the output of `cargo test … -- --show-output`.
///
/// A test that cannot run here prints a line `SKIPPED: reason` and returns; libtest calls it passed, so it is
/// taken from the passed ones. Only a line in the printed output of a test that passed counts.
pub(crate) fn libtest(text: &str) -> Tally {
    let mut tally = Tally::default();
    let mut reader = Reader::default();
    for line in text.lines() {
        reader.line(line, &mut tally);
    }
    let skips = tally.skipped.len() as u64;
    tally.passed = tally.passed.saturating_sub(skips - reader.ignored);
    tally
}

#[derive(Default)]
struct Reader {
    /// The listing we are in is of tests that passed.
    good: bool,
    /// The test whose printed output we are in.
    inside: Option<String>,
    /// It has said that it was skipped.
    said: bool,
    /// Skips that libtest does not count as passed.
    ignored: u64,
}

impl Reader {
    fn line(&mut self, line: &str, tally: &mut Tally) {
        if line == "successes:" || line == "failures:" {
            self.good = line == "successes:";
            self.inside = None;
        } else if let Some(name) = header(line) {
            self.inside = Some(name.to_string());
            self.said = false;
        } else if let Some(name) = self.inside.as_ref() {
            if let Some(reason) = line.strip_prefix("SKIPPED: ")
                && self.good
                && !self.said
            {
                tally.skip(format!("{name}: {reason}"));
                self.said = true;
            }
        } else if let Some(rest) = line.strip_prefix("test result: ") {
            let number = |what: &str| number_before(rest, what);
            tally.passed += number(" passed");
            tally.failed += number(" failed");
            let ignored = number(" ignored");
            for _ in 0..ignored {
                tally.skip("a test that its author told libtest to ignore");
            }
            self.ignored += ignored;
        } else if let Some(name) =
            line.strip_prefix("test ").and_then(|l| l.strip_suffix(" ... FAILED"))
        {
            tally.failures.push(name.to_string());
        }
    }
}

/// What libtest's failing tests printed, the first lines of each.
pub(crate) fn failing_output(text: &str, lines_each: usize) -> String {
    let mut result = String::new();
    let (mut bad, mut left) = (false, 0);
    for line in text.lines() {
        if line == "successes:" || line == "failures:" {
            (bad, left) = (line == "failures:", 0);
        } else if bad && header(line).is_some() {
            left = lines_each;
        }
        if left > 0 {
            result.push_str(line);
            result.push('\n');
            left -= 1;
        }
    }
    result
}

/// The name in `---- name stdout ----`.
fn header(line: &str) -> Option<&str> {
    line.strip_prefix("---- ")?.strip_suffix(" stdout ----")
}

/// The number that stands directly before `what`.
fn number_before(text: &str, what: &str) -> u64 {
    let Some(end) = text.find(what) else { return 0 };
    let digits = text[..end].rsplit(|c: char| !c.is_ascii_digit()).next();
    digits.and_then(|digits| digits.parse().ok()).unwrap_or(0)
}

/// Reads the closing lines of [`Tally::print`], or of a script that ends in `N passed, M failed`.
/// `None`: there are none, so the command did not come to its end.
pub(crate) fn closing(text: &str) -> Option<Tally> {
    let lines: Vec<&str> = text.lines().collect();
    let at = lines.iter().rposition(|line| counts(line).is_some())?;
    let (passed, failed) = counts(lines[at])?;
    let mut tally = Tally { passed, failed, ..Tally::default() };
    let head = lines[..at].iter().rposition(|line| is_skip_head(line));
    if let Some(head) = head
        && lines[head + 1..at].iter().all(|line| line.starts_with("    "))
    {
        tally.skipped = lines[head + 1..at].iter().map(|line| line.trim().to_string()).collect();
    }
    let bad = lines[..at].iter().filter_map(|line| line.strip_prefix("not ok - "));
    // A summary at the end may name them a second time.
    for name in bad {
        if !tally.failures.iter().any(|known| known == name) {
            tally.failures.push(name.to_string());
        }
    }
    Some(tally)
}

fn counts(line: &str) -> Option<(u64, u64)> {
    let (passed, rest) = line.split_once(" passed, ")?;
    let failed = rest.strip_suffix(" failed")?;
    Some((passed.parse().ok()?, failed.parse().ok()?))
}

fn is_skip_head(line: &str) -> bool {
    line.strip_suffix(" skipped:").is_some_and(|number| number.parse::<u64>().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIBTEST: &str = "\
     Running unittests src/lib.rs (target/debug/deps/a-1)

running 4 tests
test a ... ok
test b ... ok
test c ... FAILED
test d ... ok

successes:

---- b stdout ----
SKIPPED: needs root
SKIPPED: said twice, counted once
test result: ok. 77 passed; 0 failed; is only printed

---- d stdout ----
nothing of note

successes:
    a
    b
    d

failures:

---- c stdout ----
SKIPPED: a failing test is not skipped

failures:
    c

test result: FAILED. 3 passed; 1 failed; 2 ignored; 0 measured; 0 filtered out; finished in 0.00s

test result: ok. 10 passed; 0 failed; 0 ignored; 0 measured; 5 filtered out; finished in 0.00s
";

    #[test]
    fn libtest_output_is_counted_with_skips_taken_from_the_passed() {
        let tally = libtest(LIBTEST);
        assert_eq!((tally.passed, tally.failed), (12, 1));
        assert_eq!(tally.skipped.len(), 3);
        assert!(tally.skipped.contains(&"b: needs root".to_string()));
        assert_eq!(tally.failures, ["c"]);
    }

    #[test]
    fn only_failing_tests_are_shown() {
        let text = failing_output(LIBTEST, 20);
        assert_eq!(text.lines().next(), Some("---- c stdout ----"));
        assert!(!text.contains("nothing of note"));
        assert_eq!(failing_output(LIBTEST, 1).lines().count(), 1);
    }

    #[test]
    fn closing_lines_are_read_back_as_printed() {
        let text = "ok - x\nnot ok - y\n2 skipped:\n    one\n    two\n1 passed, 1 failed\n";
        let tally = closing(text).expect("closing lines");
        assert_eq!((tally.passed, tally.failed), (1, 1));
        assert_eq!(tally.skipped, ["one", "two"]);
        assert_eq!(tally.failures, ["y"]);
    }

    #[test]
    fn a_script_without_a_skip_list_counts_too() {
        let tally = closing("ok - a\n9 passed, 0 failed\n").expect("closing line");
        assert_eq!((tally.passed, tally.failed, tally.skipped.len()), (9, 0, 0));
    }

    #[test]
    fn output_without_an_end_is_no_result() {
        assert_eq!(closing("ok - a\nSegmentation fault\n"), None);
        assert_eq!(closing("many passed, none failed\n"), None);
    }
}
