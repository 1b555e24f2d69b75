//! One configured node: where it is, the session with its present life, and the connection.

use std::net::SocketAddr;
use std::time::Duration;

use dlm_core::{Instant, Member};

use crate::session::Session;

/// First and longest pause between two attempts to dial.
const DIAL_MILLIS_MIN: u64 = 20;
const DIAL_MILLIS_MAX: u64 = 1_000;
/// Pause after a connection that was in use broke: at once, but not all at once.
const REDIAL_MILLIS: u64 = 4;

/// The connection to a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Link {
    /// None; if it is ours to dial, we do at that time.
    None { dial_at: Instant },
    /// Being dialled, in this slot.
    Dialling(usize),
    /// In use, in this slot.
    Up(usize),
}

#[derive(Debug)]
pub(super) struct Node {
    pub(super) address: SocketAddr,
    pub(super) session: Option<Session>,
    pub(super) link: Link,
    /// Since when it could have been heard.
    pub(super) configured: Instant,
    /// Membership was told that it cannot be reached.
    pub(super) reported: bool,
    /// Somebody waits for something that was sent to it and is not written yet.
    pub(super) prompt: bool,
    /// A message was refused; so are all that follow.
    pub(super) full: bool,
    /// Number of its latest connection among those it dialled in its present life.
    pub(super) last_dialled: u64,
    /// Connections that were introduced.
    pub(super) connections: u64,
    /// Minor version of the protocol that was agreed on last.
    pub(super) minor: Option<u8>,
    /// Attempts to dial since the last connection that was introduced.
    attempts: u32,
}

impl Node {
    pub(super) fn new(address: SocketAddr, now: Instant) -> Self {
        Self {
            address,
            session: None,
            link: Link::None { dial_at: now },
            configured: now,
            reported: false,
            prompt: false,
            full: false,
            last_dialled: 0,
            connections: 0,
            minor: None,
            attempts: 0,
        }
    }

    /// Its present life, as far as known.
    pub(super) fn member(&self) -> Option<Member> {
        self.session.as_ref().map(Session::peer)
    }

    /// When it was heard last, or could have been.
    pub(super) fn heard(&self) -> Instant {
        self.session.as_ref().map_or(self.configured, Session::heard)
    }

    /// This side did not look for `span`.
    pub(super) fn excuse(&mut self, span: Duration) {
        self.configured = self.configured.after(span);
        if let Some(session) = &mut self.session {
            session.excuse(span);
        }
    }

    /// A connection was introduced.
    pub(super) fn on_up(&mut self, slot: usize) {
        self.link = Link::Up(slot);
        self.reported = self.full;
        self.connections += 1;
        self.attempts = 0;
    }

    /// There is no connection; when to dial next. `random` is any number.
    pub(super) fn on_gone(&mut self, now: Instant, random: u64) {
        let pause = if self.attempts == 0 {
            random % REDIAL_MILLIS
        } else {
            let most = (DIAL_MILLIS_MIN << self.attempts.min(10)).min(DIAL_MILLIS_MAX);
            most / 2 + random % (most / 2)
        };
        self.attempts += 1;
        self.link = Link::None { dial_at: now.after(Duration::from_millis(pause)) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dialling_begins_at_once_slows_down_and_is_spread() {
        let mut node = Node::new("127.0.0.1:1".parse().expect("an address"), Instant(0));
        let pauses = |node: &mut Node, random| {
            node.on_gone(Instant(0), random);
            match node.link {
                Link::None { dial_at } => dial_at.0 / 1_000_000,
                other => panic!("{other:?}"),
            }
        };
        assert!(pauses(&mut node, u64::MAX) < REDIAL_MILLIS);
        let row: Vec<u64> = (0..20).map(|_| pauses(&mut node, 0)).collect();
        assert_eq!(row[..4], [20, 40, 80, 160]);
        assert!(row[10..].iter().all(|pause| *pause == DIAL_MILLIS_MAX / 2));
        assert_eq!(pauses(&mut node, 499), DIAL_MILLIS_MAX - 1);
        node.on_up(3);
        assert!(pauses(&mut node, 1) < REDIAL_MILLIS);
    }
}
