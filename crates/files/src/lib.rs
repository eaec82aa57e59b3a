//! Files: what may be read, how files are written, also by root, and how their names are printed.
//!
//! A folder may belong to others, and a name in it may be a trap: a FIFO that nobody writes to, a
//! symbolic link to a file that only root can write, escape sequences for the terminal.

mod folder;

pub use folder::Folder;
use std::fmt::{self, Write as _};
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use tempfile::{NamedTempFile, PersistError};

/// What is there, if it is not a regular file: "a folder", "a FIFO".
#[must_use]
pub fn special_kind(metadata: &Metadata) -> Option<&'static str> {
    let kind = metadata.file_type();
    if kind.is_file() {
        return None;
    }
    if kind.is_dir() {
        return Some("a folder");
    }
    if kind.is_symlink() {
        return Some("a symbolic link");
    }
    #[cfg(unix)]
    {
        use std::os::unix::fs::FileTypeExt;
        if kind.is_fifo() {
            return Some("a FIFO");
        }
        if kind.is_socket() {
            return Some("a socket");
        }
        if kind.is_char_device() || kind.is_block_device() {
            return Some("a device");
        }
    }
    Some("no file")
}

/// Opens a regular file for reading. Follows symbolic links. Never blocks.
///
/// # Errors
///
/// If there is something else at `path`, with [`special_kind`] as text; otherwise as [`File::open`].
pub fn open(path: &Path) -> io::Result<File> {
    let regular = |metadata: &Metadata| match special_kind(metadata) {
        None => Ok(()),
        Some(kind) => Err(io::Error::other(format!("it is {kind}, not a file"))),
    };
    // To open a device may have effects.
    regular(&fs::metadata(path)?)?;
    let file = open_without_waiting(OpenOptions::new().read(true), path)?;
    // It may have been replaced since.
    regular(&file.metadata()?)?;
    Ok(file)
}

/// Reads a text that a user has named: of a file, or of a pipe, which it waits for.
///
/// # Errors
///
/// If it cannot be read, is no UTF-8, or is longer than 64 MiB.
pub fn read_text(path: &Path) -> io::Result<String> {
    const MAX_LEN: u64 = 64 << 20;
    let mut text = String::new();
    File::open(path)?
        .take(MAX_LEN + 1)
        .read_to_string(&mut text)?;
    match text.len() as u64 > MAX_LEN {
        true => Err(io::Error::other("it is longer than 64 MiB")),
        false => Ok(text),
    }
}

/// Without `O_NONBLOCK`, to open a FIFO waits for its other end.
fn open_without_waiting(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    #[cfg(unix)]
    {
        use rustix::fs::OFlags;
        use std::os::unix::fs::OpenOptionsExt;
        options.custom_flags((OFlags::NONBLOCK | OFlags::NOCTTY).bits().cast_signed());
    }
    options.open(path)
}

/// A file being written. It appears at its path, or replaces the file there, only when complete: the
/// folder must be writable. A replaced file's permissions are kept if it has the same owner.
///
/// Symbolic links are replaced, not followed, and so are hard links: no other file changes. Exceptions,
/// opened and written directly: devices, FIFOs, and links to open files such as `/dev/stdout`.
#[derive(Debug)]
pub struct Output {
    path: PathBuf,
    /// None if what is at `path` is written to as it is.
    whole: Option<NamedTempFile>,
}

