//! The command line: every key as `--key value` or `--key=value`, the original's short letters, and
//! what is not a key.
//!
//! A flag alone means 1; `--key 0` and `-q0` are understood too, and letters of flags may be bundled
//! (`-DKP`), as libdlm-abi.md 5.3 describes.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use super::table::{Key, list};

/// The name under which the daemon behaves as the original: it goes to the background.
pub const ORIGINAL_NAME: &str = "dlm_controld";

/// What to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Action {
    /// Serve.
    #[default]
    Serve,
    /// Check the configuration and say whether it is good.
    CheckConfig,
    /// Print the table of keys.
    ListOptions,
    /// Print the help text.
    Help,
    /// Print the version.
    Version,
}

/// A parsed command line.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Arguments {
    /// What to do.
    pub action: Action,
    /// Keys with values in normal form; the last one counts.
    pub settings: Vec<(Key, String)>,
    /// `--config`.
    pub config: Option<PathBuf>,
    /// Whether to go to the background once it serves.
    pub daemonize: bool,
    /// `--override-kernel-dlm`.
    pub override_kernel_dlm: bool,
    /// Where to look for a kernel's DLM; tests point it elsewhere.
    pub kernel: KernelPaths,
    /// End, with lockspaces lost, when standard input closes: a test's daemon never outlives it.
    pub until_stdin_closes: bool,
}

/// Places where an active kernel DLM shows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KernelPaths {
    /// Lists misc devices.
    pub proc_misc: PathBuf,
    /// Has an entry per kernel lockspace.
    pub sys_kernel_dlm: PathBuf,
}

impl Default for KernelPaths {
    fn default() -> Self {
        Self { proc_misc: "/proc/misc".into(), sys_kernel_dlm: "/sys/kernel/dlm".into() }
    }
}

/// Parses a command line, the program's name first; on an error tells what to do instead.
pub fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Arguments, String> {
    let mut words = arguments.into_iter();
    let name = words.next().unwrap_or_default();
    let original = PathBuf::from(&name).file_name() == Some(OsStr::new(ORIGINAL_NAME));
    let words = words.map(|word| word.into_string().map_err(|w| format!("{w:?} is not UTF-8")));
    let words: Vec<String> = words.collect::<Result<_, _>>()?;
    let mut parser = Parser { words: &words, at: 0, out: Arguments::default(), foreground: false };
    while let Some(word) = parser.next() {
        if let Some(option) = word.strip_prefix("--") {
            parser.long(option)?;
        } else if let Some(letters) = word.strip_prefix('-').filter(|rest| !rest.is_empty()) {
            parser.short(letters)?;
        } else {
            return Err(format!("'{word}' is not an option; dlmd takes options only"));
        }
    }
    let foreground = parser.foreground;
    let mut out = parser.out;
    out.daemonize = (out.daemonize || original) && !foreground;
    Ok(out)
}

/// The help text.
pub fn help() -> String {
    let mut text = String::from(
        "dlmd, the lock manager daemon.\n\nUsage: dlmd [OPTION]...\n\n\
         \x20 --config FILE          read FILE instead of /etc/dlm/dlm.conf\n\
         \x20 --check-config         check the configuration and exit\n\
         \x20 --daemonize            go to the background; returns once it serves\n\
         \x20 --override-kernel-dlm  start although a kernel DLM is active; the two do not see\n\
         \x20                        each other's locks\n\
         \x20 --list-options         print every key: default, when it may change, values, help\n\
         \x20 -V, --version          print the version\n\
         \x20 -h, --help             print this text\n\n\
         Keys of dlm.conf, as --key VALUE or --key=VALUE:\n\n",
    );
    for line in list().lines() {
        let columns: Vec<&str> = line.split('\t').collect();
        let letter = Key::find(columns[0]).and_then(|key| key.spec().letter);
        let letter = letter.map_or(String::new(), |letter| format!("-{letter}, "));
        let default = if columns[1].is_empty() { "" } else { &format!(" [{}]", columns[1]) };
        text += &format!("  {letter}--{}{default}\n      {}\n", columns[0], columns[4]);
    }
    text + "\nExit codes: 0 good, 1 failed, 2 usage, 3 cannot run here.\n"
}

