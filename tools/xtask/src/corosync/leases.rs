//! Leases over a real corosync: nobody fences, and the others go on all the same, by the clock.

use super::hosts::{Hosts, NODES};

/// What a daemon logs when its own clock ended its life.
const RAN_OUT: &str = "the lease ran out";
/// What a peer logs when it stops waiting for that.
const OUTLIVED: &str = "its lease and all after it is over";
/// What healthy peers must not log.
const LIFE_OVER: &str = "its lockspaces are lost";

/// Hosts with leases lose power, are cut off, and stand still, one after the other. Whoever holds
/// something is told before others get it, which the board checks; healthy hosts lose nothing,
/// though each change of the ring costs them most of a lease.
pub(super) fn lease(hosts: &mut Hosts) -> Result<(), String> {
    let config = hosts.config().to_owned();
    hosts.restart_all(format!("{config}lease=6\nwatchdog=none\n"))?;
    hosts.settle()?;
    hosts.progress("with leases")?;
    let lives = |hosts: &Hosts, nodes: [u32; 2]| nodes.map(|node| hosts.count(node, LIFE_OVER));

    let before = lives(hosts, [1, 2]);
    let outlived = hosts.count(1, OUTLIVED);
    hosts.power_off(3)?;
    let others = hosts.workers.of(&[1, 2]);
    outlives(hosts, outlived)?;
    hosts.settle()?;
    hosts.progress_of(&others, "after the lease of a host without power")?;
    unchanged(before, lives(hosts, [1, 2]), "a crash")?;
    hosts.power_on(3)?;
    hosts.settle()?;

    let before = lives(hosts, [1, 2]);
    let (ended, outlived) = (hosts.count(3, RAN_OUT), hosts.count(1, OUTLIVED));
    hosts.wires(&["isolate", "n3"])?;
    hosts.wait("the lease of a host that is cut off does not end", || {
        hosts.count(3, RAN_OUT) > ended
    })?;
    let others = hosts.workers.of(&[1, 2]);
    outlives(hosts, outlived)?;
    hosts.progress_of(&others, "after the lease of a host that is cut off")?;
    unchanged(before, lives(hosts, [1, 2]), "a cut")?;
    hosts.wires(&["heal"])?;
    hosts.settle()?;
    hosts.progress("after a cut")?;

    let before = lives(hosts, [1, 3]);
    let (ended, outlived) = (hosts.count(2, RAN_OUT), hosts.count(1, OUTLIVED));
    hosts.signal_daemon(2, "STOP")?;
    let others = hosts.workers.of(&[1, 3]);
    outlives(hosts, outlived)?;
    hosts.progress_of(&others, "after the lease of a stopped daemon")?;
    unchanged(before, lives(hosts, [1, 3]), "a daemon that stands still")?;
    hosts.signal_daemon(2, "CONT")?;
    hosts.wait("it does not notice that its lease is over", || hosts.count(2, RAN_OUT) > ended)?;
    hosts.settle()?;
    hosts.progress("after a pause of a daemon")?;
    hosts.restart_all(config)
}

/// The others stop waiting for a lost host, without anybody's word.
fn outlives(hosts: &Hosts, before: usize) -> Result<(), String> {
    hosts.wait("a lost host is feared for ever", || hosts.count(1, OUTLIVED) > before)?;
    hosts.wait("its locks are kept", || !hosts.status(1).contains("wait fencing"))
}

fn unchanged(before: [usize; 2], after: [usize; 2], what: &str) -> Result<(), String> {
    const { assert!(NODES == 3) };
    if before == after { Ok(()) } else { Err(format!("{what} cost a healthy node its life")) }
}
