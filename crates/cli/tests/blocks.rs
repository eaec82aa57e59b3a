//! `packetlane blocks` on good and damaged files and folders.

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

/// Runs the command with --json. Returns the report and whether the command succeeded.
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
            lines.iter().any(|line| line.contains(" blocks/s, ")),
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
        // Per small block: header and id. For the large one: header, ids, two trees, commitment.
        ("hashes", 3 * 2 + 1 + 3315 + 1340 + 2 * 3319 + 1),
        ("problems_not_listed", 0),
    ] {
        assert_eq!(document[key], expected, "{key}");
    }
    assert_eq!(document["network"], "main");
    assert_eq!(document["problems"], Value::Array(vec![]));
    assert_eq!(document["notes"], Value::Array(vec![]));
    let good = document["good_blocks"].as_array().unwrap();
    assert_eq!(good.len(), 4);
    assert_eq!(
        (&good[1]["block"], &good[1]["offset"]),
        (&GENESIS.into(), &301.into())
    );
    assert_eq!(good[1]["file"], file.to_str().unwrap());
    assert_eq!(good[3]["block"], HASH);
    assert_eq!(
        (&good[3]["bytes"], &good[3]["transactions"]),
        (&1_245_250.into(), &3315.into())
    );
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
    let first = "2 of 5 blocks are bad, and there are 3 problems in the files";
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
    // The totals cover only good blocks.
    let good: Vec<&Value> = document["good_blocks"].as_array().unwrap().iter().collect();
    assert_eq!(good.len(), 3);
    assert!(good.iter().all(|block| block["block"] == GENESIS));
    assert_eq!(good[2]["offset"], places[5] + 8);
    for (key, expected) in [("bytes", 3 * 285), ("transactions", 3), ("hashes", 3 * 2)] {
        assert_eq!(document[key], expected, "{key}");
    }
    for line in [
        "bytes             855",
        "transactions      3",
        "hashes            6",
    ] {
        let line = format!("\n{line} in good blocks\n");
        assert!(finished.stdout.contains(&line), "{finished:#?}");
    }
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
    // Preallocated space is not obfuscated.
    file.resize(file.len() + 100_001, 0);
    let path = dir.write("blk00000.dat", &file);
    let bare = dir.write("block.bin", &genesis());
    dir.write("xor.dat", &key);
    for path in [&dir.0, &path] {
        let finished = blocks(&[path], &[]).expect_success();
        assert!(finished.stdout.starts_with("all 8 blocks are good\n"));
    }
    // Files with other names are not obfuscated.
    let finished = blocks(&[&bare], &[]).expect_success();
    assert!(finished.stdout.starts_with("the block is good\n"));
    let named = format!("\nblock             {GENESIS}\n");
    assert!(finished.stdout.contains(&named), "{finished:#?}");

    for wrong in [&key[..7], &[0; 9], &[]] {
        dir.write("xor.dat", wrong);
        let finished = blocks(&[&dir.0], &[]);
        assert!(
            finished
                .error_line()
                .ends_with("xor.dat is not a key of 8 bytes")
        );
    }
    // A FIFO is not opened, so the command does not hang.
    fs::remove_file(dir.0.join("xor.dat")).unwrap();
    fifo(&dir.0.join("xor.dat"));
    for path in [&dir.0, &path] {
        let finished = blocks(&[path], &[]);
        assert!(
            finished
                .error_line()
                .ends_with("xor.dat: it is a FIFO, not a file")
        );
    }
}

/// A node that crashed leaves zeros between blocks, and continues after the space that it has
/// allocated.
#[test]
fn zeros_between_blocks_are_no_problem() {
    let dir = TempDir::new("gap");
    for key in [[0; 8], [0x8f, 1, 2, 0xfd, 4, 5, 6, 7]] {
        dir.write("xor.dat", &key);
        // Zeros that span more than one window, too.
        for gap in [8, 9 << 20] {
            let mut file = Vec::new();
            for block in [genesis(), large(), genesis()] {
                let mut frame = framed(&block);
                Obfuscation(key).apply(file.len() as u64, &mut frame);
                file.extend(frame);
                file.resize(file.len() + gap, 0);
            }
            let path = dir.write("blk00000.dat", &file);
            let finished = blocks(&[&path], &[]).expect_success();
            assert!(finished.stdout.starts_with("all 3 blocks are good\n"));
            // Other bytes between blocks are still damage.
            let at = 8 + 285 + gap / 2;
            file[at] = 0x55;
            fs::write(&path, &file).unwrap();
            let finished = blocks(&[&path], &[]);
            assert_eq!(finished.error_line(), "error: found 1 problem");
        }
    }
}

