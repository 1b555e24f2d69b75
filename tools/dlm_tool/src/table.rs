//! A lockspace's table, pulled page by page.
//!
//! Pages are printed as they come, so a dump of any size needs one page of memory, and a reader
//! that stops reading stops only this tool. A resource whose queues do not fit in one page
//! continues in the next one under the same name (names are unique in a table); it is put
//! together here again, so that commands see each resource once and whole (BL-020).

use std::collections::VecDeque;

use dlm_ipc::control::{ControlReply, ControlRequest, ResourceRecord};

use crate::context::{Daemon, Trouble, misunderstood};

/// The resources of one lockspace, each once and whole.
pub(crate) struct Table<'a> {
    daemon: &'a mut dyn Daemon,
    lockspace: &'a [u8],
    /// Where the next page begins; `None` after the last.
    from: Option<u64>,
    ready: VecDeque<ResourceRecord>,
}

impl<'a> Table<'a> {
    /// The table from its beginning. Nothing is asked yet.
    pub(crate) fn new(daemon: &'a mut dyn Daemon, lockspace: &'a [u8]) -> Self {
        Self { daemon, lockspace, from: Some(0), ready: VecDeque::new() }
    }

    /// The next resource; `None` at the end.
    pub(crate) fn next(&mut self) -> Result<Option<ResourceRecord>, Trouble> {
        // The last resource of a page is held back until the next page shows that it is whole.
        while self.ready.len() < 2 {
            let Some(from) = self.from else { break };
            let lockspace = self.lockspace.to_vec();
            let reply = self.daemon.ask(&ControlRequest::Table { lockspace, from })?;
            let ControlReply::Table(page) = reply else { return Err(misunderstood()) };
            if page.next == Some(from) {
                return Err(Trouble::Silent(
                    "the daemon's dump does not move on, so it is incomplete; please report this"
                        .to_owned(),
                ));
            }
            self.from = page.next;
            for resource in page.resources {
                match self.ready.back_mut() {
                    Some(last) if last.name == resource.name => last.locks.extend(resource.locks),
                    _ => self.ready.push_back(resource),
                }
            }
        }
        Ok(self.ready.pop_front())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{Script, lock, resource};
    use dlm_ipc::control::TablePage;

    fn page(resources: Vec<ResourceRecord>, next: Option<u64>) -> Result<ControlReply, Trouble> {
        Ok(ControlReply::Table(TablePage { resources, next }))
    }

    #[test]
    fn pages_join_into_resources_that_come_once_and_whole() {
        let mut script = Script::new([
            page(vec![resource(b"a", &[lock(1)]), resource(b"b", &[lock(2)])], Some(7)),
            page(vec![resource(b"b", &[lock(3)])], Some(8)),
            page(vec![], Some(9)),
            page(vec![resource(b"b", &[lock(4)]), resource(b"c", &[])], None),
        ]);
        let mut table = Table::new(&mut script, b"demo");
        let mut seen = Vec::new();
        while let Some(resource) = table.next().expect("a page") {
            let ids: Vec<u32> = resource.locks.iter().map(|lock| lock.id).collect();
            seen.push((resource.name, ids));
        }
        assert_eq!(
            seen,
            [(b"a".to_vec(), vec![1]), (b"b".to_vec(), vec![2, 3, 4]), (b"c".to_vec(), vec![])]
        );
        let from: Vec<u64> = script
            .asked
            .iter()
            .map(|request| match request {
                ControlRequest::Table { from, .. } => *from,
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(from, [0, 7, 8, 9]);
    }

    #[test]
    fn a_position_that_does_not_move_is_an_error_not_an_end() {
        let mut script = Script::new([page(vec![resource(b"a", &[])], Some(0))]);
        let mut table = Table::new(&mut script, b"demo");
        assert!(matches!(table.next(), Err(Trouble::Silent(_))));
    }

    #[test]
    fn a_daemon_that_breaks_off_is_an_error_not_an_end() {
        let gone = Trouble::Silent("gone".to_owned());
        let mut script = Script::new([page(vec![resource(b"a", &[])], Some(1)), Err(gone.clone())]);
        let mut table = Table::new(&mut script, b"demo");
        assert_eq!(table.next(), Err(gone));
    }
}
