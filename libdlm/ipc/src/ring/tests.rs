//! Rings between the two sides of a page set, by the book and against a liar.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use super::*;
use crate::layout::{Event, Geometry, Notice, Reply, RingKind, Submission};
use crate::{ClientSide, DaemonSide};

/// Far longer than anything here takes; a hang fails instead of blocking the run.
const HANG: Duration = Duration::from_secs(60);

const SMALL: Geometry = Geometry { submissions: 4, replies: 2, events: 4 };

fn sides(geometry: Geometry) -> (DaemonSide, ClientSide) {
    let (daemon, descriptors) = DaemonSide::create(geometry, 3).unwrap();
    (daemon, ClientSide::open(descriptors.into()).unwrap())
}

fn reply(tag: u64) -> Reply {
    Reply { result: 0, lkid: tag as u32, tag }
}

fn submission(tag: u64) -> Submission {
    Submission::new(&crate::layout::Operation::Purge { node: 1, pid: 2 }, tag, true)
}

/// Both ends of a ring as after `count` entries.
fn age<T: Entry>(producer: &mut Producer<T>, consumer: &mut Consumer<T>, count: u32) {
    (producer.tail, producer.published, producer.head_seen) = (count, count, count);
    (consumer.head, consumer.tail_seen) = (count, count);
    producer.ring.words().publish(count);
    producer.ring.words().retire(count);
}

#[test]
fn entries_arrive_whole_and_in_order_also_where_the_counters_wrap() {
    let (mut daemon, mut client) = sides(SMALL);
    age(&mut client.submissions, &mut daemon.submissions, u32::MAX - 2);
    for tag in 0..20 {
        let sent = submission(tag);
        client.submissions.push(&sent).unwrap();
        client.submissions.publish();
        assert_eq!(daemon.submissions.pop(), Ok(Some(sent)));
        assert_eq!(daemon.submissions.pop(), Ok(None));
    }
}

#[test]
fn a_full_ring_refuses_and_goes_on_when_there_is_room() {
    let (mut daemon, mut client) = sides(SMALL);
    age(&mut daemon.events, &mut client.events, u32::MAX - 1);
    let event = |user| Event::new(&Notice::Blocking { lkid: 1, user, mode: 5 });
    for user in 0..4 {
        assert_eq!(daemon.events.free(), Ok(4 - user as u32));
        daemon.events.push(&event(user)).unwrap();
    }
    assert_eq!(daemon.events.push(&event(4)), Err(PushError::Full));
    assert_eq!(client.events.pop(), Ok(None), "nothing is visible before it is published");
    daemon.events.flush().unwrap();
    assert_eq!(client.events.available(), Ok(4));
    assert_eq!(client.events.pop(), Ok(Some(event(0))));
    assert_eq!(daemon.events.free(), Ok(1));
    daemon.events.push(&event(4)).unwrap();
    daemon.events.flush().unwrap();
    for user in 1..5 {
        assert_eq!(client.events.pop(), Ok(Some(event(user))));
    }
    assert_eq!(client.events.pop(), Ok(None));
}

#[test]
fn a_burst_rings_once_and_only_for_a_sleeper() {
    let (mut daemon, mut client) = sides(Geometry::DEFAULT);
    daemon.replies.push(&reply(1)).unwrap();
    assert!(!daemon.replies.flush().unwrap(), "a fresh consumer is awake");
    assert!(!client.replies.prepare_sleep(), "something is there");
    assert_eq!(client.replies.pop(), Ok(Some(reply(1))));
    assert!(client.replies.prepare_sleep());
    for tag in 0..5 {
        daemon.replies.push(&reply(tag)).unwrap();
    }
    assert!(daemon.replies.flush().unwrap());
    assert!(!daemon.replies.flush().unwrap(), "nothing new");
    daemon.replies.push(&reply(5)).unwrap();
    assert!(!daemon.replies.flush().unwrap(), "rung already");
    assert!(client.reply_watch.wait(Some(HANG)).unwrap().bell);
    assert!(!client.reply_watch.wait(Some(Duration::ZERO)).unwrap().bell);
    assert!(!client.event_watch.wait(Some(Duration::ZERO)).unwrap().bell, "the other bell");
}

#[test]
fn who_waits_for_room_is_rung_when_the_ring_was_emptied() {
    let (mut daemon, mut client) = sides(SMALL);
    let watch = daemon.submission_bell.watch().unwrap();
    let rung = || watch.wait(Some(Duration::ZERO)).unwrap().bell;
    daemon.replies.push(&reply(0)).unwrap();
    daemon.replies.push(&reply(1)).unwrap();
    assert_eq!(daemon.replies.push(&reply(2)), Err(PushError::Full));
    daemon.replies.flush().unwrap();
    assert!(daemon.replies.prepare_wait_for_room());
    client.replies.pop().unwrap();
    client.replies.pop().unwrap();
    assert!(!rung(), "only one who goes to sleep looks whether somebody waits");
    assert!(client.replies.prepare_sleep());
    assert!(rung());
    client.replies.awake();
    assert!(client.replies.prepare_sleep());
    assert!(!rung(), "one ring per wait");
    assert!(!daemon.replies.prepare_wait_for_room(), "there is room");
    daemon.replies.push(&reply(2)).unwrap();
}

