//! Which faults the engine's sources have.

use std::collections::BTreeSet;

use crate::seeded::core;

/// The names that the sources give to this call, each of them once.
pub(crate) fn named_in(call: &str) -> BTreeSet<String> {
    let begin = format!("{call}(\"");
    let mut names = BTreeSet::new();
    for entry in std::fs::read_dir(core().join("src")).expect("src") {
        let text = std::fs::read_to_string(entry.expect("an entry").path()).expect("a source");
        for piece in text.split(&begin).skip(1) {
            let name = piece.split('"').next().expect("split gives one").to_owned();
            assert!(names.insert(name.clone()), "{name} is seeded twice");
        }
    }
    names
}
