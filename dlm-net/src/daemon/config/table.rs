//! Every configuration key, once: name, letter, kind, default, whether it may change while the
//! daemon runs, and what it does. Parsing, `--check-config`, `--list-options`, the configuration
//! listing and the manual page are all made from this table, so that none of them can lag behind.
//!
//! The first part are the options of the original daemon in its own order (libdlm-abi.md 5.3); those
//! that speak of a kernel, of POSIX locks or of the run helper mean nothing in user space. They are
//! accepted, so that an existing dlm.conf keeps working, and say so.

use super::value::Kind;

/// What setting a key does in this version.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effect {
    /// It acts.
    Acts,
    /// It belongs to membership, peers or fencing of a cluster, which `membership = single` has not.
    Cluster,
    /// It has no meaning outside the kernel; accepted for old files.
    Nothing,
}

/// One key.
#[derive(Clone, Copy, Debug)]
pub struct Spec {
    /// The key as written in dlm.conf and, with `--`, on the command line.
    pub name: &'static str,
    /// The original's short letter.
    pub letter: Option<char>,
    /// What a value looks like.
    pub kind: Kind,
    /// The value where nobody gave one.
    pub default: &'static str,
    /// Whether it may change while the daemon runs.
    pub runtime: bool,
    /// What it does in this version.
    pub effect: Effect,
    /// One or two sentences for people.
    pub help: &'static str,
}

const FLAG: Kind = Kind::Flag;
const ANY: Kind = Kind::Number { min: 0, max: u32::MAX as u64 };

