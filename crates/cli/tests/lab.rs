//! `packetlane lab`: its arguments, failing output, replayed recordings, and reading reports. The
//! experiments are tested in their own crate.

mod common;

use common::Running;
use serde_json::{Value, json};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A folder that is removed on drop.
struct TempDir(PathBuf);

impl TempDir {
    fn new(name: &str) -> Self {
        let id = std::process::id();
        let path = std::env::temp_dir().join(format!("packetlane-lab-{name}-{id}"));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// One short case; its reports are `report.json` and `html` in `dir`.
fn lab(dir: &TempDir, html: &OsStr) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_packetlane"));
    command.args(["lab", "--quick", "--json"]);
    command.arg(dir.0.join("report.json"));
    command.arg("--html").arg(dir.0.join(html));
    command
}

fn short(dir: &TempDir, html: &OsStr) -> Command {
    let mut command = lab(dir, html);
    command.args(["sha256d.d64", "--filter", "batch=1024"]);
    command
}

fn json(dir: &TempDir) -> Value {
    serde_json::from_slice(&fs::read(dir.0.join("report.json")).unwrap()).unwrap()
}

#[test]
fn an_argument_need_not_be_utf8() {
    let dir = TempDir::new("bytes");
    let html = OsStr::from_bytes(b"report-\xff.html");
    let finished = Running::start(&mut short(&dir, html)).finish();
    assert!(finished.success, "{finished:#?}");
    assert!(!json(&dir)["rows"].as_array().unwrap().is_empty());
    let page = fs::read_to_string(dir.0.join(html)).unwrap();
    assert!(page.contains("report-\u{fffd}.html"), "its command");
}

/// On a full disk there is no panic (status 101), and the reports are written.
#[test]
fn output_that_cannot_be_written_is_no_panic() {
    let full = || Stdio::from(File::options().write(true).open("/dev/full").unwrap());
    let dir = TempDir::new("full");
    let mut command = short(&dir, OsStr::new("report.html"));
    let status = command.stdout(full()).stderr(full()).status().unwrap();
    assert_eq!(status.code(), Some(1));
    assert!(!json(&dir)["rows"].as_array().unwrap().is_empty());

    for (arguments, code) in [
        (&["blocks", "/no such file"][..], 1),
        (&["lab", "--replay", "/no such folder"], 1),
        (&["blocks"], 2),
        (&["no such command"], 2),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_packetlane"));
        command.args(arguments).current_dir(&dir.0);
        let status = command.stdout(full()).stderr(full()).status().unwrap();
        assert_eq!(status.code(), Some(code), "{arguments:?}");
    }
}

/// A recording of one direction, with messages of these lengths.
fn record(folder: &Path, lengths: &[usize]) {
    let mut file = Vec::new();
    for &length in lengths {
        file.extend_from_slice(&1_u64.to_le_bytes());
        file.extend_from_slice(b"block\0\0\0\0\0\0\0");
        file.extend_from_slice(&u32::try_from(length).unwrap().to_le_bytes());
        file.resize(file.len() + length, 7);
    }
    fs::create_dir_all(folder).unwrap();
    fs::write(folder.join("msgs_recv.dat"), file).unwrap();
}

#[test]
fn a_recording_with_long_messages_is_replayed_and_named() {
    let dir = TempDir::new("replay");
    let folder = dir.0.join("a recording");
    // The longest messages of the network, and an amount that would be 4 GB in the case below.
    record(&folder, &[4_000_000, 61]);
    let mut command = lab(&dir, OsStr::new("report.html"));
    command.arg("--replay").arg(&folder);
    command.args(["bip324.mixed", "--filter", "profile=replay batch=1024"]);
    let finished = Running::start(&mut command).finish();
    assert!(finished.success, "{finished:#?}");
    let name = folder.to_str().unwrap();
    assert!(
        finished.stdout.contains(&format!("\nReplayed {name}\n")),
        "{finished:#?}"
    );
    assert_eq!(json(&dir)["replayed"], name);
    let page = fs::read_to_string(dir.0.join("report.html")).unwrap();
    assert!(page.contains(&format!("Replayed: <code>{name}</code>")));
}

#[test]
fn a_planted_link_is_replaced_by_a_report() {
    let dir = TempDir::new("planted");
    let target = dir.0.join("target");
    fs::write(&target, "precious").unwrap();
    for name in ["report.json", "report.html"] {
        std::os::unix::fs::symlink(&target, dir.0.join(name)).unwrap();
    }
    let finished = Running::start(&mut short(&dir, OsStr::new("report.html"))).finish();
    assert!(finished.success, "{finished:#?}");
    assert_eq!(fs::read(&target).unwrap(), b"precious");
    assert!(json(&dir)["rows"].is_array());
    assert_eq!(fs::read_dir(&dir.0).unwrap().count(), 3);
}

#[test]
fn a_run_that_fails_leaves_no_empty_report() {
    let dir = TempDir::new("none");
    let before = dir.0.join("report.html");
    fs::write(&before, "of an earlier run").unwrap();
    let mut command = lab(&dir, OsStr::new("report.html"));
    command.args(["bip324.mixed", "--filter", "no such case"]);
    let finished = Running::start(&mut command).finish();
    assert!(
        finished.error_line().contains("no case contains"),
        "{finished:#?}"
    );
    assert!(!dir.0.join("report.json").exists());
    assert_eq!(fs::read(&before).unwrap(), b"of an earlier run");
}

/// A report with one figure, whose samples differ slightly.
fn write_report(path: &Path, machine: &str, nanos: f64) {
    let values: Vec<f64> = (0..20).map(|at| nanos + f64::from(at) / 100.0).collect();
    let report = json!({
        "schema": 1,
        "machine": {"cpu": machine, "features": [], "cores": 2, "gpu": null},
        "rows": [{
            "experiment": "bip324.threads", "case": "op=seal threads=2",
            "implementation": "packetlane", "backend": "", "metric": "time_per_packet",
            "unit": "ns", "median": nanos + 0.1, "min": nanos, "max": nanos + 0.2, "samples": 20,
            "values": values,
        }],
        "ratios": [], "published": [],
    });
    fs::write(path, report.to_string()).unwrap();
}

#[test]
fn a_comparison_says_by_its_status_whether_something_is_slower() {
    let dir = TempDir::new("compare");
    let path = |name: &str| dir.0.join(name);
    write_report(&path("old"), "A", 40.0);
    write_report(&path("slower"), "A", 60.0);
    write_report(&path("other"), "B", 40.0);
    fs::write(path("none"), "{}").unwrap();
    let compare = |old: &str, new: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_packetlane"));
        command
            .args(["lab", "compare"])
            .arg(path(old))
            .arg(path(new));
        let output = command.output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (
            output.status.code(),
            text(output.stdout),
            text(output.stderr),
        )
    };
    let (status, shown, errors) = compare("old", "slower");
    assert_eq!((status, &*errors), (Some(1), ""));
    assert_eq!(
        shown,
        "1 figures compared: 1 slower, 0 faster, beyond the noise of both\n\n                  \
         old      new  figure\n1.50x slower  40.1 ns  60.1 ns  bip324.threads op=seal threads=2: \
         time per packet\n"
    );
    let (status, shown, _) = compare("slower", "old");
    assert_eq!(status, Some(0));
    assert!(shown.contains("1.50x faster"), "{shown}");
    let (status, _, errors) = compare("old", "other");
    assert_eq!(status, Some(0));
    assert_eq!(
        errors,
        "warning: the reports are from two machines, A and B\n"
    );
    for (unreadable, why) in [
        ("absent", "No such file"),
        ("none", "not a report of the lab"),
    ] {
        let (status, shown, errors) = compare("old", unreadable);
        assert_eq!((status, &*shown), (Some(2), ""));
        assert!(
            errors.contains(why) && errors.lines().count() == 1,
            "{errors}"
        );
    }
}

