//! The bytes of every kind of message, pinned (wire.md section 5): a release that changes one of them
//! cannot talk to the one before it.

use dlm_core::message::{Body, Ceded, Flight, Message, Outcome, Record, Standing, Tagged, Traffic};
use dlm_core::{LockFlags, LockId, Member, Mode, Name, NodeId, SbFlags, Token, ViewId};
use proptest::prelude::*;

use super::body::*;
use super::limits::{BODY_BYTES_MAX, NAMES_MAX, REASON_BYTES_MAX, SLOT_RANGES_MAX};

fn name(bytes: &[u8]) -> Name {
    Name::new(bytes).expect("short")
}

fn member(node: u32, incarnation: u64) -> Member {
    Member { node: NodeId(node), incarnation }
}

fn standing() -> Standing {
    Standing {
        granted: Some(Mode::PW),
        sb_flags: SbFlags::VALNOTVALID,
        value: Some([0xaa; 32]),
        seen: true,
        marked: false,
        value_seq: 251,
        token: Token(7 << 32 | 9),
        term: Token(6),
        place: -3,
    }
}

fn record() -> Record {
    Record {
        name: name(b"r"),
        lock: LockId(1),
        under: Token(2),
        term: Token(3),
        granted: None,
        requested: Some(Mode::EX),
        place: Some(300),
        flags: LockFlags::VALBLK,
        pid: 70_000,
        value: None,
        seen: Some([0xbb; 32]),
        marked: true,
        value_seq: 4,
        told: Mode::CR,
        flight: Flight::Convert(Mode::PR),
    }
}

fn tagged() -> Vec<(Tagged, &'static str)> {
    let (n, term, master) = (name(b"ab"), Token(5), member(3, 1 << 24));
    vec![
        (Tagged::Lookup { name: n.clone(), refused: None }, "01 026162 00"),
        (
            Tagged::Lookup { name: name(b""), refused: Some((master, term)) },
            "01 00 01 03fc00000001 05",
        ),
        (Tagged::LookupReply { name: n.clone(), master, term }, "02 026162 03fc00000001 05"),
        (
            Tagged::Remove { name: n.clone(), term, last: Token(1 << 32) },
            "03 026162 05 fd0000000001000000",
        ),
        (Tagged::RemoveAck { name: n.clone(), term }, "04 026162 05"),
        (Tagged::NeedNames { slots: vec![(0, 250), (251, 4095)] }, "05 02 00fa fbfb00fbff0f"),
        (Tagged::Names { names: vec![(n.clone(), term, Token(6))] }, "06 01 026162 05 06"),
        (Tagged::NamesDone, "07"),
        (Tagged::Claim { name: n.clone() }, "08 026162"),
        (Tagged::ClaimReply { name: n, master, term }, "09 026162 03fc00000001 05"),
        (
            Tagged::Record(Box::new(record())),
            "0a 0172 01 02 03 00 0105 01fb5802 08 fc70110100 00 \
             01bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb 01 04 01 0103",
        ),
        (Tagged::LocksDone { layout: 0 }, "0b 00"),
        (
            Tagged::Value(Box::new(Ceded {
                name: name(b"c"),
                value: Some([0xdd; 32]),
                seq: 2,
                invalid: true,
                last: Token(7),
                sure: false,
            })),
            "0c 0163 01dddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddd 02 01 07 00",
        ),
    ]
}

const STANDING: &str = "0104 02 01aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa \
                        01 00 fbfb00 fd0900000007000000 06 05";

