//! `cargo xtask install` into a folder: what it puts there is complete and works from there.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

const PREFIX: &str = "/opt/dlm";

/// A tree of its own, removed at the end, with a daemon started from it.
struct Tree {
    root: PathBuf,
    daemon: Option<Child>,
}

impl Drop for Tree {
    fn drop(&mut self) {
        if let Some(daemon) = &mut self.daemon {
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
        let _ = fs::remove_dir_all(&self.root);
    }
}

impl Tree {
    fn installed() -> Self {
        let root = std::env::temp_dir().join(format!("dlm-install-{}", std::process::id()));
        let output = Command::new(env!("CARGO_BIN_EXE_xtask"))
            .args(["install", "--prefix", PREFIX, "--destdir"])
            .arg(&root)
            .stdin(Stdio::null())
            .output()
            .expect("xtask runs");
        let tree = Tree { root, daemon: None };
        good("xtask install", &output);
        tree
    }

    fn at(&self, below: &str) -> PathBuf {
        self.root.join(&PREFIX[1..]).join(below)
    }

    fn libraries(&self) -> PathBuf {
        let triplet = Command::new("cc").arg("-print-multiarch").output().expect("cc runs").stdout;
        let triplet = String::from_utf8(triplet).expect("a triplet");
        self.at("lib").join(triplet.trim())
    }

    fn pkg_config(&self, words: &[&str]) -> String {
        let output = Command::new("pkg-config")
            .args(words)
            .env("PKG_CONFIG_LIBDIR", self.libraries().join("pkgconfig"))
            .env("PKG_CONFIG_SYSROOT_DIR", &self.root)
            .output()
            .expect("pkg-config runs");
        good("pkg-config", &output);
        String::from_utf8(output.stdout).expect("flags").trim().to_string()
    }

    /// Compiles with the flags pkg-config gives and runs against the installed daemon.
    fn compile_and_run(&self, package: &str, source: &Path) -> Output {
        let program = self.root.join(format!("program-{package}"));
        let flags = self.pkg_config(&["--cflags", "--libs", package]);
        let compiled = Command::new("cc")
            .args(["-Wall", "-Wextra", "-Werror", "-pthread", "-o"])
            .arg(&program)
            .arg(source)
            .args(flags.split_whitespace())
            .output()
            .expect("cc runs");
        good("cc", &compiled);
        Command::new(&program)
            .arg(self.libraries().canonicalize().expect("the library folder"))
            .env("LD_LIBRARY_PATH", self.libraries())
            .env("DLM_SOCKET", self.socket())
            .stdin(Stdio::null())
            .output()
            .expect("the program runs")
    }

    fn socket(&self) -> PathBuf {
        self.root.join("dlmd.sock")
    }

