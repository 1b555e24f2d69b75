//! The lease at work (membership.md section 2): ticks that came back lengthen it, its end freezes
//! the node, then ends the life; clients that do not confirm are killed; the watchdog is fed while
//! this machine is harmless.
//!
//! [`Lease`] decides all of that. Here it meets the clock, the pages and the device.

use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use dlm_ipc::hello::{ClientMessage, MESSAGE_BYTES_MAX};
use dlm_ipc::page::NO_LEASE;

use super::config::Settings;
use super::config::table::Key;
use super::config::value::NONE;
use super::leftover::Remnants;
use super::reactor::{End, Reactor};
use crate::ipc::peer::{Handle, Peer, Stage};
use crate::membership::lease::{Lease, Standing, TICK, Terms};
use crate::membership::watchdog::{Device, Watchdog};
use crate::sys;

/// How often an ending daemon looks whether its clients have closed.
const NAP: Duration = Duration::from_millis(5);
/// How often it is looked whether clients of a crashed daemon are gone, nanoseconds.
const LOOK_PAUSE: u64 = 200_000_000;

/// The lease of this daemon, and what enforces it.
pub(crate) struct Tenure {
    pub(super) lease: Lease,
    watchdog: Guard,
    /// When the watchdog has to be fed again.
    feed_at: u64,
    /// What was logged last.
    told: Standing,
}

/// What resets this machine.
enum Guard {
    /// Nothing does.
    Nothing,
    /// It is armed and has to be fed.
    Armed(Box<dyn Watchdog>),
    /// A daemon crashed here. If it was armed by that one it is running out, as it should: clients
    /// may act that nobody can vouch for. It is armed anew when they are gone.
    Withheld { path: PathBuf, seconds: u32, remnants: Remnants },
}

impl Guard {
    fn of(settings: &Settings, terms: &Terms, mut remnants: Remnants) -> Result<Self, String> {
        let path = match settings.text(Key::Watchdog) {
            NONE => {
                tracing::warn!(
                    "watchdog=none: nothing resets this machine if dlmd is stopped while clients \
                     hold locks; the others go on {} s after they excluded it all the same",
                    terms.safe_after().div_ceil(1_000_000_000)
                );
                return Ok(Self::Nothing);
            }
            path => PathBuf::from(path),
        };
        let seconds = settings.small(Key::WatchdogTimeout);
        if remnants.are_gone() {
            return Ok(Self::Armed(Box::new(Device::open(&path, seconds)?)));
        }
        tracing::error!(
            "clients of the dlmd that crashed here may still act: watchdog {} is not fed before \
             they are gone, and resets this machine if it was armed",
            path.display()
        );
        Ok(Self::Withheld { path, seconds, remnants })
    }

    /// Arms it, if the time has come.
    fn arm(&mut self) {
        let Self::Withheld { path, seconds, remnants } = self else { return };
        if remnants.are_gone() {
            match Device::open(path, *seconds) {
                Ok(device) => {
                    tracing::info!("clients of the dlmd that crashed here are gone");
                    *self = Self::Armed(Box::new(device));
                }
                Err(sentence) => tracing::error!("{sentence}"),
            }
        }
    }
}

/// The spans that the configuration says; `None`: it wants no lease.
///
/// # Errors
/// A sentence: the spans do not fit each other.
pub(super) fn terms(settings: &Settings) -> Result<Option<Terms>, String> {
    if settings.text(Key::Membership) == "single" {
        return Ok(None);
    }
    let Some(lease) = settings.nanos(Key::Lease) else { return Ok(None) };
    let nanos = |key: Key| settings.nanos(key).unwrap_or_default();
    let watchdog = match settings.text(Key::Watchdog) {
        NONE => 0,
        _ => settings.number(Key::WatchdogTimeout) * 1_000_000_000,
    };
    let terms = Terms {
        // Daemons of one corosync group send theirs in one rhythm.
        tick: match settings.text(Key::Membership) {
            "corosync" => TICK,
            _ => nanos(Key::LeaseTick),
        },
        lease,
        grace: nanos(Key::LeaseGrace),
        watchdog,
        drift: settings.number(Key::LeaseDrift),
    };
    terms.check().map(|()| Some(terms))
}

