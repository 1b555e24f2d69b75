//! What comes from a peer's connection: frames cut from anything, bodies of each kind, and a session and
//! an unopened channel that are fed with them. No panic, no large allocation, and what was understood is said the
//! same way again.
#![no_main]

use dlm_core::{Instant, Member, NodeId};
use dlm_net::secure::{Channel, ClusterKey, Crypto, Setup};
use dlm_net::session::{Received, Resume, Session};
use dlm_net::wire::body::{
    decode_hello, decode_message, decode_refuse, encode_hello, encode_message, encode_refuse,
};
use dlm_net::wire::frame::{Kind, split};
use dlm_net::wire::limits::BODY_BYTES_MAX;
use libfuzzer_sys::fuzz_target;

fn body(kind: Kind, bytes: &[u8]) {
    match kind {
        Kind::Hello => {
            if let Ok(hello) = decode_hello(bytes) {
                assert_eq!(decode_hello(&encode_hello(&hello)), Ok(hello));
            }
        }
        Kind::Refuse => {
            if let Ok(refuse) = decode_refuse(bytes) {
                let again =
                    decode_refuse(&encode_refuse(&refuse)).expect("said, so it is understood");
                assert_eq!(again.excluded, refuse.excluded);
            }
        }
        _ => {
            if let Ok(message) = decode_message(bytes) {
                // Numbers may have been written longer than needed.
                let again = encode_message(&message).expect("understood, so it can be said");
                assert!(again.len() <= bytes.len());
                assert_eq!(decode_message(&again), Ok(message));
            }
        }
    }
}

fn member(node: u32) -> Member {
    Member::of_start(NodeId(node), 1)
}

fuzz_target!(|bytes: &[u8]| {
    body(Kind::Message, bytes);
    let mut session = Session::new(member(1), member(2), 1 << 20, Instant(0));
    let resume = Resume { peer_incarnation: 0, received: 0 };
    session.connect(resume, Instant(0)).expect("nothing was said yet");
    let (mut rest, mut last) = (bytes, 0);
    while let Ok(Some(frame)) = split(rest, BODY_BYTES_MAX) {
        let header = frame.header;
        assert_eq!(header.encode(), rest[..24]);
        body(header.kind, frame.body);
        if session.receive(&header, Instant(0)) == Ok(Received::Fresh) {
            assert_eq!(header.sequence, last + 1);
            last = header.sequence;
        }
        rest = frame.rest;
    }
    for crypto in [Crypto::None, Crypto::Noise(ClusterKey::from_bytes([7; 32]))] {
        let sealed = matches!(crypto, Crypto::Noise(_));
        let setup = Setup { major: 1, cluster: "fuzz".into(), crypto };
        let (mut plain, mut out) = (Vec::new(), Vec::new());
        let mut channel = Channel::accept(setup);
        let _ = channel.read(bytes, &mut plain, &mut out);
        assert!(!sealed || plain.is_empty(), "nobody has the key");
        assert!(plain.len() <= bytes.len());
    }
});
