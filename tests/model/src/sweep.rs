//! Scenarios put together from lists: what two survivors do, what a third node is to the name, what
//! befalls it, and where the directory is. Longer than what tests can afford; for a person's evening.

use dlm_core::{LockFlags, Mode};

use crate::script::{
    Fault, Scenario, Step, cancel, convert, convert_with, key_with, lock, lock_with, unlock,
    unlock_with,
};

const BYTES: LockFlags = LockFlags::VALBLK;

/// What a client may do with one lock.
fn programs() -> Vec<Vec<Step>> {
    let force = unlock_with(0, LockFlags::FORCEUNLOCK, 0).anytime();
    vec![
        vec![lock(0, Mode::EX), unlock(0)],
        vec![lock(0, Mode::PR), unlock(0)],
        vec![lock_with(0, Mode::EX, BYTES), convert_with(0, Mode::NL, BYTES, 7), unlock(0)],
        vec![lock(0, Mode::PR), convert_with(0, Mode::EX, LockFlags::CONVDEADLK, 0), unlock(0)],
        vec![lock(0, Mode::PR), convert(0, Mode::CW), unlock(0)],
        vec![lock(0, Mode::CW), convert_with(0, Mode::EX, LockFlags::ALTPR, 0), unlock(0)],
        vec![lock(0, Mode::EX), cancel(0), force],
        vec![lock_with(0, Mode::EX, BYTES), unlock_with(0, BYTES, 5)],
        vec![
            lock(0, Mode::NL),
            convert(0, Mode::EX),
            cancel(0),
            unlock_with(0, LockFlags::FORCEUNLOCK, 0),
        ],
        vec![lock_with(0, Mode::EX, LockFlags::NOQUEUE), unlock(0)],
        vec![lock(0, Mode::PR), convert(0, Mode::NL), convert(0, Mode::PR), unlock(0)],
    ]
}

fn fates() -> Vec<(Vec<u32>, Vec<Fault>)> {
    use Fault::{End, Exclude, Join, Lose, Renumber};
    let all = vec![1, 2, 3];
    vec![
        (all.clone(), vec![]),
        (all.clone(), vec![Lose(3)]),
        (all.clone(), vec![Exclude(3), End(3)]),
        (all.clone(), vec![Lose(3), Join(3)]),
        (all.clone(), vec![Lose(3), Lose(2)]),
        (all.clone(), vec![Lose(3), Renumber]),
        (all.clone(), vec![Renumber]),
        (vec![1, 2], vec![Join(3)]),
        (vec![1, 2], vec![Join(3), Lose(3)]),
        (all.clone(), vec![Exclude(3), Lose(2), End(3)]),
        (all, vec![Exclude(3), End(3), Join(3)]),
    ]
}

/// How many there are.
pub fn count() -> usize {
    programs().len() * programs().len() * fates().len() * 4 * 4
}

/// One of them.
pub fn scenario(number: usize) -> Scenario {
    let (programs, fates) = (programs(), fates());
    let mut rest = number;
    let mut pick = |count: usize| {
        let at = rest % count;
        rest /= count;
        at
    };
    let (first, faults) = fates[pick(fates.len())].clone();
    let key = match pick(4) {
        0 => key_with(&[(&[1, 2, 3], 1), (&[1, 2], 1)]),
        1 => key_with(&[(&[1, 2, 3], 3), (&[1, 2], 1)]),
        2 => key_with(&[(&[1, 2, 3], 3), (&[1, 2], 2)]),
        _ => key_with(&[(&[1, 2, 3], 2), (&[1, 2], 2)]),
    };
    let third = pick(4);
    let (one, two) = (pick(programs.len()), pick(programs.len()));
    let mut scenario = Scenario::new("sweep");
    scenario.key = key;
    let three = first.contains(&3);
    scenario.first = first;
    scenario.faults = faults;
    scenario = scenario.program(1, &programs[one]).program(2, &programs[two]);
    match third {
        0 if three => scenario.given(3, &[lock(8, Mode::NL)]),
        1 if three => scenario.given(3, &[lock(8, Mode::PR)]).program(3, &[unlock(8)]),
        2 => scenario.given(1, &[lock(8, Mode::NL)]),
        _ => scenario.program(3, &[lock(0, Mode::EX), unlock(0)]),
    }
}
