//! The control conversation with dlmd, with a limit on every wait.
//!
//! A thread of its own connects, asks and listens with plain blocking calls; the command waits
//! for it only so long. Nothing that happens on the other side, a full backlog, a stopped daemon,
//! a socket that somebody else serves, can hold up the tool for longer (BL-054).

use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use dlm_ipc::control::{CONTROL_BYTES_MAX, ControlMessage, ControlReply, ControlRequest};
use dlm_ipc::handshake::{HandshakeError, open_control};
use dlm_ipc::socket::Connection;

use crate::context::{Daemon, Trouble, errno_text};

/// How long an answer may take. Every command asks few questions, so that it ends within 5 s.
pub(crate) const PATIENCE: Duration = Duration::from_millis(4_500);

/// The daemon behind a socket. Connects at the first question.
pub(crate) struct Socket {
    path: PathBuf,
    conversation: Option<Conversation>,
    /// What ended the conversation; a second wait would be as vain as the first.
    failed: Option<Trouble>,
}

struct Conversation {
    questions: Sender<ControlRequest>,
    answers: Receiver<Result<ControlReply, Trouble>>,
}

impl Socket {
    /// The daemon that serves at `path`.
    pub(crate) fn new(path: PathBuf) -> Self {
        Self { path, conversation: None, failed: None }
    }

    /// Where it serves.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    fn exchange(&mut self, request: &ControlRequest) -> Result<ControlReply, Trouble> {
        let path = &self.path;
        let conversation = self.conversation.get_or_insert_with(|| converse(path.clone()));
        // A send that fails has its reason waiting among the answers.
        let _ = conversation.questions.send(request.clone());
        match conversation.answers.recv_timeout(PATIENCE) {
            Ok(answer) => answer,
            Err(RecvTimeoutError::Timeout) => Err(silent(path)),
            Err(RecvTimeoutError::Disconnected) => Err(hung_up(path)),
        }
    }
}

impl Daemon for Socket {
    fn ask(&mut self, request: &ControlRequest) -> Result<ControlReply, Trouble> {
        if let Some(trouble) = &self.failed {
            return Err(trouble.clone());
        }
        match self.exchange(request) {
            Ok(ControlReply::Refused { errno, message }) => {
                Err(Trouble::Refused { errno, message })
            }
            Ok(reply) => Ok(reply),
            Err(trouble) => {
                self.conversation = None;
                self.failed = Some(trouble.clone());
                Err(trouble)
            }
        }
    }
}

/// Starts the thread that speaks with the daemon; it ends with the conversation.
fn converse(path: PathBuf) -> Conversation {
    let (questions, asked) = channel();
    let (answer, answers) = channel();
    thread::spawn(move || {
        let mut buffer = vec![0; CONTROL_BYTES_MAX];
        let connection = match connect(&path) {
            Ok(connection) => connection,
            Err(trouble) => {
                let _ = answer.send(Err(trouble));
                return;
            }
        };
        for request in asked {
            let result = ask_once(&path, &connection, &request, &mut buffer);
            if answer.send(result).is_err() {
                return;
            }
        }
    });
    Conversation { questions, answers }
}

fn connect(path: &Path) -> Result<Connection, Trouble> {
    let connection = Connection::connect(path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => absent(path),
        io::ErrorKind::PermissionDenied => denied(path),
        _ => {
            let why = errno_text(error.raw_os_error().unwrap_or(libc::EIO));
            Trouble::Absent(format!("cannot connect to dlmd at {}: {why}", path.display()))
        }
    })?;
    match open_control(&connection) {
        Ok(_) => Ok(connection),
        Err(HandshakeError::Refused(errno @ (libc::EPERM | libc::EACCES))) => {
            let why = "you may not ask dlmd; run this as its user, as root or in its control group";
            Err(Trouble::Refused { errno, message: why.to_owned() })
        }
        Err(HandshakeError::Closed) => Err(hung_up(path)),
        Err(error) => Err(Trouble::Silent(error.to_string())),
    }
}

fn ask_once(
    path: &Path,
    connection: &Connection,
    request: &ControlRequest,
    buffer: &mut [u8],
) -> Result<ControlReply, Trouble> {
    let question = request
        .to_bytes()
        .map_err(|error| Trouble::Refused { errno: libc::E2BIG, message: error.to_string() })?;
    // A daemon that ends may have answered before; its word is worth more than our broken pipe.
    let sent = connection.send(&question);
    match connection.recv(buffer) {
        Ok(Some(message)) => {
            ControlReply::from_bytes(message).map_err(|error| Trouble::Silent(error.to_string()))
        }
        Ok(None) => Err(hung_up(path)),
        Err(error) => {
            let error = sent.err().unwrap_or(error);
            Err(Trouble::Silent(format!("the conversation with dlmd failed: {error}")))
        }
    }
}

