//! What keeps a daemon from acting, in the words of operators.

/// What keeps this daemon from acting.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Hindered {
    /// Group and quorum speak of different rings, or not at all yet.
    RingId,
    /// The ring is not quorate.
    Quorum,
    /// These nodes have not introduced themselves.
    Hello(Vec<u32>),
    /// This daemon stood still, or has yet to be taken in.
    Admission,
    /// The engine below delivers nothing, not even our own ticks.
    Stalled,
}

impl Hindered {
    /// A sentence.
    pub(crate) fn words(&self) -> String {
        match self {
            Self::RingId => {
                "wait ringid: group and quorum have to speak of the same ring; corosync is forming one"
                    .to_owned()
            }
            Self::Quorum => {
                "wait quorum: this node's part of the cluster is not quorate; more nodes have to \
                 come back (corosync-quorumtool -s shows which are here)"
                    .to_owned()
            }
            Self::Hello(nodes) => format!(
                "wait messages: daemons of nodes {} have not introduced themselves",
                nodes.iter().map(u32::to_string).collect::<Vec<_>>().join(" ")
            ),
            Self::Admission => "wait messages: this node has yet to be taken in".to_owned(),
            Self::Stalled => {
                "wait ringid: corosync delivers nothing; it has to go on, or to be started again"
                    .to_owned()
            }
        }
    }

    /// The status of a change that waits (libdlm-abi.md 4.3).
    pub(crate) fn status(&self) -> String {
        match self {
            Self::RingId | Self::Stalled => "wait ringid".to_owned(),
            Self::Quorum => "wait quorum".to_owned(),
            Self::Hello(nodes) => format!("wait messages {}", nodes.len()),
            Self::Admission => "wait messages 1".to_owned(),
        }
    }
}
