//! The table of everything that `cargo xtask test` runs.

use std::time::Duration;

/// How a suite's output is counted.
#[derive(Clone, Copy)]
pub(crate) enum Count {
    /// `cargo test … -- --show-output`.
    Libtest,
    /// Closing lines `K skipped:`, reasons, `N passed, M failed`.
    Closing,
    /// The whole run is one test.
    Whole,
}

/// What is run.
#[derive(Clone, Copy)]
pub(crate) enum Run {
    /// cargo with these words.
    Cargo(&'static [&'static str]),
    /// A script of the tree with these words.
    Script(&'static [&'static str]),
    /// This program with these words.
    Xtask(&'static [&'static str]),
}

/// One row.
pub(crate) struct Suite {
    /// For `--only`.
    pub(crate) name: &'static str,
    /// What it shows.
    pub(crate) about: &'static str,
    /// Debian packages that some of its tests need.
    pub(crate) packages: &'static [&'static str],
    /// Time after which it is ended and counts as failed.
    pub(crate) budget: Duration,
    /// What is run.
    pub(crate) run: Run,
    /// How its output is read.
    pub(crate) count: Count,
}

const fn minutes(number: u64) -> Duration {
    Duration::from_secs(60 * number)
}

/// In the order in which they run: the narrower first.
pub(crate) const SUITES: &[Suite] = &[
    Suite {
        name: "cargo",
        about: "unit, property and integration tests of all crates, and the rules of the tree",
        packages: &["gcc", "g++", "libc6-dev", "pkg-config", "libdlm-dev", "diffutils"],
        budget: minutes(15),
        run: Run::Cargo(&[
            "test",
            "--workspace",
            "--exclude",
            "dlm-model",
            "--no-fail-fast",
            "--",
            "--show-output",
        ]),
        count: Count::Libtest,
    },
    Suite {
        name: "model",
        about: "every order of messages, views, calls and losses of small clusters",
        packages: &[],
        budget: minutes(6),
        run: Run::Cargo(&["test", "-p", "dlm-model", "--no-fail-fast", "--", "--show-output"]),
        count: Count::Libtest,
    },
    Suite {
        name: "c",
        about: "C and C++ programs against both libraries, some under valgrind",
        packages: &["gcc", "g++", "libc6-dev", "valgrind"],
        budget: minutes(10),
        run: Run::Script(&["tests/c/run.sh"]),
        count: Count::Closing,
    },
    Suite {
        name: "conformance",
        about: "scenarios of one to three nodes against the kernel's recorded answers",
        packages: &["gcc", "libc6-dev", "diffutils"],
        budget: minutes(5),
        run: Run::Xtask(&["conformance"]),
        count: Count::Closing,
    },
    Suite {
        name: "conformance-corosync",
        about: "scenarios of two and three nodes over a real corosync",
        packages: &["gcc", "libc6-dev", "diffutils", "corosync", "iproute2", "nftables"],
        budget: minutes(5),
        run: Run::Xtask(&["conformance", "--membership", "corosync"]),
        count: Count::Closing,
    },
    Suite {
        name: "clients",
        about: "unmodified Debian programs against our libraries",
        packages: &[
            "gcc",
            "libc6-dev",
            "libdlm-dev",
            "dlm-controld",
            "mdadm",
            "ocfs2-tools",
            "lvm2",
            "lvm2-lockd",
            "corosync",
            "psmisc",
            "procps",
            "python3",
            "iproute2",
        ],
        budget: minutes(8),
        run: Run::Xtask(&["clients"]),
        count: Count::Closing,
    },
    Suite {
        name: "cluster",
        about: "daemons on hosts in network namespaces: kills, pauses, cuts, loss, delay",
        packages: &["gcc", "libc6-dev", "iproute2", "nftables", "python3"],
        budget: minutes(4),
        run: Run::Xtask(&["cluster"]),
        count: Count::Closing,
    },
    Suite {
        name: "corosync",
        about: "daemons over a real corosync: crashes, cuts, pauses, restarts, wrong keys and clocks",
        packages: &["gcc", "libc6-dev", "corosync", "iproute2", "nftables", "libfaketime"],
        budget: minutes(6),
        run: Run::Xtask(&["corosync"]),
        count: Count::Closing,
    },
    Suite {
        name: "demo",
        about: "cargo demo comes to its good end",
        packages: &["gcc", "libc6-dev"],
        budget: minutes(2),
        run: Run::Xtask(&["demo"]),
        count: Count::Whole,
    },
    Suite {
        name: "bench",
        about: "the benchmark runs; its figures are not judged here",
        packages: &["redis-server", "memcached"],
        budget: minutes(3),
        run: Run::Xtask(&["bench"]),
        count: Count::Closing,
    },
    Suite {
        name: "fuzz",
        about: "every fuzz target for a few seconds",
        packages: &["g++", "libc6-dev"],
        budget: minutes(10),
        run: Run::Xtask(&["fuzz"]),
        count: Count::Closing,
    },
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packages;

    #[test]
    fn suites_name_packages_that_are_known() {
        let known = packages::all();
        for suite in SUITES {
            for name in suite.packages {
                assert!(known.contains(name), "{}: {name}", suite.name);
            }
        }
    }

    #[test]
    fn every_package_is_needed_by_a_suite() {
        for name in packages::all() {
            assert!(SUITES.iter().any(|suite| suite.packages.contains(&name)), "{name}");
        }
    }
}
