//! The shortest way through the engine: create, lock, wait, unlock, release.

use dlm_core::{
    Call, ClientId, Input, Instant, LockCall, LockFlags, LockId, Member, Mode, Node, NodeId,
    Outbox, Output, Request, Status, Unlock, View, ViewId,
};

fn feed(node: &mut Node, input: Input<'_>) -> Vec<Output> {
    let mut out = Outbox::new();
    node.step(Instant(0), input, &mut out);
    node.check();
    out.drain().collect()
}

fn joined(node: &mut Node, client: ClientId) {
    let outputs = feed(node, Input::Client(client, Request::create("demo", 7)));
    let [Output::Join { lockspace, .. }] = outputs[..] else { panic!("{outputs:?}") };
    let members = vec![node.member()];
    let view = View { id: ViewId(1), members, unsafe_members: Vec::new() };
    let outputs = feed(node, Input::View(lockspace, view));
    let opened = Output::Reply { client, result: Ok(LockId(0)) };
    assert_eq!(outputs, [Output::Acknowledge { lockspace, view: ViewId(1) }, opened]);
}

fn lock(node: &mut Node, client: ClientId, mode: Mode) -> (LockId, Vec<Output>) {
    let call = Call { mode: mode as u8, wants_blocking: true, ..Call::default() };
    let outputs = feed(node, Input::Client(client, Request::Lock(LockCall { call, name: b"r" })));
    let Output::Reply { result: Ok(id), .. } = outputs[0] else { panic!("{outputs:?}") };
    (id, outputs[1..].to_vec())
}

#[test]
fn a_waiter_is_granted_when_the_holder_unlocks() {
    let mut node = Node::new(Member { node: NodeId(1), incarnation: 1 });
    let client = ClientId::new(0, 1);
    joined(&mut node, client);
    let (holder, outputs) = lock(&mut node, client, Mode::EX);
    assert!(matches!(&outputs[..], [Output::Complete { .. }]), "{outputs:?}");
    let (waiter, outputs) = lock(&mut node, client, Mode::PR);
    assert!(matches!(&outputs[..], [Output::Blocking { .. }]), "{outputs:?}");
    let unlock = Unlock { lock: holder, flags: LockFlags(0), user: None, value: None };
    let outputs = feed(&mut node, Input::Client(client, Request::Unlock(unlock)));
    let statuses: Vec<_> = outputs
        .iter()
        .filter_map(|output| match output {
            Output::Complete { completion, .. } => Some((completion.lock, completion.status)),
            _ => None,
        })
        .collect();
    assert_eq!(statuses, [(holder, Status::Unlocked), (waiter, Status::Granted)]);
    let outputs = feed(&mut node, Input::Client(client, Request::Release { force: true }));
    assert!(matches!(outputs[0], Output::Leave { .. }), "{outputs:?}");
    assert!(node.lockspaces().is_empty());
}
