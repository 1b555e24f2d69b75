//! The command line of the original (libdlm-abi.md 4.1): `MhVnm:e:f:vwsi:` with permutation.
//!
//! Options may stand anywhere before `--`; words before a known command are skipped; what follows
//! the command are its operands. Ours are added without disturbing that: four long options, and
//! commands behind whose name everything belongs to them.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// Options of the old commands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Options {
    /// `-M`
    pub(crate) master_copies: bool,
    /// `-n`
    pub(crate) nodes: bool,
    /// `-m`
    pub(crate) mode: u32,
    /// `-e`
    pub(crate) exclusive: bool,
    /// `-f`
    pub(crate) fs: bool,
    /// `-v`
    pub(crate) verbose: bool,
    /// `-w`
    pub(crate) wide: bool,
    /// `-s`
    pub(crate) summary: bool,
    /// `--json`
    pub(crate) json: bool,
    /// `--socket`
    pub(crate) socket: Option<OsString>,
}

const MODE_DEFAULT: u32 = 0o600;

impl Default for Options {
    fn default() -> Self {
        Self {
            master_copies: false,
            nodes: false,
            mode: MODE_DEFAULT,
            exclusive: false,
            fs: false,
            verbose: false,
            wide: false,
            summary: false,
            json: false,
            socket: None,
        }
    }
}

/// What a command line says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Scanned {
    /// `-h`.
    Help,
    /// `-V` or `--version`.
    Version,
    /// getopt's sentence, without the program's name.
    BadOption(String),
    /// An old command.
    Old {
        /// Its name; `None` if no word is a known command.
        command: Option<&'static str>,
        /// Words after it.
        operands: Vec<Vec<u8>>,
        /// Options, wherever they stood.
        options: Options,
        /// `--help` was among them.
        help: bool,
    },
    /// One of our commands.
    Own {
        /// Its name, then the option words before it, then everything after it.
        words: Vec<OsString>,
    },
}

