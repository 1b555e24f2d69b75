//! U5, U5s: how soon a process learns that another one was killed.
//!
//! The kernel walks a dying process's robust list before it takes the memory down; sockets and
//! pidfds follow after that, so with a large victim they are late. Victim, waiter and killer are
//! three processes on one core; the time runs from before the kill to the waiter's first
//! instruction.

use std::fs::File;
use std::hint::black_box;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use super::{Bench, Reading};
use crate::crew::{Board, Worker, line};
use crate::job::{Job, UnitJob};
use crate::measure::median;
use crate::report::Scale;
use crate::sys;

/// A victim that is nothing but a process.
const SMALL_MIB: usize = 0;

/// How a waiter learns of the death.
#[derive(Clone, Copy)]
enum Watch {
    Mutex,
    Eof,
    Pidfd,
}

pub(super) fn by_mutex(bench: Bench) -> io::Result<Reading> {
    let small = p50(bench, Watch::Mutex, SMALL_MIB, small_rounds(bench))?;
    let large = p50(bench, Watch::Mutex, bench.plan.victim_mib(), 3)?;
    Ok(Reading::of(small).beside(&large_name(bench), large, Scale::Ns))
}

pub(super) fn by_descriptor(bench: Bench) -> io::Result<Reading> {
    let large = p50(bench, Watch::Eof, bench.plan.victim_mib(), 5)?;
    let pidfd = p50(bench, Watch::Pidfd, bench.plan.victim_mib(), 3)?;
    let small = p50(bench, Watch::Eof, SMALL_MIB, small_rounds(bench) / 2)?;
    Ok(Reading::of(large)
        .beside(&format!("by pidfd, {}", large_name(bench)), pidfd, Scale::Ns)
        .beside("small victim", small, Scale::Ns))
}

fn small_rounds(bench: Bench) -> usize {
    if bench.plan.quick { 10 } else { 100 }
}

fn large_name(bench: Bench) -> String {
    format!("{} MiB victim", bench.plan.victim_mib())
}

/// Median nanoseconds over `rounds` killed victims.
fn p50(bench: Bench, watch: Watch, mib: usize, rounds: usize) -> io::Result<f64> {
    sys::bind(Some(bench.core))?;
    let times: io::Result<Vec<_>> = (0..rounds).map(|_| one(bench, watch, mib)).collect();
    Ok(median(&times?))
}

fn one(bench: Bench, watch: Watch, mib: usize) -> io::Result<f64> {
    let board = Board::new()?;
    board.lines().make_mutex(line::FREE)?;
    let (victims, waiters) = sys::seqpacket_pair()?;
    let core = Some(bench.core);
    let mut victim =
        Worker::start(&Job::Unit(UnitJob::Victim { mib }), &board, Some(victims), core)?;
    board.await_ready(1)?;
    let job = match watch {
        Watch::Mutex => UnitJob::WaitMutex,
        Watch::Eof => UnitJob::WaitEof,
        Watch::Pidfd => UnitJob::WaitPidfd { pid: victim.pid() },
    };
    let waiter = Worker::start(&Job::Unit(job), &board, Some(waiters), core)?;
    board.await_ready(2)?;
    let_sleep();
    let before = sys::monotonic_ns();
    victim.kill()?;
    let after = board.await_stamp()?;
    waiter.finish()?;
    Ok((after - before) as f64)
}

/// Gives a worker on our core time to go from «ready» into its sleep.
pub(crate) fn let_sleep() {
    std::thread::sleep(Duration::from_millis(3));
}

/// Holds the mutex and `mib` of touched memory until killed.
pub(super) fn victim(board: &Board, mib: usize) -> io::Result<()> {
    let memory = black_box(vec![1u8; mib << 20]);
    board.lines().mutex(line::FREE).lock()?;
    board.ready();
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(3600) {
        std::thread::sleep(Duration::from_secs(60));
    }
    drop(memory);
    Err(io::Error::other("nobody killed this victim"))
}

pub(super) fn wait_mutex(board: &Board) -> io::Result<()> {
    board.ready();
    let owner_died = board.lines().mutex(line::FREE).lock()?;
    board.stamp();
    if owner_died { Ok(()) } else { Err(io::Error::other("the mutex was free")) }
}

pub(super) fn wait_eof(board: &Board) -> io::Result<()> {
    let mut socket = File::from(io::stdout().as_fd().try_clone_to_owned()?);
    board.ready();
    let count = socket.read(&mut [0])?;
    board.stamp();
    if count == 0 { Ok(()) } else { Err(io::Error::other("the victim wrote")) }
}

pub(super) fn wait_pidfd(board: &Board, pid: u32) -> io::Result<()> {
    let watch = sys::pidfd(pid)?;
    board.ready();
    sys::wait_readable(&watch, None)?;
    board.stamp();
    Ok(())
}
