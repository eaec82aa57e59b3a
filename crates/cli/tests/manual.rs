//! `packetlane completions` and `packetlane man`.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

fn packetlane(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_packetlane"));
    command.args(arguments).output().unwrap()
}

/// The scripts contain the commands and their options.
#[test]
fn completions_for_each_shell() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let output = packetlane(&["completions", shell]);
        assert!(output.status.success(), "{shell}");
        let script = String::from_utf8(output.stdout).unwrap();
        for word in ["connect", "v2-only"] {
            assert!(script.contains(word), "{shell}: {word}");
        }
        // clap describes only these shells' scripts with help texts.
        if let "bash" | "zsh" = shell {
            assert!(script.contains("regtest") && script.contains("bip324.mixed"));
        }
    }
    let script = std::env::temp_dir().join(format!("packetlane-bash-{}", std::process::id()));
    fs::write(&script, packetlane(&["completions", "bash"]).stdout).unwrap();
    // What bash offers after `packetlane bl`.
    let asked = format!(
        ". {}; COMP_WORDS=(packetlane bl); COMP_CWORD=1; _packetlane packetlane bl packetlane; \
         echo \"${{COMPREPLY[*]}}\"",
        script.display()
    );
    if let Ok(offered) = Command::new("bash").args(["-c", &asked]).output() {
        assert_eq!(String::from_utf8_lossy(&offered.stdout), "blocks\n");
    }
    fs::remove_file(script).unwrap();
    assert_eq!(packetlane(&["completions", "dos"]).status.code(), Some(2));
}

#[test]
fn a_man_page_for_each_command() {
    let folder = std::env::temp_dir().join(format!("packetlane-man-{}", std::process::id()));
    let written = packetlane(&["man", folder.to_str().unwrap()]);
    assert!(written.status.success(), "{written:?}");
    for (page, words) in [
        ("packetlane.1", "packetlane\\-blocks(1)"),
        ("packetlane-connect.1", "\\-\\-v2\\-only"),
        ("packetlane-lab.1", "bip324.mixed"),
        ("packetlane-lab-compare.1", "OLD"),
    ] {
        let text = fs::read_to_string(folder.join(page)).unwrap();
        assert!(
            text.contains(".TH ") && text.contains(words),
            "{page}: {text}"
        );
    }
    // Pages written as root follow no symbolic link.
    let page = folder.join("packetlane-lab.1");
    let target = folder.join("target");
    fs::write(&target, "precious").unwrap();
    fs::remove_file(&page).unwrap();
    std::os::unix::fs::symlink(&target, &page).unwrap();
    let written = packetlane(&["man", folder.to_str().unwrap()]);
    assert!(written.status.success(), "{written:?}");
    assert_eq!(fs::read(&target).unwrap(), b"precious");
    assert!(fs::symlink_metadata(&page).unwrap().is_file());
    fs::remove_dir_all(folder).unwrap();

    // The path of the folder is a file.
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
    let refused = packetlane(&["man", here.to_str().unwrap()]);
    assert_eq!(refused.status.code(), Some(1));
    let why = String::from_utf8(refused.stderr).unwrap();
    assert!(why.starts_with("error: cannot write") && why.lines().count() == 1);
}
