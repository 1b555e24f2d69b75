//! A hostile client: it writes anything anywhere into the shared pages while the daemon's end
//! drains, answers and goes to sleep. No panic, no access outside, no endless loop.
#![no_main]

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;

use dlm_fuzz::Choices;
use dlm_ipc::layout::{
    Event, Geometry, LINE_BYTES, LostReason, Notice, RINGS_OFFSET, Reply, WORDS_OFFSET,
};
use dlm_ipc::ring::PushError;
use dlm_ipc::{ClientSide, DaemonSide};
use libfuzzer_sys::fuzz_target;

const GEOMETRY: Geometry = Geometry { submissions: 8, replies: 4, events: 4 };

fuzz_target!(|bytes: &[u8]| {
    let (mut daemon, descriptors) =
        DaemonSide::create(GEOMETRY, 1).expect("memory and descriptors");
    let [file, ..]: [OwnedFd; 4] = descriptors.into();
    let file = File::from(file);
    let mut choices = Choices::new(bytes);
    while turn(&mut daemon, &file, &mut choices).is_some() {}
    reopen(daemon, file);
});

/// One thing that the client or the daemon does; `None` at the end of the input.
fn turn(daemon: &mut DaemonSide, file: &File, choices: &mut Choices<'_>) -> Option<()> {
    match choices.below(8)? {
        0 => {
            // A control word becomes a small number, or any number.
            let line = usize::from(choices.below(12)?);
            let small = choices.byte()? % 2 == 0;
            let value = if small { u32::from(choices.byte()?) } else { choices.word()? };
            write(file, WORDS_OFFSET + line * LINE_BYTES, &value.to_ne_bytes());
        }
        1 => {
            // Anything anywhere.
            let offset = choices.word()? as usize % GEOMETRY.bytes();
            let count = usize::from(choices.byte()?).min(GEOMETRY.bytes() - offset);
            write(file, offset, choices.bytes(count));
        }
        2 => {
            // An entry, announced as an honest client would.
            let tail = choices.byte()?;
            let slot = usize::from(tail.wrapping_sub(1)) % GEOMETRY.submissions as usize;
            write(file, RINGS_OFFSET + slot * 128, choices.bytes(128));
            write(file, WORDS_OFFSET + LINE_BYTES, &u32::from(tail).to_ne_bytes());
        }
        3 => drain(daemon),
        4 => {
            let reply = Reply { result: 0, lkid: 1, tag: 2 };
            answer(daemon.replies.push(&reply));
            daemon.replies.flush().expect("our bell works");
        }
        5 => {
            let event = Event::new(&Notice::Blocking { lkid: 1, user: 2, mode: 3 });
            answer(daemon.events.push(&event));
            daemon.events.flush().expect("our bell works");
        }
        6 => {
            let _ = daemon.events.free();
            let _ = daemon.replies.prepare_wait_for_room() | daemon.events.prepare_wait_for_room();
        }
        _ => {
            daemon.page.set_lost(LostReason::Protocol);
            if daemon.submissions.prepare_sleep() {
                daemon.submissions.awake();
            }
        }
    }
    Some(())
}

/// Takes everything. Nobody writes meanwhile, so there is no more than the ring holds.
fn drain(daemon: &mut DaemonSide) {
    let mut taken = 0;
    while let Ok(Some(entry)) = daemon.submissions.pop() {
        if let Ok(operation) = entry.operation() {
            // The meaning survives; what an entry carries besides is dropped.
            let again =
                dlm_ipc::layout::Submission::new(&operation, entry.tag, entry.reply_wanted());
            assert_eq!(again.operation(), Ok(operation));
        }
        taken += 1;
        assert!(taken <= GEOMETRY.submissions, "more entries than the ring has");
    }
}

fn answer(pushed: Result<(), PushError>) {
    if let Err(PushError::Corrupt(corrupt)) = pushed {
        assert_eq!(corrupt.word, "head");
    }
}

/// The scribbled pages as a client of a mad daemon gets them: refused or mapped, nothing worse.
fn reopen(daemon: DaemonSide, file: File) {
    let bell = || OwnedFd::from(File::open("/dev/null").expect("a descriptor"));
    let opened = ClientSide::open([file.into(), bell(), bell(), bell()]);
    if let Ok(mut client) = opened {
        for _ in 0..2 * GEOMETRY.events {
            if let Ok(Some(event)) = client.events.pop() {
                let _ = event.notice();
            }
            let _ = client.replies.pop();
        }
        let _ = (client.page.lost(), client.page.lease_until());
    }
    drop(daemon);
}

fn write(file: &File, offset: usize, bytes: &[u8]) {
    file.write_all_at(bytes, offset as u64).expect("the file has that place");
}
