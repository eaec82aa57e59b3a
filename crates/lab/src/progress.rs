//! A progress bar on standard error.
//!
//! There is no bar if standard error is not a terminal (a pipe, a log, CI).

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::{IsTerminal, Write};

/// Counts the cases of a run. Cleared on drop.
pub(crate) struct Progress(ProgressBar);

impl Progress {
    /// A bar for `total` cases.
    pub(crate) fn new(total: usize) -> Self {
        let target = if std::io::stderr().is_terminal() {
            ProgressDrawTarget::stderr()
        } else {
            ProgressDrawTarget::hidden()
        };
        let style = ProgressStyle::with_template("{bar:24} {pos}/{len}, {eta} left  {wide_msg}")
            .expect("the template is a constant");
        let bar = ProgressBar::with_draw_target(Some(total as u64), target).with_style(style);
        Self(bar)
    }

    /// Shows the name of the case that starts.
    pub(crate) fn start(&self, name: &str) {
        self.0.set_message(name.to_owned());
    }

    /// Counts one finished case.
    pub(crate) fn finish_one(&self) {
        self.0.inc(1);
    }

    /// Hides the bar while `print` runs.
    pub(crate) fn suspend(&self, print: impl FnOnce()) {
        self.0.suspend(print);
    }

    /// Prints a line above the bar, or a plain line without a bar.
    pub(crate) fn note(&self, line: &str) {
        if self.0.is_hidden() {
            note(line);
        } else {
            self.0.println(line);
        }
    }
}

/// Prints a line to standard error. Ignores errors: nobody may be reading it.
pub(crate) fn note(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
