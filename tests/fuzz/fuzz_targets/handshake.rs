//! Every message on a handle's socket, decoded from anything: no panic, and what was understood is
//! encoded to the same bytes again.
#![no_main]

use dlm_ipc::hello::{ClientMessage, DaemonMessage, Hello, MESSAGE_BYTES_MAX, Welcome};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|message: &[u8]| {
    if let Ok(hello) = Hello::decode(message) {
        assert!(message.len() <= MESSAGE_BYTES_MAX);
        assert_eq!(hello.encode().expect("understood, so it can be said"), message);
    }
    if let Ok(welcome) = Welcome::decode(message) {
        assert_eq!(welcome.encode(), message);
    }
    if let Ok(said) = ClientMessage::decode(message) {
        assert_eq!(said.encode().expect("understood, so it can be said"), message);
    }
    if let Ok(said) = DaemonMessage::decode(message) {
        // A reason that we do not know is understood as another one.
        let again = said.encode();
        assert_eq!(DaemonMessage::decode(&again), Ok(said));
        assert_eq!(again.len(), message.len());
    }
});
