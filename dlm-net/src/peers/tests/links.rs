//! Which of several connections counts, and when one that brings nothing is given up.

use super::hostile::introduction;
use super::*;

/// Lets time pass for one node, in steps that it has no reason to call a standstill.
fn pass(daemon: &mut Daemon, time: Duration) {
    let step = Duration::from_millis(200);
    for _ in 0..time.as_millis() / step.as_millis() {
        daemon.begin -= step;
        daemon.turn();
    }
}

#[test]
fn a_peer_that_stands_still_is_given_up_reported_and_resumed() {
    let [mut a, mut b] = pair(30, |_| ());
    until([&mut a, &mut b], "both are up", |d| d.iter().all(|d| d.has(is_up)));
    send(&mut a, life(2, 5), 1);
    pass(&mut a, Duration::from_secs(2));
    assert!(!a.has(|event| matches!(event, Event::Down { .. })), "within bounds");
    pass(&mut a, Duration::from_secs(1));
    assert!(a.has(|event| matches!(event, Event::Down { why: DownReason::Silent(_), .. })));
    send(&mut a, life(2, 5), 2);
    assert!(!a.has(|event| matches!(event, Event::Unreachable { .. })));
    // Its system goes on taking connections, which bring nothing.
    pass(&mut a, Duration::from_secs(8));
    assert!(a.has(|event| matches!(event, Event::Refused { why: Refusal::Slow(_), .. })));
    let unreachable = |event: &&Event| matches!(event, Event::Unreachable { .. });
    assert_eq!(a.news.iter().filter(unreachable).count(), 1);
    until([&mut a, &mut b], "it goes on", |d| d[1].numbers() == [1, 2]);
    assert!(!b.has(|event| matches!(event, Event::Unreachable { .. })));
}

#[test]
fn silence_of_an_idle_pair_is_no_silence() {
    let [mut a, mut b] = pair(31, |_| ());
    until([&mut a, &mut b], "both are up", |d| d.iter().all(|d| d.has(is_up)));
    for _ in 0..100 {
        for daemon in [&mut a, &mut b] {
            daemon.begin -= Duration::from_millis(200);
        }
        // Signs of life cross the network in real time.
        let waiting = |d: &Daemon| d.peers.states()[0].heard;
        let before = waiting(&a);
        until([&mut a, &mut b], "a sign of life", |d| {
            waiting(d[0]) > before || d[0].now().since(before) < crate::session::KEEP_ALIVE * 2
        });
    }
    for daemon in [&a, &b] {
        assert!(
            !daemon.has(|event| matches!(event, Event::Down { .. } | Event::Unreachable { .. }))
        );
    }
}

#[test]
fn of_several_connections_the_one_dialled_last_stays() {
    const TEST: u8 = 32;
    let mut b = Daemon::start(Config { crypto: Crypto::None, ..config(TEST, 2) });
    let first = NodeAddress { node: NodeId(1), address: SocketAddr::new(host(TEST, 1), 9) };
    b.set_members(&[first]);
    let address = b.peers.local_address();
    let dial = |number: u64| {
        let mut stream = connect_from(host(TEST, 1), address);
        stream.write_all(&introduction(number)).expect("the buffer is empty");
        stream
    };
    let ups = |d: &Daemon| d.news.iter().filter(|event| is_up(event)).count();
    let refused = |d: &Daemon, number| {
        d.has(|event| {
            matches!(event, Event::Refused { why: Refusal::OldConnection(node), .. } if *node == number)
        })
    };
    let second = dial(2);
    until([&mut b], "it is up", |d| ups(d[0]) == 1);
    let early = dial(1);
    until([&mut b], "an earlier one is refused", |d| refused(d[0], 1));
    assert!(!b.has(|event| matches!(event, Event::Down { .. })), "and changes nothing");
    let third = dial(3);
    until([&mut b], "a later one takes its place", |d| ups(d[0]) == 2);
    assert!(b.has(|event| matches!(event, Event::Down { why: DownReason::Replaced, .. })));
    assert_eq!(b.peers.states()[0].connections, 2);
    drop((second, early, third));
}
