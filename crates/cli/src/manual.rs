//! `packetlane completions` and `packetlane man`, generated from the arguments of all commands.

use crate::terminal::print_with;
use clap::Args;
use packetlane_files::Name;
use std::error::Error;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

#[derive(Args)]
pub(crate) struct Completions {
    /// Shell to write the script for, such as in `packetlane completions bash`
    shell: clap_complete::Shell,
}

impl Completions {
    pub(crate) fn print(self, mut command: clap::Command) {
        let name = command.get_name().to_owned();
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut command, name, &mut script);
        print_with(|out| out.write_all(&script));
    }
}

#[derive(Args)]
pub(crate) struct Man {
    /// Folder for the pages, such as ~/.local/share/man/man1
    #[arg(value_name = "DIR")]
    folder: PathBuf,
}

impl Man {
    pub(crate) fn write(self, command: clap::Command) -> Result<(), Box<dyn Error>> {
        let cannot_write =
            |error: io::Error| format!("cannot write {}: {error}", Name(&self.folder));
        fs::create_dir_all(&self.folder).map_err(cannot_write)?;
        let mut command = command.disable_help_subcommand(true);
        command.build();
        write_pages(command, &self.folder).map_err(cannot_write)?;
        Ok(())
    }
}

/// Writes the pages of a command and its subcommands. Unlike `clap_mangen::generate_to`, it does
/// not follow symbolic links: root runs this.
fn write_pages(command: clap::Command, folder: &Path) -> io::Result<()> {
    let below = command
        .get_subcommands()
        .filter(|below| !below.is_hide_set());
    for below in below.cloned() {
        write_pages(below, folder)?;
    }
    let page = clap_mangen::Man::new(command);
    let mut text = Vec::new();
    page.render(&mut text)?;
    packetlane_files::write(&folder.join(page.get_filename()), text)
}
