//! What worker processes do to lock services.
//!
//! Every pair is on a name that nobody used before, so that nothing is cached anywhere; names are
//! 13 bytes long, as the memory goal says.

use std::hint::black_box;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::crew::{Board, SPANS};
use crate::dlm::Client;
use crate::goals::HOT_NAME;
use crate::job::{LockJob, Names};
use crate::locker::{self, Locker};
use crate::measure::{Latency, repeat};
use crate::sys;

/// Does a lock job.
pub(crate) fn work(job: &LockJob, board: &Board) -> io::Result<()> {
    match job {
        LockJob::Latency { backend, time_ms, least } => {
            latency(&mut *locker::open(backend)?, board, Duration::from_millis(*time_ms), *least)
        }
        LockJob::Pairs { id, backend } => pairs(&mut *locker::open(backend)?, board, *id),
        LockJob::HandOff { id, backend } => hand_off(&mut *locker::open(backend)?, board, *id),
        LockJob::Pipeline { id, socket, in_flight } => {
            pipeline(&mut Client::open(socket)?, board, *id, *in_flight)
        }
        LockJob::Hold { socket, locks, singly, mib } => {
            hold(&mut Client::open(socket)?, board, *locks, *singly, *mib)
        }
        LockJob::AwaitAll { socket, locks } => await_all(&mut Client::open(socket)?, board, *locks),
        LockJob::Keep { socket, names, mode } => {
            keep(&mut Client::open_for(socket, *mode)?, board, *names)
        }
        LockJob::Await { socket, names, mode } => {
            wait_for(&mut Client::open_for(socket, *mode)?, board, *names)
        }
        LockJob::Cycle { backend, names, time_ms, least } => {
            let time = Duration::from_millis(*time_ms);
            cycle(&mut *locker::open(backend)?, board, *names, time, *least)
        }
        LockJob::Probe { socket, names, seen } => {
            probe(&mut Client::open_for(socket, 0)?, board, *names, seen)
        }
        LockJob::Drain { id, socket, name: names, locks } => {
            let name = name(names.owner, names.first);
            drain(&mut Client::open(socket)?, board, *id, &name, *locks)
        }
        LockJob::Fresh { socket, names } => fresh(&mut Client::open(socket)?, board, *names),
        LockJob::Visit { socket, names } => visit(socket, board, *names),
    }
}

/// The name number `number` of client `owner`: 13 bytes.
pub(crate) fn name(owner: usize, number: u64) -> [u8; 13] {
    let mut name = *b"000-000000000";
    write_digits(&mut name[..3], owner as u64);
    write_digits(&mut name[4..], number);
    name
}

/// Writes the last digits of `number`, as many as there is room for.
fn write_digits(room: &mut [u8], mut number: u64) {
    for digit in room.iter_mut().rev() {
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
    }
}

/// Owner number of names that are held for long: no pair ever uses it.
const HOLDER: usize = 999;

fn latency(locker: &mut dyn Locker, board: &Board, time: Duration, least: u64) -> io::Result<()> {
    let mut number = 0;
    let latency = repeat(time, least, || {
        number += 1;
        locker.lock(&name(0, number))?;
        locker.unlock()
    })?;
    hand_back(board, &latency);
    Ok(())
}

/// p50, p99, how many, p90 and p99.9.
fn hand_back(board: &Board, latency: &Latency) {
    board.hand_back(0, latency.p50());
    board.hand_back(1, latency.percentile(99.0));
    board.hand_back(2, latency.len() as f64);
    board.hand_back(3, latency.percentile(90.0));
    board.hand_back(4, latency.percentile(99.9));
}

/// Calls `pair` with one of the names after the other, round and round.
fn round_and_round(names: Names) -> impl FnMut() -> [u8; 13] {
    let mut numbers = names.numbers().cycle();
    move || name(names.owner, numbers.next().unwrap_or(names.first))
}

fn cycle(
    locker: &mut dyn Locker,
    board: &Board,
    names: Names,
    time: Duration,
    least: u64,
) -> io::Result<()> {
    let mut next = round_and_round(names);
    let latency = repeat(time, least, || {
        locker.lock(&next())?;
        locker.unlock()
    })?;
    hand_back(board, &latency);
    Ok(())
}

fn pairs(locker: &mut dyn Locker, board: &Board, id: usize) -> io::Result<()> {
    board.ready_and_wait();
    let mut number = 0;
    while !board.stopped() {
        number += 1;
        locker.lock(&name(id, number))?;
        locker.unlock()?;
        board.count(id, 1);
    }
    Ok(())
}

