//! Writes to the user: standard output, lines on standard error. Where nobody reads any more,
//! that is no error.

use std::fmt;
use std::io::{self, Write};

/// Prints to standard output.
pub(crate) fn print(text: fmt::Arguments<'_>) {
    let _ = io::stdout().write_fmt(text);
}

/// Prints a line to standard error.
pub(crate) fn complain(text: fmt::Arguments<'_>) {
    let _ = io::stderr().write_fmt(format_args!("{text}\n"));
}
