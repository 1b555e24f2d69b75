//! Directory and recovery messages wait here for their turn, which is a part of the work.
//!
//! A change makes members say something about every name, and whatever is said at once stands before
//! everything said later. So what concerns one name only, lock traffic and look-ups, goes past what
//! waits here; the rest keeps its order. That is as if those messages had been longer on their way, which
//! is safe (recovery.md section 9, "Two lanes"): lock traffic about a name that is claimed or rebuilt waits
//! with that name, and what waits here is void with its view, as what arrives late is.

use std::collections::VecDeque;

use crate::lockspace::{Context, LockTable};
use crate::message::{Body, Tagged};
use crate::{Member, ViewId};

/// What is handled in one part of the work: so many messages about one name.
const INBOX_PART: usize = 12;
/// Entries of a directory that cost as much as one of those.
const ENTRIES_PER_MESSAGE: usize = 4;

/// What waits.
#[derive(Clone, Hash, Debug, Default)]
pub(crate) struct Inbox {
    messages: VecDeque<(Member, ViewId, Tagged)>,
}

impl Inbox {
    /// Whether nothing waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// How many messages wait.
    pub(crate) fn len(&self) -> usize {
        self.messages.len()
    }

    /// Keeps a message that can wait, or gives it back.
    pub(crate) fn keep(&mut self, from: Member, body: Body) -> Option<Body> {
        let prompt = body.is_prompt();
        match body {
            Body::Tagged(view, tagged) if !prompt => {
                self.messages.push_back((from, view, tagged));
                None
            }
            body => Some(body),
        }
    }

    /// Forgets all: a new view voids what was said in the one before.
    pub(crate) fn clear(&mut self) {
        self.messages.clear();
    }
}

impl LockTable {
    /// Handles some of what waits, in the order in which it came.
    pub(crate) fn work_inbox(&mut self, cx: &mut Context<'_>) {
        let mut done = 0;
        while done < INBOX_PART {
            let Some((from, view, tagged)) = self.cluster.inbox.messages.pop_front() else {
                return;
            };
            done += match &tagged {
                Tagged::Names { names } => names.len().div_ceil(ENTRIES_PER_MESSAGE),
                _ => 1,
            };
            self.on_body(cx, from, Body::Tagged(view, tagged));
            self.settle_loopback(cx);
        }
    }
}