macro_rules! keys {
    ($($key:ident $name:literal $letter:expr, $kind:expr, $default:expr, $runtime:ident $effect:ident, $help:expr;)*) => {
        /// A key, as an index into [`KEYS`].
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum Key {
            $(#[doc = $help] $key,)*
        }

        /// All keys, in the order of listings.
        pub const KEYS: &[Spec] = &[$(Spec {
            name: $name,
            letter: $letter,
            kind: $kind,
            default: $default,
            runtime: keys!(@$runtime),
            effect: Effect::$effect,
            help: $help,
        },)*];

        impl Key {
            /// All keys, in the order of listings.
            pub const ALL: &[Self] = &[$(Self::$key,)*];
        }
    };
    (@run) => { true };
    (@start) => { false };
}

keys! {
    DaemonDebug "daemon_debug" Some('D'), FLAG, "0", run Acts,
        "Log debug lines, and stay in the foreground.";
    Foreground "foreground" None, FLAG, "0", start Acts,
        "Stay in the foreground, also under the name dlm_controld.";
    LogDebug "log_debug" Some('K'), FLAG, "0", run Acts,
        "Log debug lines.";
    Protocol "protocol" Some('r'), Kind::Choice { words: &["tcp", "sctp", "detect"], numbered: true },
        "detect", start Cluster, "Transport between nodes. Peers speak TCP; sctp is taken as tcp.";
    Port "port" Some('R'), Kind::Number { min: 1, max: 65535 }, "21064", start Cluster,
        "TCP port of the peers.";
    DebugLogfile "debug_logfile" Some('L'), FLAG, "0", run Nothing,
        "Debug lines into the original's log file; lines go to stderr, the journal or syslog here.";
    BindAll "bind_all" None, FLAG, "0", start Nothing, "Hidden option of the original.";
    Mark "mark" None, ANY, "0", start Cluster, "Socket mark of the peer connections.";
    EnableFscontrol "enable_fscontrol" None, FLAG, "0", start Nothing,
        "Hidden option of the original.";
    EnablePlock "enable_plock" Some('p'), FLAG, "1", start Nothing,
        "POSIX locks of cluster file systems; there is no kernel file system to serve.";
    PlockDebug "plock_debug" Some('P'), FLAG, "0", run Nothing, "See enable_plock.";
    PlockRateLimit "plock_rate_limit" Some('l'), ANY, "0", run Nothing, "See enable_plock.";
    PlockOwnership "plock_ownership" Some('o'), FLAG, "0", start Nothing, "See enable_plock.";
    DropResourcesTime "drop_resources_time" Some('t'), ANY, "10000", run Nothing, "See enable_plock.";
    DropResourcesCount "drop_resources_count" Some('c'), ANY, "10", run Nothing, "See enable_plock.";
    DropResourcesAge "drop_resources_age" Some('a'), ANY, "10000", run Nothing, "See enable_plock.";
    PostJoinDelay "post_join_delay" Some('j'), ANY, "30", run Cluster,
        "Seconds to wait after a node joined before anybody is fenced.";
    EnableFencing "enable_fencing" Some('f'), FLAG, "1", start Cluster,
        "Fence lost nodes before their locks are given away.";
    EnableConcurrentFencing "enable_concurrent_fencing" None, FLAG, "0", start Cluster,
        "Run several fence agents at once.";
    EnableStartupFencing "enable_startup_fencing" Some('s'), FLAG, "1", start Cluster,
        "At start, fence configured nodes that nobody has seen.";
    RepeatFailedFencing "repeat_failed_fencing" None, FLAG, "1", run Cluster,
        "Start over when all fence agents failed.";
    EnableQuorumFencing "enable_quorum_fencing" Some('q'), FLAG, "1", run Cluster,
        "Fence only while the cluster is quorate.";
    EnableQuorumLockspace "enable_quorum_lockspace" None, FLAG, "1", run Cluster,
        "Grant in a lockspace only while the cluster is quorate.";
    EnableHelper "enable_helper" None, FLAG, "1", start Nothing,
        "The original's helper for dlm_tool run.";

    Membership "membership" None, Kind::Choice {
            words: &["single", "external", "corosync"], numbered: false
        },
        "single", start Acts,
        "Who decides which nodes take part: single = this machine alone; external = views fed over \
         the control socket to the nodes of the file's node lines; corosync = the nodes, the name \
         and the quorum of the corosync cluster that runs here.";
    ClusterName "cluster_name" None, Kind::Name { bytes_max: 64 }, "dlm", start Acts,
        "Name of the cluster, shown to programs that ask for it.";
    NodeId "nodeid" None, Kind::Number { min: 1, max: 0x7fff_ffff }, "1", start Acts,
        "This node's number.";
    Socket "socket" None, Kind::Path, "", start Acts,
        "Path of the socket. Default: $DLM_SOCKET, else dlmd.sock in run_dir.";
    SocketMode "socket_mode" None, Kind::Octal, "0666", start Acts,
        "Permission bits of the socket, octal. Each request is checked apart, so all may connect.";
    SocketGroup "socket_group" None, Kind::Group, "", start Acts,
        "Group of the socket, by name or number. Default: the daemon's.";
    RunDir "run_dir" None, Kind::Path, "", start Acts,
        "Run-time files. Default: the directory of a socket given by --socket or $DLM_SOCKET, else \
         /run/dlm for root and $XDG_RUNTIME_DIR/dlm for others.";
    StateDir "state_dir" None, Kind::Path, "", start Acts,
        "Where this node's incarnation and view number outlive a restart. Default: the directory of \
         a socket given by --socket or $DLM_SOCKET, else /var/lib/dlm for root and \
         $XDG_STATE_HOME/dlm (~/.local/state/dlm) for others.";
    LookalikeDir "lookalike_dir" None, Kind::Path, "", start Acts,
        "Where the look-alike of /sys/kernel/config/dlm/cluster is kept. Default: \
         config/dlm/cluster in run_dir.";
    AbstractSocket "abstract_socket" None, FLAG, "0", start Acts,
        "Serve the original's abstract query socket, for the distribution's dlm_tool: read only, for \
         those whom socket_mode admits, once in a network namespace.";
    FenceTimeout "fence_timeout" None, Kind::Number { min: 1, max: 86_400 }, "300", run Cluster,
        "Seconds that a fence agent may run before it is killed and counts as failed.";
    ClientsMax "clients_max" None, Kind::Number { min: 1, max: 1_000_000 }, "16384", run Acts,
        "Most connections at once; each open lockspace handle is one.";
    LockspacesMax "lockspaces_max" None, Kind::Number { min: 1, max: 65_536 }, "1024", run Acts,
        "Most lockspaces at once.";
    ClientLocksMax "client_locks_max" None, Kind::Number { min: 1, max: u32::MAX as u64 },
        "4000000", run Acts, "Most locks of one handle.";
    ClientEventsMax "client_events_max" None, Kind::Number { min: 1, max: u32::MAX as u64 },
        "1000000", run Acts,
        "Undelivered callbacks of one handle beyond which its new requests are refused (ENOMEM).";
    Create "create" None, Kind::Choice { words: &["admin", "all"], numbered: false },
        "admin", run Acts,
        "Who may create lockspaces: admin = root, the daemon's own user and create_group.";
    CreateGroup "create_group" None, Kind::Group, "", run Acts,
        "Group whose members may create lockspaces too.";
    ControlGroup "control_group" None, Kind::Group, "", run Acts,
        "Group whose members may give administrator's requests, as root and the daemon's user may.";
    Log "log" None,
        Kind::Choice { words: &["error", "warn", "info", "debug", "trace"], numbered: false },
        "info", run Acts, "Least important lines that are logged.";
    Lease "lease" None, Kind::Span { none: true, min: 400, max: 3_600_000 }, "none", start Cluster,
        "Seconds for which a node may grant after the cluster last had it; then it freezes, ends its \
         clients and is reset, and the others go on without a fence device. none = fencing alone. \
         The same on all nodes.";
    LeaseTick "lease_tick" None, Kind::Span { none: false, min: 10, max: 60_000 }, "0.25", start Cluster,
        "Seconds between the signs of life that renew the lease, where a feeder takes them; with \
         corosync they are 0.25.";
    LeaseGrace "lease_grace" None, Kind::Span { none: false, min: 20, max: 3_600_000 }, "2",
        start Cluster,
        "Seconds from the end of the lease until clients are killed that have not closed; after half \
         of them they are told.";
    LeaseDrift "lease_drift" None, Kind::Number { min: 0, max: 50 }, "1", start Cluster,
        "Percent by which one machine's clock may run faster than another's.";
    Watchdog "watchdog" None, Kind::PathOrNone, "/dev/watchdog", start Cluster,
        "Device that resets this machine when its lease is over and clients may still act. none = \
         nothing does: a machine whose daemon is stopped is then taken for harmless while it is not.";
    WatchdogTimeout "watchdog_timeout" None, Kind::Number { min: 1, max: 3_600 }, "10", start Cluster,
        "Seconds after which a watchdog that is not fed resets the machine. The same on all nodes.";
    Crypto "crypto" None, Kind::Choice { words: &["noise", "none"], numbered: false },
        "noise", start Cluster, "Encryption between nodes.";
    Authkey "authkey" None, Kind::Path, "/etc/dlm/authkey", start Cluster,
        "File with the cluster key.";
}

impl Key {
    /// The key's row.
    pub const fn spec(self) -> &'static Spec {
        &KEYS[self as usize]
    }

    /// The key of this name; `-` and `_` are the same.
    pub fn find(name: &str) -> Option<Self> {
        let name = name.replace('-', "_");
        Self::ALL.iter().copied().find(|key| key.spec().name == name)
    }

    /// The key of this short letter.
    pub fn of_letter(letter: char) -> Option<Self> {
        Self::ALL.iter().copied().find(|key| key.spec().letter == Some(letter))
    }

    /// The name nearest to `name`, for a message about a name that does not exist.
    pub fn nearest(name: &str) -> &'static str {
        super::value::nearest(name, KEYS.iter().map(|spec| spec.name))
    }
}

