//! Fencing at work: the policy's orders are carried out, agents are watched in the daemon's loop,
//! and what an operator waits for is put into words.

use std::collections::{BTreeMap, VecDeque};
use std::ffi::OsString;
use std::io;
use std::ops::Range;

use dlm_core::{Instant, NodeId};
use dlm_ipc::control::{DaemonFencing, NodeFencing, left, wall_seconds};
use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};

use super::agent::Agent;
use super::attempt::{Attempt, Standing, words};
use super::case::{Case, Work};
use super::event::{Clock, Feared, Input, Note, Output, Reason, Rules};
use super::message::{Message, Victim};
use super::plan::{Plans, agent_path, find_program};
use super::policy::Policy;
use crate::daemon::config::Settings;
use crate::daemon::config::table::Key;
use crate::membership::{Fencing, FencingNews, Lost};

const SECOND: u64 = 1_000_000_000;

/// What the configuration says about fencing.
#[derive(Clone, PartialEq, Debug)]
pub struct Config {
    /// When agents are run.
    pub rules: Rules,
    /// Which.
    pub plans: Plans,
    /// How long an agent may run, nanoseconds.
    pub limit: u64,
    /// Where agents are looked for.
    pub path: OsString,
    /// Whether a person has to fence: no agent is configured, and there is no Pacemaker to ask.
    pub by_hand: bool,
}

impl Config {
    /// As these settings say.
    pub fn of(settings: &Settings) -> Self {
        Self::on(settings, agent_path())
    }

    fn on(settings: &Settings, path: OsString) -> Self {
        let plans = Plans::of(settings.sections());
        let by_hand = plans.is_default && find_program("stonith_admin", &path).is_none();
        Self {
            rules: Rules {
                fencing: settings.flag(Key::EnableFencing) && !by_hand,
                concurrent: settings.flag(Key::EnableConcurrentFencing),
                repeat: settings.flag(Key::RepeatFailedFencing),
                post_join_delay: settings.number(Key::PostJoinDelay) * SECOND,
            },
            plans,
            limit: settings.number(Key::FenceTimeout) * SECOND,
            path,
            by_hand,
        }
    }

    /// Agents that cannot be found: the line of the file that names each (0: none does), and a
    /// sentence.
    pub fn missing_agents(&self) -> Vec<(usize, String)> {
        let programs = self.plans.programs().into_iter();
        let missing = programs.filter(|(_, program)| find_program(program, &self.path).is_none());
        let sentence = |(line, program): (usize, &str)| {
            let path = self.path.to_string_lossy();
            let sentence = format!(
                "agent {program} is not found on PATH ({path}); install it or write its path"
            );
            (line, sentence)
        };
        missing.map(sentence).collect()
    }
}

/// Fencing of one daemon.
#[derive(Debug)]
pub struct Fences {
    policy: Policy,
    config: Config,
    attempts: BTreeMap<u64, Attempt>,
    /// Agents that were ended and are not gone yet.
    dying: Vec<Agent>,
    /// What went wrong last, by case.
    troubles: BTreeMap<Victim, String>,
    watch: Option<(Registry, Range<usize>)>,
    next_token: usize,
    woken: bool,
    now: u64,
    news: VecDeque<FencingNews>,
}

impl Fences {
    /// Fencing of this node.
    pub fn new(own: NodeId, config: Config) -> Self {
        Self {
            policy: Policy::new(own.0, config.rules),
            config,
            attempts: BTreeMap::new(),
            dying: Vec::new(),
            troubles: BTreeMap::new(),
            watch: None,
            next_token: 0,
            woken: false,
            now: 0,
            news: VecDeque::new(),
        }
    }

    fn clock(&self) -> Clock {
        Clock { mono: self.now, wall: wall_seconds() }
    }

    fn step(&mut self, now: Instant, input: Input) {
        self.now = self.now.max(now.0);
        self.policy.step(self.clock(), input);
        self.carry_out();
    }

