//! `packetlane peers` on the command line.

mod common;

use common::rpc::{rpc, rpc_of};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn peers(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_packetlane"));
    command.arg("peers").args(arguments);
    command.output().expect("the command")
}

fn text(arguments: &[&str]) -> String {
    let output = peers(arguments);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {errors}");
    String::from_utf8(output.stdout).expect("UTF-8")
}

fn error(arguments: &[&str]) -> String {
    let output = peers(arguments);
    let errors = String::from_utf8(output.stderr).expect("UTF-8");
    assert!(!output.status.success(), "{arguments:?}");
    assert_eq!(errors.lines().count(), 1, "{errors}");
    errors
}

/// A recorded conversation with btcd, from the lab.
const CAPTURE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../lab/data/btcd-regtest");

#[test]
fn the_published_plans() {
    for (arguments, begins) in [
        (&["plan"][..], "199 slots: 42.7 ms of CPU per second"),
        (&["plan", "--preset", "2023"], "124 slots: 34.6 ms"),
        (&["plan", "--preset", "proposal"], "198 slots: 46.4 ms"),
        (
            &[
                "plan",
                "--outbound",
                "8",
                "--block-relay",
                "2",
                "--inbound",
                "189",
                "--relay-share",
                "0.5",
            ],
            "199 slots: 42.7 ms",
        ),
        (
            &["plan", "--preset", "2023", "--speed", "0.5"],
            "124 slots: 69.2 ms",
        ),
        (&["plan", "--inbound", "0"], "10 slots: 5.0 ms"),
        // 112.8 full-relay peers: the proposal.
        (
            &["plan", "--inbound", "188", "--relay-share", "0.6"],
            "198 slots: 46.4 ms",
        ),
    ] {
        let said = text(arguments);
        assert!(said.starts_with(begins), "{arguments:?}: {said}");
    }
    let json = text(&["plan", "--json"]);
    let plan: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(plan["slots"]["inbound_full_relay"], 94);
}