/// The table as text: a line per key, `name`, default, how values look and help, tab-separated.
pub fn list() -> String {
    let row = |spec: &Spec| {
        let change = if spec.runtime { "runtime" } else { "start" };
        let effect = match spec.effect {
            Effect::Acts => "",
            Effect::Cluster => " (no effect with membership=single)",
            Effect::Nothing => " (accepted, no effect)",
        };
        let (allowed, help) = (spec.kind.allowed(), spec.help);
        format!("{}\t{}\t{change}\t{allowed}\t{help}{effect}\n", spec.name, spec.default)
    };
    KEYS.iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_consistent() {
        assert_eq!(KEYS.len(), Key::ALL.len());
        for (index, key) in Key::ALL.iter().enumerate() {
            let spec = key.spec();
            assert_eq!(Key::find(spec.name), Some(*key), "name {} is unique", spec.name);
            assert_eq!(*key as usize, index);
            let default = spec.kind.check(spec.default);
            assert_eq!(default.as_deref(), Ok(spec.default), "default of {}", spec.name);
            assert!(spec.help.ends_with('.'), "help of {} is a sentence", spec.name);
            if let Some(letter) = spec.letter {
                assert_eq!(Key::of_letter(letter), Some(*key), "letter {letter} is unique");
            }
        }
    }

    #[test]
    fn originals_options_come_first_in_their_order_and_with_their_defaults() {
        let original = "daemon_debug=0 foreground=0 log_debug=0 protocol=detect port=21064 \
            debug_logfile=0 bind_all=0 mark=0 enable_fscontrol=0 enable_plock=1 plock_debug=0 \
            plock_rate_limit=0 plock_ownership=0 drop_resources_time=10000 drop_resources_count=10 \
            drop_resources_age=10000 post_join_delay=30 enable_fencing=1 \
            enable_concurrent_fencing=0 enable_startup_fencing=1 repeat_failed_fencing=1 \
            enable_quorum_fencing=1 enable_quorum_lockspace=1 enable_helper=1";
        let ours: Vec<_> = KEYS.iter().map(|s| format!("{}={}", s.name, s.default)).collect();
        let original: Vec<_> = original.split_whitespace().collect();
        assert_eq!(ours[..original.len()], original);
    }

    #[test]
    fn letters_are_the_originals() {
        let letters: String = KEYS.iter().filter_map(|spec| spec.letter).collect();
        assert_eq!(letters, "DKrRLpPlotcajfsq");
    }

    #[test]
    fn names_are_found_with_dashes_and_nearest_names_help() {
        assert_eq!(Key::find("client-locks-max"), Some(Key::ClientLocksMax));
        assert_eq!(Key::find("clients_maxx"), None);
        assert_eq!(Key::nearest("clietns_max"), "clients_max");
        assert_eq!(Key::nearest("nodeID"), "nodeid");
        assert_eq!(Key::nearest("enable_fence"), "enable_fencing");
    }

    #[test]
    fn the_listing_has_a_line_per_key() {
        let list = list();
        assert_eq!(list.lines().count(), KEYS.len());
        assert!(list.lines().all(|line| line.split('\t').count() == 5));
    }
}
