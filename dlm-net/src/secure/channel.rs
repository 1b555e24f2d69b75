//! A connection's bytes between the socket and the frames (wire.md sections 1 and 2).
//!
//! Pure: bytes in, bytes out. Each side first says in clear which protocol generation, which cluster and
//! which encryption it expects, only so that a mismatch can be explained on both sides; what counts
//! is the prologue of the key exchange, which covers the same and cannot be forged without the key.

use super::noise::{
    EXCHANGE_BYTES, Exchange, Keys, PLAIN_BYTES_MAX, RECORD_BYTES_MAX, SEAL_BYTES, Side,
};
use super::{ChannelError, Crypto};
use crate::peers::config::CLUSTER_NAME_BYTES_MAX;

/// First bytes of a connection, in both directions.
const MAGIC: [u8; 4] = *b"DLMP";
/// Bytes of the opening before the cluster's name.
const OPENING_BYTES: usize = 8;

/// What both sides must have in common.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Generation of the protocol.
    pub major: u8,
    /// The cluster's name.
    pub cluster: String,
    /// Encryption.
    pub crypto: Crypto,
}

impl Setup {
    /// What is said in clear.
    fn opening(&self) -> Vec<u8> {
        let name = self.cluster.as_bytes();
        let mut opening = MAGIC.to_vec();
        opening.extend([self.major, self.crypto.number(), 0, name.len() as u8]);
        opening.extend(name);
        opening
    }

    /// What the key exchange covers.
    fn prologue(&self) -> Vec<u8> {
        let mut prologue = b"dlm peers ".to_vec();
        prologue.push(self.major);
        prologue.extend(self.cluster.as_bytes());
        prologue
    }

    /// Compares the other side's opening; how many bytes it has, or `None` if it is not complete.
    fn judge(&self, opening: &[u8]) -> Result<Option<usize>, ChannelError> {
        let begun = opening.len().min(MAGIC.len());
        if opening[..begun] != MAGIC[..begun] {
            return Err(ChannelError::NotAPeer);
        }
        let Some((head, rest)) = opening.split_first_chunk::<OPENING_BYTES>() else {
            return Ok(None);
        };
        let [_, _, _, _, major, crypto, _, length] = *head;
        if major != self.major {
            return Err(ChannelError::Major { theirs: major, ours: self.major });
        }
        let length = usize::from(length);
        if length == 0 || length > CLUSTER_NAME_BYTES_MAX {
            return Err(ChannelError::NotAPeer);
        }
        let Some(name) = rest.get(..length) else {
            return Ok(None);
        };
        if name != self.cluster.as_bytes() {
            let theirs = name.escape_ascii().to_string();
            return Err(ChannelError::Cluster { theirs, ours: self.cluster.clone() });
        }
        if crypto != self.crypto.number() {
            let theirs = if crypto == Crypto::None.number() { "none" } else { "noise" };
            return Err(ChannelError::Crypto { theirs, ours: self.crypto.name() });
        }
        Ok(Some(OPENING_BYTES + length))
    }
}

/// One end of a connection.
#[derive(Debug)]
pub struct Channel {
    setup: Setup,
    state: State,
    /// Bytes from the socket that are not a whole record yet.
    pending: Vec<u8>,
}

/// What is awaited.
#[derive(Debug)]
enum State {
    /// The other side's opening.
    Opening(Side, Option<Box<Exchange>>),
    /// Its message of the key exchange.
    Exchange(Side, Box<Exchange>),
    /// Records.
    Sealed(Box<Keys>),
    /// Plain bytes.
    Plain,
    /// Nothing, after an error.
    Failed,
}

impl Channel {
    /// The dialling end; its first bytes are appended to `out`.
    pub fn dial(setup: Setup, out: &mut Vec<u8>) -> Self {
        out.extend(setup.opening());
        let exchange = setup.exchange(Side::Dialler).map(|mut exchange| {
            put_record(&exchange.say(), out);
            exchange
        });
        Self { setup, state: State::Opening(Side::Dialler, exchange), pending: Vec::new() }
    }

    /// The accepting end, which speaks second.
    pub fn accept(setup: Setup) -> Self {
        let exchange = setup.exchange(Side::Acceptor);
        Self { setup, state: State::Opening(Side::Acceptor, exchange), pending: Vec::new() }
    }

    /// Whether frames can be sent.
    pub fn is_open(&self) -> bool {
        matches!(self.state, State::Sealed(_) | State::Plain)
    }

    /// Takes bytes from the socket; appends what they carry to `plain`, and what must be answered to
    /// `out`, also on an error: the answer lets the other side's log say why.
    ///
    /// # Errors
    /// The connection must be closed, after `out` was written.
    pub fn read(
        &mut self,
        bytes: &[u8],
        plain: &mut Vec<u8>,
        out: &mut Vec<u8>,
    ) -> Result<(), ChannelError> {
        self.pending.extend_from_slice(bytes);
        let mut used = 0;
        let result = loop {
            match self.advance(used, plain, out) {
                Ok(0) => break Ok(()),
                Ok(more) => used += more,
                Err(error) => {
                    self.state = State::Failed;
                    break Err(error);
                }
            }
        };
        self.pending.drain(..used);
        result
    }

