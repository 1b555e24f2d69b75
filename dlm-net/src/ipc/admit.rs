//! Who may do what.
//!
//! A lockspace has owner, group and mode as the kernel's device node `/dev/misc/dlm_<name>` has, and
//! opening it needs what opening that node for reading and writing would need. Creating a lockspace,
//! taking a creation back and administrator's requests are the business of root, of the daemon's own
//! user, and of groups that the configuration names (ipc.md section 4).

use dlm_core::{Access, Errno};
use dlm_ipc::socket::Peer;

/// Mode of a lockspace whose creator gave none (libdlm-abi.md 2.2: the device keeps its default).
pub const DEFAULT_MODE: u32 = 0o600;

/// Read and write, in a class of permission bits.
const READ_WRITE: u32 = 0o6;

/// What the configuration says about rights.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Rights {
    /// The daemon's own user.
    pub own_uid: u32,
    /// Whether everybody may create lockspaces.
    pub create_all: bool,
    /// Group whose members may create lockspaces.
    pub create_group: Option<u32>,
    /// Group whose members may give administrator's requests.
    pub control_group: Option<u32>,
}

impl Rights {
    /// Root and the daemon's own user.
    pub fn is_owner(&self, who: &Peer) -> bool {
        who.uid == 0 || who.uid == self.own_uid
    }

    /// Whether `who` may give administrator's requests.
    pub fn may_control(&self, who: &Peer) -> bool {
        self.is_owner(who) || self.control_group.is_some_and(|group| in_group(who, group))
    }

    /// Whether `who` may open a lockspace for locking.
    pub fn may_open(&self, who: &Peer, access: Access) -> bool {
        // As for files, the first class that applies decides, also against its member.
        let class = if who.uid == access.uid {
            access.mode >> 6
        } else if in_group(who, access.gid) {
            access.mode >> 3
        } else {
            access.mode
        };
        self.is_owner(who) || class & READ_WRITE == READ_WRITE
    }

    /// Whether `who` may create lockspaces.
    pub fn may_create(&self, who: &Peer) -> bool {
        let group = self.create_group.is_some_and(|group| in_group(who, group));
        self.create_all || group || self.is_owner(who)
    }

    /// Judges the opening of a lockspace; `existing` is that of a lockspace of this name.
    ///
    /// # Errors
    /// EPERM: may not create; ENOENT: nothing to open; EACCES: the mode does not admit him.
    pub fn open(&self, who: &Peer, create: bool, existing: Option<Access>) -> Result<(), Errno> {
        if create && !self.may_create(who) {
            return Err(Errno::EPERM);
        }
        match existing {
            Some(access) if !self.may_open(who, access) => Err(Errno::EACCES),
            None if !create => Err(Errno::ENOENT),
            _ => Ok(()),
        }
    }

    /// Judges the release of a lockspace. Throwing out other people's locks is the owner's business.
    ///
    /// # Errors
    /// EPERM.
    pub fn release(&self, who: &Peer, force: bool, access: Access) -> Result<(), Errno> {
        let owner = self.is_owner(who) || who.uid == access.uid;
        if self.may_create(who) && (!force || owner) { Ok(()) } else { Err(Errno::EPERM) }
    }
}

/// Owner, group and mode of a lockspace that `who` creates.
pub fn new_access(who: &Peer, mode: u32) -> Access {
    let mode = if mode == 0 { DEFAULT_MODE } else { mode & 0o777 };
    Access { uid: who.uid, gid: who.gid, mode }
}

