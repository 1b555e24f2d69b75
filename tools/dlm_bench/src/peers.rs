//! What users could pick instead, started and measured in the same run on the same cores.
//!
//! Both peers get a unix socket and keep nothing on disk; what a lock is to them says `locker`.

use std::io;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::scratch::Scratch;
use crate::sys;

/// Longest wait for a peer to serve: a hang guard.
const START_MAX: Duration = Duration::from_secs(20);

/// Which peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// redis-server.
    Redis,
    /// memcached.
    Memcached,
}

impl Kind {
    /// Name of the peer.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Redis => "redis",
            Self::Memcached => "memcached",
        }
    }

    /// The Debian package that has it.
    pub(crate) fn package(self) -> &'static str {
        self.program()
    }

    fn program(self) -> &'static str {
        match self {
            Self::Redis => "redis-server",
            Self::Memcached => "memcached",
        }
    }

    fn command(self, directory: &Path, socket: &Path) -> Command {
        let mut command = Command::new(self.program());
        command.current_dir(directory);
        match self {
            Self::Redis => {
                command.args(["--port", "0", "--save", "", "--appendonly", "no"]);
                command.args(["--daemonize", "no", "--unixsocket"]).arg(socket);
            }
            Self::Memcached => {
                // One thread for one core; as root it insists on being told whom to be.
                command.args(["-t", "1", "-m", "1024", "-u", "root", "-s"]).arg(socket);
            }
        }
        command
    }
}

/// A running peer; killed when dropped.
pub(crate) struct Server {
    child: Child,
    socket: PathBuf,
    _scratch: Scratch,
}

impl Server {
    /// Starts a peer on `core`; `Ok(None)`: its program is not installed.
    pub(crate) fn start(kind: Kind, core: Option<usize>) -> io::Result<Option<Self>> {
        let scratch = Scratch::new()?;
        let socket = scratch.path().join("peer.sock");
        let mut command = kind.command(scratch.path(), &socket);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        sys::confine(&mut command, core);
        let child = match command.spawn() {
            Ok(child) => child,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let mut server = Self { child, socket, _scratch: scratch };
        server.await_service(kind)?;
        Ok(Some(server))
    }

    /// Where it listens.
    pub(crate) fn socket(&self) -> &Path {
        &self.socket
    }

    fn await_service(&mut self, kind: Kind) -> io::Result<()> {
        let start = Instant::now();
        while UnixStream::connect(&self.socket).is_err() {
            if let Some(status) = self.child.try_wait()? {
                return Err(io::Error::other(format!("{} ended at once: {status}", kind.name())));
            }
            if start.elapsed() > START_MAX {
                return Err(io::Error::other(format!("{} does not serve", kind.name())));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Both fail only if the process is gone already, which is what they are for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::Backend;
    use crate::locker::{self, RedisQueue};

    /// A running peer, or a printed reason why there is none.
    fn server(kind: Kind) -> Option<Server> {
        let server = Server::start(kind, None).unwrap();
        if server.is_none() {
            eprintln!("skipped: {} is not installed", kind.name());
        }
        server
    }

    fn pairs(backend: &Backend) {
        let mut locker = locker::open(backend).unwrap();
        for _ in 0..100 {
            locker.lock(b"000-000000001").unwrap();
            locker.unlock().unwrap();
        }
        assert!(locker.unlock().is_err(), "a lock that is not held was given back");
    }

    #[test]
    fn redis_locks_and_unlocks() {
        let Some(server) = server(Kind::Redis) else { return };
        pairs(&Backend::Redis { socket: server.socket().to_owned() });
    }

    #[test]
    fn memcached_locks_and_unlocks() {
        let Some(server) = server(Kind::Memcached) else { return };
        pairs(&Backend::Memcached { socket: server.socket().to_owned() });
    }

    #[test]
    fn a_redis_queue_hands_its_token_on() {
        let Some(server) = server(Kind::Redis) else { return };
        RedisQueue::open(server.socket()).unwrap().provide(b"hot").unwrap();
        let backend = Backend::RedisQueue { socket: server.socket().to_owned() };
        let mut one = locker::open(&backend).unwrap();
        one.lock(b"hot").unwrap();
        let other = std::thread::spawn(move || {
            let mut two = locker::open(&backend).unwrap();
            two.lock(b"hot").unwrap();
            two.unlock().unwrap();
        });
        one.unlock().unwrap();
        other.join().unwrap();
        one.lock(b"hot").unwrap();
    }
}
