//! The watchdog: what resets this machine when nobody can vouch for it any more (membership.md 2).
//!
//! Whoever feeds it promises that the machine is harmless, or will be soon enough;
//! [`Lease::may_feed`] decides. Once it is armed there are two ways out: it is fed in time, for
//! ever, or it is released by the *magic close*, which says that nobody is left who may act. A
//! daemon that crashes says neither, and the machine is reset.
//!
//! It is a device of the kernel, or a fifo, for tests and for whoever reads it in its place (a
//! hypervisor's agent, for one): a byte for each feeding, a `V` for the release.
//!
//! [`Lease::may_feed`]: super::lease::Lease::may_feed

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::sys;

/// Any byte but the magic one.
const FEED: &[u8] = b"\0";
/// The magic close: what is closed after it stays quiet.
const RELEASE: &[u8] = b"V";

/// Something that resets this machine unless it is fed.
pub trait Watchdog {
    /// Puts the reset off by the whole timeout from now.
    ///
    /// # Errors
    /// The system's; the machine will be reset.
    fn feed(&mut self) -> io::Result<()>;

    /// Nobody is left who may act: no reset is needed any more.
    ///
    /// # Errors
    /// The system's; the machine will be reset.
    fn release(&mut self) -> io::Result<()>;
}

/// A watchdog device, or a fifo in its place. Open is armed.
#[derive(Debug)]
pub struct Device {
    file: File,
    path: PathBuf,
}

impl Device {
    /// Opens and arms it: it resets the machine `seconds` after the last feeding.
    ///
    /// # Errors
    /// A sentence that says what to do. Then it is not armed.
    pub fn open(path: &Path, seconds: u32) -> Result<Self, String> {
        let shown = path.display();
        let kind = std::fs::metadata(path).map_err(|error| {
            format!(
                "watchdog {shown}: {error}; load a watchdog driver (softdog, for one), name \
                 another device, or write watchdog=none if a node may be forgotten that is still \
                 running"
            )
        })?;
        let kind = kind.file_type();
        if kind.is_fifo() {
            // With the reading end too: a reader that comes late misses nothing, one that goes
            // does not end the daemon.
            let file =
                File::options().read(true).write(true).custom_flags(libc::O_NONBLOCK).open(path);
            let file = file.map_err(|error| format!("watchdog {shown}: {error}"))?;
            tracing::warn!(
                "watchdog {shown} is a fifo: whoever reads it has to reset this machine"
            );
            return Ok(Self { file, path: path.to_owned() });
        }
        if !kind.is_char_device() {
            return Err(format!("watchdog {shown} is neither a watchdog device nor a fifo"));
        }
        let file = File::options().write(true).open(path).map_err(|error| {
            format!(
                "watchdog {shown}: {error}; only one program can feed it, and it needs the right to"
            )
        })?;
        let mut device = Self { file, path: path.to_owned() };
        match device.set_timeout(seconds) {
            Ok(()) => Ok(device),
            Err(sentence) => {
                let _ = device.release();
                Err(sentence)
            }
        }
    }

    fn set_timeout(&self, seconds: u32) -> Result<(), String> {
        let shown = self.path.display();
        let set = sys::set_watchdog_timeout(&self.file, seconds).map_err(|error| {
            format!("watchdog {shown} is no watchdog, or cannot be set: {error}")
        })?;
        if set > seconds {
            return Err(format!(
                "watchdog {shown} cannot wait less than {set} s; set watchdog_timeout={set} \
                 on all nodes"
            ));
        }
        if !sys::watchdog_closes_by_magic(&self.file).unwrap_or(false) {
            tracing::warn!(
                "watchdog {shown} stops when it is closed: a crash of dlmd does not reset this \
                 machine"
            );
        }
        Ok(())
    }
}

impl Watchdog for Device {
    fn feed(&mut self) -> io::Result<()> {
        match self.file.write_all(FEED) {
            // A fifo that nobody reads.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
            result => result,
        }
    }

    fn release(&mut self) -> io::Result<()> {
        self.file.write_all(RELEASE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TempDir;
    use std::io::Read;

    fn fifo(dir: &TempDir) -> PathBuf {
        let path = dir.path().join("watchdog");
        sys::make_fifo(&path).expect("the directory is writable");
        path
    }

    #[test]
    fn each_feeding_is_a_byte_and_the_release_a_v() {
        let dir = TempDir::new("watchdog");
        let path = fifo(&dir);
        let mut device = Device::open(&path, 10).expect("a fifo will do");
        let reader = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(&path);
        let mut reader = reader.expect("readable");
        let mut heard = move || {
            let mut bytes = [0; 64];
            let length = reader.read(&mut bytes).unwrap_or(0);
            bytes[..length].to_vec()
        };
        assert_eq!(heard(), b"", "armed, not fed");
        device.feed().expect("fed");
        device.feed().expect("fed");
        assert_eq!(heard(), b"\0\0");
        device.release().expect("released");
        drop(device);
        assert_eq!(heard(), b"V");
    }

    #[test]
    fn a_crash_says_nothing() {
        let dir = TempDir::new("watchdog-crash");
        let path = fifo(&dir);
        let mut reader = File::options()
            .read(true)
            .custom_flags(libc::O_NONBLOCK)
            .open(&path)
            .expect("readable");
        drop(Device::open(&path, 10).expect("a fifo will do"));
        let mut bytes = [0; 8];
        assert!(matches!(reader.read(&mut bytes), Ok(0)), "no magic");
    }

    #[test]
    fn a_fifo_that_nobody_reads_does_not_stop_the_daemon() {
        let dir = TempDir::new("watchdog-full");
        let mut device = Device::open(&fifo(&dir), 10).expect("a fifo will do");
        for _ in 0..70_000 {
            device.feed().expect("never blocks, never fails");
        }
    }

    #[test]
    fn what_is_no_watchdog_is_refused_with_what_to_do() {
        let dir = TempDir::new("watchdog-bad");
        let told = |path: &Path| Device::open(path, 10).expect_err("refused");
        assert!(told(&dir.path().join("none")).contains("or write watchdog=none"));
        assert!(told(dir.path()).ends_with("is neither a watchdog device nor a fifo"));
        // A character device that is none, and that is not harmed by a V.
        assert!(told(Path::new("/dev/null")).contains("is no watchdog, or cannot be set"));
    }
}
