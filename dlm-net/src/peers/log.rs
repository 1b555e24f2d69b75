//! Refusals in the log: a stranger that knocks all day must not fill it.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use dlm_core::Instant;

/// The same complaint about the same address is written again after this time.
const AGAIN_AFTER: Duration = Duration::from_secs(60);
/// Different complaints that are remembered.
const REMEMBERED_MAX: usize = 64;

#[derive(Debug, Default)]
pub(super) struct Complaints {
    written: BTreeMap<(IpAddr, String), Instant>,
}

impl Complaints {
    /// Whether to write this one.
    pub(super) fn is_news(&mut self, address: IpAddr, sentence: &str, now: Instant) -> bool {
        let key = (address, sentence.to_owned());
        if self.written.get(&key).is_some_and(|at| now.since(*at) < AGAIN_AFTER) {
            return false;
        }
        if self.written.len() >= REMEMBERED_MAX {
            self.written.retain(|_, at| now.since(*at) < AGAIN_AFTER);
        }
        if self.written.len() >= REMEMBERED_MAX {
            return false;
        }
        self.written.insert(key, now);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_complaint_is_written_once_a_minute_and_many_are_cut() {
        let mut complaints = Complaints::default();
        let address = "127.0.0.1".parse().expect("an address");
        let at = |seconds: u64| Instant(seconds * 1_000_000_000);
        assert!(complaints.is_news(address, "a", at(0)));
        assert!(!complaints.is_news(address, "a", at(59)));
        assert!(complaints.is_news(address, "b", at(59)));
        assert!(complaints.is_news(address, "a", at(60)));
        let news =
            (0..1000).filter(|n| complaints.is_news(address, &n.to_string(), at(61))).count();
        assert_eq!(news, REMEMBERED_MAX - 2);
        assert!(complaints.is_news(address, "c", at(200)));
    }
}
