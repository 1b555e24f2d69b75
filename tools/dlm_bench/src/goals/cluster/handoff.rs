//! G13, G7: one hot lock handed from node to node, and whether each node gets its turn.

use std::io;

use super::remote::round_trips;
use super::{Context, Finish, client, join_all};
use crate::crew::{Window, run_crew};
use crate::job::{Job, LockJob};
use crate::progress::progress;
use crate::report::{Bar, Figure, Reference, Scale};
use crate::units::Units;

/// Nodes that want the lock.
const NODES: u32 = 2;

/// Crowds: one client for each node, and four.
const CLIENTS: [usize; 2] = [2, 8];

struct Seen {
    clients: usize,
    window: Window,
    two_cores: Option<Window>,
}

pub(super) fn measure(context: &Context) -> io::Result<Finish> {
    let mut seen = Vec::new();
    for clients in CLIENTS {
        progress(format_args!("G13, G7: {clients} clients on {NODES} nodes hand one lock around"));
        let window = crowd(context, clients, Some(context.bench.core))?;
        let two_cores = context.bench.other.map(|_| crowd(context, clients, None)).transpose()?;
        seen.push(Seen { clients, window, two_cores });
    }
    let quick = context.bench.plan.quick;
    Ok(Box::new(move |units| seen.iter().flat_map(|seen| figures(seen, quick, units)).collect()))
}

fn crowd(context: &Context, clients: usize, core: Option<usize>) -> io::Result<Window> {
    let nodes = context.nodes(core, NODES)?;
    let joined = join_all(&nodes, NODES, core)?;
    let window = run_crew(clients, core, context.bench.plan.rate_time(), |id| {
        let backend = client(&nodes, id as u32 % NODES + 1, true);
        Job::Lock(LockJob::HandOff { id, backend })
    })?;
    joined.into_iter().try_for_each(|hand| hand.stop().map(drop))?;
    Ok(window)
}

/// Turns of each node.
fn by_node(window: &Window) -> Vec<u64> {
    let of = |node: usize| window.turns.iter().skip(node).step_by(NODES as usize).sum();
    (0..NODES as usize).map(of).collect()
}

fn figures(seen: &Seen, quick: bool, units: &Units) -> Vec<Figure> {
    let sum = round_trips(units);
    let own = Reference::absolute();
    let clients = seen.clients;
    let each = 1e9 / seen.window.rate();
    let what = format!("a hot lock's hand-off, {clients} clients on {NODES} nodes, mean");
    let mut speed = Figure::new(&format!("G13/{clients}"), what, each, Scale::Ns)
        .per(&sum)
        .target(Bar::at_most(2.0, &sum))
        .moonshot(Bar::at_most(1.2, &sum))
        .note(format!("{} changes of owner", Scale::PerSecond.show(seen.window.rate())));
    if let Some(two) = &seen.two_cores {
        let rate = Scale::PerSecond.show(two.rate());
        speed = speed.note(format!("not bound to a core {rate}"));
    }
    let mut fair = Figure::new(
        &format!("G7/{clients}"),
        "turns of the luckiest client over the unluckiest, two nodes",
        seen.window.unfairness(),
        Scale::Plain,
    )
    .target(Bar::at_most(1.2, &own))
    .moonshot(Bar::at_most(1.05, &own))
    .note(format!("turns by node {:?}", by_node(&seen.window)));
    if !quick {
        speed = speed.must(Bar::at_most(3.0, &sum));
        fair = fair.must(Bar::at_most(2.0, &own));
    }
    vec![speed, fair]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_are_summed_by_node() {
        let window = Window { seconds: 1.0, events: Vec::new(), turns: vec![1, 10, 2, 20] };
        assert_eq!(by_node(&window), [3, 30]);
    }
}