/// A damaged magic is neither taken for an obfuscated one nor for a custom signet.
#[test]
fn damage_to_the_first_magic_loses_one_block() {
    let dir = TempDir::new("first-magic");
    for (place, byte) in [(0, 0), (1, 0xbf), (3, 0xd8)] {
        let mut file = framed(&genesis()).repeat(4);
        file[place] = byte;
        let path = dir.write("blk00000.dat", &file);
        let finished = blocks(&[&path], &[]);
        assert_eq!(finished.error_line(), "error: found 1 problem");
        let expected = "all 3 blocks are good";
        assert!(finished.stdout.contains(expected), "{finished:#?}");
    }
}

#[test]
fn a_file_of_another_name_is_read_with_the_key_next_to_it() {
    let dir = TempDir::new("copied");
    let key = [0x8f, 1, 2, 0xfd, 4, 5, 6, 7];
    let mut file = framed(&large()).repeat(2);
    Obfuscation(key).apply(0, &mut file);
    let copy = dir.write("copy-of-blk00000.dat.bak", &file);
    let problem = |expected: &str| {
        let finished = blocks(&[&copy], &[]);
        assert_eq!(finished.error_line(), "error: found 1 problem");
        assert!(finished.stdout.contains(expected), "{finished:#?}");
    };
    problem("an obfuscated block file without its key: copy xor.dat");
    dir.write("xor.dat", &[1, 2, 3, 4, 5, 6, 7, 8]);
    problem("xor.dat in this folder is not its key");
    dir.write("xor.dat", &key);
    let finished = blocks(&[&copy], &[]).expect_success();
    assert!(finished.stdout.starts_with("all 2 blocks are good\n"));
    // Also if the file is from a network other than the requested one.
    let finished = blocks(&[&copy], &["--network", "regtest"]);
    let expected = "a block of another network, main";
    assert!(finished.stdout.contains(expected), "{finished:#?}");
    // Files with other names need not be obfuscated, and xor.dat need not be their key.
    let plain = dir.write("plain.dat", &framed(&large()));
    blocks(&[&plain], &[]).expect_success();
    dir.write("xor.dat", &key[..7]);
    blocks(&[&plain], &[]).expect_success();
}

