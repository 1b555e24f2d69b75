//! The hand-kept headers against the Rust signatures: prototypes generated from the latter are
//! compiled together with the former, and differ in nothing.

use std::collections::BTreeSet;

use crate::compile::compile;
use crate::symbols::{ADDED, recorded};
use crate::{have, top};

/// Where the signatures are.
const SOURCES: [&str; 4] = ["locks.rs", "spaces.rs", "threads.rs", "ext.rs"];

/// Prototypes of all functions, as cbindgen reads them out of the sources.
fn generated() -> String {
    let mut config = cbindgen::Config {
        language: cbindgen::Language::C,
        style: cbindgen::Style::Tag,
        no_includes: true,
        ..cbindgen::Config::default()
    };
    for (ours, theirs) in [("Lksb", "struct dlm_lksb"), ("Status", "struct dlmx_status")] {
        config.export.rename.insert(ours.into(), theirs.into());
    }
    let mut builder = cbindgen::Builder::new().with_config(config);
    for source in SOURCES {
        builder = builder.with_src(top().join("libdlm/so/src").join(source));
    }
    let mut text = Vec::new();
    builder.generate().expect("the signatures can be read").write(&mut text);
    String::from_utf8(text).expect("text")
}

#[test]
fn every_exported_function_has_a_generated_prototype() {
    let text = generated();
    let mut expected = recorded("libdlm.so.3.0");
    expected.extend(ADDED.map(str::to_owned));
    let found: BTreeSet<_> = expected.iter().filter(|f| text.contains(&format!("{f}("))).collect();
    assert_eq!(found, expected.iter().collect(), "{text}");
}

#[test]
fn headers_and_signatures_agree() {
    if !have("gcc", "prototypes") {
        return;
    }
    let headers = "#include <libdlm.h>\n#include <dlm_ext.h>\n";
    let source = format!("{headers}{}", generated());
    if let Err(said) = compile("gcc", &["-std=c11", "-pthread", "-Wno-strict-prototypes"], &source)
    {
        panic!("{said}\nof\n{source}");
    }
    // Every function of the headers is in the generated text, so a changed one is noticed.
    let wrong = source.replace("uint64_t *token", "uint32_t *token");
    assert_ne!(wrong, source);
    assert!(compile("gcc", &["-std=c11", "-pthread"], &wrong).is_err(), "the check can fail");
}
