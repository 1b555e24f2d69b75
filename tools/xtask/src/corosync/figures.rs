//! How long a host that goes silently holds the others up, as three terms (performance.md G15).
//!
//! Two of them are choices of the operator: corosync's token decides when the loss is noticed, lease or
//! fence agent when it is harmless. Ours is what comes after that.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::hosts::Hosts;
use crate::text;
use crate::workers::SPACE;

/// Losses that are measured.
const TIMES: usize = 5;
/// The bar on our part, in milliseconds.
const OURS_MS_MAX: f64 = 300.0;

/// The terms of one loss, in milliseconds.
struct Terms {
    detection: f64,
    harmless: f64,
    ours: f64,
}

/// Loses a host again and again, by lease, and prints the terms with their middle.
pub(super) fn silent_host(hosts: &mut Hosts) -> Result<(), String> {
    let config = hosts.config().to_owned();
    hosts.restart_all(format!("{config}lease=4\nwatchdog=none\n"))?;
    hosts.settle()?;
    hosts.progress("with leases")?;
    let mut all = Vec::new();
    for time in 1..=TIMES {
        let terms = lose(hosts)?;
        println!(
            "#  loss {time}: noticed after {:.0} ms, harmless {:.0} ms later, all in service {:.1} ms \
             after that",
            terms.detection, terms.harmless, terms.ours
        );
        all.push(terms);
        hosts.power_on(3)?;
        hosts.settle()?;
    }
    let middle = |of: fn(&Terms) -> f64| {
        let mut values: Vec<f64> = all.iter().map(of).collect();
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    };
    let ours = middle(|terms| terms.ours);
    println!(
        "#  G15, middle of {TIMES}: detection {:.0} ms (token 1000), lease {:.0} ms (4 s + 2 s), our part \
         {ours:.1} ms (must {OURS_MS_MAX} ms: {})",
        middle(|terms| terms.detection),
        middle(|terms| terms.harmless),
        if ours <= OURS_MS_MAX { "met" } else { "MISSED" }
    );
    hosts.restart_all(config)
}

fn lose(hosts: &mut Hosts) -> Result<Terms, String> {
    let begin = SystemTime::now().duration_since(UNIX_EPOCH).map_err(text)?;
    hosts.power_off(3)?;
    let change = || latest(hosts, begin);
    hosts.wait("the loss of host 3 is never over", || change().is_some())?;
    change().ok_or_else(|| "the change is not remembered".to_owned())
}

/// The change of node 1 that lost node 3 after `begin`, once it is over.
fn latest(hosts: &Hosts, begin: Duration) -> Option<Terms> {
    let output = hosts.tool(1, &["recovery", SPACE, "--last", "8", "--json"]).ok()?;
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    let changes = told.split("\"number\":").skip(1);
    let mut seen = None;
    for change in changes.filter(|change| compact(change).contains("\"failed\":[3]")) {
        let at = number(change, "at_us")?;
        let over = (number(change, "all_safe_us"), number(change, "in_service_us"));
        if let (Some(safe), Some(thawed)) = over
            && at > begin.as_micros() as f64
        {
            let detection = (at - begin.as_micros() as f64) / 1000.0;
            let terms =
                Terms { detection, harmless: safe / 1000.0, ours: (thawed - safe) / 1000.0 };
            seen = Some(terms);
        }
    }
    seen
}

fn compact(text: &str) -> String {
    text.chars().filter(|letter| !letter.is_whitespace()).collect()
}

/// The number behind a key; `None`: null, or not there.
fn number(text: &str, key: &str) -> Option<f64> {
    let rest = text.split(&format!("\"{key}\":")).nth(1)?.trim_start();
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().ok()
}