#[test]
fn a_custom_signet_is_recognised_and_read_with_its_magic() {
    let dir = TempDir::new("signet");
    // The genesis block of every signet. Its target is too easy for other networks.
    let mut block = genesis();
    block[68..80].copy_from_slice(&[
        0x00, 0x8f, 0x4d, 0x5f, 0xae, 0x77, 0x03, 0x1e, 0x8a, 0xd2, 0x22, 0x03,
    ]);
    let frame = [
        &[0x54, 0xd2, 0x6f, 0xbd],
        &285_u32.to_le_bytes()[..],
        &block,
    ]
    .concat();
    let file = frame.repeat(3);
    let gap = [&frame[..], &[0; 8], &frame, &[0; 100]].concat();
    let gap = blocks(&[&dir.write("blk00001.dat", &gap)], &[]);
    assert!(gap.stdout.contains("try --magic 54d26fbd"), "{gap:#?}");
    let zeros = blocks(
        &[&dir.write("blk00001.dat", &file)],
        &["--magic", "00000000"],
    );
    assert!(
        zeros
            .error_line()
            .contains("zeros only fill the space between blocks")
    );
    let path = dir.write("blk00000.dat", &[&file[..], &[0; 100]].concat());
    for options in [&[][..], &["--network", "signet"], &["--magic", "0a03cf41"]] {
        let finished = blocks(&[&path], options);
        assert_eq!(finished.error_line(), "error: found 1 problem");
        let expected = "byte 0: a block file of an unknown network, perhaps a custom signet: try \
                        --magic 54d26fbd\n";
        assert!(finished.stdout.contains(expected), "{finished:#?}");
    }
    let good = |path: &Path, options: &[&str]| {
        let finished = blocks(&[path], options).expect_success();
        assert!(finished.stdout.starts_with("all 3 blocks are good\n"));
        assert!(finished.stdout.contains("\nnetwork           signet\n"));
    };
    good(&path, &["--magic", "54d26fbd"]);
    good(&path, &["--magic", "54D26FBD", "--network", "signet"]);
    // Its target is easier than the main chain allows.
    let finished = blocks(&[&path], &["--magic", "54d26fbd", "--network", "main"]);
    assert_eq!(finished.error_line(), "error: found 3 problems");

    // Obfuscated.
    let key = [0x8f, 1, 2, 0xfd, 4, 5, 6, 7];
    let mut file = file;
    Obfuscation(key).apply(0, &mut file);
    fs::write(&path, &file).unwrap();
    let finished = blocks(&[&path], &["--magic", "54d26fbd"]);
    let expected = "an obfuscated block file without its key";
    assert!(finished.stdout.contains(expected), "{finished:#?}");
    dir.write("xor.dat", &key);
    good(&path, &["--magic", "54d26fbd"]);
    let finished = blocks(&[&path], &[]);
    assert!(
        finished.stdout.contains("try --magic 54d26fbd\n"),
        "{finished:#?}"
    );

    for wrong in ["", "54d26fb", "54d26fbdd", "+4d26fbd", "54d26fbg"] {
        let finished = blocks(&[&path], &[&format!("--magic={wrong}")]);
        assert!(
            finished.error_line().contains("8 hexadecimal digits"),
            "{finished:#?}"
        );
    }
}

fn fifo(path: &Path) {
    let status = Command::new("mkfifo").arg(path).status();
    assert!(status.unwrap().success(), "{}", path.display());
}

#[test]
fn a_file_without_its_key_is_recognised() {
    let dir = TempDir::new("no-key");
    let key = Obfuscation([0x8f, 1, 2, 0xfd, 4, 5, 6, 7]);
    // The second file of a chain starts with a block whose predecessor's hash is not zero.
    for (name, block) in [("blk00000.dat", genesis()), ("blk00001.dat", large())] {
        let mut file = framed(&block).repeat(3);
        key.apply(0, &mut file);
        let path = dir.write(name, &file);
        let only = |expected: &str| {
            let (document, success) = json(&[&path], &[]);
            assert!(!success);
            let problems = document["problems"].as_array().unwrap();
            assert_eq!(problems.len(), 1, "{document:#}");
            assert_eq!(problems[0]["block"], Value::Null);
            let what = problems[0]["what"][0].as_str().unwrap();
            assert!(what.contains(expected), "{what}");
            assert_eq!(document["blocks"], 0);
        };
        only("an obfuscated block file without its key: copy xor.dat");
        // The key of another folder.
        dir.write("xor.dat", &[1, 2, 3, 4, 5, 6, 7, 8]);
        only("xor.dat in this folder is not its key");
        fs::write(&path, framed(&block)).unwrap();
        only("xor.dat in this folder is not its key");
        fs::remove_file(dir.0.join("xor.dat")).unwrap();
    }
    let finished = blocks(&[&dir.0], &[]).expect_success();
    assert!(finished.stdout.starts_with("all 2 blocks are good\n"));
}

/// Random bytes.
fn random_bytes(count: usize) -> Vec<u8> {
    let mut state = 0x1234_5678_9abc_def1_u64;
    let mut byte = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    (0..count).map(|_| byte()).collect()
}

