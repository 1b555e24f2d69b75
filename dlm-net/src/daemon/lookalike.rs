//! The look-alike of `/sys/kernel/config/dlm/cluster`.
//!
//! Some programs look for the lock manager there instead of asking the library: lvmlockd reads
//! `cluster_name` and lists `spaces/<lockspace>/nodes`, resource agents wait until a
//! `comms/<id>/addr_list` is not empty. The tree lies in the run directory, or where an operator
//! wants it, and a private mount shows it to those programs.
//!
//! Several nodes of a test cluster may share one tree, so a node makes and removes only its own
//! entries, and no directory that is not empty. Trouble with the tree never stops lock service.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use dlm_core::NodeId;

/// Files of the whole cluster, beside `cluster_name`; values as a kernel shows them.
const CLUSTER_FILES: &[(&str, &str)] =
    &[("log_debug", "0"), ("mark", "0"), ("protocol", "0"), ("recover_callbacks", "1")];

/// The tree of one node.
#[derive(Debug)]
pub struct Lookalike {
    root: PathBuf,
    node: NodeId,
    working: bool,
}

impl Lookalike {
    /// Makes the tree; entries that an earlier daemon of this node left are taken away first.
    pub fn create(root: &Path, node: NodeId, cluster_name: &str, port: u16) -> Self {
        let mut tree = Self { root: root.to_owned(), node, working: true };
        let made = tree.clear().and_then(|()| tree.make(cluster_name, port));
        tree.note(made);
        tree
    }

    /// A lockspace is joined by these nodes, and by no others.
    pub fn joined(&mut self, lockspace: &[u8], nodes: impl Iterator<Item = NodeId>) {
        let directory = self.space(lockspace).join("nodes");
        let names: Vec<String> = nodes.map(|node| node.0.to_string()).collect();
        let others = listed(&directory).unwrap_or_default();
        let gone = others.iter().filter(|path| {
            !names.iter().any(|name| path.file_name().is_some_and(|other| other == name.as_str()))
        });
        for node in gone {
            let removed = remove_files(node, &["nodeid", "weight"]);
            self.note(removed);
        }
        // Files are slow beside all else that a view brings: what is there stays.
        let there = |path: &PathBuf| others.contains(path) && path.join("weight").exists();
        for (node, directory) in names.iter().map(|node| (node, directory.join(node))) {
            if there(&directory) {
                continue;
            }
            let made = fs::create_dir_all(&directory)
                .and_then(|()| write(&directory, "nodeid", node))
                .and_then(|()| write(&directory, "weight", "1"));
            self.note(made);
        }
    }

    /// A lockspace was left by this node.
    pub fn left(&mut self, lockspace: &[u8]) {
        let gone = self.forget(&self.space(lockspace));
        self.note(gone);
    }

    /// Takes the tree away, at the end.
    pub fn remove(&mut self) {
        let gone = self.clear();
        self.note(gone);
    }

    fn make(&self, cluster_name: &str, port: u16) -> io::Result<()> {
        let comm = self.comm();
        fs::create_dir_all(&comm)?;
        fs::create_dir_all(self.root.join("spaces"))?;
        write(&comm, "nodeid", &self.node.0.to_string())?;
        write(&comm, "local", "1")?;
        write(&comm, "mark", "0")?;
        write(&comm, "addr_list", "AF_INET\t127.0.0.1")?;
        write(&self.root, "cluster_name", cluster_name)?;
        write(&self.root, "tcp_port", &port.to_string())?;
        CLUSTER_FILES.iter().try_for_each(|(name, value)| write(&self.root, name, value))
    }

    fn clear(&self) -> io::Result<()> {
        for space in listed(&self.root.join("spaces"))? {
            self.forget(&space)?;
        }
        remove_files(&self.comm(), &["nodeid", "local", "mark", "addr_list"])?;
        let shared = listed(&self.root.join("comms"))?;
        if !shared.is_empty() {
            return Ok(());
        }
        let files = CLUSTER_FILES.iter().map(|(name, _)| *name).chain(["cluster_name", "tcp_port"]);
        remove_if_empty(&self.root.join("comms"))?;
        remove_if_empty(&self.root.join("spaces"))?;
        // The folder itself stays: where it is mounted for programs that look below /sys/kernel, a
        // new one of its name would be another one, and they would never see a later daemon.
        files.map(|name| self.root.join(name)).try_for_each(|file| present(fs::remove_file(file)))
    }

    /// Removes this node from a lockspace, and the lockspace if it was the last one.
    fn forget(&self, space: &Path) -> io::Result<()> {
        let nodes = space.join("nodes");
        remove_files(&nodes.join(self.node.0.to_string()), &["nodeid", "weight"])?;
        remove_if_empty(&nodes)?;
        remove_if_empty(space)
    }

    fn comm(&self) -> PathBuf {
        self.root.join("comms").join(self.node.0.to_string())
    }

    fn space(&self, lockspace: &[u8]) -> PathBuf {
        self.root.join("spaces").join(file_name(lockspace))
    }

    /// Logs the first trouble only: what fails once fails every time.
    fn note(&mut self, result: io::Result<()>) {
        if let Err(error) = result
            && std::mem::replace(&mut self.working, false)
        {
            tracing::warn!(
                "cannot keep {}: {error}; programs that look there for lockspaces will not find \
                 them",
                self.root.display()
            );
        }
    }
}

