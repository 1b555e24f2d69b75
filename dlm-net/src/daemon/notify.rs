//! The service manager's notification socket (sd_notify): readiness and the end.

use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::Path;

/// Tells the service manager, if there is one, that the daemon serves.
pub(crate) fn ready() {
    tell(&format!("READY=1\nMAINPID={}", std::process::id()));
}

/// Tells it that the daemon ends.
pub(crate) fn stopping() {
    tell("STOPPING=1");
}

fn tell(words: &str) {
    let Some(address) = std::env::var_os("NOTIFY_SOCKET").filter(|value| !value.is_empty()) else {
        return;
    };
    if let Err(error) = send(address.as_bytes(), words) {
        tracing::warn!(
            "cannot notify the service manager ({error}); it may wait for READY in vain"
        );
    }
}

fn send(address: &[u8], words: &str) -> io::Result<()> {
    let address = match address {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        path => SocketAddr::from_pathname(Path::new(std::ffi::OsStr::from_bytes(path)))?,
    };
    let socket = UnixDatagram::unbound()?;
    socket.set_nonblocking(true)?;
    socket.send_to_addr(words.as_bytes(), &address).map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TempDir;

    fn received(socket: &UnixDatagram) -> String {
        let mut buffer = [0; 100];
        let length = socket.recv(&mut buffer).expect("a message");
        String::from_utf8_lossy(&buffer[..length]).into_owned()
    }

    #[test]
    fn path_and_abstract_addresses_are_served() {
        let dir = TempDir::new("notify");
        let path = dir.path().join("n.sock");
        let socket = UnixDatagram::bind(&path).expect("bound");
        send(path.as_os_str().as_bytes(), "READY=1").expect("sent");
        assert_eq!(received(&socket), "READY=1");
        let name = format!("dlm-notify-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).expect("a name");
        let socket = UnixDatagram::bind_addr(&address).expect("bound");
        send(format!("@{name}").as_bytes(), "STOPPING=1").expect("sent");
        assert_eq!(received(&socket), "STOPPING=1");
        assert!(send(b"/nonexistent/socket", "READY=1").is_err());
    }
}
