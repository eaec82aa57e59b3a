//! `packetlane completions` and `packetlane man`: both are made from the arguments that the command
//! takes.

use crate::terminal::print_with;
use clap::Args;
use std::error::Error;
use std::fs;
use std::io;
use std::path::PathBuf;

#[derive(Args)]
pub(crate) struct Completions {
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
    /// Where to write the pages, such as ~/.local/share/man/man1
    #[arg(value_name = "DIR")]
    folder: PathBuf,
}

impl Man {
    pub(crate) fn write(self, command: clap::Command) -> Result<(), Box<dyn Error>> {
        let cannot_write =
            |error: io::Error| format!("cannot write {}: {error}", self.folder.display());
        fs::create_dir_all(&self.folder).map_err(cannot_write)?;
        clap_mangen::generate_to(command, &self.folder).map_err(cannot_write)?;
        Ok(())
    }
}
