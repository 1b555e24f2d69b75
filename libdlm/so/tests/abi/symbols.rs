//! What the dynamic linker sees.

use std::collections::BTreeSet;

use crate::{have, library, output, text};

/// Package, recorded file, soname.
const LIBRARIES: [(&str, &str, &str); 2] = [
    ("libdlm", "libdlm.so.3.0", "libdlm.so.3"),
    ("libdlm_lt", "libdlm_lt.so.3.0", "libdlm_lt.so.3"),
];

/// Our additions, in both.
pub(crate) const ADDED: [&str; 5] = [
    "dlmx_ls_lock_wait_timeout",
    "dlmx_set_label",
    "dlmx_set_loss_callback",
    "dlmx_status",
    "dlmx_token",
];

/// The functions that the original of this file exports.
pub(crate) fn recorded(file: &str) -> BTreeSet<String> {
    let all = text("tests/abi/libdlm-symbols.txt");
    let section = all.split("\n## ").find(|part| part.starts_with(&format!("{file} ")));
    let section = section.unwrap_or_else(|| panic!("{file} is not recorded"));
    let functions = section.lines().filter_map(|line| line.strip_prefix("  T "));
    functions.map(str::to_owned).collect()
}

#[test]
fn exactly_the_recorded_functions_and_ours_are_exported() {
    if !have("nm", "exports") {
        return;
    }
    for (package, file, _) in LIBRARIES {
        let path = library(package);
        let symbols = output("nm", &["-D", "--defined-only", &path.to_string_lossy()]);
        let mut found = BTreeSet::new();
        for line in symbols.lines() {
            let words: Vec<_> = line.split_whitespace().collect();
            assert_eq!(words[1], "T", "{package} exports something else than a function: {line}");
            found.insert(words[2].to_owned());
        }
        let mut expected = recorded(file);
        assert!(expected.len() >= 21, "{file}: {expected:?}");
        expected.extend(ADDED.map(str::to_owned));
        assert_eq!(found, expected, "{package}");
    }
}

#[test]
fn sonames_flags_and_no_versions() {
    if !have("readelf", "sonames") {
        return;
    }
    for (package, _, soname) in LIBRARIES {
        let path = library(package);
        let dynamic = output("readelf", &["-dW", &path.to_string_lossy()]);
        assert!(dynamic.contains(&format!("Library soname: [{soname}]")), "{dynamic}");
        for flag in ["BIND_NOW", "NODELETE"] {
            assert!(dynamic.contains(flag), "{package} lacks {flag}: {dynamic}");
        }
        let segments = output("readelf", &["-lW", &path.to_string_lossy()]);
        assert!(segments.contains("GNU_RELRO"), "{package}: {segments}");
        let stack = segments.lines().find(|line| line.contains("GNU_STACK")).unwrap_or_default();
        assert!(stack.contains("RW ") && !stack.contains("RWE"), "{package}: {stack}");
        let versions = output("readelf", &["-VW", &path.to_string_lossy()]);
        assert!(!versions.contains("Version definition"), "symbols are unversioned: {versions}");
    }
}
