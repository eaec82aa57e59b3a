//! Runs every command block of `docs/guide` and of README.md.
//!
//! The `sh` blocks of a page run in order, each by `bash -e`, and must exit with 0. A page has a network
//! of its own with nothing but loopback, a copy of the repository to run in, and an empty `HOME`. So its
//! commands are run as they are written, with their real ports. `packetlane` is the command under test.
//!
//! An HTML comment in the line above a block changes that (several are separated by `;`):
//!
//! - `runs until stopped`: a server. It runs until the end of the page, when SIGTERM must end it with 0.
//! - `needs: btcd`, `needs: core`: the node is started before the page, with mainnet's ports and no peers.
//! - `needs: bitcoind`: the block starts Bitcoin Core itself.
//! - `tested by: STEP`: a step of `tools/test` runs these lines.
//! - `not run: REASON`: nothing here can run it.

#![cfg(all(target_os = "linux", feature = "gateway", feature = "peers"))]

mod common;

use common::TempDir;
use common::real::{bitcoind, find, not_run};
use pulldown_cmark::{CodeBlockKind, Event, Parser, Tag, TagEnd};
use std::fmt::Write;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

/// How many seconds one page may take.
const MAX_SECONDS: &str = "300";

/// What a mark says about a block.
#[derive(Debug, Default, PartialEq)]
struct Marks {
    until_stopped: bool,
    needs: Option<String>,
    tested_by: Option<String>,
    not_run: Option<String>,
}

/// A command block of a page.
#[derive(Debug)]
struct Block {
    /// Its first line in the page, from 1.
    line: usize,
    commands: String,
    marks: Marks,
}

/// Reads the marks of a comment, without `<!--` and `-->`. `None`: it is another comment.
fn marks(comment: &str) -> Option<Marks> {
    let mut marks = Marks::default();
    for mark in comment.split(';').map(str::trim) {
        let (name, value) = mark.split_once(": ").unwrap_or((mark, ""));
        let value = Some(value.to_owned()).filter(|value| !value.is_empty());
        match name {
            "runs until stopped" => marks.until_stopped = true,
            "needs" => marks.needs = value,
            "tested by" => marks.tested_by = value,
            "not run" => marks.not_run = value,
            _ => return None,
        }
    }
    Some(marks)
}

/// The command blocks of a page, in order.
fn blocks(page: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut comment: Option<(usize, Marks)> = None;
    let mut open: Option<Block> = None;
    let line_at = |offset: usize| page[..offset].lines().count() + 1;
    for (event, range) in Parser::new(page).into_offset_iter() {
        match event {
            Event::Html(html) => {
                let text = html.trim();
                if let Some(text) = text
                    .strip_prefix("<!--")
                    .and_then(|text| text.strip_suffix("-->"))
                    && let Some(marks) = marks(text.trim())
                {
                    comment = Some((line_at(range.start), marks));
                }
            }
            Event::Start(Tag::CodeBlock(CodeBlockKind::Fenced(language))) => {
                let line = line_at(range.start);
                let above = comment.take().filter(|(above, _)| above + 1 == line);
                open = (&*language == "sh").then(|| Block {
                    line: line + 1,
                    commands: String::new(),
                    marks: above.map(|(_, marks)| marks).unwrap_or_default(),
                });
            }
            Event::Text(text) => {
                if let Some(block) = &mut open {
                    block.commands.push_str(&text);
                }
            }
            Event::End(TagEnd::CodeBlock) => blocks.extend(open.take()),
            _ => {}
        }
    }
    blocks
}