#[test]
fn a_plan_for_another_machine() {
    let folder = std::env::temp_dir().join(format!("packetlane-plan-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("a folder");
    let file = |name: &str, contents: &str| {
        let path = folder.join(name);
        fs::write(&path, contents).expect("written");
        path.to_str().expect("UTF-8").to_owned()
    };
    let calibrated = text(&["plan", "--calibrate", "--json"]);
    let here = file("here.json", &calibrated);
    let mut twice: serde_json::Value = serde_json::from_str(&calibrated).expect("JSON");
    for time in ["hashing_ns", "validation_ns", "memory_ns"] {
        twice[time] = (twice[time].as_f64().expect("a time") * 2.0).into();
    }
    twice["machine"] = "twice".into();
    let there = file("there.json", &twice.to_string());

    let plan = [
        "plan",
        "--preset",
        "2023",
        "--machine",
        &there,
        "--measured-on",
        &here,
    ];
    let said = text(&plan);
    assert!(said.starts_with("124 slots: 69.2 ms"), "{said}");
    assert!(
        said.contains("machine     twice: takes 2.00 times as long"),
        "{said}"
    );
    assert!(said.contains("69.2 to 69.2 ms/s"), "{said}");
    assert!(!said.contains("not measured by us"), "{said}");
    assert!(
        said.contains("70 % slower (3.33 times as long): 115.3 ms/s"),
        "{said}"
    );
    assert!(
        said.contains("default of 199 slots: -75 slots, -16.2 ms/s"),
        "{said}"
    );

    let board = text(&["plan", "--machine", "raspberry-pi-4"]);
    for part in [
        "raspberry-pi-4",
        "hashing",
        "not measured by us",
        "EPYC 7R32",
    ] {
        assert!(board.contains(part), "{part}: {board}");
    }
    let json = text(&["plan", "--machine", "raspberry-pi-5", "--json"]);
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(json["machine"]["published"], true);

    let zero = file(
        "zero.json",
        &calibrated.replacen("\"memory_ns\": ", "\"memory_ns\": -", 1),
    );
    for (arguments, expected) in [
        (
            &["--machine", "raspberry-pi-9"][..],
            "no known board (raspberry-pi-4, ",
        ),
        (
            &["--machine", &zero],
            "the time for memory is not between 0 and 1 s",
        ),
        (&["--machine", CAPTURE], "cannot be read"),
        (
            &["--machine", &there, "--speed", "0.5"],
            "cannot be used with",
        ),
        (&["--calibrate", "--machine", &there], "cannot be used with"),
        (&["--measured-on", &here], "--machine"),
    ] {
        let arguments: Vec<_> = ["plan"].iter().chain(arguments).copied().collect();
        let error = error(&arguments);
        assert!(error.contains(expected), "{arguments:?}: {error}");
    }
    fs::remove_dir_all(&folder).expect("removed");
}

/// Shows the three kinds of work and this machine's factor.
#[test]
fn a_calibration_as_text() {
    let said = text(&["plan", "--calibrate"]);
    for part in [
        "times as long as AMD EPYC",
        "hashing ",
        "validation ",
        "memory ",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
}

#[test]
fn a_capture_has_counts_but_no_cpu_time() {
    assert!(Path::new(CAPTURE).exists());
    let said = text(&["report", CAPTURE]);
    assert!(
        said.contains("No CPU time per peer, only counts and bytes"),
        "{said}"
    );
    assert!(said.contains("headers"), "{said}");
    assert!(!said.contains("published"), "{said}");
    let no_plan = error(&["plan", CAPTURE]);
    assert!(no_plan.contains("btcd-regtest: the recording has no CPU time per peer"));
    assert!(no_plan.contains("--rpc HOST:PORT --probes"), "{no_plan}");
}

/// The kind of connection follows from which side spoke first, and from both `version` messages.
#[test]
fn a_capture_describes_its_peers() {
    let said = text(&["report", CAPTURE]);
    let has = |said: &str, words: &[&str]| {
        let mut lines = said.lines();
        let is_it = |line: &str| {
            line.split_ascii_whitespace()
                .take(words.len())
                .eq(words.iter().copied())
        };
        assert!(lines.any(is_it), "{words:?}: {said}");
    };
    // It lived under a minute, so it has no row.
    assert!(
        said.contains("1 of 1 connections were shorter than a minute"),
        "{said}"
    );
    assert!(
        !said.lines().any(|line| line.starts_with("outbound")),
        "{said}"
    );
    assert!(said.contains("Messages from full-relay peers"), "{said}");
    assert!(!said.contains("not known yet"), "{said}");

    // The same for longer; as btcd would have recorded it; and without the `relay` flag, the last
    // byte of `version`.
    let dir = TempDir::new("versions");
    let files = ["msgs_sent.dat", "msgs_recv.dat"];
    let [sent, received] = files.map(|name| {
        let mut file = fs::read(format!("{CAPTURE}/{name}")).expect("read");
        let begins = u64::from_le_bytes(*file.first_chunk().expect("a time"));
        file.extend((begins + 100_000_000).to_le_bytes());
        file.extend(b"verack\0\0\0\0\0\0\0\0\0\0");
        file
    });
    let mut quiet = sent.clone();
    quiet[24 + usize::from(sent[20]) - 1] = 0;
    for (name, contents) in [
        ("inbound", [&received, &sent]),
        ("no-relay", [&received, &quiet]),
        ("outbound", [&sent, &received]),
        ("outbound-no-relay", [&quiet, &received]),
    ] {
        fs::create_dir(dir.at(name)).expect("a folder");
        for (file, contents) in files.iter().zip(contents) {
            fs::write(format!("{}/{file}", dir.at(name)), contents).expect("written");
        }
    }
    let said = text(&["report", &dir.at("")]);
    has(&said, &["inbound", "full-relay", "1"]);
    has(&said, &["inbound", "block-relay", "1"]);
    has(&said, &["outbound", "full-relay", "1"]);
    has(&said, &["outbound", "block-relay", "1"]);
    has(&said, &["/packetlane:0.1.0/", "2"]);
    has(&said, &["/btcwire:0.5.0/btcd:0.26.2/", "2"]);
}

#[test]
fn bad_arguments_are_one_line() {
    assert!(error(&["report", "absent.parquet"]).contains("absent.parquet: No such file"));
    assert!(
        error(&["report", concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml")]).contains("Parquet")
    );
    assert!(error(&["report"]).contains("required"));
    assert!(error(&["plan", "--relay-share", "1.5"]).contains("from 0 to 1"));
    assert!(error(&["plan", "--speed", "0"]).contains("from 0.001 to 1000"));
    for number in ["-5", "1000001", "x"] {
        let said = error(&["plan", "--inbound", number]);
        assert!(
            said.contains("expected a whole number from 0 to 1000000"),
            "{said}"
        );
    }
}

/// A folder that is removed on drop.
struct TempDir(PathBuf);

impl TempDir {
    fn new(name: &str) -> Self {
        let id = std::process::id();
        let path = std::env::temp_dir().join(format!("packetlane-peers-{name}-{id}"));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).expect("a folder");
        Self(path)
    }

    /// The path of a file in the folder.
    fn at(&self, name: &str) -> String {
        self.0.join(name).to_str().expect("UTF-8").to_owned()
    }

    /// A recording of these records in a window of 100 seconds.
    fn recording_of(&self, name: &str, events: Vec<packetlane_peers::Event>) -> String {
        use packetlane_peers::{Event, Record, file::Writer};
        let path = self.at(name);
        let mut writer = Writer::create(Path::new(&path)).expect("a folder");
        let start = 1_790_000_000_000_000;
        let window = Event::Window {
            start,
            lost: 0,
            probes_ns: 0,
            stolen_ns: 0,
        };
        for event in events.into_iter().chain([window]) {
            let time = start + 100_000_000;
            writer.add(&Record { time, event }).expect("written");
        }
        writer.finish().expect("finished");
        path
    }

    /// A recording of so many parts, each with a peer that stays for 100 seconds.
    fn recording(&self, name: &str, parts: u64) -> String {
        use packetlane_peers::file::Writer;
        use packetlane_peers::{Connection, ConnectionType, Cost, Event, Record};
        let path = self.at(name);
        let mut writer = Writer::create(Path::new(&path))
            .expect("a folder")
            .with_part_rows(3);
        for part in 0..parts {
            let start = 1_790_000_000_000_000 + part * 100_000_000;
            let peer = part as i64;
            let connection = Connection {
                address: "192.0.2.1:8333".to_owned(),
                kind: ConnectionType::Inbound,
                network: None,
                transport: None,
                relay: Some(true),
                user_agent: None,
                since: None,
            };
            let connected = Event::Connected { peer, connection };
            let received = Event::Received {
                peer,
                message_type: format!("type{part}"),
                bytes: 100,
                cost: Some(Cost {
                    wall_ns: 5000,
                    cpu_ns: 4000,
                }),
                added: None,
            };
            let window = Event::Window {
                start,
                lost: 0,
                probes_ns: 0,
                stolen_ns: 0,
            };
            let events = [
                (start, connected),
                (start + 1, received),
                (start + 99_999_999, window),
            ];
            for (time, event) in events {
                writer.add(&Record { time, event }).expect("written");
            }
        }
        writer.finish().expect("finished");
        path
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Probes see calls for peers that connected earlier, but not whether these relay transactions.
#[test]
fn no_plan_from_earlier_peers_says_what_to_do() {
    use packetlane_peers::{Calls, Connection, ConnectionType, Cost, Event};
    let dir = TempDir::new("standing");
    let cost = Cost {
        wall_ns: 1000,
        cpu_ns: 1000,
    };
    let calls = Calls { count: 50, cost };
    let visits = |peer| Event::Calls {
        peer,
        receiving: calls,
        sending: calls,
    };
    let connected = |peer, relay| Event::Connected {
        peer,
        connection: Connection {
            address: format!("192.0.2.{peer}:8333"),
            kind: ConnectionType::Inbound,
            network: None,
            transport: None,
            relay,
            user_agent: None,
            since: None,
        },
    };
    let two = |relay| {
        vec![
            connected(1, relay),
            visits(1),
            connected(2, relay),
            visits(2),
        ]
    };
    let unknown = dir.recording_of("unknown.parquet", two(None));
    let said = error(&["plan", &unknown]);
    for part in [
        "unknown.parquet: ",
        "no peers known to be outbound full-relay; 2 peers that were connected before it began \
         may be",
        "--rpc HOST:PORT --probes",
        "(--outbound 0)",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    // With the RPC's information there is a plan, for the kinds of peers that occur.
    let known = dir.recording_of("known.parquet", two(Some(true)));
    let said = error(&["plan", &known]);
    let expected = "no outbound block-relay peers, nor similar ones: record while the node has \
                    some, or plan without them (--block-relay 0)";
    assert!(said.contains(expected), "{said}");
    let said = text(&[
        "plan",
        &known,
        "--block-relay=0",
        "--inbound=9",
        "--relay-share=1",
    ]);
    assert!(said.starts_with("17 slots: "), "{said}");
}

/// With no peers, the report does not claim that the source measures nothing.
#[test]
fn a_recording_without_peers_says_so() {
    use packetlane_peers::Event;
    let dir = TempDir::new("nobody");
    let thread = Event::Thread {
        name: "b-msghand".to_owned(),
        cpu_ns: 1_000_000_000,
    };
    let path = dir.recording_of("nobody.parquet", vec![thread, Event::Loop { cpu_ns: 1 }]);
    let said = text(&["report", &path]);
    assert!(
        said.contains("\nNo peer was connected during the observed time.\n"),
        "{said}"
    );
    assert!(!said.contains("No CPU time"), "{said}");
    assert!(
        said.contains("The message thread ran 10.0 ms per second"),
        "{said}"
    );
    let said = error(&["plan", &path]);
    assert!(
        said.contains("nobody.parquet: the recording has no peers"),
        "{said}"
    );
}

fn fifo(path: &str) {
    let status = Command::new("mkfifo").arg(path).status();
    assert!(status.expect("mkfifo").success());
}

/// Exit status 0 only if no file is damaged.
#[test]
fn a_damaged_file_is_named_and_the_others_are_read() {
    let dir = TempDir::new("damaged");
    let path = dir.recording("a.parquet", 3);
    assert!(text(&["report", &path]).contains("type1"));
    let second = format!("{path}/000002.parquet");
    fs::write(&second, "damaged").expect("written");
    let alone = dir.at("alone.parquet");
    fs::write(&alone, "damaged").expect("written");
    let json = dir.at("report.json");
    for arguments in [
        &["report", &path][..],
        &["report", &path, "--json", &json],
        // Whatever other files there are.
        &["report", &alone, &path, CAPTURE],
        &[
            "plan",
            &path,
            "--outbound=0",
            "--block-relay=0",
            "--inbound=0",
        ],
    ] {
        let output = peers(arguments);
        let errors = String::from_utf8(output.stderr).expect("UTF-8");
        assert_eq!(output.status.code(), Some(1), "{errors}");
        let lines: Vec<_> = errors.lines().collect();
        let (last, damaged) = lines.split_last().expect("errors");
        assert!(
            last.starts_with("error: 1 file is damaged")
                || last.starts_with("error: 2 files are damaged"),
            "{errors}"
        );
        for line in damaged {
            let (file, what) = line.split_once(": ").expect("a file");
            assert!([&second, &alone].contains(&&file.to_owned()), "{errors}");
            assert!(what.starts_with("not an intact"), "{errors}");
        }
        let said = String::from_utf8(output.stdout).expect("UTF-8");
        if arguments[0] == "plan" {
            assert!(said.starts_with("0 slots: "), "{said}");
        } else {
            assert!(said.contains("type0") && said.contains("type2"), "{said}");
            assert!(!said.contains("type1"), "{said}");
        }
    }
    assert!(
        fs::read_to_string(&json)
            .expect("a report")
            .contains("type2")
    );
    // A message that is cut off at the end of a capture is damage, too.
    let capture = dir.at("capture");
    fs::create_dir(&capture).expect("a folder");
    let whole = fs::read(format!("{CAPTURE}/msgs_recv.dat")).expect("the capture");
    fs::write(
        format!("{capture}/msgs_recv.dat"),
        &whole[..whole.len() - 1],
    )
    .expect("written");
    let output = peers(&["report", &capture]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stdout).contains("headers"));
    // Nothing can be read.
    let said = error(&["report", &second]);
    assert!(
        said.contains("not an intact, uncompressed Parquet file"),
        "{said}"
    );
}

/// A file that is not a recording is treated like a damaged one. A path that does not exist is
/// probably a typo, and ends the command at once.
#[test]
fn an_empty_folder_does_not_drop_other_recordings() {
    let dir = TempDir::new("empty");
    let path = dir.recording("a.parquet", 1);
    let empty = dir.at("empty");
    fs::create_dir(&empty).expect("a folder");
    for arguments in [["report", &empty, &path], ["report", &path, &empty]] {
        let output = peers(&arguments);
        let errors = String::from_utf8(output.stderr).expect("UTF-8");
        let expected = format!(
            "{empty}: no .parquet files in this folder; records before the damage are counted, the \
             rest is skipped\nerror: 1 file is damaged; its intact records were counted\n"
        );
        assert_eq!(errors, expected);
        assert_eq!(output.status.code(), Some(1));
        assert!(String::from_utf8_lossy(&output.stdout).contains("type0"));
    }
    let said = error(&["report", &path, &dir.at("absent")]);
    assert!(said.contains("absent: No such file"), "{said}");
}

/// Only one part is in memory at a time, however many recordings there are.
#[cfg(target_os = "linux")]
#[test]
fn many_recordings_take_the_memory_of_one() {
    use std::io::{Seek, SeekFrom, Write};
    const LENGTH: u64 = 96 << 20;
    let dir = TempDir::new("memory");
    let path = dir.recording("a.parquet", 1);
    let part = fs::read(format!("{path}/000001.parquet")).expect("a part");
    let (before, end) = part.split_at(part.len() - 8);
    let footer = u32::from_le_bytes(end[..4].try_into().expect("4 bytes")) as usize;
    let (pages, footer) = before.split_at(before.len() - footer);
    // A hole between the pages and the footer.
    let sparse: Vec<_> = (0..8)
        .map(|number| dir.at(&format!("{number}.parquet")))
        .collect();
    for path in &sparse {
        let mut file = fs::File::create(path).expect("a file");
        file.write_all(pages).expect("written");
        let footer = [footer, end].concat();
        file.seek(SeekFrom::Start(LENGTH - footer.len() as u64))
            .expect("a place");
        file.write_all(&footer).expect("written");
    }
    let mut limited = Command::new("sh");
    limited.args(["-c", "ulimit -v 600000 && exec \"$0\" peers report \"$@\""]);
    limited.arg(env!("CARGO_BIN_EXE_packetlane")).args(&sparse);
    let output = limited.output().expect("a shell");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(String::from_utf8_lossy(&output.stdout).contains("type0"));
}

#[test]
fn a_fifo_is_refused_and_names_are_escaped() {
    let dir = TempDir::new("fifo");
    let path = dir.at("x\u{1b}[2K\u{202e}.parquet");
    fifo(&path);
    for arguments in [&["report", &path], &["plan", &path]] {
        let said = error(arguments);
        let expected = r"x\u{1b}[2K\u{202e}.parquet: it is a FIFO, not a file";
        assert!(said.trim_end().ends_with(expected), "{said}");
    }
    // In a recording and in a capture.
    let path = dir.recording("a.parquet", 1);
    fifo(&format!("{path}/000002.parquet"));
    let output = peers(&["report", &path]);
    assert!(String::from_utf8_lossy(&output.stdout).contains("type0"));
    assert!(String::from_utf8_lossy(&output.stderr).contains("it is a FIFO, not a file"));
    fifo(&dir.at("msgs_recv.dat"));
    assert!(error(&["report", &dir.at("")]).contains("it is a FIFO, not a file"));
    let cookie = dir.at("msgs_recv.dat");
    let rpc = ["watch", "--rpc", "127.0.0.1:1", "--rpc-cookie", &cookie];
    assert!(error(&rpc).contains("it is a FIFO, not a file"));
    // Arguments that a shell expands from file names.
    assert!(!error(&["report", "--\u{1b}[2K"]).contains('\u{1b}'));
}

#[test]
fn reports_replace_a_planted_link_and_are_written_to_devices() {
    let dir = TempDir::new("planted");
    let recording = dir.recording("a.parquet", 2);
    let (target, json, html) = (dir.at("target"), dir.at("r.json"), dir.at("r.html"));
    fs::write(&target, "precious").expect("written");
    std::os::unix::fs::symlink(&target, &json).expect("a link");
    std::os::unix::fs::symlink(&target, &html).expect("a link");
    text(&["report", &recording, "--json", &json, "--html", &html]);
    assert_eq!(fs::read(&target).expect("the target"), b"precious");
    assert!(
        fs::read_to_string(&json)
            .expect("a report")
            .starts_with('{')
    );
    assert!(
        fs::read_to_string(&html)
            .expect("a report")
            .starts_with("<!")
    );
    let said = text(&[
        "report",
        &recording,
        "--json",
        "/dev/stdout",
        "--html",
        "/dev/null",
    ]);
    assert!(said.contains("\n{") && said.contains("type1"), "{said}");
    let full = peers(&["report", &recording, "--json", "/dev/full"]);
    assert!(String::from_utf8_lossy(&full.stderr).contains("cannot write /dev/full: "));
}

/// Runs `peers watch` or `record` with the RPC and a password.
fn by_rpc(arguments: &[&str], address: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_packetlane"));
    command.arg("peers").args(arguments);
    command.args(["--rpc", address, "--rpc-user", "u", "--every", "0.2"]);
    command.env("PACKETLANE_RPC_PASSWORD", "secret");
    command
}

/// What is given twice would count twice.
#[test]
fn a_file_is_given_twice() {
    let dir = TempDir::new("twice");
    let path = dir.recording("a.parquet", 2);
    let part = format!("{path}/000001.parquet");
    let same = dir.at("same");
    for (arguments, expected) in [
        (&["report", &path, &path][..], "given twice"),
        (&["report", &part, &path], "given twice"),
        (&["plan", &path, &part], "given twice"),
        (
            &["report", &path, "--html", &same, "--json", &same],
            "the same file",
        ),
    ] {
        let output = peers(arguments);
        let errors = String::from_utf8(output.stderr).expect("UTF-8");
        assert!(!output.status.success());
        assert!(errors.contains(expected), "{errors}");
        assert_eq!(errors.lines().count(), 1, "{errors}");
    }
    // To compare a recording with itself is odd, but right.
    assert!(text(&["report", &path, "--against", &path]).contains("Compared"));
}

#[test]
fn watch_by_rpc() {
    let output = by_rpc(&["watch", "--for", "0.5"], &rpc(10))
        .output()
        .expect("the command");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    assert!(errors.contains("no message counts"), "{errors}");
    let said = String::from_utf8(output.stdout).expect("UTF-8");
    let row = said
        .lines()
        .find(|line| line.starts_with("      7 "))
        .expect("the peer");
    let cells: Vec<&str> = row.split_ascii_whitespace().collect();
    assert_eq!(
        cells[..5],
        ["7", "inbound", "full-relay", "ipv4", "v2"],
        "{said}"
    );
    assert_eq!(cells[6..11], ["-"; 5], "{said}");
    assert!(
        said.contains("1 peer: received ") && !said.contains("msg/s,"),
        "{said}"
    );
    assert!(!said.contains("no peer's"), "{said}");

    // The node stops: the figures up to then remain.
    let output = by_rpc(&["watch"], &rpc(2)).output().expect("the command");
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stdout).contains("1 peer: "));
    let errors = String::from_utf8_lossy(&output.stderr);
    let last = errors.lines().last().expect("an error");
    assert!(last.contains("does not answer"), "{errors}");
    assert!(!errors.contains("secret"), "{errors}");
}

/// There is no CPU time to sort by.
#[test]
fn by_rpc_the_peers_with_most_bytes_come_first() {
    for (sort, expected) in [
        (&[][..], ["9", "8", "7"]),
        (&["--sort", "id"], ["7", "8", "9"]),
    ] {
        let address = rpc_of(10, &[(7, 10), (8, 1000), (9, 2000)]);
        let arguments = [&["watch", "--for", "0.3"], sort].concat();
        let output = by_rpc(&arguments, &address).output().expect("the command");
        let said = String::from_utf8(output.stdout).expect("UTF-8");
        let rows = said.lines().filter(|line| line.contains("inbound"));
        let numbers = rows.filter_map(|line| line.split_ascii_whitespace().next());
        let numbers: Vec<&str> = numbers.take(3).collect();
        assert_eq!(numbers, expected, "{said}");
    }
}

/// A program named `bitcoind` with the RPC of one peer. It prints its address. This test binary,
/// run as a child of other tests.
#[test]
#[ignore = "part of other tests"]
fn serves() {
    println!("\nRPC {}", rpc(10));
    let mut end = String::new();
    std::io::stdin().read_line(&mut end).expect("the end");
}

/// A running program named `bitcoind` that runs [`serves`].
#[cfg(target_os = "linux")]
struct Bitcoind {
    child: std::process::Child,
    program: String,
    rpc: String,
}

#[cfg(target_os = "linux")]
impl Bitcoind {
    fn start(dir: &TempDir, folder: &str) -> Self {
        use std::io::{BufRead as _, BufReader};
        use std::process::Stdio;
        fs::create_dir(dir.at(folder)).expect("a folder");
        let program = dir.at(&format!("{folder}/bitcoind"));
        fs::copy(std::env::current_exe().expect("this test"), &program).expect("copied");
        let mut command = Command::new(&program);
        command.args(["--exact", "serves", "--ignored", "--nocapture"]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("started");
        let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        let rpc = lines.find_map(|line| Some(line.ok()?.strip_prefix("RPC ")?.to_owned()));
        Self {
            child,
            program,
            rpc: rpc.expect("an address"),
        }
    }

    /// How it is described to the user.
    fn described(&self) -> String {
        format!("process {}, {}, of user ", self.child.id(), self.program)
    }
}

#[cfg(target_os = "linux")]
impl Drop for Bitcoind {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Regardless of its owner and of what it is.
#[cfg(target_os = "linux")]
#[test]
fn a_node_that_was_chosen_is_named() {
    let dir = TempDir::new("chosen");
    let one = Bitcoind::start(&dir, "one");
    let output = by_rpc(&["watch", "--for", "0.3"], &one.rpc).output();
    let output = output.expect("the command");
    let errors = String::from_utf8_lossy(&output.stderr);
    let expected = format!("the node is {}", one.described());
    assert!(errors.contains(&expected), "{expected}: {errors}");
    assert!(output.status.success(), "{errors}");
    // None is chosen of several.
    let two = Bitcoind::start(&dir, "two");
    let said = error(&["watch"]);
    assert!(said.contains("several nodes are running: "), "{said}");
    for node in [&one, &two] {
        assert!(said.contains(&node.described()), "{said}");
    }
    assert!(said.ends_with("; pass --pid PID\n"), "{said}");
}

/// The RPC's address identifies one of several nodes.
#[cfg(all(
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64")
))]
#[test]
fn probes_are_attached_to_the_node_that_serves_the_rpc() {
    let dir = TempDir::new("serving");
    let nodes = ["one", "two"].map(|folder| Bitcoind::start(&dir, folder));
    for node in &nodes {
        let output = by_rpc(&["watch", "--probes"], &node.rpc).output();
        let errors = String::from_utf8(output.expect("the command").stderr).expect("UTF-8");
        // It has no tracepoints.
        let expected = format!("cannot attach probes to {}", node.described());
        assert!(errors.contains(&expected), "{expected}: {errors}");
    }
}

/// The size of a program is up to its owner.
#[cfg(all(
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64")
))]
#[test]
fn a_program_of_3_gb_takes_no_memory() {
    let dir = TempDir::new("long-program");
    let program = dir.at("bitcoind");
    fs::copy("/bin/sleep", &program).expect("copied");
    let file = fs::OpenOptions::new().write(true).open(&program);
    file.expect("opened").set_len(3 << 30).expect("a hole");
    let mut child = Command::new(&program).arg("60").spawn().expect("started");
    let mut limited = Command::new("sh");
    limited.args([
        "-c",
        "ulimit -v 600000 && exec \"$0\" peers watch --pid \"$1\"",
    ]);
    limited.arg(env!("CARGO_BIN_EXE_packetlane"));
    let output = limited.arg(child.id().to_string()).output();
    child.kill().expect("killed");
    child.wait().expect("ended");
    let errors = String::from_utf8(output.expect("a shell").stderr).expect("UTF-8");
    assert!(
        errors.contains("no tracepoint net:inbound_message"),
        "{errors}"
    );
}