fn traffic() -> Vec<(Traffic, String)> {
    let (to, lock, seq) = (LockId(9), LockId(8), 2);
    let flags = LockFlags::NOQUEUE | LockFlags::VALBLK;
    let (value, now) = (Some([0xcc; 32]), standing());
    let bytes = "01".to_owned() + &"cc".repeat(32);
    let reply = |outcome| Traffic::Reply { lock, from: to, seq, outcome, now };
    let mut all = vec![
        (Traffic::Thawed { round: ViewId(4) }, "01 04".to_owned()),
        (Traffic::Recorded { lock, id: to }, "02 08 09".to_owned()),
        (
            Traffic::Request {
                name: name(b"q"),
                lock,
                seq,
                mode: Mode::EX,
                flags,
                pid: 1,
                view: ViewId(100),
            },
            "03 0171 08 02 05 09 01 64".to_owned(),
        ),
        (
            Traffic::Convert { to, lock, seq, mode: Mode::NL, flags, value, silent: true },
            format!("04 09 08 02 00 09 {bytes} 01"),
        ),
        (Traffic::Unlock { to, lock, seq, flags, value: None }, "05 09 08 02 09 00".to_owned()),
        (Traffic::Cancel { to, lock, seq }, "06 09 08 02".to_owned()),
        (Traffic::Grant { lock, now }, format!("08 08 {STANDING}")),
        (Traffic::Blocking { lock, mode: Mode::CW }, "09 08 02".to_owned()),
        (Traffic::NotMaster { lock, seq }, "0a 08 02".to_owned()),
        (Traffic::Purge { pid: 65_536 }, "0b fc00000100".to_owned()),
    ];
    let outcomes = [
        Outcome::Granted,
        Outcome::Queued,
        Outcome::Again,
        Outcome::Deadlock,
        Outcome::Cancelled,
        Outcome::NothingToCancel,
        Outcome::Unlocked,
    ];
    for (number, outcome) in outcomes.into_iter().enumerate() {
        all.push((reply(outcome), format!("07 08 09 02 {number:02x} {STANDING}")));
    }
    all
}

fn vectors() -> Vec<(Message, String)> {
    let message = |body| Message { space: 6, from: 1 << 24 | 1, to: 2, body };
    let head = "06 fc01000001 02";
    let tagged = tagged().into_iter().map(|(tagged, bytes)| {
        (message(Body::Tagged(ViewId(17), tagged)), format!("{head} 01 11 {bytes}"))
    });
    let traffic = traffic().into_iter();
    let traffic = traffic
        .map(|(traffic, bytes)| (message(Body::Traffic(traffic)), format!("{head} 02 {bytes}")));
    tagged.chain(traffic).collect()
}

fn bytes_of(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    let pair = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).expect("ASCII"), 16);
    digits.chunks(2).map(|digits| pair(digits).expect("two digits")).collect()
}

#[test]
fn every_message_has_these_bytes() {
    for (message, text) in vectors() {
        let bytes = bytes_of(&text);
        let encoded = encode_message(&message).expect("it fits");
        assert_eq!(encoded, bytes, "{message:?}");
        assert_eq!(decode_message(&bytes), Ok(message));
    }
}

#[test]
fn greetings_and_refusals_have_these_bytes() {
    let hello = Hello {
        minor_min: 0,
        minor_max: 1,
        own: member(3, 1 << 24),
        peer_incarnation: 2,
        received: 300,
        dialled: 1,
    };
    let bytes = bytes_of("00 01 03fc00000001 02 fb2c01 01");
    assert_eq!(encode_hello(&hello), bytes);
    assert_eq!(decode_hello(&bytes), Ok(hello));
    let refuse = Refuse { excluded: true, reason: "no".into() };
    let bytes = bytes_of("01 02 6e6f");
    assert_eq!(encode_refuse(&refuse), bytes);
    assert_eq!(decode_refuse(&bytes), Ok(refuse));
    // A later minor version may add something.
    let longer = [encode_hello(&hello), vec![1, 2, 3]].concat();
    assert_eq!(decode_hello(&longer), Ok(hello));
    let long = Refuse { excluded: false, reason: "é".repeat(1000) };
    let cut = decode_refuse(&encode_refuse(&long)).expect("cut to the bound");
    assert!(cut.reason.len() <= REASON_BYTES_MAX + 3 && cut.reason.starts_with("ééé"));
}

#[test]
fn every_cut_and_every_addition_is_refused() {
    for (_, text) in vectors() {
        let mut bytes = bytes_of(&text);
        for end in 0..bytes.len() {
            assert_eq!(decode_message(&bytes[..end]), Err(BodyError::Short), "{text} at {end}");
        }
        bytes.push(0);
        assert_eq!(decode_message(&bytes), Err(BodyError::Trailing(1)));
    }
}

#[test]
fn name_lengths_beyond_the_bound_or_the_frame_are_refused() {
    // BL-023: a request whose name has the length on the wire, with all bytes there or with few.
    for length in [0usize, 1, 63, 64, 65, 250, 251, 255, 65_535] {
        let mut bytes = bytes_of("06 01 02 02 03");
        match length {
            0..=255 => bytes.push(length as u8),
            _ => bytes.extend([251, 0xff, 0xff]),
        }
        let short = bytes.clone();
        bytes.extend(vec![b'n'; length]);
        bytes.extend(bytes_of("08 02 05 09 01 64"));
        let whole = decode_message(&bytes);
        assert_eq!(whole.is_ok(), length <= 64, "length {length}: {whole:?}");
        assert!(decode_message(&short).is_err(), "length {length} and nothing behind it");
    }
}

