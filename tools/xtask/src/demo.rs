//! `cargo demo`: three nodes, a few C programs, a node that is killed and comes back. It ends by itself,
//! and is good only if everything was seen.

mod party;
mod stage;
mod story;

use crate::places::Places;
use crate::scratch::Scratch;
use crate::{Ending, products};

/// The C programs.
const PROGRAMS: [&str; 3] = ["turns", "actor", "rounds"];

/// Runs the command.
pub(crate) fn run(places: &Places, args: &[String]) -> Result<(), Ending> {
    if let Some(arg) = args.first() {
        return Err(Ending::Usage(format!("demo takes no {arg}")));
    }
    stage::say("Building the daemon, the C library and three C programs (tools/xtask/demo/*.c)");
    products::build(places)?;
    let dir = Scratch::new("demo")?;
    for program in PROGRAMS {
        let source = places.root.join(format!("tools/xtask/demo/{program}.c"));
        products::cc(places, &[source], "dlm", &dir.path().join(program))?;
    }
    let mut stage = stage::Stage::set(places, dir.path().to_path_buf())?;
    match story::play(&mut stage) {
        Ok(()) => {
            stage::say("All of this was seen:");
            for claim in stage.seen() {
                println!("   - {claim}");
            }
            Ok(())
        }
        Err(error) => {
            eprintln!("{}", stage.logs());
            eprintln!("the demo did not go as it should: {error}");
            Err(Ending::Failed)
        }
    }
}
