//! Peers over real sockets on the loopback network, two or three in one process.

mod hostile;
mod links;

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant as Clock};

use dlm_core::message::{Body, Traffic};
use dlm_core::{
    Instant, JOINS_PER_LIFE, LockFlags, LockId, Member, Message, Mode, Name, NodeId, ViewId,
};
use mio::{Events, Poll};

use super::{Config, DownReason, Event, NodeAddress, Peers, Refusal, Versions};
use crate::secure::{ChannelError, ClusterKey, Crypto};

/// Nothing here takes long; a test that hangs ends.
const GUARD: Duration = Duration::from_secs(60);
/// Tokens of one node.
const TOKENS: std::ops::Range<usize> = 16..128;

fn key(byte: u8) -> Crypto {
    Crypto::Noise(ClusterKey::from_bytes([byte; 32]))
}

fn life(node: u32, start: u64) -> Member {
    Member::of_start(NodeId(node), start)
}

/// Each test has its own network, so that tests in parallel never meet; nodes have their own hosts.
fn host(test: u8, node: u32) -> IpAddr {
    Ipv4Addr::new(127, 83, test, node as u8).into()
}

fn config(test: u8, node: u32) -> Config {
    Config::new(life(node, 5), "alpha", key(1), SocketAddr::new(host(test, node), 0))
}

/// One daemon's transport with its own loop.
struct Daemon {
    poll: Poll,
    events: Events,
    peers: Peers,
    begin: Clock,
    news: Vec<Event>,
}

impl Daemon {
    fn start(config: Config) -> Self {
        let poll = Poll::new().expect("a poller");
        let peers = Peers::new(config, poll.registry(), TOKENS, Instant(0));
        let peers = peers.expect("the loopback network can be listened on");
        let events = Events::with_capacity(64);
        Self { poll, events, peers, begin: Clock::now(), news: Vec::new() }
    }

    fn now(&self) -> Instant {
        Instant(self.begin.elapsed().as_nanos() as u64)
    }

    fn address(&self, node: u32) -> NodeAddress {
        NodeAddress { node: NodeId(node), address: self.peers.local_address() }
    }

    fn set_members(&mut self, nodes: &[NodeAddress]) {
        let now = self.now();
        self.peers.set_members(nodes, now);
    }

    /// One turn, of a millisecond at most.
    fn turn(&mut self) {
        let most = Duration::from_millis(1);
        let sleep = self.peers.deadline().map_or(most, |at| at.since(self.now()).min(most));
        self.poll.poll(&mut self.events, Some(sleep)).expect("the poller works");
        for event in &self.events {
            assert!(self.peers.owns(event.token()));
            self.peers.on_event(event);
        }
        self.peers.on_time(self.now());
        while let Some(event) = self.peers.next_event() {
            self.news.push(event);
        }
        self.peers.flush(false, self.now());
    }

    fn has(&self, test: impl Fn(&Event) -> bool) -> bool {
        self.news.iter().any(test)
    }

    /// Numbers that were delivered, in order.
    fn numbers(&self) -> Vec<u32> {
        self.news.iter().filter_map(number).collect()
    }
}

/// Turns both until something holds.
fn until<const N: usize>(
    mut daemons: [&mut Daemon; N],
    what: &str,
    done: impl Fn(&[&mut Daemon; N]) -> bool,
) {
    let begin = Clock::now();
    while !done(&daemons) {
        daemons.iter_mut().for_each(|daemon| daemon.turn());
        if begin.elapsed() > GUARD {
            let news: Vec<_> =
                daemons.iter().map(|d| &d.news[d.news.len().saturating_sub(20)..]).collect();
            panic!("never came: {what}; last news: {news:#?}");
        }
    }
}

fn is_up(event: &Event) -> bool {
    matches!(event, Event::Up { .. })
}

