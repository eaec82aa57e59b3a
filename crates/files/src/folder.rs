//! A folder that keeps its identity, whatever happens to its path.

use std::fs::{self, File, Metadata};
use std::io;
use std::path::{Path, PathBuf};

/// A folder, held open. Files are created and removed in it even if its path leads to another folder
/// in the meantime, which the owner of the parent folder can cause.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    #[cfg(unix)]
    handle: File,
}

impl Folder {
    /// Creates the folder `path`.
    ///
    /// # Errors
    ///
    /// If `path` exists or the folder cannot be created.
    pub fn create(path: &Path) -> io::Result<Self> {
        fs::create_dir(path)?;
        Self::open(path)
    }

    /// Opens the existing folder `path`, which must not be a symbolic link.
    ///
    /// # Errors
    ///
    /// If there is no such folder, or another process has locked it.
    pub fn open(path: &Path) -> io::Result<Self> {
        #[cfg(unix)]
        let handle = open(path)?;
        // Only between processes that use this type. Some file systems have no locks.
        #[cfg(unix)]
        if let Err(fs::TryLockError::WouldBlock) = handle.try_lock() {
            return Err(io::Error::other("another process writes to it"));
        }
        #[cfg(not(unix))]
        if !fs::symlink_metadata(path)?.is_dir() {
            return Err(io::ErrorKind::NotADirectory.into());
        }
        Ok(Self {
            path: path.to_owned(),
            #[cfg(unix)]
            handle,
        })
    }

    /// The names and metadata of the entries. Does not follow symbolic links.
    ///
    /// # Errors
    ///
    /// If they cannot be read, or the folder is no longer at the path where it was opened.
    pub fn entries(&self) -> io::Result<Vec<(String, Metadata)>> {
        self.check()?;
        let mut entries = Vec::new();
        for entry in fs::read_dir(&self.path)? {
            let entry = entry?;
            // In a name that is not UTF-8, the invalid bytes become U+FFFD.
            let name = entry.file_name().to_string_lossy().into_owned();
            entries.push((name, entry.metadata()?));
        }
        self.check()?;
        Ok(entries)
    }

    /// Removes the file `name` in the folder; of a symbolic link, the link.
    ///
    /// # Errors
    ///
    /// If it is a folder, does not exist or cannot be removed.
    pub fn remove(&self, name: &str) -> io::Result<()> {
        self.unlink(name)
    }

    /// The path at which it was opened.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes the file `name` in the folder, with what `contents` writes. Replaces a file of that
    /// name. A failure leaves nothing behind. Until it is complete, the file is hidden and has
    /// another extension.
    ///
    /// # Errors
    ///
    /// If it cannot be written, or the folder is no longer at the path where it was opened.
    pub fn write(
        &self,
        name: &str,
        contents: impl FnOnce(&File) -> io::Result<()>,
    ) -> io::Result<()> {
        let unfinished = format!(".{name}.unfinished");
        self.check()?;
        let file = self.create_new(&unfinished)?;
        let written = contents(&file)
            .and_then(|()| file.sync_all())
            .and_then(|()| self.rename(&unfinished, name));
        if written.is_err() {
            // Ignored: the earlier error is returned.
            let _ = self.unlink(&unfinished);
        }
        written
    }
}

#[cfg(unix)]
impl Folder {
    /// Fails if the folder was moved: files written now would not be found.
    fn check(&self) -> io::Result<()> {
        use std::os::unix::fs::MetadataExt;
        let (there, ours) = (fs::symlink_metadata(&self.path)?, self.handle.metadata()?);
        match (there.dev(), there.ino()) == (ours.dev(), ours.ino()) {
            true => Ok(()),
            false => Err(io::Error::other("the folder was moved or replaced")),
        }
    }

    fn create_new(&self, name: &str) -> io::Result<File> {
        use rustix::fs::{Mode, OFlags};
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        let mode = Mode::from_raw_mode(0o666);
        let file = rustix::fs::openat(&self.handle, name, flags | OFlags::CLOEXEC, mode)?;
        Ok(file.into())
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        Ok(rustix::fs::renameat(&self.handle, from, &self.handle, to)?)
    }