    /// Does what the policy orders until it orders nothing more.
    fn carry_out(&mut self) {
        while let Some(output) = self.policy.next_output() {
            match output {
                Output::Run { run, victim, fail_wall } => {
                    let ways = self.config.plans.ways(victim.node);
                    let mut attempt = Attempt::new(victim, fail_wall, ways);
                    let standing = attempt.begin(&self.config.path, self.now, self.config.limit);
                    self.settle(run, attempt, standing);
                }
                Output::Stop { run } => {
                    if let Some(Attempt { agent: Some((mut agent, _)), .. }) =
                        self.attempts.remove(&run)
                    {
                        agent.kill();
                        self.dying.push(agent);
                    }
                }
                Output::Send(message) => {
                    self.news.push_back(FencingNews::Send(message.to_bytes()));
                }
                Output::Harmless(victim) => {
                    self.news.push_back(FencingNews::Harmless(victim.member()));
                }
                Output::Note(note) => self.log(note),
            }
        }
    }

    /// An attempt goes on or is over.
    fn settle(&mut self, run: u64, attempt: Attempt, standing: Standing) {
        let good = match standing {
            Standing::Started | Standing::Runs => {
                if standing == Standing::Started
                    && let Some((agent, _)) = &attempt.agent
                {
                    watch(agent, self.watch.as_ref(), &mut self.next_token);
                    // What it did before it was watched is announced by nobody.
                    self.woken = true;
                }
                self.attempts.insert(run, attempt);
                return;
            }
            Standing::Good => true,
            Standing::Bad => false,
        };
        if !good {
            self.troubles.insert(attempt.victim, attempt.trouble);
        }
        let clock = self.clock();
        self.policy.step(clock, Input::Ended { run, good });
    }

    fn look_after_agents(&mut self) {
        let now = self.now;
        self.dying.retain_mut(|agent| agent.look(now).is_none());
        let runs: Vec<u64> = self.attempts.keys().copied().collect();
        for run in runs {
            let Some(mut attempt) = self.attempts.remove(&run) else { continue };
            let standing = attempt.look(&self.config.path, now, self.config.limit);
            self.settle(run, attempt, standing);
        }
        self.carry_out();
    }

    fn log(&mut self, note: Note) {
        match note {
            Note::Pending(victim, reason) => {
                tracing::warn!("node {} has to be fenced: {}", victim.node, reason_words(reason))
            }
            Note::Over(victim) => {
                self.troubles.remove(&victim);
                tracing::info!("node {} is harmless and need not be fenced", victim.node);
            }
            Note::Fenced(victim, by) => {
                tracing::info!("node {} was fenced by node {by}", victim.node);
            }
            Note::Acknowledged(victim, by) => tracing::warn!(
                "node {} counts as fenced: an administrator at node {by} said so",
                victim.node
            ),
            Note::AgentsFailed(victim, by) => tracing::error!(
                "node {} could not be fenced by node {by}, whose log says why",
                victim.node
            ),
            Note::NewRound(victim) => tracing::error!(
                "node {} could not be fenced by any node; they try again. If it is known to be \
                 off, say dlm_tool fence_ack {}",
                victim.node,
                victim.node
            ),
            Note::GivenUp(victim) => tracing::error!(
                "node {} could not be fenced by any node, and repeat_failed_fencing is 0: make \
                 sure that it is off, then say dlm_tool fence_ack {}",
                victim.node,
                victim.node
            ),
        }
    }

    fn agent_of(&self, victim: Victim) -> Option<(&Attempt, &Agent, u64)> {
        let attempt = self.attempts.values().find(|attempt| attempt.victim == victim)?;
        let (agent, since) = attempt.agent.as_ref()?;
        Some((attempt, agent, *since))
    }

