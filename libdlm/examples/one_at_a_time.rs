//! Several copies of this program take turns: each holds the lock for a moment, and says which turn
//! it was. Run `dlmd` first; `DLM_SOCKET` may name its socket.
//!
//!     cargo run -p dlm-client --example one_at_a_time

use std::time::Duration;

use dlm_client::{Error, Lockspace, Mode, Wanted};

fn main() -> Result<(), Error> {
    let space = Lockspace::create("example")?;
    space.set_label("one at a time")?;
    let wanted = Wanted::new().timeout(Duration::from_secs(30));
    let turn = space.lock(b"turn", Mode::EX, &wanted)?;
    // A store that remembers the highest number it has seen can refuse whoever comes late.
    println!("my turn, number {}", turn.token());
    std::thread::sleep(Duration::from_millis(200));
    turn.unlock()
}