#[test]
fn a_named_machine_gets_a_report_of_its_headlines() {
    let dir = TempDir::new("named");
    let mut command = lab(&dir, OsStr::new("report.html"));
    command.args([
        "sha256d.many",
        "--filter",
        "bytes=1024",
        "--name",
        "Zen 5 (VM)",
    ]);
    let finished = Running::start(command.current_dir(&dir.0)).finish();
    assert!(finished.success, "{finished:#?}");
    assert!(
        finished.stdout.contains("docs/bench/reports/zen-5-vm.json"),
        "{finished:#?}"
    );
    assert_eq!(json(&dir)["machine"]["name"], "Zen 5 (VM)");
    let reports = dir.0.join("docs/bench/reports");
    let kept = fs::read_to_string(reports.join("zen-5-vm.json")).unwrap();
    let kept: Value = serde_json::from_str(&kept).unwrap();
    let rows = kept["rows"].as_array().unwrap();
    let is_headline = |row: &Value| row["case"] == "bytes=1024 batch=8";
    assert!(!rows.is_empty() && rows.iter().all(is_headline), "{rows:?}");
    let picture = fs::read_to_string(reports.join("zen-5-vm.svg")).unwrap();
    assert!(picture.contains(">Zen 5 (VM)</text>"));

    let mut nameless = lab(&dir, OsStr::new("report.html"));
    let status = nameless
        .args(["--name", "?"])
        .stderr(Stdio::null())
        .status();
    assert_eq!(status.unwrap().code(), Some(2));
}

