//! What happens in the demo, scene by scene. Every claim was checked the moment before it is printed.

use std::io;
use std::time::Duration;

use super::party::Party;
use super::stage::{Stage, say};

/// How far the three programs count.
const LAST: usize = 12;
/// Rounds that a name goes on for while another one waits.
const ROUNDS: usize = 10;

/// Pause between two looks at how far something is; nothing is claimed about speed.
const LOOK: Duration = Duration::from_millis(50);

/// Who is on which node.
const PEOPLE: [(&str, u32); 3] = [("anna", 1), ("ben", 2), ("carl", 3)];

/// Plays all scenes.
pub(super) fn play(stage: &mut Stage) -> io::Result<()> {
    turns(stage)?;
    let mut cast = Cast::gather(stage)?;
    notice(stage, &mut cast)?;
    listings(stage, &cast)?;
    death(stage, &mut cast)?;
    safety(stage, &mut cast)?;
    history(stage)?;
    back(stage, &mut cast)?;
    cast.leave()?;
    stage.stop()
}

/// A number goes round three nodes in a value block.
fn turns(stage: &mut Stage) -> io::Result<()> {
    say("Three programs, one on each node, want the lock \"number\"; its value block has a number");
    println!("   Who has the lock adds one, and lets go when the blocking callback says so.");
    let last = LAST.to_string();
    let mut parties = Vec::new();
    for (name, node) in PEOPLE {
        parties.push(stage.start("turns", &[&last], name, node)?);
    }
    for party in &mut parties {
        party.until("is ready")?;
    }
    for party in &mut parties {
        party.say("go")?;
    }
    let (mut made, mut shares) = (Vec::new(), Vec::new());
    for party in &mut parties {
        let lines = party.until("stops")?;
        let numbers: Vec<usize> = lines.iter().filter_map(|line| number_of(line)).collect();
        shares.push(numbers.len());
        made.extend(numbers.into_iter().map(|number| (number, party.name.clone())));
    }
    for party in &mut parties {
        party.end()?;
    }
    made.sort();
    let told: Vec<String> = made.iter().map(|(number, by)| format!("{number} {by}")).collect();
    println!("   the numbers and who made them: {}", told.join(", "));
    stage.check(
        made.iter().map(|(number, _)| *number).eq(1..=LAST),
        &format!("each number from 1 to {LAST} was made once, so no update was lost"),
    )?;
    stage.check(
        shares.iter().all(|share| *share > 0),
        &format!("the value went round all three nodes ({shares:?} numbers made by each)"),
    )
}

/// The number in `makes it N`.
fn number_of(line: &str) -> Option<usize> {
    line.strip_prefix("makes it ")?.parse().ok()
}

/// Programs that stay for the rest of the demo.
struct Cast {
    anna: Party,
    ben: Party,
    carl: Party,
    /// Go round with a name of their own.
    rounds: [Party; 2],
}

impl Cast {
    fn gather(stage: &mut Stage) -> io::Result<Cast> {
        say("anna, ben and carl join on nodes 1, 2 and 3; two gardeners share the lock \"garden\"");
        let mut people = Vec::new();
        for (name, node) in PEOPLE {
            let mut party = stage.start("actor", &[], name, node)?;
            party.until("is in the lockspace")?;
            people.push(party);
        }
        // The first to ask for a name is its master.
        let mut first = stage.start("rounds", &["garden"], "gardener on node 1", 1)?;
        first.until("goes round")?;
        let mut second = stage.start("rounds", &["garden"], "gardener on node 2", 2)?;
        second.until("goes round")?;
        let (Some(carl), Some(ben), Some(anna)) = (people.pop(), people.pop(), people.pop()) else {
            return Err(io::Error::other("three people were to come"));
        };
        Ok(Cast { anna, ben, carl, rounds: [first, second] })
    }

    fn leave(&mut self) -> io::Result<()> {
        say("Everybody leaves");
        for party in
            [&mut self.anna, &mut self.ben, &mut self.carl].into_iter().chain(&mut self.rounds)
        {
            party.end()?;
        }
        Ok(())
    }
}

/// carl masters two names; a blocking callback reaches him from another node.
fn notice(stage: &mut Stage, cast: &mut Cast) -> io::Result<()> {
    say("carl is the first to ask for \"door\" and \"attic\": node 3 masters both names");
    cast.carl.ask("ask door NL", "has door in NL")?;
    cast.carl.ask("ask attic PR", "has attic in PR")?;
    println!(
        "   anna shares the attic, writes into the value block of the door, and keeps it in NL"
    );
    cast.anna.ask("ask attic PR", "has attic in PR")?;
    cast.anna.ask("ask door EX", "has door in EX")?;
    cast.anna.ask("write door anna was here", "wrote")?;
    cast.anna.ask("ask door NL", "has door in NL")?;
    say("carl takes the door exclusively and writes; ben asks for it from another node, and waits");
    let got = cast.carl.ask("ask door EX", "has door in EX")?;
    stage.check(
        got.contains("anna was here") && got.ends_with(", valid"),
        "carl read what anna wrote on another node",
    )?;
    cast.carl.ask("write door carl was here", "wrote")?;
    cast.ben.ask("ask door EX", "asks for door")?;
    cast.carl.until("is told that somebody waits for door")?;
    stage.check(true, "the blocking callback went from ben's request on node 2 to carl on node 3")
}

