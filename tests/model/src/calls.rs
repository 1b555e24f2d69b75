//! Calls of clients, and what they hear.

use dlm_core::{
    Access, Blocking, Call, Completion, Convert, Create, Errno, Input, Instant, LockCall,
    LockFlags, LockId, Mode, Open, Request, SpaceFlags, Status, Unlock, VALUE_BYTES,
};

use crate::client::Held;
use crate::script::{Op, SPACE, Scenario, Step, When};
use crate::world::World;

impl World {
    /// A node's client opens the lockspace.
    pub(crate) fn open(&mut self, scenario: &Scenario, id: u32) {
        let client = self.client_id(id);
        let flags = if scenario.nodir { SpaceFlags::NODIR } else { SpaceFlags(0) };
        let create = Create { flags, access: Access::default() };
        let open = Open { name: SPACE.as_bytes(), pid: id, create: Some(create) };
        self.step(scenario, id, Input::Client(client, Request::Open(open)));
    }

    /// The next step of a node's program, without those whose lock is gone.
    pub fn next_step(&self, scenario: &Scenario, id: u32) -> Option<(usize, Step)> {
        let host = self.host(id);
        if !host.up || host.view == 0 || host.client.lost {
            return None;
        }
        let program = match host.life {
            1 => &scenario.programs[id as usize - 1],
            _ => &scenario.again,
        };
        let rest = program.iter().enumerate().skip(host.step);
        let alive = |lock| host.client.last(lock).is_some_and(|held| !held.gone);
        rest.map(|(at, step)| (at, *step)).find(|(_, step)| match step.op {
            Op::Lock(..) | Op::Die | Op::Release { .. } => true,
            Op::Convert(..) | Op::Unlock(..) | Op::Cancel => alive(step.lock),
        })
    }

    /// Whether a node's client can make its next call.
    pub fn can_call(&self, scenario: &Scenario, id: u32) -> bool {
        let Some((_, step)) = self.next_step(scenario, id) else { return false };
        let host = self.host(id);
        if host.node.is_frozen(Instant(host.now.0)) {
            return false; // its client waits
        }
        let held = self.host(id).client.last(step.lock).filter(|held| !held.gone);
        match (step.op, step.when) {
            (Op::Die | Op::Release { .. }, _) => true,
            (Op::Lock(..), _) => held.is_none(),
            (_, When::Anytime) => true,
            (_, When::Ready) => held.is_some_and(|held| !held.is_busy()),
            (_, When::Told) => held.is_some_and(|held| !held.is_busy() && held.told.is_some()),
        }
    }

    /// A node's client makes its next call.
    pub fn call(&mut self, scenario: &Scenario, id: u32) {
        let Some((at, step)) = self.next_step(scenario, id) else { return };
        self.host_mut(id).step = at + 1;
        self.make_call(scenario, id, &step);
    }

    pub(crate) fn make_call(&mut self, scenario: &Scenario, id: u32, step: &Step) {
        let client = self.client_id(id);
        match step.op {
            Op::Lock(mode, flags) => self.request(scenario, id, step.lock, mode, flags),
            Op::Convert(mode, flags, bytes) => {
                self.convert(scenario, id, step.lock, (mode, flags, bytes));
            }
            Op::Unlock(flags, bytes) => self.unlock(scenario, id, step.lock, flags, bytes),
            Op::Cancel => self.cancel(scenario, id, step.lock),
            Op::Die => {
                self.host_mut(id).client =
                    crate::client::Client { lost: true, ..Default::default() };
                self.step(scenario, id, Input::ClientGone(client));
            }
            Op::Release { force } => {
                self.host_mut(id).client =
                    crate::client::Client { lost: true, ..Default::default() };
                self.step(scenario, id, Input::Client(client, Request::Release { force }));
            }
        }
    }

    /// Makes a call and gives its answer.
    fn ask(&mut self, scenario: &Scenario, id: u32, request: Request<'_>) -> Result<LockId, Errno> {
        self.answer = None;
        let client = self.client_id(id);
        self.step(scenario, id, Input::Client(client, request));
        match self.answer.take() {
            Some(answer) => answer,
            None => {
                self.fail(format!("a call at node {id} is not answered"));
                Err(Errno::EINVAL)
            }
        }
    }

