//! Configuration: one table of keys ([`table`]), one file format ([`mod@file`]), the command line
//! ([`args`]), and [`Settings`], which keeps for every key what each of the four sources says.
//!
//! Priority: changed at run time > command line > dlm.conf > default (libdlm-abi.md 5.3).

pub mod args;
pub mod file;
pub mod places;
pub mod table;
pub mod value;

use std::path::{Path, PathBuf};

use file::{File, Mistake};
use table::Key;

/// The configuration file where none is named.
pub const DEFAULT_FILE: &str = "/etc/dlm/dlm.conf";

/// Why the configuration cannot be used: sentences, each with the place where it applies.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// A named file cannot be read.
    #[error("cannot read {}: {error}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// Mistakes in the file.
    #[error("{}", told(path, mistakes))]
    Mistakes {
        /// The file.
        path: PathBuf,
        /// Each with its line.
        mistakes: Vec<Mistake>,
    },
}

fn told(path: &Path, mistakes: &[Mistake]) -> String {
    let line = |m: &Mistake| format!("{}:{}: {}", path.display(), m.line, m.sentence);
    mistakes.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// Why a key was not changed at run time.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ChangeError {
    /// No such key.
    #[error("unknown key '{0}'; the nearest is '{1}'")]
    Unknown(String, &'static str),
    /// The key is fixed at start.
    #[error("{0} cannot change while the daemon runs; set it in dlm.conf and restart")]
    Fixed(&'static str),
    /// A bad value.
    #[error("{0}: {1}")]
    Value(&'static str, String),
}

/// Where a value comes from.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Source {
    /// Nobody gave one.
    Default,
    /// The cluster engine's own configuration.
    Cluster,
    /// The file.
    File,
    /// The command line.
    CommandLine,
    /// A change at run time.
    Changed,
}

impl Source {
    /// The words of configuration listings; nothing for a default.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Default => "",
            Self::Cluster => "corosync",
            Self::File => "dlm.conf",
            Self::CommandLine => "cli option",
            Self::Changed => "set_config",
        }
    }
}

/// What the sources say about one key.
#[derive(Clone, Default, Debug)]
struct Layers {
    /// What the cluster below says, in place of the default.
    cluster: Option<String>,
    file: Option<String>,
    command_line: Option<String>,
    changed: Option<String>,
}

/// All keys with their values.
#[derive(Clone, Debug)]
pub struct Settings {
    layers: Vec<Layers>,
    path: Option<PathBuf>,
    file: File,
}

impl Default for Settings {
    fn default() -> Self {
        let layers = vec![Layers::default(); Key::ALL.len()];
        Self { layers, path: None, file: File::default() }
    }
}

impl Settings {
    /// Reads `file`, or the default file if there is one, and lays the command line's values over it.
    pub fn load(file: Option<&Path>, command_line: &[(Key, String)]) -> Result<Self, ConfigError> {
        let mut settings = Self::default();
        for (key, value) in command_line {
            settings.layers[*key as usize].command_line = Some(value.clone());
        }
        settings.path = match file {
            Some(path) => Some(path.to_owned()),
            None => Path::new(DEFAULT_FILE).exists().then(|| DEFAULT_FILE.into()),
        };
        let read = settings.read_file()?;
        settings.lay_file(read, |_| true);
        Ok(settings)
    }

