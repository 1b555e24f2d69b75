//! `--check-config` and fencing: each mistake is told once, with its line and what to do.

use std::path::Path;
use std::process::{Command, Output};

use dlm_net::testing::TempDir;

const DLMD: &str = env!("CARGO_BIN_EXE_dlmd");

/// A folder with a dlm.conf and the agent `fence_here` on the path.
struct Machine {
    dir: TempDir,
}

impl Machine {
    fn new(file: &str) -> Self {
        let dir = TempDir::new("fence-config");
        std::fs::write(dir.path().join("dlm.conf"), file).expect("writable");
        dir.script("fence_here", "");
        Self { dir }
    }

    fn check(&self) -> Output {
        let file = self.dir.path().join("dlm.conf");
        let mut dlmd = Command::new(DLMD);
        dlmd.arg("--check-config").arg("--config").arg(file).env("PATH", self.dir.path());
        dlmd.env("DLM_SOCKET", self.dir.path().join("dlmd.sock"));
        dlmd.output().expect("dlmd runs")
    }

    fn file(&self) -> String {
        self.dir.path().join("dlm.conf").display().to_string()
    }

    fn path(&self) -> &Path {
        self.dir.path()
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

const DEVICES: &str = "device a fence_here\nconnect a node=1\n\ndevice b fence_gone ip=1\n\
    connect b node=1\n\ndevice c:1 fence_gone\ndevice d fence_lost\n";

#[test]
fn agents_that_are_not_there_are_named_with_their_line() {
    let machine = Machine::new(&format!("membership=corosync\n\n{DEVICES}"));
    let output = machine.check();
    assert_eq!(output.status.code(), Some(1));
    let (file, path) = (machine.file(), machine.path().display());
    let line = |number, agent| {
        format!(
            "{file}:{number}: agent {agent} is not found on PATH ({path}); install it or write its \
             path"
        )
    };
    let want = format!("dlmd: {}\n{}\n", line(6, "fence_gone"), line(10, "fence_lost"));
    assert_eq!(text(&output.stderr), want);
}

#[test]
fn where_nobody_is_fenced_they_are_only_noted() {
    for first in ["membership=single", "membership=corosync\nenable_fencing=0"] {
        let machine = Machine::new(&format!("{first}\n\n{DEVICES}"));
        let output = machine.check();
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        let told = text(&output.stdout);
        assert!(told.starts_with(&format!("{}: good; the socket is ", machine.file())), "{told}");
        assert_eq!(told.matches("\nnote: ").count(), 2, "{told}");
    }
}

#[test]
fn what_is_there_is_good() {
    for file in [
        "device a fence_here k=v\nconnect a node=1\n",
        "fence_all fence_here\nunfence_all\n",
        "# nothing: Pacemaker is asked, or a person\n",
    ] {
        let machine = Machine::new(&format!("membership=corosync\n{file}"));
        let output = machine.check();
        assert_eq!(output.status.code(), Some(0), "{file}: {}", text(&output.stderr));
        assert!(!text(&output.stdout).contains("note"), "{}", text(&output.stdout));
    }
}

#[test]
fn mistakes_are_told_all_at_once() {
    let machine = Machine::new(
        "membership=corosync\ndevice a\nconnect a node=1\nfence_all fence_here\ndevice b fence_here\n",
    );
    let output = machine.check();
    assert_eq!(output.status.code(), Some(1));
    let told = text(&output.stderr);
    for (line, sentence) in [
        (2, "device takes a name, an agent and its key=value words, as in: device pdu:a"),
        (3, "this line must stand right below the line of device a, without empty line"),
        (5, "device and fence_all exclude each other; take one of them out"),
    ] {
        assert!(told.contains(&format!("{}:{line}: {sentence}", machine.file())), "{told}");
    }
}