    fn request(&mut self, scenario: &Scenario, id: u32, lock: u8, mode: Mode, flags: LockFlags) {
        let locks = &mut self.host_mut(id).client.locks;
        locks.push(Held::new(lock, mode, flags));
        let index = locks.len() - 1;
        let user = index as u64;
        let call = Call { mode: mode as u8, flags, user, wants_blocking: true, ..Call::default() };
        let request = Request::Lock(LockCall { call, name: &scenario.key });
        let answer = self.ask(scenario, id, request);
        match (answer, self.host_mut(id).client.locks.get_mut(index)) {
            (Ok(lock), Some(held)) => held.id = lock,
            (Err(errno), _) => self.fail(format!("a request at node {id} is refused: {errno:?}")),
            (Ok(_), None) => {}
        }
        self.note_digests();
    }

    fn convert(
        &mut self,
        scenario: &Scenario,
        id: u32,
        lock: u8,
        (mode, flags, bytes): (Mode, LockFlags, u8),
    ) {
        let Some(held) = self.host_mut(id).client.find(lock) else { return };
        let before = *held;
        held.pending = Some(mode);
        held.flags = flags;
        held.cancelling = false;
        let user = self.user_of(id, &before);
        let call = Call { mode: mode as u8, flags, user, wants_blocking: true, ..Call::default() };
        let value = [bytes; VALUE_BYTES];
        let request = Request::Convert(Convert { call, lock: before.id, value: Some(&value) });
        if self.ask(scenario, id, request).is_err()
            && let Some(held) = self.host_mut(id).client.find(lock)
        {
            *held = before;
        }
        self.note_digests();
    }

    fn unlock(&mut self, scenario: &Scenario, id: u32, lock: u8, flags: LockFlags, bytes: u8) {
        let Some(held) = self.host_mut(id).client.find(lock) else { return };
        let before = *held;
        // The hold ends with the call, before anything that follows from it.
        held.unlocking = true;
        let value = [bytes; VALUE_BYTES];
        let request = Unlock { lock: before.id, flags, user: None, value: Some(&value) };
        if self.ask(scenario, id, Request::Unlock(request)).is_err()
            && let Some(held) = self.host_mut(id).client.find(lock)
        {
            held.unlocking = before.unlocking;
            self.check_beliefs(id);
        }
        self.note_digests();
    }

    fn cancel(&mut self, scenario: &Scenario, id: u32, lock: u8) {
        let Some(held) = self.host_mut(id).client.find(lock) else { return };
        let before = *held;
        held.cancelling = true;
        let request = Unlock { lock: before.id, flags: LockFlags::CANCEL, user: None, value: None };
        if self.ask(scenario, id, Request::Unlock(request)).is_err()
            && let Some(held) = self.host_mut(id).client.find(lock)
        {
            held.cancelling = before.cancelling;
        }
        self.note_digests();
    }

    fn user_of(&self, id: u32, held: &Held) -> u64 {
        let mut locks = self.host(id).client.locks.iter();
        locks.position(|of| of.id == held.id && of.lock == held.lock).unwrap_or(0) as u64
    }

    /// An operation ended.
    pub(crate) fn completed(&mut self, id: u32, completion: &Completion) {
        let client = &mut self.host_mut(id).client;
        let Some(held) = client.locks.get_mut(completion.user as usize) else {
            return self.fail(format!("nobody at node {id} asked for {completion:?}"));
        };
        let before = *held;
        if let Err(error) = held.complete(completion) {
            return self.fail(error);
        }
        if completion.status == Status::Granted && !before.unlocking {
            // Giving up rights may be complete before the master numbered it.
            let new = |mode| before.granted.is_none_or(|old: Mode| !old.is_down(mode));
            if let Some(mode) = completion.granted.filter(|mode| new(*mode)) {
                self.saw_token(mode, completion.token.0);
            }
        }
        self.check_beliefs(id);
    }

    /// A holder is told to let go.
    pub(crate) fn told(&mut self, id: u32, blocking: &Blocking) {
        let client = &mut self.host_mut(id).client;
        match client.locks.get_mut(blocking.user as usize) {
            Some(held) if !held.gone => held.told = Some(blocking.mode),
            _ => self.fail(format!("nobody at node {id} has the lock of {blocking:?}")),
        }
    }

    /// What a node's client believes to hold excludes nothing that others believe to hold (S1, S2).
    fn check_beliefs(&mut self, id: u32) {
        let believed = |id: u32| {
            let locks = self.host(id).client.locks.iter().enumerate();
            locks.filter_map(move |(at, held)| Some(((id, at), held.believed()?)))
        };
        let others = || (1..=self.hosts.len() as u32).flat_map(believed);
        let clash = believed(id).find_map(|(of, mode)| {
            let other = others().find(|(by, held)| *by != of && !held.compatible(mode))?;
            Some(format!(
                "exclusion: node {} believes to hold {mode:?} and node {} {:?}",
                of.0, other.0.0, other.1
            ))
        });
        if let Some(error) = clash {
            self.fail(error);
        }
    }
}