    /// What is done about a case, without what a person can do.
    fn state_in_words(&self, case: &Case) -> String {
        let victim = case.feared.victim;
        if let Some((attempt, agent, since)) = self.agent_of(victim) {
            let call = attempt.call().map_or_else(String::new, words);
            let (pid, runs) = (agent.pid(), self.now.saturating_sub(since) / SECOND);
            let limit = self.config.limit / SECOND;
            return format!(
                "{call} runs here as pid {pid} for {runs} s and is killed after {limit} s"
            );
        }
        if matches!(case.work, Work::Told { .. }) {
            return "its result is being told to all".to_owned();
        }
        let rules = self.policy.rules();
        if !rules.fencing {
            return "enable_fencing is 0, so no agent is run".to_owned();
        }
        if !self.policy.may_act() {
            return "agents wait until the cluster is quorate and of one mind about its members"
                .to_owned();
        }
        let mut text = match self.policy.actor(case) {
            Some(actor) => format!("node {actor} runs its agents"),
            None if rules.repeat => "nobody is there to run agents".to_owned(),
            None => "agents of all nodes failed and repeat_failed_fencing is 0".to_owned(),
        };
        let wait = self.policy.due(case).saturating_sub(self.now).div_ceil(SECOND);
        if wait > 0 {
            let why = if case.back_since.is_some() {
                "unless it becomes clean before that"
            } else if case.rounds > 0 && case.not_before > self.policy.delayed_until() {
                "again, as agents of all nodes failed"
            } else {
                "as a node was added (post_join_delay)"
            };
            text += &format!(" in {wait} s, {why}");
        }
        if let Some(trouble) = self.troubles.get(&victim) {
            text += &format!("; here {trouble}");
        }
        text
    }
}

impl Fencing for Fences {
    fn open(&mut self, registry: &Registry, tokens: Range<usize>) -> io::Result<()> {
        self.next_token = tokens.start;
        self.watch = Some((registry.try_clone()?, tokens));
        Ok(())
    }

    fn ready(&mut self, _token: Token) {
        self.woken = true;
    }

    fn on_time(&mut self, now: Instant) {
        self.now = self.now.max(now.0);
        let agents = self.agents_deadline().is_some_and(|at| at <= self.now);
        if std::mem::take(&mut self.woken) || agents {
            self.look_after_agents();
        }
        if self.policy.deadline().is_some_and(|at| at <= self.now) {
            self.step(now, Input::Tick);
        }
    }

    fn deadline(&self) -> Option<Instant> {
        let woken = self.woken.then_some(0);
        let all = [woken, self.agents_deadline(), self.policy.deadline()];
        all.into_iter().flatten().min().map(Instant)
    }

    fn has_power_over(&self, node: NodeId) -> bool {
        let runs = |way: &Vec<super::plan::Call>| {
            way.iter().all(|call| find_program(&call.program, &self.config.path).is_some())
        };
        self.config.rules.fencing && self.config.plans.ways(node.0).iter().any(runs)
    }

    fn configure(&mut self, settings: &Settings) {
        self.config = Config::on(settings, std::mem::take(&mut self.config.path));
        self.policy.set_rules(self.config.rules);
        self.step(Instant(self.now), Input::Tick);
    }

    fn fenced_at(&self, node: NodeId) -> u64 {
        self.policy.done(node.0).map_or(0, |done| done.mono / SECOND)
    }

    fn on_members(&mut self, members: &BTreeMap<u32, u64>, may_fence: bool, now: Instant) {
        self.step(now, Input::Members { members: members.clone(), may_fence });
    }

    fn on_lost(&mut self, lost: &[Lost], now: Instant) {
        self.step(now, Input::Lost(lost.iter().map(feared).collect()));
    }

    fn on_message(&mut self, from: NodeId, message: &[u8], now: Instant) {
        match Message::from_bytes(message) {
            Some(message) => self.step(now, Input::Message { from: from.0, message }),
            None => tracing::warn!(
                "node {} sent a fencing message that is none; all daemons must be of one version",
                from.0
            ),
        }
    }

    fn acknowledge(&mut self, node: NodeId, now: Instant) -> Result<(), String> {
        self.now = self.now.max(now.0);
        if !self.policy.acknowledge(self.clock(), node.0) {
            return Err(format!("nothing waits for node {} to be fenced", node.0));
        }
        self.carry_out();
        Ok(())
    }