/// In a build without some features: tables as they are ready, then the answers, and in every form
/// of the report what is missing.
#[test]
fn what_a_build_leaves_out_is_said() {
    let dir = TempDir::new("left-out");
    let mut command = lab(&dir, OsStr::new("report.html"));
    command.args(["sha256d.d64", "sha256d.merkle"]);
    let finished = Running::start(&mut command).finish();
    assert!(finished.success, "{finished:#?}");
    let place = |text: &str| {
        let place = finished.stdout.find(text);
        place.unwrap_or_else(|| panic!("no {text}: {finished:#?}"))
    };
    let first_table = place("sha256d.d64  Double");
    assert!(first_table < place("sha256d.merkle  Merkle"));
    assert!(place("sha256d.merkle  Merkle") < place("\nMachine"));

    let page = fs::read_to_string(dir.0.join("report.html")).unwrap();
    // On one line.
    let shown: Vec<&str> = finished.stdout.split_whitespace().collect();
    let shown = shown.join(" ");
    let report = json(&dir);
    let left_out = report["left_out"].as_array().map_or(&[][..], Vec::as_slice);
    let mut features = Vec::new();
    for absent in left_out {
        let feature = absent["feature"].as_str().unwrap();
        features.push(feature);
        let how = format!("add --features {feature}");
        assert!(shown.contains("Not in this build") && shown.contains(&how));
        assert!(finished.stderr.contains(&how));
        assert!(page.contains(&how));
    }
    let rivals = report["ratios"].as_array().unwrap().iter();
    let mut rivals = rivals.map(|ratio| ratio["against"].as_str().unwrap());
    assert_eq!(
        rivals.any(|rival| rival == "bitcoin_hashes"),
        !features.contains(&"rivals")
    );
    assert_eq!(features.contains(&"rivals"), !cfg!(feature = "rivals"));
    assert_eq!(features.contains(&"openssl"), !cfg!(feature = "openssl"));
}

/// An experiment that is not in this build is never skipped silently.
#[test]
#[cfg(not(feature = "rivals"))]
fn an_experiment_that_is_left_out_is_an_error_that_names_its_feature() {
    let dir = TempDir::new("absent");
    for experiment in ["gateway.turn", "quic.send_path"] {
        let mut command = lab(&dir, OsStr::new("report.html"));
        let finished = Running::start(command.args(["sha256d.d64", experiment])).finish();
        assert!(!finished.success && finished.stdout.is_empty());
        assert_eq!(
            finished.stderr,
            format!("error: {experiment} is not in this build: add --features rivals\n")
        );
    }
}

/// The table in docs/bench/results.md is what the command makes of the reports in the repository.
#[test]
fn the_results_page_has_the_headlines_of_all_reports() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = fs::read_to_string(root.join("docs/bench/results.md")).unwrap();
    let (_, rest) = page.split_once("<!-- headlines -->\n").unwrap();
    let (table, _) = rest.split_once("<!-- end of headlines -->").unwrap();

    let files = fs::read_dir(root.join("docs/bench/reports")).unwrap();
    let files = files.map(|file| file.unwrap().path());
    let mut reports: Vec<PathBuf> = files
        .filter(|path| path.extension() == Some(OsStr::new("json")))
        .collect();
    reports.sort();
    let mut command = Command::new(env!("CARGO_BIN_EXE_packetlane"));
    command.args(["lab", "headlines"]).args(&reports);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(
        table,
        String::from_utf8(output.stdout).unwrap(),
        "docs/bench/results.md: packetlane lab headlines docs/bench/reports/*.json"
    );
    for report in &reports {
        assert!(
            report.with_extension("svg").exists(),
            "{}",
            report.display()
        );
    }
}
