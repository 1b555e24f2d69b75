//! Is a kernel DLM active here?
//!
//! Locks of a kernel DLM and of this daemon do not see each other: a checker of a cluster file
//! system that asks us would be told that nobody has mounted it. So the daemon refuses to serve on
//! such a machine.

use std::path::Path;

use super::config::args::KernelPaths;

/// Why this machine is refused, if it is.
pub(crate) fn active(paths: &KernelPaths) -> Option<String> {
    let lockspaces = entries(&paths.sys_kernel_dlm);
    let device = std::fs::read_to_string(&paths.proc_misc).unwrap_or_default();
    let device = device.lines().any(|line| line.split_whitespace().nth(1) == Some("dlm-control"));
    let found = match (device, lockspaces.as_slice()) {
        (false, []) => return None,
        (true, []) => format!("dlm-control is in {}", paths.proc_misc.display()),
        (_, names) => format!("{} has {}", paths.sys_kernel_dlm.display(), names.join(", ")),
    };
    Some(format!(
        "a kernel DLM is active on this machine ({found}); its locks and those of dlmd do not see \
         each other. Unload the kernel's dlm module, or give --override-kernel-dlm if nothing that \
         uses the one shares data with what uses the other"
    ))
}

fn entries(directory: &Path) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(directory) else {
        return Vec::new();
    };
    let mut names: Vec<String> =
        entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names.truncate(10);
    names
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::testing::TempDir;

    #[test]
    fn device_and_lockspaces_of_a_kernel_are_found() {
        let dir = TempDir::new("kernel");
        let paths = KernelPaths {
            proc_misc: dir.path().join("misc"),
            sys_kernel_dlm: dir.path().join("dlm"),
        };
        assert_eq!(active(&paths), None, "neither file exists");
        fs::write(&paths.proc_misc, "183 hw_random\n 62 not-dlm-control\n").expect("writable");
        fs::create_dir(&paths.sys_kernel_dlm).expect("writable");
        assert_eq!(active(&paths), None);
        fs::write(&paths.proc_misc, "183 hw_random\n 61 dlm-control\n").expect("writable");
        let why = active(&paths).expect("refused");
        assert!(
            why.contains("dlm-control is in") && why.contains("--override-kernel-dlm"),
            "{why}"
        );
        fs::create_dir(paths.sys_kernel_dlm.join("web")).expect("writable");
        fs::write(&paths.proc_misc, "").expect("writable");
        let why = active(&paths).expect("refused");
        assert!(why.contains("has web"), "{why}");
    }
}