    /// Under its old name, the daemon comes back to its caller once it serves; under its own it stays.
    fn start_daemon(&mut self) {
        let notify = self.root.join("notify");
        let inbox = std::os::unix::net::UnixDatagram::bind(&notify).expect("a notify socket");
        inbox.set_read_timeout(Some(std::time::Duration::from_secs(30))).expect("a hang guard");
        let config = self.root.join("dlm.conf");
        fs::write(&config, "cluster_name=installed\n").expect("a configuration");
        let daemon = Command::new(self.at("sbin/dlmd"))
            .arg("--config")
            .arg(&config)
            .arg("--socket")
            .arg(self.socket())
            .env("NOTIFY_SOCKET", &notify)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("the installed dlmd starts");
        self.daemon = Some(daemon);
        let mut words = [0; 1024];
        loop {
            let length = inbox.recv(&mut words).expect("dlmd says that it serves");
            if String::from_utf8_lossy(&words[..length]).contains("READY=1") {
                return;
            }
        }
    }
}

fn good(what: &str, output: &Output) {
    let (out, err) = (&output.stdout, &output.stderr);
    let text = format!("{}{}", String::from_utf8_lossy(out), String::from_utf8_lossy(err));
    assert!(output.status.success(), "{what}: {}\n{text}", output.status);
}

/// The first C program in the README.
fn readme_program() -> String {
    let readme = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../README.md");
    let text = fs::read_to_string(readme).expect("README.md");
    let (_, rest) = text.split_once("```c\n").expect("README.md shows a C program");
    rest.split_once("```").expect("its end").0.to_string()
}

fn check_files(tree: &Tree) {
    for name in ["libdlm", "libdlm_lt"] {
        let real = tree.libraries().join(format!("{name}.so.3.0"));
        assert!(real.symlink_metadata().expect("the real file").is_file());
        for link in [format!("{name}.so.3"), format!("{name}.so")] {
            let link = tree.libraries().join(link);
            assert!(link.symlink_metadata().expect("a link").is_symlink());
            assert_eq!(link.canonicalize().expect("its end"), real.canonicalize().expect("it"));
        }
        assert_eq!(tree.pkg_config(&["--modversion", name]), "4.0.0");
    }
    assert!(tree.pkg_config(&["--libs", "libdlm_lt"]).contains("-ldlm_lt"));
    for header in ["libdlm.h", "dlm_ext.h"] {
        assert!(tree.at("include").join(header).is_file(), "{header}");
    }
    for program in ["dlmd", "dlm_tool", "dlm_bench", "dlm_controld", "dlm_stonith"] {
        assert!(tree.at("sbin").join(program).is_file(), "{program}");
    }
    let link = fs::read_link(tree.at("sbin/dlm_controld")).expect("a link");
    assert_eq!(link, Path::new("dlmd"));
    let unit = fs::read_to_string(tree.at("lib/systemd/system/dlmd.service")).expect("the unit");
    assert!(unit.contains("ExecStart=/opt/dlm/sbin/dlmd"), "{unit}");
    for file in [
        "share/bash-completion/completions/dlm_tool",
        "share/zsh/site-functions/_dlm_tool",
        "share/fish/vendor_completions.d/dlm_tool.fish",
    ] {
        let text = fs::read_to_string(tree.at(file)).expect(file);
        assert!(text.contains("lockdump"), "{file} completes commands");
    }
}

/// systemd finds nothing wrong with the units, where it is there to ask: ours as installed, and Debian's
/// lvmlockd.service, or one like it, with our drop-in.
fn check_units(tree: &Tree) {
    let units = tree.root.join("units");
    fs::create_dir_all(units.join("lvmlockd.service.d")).expect("a folder");
    let installed = tree.at("lib/systemd/system");
    let unit = fs::read_to_string(installed.join("dlmd.service")).expect("the unit");
    // Programs are looked for at their place, which is not that of this tree.
    let program = tree.at("sbin/dlmd").display().to_string();
    let unit = unit.replace("/opt/dlm/sbin/dlmd", &program);
    fs::write(units.join("dlmd.service"), unit).expect("a unit");
    let dropin = installed.join("lvmlockd.service.d/dlmd.conf");
    let dropin = fs::read_to_string(dropin).expect("the drop-in");
    assert!(dropin.contains("Environment=LD_LIBRARY_PATH=/opt/dlm/lib"), "{dropin}");
    assert!(!dropin.contains("@ENVIRONMENT@"), "{dropin}");
    fs::write(units.join("lvmlockd.service.d/dlmd.conf"), dropin).expect("a drop-in");
    let lvmlockd = "[Service]\nType=notify\nExecStart=/bin/true --foreground\n";
    fs::write(units.join("lvmlockd.service"), lvmlockd).expect("a unit");
    if Command::new("systemd-analyze").arg("--version").output().is_err() {
        println!("SKIPPED: the units' check, systemd-analyze is not installed");
        return;
    }
    for unit in ["dlmd.service", "lvmlockd.service"] {
        let output = Command::new("systemd-analyze")
            .args(["verify", "--man=no"])
            .arg(units.join(unit))
            .stdin(Stdio::null())
            .output()
            .expect("systemd-analyze runs");
        good("systemd-analyze verify", &output);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let ours: Vec<_> = said.lines().filter(|line| line.contains("dlm")).collect();
        assert!(ours.is_empty(), "{unit}: {ours:?}");
    }
}

/// The example configuration is one, but for what only its machines have.
fn check_examples(tree: &Tree) {
    let example = tree.at("share/doc/dlm/examples/dlm.conf");
    let text = fs::read_to_string(example).expect("the example");
    let key = tree.root.join("authkey");
    let made = Command::new(tree.at("sbin/dlm_tool")).arg("keygen").arg(&key).output();
    good("dlm_tool keygen", &made.expect("dlm_tool runs"));
    let text = text
        .replace("/etc/dlm/authkey", &key.display().to_string())
        .replace("fence_ipmilan", "/bin/true");
    let copy = tree.root.join("example.conf");
    fs::write(&copy, text).expect("a copy");
    let output = Command::new(tree.at("sbin/dlmd"))
        .arg("--config")
        .arg(&copy)
        .args(["--check-config", "--socket"])
        .arg(tree.socket())
        .output();
    good("dlmd --check-config", &output.expect("dlmd runs"));
    let uidgid = fs::read_to_string(tree.at("share/doc/dlm/examples/corosync-uidgid"));
    assert!(uidgid.expect("the other example").contains("uid: dlm"));
}

/// Pages of the sections are there, and every page that stands for another one leads to one.
fn check_manuals(tree: &Tree) {
    let man = tree.at("share/man");
    for page in [
        "man3/libdlm.3",
        "man3/dlm_lock.3",
        "man3/dlm_ls_lockx.3",
        "man3/dlm_unlock.3",
        "man3/dlm_create_lockspace.3",
        "man3/dlm_release_lockspace.3",
        "man3/dlmx.3",
        "man5/dlm.conf.5",
        "man8/dlmd.8",
        "man8/dlm_controld.8",
        "man8/dlm_tool.8",
    ] {
        assert!(man.join(page).is_file(), "{page}");
    }
    for section in ["man3", "man5", "man8"] {
        for entry in fs::read_dir(man.join(section)).expect(section).flatten() {
            let text = fs::read_to_string(entry.path()).expect("a page");
            let name = entry.path().display().to_string();
            match text.strip_prefix(".so ") {
                Some(other) => assert!(man.join(other.trim()).is_file(), "{name} leads nowhere"),
                None => assert!(text.lines().any(|line| line.starts_with(".TH ")), "{name}"),
            }
        }
    }
}

#[test]
fn an_installed_tree_is_complete_and_works() {
    if std::env::var_os("DLM_LIB_DIR").is_none() {
        println!("SKIPPED: installs the release build, which `cargo xtask test` makes first");
        return;
    }
    for tool in ["cc", "pkg-config"] {
        if Command::new(tool).arg("--version").output().is_err() {
            println!("SKIPPED: {tool} is not installed");
            return;
        }
    }
    let mut tree = Tree::installed();
    check_files(&tree);
    check_manuals(&tree);
    check_units(&tree);
    check_examples(&tree);
    tree.start_daemon();
    let source = tree.root.join("readme.c");
    fs::write(&source, readme_program()).expect("the program's file");
    let output = tree.compile_and_run("libdlm", &source);
    good("the program in the README", &output);
    assert!(String::from_utf8_lossy(&output.stdout).starts_with("I hold it"));
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/clients/debian-dev.c");
    for package in ["libdlm", "libdlm_lt"] {
        good(package, &tree.compile_and_run(package, &source));
    }
}