/// A message of stays of these lives that carries a number.
fn message(from: Member, to: Member, number: u32) -> Message {
    Message {
        space: 7,
        from: from.incarnation + 1,
        to: to.incarnation + 2,
        body: Body::Traffic(Traffic::Request {
            name: Name::new(&number.to_be_bytes()).expect("short"),
            lock: LockId(number),
            seq: 1,
            mode: Mode::EX,
            flags: LockFlags::VALBLK,
            pid: 3,
            view: ViewId(1),
        }),
    }
}

fn number(event: &Event) -> Option<u32> {
    match event {
        Event::Message {
            message: Message { body: Body::Traffic(Traffic::Request { lock, .. }), .. },
            ..
        } => Some(lock.0),
        Event::Note { note, .. } => {
            Some(u32::from_be_bytes(note.as_slice().try_into().expect("four")))
        }
        _ => None,
    }
}

fn send(daemon: &mut Daemon, to: Member, number: u32) {
    let from = daemon.peers.own();
    let sent = if number.is_multiple_of(3) {
        daemon.peers.send_note(to, &number.to_be_bytes())
    } else {
        daemon.peers.send(to, &message(from, to, number))
    };
    sent.expect("there is room");
}

fn pair(test: u8, change: impl Fn(&mut Config)) -> [Daemon; 2] {
    let mut daemons = [1, 2].map(|node| {
        let mut config = config(test, node);
        change(&mut config);
        Daemon::start(config)
    });
    let nodes = [daemons[0].address(1), daemons[1].address(2)];
    daemons.iter_mut().for_each(|daemon| daemon.set_members(&nodes));
    daemons
}

#[test]
fn messages_and_notes_arrive_in_order_both_ways_with_and_without_encryption() {
    for crypto in [key(9), Crypto::None] {
        let [mut a, mut b] = pair(1, |config| config.crypto = crypto.clone());
        // Before they have met: it waits.
        (0..500).for_each(|n| send(&mut a, life(2, 5), n));
        until([&mut a, &mut b], "both are up", |d| d.iter().all(|d| d.has(is_up)));
        (0..500).for_each(|n| send(&mut b, life(1, 5), n));
        until([&mut a, &mut b], "all arrived", |d| d.iter().all(|d| d.numbers().len() == 500));
        for daemon in [&a, &b] {
            assert_eq!(daemon.numbers(), (0..500).collect::<Vec<_>>());
            assert_eq!(daemon.news.iter().filter(|event| is_up(event)).count(), 1);
        }
        until([&mut a, &mut b], "all is acknowledged", |d| {
            d.iter().all(|d| d.peers.states()[0].waiting_bytes == 0)
        });
        let state = &a.peers.states()[0];
        assert_eq!((state.member, state.up, state.connections), (Some(life(2, 5)), true, 1));
    }
}

/// A network in the middle that resets connections after random numbers of bytes.
struct Cutter {
    listener: TcpListener,
    target: SocketAddr,
    source: IpAddr,
    pipes: Vec<(TcpStream, TcpStream, u32)>,
    random: u64,
    cuts: u32,
}

impl Cutter {
    fn new(listen: IpAddr, source: IpAddr) -> Self {
        let listener = TcpListener::bind((listen, 0)).expect("loopback");
        listener.set_nonblocking(true).expect("a flag");
        let target = listener.local_addr().expect("bound");
        Self { listener, target, source, pipes: Vec::new(), random: 1, cuts: 0 }
    }

    fn random(&mut self) -> u64 {
        self.random =
            self.random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        self.random >> 33
    }

    /// Moves some bytes, and cuts a pipe whose budget is used up.
    fn turn(&mut self, cutting: bool) {
        if let Ok((from, _)) = self.listener.accept() {
            let to = connect_from(self.source, self.target);
            for stream in [&from, &to] {
                stream.set_nonblocking(true).expect("a flag");
            }
            let budget = 500 + (self.random() % 20_000) as u32;
            self.pipes.push((from, to, budget));
        }
        let mut pipes = std::mem::take(&mut self.pipes);
        pipes.retain_mut(|(a, b, budget)| {
            let alive = carry(a, b, budget, cutting) && carry(b, a, budget, cutting);
            self.cuts += u32::from(!alive);
            alive
        });
        self.pipes = pipes;
    }
}

