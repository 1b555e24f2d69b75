//! Just enough of memcached's text protocol: a lock is a key that `add` made.

use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

use super::Locker;

/// One connection. memcached cannot wait for a key, so a lock that is not free is asked for again.
pub(crate) struct Memcached {
    stream: BufReader<UnixStream>,
    request: Vec<u8>,
    answer: String,
    held: Vec<u8>,
}

impl Memcached {
    /// Connects.
    pub(crate) fn open(socket: &Path) -> io::Result<Self> {
        let stream = BufReader::new(UnixStream::connect(socket)?);
        Ok(Self { stream, request: Vec::new(), answer: String::new(), held: Vec::new() })
    }

    /// Sends `parts` and returns the line that comes back.
    fn call(&mut self, parts: &[&[u8]]) -> io::Result<&str> {
        self.request.clear();
        parts.iter().for_each(|part| self.request.extend_from_slice(part));
        self.stream.get_mut().write_all(&self.request)?;
        self.answer.clear();
        self.stream.read_line(&mut self.answer)?;
        Ok(self.answer.trim_end())
    }
}

impl Locker for Memcached {
    fn lock(&mut self, name: &[u8]) -> io::Result<()> {
        loop {
            match self.call(&[b"add ", name, b" 0 30 1\r\n1\r\n"])? {
                "STORED" => break,
                "NOT_STORED" => {}
                other => return Err(io::Error::other(format!("memcached says: {other}"))),
            }
        }
        self.held.clear();
        self.held.extend_from_slice(name);
        Ok(())
    }

    fn unlock(&mut self) -> io::Result<()> {
        let held = std::mem::take(&mut self.held);
        let answer = self.call(&[b"delete ", &held, b"\r\n"])?;
        let result = match answer {
            "DELETED" => Ok(()),
            other => Err(io::Error::other(format!("memcached lost a lock: {other}"))),
        };
        self.held = held;
        result
    }
}
