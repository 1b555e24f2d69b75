//! `cargo xtask install`: everything where a Debian system looks for it.
//!
//! `--destdir D` puts the whole tree below D, for a package; the files still speak of the final places.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::Ending;
use crate::places::Places;
use crate::products;

/// Where things go, as the installed system sees it (`place`) and as we write it (`put`).
struct Target {
    destdir: PathBuf,
    prefix: PathBuf,
    /// Below the prefix.
    libraries: String,
}

impl Target {
    fn place(&self, below: &str) -> PathBuf {
        self.prefix.join(below)
    }

    /// The folder to write to for a folder of the installed system, made if it is not there.
    fn put(&self, place: &Path) -> io::Result<PathBuf> {
        let inside = place.strip_prefix("/").unwrap_or(place);
        let folder = if self.destdir.as_os_str().is_empty() {
            place.to_path_buf()
        } else {
            self.destdir.join(inside)
        };
        fs::create_dir_all(&folder)?;
        Ok(folder)
    }
}

/// Runs the command.
pub(crate) fn run(places: &Places, args: &[String]) -> Result<(), Ending> {
    let target = parse(args)?;
    products::build(places)?;
    libraries(places, &target)?;
    headers(places, &target)?;
    pkg_config(places, &target)?;
    programs(places, &target)?;
    manuals(places, &target)?;
    completions(places, &target)?;
    units(places, &target)?;
    examples(places, &target)?;
    if target.destdir.as_os_str().is_empty() {
        refresh_loader();
    }
    println!("installed below {}{}", target.destdir.display(), target.prefix.display());
    Ok(())
}

fn parse(args: &[String]) -> Result<Target, Ending> {
    let mut destdir = PathBuf::new();
    let mut prefix = PathBuf::from("/usr/local");
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        let (name, inline) = match arg.split_once('=') {
            Some((name, value)) => (name, Some(value.to_string())),
            None => (arg.as_str(), None),
        };
        let into = match name {
            "--destdir" => &mut destdir,
            "--prefix" => &mut prefix,
            other => return Err(Ending::Usage(format!("install has no option {other}"))),
        };
        let value = inline.or_else(|| args.next().cloned());
        *into = value
            .map(PathBuf::from)
            .ok_or_else(|| Ending::Usage(format!("{name} needs a folder")))?;
    }
    if !prefix.is_absolute() {
        return Err(Ending::Usage("--prefix needs an absolute path".into()));
    }
    if !destdir.as_os_str().is_empty() {
        destdir = std::path::absolute(&destdir)?;
    }
    Ok(Target { destdir, prefix, libraries: library_folder() })
}

/// `lib/x86_64-linux-gnu` where the system has such folders, which its loader prefers; else `lib`.
fn library_folder() -> String {
    let output = Command::new("cc").arg("-print-multiarch").stdin(Stdio::null()).output();
    let triplet = output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_string());
    match triplet {
        Ok(triplet) if !triplet.is_empty() => format!("lib/{triplet}"),
        _ => "lib".into(),
    }
}

fn libraries(places: &Places, target: &Target) -> io::Result<()> {
    let folder = target.put(&target.place(&target.libraries))?;
    for name in products::LIBRARIES {
        products::put_library(&places.release(), &folder, name)?;
        set_mode(&folder.join(format!("{name}.so.3.0")), 0o644)?;
    }
    Ok(())
}

fn headers(places: &Places, target: &Target) -> io::Result<()> {
    let folder = target.put(&target.place("include"))?;
    copy_all(&places.include(), &folder, 0o644, |name| name.ends_with(".h"))
}

/// The templates name the prefix and the library folder as `@PREFIX@` and `@LIBDIR@`.
fn pkg_config(places: &Places, target: &Target) -> io::Result<()> {
    let library_folder = target.place(&target.libraries);
    let folder = target.put(&library_folder.join("pkgconfig"))?;
    for file in files(&places.dist().join("pkgconfig"))? {
        let Some(name) = file.file_name().and_then(|name| name.to_str()) else { continue };
        let Some(stem) = name.strip_suffix(".pc.in") else { continue };
        let text = fs::read_to_string(&file)?
            .replace("@PREFIX@", &target.prefix.display().to_string())
            .replace("@LIBDIR@", &library_folder.display().to_string());
        write(&folder.join(format!("{stem}.pc")), &text, 0o644)?;
    }
    Ok(())
}

/// dlmd answers to its old name too: then it daemonizes, as the original did. Fence agents of our own
/// lie beside it, where a daemon that was started by the system finds them.
fn programs(places: &Places, target: &Target) -> io::Result<()> {
    let folder = target.put(&target.place("sbin"))?;
    for name in ["dlmd", "dlm_tool", "dlm_bench"] {
        replace(&places.release().join(name), &folder.join(name), 0o755)?;
    }
    copy_all(&places.dist().join("agents"), &folder, 0o755, |_| true)?;
    products::link("dlmd", &folder.join("dlm_controld"))
}

