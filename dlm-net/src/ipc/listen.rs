//! The door: accepting connections, also when descriptors run out.
//!
//! A connection that cannot be accepted stays in the kernel's queue and keeps the listener readable,
//! and its client would wait for ever. So one descriptor is held in reserve: it is given up to accept
//! the connection, say EMFILE, and hang up; then it is taken again.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::path::Path;

use dlm_ipc::hello::{MESSAGE_BYTES_MAX, Welcome};
use dlm_ipc::socket::{Connection, Listener};

/// The door of a daemon.
#[derive(Debug)]
pub struct Door {
    listener: Listener,
    reserve: Option<File>,
    /// Whether the log was told that descriptors ran out; again only after a good accept.
    told: bool,
}

/// What came of looking at the door.
#[derive(Debug)]
pub enum Knock {
    /// A connection.
    Guest(Connection),
    /// Somebody was turned away; look again.
    TurnedAway,
    /// Nobody is waiting.
    Nobody,
    /// Somebody waits who cannot even be turned away; look again when a descriptor was closed.
    Stuck,
}

impl Door {
    /// Opens the door at `path`, for all whom `mode` and the group admit.
    ///
    /// # Errors
    /// `AddrInUse`: another daemon serves there; else what is wrong with the directory.
    pub fn open(path: &Path, mode: u32, group: Option<u32>) -> io::Result<Self> {
        let listener = Listener::bind(path, mode)?;
        if group.is_some() {
            std::os::unix::fs::chown(path, None, group)?;
        }
        Ok(Self { listener, reserve: Some(reserve()?), told: false })
    }

    /// To be registered with the loop; readable when somebody waits.
    pub fn raw(&self) -> RawFd {
        self.listener.as_raw_fd()
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        self.listener.path()
    }

    /// Looks once.
    pub fn knock(&mut self) -> Knock {
        match self.listener.accept() {
            Ok(connection) => {
                self.told = false;
                Knock::Guest(connection)
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Knock::Nobody,
            // The client hung up while it waited.
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => Knock::TurnedAway,
            Err(error) => {
                if !std::mem::replace(&mut self.told, true) {
                    tracing::warn!(
                        "cannot accept clients: {error}; newcomers are refused, others are served. \
                         Raise the limit of open files (LimitNOFILE=) or lower clients_max"
                    );
                }
                self.turn_away()
            }
        }
    }

    fn turn_away(&mut self) -> Knock {
        drop(self.reserve.take());
        let knock = match self.listener.accept() {
            Ok(connection) => {
                refuse(&connection, libc::EMFILE);
                Knock::TurnedAway
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Knock::Nobody,
            Err(_) => Knock::Stuck,
        };
        self.reserve = reserve().ok();
        knock
    }
}

/// Answers a connection's first message, if it has come, with an errno. Whatever fails here is the
/// client's loss only.
pub fn refuse(connection: &Connection, errno: i32) {
    // What lies unread when a socket closes takes the answer with it.
    let _ = connection.recv(&mut [0; MESSAGE_BYTES_MAX]);
    let _ = connection.send(&Welcome::without_pages(errno, 0).encode());
}

fn reserve() -> io::Result<File> {
    File::open("/dev/null")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TempDir;
    use dlm_ipc::hello::Hello;

    #[test]
    fn guests_come_in_and_an_empty_door_says_so() {
        let dir = TempDir::new("door");
        let path = dir.path().join("d.sock");
        let mut door = Door::open(&path, 0o600, None).expect("bound");
        assert!(matches!(door.knock(), Knock::Nobody));
        let _client = Connection::connect(&path).expect("connected");
        assert!(matches!(door.knock(), Knock::Guest(_)));
        assert!(matches!(door.knock(), Knock::Nobody));
    }

    #[test]
    fn who_is_turned_away_reads_why() {
        let dir = TempDir::new("door-full");
        let path = dir.path().join("d.sock");
        let mut door = Door::open(&path, 0o600, None).expect("bound");
        let client = Connection::connect(&path).expect("connected");
        client.send(&Hello::Control.encode().expect("a message")).expect("sent");
        assert!(matches!(door.turn_away(), Knock::TurnedAway));
        assert!(door.reserve.is_some());
        let mut buffer = [0; MESSAGE_BYTES_MAX];
        let answer = client.recv(&mut buffer).expect("no reset").expect("a message");
        assert_eq!(Welcome::decode(answer).expect("a welcome").errno, libc::EMFILE);
        assert_eq!(client.recv(&mut buffer).expect("hung up"), None);
    }
}
