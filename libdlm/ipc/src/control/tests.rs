//! Golden bytes of one message of each kind: the encoding is ours to keep.

use super::*;

fn golden<M: ControlMessage + PartialEq + std::fmt::Debug>(message: &M, hex: &str) {
    let bytes = message.to_bytes().unwrap();
    let found: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(found, hex, "{message:?}");
    assert_eq!(M::from_bytes(&bytes).unwrap(), *message);
    for len in 0..bytes.len() {
        assert!(M::from_bytes(&bytes[..len]).is_err(), "cut to {len}: {message:?}");
    }
    let longer = [&bytes[..], &[0]].concat();
    assert!(matches!(M::from_bytes(&longer), Err(ControlError::Trailing(1))), "{message:?}");
}

fn space() -> SpaceRecord {
    let change =
        ChangeRecord { node: 1, joined: 1, seq: 1, members: vec![1], ..Default::default() };
    SpaceRecord {
        name: b"alpha".to_vec(),
        global_id: 0xa1b2_c3d4,
        flags: 8,
        uid: 0,
        gid: 6,
        mode: 0o660,
        create_count: 2,
        handles: 3,
        state: "running".into(),
        waits_for: vec![],
        view: 1,
        members: vec![1],
        change,
        next_change: None,
        locks: 300,
        resources: 70_000,
        orphans: 0,
        nodes: vec![SpaceNodeRecord { node: 1, member: true, ..Default::default() }],
    }
}

fn lock() -> LockRecord {
    LockRecord {
        id: 0x10001,
        node: 0,
        remote_id: 0,
        pid: 4711,
        program: "db".into(),
        label: "l".into(),
        orphan: false,
        xid: 0,
        flags: 0x88,
        state: 3,
        granted: 3,
        requested: 5,
        told: -1,
        told_age_us: 0,
        age_us: 1 << 40,
        value_seq: 1,
        token: 1 << 32 | 7,
    }
}

fn resource() -> ResourceRecord {
    let value = Some(ValueRecord { bytes: vec![1, 2], seq: 3, valid: true });
    ResourceRecord {
        name: b"r\0".to_vec(),
        master: 0,
        unsettled: false,
        value,
        locks: vec![lock()],
    }
}

fn status() -> StatusRecord {
    StatusRecord {
        version: "0.1.0".into(),
        node: 1,
        incarnation: 2,
        cluster: "c".into(),
        membership: "single".into(),
        quorate: true,
        ring: (3, 4),
        now: 5,
        uptime: 6,
        pid: 7,
        nodes: vec![NodeRecord { node: 1, member: true, ..NodeRecord::default() }],
        clients: 8,
        waits_for: vec!["x".into()],
        fencing: DaemonFencing { pid: 9, startup: vec![3], ..Default::default() },
    }
}

#[test]
fn requests_have_these_bytes() {
    use ControlRequest as R;
    let name = || b"al".to_vec();
    golden(&R::Lockspaces, "00");
    golden(&R::Status, "01");
    golden(&R::Table { lockspace: name(), from: 251 }, "0202616cfbfb00");
    golden(&R::Resource { lockspace: name(), name: vec![0] }, "0302616c0100");
    golden(&R::Log { from: 1 << 32 }, "04fd0000000001000000");
    golden(&R::Config, "05");
    golden(&R::SetConfig { key: "k".into(), value: "v".into() }, "06016b0176");
    golden(&R::ReloadConfig, "07");
    golden(&R::Purge { lockspace: name(), pid: 65_536 }, "0802616cfc00000100");
    golden(&R::Shutdown { force: true }, "0901");
    golden(&R::Counters, "0a");
    golden(&R::FenceAck { node: 2 }, "0b02");
    golden(&R::LockspacesAfter { name: name() }, "0c02616c");
    golden(&R::Stays { after: vec![] }, "0d00");
    let member = MemberRecord { node: 2, incarnation: 1 << 24 };
    let view = ViewRecord { id: 9, members: vec![member], unsafe_members: vec![] };
    golden(&R::View { lockspace: name(), view }, "0e02616c090102fc0000000100");
    golden(&R::Safe { member }, "0f02fc00000001");
    golden(&R::Exclude { life: 1 << 24 }, "10fc00000001");
    golden(&R::Recovery { lockspace: name(), from: 7 }, "1102616c07");
    golden(&R::Locate { lockspace: name(), name: vec![0] }, "1202616c0100");
    golden(&R::Tick { life: 5, at: 251 }, "1305fbfb00");
}

