//! Takes locks and holds them: a client in a process of its own, for tests and for trying things out.
//!
//! `hold [--lend] SOCKET LOCKSPACE NAME...` creates the lockspace if need be, takes each name in EX
//! (`NAME!` makes the lock persistent), prints `held` when it has all, and holds them until standard
//! input closes. With `--lend` a child process shares its connection, as a forked child would.

use std::io::Read;
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use dlm_ipc::ClientSide;
use dlm_ipc::hello::{HandleHello, Hello, Welcome};
use dlm_ipc::layout::{CallArgs, Notice, Operation, Submission};
use dlm_ipc::socket::Connection;

const EX: u8 = 5;
const PERSISTENT: u32 = 0x80;

fn main() -> ExitCode {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    let lend = arguments.first().is_some_and(|word| word == "--lend");
    arguments.drain(..usize::from(lend));
    let [socket, lockspace, names @ ..] = &arguments[..] else {
        eprintln!("usage: hold [--lend] SOCKET LOCKSPACE NAME...");
        return ExitCode::from(2);
    };
    match hold(Path::new(socket), lockspace, names, lend) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("hold: {error}");
            ExitCode::FAILURE
        }
    }
}

fn hold(
    socket: &Path,
    lockspace: &str,
    names: &[String],
    lend: bool,
) -> Result<(), Box<dyn std::error::Error>> {
    let (connection, mut side) = open(socket, lockspace)?;
    if lend {
        // It ends when the daemon hangs up.
        let shared = connection.as_fd().try_clone_to_owned()?;
        Command::new("cat").stdin(shared).stdout(Stdio::null()).spawn()?;
    }
    for name in names {
        let (name, flags) = match name.strip_suffix('!') {
            Some(name) => (name, PERSISTENT),
            None => (name.as_str(), 0),
        };
        let call = CallArgs { mode: EX, flags, ..CallArgs::default() };
        let lock = Operation::Lock { call, name: name.as_bytes() };
        side.submissions.push(&Submission::new(&lock, 0, false))?;
        side.submissions.flush()?;
        wait_for_grant(&mut side)?;
    }
    println!("held");
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}

fn open(
    socket: &Path,
    lockspace: &str,
) -> Result<(Connection, ClientSide), Box<dyn std::error::Error>> {
    let connection = Connection::connect(socket)?;
    let (name, label) = (lockspace.as_bytes().to_vec(), b"hold".to_vec());
    let hello = HandleHello { create: true, mode: 0o600, flags: 0, name, label };
    connection.send(&Hello::Handle(hello).encode()?)?;
    let mut buffer = [0; 256];
    let received = connection.recv_with_fds(&mut buffer)?.ok_or("the daemon hung up")?;
    let welcome = Welcome::decode(received.message)?;
    if welcome.errno != 0 {
        return Err(std::io::Error::from_raw_os_error(welcome.errno).into());
    }
    let descriptors = received.descriptors.ok_or("no descriptors came")?;
    Ok((connection, ClientSide::open(descriptors)?))
}

fn wait_for_grant(side: &mut ClientSide) -> Result<(), Box<dyn std::error::Error>> {
    loop {
        match side.events.pop()?.map(|event| event.notice()).transpose()? {
            Some(Notice::Completion { status: 0, .. }) => return Ok(()),
            Some(Notice::Blocking { .. }) => {}
            Some(other) => return Err(format!("not granted: {other:?}").into()),
            None => {
                if side.events.prepare_sleep() {
                    side.event_watch.wait(None)?;
                    side.events.awake();
                }
            }
        }
    }
}