#[test]
fn numbers_that_mean_nothing_are_refused() {
    let refused = |text: &str| decode_message(&bytes_of(text)).expect_err(text);
    let unknown = |what, found| BodyError::Unknown { what, found };
    assert_eq!(refused("06 01 02 03"), unknown("class of message", 3));
    assert_eq!(refused("06 01 02 01 11 0d"), unknown("directory or recovery message", 13));
    assert_eq!(refused("06 01 02 01 11 00"), unknown("directory or recovery message", 0));
    assert_eq!(refused("06 01 02 02 0c"), unknown("lock message", 12));
    assert_eq!(refused("06 01 02 02 09 08 06"), unknown("lock mode", 6));
    assert_eq!(refused("06 01 02 02 07 08 09 02 07"), unknown("outcome", 7));
    // A bool that is neither, a number wider than its field.
    assert!(matches!(refused("06 01 02 01 11 01 00 02"), BodyError::Malformed(_)));
    assert!(matches!(refused("fd0000000001000000"), BodyError::Malformed(_)));
    let slots = |text: &str| refused(&format!("06 01 02 01 11 05 {text}"));
    assert!(matches!(slots("01 01 00"), BodyError::Bound(_)), "backwards");
    assert!(matches!(slots("01 00 fb0010"), BodyError::Bound(_)), "slot 4096");
    assert!(matches!(slots("fb0108"), BodyError::Bound(_)), "2049 ranges");
    assert!(matches!(refused("06 01 02 01 11 06 fb0104"), BodyError::Bound(_)), "1025 names");
}

#[test]
fn the_largest_messages_fit_into_a_frame() {
    let message = |body| Message { space: u32::MAX, from: u64::MAX, to: u64::MAX, body };
    let big = Token(u64::MAX);
    let names = vec![(name(&[7; 64]), big, big); NAMES_MAX];
    let slots = vec![(4094, 4095); SLOT_RANGES_MAX];
    for tagged in [Tagged::Names { names }, Tagged::NeedNames { slots }] {
        let largest = message(Body::Tagged(ViewId(u32::MAX), tagged));
        let bytes = encode_message(&largest).expect("it fits");
        assert_eq!(decode_message(&bytes), Ok(largest));
    }
    let names = vec![(name(&[7; 64]), big, big); 4 * NAMES_MAX];
    let larger = message(Body::Tagged(ViewId(1), Tagged::Names { names }));
    assert!(matches!(encode_message(&larger), Err(BodyError::TooLarge(n)) if n > BODY_BYTES_MAX));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn any_bytes_are_understood_or_refused(
        bytes in proptest::collection::vec(prop_oneof![0..12u8, any::<u8>()], 0..200)
    ) {
        let _ = (decode_hello(&bytes), decode_refuse(&bytes));
        if let Ok(message) = decode_message(&bytes) {
            let again = encode_message(&message).expect("understood, so it can be said");
            prop_assert!(again.len() <= bytes.len());
            prop_assert_eq!(decode_message(&again), Ok(message));
        }
    }

    #[test]
    fn a_changed_byte_is_understood_or_refused(which: usize, at: usize, byte: u8) {
        let vectors = vectors();
        let mut bytes = bytes_of(&vectors[which % vectors.len()].1);
        let at = at % bytes.len();
        bytes[at] = byte;
        if let Ok(message) = decode_message(&bytes) {
            let again = encode_message(&message).expect("understood, so it can be said");
            prop_assert_eq!(decode_message(&again), Ok(message));
        }
    }

    #[test]
    fn requests_with_any_fields_survive(
        space: u32, from: u64, to: u64, lock: u32, seq: u32, mode in 0..6u8, flags: u32, pid: u32,
        bytes in proptest::collection::vec(any::<u8>(), 0..65),
    ) {
        let request = Traffic::Request {
            name: name(&bytes),
            lock: LockId(lock),
            seq,
            mode: Mode::ALL[usize::from(mode)],
            flags: LockFlags(flags),
            pid,
            view: ViewId(seq),
        };
        let message = Message { space, from, to, body: Body::Traffic(request) };
        let bytes = encode_message(&message).expect("it fits");
        prop_assert_eq!(decode_message(&bytes), Ok(message));
    }
}
