//! Sessions under a network that does everything to frames.

use std::collections::VecDeque;

use proptest::prelude::*;

use super::*;
use crate::wire::frame::split;
use crate::wire::limits::BODY_BYTES_MAX;

const ROOM: usize = 1 << 20;

fn member(node: u32, incarnation: u64) -> Member {
    Member { node: NodeId(node), incarnation }
}

fn pair(bytes_max: usize) -> [Session; 2] {
    let (a, b) = (member(1, 10), member(2, 20));
    let now = Instant(0);
    [Session::new(a, b, bytes_max, now), Session::new(b, a, bytes_max, now)]
}

fn connect(pair: &mut [Session; 2], now: Instant) {
    let resumes = [pair[0].resume(), pair[1].resume()];
    pair[0].disconnect();
    pair[1].disconnect();
    pair[0].connect(resumes[1], now).expect("the halves fit");
    pair[1].connect(resumes[0], now).expect("the halves fit");
}

/// All frames that a session wants to send now.
fn frames(session: &mut Session, now: Instant) -> Vec<(Header, Vec<u8>)> {
    let mut out = Vec::new();
    session.transmit(&mut out, ROOM, now);
    let (mut rest, mut frames) = (&out[..], Vec::new());
    while let Some(frame) = split(rest, BODY_BYTES_MAX).expect("own frames") {
        frames.push((frame.header, frame.body.to_vec()));
        rest = frame.rest;
    }
    assert!(rest.is_empty());
    frames
}

/// What may happen.
#[derive(Clone, Debug)]
enum Act {
    /// A side sends this many messages.
    Send(bool, u8),
    /// A side's frames go onto the wire.
    Transmit(bool),
    /// A frame arrives: the oldest, or another one.
    Arrive(bool, u8),
    /// A frame on the wire is lost, doubled.
    Lose(bool, u8),
    Double(bool, u8),
    /// The connection breaks and is made again; on the wire everything is lost, or (as if an old
    /// connection were read on) not.
    Reconnect(bool),
    /// Time goes on, in milliseconds.
    Wait(u16),
    /// A side begins or ends to withhold acknowledgements.
    Withhold(bool, bool),
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        4 => (any::<bool>(), 1..20u8).prop_map(|(side, count)| Act::Send(side, count)),
        4 => any::<bool>().prop_map(Act::Transmit),
        8 => (any::<bool>(), prop_oneof![6 => Just(0), 1 => any::<u8>()])
            .prop_map(|(side, at)| Act::Arrive(side, at)),
        1 => (any::<bool>(), any::<u8>()).prop_map(|(side, at)| Act::Lose(side, at)),
        1 => (any::<bool>(), any::<u8>()).prop_map(|(side, at)| Act::Double(side, at)),
        2 => any::<bool>().prop_map(Act::Reconnect),
        1 => (0..700u16).prop_map(Act::Wait),
        1 => (any::<bool>(), any::<bool>()).prop_map(|(side, on)| Act::Withhold(side, on)),
    ]
}

/// Two sessions, what is on the wire to each, and what each was sent and delivered.
struct World {
    sessions: [Session; 2],
    wires: [VecDeque<(Header, Vec<u8>)>; 2],
    sent: [u32; 2],
    delivered: [u32; 2],
    now: Instant,
}

impl World {
    fn new() -> Self {
        let mut sessions = pair(ROOM);
        connect(&mut sessions, Instant(0));
        let wires = [VecDeque::new(), VecDeque::new()];
        Self { sessions, wires, sent: [0; 2], delivered: [0; 2], now: Instant(0) }
    }

    fn act(&mut self, act: Act) {
        match act {
            Act::Send(side, count) => {
                for _ in 0..count {
                    let number = self.sent[usize::from(side)];
                    let taken =
                        self.sessions[usize::from(side)].push(Kind::Note, &number.to_le_bytes());
                    assert!(taken, "the window is large");
                    self.sent[usize::from(side)] += 1;
                }
            }
            Act::Transmit(side) => {
                let frames = frames(&mut self.sessions[usize::from(side)], self.now);
                self.wires[usize::from(!side)].extend(frames);
            }
            Act::Arrive(side, at) => self.arrive(usize::from(side), usize::from(at)),
            Act::Lose(side, at) => drop(self.take(usize::from(side), usize::from(at))),
            Act::Double(side, at) => {
                let wire = &mut self.wires[usize::from(side)];
                if !wire.is_empty() {
                    wire.push_back(wire[usize::from(at) % wire.len()].clone());
                }
            }
            Act::Reconnect(clean) => self.reconnect(clean),
            Act::Withhold(side, on) => self.sessions[usize::from(side)].withhold(on),
            Act::Wait(millis) => self.now = self.now.after(Duration::from_millis(millis.into())),
        }
    }

