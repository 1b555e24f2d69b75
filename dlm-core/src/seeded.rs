//! Seeded faults: known wrong rules, to prove that the tests notice them (`tests/mutations.txt`).
//!
//! They exist only in a build with `--cfg seeded_bugs`, which no product is ever built with; there
//! the environment variable `DLM_SEEDED_BUG` names the one that is active. One build serves all of
//! them, so that the whole list is cheap enough to run always. In every other build the question is
//! answered by the compiler, and nothing of it is left.

/// Whether this fault is active.
#[cfg(not(seeded_bugs))]
#[inline(always)]
pub(crate) const fn bug(_name: &str) -> bool {
    false
}

/// Whether this fault is active.
#[cfg(seeded_bugs)]
pub(crate) fn bug(name: &str) -> bool {
    use std::sync::OnceLock;
    static ACTIVE: OnceLock<Option<String>> = OnceLock::new();
    ACTIVE.get_or_init(|| std::env::var("DLM_SEEDED_BUG").ok()).as_deref() == Some(name)
}

/// Whether this fault of the cluster rules is active; whole clusters under seeds must notice it.
#[inline(always)]
pub(crate) fn cluster_fault(name: &str) -> bool {
    bug(name)
}
