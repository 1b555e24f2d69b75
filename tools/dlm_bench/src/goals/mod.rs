//! The goals: what dlmd is to reach, alone and as a cluster, divided by the machine's own limits.
//!
//! Goals that come out of the same measurement form a group. Around each group its units are
//! measured, and its peers are started on the same core; the bars are those of performance.md
//! section 4. Everything is judged with client and daemon on one core; what two cores give is said
//! beside it.

mod cluster;
mod death;
mod growth;
mod handoff;
mod idle;
mod pair;
mod pipeline;
mod rate;
mod table;

pub(crate) use cluster::{CLUSTER_GROUPS, CLUSTER_UNITS};
pub(crate) use handoff::HOT_NAME;

use std::io;
use std::path::PathBuf;

use crate::crew::{Board, Worker};
use crate::daemon::Daemon;
use crate::job::{Backend, Job, LockJob};
use crate::peers::{Kind, Server};
use crate::progress::progress;
use crate::report::{Bar, Figure, Reference, Scale};
use crate::units::{Bench, Unit, Units};

/// What a run works with.
pub(crate) struct Context {
    /// Where and how long.
    pub bench: Bench,
    /// The daemon's program.
    pub dlmd: PathBuf,
    /// `libdlm_lt.so.3`, if there is one.
    pub library: Option<PathBuf>,
    /// Sizes of tables of locks, where a goal has several.
    pub sizes: Vec<usize>,
}

/// Makes figures once the units have been measured for the second time.
type Finish = Box<dyn FnOnce(&Units) -> Vec<Figure>>;

/// Goals that are measured together.
pub(crate) struct Group {
    /// Their ids.
    pub ids: &'static [&'static str],
    /// The units they name.
    pub units: &'static [Unit],
    measure: fn(&Context) -> io::Result<Finish>,
}

/// All groups, in the order in which they run.
pub(crate) const GROUPS: [Group; 8] = [
    Group { ids: &["G2", "G18"], units: &[Unit::U2, Unit::U3], measure: pair::measure },
    Group { ids: &["G4"], units: &[Unit::U7], measure: rate::measure },
    Group { ids: &["G6", "G7"], units: &[Unit::U6], measure: handoff::measure },
    Group { ids: &["G8", "G9"], units: &[Unit::U2, Unit::U9], measure: table::measure },
    Group { ids: &["G10", "G11"], units: &[Unit::U5, Unit::U5s], measure: death::measure },
    Group { ids: &["G17"], units: &[], measure: idle::measure },
    Group { ids: &["pipeline"], units: &[Unit::U7], measure: pipeline::measure },
    Group { ids: &["growth"], units: &[Unit::U9], measure: growth::measure },
];

impl Group {
    /// Measures units, goals, and units again. What fails becomes a figure that misses its bar.
    pub(crate) fn run(&self, context: &Context, units: &mut Units) -> Vec<Figure> {
        self.try_run(context, units).unwrap_or_else(|error| {
            progress(format_args!("{}: {error}", self.ids.join(", ")));
            let failed = |id: &&str| {
                Figure::new(id, "could not be measured", f64::NAN, Scale::Plain)
                    .must(Bar::at_most(1.0, &Reference::absolute()))
                    .note(error.to_string())
            };
            self.ids.iter().map(failed).collect()
        })
    }

    fn try_run(&self, context: &Context, units: &mut Units) -> io::Result<Vec<Figure>> {
        units.measure(self.units)?;
        let finish = (self.measure)(context)?;
        units.measure(self.units)?;
        Ok(finish(units))
    }
}

impl Context {
    /// A daemon on the core where everything is judged.
    fn daemon(&self) -> io::Result<Daemon> {
        Daemon::start(&self.dlmd, Some(self.bench.core))
    }

    /// A peer on that core; says aloud that it is absent.
    fn peer(&self, kind: Kind) -> io::Result<Option<Server>> {
        let server = Server::start(kind, Some(self.bench.core))?;
        if server.is_none() {
            progress(format_args!(
                "{} is not installed: ratios to it are skipped (Debian: apt-get install {})",
                kind.name(),
                kind.package()
            ));
        }
        Ok(server)
    }
}

/// The Rust client of a daemon, every answer awaited.
fn dlm(daemon: &Daemon) -> Backend {
    Backend::Dlm { socket: daemon.socket().to_owned(), lazy: false }
}

/// The same with unlocks that nobody waits for.
fn dlm_lazy(daemon: &Daemon) -> Backend {
    Backend::Dlm { socket: daemon.socket().to_owned(), lazy: true }
}

/// Starts a worker with a lock job.
fn start(job: LockJob, board: &Board, core: Option<usize>) -> io::Result<Worker> {
    Worker::start(&Job::Lock(job), board, None, core)
}

/// A reference to a peer's figure, or to its absence.
fn peer_reference(kind: Kind, value: Option<f64>) -> Reference {
    Reference { name: kind.name().to_owned(), value }
}