#[test]
fn replies_have_these_bytes() {
    use ControlReply as R;
    golden(
        &R::Lockspaces(vec![space()]),
        "000105616c706861fcd4c3b2a1080006fbb00102030772756e6e696e670001010101010000010101\
         0000fb2c01fc7011010000010101000000000000",
    );
    golden(
        &R::Status(status()),
        "0105302e312e30010201630673696e676c6501030405060701010100000000000000000000000000\
         0000000008010178090001030000",
    );
    golden(
        &R::Table(TablePage { resources: vec![resource()], next: Some(9) }),
        "0201027200000001020102030101fc010001000000fb6712026462016c000088030305ff00fd0000\
         00000001000001fd07000000010000000109",
    );
    golden(&R::Resource(None), "0300");
    golden(
        &R::Resource(Some(resource())),
        "0301027200000001020102030101fc010001000000fb6712026462016c000088030305ff00fd0000\
         00000001000001fd0700000001000000",
    );
    golden(
        &R::Log(LogPage { first: 1, lines: vec!["2 x".into()], next: None }),
        "0401010332207800",
    );
    let record = ConfigRecord { key: "k".into(), value: "v".into(), source: String::new() };
    golden(&R::Config(vec![record]), "0501016b017600");
    golden(&R::Purged(3), "0603");
    golden(&R::Counters(vec![("a".into(), 251)]), "07010161fbfb00");
    golden(&R::Done, "08");
    golden(&R::Refused { errno: 2, message: "no".into() }, "0904026e6f");
    let m = |node, incarnation| MemberRecord { node, incarnation };
    let view = ViewRecord {
        id: 300,
        members: vec![m(1, 7), m(2, 1 << 24)],
        unsafe_members: vec![m(3, 1)],
    };
    let stay = StayRecord { lockspace: b"a".to_vec(), incarnation: 7, view, wants_view: true };
    let stays = StaysRecord {
        node: 1,
        life: 5,
        first_life: 4,
        remains: vec![4],
        connected: vec![2],
        unreachable: vec![3],
        stays: vec![stay],
        more: false,
        tick: 9,
        safe_after: 251,
    };
    golden(
        &R::Stays(stays),
        "0a01050401040102010301016107fb2c0102010702fc00000001010301010009fbfb00",
    );
    let change = RecoveryRecord {
        number: 1,
        lockspace: b"a".to_vec(),
        seq: 2,
        view: 3,
        members: vec![1],
        failed: vec![2],
        safe: vec![(2, Some(5)), (3, None)],
        all_safe: Some(6),
        names_waited: 7,
        ..Default::default()
    };
    golden(
        &R::Recovery(RecoveryPage { changes: vec![change], next: None }),
        "0b01010161020300000101000001020202010503000001060000000700000000",
    );
    let found = LocatedRecord { resource: None, whole: true, omitted: 0, trouble: "t".into() };
    golden(&R::Located(found), "0c0001000174");
}

#[test]
fn the_limit_holds_in_both_directions() {
    let of = |len: usize| ControlReply::Refused { errno: 1, message: "x".repeat(len) };
    // Tag, errno and a five-byte length come before the text.
    let most = CONTROL_BYTES_MAX - 7;
    let bytes = of(most).to_bytes().unwrap();
    assert_eq!(bytes.len(), CONTROL_BYTES_MAX);
    assert_eq!(ControlReply::from_bytes(&bytes).unwrap(), of(most));
    let refused = of(most + 1).to_bytes().unwrap_err();
    assert!(matches!(refused, ControlError::TooLong(len) if len == CONTROL_BYTES_MAX + 1));
    // Where memory is largest in comparison to the message: nothing that can be sent is refused.
    let empty = |lines| {
        ControlReply::Log(LogPage { lines: vec![String::new(); lines], ..LogPage::default() })
    };
    let densest = empty(CONTROL_BYTES_MAX - 8);
    assert_eq!(ControlReply::from_bytes(&densest.to_bytes().unwrap()).unwrap(), densest);
    let long = [&bytes[..], &[0]].concat();
    assert!(matches!(ControlReply::from_bytes(&long), Err(ControlError::TooLong(_))));
}

#[test]
fn a_length_that_lies_allocates_nothing() {
    // A listing that claims 2^62 lockspaces, and one that claims more than any message can hold.
    for claim in [&b"\x00\xfd\x00\x00\x00\x00\x00\x00\x00\x40"[..], b"\x00\xfc\x00\x00\x40\x00"] {
        assert!(matches!(ControlReply::from_bytes(claim), Err(ControlError::Malformed(_))));
    }
    assert!(ControlRequest::from_bytes(&[12]).is_err(), "unknown request");
    assert!(ControlRequest::from_bytes(&[9, 2]).is_err(), "no truth value");
}