    fn next(&mut self) -> Option<FencingNews> {
        self.news.pop_front()
    }

    fn words(&self, lost: &Lost) -> String {
        let victim = Victim::from(lost.life);
        let node = victim.node;
        if self.config.by_hand {
            return format!(
                "no fence agent is configured: make sure that node {node} is off, then say dlm_tool \
                 fence_ack {node}"
            );
        }
        let case = self.policy.cases().find(|case| case.feared.victim == victim);
        let state =
            case.map_or_else(|| "it is not looked at yet".into(), |c| self.state_in_words(c));
        format!(
            "{state}; if node {node} is known to be off, dlm_tool fence_ack {node} ends the wait"
        )
    }

    fn of_node(&self, node: NodeId) -> NodeFencing {
        let done = self.policy.done(node.0);
        let mut told = NodeFencing {
            actor_done: done.map_or(0, |done| done.actor),
            actor_last: done.map_or(0, |done| done.actor),
            fail_wall: done.map_or(0, |done| done.fail_wall),
            fence_wall: done.map_or(0, |done| done.wall),
            ..NodeFencing::default()
        };
        let Some(case) = self.policy.case_of(node.0) else { return told };
        told.pid = self.agent_of(case.feared.victim).map_or(0, |(_, agent, _)| agent.pid());
        told.needed = true;
        told.delayed =
            told.pid == 0 && (!self.policy.may_act() || self.policy.due(case) > self.now);
        told.pid_wait = told.pid != 0;
        told.result_wait = matches!(case.work, Work::Told { .. });
        told.actor_last = self.policy.actor(case).unwrap_or(case.last_actor);
        told.fail_wall = case.feared.fail_wall;
        told
    }

    fn as_whole(&self) -> DaemonFencing {
        let pids = self.attempts.values().filter_map(|attempt| attempt.agent.as_ref());
        let unchecked = |case: &&Case| {
            case.feared.reason == Reason::Startup && self.policy.due(case) > self.now
        };
        let startup = self.policy.cases().filter(unchecked);
        let back = self.policy.cases().filter(|case| case.back_since.is_some());
        DaemonFencing {
            pid: pids.map(|(agent, _)| agent.pid()).next().unwrap_or(0),
            startup: startup.map(|case| case.feared.victim.node).collect(),
            zombies: back.count() as u32,
            ..DaemonFencing::default()
        }
    }
}

impl Fences {
    fn agents_deadline(&self) -> Option<u64> {
        let running = self.attempts.values().filter_map(|attempt| attempt.agent.as_ref());
        running.filter_map(|(agent, _)| agent.deadline()).min()
    }
}

/// Watches an agent under the next two of the backend's tokens; any of them means: look.
fn watch(agent: &Agent, watch: Option<&(Registry, Range<usize>)>, next: &mut usize) {
    let Some((registry, tokens)) = watch else { return };
    for descriptor in agent.descriptors() {
        *next = if *next + 1 < tokens.end { *next + 1 } else { tokens.start };
        let mut source = SourceFd(&descriptor);
        if let Err(error) = registry.register(&mut source, Token(*next), Interest::READABLE) {
            tracing::error!("an agent's end cannot be watched ({error}); only its deadline counts");
        }
    }
}

fn feared(lost: &Lost) -> Feared {
    let reason = match lost.why {
        0 => Reason::Startup,
        left::PROCESS_DOWN => Reason::ProcDown,
        _ => Reason::NodeDown,
    };
    Feared {
        victim: Victim::from(lost.life),
        reason,
        fail_wall: lost.wall,
        since: lost.since.0,
        witnesses: lost.witnesses.clone(),
    }
}

fn reason_words(reason: Reason) -> &'static str {
    match reason {
        Reason::Startup => "nobody has seen it since the cluster started",
        Reason::NodeDown => "it is gone",
        Reason::ProcDown => "its daemon is gone, or was silent for too long",
    }
}
