//! Safe file access, also for programs that run as root: which files to read, how to write files,
//! how many to open, and how to print file names.
//!
//! A folder may belong to another user, and a name in it may be a trap: a FIFO without a writer, a
//! symbolic link to a file that only root can write, or escape sequences for the terminal.

mod folder;

pub use folder::Folder;
use std::fmt::{self, Write as _};
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use tempfile::{NamedTempFile, PersistError};

/// Raises the limit on open files of this process to `wanted`, or as far as allowed, and returns it.
#[cfg(unix)]
pub fn raise_file_limit(wanted: u64) -> u64 {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let now = getrlimit(Resource::Nofile);
    let least = now.maximum.map_or(wanted, |maximum| maximum.min(wanted));
    if now.current.is_some_and(|current| current < wanted) {
        // Only root may raise the maximum.
        for (current, maximum) in [
            (wanted, now.maximum.map(|maximum| maximum.max(wanted))),
            (least, now.maximum),
        ] {
            let current = Some(current);
            if setrlimit(Resource::Nofile, Rlimit { current, maximum }).is_ok() {
                break;
            }
            // If both fail, the old limit stays.
        }
    }
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// The kind of a file that is not regular, for example "a folder" or "a FIFO".
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
/// If `path` is not a regular file: the error names its [`special_kind`]. Otherwise like
/// [`File::open`].
pub fn open(path: &Path) -> io::Result<File> {
    let regular = |metadata: &Metadata| match special_kind(metadata) {
        None => Ok(()),
        Some(kind) => Err(io::Error::other(format!("it is {kind}, not a file"))),
    };
    // Check before opening: opening a device may have side effects.
    regular(&fs::metadata(path)?)?;
    let file = open_without_waiting(OpenOptions::new().read(true), path)?;
    // Check again: the file may have been replaced in between.
    regular(&file.metadata()?)?;
    Ok(file)
}

/// Reads text from a file that the user has named, or from a pipe, for which it waits.
///
/// # Errors
///
/// If it cannot be read, is not UTF-8, or is longer than 64 MiB.
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

/// Sets `O_NONBLOCK`, so that opening a FIFO does not wait for its other end.
fn open_without_waiting(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    #[cfg(unix)]
    {
        use rustix::fs::OFlags;
        use std::os::unix::fs::OpenOptionsExt;
        options.custom_flags((OFlags::NONBLOCK | OFlags::NOCTTY).bits().cast_signed());
    }
    options.open(path)
}

/// A file being written. It appears at its path, or replaces the file there, only when complete.
/// The folder must be writable. A replaced file's permissions are kept if it has the same owner.
///
/// Symbolic and hard links are replaced, not followed: no other file changes. Devices, FIFOs, and
/// links to open files such as `/dev/stdout` are opened and written directly.
#[derive(Debug)]
pub struct Output {
    path: PathBuf,
    /// `None` if the target is written directly.
    whole: Option<NamedTempFile>,
}

impl Output {
    /// Creates an empty temporary file with an unpredictable name in the folder of `path`, unless
    /// `path` is a device or a FIFO. It is removed on drop.
    ///
    /// # Errors
    ///
    /// If `path` is a folder, or a file or device that cannot be written, or if no file can be
    /// created next to it.
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
                // Not for a FIFO: it would wait for the other end, now and again when writing.
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
    /// If they cannot be written. A previous file at the path then stays unchanged, unless it is a
    /// device or a FIFO.
    pub fn write(self, contents: &[u8]) -> io::Result<()> {
        match self.whole {
            Some(mut file) => {
                file.as_file_mut().write_all(contents)?;
                match file.persist(&self.path) {
                    Ok(_) => Ok(()),
                    // Keep the temporary file: its contents may have taken minutes to compute.
                    Err(PersistError { error, file }) => Err(match file.keep() {
                        Ok((_, kept)) => {
                            io::Error::other(format!("{error}; the output is in {}", Name(&kept)))
                        }
                        Err(_) => error,
                    }),
                }
            }
            // Waits for the other end of a FIFO that the user has named. Append, because standard
            // output may be a file with content.
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
/// Like [`Output::create`] and [`Output::write`].
pub fn write(path: &Path, contents: impl AsRef<[u8]>) -> io::Result<()> {
    Output::create(path)?.write(contents.as_ref())
}

/// Whether this is the system's link to an open file. Only the system creates links there.
fn is_open_file(path: &Path) -> bool {
    let Ok(path) = std::path::absolute(path) else {
        return false;
    };
    let folder = path.parent().unwrap_or(Path::new("/"));
    let parts: Vec<_> = folder.iter().collect();
    // Other links in /proc lead into folders that may belong to others.
    let is_of_process = matches!(parts[..], [_, proc, _, fd] if proc == "proc" && fd == "fd");
    folder == Path::new("/dev") || folder == Path::new("/dev/fd") || is_of_process
}

/// Gives `file` the permissions of `there`, which it will replace, if both have the same owner.
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

/// Creates an empty hidden file next to `path`, with an unpredictable name.
///
/// # Errors
///
/// If it cannot be created.
fn temporary(path: &Path) -> io::Result<NamedTempFile> {
    let folder = match path.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    };
    let mut builder = tempfile::Builder::new();
    builder.prefix(".packetlane-").suffix(".unfinished");
    // The umask decides; the library's default is mode 600.
    builder.make_in(folder, |path| File::create_new(path))
}

/// Displays a path for a terminal or a log: escapes quotes, backslashes and unprintable characters.
#[derive(Clone, Copy, Debug)]
pub struct Name<'p>(pub &'p Path);

impl fmt::Display for Name<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let quoted = format!("{:?}", self.0);
        f.write_str(&quoted[1..quoted.len() - 1])
    }
}

/// Escapes untrusted text for a terminal or a log: unprintable characters, and those that change
/// the text direction or have no width.
#[must_use]
pub fn printable(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '\'' | '"' | '\\' => shown.push(letter),
            // Writing to a String cannot fail.
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
    fn names_and_text_cannot_control_the_terminal() {
        let evil = "M\u{fc}ller \u{1b}[2K\r\n\u{7f}\u{9b}\u{202e}\u{2066}\u{200b}\u{feff}";
        for shown in [Name(Path::new(evil)).to_string(), printable(evil)] {
            assert_eq!(
                shown,
                "M\u{fc}ller \\u{1b}[2K\\r\\n\\u{7f}\\u{9b}\\u{202e}\\u{2066}\\u{200b}\\u{feff}"
            );
        }
        assert_eq!(printable(r#"it's "a\b""#), r#"it's "a\b""#);
        // Unicode's Bidi_Control characters.
        for control in "\u{61c}\u{200e}\u{200f}\u{202a}\u{202d}\u{202e}\u{2066}\u{2069}".chars() {
            assert_eq!(
                printable(&control.to_string()),
                control.escape_unicode().to_string()
            );
        }
        // A name that looks escaped is distinct from an escaped one.
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
        // A failed or abandoned output leaves nothing behind.
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