fn in_group(who: &Peer, group: u32) -> bool {
    who.gid == group || who.groups.contains(&group)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(uid: u32, gid: u32, groups: &[u32]) -> Peer {
        Peer { pid: 1, uid, gid, groups: groups.to_vec() }
    }

    const RIGHTS: Rights =
        Rights { own_uid: 500, create_all: false, create_group: Some(70), control_group: Some(80) };

    #[test]
    fn opening_needs_what_the_device_node_would_need() {
        let owner = peer(10, 20, &[]);
        let member = peer(11, 20, &[]);
        let supplementary = peer(11, 21, &[3, 20]);
        let stranger = peer(12, 22, &[]);
        // (mode, owner, member, stranger)
        let cases = [
            (0o600, true, false, false),
            (0o660, true, true, false),
            (0o666, true, true, true),
            (0o640, true, false, false),
            (0o622, true, false, false),
            (0o060, false, true, false),
            (0o006, false, false, true),
            (0o002, false, false, false),
            (0o400, false, false, false),
            (0o777, true, true, true),
        ];
        for (mode, of_owner, of_member, of_stranger) in cases {
            let access = Access { uid: 10, gid: 20, mode };
            assert_eq!(RIGHTS.may_open(&owner, access), of_owner, "{mode:o}");
            assert_eq!(RIGHTS.may_open(&member, access), of_member, "{mode:o}");
            assert_eq!(RIGHTS.may_open(&supplementary, access), of_member, "{mode:o}");
            assert_eq!(RIGHTS.may_open(&stranger, access), of_stranger, "{mode:o}");
            assert!(RIGHTS.may_open(&peer(0, 0, &[]), access), "root passes {mode:o}");
            assert!(RIGHTS.may_open(&peer(500, 5, &[]), access), "own user passes {mode:o}");
        }
    }

    #[test]
    fn creating_is_for_root_the_own_user_and_the_group_or_for_all() {
        let all = Rights { create_all: true, ..RIGHTS };
        let cases = [
            (peer(0, 0, &[]), true),
            (peer(500, 9, &[]), true),
            (peer(9, 70, &[]), true),
            (peer(9, 9, &[1, 70]), true),
            (peer(9, 80, &[]), false),
            (peer(9, 9, &[]), false),
        ];
        for (who, may) in cases {
            let answer = if may { Ok(()) } else { Err(Errno::EPERM) };
            assert_eq!(RIGHTS.open(&who, true, None), answer, "{who:?}");
            assert_eq!(all.open(&who, true, None), Ok(()), "{who:?}");
            assert_eq!(RIGHTS.open(&who, false, None), Err(Errno::ENOENT), "{who:?}");
        }
    }

    #[test]
    fn creating_an_existing_lockspace_opens_it_and_needs_that_right_too() {
        let all = Rights { create_all: true, ..RIGHTS };
        let foreign = Access { uid: 10, gid: 20, mode: 0o600 };
        let who = peer(12, 22, &[]);
        assert_eq!(all.open(&who, true, Some(foreign)), Err(Errno::EACCES));
        assert_eq!(all.open(&who, false, Some(foreign)), Err(Errno::EACCES));
        let shared = Access { mode: 0o666, ..foreign };
        assert_eq!(all.open(&who, true, Some(shared)), Ok(()));
        assert_eq!(RIGHTS.open(&who, false, Some(shared)), Ok(()));
        assert_eq!(RIGHTS.open(&who, true, Some(shared)), Err(Errno::EPERM));
    }

    #[test]
    fn force_is_the_owners() {
        let all = Rights { create_all: true, ..RIGHTS };
        let shared = Access { uid: 10, gid: 20, mode: 0o666 };
        let (owner, other, root) = (peer(10, 20, &[]), peer(12, 22, &[]), peer(0, 0, &[]));
        assert_eq!(all.release(&owner, true, shared), Ok(()));
        assert_eq!(all.release(&other, true, shared), Err(Errno::EPERM));
        assert_eq!(all.release(&other, false, shared), Ok(()));
        assert_eq!(RIGHTS.release(&other, false, shared), Err(Errno::EPERM));
        assert_eq!(RIGHTS.release(&root, true, shared), Ok(()));
    }

    #[test]
    fn a_mode_of_zero_is_the_default_and_odd_bits_are_dropped() {
        let who = peer(10, 20, &[]);
        assert_eq!(new_access(&who, 0), Access { uid: 10, gid: 20, mode: 0o600 });
        assert_eq!(new_access(&who, 2).mode, 2, "mdadm's; root passes all the same");
        assert_eq!(new_access(&who, 0o107_666).mode, 0o666);
    }

    #[test]
    fn control_is_for_root_the_own_user_and_the_group() {
        assert!(RIGHTS.may_control(&peer(0, 0, &[])));
        assert!(RIGHTS.may_control(&peer(500, 1, &[])));
        assert!(RIGHTS.may_control(&peer(9, 1, &[80])));
        assert!(!RIGHTS.may_control(&peer(9, 70, &[70])));
    }
}