/// Root is not told to become root.
#[cfg(all(
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64")
))]
#[test]
fn a_process_that_is_not_a_node_is_named() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("NOT RUN: processes that are no nodes, as root: this is not root");
        return;
    }
    for (pid, expected) in [("1", "process 1, "), ("2", "it is a kernel thread")] {
        // In a container, 2 may be a process like any other, or none.
        let is_kernels = fs::read_to_string("/proc/2/comm").is_ok_and(|name| name == "kthreadd\n");
        if pid == "2" && !is_kernels {
            eprintln!("NOT RUN: a thread of the kernel: none is seen here");
            continue;
        }
        let said = error(&["watch", "--pid", pid]);
        assert!(
            said.contains(expected) && !said.contains("need root"),
            "{said}"
        );
    }
}

#[test]
fn record_by_rpc() {
    let name = format!("packetlane-rpc-{}.parquet", std::process::id());
    let path = std::env::temp_dir().join(name);
    let path = path.to_str().expect("UTF-8");
    let output = by_rpc(&["record", path, "--for", "0.5"], &rpc(10))
        .output()
        .expect("the command");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let said = text(&["report", path]);
    assert!(said.contains("no message counts, only bytes"), "{said}");
    assert!(said.contains("inbound full-relay"), "{said}");
    let row = said
        .lines()
        .find(|line| line.starts_with("tx "))
        .expect("the type");
    let cells: Vec<&str> = row.split_ascii_whitespace().collect();
    assert_eq!(cells[1], "-", "{said}");
    assert!(error(&["plan", path]).contains("no CPU time per peer"));
    std::fs::remove_dir_all(path).expect("removed");
}