/// Moves what there is; false if the pipe is at its end.
fn carry(from: &mut TcpStream, to: &mut TcpStream, budget: &mut u32, cutting: bool) -> bool {
    let mut buffer = [0; 512];
    loop {
        let most = if cutting { buffer.len().min(*budget as usize) } else { buffer.len() };
        if most == 0 {
            return false;
        }
        match from.read(&mut buffer[..most]) {
            Ok(0) => return false,
            Ok(length) => {
                // The pipes are small against the sockets' buffers.
                if to.write_all(&buffer[..length]).is_err() {
                    return false;
                }
                *budget = budget.saturating_sub(length as u32);
            }
            Err(error) => {
                let kind = error.kind();
                return matches!(kind, ErrorKind::WouldBlock | ErrorKind::NotConnected);
            }
        }
    }
}

/// A connection from this host, which on the loopback network is made at once.
fn connect_from(source: IpAddr, target: SocketAddr) -> TcpStream {
    let socket = crate::sys::connect_from(source, target, 0);
    socket.expect("the loopback network can be dialled")
}

#[test]
fn connections_cut_all_the_time_lose_nothing_double_nothing_and_keep_the_order() {
    const TEST: u8 = 2;
    let mut b = Daemon::start(config(TEST, 2));
    // The first node dials the cutter, which dials the second node from the first one's host.
    let mut cutter = Cutter::new(host(TEST, 3), host(TEST, 1));
    let mut a = Daemon::start(config(TEST, 1));
    let middle = NodeAddress { node: NodeId(2), address: cutter.target };
    cutter.target = b.peers.local_address();
    a.set_members(&[middle]);
    b.set_members(&[a.address(1)]);
    let total = 2_000;
    let (mut next_a, mut next_b) = (0, 0);
    let begin = Clock::now();
    while a.numbers().len() < total || b.numbers().len() < total {
        assert!(
            begin.elapsed() < GUARD,
            "{} cuts, {} and {}",
            cutter.cuts,
            a.numbers().len(),
            b.numbers().len()
        );
        for _ in 0..20 {
            if next_a < total {
                send(&mut a, life(2, 5), next_a as u32);
                next_a += 1;
            }
            if next_b < total {
                send(&mut b, life(1, 5), next_b as u32);
                next_b += 1;
            }
        }
        cutter.turn(true);
        a.turn();
        cutter.turn(true);
        b.turn();
    }
    let want: Vec<u32> = (0..total as u32).collect();
    assert!(a.numbers() == want && b.numbers() == want, "exactly once, in order");
    assert!(cutter.cuts > 10, "{} cuts", cutter.cuts);
    println!("{} cuts in {:?}", cutter.cuts, begin.elapsed());
    let gone =
        |event: &Event| matches!(event, Event::NewIncarnation { .. } | Event::Unreachable { .. });
    assert!(!a.has(gone) && !b.has(gone), "nobody is given up");
}

#[test]
fn a_new_life_voids_what_was_meant_for_the_old_one() {
    const TEST: u8 = 3;
    let [mut a, mut b] = pair(TEST, |_| ());
    until([&mut a, &mut b], "both are up", |d| d.iter().all(|d| d.has(is_up)));
    let nodes = [a.address(1), b.address(2)];
    drop(b);
    until([&mut a], "the break is seen", |d| d[0].has(|e| matches!(e, Event::Down { .. })));
    (0..10).for_each(|n| send(&mut a, life(2, 5), n));
    let mut again = config(TEST, 2);
    again.own = life(2, 6);
    again.listen = nodes[1].address;
    let mut b = Daemon::start(again);
    b.set_members(&nodes);
    until([&mut a, &mut b], "the new life is up", |d| {
        d[1].has(is_up) && d[0].has(|event| *event == Event::Up { member: life(2, 6) })
    });
    let change = Event::NewIncarnation { old: life(2, 5), new: life(2, 6) };
    assert_eq!(a.news.iter().filter(|event| **event == change).count(), 1);
    assert!(a.peers.send_note(life(2, 5), b"late").is_err(), "nobody would hear it");
    send(&mut a, life(2, 6), 11);
    until([&mut a, &mut b], "a message", |d| !d[1].numbers().is_empty());
    assert_eq!(b.numbers(), [11], "nothing that was meant for the old life");
    // The driver begins a new life of its own.
    let now = a.now();
    a.peers.renew(life(1, 8), now);
    until([&mut a, &mut b], "the other side learns it", |d| {
        d[1].has(|event| *event == Event::NewIncarnation { old: life(1, 5), new: life(1, 8) })
    });
    send(&mut b, life(1, 8), 12);
    until([&mut a, &mut b], "a message", |d| d[0].numbers() == [12]);
}