/// Pages lie in `man/`, with their section as suffix; links are files of one `.so` line.
fn manuals(places: &Places, target: &Target) -> io::Result<()> {
    for section in ["3", "5", "8"] {
        let folder = target.put(&target.place(&format!("share/man/man{section}")))?;
        let suffix = format!(".{section}");
        for from in [places.dist().join("man"), places.dist().join(format!("man/man{section}"))] {
            if from.is_dir() {
                copy_all(&from, &folder, 0o644, |name| name.ends_with(&suffix))?;
            }
        }
    }
    Ok(())
}

/// dlm_tool writes its own completions.
fn completions(places: &Places, target: &Target) -> io::Result<()> {
    let shells = [
        ("bash", "share/bash-completion/completions", "dlm_tool"),
        ("zsh", "share/zsh/site-functions", "_dlm_tool"),
        ("fish", "share/fish/vendor_completions.d", "dlm_tool.fish"),
    ];
    for (shell, below, file) in shells {
        let output = Command::new(places.release().join("dlm_tool"))
            .args(["completions", shell])
            .stdin(Stdio::null())
            .output()?;
        if !output.status.success() || output.stdout.is_empty() {
            let why = String::from_utf8_lossy(&output.stderr);
            return Err(io::Error::other(format!("dlm_tool completions {shell}: {why}")));
        }
        let folder = target.put(&target.place(below))?;
        write(&folder.join(file), &String::from_utf8_lossy(&output.stdout), 0o644)?;
    }
    Ok(())
}

/// The unit names the program where this prefix puts it.
fn units(places: &Places, target: &Target) -> io::Result<()> {
    let folder = target.put(&target.place("lib/systemd/system"))?;
    let program = target.place("sbin/dlmd").display().to_string();
    let unit = fs::read_to_string(places.dist().join("dlmd.service"))?;
    write(&folder.join("dlmd.service"), &unit.replace("@DLMD@", &program), 0o644)?;
    // A loader prefers our folder to Debian's by itself below /usr/local; elsewhere it is told.
    let library_folder = target.place(&target.libraries);
    let environment = match target.prefix.to_str() {
        Some("/usr" | "/usr/local") => String::new(),
        _ => format!("Environment=LD_LIBRARY_PATH={}", library_folder.display()),
    };
    let dropin = "lvmlockd.service.d/dlmd.conf";
    let text = fs::read_to_string(places.dist().join(dropin))?;
    let line = if environment.is_empty() { environment } else { environment + "\n" };
    let text = text.replace("@ENVIRONMENT@\n", &line);
    let folder = target.put(&target.place("lib/systemd/system/lvmlockd.service.d"))?;
    write(&folder.join("dlmd.conf"), &text, 0o644)
}

/// Files to start from.
fn examples(places: &Places, target: &Target) -> io::Result<()> {
    let folder = target.put(&target.place("share/doc/dlm/examples"))?;
    copy_all(&places.dist().join("examples"), &folder, 0o644, |_| true)
}

fn files(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder)
        .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", folder.display())))?;
    let mut files = Vec::new();
    for entry in entries {
        let path = entry?.path();
        if path.is_file() {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

fn copy_all(from: &Path, to: &Path, mode: u32, wanted: impl Fn(&str) -> bool) -> io::Result<()> {
    for file in files(from)? {
        if let Some(name) = file.file_name().and_then(|name| name.to_str())
            && wanted(name)
        {
            replace(&file, &to.join(name), mode)?;
        }
    }
    Ok(())
}

/// Copies beside the place and renames, so that a running program keeps its file.
fn replace(from: &Path, to: &Path, mode: u32) -> io::Result<()> {
    let fresh = to.with_extension(format!("new{}", std::process::id()));
    fs::copy(from, &fresh)
        .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", from.display())))?;
    set_mode(&fresh, mode)?;
    fs::rename(&fresh, to)
}

fn write(to: &Path, text: &str, mode: u32) -> io::Result<()> {
    fs::write(to, text)?;
    set_mode(to, mode)
}

fn set_mode(path: &Path, mode: u32) -> io::Result<()> {
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
}

/// The loader finds new libraries through its cache; without it, it still searches the default folders.
fn refresh_loader() {
    let done = Command::new("ldconfig").stdin(Stdio::null()).status();
    if !done.is_ok_and(|status| status.success()) {
        println!("run ldconfig as root, so that programs find the libraries");
    }
}
