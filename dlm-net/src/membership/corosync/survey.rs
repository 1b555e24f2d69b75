//! What corosync's configuration says of the cluster.

use std::net::{IpAddr, ToSocketAddrs};
use std::time::{Duration, Instant};

use super::sys::{Map, Trouble, own_node};

/// How long a start waits for a corosync that is not ready.
const PATIENCE: Duration = Duration::from_secs(10);
/// Between two looks.
const PAUSE: Duration = Duration::from_millis(250);

/// A node of corosync's node list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Found {
    /// Its number.
    pub(crate) node: u32,
    /// Its address on the first ring.
    pub(crate) address: IpAddr,
}

/// The cluster.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Survey {
    /// This node's number.
    pub(crate) own: u32,
    /// All nodes, by number.
    pub(crate) nodes: Vec<Found>,
    /// The cluster's name; empty: it has none.
    pub(crate) cluster: String,
    /// Whether both halves of a split of two nodes are quorate.
    pub(crate) two_node: bool,
    /// How long corosync hears nothing in order when a node is lost, in milliseconds: until it is missed
    /// (token) and the others agree on it (consensus). 0: it does not say.
    pub(crate) silence_ms: u64,
}

impl Survey {
    /// Asks corosync, and waits a little for one that is not ready.
    ///
    /// # Errors
    /// A sentence that says what is missing.
    pub(crate) fn make() -> Result<Self, String> {
        let begin = Instant::now();
        loop {
            match Self::look() {
                Ok(Ok(survey)) => return Ok(survey),
                Ok(Err(sentence)) => return Err(sentence),
                Err(Trouble::Down | Trouble::Busy) if begin.elapsed() < PATIENCE => {
                    std::thread::sleep(PAUSE);
                }
                Err(trouble) => return Err(format!("membership=corosync: {trouble}")),
            }
        }
    }

    /// Asks once; the inner error is one that waiting does not cure.
    fn look() -> Result<Result<Self, String>, Trouble> {
        let own = own_node()?;
        let map = Map::open()?;
        let nodes = (0..)
            .map_while(|index| {
                let key = |name: &str| format!("nodelist.node.{index}.{name}");
                let address = map.text(&key("ring0_addr"))?;
                Some((map.number(&key("nodeid")), address))
            })
            .collect();
        let cluster = map.text("totem.cluster_name").unwrap_or_default();
        let two_node = map.number("quorum.two_node") == Some(1);
        let span = |name: &str| map.number(&format!("runtime.config.totem.{name}")).unwrap_or(0);
        let silence_ms = u64::from(span("token")) + u64::from(span("consensus"));
        Ok(Self::of(own, nodes, cluster, two_node).map(|found| Self { silence_ms, ..found }))
    }

    /// Whether a lease of this many nanoseconds, renewed once a `tick`, outlives the loss of another
    /// node.
    ///
    /// # Errors
    /// A sentence that says what to change.
    pub(crate) fn check_lease(&self, lease: u64, tick: u64) -> Result<(), String> {
        let needs = self.silence_ms * 1_000_000 + tick;
        if lease >= needs {
            return Ok(());
        }
        let seconds = |nanos: u64| nanos.div_ceil(100_000_000) as f64 / 10.0;
        Err(format!(
            "lease={} is too short: when a node is lost corosync is silent for {} s (token and              consensus), and every other node would lose its locks meanwhile; set lease={} or more,              or a shorter token in corosync.conf",
            seconds(lease),
            seconds(self.silence_ms * 1_000_000),
            seconds(needs)
        ))
    }

    fn of(
        own: u32,
        listed: Vec<(Option<u32>, String)>,
        cluster: String,
        two_node: bool,
    ) -> Result<Self, String> {
        let mut nodes = Vec::new();
        for (node, name) in listed {
            let Some(node) = node else {
                return Err(format!(
                    "corosync.conf gives node {name} no nodeid; every node needs one in its node section"
                ));
            };
            let found = (name.as_str(), 0).to_socket_addrs().ok().and_then(|mut all| all.next());
            let Some(address) = found else {
                return Err(format!(
                    "ring0_addr {name} of node {node} cannot be resolved; use an address, or name it \
                     in /etc/hosts"
                ));
            };
            nodes.push(Found { node, address: address.ip() });
        }
        nodes.sort_by_key(|found| found.node);
        if !nodes.iter().any(|found| found.node == own) {
            return Err(format!(
                "corosync.conf has no nodelist with this node ({own}); dlmd takes the addresses of \
                 all nodes from there"
            ));
        }
        Ok(Self { own, nodes, cluster, two_node, silence_ms: 0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(listed: &[(Option<u32>, &str)]) -> Result<Survey, String> {
        let listed = listed.iter().map(|(node, name)| (*node, (*name).to_owned())).collect();
        Survey::of(2, listed, "c".to_owned(), false)
    }

    #[test]
    fn a_lease_outlives_the_loss_of_another_node_or_is_refused() {
        let survey = of(&[(Some(2), "10.0.0.2")]).expect("a good list");
        assert_eq!(survey.check_lease(1, 1), Ok(()), "corosync does not say");
        let survey = Survey { silence_ms: 8030, ..survey };
        let (second, tick) = (1_000_000_000, 250_000_000);
        assert_eq!(survey.check_lease(9 * second, tick), Ok(()));
        assert_eq!(survey.check_lease(8_280_000_000, tick), Ok(()));
        let told = survey.check_lease(4 * second, tick).expect_err("too short");
        assert!(told.starts_with("lease=4 is too short"), "{told}");
        assert!(told.contains("silent for 8.1 s") && told.contains("lease=8.3 or more"), "{told}");
    }

    #[test]
    fn a_node_list_is_taken_by_number_and_mistakes_are_named() {
        let survey = of(&[(Some(2), "10.0.0.2"), (Some(1), "::1")]).expect("a good list");
        assert_eq!(survey.nodes.iter().map(|found| found.node).collect::<Vec<_>>(), [1, 2]);
        assert!(of(&[]).expect_err("none").contains("has no nodelist with this node (2)"));
        assert!(
            of(&[(None, "10.0.0.2")]).expect_err("no id").contains("gives node 10.0.0.2 no nodeid")
        );
        let error = of(&[(Some(2), "no such name")]).expect_err("no address");
        assert!(error.contains("ring0_addr no such name of node 2 cannot be resolved"), "{error}");
    }
}