    /// Appends `plain` to `out` as the other side expects it. Only while [`Channel::is_open`].
    pub fn write(&mut self, plain: &[u8], out: &mut Vec<u8>) {
        match &mut self.state {
            State::Sealed(keys) => {
                for chunk in plain.chunks(PLAIN_BYTES_MAX) {
                    out.extend(((chunk.len() + SEAL_BYTES) as u16).to_be_bytes());
                    keys.seal(chunk, out);
                }
            }
            State::Plain => out.extend_from_slice(plain),
            _ => debug_assert!(false, "nothing is written before the channel is open"),
        }
    }

    /// One step from `pending[at..]`; how many bytes it took, 0 if it needs more.
    fn advance(
        &mut self,
        at: usize,
        plain: &mut Vec<u8>,
        out: &mut Vec<u8>,
    ) -> Result<usize, ChannelError> {
        let input = &self.pending[at..];
        match &mut self.state {
            State::Opening(side, exchange) => {
                let judged = self.setup.judge(input);
                if *side == Side::Acceptor
                    && !matches!(judged, Ok(None) | Err(ChannelError::NotAPeer))
                {
                    out.extend(self.setup.opening());
                }
                let Some(used) = judged? else { return Ok(0) };
                self.state = match exchange.take() {
                    Some(exchange) => State::Exchange(*side, exchange),
                    None => State::Plain,
                };
                Ok(used)
            }
            State::Exchange(..) => self.exchange(at, out),
            State::Sealed(keys) => {
                if input
                    .first_chunk()
                    .is_some_and(|n| usize::from(u16::from_be_bytes(*n)) > RECORD_BYTES_MAX)
                {
                    return Err(ChannelError::Seal);
                }
                let Some((record, used)) = split_record(input) else { return Ok(0) };
                if keys.open(record, plain) { Ok(used) } else { Err(ChannelError::Seal) }
            }
            State::Plain => {
                plain.extend_from_slice(input);
                Ok(input.len())
            }
            State::Failed => Ok(input.len()),
        }
    }

    fn exchange(&mut self, at: usize, out: &mut Vec<u8>) -> Result<usize, ChannelError> {
        let input = &self.pending[at..];
        if input.len() >= 2 && !matches!([input[0], input[1]], [0, 0 | 48]) {
            return Err(ChannelError::NotAPeer);
        }
        let Some((message, used)) = split_record(input) else { return Ok(0) };
        let State::Exchange(side, mut exchange) = std::mem::replace(&mut self.state, State::Failed)
        else {
            return Err(ChannelError::NotAPeer);
        };
        // Empty: the other side could not read ours.
        let heard = <&[u8; EXCHANGE_BYTES]>::try_from(message).is_ok_and(|m| exchange.hear(m));
        if !heard {
            if side == Side::Acceptor {
                put_record(&[], out);
            }
            return Err(ChannelError::Key);
        }
        if side == Side::Acceptor {
            put_record(&exchange.say(), out);
        }
        self.state = State::Sealed(Box::new(exchange.finish()));
        Ok(used)
    }
}

impl Setup {
    fn exchange(&self, side: Side) -> Option<Box<Exchange>> {
        match &self.crypto {
            Crypto::Noise(key) => Some(Box::new(Exchange::begin(side, key, &self.prologue()))),
            Crypto::None => None,
        }
    }
}

/// Appends a length, high byte first, and the bytes.
fn put_record(bytes: &[u8], out: &mut Vec<u8>) {
    out.extend((bytes.len() as u16).to_be_bytes());
    out.extend_from_slice(bytes);
}