impl Tenure {
    /// What the configuration wants; the watchdog is armed, unless `remnants` of the daemon before
    /// may still act.
    ///
    /// # Errors
    /// A sentence that says what to do.
    pub(super) fn begin(
        settings: &Settings,
        remnants: Remnants,
        now: u64,
    ) -> Result<Option<Self>, String> {
        let Some(terms) = terms(settings)? else { return Ok(None) };
        let watchdog = Guard::of(settings, &terms, remnants)?;
        let lease = Lease::new(terms, now);
        let told = lease.standing(now);
        Ok(Some(Self { lease, watchdog, feed_at: 0, told }))
    }

    /// When [`Reactor::keep_lease`] has to be called at the latest.
    pub(super) fn deadline(&self, now: u64) -> u64 {
        let feed = match &self.watchdog {
            Guard::Armed(_) if self.lease.may_feed(now) => self.feed_at,
            Guard::Withheld { .. } => now + LOOK_PAUSE,
            _ => u64::MAX,
        };
        self.lease.change_after(now).min(feed)
    }

    /// Feeds the watchdog, if it is time to and this machine is harmless.
    fn feed(&mut self) {
        let tick = self.lease.terms().tick;
        self.watchdog.arm();
        let Guard::Armed(watchdog) = &mut self.watchdog else { return };
        // The clock of this turn may be old by now, and what is promised here counts from now.
        let now = sys::boot_nanos();
        if now < self.feed_at || !self.lease.may_feed(now) {
            return;
        }
        self.feed_at = now + tick;
        if let Err(error) = watchdog.feed() {
            tracing::error!("the watchdog cannot be fed, and resets this machine: {error}");
        }
    }
}

impl Reactor {
    /// The node had its place in the cluster at `t0`.
    pub(super) fn lease_returned(&mut self, t0: u64) {
        let now = self.now;
        let Some(tenure) = &mut self.tenure else { return };
        if tenure.lease.returned(t0, true, now) {
            self.set_permit();
            self.show_lease();
        }
    }

    /// A tick for a feeder, if one is due, and how long after an exclusion this node is harmless.
    pub(super) fn tick_for_feeder(&mut self) -> (u64, u64) {
        let Some(tenure) = &mut self.tenure else { return (0, 0) };
        let due = tenure.lease.tick_due() <= self.now;
        if due {
            tenure.lease.sent(self.now);
        }
        (if due { self.now } else { 0 }, tenure.lease.terms().safe_after())
    }

    /// Until when the core may grant: not at all while the cluster does not let it.
    pub(super) fn permit(&self) -> u64 {
        match &self.tenure {
            _ if !self.standing => 0,
            Some(tenure) => tenure.lease.until(),
            None => u64::MAX,
        }
    }

    /// Whether nothing may be granted, completed or delivered at this very moment.
    pub(super) fn is_frozen(&self) -> bool {
        match self.permit() {
            u64::MAX => false,
            until => sys::boot_nanos() >= until,
        }
    }

    /// What a client's page says of the lease, and how long after it all is lost.
    pub(super) fn page_lease(&self) -> (u64, u64) {
        match &self.tenure {
            Some(tenure) => (tenure.lease.until(), tenure.lease.terms().notice()),
            None => (NO_LEASE, 0),
        }
    }

    fn show_lease(&self) {
        let (until, _) = self.page_lease();
        for (_, peer) in self.peers.iter() {
            if let Stage::Handle(handle) = &peer.stage {
                handle.set_lease_until(until);
            }
        }
    }

    /// Does what time brings about: once per turn.
    pub(super) fn keep_lease(&mut self) {
        let now = self.now;
        let Some(tenure) = &mut self.tenure else { return };
        let standing = tenure.lease.standing(now);
        let before = std::mem::replace(&mut tenure.told, standing);
        if standing != before {
            self.tell_standing(standing);
        }
        if standing == Standing::Over {
            let ended = self.end_life("the lease ran out");
            self.carry_out();
            if let Err(sentence) = ended {
                tracing::error!("settings of the next life: {sentence}");
            }
        }
        let Some(tenure) = &mut self.tenure else { return };
        if self.remains.is_empty() {
            tenure.lease.confirmed();
        } else if tenure.lease.must_kill(now) {
            self.kill_unconfirmed();
        }
        if let Some(tenure) = &mut self.tenure {
            tenure.feed();
        }
    }

    fn tell_standing(&self, standing: Standing) {
        match standing {
            Standing::Waiting => {}
            Standing::Held => tracing::info!("the lease is held: this node may grant"),
            Standing::Frozen => tracing::warn!(
                "the lease is over: no sign of life of this node came back from the cluster; \
                 nothing is granted until one does"
            ),
            // Said by what follows.
            Standing::Over => {}
        }
    }

