//! Reports a test that cannot run here.

use std::io::Write as _;

/// Prints that a test does not run. Bypasses the test harness, which hides the output of passing
/// tests.
pub(crate) fn not_run(test: &str, why: &str) {
    let _ = writeln!(std::io::stderr(), "NOT RUN: {test}: {why}");
}
