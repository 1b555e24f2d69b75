//! Messages stay whole, descriptors travel, and a door has one owner.

use std::io::ErrorKind;
use std::os::unix::fs::symlink;

use super::*;
use crate::handshake::{HandshakeError, open_control, open_handle};
use crate::hello::{HandleHello, Hello, MESSAGE_BYTES_MAX, Welcome};
use crate::layout::Geometry;
use crate::{DaemonSide, MAGIC};

/// A directory of this test, removed at the end.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("dlm-ipc-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir(&path).unwrap();
        Self(path)
    }

    fn socket(&self) -> PathBuf {
        self.0.join("s")
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn messages_stay_whole_and_long_ones_are_reported() {
    let (near, far) = Connection::pair().unwrap();
    let mut buffer = [0; 8];
    near.send(b"one").unwrap();
    near.send(b"exactly8").unwrap();
    near.send(b"nine bytes").unwrap();
    near.send(b"two").unwrap();
    assert_eq!(far.recv(&mut buffer).unwrap(), Some(&b"one"[..]));
    assert_eq!(far.recv(&mut buffer).unwrap(), Some(&b"exactly8"[..]));
    assert_eq!(far.recv(&mut buffer).unwrap_err().kind(), ErrorKind::InvalidData);
    assert_eq!(far.recv(&mut buffer).unwrap(), Some(&b"two"[..]));
    far.set_nonblocking(true).unwrap();
    assert_eq!(far.recv(&mut buffer).unwrap_err().kind(), ErrorKind::WouldBlock);
    drop(near);
    assert_eq!(far.recv(&mut buffer).unwrap(), None);
    assert_eq!(far.send(b"x").unwrap_err().kind(), ErrorKind::BrokenPipe);
}

#[test]
fn who_hangs_up_with_messages_unread_is_simply_gone() {
    let (near, far) = Connection::pair().unwrap();
    far.send(b"never read").unwrap();
    drop(near);
    let mut buffer = [0; 8];
    assert_eq!(far.recv(&mut buffer).unwrap(), None);
    assert!(far.recv_with_fds(&mut buffer).unwrap().is_none());
}

#[test]
fn descriptors_are_taken_only_where_they_are_expected() {
    let (near, far) = Connection::pair().unwrap();
    let (_side, descriptors) = DaemonSide::create(Geometry::DEFAULT, 1).unwrap();
    let mut buffer = [0; 8];
    near.send_with_fds(b"four", &descriptors.as_fds()).unwrap();
    near.send_with_fds(b"drop", &descriptors.as_fds()).unwrap();
    near.send(b"none").unwrap();
    let received = far.recv_with_fds(&mut buffer).unwrap().unwrap();
    assert_eq!(received.message, b"four");
    let client = crate::ClientSide::open(received.descriptors.unwrap()).unwrap();
    assert_eq!(client.page.node(), 1);
    assert_eq!(far.recv(&mut buffer).unwrap(), Some(&b"drop"[..]));
    let received = far.recv_with_fds(&mut buffer).unwrap().unwrap();
    assert_eq!((received.message, received.descriptors.is_none()), (&b"none"[..], true));
}

#[test]
fn a_handshake_over_a_real_door() {
    let place = Place::new("door");
    let listener = Listener::bind(&place.socket(), 0o600).unwrap();
    assert_eq!(listener.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
    let hello = HandleHello {
        create: false,
        mode: 0,
        flags: 0,
        name: b"alpha".to_vec(),
        label: Vec::new(),
    };
    let path = place.socket();
    let client = std::thread::spawn(move || {
        let connection = Connection::connect(&path).unwrap();
        let opened = open_handle(&connection, &hello);
        let refused = open_handle(&Connection::connect(&path).unwrap(), &hello);
        let control = open_control(&Connection::connect(&path).unwrap());
        let closed = open_control(&Connection::connect(&path).unwrap());
        (opened, refused, control, closed)
    });
    let accept = || loop {
        match listener.accept() {
            Ok(connection) => {
                connection.set_nonblocking(false).unwrap();
                let mut buffer = [0; MESSAGE_BYTES_MAX];
                let hello = Hello::decode(connection.recv(&mut buffer).unwrap().unwrap());
                break (connection, hello.unwrap());
            }
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
        std::thread::yield_now();
    };
    let geometry = Geometry::DEFAULT;
    let (connection, hello) = accept();
    assert!(matches!(hello, Hello::Handle(HandleHello { create: false, .. })));
    let peer = connection.peer().unwrap();
    assert_eq!(peer.pid, std::process::id());
    let (_side, descriptors) = DaemonSide::create(geometry, 9).unwrap();
    let welcome = Welcome { errno: 0, node: 9, lockspace: 5, geometry };
    connection.send_with_fds(&welcome.encode(), &descriptors.as_fds()).unwrap();
    accept().0.send(&Welcome::without_pages(libc::EACCES, 9).encode()).unwrap();
    accept().0.send(&Welcome::without_pages(0, 9).encode()).unwrap();
    drop(accept());
    let (opened, refused, control, closed) = client.join().unwrap();
    let (got, side) = opened.unwrap();
    assert_eq!((got, side.page.node(), side.page.geometry()), (welcome, 9, geometry));
    assert!(matches!(refused, Err(HandshakeError::Refused(libc::EACCES))));
    assert_eq!(control.unwrap().node, 9);
    assert!(matches!(closed, Err(HandshakeError::Closed)));
}

#[test]
fn a_welcome_that_lies_about_its_pages_is_refused() {
    let hello =
        HandleHello { create: true, mode: 0, flags: 0, name: b"alpha".to_vec(), label: Vec::new() };
    let geometry = Geometry { submissions: 8, replies: 8, events: 8 };
    let (_side, descriptors) = DaemonSide::create(geometry, 1).unwrap();
    let welcome = Welcome { errno: 0, node: 1, lockspace: 1, geometry: Geometry::DEFAULT };
    let (near, far) = Connection::pair().unwrap();
    near.send_with_fds(&welcome.encode(), &descriptors.as_fds()).unwrap();
    assert!(matches!(open_handle(&far, &hello), Err(HandshakeError::NoPages)));
    near.send(&welcome.encode()).unwrap();
    let bare = open_handle(&far, &hello).map(drop).unwrap_err();
    assert!(matches!(bare, HandshakeError::NoPages) && bare.errno() == libc::EPROTO);
    near.send(&MAGIC.to_ne_bytes()).unwrap();
    assert!(matches!(open_control(&far), Err(HandshakeError::Message(_))));
}

#[test]
fn a_door_has_one_owner_and_a_dead_owners_door_is_replaced() {
    let place = Place::new("owner");
    let path = place.socket();
    let first = Listener::bind(&path, 0o666).unwrap();
    let mode = std::fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o666);
    assert_eq!(Listener::bind(&path, 0o666).unwrap_err().kind(), ErrorKind::AddrInUse);
    Connection::connect(&path).expect("a refused second owner leaves the first one's door");
    drop(first);
    assert_eq!(Connection::connect(&path).unwrap_err().kind(), ErrorKind::NotFound);
    // As a killed daemon leaves it: a socket file behind which nobody listens.
    let dead = sys::seqpacket(true).unwrap();
    sys::bind(dead.as_fd(), &path).unwrap();
    drop(dead);
    assert_eq!(Connection::connect(&path).unwrap_err().kind(), ErrorKind::ConnectionRefused);
    let second = Listener::bind(&path, 0o666).unwrap();
    Connection::connect(&path).unwrap();
    assert_eq!(second.path(), path);
}

#[test]
fn impossible_places_are_refused() {
    let place = Place::new("places");
    let long = place.0.join("x".repeat(120));
    assert_eq!(Connection::connect(&long).unwrap_err().kind(), ErrorKind::InvalidInput);
    assert_eq!(Connection::connect(Path::new("")).unwrap_err().kind(), ErrorKind::InvalidInput);
    let missing = place.0.join("no/s");
    assert_eq!(Listener::bind(&missing, 0o666).unwrap_err().kind(), ErrorKind::NotFound);
    // A lock file that points elsewhere is not followed.
    symlink(place.0.join("target"), place.0.join("s.lock")).unwrap();
    assert!(Listener::bind(&place.socket(), 0o666).is_err());
    assert!(!place.0.join("target").exists());
}

#[test]
fn the_end_of_a_process_is_seen() {
    let mut child = std::process::Command::new("true").spawn().unwrap();
    let watch = watch_process(child.id()).unwrap();
    let bell = crate::bell::Bell::new().unwrap().watch().unwrap();
    bell.also(watch.as_fd()).unwrap();
    let woken = bell.wait(Some(std::time::Duration::from_secs(60))).unwrap();
    assert!(woken.other, "the end was not reported");
    child.wait().unwrap();
    assert_eq!(watch_process(child.id()).unwrap_err().raw_os_error(), Some(libc::ESRCH));
    // Whoever connected to a socket is known without its number.
    let (near, _far) = Connection::pair().unwrap();
    assert!(near.peer_process().is_ok());
}
