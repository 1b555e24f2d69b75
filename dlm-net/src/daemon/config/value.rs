//! What values of a key look like, and what to say about those that do not.

/// What values a key takes. Values are kept as text in one normal form.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// 0 or 1.
    Flag,
    /// A decimal number in a range.
    Number {
        /// Smallest.
        min: u64,
        /// Largest.
        max: u64,
    },
    /// One of some words.
    Choice {
        /// The words.
        words: &'static [&'static str],
        /// Whether a word's position may stand for it, as the original allows for `protocol`.
        numbered: bool,
    },
    /// Permission bits in octal.
    Octal,
    /// Printable characters without blanks.
    Name {
        /// Most bytes.
        bytes_max: usize,
    },
    /// An absolute path, or nothing.
    Path,
    /// A group's name or number, or nothing.
    Group,
    /// Seconds, with up to three decimals, or perhaps `none`.
    Span {
        /// Whether `none` is allowed.
        none: bool,
        /// Least, in milliseconds.
        min: u64,
        /// Most, in milliseconds.
        max: u64,
    },
    /// An absolute path, or `none`.
    PathOrNone,
}

impl Kind {
    /// The value in its normal form, or a sentence about what is allowed.
    pub fn check(self, value: &str) -> Result<String, String> {
        let normal = match self {
            Self::Flag => matches!(value, "0" | "1").then(|| value.to_owned()),
            Self::Number { min, max } => decimal(value)
                .filter(|number| (min..=max).contains(number))
                .map(|number| number.to_string()),
            Self::Choice { words, numbered } => {
                let by_place = || decimal(value).and_then(|n| words.get(n as usize)).copied();
                let word = words.iter().copied().find(|word| *word == value);
                word.or_else(|| if numbered { by_place() } else { None }).map(str::to_owned)
            }
            Self::Octal => octal(value).map(|bits| format!("0{bits:o}")),
            Self::Name { bytes_max } => {
                let good = |c: char| c.is_ascii_graphic() && c != '/';
                let fits = (1..=bytes_max).contains(&value.len());
                (fits && value.chars().all(good)).then(|| value.to_owned())
            }
            Self::Path => {
                let good = value.is_empty() || value.starts_with('/');
                (good && !value.contains('\0')).then(|| value.to_owned())
            }
            Self::Group => {
                let good = |c: char| !c.is_whitespace() && !c.is_control() && c != ':';
                value.chars().all(good).then(|| value.to_owned())
            }
            Self::Span { none: true, .. } | Self::PathOrNone if value == NONE => {
                Some(NONE.to_owned())
            }
            Self::Span { min, max, .. } => {
                milliseconds(value).filter(|span| (min..=max).contains(span)).map(in_seconds)
            }
            Self::PathOrNone => {
                (value.starts_with('/') && !value.contains('\0')).then(|| value.to_owned())
            }
        };
        normal.ok_or_else(|| format!("'{value}' is not {}", self.allowed()))
    }

    /// What is allowed, in words that go on after "is not".
    pub fn allowed(self) -> String {
        match self {
            Self::Flag => "0 or 1".to_owned(),
            Self::Number { min, max } => format!("a number from {min} to {max}"),
            Self::Choice { words: [word], .. } => format!("{word}, the only choice"),
            Self::Choice { words, numbered } => {
                let numbers = if numbered { " (or its number from 0)" } else { "" };
                format!("one of {}{numbers}", words.join(", "))
            }
            Self::Octal => "permission bits in octal, up to 0777".to_owned(),
            Self::Name { bytes_max } => {
                format!("a name of 1 to {bytes_max} printable characters without blank or /")
            }
            Self::Path => "an absolute path".to_owned(),
            Self::Group => "a group's name or number".to_owned(),
            Self::Span { none, min, max } => {
                let range = format!("{} to {} seconds", in_seconds(min), in_seconds(max));
                if none { format!("none or {range}") } else { range }
            }
            Self::PathOrNone => "none or an absolute path".to_owned(),
        }
    }

    /// Whether the bare option means 1.
    pub fn is_flag(self) -> bool {
        matches!(self, Self::Flag)
    }
}

/// A decimal number of plain digits: no sign, no blanks.
pub fn decimal(text: &str) -> Option<u64> {
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    if digits { text.parse().ok() } else { None }
}

/// The word for "there is none".
pub const NONE: &str = "none";

/// Seconds with up to three decimals, as milliseconds.
pub fn milliseconds(text: &str) -> Option<u64> {
    let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
    let part = if part.len() <= 3 { format!("{part:0<3}") } else { return None };
    decimal(whole)?.checked_mul(1000)?.checked_add(decimal(&part)?)
}

