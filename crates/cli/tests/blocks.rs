//! `packetlane blocks` on folders and files, good ones and damaged ones.

mod common;

use common::{Finished, Running};
use packetlane::bitcoin::Network;
use packetlane::sha256d::Obfuscation;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const HASH: &str = "0000000000000000001602407ac49862a7bca9d00f7f402db20b7be2f5de59d2";
const GENESIS: &str = "000000000019d6689c085ae165831e934ff763ae46a2a6c172b3f1b60a8ce26f";
const MAGIC: [u8; 4] = Network::Mainnet.magic();

/// A real block of 1.2 MB, with witnesses.
fn large_path() -> PathBuf {
    let vectors = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../vectors/blocks");
    vectors.join(format!("{HASH}.blk"))
}

fn large() -> Vec<u8> {
    fs::read(large_path()).unwrap()
}

/// The first block of the main chain.
fn genesis() -> Vec<u8> {
    let text = "04ffff001d0104455468652054696d65732030332f4a616e2f32303039204368616e63656c6c6f7220\
                6f6e206272696e6b206f66207365636f6e64206261696c6f757420666f722062616e6b73";
    let key = "4104678afdb0fe5548271967f1a67130b7105cd6a828e03909a67962e0ea1f61deb649f6bc3f4cef38\
               c4f35504e51ec112de5c384df7ba0b8d578a4c702b6bf11d5fac";
    let root = "3ba3edfd7a7b12b27ac72c3e67768f617fc81bc3888a51323a9fb8aa4b1e5e4a";
    let block = format!(
        "01000000{:064}{root}29ab5f49ffff001d1dac2b7c\
         010100000001{:072x}4d{text}ffffffff0100f2052a0100000043{key}00000000",
        0, 0xffff_ffff_u32
    );
    let digits: Vec<u8> = block.bytes().collect();
    let byte = |pair: &[u8]| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.chunks(2).map(byte).collect()
}

fn framed(block: &[u8]) -> Vec<u8> {
    [&MAGIC, &(block.len() as u32).to_le_bytes()[..], block].concat()
}

/// A folder that is removed on drop.
struct TempDir(PathBuf);