/// Reads a command line, without the program's name.
pub(crate) fn scan(args: &[OsString], old: &[&'static str], own: &[&str]) -> Scanned {
    let mut scan =
        Scan { options: Options::default(), command: None, operands: Vec::new(), help: false };
    let mut options_before = Vec::new();
    let mut only_words = false;
    let mut rest = args.iter();
    while let Some(arg) = rest.next() {
        let bytes = arg.as_bytes();
        if only_words || bytes.len() < 2 || bytes[0] != b'-' {
            if scan.command.is_none() && own.iter().any(|name| OsStr::new(name) == arg) {
                let words = std::iter::once(arg).chain(options_before).chain(rest);
                return Scanned::Own { words: words.cloned().collect() };
            }
            scan.word(bytes, old);
            continue;
        }
        if bytes == b"--" {
            only_words = true;
            continue;
        }
        let mut next = rest.clone();
        let end = match bytes.strip_prefix(b"--") {
            Some(long) => scan.long(long, &mut next),
            None => scan.short(&bytes[1..], &mut next),
        };
        if let Some(end) = end {
            return end;
        }
        options_before.push(arg);
        options_before.extend(rest.clone().take(rest.len() - next.len()));
        rest = next;
    }
    let Scan { options, command, operands, help } = scan;
    Scanned::Old { command, operands, options, help }
}

struct Scan {
    options: Options,
    command: Option<&'static str>,
    operands: Vec<Vec<u8>>,
    help: bool,
}

type Rest<'a> = std::slice::Iter<'a, OsString>;

impl Scan {
    fn word(&mut self, word: &[u8], old: &[&'static str]) {
        if self.command.is_some() {
            self.operands.push(word.to_vec());
        } else {
            self.command = old.iter().find(|name| name.as_bytes() == word).copied();
        }
    }

    fn long(&mut self, option: &[u8], rest: &mut Rest<'_>) -> Option<Scanned> {
        match option {
            b"json" => self.options.json = true,
            b"help" => self.help = true,
            b"version" => return Some(Scanned::Version),
            b"socket" => match rest.next() {
                Some(path) => self.options.socket = Some(path.clone()),
                None => {
                    let sentence = "option '--socket' requires an argument";
                    return Some(Scanned::BadOption(sentence.to_owned()));
                }
            },
            _ => match option.strip_prefix(b"socket=") {
                Some(path) => self.options.socket = Some(OsString::from_vec(path.to_vec())),
                None => {
                    let option = String::from_utf8_lossy(option);
                    return Some(Scanned::BadOption(format!("unrecognized option '--{option}'")));
                }
            },
        }
        None
    }

    fn short(&mut self, cluster: &[u8], rest: &mut Rest<'_>) -> Option<Scanned> {
        for (i, letter) in cluster.iter().enumerate() {
            match letter {
                b'h' => return Some(Scanned::Help),
                b'V' => return Some(Scanned::Version),
                b'M' => self.options.master_copies = true,
                b'n' => self.options.nodes = true,
                b'v' => self.options.verbose = true,
                b'w' => self.options.wide = true,
                b's' => self.options.summary = true,
                b'm' | b'e' | b'f' | b'i' => {
                    let value = match &cluster[i + 1..] {
                        [] => rest.next().map(|arg| arg.as_bytes()),
                        attached => Some(attached),
                    };
                    let Some(value) = value else {
                        let letter = char::from(*letter);
                        let sentence = format!("option requires an argument -- '{letter}'");
                        return Some(Scanned::BadOption(sentence));
                    };
                    self.value(*letter, value);
                    break;
                }
                other => {
                    let letter = String::from_utf8_lossy(std::slice::from_ref(other));
                    return Some(Scanned::BadOption(format!("invalid option -- '{letter}'")));
                }
            }
        }
        None
    }

    fn value(&mut self, letter: u8, value: &[u8]) {
        match letter {
            b'm' => self.options.mode = leading_number(value, 8).unwrap_or(MODE_DEFAULT),
            b'e' => self.options.exclusive = leading_number(value, 10).is_some_and(|n| n != 0),
            b'f' => self.options.fs = leading_number(value, 10).is_some_and(|n| n != 0),
            // How long to wait for a command run elsewhere; there is none.
            _ => {}
        }
    }
}

/// A number as the C library reads it: as many digits as there are, the rest is ignored.
fn leading_number(text: &[u8], radix: u32) -> Option<u32> {
    let text = text.trim_ascii_start();
    let text = text.strip_prefix(b"+").unwrap_or(text);
    let digits = text.iter().take_while(|byte| char::from(**byte).is_digit(radix)).count();
    let digits = std::str::from_utf8(&text[..digits]).ok()?;
    u32::from_str_radix(digits, radix).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: [&str; 4] = ["ls", "join", "lockdump", "run"];
    const OWN: [&str; 2] = ["lock", "exec"];

    fn read(line: &str) -> Scanned {
        let args: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        scan(&args, &OLD, &OWN)
    }

    /// Command, operands and the options that differ from the default, in one line.
    fn summary(line: &str) -> String {
        match read(line) {
            Scanned::Old { command, operands, options, help } => {
                let mut text = command.unwrap_or("-").to_owned();
                for operand in operands {
                    text += &format!(" {}", String::from_utf8_lossy(&operand));
                }
                let Options { master_copies, nodes, mode, exclusive, fs, .. } = options;
                let Options { verbose, wide, summary, json, socket, .. } = options;
                for (set, word) in [
                    (master_copies, "M"),
                    (nodes, "n"),
                    (exclusive, "e"),
                    (fs, "f"),
                    (verbose, "v"),
                    (wide, "w"),
                    (summary, "s"),
                    (json, "json"),
                    (help, "help"),
                ] {
                    text += if set { " +" } else { "" };
                    text += if set { word } else { "" };
                }
                if mode != 0o600 {
                    text += &format!(" +m{mode:o}");
                }
                if let Some(socket) = socket {
                    text += &format!(" +socket={}", socket.display());
                }
                text
            }
            Scanned::Own { words } => format!("own {}", words.join(OsStr::new(" ")).display()),
            Scanned::BadOption(sentence) => format!("bad {sentence}"),
            Scanned::Help => "help".to_owned(),
            Scanned::Version => "version".to_owned(),
        }
    }

    #[test]
    fn lines_mean_what_they_mean_to_the_original() {
        let table = [
            ("ls", "ls"),
            ("-n ls", "ls +n"),
            ("ls -n web", "ls web +n"),
            ("ls web -n surplus", "ls web surplus +n"),
            ("foo join bar", "join bar"),
            ("foo bar", "-"),
            ("", "-"),
            ("-", "-"),
            ("LS", "-"),
            ("join lockdump", "join lockdump"),
            ("join -m 644 -e 1 -f 1 a", "join a +e +f +m644"),
            ("-m644 -e1 join a", "join a +e +m644"),
            ("join -m xyz a", "join a"),
            ("join -m 88 a", "join a"),
            ("join -m 64x a", "join a +m64"),
            ("join -m 0 a", "join a +m0"),
            ("join -m 1777 a", "join a +m1777"),
            ("join -e 2 -f x a", "join a +e"),
            ("join -e 0 a", "join a"),
            ("join -m join a", "join a"),
            ("-svwM lockdump d", "lockdump d +M +v +w +s"),
            ("lockdump d -M", "lockdump d +M"),
            ("lockdump -- d -M", "lockdump d -M"),
            ("-- -x join a", "join a"),
            ("join -- -x", "join -x"),
            ("run lvs -i 3 -- -n x", "run lvs -n x"),
            ("-i", "bad option requires an argument -- 'i'"),
            ("join -m", "bad option requires an argument -- 'm'"),
            ("-x", "bad invalid option -- 'x'"),
            ("-d", "bad invalid option -- 'd'"),
            ("ls -nx", "bad invalid option -- 'x'"),
            ("-h -x", "help"),
            ("-hx", "help"),
            ("-x -h", "bad invalid option -- 'x'"),
            ("ls -h", "help"),
            ("-V", "version"),
            ("ls -V", "version"),
        ];
        for (line, meaning) in table {
            assert_eq!(summary(line), meaning, "{line}");
        }
    }

    #[test]
    fn our_additions_do_not_disturb_it() {
        let table = [
            ("ls --json", "ls +json"),
            ("--json ls web -n", "ls web +n +json"),
            ("--socket /s ls", "ls +socket=/s"),
            ("ls --socket=/s", "ls +socket=/s"),
            ("ls --help", "ls +help"),
            ("--version", "version"),
            ("ls -- --json", "ls --json"),
            ("--socket", "bad option '--socket' requires an argument"),
            ("ls --jsonx", "bad unrecognized option '--jsonx'"),
            ("lock a b --json", "own lock a b --json"),
            ("--json lock a -x", "own lock --json a -x"),
            ("--socket /s -v foo lock a", "own lock --socket /s -v a"),
            ("-m 600 exec a b -- sh -c", "own exec -m 600 a b -- sh -c"),
            ("join lock", "join lock"),
            ("-m lock join a", "join a"),
            ("-- exec a", "own exec a"),
        ];
        for (line, meaning) in table {
            assert_eq!(summary(line), meaning, "{line}");
        }
    }

    #[test]
    fn odd_bytes_pass() {
        let name = OsString::from_vec(vec![0xff, b'\n']);
        let args = [OsString::from("ls"), name.clone()];
        let Scanned::Old { operands, .. } = scan(&args, &OLD, &OWN) else { panic!("old") };
        assert_eq!(operands, [name.into_vec()]);
        let odd = OsString::from_vec(vec![b'-', 0xff]);
        assert!(matches!(scan(&[odd], &OLD, &OWN), Scanned::BadOption(_)));
    }
}