/// Milliseconds as seconds with as few decimals as do.
fn in_seconds(millis: u64) -> String {
    let text = format!("{}.{:03}", millis / 1000, millis % 1000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Permission bits from octal text, with or without a leading 0.
pub fn octal(text: &str) -> Option<u32> {
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let bits = if digits { u32::from_str_radix(text, 8).ok()? } else { return None };
    (bits <= 0o777).then_some(bits)
}

/// The candidate nearest to `name` by single-character edits; the first of equals.
pub fn nearest<'a>(name: &str, candidates: impl Iterator<Item = &'a str>) -> &'a str {
    let name = name.to_lowercase().replace('-', "_");
    // A long name would cost a quadratic table; what is far longer than any key is near none.
    let name = name.chars().take(64).collect::<Vec<_>>();
    candidates.min_by_key(|candidate| distance(&name, candidate)).unwrap_or("")
}

/// Levenshtein distance, with neighbours swapped counting as one edit.
fn distance(a: &[char], b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut rows = vec![vec![0; b.len() + 1]; a.len() + 1];
    for i in 0..=a.len() {
        for j in 0..=b.len() {
            rows[i][j] = match (i, j) {
                (0, _) => j,
                (_, 0) => i,
                _ => {
                    let change = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
                    let mut best = change.min(rows[i - 1][j] + 1).min(rows[i][j - 1] + 1);
                    if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                        best = best.min(rows[i - 2][j - 2] + 1);
                    }
                    best
                }
            };
        }
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_normalised_or_refused_with_what_is_allowed() {
        let number = Kind::Number { min: 1, max: 10 };
        let choice = Kind::Choice { words: &["tcp", "sctp"], numbered: true };
        let only = Kind::Choice { words: &["single"], numbered: false };
        let name = Kind::Name { bytes_max: 4 };
        let span = Kind::Span { none: true, min: 250, max: 10_000 };
        let always = Kind::Span { none: false, min: 250, max: 10_000 };
        let good = [
            (Kind::Flag, "1", "1"),
            (number, "007", "7"),
            (number, "10", "10"),
            (choice, "1", "sctp"),
            (choice, "tcp", "tcp"),
            (Kind::Octal, "660", "0660"),
            (Kind::Octal, "0", "00"),
            (name, "abcd", "abcd"),
            (Kind::Path, "/a b", "/a b"),
            (Kind::Path, "", ""),
            (Kind::Group, "wheel", "wheel"),
            (span, "none", "none"),
            (span, "4", "4"),
            (span, "0.250", "0.25"),
            (span, "10.", "10"),
            (Kind::PathOrNone, "/dev/w", "/dev/w"),
            (Kind::PathOrNone, "none", "none"),
        ];
        for (kind, value, normal) in good {
            assert_eq!(kind.check(value).as_deref(), Ok(normal), "{kind:?} {value}");
        }
        let bad = [
            (Kind::Flag, "yes", "'yes' is not 0 or 1"),
            (Kind::Flag, "", "'' is not 0 or 1"),
            (number, "0", "'0' is not a number from 1 to 10"),
            (number, "11", "'11' is not a number from 1 to 10"),
            (number, "-1", "'-1' is not a number from 1 to 10"),
            (number, "99999999999999999999", "'99999999999999999999' is not a number from 1 to 10"),
            (choice, "2", "'2' is not one of tcp, sctp (or its number from 0)"),
            (only, "0", "'0' is not single, the only choice"),
            (Kind::Octal, "0888", "'0888' is not permission bits in octal, up to 0777"),
            (Kind::Octal, "1777", "'1777' is not permission bits in octal, up to 0777"),
            (Kind::Path, "a", "'a' is not an absolute path"),
            (Kind::Group, "a b", "'a b' is not a group's name or number"),
            (span, "0.2", "'0.2' is not none or 0.25 to 10 seconds"),
            (span, "10.001", "'10.001' is not none or 0.25 to 10 seconds"),
            (span, "1.2345", "'1.2345' is not none or 0.25 to 10 seconds"),
            (span, "-1", "'-1' is not none or 0.25 to 10 seconds"),
            (
                span,
                "18446744073709551615",
                "'18446744073709551615' is not none or 0.25 to 10 seconds",
            ),
            (always, "none", "'none' is not 0.25 to 10 seconds"),
            (Kind::PathOrNone, "", "'' is not none or an absolute path"),
        ];
        for (kind, value, sentence) in bad {
            assert_eq!(kind.check(value), Err(sentence.to_owned()), "{kind:?} {value}");
        }
        for value in ["", "abcde", "a b", "a/b", "a\n"] {
            assert!(name.check(value).is_err(), "{value:?}");
        }
    }

    #[test]
    fn nearest_counts_edits_and_swaps() {
        let names = ["port", "protocol", "log"];
        let cases = [("prot", "port"), ("protcol", "protocol"), ("lg", "log"), ("PORT", "port")];
        for (name, want) in cases {
            assert_eq!(nearest(name, names.iter().copied()), want, "{name}");
        }
        let long = "x".repeat(100_000);
        assert!(names.contains(&nearest(&long, names.iter().copied())));
    }
}