    fn unlink(&self, name: &str) -> io::Result<()> {
        let flags = rustix::fs::AtFlags::empty();
        Ok(rustix::fs::unlinkat(&self.handle, name, flags)?)
    }
}

/// Opens a folder, without following a symbolic link.
#[cfg(unix)]
fn open(path: &Path) -> io::Result<File> {
    use rustix::fs::OFlags;
    use std::os::unix::fs::OpenOptionsExt;
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW;
    fs::OpenOptions::new()
        .read(true)
        .custom_flags(flags.bits().cast_signed())
        .open(path)
}

#[cfg(not(unix))]
impl Folder {
    fn check(&self) -> io::Result<()> {
        Ok(())
    }

    fn create_new(&self, name: &str) -> io::Result<File> {
        File::create_new(self.path.join(name))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.path.join(from), self.path.join(to))
    }

    fn unlink(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.path.join(name))
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_file_is_written_in_the_created_folder_or_nowhere() {
        let dir = tempfile::tempdir().expect("a folder");
        let at = |name: &str| dir.path().join(name);
        fs::create_dir(at("victim")).expect("a folder");
        fs::write(at("victim/b"), "precious").expect("written");
        let folder = Folder::create(&at("ours")).expect("a folder");
        let write = |name: &str| folder.write(name, |mut file| file.write_all(b"ours"));
        write("a").expect("written");
        let moved = || {
            fs::rename(at("ours"), at("moved")).expect("moved");
            symlink(at("victim"), at("ours")).expect("a link");
        };
        moved();
        let error = write("b").expect_err("moved").to_string();
        assert_eq!(error, "the folder was moved or replaced");
        fs::remove_file(at("ours")).expect("removed");
        assert_eq!(
            write("b").expect_err("moved").kind(),
            io::ErrorKind::NotFound
        );
        fs::rename(at("moved"), at("ours")).expect("moved");
        // Swapped after the check of the path.
        let swapped = folder.write("b", |mut file| {
            moved();
            file.write_all(b"ours")
        });
        swapped.expect("written");
        assert_eq!(fs::read(at("moved/b")).expect("a file"), b"ours");
        assert_eq!(fs::read(at("victim/b")).expect("a file"), b"precious");
        assert_eq!(fs::read_dir(at("victim")).expect("a folder").count(), 1);
        // A failure leaves nothing behind.
        fs::remove_file(at("ours")).expect("removed");
        fs::rename(at("moved"), at("ours")).expect("moved");
        let full = folder.write("c", |_| Err(io::ErrorKind::StorageFull.into()));
        full.expect_err("full");
        assert_eq!(fs::read_dir(at("ours")).expect("a folder").count(), 2);
        assert!(Folder::create(&at("ours")).is_err());
    }

    #[test]
    fn an_existing_folder_is_opened_by_one_process() {
        let dir = tempfile::tempdir().expect("a folder");
        let at = |name: &str| dir.path().join(name);
        let folder = Folder::create(&at("ours")).expect("a folder");
        let error = Folder::open(&at("ours")).expect_err("locked").to_string();
        assert_eq!(error, "another process writes to it");
        drop(folder);
        let folder = Folder::open(&at("ours")).expect("a folder");
        fs::write(at("target"), "precious").expect("written");
        fs::write(at("ours/a"), "12345").expect("written");
        symlink(at("target"), at("ours/b")).expect("a link");
        let mut entries = folder.entries().expect("read");
        entries.sort_by(|one, other| one.0.cmp(&other.0));
        let [(a, file), (b, link)] = &entries[..] else {
            panic!("{entries:?}");
        };
        assert_eq!((a.as_str(), file.is_file(), file.len()), ("a", true, 5));
        assert_eq!((b.as_str(), link.is_symlink()), ("b", true));
        for name in ["a", "b"] {
            folder.remove(name).expect("removed");
        }
        assert_eq!(fs::read(at("target")).expect("a file"), b"precious");
        let absent = folder.remove("a").expect_err("absent").kind();
        assert_eq!(absent, io::ErrorKind::NotFound);
        symlink(at("ours"), at("link")).expect("a link");
        assert!(Folder::open(&at("link")).is_err() && Folder::open(&at("target")).is_err());
    }
}
