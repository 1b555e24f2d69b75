//! Reads what `dlm_tool lockdebug` prints, for the table check.

use std::collections::BTreeMap;

/// A name as a node lists it.
#[derive(Debug, PartialEq)]
pub(super) struct Name {
    /// Its master; `None`: the node itself.
    pub(super) master: Option<u32>,
    pub(super) locks: Vec<Lock>,
}

/// A lock as a node lists it.
#[derive(Debug, PartialEq)]
pub(super) struct Lock {
    /// Its id here.
    pub(super) id: String,
    /// The node that has its other side, and the id there.
    pub(super) other: Option<(u32, String)>,
    /// Queue and modes.
    pub(super) state: String,
}

/// Names by their text.
pub(super) fn parse(text: &str) -> Result<BTreeMap<String, Name>, String> {
    let mut names: BTreeMap<String, Name> = BTreeMap::new();
    let (mut current, mut queue) = (None::<String>, "");
    for line in text.lines().map(str::trim_end) {
        let strange = || format!("cannot read: {line}");
        if let Some(rest) = line.strip_prefix("Resource len ") {
            let name = rest.trim_start().split_once(' ').ok_or_else(strange)?.1.trim();
            let doubled = names.insert(name.to_owned(), Name { master: None, locks: Vec::new() });
            if doubled.is_some() {
                return Err(format!("{name} is listed twice"));
            }
            current = Some(name.to_owned());
        } else if let Some(name) = current.as_ref().and_then(|name| names.get_mut(name)) {
            match line {
                "Granted" | "Convert" | "Waiting" => queue = line,
                "Master" | "" | "no locks" => {}
                _ if line.starts_with("Master:") => {
                    name.master = Some(line[7..].trim().parse().map_err(|_| strange())?);
                }
                _ if line.starts_with("LVB ") || is_bytes(line) => {}
                _ => name.locks.push(lock(line, queue).ok_or_else(strange)?),
            }
        }
    }
    Ok(names)
}

/// A line of a value block.
fn is_bytes(line: &str) -> bool {
    line.split(' ').all(|word| word.len() == 2 && word.bytes().all(|b| b.is_ascii_hexdigit()))
}

/// `00000002 PR (EX) Remote:   3 00000001`
fn lock(line: &str, queue: &str) -> Option<Lock> {
    let mut words = line.split_whitespace().peekable();
    let id = words.next()?.to_owned();
    let mut state = format!("{queue} {}", words.next()?);
    if let Some(requested) = words.next_if(|word| word.starts_with('(')) {
        state = format!("{state}->{requested}");
    }
    let other = match words.next() {
        None => None,
        Some("Remote:" | "Master:") => {
            Some((words.next()?.parse().ok()?, words.next()?.to_owned()))
        }
        Some(_) => return None,
    };
    Some(Lock { id, other, state })
}

/// Whether these are the listings, by node, of one table; what is wrong, if not.
pub(super) fn disagreement(nodes: &BTreeMap<u32, BTreeMap<String, Name>>) -> Option<String> {
    let mut masters: BTreeMap<&str, u32> = BTreeMap::new();
    // Owner's node and id there; the other id, queue and modes.
    let (mut own, mut copies) = (BTreeMap::new(), BTreeMap::new());
    for (node, names) in nodes {
        for (text, name) in names {
            if name.master.is_some() && name.locks.is_empty() {
                continue; // it is only remembered whose it was
            }
            let master = name.master.unwrap_or(*node);
            if *masters.entry(text).or_insert(master) != master {
                return Some(format!("{text}: node {node} takes node {master} for its master"));
            }
            if !nodes.get(&master).is_some_and(|listed| listed.contains_key(text)) {
                return Some(format!("{text}: node {master} does not know that it is its master"));
            }
            for lock in &name.locks {
                let Some((there, id)) = &lock.other else {
                    if name.master.is_some() {
                        return Some(format!("{text}: lock {} has no id at its master", lock.id));
                    }
                    continue;
                };
                let (list, key, at) = match name.master {
                    Some(_) => (&mut own, (*node, lock.id.clone()), id.clone()),
                    None => (&mut copies, (*there, id.clone()), lock.id.clone()),
                };
                if list.insert(key, (text, at, &lock.state)).is_some() {
                    return Some(format!("{text}: lock {} of node {node} is there twice", lock.id));
                }
            }
        }
    }
    for (key, lock) in &own {
        if copies.get(key) != Some(lock) {
            return Some(format!(
                "{key:?} is {lock:?} to its owner, {:?} to its master",
                copies.get(key)
            ));
        }
    }
    let stray = copies.iter().find(|(key, _)| !own.contains_key(key));
    stray.map(|(key, lock)| format!("a master lists {lock:?} of {key:?}, who does not"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MASTER: &str = "
Resource len  1  \"a\"
Master
LVB len 32 seq 4
00 01 02 03
Granted
00000001 PR
00000002 PR      Remote:   2 00000009
Convert
00000003 NL (EX) Remote:   2 00000008
Waiting
00000004 -- (CW)
";
    const OWNER: &str = "
Resource len  1  \"a\"
Master:1
Granted
00000009 PR      Master:   1 00000002
Convert
00000008 NL (EX) Master:   1 00000003

Resource len  1  \"b\"
Master
no locks
";

    fn both(owner: &str) -> Option<String> {
        let read = |text| parse(text).expect("a listing");
        disagreement(&BTreeMap::from([(1, read(MASTER)), (2, read(owner))]))
    }

    #[test]
    fn both_sides_of_every_lock_are_one() {
        assert_eq!(both(OWNER), None);
        for (find, put) in [
            ("00000009 PR", "00000009 CR"),
            ("00000002", "00000005"),
            ("00000009", "00000007"),
            ("NL (EX)", "NL (PW)"),
            ("Master:1\n", "Master\n"),
            ("Master:1\n", "Master:2\n"),
        ] {
            assert!(both(&OWNER.replacen(find, put, 1)).is_some(), "{find} -> {put}");
        }
        assert!(both("").is_some_and(|why| why.contains("who does not")));
    }

    #[test]
    fn odd_lines_are_refused() {
        for line in ["Granted\n0001 PR Elsewhere: 2 01", "Master:x", "half"] {
            assert!(parse(&format!("Resource len 1 \"a\"\n{line}\n")).is_err(), "{line}");
        }
    }
}
