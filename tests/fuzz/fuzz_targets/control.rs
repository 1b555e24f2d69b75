//! Control requests and answers, decoded from anything: no panic, no large allocation, and what was
//! understood survives being encoded and decoded again.
#![no_main]

use dlm_ipc::control::{ControlMessage, ControlReply, ControlRequest};
use libfuzzer_sys::fuzz_target;

fn stable<M: ControlMessage + PartialEq + std::fmt::Debug>(message: &[u8]) {
    let Ok(said) = M::from_bytes(message) else { return };
    // A number may have been written longer than needed, so the bytes may differ; the sense may not.
    let again = said.to_bytes().expect("understood, so it can be said");
    assert!(again.len() <= message.len());
    assert_eq!(M::from_bytes(&again).expect("said, so it is understood"), said);
}

fuzz_target!(|message: &[u8]| {
    stable::<ControlRequest>(message);
    stable::<ControlReply>(message);
});
