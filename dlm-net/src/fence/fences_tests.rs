//! Fencing with agents of our own, in a loop like the daemon's: one that really kills, one that
//! fails, one that hangs, one that is missing; and what an operator is told in each case.

use std::collections::{BTreeMap, BTreeSet};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use dlm_core::{Instant, Member, NodeId};
use dlm_ipc::control::left;
use mio::{Events, Poll};

use super::event::Rules;
use super::fences::{Config, Fences};
use super::plan::Plans;
use super::testing::path_of;
use crate::daemon::config::file::parse;
use crate::membership::{Fencing, FencingNews, Lost};
use crate::sys::boot_nanos;
use crate::testing::{HANG_GUARD, TempDir};

const SECOND: u64 = 1_000_000_000;

/// A loop with the fencing of one node, and a backend that does what it says.
struct Loop {
    _dir: TempDir,
    poll: Poll,
    events: Events,
    fences: Fences,
    lost: Vec<Lost>,
    harmless: Vec<Member>,
    /// How far the clock was put forward, nanoseconds.
    ahead: u64,
}

impl Loop {
    /// Node 1 of 1 and 2, with this file, by hand where it is empty; `limit` nanoseconds for each agent.
    fn new(dir: TempDir, file: &str, limit: u64) -> Self {
        let (path, by_hand) = (path_of(&dir), file.is_empty());
        let rules =
            Rules { fencing: !by_hand, concurrent: false, repeat: true, post_join_delay: 0 };
        let plans = Plans::of(&parse(file).expect("a good file"));
        let config = Config { rules, plans, limit, path, by_hand };
        let poll = Poll::new().expect("a poller");
        let mut fences = Fences::new(NodeId(1), config);
        fences.open(poll.registry(), 100..110).expect("opened");
        let (events, ahead) = (Events::with_capacity(8), 0);
        let (lost, harmless) = (Vec::new(), Vec::new());
        let mut this = Self { _dir: dir, poll, events, fences, lost, harmless, ahead };
        this.fences.on_members(&BTreeMap::from([(1, 1), (2, 1)]), true, this.now());
        this
    }

    fn now(&self) -> Instant {
        Instant(boot_nanos() + self.ahead)
    }

    fn lose(&mut self, node: u32, why: u32) -> Lost {
        let now = self.now();
        let witnesses = BTreeSet::from([1, 2]);
        let life = Member::of_start(NodeId(node), 7);
        let lost = Lost { life, why, wall: 1_700_000_000, since: now, witnesses };
        self.lost.push(lost.clone());
        self.fences.on_lost(&self.lost, now);
        self.deliver();
        lost
    }

    /// The group and the backend do with the news what they do.
    fn deliver(&mut self) {
        while let Some(news) = self.fences.next() {
            let now = self.now();
            match news {
                FencingNews::Send(bytes) => self.fences.on_message(NodeId(1), &bytes, now),
                FencingNews::Harmless(member) => {
                    self.harmless.push(member);
                    self.lost.retain(|lost| lost.life != member);
                    self.fences.on_lost(&self.lost, now);
                }
            }
        }
    }

    /// Turns of the loop until `done`.
    fn run_until(&mut self, done: impl Fn(&Self) -> bool) {
        let begun = std::time::Instant::now();
        loop {
            self.deliver();
            if done(self) {
                return;
            }
            assert!(begun.elapsed() < HANG_GUARD, "nothing comes of it");
            let due = self.fences.deadline().map(|at| at.0.saturating_sub(self.now().0));
            let sleep = Duration::from_nanos(due.unwrap_or(SECOND).min(SECOND));
            if let Err(error) = self.poll.poll(&mut self.events, Some(sleep)) {
                assert_eq!(error.kind(), std::io::ErrorKind::Interrupted);
                continue;
            }
            for event in &self.events {
                assert!((100..110).contains(&event.token().0), "its own tokens");
                self.fences.ready(event.token());
            }
            let now = self.now();
            self.fences.on_time(now);
        }
    }

    fn words(&self, lost: &Lost) -> String {
        self.fences.words(lost)
    }
}

/// A process that stands for a node, in a group of its own.
fn node_process(dir: &TempDir, node: u32) -> Child {
    let mut command = Command::new("sleep");
    command.arg("600").stdin(Stdio::null());
    let child = command.spawn().expect("sleep can be run");
    let pid = child.id().to_string();
    std::fs::write(dir.path().join(format!("node{node}.pid")), pid).expect("writable");
    child
}