impl Output {
    /// Makes an empty file with a name that cannot be guessed in the folder of `path`, unless
    /// there is a device or a FIFO at `path`. If it is dropped, nothing is left of it.
    ///
    /// # Errors
    ///
    /// If there is a folder at `path`, or a file or device that cannot be written, or no file can be made
    /// beside it.
    pub fn create(path: &Path) -> io::Result<Self> {
        if path.is_dir() {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        let there = match fs::symlink_metadata(path) {
            Ok(metadata) => Some(metadata),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        let is_replaced = |there: &Metadata| match there.is_symlink() {
            true => !is_open_file(path),
            false => there.is_file(),
        };
        let whole = match &there {
            Some(there) if !is_replaced(there) => {
                // Not a FIFO: that would wait for its other end, now and again when it is written.
                if special_kind(&fs::metadata(path)?) != Some("a FIFO") {
                    OpenOptions::new().append(true).open(path)?;
                }
                None
            }
            there => {
                let file = temporary(path)?;
                if let Some(there) = there.as_ref().filter(|there| there.is_file()) {
                    keep_permissions(there, file.as_file())?;
                }
                Some(file)
            }
        };
        Ok(Self {
            path: path.to_owned(),
            whole,
        })
    }

    /// Writes all of `contents`.
    ///
    /// # Errors
    ///
    /// If they cannot be written. What was at the path before stays as it was, unless it is a
    /// device or a FIFO.
    pub fn write(self, contents: &[u8]) -> io::Result<()> {
        match self.whole {
            Some(mut file) => {
                file.as_file_mut().write_all(contents)?;
                match file.persist(&self.path) {
                    Ok(_) => Ok(()),
                    // What it holds may have taken minutes to make.
                    Err(PersistError { error, file }) => Err(match file.keep() {
                        Ok((_, kept)) => {
                            io::Error::other(format!("{error}; it is in {}", Name(&kept)))
                        }
                        Err(_) => error,
                    }),
                }
            }
            // Waits for a FIFO's other end, which the user has named. Append: standard output may be a
            // file with content.
            None => OpenOptions::new()
                .append(true)
                .open(&self.path)?
                .write_all(contents),
        }
    }
}

/// Writes a file: see [`Output`].
///
/// # Errors
///
/// As for [`Output::create`] and [`Output::write`].
pub fn write(path: &Path, contents: impl AsRef<[u8]>) -> io::Result<()> {
    Output::create(path)?.write(contents.as_ref())
}

/// Whether the system has this link for an open file. Nobody else makes links there.
fn is_open_file(path: &Path) -> bool {
    let Ok(path) = std::path::absolute(path) else {
        return false;
    };
    let folder = path.parent().unwrap_or(Path::new("/"));
    let parts: Vec<_> = folder.iter().collect();
    // Others below /proc lead into folders that belong to others.
    let is_of_process = matches!(parts[..], [_, proc, _, fd] if proc == "proc" && fd == "fd");
    folder == Path::new("/dev") || folder == Path::new("/dev/fd") || is_of_process
}

/// Gives `file` the permissions of `there`, which it is to replace, if both have one owner.
///
/// # Errors
///
/// If `there` is read-only for its owner.
#[cfg(unix)]
fn keep_permissions(there: &Metadata, file: &File) -> io::Result<()> {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    if there.uid() != file.metadata()?.uid() {
        return Ok(());
    }
    if there.mode() & 0o200 == 0 {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    file.set_permissions(fs::Permissions::from_mode(there.mode() & 0o777))
}

#[cfg(not(unix))]
fn keep_permissions(_: &Metadata, _: &File) -> io::Result<()> {
    Ok(())
}

/// Makes an empty hidden file beside `path`, under a name that cannot be guessed.
///
/// # Errors
///
/// If it cannot be made.
fn temporary(path: &Path) -> io::Result<NamedTempFile> {
    let folder = match path.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    };
    let mut builder = tempfile::Builder::new();
    builder.prefix(".packetlane-").suffix(".unfinished");
    // The library would set mode 600; so the umask decides.
    builder.make_in(folder, |path| File::create_new(path))
}

/// A path for a terminal or a log: quotes, backslashes and whatever cannot be printed are escaped.
#[derive(Clone, Copy, Debug)]
pub struct Name<'p>(pub &'p Path);

impl fmt::Display for Name<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let quoted = format!("{:?}", self.0);
        f.write_str(&quoted[1..quoted.len() - 1])
    }
}