fn absent(path: &Path) -> Trouble {
    Trouble::Absent(format!(
        "no dlmd serves at {}; start it, or name its socket with --socket or $DLM_SOCKET",
        path.display()
    ))
}

fn denied(path: &Path) -> Trouble {
    Trouble::Refused {
        errno: libc::EACCES,
        message: format!("you may not connect to dlmd at {}: Permission denied", path.display()),
    }
}

fn silent(path: &Path) -> Trouble {
    Trouble::Silent(format!(
        "dlmd at {} does not answer within {} s; it is stopped or overloaded, look at its process",
        path.display(),
        PATIENCE.as_secs_f32()
    ))
}

fn hung_up(path: &Path) -> Trouble {
    Trouble::Silent(format!(
        "dlmd at {} ended the conversation; it was stopped, or refuses this version of dlm_tool",
        path.display()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::Dir;
    use dlm_ipc::hello::{Hello, MESSAGE_BYTES_MAX, Welcome};
    use dlm_ipc::socket::Listener;
    use std::time::Instant;

    fn place() -> (Dir, PathBuf) {
        let dir = Dir::new();
        let path = dir.join("dlmd.sock");
        (dir, path)
    }

    fn accept(listener: &Listener) -> Connection {
        loop {
            match listener.accept() {
                Ok(connection) => {
                    connection.set_nonblocking(false).expect("blocking");
                    return connection;
                }
                Err(_) => thread::sleep(Duration::from_millis(2)),
            }
        }
    }

    /// A daemon that welcomes with `errno` and then answers with the given replies.
    fn serve(path: &Path, errno: i32, replies: Vec<ControlReply>) -> thread::JoinHandle<usize> {
        let listener = Listener::bind(path, 0o600).expect("bound");
        thread::spawn(move || {
            let connection = accept(&listener);
            let mut buffer = vec![0; CONTROL_BYTES_MAX.max(MESSAGE_BYTES_MAX)];
            let hello = connection.recv(&mut buffer).expect("a message").expect("a hello");
            assert_eq!(Hello::decode(hello), Ok(Hello::Control));
            connection.send(&Welcome::without_pages(errno, 1).encode()).expect("sent");
            let mut answered = 0;
            for reply in replies {
                let Ok(Some(question)) = connection.recv(&mut buffer) else { break };
                ControlRequest::from_bytes(question).expect("a question");
                connection.send(&reply.to_bytes().expect("a reply")).expect("sent");
                answered += 1;
            }
            answered
        })
    }

    #[test]
    fn questions_are_answered_in_one_conversation() {
        let (_dir, path) = place();
        let refusal = ControlReply::Refused { errno: libc::ENOENT, message: "none".to_owned() };
        let daemon = serve(&path, 0, vec![ControlReply::Purged(3), refusal, ControlReply::Done]);
        let mut socket = Socket::new(path.clone());
        assert_eq!(socket.path(), path);
        assert_eq!(socket.ask(&ControlRequest::Counters), Ok(ControlReply::Purged(3)));
        let refused = Trouble::Refused { errno: libc::ENOENT, message: "none".to_owned() };
        assert_eq!(socket.ask(&ControlRequest::Status), Err(refused));
        assert_eq!(socket.ask(&ControlRequest::Config), Ok(ControlReply::Done), "still open");
        assert_eq!(daemon.join().expect("ended"), 3);
        let trouble = socket.ask(&ControlRequest::Status).expect_err("it hung up");
        assert!(matches!(trouble, Trouble::Silent(_)), "{trouble:?}");
    }

    #[test]
    fn nobody_there_is_absent() {
        let (_dir, path) = place();
        let mut socket = Socket::new(path.clone());
        let trouble = socket.ask(&ControlRequest::Status).expect_err("nobody");
        assert!(matches!(trouble, Trouble::Absent(_)), "{trouble:?}");
        assert!(trouble.to_string().contains(&path.display().to_string()), "{trouble}");
    }

    #[test]
    fn a_refused_handshake_is_a_refusal_with_a_sentence() {
        let (_dir, path) = place();
        let daemon = serve(&path, libc::EPERM, vec![]);
        let trouble = Socket::new(path).ask(&ControlRequest::Status).expect_err("refused");
        assert_eq!(trouble.errno(), Some(libc::EPERM));
        assert!(trouble.to_string().contains("root"), "{trouble}");
        daemon.join().expect("ended");
    }

    #[test]
    fn a_daemon_that_never_answers_is_left_after_a_while_and_for_good() {
        let (_dir, path) = place();
        let _listener = Listener::bind(&path, 0o600).expect("bound");
        let mut socket = Socket::new(path);
        let start = Instant::now();
        for _ in 0..3 {
            let trouble = socket.ask(&ControlRequest::Status).expect_err("silence");
            assert!(matches!(trouble, Trouble::Silent(_)), "{trouble:?}");
        }
        assert!(start.elapsed() < PATIENCE * 3, "the second question does not wait again");
    }
}