impl TempDir {
    fn new(name: &str) -> Self {
        let id = std::process::id();
        let path = std::env::temp_dir().join(format!("packetlane-blocks-{name}-{id}"));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn write(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.0.join(name);
        fs::write(&path, bytes).unwrap();
        path
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn blocks(paths: &[&Path], options: &[&str]) -> Finished {
    let mut command = Command::new(env!("CARGO_BIN_EXE_packetlane"));
    command.arg("blocks").args(paths).args(options);
    Running::start(&mut command).finish()
}

/// The command's JSON report, and whether the command succeeded.
fn json(paths: &[&Path], options: &[&str]) -> (Value, bool) {
    let finished = blocks(paths, &[options, &["--json"]].concat());
    let document = serde_json::from_str(&finished.stdout);
    (
        document.unwrap_or_else(|_| panic!("{finished:#?}")),
        finished.success,
    )
}

#[test]
fn a_folder_of_block_files_is_verified_in_order() {
    let dir = TempDir::new("folder");
    // The second file fills several windows. Both have preallocated space.
    let many = framed(&large()).repeat(17);
    dir.write(
        "blk00000.dat",
        &[framed(&genesis()), vec![0; 3000]].concat(),
    );
    dir.write("blk00001.dat", &[&many[..], &[0; 100_000]].concat());
    dir.write("rev00000.dat", b"not for us");
    for threads in ["1", "2", "7"] {
        let finished = blocks(&[&dir.0], &["--threads", threads]).expect_success();
        let lines: Vec<&str> = finished.stdout.lines().collect();
        assert_eq!(lines[0], "all 18 blocks are good");
        for expected in [
            "network           main",
            "files             2",
            "blocks            18",
            "bytes             21169535",
            "transactions      56356",
        ] {
            assert!(lines.contains(&expected), "{expected}: {finished:#?}");
        }
        let about = format!(", threads: {threads}");
        assert!(
            lines
                .iter()
                .any(|line| line.starts_with("backend  ") && line.ends_with(&about))
        );
        assert!(
            lines.last().unwrap().contains(" blocks/s, "),
            "{finished:#?}"
        );
    }
}

#[test]
fn the_json_report_has_the_same_figures() {
    let dir = TempDir::new("json");
    let file = dir.write("blk00000.dat", &framed(&genesis()).repeat(3));
    let (document, success) = json(
        &[&file, &large_path()],
        &["--network", "mainnet", "--threads", "2"],
    );
    assert!(success);
    for (key, expected) in [
        ("schema", 1),
        ("threads", 2),
        ("files", 2),
        ("blocks", 4),
        ("bad_blocks", 0),
        ("bytes", 3 * 285 + 1_245_250),
        ("transactions", 3 + 3315),
        // Per small block: header and id. For the large one: header, ids, two trees,
        // commitment.
        ("hashes", 3 * 2 + 1 + 3315 + 1340 + 2 * 3319 + 1),
        ("problems_not_listed", 0),
    ] {
        assert_eq!(document[key], expected, "{key}");
    }
    assert_eq!(document["network"], "main");
    assert_eq!(document["problems"], Value::Array(vec![]));
    assert!(!document["backend"].as_str().unwrap().is_empty());
    for rate in [
        "seconds",
        "blocks_per_second",
        "bytes_per_second",
        "hashes_per_second",
    ] {
        assert!(document[rate].as_f64().unwrap() > 0.0, "{rate}");
    }
}

#[test]
fn problems_are_reported_with_their_offset_and_the_rest_is_verified() {
    let dir = TempDir::new("damage");
    let good = genesis();
    let mut bad = good.clone();
    bad[200] ^= 1;
    let parts = [
        framed(&good),
        framed(&bad),
        b"garbage".to_vec(),
        framed(&good),
        [&MAGIC[..], &[0xff; 4]].concat(),
        framed(&good),
        framed(&large())[..5000].to_vec(),
    ];
    let places: Vec<usize> = (0..parts.len())
        .map(|i| parts[..i].concat().len())
        .collect();
    let path = dir.write("blk00007.dat", &parts.concat());
    let other = dir.write("bare.blk", &large()[..9000]);

    let finished = blocks(&[&path, &other], &[]);
    assert_eq!(finished.error_line(), "error: found 5 problems");
    let mut lines = finished.stdout.lines();
    let first = "2 of 5 blocks are bad, and the files are damaged in 3 places";
    assert_eq!(lines.next(), Some(first));
    let problems: Vec<&str> = lines.skip_while(|line| !line.starts_with('/')).collect();
    let file = path.display();
    let expected = [
        format!(
            "{file}, byte {}, block {GENESIS}: the transactions have the Merkle root ",
            places[1] + 8
        ),
        format!(
            "{file}, byte {}: no block begins here (7 bytes skipped)",
            places[2]
        ),
        format!(
            "{file}, byte {}: the frame's length is 4294967295 bytes; ",
            places[4]
        ),
        format!(
            "{file}, byte {}: the file ends within a block: it holds 4992 of 1245250 bytes",
            places[6]
        ),
        format!(
            "{}, byte 0, block {HASH}: malformed block: byte 80 announces 3315 entries",
            other.display()
        ),
    ];
    assert_eq!(problems.len(), expected.len(), "{finished:#?}");
    for (line, expected) in problems.iter().zip(&expected) {
        assert!(line.starts_with(expected), "{line}\n{expected}");
    }

    let (document, success) = json(&[&path, &other], &[]);
    assert!(!success);
    assert_eq!(
        (&document["blocks"], &document["bad_blocks"]),
        (&5.into(), &2.into())
    );
    let problems = document["problems"].as_array().unwrap();
    assert_eq!(problems.len(), 5);
    assert_eq!(problems[0]["block"], GENESIS);
    assert_eq!(problems[0]["offset"], places[1] + 8);
    assert_eq!(problems[0]["file"], path.to_str().unwrap());
    assert!(
        problems[0]["what"][0]
            .as_str()
            .unwrap()
            .contains("Merkle root")
    );
    assert_eq!(problems[1]["block"], Value::Null);
}

#[test]
fn all_problems_are_counted_and_the_first_are_listed() {
    let dir = TempDir::new("endless");
    let path = dir.write(
        "blk00000.dat",
        &[&MAGIC[..], &[0xff; 4]].concat().repeat(3000),
    );
    for threads in ["1", "3"] {
        let (document, success) = json(&[&path], &["--threads", threads]);
        assert!(!success);
        let problems = document["problems"].as_array().unwrap();
        assert_eq!(problems.len(), 1000);
        assert_eq!(problems[999]["offset"], 8 * 999);
        assert_eq!(document["problems_not_listed"], 2000);
    }
}

#[test]
fn obfuscated_files_are_read_with_their_key() {
    let dir = TempDir::new("xor");
    let key = [0x8f, 1, 2, 0xfd, 4, 5, 6, 7];
    let mut file = framed(&large()).repeat(8);
    Obfuscation(key).apply(0, &mut file);
    // Room allocated ahead is not obfuscated.
    file.resize(file.len() + 100_001, 0);
    let path = dir.write("blk00000.dat", &file);
    let bare = dir.write("block.bin", &genesis());
    dir.write("xor.dat", &key);
    for path in [&dir.0, &path] {
        let finished = blocks(&[path], &[]).expect_success();
        assert!(finished.stdout.starts_with("all 8 blocks are good\n"));
    }
    // Other files are as they are.
    let finished = blocks(&[&bare], &[]).expect_success();
    assert!(finished.stdout.starts_with("the block is good\n"));

    for wrong in [&key[..7], &[0; 9], &[]] {
        dir.write("xor.dat", wrong);
        let finished = blocks(&[&dir.0], &[]);
        assert!(
            finished
                .error_line()
                .ends_with("xor.dat is not a key of 8 bytes")
        );
    }
    fs::remove_file(dir.0.join("xor.dat")).unwrap();
    let finished = blocks(&[&dir.0], &[]);
    assert_eq!(finished.error_line(), "error: found 1 problem");
    let first = "found no block, and the files are damaged in 1 place\n";
    assert!(finished.stdout.starts_with(first), "{finished:#?}");
}

#[test]
fn a_file_of_another_network_is_recognised() {
    let dir = TempDir::new("network");
    let path = dir.write("blk00000.dat", &framed(&genesis()).repeat(2));
    let finished = blocks(&[&path], &["--network", "signet"]);
    assert_eq!(finished.error_line(), "error: found 1 problem");
    assert!(
        finished
            .stdout
            .contains("byte 0: a block of another network, main"),
        "{finished:#?}"
    );
}

#[test]
fn unreadable_paths_are_reported_in_one_line() {
    let dir = TempDir::new("missing");
    let path = dir.0.join("nothing");
    let finished = blocks(&[&path], &[]);
    let line = finished.error_line();
    assert!(
        line.starts_with(&format!("error: cannot read {}: ", path.display())),
        "{line}"
    );
    let finished = blocks(&[&dir.0], &[]);
    assert!(
        finished
            .error_line()
            .ends_with("is a folder without blk*.dat files")
    );
    let finished = blocks(&[Path::new("/dev/null")], &[]);
    assert_eq!(
        finished.error_line(),
        "error: /dev/null is neither a file nor a folder"
    );
    // Nothing at all is no success either.
    for empty in [&[][..], &[0; 1000]] {
        let path = dir.write("blk00000.dat", empty);
        assert_eq!(blocks(&[&path], &[]).error_line(), "error: found no block");
    }
    for wrong in [&["--threads", "0"][..], &["--network", "mars"]] {
        let finished = blocks(&[&dir.0], wrong);
        assert!(
            finished.error_line().ends_with("; see --help"),
            "{finished:#?}"
        );
    }
}