/// A service that is restarted continues its recording, within its limits.
#[test]
fn a_recording_is_continued() {
    let dir = TempDir::new("continued");
    let path = dir.at("a.parquet");
    let record = |options: &[&str]| {
        let arguments = [&["record", &path, "--for", "0.5"], options].concat();
        by_rpc(&arguments, &rpc(10)).output().expect("the command")
    };
    for said in ["added to", "added to"] {
        let output = record(&["--append", "--keep", "30d", "--max-size", "10MB"]);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{errors}");
        assert!(String::from_utf8_lossy(&output.stdout).contains(said));
    }
    // The same peer twice: the recorder was not there in between.
    let parts = || fs::read_dir(&path).expect("a folder").count();
    assert_eq!(parts(), 2);
    let json = dir.at("report.json");
    text(&["report", &path, "--json", &json]);
    let report = fs::read_to_string(&json).expect("a report");
    let report: serde_json::Value = serde_json::from_str(&report).expect("JSON");
    assert_eq!(report["short"]["of"], 2, "{report}");

    // Without --append, it is refused as ever; a folder with other files always.
    let refusal = |options: &[&str]| {
        let output = record(options);
        assert_eq!(output.status.code(), Some(1));
        let said = String::from_utf8(output.stderr).expect("UTF-8");
        assert_eq!(said.lines().count(), 1, "{said}");
        said
    };
    assert!(refusal(&[]).contains("already exists: choose another name"));
    let notes = format!("{path}/notes.txt");
    fs::write(&notes, "precious").expect("written");
    let said = refusal(&["--append", "--max-size", "10MB"]);
    assert!(
        said.contains("a.parquet: notes.txt is no part of it"),
        "{said}"
    );
    assert_eq!(fs::read(&notes).expect("a file"), b"precious");
    fs::remove_file(&notes).expect("removed");
    fs::write(format!("{path}/000002.parquet"), "damaged").expect("written");
    let said = refusal(&["--append"]);
    assert!(said.contains("000002.parquet: not an intact"), "{said}");
    assert_eq!(parts(), 2);

    for (options, expected) in [
        (
            ["--max-size", "9MB"],
            "expected a number of bytes from 10MB",
        ),
        (["--max-size", "2"], "expected a number of bytes from 10MB"),
        (
            ["--keep", "30"],
            "expected a number of days, hours or minutes",
        ),
        (
            ["--keep", "0d"],
            "expected a number of days, hours or minutes",
        ),
    ] {
        let said = error(&["record", &dir.at("b.parquet"), options[0], options[1]]);
        assert!(said.contains(expected), "{said}");
    }
}

