//! One line on standard error for each step that takes a while.

use std::fmt::Arguments;
use std::io::Write as _;

/// Says what is being measured now. Silence on a broken standard error harms nobody.
pub(crate) fn progress(step: Arguments<'_>) {
    let _ = writeln!(std::io::stderr(), "dlm_bench: {step}");
}