#[test]
fn random_bytes_are_not_a_bad_block() {
    let dir = TempDir::new("random");
    let noise = random_bytes(5000);
    let named = dir.write("blk00000.dat", &noise);
    let other = dir.write("noise.bin", &noise);
    let framed = dir.write("framed.bin", &[framed(&noise), framed(&genesis())].concat());
    for (path, expected) in [
        (
            &named,
            "no block begins here (5000 bytes skipped); if the file is obfuscated, xor.dat",
        ),
        (&other, "no block begins here (5000 bytes skipped)"),
        (&framed, "malformed block: "),
    ] {
        let (document, success) = json(&[path], &[]);
        assert!(!success);
        assert_eq!(document["bad_blocks"], 0, "{document:#}");
        assert_eq!(document["blocks"], u64::from(path == &framed));
        let problems = document["problems"].as_array().unwrap();
        assert_eq!(problems.len(), 1, "{document:#}");
        assert_eq!(problems[0]["block"], Value::Null);
        let what = problems[0]["what"][0].as_str().unwrap();
        assert!(what.starts_with(expected), "{what}");
    }
}

#[test]
fn files_without_blocks_are_named() {
    let dir = TempDir::new("others");
    let good = dir.write("blk00000.dat", &framed(&genesis()));
    dir.write("blk00001.dat", &[]);
    fs::create_dir(dir.0.join("blk00002.dat")).unwrap();
    fifo(&dir.0.join("blk00003.dat"));
    // Frames with the network's magic, but no blocks.
    let undo = [&MAGIC[..], &40_u32.to_le_bytes(), &[7; 72]]
        .concat()
        .repeat(254);
    let undo = dir.write("rev00000.dat", &undo);
    let key = dir.write("xor.dat", &[0; 8]);
    let problems = |paths: &[&Path]| {
        let finished = blocks(paths, &[]);
        assert!(finished.stdout.contains("\nblocks            1\n"));
        let lines = finished
            .stdout
            .lines()
            .filter(|line| line.contains(", byte 0: "));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    let line = |name: &str, what: &str| format!("{}, byte 0: {what}", dir.0.join(name).display());
    assert_eq!(
        problems(&[&dir.0]),
        [
            line("blk00001.dat", "an empty file"),
            line("blk00002.dat", "a folder, not a block file"),
            line("blk00003.dat", "a FIFO, not a block file"),
        ]
    );
    assert_eq!(
        problems(&[&good, &undo, &key]),
        [
            line(
                "rev00000.dat",
                "Bitcoin Core's undo data, which contains no blocks"
            ),
            line(
                "xor.dat",
                "the key of the block files in this folder, which contains no blocks"
            ),
        ]
    );
    // The parent folder, which is Bitcoin Core's data folder.
    let data = TempDir::new("data");
    fs::create_dir(data.0.join("blocks")).unwrap();
    let finished = blocks(&[&data.0], &[]);
    assert!(
        finished
            .error_line()
            .ends_with("is a folder without blk*.dat files")
    );
    fs::write(data.0.join("blocks/blk00000.dat"), []).unwrap();
    let finished = blocks(&[&data.0], &[]);
    let hint = format!(
        "without blk*.dat files; {}/blocks has some",
        data.0.display()
    );
    assert!(finished.error_line().ends_with(&hint), "{finished:#?}");
}

/// A file name can neither forge a line nor control the terminal.
#[test]
fn names_are_printed_escaped() {
    let dir = TempDir::new("names");
    let name = "blk\u{1b}[2K\rall 9 blocks are good\nM\u{fc}ller.dat";
    let path = dir.write(name, b"garbage");
    let finished = blocks(&[&path], &[]);
    let escaped = r"/blk\u{1b}[2K\rall 9 blocks are good\nMüller.dat, byte 0: ";
    assert!(finished.stdout.contains(escaped), "{finished:#?}");
    assert!(!finished.stdout.contains('\u{1b}'));
    let finished = blocks(&[&dir.0.join("\u{1b}[2K")], &[]);
    assert!(
        finished.error_line().contains(r"/\u{1b}[2K: "),
        "{finished:#?}"
    );
    // JSON contains the name unchanged.
    let (document, _) = json(&[&path], &[]);
    assert_eq!(document["problems"][0]["file"], path.to_str().unwrap());
}

fn sha256d(bytes: &[u8]) -> [u8; 32] {
    let mut hash = [[0; 32]];
    packetlane::sha256d::Hasher::best().hash_many(&[bytes], &mut hash);
    hash[0]
}

/// A block of these transactions, without witnesses, with regtest's proof of work.
fn regtest_block(transactions: &[Vec<u8>]) -> Vec<u8> {
    let ids: Vec<_> = transactions.iter().map(|raw| sha256d(raw)).collect();
    let root = packetlane::sha256d::Hasher::best().merkle_root(&ids).root;
    let header = |nonce: u32| {
        let bits = 0x207f_ffff_u32.to_le_bytes();
        [&[1; 36][..], &root, &[2; 4], &bits, &nonce.to_le_bytes()].concat()
    };
    let mut headers = (0..).map(header);
    let mut block = headers.find(|header| sha256d(header)[31] < 0x7f).unwrap();
    block.push(transactions.len() as u8);
    block.extend(transactions.concat());
    block
}

#[test]
fn the_networks_limit_and_the_coinbase_are_checked_and_short_transactions_named() {
    let dir = TempDir::new("rules");
    let transaction = |outpoint: &[u8], script: &[u8]| {
        let script = [&[script.len() as u8], script].concat();
        [
            &[2, 0, 0, 0, 1],
            outpoint,
            &script,
            &[0xff; 4],
            &[1],
            &[0; 8],
            &[0],
            &[0; 4],
        ]
        .concat()
    };
    let null = [&[0; 32][..], &[0xff; 4]].concat();
    let coinbase = transaction(&null, b"height");
    let of_64_bytes = transaction(&[7; 36], b"abcd");
    assert_eq!(of_64_bytes.len(), 64);

    let good = dir.write("good.blk", &regtest_block(&[coinbase, of_64_bytes.clone()]));
    let finished = blocks(&[&good], &["--network", "regtest"]).expect_success();
    let mut txid = sha256d(&of_64_bytes);
    txid.reverse();
    let txid: String = txid.iter().map(|byte| format!("{byte:02x}")).collect();
    let note = format!(
        ": note: 1 transaction has 64 bytes, as long as two nodes of the Merkle tree \
         (CVE-2017-12842); it is number 1 (from 0), {txid}\n"
    );
    assert!(finished.stdout.ends_with(&note), "{finished:#?}");
    assert!(
        finished
            .stdout
            .contains("\nnot checked       the chain's own target, ")
    );
    let (document, success) = json(&[&good], &["--network", "regtest"]);
    assert!(success);
    assert_eq!(document["notes"].as_array().unwrap().len(), 1);

    let finished = blocks(&[&good], &["--network", "main"]);
    let fault =
        "the target 207fffff in the header is easier than 1d00ffff, the easiest of the network";
    assert!(finished.stdout.contains(fault), "{finished:#?}");

    let bad = dir.write("bad.blk", &regtest_block(&[of_64_bytes]));
    let finished = blocks(&[&bad], &["--network", "regtest"]);
    let fault = "the first transaction is not a coinbase";
    assert!(finished.stdout.contains(fault), "{finished:#?}");
}

#[test]
fn a_file_of_another_network_is_recognised() {
    let dir = TempDir::new("network");
    let path = dir.write("blk00000.dat", &framed(&genesis()).repeat(2));
    let finished = blocks(&[&path], &["--network", "signet"]);
    assert_eq!(finished.error_line(), "error: found 1 problem");
    assert!(
        finished.stdout.contains(
            "byte 0: a block of another network, main (582 bytes skipped); try --network main\n"
        ),
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
        "error: /dev/null is a device, neither a file nor a folder"
    );
    // An empty file is an error, too.
    let path = dir.write("blk00000.dat", &[0; 1000]);
    assert_eq!(blocks(&[&path], &[]).error_line(), "error: found no block");
    let path = dir.write("blk00000.dat", &[]);
    assert_eq!(blocks(&[&path], &[]).error_line(), "error: found 1 problem");
    for wrong in [&["--threads", "0"][..], &["--network", "mars"]] {
        let finished = blocks(&[&dir.0], wrong);
        assert!(
            finished.error_line().ends_with("; see --help"),
            "{finished:#?}"
        );
    }
}
