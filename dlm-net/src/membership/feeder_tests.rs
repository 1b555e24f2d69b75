//! The feeder against daemons that only report.

use super::*;

/// A daemon as its reports show it.
struct Daemon {
    report: StaysRecord,
    joins: u64,
}

impl Daemon {
    fn new(node: u32, start: u64) -> Self {
        let life = Member::of_start(NodeId(node), start).incarnation;
        let connected = vec![1, 2, 3];
        let report =
            StaysRecord { node, life, first_life: life, connected, ..StaysRecord::default() };
        Self { report, joins: 0 }
    }

    fn join(&mut self, name: &str) -> MemberRecord {
        let incarnation = self.report.life + self.joins;
        self.joins += 1;
        let lockspace = name.as_bytes().to_vec();
        let view = ViewRecord::default();
        self.report.stays.push(StayRecord { lockspace, incarnation, view, wants_view: false });
        MemberRecord { node: self.report.node, incarnation }
    }

    fn leave(&mut self, name: &str) {
        self.report.stays.retain(|stay| stay.lockspace != name.as_bytes());
    }

    /// Reports, does what it is told, and reports again, until there is nothing to do.
    fn talk(&mut self, feeder: &mut Feeder) {
        for _ in 0..10 {
            feeder.report(self.report.clone());
            let commands = feeder.commands(self.report.node);
            if commands.is_empty() {
                return;
            }
            for command in commands {
                self.obey(command);
            }
        }
        panic!("node {} is told the same for ever", self.report.node);
    }

    fn obey(&mut self, command: ControlRequest) {
        match command {
            ControlRequest::View { lockspace, view } => {
                let mut stays = self.report.stays.iter_mut();
                let stay = stays.find(|stay| stay.lockspace == lockspace).expect("it is here");
                let (node, incarnation) = (self.report.node, stay.incarnation);
                assert!(view.members.contains(&MemberRecord { node, incarnation }), "{view:?}");
                assert!(view.id > stay.view.id);
                (stay.view, stay.wants_view) = (view, false);
            }
            ControlRequest::Safe { member } => {
                for stay in &mut self.report.stays {
                    stay.view.unsafe_members.retain(|other| *other != member);
                }
            }
            ControlRequest::Exclude { life } => {
                assert_eq!(life, self.report.life);
                self.report.remains.push(life);
                self.report.life += JOINS_PER_LIFE;
                self.report.stays.clear();
                self.joins = 0;
            }
            other => panic!("{other:?}"),
        }
    }

    fn view(&self, name: &str) -> &ViewRecord {
        let mut stays = self.report.stays.iter();
        &stays.find(|stay| stay.lockspace == name.as_bytes()).expect("it is here").view
    }
}

fn talk(feeder: &mut Feeder, daemons: &mut [&mut Daemon]) {
    for _ in 0..3 {
        for daemon in daemons.iter_mut() {
            daemon.talk(feeder);
        }
    }
}

/// Two nodes in one lockspace.
fn pair() -> (Feeder, Daemon, Daemon, MemberRecord, MemberRecord) {
    let mut feeder = Feeder::new([1, 2], 1000);
    let (mut one, mut two) = (Daemon::new(1, 7), Daemon::new(2, 9));
    let (m1, m2) = (one.join("a"), two.join("a"));
    talk(&mut feeder, &mut [&mut one, &mut two]);
    assert!(feeder.is_settled());
    assert_eq!(one.view("a"), two.view("a"));
    assert_eq!(one.view("a").members, [m1, m2]);
    assert!(one.view("a").id > 1000);
    (feeder, one, two, m1, m2)
}

#[test]
fn nothing_is_decided_before_every_node_was_heard() {
    let mut feeder = Feeder::new([1, 2], 1000);
    let mut one = Daemon::new(1, 7);
    one.join("a");
    one.talk(&mut feeder);
    assert_eq!((one.view("a").id, feeder.view(b"a")), (0, None));
    Daemon::new(2, 9).talk(&mut feeder);
    one.talk(&mut feeder);
    assert!(one.view("a").id > 0);
}

#[test]
fn a_node_that_left_is_not_feared_and_comes_back_as_somebody_else() {
    let (mut feeder, mut one, mut two, m1, m2) = pair();
    two.leave("a");
    talk(&mut feeder, &mut [&mut two, &mut one]);
    assert_eq!((&one.view("a").members[..], one.view("a").unsafe_members.len()), (&[m1][..], 0));
    let again = two.join("a");
    assert_ne!(again, m2);
    talk(&mut feeder, &mut [&mut two, &mut one]);
    assert_eq!(two.view("a").members, [m1, again]);
    // Left and joined again between two reports.
    two.leave("a");
    let third = two.join("a");
    talk(&mut feeder, &mut [&mut two, &mut one]);
    assert_eq!(one.view("a").members, [m1, third]);
    one.leave("a");
    two.leave("a");
    talk(&mut feeder, &mut [&mut one, &mut two]);
    assert_eq!(feeder.view(b"a"), None);
}

#[test]
fn a_crashed_node_is_unsafe_until_it_is_gone_and_joins_wait_for_that() {
    let (mut feeder, mut one, _crashed, m1, m2) = pair();
    feeder.exclude(2);
    one.talk(&mut feeder);
    assert_eq!(
        (&one.view("a").members[..], &one.view("a").unsafe_members[..]),
        (&[m1][..], &[m2][..])
    );
    // A new life alone proves nothing: the old clients may still act.
    let mut two = Daemon::new(2, 10);
    let again = two.join("a");
    talk(&mut feeder, &mut [&mut two, &mut one]);
    assert_eq!(two.view("a").id, 0, "B3");
    assert!(!feeder.is_settled());
    feeder.gone(2);
    talk(&mut feeder, &mut [&mut one, &mut two]);
    assert!(one.view("a").unsafe_members.is_empty());
    assert_eq!(two.view("a").id, 0, "the feeder takes every life it heard of for gone");
    let mut two = Daemon::new(2, 11);
    assert_ne!(two.join("a"), again);
    talk(&mut feeder, &mut [&mut two, &mut one]);
    assert_eq!(two.view("a"), one.view("a"));
    assert!(feeder.is_settled());
}

