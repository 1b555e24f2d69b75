//! The end: refused while lockspaces are in use, forced by a second wish (architecture.md section 8).

use dlm_core::{Layout, NodeId};
use dlm_ipc::hello::DaemonMessage;
use dlm_ipc::layout::LostReason;

use super::config::table::Key;
use super::notify;
use super::reactor::{Policy, Reactor};
use super::signal::Wish;
use crate::ipc::admit::Rights;
use crate::ipc::peer::Stage;
use crate::sys;

/// A second signal within this time after a refused one forces the end.
const FORCE_NANOS_MAX: u64 = 5_000_000_000;
/// Users of lockspaces that are named in one line.
const USERS_MAX: usize = 20;

/// Whether the daemon ends.
#[derive(Debug, Default)]
pub(crate) struct Stop {
    decided: bool,
    /// When a signal was refused last.
    refused_at: Option<u64>,
}

impl Stop {
    /// The daemon ends with this turn.
    pub(crate) fn end(&mut self, why: &str) {
        if !std::mem::replace(&mut self.decided, true) {
            tracing::info!("ending: {why}");
        }
    }

    /// Whether the present turn is the last one.
    pub(crate) fn is_decided(&self) -> bool {
        self.decided
    }

    /// A signal asks for the end at `now` nanoseconds; false if it is refused.
    fn signalled(&mut self, now: u64, in_use: bool) -> bool {
        let again = self.refused_at.is_some_and(|at| now.saturating_sub(at) <= FORCE_NANOS_MAX);
        if in_use && !again {
            self.refused_at = Some(now);
            return false;
        }
        self.end(if in_use { "forced by a second signal" } else { "a signal asked for it" });
        true
    }
}

impl Reactor {
    pub(super) fn on_wish(&mut self, wish: Wish) {
        match wish {
            Wish::Reload => {
                if let Err(sentence) = self.reload_config() {
                    tracing::error!("the configuration was not changed: {sentence}");
                }
            }
            Wish::End => {
                let users = self.users();
                if !self.stop.signalled(self.now, !users.is_empty()) {
                    tracing::warn!(
                        "not ending: {}; end these first, use dlm_tool shutdown --force, or signal \
                         again within 5 s",
                        users.join("; ")
                    );
                }
            }
        }
    }

    /// Who uses lockspaces, a sentence each; empty if there is no lockspace.
    pub(super) fn users(&self) -> Vec<String> {
        let mut users = Vec::new();
        for info in self.node.lockspaces() {
            let name = info.name.escape_ascii();
            let before = users.len();
            for (peer, handle) in self.handles_on(&info) {
                let (pid, program) = (peer.who.pid, handle.program.escape_default());
                users.push(format!("lockspace {name} is open in pid {pid} ({program})"));
            }
            if users.len() == before {
                let count = info.create_count;
                users.push(format!(
                    "lockspace {name} was created {count} times without release (dlm_tool leave \
                     {name} removes it; {} orphan locks)",
                    info.orphans
                ));
            }
        }
        let more = users.len().saturating_sub(USERS_MAX);
        users.truncate(USERS_MAX);
        if more > 0 {
            users.push(format!("and {more} more"));
        }
        users
    }

    /// Reads the configuration file again.
    pub(super) fn reload_config(&mut self) -> Result<(), String> {
        let before = self.settings.clone();
        let later = self.settings.reload().map_err(|error| error.to_string())?;
        if let Err(sentence) = self.apply_settings() {
            self.settings = before;
            return Err(sentence);
        }
        match later.as_slice() {
            [] => tracing::info!("configuration read again"),
            keys => tracing::warn!(
                "configuration read again; new values of {} count after a restart",
                keys.join(", ")
            ),
        }
        Ok(())
    }

    /// Makes the settings count: bounds, rights, level of the log. On an error nothing changes.
    pub(super) fn apply_settings(&mut self) -> Result<(), String> {
        let settings = &self.settings;
        let rights = Rights {
            own_uid: sys::effective_uid(),
            create_all: settings.text(Key::Create) == "all",
            create_group: group(settings, Key::CreateGroup)?,
            control_group: group(settings, Key::ControlGroup)?,
        };
        self.policy = Policy {
            rights,
            clients_max: settings.number(Key::ClientsMax) as usize,
            events_max: settings.number(Key::ClientEventsMax) as usize,
        };
        self.node.set_limits(dlm_core::Limits {
            lockspaces: settings.small(Key::LockspacesMax),
            locks_per_client: settings.small(Key::ClientLocksMax),
            ..dlm_core::Limits::default()
        });
        for lockspace in &settings.sections().lockspaces {
            let masters = lockspace.masters.iter().map(|(node, weight)| (NodeId(*node), *weight));
            let layout = Layout { nodir: lockspace.nodir, masters: masters.collect() };
            self.node.set_layout(lockspace.name.as_bytes(), layout);
        }
        let debug = settings.flag(Key::DaemonDebug) || settings.flag(Key::LogDebug);
        let level = settings.text(Key::Log);
        self.log.set_level(if debug && level != "trace" { "debug" } else { level });
        self.membership.configure(settings);
        Ok(())
    }

    /// The last acts: clients are told, files go.
    pub(super) fn wind_up(&mut self) {
        notify::stopping();
        let lost = DaemonMessage::Lost(LostReason::Shutdown).encode();
        for (_, peer) in self.peers.iter() {
            if let Stage::Handle(handle) = &peer.stage {
                handle.lose(LostReason::Shutdown);
                // Whoever does not read it sees the hang-up.
                let _ = peer.connection.send(&lost);
            }
        }
        self.give_up_lease();
        if let Some(links) = &mut self.links {
            links.goodbye();
        }
        self.membership.close();
        self.lookalike.remove();
        self.leftovers.end();
        tracing::info!("ended");
    }
}

/// The number of a group that a key names; `None` where it names none.
pub(crate) fn group(settings: &super::config::Settings, key: Key) -> Result<Option<u32>, String> {
    let text = settings.text(key);
    if text.is_empty() {
        return Ok(None);
    }
    if let Ok(number) = text.parse() {
        return Ok(Some(number));
    }
    match sys::group_of_name(text) {
        Ok(Some(number)) => Ok(Some(number)),
        Ok(None) => Err(format!("{}: there is no group '{text}'", key.spec().name)),
        Err(error) => Err(format!("{}: group '{text}': {error}", key.spec().name)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::daemon::config::Settings;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn a_signal_ends_what_is_not_in_use() {
        let mut stop = Stop::default();
        assert!(!stop.is_decided());
        assert!(stop.signalled(0, false) && stop.is_decided());
    }

    #[test]
    fn only_a_second_signal_within_five_seconds_forces() {
        let mut stop = Stop::default();
        assert!(!stop.signalled(10 * SECOND, true));
        assert!(!stop.signalled(16 * SECOND, true), "too late: refused again");
        assert!(!stop.is_decided());
        assert!(stop.signalled(20 * SECOND, true) && stop.is_decided());
    }

    #[test]
    fn groups_are_numbers_or_names() {
        let mut settings = Settings::default();
        assert_eq!(group(&settings, Key::CreateGroup), Ok(None));
        for (value, want) in [("42", Ok(Some(42))), ("root", Ok(Some(0)))] {
            settings.change("create_group", value).expect("may change");
            assert_eq!(group(&settings, Key::CreateGroup), want);
        }
        settings.change("create_group", "no-such-group").expect("may change");
        let error = group(&settings, Key::CreateGroup);
        assert_eq!(error, Err("create_group: there is no group 'no-such-group'".to_owned()));
    }
}
