//! Agents that are run while the daemon starts and serves nobody yet: unfencing of this node, and
//! whether a device answers at all.

use std::ffi::OsStr;
use std::time::Duration;

use super::agent::{Agent, Ending};
use super::attempt::words;
use super::plan::{Call, Plans, find_program};
use crate::sys;

/// Between two looks at an agent.
const PAUSE: Duration = Duration::from_millis(5);

/// Unfences this node: `action=on` at every device that `unfence` or `unfence_all` names for it. It
/// must not take part before that; `limit` in nanoseconds for each agent.
///
/// # Errors
/// A sentence about the first agent that failed.
pub fn unfence(plans: &Plans, node: u32, path: &OsStr, limit: u64) -> Result<(), String> {
    for call in plans.unfencing(node) {
        run(&call, &call.action_input(node, "on"), path, limit).map_err(|trouble| {
            format!("this node cannot be unfenced, so it may not take part: {trouble}")
        })?;
        tracing::info!("unfenced: {} succeeded", words(&call));
    }
    Ok(())
}

/// Whether there is a way to fence a node whose devices all answer now (`action=monitor`, else
/// `status`, exits with 0).
///
/// # Errors
/// A sentence about what is missing or does not answer.
pub fn power_over(plans: &Plans, node: u32, path: &OsStr, limit: u64) -> Result<(), String> {
    let mut troubles = Vec::new();
    for way in plans.ways(node) {
        let answers = |call: &Call| {
            let monitor = run(call, &call.action_input(node, "monitor"), path, limit);
            monitor.or_else(|trouble| {
                run(call, &call.action_input(node, "status"), path, limit).map_err(|_| trouble)
            })
        };
        match way.iter().try_for_each(answers) {
            Ok(()) => return Ok(()),
            Err(trouble) => troubles.push(trouble),
        }
    }
    if troubles.is_empty() {
        troubles.push("no device of dlm.conf is connected to it".to_owned());
    }
    Err(format!("node {node} cannot be fenced: {}", troubles.join("; ")))
}

/// Runs an agent to its end.
fn run(call: &Call, input: &str, path: &OsStr, limit: u64) -> Result<(), String> {
    let failed = |ending: Ending, output: &str| {
        let last = output.lines().last().map_or(String::new(), |line| format!(", saying: {line}"));
        format!("{} {}{last}", words(call), ending.words())
    };
    let Some(program) = find_program(&call.program, path) else {
        let why = "it is not found on PATH; install it or write its path".to_owned();
        return Err(failed(Ending::NotStarted(why), ""));
    };
    let deadline = sys::boot_nanos().saturating_add(limit);
    let mut agent = Agent::start(&program, input, path, deadline)
        .map_err(|error| failed(Ending::NotStarted(error.to_string()), ""))?;
    loop {
        match agent.look(sys::boot_nanos()) {
            Some(Ending::Good) => return Ok(()),
            Some(ending) => return Err(failed(ending, &agent.output())),
            None => std::thread::sleep(PAUSE),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::daemon::config::file::parse;
    use crate::fence::testing::path_of;
    use crate::testing::TempDir;

    const LIMIT: u64 = 60_000_000_000;

    fn plans(text: &str) -> Plans {
        Plans::of(&parse(text).expect("a good file"))
    }

    #[test]
    fn unfencing_turns_on_what_belongs_to_this_node() {
        let dir = TempDir::new("unfence");
        let body = format!("cat >>{}", dir.path().join("said").display());
        dir.script("fence_a", &body);
        dir.script("fence_bad", "echo no power >&2; exit 3");
        let path = path_of(&dir);
        let file = "device a fence_a k=v\nconnect a node=1 port=1\nconnect a node=2 port=2\nunfence a\n\n\
            device b fence_bad\nconnect b node=2\nunfence b\n";
        assert_eq!(unfence(&plans(file), 1, &path, LIMIT), Ok(()));
        let said = std::fs::read_to_string(dir.path().join("said")).expect("it was run");
        assert_eq!(said, "k=v\nnode=1\nport=1\naction=on\n");
        assert_eq!(unfence(&plans(file), 3, &path, LIMIT), Ok(()), "nothing to do");
        assert_eq!(
            unfence(&plans(file), 2, &path, LIMIT),
            Err("this node cannot be unfenced, so it may not take part: agent fence_bad of device b \
                 failed with exit code 3, saying: no power"
                .to_owned())
        );
    }

    #[test]
    fn power_is_what_answers_now() {
        let dir = TempDir::new("power");
        dir.script("fence_monitors", "grep -q '^action=monitor$'");
        dir.script("fence_states", "grep -q '^action=status$'");
        dir.script("fence_dead", "exit 1");
        let path = path_of(&dir);
        for good in ["fence_monitors", "fence_states"] {
            let plans = plans(&format!("fence_all {good}\n"));
            assert_eq!(power_over(&plans, 2, &path, LIMIT), Ok(()));
        }
        let either = plans(
            "device a fence_dead\nconnect a node=2\n\ndevice b fence_monitors\nconnect b node=2\n",
        );
        assert_eq!(power_over(&either, 2, &path, LIMIT), Ok(()), "one way is enough");
        let both = plans(
            "device a:1 fence_dead\nconnect a:1 node=2\n\ndevice a:2 fence_monitors\n\
             connect a:2 node=2\n",
        );
        let told = power_over(&both, 2, &path, LIMIT).expect_err("both are needed");
        assert_eq!(
            told,
            "node 2 cannot be fenced: agent fence_dead of device a:1 failed with exit code 1"
        );
        let told = power_over(&both, 3, &path, LIMIT).expect_err("not connected");
        assert_eq!(told, "node 3 cannot be fenced: no device of dlm.conf is connected to it");
        let told = power_over(&plans("fence_all fence_none\n"), 2, &path, LIMIT);
        assert!(told.expect_err("missing").contains("not found on PATH"));
    }
}