struct Parser<'a> {
    words: &'a [String],
    at: usize,
    out: Arguments,
    foreground: bool,
}

impl<'a> Parser<'a> {
    fn next(&mut self) -> Option<&'a str> {
        let word = self.words.get(self.at)?;
        self.at += 1;
        Some(word)
    }

    fn long(&mut self, option: &str) -> Result<(), String> {
        let (name, value) = match option.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (option, None),
        };
        let alone = |action: Action| match value {
            None => Ok(action),
            Some(_) => Err(format!("--{name} takes no value")),
        };
        match name {
            "help" => self.out.action = alone(Action::Help)?,
            "version" => self.out.action = alone(Action::Version)?,
            "check-config" => self.out.action = alone(Action::CheckConfig)?,
            "list-options" => self.out.action = alone(Action::ListOptions)?,
            "daemonize" => self.out.daemonize = alone(Action::Serve).map(|_| true)?,
            "override-kernel-dlm" => {
                self.out.override_kernel_dlm = alone(Action::Serve).map(|_| true)?;
            }
            "until-stdin-closes" => {
                self.out.until_stdin_closes = alone(Action::Serve).map(|_| true)?;
            }
            "config" => self.out.config = Some(self.value("--config", value)?.into()),
            "proc-misc" => self.out.kernel.proc_misc = self.value("--proc-misc", value)?.into(),
            "sys-kernel-dlm" => {
                self.out.kernel.sys_kernel_dlm = self.value("--sys-kernel-dlm", value)?.into();
            }
            _ => {
                let Some(key) = Key::find(name) else {
                    return Err(format!(
                        "unknown option --{name}; the nearest is --{}",
                        near(name)
                    ));
                };
                let value = self.key_value(key, value)?;
                self.set(key, &value)?;
            }
        }
        Ok(())
    }

    fn short(&mut self, letters: &str) -> Result<(), String> {
        let mut rest = letters.chars();
        while let Some(letter) = rest.next() {
            match letter {
                'h' => self.out.action = Action::Help,
                'V' => self.out.action = Action::Version,
                _ => {
                    let Some(key) = Key::of_letter(letter) else {
                        return Err(format!("unknown option -{letter}; --help lists all"));
                    };
                    let tail = rest.as_str();
                    let digits = tail.starts_with(|c: char| c.is_ascii_digit());
                    let attached = digits || !(tail.is_empty() || key.spec().kind.is_flag());
                    let value = self.key_value(key, attached.then_some(tail))?;
                    self.set(key, &value)?;
                    if attached {
                        return Ok(());
                    }
                }
            }
        }
        Ok(())
    }

    /// The value of a key: attached, else the next word; a flag needs none.
    fn key_value(&mut self, key: Key, attached: Option<&str>) -> Result<String, String> {
        let spec = key.spec();
        if attached.is_none() && spec.kind.is_flag() {
            let next = self.words.get(self.at).filter(|word| matches!(word.as_str(), "0" | "1"));
            self.at += usize::from(next.is_some());
            return Ok(next.cloned().unwrap_or_else(|| "1".to_owned()));
        }
        self.value(&format!("--{}", spec.name), attached)
    }

    fn value(&mut self, option: &str, attached: Option<&str>) -> Result<String, String> {
        let value = attached.or_else(|| self.next());
        value.map(str::to_owned).ok_or_else(|| format!("{option} needs a value"))
    }

    fn set(&mut self, key: Key, value: &str) -> Result<(), String> {
        let spec = key.spec();
        let value = spec.kind.check(value).map_err(|text| format!("--{}: {text}", spec.name))?;
        if matches!(key, Key::Foreground | Key::DaemonDebug) {
            self.foreground |= value == "1";
        }
        self.out.settings.push((key, value));
        Ok(())
    }
}

