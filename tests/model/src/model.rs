//! The exploration: stateright goes through all states of a scenario.

use std::hash::Hash;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use stateright::{Checker, HasDiscoveries, Model, Property};

use crate::rest;
use crate::script::Scenario;
use crate::witness::{self, Witness};
use crate::world::World;

/// One thing that can happen next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// The head of the queue between two nodes is delivered.
    Deliver(u32, u32),
    /// A node installs a view, by its place in the order of views.
    Install(u32, usize),
    /// A node is told that a lost member is safe, by its place in the order of losses.
    Safe(u32, usize),
    /// A node goes on with work over many names.
    Work(u32),
    /// Time passes until a node's next timer ends.
    Timer(u32),
    /// A node's client makes its next call.
    Call(u32),
    /// The next fault.
    Fault,
}

/// A scenario being explored.
pub struct Exploration {
    scenario: Scenario,
    /// States without a next one.
    ends: Arc<AtomicUsize>,
    /// Witnesses seen.
    seen: Arc<AtomicU64>,
}

/// What an exploration found.
#[derive(Debug)]
pub struct Report {
    /// The scenario.
    pub name: &'static str,
    /// Different states.
    pub states: usize,
    /// Steps from one to another.
    pub steps: usize,
    /// States without a next one.
    pub ends: usize,
    /// The longest way.
    pub depth: usize,
    /// Whether no state is left to be visited.
    pub exhausted: bool,
    /// Witnesses that were asked for and not seen.
    pub unseen: Vec<Witness>,
    /// What went wrong, with the way to it.
    pub fault: Option<String>,
}

impl World {
    fn actions(&self, scenario: &Scenario, actions: &mut Vec<Action>) {
        let ids = 1..=self.hosts.len() as u32;
        if self.error.is_some() {
            return;
        }
        for id in ids.clone() {
            for from in ids.clone().filter(|from| self.can_deliver(*from, id)) {
                actions.push(Action::Deliver(from, id));
            }
            let installable = (0..self.views.len()).filter(|view| self.can_install(id, *view));
            let most = if scenario.skips { usize::MAX } else { 1 };
            actions.extend(installable.take(most).map(|view| Action::Install(id, view)));
            let safe = (0..self.lost.len()).filter(|lost| self.can_tell_safe(id, *lost));
            actions.extend(safe.map(|lost| Action::Safe(id, lost)));
            if self.has_work(id) && self.may_wait(scenario, id) {
                actions.push(Action::Work(id));
            }
            if scenario.timers && self.timer(id).is_some() {
                actions.push(Action::Timer(id));
            }
            if self.can_call(scenario, id) {
                actions.push(Action::Call(id));
            }
        }
        if self.can_befall(scenario) {
            actions.push(Action::Fault);
        }
    }

    /// Something happens.
    pub fn act(&mut self, scenario: &Scenario, action: Action) {
        match action {
            Action::Deliver(from, to) => self.deliver(scenario, from, to),
            Action::Install(id, view) => self.install(scenario, id, view),
            Action::Safe(id, lost) => self.tell_safe(scenario, id, lost),
            Action::Work(id) => self.work(scenario, id),
            Action::Timer(id) => self.end_timer(scenario, id),
            Action::Call(id) => self.call(scenario, id),
            Action::Fault => self.befall(scenario),
        }
    }
}

impl Exploration {
    fn is_end(&self, world: &World) -> bool {
        let mut actions = Vec::new();
        world.actions(&self.scenario, &mut actions);
        actions.is_empty()
    }
}

impl Model for Exploration {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        vec![World::new(&self.scenario)]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        world.actions(&self.scenario, actions);
        if actions.is_empty() {
            self.ends.fetch_add(1, Ordering::Relaxed);
        }
        if self.scenario.must_see.iter().any(|witness| witness.is_a_state()) {
            (1..=world.hosts.len() as u32).for_each(|id| witness::state(world, id));
        }
        self.seen.fetch_or(witness::take(), Ordering::Relaxed);
    }

    fn next_state(&self, world: &World, action: Action) -> Option<World> {
        let mut next = world.clone();
        next.act(&self.scenario, action);
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("promises are kept", |_, world: &World| world.error.is_none()),
            Property::always("rest is rest", |model: &Self, world: &World| {
                world.error.is_some()
                    || !model.is_end(world)
                    || rest::check(&model.scenario, world).is_ok()
            }),
        ]
    }
}

/// Explores all of a scenario, or as many steps as are allowed.
pub fn explore(scenario: &Scenario, threads: usize, steps_max: usize) -> Report {
    quiet_panics();
    let (ends, seen) = (Arc::default(), Arc::default());
    let model = Exploration {
        scenario: scenario.clone(),
        ends: Arc::clone(&ends),
        seen: Arc::clone(&seen),
    };
    let checker = model
        .checker()
        .threads(threads)
        .target_state_count(steps_max)
        .finish_when(HasDiscoveries::AnyFailures)
        .spawn_dfs()
        .join();
    let way = checker.discoveries().into_values().next().map(|path| path.into_actions());
    let seen = seen.load(Ordering::Relaxed) | witness::take();
    Report {
        name: scenario.name,
        states: checker.unique_state_count(),
        steps: checker.state_count(),
        ends: ends.load(Ordering::Relaxed),
        depth: checker.max_depth(),
        exhausted: way.is_none() && checker.state_count() < steps_max,
        unseen: scenario.must_see.iter().copied().filter(|w| !w.is_in(seen)).collect(),
        fault: way.map(|way| tell(scenario, &way)),
    }
}

/// What happens on a way through a scenario, step by step, and what is wrong at its end.
pub fn tell(scenario: &Scenario, way: &[Action]) -> String {
    let mut world = World::new(scenario);
    let mut text =
        format!("{}, name {:?}:\n", scenario.name, scenario.key.escape_ascii().to_string());
    for action in way {
        text += &format!("  {action:?}");
        match action {
            Action::Deliver(from, to) => {
                text += &format!(" {:?}", world.queue(*from, *to)[0].message().body);
            }
            Action::Call(id) => text += &format!(" {:?}", world.next_step(scenario, *id)),
            Action::Install(_, view) => text += &format!(" {:?}", world.views[*view]),
            Action::Fault => text += &format!(" {:?}", scenario.faults[world.fault]),
            Action::Safe(_, lost) => text += &format!(" {:?}", world.lost[*lost].0),
            Action::Work(_) | Action::Timer(_) => {}
        }
        text.push('\n');
        world.trace = Some(Vec::new());
        world.act(scenario, *action);
        for line in world.trace.take().unwrap_or_default() {
            text += &line;
            text.push('\n');
        }
    }
    match &world.error {
        Some(error) => text + error,
        None => text + &rest::check(scenario, &world).err().unwrap_or_default(),
    }
}

/// A broken invariant is a panic of the engine, and here a finding like others: no noise for each.
fn quiet_panics() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            let at = info.location().map(|at| at.file().to_owned()).unwrap_or_default();
            if !at.contains("dlm-core") {
                usual(info);
            }
        }));
    });
}
