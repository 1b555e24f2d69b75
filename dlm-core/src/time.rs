//! Time as the driver tells it.

use core::time::Duration;

/// A moment of the driver's monotonic clock, in nanoseconds since any fixed start.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Instant(pub u64);

impl Instant {
    /// The moment `span` later; saturates at the end of time.
    pub fn after(self, span: Duration) -> Self {
        let nanos = u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
        Self(self.0.saturating_add(nanos))
    }

    /// How long ago `earlier` was; zero if it lies ahead.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// A moment kept in few bits, for ages in listings: steps of 17 ms, wrapping after two years.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Coarse(u32);

impl Coarse {
    const STEP_BITS: u32 = 24;
}

impl From<Instant> for Coarse {
    fn from(at: Instant) -> Self {
        Self((at.0 >> Self::STEP_BITS) as u32)
    }
}

impl From<Coarse> for Instant {
    fn from(at: Coarse) -> Self {
        Self(u64::from(at.0) << Coarse::STEP_BITS)
    }
}

/// Why the core wants to be woken at a deadline.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reason {
    /// A request's time limit ends (D12).
    RequestLimit,
    /// What others said about many names is taken in.
    Heard,
    /// Work over many names goes on.
    Work,
    /// A name nobody uses any more is forgotten.
    IdleName,
}
