//! Figures, the bars they are held against, and the two forms in which they are printed.
//!
//! A bar is a multiple of a reference that was measured in the same run (a unit or a peer), so a
//! verdict does not depend on how fast the machine is today. All the bars of a «must» have to be
//! met; of a «target» or «moonshot» one is enough (they offer alternatives). A bar whose reference
//! could not be measured is skipped aloud and decides nothing.

use std::fmt::{self, Write as _};

use serde::Serialize;

/// What a number is of.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Scale {
    /// Nanoseconds.
    Ns,
    /// Events per second.
    PerSecond,
    /// Bytes.
    Bytes,
    /// A plain number.
    Plain,
    /// Parts of a hundred.
    Percent,
}

impl Scale {
    /// The number with a unit that keeps it short.
    pub(crate) fn show(self, value: f64) -> String {
        match self {
            Self::Ns => show_stepped(value, &[(1e9, "s"), (1e6, "ms"), (1e3, "us"), (1.0, "ns")]),
            Self::PerSecond => show_stepped(value, &[(1e6, "M/s"), (1e3, "k/s"), (1.0, "/s")]),
            Self::Bytes => format!("{value:.0} B"),
            Self::Plain => format!("{value:.3}"),
            Self::Percent => format!("{value:.3} %"),
        }
    }
}

/// Shows `value` in the first step it reaches, or the last.
fn show_stepped(value: f64, steps: &[(f64, &str)]) -> String {
    let step = steps.iter().find(|(size, _)| value.abs() >= *size).or(steps.last());
    step.map_or_else(
        || value.to_string(),
        |(size, unit)| format!("{} {unit}", digits(value / size)),
    )
}

/// Three digits that matter.
fn digits(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// Which side of a bar is good.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Side {
    /// Smaller is better.
    AtMost,
    /// Larger is better.
    AtLeast,
}

/// Something a figure is compared with.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Reference {
    /// `U2`, `redis`, or empty for the figure's own scale.
    pub name: String,
    /// Its value, measured in this run; `None`: it is not here.
    pub value: Option<f64>,
}

impl Reference {
    /// A reference measured in this run.
    pub(crate) fn measured(name: impl Into<String>, value: f64) -> Self {
        Self { name: name.into(), value: Some(value) }
    }

    /// A reference that could not be measured here.
    pub(crate) fn absent(name: impl Into<String>) -> Self {
        Self { name: name.into(), value: None }
    }

    /// The figure's own scale: the bar is an absolute number.
    pub(crate) fn absolute() -> Self {
        Self::measured("", 1.0)
    }
}

/// A multiple of a reference that a figure is to reach.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Bar {
    /// Which side is good.
    pub side: Side,
    /// Multiple of the reference.
    pub factor: f64,
    /// The reference.
    pub reference: Reference,
}

impl Bar {
    /// At most `factor` times `reference`.
    pub(crate) fn at_most(factor: f64, reference: &Reference) -> Self {
        Self { side: Side::AtMost, factor, reference: reference.clone() }
    }

    /// At least `factor` times `reference`.
    pub(crate) fn at_least(factor: f64, reference: &Reference) -> Self {
        Self { side: Side::AtLeast, factor, reference: reference.clone() }
    }

    /// The value that just reaches the bar.
    pub(crate) fn limit(&self) -> Option<f64> {
        self.reference.value.map(|value| value * self.factor)
    }

    /// By what factor `value` misses the bar: at most 1 where it is met. `None` without reference.
    pub(crate) fn miss(&self, value: f64) -> Option<f64> {
        self.limit().map(|limit| match self.side {
            Side::AtMost => value / limit,
            Side::AtLeast => limit / value,
        })
    }

    /// The bar in words.
    fn show(&self, scale: Scale) -> String {
        let side = if self.side == Side::AtMost { "<=" } else { ">=" };
        if self.reference.name.is_empty() {
            format!("{side} {}", scale.show(self.factor))
        } else {
            format!("{side} {} {}", self.factor, self.reference.name)
        }
    }
}

/// What came of a set of bars.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Verdict {
    /// No bar was set.
    Unset,
    /// Every bar that counts lacks its reference.
    Skipped,
    /// Met.
    Met,
    /// Missed, by this factor.
    Missed(f64),
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unset => f.write_str("-"),
            Self::Skipped => f.write_str("skipped"),
            Self::Met => f.write_str("met"),
            Self::Missed(factor) => write!(f, "missed by {} x", digits(*factor)),
        }
    }
}

/// All bars (`all`), or the easiest one, held against `value`.
pub(crate) fn judge(bars: &[Bar], all: bool, value: f64) -> Verdict {
    if bars.is_empty() {
        return Verdict::Unset;
    }
    let misses = bars.iter().filter_map(|bar| bar.miss(value));
    let miss = if all { misses.reduce(worse) } else { misses.reduce(better) };
    match miss {
        None => Verdict::Skipped,
        Some(miss) if miss <= 1.0 => Verdict::Met,
        Some(miss) => Verdict::Missed(miss),
    }
}

