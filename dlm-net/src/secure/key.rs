//! The cluster's key: 32 secret bytes that are the same on all nodes, in a file that only the daemon's
//! user can read. Whoever has it can be any node of the cluster.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::sys;

/// Bytes of a key.
pub const KEY_BYTES: usize = 32;
/// The file where none is configured.
pub const KEY_FILE: &str = "/etc/dlm/authkey";
/// Longest file that is looked at: 64 digits and some white space.
const FILE_BYTES_MAX: u64 = 128;
/// Permission bits a key file may have: its owner's reading and writing.
const MODE_MAX: u32 = 0o600;

/// A cluster's key.
#[derive(Clone, PartialEq, Eq)]
pub struct ClusterKey([u8; KEY_BYTES]);

/// Why there is no key. Every sentence says what to do.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// There is no such file.
    #[error(
        "{}: there is no cluster key; make one with dlm_tool keygen and copy it to all nodes, or set \
         crypto=none in a network that nobody else can reach", .0.display()
    )]
    Missing(PathBuf),
    /// The file cannot be read or written.
    #[error("{}: {error}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// Others can read or change the file.
    #[error(
        "{}: mode {mode:04o} lets others at the cluster key; make a new one if they may have read it, \
         and: chmod 0400 {}", path.display(), path.display()
    )]
    Mode {
        /// The file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// Somebody else owns the file.
    #[error("{}: owned by user {uid}; chown it to the daemon's user or to root", path.display())]
    Owner {
        /// The file.
        path: PathBuf,
        /// Its owner.
        uid: u32,
    },
    /// It is not a key.
    #[error(
        "{}: not a cluster key, which is 32 bytes or 64 hexadecimal digits; make one with dlm_tool \
         keygen", .0.display()
    )]
    Damaged(PathBuf),
    /// A key must never be replaced by accident.
    #[error("{}: exists; remove it first if the whole cluster is to get a new key", .0.display())]
    Exists(PathBuf),
}

impl ClusterKey {
    /// A key of these bytes.
    pub const fn from_bytes(bytes: [u8; KEY_BYTES]) -> Self {
        Self(bytes)
    }

    /// A new random key.
    ///
    /// # Errors
    /// The system gives no random bytes.
    pub fn generate() -> io::Result<Self> {
        let mut bytes = [0; KEY_BYTES];
        File::open("/dev/urandom")?.read_exact(&mut bytes)?;
        Ok(Self(bytes))
    }

    /// Reads a key file.
    ///
    /// # Errors
    /// As [`KeyError`] says.
    pub fn load(path: &Path) -> Result<Self, KeyError> {
        let io = |error: io::Error| match error.kind() {
            io::ErrorKind::NotFound => KeyError::Missing(path.to_owned()),
            _ => KeyError::Io { path: path.to_owned(), error },
        };
        let file = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_NONBLOCK) // a fifo in its place must not hang the start
            .open(path)
            .map_err(io)?;
        let about = file.metadata().map_err(io)?;
        if !about.is_file() {
            return Err(KeyError::Damaged(path.to_owned()));
        }
        let mode = about.mode() & 0o7777;
        if mode & !MODE_MAX != 0 {
            return Err(KeyError::Mode { path: path.to_owned(), mode });
        }
        let uid = about.uid();
        if uid != 0 && uid != sys::effective_uid() {
            return Err(KeyError::Owner { path: path.to_owned(), uid });
        }
        let mut bytes = Vec::new();
        file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(io)?;
        Self::parse(&bytes).ok_or_else(|| KeyError::Damaged(path.to_owned()))
    }

    /// 32 bytes as they are, or 64 hexadecimal digits with white space around them.
    fn parse(file: &[u8]) -> Option<Self> {
        if let Ok(bytes) = file.try_into() {
            return Some(Self(bytes));
        }
        let digits = file.trim_ascii();
        if digits.len() != 2 * KEY_BYTES {
            return None;
        }
        let digit = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
        let mut bytes = [0; KEY_BYTES];
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = digit(pair[0])? << 4 | digit(pair[1])?;
        }
        Some(Self(bytes))
    }

    pub(super) fn bytes(&self) -> &[u8; KEY_BYTES] {
        &self.0
    }
}

impl fmt::Debug for ClusterKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClusterKey(secret)")
    }
}

/// Makes a new key in a new file of mode 0400: what `dlm_tool keygen` does. An existing file is
/// never replaced.
///
/// # Errors
/// As [`KeyError`] says.
pub fn keygen(path: &Path) -> Result<(), KeyError> {
    let io = |error| KeyError::Io { path: path.to_owned(), error };
    let key = ClusterKey::generate().map_err(io)?;
    let digits: String = key.0.iter().map(|byte| format!("{byte:02x}")).collect();
    let opened = OpenOptions::new().write(true).create_new(true).mode(0o400).open(path);
    let mut file = opened.map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => KeyError::Exists(path.to_owned()),
        _ => io(error),
    })?;
    let written = writeln!(file, "{digits}").and_then(|()| file.sync_all());
    written.map_err(|error| {
        let _ = std::fs::remove_file(path); // half a key is worse than none
        io(error)
    })
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::testing::TempDir;

    #[test]
    fn a_made_key_is_private_can_be_loaded_and_is_never_replaced() {
        let dir = TempDir::new("authkey");
        let path = dir.path().join("authkey");
        assert!(matches!(ClusterKey::load(&path), Err(KeyError::Missing(_))));
        keygen(&path).expect("the directory is writable");
        let mode = fs::metadata(&path).expect("made").permissions().mode() & 0o7777;
        assert_eq!(mode, 0o400);
        let key = ClusterKey::load(&path).expect("a good key");
        assert!(matches!(keygen(&path), Err(KeyError::Exists(_))));
        assert_eq!(ClusterKey::load(&path).expect("a good key"), key);
        assert_ne!(key, ClusterKey::generate().expect("random bytes"));
        assert_eq!(format!("{key:?}"), "ClusterKey(secret)");
    }

    #[test]
    fn files_that_others_can_read_or_change_are_refused_with_what_to_do() {
        let dir = TempDir::new("authkey-mode");
        let path = dir.path().join("authkey");
        keygen(&path).expect("the directory is writable");
        for mode in [0o440, 0o404, 0o644, 0o600 | 0o020, 0o700, 0o4400] {
            fs::set_permissions(&path, Permissions::from_mode(mode)).expect("ours");
            let error = ClusterKey::load(&path).expect_err("too open");
            assert!(error.to_string().contains("chmod 0400"), "{mode:o}: {error}");
        }
        fs::set_permissions(&path, Permissions::from_mode(0o600)).expect("ours");
        assert!(ClusterKey::load(&path).is_ok());
    }

    #[test]
    fn keys_are_bytes_or_digits_and_nothing_else() {
        let bytes: [u8; KEY_BYTES] = std::array::from_fn(|i| i as u8 * 8 + 7);
        let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let good: [&[u8]; 4] = [
            &bytes,
            digits.as_bytes(),
            &format!(" {digits}\n").into_bytes(),
            &digits.to_uppercase().into_bytes(),
        ];
        for file in good {
            assert_eq!(ClusterKey::parse(file), Some(ClusterKey(bytes)));
        }
        let bad = ["", "x", &digits[1..], &format!("{digits}0"), &digits.replace('7', "g")];
        for file in bad {
            assert_eq!(ClusterKey::parse(file.as_bytes()), None, "{file}");
        }
        let dir = TempDir::new("authkey-odd");
        assert!(matches!(ClusterKey::load(dir.path()), Err(KeyError::Damaged(_))));
    }
}