/// Text of others for a terminal or a log: whatever cannot be printed is escaped, as are
/// characters that change the direction of the text or have no width.
#[must_use]
pub fn printable(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '\'' | '"' | '\\' => shown.push(letter),
            // Cannot fail: a String takes all.
            _ => _ = write!(shown, "{}", letter.escape_debug()),
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder that is removed on drop.
    fn folder() -> tempfile::TempDir {
        tempfile::tempdir().expect("a folder")
    }

    #[test]
    fn names_and_text_control_no_terminal() {
        let evil = "M\u{fc}ller \u{1b}[2K\r\n\u{7f}\u{9b}\u{202e}\u{2066}\u{200b}\u{feff}";
        for shown in [Name(Path::new(evil)).to_string(), printable(evil)] {
            assert_eq!(
                shown,
                "M\u{fc}ller \\u{1b}[2K\\r\\n\\u{7f}\\u{9b}\\u{202e}\\u{2066}\\u{200b}\\u{feff}"
            );
        }
        assert_eq!(printable(r#"it's "a\b""#), r#"it's "a\b""#);
        // Unicode's Bidi_Control.
        for control in "\u{61c}\u{200e}\u{200f}\u{202a}\u{202d}\u{202e}\u{2066}\u{2069}".chars() {
            assert_eq!(
                printable(&control.to_string()),
                control.escape_unicode().to_string()
            );
        }
        // A name that looks escaped is not the same as one that is.
        assert_eq!(Name(Path::new(r"a\nb")).to_string(), r"a\\nb");
    }

    #[cfg(unix)]
    fn fifo(path: &Path) {
        let status = std::process::Command::new("mkfifo").arg(path).status();
        assert!(status.expect("mkfifo").success());
    }

    #[cfg(unix)]
    #[test]
    fn only_regular_files_are_opened() {
        let folder = folder();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("file"), "text").expect("written");
        std::os::unix::fs::symlink(at("file"), at("link")).expect("a link");
        assert!(open(&at("file")).is_ok() && open(&at("link")).is_ok());
        fifo(&at("fifo"));
        std::os::unix::fs::symlink(at("fifo"), at("to-fifo")).expect("a link");
        let _socket = std::os::unix::net::UnixListener::bind(at("socket")).expect("a socket");
        for (path, what) in [
            (at("fifo"), "a FIFO"),
            (at("to-fifo"), "a FIFO"),
            (at("socket"), "a socket"),
            (folder.path().to_owned(), "a folder"),
            ("/dev/null".into(), "a device"),
        ] {
            let error = open(&path).expect_err(what).to_string();
            assert_eq!(error, format!("it is {what}, not a file"));
        }
    }

    #[test]
    fn text_has_a_limit() {
        let file = folder();
        let file = file.path().join("sparse");
        File::create(&file)
            .and_then(|file| file.set_len(1 << 40))
            .expect("made");
        assert!(read_text(&file).is_err());
        fs::write(&file, "text").expect("written");
        assert_eq!(read_text(&file).expect("read"), "text");
    }

    #[cfg(unix)]
    #[test]
    fn a_planted_link_is_replaced_and_its_target_stays() {
        use std::os::unix::fs::{PermissionsExt, symlink};
        let folder = folder();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("target"), "precious").expect("written");
        symlink(at("target"), at("link")).expect("a link");
        symlink(at("nowhere"), at("dangling")).expect("a link");
        symlink("/dev/full", at("device")).expect("a link");
        fs::hard_link(at("target"), at("hard")).expect("a link");
        for name in ["link", "dangling", "device", "hard", "new"] {
            write(&at(name), "ours").expect("written");
            assert_eq!(fs::read(at(name)).expect("a file"), b"ours");
            let metadata = fs::symlink_metadata(at(name)).expect("a file");
            assert!(metadata.is_file(), "{name}");
            assert_eq!(metadata.permissions().mode() & 0o111, 0);
        }
        assert_eq!(fs::read(at("target")).expect("a file"), b"precious");
        assert!(!at("nowhere").exists());
        // A file of the same owner keeps its permissions.
        fs::set_permissions(at("new"), fs::Permissions::from_mode(0o600)).expect("set");
        write(&at("new"), "again").expect("written");
        let mode = fs::metadata(at("new"))
            .expect("a file")
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o600);
        fs::set_permissions(at("new"), fs::Permissions::from_mode(0o400)).expect("set");
        assert!(write(&at("new"), "read-only").is_err());
        symlink(folder.path(), at("folder")).expect("a link");
        assert!(write(&at("folder"), "ours").is_err());
        fs::remove_file(at("folder")).expect("removed");
        // What fails, or is given up, leaves nothing.
        drop(Output::create(&at("given-up")).expect("made"));
        assert!(write(folder.path(), "ours").is_err());
        let error = write(&at("absent/file"), "ours").expect_err("no folder");
        assert_eq!(error.to_string(), "No such file or directory (os error 2)");
        assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 6);
    }

    #[cfg(unix)]
    #[test]
    fn devices_and_fifos_are_written_to() {
        let folder = folder();
        let path = folder.path().join("fifo");
        fifo(&path);
        let reader = std::thread::spawn({
            let path = path.clone();
            move || fs::read(path)
        });
        write(&path, "ours").expect("written");
        assert_eq!(reader.join().expect("a reader").expect("read"), b"ours");
        write(Path::new("/dev/null"), "ours").expect("written");
        assert!(write(Path::new("/dev/full"), "ours").is_err());
        assert!(is_open_file(Path::new("/dev/stdout")) && is_open_file(Path::new("/dev/fd/1")));
        assert!(is_open_file(Path::new("/proc/self/fd/1")));
        for path in [
            "/dev/shm/r.json",
            "/proc/self/cwd/r.json",
            "/proc/../tmp/fd/r.json",
        ] {
            assert!(!is_open_file(Path::new(path)), "{path}");
        }
        assert!(!is_open_file(&path));
    }
}