#[test]
fn an_excluded_life_is_told_and_never_heard_again() {
    let [mut a, mut b] = pair(4, |_| ());
    until([&mut a, &mut b], "both are up", |d| d.iter().all(|d| d.has(is_up)));
    let now = a.now();
    a.peers.exclude(life(2, 5), now);
    assert!(a.peers.send_note(life(2, 5), b"x").is_err());
    until([&mut a, &mut b], "it is told", |d| {
        d[1].has(|event| matches!(event, Event::Refused { why: Refusal::ExcludedHere, .. }))
    });
    send(&mut b, life(1, 5), 1);
    let refusals =
        |d: &Daemon| d.news.iter().filter(|e| matches!(e, Event::Refused { .. })).count();
    until([&mut a, &mut b], "it is refused again", |d| refusals(d[0]) >= 2);
    assert!(a.numbers().is_empty());
    let now = b.now();
    b.peers.renew(life(2, 6), now);
    until([&mut a, &mut b], "its next life is welcome", |d| {
        d[0].has(|event| *event == Event::Up { member: life(2, 6) })
    });
}

/// Lets a first pair talk, lets an intruder try, and returns why each side refused the other; the pair
/// is undisturbed.
fn refusal(test: u8, node: u32, change: impl Fn(&mut Config)) -> [Refusal; 2] {
    let [mut a, mut b] = pair(test, |_| ());
    until([&mut a, &mut b], "both are up", |d| d.iter().all(|d| d.has(is_up)));
    let mut other = config(test, node);
    change(&mut other);
    let mut c = Daemon::start(other);
    // All know the host of node 3.
    let third = NodeAddress { node: NodeId(3), address: c.peers.local_address() };
    let nodes = [a.address(1), b.address(2), third];
    a.set_members(&nodes);
    c.set_members(&nodes);
    let refused = |event: &Event| match event {
        Event::Refused { why, .. } => Some(why.clone()),
        _ => None,
    };
    until([&mut a, &mut b, &mut c], "a refusal on both sides", |d| {
        d[0].has(|e| refused(e).is_some()) && d[2].has(|e| refused(e).is_some())
    });
    send(&mut a, life(2, 5), 1);
    until([&mut a, &mut b], "the pair is well", |d| d[1].numbers() == [1]);
    assert!(!a.has(|e| matches!(e, Event::Down { .. })));
    assert_eq!(a.news.iter().filter(|event| is_up(event)).count(), 1, "node 2 and nobody else");
    [&a, &c].map(|daemon| daemon.news.iter().find_map(refused).expect("there is one"))
}

/// D16; also `hostile::without_the_key_nothing_gets_in`.
#[test]
fn a_wrong_key_is_refused_by_both() {
    let why = refusal(5, 3, |config| config.crypto = key(2));
    assert_eq!(why, [Refusal::Channel(ChannelError::Key), Refusal::Channel(ChannelError::Key)]);
    assert!(why[0].to_string().contains("authkey"));
}

#[test]
fn another_cluster_is_refused_by_both() {
    let [ours, theirs] = refusal(6, 3, |config| config.cluster = "beta".into());
    let names = |theirs: &str, ours: &str| {
        Refusal::Channel(ChannelError::Cluster { theirs: theirs.into(), ours: ours.into() })
    };
    assert_eq!((ours, theirs), (names("beta", "alpha"), names("alpha", "beta")));
}

