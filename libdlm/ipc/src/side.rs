//! The two ends of a page set, ready to use.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use crate::bell::{Bell, BellWatch};
use crate::layout::{Event, Geometry, Reply, Submission};
use crate::page::{Page, PageError};
use crate::ring::{Consumer, Producer};

/// What the daemon sends to a client with its `Welcome`, in the order on the wire.
#[derive(Debug)]
pub struct Descriptors {
    page: OwnedFd,
    submission_bell: OwnedFd,
    reply_watch: OwnedFd,
    event_watch: OwnedFd,
}

impl Descriptors {
    /// For [`Connection::send_with_fds`](crate::socket::Connection::send_with_fds). Drop the
    /// descriptors afterwards: the daemon keeps none of them open.
    pub fn as_fds(&self) -> [BorrowedFd<'_>; 4] {
        [
            self.page.as_fd(),
            self.submission_bell.as_fd(),
            self.reply_watch.as_fd(),
            self.event_watch.as_fd(),
        ]
    }
}

impl From<Descriptors> for [OwnedFd; 4] {
    fn from(all: Descriptors) -> Self {
        [all.page, all.submission_bell, all.reply_watch, all.event_watch]
    }
}

/// A client's end. The fields are independent of each other and may be taken apart for different
/// threads.
pub struct ClientSide {
    /// The pages: [`Page::lease_until`] and [`Page::lost`].
    pub page: Arc<Page>,
    /// Requests to the daemon. Waiting for room ends by the reply bell.
    pub submissions: Producer<Submission>,
    /// Answers.
    pub replies: Consumer<Reply>,
    /// Completions and blocking callbacks.
    pub events: Consumer<Event>,
    /// Where a thread sleeps that waits for answers.
    pub reply_watch: BellWatch,
    /// Where a thread sleeps that waits for events; readable, so that it can be the program's
    /// descriptor.
    pub event_watch: BellWatch,
}

impl ClientSide {
    /// Maps the descriptors that came with a good `Welcome`.
    ///
    /// # Errors
    /// The pages are not what a daemon of this version sends.
    pub fn open(descriptors: [OwnedFd; 4]) -> Result<Self, PageError> {
        let [file, submission_bell, reply_watch, event_watch] = descriptors;
        let page = Arc::new(Page::open(&file)?);
        let bell = Arc::new(Bell::from(submission_bell));
        Ok(Self {
            submissions: Producer::new(Arc::clone(&page), Arc::clone(&bell)),
            replies: Consumer::new(Arc::clone(&page), Arc::clone(&bell)),
            events: Consumer::new(Arc::clone(&page), bell),
            page,
            reply_watch: reply_watch.into(),
            event_watch: event_watch.into(),
        })
    }
}

/// The daemon's end. Three descriptors stay open per client: its bells.
pub struct DaemonSide {
    /// The pages: [`Page::set_lease_until`] and [`Page::set_lost`].
    pub page: Arc<Page>,
    /// The client's requests, to be judged after the copy: [`Submission::operation`].
    pub submissions: Consumer<Submission>,
    /// Answers.
    pub replies: Producer<Reply>,
    /// Completions and blocking callbacks.
    pub events: Producer<Event>,
    /// Rings for submissions, and for room that [`Producer::prepare_wait_for_room`] asked for.
    /// Register it edge-triggered; never read it (see [`crate::bell`]).
    pub submission_bell: Arc<Bell>,
}

impl DaemonSide {
    /// Makes a page set with its bells, and the client's descriptors.
    ///
    /// # Errors
    /// `InvalidInput` for impossible ring sizes; else the system has no memory or descriptor left.
    pub fn create(geometry: Geometry, node: u32) -> io::Result<(Self, Descriptors)> {
        Self::create_named(geometry, node, c"dlm-rings")
    }

    /// As [`DaemonSide::create`], with a name for the memory file ([`Page::create_named`]).
    ///
    /// # Errors
    /// As [`DaemonSide::create`].
    pub fn create_named(
        geometry: Geometry,
        node: u32,
        name: &CStr,
    ) -> io::Result<(Self, Descriptors)> {
        let (page, file) = Page::create_named(geometry, node, name)?;
        let page = Arc::new(page);
        let submission_bell = Arc::new(Bell::new()?);
        let reply_bell = Arc::new(Bell::new()?);
        let event_bell = Arc::new(Bell::new()?);
        let descriptors = Descriptors {
            page: file,
            submission_bell: submission_bell.as_fd().try_clone_to_owned()?,
            reply_watch: reply_bell.watch()?.into(),
            event_watch: event_bell.watch()?.into(),
        };
        let side = Self {
            submissions: Consumer::new(Arc::clone(&page), Arc::clone(&reply_bell)),
            replies: Producer::new(Arc::clone(&page), reply_bell),
            events: Producer::new(Arc::clone(&page), event_bell),
            page,
            submission_bell,
        };
        Ok((side, descriptors))
    }
}
