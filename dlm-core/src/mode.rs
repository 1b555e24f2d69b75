//! The six lock modes and their tables (semantics.md 1.1 to 1.4).

/// A lock mode. The order of the numbers is the interface's (`LKM_NLMODE` = 0 …).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum Mode {
    /// Null: interest only, compatible with everything.
    NL = 0,
    /// Concurrent read.
    CR = 1,
    /// Concurrent write.
    CW = 2,
    /// Protected read: the usual shared lock.
    PR = 3,
    /// Protected write: one writer among concurrent readers.
    PW = 4,
    /// Exclusive.
    EX = 5,
}

/// What a transition does with the value block (semantics.md 1.4).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ValueMove {
    /// The resource's block is copied to the caller.
    Read,
    /// The caller's block is stored in the resource.
    Write,
    /// Neither.
    Keep,
}

/// Bit m of entry n: mode m may coexist with mode n.
const COMPATIBLE: [u8; 6] = [0b11_1111, 0b01_1111, 0b00_0111, 0b00_1011, 0b00_0011, 0b00_0001];

/// Bit m of entry n: a conversion n to m may be asked for with QUECVT.
const QUECVT: [u8; 6] = [0b11_1110, 0b11_1100, 0b11_1000, 0b11_0100, 0b10_0000, 0b00_0000];

impl Mode {
    /// All modes in the order of their numbers.
    pub const ALL: [Self; 6] = [Self::NL, Self::CR, Self::CW, Self::PR, Self::PW, Self::EX];

    /// The mode of an interface number, if it is one of the six.
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number)).copied()
    }

    /// Whether two locks of these modes may be granted together; symmetric (1.1).
    pub const fn compatible(self, other: Self) -> bool {
        COMPATIBLE[self as usize] & (1 << other as u8) != 0
    }

    /// The modes compatible with this one, as a bit set by mode number.
    pub(crate) const fn compatible_set(self) -> u8 {
        COMPATIBLE[self as usize]
    }

    /// PR to CW or CW to PR: neither up nor down (1.2).
    pub const fn is_middle(self, to: Self) -> bool {
        matches!((self, to), (Self::PR, Self::CW) | (Self::CW, Self::PR))
    }

    /// Whether a conversion to `to` only gives up rights (1.2).
    pub fn is_down(self, to: Self) -> bool {
        to < self && !self.is_middle(to)
    }

    /// Whether QUECVT allows this conversion (1.3).
    pub const fn quecvt_allows(self, to: Self) -> bool {
        QUECVT[self as usize] & (1 << to as u8) != 0
    }

    /// The two-letter name.
    pub const fn name(self) -> &'static str {
        ["NL", "CR", "CW", "PR", "PW", "EX"][self as usize]
    }
}

/// The value-block operation of a grant in mode `to`; `from` is the granted mode before, `None` for
/// a new request (1.4).
pub(crate) fn value_move(from: Option<Mode>, to: Mode) -> ValueMove {
    use Mode::{EX, NL, PW};
    match from {
        None | Some(NL) => ValueMove::Read,
        Some(PW) if to == EX => ValueMove::Read,
        Some(PW | EX) => ValueMove::Write,
        Some(from) if to >= from => ValueMove::Read,
        Some(_) => ValueMove::Keep,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compatibility_matrix_is_the_published_one() {
        let rows = ["111111", "111110", "111000", "110100", "110000", "100000"];
        for (a, row) in Mode::ALL.iter().zip(rows) {
            for (b, cell) in Mode::ALL.iter().zip(row.chars()) {
                assert_eq!(a.compatible(*b), cell == '1', "{a:?} {b:?}");
                assert_eq!(a.compatible(*b), b.compatible(*a), "symmetric {a:?} {b:?}");
            }
        }
    }

    #[test]
    fn quecvt_table_is_the_published_one() {
        let rows = ["-yyyyy", "--yyyy", "---yyy", "--y-yy", "-----y", "------"];
        for (a, row) in Mode::ALL.iter().zip(rows) {
            for (b, cell) in Mode::ALL.iter().zip(row.chars()) {
                assert_eq!(a.quecvt_allows(*b), cell == 'y', "{a:?} {b:?}");
            }
        }
    }

    #[test]
    fn value_table_is_the_published_one() {
        let rows = ["RRRRRR", "-RRRRR", "--RRRR", "---RRR", "WWWWWR", "WWWWWW"];
        for (a, row) in Mode::ALL.iter().zip(rows) {
            for (b, cell) in Mode::ALL.iter().zip(row.chars()) {
                let want = match cell {
                    'R' => ValueMove::Read,
                    'W' => ValueMove::Write,
                    _ => ValueMove::Keep,
                };
                assert_eq!(value_move(Some(*a), *b), want, "{a:?} {b:?}");
                assert_eq!(value_move(None, *b), ValueMove::Read);
            }
        }
    }
}