/// The larger miss; a figure that is no number misses everything.
fn worse(one: f64, two: f64) -> f64 {
    if one.is_nan() || one > two { one } else { two }
}

/// The smaller miss.
fn better(one: f64, two: f64) -> f64 {
    if one.is_nan() || two.is_nan() || one < two { one } else { two }
}

/// One measured figure with everything that is said about it.
#[derive(Clone, Debug)]
pub(crate) struct Figure {
    /// `G2`, `U3`, `pipeline`.
    pub id: String,
    /// What was measured, in a few words.
    pub what: String,
    /// The value; NaN where measuring failed.
    pub value: f64,
    /// Its scale.
    pub scale: Scale,
    /// What to divide by for the ratios that are printed: the first is the unit it is measured in.
    pub measured_in: Vec<Reference>,
    /// Bars that must all be met.
    pub must: Vec<Bar>,
    /// Bars of which one should be met.
    pub target: Vec<Bar>,
    /// Bars of which one would be a record.
    pub moonshot: Vec<Bar>,
    /// More to know: other percentiles, what was skipped, why it failed.
    pub note: String,
}

impl Figure {
    /// A figure without ratios and bars.
    pub(crate) fn new(id: &str, what: impl Into<String>, value: f64, scale: Scale) -> Self {
        Self {
            id: id.into(),
            what: what.into(),
            value,
            scale,
            measured_in: Vec::new(),
            must: Vec::new(),
            target: Vec::new(),
            moonshot: Vec::new(),
            note: String::new(),
        }
    }

    /// Prints the ratio to `reference` too.
    pub(crate) fn per(mut self, reference: &Reference) -> Self {
        self.measured_in.push(reference.clone());
        self
    }

    /// Adds a «must».
    pub(crate) fn must(mut self, bar: Bar) -> Self {
        self.must.push(bar);
        self
    }

    /// Adds a «target».
    pub(crate) fn target(mut self, bar: Bar) -> Self {
        self.target.push(bar);
        self
    }

    /// Adds a «moonshot».
    pub(crate) fn moonshot(mut self, bar: Bar) -> Self {
        self.moonshot.push(bar);
        self
    }

    /// Adds to the note.
    pub(crate) fn note(mut self, note: impl AsRef<str>) -> Self {
        if !self.note.is_empty() {
            self.note.push_str("; ");
        }
        self.note.push_str(note.as_ref());
        self
    }

    /// Whether every «must» that could be judged is met.
    pub(crate) fn verdict(&self) -> Verdict {
        judge(&self.must, true, self.value)
    }

    /// The figure in units: `1.14 U2, 0.26 redis`.
    fn ratios(&self) -> String {
        let ratio = |reference: &Reference| match reference.value {
            Some(value) => format!("{} {}", digits(self.value / value), reference.name),
            None => format!("({} absent)", reference.name),
        };
        self.measured_in.iter().map(ratio).collect::<Vec<_>>().join(", ")
    }

    /// Two or three lines of text.
    pub(crate) fn text(&self) -> String {
        let value = self.scale.show(self.value);
        let mut text = format!("{:<9} {:<62} {value:>11}  {}", self.id, self.what, self.ratios());
        text.truncate(text.trim_end().len());
        let rows = [("must", &self.must), ("target", &self.target), ("moonshot", &self.moonshot)];
        let mut bars = Vec::new();
        for (name, row) in rows.into_iter().filter(|(_, row)| !row.is_empty()) {
            let joint = if name == "must" { " and " } else { " or " };
            let shown: Vec<_> = row.iter().map(|bar| bar.show(self.scale)).collect();
            let verdict = judge(row, name == "must", self.value);
            bars.push(format!("{name} {}: {verdict}", shown.join(joint)));
        }
        if !bars.is_empty() {
            let _ = write!(text, "\n          {}", bars.join(" | "));
        }
        if !self.note.is_empty() {
            let _ = write!(text, "\n          {}", self.note);
        }
        text
    }

    /// One JSON object, on one line.
    pub(crate) fn json(&self) -> String {
        let row = |bars: &[Bar], all| JsonRow::new(bars, all, self.value, self.scale);
        let ratio = |reference: &Reference| JsonRatio {
            of: reference.name.clone(),
            reference: reference.value,
            ratio: reference.value.map(|value| self.value / value),
        };
        let figure = JsonFigure {
            figure: &self.id,
            what: &self.what,
            value: self.value,
            scale: self.scale,
            ratios: self.measured_in.iter().map(ratio).collect(),
            must: row(&self.must, true),
            target: row(&self.target, false),
            moonshot: row(&self.moonshot, false),
            note: &self.note,
        };
        serde_json::to_string(&figure).expect("plain structs with string keys always encode")
    }
}

#[derive(Serialize)]
struct JsonFigure<'a> {
    figure: &'a str,
    what: &'a str,
    value: f64,
    scale: Scale,
    ratios: Vec<JsonRatio>,
    must: Option<JsonRow>,
    target: Option<JsonRow>,
    moonshot: Option<JsonRow>,
    note: &'a str,
}