/// An agent that kills the process of the pid file of its node, and waits until it is gone.
fn killer(dir: &TempDir) {
    let body = format!(
        "while IFS== read -r key value; do [ $key != node ] || node=$value; done\n\
         pid=$(cat {}/node$node.pid) || exit 1\n\
         kill -9 $pid\n\
         while kill -0 $pid 2>/dev/null && ! grep -q ') Z ' /proc/$pid/stat; do sleep 0.01; done",
        dir.path().display()
    );
    dir.script("fence_kill", &body);
}

#[test]
fn an_agent_that_kills_makes_the_node_harmless() {
    let dir = TempDir::new("fences");
    killer(&dir);
    let mut child = node_process(&dir, 3);
    let mut daemon = Loop::new(dir, "fence_all fence_kill\n", 60 * SECOND);
    let lost = daemon.lose(3, left::NODE_DOWN);
    let whole = daemon.fences.as_whole();
    let of_node = daemon.fences.of_node(NodeId(3));
    assert!(whole.pid > 0 && of_node.pid == whole.pid);
    assert!(of_node.needed && of_node.pid_wait && !of_node.delayed);
    assert_eq!((of_node.actor_last, of_node.actor_done), (1, 0));
    assert_eq!(
        daemon.words(&lost),
        format!(
            "agent fence_kill runs here as pid {} for 0 s and is killed after 60 s; if node 3 is \
             known to be off, dlm_tool fence_ack 3 ends the wait",
            whole.pid
        )
    );
    daemon.run_until(|daemon| !daemon.harmless.is_empty());
    assert_eq!(daemon.harmless, [lost.life]);
    assert!(child.wait().expect("our child").code().is_none(), "it was killed");
    let of_node = daemon.fences.of_node(NodeId(3));
    assert!(!of_node.needed && of_node.pid == 0);
    assert_eq!((of_node.actor_last, of_node.actor_done), (1, 1));
    assert_eq!(daemon.fences.as_whole().pid, 0);
}

#[test]
fn where_one_way_fails_the_next_is_tried() {
    let dir = TempDir::new("fences");
    killer(&dir);
    dir.script("fence_bad", "echo the switch does not answer >&2; exit 1");
    let mut child = node_process(&dir, 3);
    let file = "device ipmi fence_bad\nconnect ipmi node=3\n\n\
        device pdu:a fence_kill\nconnect pdu:a node=3\n\n\
        device pdu:b fence_kill\nconnect pdu:b node=3\n";
    let mut daemon = Loop::new(dir, file, 60 * SECOND);
    let lost = daemon.lose(3, left::PROCESS_DOWN);
    daemon.run_until(|daemon| !daemon.harmless.is_empty());
    assert_eq!(daemon.harmless, [lost.life]);
    child.wait().expect("our child");
}

#[test]
fn an_agent_that_fails_is_named_with_its_words_and_tried_again() {
    let dir = TempDir::new("fences");
    dir.script("fence_bad", "echo ignored; echo the switch does not answer >&2; exit 1");
    let mut daemon = Loop::new(dir, "device pdu fence_bad\nconnect pdu node=3\n", 60 * SECOND);
    let lost = daemon.lose(3, left::NODE_DOWN);
    daemon.run_until(|daemon| daemon.fences.of_node(NodeId(3)).pid == 0);
    assert_eq!(
        daemon.words(&lost),
        "node 2 runs its agents; here agent fence_bad of device pdu failed with exit code 1, saying: \
         the switch does not answer; if node 3 is known to be off, dlm_tool fence_ack 3 ends the wait"
    );
    assert_eq!(daemon.fences.of_node(NodeId(3)).actor_last, 2);
    // Node 2 fails too, and a new round begins after a pause.
    let failed = super::message::Message::Result {
        victim: lost.life.into(),
        outcome: super::message::Outcome::Failed,
        wall: 0,
    };
    let now = daemon.now();
    daemon.fences.on_message(NodeId(2), &failed.to_bytes(), now);
    let words = daemon.words(&lost);
    assert!(
        words.starts_with(
            "node 1 runs its agents in 5 s, again, as agents of all nodes failed; here agent \
             fence_bad"
        ),
        "{words}"
    );
    assert!(daemon.fences.of_node(NodeId(3)).delayed);
    daemon.ahead = 6 * SECOND;
    daemon.run_until(|daemon| daemon.fences.of_node(NodeId(3)).pid != 0);
    assert_eq!(daemon.harmless, []);
}

