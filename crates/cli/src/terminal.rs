//! Output to the user: standard output, lines on standard error, and a status line.
//!
//! All commands print through [`print()`] or [`print_with`]. Once standard output fails, nothing
//! more is written to it. A closed pipe is not an error. Any other failure, such as a full disk, is
//! reported once on one line, and [`finish`] returns it for the exit status.

use crate::sync::lock;
use std::fmt;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::sync::Mutex;

/// State of standard output.
static OUTPUT: Mutex<Output> = Mutex::new(Output::Open);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Output {
    Open,
    /// The reader has closed the pipe.
    Closed,
    /// Output was lost, and the user has been told.
    Failed,
}

/// Restores the terminal while a live table is shown.
static RESTORE: Mutex<Option<fn()>> = Mutex::new(None);

/// Sets the function that restores the terminal.
#[cfg(any(feature = "gateway", feature = "peers"))]
pub(crate) fn set_restore(restore: Option<fn()>) {
    *lock(&RESTORE) = restore;
}

/// Restores the terminal, if something has changed it. Needed before an exit that drops nothing.
pub(crate) fn restore() {
    let restore = lock(&RESTORE).take();
    if let Some(restore) = restore {
        restore();
    }
}

/// Prints to standard output.
pub(crate) fn print(text: fmt::Arguments<'_>) {
    print_with(|out| out.write_fmt(text));
}

/// Prints to standard output what `write` writes.
pub(crate) fn print_with(write: impl FnOnce(&mut dyn Write) -> io::Result<()>) {
    output(|| {
        let mut out = BufWriter::new(io::stdout().lock());
        write(&mut out)?;
        out.flush()
    });
}

/// Runs a write to standard output, unless an earlier one failed.
pub(crate) fn output(write: impl FnOnce() -> io::Result<()>) {
    let mut output = lock(&OUTPUT);
    if *output != Output::Open {
        return;
    }
    if let Err(error) = write() {
        *output = match error.kind() {
            io::ErrorKind::BrokenPipe => Output::Closed,
            _ => {
                complain(format_args!(
                    "error: cannot write to standard output: {error}"
                ));
                Output::Failed
            }
        };
    }
}

/// Whether standard output still works.
#[cfg(feature = "peers")]
pub(crate) fn can_print() -> bool {
    *lock(&OUTPUT) == Output::Open
}

/// Flushes standard output. Returns false if any output was lost; a closed pipe is fine.
pub(crate) fn finish() -> bool {
    output(|| io::stdout().flush());
    *lock(&OUTPUT) != Output::Failed
}

/// The error for an address that cannot be listened on.
pub(crate) fn cannot_listen(address: impl fmt::Display, error: &io::Error) -> String {
    let hint = match error.kind() {
        io::ErrorKind::AddrInUse => "; another process listens there",
        _ => "",
    };
    format!("cannot listen on {address}: {error}{hint}")
}

/// Prints a line to standard error.
pub(crate) fn complain(text: fmt::Arguments<'_>) {
    let _ = io::stderr().write_fmt(format_args!("{text}\n"));
}

/// A status line on standard error; shown only on a terminal.
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
