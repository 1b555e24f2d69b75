//! A node comes into a lockspace with a table of locks, and leaves it cleanly: how long until fresh
//! names can be locked again everywhere, and what others feel of it.

use std::io;
use std::time::Duration;

use super::recovery::{Probes, Span, short, span, unaffected};
use super::{Context, Finish, Hand, join_all, mode, owner};
use crate::job::{LockJob, Names};
use crate::progress::progress;
use crate::report::{Bar, Figure, Reference, Scale};
use crate::sys;
use crate::units::Units;

/// Fresh names that are locked to see that all slots answer.
const FRESH: usize = 200;

struct Seen {
    locks: usize,
    join_ns: f64,
    leave_ns: f64,
    before: [Span; 2],
    join: [Span; 2],
    leave: [Span; 2],
}

pub(super) fn measure(context: &Context) -> io::Result<Finish> {
    let plan = context.bench.plan;
    let sizes = context.sizes.iter();
    let seen: io::Result<Vec<_>> = sizes.map(|locks| round(context, *locks)).collect();
    let seen = seen?;
    Ok(Box::new(move |units| figures(&seen, plan.quick, units)))
}

fn round(context: &Context, locks: usize) -> io::Result<Seen> {
    progress(format_args!("join, leave: a node comes and goes beside {locks} locks"));
    let nodes = context.nodes(None, 4)?;
    let joined = join_all(&nodes, 3, None)?;
    let table = Names::below(owner::TABLE, locks);
    let held: io::Result<Vec<_>> = (1..=3)
        .map(|node| {
            let row = table.every(3, u64::from(node) - 1);
            Hand::keep(nodes.socket(node), row, mode::PR, None)
        })
        .collect();
    let held = held?;
    let probes = Probes::start(&nodes)?;
    std::thread::sleep(super::SETTLED);
    probes.set_span(span::BEFORE);
    std::thread::sleep(context.bench.plan.rate_time().min(Duration::from_secs(2)));
    probes.set_span(span::DURING);
    let fresh = Names::below(owner::FRESH, FRESH);
    let begin = sys::monotonic_ns();
    let socket = nodes.socket(4).to_owned();
    let visitor = Hand::start(LockJob::Visit { socket, names: fresh }, None)?;
    let join_ns = (visitor.board.await_stamp()? - begin) as f64;
    nodes.await_members(&[1, 2, 3, 4])?;
    probes.set_span(span::LATER);
    let begin = sys::monotonic_ns();
    visitor.stop()?;
    nodes.await_members(&[1, 2, 3])?;
    let (socket, names) = (nodes.socket(1).to_owned(), fresh.shifted(FRESH as u64));
    let after = Hand::start(LockJob::Await { socket, names, mode: mode::EX }, None)?;
    let leave_ns = (after.board.await_stamp()? - begin) as f64;
    after.worker.finish()?;
    probes.set_span(span::NONE);
    let boards = probes.stop()?;
    held.into_iter().chain(joined).try_for_each(|hand| hand.stop().map(drop))?;
    let spans = |span| [Span::of(&boards[0], span), Span::of(&boards[1], span)];
    let (before, join, leave) = (spans(span::BEFORE), spans(span::DURING), spans(span::LATER));
    Ok(Seen { locks, join_ns, leave_ns, before, join, leave })
}

fn figures(seen: &[Seen], quick: bool, _: &Units) -> Vec<Figure> {
    let own = Reference::absolute();
    let mut figures = Vec::new();
    let growth = |id: &str, what: &str, of: fn(&Seen) -> f64| {
        let [first, .., last] = seen else { return None };
        let doublings = (last.locks as f64 / first.locks as f64).log2();
        let factor = (of(last) / of(first)).powf(1.0 / doublings);
        let what =
            format!("twice the locks: {what} takes longer by, {} to {}", first.locks, last.locks);
        let figure = Figure::new(id, what, factor, Scale::Plain);
        Some(if quick { figure } else { figure.must(Bar::at_most(2.0, &own)) })
    };
    for (what, of) in [("join", join as fn(&Seen) -> f64), ("leave", leave)] {
        for seen in seen {
            let text = format!("{what} beside {} locks: to fresh names everywhere", seen.locks);
            figures.push(Figure::new(
                &format!("{what}/{}", short(seen.locks)),
                text,
                of(seen),
                Scale::Ns,
            ));
        }
        figures.extend(growth(&format!("{what}/double"), what, of));
    }
    for seen in seen {
        let id = |change: &str| format!("{change}/{}", short(seen.locks));
        figures.extend(unaffected(&id("join"), "a join", seen.before, seen.join, quick));
        figures.extend(unaffected(&id("leave"), "a leave", seen.before, seen.leave, quick));
    }
    figures
}

fn join(seen: &Seen) -> f64 {
    seen.join_ns
}

fn leave(seen: &Seen) -> f64 {
    seen.leave_ns
}
