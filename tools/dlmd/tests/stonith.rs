//! The shipped agent that asks Pacemaker, against stand-ins for Pacemaker's own tools.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use dlm_net::testing::TempDir;

/// A machine whose Pacemaker knows node 3 as "three" and fenced it at a time.
struct Machine {
    dir: TempDir,
}

impl Machine {
    fn new(fenced_at: &str, outcome: i32) -> Self {
        let machine = Self { dir: TempDir::new("stonith") };
        machine.dir.script("crm_node", "printf '1 one member\\n3 three lost\\n4 (null) lost\\n'");
        let log = machine.dir.path().join("orders");
        machine.dir.script(
            "stonith_admin",
            &format!(
                "echo \"$*\" >>{}\ncase $1 in\n--history) printf '{fenced_at}' ;;\n\
                 --list) [ \"$2\" = three ] && echo fence_x && echo '1 fence device found' || echo \
                 '0 fence devices found' ;;\n*) exit {outcome} ;;\nesac",
                log.display()
            ),
        );
        machine
    }

    /// Runs the agent with these lines on its standard input, as the daemon does.
    fn fence(&self, input: &str) -> Output {
        self.run(&[], input)
    }

    fn run(&self, words: &[&str], input: &str) -> Output {
        let path = format!("{}:/usr/bin:/bin", self.dir.path().display());
        let mut agent = Command::new("sh");
        agent.arg(agent_path()).args(words).env_clear().env("PATH", path);
        agent.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = agent.spawn().expect("sh can be run");
        let mut stdin = child.stdin.take().expect("piped");
        // Whoever does not read it does not need it.
        let _ = stdin.write_all(input.as_bytes());
        drop(stdin);
        child.wait_with_output().expect("it ends")
    }

    /// What Pacemaker was asked, a line each.
    fn orders(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.dir.path().join("orders")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }
}

fn agent_path() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../dist/agents/dlm_stonith")
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

const ASK: &str = "--reboot three --timeout 300 --tag dlm";
const HISTORY: &str = "--history three --broadcast --quiet";

#[test]
fn what_pacemaker_fenced_after_the_failure_is_fenced() {
    let machine = Machine::new("1700000009\\n", 1);
    let output = machine.fence("node=3\nfail_time=1700000000\n");
    assert!(output.status.success(), "{}", said(&output));
    assert_eq!(machine.orders(), [HISTORY]);
    assert!(said(&output).contains("9 s after it failed"), "{}", said(&output));
}

#[test]
fn what_it_fenced_before_or_never_it_is_asked_for() {
    for before in ["1699999999\\n", "1700000000\\n", "", "garbage 1800000000 x\\n"] {
        for (outcome, good) in [(0, true), (1, false), (124, false)] {
            let machine = Machine::new(before, outcome);
            let output = machine.fence("# a comment\n\nnode=3\nfail_time=1700000000\n");
            assert_eq!(output.status.success(), good, "{before} {outcome}: {}", said(&output));
            assert_eq!(machine.orders(), [HISTORY, ASK]);
        }
    }
}

#[test]
fn options_and_actions_are_understood() {
    let cases: [(&[&str], &str, &str); 5] = [
        (&["-n", "3"], "", ASK),
        (&[], "node=3\naction=off\n", "--fence three --timeout 300 --tag dlm"),
        (&[], "node=3\naction=on", "--unfence three --timeout 300 --tag dlm"),
        (&[], "node=4\n", "--reboot 4 --timeout 300 --tag dlm"),
        (&["-n", "3", "-o", "monitor"], "", "--list three"),
    ];
    for (words, input, order) in cases {
        let machine = Machine::new("", 0);
        let output = machine.run(words, input);
        assert!(output.status.success(), "{words:?} {input}: {}", said(&output));
        assert_eq!(machine.orders(), [order]);
    }
    let unknown = Machine::new("", 0).run(&["-n", "9", "-o", "status"], "");
    assert!(said(&unknown).contains("no device that can fence node 9"), "{}", said(&unknown));
    assert!(!unknown.status.success());
    let metadata = Machine::new("", 0).fence("action=metadata\n");
    assert!(String::from_utf8_lossy(&metadata.stdout).contains("<resource-agent"));
}

#[test]
fn what_makes_no_sense_is_a_failure() {
    let cases = [
        ("", "node= must be"),
        ("node=three\n", "node= must be"),
        ("node=3\nfail_time=soon\n", "fail_time= must be"),
        ("node=3\naction=hug\n", "there is no action 'hug'"),
    ];
    for (input, sentence) in cases {
        let machine = Machine::new("1800000000\\n", 0);
        let output = machine.fence(input);
        assert!(!output.status.success(), "{input}");
        assert!(said(&output).contains(sentence), "{input}: {}", said(&output));
        assert!(machine.orders().is_empty(), "{input}");
    }
    let bare = Machine { dir: TempDir::new("stonith") };
    let output = bare.fence("node=3\n");
    assert!(!output.status.success());
    assert!(said(&output).contains("install pacemaker-cli-utils"), "{}", said(&output));
}