fn root() -> PathBuf {
    fs::canonicalize(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")).unwrap()
}

/// README.md and the guides, by their paths in the repository.
fn pages(root: &Path) -> Vec<String> {
    let mut pages: Vec<String> = fs::read_dir(root.join("docs/guide"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.ends_with(".md"))
        .map(|name| format!("docs/guide/{name}"))
        .collect();
    pages.push("README.md".to_owned());
    pages.push("docs/bench/lab.md".to_owned());
    pages.sort();
    pages
}

/// Copies what is tracked, and new files, to where a page's commands may write.
fn copy_repository(root: &Path, to: &Path) {
    let copied = Command::new("bash")
        .args(["-euo", "pipefail", "-c"])
        // A file that was deleted and is still tracked is no failure.
        .arg(
            "git ls-files -z --cached --others --exclude-standard \
             | tar -c --null --ignore-failed-read --files-from=- 2>/dev/null | tar -x -C \"$0\"",
        )
        .arg(to)
        .current_dir(root)
        .status()
        .unwrap();
    assert!(copied.success());
}

/// The lines that start a node, in the background, and wait until it accepts connections.
fn start_node(node: &str) -> Option<String> {
    match node {
        "btcd" => {
            let program = find("btcd")?;
            Some(format!(
                "mkdir -p ~/.btcd\n'{}' --datadir=\"$HOME/.btcd\" --logdir=\"$HOME/.btcd\" --listen=127.0.0.1:8333 \
                 --nodnsseed --norpc --v2transport >/dev/null 2>&1 &\n",
                program.display()
            ))
        }
        "core" => {
            let program = bitcoind()?;
            Some(format!(
                "mkdir -p ~/.bitcoin\n'{}' -datadir=\"$HOME/.bitcoin\" -listen -bind=127.0.0.1:8333 -connect=0 \
                 -v2transport=1 >/dev/null 2>&1 &\n\
                 for _ in $(seq 300); do [ ! -e ~/.bitcoin/.cookie ] || break; sleep 0.1; done\n",
                program.display()
            ))
        }
        other => panic!("no such node: {other}"),
    }
    .map(|start| {
        format!(
            "{start}for _ in $(seq 300); do (: </dev/tcp/127.0.0.1/8333) 2>/dev/null && break; sleep 0.1; done\n"
        )
    })
}

/// The script that runs a page, or why it cannot run.
fn script(page: &str, blocks: &[Block], folder: &Path) -> Result<String, String> {
    let mut script = String::from("set -u\nip link set lo up\n");
    let nodes: Vec<&String> = blocks
        .iter()
        .filter_map(|block| block.marks.needs.as_ref())
        .filter(|program| *program != "bitcoind")
        .collect();
    if let Some(node) = nodes.first() {
        assert!(
            nodes.iter().all(|other| other == node),
            "{page}: one node a page"
        );
        script += &start_node(node)
            .ok_or_else(|| format!("the commands of {page}: {node} is not installed"))?;
    }
    script += "servers=()\n";
    for (number, block) in blocks.iter().enumerate() {
        if block.marks.tested_by.is_some() {
            continue;
        }
        let place = format!("{page}:{}", block.line);
        if let Some(reason) = &block.marks.not_run {
            not_run(&format!("the commands at {place}: {reason}"));
            continue;
        }
        if block.marks.needs.as_deref() == Some("bitcoind") && bitcoind().is_none() {
            not_run(&format!(
                "the commands at {place}: bitcoind is not installed"
            ));
            continue;
        }
        let file = folder.join(format!("block-{number}"));
        let log = folder.join(format!("log-{number}"));
        let (file_name, log_name) = (file.display(), log.display());
        if block.marks.until_stopped {
            // One command, which takes the place of its shell, so that the signal reaches it.
            let command = block.commands.trim_start();
            assert!(!command.starts_with('#'), "{place}: the command first");
            fs::write(&file, format!("exec {command}")).unwrap();
            let _ = write!(
                script,
                "bash -e '{file_name}' >'{log_name}' 2>&1 &\nservers+=(\"$! {place} {log_name}\")\nsleep 2\n\
                 kill -0 $! 2>/dev/null || {{ echo '{place} has ended:'; cat '{log_name}'; exit 1; }}\n"
            );
        } else {
            fs::write(&file, &block.commands).unwrap();
            let _ = writeln!(
                script,
                "bash -euo pipefail '{file_name}' >'{log_name}' 2>&1 || \
                 {{ echo \"{place} exits with $?:\"; cat '{log_name}'; exit 1; }}"
            );
        }
    }
    script += "for server in \"${servers[@]}\"; do\n\
               set -- $server; kill -TERM \"$1\"; wait \"$1\" || { echo \"$2 exits with $?:\"; cat \"$3\"; exit 1; }\n\
               done\n";
    Ok(script)
}

/// Runs the commands of one page.
fn run(root: &Path, page: &str) {
    let text = fs::read_to_string(root.join(page)).unwrap();
    let blocks = blocks(&text);
    let runs = |block: &Block| block.marks.tested_by.is_none() && block.marks.not_run.is_none();
    if !blocks.iter().any(runs) {
        return;
    }
    let dir = TempDir::new(&format!("guide-{}", page.replace(['/', '.'], "-")));
    let repository = dir.0.join("packetlane");
    let programs = dir.0.join("bin");
    let home = dir.0.join("home");
    for folder in [&repository, &programs, &home] {
        fs::create_dir(folder).unwrap();
    }
    copy_repository(root, &repository);
    symlink(
        env!("CARGO_BIN_EXE_packetlane"),
        programs.join("packetlane"),
    )
    .unwrap();
    // Where `cargo build --release` puts it.
    fs::create_dir_all(repository.join("target/release")).unwrap();
    symlink(
        env!("CARGO_BIN_EXE_packetlane"),
        repository.join("target/release/packetlane"),
    )
    .unwrap();
    let script = match script(page, &blocks, &dir.0) {
        Ok(script) => script,
        Err(why) => return not_run(&why),
    };
    let file = dir.0.join("page");
    fs::write(&file, script).unwrap();
    let mut path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap());
    if let Some(core) = bitcoind() {
        path = format!("{path}:{}", core.parent().unwrap().display());
    }
    let output = Command::new("timeout")
        .args(["--kill-after=10", MAX_SECONDS])
        .args([
            "unshare",
            "--net",
            "--pid",
            "--fork",
            "--kill-child",
            "--mount-proc",
            "bash",
        ])
        .arg(&file)
        .current_dir(&repository)
        .env("PATH", path)
        .env("HOME", &home)
        .env_remove("XDG_CACHE_HOME")
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{page}: {}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
fn every_command_of_the_guides_runs() {
    let namespaces = Command::new("unshare")
        .args(["--net", "--pid", "--fork", "--mount-proc", "true"])
        .output();
    if !namespaces.is_ok_and(|output| output.status.success()) {
        return not_run("the commands of the guides: network namespaces need root and unshare");
    }
    let root = root();
    std::thread::scope(|scope| {
        let running: Vec<_> = pages(&root)
            .into_iter()
            .map(|page| {
                let root = &root;
                (page.clone(), scope.spawn(move || run(root, &page)))
            })
            .collect();
        let failed: Vec<String> = running
            .into_iter()
            .filter_map(|(page, thread)| thread.join().is_err().then_some(page))
            .collect();
        assert!(failed.is_empty(), "{failed:?}");
    });
}

/// A block that a step of `tools/test` runs: each of its commands, but for options, is in what the steps call.
#[test]
fn heavy_commands_are_tested_by_the_step_that_they_name() {
    let root = root();
    let list = Command::new(root.join("tools/test"))
        .arg("list")
        .output()
        .unwrap();
    let list = String::from_utf8(list.stdout).unwrap();
    let steps: Vec<&str> = list
        .lines()
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    let scripts: String = [
        "tools/test",
        "tools/deb",
        "tools/image",
        "crates/capi/check",
        "python/check",
        "ops/check",
    ]
    .iter()
    .map(|script| {
        fs::read_to_string(root.join(script))
            .unwrap()
            .replace('"', "")
    })
    .collect();
    for page in pages(&root) {
        for block in blocks(&fs::read_to_string(root.join(&page)).unwrap()) {
            let Some(step) = &block.marks.tested_by else {
                continue;
            };
            let place = format!("{page}:{}", block.line);
            assert!(
                steps.contains(&step.as_str()),
                "{place}: tools/test has no step {step}"
            );
            for line in block.commands.lines().filter(|line| !line.starts_with('#')) {
                let is_assignment = |word: &&str| word.contains('=');
                let mut words = line.split_whitespace().skip_while(is_assignment);
                let Some(program) = words.next() else {
                    continue;
                };
                let command = match program {
                    "cargo" | "pip" => format!("{program} {}", words.next().unwrap_or_default()),
                    // `crates/capi/check` runs all of the guide's.
                    "cc" | "c++" => r"^(cc|c\+\+) ".to_owned(),
                    _ => program.to_owned(),
                };
                assert!(
                    scripts.contains(&command),
                    "{place}: no step runs {command:?}"
                );
            }
        }
    }
}

#[test]
fn blocks_have_their_marks() {
    let page = "# A\n\n<!-- needs: core; runs until stopped -->\n```sh\none\n```\n\n```text\nno\n```\n\n```sh\ntwo\n```\n";
    let blocks = blocks(page);
    assert_eq!(blocks.len(), 2);
    assert_eq!((blocks[0].line, blocks[0].commands.as_str()), (5, "one\n"));
    assert_eq!(blocks[0].marks.needs.as_deref(), Some("core"));
    assert!(blocks[0].marks.until_stopped);
    assert_eq!((blocks[1].line, blocks[1].commands.as_str()), (13, "two\n"));
    assert_eq!(blocks[1].marks, Marks::default());
}