fn near(name: &str) -> &'static str {
    let others = ["config", "check-config", "daemonize", "help", "version", "list-options"];
    let keys = super::table::KEYS.iter().map(|spec| spec.name);
    super::value::nearest(name, keys.chain(others).chain(["override-kernel-dlm"]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Arguments, String> {
        parse(line.split_whitespace().map(OsString::from))
    }

    fn keys(line: &str) -> Vec<(Key, String)> {
        parsed(line).expect(line).settings
    }

    #[test]
    fn every_key_is_an_option_in_both_forms() {
        for key in Key::ALL {
            let spec = key.spec();
            for form in [format!("--{}=", spec.name), format!("--{} ", spec.name.replace('_', "-"))]
            {
                if spec.default.is_empty() {
                    continue;
                }
                let settings = keys(&format!("dlmd {form}{}", spec.default));
                assert_eq!(settings, [(*key, spec.default.to_owned())], "{form}");
            }
        }
    }

    #[test]
    fn flags_letters_and_bundles_work_as_in_the_original() {
        let own = |list: &[(Key, &str)]| -> Vec<_> {
            list.iter().map(|(key, value)| (*key, (*value).to_owned())).collect()
        };
        let cases: [(&str, &[(Key, &str)]); 8] = [
            ("x --enable_fencing", &[(Key::EnableFencing, "1")]),
            ("x --enable_fencing 0 -K", &[(Key::EnableFencing, "0"), (Key::LogDebug, "1")]),
            ("x -q0", &[(Key::EnableQuorumFencing, "0")]),
            ("x -q 0", &[(Key::EnableQuorumFencing, "0")]),
            ("x -DKP", &[(Key::DaemonDebug, "1"), (Key::LogDebug, "1"), (Key::PlockDebug, "1")]),
            ("x -Kq0", &[(Key::LogDebug, "1"), (Key::EnableQuorumFencing, "0")]),
            ("x -j 5 -R2000", &[(Key::PostJoinDelay, "5"), (Key::Port, "2000")]),
            ("x -rsctp -r 0", &[(Key::Protocol, "sctp"), (Key::Protocol, "tcp")]),
        ];
        for (line, want) in cases {
            assert_eq!(keys(line), own(want), "{line}");
        }
    }

    #[test]
    fn the_originals_name_daemonizes_unless_told_otherwise() {
        let daemonizes = |line| parsed(line).expect("good line").daemonize;
        assert!(daemonizes("/usr/sbin/dlm_controld"));
        assert!(!daemonizes("dlm_controld -D"));
        assert!(!daemonizes("dlm_controld --foreground"));
        assert!(daemonizes("dlm_controld --foreground=0"));
        assert!(!daemonizes("dlmd"));
        assert!(daemonizes("dlmd --daemonize"));
    }

    #[test]
    fn mistakes_say_what_to_do() {
        let cases = [
            ("dlmd --sokcet /x", "unknown option --sokcet; the nearest is --socket"),
            ("dlmd --chek-config", "unknown option --chek-config; the nearest is --check-config"),
            ("dlmd --nodeid", "--nodeid needs a value"),
            ("dlmd --nodeid=0", "--nodeid: '0' is not a number from 1 to 2147483647"),
            ("dlmd --help=1", "--help takes no value"),
            ("dlmd -Z", "unknown option -Z; --help lists all"),
            ("dlmd serve", "'serve' is not an option; dlmd takes options only"),
            ("dlmd -", "'-' is not an option; dlmd takes options only"),
        ];
        for (line, sentence) in cases {
            assert_eq!(parsed(line), Err(sentence.to_owned()), "{line}");
        }
    }

    #[test]
    fn what_is_not_a_key_is_understood() {
        let all =
            parsed("dlmd --config /a --override-kernel-dlm --proc-misc=/p --sys-kernel-dlm /s")
                .expect("good line");
        assert_eq!(all.config, Some("/a".into()));
        assert!(all.override_kernel_dlm && !all.until_stdin_closes);
        assert_eq!(all.kernel, KernelPaths { proc_misc: "/p".into(), sys_kernel_dlm: "/s".into() });
        let actions = [
            ("-h", Action::Help),
            ("--help", Action::Help),
            ("-V", Action::Version),
            ("--check-config", Action::CheckConfig),
            ("--list-options", Action::ListOptions),
            ("-D", Action::Serve),
        ];
        for (option, action) in actions {
            assert_eq!(parsed(&format!("dlmd {option}")).expect(option).action, action);
        }
        let text = help();
        assert!(Key::ALL.iter().all(|key| text.contains(&format!("--{}", key.spec().name))));
    }
}
