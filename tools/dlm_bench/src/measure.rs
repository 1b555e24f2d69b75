//! How long to measure, and what a series of durations says.
//!
//! Percentiles come from a histogram with three digits, so a long run costs no more memory than a
//! short one; a mean is used only where single events are shorter than reading the clock.

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

/// Longer events count as this long: an hour.
const LONGEST_NS: u64 = 3_600_000_000_000;

/// How much work a run puts into each figure.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    /// A tenth of the time and of the locks, for a look; the figures that count come without it.
    pub quick: bool,
}

impl Plan {
    /// Time given to a unit, each time it is measured.
    pub(crate) fn unit_time(self) -> Duration {
        Duration::from_millis(if self.quick { 100 } else { 1000 })
    }

    /// Time given to a rate: fairness needs three seconds.
    pub(crate) fn rate_time(self) -> Duration {
        Duration::from_millis(if self.quick { 300 } else { 3000 })
    }

    /// Time of a look at an idle daemon.
    pub(crate) fn idle_time(self) -> Duration {
        Duration::from_secs(if self.quick { 1 } else { 10 })
    }

    /// `full`, or a tenth of it in a quick run.
    pub(crate) fn count(self, full: usize) -> usize {
        if self.quick { full / 10 } else { full }
    }

    /// Memory of a large victim, in MiB.
    pub(crate) fn victim_mib(self) -> usize {
        if self.quick { 128 } else { 1024 }
    }
}

/// Durations of single events.
pub(crate) struct Latency {
    histogram: Histogram<u64>,
}

impl Latency {
    /// No events yet.
    pub(crate) fn new() -> Self {
        let histogram = Histogram::new_with_bounds(1, LONGEST_NS, 3);
        Self { histogram: histogram.expect("the bounds are in order and three digits allowed") }
    }

    /// Adds one event of `ns` nanoseconds.
    pub(crate) fn record(&mut self, ns: u64) {
        self.histogram.saturating_record(ns.max(1));
    }

    /// How many events.
    pub(crate) fn len(&self) -> u64 {
        self.histogram.len()
    }

    /// The duration that `percent` of the events did not exceed, in nanoseconds; 0 without events.
    pub(crate) fn percentile(&self, percent: f64) -> f64 {
        self.histogram.value_at_percentile(percent) as f64
    }

    /// The median, in nanoseconds.
    pub(crate) fn p50(&self) -> f64 {
        self.percentile(50.0)
    }
}

/// Times `event` again and again for `time`, at least `least` times, after a tenth of that as
/// warm-up.
pub(crate) fn repeat<E>(
    time: Duration,
    least: u64,
    mut event: impl FnMut() -> Result<(), E>,
) -> Result<Latency, E> {
    let warm = Instant::now();
    while warm.elapsed() < time / 10 {
        event()?;
    }
    let mut latency = Latency::new();
    let start = Instant::now();
    let mut before = start;
    while before.duration_since(start) < time || latency.len() < least {
        event()?;
        let after = Instant::now();
        latency.record(after.duration_since(before).as_nanos() as u64);
        before = after;
    }
    Ok(latency)
}

/// Mean nanoseconds of one of `batch` events that `events` does in a row: the median over batches.
pub(crate) fn mean_of_batches(time: Duration, batch: u64, mut events: impl FnMut()) -> f64 {
    let latency = repeat(time, 10, || {
        events();
        Ok::<(), std::convert::Infallible>(())
    });
    match latency {
        Ok(latency) => latency.p50() / batch as f64,
        Err(never) => match never {},
    }
}

/// The middle value; of an even count the mean of the two middle ones; NaN of nothing.
pub(crate) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let half = sorted.len() / 2;
    match sorted.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => sorted[half],
        _ => (sorted[half - 1] + sorted[half]) / 2.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_of_the_events() {
        let mut latency = Latency::new();
        (1..=1000).for_each(|ns| latency.record(ns));
        assert_eq!(latency.len(), 1000);
        assert_eq!(latency.p50(), 500.0);
        assert_eq!(latency.percentile(99.0), 990.0);
    }

    #[test]
    fn median_of_odd_even_and_none() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        assert!(median(&[]).is_nan());
    }

    #[test]
    fn repeat_does_at_least_so_many() {
        let mut events = 0u64;
        let latency = repeat(Duration::ZERO, 17, || {
            events += 1;
            Ok::<(), ()>(())
        });
        assert_eq!(latency.unwrap().len(), 17);
        assert_eq!(events, 17);
    }

    #[test]
    fn a_failing_event_ends_the_series() {
        assert_eq!(repeat(Duration::ZERO, 1, || Err(5)).err(), Some(5));
    }
}
