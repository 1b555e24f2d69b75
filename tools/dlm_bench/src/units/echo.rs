//! U2, U3, U4, U7s: a message and its answer, by socket, futex and TCP.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering::{Acquire, Release};
use std::time::Duration;

use super::{Bench, Reading};
use crate::crew::{Board, Worker, line};
use crate::job::{Job, UnitJob};
use crate::measure::repeat;
use crate::report::Scale;
use crate::sys;

/// Bytes of a request, as a lock request would have.
const MESSAGE_BYTES: usize = 64;

/// Requests in a packed datagram.
const PACKED: usize = 64;

const PING: usize = line::FREE;
const PONG: usize = line::FREE + 1;
/// A ping of this value ends the answering worker.
const END: u32 = u32::MAX;

pub(super) fn seqpacket(bench: Bench) -> io::Result<Reading> {
    on_both(bench, |core, time| {
        let (ours, theirs) = sys::seqpacket_pair()?;
        round_trips(bench.core, core, time, ours.into(), theirs, MESSAGE_BYTES)
    })
}

pub(super) fn tcp(bench: Bench) -> io::Result<Reading> {
    on_both(bench, |core, time| {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let ours = TcpStream::connect(listener.local_addr()?)?;
        let (theirs, _) = listener.accept()?;
        ours.set_nodelay(true)?;
        theirs.set_nodelay(true)?;
        let ours = File::from(OwnedFd::from(ours));
        round_trips(bench.core, core, time, ours, theirs.into(), MESSAGE_BYTES)
    })
}

pub(super) fn seqpacket_packed(bench: Bench) -> io::Result<Reading> {
    let requests = |core, time| -> io::Result<f64> {
        let (ours, theirs) = sys::seqpacket_pair()?;
        let bytes = PACKED * MESSAGE_BYTES;
        let ns = round_trips(bench.core, core, time, ours.into(), theirs, bytes)?;
        Ok(PACKED as f64 * 1e9 / ns)
    };
    let one = requests(bench.core, bench.plan.unit_time())?;
    let reading = Reading::of(one);
    let Some(other) = bench.other else { return Ok(reading) };
    let two = requests(other, bench.plan.unit_time() / 4)?;
    Ok(reading.beside("two cores", two, Scale::PerSecond))
}

pub(super) fn futex(bench: Bench) -> io::Result<Reading> {
    let reading = on_both(bench, |core, time| pings(bench.core, core, time, false))?;
    let Some(other) = bench.other else { return Ok(reading) };
    let spinning = pings(bench.core, other, bench.plan.unit_time() / 4, true)?;
    Ok(reading.beside("spinning over two cores", spinning, Scale::Ns))
}

/// Measures with the answering worker on our core, then on the other one.
fn on_both(
    bench: Bench,
    mut p50: impl FnMut(usize, Duration) -> io::Result<f64>,
) -> io::Result<Reading> {
    let reading = Reading::of(p50(bench.core, bench.plan.unit_time())?);
    let Some(other) = bench.other else { return Ok(reading) };
    let two = p50(other, bench.plan.unit_time() / 4)?;
    Ok(reading.beside("two cores", two, Scale::Ns))
}

/// Median nanoseconds of writing `bytes` and reading them back.
fn round_trips(
    core: usize,
    echo_core: usize,
    time: Duration,
    mut ours: File,
    theirs: OwnedFd,
    bytes: usize,
) -> io::Result<f64> {
    sys::bind(Some(core))?;
    let board = Board::new()?;
    let worker = Worker::start(&Job::Unit(UnitJob::Echo), &board, Some(theirs), Some(echo_core))?;
    let mut message = vec![7; bytes];
    let latency = repeat(time, 10, || {
        ours.write_all(&message)?;
        ours.read_exact(&mut message)
    })?;
    drop(ours);
    worker.finish()?;
    Ok(latency.p50())
}

/// The worker of [`round_trips`].
pub(super) fn answer() -> io::Result<()> {
    let mut socket = File::from(io::stdout().as_fd().try_clone_to_owned()?);
    let mut message = [0; PACKED * MESSAGE_BYTES];
    loop {
        match socket.read(&mut message)? {
            0 => return Ok(()),
            count => socket.write_all(&message[..count])?,
        }
    }
}

/// Median nanoseconds of a ping and its pong.
fn pings(core: usize, pong_core: usize, time: Duration, spin: bool) -> io::Result<f64> {
    sys::bind(Some(core))?;
    let board = Board::new()?;
    let worker = Worker::start(&Job::Unit(UnitJob::Pong { spin }), &board, None, Some(pong_core))?;
    board.await_ready(1)?;
    let mut turn = 0;
    let latency = repeat(time, 10, || {
        turn += 1;
        post(&board, PING, turn, spin);
        receive(&board, PONG, turn - 1, spin);
        Ok::<(), io::Error>(())
    })?;
    post(&board, PING, END, false);
    worker.finish()?;
    Ok(latency.p50())
}

/// The worker of [`pings`].
pub(super) fn pong(board: &Board, spin: bool) -> io::Result<()> {
    board.ready();
    let mut turn = 0;
    loop {
        turn = receive(board, PING, turn, spin);
        if turn == END {
            return Ok(());
        }
        post(board, PONG, turn, spin);
    }
}

fn post(board: &Board, at: usize, turn: u32, spin: bool) {
    board.lines().word(at).store(turn, Release);
    if !spin {
        sys::futex_wake(board.lines().word(at), 1);
    }
}

/// Waits until the word is no longer `old`, and returns it.
fn receive(board: &Board, at: usize, old: u32, spin: bool) -> u32 {
    let word = board.lines().word(at);
    loop {
        let seen = word.load(Acquire);
        if seen != old {
            return seen;
        }
        if spin {
            std::hint::spin_loop();
        } else {
            sys::futex_wait(word, old, None);
        }
    }
}
