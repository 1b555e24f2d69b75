//! U8: what it costs to make 4 KiB survive the machine.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::{Bench, Reading};
use crate::measure::repeat;

/// On disk by tradition, where /tmp may be memory.
const DIRECTORY: &str = "/var/tmp";

pub(super) fn measure(bench: Bench) -> io::Result<Reading> {
    let file = nameless(Path::new(DIRECTORY)).or_else(|_| nameless(&std::env::temp_dir()))?;
    let page = [7; 4096];
    let latency = repeat(bench.plan.unit_time(), 10, || {
        file.write_all_at(&page, 0)?;
        file.sync_data()
    })?;
    Ok(Reading::of(latency.p50()))
}

/// A file that is gone as soon as nobody has it open.
fn nameless(directory: &Path) -> io::Result<File> {
    let path = directory.join(format!("dlm_bench.{}", std::process::id()));
    let file = OpenOptions::new().write(true).create_new(true).open(&path)?;
    fs::remove_file(&path)?;
    Ok(file)
}
