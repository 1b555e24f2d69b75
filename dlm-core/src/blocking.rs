//! Who is told what: blocking callbacks on the master (3.5) and the filters at delivery (5.2).

use crate::Mode;
use crate::seeded::bug;

/// Why holders are told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Want {
    /// One request that could not be granted: the request rule.
    Request(Mode),
    /// The strongest blocked mode after a pass, and whether a CW request is among the blocked.
    Pass {
        /// Strongest blocked mode.
        high: Mode,
        /// A blocked request asks for CW.
        cw: bool,
    },
}

impl Want {
    /// What a holder's bast memory becomes once it is told.
    pub(crate) const fn memory(self) -> Mode {
        match self {
            Self::Request(mode) => mode,
            Self::Pass { high, .. } => high,
        }
    }

    /// Whether a holder is to be told, and of which mode. PR and CW exclude each other although
    /// neither is stronger: for this pair the memory does not suppress repeats.
    pub(crate) fn tells(self, granted: Mode, told: Mode) -> Option<Mode> {
        let new = |mode: Mode| {
            let new = told < mode || bug("memory-ignored");
            (new && !granted.compatible(mode)).then_some(mode)
        };
        match self {
            Self::Request(mode) if granted.is_middle(mode) && !bug("middle-modes-once") => {
                (told < Mode::EX).then_some(mode)
            }
            Self::Request(mode) => new(mode),
            Self::Pass { high, cw } if granted == Mode::PR && cw && !bug("pass-ignores-cw") => {
                let mode = if high == Mode::PR { Mode::CW } else { high };
                (told < Mode::EX).then_some(mode)
            }
            Self::Pass { high, .. } => new(high),
        }
    }
}

/// The filters of 5.2: whether a callback for `mode` reaches the owner, given the mode of its last
/// completion and the blocking callback directly before.
pub(crate) fn delivered(mode: Mode, cast: Option<Option<Mode>>, last: Option<Mode>) -> bool {
    let stale = match cast {
        None => false,
        Some(None) => true,
        Some(Some(held)) => held.compatible(mode),
    };
    let redundant = last.is_some_and(|last| last == mode || (last > mode && last > Mode::PR));
    let stale = stale && !bug("stale-notice-delivered");
    let redundant = redundant && !bug("redundant-notice-delivered");
    !stale && !redundant
}
