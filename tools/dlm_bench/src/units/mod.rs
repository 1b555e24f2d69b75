//! The machine's own limits, U1 to U9: what anything built on it must pay.
//!
//! They need nothing of ours. A goal's units are measured just before and just after the goal, on
//! the same cores, and the goal is divided by the mean of the two.

mod disk;
mod echo;
mod killed;
mod memory;
mod mutex;
mod rings;
mod ticket;

pub(crate) use killed::let_sleep;

use std::collections::BTreeMap;
use std::io;

use crate::crew::Board;
use crate::job::UnitJob;
use crate::measure::{Plan, median};
use crate::progress::progress;
use crate::report::{Figure, Reference, Scale};

/// A physical limit.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Unit {
    /// Robust process-shared mutex, locked and unlocked.
    U1,
    /// SEQPACKET round trip.
    U2,
    /// Round trip through two futexes in shared memory.
    U3,
    /// TCP loopback round trip.
    U4,
    /// Kill -9 of the owner of a robust futex to the sleeping waiter.
    U5,
    /// The same seen by the end of a socket, with a large victim.
    U5s,
    /// Hand-offs of a FIFO ticket lock among 16 processes.
    U6,
    /// Requests through rings in shared memory, 64 in flight.
    U7,
    /// Requests through a SEQPACKET socket, 64 in a datagram.
    U7s,
    /// fdatasync of 4 KiB.
    U8,
    /// Dependent access to memory that is in no cache.
    U9,
}

impl Unit {
    /// All of them, in order.
    pub(crate) const ALL: [Self; 11] = [
        Self::U1,
        Self::U2,
        Self::U3,
        Self::U4,
        Self::U5,
        Self::U5s,
        Self::U6,
        Self::U7,
        Self::U7s,
        Self::U8,
        Self::U9,
    ];

    /// `U5s`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::U1 => "U1",
            Self::U2 => "U2",
            Self::U3 => "U3",
            Self::U4 => "U4",
            Self::U5 => "U5",
            Self::U5s => "U5s",
            Self::U6 => "U6",
            Self::U7 => "U7",
            Self::U7s => "U7s",
            Self::U8 => "U8",
            Self::U9 => "U9",
        }
    }

    fn what(self, plan: Plan) -> String {
        match self {
            Self::U1 => "robust process-shared mutex, lock+unlock, mean".into(),
            Self::U2 => "SEQPACKET round trip of 64 bytes, one core, p50".into(),
            Self::U3 => "futex-in-shm round trip, one core, p50".into(),
            Self::U4 => "TCP loopback round trip of 64 bytes, one core, p50".into(),
            Self::U5 => "kill -9 to waiter by robust futex, small victim, p50".into(),
            Self::U5s => {
                format!("kill -9 to waiter by socket end, {} MiB victim, p50", plan.victim_mib())
            }
            Self::U6 => "FIFO ticket + futex hand-offs, 16 processes, one core".into(),
            Self::U7 => "requests through shm rings, 64 in flight, one core".into(),
            Self::U7s => "requests through SEQPACKET, 64 a datagram, one core".into(),
            Self::U8 => "fdatasync of 4 KiB, p50".into(),
            Self::U9 => "dependent DRAM access, mean".into(),
        }
    }

    fn scale(self) -> Scale {
        match self {
            Self::U6 | Self::U7 | Self::U7s => Scale::PerSecond,
            _ => Scale::Ns,
        }
    }

    fn measure(self, bench: Bench) -> io::Result<Reading> {
        match self {
            Self::U1 => mutex::measure(bench),
            Self::U2 => echo::seqpacket(bench),
            Self::U3 => echo::futex(bench),
            Self::U4 => echo::tcp(bench),
            Self::U5 => killed::by_mutex(bench),
            Self::U5s => killed::by_descriptor(bench),
            Self::U6 => ticket::measure(bench),
            Self::U7 => rings::measure(bench),
            Self::U7s => echo::seqpacket_packed(bench),
            Self::U8 => disk::measure(bench),
            Self::U9 => memory::measure(bench),
        }
    }
}

/// Where and how long to measure.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bench {
    /// How long.
    pub plan: Plan,
    /// The core on which everything is judged.
    pub core: usize,
    /// A second core, if the machine has one.
    pub other: Option<usize>,
}

/// One measurement of a unit.
pub(crate) struct Reading {
    /// The unit itself.
    pub value: f64,
    /// What else was seen, as text: the same on two cores, with a larger victim.
    pub beside: Vec<String>,
}

impl Reading {
    fn of(value: f64) -> Self {
        Self { value, beside: Vec::new() }
    }

    fn beside(mut self, what: &str, value: f64, scale: Scale) -> Self {
        self.beside.push(format!("{what} {}", scale.show(value)));
        self
    }
}

/// All readings of a run.
pub(crate) struct Units {
    bench: Bench,
    readings: BTreeMap<Unit, Vec<Reading>>,
}

impl Units {
    /// No readings yet.
    pub(crate) fn new(bench: Bench) -> Self {
        Self { bench, readings: BTreeMap::new() }
    }

    /// Measures each of `units` once more.
    pub(crate) fn measure(&mut self, units: &[Unit]) -> io::Result<()> {
        for &unit in units {
            progress(format_args!("unit {}: {}", unit.name(), unit.what(self.bench.plan)));
            let reading = unit.measure(self.bench).map_err(|error| {
                io::Error::new(error.kind(), format!("unit {}: {error}", unit.name()))
            })?;
            self.readings.entry(unit).or_default().push(reading);
        }
        Ok(())
    }

    /// The unit to divide by: the mean of its last two readings.
    pub(crate) fn reference(&self, unit: Unit) -> Reference {
        let readings = self.readings.get(&unit).map_or(&[][..], Vec::as_slice);
        let last: Vec<_> = readings.iter().rev().take(2).map(|reading| reading.value).collect();
        if last.is_empty() {
            return Reference::absent(unit.name());
        }
        Reference::measured(unit.name(), last.iter().sum::<f64>() / last.len() as f64)
    }

    /// A figure for each unit that was measured, with the spread over the run.
    pub(crate) fn figures(&self) -> Vec<Figure> {
        let figure = |(unit, readings): (&Unit, &Vec<Reading>)| {
            let values: Vec<_> = readings.iter().map(|reading| reading.value).collect();
            let least = values.iter().copied().fold(f64::INFINITY, f64::min);
            let most = values.iter().copied().fold(0.0, f64::max);
            let scale = unit.scale();
            let what = unit.what(self.bench.plan);
            let figure = Figure::new(unit.name(), what, median(&values), scale).note(format!(
                "{} readings, {} to {}",
                values.len(),
                scale.show(least),
                scale.show(most)
            ));
            let beside = readings.last().map_or(&[][..], |reading| &reading.beside);
            beside.iter().fold(figure, Figure::note)
        };
        self.readings.iter().map(figure).collect()
    }
}

/// The part of a worker process that serves units.
pub(crate) fn work(job: &UnitJob, board: &Board) -> io::Result<()> {
    match *job {
        UnitJob::Echo => echo::answer(),
        UnitJob::Pong { spin } => echo::pong(board, spin),
        UnitJob::Rings => rings::answer(board),
        UnitJob::Victim { mib } => killed::victim(board, mib),
        UnitJob::WaitMutex => killed::wait_mutex(board),
        UnitJob::WaitEof => killed::wait_eof(board),
        UnitJob::WaitPidfd { pid } => killed::wait_pidfd(board, pid),
        UnitJob::Ticket { id } => ticket::take_turns(board, id),
    }
}
