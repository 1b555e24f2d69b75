//! A plain TCP client on the peers' port that knows the protocol and does not keep to it (BL-023, BL-024).

use super::*;
use crate::wire::body::{Hello, encode_hello, encode_message};
use crate::wire::frame::{Header, Kind};
use crate::wire::limits::BODY_BYTES_MAX;

/// A pair of nodes that talk, and the host of a third one that an intruder has taken.
struct Siege {
    a: Daemon,
    b: Daemon,
    host: IpAddr,
    attempts: u64,
}

impl Siege {
    fn begin(test: u8, crypto: &Crypto) -> Self {
        let start = |node| Daemon::start(Config { crypto: crypto.clone(), ..config(test, node) });
        let (mut a, mut b) = (start(2), start(3));
        let host = host(test, 1);
        let nobody = NodeAddress { node: NodeId(1), address: SocketAddr::new(host, 9) };
        let nodes = [nobody, a.address(2), b.address(3)];
        a.set_members(&nodes);
        b.set_members(&nodes);
        until([&mut a, &mut b], "both are up", |d| d.iter().all(|d| d.has(is_up)));
        Self { a, b, host, attempts: 0 }
    }

    /// Connects, says the bytes, and waits until it is thrown out (or for as long as it is only
    /// waited for, if it hangs up itself). Returns what it was told.
    fn attack(&mut self, bytes: &[u8], hang_up: bool) -> Vec<u8> {
        let mut stream = connect_from(self.host, self.a.peers.local_address());
        stream.set_nonblocking(false).expect("a flag");
        // Thrown out while it speaks.
        let _ = stream.write_all(bytes);
        if hang_up {
            let _ = stream.shutdown(std::net::Shutdown::Write);
        }
        stream.set_nonblocking(true).expect("a flag");
        let (begin, mut told, mut buffer) = (Clock::now(), Vec::new(), [0; 4096]);
        loop {
            assert!(begin.elapsed() < GUARD, "not thrown out: {bytes:?}");
            match stream.read(&mut buffer) {
                Ok(0) => break,
                Ok(length) => told.extend(&buffer[..length]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(_) => break,
            }
            self.a.turn();
        }
        told
    }

    /// What the intruder says before its messages.
    fn introduction(&mut self) -> Vec<u8> {
        self.attempts += 1;
        introduction(self.attempts)
    }

    /// The pair still talks, and nothing came of the attacks.
    fn end(mut self) {
        send(&mut self.a, life(3, 5), 1);
        until([&mut self.a, &mut self.b], "the pair is well", |d| d[1].numbers() == [1]);
        let down = |d: &Daemon| {
            d.has(|event| matches!(event, Event::Down { member, .. } if member.node != NodeId(1)))
        };
        assert!(!down(&self.a) && !down(&self.b));
        assert!(self.a.numbers().is_empty(), "nothing of the intruder's was delivered");
    }
}

/// What a node with the number 1 says first when it dials for this time, without encryption.
pub(super) fn introduction(dialled: u64) -> Vec<u8> {
    let hello = Hello {
        minor_min: 0,
        minor_max: 0,
        own: life(1, 5),
        peer_incarnation: 0,
        received: 0,
        dialled,
    };
    let mut bytes = b"DLMP\x01\x00\x00\x05alpha".to_vec();
    bytes.extend(frame(Kind::Hello, 0, &encode_hello(&hello)));
    bytes
}

fn frame(kind: Kind, sequence: u64, body: &[u8]) -> Vec<u8> {
    let header = Header { kind, length: body.len(), sequence, ack: 0 };
    [&header.encode()[..], body].concat()
}

#[test]
fn lengths_that_lie_are_thrown_out() {
    let mut siege = Siege::begin(20, &Crypto::None);
    let good = encode_message(&message(life(1, 5), life(2, 5), 1)).expect("it fits");
    let name_at = good.windows(5).position(|w| w == [4, 0, 0, 0, 1]).expect("the name's length");
    let (head, tail) = (&good[..name_at], &good[name_at + 5..]);
    for length in [65usize, 255, 65_535] {
        let mark = if length > 250 {
            vec![251, length as u8, (length >> 8) as u8]
        } else {
            vec![length as u8]
        };
        let body = [head, &mark, &vec![b'n'; length], tail].concat();
        let bytes = [siege.introduction(), frame(Kind::Message, 1, &body)].concat();
        siege.attack(&bytes, false);
    }
    // Longer than its frame.
    for length in [5u8, 64] {
        let body = [head, &[length], &good[name_at + 1..name_at + 5]].concat();
        let bytes = [siege.introduction(), frame(Kind::Message, 1, &body)].concat();
        siege.attack(&bytes, false);
    }
    // A frame longer than allowed, and one that is never completed.
    let mut long = frame(Kind::Message, 1, &good);
    long[5..8].copy_from_slice(&(BODY_BYTES_MAX as u32 + 1).to_le_bytes()[..3]);
    let bytes = [siege.introduction(), long].concat();
    siege.attack(&bytes, false);
    let mut short = frame(Kind::Message, 1, &good);
    short[5..8].copy_from_slice(&(BODY_BYTES_MAX as u32).to_le_bytes()[..3]);
    let bytes = [siege.introduction(), short].concat();
    siege.attack(&bytes, true);
    let down =
        |event: &&Event| matches!(event, Event::Down { member, .. } if member.node == NodeId(1));
    assert_eq!(siege.a.news.iter().filter(down).count(), 7, "each was introduced, and thrown out");
    siege.end();
}

#[test]
fn broken_rules_are_thrown_out() {
    let mut siege = Siege::begin(21, &Crypto::None);
    let good = encode_message(&message(life(1, 5), life(2, 5), 1)).expect("it fits");
    let of_others = encode_message(&message(life(3, 5), life(2, 5), 1)).expect("it fits");
    let other_life = encode_message(&message(life(1, 4), life(2, 5), 1)).expect("it fits");
    let mut odd_ack = frame(Kind::Alive, 0, &[]);
    odd_ack[16] = 9;
    let attacks = [
        frame(Kind::Message, 2, &good), // one is missing before it
        frame(Kind::Message, 1, &[&good[..], &[0]].concat()), // something behind it
        frame(Kind::Message, 1, &other_life),
        frame(Kind::Hello, 0, &[]),
        frame(Kind::Refuse, 0, &[0, 251, 0xff, 0xff]),
        odd_ack,
        vec![0; 24],
    ];
    for attack in attacks {
        let bytes = [siege.introduction(), attack].concat();
        siege.attack(&bytes, false);
    }
    // Every bit of a good frame, flipped; every length of it.
    let whole = [siege.introduction(), frame(Kind::Message, 1, &of_others)].concat();
    let begin = whole.len() - of_others.len() - 24;
    for bit in (begin * 8..whole.len() * 8).step_by(5) {
        let mut bytes = [siege.introduction(), frame(Kind::Note, 2, &[])].concat();
        bytes.truncate(begin);
        bytes.extend(&whole[begin..]);
        bytes[bit / 8] ^= 1 << (bit % 8);
        // A gap, so that what is left intact by the flip is not delivered.
        bytes.extend(frame(Kind::Note, 7, &[]));
        siege.attack(&bytes, true);
    }
    siege.a.news.retain(|event| !matches!(event, Event::Message { .. }));
    siege.end();
}

#[test]
fn without_the_key_nothing_gets_in() {
    let mut siege = Siege::begin(22, &key(1));
    let opening = b"DLMP\x01\x01\x00\x05alpha";
    let plain = frame(Kind::Hello, 0, &[0; 30]);
    let attacks: [Vec<u8>; 8] = [
        b"GET / HTTP/1.0\r\n\r\n".to_vec(),
        vec![0; 1000],
        vec![0xff; 100_000],
        opening.to_vec(),
        [&opening[..], &[0, 48], &[7; 48]].concat(),
        [&opening[..], &[0, 47], &[7; 47]].concat(),
        [&opening[..], &[0xff, 0xff], &[7; 70_000]].concat(),
        [&opening[..], &plain].concat(),
    ];
    for attack in attacks {
        siege.attack(&attack, true);
    }
    assert!(siege.attack(b"", true).is_empty(), "strangers are told nothing");
    let refused = |event: &&Event| matches!(event, Event::Refused { .. });
    assert_eq!(siege.a.news.iter().filter(refused).count(), 9);
    // Many at once that say nothing: the oldest wait, the others are turned away, peers are not touched.
    let address = siege.a.peers.local_address();
    let crowd: Vec<_> = (0..100).map(|_| connect_from(siege.host, address)).collect();
    until([&mut siege.a, &mut siege.b], "the crowd is bounded", |d| {
        d[0].has(|event| matches!(event, Event::Refused { why: Refusal::Crowded, .. }))
    });
    drop(crowd);
    siege.end();
}
