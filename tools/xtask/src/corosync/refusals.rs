//! What a daemon says that cannot be a member of corosync's cluster: one sentence, exit code 3.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::hosts::Hosts;
use crate::text;

/// A user without rights, and the library that is missing.
const NOBODY: u32 = 65534;
const LIBRARY: &str = "/usr/lib/x86_64-linux-gnu/libcfg.so.7";

/// Programs and files that the scene needs.
pub(super) fn lack() -> Option<String> {
    for needed in ["setpriv", "unshare", LIBRARY] {
        if crate::packages::find(needed).is_none() {
            return Some(format!("there is no {needed}"));
        }
    }
    None
}

/// Refused by corosync, and without its libraries.
pub(super) fn refusals(hosts: &mut Hosts) -> Result<(), String> {
    // What lies there is under /run on the host, where also others may look.
    let run = hosts.net().join("n1/run");
    let place = run.join("refused");
    std::fs::create_dir_all(&place).map_err(text)?;
    let give = |path: &Path, mode: u32| {
        std::os::unix::fs::chown(path, Some(NOBODY), Some(NOBODY)).map_err(text)?;
        std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).map_err(text)
    };
    give(&place, 0o700)?;
    for (name, mode, from) in [("dlmd", 0o700, hosts.program("dlmd")), ("key", 0o600, hosts.key())]
    {
        std::fs::copy(from, place.join(name)).map_err(text)?;
        give(&place.join(name), mode)?;
    }
    let dlmd = "/run/refused/dlmd --foreground --override-kernel-dlm --membership corosync \\
                --authkey /run/refused/key --socket /run/refused/socket";
    let as_nobody = format!("setpriv --reuid {NOBODY} --regid {NOBODY} --clear-groups {dlmd}");
    let without = format!("unshare -m bash -c 'mount --bind /dev/null {LIBRARY}; exec {dlmd}'");
    for (command, sentence) in [
        (as_nobody, "membership=corosync: corosync refuses this user: name it in a file of"),
        (without, "corosync is not installed (libcfg.so.7 is missing): apt install corosync"),
    ] {
        let output = hosts.run_on(1, &["bash", "-c", &command])?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        if output.status.code() != Some(3) || !said.contains(sentence) {
            return Err(format!("'{sentence}' was to be said, {} came: {said}", output.status));
        }
    }
    std::fs::remove_dir_all(&place).map_err(text)
}