#[test]
fn a_report_on_a_period() {
    let dir = TempDir::new("period");
    // Parts of 100 seconds each, from 2026-09-21 14:13:20 UTC.
    let path = dir.recording("a.parquet", 9);
    for (since, until, types) in [
        (None, None, 0..9),
        (Some("2026-09-21"), Some("2026-09-22"), 0..9),
        (Some("2026-09-21T14:15:00Z"), None, 1..9),
        (
            Some("2026-09-21T14:15Z"),
            Some("2026-09-21T14:21:40Z"),
            1..5,
        ),
        (None, Some("2026-09-21T14:15:01Z"), 0..1),
    ] {
        let mut arguments = vec!["report", &path];
        for (option, value) in [("--since", since), ("--until", until)] {
            arguments.extend(value.map(|value| [option, value]).into_iter().flatten());
        }
        let said = text(&arguments);
        for number in 0..9 {
            let is_there = said.contains(&format!("type{number}"));
            assert_eq!(is_there, types.contains(&number), "{arguments:?}: {said}");
        }
    }
    for (options, expected) in [
        (
            &["--until", "2026-09-21"][..],
            "nothing was recorded in this period",
        ),
        (&["--since", "tomorrow"], "expected a time ago, such as 7d"),
        (
            &["--since", "2026-09-22", "--until", "2026-09-21"],
            "--since is not before --until",
        ),
    ] {
        let said = error(&[&["report", &path], options].concat());
        assert!(said.contains(expected), "{said}");
    }
    // A conversation has no windows.
    let said = error(&["report", CAPTURE, "--since", "1d"]);
    assert!(
        said.contains("are for recordings of `peers record`"),
        "{said}"
    );
}

