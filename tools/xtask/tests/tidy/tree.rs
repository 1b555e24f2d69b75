//! The files of the project.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// A file that is text.
pub(crate) struct Source {
    /// Below the workspace, with slashes.
    pub(crate) path: String,
    /// All of it.
    pub(crate) text: String,
}

impl Source {
    /// Whether its suffix is one of these.
    pub(crate) fn is(&self, suffixes: &[&str]) -> bool {
        self.path.rsplit_once('.').is_some_and(|(_, suffix)| suffixes.contains(&suffix))
    }
}

/// The workspace.
pub(crate) fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).expect("xtask lies two folders below the workspace").to_path_buf()
}

/// Names at the top level.
pub(crate) fn top_level() -> Vec<String> {
    let entries = fs::read_dir(root()).expect("the workspace is a folder").flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

/// Every text file of the project, read once.
pub(crate) fn sources() -> &'static [Source] {
    static SOURCES: OnceLock<Vec<Source>> = OnceLock::new();
    SOURCES.get_or_init(|| {
        let mut found = Vec::new();
        walk(&root(), "", &mut found);
        assert!(found.len() > 50, "the walk through the tree found {} files", found.len());
        found
    })
}

/// What is made by tools, not by us.
const MADE: &[&str] = &["target", ".git", "corpus", "artifacts"];

fn walk(folder: &Path, below: &str, found: &mut Vec<Source>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = if below.is_empty() { name.clone() } else { format!("{below}/{name}") };
        // Not the file type's own word on links: a link to a folder is not followed.
        match entry.file_type() {
            Ok(kind) if kind.is_dir() && !MADE.contains(&name.as_str()) => {
                walk(&entry.path(), &path, found);
            }
            Ok(kind) if kind.is_file() => {
                // A file that is not text, or that an editor has just taken away, is none of ours.
                if let Ok(text) = fs::read_to_string(entry.path()) {
                    found.push(Source { path, text });
                }
            }
            _ => {}
        }
    }
}
