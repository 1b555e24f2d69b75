//! Reads `tests/conformance/differences.txt` as its README describes it: the kernel's text with the
//! listed places replaced has to be our text.

/// One entry: scenario, and the kernel's and our text of one place.
pub(super) struct Difference {
    scenario: String,
    kernel: String,
    ours: String,
}

/// What only the kernel's device shows is left out.
pub(super) fn strip(text: &str) -> String {
    let mut result = String::new();
    for line in text.lines() {
        let line = line.trim_end_matches(" lvbcopied");
        let line = match line.rsplit_once(" mode=") {
            Some((start, mode)) if mode.chars().all(|c| c.is_ascii_uppercase()) => start,
            _ => line,
        };
        result += line;
        result.push('\n');
    }
    result
}

/// All entries; panics on a file that cannot be read so.
pub(super) fn parse(text: &str) -> Vec<Difference> {
    let mut entries = Vec::new();
    let mut lines = text.lines();
    let until = |lines: &mut std::str::Lines<'_>, end: &str| {
        let block = lines.take_while(|line| *line != end);
        block.map(|line| format!("{line}\n")).collect::<String>()
    };
    while let Some(line) = lines.next() {
        let mut words = line.split_whitespace();
        if words.next() == Some("difference") {
            let scenario = words.next().expect("a scenario's name").to_owned();
            until(&mut lines, "kernel");
            let kernel = until(&mut lines, "ours");
            let ours = until(&mut lines, "end");
            entries.push(Difference { scenario, kernel, ours });
        }
    }
    entries
}

/// The kernel's text of a scenario as we are to answer it.
pub(super) fn apply(
    entries: &[Difference],
    scenario: &str,
    kernel: &str,
) -> Result<String, String> {
    let mut result = kernel.to_owned();
    for entry in entries.iter().filter(|entry| entry.scenario == scenario) {
        if result.matches(&entry.kernel).count() != 1 {
            return Err(format!("this does not stand exactly once there:\n{}", entry.kernel));
        }
        result = result.replacen(&entry.kernel, &entry.ours, 1);
    }
    Ok(result)
}