#[test]
fn metrics_while_it_watches() {
    use std::io::{BufRead, BufReader, Read, Write};
    let mut command = by_rpc(&["watch", "--prometheus", "127.0.0.1:0"], &rpc(1000));
    command
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::piped());
    let mut child = command.spawn().expect("the command");
    let mut errors = BufReader::new(child.stderr.take().expect("piped")).lines();
    let line = errors.next().expect("a line").expect("UTF-8");
    let address = line.strip_prefix("metrics at http://").expect("an address");
    let address = address.strip_suffix("/metrics").expect("a path");
    let begun = std::time::Instant::now();
    loop {
        let mut stream = std::net::TcpStream::connect(address).expect("the server");
        stream
            .write_all(b"GET /metrics HTTP/1.0\r\n\r\n")
            .expect("sent");
        let mut said = String::new();
        stream.read_to_string(&mut said).expect("an answer");
        let bytes = "packetlane_peer_bytes_total{peer=\"7\",direction=\"received\"} ";
        if let Some(line) = said.lines().find_map(|line| line.strip_prefix(bytes)) {
            let bytes: u64 = line.parse().expect("a number");
            assert!(bytes >= 1000 && bytes.is_multiple_of(1000), "{line}");
            // Unknown values are omitted.
            assert!(!said.contains("packetlane_peer_messages_total"), "{said}");
            assert!(!said.contains("cpu_seconds"), "{said}");
            assert!(said.contains("transport=\"v2\"} 1"), "{said}");
            break;
        }
        assert!(begun.elapsed().as_secs() < 20, "{said}");
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    child.kill().expect("killed");
    child.wait().expect("ended");
}