#[test]
fn who_is_known_to_be_gone_at_once_is_named_until_all_know_it() {
    let (mut feeder, mut one, _crashed, m1, m2) = pair();
    feeder.gone(2);
    let view = feeder.view(b"a").expect("one is in it").clone();
    assert_eq!(record(&view).unsafe_members, [m2], "its locks are dropped on its Safe only");
    let commands = feeder.commands(1);
    assert!(matches!(&commands[..], [ControlRequest::View { .. }]), "{commands:?}");
    commands.into_iter().for_each(|command| one.obey(command));
    feeder.report(one.report.clone());
    assert_eq!(feeder.commands(1), [ControlRequest::Safe { member: m2 }]);
    one.talk(&mut feeder);
    assert!(feeder.is_settled());
    let mut two = Daemon::new(2, 10);
    let again = two.join("a");
    talk(&mut feeder, &mut [&mut two, &mut one]);
    assert_eq!(one.view("a").members, [m1, again]);
    assert!(one.view("a").unsafe_members.is_empty());
}

#[test]
fn who_was_excluded_alive_ends_its_life_and_is_feared_while_its_clients_are() {
    let (mut feeder, mut one, mut two, _, m2) = pair();
    feeder.exclude(2);
    one.talk(&mut feeder);
    assert_eq!(one.view("a").unsafe_members, [m2]);
    two.talk(&mut feeder);
    let again = two.join("a");
    talk(&mut feeder, &mut [&mut one, &mut two]);
    assert_eq!((one.view("a").unsafe_members.len(), two.view("a").id), (1, 0));
    two.report.remains.clear();
    talk(&mut feeder, &mut [&mut two, &mut one]);
    assert!(two.view("a").members.contains(&again) && feeder.is_settled());
    assert_eq!(one.view("a"), two.view("a"));
}

#[test]
fn a_feeder_that_starts_anew_goes_on_from_what_is_installed() {
    let (_, mut one, mut two, m1, m2) = pair();
    let before = one.view("a").id;
    let mut feeder = Feeder::new([1, 2], 0);
    talk(&mut feeder, &mut [&mut one, &mut two]);
    assert_eq!(one.view("a").id, before, "nothing changed");
    let mut stays = two.report.stays.iter_mut();
    stays.next().expect("one").wants_view = true;
    talk(&mut feeder, &mut [&mut two, &mut one]);
    assert!(one.view("a").id > before && one.view("a").members == [m1, m2]);
    // One went on alone under the feeder before; the other one was not there to hear of it.
    one.report.stays[0].view =
        ViewRecord { id: before + 9, members: vec![m1], unsafe_members: vec![m2] };
    let mut feeder = Feeder::new([1, 2], 0);
    feeder.report(one.report.clone());
    feeder.report(two.report.clone());
    let life = two.report.life;
    assert_eq!(feeder.commands(2), [ControlRequest::Exclude { life }]);
    assert_eq!(feeder.commands(1), []);
}

#[test]
fn of_a_pair_that_cannot_talk_the_one_with_more_complaints_goes() {
    let mut feeder = Feeder::new([1, 2, 3], 1000);
    let mut all = [Daemon::new(1, 1), Daemon::new(2, 1), Daemon::new(3, 1)];
    let members: Vec<MemberRecord> = all.iter_mut().map(|daemon| daemon.join("a")).collect();
    let [one, two, three] = &mut all;
    talk(&mut feeder, &mut [one, two, three]);
    two.report.unreachable = vec![1];
    three.report.unreachable = vec![1];
    feeder.report(two.report.clone());
    let first = feeder.view(b"a").expect("decided").clone();
    assert_eq!(record(&first).unsafe_members, [members[1]], "of equals the higher goes");
    let mut feeder = Feeder::new([1, 2, 3], 1000);
    one.report.unreachable = vec![2, 3];
    for daemon in [&*one, &*two, &*three] {
        feeder.report(daemon.report.clone());
    }
    let view = feeder.view(b"a").expect("decided");
    assert_eq!(record(view).unsafe_members, [members[0]]);
}

#[test]
fn who_cannot_talk_to_all_members_is_not_let_in() {
    let mut feeder = Feeder::new([1, 2], 1000);
    let (mut one, mut two) = (Daemon::new(1, 7), Daemon::new(2, 9));
    let (m1, m2) = (one.join("a"), two.join("a"));
    one.report.connected.clear();
    talk(&mut feeder, &mut [&mut one, &mut two]);
    assert_eq!((&one.view("a").members[..], two.view("a").id), (&[m1][..], 0));
    one.report.connected.push(2);
    talk(&mut feeder, &mut [&mut one, &mut two]);
    assert_eq!(two.view("a").members, [m1, m2]);
}

#[test]
fn who_decides_among_several_has_numbers_of_its_own() {
    let mut feeder = Feeder::new([1], 1000);
    for (rest, among, next) in
        [(0, 1, 1001), (1, 4, 1001), (0, 4, 1004), (3, 4, 1003), (5, 4, 1001)]
    {
        feeder.number_among(rest, among);
        assert_eq!(feeder.next_number(), next);
    }
}