/// BL-123, with `a_newer_minor_version_joins`: refused on both sides, or joined with what both know.
#[test]
fn another_generation_or_no_common_version_is_refused_by_both() {
    let other = Versions { major: Versions::OWN.major + 1, ..Versions::OWN };
    let [ours, theirs] = refusal(7, 3, |config| config.versions = other);
    let major = |theirs, ours| Refusal::Channel(ChannelError::Major { theirs, ours });
    assert_eq!((ours, theirs), (major(2, 1), major(1, 2)));
    let newer = Versions { minor_min: 1, minor_max: 4, ..Versions::OWN };
    let [ours, theirs] = refusal(8, 3, |config| config.versions = newer);
    // The acceptor judges, and the dialler hears of it.
    assert!(matches!(theirs, Refusal::Version { theirs_max: 0, ours_min: 1, .. }), "{theirs}");
    assert!(matches!(&ours, Refusal::Told(why) if why.contains("versions 1.0 to 1.0")), "{ours}");
}

#[test]
fn a_newer_minor_version_joins() {
    let newer = Versions { minor_max: Versions::OWN.minor_max + 1, ..Versions::OWN };
    let [mut a, mut b] = {
        let mut daemons = [(1, Versions::OWN), (2, newer)]
            .map(|(node, versions)| Daemon::start(Config { versions, ..config(9, node) }));
        let nodes = [daemons[0].address(1), daemons[1].address(2)];
        daemons.iter_mut().for_each(|daemon| daemon.set_members(&nodes));
        daemons
    };
    until([&mut a, &mut b], "both are up", |d| d.iter().all(|d| d.has(is_up)));
    assert_eq!(a.peers.states()[0].minor, Some(Versions::OWN.minor_max));
}

#[test]
fn a_node_id_that_does_not_fit_the_address_is_refused() {
    // It dials node 2's number's way: node 1 has it configured as node 3, and it says 2.
    let why = refusal(10, 3, |config| config.own = life(4, 5));
    assert_eq!(why[0], Refusal::NodeId { claimed: 4 });
    let why = refusal(11, 3, |config| config.own = life(2, 5));
    assert_eq!(why[0], Refusal::NodeId { claimed: 2 });
}

#[test]
fn an_acceptor_checks_where_a_node_comes_from() {
    // Node 2 accepts; somebody at node 3's host says it is node 1.
    const TEST: u8 = 12;
    let mut b = Daemon::start(config(TEST, 2));
    let mut liar = config(TEST, 1);
    liar.listen = SocketAddr::new(host(TEST, 3), 0);
    let mut c = Daemon::start(liar);
    let at = |node, host| NodeAddress { node: NodeId(node), address: SocketAddr::new(host, 9) };
    b.set_members(&[at(1, host(TEST, 1)), at(3, host(TEST, 3))]);
    c.set_members(&[b.address(2)]);
    until([&mut b, &mut c], "a refusal", |d| {
        d.iter().all(|d| d.has(|e| matches!(e, Event::Refused { .. })))
    });
    let why = |daemon: &Daemon| match &daemon.news[0] {
        Event::Refused { why, .. } => why.clone(),
        other => panic!("{other:?}"),
    };
    assert_eq!(why(&b), Refusal::NodeId { claimed: 1 });
    assert!(
        matches!(why(&c), Refusal::Told(text) if text.contains("not configured at this address"))
    );
    // From a host that is nobody's it is not even listened to.
    b.set_members(&[at(1, host(TEST, 1))]);
    b.news.clear();
    until([&mut b, &mut c], "a refusal", |d| {
        d[0].has(|e| matches!(e, Event::Refused { why: Refusal::UnknownAddress, .. }))
    });
}

