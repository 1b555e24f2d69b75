//! The pattern: Noise_NNpsk0_25519_AESGCM_SHA256.
//!
//! Both sides prove that they have the cluster's key, and agree on fresh keys for this connection, so
//! that whoever gets the cluster's key later cannot read what was recorded. No certificates, no
//! identities below the cluster: which node it is, the greeting inside says, and its address has to fit.

use super::key::ClusterKey;

const PATTERN: &str = "Noise_NNpsk0_25519_AESGCM_SHA256";
/// Bytes of each of the two messages of the exchange: a public key and a seal.
pub(super) const EXCHANGE_BYTES: usize = 48;
/// Bytes of a seal.
pub(super) const SEAL_BYTES: usize = 16;
/// Longest sealed record. A record is opened whole or not at all, so over a bad network large ones
/// would be progress lost with each connection; the seals of small ones cost nothing that can be seen.
pub(super) const RECORD_BYTES_MAX: usize = 8 * 1024;
/// Most bytes that a record carries.
pub(super) const PLAIN_BYTES_MAX: usize = RECORD_BYTES_MAX - SEAL_BYTES;

/// A key exchange that has begun.
#[derive(Debug)]
pub(super) struct Exchange(snow::HandshakeState);

/// The keys of a connection.
#[derive(Debug)]
pub(super) struct Keys(snow::TransportState);

/// Which end begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Side {
    Dialler,
    Acceptor,
}

impl Exchange {
    /// Begins an exchange; both sides must give the same `prologue`.
    pub(super) fn begin(side: Side, key: &ClusterKey, prologue: &[u8]) -> Self {
        let pattern = PATTERN.parse().expect("the pattern is one of Noise");
        let builder = snow::Builder::new(pattern)
            .psk(0, key.bytes())
            .and_then(|builder| builder.prologue(prologue))
            .expect("each is given once");
        let state = match side {
            Side::Dialler => builder.build_initiator(),
            Side::Acceptor => builder.build_responder(),
        };
        Self(state.expect("the pattern needs no other key"))
    }

    /// This side's message.
    pub(super) fn say(&mut self) -> [u8; EXCHANGE_BYTES] {
        let mut message = [0; EXCHANGE_BYTES];
        let length = self.0.write_message(&[], &mut message).expect("it is this side's turn");
        assert_eq!(length, EXCHANGE_BYTES);
        message
    }

    /// The other side's message; false if it does not have the key or the prologue.
    pub(super) fn hear(&mut self, message: &[u8; EXCHANGE_BYTES]) -> bool {
        self.0.read_message(message, &mut []).is_ok()
    }

    /// The keys, once both messages went.
    pub(super) fn finish(self) -> Keys {
        Keys(self.0.into_transport_mode().expect("both messages went"))
    }
}

impl Keys {
    /// Appends `plain` as one record, without its length.
    pub(super) fn seal(&mut self, plain: &[u8], out: &mut Vec<u8>) {
        let start = out.len();
        out.resize(start + plain.len() + SEAL_BYTES, 0);
        let sealed = self.0.write_message(plain, &mut out[start..]);
        assert_eq!(sealed.ok(), Some(out.len() - start), "the caller cuts to PLAIN_BYTES_MAX");
    }

    /// Appends what a record carries; false if it is not the next record of the other side.
    pub(super) fn open(&mut self, record: &[u8], plain: &mut Vec<u8>) -> bool {
        let start = plain.len();
        plain.resize(start + record.len(), 0);
        match self.0.read_message(record, &mut plain[start..]) {
            Ok(length) => {
                plain.truncate(start + length);
                true
            }
            Err(_) => {
                plain.truncate(start);
                false
            }
        }
    }
}
