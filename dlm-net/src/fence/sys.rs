//! The system call of the runner of agents that no safe crate wraps.

/// Ends all processes of a group that this process made and whose leader it has not reaped.
pub(super) fn kill_group(leader: u32) {
    let Ok(leader) = libc::pid_t::try_from(leader) else { return };
    // A group of 0 or 1 would be this process's own, or everybody.
    if leader > 1 {
        // SAFETY: no pointers. That the group is gone already is as good.
        unsafe { libc::kill(-leader, libc::SIGKILL) };
    }
}
