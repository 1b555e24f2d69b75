//! The bytes of each message, and everything that is none.

use super::*;

fn handle() -> HandleHello {
    HandleHello {
        create: true,
        mode: 0o600,
        flags: 8,
        name: b"alpha".to_vec(),
        label: b"db".to_vec(),
    }
}

/// The bytes on a little-endian machine; others differ and are not golden.
fn golden(bytes: &[u8], expected: &[u8]) {
    if cfg!(target_endian = "little") {
        assert_eq!(bytes, expected);
    }
}

#[test]
fn hello_of_a_handle_has_these_bytes() {
    let hello = Hello::Handle(handle());
    let bytes = hello.encode().unwrap();
    golden(
        &bytes,
        b"\x31\x4d\x4c\x44\x01\0\x01\0\x02\0\0\0\x80\x01\0\0\x08\0\0\0\x05\0\x02\0alphadb",
    );
    assert_eq!(Hello::decode(&bytes), Ok(hello));
}

#[test]
fn hello_of_a_control_conversation_has_these_bytes() {
    let bytes = Hello::Control.encode().unwrap();
    golden(&bytes, b"\x31\x4d\x4c\x44\x01\0\x02\0");
    assert_eq!(Hello::decode(&bytes), Ok(Hello::Control));
}

#[test]
fn welcome_has_these_bytes() {
    let geometry = Geometry::DEFAULT;
    let welcome = Welcome { errno: 0, node: 2, lockspace: 0xa1b2_c3d4, geometry };
    let bytes = welcome.encode();
    golden(
        &bytes,
        b"\x31\x4d\x4c\x44\x01\0\0\0\0\0\0\0\x02\0\0\0\xd4\xc3\xb2\xa1\
          \0\x01\0\0\0\x01\0\0\0\x04\0\0",
    );
    assert_eq!(Welcome::decode(&bytes), Ok(welcome));
    let refusal = Welcome::without_pages(13, 2);
    assert_eq!(Welcome::decode(&refusal.encode()), Ok(refusal));
}

#[test]
fn later_messages_have_these_bytes() {
    let client: [(ClientMessage, &[u8]); 5] = [
        (ClientMessage::Close, b"\x01\0"),
        (ClientMessage::Release { force: false }, b"\x02\0\0"),
        (ClientMessage::Release { force: true }, b"\x02\0\x01"),
        (ClientMessage::Label(b"db".to_vec()), b"\x03\0db"),
        (ClientMessage::Label(Vec::new()), b"\x03\0"),
    ];
    for (message, expected) in client {
        let bytes = message.encode().unwrap();
        golden(&bytes, expected);
        assert_eq!(ClientMessage::decode(&bytes), Ok(message));
    }
    let daemon: [(DaemonMessage, &[u8]); 2] = [
        (DaemonMessage::Done { errno: 16 }, b"\x10\0\x10\0\0\0"),
        (DaemonMessage::Lost(LostReason::Removed), b"\x11\0\x03\0\0\0"),
    ];
    for (message, expected) in daemon {
        golden(&message.encode(), expected);
        assert_eq!(DaemonMessage::decode(&message.encode()), Ok(message));
    }
}

#[test]
fn every_cut_and_every_extra_byte_is_refused() {
    let hello = Hello::Handle(handle()).encode().unwrap();
    let welcome = Welcome::without_pages(0, 1).encode();
    for len in 0..hello.len() {
        assert!(Hello::decode(&hello[..len]).is_err(), "{len}");
    }
    for len in 0..welcome.len() {
        assert!(Welcome::decode(&welcome[..len]).is_err(), "{len}");
    }
    let extra = |bytes: &[u8]| [bytes, &[0]].concat();
    assert!(Hello::decode(&extra(&hello)).is_err());
    assert!(Hello::decode(&extra(&Hello::Control.encode().unwrap())).is_err());
    assert!(Welcome::decode(&extra(&welcome)).is_err());
    assert!(ClientMessage::decode(&extra(&[1, 0])).is_err());
    assert!(ClientMessage::decode(&extra(&[2, 0, 1])).is_err());
    assert!(DaemonMessage::decode(&extra(&[16, 0, 0, 0, 0, 0])).is_err());
    for short in [&[][..], &[1], &[2, 0]] {
        assert!(ClientMessage::decode(short).is_err(), "{short:?}");
    }
}

#[test]
fn names_and_labels_are_taken_up_to_their_limit() {
    let of = |name: usize, label: usize| {
        let (name, label) = (vec![b'n'; name], vec![b'l'; label]);
        Hello::Handle(HandleHello { name, label, ..handle() })
    };
    for (name, label) in [(1, 0), (NAME_BYTES_MAX, LABEL_BYTES_MAX)] {
        let bytes = of(name, label).encode().unwrap();
        assert!(bytes.len() <= MESSAGE_BYTES_MAX);
        assert_eq!(Hello::decode(&bytes), Ok(of(name, label)));
    }
    assert_eq!(of(0, 0).encode(), Err(BadMessage::NameLength(0)));
    assert_eq!(of(65, 0).encode(), Err(BadMessage::NameLength(65)));
    assert_eq!(of(1, 65).encode(), Err(BadMessage::LabelLength(65)));
    assert_eq!(ClientMessage::Label(vec![0; 65]).encode(), Err(BadMessage::LabelLength(65)));
    assert!(ClientMessage::decode(&[&[3, 0][..], &[b'l'; 64]].concat()).is_ok());
    let long = ClientMessage::decode(&[&[3, 0][..], &[b'l'; 65]].concat());
    assert_eq!(long, Err(BadMessage::LabelLength(65)));
    let mut bytes = of(1, 0).encode().unwrap();
    bytes[20..22].copy_from_slice(&65u16.to_ne_bytes());
    bytes.extend([b'n'; 64]);
    assert_eq!(Hello::decode(&bytes), Err(BadMessage::NameLength(65)));
    assert_eq!(BadMessage::NameLength(65).errno(), libc::EINVAL);
}

#[test]
fn other_protocols_versions_kinds_and_values_are_refused() {
    let good = Hello::Handle(handle()).encode().unwrap();
    let with = |at: usize, value: u16| {
        let mut bytes = good.clone();
        bytes[at..at + 2].copy_from_slice(&value.to_ne_bytes());
        Hello::decode(&bytes)
    };
    assert_eq!(with(0, 0), Err(BadMessage::Magic));
    assert_eq!(with(4, 2), Err(BadMessage::Version(2)));
    assert_eq!(with(6, 3), Err(BadMessage::Kind(3)));
    assert_eq!(with(20, u16::MAX), Err(BadMessage::Length(good.len())));
    assert_eq!(BadMessage::Version(2).errno(), libc::EPROTO);
    if cfg!(target_endian = "little") {
        assert_eq!(with(8, 3), Err(BadMessage::Kind(3)));
    }
    assert_eq!(ClientMessage::decode(&[9, 9]), Err(BadMessage::Kind(0x909)));
    assert_eq!(
        ClientMessage::decode(&[&2u16.to_ne_bytes()[..], &[2]].concat()),
        Err(BadMessage::Field)
    );
    let alive = [&17u16.to_ne_bytes()[..], &[0; 4]].concat();
    assert_eq!(DaemonMessage::decode(&alive), Err(BadMessage::Field));
    assert_eq!(DaemonMessage::decode(&[9, 9]), Err(BadMessage::Kind(0x909)));
}