#[test]
fn an_agent_that_hangs_is_killed_at_its_deadline() {
    let dir = TempDir::new("fences");
    dir.script("fence_hang", "sleep 600");
    let mut daemon = Loop::new(dir, "fence_all fence_hang\n", SECOND / 5);
    let lost = daemon.lose(3, left::NODE_DOWN);
    daemon.run_until(|daemon| daemon.fences.of_node(NodeId(3)).pid == 0);
    assert_eq!(daemon.harmless, []);
    let words = daemon.words(&lost);
    assert!(words.contains("here agent fence_hang took too long and was killed;"), "{words}");
}

#[test]
fn an_agent_that_is_missing_is_named() {
    let dir = TempDir::new("fences");
    let file = "device ipmi fence_none\nconnect ipmi node=3\n";
    let mut daemon = Loop::new(dir, file, 60 * SECOND);
    let lost = daemon.lose(3, left::NODE_DOWN);
    daemon.run_until(|daemon| daemon.words(&lost).contains("here"));
    let words = daemon.words(&lost);
    assert!(
        words.contains(
            "here agent fence_none of device ipmi cannot be run: it is not found on PATH; install it \
             or write its path"
        ),
        "{words}"
    );
    let unconnected = daemon.lose(4, left::NODE_DOWN);
    daemon.run_until(|daemon| daemon.words(&unconnected).contains("here"));
    let words = daemon.words(&unconnected);
    assert!(words.contains("no device of dlm.conf is connected to node 4"), "{words}");
    assert!(!daemon.fences.has_power_over(NodeId(4)) && !daemon.fences.has_power_over(NodeId(3)));
}

#[test]
fn a_persons_word_ends_the_wait_and_the_agent() {
    let dir = TempDir::new("fences");
    dir.script("fence_hang", "sleep 600");
    let mut daemon = Loop::new(dir, "fence_all fence_hang\n", 600 * SECOND);
    assert!(daemon.fences.has_power_over(NodeId(3)));
    let lost = daemon.lose(3, left::NODE_DOWN);
    let now = daemon.now();
    assert_eq!(
        daemon.fences.acknowledge(NodeId(2), now),
        Err("nothing waits for node 2 to be fenced".to_owned())
    );
    assert_eq!(daemon.fences.acknowledge(NodeId(3), now), Ok(()));
    daemon.run_until(|daemon| !daemon.harmless.is_empty());
    assert_eq!(daemon.harmless, [lost.life]);
    assert_eq!(daemon.fences.as_whole().pid, 0);
    assert_eq!(daemon.fences.of_node(NodeId(3)).actor_done, 1);
}

#[test]
fn what_waits_says_for_what() {
    let dir = TempDir::new("fences");
    let mut daemon = Loop::new(dir, "fence_all fence_none\n", 60 * SECOND);
    daemon.fences.on_members(&BTreeMap::from([(1, 1), (2, 1)]), false, daemon.now());
    let lost = daemon.lose(3, 0);
    assert_eq!(
        daemon.words(&lost),
        "agents wait until the cluster is quorate and of one mind about its members; if node 3 is \
         known to be off, dlm_tool fence_ack 3 ends the wait"
    );
    assert!(daemon.fences.of_node(NodeId(3)).delayed);
}

#[test]
fn without_an_agent_a_person_answers_for_who_is_feared() {
    let mut daemon = Loop::new(TempDir::new("fences"), "", SECOND);
    let now = daemon.now();
    assert!(daemon.fences.acknowledge(NodeId(3), now).is_err());
    let lost = daemon.lose(3, left::NODE_DOWN);
    assert!(daemon.fences.of_node(NodeId(3)).needed && !daemon.fences.of_node(NodeId(2)).needed);
    assert_eq!(
        daemon.words(&lost),
        "no fence agent is configured: make sure that node 3 is off, then say dlm_tool fence_ack 3"
    );
    assert_eq!(daemon.fences.acknowledge(NodeId(3), now), Ok(()));
    daemon.run_until(|daemon| !daemon.harmless.is_empty());
    assert_eq!(daemon.harmless, [lost.life]);
    daemon.lost.clear();
    daemon.fences.on_lost(&[], now);
    assert!(!daemon.fences.of_node(NodeId(3)).needed);
}
