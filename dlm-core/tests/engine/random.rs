//! Random sequences of every operation, on the engine and on the naive model: same answers in the
//! same order, same table after every step. A failure prints the shortest sequence found, in the
//! notation of the tables, so that it can become a case there.
//!
//! `PROPTEST_CASES` asks for more or fewer sequences.

use dlm_core::LockFlags;
use proptest::prelude::*;
use proptest::sample::select;

use crate::duel::Duel;
use crate::operation::{CLIENTS, End, NAMES, Operation, Wish};

const CASES: u32 = 400;
const STEPS_MAX: usize = 40;
/// How far back a lock may lie that an operation names.
const BACK_MAX: usize = 7;

fn flags(choices: &'static [LockFlags]) -> impl Strategy<Value = LockFlags> {
    // Mostly none or one flag; sometimes two.
    let none = Just(LockFlags(0));
    let one = select(choices);
    let two = (select(choices), select(choices)).prop_map(|(a, b)| a | b);
    prop_oneof![4 => none, 5 => one, 2 => two]
}

const REQUEST_FLAGS: &[LockFlags] = &[
    LockFlags::NOQUEUE,
    LockFlags(LockFlags::NOQUEUE.0 | LockFlags::NOQUEUEBAST.0),
    LockFlags::VALBLK,
    LockFlags::PERSISTENT,
    LockFlags::EXPEDITE,
    LockFlags::HEADQUE,
    LockFlags::NOORDER,
    LockFlags::ALTPR,
    LockFlags::ALTCW,
    LockFlags::IVVALBLK,
    LockFlags::NODLCKBLK,
    LockFlags::TIMEOUT,
    LockFlags::QUECVT,
    LockFlags(0x8000_0000),
];

const CONVERT_FLAGS: &[LockFlags] = &[
    LockFlags::NOQUEUE,
    LockFlags(LockFlags::NOQUEUE.0 | LockFlags::NOQUEUEBAST.0),
    LockFlags::VALBLK,
    LockFlags::VALBLK,
    LockFlags::PERSISTENT,
    LockFlags::QUECVT,
    LockFlags::QUECVT,
    LockFlags::CONVDEADLK,
    LockFlags::CONVDEADLK,
    LockFlags::NODLCKWT,
    LockFlags::HEADQUE,
    LockFlags::NOORDER,
    LockFlags::ALTPR,
    LockFlags::ALTCW,
    LockFlags::IVVALBLK,
    LockFlags::TIMEOUT,
    LockFlags::EXPEDITE,
];

const UNLOCK_FLAGS: &[LockFlags] = &[
    LockFlags::CANCEL,
    LockFlags::CANCEL,
    LockFlags::VALBLK,
    LockFlags::IVVALBLK,
    LockFlags::FORCEUNLOCK,
    LockFlags::NOQUEUE,
];

fn wish(choices: &'static [LockFlags]) -> impl Strategy<Value = Wish> {
    let mode = prop_oneof![30 => 0..6u8, 1 => Just(6u8)];
    let nobast = prop_oneof![6 => Just(false), 1 => Just(true)];
    (mode, flags(choices), nobast, 0..4u8).prop_map(|(mode, flags, nobast, limit_cs)| Wish {
        mode,
        flags,
        nobast,
        limit_cs,
    })
}

fn adoption() -> impl Strategy<Value = Operation> {
    let flags = select(&[LockFlags(0), LockFlags::PERSISTENT, LockFlags::NOQUEUE][..]);
    (0..CLIENTS, 0..NAMES.len(), 0..6u8, flags).prop_map(|(client, name, mode, flags)| {
        Operation::Adopt { client, name, wish: Wish { mode, flags, ..Wish::default() } }
    })
}

fn value() -> impl Strategy<Value = Option<u8>> {
    prop_oneof![1 => Just(None), 4 => (1..5u8).prop_map(Some)]
}

fn operation() -> impl Strategy<Value = Operation> {
    let lock = (0..CLIENTS, 0..NAMES.len(), wish(REQUEST_FLAGS))
        .prop_map(|(client, name, wish)| Operation::Lock { client, name, wish });
    let convert = (0..BACK_MAX, wish(CONVERT_FLAGS), value())
        .prop_map(|(back, wish, value)| Operation::Convert { back, wish, value });
    let unlock = (0..BACK_MAX, flags(UNLOCK_FLAGS), value())
        .prop_map(|(back, flags, value)| Operation::Unlock { back, flags, value });
    let stranger =
        (0..CLIENTS, 0..BACK_MAX).prop_map(|(client, back)| Operation::Stranger { client, back });
    let deadlock = (0..BACK_MAX).prop_map(|back| Operation::DeadlockCancel { back });
    let how = select(&[End::Close, End::Die, End::PurgeOwn][..]);
    let end = (0..CLIENTS, how).prop_map(|(client, how)| Operation::End { client, how });
    let whom = proptest::option::of(0..CLIENTS);
    let purge = (proptest::option::of(0..CLIENTS), whom)
        .prop_map(|(by, of)| Operation::PurgeOrphans { by, of });
    // Now and then long enough for marks of unused names to be forgotten.
    let wait = prop_oneof![9 => 0..40u64, 1 => Just(10_000u64)];
    let wait = wait.prop_map(|ms| Operation::Wait { ms });
    prop_oneof![
        30 => lock,
        34 => convert,
        16 => unlock,
        2 => stranger,
        3 => deadlock,
        3 => end,
        2 => purge,
        4 => adoption(),
        4 => wait,
    ]
}

/// A sequence that leaves it to the transcript to say what it does.
#[derive(Clone)]
struct Steps(Vec<Operation>);

impl std::fmt::Debug for Steps {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} operations, as above", self.0.len())
    }
}

fn steps(
    operation: impl Strategy<Value = Operation>,
    steps_max: usize,
) -> impl Strategy<Value = Steps> {
    proptest::collection::vec(operation, 1..steps_max).prop_map(Steps)
}

fn agree(steps: Steps) -> Result<(), TestCaseError> {
    let mut duel = Duel::new();
    for step in steps.0 {
        duel.step(step).map_err(TestCaseError::fail)?;
    }
    duel.finish().map_err(TestCaseError::fail)
}

fn config() -> ProptestConfig {
    // A failure becomes a case in tests/tables, not a file of seeds.
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok());
    let cases = cases.unwrap_or(CASES);
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn engine_and_model_agree(steps in steps(operation(), STEPS_MAX)) {
        agree(steps)?;
    }

    /// One name, no deaths: deep queues and crossing conversions.
    #[test]
    fn engine_and_model_agree_on_one_name(steps in steps(one_name(), 2 * STEPS_MAX)) {
        agree(steps)?;
    }
}

fn one_name() -> impl Strategy<Value = Operation> {
    let lock = wish(REQUEST_FLAGS).prop_map(|wish| Operation::Lock {
        client: 0,
        name: 0,
        wish: without_limit(wish),
    });
    let convert = (0..BACK_MAX, wish(CONVERT_FLAGS), value()).prop_map(|(back, wish, value)| {
        Operation::Convert { back, wish: without_limit(wish), value }
    });
    let unlock = (0..BACK_MAX, flags(UNLOCK_FLAGS), value())
        .prop_map(|(back, flags, value)| Operation::Unlock { back, flags, value });
    prop_oneof![20 => lock, 40 => convert, 12 => unlock]
}

fn without_limit(wish: Wish) -> Wish {
    Wish { limit_cs: 0, ..wish }
}