    /// Reads the file again; only keys that may change at run time follow it. Returns the names of
    /// keys whose new value needs a restart. On an error nothing changes.
    pub fn reload(&mut self) -> Result<Vec<&'static str>, ConfigError> {
        let read = self.read_file()?;
        let before = self.clone();
        self.lay_file(read.clone(), |key| key.spec().runtime);
        let mut wanted = before;
        wanted.lay_file(read, |_| true);
        let differs = |key: &&Key| wanted.text(**key) != self.text(**key);
        Ok(Key::ALL.iter().filter(differs).map(|key| key.spec().name).collect())
    }

    fn read_file(&self) -> Result<File, ConfigError> {
        let Some(path) = &self.path else {
            return Ok(File::default());
        };
        let unreadable = |error| ConfigError::Unreadable { path: path.clone(), error };
        let bytes = std::fs::read(path).map_err(unreadable)?;
        file::parse(&String::from_utf8_lossy(&bytes))
            .map_err(|mistakes| ConfigError::Mistakes { path: path.clone(), mistakes })
    }

    fn lay_file(&mut self, file: File, follows: impl Fn(Key) -> bool) {
        for key in Key::ALL.iter().filter(|key| follows(**key)) {
            let said = file.settings.iter().find(|(other, _)| other == key);
            self.layers[*key as usize].file = said.map(|(_, value)| value.clone());
        }
        self.file = file;
    }

    /// The file that was read.
    pub fn file_path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// The sections of the file.
    pub fn sections(&self) -> &File {
        &self.file
    }

    /// Changes a key by name at run time; the value `restore` takes an earlier change back, and the
    /// name `restore_all` takes back all of them.
    pub fn change(&mut self, name: &str, value: &str) -> Result<(), ChangeError> {
        if name == "restore_all" {
            self.layers.iter_mut().for_each(|layers| layers.changed = None);
            return Ok(());
        }
        let unknown = || ChangeError::Unknown(name.to_owned(), Key::nearest(name));
        let key = Key::find(name).ok_or_else(unknown)?;
        let spec = key.spec();
        if !spec.runtime {
            return Err(ChangeError::Fixed(spec.name));
        }
        self.layers[key as usize].changed = match value {
            "restore" => None,
            value => {
                Some(spec.kind.check(value).map_err(|text| ChangeError::Value(spec.name, text))?)
            }
        };
        Ok(())
    }

    /// A value that the cluster below gives a key, which counts where nobody else gives one.
    ///
    /// # Errors
    /// The key does not take such a value.
    pub fn adopt(&mut self, key: Key, value: &str) -> Result<(), String> {
        let spec = key.spec();
        let value = spec.kind.check(value).map_err(|text| format!("{}: {text}", spec.name))?;
        self.layers[key as usize].cluster = Some(value);
        Ok(())
    }

    /// A key's value and its source.
    pub fn value(&self, key: Key) -> (&str, Source) {
        let layers = &self.layers[key as usize];
        let sources = [
            (&layers.changed, Source::Changed),
            (&layers.command_line, Source::CommandLine),
            (&layers.file, Source::File),
            (&layers.cluster, Source::Cluster),
        ];
        let given =
            sources.into_iter().find_map(|(value, source)| Some((value.as_deref()?, source)));
        given.unwrap_or((key.spec().default, Source::Default))
    }

    /// A key's value as text.
    pub fn text(&self, key: Key) -> &str {
        self.value(key).0
    }

    /// A number; every value was checked when it came in.
    pub fn number(&self, key: Key) -> u64 {
        value::decimal(self.text(key)).expect("the key's kind is a number")
    }

    /// A number that the table keeps within 32 bits.
    pub fn small(&self, key: Key) -> u32 {
        u32::try_from(self.number(key)).expect("the key's range ends at 32 bits")
    }

    /// A flag.
    pub fn flag(&self, key: Key) -> bool {
        self.text(key) == "1"
    }

    /// A span of time in nanoseconds; `None` where it is `none`.
    pub fn nanos(&self, key: Key) -> Option<u64> {
        value::milliseconds(self.text(key)).map(|millis| millis * 1_000_000)
    }

    /// Permission bits.
    pub fn octal(&self, key: Key) -> u32 {
        value::octal(self.text(key)).expect("the key's kind is octal")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn temp_file(name: &str, text: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("dlm-conf-{name}-{}", std::process::id()));
        std::fs::write(&path, text).expect("a file in the temporary directory");
        path
    }

    #[test]
    fn changed_beats_command_line_beats_file_beats_default() {
        let path = temp_file("layers", "clients_max=5\nlockspaces_max=6\nlog=warn\n");
        let line = [(Key::ClientsMax, "7".to_owned()), (Key::NodeId, "9".to_owned())];
        let mut settings = Settings::load(Some(&path), &line).expect("good file");
        assert_eq!(settings.value(Key::ClientsMax), ("7", Source::CommandLine));
        assert_eq!(settings.value(Key::LockspacesMax), ("6", Source::File));
        assert_eq!(settings.value(Key::NodeId), ("9", Source::CommandLine));
        assert_eq!(settings.value(Key::Create), ("admin", Source::Default));
        settings.change("clients_max", "8").expect("may change");
        settings.change("log", "debug").expect("may change");
        assert_eq!(settings.value(Key::ClientsMax), ("8", Source::Changed));
        assert_eq!((settings.number(Key::ClientsMax), settings.text(Key::Log)), (8, "debug"));
        settings.change("clients_max", "restore").expect("may be restored");
        assert_eq!(settings.value(Key::ClientsMax), ("7", Source::CommandLine));
        settings.change("restore_all", "").expect("may be restored");
        assert_eq!(settings.value(Key::Log), ("warn", Source::File));
        settings.adopt(Key::NodeId, "3").expect("a number");
        settings.adopt(Key::ClusterName, "c").expect("a name");
        assert!(settings.adopt(Key::NodeId, "x").is_err());
        assert_eq!(settings.value(Key::NodeId), ("9", Source::CommandLine));
        assert_eq!(settings.value(Key::ClusterName), ("c", Source::Cluster));
        std::fs::remove_file(path).expect("the file is there");
    }

    #[test]
    fn a_change_is_checked() {
        let mut settings = Settings::default();
        let told = |result: Result<(), ChangeError>| result.expect_err("refused").to_string();
        assert_eq!(
            told(settings.change("nodid", "2")),
            "unknown key 'nodid'; the nearest is 'nodeid'"
        );
        assert!(
            told(settings.change("nodeid", "2")).contains("cannot change while the daemon runs")
        );
        assert_eq!(
            told(settings.change("log", "loud")),
            "log: 'loud' is not one of error, warn, info, debug, trace"
        );
    }

    #[test]
    fn reload_follows_only_what_may_change() {
        let path = temp_file("reload", "clients_max=5\nnodeid=2\n");
        let mut settings = Settings::load(Some(&path), &[]).expect("good file");
        std::fs::write(&path, "clients_max=6\nnodeid=3\n").expect("writable");
        assert_eq!(settings.reload().expect("good file"), ["nodeid"]);
        assert_eq!((settings.number(Key::ClientsMax), settings.number(Key::NodeId)), (6, 2));
        std::fs::write(&path, "clients_max=x\n").expect("writable");
        let error = settings.reload().expect_err("bad file").to_string();
        assert!(
            error.ends_with(":1: clients_max: 'x' is not a number from 1 to 1000000"),
            "{error}"
        );
        assert_eq!(settings.number(Key::ClientsMax), 6, "nothing changed");
        std::fs::remove_file(path).expect("the file is there");
        assert!(matches!(settings.reload(), Err(ConfigError::Unreadable { .. })));
    }
}
