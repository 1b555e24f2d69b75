//! `dlm_bench local` and `dlm_bench cluster`: one run, from the first unit to the verdict.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use crate::goals::{Context, Group};
use crate::measure::Plan;
use crate::progress::progress;
use crate::report::{Figure, Verdict};
use crate::sys;
use crate::units::{Bench, Unit, Units};

/// How a run ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    /// Every «must» that was measured is met.
    Met,
    /// At least one is not.
    Missed,
}

/// What a run is to do.
pub(crate) struct Run {
    /// A tenth of everything.
    pub quick: bool,
    /// JSON instead of text.
    pub json: bool,
    /// Sizes of tables of locks, where a goal has several.
    pub sizes: Vec<usize>,
    /// Only these units and goals; empty: all.
    pub only: Vec<String>,
    /// The daemon, if it was told.
    pub dlmd: Option<PathBuf>,
    /// The C library, if it was told.
    pub libdlm: Option<PathBuf>,
    /// All that there is to measure.
    pub groups: &'static [Group],
    /// Units that are measured where no goal was asked for that names them.
    pub units: &'static [Unit],
}

/// Measures, prints, and says whether every «must» is met.
pub(crate) fn run(options: &Run) -> io::Result<Outcome> {
    if cfg!(debug_assertions) {
        progress(format_args!("this is a debug build: its figures say nothing about the product"));
    }
    let cores = sys::allowed_cores()?;
    let core = *cores.first().ok_or_else(|| io::Error::other("no core may be used"))?;
    let other = cores.get(1).copied();
    let bench = Bench { plan: Plan { quick: options.quick }, core, other };
    if bench.other.is_none() {
        progress(format_args!("one core only: what two cores give is skipped"));
    }
    let wanted = |id: &str| options.only.is_empty() || options.only.iter().any(|only| only == id);
    let groups: Vec<_> =
        options.groups.iter().filter(|group| group.ids.iter().any(|id| wanted(id))).collect();
    let asked: Vec<_> = options.units.iter().copied().filter(|unit| wanted(unit.name())).collect();
    let mut units = Units::new(bench);
    let mut printer = Printer { json: options.json, missed: 0 };
    // Units that no goal names are measured at both ends of the run, as the others around their
    // goal.
    let named = |unit: &Unit| groups.iter().any(|group| group.units.contains(unit));
    let alone: Vec<_> = asked.iter().copied().filter(|unit| !named(unit)).collect();
    units.measure(&alone)?;
    run_groups(options, bench, &groups, &mut units, &mut printer, &wanted)?;
    units.measure(&alone)?;
    units.figures().iter().try_for_each(|figure| printer.print(figure))?;
    if printer.missed > 0 {
        progress(format_args!("{} figures miss their «must»", printer.missed));
        return Ok(Outcome::Missed);
    }
    Ok(Outcome::Met)
}

fn run_groups(
    options: &Run,
    bench: Bench,
    groups: &[&Group],
    units: &mut Units,
    printer: &mut Printer,
    wanted: &dyn Fn(&str) -> bool,
) -> io::Result<()> {
    if groups.is_empty() {
        return Ok(());
    }
    let dlmd = find_daemon(options.dlmd.as_deref())?;
    let library = find_library(options.libdlm.as_deref());
    let context = Context { bench, dlmd, library, sizes: options.sizes.clone() };
    for group in groups {
        for figure in group.run(&context, units) {
            let goal = figure.id.split('/').next().unwrap_or_default();
            if wanted(goal) {
                printer.print(&figure)?;
            }
        }
    }
    Ok(())
}

/// Prints figures as they come, and counts misses.
struct Printer {
    json: bool,
    missed: usize,
}

impl Printer {
    fn print(&mut self, figure: &Figure) -> io::Result<()> {
        if matches!(figure.verdict(), Verdict::Missed(_)) {
            self.missed += 1;
        }
        let text = if self.json { figure.json() } else { figure.text() };
        writeln!(io::stdout(), "{text}")
    }
}

/// The daemon: as told, beside this program, or in PATH.
fn find_daemon(told: Option<&Path>) -> io::Result<PathBuf> {
    let missing = |text: String| io::Error::new(io::ErrorKind::NotFound, text);
    if let Some(path) = told {
        return if path.is_file() {
            Ok(path.to_owned())
        } else {
            Err(missing(format!("--dlmd {}: there is no such file", path.display())))
        };
    }
    let mut places: Vec<PathBuf> = beside_this_program().into_iter().collect();
    places.extend(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()));
    let found = places.into_iter().map(|place| place.join("dlmd")).find(|path| path.is_file());
    found.ok_or_else(|| missing(NO_DAEMON.to_owned()))
}

const NO_DAEMON: &str = "dlmd is neither beside dlm_bench nor in PATH; \
    build it (cargo build --release -p dlmd) or give --dlmd PATH";

/// The C library: as told, or beside this program.
fn find_library(told: Option<&Path>) -> Option<PathBuf> {
    if let Some(path) = told {
        return Some(path.to_owned());
    }
    let place = beside_this_program()?;
    ["libdlm_lt.so.3", "libdlm_lt.so"].iter().map(|name| place.join(name)).find(|p| p.is_file())
}

fn beside_this_program() -> Option<PathBuf> {
    std::env::current_exe().ok()?.parent().map(Path::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_daemon_that_is_not_there_is_named() {
        let error = find_daemon(Some(Path::new("/nonexistent/dlmd"))).unwrap_err();
        assert!(error.to_string().contains("/nonexistent/dlmd"));
    }
}