/// What dlm_tool shows while all is well.
fn listings(stage: &mut Stage, cast: &Cast) -> io::Result<()> {
    say("The same lock as any node shows it: node 1 asks its master");
    let (carl, ben) =
        (format!("node 3 pid {}", cast.carl.pid()), format!("node 2 pid {}", cast.ben.pid()));
    stage.tool(1, &["lock", "demo", "door"], &["mastered by node 3", &carl, &ben])?;
    say(
        "What node 3 masters, with the copies of locks of other nodes; members; the state of nodes",
    );
    stage.tool(3, &["lockdump", "-M", "demo"], &["MSTCPY 1 \"attic\"", "MSTCPY 2 \"door\""])?;
    stage.tool(2, &["ls", "-n"], &["members       1 2 3", "nodeid 3 member 1 failed 0 start 1"])?;
    stage.tool(1, &["status"], &["node 3 M", "state 3 connected"])?;
    let (members, locks) = (&["ls"][..], &["lock", "demo", "door"][..]);
    let mut same = true;
    for node in [1, 2, 3] {
        same &= stage.says(node, members, &["members       1 2 3 \n"])?;
        same &= stage.says(node, locks, &["mastered by node 3", &carl, &ben])?;
    }
    stage.check(same, "all three nodes show the same members, and the same holder and waiter")
}

/// Node 3 is killed. Nobody has said yet that it is harmless.
fn death(stage: &mut Stage, cast: &mut Cast) -> io::Result<()> {
    say("Node 3 is killed (kill -9): its daemon first, so that nothing is given back, then carl");
    stage.crash(3);
    cast.carl.kill()?;
    println!("   The supervisor excludes it, but does not say yet that it is harmless.");
    stage.supervise("exclude 3")?;
    stage.tool_until(1, &["ls"], &["wait fencing", "new members   1 2"])?;
    let words = [
        "node 3 X",
        "state 3 lost, not known to be safe",
        "waits demo: node 3 to be known as safe",
    ];
    stage.tool(1, &["status"], &words)?;
    say("\"door\" and \"attic\" wait, since their master may still act. \"garden\" goes on:");
    for party in &mut cast.rounds {
        let (before, mut now) = (rounds(party)?, 0);
        while now < before + ROUNDS {
            std::thread::sleep(LOOK);
            now = rounds(party)?;
        }
        println!("   {}: {before} rounds when node 3 was lost, now {now}", party.name);
    }
    stage.check(true, "names that node 3 had nothing to do with are granted on both survivors")?;
    let early = cast.ben.unread();
    stage.check(
        !early.iter().any(|line| line.contains("has door")),
        "ben did not get the door before somebody said that node 3 is safe",
    )
}

fn rounds(party: &mut Party) -> io::Result<usize> {
    let line = party.ask("how many?", " rounds")?;
    let number = line.split(' ').next().and_then(|word| word.parse().ok());
    number.ok_or_else(|| io::Error::other(format!("{} said {line:?}", party.name)))
}

/// The supervisor reaped everything of node 3 and says so.
fn safety(stage: &mut Stage, cast: &mut Cast) -> io::Result<()> {
    say("The supervisor has reaped node 3's daemon and carl, and says that they are gone");
    stage.supervise("gone 3")?;
    let got = cast.ben.until("has door in EX")?.pop().unwrap_or_default();
    stage.check(true, "ben has the door: the survivors took over what node 3 mastered")?;
    stage.check(
        got.contains("anna was here") && got.ends_with("NOT VALID"),
        "he reads the last words that a survivor knows, and is warned that there may be newer ones",
    )?;
    cast.ben.ask("write door ben was here", "wrote")?;
    say("anna's lock on \"attic\" was mastered by node 3 as well; she never noticed");
    let anna = format!("node 1 pid {}", cast.anna.pid());
    stage.tool_until(2, &["lock", "demo", "attic"], &["mastered by node", &anna])?;
    stage.refused(2, &["exec", "demo", "attic", "--try", "--", "true"], &anna)?;
    stage.check(true, "anna's lock is recovered and excludes others as before")
}

/// What the recovery did, in numbers.
fn history(stage: &mut Stage) -> io::Result<()> {
    say("What that change did, how long each step took, and how many names waited");
    for node in [1, 2] {
        stage.tool_until(
            node,
            &["recovery", "demo", "--last", "1"],
            &["node 3 failed; members 1 2", "all in service  after"],
        )?;
    }
    stage.tool_until(1, &["ls", "-n"], &["members       1 2 \n", "nodeid 3 member 0 failed 3"])?;
    stage.check(true, "both survivors remember the change and its steps")
}

/// Node 3 comes back.
fn back(stage: &mut Stage, cast: &mut Cast) -> io::Result<()> {
    say("Node 3 is started again, as a new life, and carl joins");
    stage.restart(3)?;
    cast.carl = stage.start("actor", &[], "carl", 3)?;
    cast.carl.until("is in the lockspace")?;
    stage.tool_until(
        1,
        &["ls", "-n"],
        &["members       1 2 3", "nodeid 3 member 1 failed 0 start 1"],
    )?;
    cast.carl.ask("ask attic PR", "has attic in PR")?;
    let (anna, carl) =
        (format!("node 1 pid {}", cast.anna.pid()), format!("node 3 pid {}", cast.carl.pid()));
    stage.tool(3, &["lock", "demo", "attic"], &[&anna, &carl])?;
    cast.ben.ask("drop door", "gave door back")?;
    let got = cast.carl.ask("ask door PR", "has door in PR")?;
    stage.check(
        got.contains("ben was here") && got.ends_with(", valid"),
        "the node that was killed takes part again, and reads what was written since",
    )?;
    stage.tool(1, &["status"], &["node 3 M", "state 3 connected"])
}
