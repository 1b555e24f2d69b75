//! Every small queue: all sequences of a few locks, modes and flags, plus one operation, on the
//! engine and on the model. What random sequences hit by luck is here hit for certain.
//!
//! `Choices` makes all sequences of decisions one after the other: a plain program asks it for the
//! next number, and runs once per sequence until there is no further one.

use dlm_core::{LockFlags, Mode};

use crate::duel::Duel;
use crate::operation::{Operation, Wish};

const NONE: LockFlags = LockFlags(0);
const TRY: LockFlags = LockFlags(LockFlags::NOQUEUE.0 | LockFlags::NOQUEUEBAST.0);

/// An odometer over the decisions of one run.
#[derive(Default)]
struct Choices {
    /// Decision and number of possibilities, in the order asked.
    digits: Vec<(usize, usize)>,
    at: usize,
}

impl Choices {
    /// The next decision, below `bound`.
    fn below(&mut self, bound: usize) -> usize {
        if self.at == self.digits.len() {
            self.digits.push((0, bound));
        }
        let (digit, known) = self.digits[self.at];
        assert_eq!(known, bound, "a run must ask the same questions for the same answers");
        self.at += 1;
        digit
    }

    fn of<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.below(list.len())]
    }

    fn mode(&mut self) -> u8 {
        self.below(Mode::ALL.len()) as u8
    }

    /// Moves on to the next sequence; false after the last.
    fn next(&mut self) -> bool {
        self.at = 0;
        while let Some((digit, bound)) = self.digits.pop() {
            if digit + 1 < bound {
                self.digits.push((digit + 1, bound));
                return true;
            }
        }
        false
    }
}

/// Runs all sequences of `program`, which returns the operations of one.
fn all(mut program: impl FnMut(&mut Choices) -> Vec<Operation>) -> usize {
    let (mut choices, mut duel) = (Choices::default(), Duel::new());
    duel.recording = false;
    let mut count = 0;
    loop {
        let operations = program(&mut choices);
        if run(&mut duel, &operations).is_err() {
            // Once more, alone and with everything written down.
            let mut alone = Duel::new();
            let error = run(&mut alone, &operations).err();
            panic!(
                "{}",
                error.unwrap_or_else(|| format!("differs only in company: {operations:?}"))
            );
        }
        count += 1;
        if !choices.next() {
            return count;
        }
    }
}

/// One sequence, then everybody unlocks in the order of asking, so that each grant is seen.
fn run(duel: &mut Duel, operations: &[Operation]) -> Result<(), String> {
    duel.thorough = false;
    for operation in operations {
        duel.step(*operation)?;
    }
    duel.compare_tables()?;
    duel.drain()
}

fn request(mode: u8, flags: LockFlags) -> Operation {
    Operation::Lock { client: 0, name: 0, wish: Wish { mode, flags, ..Wish::default() } }
}

/// A conversion of the lock `back` places from the newest.
fn convert(back: usize, mode: u8, flags: LockFlags) -> Operation {
    let wish = Wish { mode, flags, ..Wish::default() };
    let value = flags.has(LockFlags::VALBLK).then_some(back as u8 + 1);
    Operation::Convert { back, wish, value }
}

fn unlock(back: usize, flags: LockFlags) -> Operation {
    let value = flags.has(LockFlags::VALBLK).then_some(9);
    Operation::Unlock { back, flags, value }
}

#[test]
fn three_requests_and_one_operation() {
    const FLAGS: &[LockFlags] = &[
        NONE,
        LockFlags::NOORDER,
        LockFlags::HEADQUE,
        TRY,
        LockFlags::ALTPR,
        LockFlags::ALTCW,
        LockFlags::EXPEDITE,
    ];
    let count = all(|choices| {
        let mut operations = vec![request(choices.mode(), NONE)];
        for _ in 0..2 {
            operations.push(request(choices.mode(), choices.of(FLAGS)));
        }
        operations.push(one_operation(choices));
        operations
    });
    assert_eq!(count, 6 * 42 * 42 * (3 + 3 + 6 + 3 * 6));
}