    fn take(&mut self, side: usize, at: usize) -> Option<(Header, Vec<u8>)> {
        let wire = &mut self.wires[side];
        if wire.is_empty() { None } else { wire.remove(at % wire.len()) }
    }

    fn arrive(&mut self, side: usize, at: usize) {
        let Some((header, body)) = self.take(side, at) else { return };
        match self.sessions[side].receive(&header, self.now) {
            Ok(Received::Fresh) => {
                let number = u32::from_le_bytes(body.try_into().expect("four bytes"));
                assert_eq!(number, self.delivered[side], "in order, none missing, none twice");
                self.delivered[side] += 1;
            }
            Ok(Received::Repeated | Received::Plain) => {}
            Err(SessionError::Gap { .. }) => self.reconnect(true),
            Err(other) => panic!("{other}"),
        }
    }

    fn reconnect(&mut self, clean: bool) {
        if clean {
            self.wires = Default::default();
        }
        connect(&mut self.sessions, self.now);
    }

    /// The network behaves from now on.
    fn settle(&mut self) {
        self.sessions.iter_mut().for_each(|session| session.withhold(false));
        self.reconnect(true);
        for _ in 0..4 {
            for side in [false, true] {
                self.act(Act::Transmit(side));
            }
            while self.wires.iter().any(|wire| !wire.is_empty()) {
                self.arrive(0, 0);
                self.arrive(1, 0);
            }
            self.act(Act::Wait(600));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn everything_arrives_once_and_in_order(acts in proptest::collection::vec(act(), 1..300)) {
        let mut world = World::new();
        for act in acts {
            world.act(act);
        }
        world.settle();
        prop_assert_eq!(world.delivered, [world.sent[1], world.sent[0]]);
        for session in &world.sessions {
            prop_assert_eq!(session.waiting_bytes(), 0, "all was acknowledged");
        }
    }

    #[test]
    fn any_headers_are_judged_without_harm(
        headers in proptest::collection::vec((any::<bool>(), 0..6u64, 0..6u64), 0..60)
    ) {
        let [mut a, _] = pair(ROOM);
        a.connect(Resume { peer_incarnation: 10, received: 0 }, Instant(0)).expect("new");
        let mut last = 0;
        for (numbered, sequence, ack) in headers {
            let kind = if numbered { Kind::Note } else { Kind::Alive };
            let header = Header { kind, length: 0, sequence, ack };
            if a.receive(&header, Instant(0)) == Ok(Received::Fresh) {
                prop_assert_eq!(sequence, last + 1);
                last = sequence;
            }
        }
    }
}

#[test]
fn a_full_window_takes_nothing_more_until_it_is_acknowledged() {
    let mut pair = pair(1_000);
    connect(&mut pair, Instant(0));
    let mut taken = 0;
    while pair[0].push(Kind::Note, &[0; 100]) {
        taken += 1;
    }
    assert!((2..10).contains(&taken), "{taken}");
    assert!(pair[0].waiting_bytes() <= 1_000);
    for (header, _) in frames(&mut pair[0], Instant(0)) {
        assert_eq!(pair[1].receive(&header, Instant(0)), Ok(Received::Fresh));
    }
    assert!(!pair[0].push(Kind::Note, &[0; 100]), "written is not acknowledged");
    let later = Instant(0).after(ACK_DELAY);
    let acks = frames(&mut pair[1], later);
    assert_eq!(acks.len(), 1, "one acknowledgement for all");
    assert_eq!(pair[0].receive(&acks[0].0, later), Ok(Received::Plain));
    assert_eq!(pair[0].waiting_bytes(), 0);
    assert!(pair[0].push(Kind::Note, &[0; 5_000]), "an empty window takes any frame");
}

#[test]
fn acknowledgements_ride_on_messages_and_signs_of_life_on_nothing() {
    let mut pair = pair(ROOM);
    connect(&mut pair, Instant(0));
    assert!(frames(&mut pair[0], Instant(0)).is_empty(), "nothing to say");
    let alive = Instant(0).after(KEEP_ALIVE);
    assert_eq!(pair[0].deadline(), Some(alive));
    let said = frames(&mut pair[0], alive);
    assert_eq!((said.len(), said[0].0.kind), (1, Kind::Alive));
    pair[0].push(Kind::Note, &[1]);
    let said = frames(&mut pair[0], alive);
    assert_eq!(pair[1].receive(&said[0].0, alive), Ok(Received::Fresh));
    assert_eq!(pair[1].deadline(), Some(alive.after(ACK_DELAY).min(Instant(0).after(KEEP_ALIVE))));
    pair[1].push(Kind::Note, &[2]);
    let said = frames(&mut pair[1], alive);
    assert_eq!((said.len(), said[0].0.kind, said[0].0.ack), (1, Kind::Note, 1));
    assert!(frames(&mut pair[1], alive.after(ACK_DELAY)).is_empty(), "nothing is owed");
}

#[test]
fn silence_counts_from_what_was_heard_but_not_while_this_side_slept() {
    let mut pair = pair(ROOM);
    let second = |n: u64| Instant(n * 1_000_000_000);
    connect(&mut pair, second(1));
    assert_eq!(pair[0].silence(second(4)), Duration::from_secs(3));
    pair[0].excuse(Duration::from_secs(2));
    assert_eq!(pair[0].silence(second(4)), Duration::from_secs(1));
    pair[0].disconnect();
    assert_eq!((pair[0].deadline(), pair[0].heard()), (None, second(3)));
}

#[test]
fn halves_that_do_not_fit_are_never_resumed() {
    let now = Instant(0);
    let mut talked = pair(ROOM);
    connect(&mut talked, now);
    talked[0].push(Kind::Note, &[1]);
    let said = frames(&mut talked[0], now);
    talked[1].receive(&said[0].0, now).expect("in order");
    let forgotten = Err(SessionError::Forgotten { node: NodeId(1) });
    // The first side lost its half, and knows no session, or one with an older life.
    for peer_incarnation in [0, 19] {
        let told = Resume { peer_incarnation, received: 0 };
        assert_eq!(talked[1].connect(told, now), forgotten);
    }
    // The second side acknowledged, so less than that is a lost half; more was never said.
    let acked = frames(&mut talked[1], now.after(ACK_DELAY));
    talked[0].receive(&acked[0].0, now).expect("in order");
    let told = |received| Resume { peer_incarnation: 10, received };
    let forgotten = Err(SessionError::Forgotten { node: NodeId(2) });
    assert_eq!(talked[0].connect(told(0), now), forgotten);
    let error = talked[0].connect(told(2), now);
    assert_eq!(error, Err(SessionError::Ack { ack: 2, sent: 1 }));
    assert_eq!(talked[0].connect(told(1), now), Ok(()));
    // Nobody said anything yet: all fits.
    let mut fresh = pair(ROOM);
    assert_eq!(fresh[0].connect(Resume { peer_incarnation: 0, received: 0 }, now), Ok(()));
    assert_eq!(fresh[0].connect(Resume { peer_incarnation: 7, received: 9 }, now), Ok(()));
}

#[test]
fn what_is_withheld_is_acknowledged_later_and_nothing_else_changes() {
    let [mut a, mut b] = {
        let mut pair = pair(ROOM);
        connect(&mut pair, Instant(0));
        pair
    };
    let carry = |from: &mut Session, to: &mut Session, now: Instant| {
        let frames = frames(from, now);
        for (header, _) in &frames {
            to.receive(header, now).expect("in order");
        }
        frames.len()
    };
    a.withhold(true);
    (0..3).for_each(|_| assert!(b.push(Kind::Note, &[7; ACK_BYTES])));
    assert_eq!(carry(&mut b, &mut a, Instant(0)), 3);
    let later = Instant(0).after(ACK_DELAY);
    assert!(!a.wants_to_speak(later), "nothing is due while it is withheld");
    assert!(a.push(Kind::Note, &[1]));
    assert_eq!(carry(&mut a, &mut b, later), 1);
    assert!(b.waiting_bytes() > 3 * ACK_BYTES, "the note carried no acknowledgement");
    a.withhold(false);
    assert!(a.wants_to_speak(later));
    carry(&mut a, &mut b, later);
    assert_eq!(b.waiting_bytes(), 0);
}
