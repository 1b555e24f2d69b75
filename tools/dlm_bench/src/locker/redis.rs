//! Just enough of the redis protocol (RESP2) for two kinds of lock.

use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

use super::Locker;

/// Time limit of a key, in milliseconds: longer than any measurement holds it.
const LEASE_MS: &[u8] = b"30000";

/// Deletes a key only if it still has its owner's token.
const RELEASE: &[u8] = b"if redis.call('get',KEYS[1])==ARGV[1] then \
    return redis.call('del',KEYS[1]) else return 0 end";

/// A reply.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Reply {
    /// `+OK` and the like.
    Simple(String),
    /// `:1`.
    Number(i64),
    /// A string of bytes, or nothing.
    Bulk(Option<Vec<u8>>),
    /// Several replies, or nothing (a blocking call that timed out).
    Array(Option<Vec<Reply>>),
}

/// One connection.
pub(crate) struct Connection {
    stream: BufReader<UnixStream>,
    request: Vec<u8>,
}

impl Connection {
    fn open(socket: &Path) -> io::Result<Self> {
        Ok(Self { stream: BufReader::new(UnixStream::connect(socket)?), request: Vec::new() })
    }

    /// Sends one command and reads its reply.
    fn call(&mut self, words: &[&[u8]]) -> io::Result<Reply> {
        self.request.clear();
        encode(words, &mut self.request);
        self.stream.get_mut().write_all(&self.request)?;
        decode(&mut self.stream)
    }
}

/// Writes a command as an array of strings.
fn encode(words: &[&[u8]], out: &mut Vec<u8>) {
    out.extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
    for word in words {
        out.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        out.extend_from_slice(word);
        out.extend_from_slice(b"\r\n");
    }
}

/// Reads one reply; an error reply becomes an error.
fn decode(from: &mut impl BufRead) -> io::Result<Reply> {
    let mut line = String::new();
    from.read_line(&mut line)?;
    let text = line.trim_end();
    let bad = || io::Error::new(io::ErrorKind::InvalidData, format!("no redis reply: {text:?}"));
    let body = text.get(1..).ok_or_else(bad)?;
    let number = || body.parse::<i64>().map_err(|_| bad());
    match text.as_bytes()[0] {
        b'+' => Ok(Reply::Simple(body.to_owned())),
        b'-' => Err(io::Error::other(format!("redis says: {body}"))),
        b':' => Ok(Reply::Number(number()?)),
        b'$' => match number()? {
            -1 => Ok(Reply::Bulk(None)),
            length => {
                let mut bytes = vec![0; usize::try_from(length).map_err(|_| bad())? + 2];
                from.read_exact(&mut bytes)?;
                bytes.truncate(bytes.len() - 2);
                Ok(Reply::Bulk(Some(bytes)))
            }
        },
        b'*' => match number()? {
            -1 => Ok(Reply::Array(None)),
            count => {
                Ok(Reply::Array(Some((0..count).map(|_| decode(from)).collect::<Result<_, _>>()?)))
            }
        },
        _ => Err(bad()),
    }
}

/// The usual lock: SET NX PX with a token, and a script that deletes only one's own.
pub(crate) struct Redis {
    connection: Connection,
    release: Vec<u8>,
    token: Vec<u8>,
    held: Vec<u8>,
}

impl Redis {
    /// Connects and loads the script.
    pub(crate) fn open(socket: &Path) -> io::Result<Self> {
        let mut connection = Connection::open(socket)?;
        let Reply::Bulk(Some(release)) = connection.call(&[b"SCRIPT", b"LOAD", RELEASE])? else {
            return Err(io::Error::other("redis did not take the script"));
        };
        let token = format!("owner-{}", std::process::id()).into_bytes();
        Ok(Self { connection, release, token, held: Vec::new() })
    }
}

impl Locker for Redis {
    fn lock(&mut self, name: &[u8]) -> io::Result<()> {
        let words = [b"SET", name, &self.token, b"NX", b"PX", LEASE_MS];
        while self.connection.call(&words)? != Reply::Simple("OK".into()) {}
        self.held.clear();
        self.held.extend_from_slice(name);
        Ok(())
    }

    fn unlock(&mut self) -> io::Result<()> {
        let words = [b"EVALSHA", &self.release[..], b"1", &self.held, &self.token];
        match self.connection.call(&words)? {
            Reply::Number(1) => Ok(()),
            other => Err(io::Error::other(format!("redis lost a lock: {other:?}"))),
        }
    }
}

/// A first-come-first-served lock: a list that holds one token, taken by BLPOP.
pub(crate) struct RedisQueue {
    connection: Connection,
    held: Vec<u8>,
}

impl RedisQueue {
    /// Connects.
    pub(crate) fn open(socket: &Path) -> io::Result<Self> {
        Ok(Self { connection: Connection::open(socket)?, held: Vec::new() })
    }

    /// Puts the token into the list of `name`, once for all its users.
    pub(crate) fn provide(&mut self, name: &[u8]) -> io::Result<()> {
        self.connection.call(&[b"RPUSH", name, b"t"]).map(drop)
    }
}

impl Locker for RedisQueue {
    fn lock(&mut self, name: &[u8]) -> io::Result<()> {
        match self.connection.call(&[b"BLPOP", name, b"0"])? {
            Reply::Array(Some(_)) => {
                self.held.clear();
                self.held.extend_from_slice(name);
                Ok(())
            }
            other => Err(io::Error::other(format!("redis did not give the token: {other:?}"))),
        }
    }

    fn unlock(&mut self) -> io::Result<()> {
        self.connection.call(&[b"RPUSH", &self.held, b"t"]).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_arrays_of_strings() {
        let mut out = Vec::new();
        encode(&[b"SET", b"a b", b""], &mut out);
        assert_eq!(out, b"*3\r\n$3\r\nSET\r\n$3\r\na b\r\n$0\r\n\r\n");
    }

    #[test]
    fn every_kind_of_reply_is_read() {
        let read = |mut text: &[u8]| decode(&mut text);
        assert_eq!(read(b"+OK\r\n").unwrap(), Reply::Simple("OK".into()));
        assert_eq!(read(b":-3\r\n").unwrap(), Reply::Number(-3));
        assert_eq!(read(b"$-1\r\n").unwrap(), Reply::Bulk(None));
        assert_eq!(read(b"$2\r\nab\r\n").unwrap(), Reply::Bulk(Some(b"ab".to_vec())));
        assert_eq!(read(b"*-1\r\n").unwrap(), Reply::Array(None));
        let two = vec![Reply::Number(1), Reply::Bulk(Some(b"x".to_vec()))];
        assert_eq!(read(b"*2\r\n:1\r\n$1\r\nx\r\n").unwrap(), Reply::Array(Some(two)));
        assert!(read(b"-ERR no\r\n").unwrap_err().to_string().contains("ERR no"));
        assert!(read(b"").is_err());
        assert!(read(b"?\r\n").is_err());
    }
}
