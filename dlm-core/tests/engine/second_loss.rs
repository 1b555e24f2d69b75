//! A lock that was moved once belongs to the new mastership, also when that one is lost in turn
//! (recovery.md 6.4).

use dlm_core::{Layout, LockFlags, Mode, NodeId, Status};

use crate::several::Several;

const NAMES: usize = 60;

#[test]
fn an_unlock_in_flight_to_the_second_lost_master_keeps_its_bytes() {
    let mut several = Several::new(4, &Layout::default());
    several.install(&[0, 1, 2, 3], &[]);
    let name = |number: usize| format!("name-{number}");
    let vb = LockFlags::VALBLK;
    // Node 3 takes each name first and masters it; node 2 will write, node 1 only keeps the name.
    let writers: Vec<_> = (0..NAMES)
        .map(|number| {
            several.lock(2, &name(number), Mode::NL, LockFlags(0));
            several.lock(0, &name(number), Mode::NL, LockFlags(0));
            several.lock(1, &name(number), Mode::EX, vb)
        })
        .collect();
    several.kill(2);
    several.install(&[0, 1, 3], &[2]);
    several.safe(2);
    // A lock that was asked for of the second master carries the number of its mastership.
    let moved: Vec<_> =
        (0..NAMES).filter(|n| several.master(1, &name(*n)) == Some(NodeId(1))).collect();
    assert!(moved.len() > 5, "node 1 masters {} names", moved.len());
    for number in &moved {
        several.lock(3, &name(*number), Mode::NL, vb);
    }
    several.hold = true;
    for number in &moved {
        several.unlock(1, writers[*number], Some([9; 32]));
    }
    several.kill(0);
    several.hold = false;
    several.install(&[1, 3], &[0]);
    several.safe(0);
    for number in moved {
        let cast = several.last_cast(1, writers[number]).map(|cast| cast.status);
        assert_eq!(cast, Some(Status::Unlocked), "{}", name(number));
        let reader = several.lock(3, &name(number), Mode::PR, vb);
        let cast = several.last_cast(3, reader).expect("nobody holds it");
        assert_eq!(cast.value, Some([9; 32]), "{}", name(number));
    }
}