#[test]
fn an_impossible_tail_is_reported_for_ever_and_touches_nothing() {
    for start in [0, 7, u32::MAX] {
        for lie in [5, 6, 1 << 31, u32::MAX] {
            let (mut daemon, mut client) = sides(SMALL);
            age(&mut client.submissions, &mut daemon.submissions, start);
            let found = start.wrapping_add(lie);
            client.page.words(RingKind::Submission).publish(found);
            let corrupt = Corrupt { word: "tail", found };
            assert_eq!(daemon.submissions.pop(), Err(corrupt));
            assert!(!daemon.submissions.prepare_sleep(), "nobody sleeps over it");
            assert_eq!(daemon.submissions.pop(), Err(corrupt));
        }
    }
}

#[test]
fn an_impossible_head_is_reported_and_touches_nothing() {
    for start in [0, 9, u32::MAX] {
        // Ahead of what was published, and further behind than the ring is long.
        for lie in [1, 2, 1 << 31, 5u32.wrapping_neg(), 1000u32.wrapping_neg()] {
            let (mut daemon, mut client) = sides(SMALL);
            age(&mut daemon.events, &mut client.events, start);
            let found = start.wrapping_add(lie);
            client.page.words(RingKind::Event).retire(found);
            let corrupt = Corrupt { word: "head", found };
            assert_eq!(daemon.events.free(), Err(corrupt), "{start} {lie}");
            let event = Event::new(&Notice::Blocking { lkid: 1, user: 1, mode: 1 });
            let pushed: Vec<_> = (0..5).map(|_| daemon.events.push(&event)).collect();
            assert_eq!(pushed[4], Err(PushError::Corrupt(corrupt)), "{start} {lie}");
        }
    }
}

#[test]
fn a_head_within_unpublished_entries_is_a_lie() {
    let (mut daemon, client) = sides(SMALL);
    daemon.replies.push(&reply(0)).unwrap();
    client.page.words(RingKind::Reply).retire(1);
    assert!(daemon.replies.free().is_err(), "what was not published was not taken");
    daemon.replies.publish();
    assert_eq!(daemon.replies.free(), Ok(2));
}

#[test]
fn scribbled_words_never_panic_or_index_outside() {
    let (mut daemon, client) = sides(SMALL);
    let mut seed = 0x9e37_79b9_7f4a_7c15u64;
    let mut next = || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed
    };
    let (mut taken, mut refused) = (0u32, 0u32);
    for _ in 0..20_000 {
        let line = next() as usize % crate::layout::WORD_LINES;
        let near = next() % 2 == 0;
        let value = if near { next() as u32 % 16 } else { next() as u32 };
        let offset = crate::layout::WORDS_OFFSET + line * crate::layout::LINE_BYTES;
        client.page.word(offset).store(value, Relaxed);
        match daemon.submissions.pop() {
            Ok(Some(entry)) => taken += u32::from(entry.operation().is_err()),
            Ok(None) => {}
            Err(_) => refused += 1,
        }
        refused += u32::from(daemon.replies.push(&reply(0)).is_err());
        daemon.replies.flush().unwrap();
        let _ = daemon.replies.prepare_wait_for_room();
        let _ = daemon.submissions.prepare_sleep();
    }
    assert!(taken > 0 && refused > 0, "both happened: {taken} {refused}");
}

/// Both directions at full speed with small rings, so that both sides sleep and fill up often: each
/// of a million entries arrives in order, and nobody sleeps for ever.
#[test]
fn a_million_round_trips_lose_no_wake_up() {
    const COUNT: u64 = 1_000_000;
    let (mut daemon, mut client) = sides(Geometry { submissions: 16, replies: 16, events: 8 });
    let watch = daemon.submission_bell.watch().unwrap();
    let (done, ended) = mpsc::channel();
    let daemon_done = done.clone();
    let daemon_thread = thread::spawn(move || {
        let mut answered = 0;
        while answered < COUNT {
            while let Some(entry) = daemon.submissions.pop().unwrap() {
                while daemon.replies.push(&reply(entry.tag)).is_err() {
                    daemon.replies.flush().unwrap();
                    if daemon.replies.prepare_wait_for_room() {
                        watch.wait(Some(HANG)).unwrap();
                    }
                }
                answered += 1;
            }
            daemon.replies.flush().unwrap();
            if daemon.submissions.prepare_sleep() && answered < COUNT {
                assert!(watch.wait(Some(HANG)).unwrap().bell, "the daemon slept for ever");
                daemon.submissions.awake();
            }
        }
        daemon_done.send("daemon").unwrap();
        daemon // an unheard ring would go with it
    });
    let client_thread = thread::spawn(move || {
        let (mut sent, mut received) = (0, 0);
        while received < COUNT {
            while sent < COUNT && client.submissions.push(&submission(sent)).is_ok() {
                sent += 1;
            }
            client.submissions.flush().unwrap();
            while let Some(answer) = client.replies.pop().unwrap() {
                assert_eq!(answer, reply(received));
                received += 1;
            }
            if received < sent && client.replies.prepare_sleep() {
                assert!(client.reply_watch.wait(Some(HANG)).unwrap().bell, "slept for ever");
                client.replies.awake();
            }
        }
        done.send("client").unwrap();
    });
    for _ in 0..2 {
        ended.recv_timeout(2 * HANG).expect("a side hangs or failed");
    }
    client_thread.join().unwrap();
    drop(daemon_thread.join().unwrap());
}