/// A lockspace's name as a file name. Bytes that a file name cannot have, and `%`, become `%xx`, so
/// that different lockspaces have different names and none leads out of the tree.
pub fn file_name(lockspace: &[u8]) -> std::ffi::OsString {
    use std::os::unix::ffi::OsStringExt;
    let dots = lockspace.iter().all(|byte| *byte == b'.');
    let mut name = Vec::with_capacity(lockspace.len());
    for byte in lockspace {
        if matches!(byte, b'/' | b'%' | 0..=31 | 127) || (dots && *byte == b'.') {
            name.extend_from_slice(format!("%{byte:02x}").as_bytes());
        } else {
            name.push(*byte);
        }
    }
    std::ffi::OsString::from_vec(name)
}

fn write(directory: &Path, name: &str, value: &str) -> io::Result<()> {
    fs::write(directory.join(name), format!("{value}\n"))
}

/// Paths in a directory; none where it does not exist.
fn listed(directory: &Path) -> io::Result<Vec<PathBuf>> {
    match fs::read_dir(directory) {
        Ok(entries) => entries.map(|entry| Ok(entry?.path())).collect(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// Removes these files, and the directory if nothing else is in it.
fn remove_files(directory: &Path, names: &[&str]) -> io::Result<()> {
    for name in names {
        present(fs::remove_file(directory.join(name)))?;
    }
    remove_if_empty(directory)
}

fn remove_if_empty(directory: &Path) -> io::Result<()> {
    match fs::remove_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => Ok(()),
        result => present(result),
    }
}

/// Success also where there was nothing.
fn present(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TempDir;
    use std::os::unix::fs::MetadataExt;

    fn read(root: &Path, name: &str) -> String {
        fs::read_to_string(root.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    #[test]
    fn the_tree_follows_the_lockspaces_and_is_empty_at_the_end() {
        let dir = TempDir::new("lookalike");
        let root = dir.path().join("config/dlm/cluster");
        let mut tree = Lookalike::create(&root, NodeId(3), "web", 21064);
        assert_eq!(read(&root, "cluster_name"), "web\n");
        assert_eq!(read(&root, "comms/3/addr_list"), "AF_INET\t127.0.0.1\n");
        assert_eq!(read(&root, "comms/3/local"), "1\n");
        assert_eq!(read(&root, "tcp_port"), "21064\n");
        tree.joined(b"lvm_global", [NodeId(3), NodeId(4)].into_iter());
        assert_eq!(read(&root, "spaces/lvm_global/nodes/3/nodeid"), "3\n");
        assert_eq!(read(&root, "spaces/lvm_global/nodes/4/weight"), "1\n");
        tree.left(b"lvm_global");
        assert!(!root.join("spaces/lvm_global/nodes/3").exists());
        assert!(root.join("spaces/lvm_global/nodes/4").exists(), "another node's entry stays");
        fs::remove_dir_all(root.join("spaces/lvm_global")).expect("removable");
        tree.joined(b"a/b", std::iter::once(NodeId(3)));
        assert!(root.join("spaces/a%2fb/nodes/3/nodeid").exists());
        tree.remove();
        assert_eq!(listed(&root).expect("the folder stays, for who has it mounted").len(), 0);
        let number = || fs::metadata(&root).expect("it is there").ino();
        let before = number();
        Lookalike::create(&root, NodeId(3), "web", 21064).remove();
        assert_eq!(number(), before, "it is the same folder in every life of the daemon");
    }

    #[test]
    fn what_a_killed_daemon_left_is_taken_away_at_the_next_start() {
        let dir = TempDir::new("lookalike-left");
        let root = dir.path().join("cluster");
        let mut first = Lookalike::create(&root, NodeId(1), "web", 1);
        first.joined(b"old", std::iter::once(NodeId(1)));
        let mut other = Lookalike::create(&root, NodeId(2), "web", 1);
        other.joined(b"old", std::iter::once(NodeId(2)));
        let mut next = Lookalike::create(&root, NodeId(1), "web", 1);
        assert!(!root.join("spaces/old/nodes/1").exists());
        assert!(root.join("spaces/old/nodes/2").exists());
        next.remove();
        assert_eq!(read(&root, "cluster_name"), "web\n", "node 2 still uses the tree");
        other.remove();
        assert_eq!(listed(&root).expect("readable").len(), 0);
    }

    #[test]
    fn names_are_distinct_and_stay_inside() {
        let cases: [(&[u8], &str); 7] = [
            (b"a/b", "a%2fb"),
            (b"a%2fb", "a%252fb"),
            (b"..", "%2e%2e"),
            (b".", "%2e"),
            (b"..a", "..a"),
            (b"a\0b\n", "a%00b%0a"),
            (b"lvm_global", "lvm_global"),
        ];
        for (name, want) in cases {
            assert_eq!(file_name(name), want);
        }
        assert_eq!(file_name(&[b'/'; 64]).len(), 192, "the longest name still is a file name");
    }

    #[test]
    fn trouble_is_logged_and_survived() {
        let mut tree = Lookalike::create(Path::new("/proc/none"), NodeId(1), "web", 1);
        assert!(!tree.working);
        tree.joined(b"x", std::iter::once(NodeId(1)));
        tree.left(b"x");
        tree.remove();
    }
}
