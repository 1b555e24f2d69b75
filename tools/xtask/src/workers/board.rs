//! The file that the workers share; hammer.c says what lies where.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

const BYTES: usize = 8192;
const NAMES_MAX: u64 = 64;
const WORKERS_MAX: u32 = 64;

/// The board.
pub(crate) struct Board {
    file: File,
    path: PathBuf,
}

impl Board {
    pub(crate) fn new(path: &Path) -> io::Result<Self> {
        let file = File::options().read(true).write(true).create(true).truncate(true).open(path)?;
        file.set_len(BYTES as u64)?;
        Ok(Self { file, path: path.to_owned() })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// For a new round: no lock is held, so no name has a value.
    pub(crate) fn clear(&self) -> Result<(), String> {
        self.write(&[0; BYTES], 0)
    }

    pub(crate) fn stop(&self) -> Result<(), String> {
        self.write(&1u64.to_le_bytes(), 0)
    }

    /// Whether whoever is granted a lock keeps it.
    pub(crate) fn hold(&self, hold: bool) -> Result<(), String> {
        self.write(&u64::from(hold).to_le_bytes(), 40)
    }

    /// The longest that a NOQUEUE call took, in milliseconds.
    pub(crate) fn longest_try(&self) -> u64 {
        self.word(48)
    }

    pub(crate) fn grants(&self, worker: u32) -> u64 {
        self.word(64 + 8 * u64::from(worker))
    }

    /// How many grants there were since the round began.
    pub(crate) fn all_grants(&self) -> u64 {
        (0..WORKERS_MAX).map(|worker| self.grants(worker)).sum()
    }

    /// Takes the marks of a dead worker away.
    pub(crate) fn forget(&self, worker: u32) -> Result<(), String> {
        (0..NAMES_MAX).try_for_each(|name| self.write(&[0], 2048 + 64 * name + u64::from(worker)))
    }

    /// Whether all was as it has to be.
    pub(crate) fn verdict(&self) -> Result<(), String> {
        let (holders, values, refused) = (self.word(8), self.word(16), self.word(32));
        if (holders, values, refused) == (0, 0, 0) {
            return Ok(());
        }
        let mut log = String::new();
        if let Some(dir) = self.path.parent() {
            log = std::fs::read_to_string(dir.join("hammer.log")).unwrap_or_default();
        }
        Err(format!(
            "{holders} times two holders, {values} wrong values, {refused} refusals\n{log}"
        ))
    }

    fn word(&self, at: u64) -> u64 {
        let mut bytes = [0; 8];
        // A file of this size can be read; 0 would only make a check fail.
        let _ = self.file.read_exact_at(&mut bytes, at);
        u64::from_le_bytes(bytes)
    }

    fn write(&self, bytes: &[u8], at: u64) -> Result<(), String> {
        self.file.write_all_at(bytes, at).map_err(crate::text)
    }
}