#[test]
fn a_pair_that_cannot_talk_is_reported_once_and_welcome_later() {
    const TEST: u8 = 13;
    let mut first = config(TEST, 1);
    first.peer_limit = Duration::from_millis(150);
    let mut a = Daemon::start(first);
    let free =
        TcpListener::bind((host(TEST, 2), 0)).expect("loopback").local_addr().expect("bound");
    a.set_members(&[NodeAddress { node: NodeId(2), address: free }]);
    send(&mut a, life(2, 5), 1);
    let reports =
        |d: &Daemon| d.news.iter().filter(|e| matches!(e, Event::Unreachable { .. })).count();
    until([&mut a], "a report", |d| reports(d[0]) == 1);
    let end = Clock::now();
    while end.elapsed() < Duration::from_millis(300) {
        a.turn();
    }
    assert_eq!(reports(&a), 1, "once");
    let mut second = config(TEST, 2);
    second.listen = free;
    let mut b = Daemon::start(second);
    b.set_members(&[a.address(1)]);
    until([&mut a, &mut b], "the message arrives", |d| d[1].numbers() == [1]);
    b.peers.goodbye();
    until([&mut a], "it said goodbye", |d| {
        d[0].has(|event| *event == Event::Down { member: life(2, 5), why: DownReason::Goodbye })
    });
}

#[test]
fn who_is_only_waited_for_is_reported_too_but_not_while_this_side_stood_still() {
    let mut b = Daemon::start(config(16, 2));
    let nobody = SocketAddr::new(host(16, 1), 9);
    b.peers.set_members(&[NodeAddress { node: NodeId(1), address: nobody }], Instant(0));
    let mut now = Instant(0);
    // Sleeps as long as it may, on a clock of its own.
    let mut report = |now: &mut Instant| {
        for _ in 0..100 {
            b.peers.on_time(*now);
            b.peers.flush(false, *now);
            if let Some(event) = b.peers.next_event() {
                return event;
            }
            *now = b.peers.deadline().expect("it watches").max(now.after(Duration::from_millis(1)));
        }
        panic!("nothing is reported until {now:?}");
    };
    let event = report(&mut now);
    assert_eq!(event, Event::Unreachable { node: NodeId(1), member: None, since: Instant(0) });
    assert_eq!(now, Instant(0).after(super::config::PEER_LIMIT));
    let mut b = Daemon::start(config(16, 2));
    b.peers.set_members(&[NodeAddress { node: NodeId(1), address: nobody }], Instant(0));
    b.peers.on_time(Instant(0));
    b.peers.on_time(Instant(0).after(Duration::from_secs(60)));
    assert_eq!(b.peers.next_event(), None, "50 s too late, which is forgiven");
    b.peers.on_time(Instant(0).after(Duration::from_secs(70)));
    assert!(b.peers.next_event().is_some(), "but not for ever");
}

#[test]
fn a_peer_that_reads_nothing_is_bounded() {
    let [mut a, mut b] = pair(14, |config| config.window_bytes_max = 3_000_000);
    until([&mut a, &mut b], "both are up", |d| d.iter().all(|d| d.has(is_up)));
    let note = vec![7; 100_000];
    let refused = (0..100).find_map(|_| {
        let sent = a.peers.send_note(life(2, 5), &note);
        a.turn();
        sent.err()
    });
    let refused = refused.expect("the bound is reached").to_string();
    assert!(refused.contains("must be excluded"), "{refused}");
    assert!(a.peers.send_note(life(2, 5), b"").is_err(), "nothing may overtake");
    a.turn();
    assert!(a.has(|event| matches!(event, Event::Unreachable { member: Some(_), .. })));
}

#[test]
fn large_notes_pass_and_larger_ones_are_refused() {
    let [mut a, mut b] = pair(15, |_| ());
    let most = crate::wire::limits::BODY_BYTES_MAX;
    a.peers.send_note(life(2, 5), &vec![1; most]).expect("it fits");
    assert!(a.peers.send_note(life(2, 5), &vec![1; most + 1]).is_err());
    until([&mut a, &mut b], "it arrives", |d| {
        d[1].has(|event| matches!(event, Event::Note { note, .. } if note.len() == most))
    });
    assert_eq!(JOINS_PER_LIFE, 1 << 24, "tests use stays of lives");
}
