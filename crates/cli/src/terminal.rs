//! Writes to the user: standard output, lines on standard error, a status line while something
//! runs. Where nobody reads any more, that is no error.

use std::fmt;
use std::io::{self, IsTerminal, Write};
use std::sync::{Mutex, PoisonError};

/// What puts the terminal back as it was, while a live table has it.
static PUT_BACK: Mutex<Option<fn()>> = Mutex::new(None);

/// Says what puts the terminal back as it was.
#[cfg(any(feature = "gateway", feature = "peers"))]
pub(crate) fn set_put_back(put_back: Option<fn()>) {
    *PUT_BACK.lock().unwrap_or_else(PoisonError::into_inner) = put_back;
}

/// Puts the terminal back as it was, if something has changed it. Also for an exit that drops
/// nothing.
pub(crate) fn put_back() {
    let put_back = PUT_BACK
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .take();
    if let Some(put_back) = put_back {
        put_back();
    }
}

/// Prints to standard output.
pub(crate) fn print(text: fmt::Arguments<'_>) {
    let _ = io::stdout().write_fmt(text);
}

/// Prints a line to standard error.
pub(crate) fn complain(text: fmt::Arguments<'_>) {
    let _ = io::stderr().write_fmt(format_args!("{text}\n"));
}

/// A status line on standard error. Shows nothing if standard error is not a terminal.
pub(crate) struct Status {
    visible: bool,
}

impl Status {
    pub(crate) fn new() -> Self {
        Self {
            visible: io::stderr().is_terminal(),
        }
    }

    /// For concurrent connections, whose lines would overwrite each other.
    pub(crate) fn hidden() -> Self {
        Self { visible: false }
    }

    /// Replaces the line by `text`.
    pub(crate) fn show(&self, text: &str) {
        if self.visible {
            // Return to the start of the line and clear it.
            let _ = write!(io::stderr(), "\r\x1b[K{text}");
        }
    }

    /// Clears the line.
    pub(crate) fn clear(&self) {
        self.show("");
    }
}

impl Drop for Status {
    fn drop(&mut self) {
        self.clear();
    }
}