    /// The life that had the lease is over.
    pub(super) fn end_lease(&mut self) {
        let now = self.now;
        if let Some(tenure) = &mut self.tenure {
            tenure.lease.end_life(now);
            tenure.told = tenure.lease.standing(now);
            self.show_lease();
        }
    }

    /// Whether the present life ends because its lease ran out.
    pub(super) fn lease_is_over(&self) -> bool {
        let over = |tenure: &Tenure| tenure.lease.standing(self.now) == Standing::Over;
        self.tenure.as_ref().is_some_and(over)
    }

    /// Who has lost its locks and has not said that it knows can say it no more.
    fn kill_unconfirmed(&mut self) {
        let now = Instant::now();
        for (id, peer) in self.peers.iter_mut() {
            if !matches!(&peer.stage, Stage::Lost(lost) if !lost.killed) {
                continue;
            }
            // It may have closed while this daemon was stopped, and the loop has yet to hear of
            // it.
            if confirms_by(peer, now) {
                self.queues.doomed.push((id, End::Gone));
                continue;
            }
            let Stage::Lost(lost) = &mut peer.stage else { continue };
            lost.killed = true;
            let (pid, program) = (peer.who.pid, &lost.handle.program);
            match kill(&lost.handle) {
                Ok(()) => tracing::error!(
                    pid,
                    "{program} lost its lockspace and did not close it in time; killed"
                ),
                Err(error) => tracing::error!(
                    pid,
                    "{program} lost its lockspace, did not close it, and cannot be killed: {error}"
                ),
            }
        }
    }

    /// Whether an opening has to wait for the lease.
    pub(super) fn awaits_lease(&self) -> bool {
        self.tenure.as_ref().is_some_and(|tenure| !tenure.lease.is_held(self.now))
    }

    /// What is waited for without a lease, and what ends it.
    pub(super) fn lease_in_words(&self) -> Option<String> {
        let lease = &self.tenure.as_ref()?.lease;
        match lease.standing(self.now) {
            Standing::Held | Standing::Over => None,
            Standing::Waiting => Some(
                "the lease: nothing is granted before the cluster has heard this node, which takes \
                 a majority of its nodes (or the feeder)"
                    .to_owned(),
            ),
            Standing::Frozen => Some(format!(
                "the lease, over since {} ms: nothing is granted before a sign of life of this \
                 node comes back; in {} ms its lockspaces are lost",
                (self.now - lease.until()) / 1_000_000,
                (lease.lost_at() - self.now) / 1_000_000
            )),
        }
    }

    /// How long clients that lost their lockspaces have, behind a sentence.
    pub(super) fn patience_in_words(&self) -> String {
        let kill_at = self.tenure.as_ref().and_then(|tenure| tenure.lease.feared_until());
        kill_at.map_or(String::new(), |at| {
            let left = at.saturating_sub(self.now) / 1_000_000;
            format!("; it is killed in {left} ms")
        })
    }

    /// Takes over the answers to openings that waited for the lease.
    pub(super) fn serve_opened(&mut self) {
        if self.queues.opened.is_empty() || self.awaits_lease() {
            return;
        }
        for id in std::mem::take(&mut self.queues.opened) {
            self.finish_open(id);
        }
    }

    /// The last act of a daemon with a lease: clients, who were told, give up or are killed; only
    /// then is the watchdog released.
    pub(super) fn give_up_lease(&mut self) {
        let Some(tenure) = &mut self.tenure else { return };
        let grace = Duration::from_nanos(tenure.lease.terms().grace);
        let mut left: Vec<&Peer> = self.peers.iter().map(|(_, peer)| peer).collect();
        left.retain(|peer| handle_of(peer).is_some());
        let patience = Instant::now() + grace;
        left.retain(|peer| !confirms_by(peer, patience));
        for handle in left.iter().copied().filter_map(handle_of) {
            let _ = kill(handle);
            tracing::warn!("{} did not close its lockspace in time; killed", handle.program);
        }
        let patience = Instant::now() + grace;
        left.retain(|peer| !confirms_by(peer, patience));
        let Guard::Armed(watchdog) = &mut tenure.watchdog else { return };
        if !left.is_empty() {
            return tracing::error!(
                "{} clients are left that may act: the watchdog resets this machine",
                left.len()
            );
        }
        if let Err(error) = watchdog.release() {
            tracing::error!("the watchdog cannot be released, and resets this machine: {error}");
        }
    }
}

/// The handle of a connection, lost or not.
fn handle_of(peer: &Peer) -> Option<&Handle> {
    match &peer.stage {
        Stage::Handle(handle) => Some(handle),
        Stage::Lost(lost) => Some(&lost.handle),
        _ => None,
    }
}