/// A live table on its own terminal.
#[cfg(target_os = "linux")]
struct OnTerminal {
    child: std::process::Child,
    keys: std::fs::File,
    shown: std::sync::Arc<std::sync::Mutex<Vec<u8>>>,
    terminal: std::fs::File,
    before: rustix::termios::Termios,
}

#[cfg(target_os = "linux")]
impl OnTerminal {
    fn start(mut command: Command) -> Self {
        use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
        use rustix::termios::{Winsize, tcgetattr, tcsetwinsize};
        use std::fs::File;
        let controller = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
        grantpt(&controller).expect("granted");
        unlockpt(&controller).expect("unlocked");
        let name = ptsname(&controller, Vec::new()).expect("its name");
        let mut options = std::fs::OpenOptions::new();
        let name = name.to_str().expect("UTF-8");
        let terminal = options.read(true).write(true).open(name).expect("opened");
        let size = Winsize {
            ws_row: 24,
            ws_col: 130,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        tcsetwinsize(&terminal, size).expect("a size");
        let before = tcgetattr(&terminal).expect("its state");
        let end = || terminal.try_clone().expect("cloned");
        let child = command.stdin(end()).stdout(end()).stderr(end()).spawn();
        let keys = File::from(controller);
        let mut output = keys.try_clone().expect("cloned");
        let shown = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
        let takes = std::sync::Arc::clone(&shown);
        std::thread::spawn(move || {
            let mut part = [0; 4096];
            while let Ok(length) = std::io::Read::read(&mut output, &mut part) {
                takes
                    .lock()
                    .expect("whole")
                    .extend_from_slice(&part[..length]);
            }
        });
        Self {
            child: child.expect("the command"),
            keys,
            shown,
            terminal,
            before,
        }
    }

    fn shown(&self) -> String {
        String::from_utf8_lossy(&self.shown.lock().expect("whole")).into_owned()
    }

    fn wait_for(&self, text: &str) {
        let begun = std::time::Instant::now();
        while !self.shown().contains(text) {
            assert!(
                begun.elapsed().as_secs() < 20,
                "no {text:?}: {:?}",
                self.shown()
            );
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }

    /// Waits for the end, after which the terminal is restored. Returns the last output, and
    /// whether the command succeeded.
    fn end(mut self) -> (String, bool) {
        let status = self.child.wait().expect("ended");
        // So that all earlier output has arrived, too.
        std::io::Write::write_all(&mut self.terminal, b"that is all").expect("written");
        self.wait_for("that is all");
        let after = rustix::termios::tcgetattr(&self.terminal).expect("its state");
        assert_eq!(after.local_modes, self.before.local_modes);
        assert_eq!(after.input_modes, self.before.input_modes);
        assert_eq!(after.output_modes, self.before.output_modes);
        let shown = self.shown();
        let (_, last) = shown.rsplit_once(LEAVE).expect("left");
        (last.to_owned(), status.success())
    }
}

/// The sequence that restores the earlier screen.
#[cfg(target_os = "linux")]
const LEAVE: &str = "\u{1b}[?1049l";

#[cfg(target_os = "linux")]
#[test]
fn a_live_table() {
    use std::io::Write;
    for (keys, signal) in [(&b"q"[..], false), (&b"\x03"[..], false), (&b""[..], true)] {
        let mut live = OnTerminal::start(by_rpc(&["watch", "--sort", "id"], &rpc(1000)));
        live.wait_for("full-relay");
        // Sorted by bytes: another column heading is marked, and redrawn.
        live.keys.write_all(b"b").expect("pressed");
        live.keys.write_all(keys).expect("pressed");
        if signal {
            let pid = rustix::process::Pid::from_child(&live.child);
            rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("signalled");
        }
        let (last, success) = live.end();
        assert!(success, "{keys:?}: {last:?}");
    }
    // The node stops: the error appears on the restored screen.
    let live = OnTerminal::start(by_rpc(&["watch"], &rpc(3)));
    live.wait_for("full-relay");
    let (last, success) = live.end();
    assert!(!success && last.contains("does not answer"), "{last:?}");
}

#[test]
fn bad_options_for_the_node() {
    let address = "127.0.0.1:1";
    for (arguments, expected) in [
        (&["--rpc", "localhost"][..], "HOST:PORT"),
        (&["--rpc", address, "--rpc-cookie", "/nowhere"], "/nowhere"),
        (
            &["--rpc", address, "--rpc-user", "u"],
            "PACKETLANE_RPC_PASSWORD",
        ),
        (
            &["--rpc", address, "--window", "1"],
            "--window is only for probes",
        ),
        (&["--rpc-user", "u"], "--rpc"),
        (&["--window", "11"], "--window 11 is longer than --every 5"),
        (&["--prometheus", "nowhere"], "expected HOST:PORT"),
        (
            &["--prometheus", "nowhere.invalid:1"],
            "cannot resolve nowhere.invalid:1: ",
        ),
        (&["--name", "x"], "--nats"),
        (&["--prometheus-peers", "5"], "--prometheus"),
        (
            &["--prometheus", "127.0.0.1:0", "--prometheus-peers", "1001"],
            "expected a number from 0 to 1000",
        ),
    ] {
        let arguments = [&["watch"], arguments].concat();
        let said = error(&arguments);
        assert!(said.contains(expected), "{arguments:?}: {said}");
    }
}

#[cfg(not(feature = "nats"))]
#[test]
fn a_build_without_nats_says_so() {
    let said = error(&["watch", "--nats", "nats://127.0.0.1:4222"]);
    assert!(said.contains("--features peers,nats"), "{said}");
}