#[derive(Serialize)]
struct JsonRatio {
    of: String,
    reference: Option<f64>,
    ratio: Option<f64>,
}

#[derive(Serialize)]
struct JsonRow {
    bars: Vec<JsonBar>,
    verdict: &'static str,
    missed_by: Option<f64>,
}

#[derive(Serialize)]
struct JsonBar {
    bar: String,
    limit: Option<f64>,
}

impl JsonRow {
    fn new(bars: &[Bar], all: bool, value: f64, scale: Scale) -> Option<Self> {
        let (verdict, missed_by) = match judge(bars, all, value) {
            Verdict::Unset => return None,
            Verdict::Skipped => ("skipped", None),
            Verdict::Met => ("met", None),
            Verdict::Missed(factor) => ("missed", Some(factor)),
        };
        let bar = |bar: &Bar| JsonBar { bar: bar.show(scale), limit: bar.limit() };
        Some(Self { bars: bars.iter().map(bar).collect(), verdict, missed_by })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unit(value: f64) -> Reference {
        Reference::measured("U2", value)
    }

    #[test]
    fn a_bar_is_a_multiple_of_its_reference() {
        let most = Bar::at_most(2.2, &unit(8000.0));
        assert_eq!(most.limit(), Some(17_600.0));
        assert_eq!(most.miss(8800.0), Some(0.5));
        assert_eq!(most.miss(35_200.0), Some(2.0));
        let least = Bar::at_least(3.0, &unit(40_000.0));
        assert_eq!(least.miss(240_000.0), Some(0.5));
        assert_eq!(least.miss(60_000.0), Some(2.0));
    }

    #[test]
    fn every_must_and_any_target() {
        let bars = [Bar::at_most(2.0, &unit(10.0)), Bar::at_most(1.0, &unit(10.0))];
        assert_eq!(judge(&bars, true, 15.0), Verdict::Missed(1.5));
        assert_eq!(judge(&bars, false, 15.0), Verdict::Met);
        assert_eq!(judge(&bars, true, 10.0), Verdict::Met);
        assert_eq!(judge(&[], true, 10.0), Verdict::Unset);
    }

    #[test]
    fn an_absent_reference_decides_nothing() {
        let absent = Bar::at_most(0.6, &Reference::absent("redis"));
        let held = Bar::at_most(2.0, &unit(10.0));
        assert_eq!(judge(std::slice::from_ref(&absent), true, 1.0), Verdict::Skipped);
        assert_eq!(judge(&[absent.clone(), held.clone()], true, 1.0), Verdict::Met);
        assert_eq!(judge(&[absent, held], true, 40.0), Verdict::Missed(2.0));
    }

    #[test]
    fn a_failed_figure_misses() {
        let bars = [Bar::at_most(2.0, &unit(10.0)), Bar::at_most(1.0, &unit(10.0))];
        assert!(matches!(judge(&bars, true, f64::NAN), Verdict::Missed(_)));
        assert!(matches!(judge(&bars, false, f64::NAN), Verdict::Missed(_)));
    }

    #[test]
    fn text_shows_ratio_bars_and_verdict() {
        let figure = Figure::new("G2", "a pair", 9120.0, Scale::Ns)
            .per(&unit(8000.0))
            .must(Bar::at_most(2.2, &unit(8000.0)))
            .target(Bar::at_most(1.0, &unit(8000.0)))
            .note("p99 12 us");
        let text = figure.text();
        for part in ["9.12 us", "1.14 U2", "<= 2.2 U2: met", "<= 1 U2: missed by 1.14 x", "p99"] {
            assert!(text.contains(part), "{part} in {text}");
        }
    }

    #[test]
    fn json_is_one_valid_object_even_without_a_value() {
        let figure = Figure::new("G8", "bytes", f64::NAN, Scale::Bytes)
            .must(Bar::at_most(200.0, &Reference::absolute()))
            .per(&Reference::absent("redis"));
        let json = figure.json();
        assert!(!json.contains('\n'));
        let value: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(value["figure"], "G8");
        assert!(value["value"].is_null());
        assert_eq!(value["must"]["verdict"], "missed");
        assert_eq!(value["must"]["bars"][0]["limit"], 200.0);
        assert!(value["ratios"][0]["ratio"].is_null());
    }

    #[test]
    fn numbers_are_short() {
        assert_eq!(Scale::Ns.show(8.4), "8.40 ns");
        assert_eq!(Scale::Ns.show(9120.0), "9.12 us");
        assert_eq!(Scale::Ns.show(68_000_000.0), "68.0 ms");
        assert_eq!(Scale::PerSecond.show(1_250_000.0), "1.25 M/s");
        assert_eq!(Scale::PerSecond.show(21.0), "21.0 /s");
        assert_eq!(Scale::Bytes.show(96.4), "96 B");
    }
}