/// Kills the process that opened a handle.
fn kill(handle: &Handle) -> io::Result<()> {
    match &handle.process {
        Some(process) => sys::kill_process(process),
        None => Err(io::Error::new(io::ErrorKind::Unsupported, "it cannot be seen from here")),
    }
}

/// Whether a client closes its handle, or is gone, before the end of a time.
fn confirms_by(peer: &Peer, patience: Instant) -> bool {
    let mut buffer = [0; MESSAGE_BYTES_MAX];
    loop {
        let gone = match peer.connection.recv(&mut buffer) {
            Ok(Some(message)) => {
                !matches!(ClientMessage::decode(message), Ok(ClientMessage::Label(_)))
            }
            Ok(None) => true,
            Err(error) => error.kind() != io::ErrorKind::WouldBlock,
        };
        let process = handle_of(peer).and_then(|handle| handle.process.as_ref());
        if gone || process.is_some_and(sys::is_readable) {
            return true;
        }
        if Instant::now() >= patience {
            return false;
        }
        std::thread::sleep(NAP);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    /// Counts its feedings.
    struct Counting(Arc<AtomicU32>);

    impl Watchdog for Counting {
        fn feed(&mut self) -> io::Result<()> {
            self.0.fetch_add(1, Ordering::Relaxed);
            Ok(())
        }

        fn release(&mut self) -> io::Result<()> {
            unreachable!("only the end of a daemon releases it")
        }
    }

    /// A daemon whose last tick that came back was sent so long ago.
    fn tenure(ago: u64) -> (Tenure, Arc<AtomicU32>) {
        let now = sys::boot_nanos();
        let begin = now.saturating_sub(ago);
        let mut lease = Lease::new(Terms::DEFAULT, begin);
        assert!(lease.returned(begin, true, begin));
        let fed = Arc::new(AtomicU32::new(0));
        let watchdog = Guard::Armed(Box::new(Counting(Arc::clone(&fed))));
        (Tenure { lease, watchdog, feed_at: 0, told: Standing::Held }, fed)
    }

    #[test]
    fn the_watchdog_is_fed_once_a_tick() {
        let (mut tenure, fed) = tenure(0);
        tenure.feed();
        tenure.feed();
        assert_eq!(fed.load(Ordering::Relaxed), 1, "not more often than it needs");
        assert!(tenure.deadline(sys::boot_nanos()) <= tenure.feed_at);
        tenure.feed_at = 0;
        tenure.feed();
        assert_eq!(fed.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn feeding_stops_where_clients_should_be_gone_and_goes_on_when_they_are() {
        let terms = Terms::DEFAULT;
        let killed = terms.lease + terms.grace;
        let uptime = sys::boot_nanos();
        assert!(uptime > killed, "this machine runs for longer than a lease");
        let (mut tenure, fed) = tenure(killed);
        tenure.feed();
        assert_eq!(fed.load(Ordering::Relaxed), 0, "it slept through its own end");
        tenure.lease.end_life(uptime);
        tenure.feed();
        assert_eq!(fed.load(Ordering::Relaxed), 0, "clients are feared");
        tenure.lease.confirmed();
        tenure.feed();
        assert_eq!(fed.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn terms_come_from_the_configuration() {
        let of = |values: &[(Key, &str)]| {
            let values: Vec<_> =
                values.iter().map(|(key, value)| (*key, (*value).to_owned())).collect();
            let none = crate::testing::TempDir::new("lease-terms");
            let file = none.path().join("dlm.conf");
            std::fs::write(&file, "").expect("writable");
            terms(&Settings::load(Some(&file), &values).expect("good"))
        };
        let cluster = (Key::Membership, "external");
        assert_eq!(of(&[(Key::Lease, "4")]), Ok(None), "one node has nobody to fear it");
        assert_eq!(of(&[cluster]), Ok(None), "fencing alone");
        assert_eq!(of(&[cluster, (Key::Lease, "4")]), Ok(Some(Terms::DEFAULT)));
        let without = of(&[cluster, (Key::Lease, "4"), (Key::Watchdog, "none")]);
        assert_eq!(without, Ok(Some(Terms { watchdog: 0, ..Terms::DEFAULT })));
        let short = of(&[cluster, (Key::Lease, "0.9")]).expect_err("refused");
        assert_eq!(short, "lease is 0.9 s and lease_tick 0.25 s; make the lease at least 4 ticks");
    }
}