/// An operation on one of three locks, or a fourth request.
fn one_operation(choices: &mut Choices) -> Operation {
    match choices.below(4) {
        0 => unlock(choices.below(3), NONE),
        1 => unlock(choices.below(3), LockFlags::CANCEL),
        2 => request(choices.mode(), NONE),
        _ => convert(choices.below(3), choices.mode(), NONE),
    }
}

/// Two modes that can be granted together, as two requests.
fn granted_pair(choices: &mut Choices) -> Vec<Operation> {
    let modes: Vec<(u8, u8)> = Mode::ALL
        .iter()
        .flat_map(|a| Mode::ALL.iter().map(move |b| (*a, *b)))
        .filter(|(a, b)| a.compatible(*b))
        .map(|(a, b)| (a as u8, b as u8))
        .collect();
    let (a, b) = choices.of(&modes);
    vec![request(a, NONE), request(b, NONE)]
}

#[test]
fn crossing_conversions_of_two_holders_beside_a_waiter() {
    const FIRST: &[LockFlags] = &[NONE, LockFlags::NODLCKWT, LockFlags::CONVDEADLK];
    const SECOND: &[LockFlags] = &[
        NONE,
        LockFlags::QUECVT,
        LockFlags::CONVDEADLK,
        LockFlags::NODLCKWT,
        LockFlags::HEADQUE,
        TRY,
        LockFlags::ALTPR,
        LockFlags::ALTCW,
    ];
    const WAITER: &[LockFlags] = &[NONE, LockFlags::NOORDER];
    let count = all(|choices| {
        let mut operations = granted_pair(choices);
        operations.push(convert(1, choices.mode(), choices.of(FIRST)));
        operations.push(request(choices.mode(), choices.of(WAITER)));
        operations.push(convert(1, choices.mode(), choices.of(SECOND)));
        operations
    });
    assert!(count > 100_000, "{count}");
}

#[test]
fn three_conversions_of_three_holders() {
    const FLAGS: &[LockFlags] = &[
        NONE,
        LockFlags::QUECVT,
        LockFlags(LockFlags::QUECVT.0 | LockFlags::NOORDER.0),
        LockFlags::CONVDEADLK,
        LockFlags::NODLCKWT,
        LockFlags(LockFlags::QUECVT.0 | LockFlags::ALTPR.0),
    ];
    let count = all(|choices| {
        let mut operations = granted_pair(choices);
        operations.push(request(choices.of(&[0, 1, 3]), NONE));
        operations.push(convert(2, choices.of(&[2, 3, 4, 5]), NONE));
        operations.push(convert(1, choices.mode(), choices.of(FLAGS)));
        operations.push(convert(0, choices.mode(), choices.of(&[NONE, LockFlags::CONVDEADLK])));
        operations
    });
    assert!(count > 100_000, "{count}");
}

#[test]
fn every_way_of_a_value_block() {
    const WITH: &[LockFlags] = &[
        NONE,
        LockFlags::VALBLK,
        LockFlags::IVVALBLK,
        LockFlags(LockFlags::VALBLK.0 | LockFlags::IVVALBLK.0),
    ];
    let (mut choices, mut count) = (Choices::default(), 0);
    loop {
        // A lock that stays, then a life of another, then what a reader and a kept mode see.
        let mut operations = vec![request(0, choices.of(&WITH[..2]))];
        operations.push(request(choices.mode(), choices.of(&WITH[..2])));
        for _ in 0..2 {
            operations.push(convert(0, choices.mode(), choices.of(&WITH[..3])));
        }
        operations.push(unlock(0, choices.of(WITH)));
        operations.extend([request(1, LockFlags::VALBLK), convert(2, 0, NONE)]);
        operations.push(convert(0, 0, NONE));
        // Marks outlive their last lock for a while, so each sequence has a node of its own.
        let mut duel = Duel::new();
        run(&mut duel, &operations).unwrap_or_else(|error| panic!("{error}"));
        count += 1;
        if !choices.next() {
            break;
        }
    }
    assert_eq!(count, 2 * 6 * 2 * (6 * 3) * (6 * 3) * 4);
}
