//! Whether two halves of a session fit together when a connection is made.
//!
//! Each side tells which life of the other it has a session with, and the last number of it that it
//! has received. The sender drops what that covers and sends the rest again; the receiver
//! drops nothing and counts on, so nothing is lost or doubled (BL-015).
//!
//! The one danger is a side that has lost its half (it removed the node from its configuration, say)
//! and begins again at 1 while the other goes on: it would take new messages for old ones. It is
//! recognised by what it no longer knows, and never resumed.

use dlm_core::Member;

use super::SessionError;

/// What a side knows of a session, as its greeting tells it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Resume {
    /// The life of the other side that it has a session with; 0: none.
    pub peer_incarnation: u64,
    /// Last number received in that session.
    pub received: u64,
}

/// What this side knows of the session.
#[derive(Clone, Copy, Debug)]
pub(super) struct Own {
    pub(super) member: Member,
    pub(super) received: u64,
    pub(super) acked: u64,
    pub(super) sent: u64,
}

/// Up to which number the other side has everything, if the two halves fit.
pub(super) fn fit(own: Own, peer: Member, told: Resume) -> Result<u64, SessionError> {
    let forgotten = Err(SessionError::Forgotten { node: peer.node });
    if told.peer_incarnation != own.member.incarnation {
        // It knows no session with this life: right only if it never heard or said anything in one.
        return if own.received == 0 && own.acked == 0 { Ok(0) } else { forgotten };
    }
    if told.received < own.acked {
        return forgotten;
    }
    if told.received > own.sent {
        return Err(SessionError::Ack { ack: told.received, sent: own.sent });
    }
    Ok(told.received)
}
