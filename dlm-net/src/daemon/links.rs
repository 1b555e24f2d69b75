//! Messages between daemons: what the core sends goes to the transport, and what comes from there
//! goes into the core.

use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::path::Path;

use dlm_core::{Input, Instant, Member, Message, NodeId};
use mio::Registry;

use super::config::Settings;
use super::config::table::Key;
use super::reactor::Reactor;
use crate::membership::corosync::Survey;
use crate::peers::{Config, Event, NodeAddress, Peers, SendError, life_of};
use crate::secure::{ClusterKey, Crypto};

/// Tokens of the transport. Below all tokens of clients, which have a generation in the high half.
const TOKENS: Range<usize> = 64..8256;

/// A node, where it is, and its port if that is not the common one.
pub(super) type Place = (u32, IpAddr, Option<u16>);

/// What a daemon needs to talk to others.
pub(crate) struct Others {
    /// This daemon's end.
    pub(crate) config: Config,
    /// All nodes.
    pub(crate) nodes: Vec<NodeAddress>,
}

/// Messages about many names that are much to be still handled.
const UNHEARD_MUCH: usize = 512;

impl Others {
    /// Who the configuration, or corosync, says the others are; `None` with `membership = single`, and
    /// while corosync was not asked.
    ///
    /// # Errors
    /// A sentence about what is missing.
    pub(crate) fn configured(
        settings: &Settings,
        own: Member,
        survey: Option<&Survey>,
    ) -> Result<Option<Self>, String> {
        let membership = settings.text(Key::Membership);
        if membership == "single" || (membership == "corosync" && survey.is_none()) {
            return Ok(None);
        }
        let sections = settings.sections();
        let port = settings.number(Key::Port) as u16;
        let address = |(node, ip, own_port): &Place| NodeAddress {
            node: NodeId(*node),
            address: SocketAddr::new(*ip, own_port.unwrap_or(port)),
        };
        let nodes: Vec<NodeAddress> =
            super::cluster::addresses(settings, survey).iter().map(address).collect();
        let Some(here) = nodes.iter().find(|node| node.node == own.node) else {
            let node = own.node.0;
            return Err(format!(
                "nodeid is {node} and no line says where that is; add node id={node} addr=<ip> to \
                 dlm.conf"
            ));
        };
        let crypto = match settings.text(Key::Crypto) {
            "none" => Crypto::None,
            _ => {
                let path = Path::new(settings.text(Key::Authkey));
                Crypto::Noise(ClusterKey::load(path).map_err(|error| error.to_string())?)
            }
        };
        let cluster = settings.text(Key::ClusterName);
        let mut config = Config::new(own, cluster, crypto, here.address);
        let mark = sections.node_marks.iter().find(|(node, _)| *node == own.node.0);
        config.mark = mark.map_or(settings.number(Key::Mark) as u32, |(_, mark)| *mark);
        Ok(Some(Self { config, nodes }))
    }
}

/// Begins to listen and to dial.
pub(super) fn open(others: Others, registry: &Registry, now: u64) -> io::Result<Peers> {
    let address = others.config.listen;
    let mut links = Peers::new(others.config, registry, TOKENS, Instant(now)).map_err(|error| {
        io::Error::new(error.kind(), format!("listening at {address}: {error}"))
    })?;
    links.set_members(&others.nodes, Instant(now));
    Ok(links)
}

impl Reactor {
    /// Takes what came from other daemons, a bounded amount.
    pub(super) fn serve_links(&mut self) {
        let Some(links) = &mut self.links else { return };
        links.withhold(self.node.unheard() >= UNHEARD_MUCH);
        links.on_time(Instant(self.now));
        while let Some(event) = self.links.as_mut().and_then(Peers::next_event) {
            self.on_link_event(event);
        }
    }

    /// Lets what was sent in this turn go. While work goes on, what it says is written when it is worth
    /// it.
    pub(super) fn flush_links(&mut self) {
        let works = self.has_due_work();
        if let Some(links) = &mut self.links {
            links.flush(works, Instant(self.now));
        }
    }

    fn on_link_event(&mut self, event: Event) {
        self.queues.report |= !matches!(event, Event::Message { .. } | Event::Note { .. });
        match event {
            Event::Message { from, message } => {
                let sender = Member { node: from.node, incarnation: message.from };
                if life_of(sender) == life_of(from) {
                    self.pace.hear();
                    self.step(Input::Peer(from.node, message));
                } else {
                    tracing::warn!(
                        "node {} sent a message of incarnation {}, which it is not; dropped",
                        from.node.0,
                        message.from
                    );
                }
            }
            Event::Up { member } => {
                self.unreachable.remove(&member.node);
            }
            Event::NewIncarnation { new, .. } => {
                tracing::info!("node {} began a new life", new.node.0);
                self.unreachable.remove(&new.node);
            }
            Event::Unreachable { node, since, .. } => {
                let seconds = self.now.saturating_sub(since.0) / 1_000_000_000;
                if self.is_left_out(node) {
                    tracing::debug!("node {}, which is left out, is silent", node.0);
                } else {
                    tracing::error!(
                        "node {} was not heard for {seconds} s; membership has to exclude one of us",
                        node.0
                    );
                }
                self.unreachable.insert(node);
            }
            // The transport logs these itself, and refusals in part: strangers must not fill the log.
            Event::Down { .. } | Event::Refused { .. } => {}
            Event::Note { from, note } => self.on_note(from, &note),
        }
    }

    /// Sends what the core says. A member that is over is not told any more: its view is on the way.
    pub(super) fn send_to_member(&mut self, to: Member, message: &Message) {
        let Some(links) = &mut self.links else { return };
        match links.send(to, message) {
            Ok(()) => self.counters.sent(&message.body),
            Err(SendError::Over { .. }) => {}
            Err(error @ SendError::Full { .. }) => {
                // Told once by `Unreachable`; every message would say it again.
                tracing::debug!("{error}");
            }
            Err(error) => tracing::error!("a message to node {} is lost: {error}", to.node.0),
        }
    }

    /// Nodes that can be talked to.
    pub(super) fn connected(&self) -> Vec<u32> {
        let states = self.links.as_ref().map(Peers::states).unwrap_or_default();
        states.iter().filter(|peer| peer.up).map(|peer| peer.node.0).collect()
    }

    /// Nothing is heard from lives that are out of the cluster (recovery.md R1).
    pub(super) fn exclude_links(&mut self, members: &[Member]) {
        let Some(links) = &mut self.links else { return };
        let lives: BTreeSet<Member> = members.iter().map(|member| life_of(*member)).collect();
        for life in lives {
            links.exclude(life, Instant(self.now));
            self.unreachable.remove(&life.node);
        }
    }

    /// A new life of this node begins.
    pub(super) fn renew_links(&mut self, own: Member) {
        self.unreachable.clear();
        if let Some(links) = &mut self.links {
            links.renew(own, Instant(self.now));
        }
    }
}