/// The first record, if it is whole, and how many bytes it took.
fn split_record(input: &[u8]) -> Option<(&[u8], usize)> {
    let (length, rest) = input.split_first_chunk()?;
    let length = usize::from(u16::from_be_bytes(*length));
    const { assert!(RECORD_BYTES_MAX <= u16::MAX as usize) };
    Some((rest.get(..length)?, 2 + length))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::secure::ClusterKey;

    fn setup(key: u8) -> Setup {
        let crypto = Crypto::Noise(ClusterKey::from_bytes([key; 32]));
        Setup { major: 1, cluster: "alpha".into(), crypto }
    }

    /// Takes everything on a wire to `end`, byte by byte: nothing may depend on how TCP cuts.
    fn feed(end: &mut Result<Channel, ChannelError>, wire: &mut Vec<u8>, answer: &mut Vec<u8>) {
        for byte in std::mem::take(wire) {
            let Ok(channel) = end else { return };
            if let Err(error) = channel.read(&[byte], &mut Vec::new(), answer) {
                *end = Err(error);
            }
        }
    }

    /// Lets both ends talk until neither says anything.
    fn talk(a: Setup, b: Setup) -> [Result<Channel, ChannelError>; 2] {
        let (mut to_a, mut to_b) = (Vec::new(), Vec::new());
        let mut a = Ok(Channel::dial(a, &mut to_b));
        let mut b = Ok(Channel::accept(b));
        for _ in 0..4 {
            feed(&mut b, &mut to_b, &mut to_a);
            feed(&mut a, &mut to_a, &mut to_b);
        }
        [a, b]
    }

    fn errors(a: Setup, b: Setup) -> [ChannelError; 2] {
        talk(a, b).map(|end| end.map(|channel| channel.is_open()).expect_err("refused"))
    }

    #[test]
    fn two_ends_with_one_key_carry_bytes_both_ways() {
        for crypto in [setup(1).crypto, Crypto::None] {
            let setup = Setup { crypto, ..setup(1) };
            let [a, b] = talk(setup.clone(), setup);
            let (mut a, mut b) = (a.expect("opened"), b.expect("opened"));
            let long: Vec<u8> = (0..200_000u32).map(|i| (i * 7 % 251) as u8).collect();
            for _ in 0..2 {
                let (mut wire, mut plain) = (Vec::new(), Vec::new());
                a.write(&long, &mut wire);
                for chunk in wire.chunks(777) {
                    b.read(chunk, &mut plain, &mut Vec::new()).expect("sealed");
                }
                assert!(plain == long);
                std::mem::swap(&mut a, &mut b);
            }
        }
    }

    #[test]
    fn both_sides_learn_why_they_do_not_fit() {
        assert_eq!(errors(setup(1), setup(2)), [ChannelError::Key, ChannelError::Key]);
        let other = Setup { cluster: "be\nta".into(), ..setup(1) };
        let [a, b] = errors(other, setup(1));
        let (alpha, beta) = ("alpha".to_owned(), "be\\nta".to_owned());
        assert_eq!(a, ChannelError::Cluster { theirs: alpha, ours: "be\nta".into() });
        assert_eq!(b, ChannelError::Cluster { theirs: beta, ours: "alpha".into() });
        let [a, b] = errors(Setup { major: 2, ..setup(1) }, setup(1));
        assert_eq!(a, ChannelError::Major { theirs: 1, ours: 2 });
        assert_eq!(b, ChannelError::Major { theirs: 2, ours: 1 });
        let [a, b] = errors(Setup { crypto: Crypto::None, ..setup(1) }, setup(1));
        assert_eq!(a, ChannelError::Crypto { theirs: "noise", ours: "none" });
        assert_eq!(b, ChannelError::Crypto { theirs: "none", ours: "noise" });
    }

    #[test]
    fn a_changed_cut_or_repeated_record_ends_the_connection() {
        let open = || talk(setup(1), setup(1)).map(|end| end.expect("opened"));
        let sealed = |a: &mut Channel| {
            let mut wire = Vec::new();
            a.write(b"hello", &mut wire);
            wire
        };
        for at in 2..5 + SEAL_BYTES + 2 {
            let [mut a, mut b] = open();
            let mut wire = sealed(&mut a);
            wire[at] ^= 1;
            let result = b.read(&wire, &mut Vec::new(), &mut Vec::new());
            assert_eq!(result, Err(ChannelError::Seal), "byte {at}");
        }
        let [mut a, mut b] = open();
        let wire = sealed(&mut a);
        let mut plain = Vec::new();
        b.read(&wire, &mut plain, &mut Vec::new()).expect("sealed");
        let again = b.read(&wire, &mut plain, &mut Vec::new());
        assert_eq!((again, &plain[..]), (Err(ChannelError::Seal), &b"hello"[..]));
        let [_, mut b] = open();
        let empty = b.read(&[0, 0], &mut plain, &mut Vec::new());
        assert_eq!(empty, Err(ChannelError::Seal));
        let [_, mut b] = open();
        let long = b.read(&[0x20, 1], &mut plain, &mut Vec::new());
        assert_eq!(long, Err(ChannelError::Seal), "not waited for");
    }

    proptest! {
        #[test]
        fn any_bytes_are_refused_or_wait(
            begin in 0..4usize,
            bytes in proptest::collection::vec(any::<u8>(), 0..300),
        ) {
            let mut stream = Vec::new();
            Channel::dial(setup(3), &mut stream);
            stream.truncate([0, 4, 13, 15][begin]);
            stream.extend(&bytes);
            let mut channel = Channel::accept(setup(3));
            let mut plain = Vec::new();
            let _ = channel.read(&stream, &mut plain, &mut Vec::new());
            prop_assert!(!channel.is_open() && plain.is_empty());
        }
    }
}