fn hand_off(locker: &mut dyn Locker, board: &Board, id: usize) -> io::Result<()> {
    board.ready_and_wait();
    while !board.stopped() {
        locker.lock(HOT_NAME)?;
        board.count_hand_off(id);
        locker.unlock()?;
    }
    Ok(())
}

fn pipeline(client: &mut Client, board: &Board, id: usize, in_flight: usize) -> io::Result<()> {
    board.ready_and_wait();
    let mut number = 0;
    while !board.stopped() {
        let done = client.pairs(in_flight, || {
            number += 1;
            name(id, number)
        })?;
        board.count(id, done);
    }
    Ok(())
}

fn hold(
    client: &mut Client,
    board: &Board,
    locks: usize,
    singly: bool,
    mib: usize,
) -> io::Result<()> {
    let memory = black_box(vec![1u8; mib << 20]);
    let start = Instant::now();
    if singly {
        (0..locks as u64).try_for_each(|number| client.lock(&name(HOLDER, number)))?;
    } else {
        client.ask_all((0..locks as u64).map(|number| name(HOLDER, number)))?;
        client.await_all()?;
    }
    board.hand_back(0, start.elapsed().as_nanos() as f64);
    board.ready();
    board.wait_for_stop();
    drop(memory);
    Ok(())
}

fn await_all(client: &mut Client, board: &Board, locks: usize) -> io::Result<()> {
    client.ask_all((0..locks as u64).map(|number| name(HOLDER, number)))?;
    board.ready();
    client.await_all()?;
    board.stamp();
    Ok(())
}

fn keep(client: &mut Client, board: &Board, names: Names) -> io::Result<()> {
    client.ask_all(names.numbers().map(|number| name(names.owner, number)))?;
    client.await_all()?;
    board.ready();
    board.wait_for_stop();
    Ok(())
}

fn wait_for(client: &mut Client, board: &Board, names: Names) -> io::Result<()> {
    client.ask_all(names.numbers().map(|number| name(names.owner, number)))?;
    board.ready();
    client.await_all()?;
    board.stamp();
    // The end of so many locks is not what is measured.
    board.wait_for_stop();
    Ok(())
}

/// Pause between two pairs of a probe: it is to see what others do, not to be what others see.
const PROBE_PAUSE: Duration = Duration::from_micros(200);

fn probe(client: &mut Client, board: &Board, names: Names, seen: &Path) -> io::Result<()> {
    // Names that are held have a master that stays.
    client.ask_all(names.numbers().map(|number| name(names.owner, number)))?;
    client.await_all()?;
    let mut next = round_and_round(names);
    let mut spans: Vec<Vec<u64>> = vec![Vec::new(); SPANS];
    board.ready();
    while !board.stopped() {
        let begin = Instant::now();
        client.pair(&next())?;
        // A pair that began in an earlier span is of the one in which it was done.
        spans[board.span()].push(begin.elapsed().as_nanos() as u64);
        std::thread::sleep(PROBE_PAUSE);
    }
    std::fs::write(seen, serde_json::to_vec(&spans)?)
}

fn drain(
    client: &mut Client,
    board: &Board,
    id: usize,
    name: &[u8; 13],
    locks: usize,
) -> io::Result<()> {
    let mut before = Ok(0);
    client.drain(name, locks, || {
        board.ready();
        before = sys::times_slept();
    })?;
    board.hand_back(id, (sys::times_slept()? - before?) as f64);
    board.ready();
    board.wait_for_stop();
    Ok(())
}

fn fresh(client: &mut Client, board: &Board, names: Names) -> io::Result<()> {
    board.ready_and_wait();
    client.ask_all(names.numbers().map(|number| name(names.owner, number)))?;
    client.await_all()?;
    board.stamp();
    Ok(())
}

fn visit(socket: &Path, board: &Board, names: Names) -> io::Result<()> {
    board.ready_and_wait();
    let mut client = Client::open(socket)?;
    client.ask_all(names.numbers().map(|number| name(names.owner, number)))?;
    client.await_all()?;
    board.stamp();
    board.wait_for_stop();
    client.release()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_distinct_and_13_bytes() {
        assert_eq!(&name(7, 42), b"007-000000042");
        assert_eq!(&name(HOLDER, 999_999_999), b"999-999999999");
        assert_ne!(name(1, 1), name(1, 2));
    }
}
