//! Building the product and laying its libraries out under the names that programs load.

use std::ffi::OsString;
use std::io;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::Ending;
use crate::places::Places;

/// Packages whose release build is tested and installed.
pub(crate) const PACKAGES: &[&str] = &["dlmd", "dlm_tool", "dlm_bench", "libdlm", "libdlm_lt"];

/// The C libraries, by the name a linker looks for.
pub(crate) const LIBRARIES: &[&str] = &["libdlm", "libdlm_lt"];

/// `cargo build` of the product, as words.
pub(crate) fn build_words() -> Vec<&'static str> {
    let mut words = vec!["build", "--release"];
    for package in PACKAGES {
        words.extend(["--package", package]);
    }
    words
}

/// Builds the product with cargo's own output on our terminal, and lays the libraries out.
pub(crate) fn build(places: &Places) -> Result<(), Ending> {
    let status = Command::new(places.cargo())
        .args(build_words())
        .arg("--quiet")
        .current_dir(&places.root)
        .stdin(Stdio::null())
        .status()?;
    if !status.success() {
        eprintln!("the product does not build");
        return Err(Ending::Failed);
    }
    Ok(lay_out(places)?)
}

/// Fills [`Places::libraries`] from the release build.
pub(crate) fn lay_out(places: &Places) -> io::Result<()> {
    std::fs::create_dir_all(places.libraries())?;
    for name in LIBRARIES {
        put_library(&places.release(), &places.libraries(), name)?;
    }
    Ok(())
}

/// Puts `NAME.so` of the folder `from` into `to`: the real file, the soname's link, the linker's link.
/// A program that has the old file open keeps it: the new one takes its place by a rename.
pub(crate) fn put_library(from: &Path, to: &Path, name: &str) -> io::Result<()> {
    let real = format!("{name}.so.3.0");
    let fresh = to.join(format!(".{real}.{}", std::process::id()));
    let built = from.join(format!("{name}.so"));
    std::fs::copy(&built, &fresh)
        .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", built.display())))?;
    std::fs::rename(&fresh, to.join(&real))?;
    link(&real, &to.join(format!("{name}.so.3")))?;
    link(&format!("{name}.so.3"), &to.join(format!("{name}.so")))
}

/// Makes or replaces a symbolic link.
pub(crate) fn link(target: &str, at: &Path) -> io::Result<()> {
    match std::fs::remove_file(at) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => symlink(target, at),
    }
}

/// What tells tests where the product lies; documented in tests/README.md.
pub(crate) fn environment(places: &Places) -> Vec<(&'static str, OsString)> {
    vec![
        ("DLM_BIN_DIR", places.release().into()),
        ("DLM_LIB_DIR", places.libraries().into()),
        ("DLM_INCLUDE_DIR", places.include().into()),
        // A failing assertion says where it stands; twenty frames of the test harness bury it.
        ("RUST_BACKTRACE", "0".into()),
    ]
}

/// Compiles a C program against our header and one of our libraries.
pub(crate) fn cc(
    places: &Places,
    sources: &[std::path::PathBuf],
    library: &str,
    to: &Path,
) -> Result<(), Ending> {
    let output = Command::new("cc")
        .args(["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O1", "-g", "-pthread", "-I"])
        .arg(places.include())
        .args(sources)
        .arg("-L")
        .arg(places.libraries())
        .arg(format!("-l{library}"))
        .arg("-o")
        .arg(to)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| Ending::CannotRun(format!("cannot start cc: {error}; install gcc")))?;
    if output.status.success() {
        return Ok(());
    }
    eprintln!("{} does not compile:", to.display());
    eprintln!("{}", String::from_utf8_lossy(&output.stderr));
    Err(Ending::Failed)
}
